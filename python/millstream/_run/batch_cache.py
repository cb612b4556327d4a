"""A cache on disk for batches that take long to make."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Self

import numpy as np

from millstream._core.arguments import whole
from millstream._core.errors import DataError
from millstream._core.public import public
from millstream._run.cache_files import (
    Abandoned,
    CachedBatch,
    open_folder,
    read_batch,
    write_batch,
)
from millstream._workers.executor import HostBatch, PendingBatch

_POLL = 0.05
_READERS = 4


@public
class BatchCache:
    """A folder of batches that take long to make, such as the outputs of a model.

    Use it in a with block. Threads write the batches; leaving the block waits for them,
    unless an exception ends it. A file is complete or does not exist. If a file is
    damaged, ``get`` warns and returns None, so that the caller makes the batch again.

    Args:
      folder: Where the files are. It is created if it does not exist.
      spec: ``{name: x}`` for each array of a batch; ``x`` has a shape, whose first axis
        counts samples, and a dtype, like a ``jax.ShapeDtypeStruct``. The last batch may
        have fewer samples. Arrays are converted to the dtype when they are written.
      description: A dict that JSON can hold. It says what the batches depend on, such
        as the seed. ``RuntimeError`` says what differs if the folder was made with
        another description or other arrays.
      readonly: Whether the folder is only read. It must exist.
      threads: The number of threads that write.
      pending: How many batches may wait to be written before ``put`` blocks.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        spec: Mapping[str, Any],
        description: Mapping[str, Any] | None = None,
        *,
        readonly: bool = False,
        threads: int = 1,
        pending: int = 4,
    ) -> None:
        shapes = {name: (tuple(x.shape), np.dtype(x.dtype)) for name, x in spec.items()}
        if not shapes or any(not shape for shape, _ in shapes.values()):
            raise ValueError(
                "spec must have at least one array, and each array at least one axis; "
                f"found {dict(spec)}"
            )
        self.folder = Path(folder)
        self.readonly = readonly
        self._pending = whole("pending", pending, 1)
        writers = whole("threads", threads, 1)
        self._layout = open_folder(
            self.folder, shapes, description or {}, readonly=readonly
        )
        self._over = self._closed = False
        self._lock = threading.Lock()
        self._writing: dict[Path, Future[None]] = {}
        self._failed: list[str] = []
        self._readers = ThreadPoolExecutor(_READERS, "millstream-cache-read")
        self._writers = ThreadPoolExecutor(writers, "millstream-cache-write")

    def __contains__(self, name: str) -> bool:
        """Whether there is a file for the batch, which may be damaged."""
        return self.path(name).exists()

    def path(self, name: str) -> Path:
        """The file of a batch."""
        if not name or Path(name).name != name:
            raise ValueError(
                f"name must be a file name without a folder; found {name!r}"
            )
        return self.folder / f"{name}.dat"

    def get(self, name: str) -> CachedBatch | None:
        """Returns a batch, or None if it is not in the cache or is damaged."""
        path = self.path(name)
        try:
            return read_batch(path, self._layout)
        except FileNotFoundError:
            return None
        except (DataError, OSError) as error:
            _warn_of_damage(error)
            return None

    def read_ahead(
        self, name: str, otherwise: Callable[[], PendingBatch] | None = None
    ) -> PendingRead:
        """Starts to read a batch on a thread.

        ``wait()`` of the result returns the batch. If it cannot be read, ``otherwise``
        starts to make it. Without ``otherwise``, ``wait()`` raises the error.
        """
        future = self._readers.submit(read_batch, self.path(name), self._layout)
        return PendingRead(future, otherwise)

    def put(self, name: str, arrays: Mapping[str, Any], extra: Any = None) -> None:
        """Starts to write a batch of NumPy or JAX arrays.

        ``extra`` is any value that pickle can hold, such as the host fields. The cache
        keeps the arrays until they are on disk, so do not change them. ``put`` does
        nothing if the same batch is being written.
        """
        self._check(arrays)
        self.warn_of_failures()
        path = self.path(name)
        if self._closed:
            raise RuntimeError(
                f"{path}: the cache is closed. Write batches in its with block."
            )
        if self.readonly:
            raise RuntimeError(
                f"{path}: the cache is read-only. Pass readonly=False to write to it."
            )
        while not self._over:
            with self._lock:
                if path in self._writing:
                    return
                waiting = list(self._writing.values())
                if len(waiting) < self._pending:
                    self._writing[path] = self._writers.submit(
                        self._write, path, dict(arrays), extra
                    )
                    return
            wait(waiting, _POLL, "FIRST_COMPLETED")

    def warn_of_failures(self) -> None:
        """Warns, on the calling thread, of each batch that could not be written."""
        while self._failed:
            warnings.warn(self._failed.pop(0), RuntimeWarning, stacklevel=4)

    def abandon(self) -> None:
        """Gives up all writes that are not complete. Any thread may call this."""
        self._over = True

    def close(self) -> None:
        """Waits for pending writes, and ends the threads."""
        try:
            while not self._over:
                with self._lock:
                    waiting = list(self._writing.values())
                if not waiting:
                    break
                wait(waiting, _POLL, "FIRST_COMPLETED")
        finally:  # also after KeyboardInterrupt
            self._over = self._closed = True
            for pool in (self._readers, self._writers):
                pool.shutdown(wait=True, cancel_futures=True)
        self.warn_of_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abandon()
        self.close()

    def _check(self, arrays: Mapping[str, Any]) -> None:
        shapes = self._layout.shapes
        if arrays.keys() != shapes.keys():
            raise ValueError(
                f"expected the arrays {sorted(shapes)}, found {sorted(arrays)}"
            )
        rows = {np.shape(array)[:1] for array in arrays.values()}
        for name, (shape, _) in shapes.items():
            found = np.shape(arrays[name])
            fits = found[1:] == shape[1:] and len(rows) == 1
            if not fits or not found or not 0 < found[0] <= shape[0]:
                raise ValueError(
                    f"array {name!r}: expected shape {shape} or fewer samples, as many "
                    f"as in the other arrays; found {found}"
                )

    def _write(self, path: Path, arrays: Mapping[str, Any], extra: Any) -> None:
        try:
            write_batch(path, self._layout, arrays, extra, lambda: self._over)
        except Abandoned:
            pass
        except Exception as error:
            self._failed.append(
                f"{path}: the batch was not cached: {type(error).__name__}: {error}"
            )
        finally:
            with self._lock:
                del self._writing[path]


class PendingRead:
    """A batch that is being read. It has the methods of `PendingBatch`."""

    def __init__(
        self, future: Future[CachedBatch], otherwise: Callable[[], PendingBatch] | None
    ) -> None:
        self._future = future
        self._otherwise = otherwise
        self._made: PendingBatch | None = None

    @property
    def done(self) -> bool:
        """Whether ``wait`` would return or raise immediately."""
        made = self._fallback()
        return self._future.done() if made is None else made.done

    def wait(self, timeout: float | None = None) -> CachedBatch | HostBatch | None:
        """Returns the batch, or None after ``timeout`` seconds.

        It is a ``CachedBatch``, or a ``HostBatch`` if it was made.
        """
        if not wait([self._future], timeout).done:
            return None
        made = self._fallback()
        return self._future.result() if made is None else made.wait(timeout)

    def _fallback(self) -> PendingBatch | None:
        """The batch that is made because reading it has failed, or None."""
        if self._made is None and self._otherwise and self._future.done():
            error = self._future.exception()
            if error is not None:
                if not isinstance(error, FileNotFoundError):
                    _warn_of_damage(error)
                self._made = self._otherwise()
        return self._made


def _warn_of_damage(error: BaseException) -> None:
    warnings.warn(
        f"a cached batch cannot be used and is made again: {error}",
        RuntimeWarning,
        stacklevel=5,
    )
