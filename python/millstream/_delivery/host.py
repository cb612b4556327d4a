"""The door to a Python loop: batches as `jax.Array`, with no copy."""

from __future__ import annotations

import functools
import gc
import itertools
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax

from millstream._core.description import Tree
from millstream._delivery import jit
from millstream._delivery.aliasing import Aliasing
from millstream._delivery.sharding import Assembly
from millstream._run.state import LoaderState, check_x64, is_traced
from millstream._stages.map import HostCallbackTransform
from millstream._workers.host_values import beside_rows

if TYPE_CHECKING:
    from millstream._run.built import Placed, Program

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


class HostDoor:
    """Delivers the batches of a program to Python, one at a time."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._specs = program.leaf_specs()
        self._delivered = 0
        self._call: Any = None
        self._debugged = False  # reading JAX's settings for each batch would cost time
        self._warned = False
        self._most = program.engine.prefetch + RUN_AHEAD
        self._assembly = None
        if program.split is not None:
            natively = program.splits_natively
            self._assembly = Assembly(program.split, self._specs, natively)
        self._partial = program.remainder == "partial"
        self._put = program.device is not None
        self._alias = Aliasing()
        self._by_call = (
            not program.traced
            and not program.later
            and not program.beside
            and not program.skip
            and not (program.waits and program.engine.prefetch == 0)
            and program.split is None
            and program.engine.batch_bytes <= CALL_BYTES
            and jax.default_backend() == "cpu"
        )

    @functools.cached_property
    def _first(self) -> jax.Device:
        return jax.local_devices()[0]

    @functools.cached_property
    def _home(self) -> jax.Device | None:
        """The default device under which batches are made where they are to be."""
        device = self.program.device
        return None if device is self._first else device

    @functools.cached_property
    def transfers(self) -> bool:
        """Whether batches leave the host's memory, so that transfers are worth
        beginning before they are waited for.
        """
        program = self.program
        if program.split is not None:
            return any(d.platform != "cpu" for d in program.split.mesh.devices.flat)
        device = program.device
        return (device.platform if device else jax.default_backend()) != "cpu"

    @functools.cached_property
    def counts(self) -> bool:
        """Whether a loop has to know the words of every batch."""
        return self.program.waits or self._partial or self.transfers

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
        program = self.program
        try:
            if program.waits:  # here, and not on a thread of XLA's
                program.engine.await_batch(words)
            if cursor is None:
                cursor = program.on_device(np.concatenate([words, self._number]))
            value, mask, cursor = call(cursor)
        except FloatingPointError:
            self._debugged = True
            return self.fetch(words, cursor)
        except jit.FAILURES as error:
            program.raise_original(error)
        if self._put and _config.jax_default_device is not self._home:
            value, mask = self._moved(value, mask)
        if self._partial:
            value, mask = self._cut(value, mask, words)
        return value, mask, cursor

    def _made(self, words: Any, cursor: Any) -> tuple[Tree, Any, Any]:
        """The same without the call for small batches, or the first time with it."""
        program = self.program
        check_x64(program.x64)
        if not self._debugged and _is_debugging():
            self._debugged = True
            return self.fetch(words, cursor)
        if self._by_call and self._compiled():
            return self.fetch(words)
        beside: dict[str, list[Any]] = {}
        if program.traced or (program.later and not program.from_slot):
            try:
                value, mask, cursor = self._stepped(words, cursor)
            except jit.FAILURES as error:
                program.raise_original(error)
        else:
            value, mask, beside = self._from_slot(words)
            cursor = None
        value, mask = self._moved(value, mask)
        if beside and isinstance(value, Mapping):
            value = {**value, **beside}
        return value, mask, cursor

    def fetch_if_ready(self, words: Any) -> tuple[Tree, Any, Any] | None:
        """The same if the batch is made already: its transfer is begun, and goes on
        while the one before it is used. Else None, and nothing is waited for.
        """
        program = self.program
        check_x64(program.x64)
        simple = not (program.later or program.traced or program.beside)
        if not simple or self._partial:
            return None
        fields: Any = program.engine.take_if_ready(words)
        return None if fields is None else (*self._placed(fields), None)

    def _compiled(self) -> bool:
        """Whether the jitted call is to be used from now on."""
        self._delivered += 1
        if self._delivered <= GLANCE:
            return False
        positions, structure = jax.tree.flatten(self.program.tree)
        specs = [*self._specs, self.program.mask_spec()]
        signature = tuple((spec.shape, spec.dtype) for spec in specs)
        serial = self.program.engine.serial
        self._number = np.array([serial & 0xFFFFFFFF, serial >> 32], np.uint32)
        # Last: another thread takes a call that is there for ready.
        self._call = jit.shared_call(
            signature, structure, tuple(positions), self.program.x64
        )
        return True

    def _from_slot(self, words: np.ndarray) -> tuple[Tree, Any, dict[str, list[Any]]]:
        """The value and its mask, and what travels beside them, a list a key."""
        self._make_room()
        program = self.program
        beside: dict[str, Any] = {}
        if program.beside:
            fields, parts = program.engine.take_with_host_values(words)
            values = beside_rows(parts, program.batch_size)
            for key in program.beside:
                column = [None if row is None else row[key] for row in values]
                beside[key] = column if program.batched else column[0]
        else:
            fields = program.engine.take(words)
        value, mask = self._placed(fields)
        value, mask = self._cut(value, mask, words)
        if self._partial:
            beside = {key: rows[: len(mask)] for key, rows in beside.items()}
        for run in self._stages:
            value = run(value, mask)
        return value, mask, beside

    def _cut(self, value: Tree, mask: Any, words: np.ndarray) -> tuple[Tree, Any]:
        """The rows that a batch has where the last of an epoch may be shorter."""
        valid = self.program.plan.valid_rows(words) if self._partial else None
        if valid is None or valid == self.program.batch_size:
            return value, mask
        return jax.tree.map(lambda x: lax.slice_in_dim(x, 0, valid), (value, mask))

    def _placed(self, fields: list[Any]) -> tuple[Tree, Any]:
        """The engine's rows and mask as JAX's arrays, where batches are to be."""
        if self._assembly is not None:
            *leaves, mask = self._assembly(fields)
        else:
            *leaves, mask = self._alias(self.program.rows_of(fields), self._target())
        return self.program.unflatten(leaves), mask

    def _target(self) -> Any:
        """The device that batches are to be put onto; None for JAX's default."""
        device = self.program.device
        default = _config.jax_default_device
        return None if device is (default or self._first) else device

    def _moved(self, value: Tree, mask: Any) -> tuple[Tree, Any]:
        """The same where batches are to be."""
        device = self._target()
        if device is None:
            return value, mask
        moved: tuple[Tree, Any] = jax.device_put((value, mask), device)
        return moved

    def _make_room(self) -> None:
        """Waits, for a bounded time, until JAX lets go of batches that were used up."""
        engine = self.program.engine
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
        program = self.program
        first, rest = self._line
        if cursor is None:
            cursor = program.on_device(words)
        value, mask, after = first(cursor, program.arrays())
        if not program.resident and not is_traced(after):
            after.block_until_ready()  # what cannot be read is to be raised here
        value, mask = self._cut(value, mask, words)
        for run in rest:
            value = run(value, mask)
        return value, mask, after

    @functools.cached_property
    def _line(self) -> tuple[Any, list[Run]]:
        program = self.program
        first = list(itertools.takewhile(lambda p: not _calls(p), program.later))
        if self._partial:  # a short batch is cut before any stage
            first = []
        run = jax.jit(lambda words, arrays: program.step(words, arrays, first))
        return run, _runs(program, program.later[len(first) :])

    @functools.cached_property
    def _stages(self) -> list[Run]:
        return _runs(self.program, self.program.later)


def _is_debugging() -> bool:
    """Whether JAX refuses NaN or infinity, which data may well hold."""
    return bool(_config.jax_debug_nans or _config.jax_debug_infs)


def _runs(program: Program, later: list[Placed]) -> list[Run]:
    """Traced stages, those that follow each other as one program, and callbacks."""
    runs: list[Run] = []
    for calls, placed in itertools.groupby(later, _calls):
        if calls:
            runs += [functools.partial(_call, program, p.stage) for p in placed]
        else:
            stages = list(placed)
            runs.append(jax.jit(functools.partial(program.finish, later=stages)))
    return runs


def _shortened(batch_size: int, rows: int, spec: Any) -> jax.ShapeDtypeStruct:
    """What a leaf of a whole batch looks like in one of so many rows."""
    lead = (rows,) if spec.shape[:1] == (batch_size,) else spec.shape[:1]
    return jax.ShapeDtypeStruct((*lead, *spec.shape[1:]), spec.dtype)


def _calls(placed: Placed) -> bool:
    return isinstance(placed.stage, HostCallbackTransform)


def _call(program: Program, stage: Any, value: Tree, mask: Any) -> Tree:
    inside = any(map(is_traced, jax.tree.leaves(value)))  # of another program
    run = program.called if inside else HostCallbackTransform.run
    spec = stage.element_spec_override
    if spec is not None and program.batched and len(mask) < program.batch_size:
        short = functools.partial(_shortened, program.batch_size, len(mask))
        stage = replace(stage, element_spec_override=jax.tree.map(short, spec))
    layout = None if program.split is None else program.split.rows_sharding
    return jax.device_put(run(stage, value, mask), layout)


def stepper(door: HostDoor) -> Callable[[Any], tuple[Tree, LoaderState, Any]]:
    """``next_batch(state) -> (batch, state, mask)``, traced or delivered by the door.

    To be kept by whoever owns the door: a bound method would be another object each
    time, and jit would trace it again.
    """
    program = door.program

    def next_batch(state: Any) -> tuple[Tree, LoaderState, Any]:
        words = program.start(state)
        if is_traced(words):
            program.check_traceable()
            value, mask, words = program.step(words, program.arrays())
        else:
            known = np.asarray(words)
            value, mask, _ = door.fetch(known)
            words = program.plan.next_state(known)
        return value, LoaderState(words), mask

    return next_batch
