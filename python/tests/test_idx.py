"""The IDX reader: exact values from good files, a clear error from all others."""

import contextlib
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from idx_files import idx_bytes, write_idx
from millstream._errors import DataError
from millstream._idx import read_idx

IMAGES = np.arange(60, dtype=np.uint8).reshape(5, 4, 3)


@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (5, 4, 3), (0, 2), (1, 1, 1, 1, 2)])
def test_values_come_back(
    tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype) - 3
    array = array.astype(dtype)
    found = read_idx(write_idx(tmp_path / name, array))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    assert found.dtype.isnative


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    raw, packed = tmp_path / "raw.gz", tmp_path / "packed"
    raw.write_bytes(idx_bytes(IMAGES))
    packed.write_bytes(gzip.compress(idx_bytes(IMAGES)))
    np.testing.assert_array_equal(read_idx(raw), IMAGES)
    np.testing.assert_array_equal(read_idx(packed), IMAGES)


def refused(path: Path, content: bytes, *parts: str) -> None:
    for stored in (content, gzip.compress(content)):
        path.write_bytes(stored)
        with pytest.raises(DataError) as caught:
            read_idx(path, ndim=3, dtype="uint8")
        for part in (str(path), *parts):
            assert part in str(caught.value)


GOOD = idx_bytes(IMAGES)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 15, 16, 17, len(GOOD) - 1])
def test_truncated_files_are_refused(tmp_path: Path, length: int) -> None:
    refused(tmp_path / "a", GOOD[:length], "truncated", f"offset {length}")


def test_trailing_bytes_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "a", GOOD + b"\0", "trailing", "offset 76", "60 bytes")


@pytest.mark.parametrize(
    "magic", [b"\x89PNG", b"\0\0\x08\0", b"\0\0\x0a\3", b"\1\0\x08\3"]
)
def test_a_wrong_magic_number_is_refused(tmp_path: Path, magic: bytes) -> None:
    number = str(int.from_bytes(magic, "big"))
    refused(tmp_path / "a", magic + GOOD[4:], "offset 0", "2051", number)


def test_another_rank_or_type_is_refused(tmp_path: Path) -> None:
    labels = idx_bytes(np.arange(5, dtype=np.uint8))
    refused(tmp_path / "a", labels, "expected 3 dimensions", "found 1")
    numbers = idx_bytes(IMAGES.astype(np.int32))
    refused(tmp_path / "a", numbers, "expected IDX type uint8", "found int32")


def test_sizes_that_do_not_multiply_are_refused_without_memory(tmp_path: Path) -> None:
    huge = struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    refused(tmp_path / "a", huge + b"x" * 10, "truncated", str((2**32 - 1) ** 3), "10")
    header = struct.pack(">HBB3I", 0, 8, 3, 5, 4, 4)
    refused(tmp_path / "a", header + GOOD[16:], "expected 80 bytes", "found 60")


def test_a_gzip_stream_that_ends_early_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(
        idx_bytes(np.random.default_rng(0).integers(0, 256, (50, 28, 28), np.uint8))
    )
    path = tmp_path / "a.gz"
    for length in (2, 9, 10, 30, len(packed) // 2, len(packed) - 8, len(packed) - 1):
        path.write_bytes(packed[:length])
        with pytest.raises(DataError, match=r"a\.gz"):
            read_idx(path)


def test_a_damaged_gzip_stream_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(GOOD))
    path = tmp_path / "a.gz"
    for position in range(2, len(packed)):
        damaged = bytearray(packed)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with contextlib.suppress(DataError):
            np.testing.assert_array_equal(read_idx(path), IMAGES)


def test_every_damaged_byte_is_an_array_or_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for position in range(16):
        for value in (0, 1, 8, 13, 127, 255):
            damaged = bytearray(GOOD)
            damaged[position] = value
            path.write_bytes(damaged)
            with contextlib.suppress(DataError):
                read_idx(path)


def test_a_directory_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found a directory"):
        read_idx(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_idx(tmp_path / "none")
