"""Reads IDX files, the format of MNIST and its relatives, raw or gzipped."""

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from millstream._errors import DataError

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20


def read_idx(
    path: Path, *, ndim: int | None = None, dtype: str | None = None
) -> NDArray[Any]:
    """Return the array in an IDX file, in native byte order.

    The file may be gzipped whatever its name is. With ``ndim`` or ``dtype`` (a NumPy
    name such as ``"uint8"``) any other array is refused. Memory grows with the bytes
    that are there, never with the sizes that the header claims.

    Raises ``DataError`` unless the file holds exactly the array that its header
    describes.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: expected an IDX file, found a directory")
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        if not packed:
            return _parse(raw, path, ndim=ndim, dtype=dtype)
        return _parse_gzip(raw, path, ndim=ndim, dtype=dtype)


def _parse_gzip(
    raw: BinaryIO, path: Path, *, ndim: int | None, dtype: str | None
) -> NDArray[Any]:
    import gzip
    import zlib

    with gzip.GzipFile(fileobj=raw) as unpacked:
        try:
            return _parse(unpacked, path, ndim=ndim, dtype=dtype)
        except EOFError as error:
            raise DataError(
                f"{path}: the gzip stream ends early, at byte {raw.tell()} of the file"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: damaged gzip stream: {error}") from error


def _parse(
    stream: BinaryIO | Any, path: Path, *, ndim: int | None, dtype: str | None
) -> NDArray[Any]:
    stored, shape = _parse_header(stream, path)
    header_size = 4 + 4 * len(shape)
    if dtype is not None and stored.newbyteorder("=") != np.dtype(dtype):
        raise DataError(
            f"{path}: offset 2: expected IDX type {dtype}, found {stored.name}"
        )
    if ndim is not None and len(shape) != ndim:
        raise DataError(
            f"{path}: offset 3: expected {ndim} dimensions, found {len(shape)}"
        )
    expected = math.prod(shape) * stored.itemsize
    values = _read_up_to(stream, expected)
    described = f"{expected} bytes of values after a header of {header_size} {shape}"
    if len(values) < expected:
        raise DataError(
            f"{path}: truncated at offset {header_size + len(values)}: "
            f"expected {described}, found {len(values)}"
        )
    if stream.read(1):
        raise DataError(
            f"{path}: trailing bytes at offset {header_size + expected}: "
            f"expected {described}, found more"
        )
    array = np.frombuffer(values, dtype=stored).reshape(shape)
    return array.astype(stored.newbyteorder("="), copy=False)


def _parse_header(
    stream: BinaryIO | Any, path: Path
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    magic = stream.read(4)
    if len(magic) < 4:
        raise DataError(
            f"{path}: truncated at offset {len(magic)}: "
            f"expected an IDX header of at least 8 bytes, found {len(magic)}"
        )
    if magic[:2] != b"\0\0" or magic[2] not in _DTYPES or magic[3] == 0:
        raise DataError(
            f"{path}: offset 0: expected an IDX magic number such as "
            f"2051 (images) or 2049 (labels), found {int.from_bytes(magic, 'big')}"
        )
    rank = magic[3]
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise DataError(
            f"{path}: truncated at offset {4 + len(sizes)}: "
            f"expected {rank} dimensions in {4 * rank} bytes, found {len(sizes)}"
        )
    return np.dtype(_DTYPES[magic[2]]), struct.unpack(f">{rank}I", sizes)


def _read_up_to(stream: BinaryIO | Any, count: int) -> bytearray:
    values = bytearray()
    while len(values) < count:
        chunk = stream.read(min(_CHUNK, count - len(values)))
        if not chunk:
            break
        values += chunk
    return values
