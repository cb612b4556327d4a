"""Builds a pipeline stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from millstream import _engine
from millstream._core.description import Tree
from millstream._delivery.placement import specs_text
from millstream._delivery.sharding import Split
from millstream._order.orders import Sequential
from millstream._run.filtering import Filtering
from millstream._run.keys import FIRST_STAGE, Origin
from millstream._sources.arrays import host_copy
from millstream._sources.source import SampleSource
from millstream._stages.filter import Samples, hash_of
from millstream._stages.stage import Key, Stage, keyed

if TYPE_CHECKING:
    from millstream._stages.map import HostCallbackTransform
    from millstream._stages.python_map import PythonMapTransform
    from millstream._workers.pools import WorkerPool

Trace = Callable[..., Any]
"""A stage for JAX to trace: ``(value, mask, batched) -> value``.

A stage that takes a key has it as a fourth argument. A stage that changes the mask
returns ``(value, mask)``.
"""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A stage at its position in a pipeline."""

    number: int
    name: str
    label: str
    """The name in the table of ``explain``, with important arguments."""
    runs: str
    """Where the stage runs: "native", "XLA", "Python" or "Python, 2 worker threads"."""
    batched: bool
    """Whether the stage outputs batches and not samples."""
    native: bool
    """Whether the stage is done before a batch leaves the engine."""
    trace: Trace | None
    """The stage as a traceable function; None if only the engine can run it."""
    key_stage: int | None = None
    """The stage number in the random key, if ``trace`` takes a key."""
    changes_mask: bool = False
    """Whether ``trace`` returns ``(value, mask)``."""
    transforms: tuple[_engine.Transform, ...] = ()
    tree: Tree = None
    """The tree of the engine's fields after a native stage."""
    callback: HostCallbackTransform | None = None
    """The stage itself if it calls Python when a batch is delivered."""
    expected: Tree = None
    """The spec that the output must have; None for any."""
    host_fields: tuple[str, ...] = ()
    """The keys of the host fields after the stage."""

    def __str__(self) -> str:
        return f"stage {self.number}, {self.name}"

    def run(self, value: Tree, mask: Any, origin: Origin) -> tuple[Tree, Any]:
        """Traces the stage, with a key if it takes one. Returns ``(value, mask)``."""
        assert self.trace is not None  # the engine runs stages without a trace
        arguments: tuple[Any, ...] = value, mask, self.batched
        if self.key_stage is not None:
            arguments += (origin.key(self.key_stage, self.batched),)
        result = self.trace(*arguments)
        return result if self.changes_mask else (result, mask)


class UnknownFields(Exception):
    """The fields at this stage are unknown until workers are started."""


class Builder:
    """The state of a pipeline while its stages are added in order.

    ``place`` calls ``Stage.place`` of each stage. The stage reads ``native``,
    ``batched``, ``tree`` and ``names``, and then calls the method that adds it. The
    engine runs the stages up to the first that it cannot run. JAX traces the rest.

    Args:
      head: The source of the samples.
      traced: Whether XLA gathers the samples and runs all stages.
      check_only: Start no workers, call no functions and copy no data. Stages after a
        worker stage are checked only as far as possible without them.
      skip: Whether samples that always fail are skipped.
    """

    streams = False
    """Whether the source is a stream, which has no samples that can be counted."""

    def __init__(
        self,
        head: SampleSource,
        *,
        traced: bool = False,
        check_only: bool = False,
        skip: bool = False,
    ) -> None:
        self.head = head
        """The source of the samples. A filter replaces it by a subset."""
        self.kept: np.ndarray | None = None
        """The index in the source itself of each sample that filters keep."""
        self.placed: list[Placed] = []
        self.batched = False
        self.batch_size = 1
        self.remainder = "pad"
        self.device: Any = None
        self.split: Split | None = None
        self.pools: list[WorkerPool] = []
        self.prefetch_samples = head.prefetch_samples
        self.draws = False
        """Whether a stage draws random numbers."""
        self.keyed = 0
        """How many traced stages take a key."""
        self.keys_samples = False
        """Whether a stage before batching takes a key."""
        self.host_fields = head.host_field_names
        """The keys of the host fields at this stage."""
        self.puts_natively = False
        """Whether batches are put on their devices directly from the engine."""
        self._traced = traced or head.needs_tracing
        self._check_only = check_only
        self._skip = skip
        self._source, self._tree, self._names = head.native()
        self._copied = False
        self._fields_known = True
        self._before: list[_engine.Transform] = []
        self._after: list[_engine.Transform] = []
        self._number = 0
        self._name = ""

    def place(self, stages: Iterable[Stage]) -> None:
        """Adds the stages."""
        for self._number, stage in enumerate(stages, start=1):
            self._name = type(stage).__name__
            try:
                stage.place(self)
            except UnknownFields:
                continue

    # For stages to read.

    @property
    def stage(self) -> str:
        """The number and class of the current stage, for messages."""
        return f"stage {self._number}, {self._name}"

    @property
    def native(self) -> bool:
        """Whether the engine runs all earlier stages, so that it can run this one."""
        return self._first_later is None

    @property
    def tree(self) -> Tree:
        """The pytree of a sample. Its leaves are indices into ``names``.

        Raises ``TypeError`` unless ``native``, as do ``names`` and ``field``.
        """
        self._check_native()
        return self._tree

    @property
    def names(self) -> list[str]:
        """The names of the fields in the engine."""
        self._check_native()
        return list(self._names)

    def field(self, key: Key) -> str:
        """Returns the name in the engine of the array under ``key``."""
        names = self.names
        if key in self.host_fields:
            raise TypeError(
                f"{self.stage}: {key!r} is a host field, not an array. Convert it with "
                "a PythonMapTransform first."
            )
        return names[keyed(self.tree, key, self.stage)]

    # For stages to add themselves.

    def batch(self, size: int, remainder: str, *, expected: Tree = None) -> None:
        """Makes batches of ``size`` samples."""
        for earlier in self.placed:
            if earlier.batched:
                raise ValueError(
                    f"stages {earlier.number} and {self._number} are both {self._name} "
                    f"({self.batch_size} and {size}). Remove one of them."
                )
        self.batched, self.batch_size, self.remainder = True, size, remainder
        self._add(
            label=f"{self._name}({size}, {remainder})",
            native=True,
            trace=unchanged,
            tree=self._tree,
            expected=expected,
        )

    def add_native(
        self,
        transforms: list[_engine.Transform],
        tree: Tree = None,
        names: list[str] | None = None,
        *,
        trace: Trace | None = None,
    ) -> None:
        """Adds ``transforms`` of the engine. Fields change to ``tree`` and ``names``.

        ``trace`` must do the same in XLA, byte for byte. Without ``trace`` only the
        engine can run the stage, and XLA cannot gather the samples. Raises
        ``TypeError`` unless ``native``.
        """
        self._check_native()
        if trace is None:
            self._use_engine_only()
        if tree is not None:
            self._check_structure_kept()
        self.draws |= any(transform.draws for transform in transforms)
        self._tree = self._tree if tree is None else tree
        self._names = self._names if names is None else list(names)
        self._add_transforms(transforms, "native", trace)

    def add_traced(
        self,
        trace: Trace,
        *,
        keyed: bool = False,
        changes_mask: bool = False,
        expected: Tree = None,
    ) -> None:
        """Adds a stage that JAX traces. It also traces all later stages.

        With ``keyed``, ``trace`` takes a random key as a fourth argument. With
        ``changes_mask`` it returns ``(value, mask)``.
        """
        self._add(
            label=self._name,
            native=False,
            trace=trace,
            key_stage=FIRST_STAGE + self.keyed if keyed else None,
            changes_mask=changes_mask,
            expected=expected,
        )
        self.keyed += keyed
        self.draws |= keyed
        self.keys_samples |= keyed and not self.batched

    def put_on(self, where: jax.Device | Tree, trace: Trace) -> None:
        """Puts batches on a device, or splits them over the devices of a mesh.

        ``where`` is a device, a sharding, or a pytree of shardings. The last such stage
        decides. ``trace`` constrains the shardings inside jit.
        """
        label = self._name
        self.device, self.split = None, None
        if isinstance(where, jax.Device):
            self.device = where
        elif not self.batched:
            raise ValueError(
                f"{self.stage}, splits batches. Put it after BatchTransform."
            )
        else:
            self.split = Split(where, self.batch_size)
            label = f"{self._name}({specs_text(where)})"
        self.puts_natively = self.native
        self._add(label=label, native=self.native, trace=trace, tree=self._tree)

    def add_host_callback(
        self, callback: HostCallbackTransform, *, expected: Tree = None
    ) -> None:
        """Adds a stage that calls Python when a batch is delivered."""
        self._add(
            label=self._name,
            native=False,
            runs="Python",
            trace=callback.trace,
            callback=callback,
            expected=expected,
        )

    def filter(self, choose: Callable[[Samples], np.ndarray]) -> None:
        """Continues with the samples for which ``choose`` returns True.

        Raises ``TypeError`` unless ``native``.
        """
        filtering = Filtering.of(self, self._number)
        self._check_native()
        if self._check_only:
            return
        self.head, self.kept = filtering.subset(
            choose, self._before, self._tree, self._skip
        )
        self._source = host_copy(self.head) if self._copied else self.head.native()[0]
        kept, count = len(self.kept), len(filtering.indices)
        self._add(
            label=f"{self._name}(keeps {kept} of {count})",
            native=True,
            trace=unchanged,
            tree=self._tree,
        )

    def add_worker_stage(self, stage: PythonMapTransform) -> None:
        """Adds a stage that workers run. Raises ``TypeError`` unless ``native``."""
        self._check_native()
        self._check_structure_kept()
        if self._check_only:
            self._fields_known = False
            return
        self._use_engine_only()
        first = Sequential().native(self.head.num_samples)
        earlier = _engine.plan(self._source, first, 1, "pad", self._before, self._after)
        check_host_fields(self.host_fields, self._tree)
        bound = stage.bind(earlier, self._tree, self._number, self.host_fields)
        self.host_fields = bound.host_fields
        self.pools.append(bound.pool)
        self.prefetch_samples = max(self.prefetch_samples or 64, 2 * stage.workers)
        self._tree, self._names = bound.tree, bound.names
        self.draws |= bound.transform.draws
        self._add_transforms([bound.transform], stage.workers_text, None)

    # Results.

    @property
    def fields(self) -> Tree:
        """The pytree of the engine's output fields."""
        return self._tree

    @property
    def gathers(self) -> bool:
        """Whether XLA gathers the samples, and not the engine.

        XLA does so with ``traced``, or if an accelerator holds the samples and all
        stages can be traced.
        """
        if self._traced or self.head.device() is None:
            return self._traced
        return all(placed.trace is not None for placed in self.placed)

    @property
    def policy(self) -> str:
        """The ``remainder`` for the engine.

        For "partial" the engine pads, and the Python loop removes the padding.
        """
        return "pad" if self.remainder == "partial" else self.remainder

    def plan(self, order: _engine.Order) -> _engine.Plan:
        """Returns the engine's plan. Raises the errors of the engine.

        If ``keys_samples``, the last two fields are the epoch and the sample of each
        row, which are not in ``fields``.
        """
        origin = [_engine.origin()] if self.keys_samples else []
        return _engine.plan(
            self._source,
            order,
            self.batch_size,
            self.policy,
            [*self._before, *origin],
            self._after,
            self._skip,
            0 if self.kept is None else int(hash_of(self.kept), 16),
        )

    @property
    def _first_later(self) -> Placed | None:
        return next((placed for placed in self.placed if not placed.native), None)

    def _check_native(self) -> None:
        """Raises unless the engine can run this stage and its fields are known."""
        later = self._first_later
        if later is not None:
            raise TypeError(
                f"{self.stage}, cannot run in XLA, so it cannot follow {later}, which "
                f"runs in {later.runs}. Put stage {self._number} before stage "
                f"{later.number}."
            )
        if not self._fields_known:
            raise UnknownFields

    def _check_structure_kept(self) -> None:
        """Raises if this stage of the engine changes fields that have shardings.

        The engine puts batches on their devices after all of its stages.
        """
        if self.split is not None and not isinstance(
            self.split.shardings, NamedSharding
        ):
            raise ValueError(
                f"{self.stage}, changes the structure of batches, but an earlier "
                "DevicePutTransform has a sharding for each array. Put "
                f"DevicePutTransform after stage {self._number}."
            )

    def _use_engine_only(self) -> None:
        """Makes the engine read the samples, even if an accelerator holds them."""
        if self.head.needs_tracing:
            raise TypeError(
                f"{self.stage}, cannot run in XLA, so it cannot follow "
                f"{self.head.display_name}"
            )
        if self._traced:
            raise ValueError(
                f"traced=True runs all stages in XLA, but {self.stage}, cannot run "
                "there. Remove traced=True."
            )
        if self._check_only or self.head.device() is None or self._copied:
            return
        self._source, self._copied = host_copy(self.head), True
        if self.device is None and self.split is None:
            self.device = self.head.device()

    def _add_transforms(
        self, transforms: list[_engine.Transform], runs: str, trace: Trace | None
    ) -> None:
        (self._after if self.batched else self._before).extend(transforms)
        self._add(
            label=self._name,
            native=True,
            runs=runs,
            trace=trace,
            transforms=tuple(transforms),
            tree=self._tree,
        )

    def _add(self, *, native: bool, runs: str = "", **others: Any) -> None:
        self.placed.append(
            Placed(
                number=self._number,
                name=self._name,
                batched=self.batched,
                native=native,
                runs=runs or ("native" if native else "XLA"),
                host_fields=self.host_fields,
                **others,
            )
        )


def check_host_fields(keys: tuple[str, ...], value: Tree) -> None:
    """Raises ``ValueError`` if an array of ``value`` has the name of a host field."""
    hidden = [key for key in keys if isinstance(value, Mapping) and key in value]
    if hidden:
        raise ValueError(
            f"a stage makes an array {hidden[0]!r}, but the samples have a host field "
            "(a value that is not an array) of that name. Give the array another name."
        )


def unchanged(value: Tree, mask: Any, batched: bool) -> Tree:
    return value
