"""The cache on disk: its descriptor ``cache.json``, and one file per batch.

A batch's file holds each array at its layout's offset, then the pickled additional
data, then a trailer with that data's length and a checksum of everything before it.
Each file is written under a temporary name and then renamed, so a crash never leaves an
incomplete file under the final name.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from millstream._core.errors import data_error
from millstream.hydrax._layout import ALIGNMENT, ArrayLayout

if TYPE_CHECKING:
    from millstream.hydrax._groups import DataGroup

_KIND = "millstream-hydrax-cache-v1"
_TRAILER = struct.Struct("<8sQI4x")
_MAGIC = b"MSHYDRA1"
_CHUNK = 4 << 20

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
Additional: TypeAlias = dict[str, list[Any]]


class Abandoned(Exception):
    """The run ended before a file was completely written."""


def batch_path(group: DataGroup[Any], epoch: int, index: int) -> Path | None:
    """The file of a batch, or None without a cache.

    A batch that is the same in every epoch has one file.
    """
    if group._cache_location is None:
        return None
    number = epoch if group._order.reseeds else 0
    return group._cache_location / f"e{number}-b{index}.dat"


def prepare(group: DataGroup[Any]) -> None:
    """Creates the group's cache if there is none.

    Raises ``RuntimeError`` if the existing cache was written for another group.
    """
    if group._cache_location is None:
        return
    path = group._cache_location / "cache.json"
    if not group._cache_readonly:
        group._cache_location.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(group._cache_location)
        if not path.exists():
            _create(path, json.dumps(_descriptor(group), indent=4).encode())
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, found {type(found).__name__}")
    except ValueError as error:
        raise RuntimeError(
            f"{path} is not a cache descriptor: {error}. Delete the directory, or pass "
            "another cache_location="
        ) from None
    names = found.pop("array_names", None)
    names = [str(name) for name in names] if isinstance(names, list) else []
    if sorted(names) == sorted(group._cache_layouts or ()):
        group._arrange_cache(names)
    expected = _descriptor(group)
    del expected["array_names"]
    if found != expected:
        differences = "; ".join(
            f"{key} is {found.get(key)!r} in the cache and {expected.get(key)!r} in "
            "the group"
            for key in expected | found
            if found.get(key) != expected.get(key)
        )
        raise RuntimeError(
            f"the cache {path} does not match the group: {differences}. Delete the "
            "directory, or pass another cache_location="
        )


def _descriptor(group: DataGroup[Any]) -> dict[str, Any]:
    order = group._order
    layouts = _by_offset(group._cache_layouts or {})
    return {
        "_type": _KIND,
        "data_len": order.items,
        "batch_size": order.batch_size,
        "seed": order.seed,
        "shuffle_first": order.shuffle_first,
        "shuffle_later": order.shuffle_later,
        "drop_last": order.drop_last,
        "array_layouts": [
            {"offset": offset, "dtype": str(dtype), "count": count}
            for _, (_, dtype, _, offset, count) in layouts
        ],
        "array_names": [name for name, _ in layouts],
    }


def _by_offset(layouts: Mapping[str, ArrayLayout]) -> list[tuple[str, ArrayLayout]]:
    """The layouts in the order in which a file holds the arrays."""
    return sorted(layouts.items(), key=lambda item: item[1][3])


def read(
    path: Path, layouts: Mapping[str, ArrayLayout], size: int, rows: int
) -> tuple[Arrays, Additional]:
    """The arrays and the additional data of a batch. The arrays' memory is aligned.

    Raises ``FileNotFoundError`` if there is no file, ``DataError`` if it is damaged.
    """
    with open(path, "rb", buffering=0) as file:
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
    magic, blob_length, checksum = _TRAILER.unpack(memory[-_TRAILER.size :].data)
    body = memory[: -_TRAILER.size]
    if magic != _MAGIC or blob_length != len(body) - size:
        raise data_error("the trailer is not that of a cached batch", path=path)
    found = zlib.crc32(body.data)
    if found != checksum:
        raise data_error(
            path=path, expected=f"checksum {checksum:#010x}", found=f"{found:#010x}"
        )
    try:
        additional = pickle.loads(body[size:].data)
    except Exception as error:
        raise data_error(
            f"the additional data cannot be unpickled: {error}", path=path
        ) from error
    arrays = {}
    for name, (shape, dtype, _, offset, count) in layouts.items():
        values = body[offset : offset + count * dtype.itemsize].view(dtype)
        arrays[name] = values.reshape(shape)[:rows]
    return arrays, additional


def write(
    path: Path,
    arrays: Arrays,
    additional: Additional,
    layouts: Mapping[str, ArrayLayout],
    size: int,
    *,
    is_over: Callable[[], bool],
) -> None:
    """Writes the file of a batch; raises `Abandoned` once ``is_over()`` is true."""
    blob = pickle.dumps(additional)
    temporary = _temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            checksum = 0
            for piece in _pieces(arrays, layouts, size, blob):
                if is_over():
                    raise Abandoned
                file.write(piece)
                checksum = zlib.crc32(piece, checksum)
            file.write(_TRAILER.pack(_MAGIC, len(blob), checksum))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _pieces(
    arrays: Arrays, layouts: Mapping[str, ArrayLayout], size: int, blob: bytes
) -> Any:
    position = 0
    for name, (_, dtype, _, offset, _) in _by_offset(layouts):
        if offset > position:
            yield bytes(offset - position)
        values = np.ascontiguousarray(arrays[name], dtype=dtype)
        view = values.reshape(-1).view(np.uint8).data
        position = offset + len(view)
        for start in range(0, len(view), _CHUNK):
            yield view[start : start + _CHUNK]
    if size > position:  # a short last batch
        yield bytes(size - position)
    yield blob


def _temporary_name(path: Path) -> Path:
    """The file's name while it is written; it contains the host and the process id."""
    return path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")


def _create(path: Path, text: bytes) -> None:
    """Writes the file unless another process has already written it."""
    temporary = _temporary_name(path)
    temporary.write_bytes(text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # the file system has no hard links
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(location: Path) -> None:
    """Removes the temporary files of dead processes of this host."""
    marker = f".{socket.gethostname()}."
    for path in location.glob("*.tmp"):
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
