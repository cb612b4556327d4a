"""Delivers batches to a Python loop as `jax.Array`, without copying them."""

from __future__ import annotations

import functools
import gc
import itertools
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax

from millstream._core.description import Tree
from millstream._delivery import jit
from millstream._delivery.aliasing import Aliasing
from millstream._delivery.sharding import Assembly
from millstream._run.state import LoaderState, check_x64, is_traced
from millstream._workers.host_values import host_value_rows

if TYPE_CHECKING:
    from millstream._run.builder import Placed
    from millstream._run.built import BuiltPipeline
    from millstream._stages.map import HostCallbackTransform

# A batch of at most so many bytes is written by a jitted call into XLA's own buffer;
# a larger one is made ahead in a slot that JAX aliases. See docs/performance.md.
CALL_BYTES = 1 << 20

# The call is compiled when a loop has shown that it is longer than a glance.
GLANCE = 3

# Batches beyond those made ahead that a loop holds before it is asked to wait a little.
RUN_AHEAD = 8
_PATIENCE = 0.02
_GROWTH_WARNING = 64

_config: Any = jax.config

Run = Callable[[Tree, Any], Tree]
"""Stages of a pipeline: ``(value, mask) -> value``."""


class HostDelivery:
    """Delivers the batches of a program to Python, one at a time."""

    def __init__(self, built: BuiltPipeline) -> None:
        self.built = built
        self._specs = built.leaf_specs()
        self._delivered = 0
        self._call: Any = None
        self._debugged = False  # reading JAX's settings for each batch would cost time
        self._warned = False
        self._most = built.engine.prefetch + RUN_AHEAD
        self._assembly = None
        if built.split is not None:
            natively = built.splits_natively
            self._assembly = Assembly(built.split, self._specs, natively)
        self._partial = built.remainder == "partial"
        self._put = built.device is not None
        self._alias = Aliasing()
        self._by_call = (
            not built.traced
            and not built.later
            and not built.host_fields
            and not built.skip
            and not (built.waits and built.engine.prefetch == 0)
            and built.split is None
            and built.engine.batch_bytes <= CALL_BYTES
            and jax.default_backend() == "cpu"
        )

    @functools.cached_property
    def _first(self) -> jax.Device:
        return jax.local_devices()[0]

    @functools.cached_property
    def _home(self) -> jax.Device | None:
        """The default device under which batches are made where they are to be."""
        device = self.built.device
        return None if device is self._first else device

    @functools.cached_property
    def transfers(self) -> bool:
        """Whether batches leave the host's memory, so that transfers are worth
        beginning before they are waited for.
        """
        built = self.built
        if built.split is not None:
            return any(d.platform != "cpu" for d in built.split.mesh.devices.flat)
        device = built.device
        return (device.platform if device else jax.default_backend()) != "cpu"

    @functools.cached_property
    def counts(self) -> bool:
        """Whether a loop has to know the words of every batch."""
        return self.built.waits or self._partial or self.transfers

    def fetch(self, words: Any, cursor: Any = None) -> tuple[Tree, Any, Any]:
        """``(value, mask, cursor)`` of the batch that the words name.

        The cursor is for the batch after it, in the same loop; with one the words may
        be None unless `counts`. Programs check x64 when they are traced, which costs a
        batch nothing.
        """
        if self._debugged and _is_debugging():
            with jax.debug_nans(False), jax.debug_infs(False):
                return self.fetch(words, cursor)
        call = self._call
        if call is None:
            return self._made(words, cursor)
        built = self.built
        try:
            if built.waits:  # here, and not on a thread of XLA's
                built.engine.await_batch(words)
            if cursor is None:
                built.forget_error()
                cursor = built.on_device(np.concatenate([words, self._number]))
            value, mask, cursor = call(cursor)
        except FloatingPointError:
            self._debugged = True
            return self.fetch(words, cursor)
        except jit.FAILURES as error:
            built.raise_original(error)
        if self._put and _config.jax_default_device is not self._home:
            value, mask = self._moved(value, mask)
        if self._partial:
            value, mask = self._cut(value, mask, words)
        return value, mask, cursor

    def _made(self, words: Any, cursor: Any) -> tuple[Tree, Any, Any]:
        """The same without the call for small batches, or the first time with it."""
        built = self.built
        check_x64(built.x64)
        if not self._debugged and _is_debugging():
            self._debugged = True
            return self.fetch(words, cursor)
        if self._by_call and self._compiled():
            return self.fetch(words)
        host_values: dict[str, list[Any]] = {}
        if built.traced or (built.later and not built.from_slot):
            try:
                value, mask, cursor = self._stepped(words, cursor)
            except jit.FAILURES as error:
                built.raise_original(error)
        else:
            value, mask, host_values = self._from_slot(words)
            cursor = None
        value, mask = self._moved(value, mask)
        if host_values and isinstance(value, Mapping):
            value = {**value, **host_values}
        return value, mask, cursor

    def fetch_if_ready(self, words: Any) -> tuple[Tree, Any, Any] | None:
        """The same if the batch is made already: its transfer is begun, and goes on
        while the one before it is used. Else None, and nothing is waited for.
        """
        built = self.built
        check_x64(built.x64)
        simple = not (built.later or built.traced or built.host_fields)
        if not simple or self._partial:
            return None
        fields: Any = built.engine.take_if_ready(words)
        return None if fields is None else (*self._placed(fields), None)

    def _compiled(self) -> bool:
        """Whether the jitted call is to be used from now on."""
        self._delivered += 1
        if self._delivered <= GLANCE:
            return False
        positions, structure = jax.tree.flatten(self.built.tree)
        specs = [*self._specs, self.built.mask_spec()]
        signature = tuple((spec.shape, spec.dtype) for spec in specs)
        serial = self.built.engine.serial
        self._number = np.array([serial & 0xFFFFFFFF, serial >> 32], np.uint32)
        # Last: another thread takes a call that is there for ready.
        self._call = jit.shared_call(
            signature, structure, tuple(positions), self.built.x64
        )
        return True

    def _from_slot(self, words: np.ndarray) -> tuple[Tree, Any, dict[str, list[Any]]]:
        """The value, its mask and the host fields, a list for each key."""
        self._wait_for_slot()
        built = self.built
        host_values: dict[str, Any] = {}
        if built.host_fields:
            fields, parts = built.engine.take_with_host_values(words)
            values = host_value_rows(parts, built.batch_size)
            for key in built.host_fields:
                column = [None if row is None else row[key] for row in values]
                host_values[key] = column if built.batched else column[0]
        else:
            fields = built.engine.take(words)
        value, mask = self._placed(fields)
        value, mask = self._cut(value, mask, words)
        if self._partial:
            host_values = {key: rows[: len(mask)] for key, rows in host_values.items()}
        for run in self._stages:
            value = run(value, mask)
        return value, mask, host_values

    def _cut(self, value: Tree, mask: Any, words: np.ndarray) -> tuple[Tree, Any]:
        """The rows that a batch has where the last of an epoch may be shorter."""
        valid = self.built.plan.valid_rows(words) if self._partial else None
        if valid is None or valid == self.built.batch_size:
            return value, mask
        return jax.tree.map(lambda x: lax.slice_in_dim(x, 0, valid), (value, mask))

    def _placed(self, fields: list[Any]) -> tuple[Tree, Any]:
        """The engine's rows and mask as JAX's arrays, where batches are to be."""
        if self._assembly is not None:
            *leaves, mask = self._assembly(fields)
        else:
            *leaves, mask = self._alias(self.built.rows_of(fields), self._target())
        return self.built.unflatten(leaves), mask

    def _target(self) -> Any:
        """The device that batches are to be put onto; None for JAX's default."""
        device = self.built.device
        default = _config.jax_default_device
        return None if device is (default or self._first) else device

    def _moved(self, value: Tree, mask: Any) -> tuple[Tree, Any]:
        """The same where batches are to be."""
        device = self._target()
        if device is None:
            return value, mask
        moved: tuple[Tree, Any] = jax.device_put((value, mask), device)
        return moved

    def _wait_for_slot(self) -> None:
        """Waits, for a bounded time, until JAX lets go of batches that were used up."""
        engine = self.built.engine
        if engine.live <= self._most:
            return
        deadline = time.monotonic() + _PATIENCE
        gc.collect(0)
        while engine.live > self._most and time.monotonic() < deadline:
            time.sleep(0.0005)
            gc.collect(0)
        if engine.live <= self._most:
            return
        self._most = engine.live + RUN_AHEAD  # they are kept: no use to wait for them
        if engine.live > engine.prefetch + _GROWTH_WARNING and not self._warned:
            self._warned = True
            warnings.warn(
                f"{engine.live} batches of {engine.batch_bytes} bytes are still held: "
                "batches that are kept cost memory",
                ResourceWarning,
                stacklevel=4,
            )

    def _stepped(self, words: Any, cursor: Any) -> tuple[Tree, Any, Any]:
        """A batch of one program with the stages up to the first callback."""
        built = self.built
        first, rest = self._line
        if cursor is None:
            built.forget_error()
            cursor = built.on_device(words)
        value, mask, after = first(cursor, built.arrays())
        if not built.resident and not is_traced(after):
            after.block_until_ready()  # what cannot be read is to be raised here
        value, mask = self._cut(value, mask, words)
        for run in rest:
            value = run(value, mask)
        return value, mask, after

    @functools.cached_property
    def _line(self) -> tuple[Any, list[Run]]:
        built = self.built
        first = list(itertools.takewhile(lambda p: not _calls(p), built.later))
        if self._partial:  # a short batch is cut before any stage
            first = []
        run = jax.jit(lambda words, arrays: built.step(words, arrays, first))
        return run, _runs(built, built.later[len(first) :])

    @functools.cached_property
    def _stages(self) -> list[Run]:
        return _runs(self.built, self.built.later)


def _is_debugging() -> bool:
    """Whether JAX refuses NaN or infinity, which data may well hold."""
    return bool(_config.jax_debug_nans or _config.jax_debug_infs)


def _runs(built: BuiltPipeline, later: list[Placed]) -> list[Run]:
    """Traced stages, those that follow each other as one program, and callbacks."""
    runs: list[Run] = []
    for calls, placed in itertools.groupby(later, _calls):
        stages = list(placed)
        if calls:
            callbacks = [p.callback for p in stages if p.callback is not None]
            runs += [functools.partial(_call, built, each) for each in callbacks]
        else:
            runs.append(jax.jit(functools.partial(built.finish, later=stages)))
    return runs


def _calls(placed: Placed) -> bool:
    return placed.callback is not None


def _call(
    built: BuiltPipeline, callback: HostCallbackTransform, value: Tree, mask: Any
) -> Tree:
    if built.batched and len(mask) < built.batch_size:
        callback = callback.shortened(built.batch_size, len(mask))
    if any(map(is_traced, jax.tree.leaves(value))):  # in a program of the user's
        value = built.called(callback, value, mask)
    else:
        value = callback.run(value, mask)
    layout = None if built.split is None else built.split.rows_sharding
    return jax.device_put(value, layout)


def stepper(delivery: HostDelivery) -> Callable[[Any], tuple[Tree, LoaderState, Any]]:
    """``next_batch(state) -> (batch, state, mask)``, traced or delivered to Python.

    The owner of the delivery keeps it: a bound method would be another object each
    time, and jit would trace it again.
    """
    built = delivery.built

    def next_batch(state: Any) -> tuple[Tree, LoaderState, Any]:
        words = built.start(state)
        if is_traced(words):
            built.check_traceable()
            value, mask, words = built.step(words, built.arrays())
        else:
            known = np.asarray(words)
            value, mask, _ = delivery.fetch(known)
            words = built.plan.next_state(known)
        return value, LoaderState(words), mask

    return next_batch
