"""Delivers the batches of a stream to a Python loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import numpy as np

from millstream._core.description import Tree
from millstream._core.interrupts import HeldInterrupt
from millstream._delivery import jit
from millstream._run.state import LoaderState, is_traced
from millstream._run.stats import recent_steps
from millstream._run.stream import StreamPipeline


class _Cursor:
    """The state of a loop. The loop may reuse its memory while it is ``owned``."""

    __slots__ = ("owned", "state")

    def __init__(self, state: LoaderState) -> None:
        self.state = state
        self.owned = True


class StreamDelivery:
    """Delivers batches of a stream to Python, one at a time.

    A loop donates its own states to JAX, so that a replay buffer is updated in place.
    It never donates a state that the caller has.
    """

    needs_words = False
    transfers = False

    def __init__(self, built: StreamPipeline) -> None:
        self.built = built
        self.steps = recent_steps()
        """The times of the last steps of Python loops."""
        self.interrupt = HeldInterrupt()

        def step(state: LoaderState) -> tuple[Tree, Any, LoaderState]:
            return built.step(state, [])

        self._step = jax.jit(step)
        self._donating = jax.jit(step, donate_argnums=0)
        default = jax.local_devices()[0]
        self._device = None if built.device is default else built.device

    def iterator_class(self, kind: type[Any]) -> type[Any]:
        """Returns the class of iterators to use instead of ``kind``."""
        return _held(kind)  # type: ignore[arg-type]

    def first(self, state: LoaderState) -> LoaderState:
        return state

    def after(self, position: Any, _: bool) -> NoReturn:
        raise AssertionError("a cursor always holds the state of a stream")

    def fetch(
        self, state: Any, cursor: _Cursor | None, left: int = 1
    ) -> tuple[Tree, Any, _Cursor]:
        """Returns ``(value, mask, cursor)`` of the batch at a state or a cursor."""
        built = self.built
        built.forget_error()
        try:
            if cursor is None:
                result = self._step(built.on_device(state))
            else:
                step = self._donating if cursor.owned else self._step
                result = step(cursor.state)
            if built.has_callbacks:
                jax.block_until_ready(result)  # so that errors are raised here
        except jit.FAILURES as error:
            built.raise_original(error)
        value, mask, after = result
        built.delivered += 1
        built.samples_delivered += built.batch_size
        if self._device is not None:
            value, mask = jax.device_put((value, mask), self._device)
        return value, mask, _Cursor(after)

    def words(self, position: LoaderState | _Cursor) -> np.ndarray:
        """Returns the words of a position of a loop."""
        state = position.state if isinstance(position, _Cursor) else position
        return np.asarray(state.words)

    def state(self, position: LoaderState | _Cursor) -> LoaderState:
        """Returns the state at a position. The loop does not donate it any more."""
        if isinstance(position, _Cursor):
            position.owned = False
            return position.state
        return position

    def next_epoch(self, run: Any) -> LoaderState:
        """Returns the state after the epoch of ``run``, which is run to its end."""
        for _ in run:
            pass
        state: LoaderState = run.state
        return state


class _Held:
    """Makes an iterator raise KeyboardInterrupt only before it fetches a batch.

    The state of a batch is donated while the batch is made, so an interrupt in between
    would lose it. Ctrl-C is raised when the loop asks for the next batch.
    """

    _delivery: StreamDelivery

    def __next__(self) -> Any:
        interrupt = self._delivery.interrupt
        interrupt.deliver()
        with interrupt:
            return super().__next__()  # type: ignore[misc]


@functools.cache
def _held(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (_Held, kind), {"__doc__": kind.__doc__})


def stepper(
    delivery: StreamDelivery,
) -> Callable[[Any], tuple[Tree, LoaderState, Any]]:
    """Returns ``next_batch(state) -> (batch, state, mask)``, for Python and for jit."""
    built = delivery.built

    def next_batch(state: Any) -> tuple[Tree, LoaderState, Any]:
        """Returns ``(batch, state, mask)`` for a state, eagerly or inside jit."""
        start = built.start(state)
        if built.in_jit or any(map(is_traced, jax.tree.leaves(start))):
            value, mask, after = built.step(start, [])
            return value, after, mask
        value, mask, cursor = delivery.fetch(start, None)
        return value, delivery.state(cursor), mask

    return next_batch
