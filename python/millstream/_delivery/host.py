"""Delivers batches to a Python loop as `jax.Array`, without a copy on the CPU."""

from __future__ import annotations

import functools
import gc
import itertools
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import lax

from millstream._core.description import Tree
from millstream._delivery import jit
from millstream._delivery.aliasing import Aliasing
from millstream._delivery.sharding import Assembly
from millstream._run.explain import specs_after
from millstream._run.keys import Origin
from millstream._run.state import LoaderState, check_x64, is_traced, words_at
from millstream._run.stats import recent_steps
from millstream._run.tracing import called
from millstream._workers.host_values import host_value_rows

if TYPE_CHECKING:
    from millstream._run.builder import Placed
    from millstream._run.built import BuiltPipeline
    from millstream._run.run import Run

# Up to this size, a jitted call writes a batch into XLA's own buffers. A larger batch
# is prefetched into a slot, which is memory of the engine that JAX aliases. A slot
# takes longer for each leaf, and malloc returns large buffers to the system after each
# batch.
CALL_BYTES = 128 << 10
CALL_BYTES_PER_LEAF = 8 << 10

# Shorter loops are not worth the time to compile the jitted call.
BATCHES_BEFORE_COMPILING = 3

# After this many calls for single batches, a call makes a group of batches, because a
# call takes longer than making a small batch. It gains nothing for larger batches.
CALLS_BEFORE_GROUPS = 64
GROUP = 8
GROUP_BYTES = 64 << 10
GROUP_LEAVES = 8

# A loop may hold this many batches in addition to the prefetched ones. If it holds
# more, it waits up to _WAIT_SECONDS for JAX to release some. It warns if it holds more
# than _HELD_FOR_WARNING batches and _BYTES_FOR_WARNING bytes.
MAX_HELD = 8
_WAIT_SECONDS = 0.02
_HELD_FOR_WARNING = 64
_BYTES_FOR_WARNING = 16 << 20

_config: Any = jax.config

Program = Callable[[Tree, Any, Origin], tuple[Tree, Any]]
"""One or more stages as a function ``(value, mask, origin) -> (value, mask)``."""


class Ahead(NamedTuple):
    """A cursor: a group of batches, of which the loop has taken ``taken``."""

    start: np.ndarray
    """The words of the first batch."""
    batches: list[tuple[Tree, Any]]
    taken: int
    after: Any
    """The words after the last batch, on the device."""


class HostDelivery:
    """Delivers batches of a built pipeline to Python, one at a time."""

    def __init__(self, built: BuiltPipeline) -> None:
        self.built = built
        self._specs = built.leaf_specs()
        self._delivered = 0
        self._call: Any = None
        self._calls = 0
        self._group: Any = None
        # Whether JAX's debugging settings were ever on. Reading them per batch is slow.
        self._debugged = False
        self._warned = False
        self._max_live = built.engine.prefetch + MAX_HELD
        self._assembly = None
        if built.split is not None:
            natively = built.splits_natively
            self._assembly = Assembly(built.split, self._specs, built.tree, natively)
        self._partial = built.remainder == "partial"
        self._has_device = built.device is not None
        self._workers = built.traits.workers > 0
        self._alias = Aliasing()
        self.steps = recent_steps()
        """The times of the last steps of Python loops."""
        leaves = len(self._specs)
        self._may_compile = (
            not built.traced
            and not built.later
            and not built.host_fields
            and not built.skip
            and not self._workers  # their batches are in slots already
            and built.split is None
            and built.engine.batch_bytes <= CALL_BYTES + leaves * CALL_BYTES_PER_LEAF
            and jax.default_backend() == "cpu"
        )
        # A group must not wait, and an error must come with its own batch.
        traits = built.engine.traits
        self._may_group = (
            traits.immediate
            and not traits.may_fail
            and built.engine.batch_bytes <= GROUP_BYTES
            and leaves <= GROUP_LEAVES
        )

    @functools.cached_property
    def _number(self) -> Any:
        """The loader's number, an argument of each compiled call.

        The array aliases memory of the engine. XLA runs calls after they return and
        keeps their arguments until then, so the engine stays alive even if the program
        drops the loader.
        """
        return self.built.on_device(self.built.engine.number)

    @functools.cached_property
    def _first_device(self) -> jax.Device:
        return jax.local_devices()[0]

    @functools.cached_property
    def _needed_default(self) -> jax.Device | None:
        """The setting of ``jax_default_device`` that puts batches on their device."""
        device = self.built.device
        return None if device is self._first_device else device

    @functools.cached_property
    def transfers(self) -> bool:
        """Whether batches leave host memory, so that transfers should start early."""
        built = self.built
        if built.split is not None:
            return any(d.platform != "cpu" for d in built.split.mesh.devices.flat)
        device = built.device
        return (device.platform if device else jax.default_backend()) != "cpu"

    @functools.cached_property
    def needs_words(self) -> bool:
        """Whether ``fetch`` needs the words of every batch, not only the cursor."""
        return self._workers or self._partial or self.transfers

    def iterator_class(self, kind: type[Any]) -> type[Any]:
        return kind

    def first(self, words: Any) -> np.ndarray:
        """Returns a copy of the words at which a loop starts."""
        return np.array(words)

    def after(self, words: Any, fetches: bool) -> tuple[Any, Any]:
        """Returns the words of the batch after ``words``, and that batch or None.

        With ``fetches``, the transfer of a batch that is ready starts early.
        """
        words = self.built.plan.next_state(words)
        early = self.transfers and fetches
        return words, self.fetch_if_ready(words) if early else None

    def words(self, position: Any) -> Any:
        """Returns the words at a position or a cursor of a loop."""
        if type(position) is Ahead:
            return self.built.plan.next_state(position.start, position.taken)
        return position if is_traced(position) else np.asarray(position)

    def state(self, position: Any) -> LoaderState:
        """Returns the state at a position or a cursor of a loop."""
        return LoaderState(self.words(position))

    def next_epoch(self, run: Run) -> np.ndarray:
        """Returns the words at which the epoch after that of ``run`` starts."""
        return words_at(run.state.words, run.last_epoch + 1, 0)

    def fetch(
        self, words: Any, cursor: Any = None, left: int = 1
    ) -> tuple[Tree, Any, Any]:
        """Returns ``(value, mask, cursor)`` of the batch at ``words``.

        Pass the returned cursor to fetch the next batch of the same loop. With a
        cursor, the words may be None unless ``needs_words`` is True. ``left`` is how
        many batches the loop will fetch, including this one.
        """
        if self._debugged and _is_debugging():
            with jax.debug_nans(False), jax.debug_infs(False):
                return self.fetch(words, cursor, left)
        if type(cursor) is Ahead and cursor.taken < len(cursor.batches):
            return self._from_group(words, cursor)
        call = self._call
        if call is None:
            return self._fetch_uncompiled(words, cursor)
        built = self.built
        try:
            if cursor is None:
                built.forget_error()
                on_device = built.on_device(words)
            elif left >= GROUP and self._group is not None:
                return self._from_group(words, self._new_group(cursor))
            else:
                on_device = cursor.after if type(cursor) is Ahead else cursor
            ((value, mask),), cursor = call(on_device, self._number)
        except FloatingPointError:
            self._debugged = True
            return self.fetch(words, cursor, left)
        except jit.FAILURES as error:
            built.raise_original(error)
        if self._may_group:
            self._calls += 1
            if self._calls == CALLS_BEFORE_GROUPS:
                self._group = self._compiled(GROUP)
        value, mask = self._finished(value, mask, words)
        return value, mask, cursor

    def _new_group(self, cursor: Any) -> Ahead:
        """Makes the group of batches that starts at a cursor."""
        start = self.words(cursor)
        words = cursor.after if type(cursor) is Ahead else cursor
        batches, after = self._group(words, self._number)
        return Ahead(start, batches, 0, after)

    def _from_group(self, words: Any, cursor: Ahead) -> tuple[Tree, Any, Ahead]:
        """Takes the next batch of a group."""
        start, batches, taken, after = cursor
        value, mask = batches[taken]
        if taken:  # the engine has counted the first one
            self.built.engine.hand_out(start, taken)
        value, mask = self._finished(value, mask, words)
        return value, mask, Ahead(start, batches, taken + 1, after)

    def _finished(self, value: Tree, mask: Any, words: Any) -> tuple[Tree, Any]:
        """Moves a batch of the compiled call to its device, and cuts off padding."""
        if self._has_device and _config.jax_default_device is not self._needed_default:
            value, mask = self._on_target(value, mask)
        if self._partial:
            value, mask = self._without_padding(value, mask, words)
        return value, mask

    def _fetch_uncompiled(self, words: Any, cursor: Any) -> tuple[Tree, Any, Any]:
        """Fetches a batch before the jitted call for small batches is compiled."""
        built = self.built
        check_x64(built.x64)
        if not self._debugged and _is_debugging():
            self._debugged = True
            return self.fetch(words, cursor)
        if self._may_compile and self._compile():
            return self.fetch(words)
        host_values: dict[str, list[Any]] = {}
        if built.traced or (built.later and not built.from_slot):
            value, mask, cursor = self._run_program(words, cursor)
        else:
            value, mask, host_values = self._from_slot(words)
            cursor = None
        value, mask = self._on_target(value, mask)
        if host_values and isinstance(value, Mapping):
            value = {**value, **host_values}
        return value, mask, cursor

    def fetch_if_ready(self, words: Any) -> tuple[Tree, Any, Any] | None:
        """Returns the same as ``fetch`` if the batch is ready, and else None.

        The transfer to the device then overlaps with the use of the previous batch.
        """
        built = self.built
        check_x64(built.x64)
        simple = not (built.later or built.traced or built.host_fields)
        if not simple or self._partial:
            return None
        fields: Any = built.engine.take_if_ready(words)
        return None if fields is None else (*self._placed(fields), None)

    def _compile(self) -> bool:
        """Creates the jitted call after enough batches. Returns whether it did."""
        self._delivered += 1
        if self._delivered <= BATCHES_BEFORE_COMPILING:
            return False
        # Assigned last, because other threads use the call as soon as it is set.
        self._call = self._compiled(1)
        return True

    def _compiled(self, steps: int) -> Any:
        """Returns the jitted call that makes ``steps`` batches."""
        positions, structure = jax.tree.flatten(self.built.tree)
        specs = [*self._specs, self.built.mask_spec()]
        signature = tuple((spec.shape, spec.dtype) for spec in specs)
        return jit.shared_call(
            signature, structure, tuple(positions), self.built.x64, steps
        )

    def _from_slot(self, words: np.ndarray) -> tuple[Tree, Any, dict[str, list[Any]]]:
        """Returns (value, mask, host fields) of a batch from a slot of the engine."""
        self._wait_for_slot()
        built = self.built
        host_values: dict[str, Any] = {}
        if built.host_fields:
            fields, listed = built.engine.take_with_host_values(words)
            values = host_value_rows(listed, built.batch_size)
            for key in built.host_fields:
                column = [None if row is None else row[key] for row in values]
                host_values[key] = column if built.batched else column[0]
        else:
            fields = built.engine.take(words)
        leaves, mask = self._leaves(fields)
        value, origin = built.unflatten(leaves), Origin()
        if built.keyed:
            origin = built.origin(built.on_device(words), leaves)
        value, mask, origin = self._shortened(value, mask, origin, words)
        if self._partial:
            host_values = {key: rows[: len(mask)] for key, rows in host_values.items()}
        for run in self._stages:
            value, mask = run(value, mask, origin)
        return value, mask, host_values

    def _without_padding(
        self, value: Tree, mask: Any, words: np.ndarray
    ) -> tuple[Tree, Any]:
        """Cuts padding off the last batch of an epoch if ``remainder="partial"``."""
        valid = self.built.plan.valid_rows(words) if self._partial else None
        if valid is None or valid == self.built.batch_size:
            return value, mask
        return jax.tree.map(lambda x: lax.slice_in_dim(x, 0, valid), (value, mask))

    def _shortened(
        self, value: Tree, mask: Any, origin: Origin, words: np.ndarray
    ) -> tuple[Tree, Any, Origin]:
        """Cuts padding off a batch, as ``_without_padding``, and off its origin."""
        rows = value, origin.rows
        (value, short), mask = self._without_padding(rows, mask, words)
        return value, mask, origin._replace(rows=short)

    def _placed(self, fields: list[Any]) -> tuple[Tree, Any]:
        """Returns (value, mask) of the engine's fields, as JAX arrays on a device."""
        leaves, mask = self._leaves(fields)
        return self.built.unflatten(leaves), mask

    def _leaves(self, fields: list[Any]) -> tuple[list[Any], Any]:
        """Returns the engine's fields and the mask, as JAX arrays on a device."""
        if self._assembly is not None:
            *leaves, mask = self._assembly(fields)
        else:
            *leaves, mask = self._alias(self.built.rows_of(fields), self._target())
        return leaves, mask

    def _target(self) -> Any:
        """Returns the device to put batches on, or None for JAX's default device."""
        device = self.built.device
        default = _config.jax_default_device
        return None if device is (default or self._first_device) else device

    def _on_target(self, value: Tree, mask: Any) -> tuple[Tree, Any]:
        """Moves a batch to its device, unless it is JAX's default device."""
        device = self._target()
        if device is None:
            return value, mask
        moved: tuple[Tree, Any] = jax.device_put((value, mask), device)
        return moved

    def _wait_for_slot(self) -> None:
        """Waits for a limited time until JAX releases batches that the loop deleted."""
        engine = self.built.engine
        if engine.live <= self._max_live:
            return
        deadline = time.monotonic() + _WAIT_SECONDS
        gc.collect(0)
        while engine.live > self._max_live and time.monotonic() < deadline:
            time.sleep(0.0005)
            gc.collect(0)
        if engine.live <= self._max_live:
            return
        # The caller keeps these batches, so waiting for them again would not help.
        self._max_live = 2 * engine.live
        too_many = engine.live > engine.prefetch + _HELD_FOR_WARNING
        too_large = engine.live * engine.batch_bytes > _BYTES_FOR_WARNING
        if too_many and too_large and not self._warned:
            self._warned = True
            warnings.warn(
                f"{engine.live} batches of {engine.batch_bytes} bytes each are still "
                "in use, and their memory cannot be reused. Keep fewer batches.",
                ResourceWarning,
                stacklevel=4,
            )

    def _run_program(self, words: Any, cursor: Any) -> tuple[Tree, Any, Any]:
        """Fetches a batch with one compiled program, which ends at the first callback.

        The callback and the stages after it run when the program has returned.
        """
        built = self.built
        first, rest = self._line
        if cursor is None:
            built.forget_error()
            cursor = built.on_device(words)
        try:
            value, mask, origin, after = first(cursor, built.arrays(), self._number)
            if not built.traits.immediate and not is_traced(after):
                after.block_until_ready()  # so that read errors are raised here
        except jit.FAILURES as error:
            built.raise_original(error)
        value, mask, origin = self._shortened(value, mask, origin, words)
        for run in rest:
            value, mask = run(value, mask, origin)
        return value, mask, after

    @functools.cached_property
    def _line(self) -> tuple[Any, list[Program]]:
        built = self.built
        first = list(itertools.takewhile(lambda p: not _calls(p), built.later))
        if self._partial:  # a partial batch is cut before any stage
            first = []

        def run(words: Any, arrays: list[Any], number: Any) -> Any:
            return built.step_through(first, words, arrays)

        # XLA must keep the unused number, because it keeps the engine alive.
        program = jax.jit(run, keep_unused=True)
        return program, runs(built, built.later[len(first) :])

    @functools.cached_property
    def _stages(self) -> list[Program]:
        return runs(self.built, self.built.later)


def _is_debugging() -> bool:
    """Whether JAX raises an error for NaN or infinity, which data may contain."""
    return bool(_config.jax_debug_nans or _config.jax_debug_infs)


def runs(built: BuiltPipeline, later: list[Placed]) -> list[Program]:
    """Returns functions to run in order: callbacks, and programs of traced stages."""
    found: list[Program] = []
    rows: dict[int, int] = {}  # of a whole batch, after each stage that outputs batches
    if built.remainder == "partial":
        after = specs_after(built)
        rows = {p.number: mask.shape[0] for p, _, mask in after if p.batched}
    for calls, placed in itertools.groupby(later, _calls):
        stages = list(placed)
        if calls:
            found += [
                functools.partial(_call, built, p, rows.get(p.number)) for p in stages
            ]
        else:
            found.append(jax.jit(functools.partial(built.finish, later=stages)))
    return found


def _calls(placed: Placed) -> bool:
    return placed.callback is not None


def _call(
    built: BuiltPipeline,
    placed: Placed,
    rows: int | None,
    value: Tree,
    mask: Any,
    origin: Origin,
) -> tuple[Tree, Any]:
    """Runs a callback on a batch that is being delivered.

    ``rows`` is the number of rows of a whole batch if batches may be shorter.
    """
    callback = placed.callback
    assert callback is not None
    if rows is not None and len(mask) < rows:
        callback = callback.shortened(rows, len(mask))
    if any(map(is_traced, jax.tree.leaves(value))):  # inside a jit of the user
        value = called(built, callback, value, mask, placed.batched)
    else:
        value = callback.run(value, mask, placed.batched)
    layout = None if built.split is None else built.split.rows_sharding
    return jax.device_put(value, layout), mask


def stepper(delivery: HostDelivery) -> Callable[[Any], tuple[Tree, LoaderState, Any]]:
    """Returns ``next_batch(state) -> (batch, state, mask)``, for Python and for jit.

    The result is a function and not a method, because each access to a bound method
    creates a new object, which jit would trace again.
    """
    built = delivery.built

    def next_batch(state: Any) -> tuple[Tree, LoaderState, Any]:
        """Returns ``(batch, state, mask)`` for a state, eagerly or inside jit."""
        words = built.start(state)
        if is_traced(words) or built.in_jit:
            built.check_traceable()
            value, mask, words = built.step(built.on_device(words), built.arrays())
        else:
            current = np.asarray(words)
            value, mask, _ = delivery.fetch(current)
            words = built.plan.next_state(current)
        return value, LoaderState(words), mask

    return next_batch
