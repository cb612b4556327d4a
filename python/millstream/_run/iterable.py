"""A built pipeline whose source is an iterable."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from millstream import _engine
from millstream._core.description import Tree
from millstream._order.orders import Order, Sequential
from millstream._run.builder import Builder, unchanged
from millstream._run.built import BuiltPipeline
from millstream._run.state import (
    CHECK,
    LoaderState,
    check_x64,
    has_x64,
    is_traced,
    state_words,
    step_of,
    words_of,
)
from millstream._run.stream import check_options, no_guard
from millstream._sources.iterable import IterableSource
from millstream._sources.source import SampleSource
from millstream._stages.stage import Stage
from millstream._workers.first_sample import specs
from millstream._workers.rows import FieldSpec, put_sample

PREFETCH = 2
"""How many batches are made ahead if the loader's ``prefetch`` is None."""
_KEPT_SLOTS = 8
_LEAF = "iterable"
_HEADER = struct.Struct("<QQQ")
_serials = itertools.count(1)


class Place(NamedTuple):
    """Where a batch starts in its iterable. A state holds it in one uint8 leaf."""

    epoch: int = 0
    """The number of the iterable."""
    samples: int = 0
    """How many samples were taken from it."""
    batches: int = 0
    """The number of batches since epoch 0."""
    saved: bytes = b""
    """The state of the iterable: "J" and JSON, or "B" and bytes. Empty for none."""

    @property
    def stream(self) -> dict[str, np.ndarray]:
        """The ``stream`` of a state, which has one leaf."""
        header = _HEADER.pack(self.epoch, self.samples, self.batches)
        return {_LEAF: np.frombuffer(header + self.saved, np.uint8)}

    @classmethod
    def of(cls, stream: Mapping[str, Any]) -> Place:
        """Returns the place in a state. Raises ``ValueError`` if it is damaged."""
        data = np.asarray(stream[_LEAF]).tobytes()
        if len(data) < _HEADER.size or data[_HEADER.size :][:1] not in (
            b"",
            b"J",
            b"B",
        ):
            raise ValueError(
                "the state of the iterable is damaged: expected a state of a run over "
                f"an IterableSource, found {len(data)} bytes"
            )
        epoch, samples, batches = _HEADER.unpack_from(data)
        return cls(epoch, samples, batches, data[_HEADER.size :])


class BadRow(ValueError):
    """A sample does not fit the fields. ``row`` is its row in the batch."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class _Fields(SampleSource):
    """The fields of an iterable's samples, for stages to read."""

    needs_tracing = True

    def __init__(self, columns: tuple[FieldSpec, ...], tree: Tree, count: int) -> None:
        names: Any = [
            (column.name, column.dtype, [count, *column.shape], 0, 0, None, None)
            for column in columns
        ]
        self._native = _engine.arrays(names)
        self._fields = tree, [column.name for column in columns]
        self._count = count

    @property
    def display_name(self) -> str:
        return "IterableSource"

    @property
    def num_samples(self) -> int:
        return self._count

    @property
    def order(self) -> Order:
        return Sequential()

    def native(self) -> tuple[_engine.Source, Tree, list[str]]:
        tree, names = self._fields
        return self._native, tree, names


class IterablePipeline(BuiltPipeline):
    """A validated pipeline over an iterable.

    A position is a ``LoaderState`` whose stream holds a ``Place``. The engine
    copies samples into batches. XLA runs all stages on the batches.
    """

    def __init__(  # the engine has no plan for an iterable
        self, source: IterableSource, stages: tuple[Stage, ...], **options: Any
    ) -> None:
        check_options("IterableSource", {**options, "prefetch": None}, _REASONS)
        for stage in stages:
            if stage.stateful:
                raise TypeError(
                    f"{type(stage).__name__} cannot follow IterableSource, because its "
                    "state is updated inside jit. Shuffle inside the iterable."
                )
        prefetch = options.get("prefetch")
        self.source = source
        self.prefetch = PREFETCH if prefetch is None else prefetch
        self.x64 = has_x64()
        self.columns, self.sample_tree = source.columns
        self.samples = source.steps_per_epoch
        """The number of samples in an epoch, or None if the iterator decides."""
        self.head = _Fields(self.columns, self.sample_tree, self.samples or 1)
        builder = Builder(self.head)
        builder.streams = True
        builder.place(stages)
        self.placed = builder.placed
        self.batched, self.batch_size = builder.batched, builder.batch_size
        self.remainder, self.policy = builder.remainder, builder.policy
        self.device, self.split = builder.device, builder.split
        self.later = [
            placed
            for placed in self.placed
            if placed.trace is not unchanged
            and not (self.split is None and placed.name == "DevicePutTransform")
        ]
        self.keyed = builder.keyed > 0
        self.keys_samples = builder.keys_samples
        self.splits_natively = False
        self.tree = self.sample_tree
        self.traced, self.skip, self.host_fields = False, False, ()
        self._failure = None
        self.depends_on_epoch = source.takes_epoch or builder.draws
        self.steps = self._steps()
        """The number of batches in an epoch, or 0 if the iterator decides."""
        self.resumes = ""
        """How an iterable is resumed, once it is known."""
        self._serial = -next(_serials)
        self.count = [0, 0]
        """The number of batches and of samples that were delivered."""
        fields = specs(self.columns)
        self.rows = _engine.RowBatches(
            fields,
            self.sample_tree,
            self.batch_size,
            self.prefetch + _KEPT_SLOTS,
            self._put_slowly,
        )
        self._word = zlib.crc32(repr(self.described()).encode()) or 1
        self._check_mesh()
        self._spec = self.element_spec()
        self._check_specs()

    def _steps(self) -> int:
        if self.samples is None:
            return 0
        whole, rest = divmod(self.samples, self.batch_size)
        if self.remainder == "drop":
            if not whole:
                raise ValueError(
                    "BatchTransform: drop_last drops every batch, because an epoch has "
                    f"{self.samples} samples and a batch {self.batch_size}. Use "
                    "smaller batches."
                )
            return whole
        return whole + (rest > 0)

    def _check_mesh(self) -> None:
        if self.split is None:
            return
        self._check_split(self.split)

    def _check_split(self, split: Any) -> None:
        if self.remainder == "partial":
            raise ValueError(
                "remainder='partial' makes a shorter last batch, which a sharding "
                "cannot split. Use 'pad', 'drop' or 'wrap'."
            )
        if len(split.processes) > 1:
            raise ValueError(
                "the batches of an IterableSource cannot be split over several "
                f"processes, here {split.processes}. Use a mesh of the devices of one "
                "process."
            )

    def _put_slowly(self, arrays: list[Any], k: int, sample: Any) -> None:
        try:
            put_sample(arrays[:-1], k, sample, self.columns, self.sample_tree)
        except ValueError as error:
            raise BadRow(k, str(error)) from error

    # Descriptions.

    def described(self) -> dict[str, Any]:
        end = f"after {self.samples} samples" if self.samples else "with the iterator"
        return {
            "samples": 1,
            "fields": {column.name: str(column) for column in self.columns},
            "order": {"is": f"an iterable whose epochs end {end}", "digest": end},
            "epoch_length": 1,
            "batch_size": self.batch_size,
            "remainder": self.remainder,
            "digest": "iterable",
        }

    def leaf_specs(self) -> list[jax.ShapeDtypeStruct]:
        lead = (self.batch_size,) if self.batched else ()
        return [
            jax.ShapeDtypeStruct((*lead, *column.shape), jax.numpy.dtype(column.dtype))
            for column in self.columns
        ] + [jax.ShapeDtypeStruct(lead, np.uint32)] * (2 if self.keys_samples else 0)

    @property
    def sample_bytes(self) -> int:
        return self.rows.bytes // self.batch_size

    def valid_rows(self, words: Any) -> int:
        """Returns the number of rows to count, if it is known, or the batch size."""
        if self.samples is None or self.policy == "wrap":
            return self.batch_size
        return min(self.batch_size, self.samples - step_of(words) * self.batch_size)

    @property
    def inner(self) -> None:  # type: ignore[override]
        """No part of the pipeline runs in the engine alone."""
        return None

    in_jit = False

    @property
    def check_word(self) -> int:
        return self._word

    @property
    def serial(self) -> int:
        return self._serial

    @property
    def delivered(self) -> int:
        return self.count[0]

    @property
    def samples_delivered(self) -> int:
        return self.count[1]

    # Only Python loops.

    def check_traceable(self) -> None:
        self.refuse("scan_epoch()")

    def refuse(self, method: str) -> NoReturn:
        """Raises ``TypeError`` for a method that cannot run Python code."""
        raise TypeError(
            f"{method} cannot be used with IterableSource, because Python code makes "
            "its samples. Use run(), epochs() or iterate()."
        )

    # States.

    def init_state(self, key: Any = None) -> LoaderState:
        return LoaderState(state_words(self._word, key), Place().stream)

    def start(self, state: Any) -> LoaderState:
        """Returns a state to start from, in host memory.

        Raises ``ValueError`` or ``TypeError`` unless it belongs to this pipeline.
        """
        check_x64(self.x64)
        if isinstance(state, Mapping) and set(state) == {"words", "stream"}:
            state = LoaderState(state["words"], state["stream"])
        if not isinstance(state, LoaderState) or state.stream is None:
            raise TypeError(
                "the state has no state of an iterable: expected the result of "
                f"init_state() or a state from a run, found {type(state).__name__}"
            )
        words = words_of(state)
        if any(map(is_traced, jax.tree.leaves(state))):
            return state
        known = np.asarray(words)
        step = step_of(known)
        if int(known[CHECK]) != self._word or (self.steps and step >= self.steps):
            raise ValueError(
                "this state belongs to another pipeline. Restore it with the pipeline "
                "that saved it, or start again with init_state()."
            )
        if not isinstance(state.stream, Mapping) or set(state.stream) != {_LEAF}:
            raise ValueError(
                "the state is not that of an iterable: expected a leaf "
                f"{_LEAF!r}, found {jax.tree.structure(state.stream)}"
            )
        leaf = np.asarray(state.stream[_LEAF])
        if leaf.dtype != np.uint8 or leaf.ndim != 1:
            raise ValueError(
                "expected the state of an iterable to be uint8[], found "
                f"{leaf.dtype}{list(leaf.shape)}"
            )
        stream = {_LEAF: leaf}
        Place.of(stream)
        return LoaderState(known, stream)

    def with_leaves(self, found: Mapping[str, Any]) -> Any:
        """Returns the stream of a saved state."""
        if set(found) != {_LEAF}:
            raise ValueError(
                "the saved state of the stream does not fit this pipeline: expected "
                f"the state of an iterable, found {sorted(found)}"
            )
        return dict(found)

    def state(self, position: LoaderState) -> LoaderState:
        return position

    def on_device(self, position: Any) -> Any:
        return position

    def abandon(self, words: Any) -> None:
        """Does nothing: a loop closes its own iterator."""

    # Errors.

    def interruptible(self, active: bool) -> Any:
        return no_guard()

    @property
    def last_error(self) -> BaseException | None:
        return self._failure

    def forget_error(self) -> None:
        self._failure = None


_REASONS = {
    "threads": "one thread runs the iterator",
    "traced": "Python code makes its samples",
    "skip": "a sample that fails cannot be made again",
}
