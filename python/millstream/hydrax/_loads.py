"""Batches that are being loaded: by loader processes or from the cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millstream.hydrax._cache import Additional, Arrays

if TYPE_CHECKING:
    from millstream._workers.executor import HostBatch, PendingBatch


@dataclass(frozen=True)
class Loaded:
    """The values of a batch, whether they come from the cache, and warnings."""

    arrays: Arrays
    additional: Additional
    from_cache: bool
    remarks: tuple[str, ...] = ()


class Load(Protocol):
    """A batch that is being loaded."""

    def is_done(self) -> bool:
        """Whether ``result`` returns or raises without waiting."""

    def pause(self, seconds: float) -> None:
        """Waits until it is done, but no longer than ``seconds``."""

    def result(self) -> Loaded:
        """The values, once they are loaded. May be called once."""


class FromWorkers:
    """A batch that loader processes fill."""

    def __init__(self, pending: PendingBatch, rows: int) -> None:
        self._pending = pending
        self._rows = rows
        self._made: HostBatch | None = None
        self._error: BaseException | None = None

    def is_done(self) -> bool:
        """Whether the batch is filled or has failed."""
        return self._made is not None or self._error is not None or self._pending.done

    def pause(self, seconds: float) -> None:
        """Waits until the batch is filled, but no longer than ``seconds``."""
        try:
            self._made = self._pending.wait(seconds)
        except Exception as error:
            self._error = error

    def result(self) -> Loaded:
        """The filled arrays; raises what the loader function raised."""
        made, error = self._made, self._error
        self._made = self._error = None
        if error is not None:
            raise error
        if made is None:
            made = self._pending.wait()
            assert made is not None
        arrays = {name: array[: self._rows] for name, array in made.arrays.items()}
        additional, remarks = _merged(made.host_values, self._rows)
        return Loaded(arrays, additional, False, remarks)


class FromCache:
    """A batch that is read from the cache.

    If reading fails, ``load_again`` starts loading it in another way.
    """

    def __init__(
        self,
        future: Future[tuple[Arrays, Additional]],
        load_again: Callable[[], Load],
    ) -> None:
        self._future = future
        self._load_again = load_again
        self._fallback: Load | None = None

    def is_done(self) -> bool:
        """Whether the batch is read; starts the fallback if reading failed."""
        if self._fallback is None and self._future.done():
            error = self._future.exception()
            if error is None:
                return True
            if not isinstance(error, FileNotFoundError):
                warnings.warn(
                    f"a cached batch cannot be used and is loaded again: {error}",
                    RuntimeWarning,
                    stacklevel=5,
                )
            self._fallback = self._load_again()
        return self._fallback is not None and self._fallback.is_done()

    def pause(self, seconds: float) -> None:
        """Waits until the batch is read, but no longer than ``seconds``."""
        if self._fallback is not None:
            self._fallback.pause(seconds)
        else:
            wait([self._future], seconds)

    def result(self) -> Loaded:
        """The values that were read, or those of the fallback."""
        if self._fallback is not None:
            return self._fallback.result()
        arrays, additional = self._future.result()
        return Loaded(arrays, additional, True)


class NotCached(FileNotFoundError):
    """A batch is not in the cache, and its group has no other source."""


class Missing:
    """A batch that is not in the cache, of a group without ``loader_arrays``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_done(self) -> bool:
        """Always true."""
        return True

    def pause(self, seconds: float) -> None:
        """Returns immediately."""

    def result(self) -> Loaded:
        """Raises `NotCached`."""
        raise NotCached(
            f"{self._path}: the batch is not in the cache, and its group has no "
            "loader_arrays to load it with. Pass loader_arrays= to DataGroup."
        )


def _merged(host_values: list[Any], rows: int) -> tuple[Additional, tuple[str, ...]]:
    """The additional data of all items as lists by key, and the distinct warnings."""
    additional: Additional = {}
    remarks: dict[str, None] = {}
    for row, returned in enumerate(host_values[:rows]):
        if returned is None:
            continue
        values, item_remarks = returned
        for key, value in (values or {}).items():
            additional.setdefault(key, [None] * rows)[row] = value
        remarks.update(dict.fromkeys(item_remarks))
    return additional, tuple(remarks)
