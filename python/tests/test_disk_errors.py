"""Damaged, missing and shrinking files: errors name them, nothing crashes."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from idx_files import idx_bytes
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CifarSource,
    CsvSource,
    DataError,
    DataLoader,
    IdxSource,
    NpySource,
    NpzSource,
    PackedSource,
)


def npy_bytes(array: np.ndarray, path: Path) -> bytes:
    np.save(path, array, allow_pickle=True)
    return path.read_bytes()


def header_of(text: str) -> bytes:
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


def sized(shape: str, size: int) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"
    return header_of(text) + bytes(size)


IMAGES = np.arange(60, dtype=np.uint8).reshape(5, 4, 3)
IDX = idx_bytes(IMAGES)
GZ = gzip.compress(IDX)

# The content of the file, and the expected error.
NPY: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "empty": (lambda p: b"", r"expected .*NumPy.*|expected \d+ bytes .*found 0"),
    "wrong magic": (lambda p: b"\x89PNG" + bytes(200), r"offset 0: expected .*found"),
    "truncated header": (
        lambda p: npy_bytes(IMAGES, p)[:40],
        r"expected \d+ bytes of .*found \d+ bytes",
    ),
    "truncated last record": (
        lambda p: npy_bytes(IMAGES, p)[:-1],
        r"expected 60 bytes for uint8 .*found 59 bytes",
    ),
    "bytes left over": (
        lambda p: npy_bytes(IMAGES, p) + b"x",
        r"expected 60 bytes for uint8 .*found 61 bytes",
    ),
    "sizes that do not multiply": (
        lambda p: sized("(4611686018427387904, 4)", 16),
        r"expected .*found",
    ),
    "a size that is not there": (
        lambda p: sized("(1000000000, 4)", 16),
        r"expected 16000000000 bytes .*found 16 bytes",
    ),
    "negative": (lambda p: sized("(-3, 4)", 16), r"expected .*found"),
    "Fortran order": (
        lambda p: npy_bytes(np.asfortranarray(IMAGES), p),
        r"(?i)expected .*(C order|fortran).*found",
    ),
    "objects": (
        lambda p: npy_bytes(np.array([{}, None], object), p),
        r"expected .*found .*O",
    ),
    "big-endian": (
        lambda p: npy_bytes(IMAGES.astype(">f4"), p),
        r"expected .*found .*>f4",
    ),
    "text": (lambda p: npy_bytes(np.array(["a", "b"]), p), r"expected .*found .*U1"),
    "records": (
        lambda p: npy_bytes(np.zeros(2, [("a", "u1")]), p),
        r"expected .*found",
    ),
    "no rows": (
        lambda p: npy_bytes(np.zeros((0, 3)), p),
        r"x\.npy: offset 128: expected at least one row of 'x', found 0",
    ),
    "a scalar": (lambda p: npy_bytes(np.array(3), p), r"."),
}


@pytest.mark.parametrize("case", NPY)
def test_npy_files(tmp_path: Path, case: str) -> None:
    make, message = NPY[case]
    path = tmp_path / "x.npy"
    path.write_bytes(make(path))
    with pytest.raises(DataError, match=message) as caught:
        NpySource({"x": path})
    assert str(path) in str(caught.value)


IDX_CASES = {
    "empty": (b"", r"expected .*found 0 bytes"),
    "wrong magic": (
        b"\x01" + IDX[1:],
        r"offset 0: expected the IDX magic 0, found 256",
    ),
    "unknown type": (IDX[:2] + b"\x07" + IDX[3:], r"offset 2: expected .*found 7"),
    "truncated header": (IDX[:10], r"expected 4 bytes of an extent, found 2 bytes"),
    "truncated last record": (IDX[:-1], r"expected 60 bytes .*found 59 bytes"),
    "bytes left over": (IDX + b"x", r"expected 60 bytes .*found 61 bytes"),
    "sizes that do not multiply": (
        IDX[:4] + b"\xff" * 12 + IDX[16:],
        r"expected .*found",
    ),
    "gz that ends early": (GZ[: len(GZ) // 2], r"expected .*found"),
    "gz of another length": (GZ[:-2], r"expected .*found"),
    "gz with a wrong checksum": (GZ[:-8] + bytes(4) + GZ[-4:], r"expected|check"),
    "damaged gz": (GZ[:12] + b"\xff" * 8 + GZ[20:], r"."),
}


@pytest.mark.parametrize("case", IDX_CASES)
def test_idx_files(tmp_path: Path, case: str) -> None:
    content, message = IDX_CASES[case]
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        IdxSource({"x": path}, cache_dir=tmp_path / "cache")
    assert str(path) in str(caught.value)
    cache = tmp_path / "cache"
    left = [p for p in cache.iterdir() if "gz" in case] if cache.exists() else []
    assert not left, "what could not be unpacked is not kept"


def test_shards_that_differ(tmp_path: Path) -> None:
    a, b, c = (tmp_path / f"{name}.npy" for name in "abc")
    np.save(a, np.zeros((2, 3), np.float32))
    np.save(b, np.zeros((2, 3), np.float64))
    np.save(c, np.zeros((2, 4), np.float32))
    for other, found in ((b, "float64(3,)"), (c, "float32(4,)")):
        with pytest.raises(DataError) as caught:
            NpySource([a, other])
        assert str(caught.value) == (
            f"{other}: offset 0: expected value: float32(3,) as in {a}, "
            f"found value: {found}"
        )
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected .*folder.*found none"):
        NpySource(tmp_path / "empty")
    np.save(b, np.zeros(5))
    with pytest.raises(DataError, match=rf"{b}.*'y'.*{a}, 2, found 5"):
        NpySource({"x": a, "y": b})


def test_other_formats(tmp_path: Path) -> None:
    path = tmp_path / "file"
    np.savez(path, x=IMAGES)
    content = path.with_suffix(".npz").read_bytes()
    for damaged in (b"", b"PK", content[:-30], content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=str(path)):
            NpzSource(path, cache_dir=tmp_path)
    path.write_bytes(bytes(3073 * 2 + 5))
    with pytest.raises(DataError, match=r"file: offset 6146: .*3073 bytes, found 5 "):
        CifarSource([path])
    path.write_bytes(bytes(3073) + b"\x0a" + bytes(3072))
    source = CifarSource([path], "sequential")
    assert source[0]["label"] == 0
    wrong = (
        rf"{path}: offset 3073: label: sample 1: expected a value below 10, found 10"
    )
    loader = DataLoader([source, BatchTransform(2)])
    for read in (lambda: source[1], lambda: loader.next_batch(loader.init_state(0))):
        with pytest.raises(DataError, match=wrong):
            read()
    path.write_bytes(b"MSPACKED" + bytes(20))
    with pytest.raises(DataError, match=str(path)):
        PackedSource(path)
    path.write_bytes(bytes(10))
    with pytest.raises(DataError, match=str(path)):
        PackedSource(path, {"x": "int32"})
    for table, message in (
        ("a,b\n1,2\n3\n", "line 3"),
        ("a,b\n1,two\n", "line 2.*two"),
        ("", "."),
    ):
        path.write_text(table)
        with pytest.raises(DataError, match=rf"{path}.*{message}"):
            CsvSource(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"'c'"):
        CsvSource(path, columns=["c"])


OPENERS: dict[str, Callable[[Path], Any]] = {
    "npy": lambda path: NpySource({"x": path}),
    "npz": lambda path: NpzSource(path, cache_dir=path.parent),
    "idx": lambda path: IdxSource({"x": path}, cache_dir=path.parent),
    "cifar": lambda path: CifarSource([path]),
    "packed": lambda path: PackedSource(path),
    "csv": lambda path: CsvSource(path),
}


@pytest.mark.parametrize("name", OPENERS)
def test_errors_of_the_operating_system(tmp_path: Path, name: str) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError) as caught:
        OPENERS[name](missing)
    assert caught.value.filename == str(missing)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(DataError) as refused:
        OPENERS[name](folder)
    expected = "expected a file, found a directory"
    assert str(refused.value) == (
        f"{folder}: expected .npy files in this folder, found none"
        if name == "npy"
        else f"{folder}: offset 0: {expected}"
    )


def test_a_folder_without_cifar(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"^{tmp_path}: expected .*data_batch_1 .*"):
        CifarSource(tmp_path)


# Files that change while they are read.

LARGE = 600_000
"""Bytes of a row that is read by pread; smaller ones are copied from a map."""


def shrinking(tmp_path: Path, row: int) -> tuple[Path, DataLoader]:
    """Returns a file of at least 2 MB and 100 rows, and a loader that reads it."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones((max(2_000_000 // row, 100), row), np.uint8))
    loader = DataLoader([NpySource(path), BatchTransform(4)], prefetch=2)
    return path, loader


MESSAGE = r"x\.npy.*(can no longer be read|cannot be read|found the end|has \d+ now)"


def cut(path: Path) -> None:
    os.truncate(path, 5000)


@pytest.mark.parametrize("row", [100, LARGE])
def test_a_file_that_shrinks_in_the_loop(tmp_path: Path, row: int) -> None:
    path, loader = shrinking(tmp_path, row)
    iterator = loader.iterate(loader.init_state(0))
    for _ in range(5):
        next(iterator)
    cut(path)
    with pytest.raises(OSError, match=MESSAGE) as caught:
        for _ in iterator:
            pass
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match=MESSAGE):
        loader.next_batch(iterator.state)


@pytest.mark.parametrize("row", [100, LARGE])
def test_a_file_that_shrinks_inside_jit(tmp_path: Path, row: int) -> None:
    path, loader = shrinking(tmp_path, row)
    step = jax.jit(loader.next_batch)
    state = loader.init_state(0)
    _, state, _ = step(state)
    jax.block_until_ready(state)
    cut(path)

    def rest() -> None:
        at = state
        for _ in range(8):
            batch, at, _ = step(at)
        jax.block_until_ready(batch)

    # JAX raises its own error, or ValueError if the call is compiled already.
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=MESSAGE):
        rest()
    assert isinstance(loader.last_error, OSError)
    assert str(path) in str(loader.last_error)

    def body(carry: Any, batch: Any, mask: Any) -> tuple[Any, None]:
        return carry + 1, None

    for _ in range(3):  # JAX raises another type from the second call on
        with pytest.raises(OSError, match=MESSAGE):
            loader.scan_epoch(state, 0, body)


@pytest.mark.parametrize("row", [100, LARGE])
def test_a_file_that_shrinks_during_a_scan(tmp_path: Path, row: int) -> None:
    path, loader = shrinking(tmp_path, row)

    def shrink(at: Any) -> None:
        if at == 20:
            cut(path)

    def body(carry: Any, batch: Any, mask: Any) -> tuple[Any, None]:
        jax.debug.callback(shrink, carry)
        return carry + 1, None

    with pytest.raises(OSError, match=MESSAGE):
        loader.scan_epoch(loader.init_state(0), 0, body)
    # The process and other loaders continue.
    np.save(path, np.ones((100, row), np.uint8))
    again = DataLoader([NpySource(path), BatchTransform(4)])
    assert (
        again.scan_epoch(again.init_state(0), 0, lambda c, b, m: (c + 1, None))[1] == 25
    )


def test_rows_in_the_last_page_of_a_truncated_file(tmp_path: Path) -> None:
    for size in (10_110, 9_990, 5_000):  # the files have 10,128 bytes
        folder = tmp_path / str(size)
        folder.mkdir()
        for shard in range(2):
            np.save(folder / f"{shard}.npy", np.ones((1000, 10), np.uint8))
        one, two = NpySource(folder / "0.npy"), NpySource(folder)
        row = (size - 128) // 10
        assert (one[row] == 1).all()
        assert (two[1000 + row] == 1).all()
        for shard in range(2):
            os.truncate(folder / f"{shard}.npy", size)
        with pytest.raises(OSError, match=r"0\.npy: offset"):
            one[row]
        with pytest.raises(OSError, match=r"1\.npy: offset"):
            two[1000 + row]


def test_a_file_that_shrinks_after_faulthandler_was_enabled(
    tmp_path: Path, python: Any
) -> None:
    for shard in range(2):
        np.save(tmp_path / f"{shard}.npy", np.ones((20_000, 100), np.uint8))
    code = f"""
        import faulthandler, os
        from millstream import NpySource
        for folder, rows in (({str(tmp_path)!r}, 40_000), ("1.npy", 20_000)):
            source = NpySource(folder)
            faulthandler.enable()
            os.truncate("1.npy", 5000)
            for _ in range(3):
                try:
                    source[rows - 1]
                except OSError as error:
                    assert error.filename.endswith("1.npy"), error
                    assert "has 5000 now" in str(error), error
                else:
                    raise AssertionError("nothing was raised")
            os.truncate("1.npy", 2_000_128)
        print("alive")
    """
    assert "alive" in python.run(code)


def test_a_file_that_is_unlinked_or_replaced_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for row in (100, LARGE):
        np.save(path, np.full((100, row), 7, np.uint8))
        loader = DataLoader([NpySource(path), BatchTransform(10)])
        iterator = loader.iterate(loader.init_state(0))
        next(iterator)
        path.unlink()
        assert all((batch == 7).all() for batch, _ in iterator)
        with pytest.raises(FileNotFoundError):
            NpySource(path)


@pytest.mark.parametrize("kind", ["array", "labels", "windows"])
def test_a_file_that_numpy_mapped_shrinks(
    tmp_path: Path, python: Any, kind: str
) -> None:
    np.save(tmp_path / "x.npy", np.ones((50_000, 4), np.float32))
    np.save(tmp_path / "y.npy", np.ones(50_000, np.int64))
    code = f"""
        import os
        import numpy as np
        from millstream import ArraySampleSource, BatchTransform, DataLoader
        from millstream import prepare_time_series_windows, make_sequence_disk_source
        name = "y.npy" if {kind!r} == "labels" else "x.npy"
        data = np.load(name, mmap_mode="r")
        if {kind!r} == "windows":
            contexts, targets = prepare_time_series_windows(
                data, "test", context_length=5, prediction_length=2
            )
            source = make_sequence_disk_source(contexts=contexts, targets=targets)
        else:
            source = ArraySampleSource(data[100:])
        loader = DataLoader([source, BatchTransform(32)])
        state = loader.init_state(0)
        loader.next_batch(state)
        size = os.path.getsize(name)
        for cut in (size - 16, size - 3000, 5000):
            os.truncate(name, cut)
            for read in (
                lambda: source[len(source) - 1],
                lambda: loader.next_batch(state),
                lambda: list(loader.iterate(state)),
            ):
                try:
                    read()
                except OSError as error:
                    assert error.filename == os.path.abspath(name), error
                    assert f"has {{cut}} now" in str(error), error
                else:
                    raise AssertionError("nothing was raised")
        if {kind!r} != "windows":
            try:
                print(np.asarray(ArraySampleSource(data[100:])[0]))
            except OSError:
                pass
        os.unlink(name)
        print("alive")
    """
    assert "alive" in python.run(code)


@pytest.mark.parametrize(
    "view",
    [
        "np.frombuffer(mapped, np.uint8, offset=128)",
        "np.ndarray((50_000,), np.uint8, mapped, offset=128)",
        "np.asarray(memoryview(mapped)[128:])",
        "np.frombuffer(memoryview(mapped)[128:].cast('i'), np.int32).view(np.uint8)",
        "np.frombuffer(mapped, np.uint8)[128:].reshape(50_000, 1)[::-1]",
    ],
)
def test_a_file_under_an_mmap_shrinks(tmp_path: Path, python: Any, view: str) -> None:
    np.save(tmp_path / "x.npy", np.ones(50_000, np.uint8))
    code = f"""
        import mmap, os
        import numpy as np
        from millstream import ArraySampleSource, BatchTransform, DataLoader
        with open("x.npy", "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = {view}
        source = ArraySampleSource({{"x": data, "y": data[100:200].repeat(500)}})
        loader = DataLoader([source, BatchTransform(32)])
        state = loader.init_state(0)
        assert loader.next_batch(state)[0]["x"].sum() == 32
        for cut in (5000, 50_000):
            os.truncate("x.npy", cut)
            for read in (
                lambda: source[49_999],
                lambda: loader.next_batch(state),
                lambda: list(loader.iterate(state)),
            ):
                try:
                    read()
                except OSError as error:
                    assert error.filename == os.path.abspath("x.npy"), error
                    assert f"has {{cut}} now" in str(error), error
                else:
                    raise AssertionError("nothing was raised")
        print("alive")
    """
    assert python.run(code) == "alive\n"


def test_a_file_that_numpy_mapped_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(1000))
    source = ArraySampleSource(np.load(path, mmap_mode="r"))
    path.unlink()
    assert source[999] == 999
    np.save(path, np.arange(10))
    assert source[999] == 999


def test_without_a_file_descriptor_left(tmp_path: Path, python: Any) -> None:
    for i in range(300):
        np.save(tmp_path / f"{i:03}.npy", np.full(3, i))
    code = f"""
        import resource
        from millstream import BatchTransform, DataLoader, NpySource
        import jax
        jax.block_until_ready(jax.numpy.zeros(3))
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        source = NpySource({str(tmp_path)!r}, "sequential")
        loader = DataLoader([source, BatchTransform(900)])
        batch, _, _ = loader.next_batch(loader.init_state(0))
        assert batch.tolist() == [i for i in range(300) for _ in range(3)]
        print("right")
    """
    assert "right" in python.run(code)
