"""Delivers the batches of an iterable to a Python loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from millstream._core.description import Tree
from millstream._delivery.aliasing import Aliasing
from millstream._delivery.host import runs
from millstream._delivery.iterable_reader import (
    Limits,
    Made,
    Position,
    Reader,
)
from millstream._delivery.iterable_thread import LostThread, ReaderAhead
from millstream._run.iterable import IterablePipeline, Place
from millstream._run.iterator import Position as LoopPosition
from millstream._run.keys import Origin
from millstream._run.run import ENDLESS, Run
from millstream._run.state import LoaderState, check_x64, words_at
from millstream._run.stats import recent_steps


class _Start(NamedTuple):
    """Where a loop starts, and where it ends."""

    state: LoaderState
    limits: Limits

    @property
    def epoch(self) -> int:
        return self.state.epoch


class _Cursor:
    """The state after a batch, and the reader that makes the next one.

    ``count`` is the number of batches that the reader had delivered. If it has another
    number now, an interrupt lost a batch, and a new reader starts at the state.
    """

    __slots__ = ("_state", "after", "count", "reader")

    def __init__(self, after: Position, reader: _Counted) -> None:
        self.after = after
        self.reader = reader
        self.count = reader.count
        self._state: LoaderState | None = None

    @property
    def state(self) -> LoaderState:
        if self._state is None:
            words = self.after.words(self.reader.words)
            self._state = LoaderState(words, self.after.place.stream)
        return self._state

    @property
    def epoch(self) -> int:
        return self.after.epoch


class _Counted:
    """A reader that counts its batches. ``count`` is -1 while it makes one."""

    def __init__(self, built: IterablePipeline, start: _Start) -> None:
        self.limits = start.limits
        self.words: np.ndarray = start.state.words
        reader = Reader(built, *start)
        ahead = built.prefetch
        self._reader = ReaderAhead(reader, ahead) if ahead else reader
        self.count = 0

    def read(self) -> Made:
        count, self.count = self.count, -1
        made = self._reader.read()
        assert made is not None  # the loop ends at the same limits
        self.count = count + 1
        return made

    def close(self) -> None:
        self.count = -1
        reader: Any = self._reader
        self._reader = None  # type: ignore[assignment]
        if isinstance(reader, ReaderAhead):
            reader.close()


class IterableDelivery:
    """Delivers batches of an iterable to Python, one at a time."""

    needs_words = False
    transfers = False

    def __init__(self, built: IterablePipeline) -> None:
        self.built = built
        self.steps = recent_steps()
        """The times of the last steps of Python loops."""
        self._alias = Aliasing()
        self._full_mask: tuple[Any, Any] = (None, None)
        self._partial = built.remainder == "partial"
        default = jax.local_devices()[0]
        self._device = None if built.device is default else built.device

    def iterator_class(self, kind: type[Any]) -> type[Any]:
        """Returns the class of iterators to use instead of ``kind``."""
        is_open = issubclass(kind, Run) and not self.built.steps
        mixin = _OpenRun if is_open else _Looped
        return _looped(mixin, kind)  # type: ignore[arg-type]

    def first(self, state: LoaderState) -> LoaderState:
        return state

    def after(self, position: Any, _: bool) -> NoReturn:
        raise AssertionError("a cursor always holds the state of an iterable")

    def fetch(
        self, start: Any, cursor: _Cursor | None, left: int = 1
    ) -> tuple[Tree, Any, _Cursor]:
        """Returns ``(value, mask, cursor)`` of the batch at a start or a cursor."""
        built = self.built
        check_x64(built.x64)
        if cursor is not None and cursor.reader.count != cursor.count:
            start, cursor = _Start(cursor.state, cursor.reader.limits), None
        reader = _Counted(built, start) if cursor is None else cursor.reader
        try:
            made = reader.read()
        except LostThread:
            reader.close()
            assert cursor is not None or start is not None
            state = start.state if cursor is None else cursor.state
            return self.fetch(_Start(state, reader.limits), None)
        except StopIteration as error:
            reader.close()
            raise RuntimeError(
                "IterableSource: the iterable raised StopIteration where a state was "
                "saved or restored"
            ) from error
        except BaseException:
            reader.close()
            raise
        value, mask = self._finished(made, reader.words)
        built.count[0] += 1
        built.count[1] += made.valid
        return value, mask, _Cursor(made.after, reader)

    def _finished(self, made: Made, words: np.ndarray) -> tuple[Tree, Any]:
        """Returns ``(value, mask)`` of a batch in JAX, after all stages."""
        built = self.built
        arrays = built.rows_of(made.arrays)
        rows = made.rows if built.batched else tuple(x[0] for x in made.rows)
        if self._partial and made.valid < built.batch_size:
            arrays = [array[: made.valid] for array in arrays]
            rows = tuple(x[: made.valid] for x in rows)
            *leaves, mask = jax.device_put(arrays, self._device)
        elif built.split is not None:
            *leaves, mask = jax.device_put(arrays, built.split.rows_sharding)
        else:
            *leaves, flags = arrays
            leaves = self._alias(leaves, self._device)
            mask = self._mask(flags, made.valid)
        value = built.unflatten(leaves)
        origin = Origin(made.at.words(words), rows) if built.keyed else Origin()
        for run in self._stages:
            value, mask = run(value, mask, origin)
        if self._device is not None and self._stages:
            value, mask = jax.device_put((value, mask), self._device)
        return value, mask

    def _mask(self, flags: np.ndarray, valid: int) -> Any:
        """Returns the mask of a batch. All full batches share one."""
        if valid < self.built.batch_size:
            return jax.device_put(flags, self._device)
        default = jax.config.jax_default_device  # type: ignore[attr-defined]
        known_default, mask = self._full_mask
        if mask is None or default is not known_default or mask.is_deleted():
            mask = jax.device_put(flags.copy(), self._device)
            self._full_mask = default, mask
        return mask

    @functools.cached_property
    def _stages(self) -> list[Callable[..., Tree]]:
        return runs(self.built, self.built.later)

    def state(self, position: Any) -> LoaderState:
        """Returns the state at a position of a loop."""
        if isinstance(position, _Cursor | _Start):
            return position.state
        state: LoaderState = position
        return state

    def words(self, position: Any) -> np.ndarray:
        """Returns the words of a position of a loop."""
        return np.asarray(self.state(position).words)

    def next_epoch(self, run: Any) -> LoaderState:
        """Returns the state after the epoch of ``run``."""
        built, epoch = self.built, run.last_epoch + 1
        state: LoaderState = run.state
        if state.epoch >= epoch:
            return state
        if built.policy == "wrap" and not built.steps:
            for _ in run:  # only the iterator knows where the epoch ends
                pass
            end: LoaderState = run.state
            return end
        place = Place(epoch, 0, Place.of(state.stream).batches)
        if built.steps:
            place = place._replace(batches=epoch * built.steps)
        if built.policy == "wrap":
            assert built.samples is not None
            taken = epoch * built.steps * built.batch_size
            place = place._replace(
                epoch=taken // built.samples, samples=taken % built.samples
            )
        run._abandon()
        return LoaderState(words_at(state.words, epoch, 0), place.stream)


class _Looped:
    """The part of an iterator that knows where the iterable must stop.

    If the length of an epoch is unknown, the state says when the last epoch is over.
    """

    _delivery: IterableDelivery
    built: IterablePipeline
    _position: LoopPosition
    _closed: bool
    _last: int | None = None

    def _start(self, state: LoaderState, steps: int | None) -> LoopPosition:
        self._last = self._last_epoch(state, steps)
        if self._last is not None:
            steps = ENDLESS
        _, left, _, _ = super()._start(state, steps)  # type: ignore[misc]
        before = Place.of(state.stream).batches
        limits = Limits(self._last, None if left >= ENDLESS else before + left)
        return _Start(state, limits), left, None, None

    def _last_epoch(self, state: LoaderState, steps: int | None) -> int | None:
        """Returns the first epoch after the loop, if only the iterator knows it."""
        unknown = steps is None and not self.built.steps
        return state.epoch + 1 if unknown else None

    def __next__(self) -> Any:
        if self._position[1] > 0 and self._left <= 0:
            start, _, cursor, fetched = self._position
            self._position = start, 0, cursor, fetched
        return super().__next__()  # type: ignore[misc]

    @property
    def _state(self) -> LoaderState:
        return self._delivery.state(self._place())  # type: ignore[attr-defined]

    @property
    def _left(self) -> int:
        place: Any = self._place()  # type: ignore[attr-defined]
        if self._last is not None and place.epoch >= self._last:
            return 0
        return self._position[1]

    def __len__(self) -> int:
        if self._last is not None:
            raise TypeError(
                "the number of batches is not known, because an epoch ends when the "
                "iterator does. Pass steps_per_epoch= to IterableSource."
            )
        return super().__len__()  # type: ignore[misc]

    def get_state(self) -> dict[str, Any]:
        saved: dict[str, Any] = super().get_state()  # type: ignore[misc]
        if self._last is not None and saved.get("left"):
            saved["left"] = None  # to the end of the epoch
        return saved

    def _abandon(self) -> None:
        """Ends the iterator of the loop."""
        cursor = self._position[2]
        if cursor is not None:
            cursor.reader.close()


class _OpenRun(_Looped):
    """A ``Run`` over epochs of unknown length."""

    _epochs: int | None
    _steps: int | None

    def _last_epoch(self, state: LoaderState, steps: int | None) -> int | None:
        self._first_epoch = state.epoch
        return self._epochs

    def _batches_before(self, state: LoaderState) -> int:
        return Place.of(state.stream).batches

    def _last_batch(self) -> int | None:
        return self._steps

    @property
    def step(self) -> int:
        return Place.of(self._state.stream).batches

    @property
    def _has_delivered(self) -> bool:
        return self._position[2] is not None

    @property
    def epoch(self) -> int:
        state = self._state
        return state.epoch - (self._has_delivered and state.step == 0)

    @property
    def last_epoch(self) -> int:
        return max((self._last or 0) - 1, self._first_epoch)

    @property
    def epoch_ended(self) -> bool:
        return self._has_delivered and self._state.step == 0

    def __repr__(self) -> str:
        end = "no end" if self._last is None else f"{self._last} epochs"
        return f"<Run: epoch {self.epoch}, step {self.step}, {end}>"


@functools.cache
def _looped(mixin: type[_Looped], kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (mixin, kind), {"__doc__": kind.__doc__})


def stepper(delivery: IterableDelivery) -> Callable[[Any], NoReturn]:
    """Returns a ``next_batch`` that raises ``TypeError``."""

    def next_batch(state: Any) -> NoReturn:
        delivery.built.refuse("next_batch()")

    return next_batch
