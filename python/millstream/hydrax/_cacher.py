"""The threads that read and write cached batches."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from millstream.hydrax import _cache
from millstream.hydrax._cache import Additional, Arrays
from millstream.hydrax._layout import ArrayLayout

_POLL = 0.05


class Cacher:
    """Reads and writes cached batches on threads.

    It keeps a batch's arrays alive until they are on disk. While ``depth`` batches
    wait to be written, ``save`` blocks.
    """

    def __init__(self, depth: int, writers: int) -> None:
        self._depth = depth
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._saving: dict[Path, Future[None]] = {}
        self._failed: list[str] = []
        self._readers = ThreadPoolExecutor(min(depth, 4), "millstream-cache-read")
        self._writers = (
            ThreadPoolExecutor(writers, "millstream-cache-write") if writers else None
        )

    def read(
        self, path: Path, layouts: Mapping[str, ArrayLayout], size: int, rows: int
    ) -> Future[tuple[Arrays, Additional]]:
        """Starts reading a batch."""
        return self._readers.submit(_cache.read, path, layouts, size, rows)

    def save(
        self,
        path: Path,
        arrays: Mapping[str, Any],
        additional: Additional,
        layouts: Mapping[str, ArrayLayout],
        size: int,
        *,
        is_over: Callable[[], bool],
    ) -> None:
        """Starts writing a batch of NumPy or JAX arrays.

        Does nothing if a write to ``path`` is pending, or once ``is_over()`` is true.
        """
        self.warn_of_failures()
        if self._writers is None or self._over.is_set():
            raise RuntimeError(
                "the batch cannot be cached: its dataloader is not running any more. "
                "Call Batch.cache() inside the with block."
            )
        while True:
            with self._lock:
                if path in self._saving:
                    return
                waiting = [save for save in self._saving.values() if not save.done()]
                if len(waiting) < self._depth:
                    self._saving[path] = self._writers.submit(
                        self._save, path, dict(arrays), additional, layouts, size
                    )
                    return
            if is_over():
                return
            wait(waiting, _POLL, "FIRST_COMPLETED")

    def warn_of_failures(self) -> None:
        """Warns, on the calling thread, of each batch that could not be written."""
        while self._failed:
            warnings.warn(self._failed.pop(0), RuntimeWarning, stacklevel=4)

    def close(self, *, is_over: Callable[[], bool]) -> None:
        """Waits for pending writes; abandons them once ``is_over()`` is true."""
        while not is_over():
            with self._lock:
                waiting = list(self._saving.values())
            if not waiting:
                break
            wait(waiting, _POLL, "FIRST_COMPLETED")
        self._over.set()
        for pool in (self._readers, self._writers):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        self.warn_of_failures()

    def _save(
        self,
        path: Path,
        arrays: Mapping[str, Any],
        additional: Additional,
        layouts: Mapping[str, ArrayLayout],
        size: int,
    ) -> None:
        try:
            if not self._over.is_set():
                values = {name: np.asarray(array) for name, array in arrays.items()}
                _cache.write(
                    path,
                    values,
                    additional,
                    layouts,
                    size,
                    is_over=self._over.is_set,
                )
        except _cache.Abandoned:
            pass
        except Exception as error:
            self._failed.append(
                f"{path}: the batch was not cached: {type(error).__name__}: {error}"
            )
        finally:
            with self._lock:
                del self._saving[path]
