"""Batches on their way: from loader processes or from the cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millstream.hydrax._cache import Additional, Arrays

if TYPE_CHECKING:
    from millstream._workers.executor import Made, Ticket


@dataclass(frozen=True)
class Loaded:
    """The values of a batch, and whether they are those that the cache holds."""

    arrays: Arrays
    additional: Additional
    from_cache: bool
    remarks: tuple[str, ...] = ()


class Load(Protocol):
    """A batch that is being loaded."""

    def is_done(self) -> bool:
        """Whether ``result`` returns, or raises, at once."""

    def pause(self, seconds: float) -> None:
        """Waits until it is done, but no longer than so many seconds."""

    def result(self) -> Loaded:
        """What was loaded, once it is done; to be asked for once."""


class FromWorkers:
    """A batch that loader processes fill."""

    def __init__(self, ticket: Ticket, rows: int) -> None:
        self._ticket = ticket
        self._rows = rows
        self._made: Made | None = None
        self._error: BaseException | None = None

    def is_done(self) -> bool:
        """Whether it is filled, or has failed."""
        return self._made is not None or self._error is not None or self._ticket.done

    def pause(self, seconds: float) -> None:
        """Waits until it is filled, but no longer than so many seconds."""
        try:
            self._made = self._ticket.wait(seconds)
        except Exception as error:
            self._error = error

    def result(self) -> Loaded:
        """What was filled; raises what the loader function did."""
        made, error = self._made, self._error
        self._made = self._error = None
        if error is not None:
            raise error
        if made is None:
            made = self._ticket.wait()
            assert made is not None
        arrays = {name: array[: self._rows] for name, array in made.arrays.items()}
        additional, remarks = _merged(made.beside, self._rows)
        return Loaded(arrays, additional, False, remarks)


class FromCache:
    """A batch that is read from disk; ``otherwise`` where it cannot be."""

    def __init__(
        self,
        future: Future[tuple[Arrays, Additional]],
        otherwise: Callable[[], Load],
    ) -> None:
        self._future = future
        self._otherwise = otherwise
        self._instead: Load | None = None

    def is_done(self) -> bool:
        """Whether it is read; where it cannot be, it is loaded anew."""
        if self._instead is None and self._future.done():
            error = self._future.exception()
            if error is None:
                return True
            if not isinstance(error, FileNotFoundError):
                warnings.warn(
                    f"a cached batch cannot be used: {error}",
                    RuntimeWarning,
                    stacklevel=5,
                )
            self._instead = self._otherwise()
        return self._instead is not None and self._instead.is_done()

    def pause(self, seconds: float) -> None:
        """Waits until it is read, but no longer than so many seconds."""
        if self._instead is not None:
            self._instead.pause(seconds)
        else:
            wait([self._future], seconds)

    def result(self) -> Loaded:
        """What was read."""
        if self._instead is not None:
            return self._instead.result()
        arrays, additional = self._future.result()
        return Loaded(arrays, additional, True)


class NotCached(FileNotFoundError):
    """A batch is not in the only place where it could be."""


class Missing:
    """A batch that only the cache could give."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_done(self) -> bool:
        """True: it is missing."""
        return True

    def pause(self, seconds: float) -> None:
        """Does nothing: it is done."""

    def result(self) -> Loaded:
        """Raises: there is nothing to load it with."""
        raise NotCached(
            f"{self._path}: the batch is not in the cache, and its group has no "
            "loader_arrays"
        )


def _merged(beside: list[Any], rows: int) -> tuple[Additional, tuple[str, ...]]:
    """What the loader function returned for each item, as lists by key."""
    additional: Additional = {}
    remarks: dict[str, None] = {}
    for row, returned in enumerate(beside[:rows]):
        if returned is None:
            continue
        values, said = returned
        for key, value in (values or {}).items():
            additional.setdefault(key, [None] * rows)[row] = value
        remarks.update(dict.fromkeys(said))
    return additional, tuple(remarks)
