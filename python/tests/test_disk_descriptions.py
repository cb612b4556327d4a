"""Arguments of sources on disk: paths, schemas, pickling and many files."""

from __future__ import annotations

import copy
import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream import (
    BatchTransform,
    CifarSource,
    CsvSource,
    DataError,
    DataLoader,
    NpySource,
    NpzSource,
    PackedSource,
    concatenate,
    mix,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of each format."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))
    np.save("x.npy", np.arange(12).reshape(6, 2))
    np.savez_compressed("x.npz", a=np.arange(6), b=np.arange(6.0))
    np.arange(12, dtype="<i4").tofile("x.bin")
    Path("x.csv").write_text("a,price\n1,2.5\n3,4\n")
    return tmp_path


def test_fields_of_a_record_have_the_offsets_of_their_dtype(folder: Path) -> None:
    both = {"names": ["a", "b"], "formats": ["<i4", "<i4"]}
    swapped = np.dtype({**both, "offsets": [4, 0]})
    source = PackedSource("x.bin", swapped)
    expected = np.fromfile("x.bin", swapped)
    assert [s["a"] for s in source] == expected["a"].tolist()
    assert [s["b"] for s in source] == expected["b"].tolist()
    for offsets, message in (
        ([0, 8], "'b' starts at byte 8 .* the fields before it end at byte 4"),
        ([0, 0], "'b' starts at byte 0 .* the fields before it end at byte 4"),
        ([4, 8], "'a' starts at byte 4 .* the fields before it end at byte 0"),
    ):
        with pytest.raises(ValueError, match=message):
            PackedSource("x.bin", np.dtype({**both, "offsets": offsets}))
    with pytest.raises(ValueError, match="has 12 bytes, but its fields end at byte 8"):
        PackedSource("x.bin", np.dtype({**both, "itemsize": 12}))


def test_wrong_schemas(folder: Path) -> None:
    nested = np.dtype([("a", [("b", "<i4")]), ("c", "<i4")])
    for schema, error, message in (
        ({"a": ("<f4", 0)}, ValueError, "need at least one byte"),
        (
            {"a": ("<f4", 2.5)},
            TypeError,
            r"'a' to be a dtype .* \('<f4', 2.5\)",
        ),
        ({"a": ("<f4", 1, 2)}, TypeError, r"'a' to be a dtype or .*, found"),
        ({"a": "S4"}, TypeError, r"'a' has the dtype \|S4, which batches cannot hold"),
        (nested, TypeError, "'a' has the dtype .*'b'.*, which batches cannot hold"),
        ("<f4", TypeError, "the schema to be a dict or a structured dtype"),
    ):
        with pytest.raises(error, match=message):
            PackedSource("x.bin", schema)
    for shape in (2, (2,), [2]):
        assert PackedSource("x.bin", {"a": ("<i4", shape)})[1]["a"].tolist() == [2, 3]
    inner = np.dtype(("<i4", (2,)))
    assert PackedSource("x.bin", {"a": (inner, 3)})[1]["a"].shape == (3, 2)


ARGUMENTS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "an empty path": (lambda: NpySource(""), ValueError, "path of a file, found ''"),
    "a zero in a path": (lambda: NpySource("x\0.npy"), ValueError, "embedded null"),
    "a zero in the cache's": (
        lambda: NpzSource("x.npz", cache_dir="x\0"),
        ValueError,
        "embedded null",
    ),
    "an empty name": (lambda: NpzSource("x.npz", names=""), ValueError, "empty name"),
    "a split for a flag": (
        lambda: CifarSource("x", train="test"),  # type: ignore[arg-type]
        TypeError,
        "train must be True or False, not 'test'",
    ),
    "an offset without a schema": (
        lambda: PackedSource("x.bin", offset=4),
        ValueError,
        "offset=4 needs a schema",
    ),
    "an offset of halves": (
        lambda: PackedSource("x.bin", {"a": "<i4"}, offset=4.0),  # type: ignore[arg-type]
        ValueError,
        "offset must be a whole number of at least 0, not 4.0",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_wrong_arguments(folder: Path, case: str) -> None:
    make, error, message = ARGUMENTS[case]
    with pytest.raises(error, match=message):
        make()


def test_arguments_in_other_spellings(folder: Path) -> None:
    assert NpzSource("x.npz", names="a.npy")[3] == 3
    assert list(CsvSource("x.csv", columns="price")[0]) == ["price"]
    Path("x.TSV").write_text("a\tb\n\n1\t 2\n")
    assert CsvSource("x.TSV")[0] == {"a": 1, "b": 2}
    (folder / "shards").mkdir()
    for name in ("0.npy", "1.npy"):
        np.save(folder / "shards" / name, np.arange(2))
    (folder / "shards" / "._0.npy").write_bytes(b"what macOS leaves")
    assert len(NpySource("shards")) == 4


def test_a_file_whose_name_is_not_utf8(folder: Path) -> None:
    missing = os.fsdecode(b"gone\xff.npy")
    with pytest.raises(FileNotFoundError, match=r"gone\\xff\.npy") as caught:
        NpySource(missing)
    assert caught.value.filename == missing
    np.save(os.fsdecode(b"here\xff.npy"), np.arange(3))
    assert NpySource(os.fsdecode(b"here\xff.npy"))[2] == 2


def test_messages_escape_bytes_that_are_not_utf8(folder: Path) -> None:
    Path("wide.csv").write_bytes("a,b\n1,2\n".encode("utf-16-le"))
    with pytest.raises(DataError, match=r"line 2, column 1 .*found '\\x00"):
        CsvSource("wide.csv")
    Path("packed.csv").write_bytes(gzip.compress(b"a,b\n1,2\n" * 100, mtime=0))
    with pytest.raises(DataError, match=r"packed\.csv: .*expected .*, found .*$"):
        CsvSource("packed.csv")


def test_values_that_do_not_fit_are_named_by_their_file(folder: Path) -> None:
    np.save("small.npy", np.arange(4))
    np.save("large.npy", np.array([1, 2**40]))
    small, large = (NpySource(f"{n}.npy", "sequential") for n in ("small", "large"))
    for source in (concatenate([small, large]), mix([small, large], [1, 1])):
        loader = DataLoader([source, BatchTransform(6)])
        with pytest.raises(DataError, match=r"^large\.npy: .*sample 1 holds a .*int64"):
            loader.next_batch(loader.init_state(0))


def test_unpickling_opens_a_source_again(folder: Path) -> None:
    sources = [
        NpySource({"x": "x.npy"}, "sequential"),
        NpzSource("x.npz", names={"n": "a"}),
        PackedSource("x.bin", {"a": "<i4"}, offset=8),
        CsvSource("x.csv", columns=["price"]),
    ]
    for source in sources:
        for again in (pickle.loads(pickle.dumps(source)), copy.deepcopy(source)):
            assert again == source
            assert repr(again) == repr(source)
            assert len(again) == len(source)
            assert str(again[1]) == str(source[1])
    pickled = pickle.dumps(sources[0])
    assert len(pickled) < 1000
    os.remove("x.npy")
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)


def test_more_files_than_descriptors(tmp_path: Path, python: Any) -> None:
    for i in range(300):
        np.save(tmp_path / f"{i:03}.npy", np.full(3, i))
        (tmp_path / f"{i:03}.idx").write_bytes(b"\0\0\x08\x01\0\0\0\2ab")
        (tmp_path / f"{i:03}.bin").write_bytes(bytes(3073))
    code = """
        import resource
        import jax
        from millstream import CifarSource, IdxSource, NpySource, concatenate
        jax.block_until_ready(jax.numpy.zeros(3))
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        names = [f"{i:03}" for i in range(300)]
        kept = [
            IdxSource([f"{n}.idx" for n in names]),
            NpySource({"a": [f"{n}.npy" for n in names[:150]],
                       "b": [f"{n}.npy" for n in names[150:]]}),
            concatenate([NpySource(f"{n}.npy") for n in names]),
            CifarSource([f"{n}.bin" for n in names]),
        ]
        assert [len(source) for source in kept] == [600, 450, 900, 300]
        assert kept[0][599] == ord("b") and kept[1][0]["b"] == 150
        assert [int(kept[2][i]) for i in (0, 899)] == [0, 299]
        assert open("000.npy", "rb").read(1) == b"\\x93"
        print("right")
    """
    assert "right" in python.run(code)
