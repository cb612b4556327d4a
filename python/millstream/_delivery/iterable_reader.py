"""Reads batches from an iterable."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from millstream._core.errors import DataError
from millstream._run.iterable import BadRow, IterablePipeline, Place
from millstream._run.state import LoaderState, words_at
from millstream._sources.iterable import no_sample

_METHODS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))
_SKIPS = "by skipping samples"


class Limits(NamedTuple):
    """Where a loop ends. None means no limit."""

    epoch: int | None
    """The first epoch that is not read."""
    batches: int | None
    """The number of batches since epoch 0."""


class Position(NamedTuple):
    """A position between two batches."""

    epoch: int
    step: int
    place: Place

    def words(self, words: np.ndarray) -> np.ndarray:
        """Returns the words of this position. ``words`` are those of the loop."""
        return words_at(words, self.epoch, self.step)


class Rows(NamedTuple):
    """Consecutive samples of one iterable, and the place after them."""

    samples: list[Any]
    epoch: int
    first: int
    after: Place


class Made(NamedTuple):
    """A batch in host memory."""

    arrays: list[np.ndarray]
    """The fields, then the mask."""
    rows: tuple[Any, ...]
    """The epoch and the number of the sample of each row, if a stage needs them."""
    valid: int
    at: Position
    after: Position


class Reader:
    """Reads batches one after another, from a state to the limits of a loop."""

    def __init__(
        self, built: IterablePipeline, state: LoaderState, limits: Limits
    ) -> None:
        self.built = built
        self.limits = limits
        self._place = Place.of(state.stream)
        """Where the iterator is. A batch that is held back is before it."""
        self._position = Position(state.epoch, state.step, self._place)
        self._iterator: Iterator[Any] | None = None
        self._save: Callable[[], bytes] = bytes
        self._held: Rows | BaseException | None = None

    def read(self) -> Made | None:
        """Returns the next batch, or None at the limits."""
        built, limit, position = self.built, self.limits, self._position
        epoch, step, batches = position.epoch, position.step, position.place.batches
        if limit.epoch is not None and epoch >= limit.epoch:
            return None
        if limit.batches is not None and batches >= limit.batches:
            return None
        parts, ended = self._counted(step) if built.steps else self._open_ended()
        samples = parts[0].samples
        for part in parts[1:]:
            samples = samples + part.samples
        arrays = self._copied(samples, parts)
        place = parts[-1].after
        if ended and built.policy != "wrap" and place.epoch == epoch:
            self._start_epoch(epoch + 1)
            place = self._place
        epoch, step = (epoch + 1, 0) if ended else (epoch, step + 1)
        place = Place(place.epoch, place.samples, batches + 1, place.saved)
        self._position = after = Position(epoch, step, place)
        rows = self._numbers(parts) if built.keys_samples else ()
        return Made(arrays, rows, len(samples), position, after)

    def _counted(self, step: int) -> tuple[list[Rows], bool]:
        """Takes the samples of a batch if the number of samples is known."""
        built = self.built
        assert built.samples is not None
        parts: list[Rows] = []
        wanted = built.batch_size
        while wanted:
            taken = self._take(min(wanted, built.samples - self._place.samples))
            parts.append(taken)
            wanted -= len(taken.samples)
            if taken.after.samples == built.samples:
                self._start_epoch(taken.after.epoch + 1)
                parts[-1] = taken._replace(after=self._place)
            if built.policy != "wrap":
                break
        return parts, step + 1 == built.steps

    def _open_ended(self) -> tuple[list[Rows], bool]:
        """Takes the samples of a batch, and holds back the next one.

        The iterator shows only then whether the batch is the last of its epoch.
        """
        built, size = self.built, self.built.batch_size
        taken, self._held = self._held, None
        if isinstance(taken, BaseException):
            raise taken
        is_first = self._place.samples == 0
        if taken is None:
            taken = self._take(size)
        if is_first:
            self._check_first(taken)
        parts, ended = [taken], len(taken.samples) < size
        if not ended:
            try:
                held = self._take(size)
            except BaseException as error:  # it belongs to the next batch
                self._held = error
            else:
                least = size if built.remainder == "drop" else 1
                ended = len(held.samples) < least
                self._held = None if ended else held
        if ended and built.policy == "wrap":
            missing = size - len(taken.samples)
            self._start_epoch(taken.epoch + 1)
            parts[-1] = taken._replace(after=self._place)
            while missing:
                more = self._take(missing)
                self._check_first(more)
                missing -= len(more.samples)
                parts.append(more)
                if missing:
                    self._start_epoch(more.epoch + 1)
        return parts, ended

    def _check_first(self, taken: Rows) -> None:
        """Raises ``DataError`` if the first samples of an epoch make no batch."""
        if not taken.samples:
            raise no_sample(taken.epoch)
        if (
            self.built.remainder == "drop"
            and len(taken.samples) < self.built.batch_size
        ):
            raise DataError(
                f"IterableSource: drop_last drops every batch of epoch {taken.epoch}, "
                f"because its iterable has {len(taken.samples)} samples and a batch "
                f"{self.built.batch_size}. Use smaller batches."
            )

    def _take(self, count: int) -> Rows:
        """Takes up to ``count`` samples from the iterator."""
        if self._iterator is None:
            self._iterator = self._opened()
        place, samples = self._place, list(islice(self._iterator, count))
        total = self.built.samples
        if total is not None and len(samples) < count:
            raise self._too_short(place.samples + len(samples))
        end = place.samples + len(samples)
        saved = self._save() if len(samples) == count else b""
        self._place = Place(place.epoch, end, saved=saved)
        return Rows(samples, place.epoch, place.samples, self._place)

    def _start_epoch(self, epoch: int) -> None:
        self._iterator, self._save, self._held = None, bytes, None
        self._place = Place(epoch)

    def _too_short(self, found: int) -> DataError:
        return DataError(
            f"IterableSource: the iterable of epoch {self._place.epoch} ended after "
            f"{found} samples, but steps_per_epoch is {self.built.samples}. Pass the "
            "number of samples that every epoch has, or None."
        )

    def _opened(self) -> Iterator[Any]:
        """Returns an iterator at the place of the state."""
        place, source = self._place, self.built.source
        iterable = source.iterable(place.epoch)
        on_iterable = _methods(iterable)
        kind, saved = place.saved[:1], place.saved[1:]
        value: Any = bytes(saved) if kind == b"B" else None
        if kind == b"J":
            value = json.loads(saved)
        if kind and on_iterable is not None:
            # The caller's object would start later epochs at this state too.
            iterable = _shallow_copy(iterable)
            getattr(iterable, on_iterable[1])(value)
        iterator = iter(iterable)
        methods, owner = on_iterable, iterable
        if methods is None:
            methods, owner = _methods(iterator), iterator
            if kind and methods is not None:
                getattr(iterator, methods[1])(value)
        if place.samples and not (kind and methods is not None):
            skipped = sum(1 for _ in islice(iterator, place.samples))
            if skipped < place.samples:
                raise (
                    self._too_short(skipped)
                    if self.built.samples
                    else DataError(
                        f"IterableSource: the iterable of epoch {place.epoch} has only "
                        f"{skipped} samples, but the state was saved after "
                        f"{place.samples}. Resume with the same data."
                    )
                )
        self._choose_save(methods, owner)
        return iterator

    def _choose_save(self, methods: tuple[str, str] | None, owner: Any) -> None:
        built = self.built
        if methods is None or built.resumes == _SKIPS:
            self._save = bytes
            built.resumes = _SKIPS
            return
        get = getattr(owner, methods[0])
        built.resumes = f"through {methods[0]}() of {type(owner).__name__}"

        def save() -> bytes:
            found = get()
            try:
                return encoded(found)
            except TypeError as error:
                warnings.warn(
                    f"IterableSource: {methods[0]}() of {type(owner).__name__} "
                    f"returned a state that cannot be saved as JSON or bytes ({error})."
                    " Runs resume by skipping samples instead.",
                    UserWarning,
                    stacklevel=2,
                )
                built.resumes, self._save = _SKIPS, bytes
                return b""

        self._save = save

    def _copied(self, samples: list[Any], parts: list[Rows]) -> list[np.ndarray]:
        try:
            arrays: list[np.ndarray] = self.built.rows.batch(samples)
            return arrays
        except BadRow as error:
            row = error.row
            for part in parts:
                if row < len(part.samples):
                    break
                row -= len(part.samples)
            number = part.first + row
            raise DataError(
                f"IterableSource: sample {number} of epoch {part.epoch}: {error}",
                kind="data",
                sample=number,
            ) from error

    def _numbers(self, parts: list[Rows]) -> tuple[np.ndarray, np.ndarray]:
        epochs = np.zeros(self.built.batch_size, np.uint32)
        numbers = np.zeros(self.built.batch_size, np.uint32)
        start = 0
        for part in parts:
            end = start + len(part.samples)
            epochs[start:end] = part.epoch
            numbers[start:end] = np.arange(part.first, part.first + end - start)
            start = end
        return epochs, numbers


def encoded(state: Any) -> bytes:
    """Returns the state of an iterable as bytes. Raises ``TypeError`` if it cannot."""
    if isinstance(state, bytes | bytearray):
        return b"B" + bytes(state)
    try:
        text = json.dumps(state)
    except (ValueError, RecursionError) as error:
        raise TypeError(str(error)) from None
    if json.loads(text) != _plain(state):
        raise TypeError("JSON changes its keys or values")
    return b"J" + text.encode()


def _plain(value: Any) -> Any:
    """Returns a state with lists in place of tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return (
        [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
    )


def _methods(owner: Any) -> tuple[str, str] | None:
    """Returns the names of the methods that save and restore the state of ``owner``."""
    for pair in _METHODS:
        if all(callable(getattr(owner, name, None)) for name in pair):
            return pair
    return None


def _shallow_copy(value: Any) -> Any:
    """Returns an object with the same attributes, or ``value`` if that is impossible.

    It does not use the pickling methods of the class: those of Hugging Face's streams
    share the attributes.
    """
    try:
        twin = object.__new__(type(value))
        twin.__dict__.update(value.__dict__)
    except (AttributeError, TypeError):
        return value
    return twin
