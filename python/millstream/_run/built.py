"""A built pipeline: the engine's plan and loader, the traced stages and states."""

from __future__ import annotations

import functools
import warnings
from typing import Any, NoReturn, cast

import jax
import numpy as np

from millstream import _engine
from millstream._core.description import Tree
from millstream._delivery import jit
from millstream._delivery.placement import check_leaves, specs_text
from millstream._delivery.sharding import Split, constrained, replicated
from millstream._order import jnp_orders
from millstream._run.agreement import AbsentError, agree, compare, layout
from millstream._run.builder import Builder, Placed, check_host_fields
from millstream._run.gather import gathered
from millstream._run.keys import Origin
from millstream._run.resume import described
from millstream._run.state import (
    EPOCH,
    KEY_HIGH,
    KEY_LOW,
    LoaderState,
    check_x64,
    has_x64,
    is_traced,
    state_words,
    step_of,
    words_of,
)
from millstream._run.tracing import finish
from millstream._sources.source import SampleSource
from millstream._stages.map import check_spec
from millstream._stages.stage import Stage


class BuiltPipeline:
    """A validated pipeline with its loader. Creates states and makes batches.

    The engine runs the stages up to the first that it cannot run. JAX traces the rest.
    """

    def __init__(
        self,
        head: SampleSource,
        stages: tuple[Stage, ...],
        *,
        threads: int | None = None,
        prefetch: int | None = None,
        traced: bool = False,
        skip: bool = False,
        error_budget: int | None = None,
    ) -> None:
        self.x64 = has_x64()
        builder = Builder(head, traced=traced, skip=skip)
        builder.place(stages)
        self.head = head = builder.head
        self.kept = builder.kept
        """The index in the source itself of each sample that filters keep, or None."""
        self.placed = builder.placed
        self.later = [p for p in self.placed if not p.native]
        self.batched = builder.batched
        self.batch_size = builder.batch_size
        self.remainder = builder.remainder
        self.policy = builder.policy
        self.device = builder.device
        self.split = builder.split
        self.keyed = builder.keyed > 0
        """Whether a traced stage takes a key."""
        self.keys_samples = builder.keys_samples
        """Whether such a stage stands before batching."""
        # The engine's fields for keys have one axis, so only their rows can be split.
        self.splits_natively = builder.puts_natively and not self.keys_samples
        self.tree = builder.fields
        self.traced = builder.gathers
        self._pools = builder.pools
        self._unmet: str | None = None
        self._failure: BaseException | None = None
        self.plan = builder.plan(head.order.native(head.num_samples))
        self.steps: int = self.plan.steps
        self.traits = self.plan.traits
        self.depends_on_epoch = (
            head.order.depends_on_epoch
            or self.traits.draws
            or builder.draws
            or self.remainder == "wrap"
        )
        """Whether two epochs with the same seed may have different batches."""
        self.skip = skip
        self.host_fields = builder.host_fields
        if not self.plan.schema:
            raise ValueError(
                f"a batch must have at least one array, but samples have only the host "
                f"fields {list(self.host_fields)}. Add a PythonMapTransform whose "
                "function returns an array."
            )
        if self.traced and self.traits.workers:
            raise ValueError(
                "traced=True gathers samples in XLA, which cannot call the functions "
                f"of {type(head).__name__}. Remove traced=True."
            )
        length = head.order.length(head.num_samples)
        if head.needs_tracing and self.policy == "wrap" and length % self.batch_size:
            raise ValueError(
                f"remainder='wrap' is not possible for {head.display_name} if a batch "
                f"of {self.batch_size} does not divide its {length} samples. Use 'pad' "
                "or 'drop'."
            )
        if self.traced and head.num_samples >= jnp_orders.MOST_SAMPLES:
            raise ValueError(
                f"traced=True needs fewer than 2^31 samples, not {head.num_samples}. "
                "Remove traced=True."
            )
        dtypes = [spec.dtype.name for spec in self.leaf_specs()]
        samples = builder.prefetch_samples
        if prefetch is None and samples is not None:
            # Workers need rows of the next batch while a batch is delivered.
            prefetch = max(
                -(-samples // self.batch_size), 4 if self.traits.workers else 1
            )
        self.engine = _engine.loader(
            self.plan,
            dtypes,
            0 if threads is None else threads,
            -1 if prefetch is None else prefetch,
            -1 if error_budget is None else error_budget,
            self.split.local_shards if self.split else [],
            self.split.devices if self.split else 1,
        )
        if self.split is not None:
            self._check_split(self.split)
        check_host_fields(self.host_fields, self.element_spec())
        self._check_specs()

    def _check_specs(self) -> None:
        """Raises ``ValueError`` if a value does not match ``element_spec_override``."""
        from millstream._run.explain import specs_after

        if all(placed.expected is None for placed in self.placed):
            return
        for placed, spec, _ in specs_after(self):
            if placed.expected is not None:
                check_spec(spec, placed.expected, placed.name)

    def _check_split(self, split: Split) -> None:
        """Raises ``ValueError`` if batches cannot be split over the mesh.

        All processes of the mesh must load the same pipeline.
        """
        if self.remainder == "partial":
            raise ValueError(
                "remainder='partial' makes a shorter last batch, which a sharding "
                "cannot split. Use 'pad', 'drop' or 'wrap'."
            )
        for placed in self.placed:
            if placed.callback is None:
                continue
            if len(split.processes) > 1:
                raise ValueError(
                    f"{placed}, needs whole batches, but batches are split over "
                    f"the processes {split.processes}. Remove the stage, or use a "
                    "mesh of one process."
                )
            if placed.callback.ordered and split.devices > 1:
                raise ValueError(
                    f"{placed}: ordered=True needs batches on one device, but they "
                    f"are split over {split.devices} devices. Use ordered=False."
                )
        if self.splits_natively:
            check_leaves(split.shardings, self.unflatten(self.leaf_specs()))
        if len(split.processes) > 1:
            spread = layout(split.mesh, specs_text(split.shardings))
            mine = {**described(self), "sharding": spread}
            self._unmet = agree(mine, split.processes)

    def source_indices(self, samples: np.ndarray) -> np.ndarray:
        """Returns the indices in the source itself of samples of the plan.

        -1 for padding stays -1.
        """
        if self.kept is None:
            return samples
        return np.where(samples < 0, -1, self.kept[np.maximum(samples, 0)])

    # Values and their specs.

    def leaf_specs(self) -> list[jax.ShapeDtypeStruct]:
        """Returns the spec of each field of the engine, with the dtypes of JAX."""
        lead = (self.batch_size,) if self.batched else ()
        return [
            jax.ShapeDtypeStruct(
                (*lead, *shape), jax.dtypes.canonicalize_dtype(jit.dtype_named(dtype))
            )
            for _, dtype, shape in self.plan.schema
        ]

    def mask_spec(self) -> jax.ShapeDtypeStruct:
        """Returns the spec of the engine's mask, before any traced stage."""
        lead = (self.batch_size,) if self.batched else ()
        return jax.ShapeDtypeStruct(lead, np.bool_)

    def rows_of(self, fields: Any) -> list[np.ndarray]:
        """Returns fields of the engine; without batching, only their single row."""
        return fields if self.batched else [field[0, ...] for field in fields]

    @functools.cached_property
    def _positions(self) -> tuple[list[int], Any]:
        return jax.tree.flatten(self.tree)

    def unflatten(self, leaves: list[Any]) -> Tree:
        """Returns a value as a pytree, from the engine's fields."""
        positions, structure = self._positions
        return structure.unflatten([leaves[position] for position in positions])

    def origin(self, words: Any, leaves: list[Any]) -> Origin:
        """Returns what the keys of a batch depend on.

        ``leaves`` are the engine's fields. The last two are the epoch and the sample of
        each row if ``keys_samples``.
        """
        if not self.keyed:
            return Origin()
        return Origin(words, tuple(leaves[-2:]) if self.keys_samples else ())

    def element_spec(self) -> Tree:
        check_x64(self.x64)
        leaves = self.leaf_specs()
        value = self.unflatten(leaves)
        if not self.later:
            return value
        origin = self.origin(jit.STATE_SPEC, leaves)
        return jax.eval_shape(self.finish, value, self.mask_spec(), origin)[0]

    # Batches inside jit.

    def arrays(self) -> list[Any]:
        """Returns the arrays that XLA gathers from, or none if the engine gathers."""
        return self._device_arrays if self.traced else []

    @functools.cached_property
    def in_jit(self) -> bool:
        """Whether the samples are tracers, so that batches exist only inside jit."""
        return self.head.needs_tracing and any(map(is_traced, self.head.arrays() or []))

    @functools.cached_property
    def _device_arrays(self) -> list[Any]:
        if self.in_jit:
            return self.head.arrays() or []
        with jax.ensure_compile_time_eval():  # the first call may be inside jit
            arrays = self.head.arrays()
            if arrays is None:
                raise ValueError(
                    f"{type(self.head).__name__} cannot be copied to a device, because "
                    "traced=True needs arrays in memory. Remove traced=True."
                )
            return arrays if self.split is None else replicated(self.split, arrays)

    def step(
        self, words: Any, arrays: list[Any], consumed: bool = False
    ) -> tuple[Tree, Any, Any]:
        """Traces one batch, ``(value, mask, words)``, through all stages.

        ``consumed`` says that the program does not return the batch.
        """
        found = self.step_through(self.later, words, arrays, consumed)
        value, mask, _, after = found
        return value, mask, after

    def step_through(
        self,
        later: list[Placed],
        words: Any,
        arrays: list[Any],
        consumed: bool = False,
    ) -> tuple[Tree, Any, Origin, Any]:
        """Traces one batch, ``(value, mask, origin, words)``, through some stages."""
        check_x64(self.x64)
        if self.traced:
            value, mask, origin, after = gathered(self, words, arrays)
            if self.split is not None:
                layout = self.split.rows_sharding
                value, mask, rows = constrained(layout, (value, mask, origin.rows))
                origin = origin._replace(rows=rows)
        else:
            leaves, mask, after = jit.native_batch(self, words, consumed)
            value, origin = self.unflatten(leaves), self.origin(words, leaves)
        if self.split is not None and self.splits_natively:
            value = constrained(self.split.shardings, value)
        value, mask = self.finish(value, mask, origin, later)
        return value, mask, origin, after

    @property
    def from_slot(self) -> bool:
        """Whether a Python loop takes batches from the engine and then traces stages.

        Otherwise one program makes the batch and runs the stages. Such a program would
        block a thread of XLA while workers make the batch, and cannot return host
        fields.
        """
        may_wait = (self.traits.workers or self.skip) and self.split is None
        return bool(may_wait or self.host_fields)

    def check_masked(self) -> None:
        """Raises ``ValueError`` if the mask cannot mark skipped samples."""
        if self.traced:
            raise ValueError(
                'on_error="skip" cannot be combined with traced=True, because the '
                "engine marks skipped rows in its mask. Remove traced=True."
            )
        if self.remainder == "partial":
            raise ValueError(
                'on_error="skip" cannot be combined with remainder="partial", because '
                'skipped rows are marked in the mask. Use remainder="pad".'
            )

    def check_traceable(self) -> None:
        """Raises ``ValueError`` if batches have no fixed shape."""
        if self.remainder == "partial":
            raise ValueError(
                "remainder='partial' makes a shorter last batch, which is not possible "
                "inside jit. Use 'pad', 'drop' or 'wrap', or call iterate()."
            )

    def finish(
        self,
        value: Tree,
        mask: Any,
        origin: Origin,
        later: list[Placed] | None = None,
    ) -> tuple[Tree, Any]:
        """Traces ``later``, or all traced stages, on a value of the engine.

        Returns ``(value, mask)``.
        """
        return finish(self, value, mask, origin, self.later if later is None else later)

    # States.

    def init_state(self, key: Any = None) -> LoaderState:
        return LoaderState(state_words(self.plan.check_word, key))

    def words(self, state: Any) -> Any:
        """Returns the words of a state.

        Raises ``ValueError`` unless a concrete state belongs to this pipeline.
        """
        words = words_of(state)
        if is_traced(words):
            return words
        known = np.asarray(words)
        self.plan.valid_rows(known)
        # An array on one device could not be combined with those on a mesh.
        return known if self.split is not None else words

    def on_device(self, words: Any) -> Any:
        """Returns words as a JAX array, so that later calls transfer nothing."""
        if not isinstance(words, np.ndarray):
            return words
        with jax.ensure_compile_time_eval():  # the caller may be tracing
            if self.split is not None:
                return replicated(self.split, [words])[0]
            return jax.device_put(words)

    def start(self, state: Any) -> Any:
        """Returns the words of a state to start from.

        The processes of a mesh compare their first concrete states once. If a process
        does not take part in time, the others warn and continue.
        """
        check_x64(self.x64)
        words = self.words(state)
        if self._unmet is not None and self.split is not None and not is_traced(words):
            name, self._unmet = f"{self._unmet}/state", None
            key = [int(words[KEY_HIGH]), int(words[KEY_LOW])]
            mine = {"key": key, "epoch": int(words[EPOCH]), "step": step_of(words)}
            try:
                compare(name, mine, self.split.processes, "used")
            except AbsentError as absent:
                warnings.warn(
                    f"states were not compared: {absent}", RuntimeWarning, stacklevel=3
                )
        return words

    @property
    def inner(self) -> BuiltPipeline:
        """The part of the pipeline that the engine runs: all of it."""
        return self

    def state(self, position: Any) -> LoaderState:
        """Returns the state at a position, which is the words of a state."""
        return LoaderState(position)

    def described(self) -> dict[str, Any]:
        """Returns the properties of the pipeline that its states depend on."""
        return described(self)

    @property
    def check_word(self) -> int:
        return self.plan.check_word

    @property
    def serial(self) -> int:
        """The number of the loader in this process."""
        return self.engine.serial

    def valid_rows(self, words: Any) -> int:
        """Returns the number of rows of a batch that are not padding."""
        return self.plan.valid_rows(words)

    def abandon(self, words: Any) -> None:
        """Lets the engine drop batches that it made ahead."""
        self.engine.abandon(words)

    @property
    def delivered(self) -> int:
        """The number of batches delivered, including those inside jit."""
        return self.engine.delivered

    @property
    def samples_delivered(self) -> int:
        return self.engine.samples_delivered

    @property
    def sample_bytes(self) -> int:
        """The size of a sample when it leaves the engine."""
        size = sum(x.size * x.dtype.itemsize for x in self.leaf_specs())
        return size // self.batch_size

    # Errors.

    def interruptible(self, active: bool) -> _engine.Interruptible:
        """Returns a context. While it is entered, Ctrl-C ends a program of XLA."""
        return _engine.Interruptible(self.engine, active)

    @property
    def last_error(self) -> BaseException | None:
        """The last error inside jit, with its original type, or None."""
        return cast(BaseException | None, self.engine.last_error) or self._failure

    def keep_error(self, error: BaseException) -> None:
        """Makes an exception of a callback the ``last_error``."""
        self.forget_error()
        self._failure = error

    def forget_error(self) -> None:
        self.engine.forget_error()
        self._failure = None

    def raise_original(self, error: Exception) -> NoReturn:
        """Raises ``last_error`` from ``error``, or ``error`` itself if there is none.

        The caller must call ``forget_error`` before it starts a program.
        """
        original = self.last_error
        if original is None:
            raise error
        self.forget_error()
        raise original from error
