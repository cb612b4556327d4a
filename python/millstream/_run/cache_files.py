"""The files of a `BatchCache`: a descriptor ``cache.json``, and one file per batch.

A batch's file holds each array at its offset, then a pickled value, then a trailer with
the length of the pickle, a checksum of everything before it and the number of rows.
Each file is written under a temporary name and then renamed, so a crash never leaves an
incomplete file under the final name.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import socket
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from millstream._core.errors import data_error
from millstream._core.public import public

# JAX aliases memory whose address is a multiple of this, and copies any other.
ALIGNMENT = 64

_TRAILER = struct.Struct("<8sQII")
_MAGIC = b"MSHYDRA1"
_CHUNK = 4 << 20

Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""The shape and the dtype of each array of a batch."""


@public
@dataclass(frozen=True)
class CachedBatch:
    """A batch that `BatchCache.get` has read.

    ``arrays`` are NumPy arrays by name. On the CPU, ``jax.device_put`` uses their
    memory without a copy. ``extra`` is the value that was passed to ``put``.
    """

    arrays: dict[str, np.ndarray]
    extra: Any


class Abandoned(Exception):
    """The cache was closed before a file was completely written."""


@dataclass(frozen=True)
class Layout:
    """The offset of each array in a batch's file, and the size of all arrays."""

    shapes: Shapes
    offsets: dict[str, int]
    size: int

    @classmethod
    def of(cls, shapes: Shapes, order: Sequence[str] | None = None) -> Layout:
        """Lays out the arrays in ``order``, or in the order of ``shapes``."""
        offsets, size = {}, 0
        for name in order or shapes:
            shape, dtype = shapes[name]
            offsets[name] = size + -size % ALIGNMENT
            size = offsets[name] + math.prod(shape) * dtype.itemsize
        return cls(shapes, offsets, size)

    @property
    def descriptor(self) -> dict[str, Any]:
        """What ``cache.json`` says about the arrays."""
        layouts = []
        for name, offset in self.offsets.items():
            shape, dtype = self.shapes[name]
            count = math.prod(shape)
            layouts.append({"offset": offset, "dtype": str(dtype), "count": count})
        return {"array_layouts": layouts, "array_names": list(self.offsets)}


def open_folder(
    folder: Path, shapes: Shapes, description: Mapping[str, Any], *, readonly: bool
) -> Layout:
    """Creates the descriptor if there is none, and returns the layout of the files.

    Arrays are found by name, or by position if the names differ. Raises
    ``RuntimeError`` if the descriptor does not match.
    """
    path = folder / "cache.json"
    layout = Layout.of(shapes)
    if not readonly:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        if not path.exists():
            text = json.dumps({**description, **layout.descriptor}, indent=4)
            _create(path, text.encode())
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, found {type(found).__name__}")
    except ValueError as error:
        raise RuntimeError(
            f"{path} is not a cache descriptor: {error}. Delete the folder, or use "
            "another one."
        ) from None
    names = found.pop("array_names", None)
    if isinstance(names, list) and set(map(str, names)) == shapes.keys():
        layout = Layout.of(shapes, names)
    # JSON has no tuples, so compare what JSON makes of the description.
    expected = json.loads(json.dumps({**description, **layout.descriptor}))
    del expected["array_names"]
    if found != expected:
        differences = "; ".join(
            f"{key} is {found.get(key)!r} in the cache and {expected.get(key)!r} now"
            for key in expected | found
            if found.get(key) != expected.get(key)
        )
        raise RuntimeError(
            f'the cache descriptor "{path}" does not match configuration: '
            f"{differences}. Delete the folder, or use another one."
        )
    return layout


def read_batch(path: Path, layout: Layout) -> CachedBatch:
    """Reads a batch into aligned memory.

    Raises ``FileNotFoundError`` if there is no file, ``DataError`` if it is damaged.
    """
    size = layout.size
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed below
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: the batch is not in the cache") from None
    with file:
        length = os.fstat(file.fileno()).st_size
        if length < size + _TRAILER.size:
            raise data_error(
                path=path,
                expected=f"a cached batch of at least {size + _TRAILER.size} bytes",
                found=f"{length} bytes",
            )
        memory = np.empty(length + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        memory = memory[start : start + length]
        done = 0
        while done < length:
            count = file.readinto(memory[done:].data)
            if not count:
                raise data_error(
                    path=path,
                    expected=f"{length} bytes",
                    found=f"the end of the file after {done}",
                )
            done += count
    magic, pickled, checksum, rows = _TRAILER.unpack(memory[-_TRAILER.size :].data)
    body = memory[: -_TRAILER.size]
    if magic != _MAGIC or pickled != len(body) - size:
        raise data_error("the trailer is not that of a cached batch", path=path)
    found = zlib.crc32(body.data)
    if found != checksum:
        raise data_error(
            path=path, expected=f"checksum {checksum:#010x}", found=f"{found:#010x}"
        )
    try:
        extra = pickle.loads(body[size:].data)
    except Exception as error:
        raise data_error(f"the pickle cannot be read: {error}", path=path) from error
    arrays = {}
    for name, (shape, dtype) in layout.shapes.items():
        offset = layout.offsets[name]
        values = body[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype)
        arrays[name] = values.reshape(shape)[: rows or None]
    return CachedBatch(arrays, extra)


def write_batch(
    path: Path,
    layout: Layout,
    arrays: Mapping[str, Any],
    extra: Any,
    is_over: Callable[[], bool],
) -> None:
    """Writes the file of a batch. Raises `Abandoned` once ``is_over()`` is true."""
    pickled = pickle.dumps(extra)
    rows = len(next(iter(arrays.values())))
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            checksum = 0
            for piece in _pieces(arrays, layout, pickled):
                if is_over():
                    raise Abandoned
                file.write(piece)
                checksum = zlib.crc32(piece, checksum)
            file.write(_TRAILER.pack(_MAGIC, len(pickled), checksum, rows))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _pieces(
    arrays: Mapping[str, Any], layout: Layout, pickled: bytes
) -> Iterator[bytes | memoryview]:
    position = 0
    for name, offset in layout.offsets.items():
        yield bytes(offset - position)
        values = np.ascontiguousarray(arrays[name], dtype=layout.shapes[name][1])
        view = values.reshape(-1).view(np.uint8).data
        position = offset + len(view)
        for start in range(0, len(view), _CHUNK):
            yield view[start : start + _CHUNK]
    yield bytes(layout.size - position)  # a batch with fewer rows than the layout
    yield pickled


def temporary_name(path: Path) -> Path:
    """The file's name while it is written; it contains the host and the process id."""
    return path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")


def _create(path: Path, text: bytes) -> None:
    """Writes the file unless another process has already written it."""
    temporary = temporary_name(path)
    temporary.write_bytes(text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # the file system has no hard links
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Removes the temporary files of dead processes of this host."""
    marker = f".{socket.gethostname()}."
    for path in folder.glob("*.tmp"):
        pid = path.name.removesuffix(".tmp").rpartition(".")[2]
        if marker in path.name and pid.isdigit() and not _is_alive(int(pid)):
            path.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
