"""``millstream verify`` reports each damage with its position, and continues."""

from __future__ import annotations

import gzip
import os
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_files import (
    IMAGES,
    N,
    cifar_binary,
    write_all,
    write_archive,
    write_folder,
)
from millstream._cli.verify import examine
from millstream._formats.detect import Options, find


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    return write_all(tmp_path)


def test_undamaged_data_sets(run, paths) -> None:
    result = run("verify", *paths.values())
    assert result.status == 0, result.err
    assert result.err == ""
    for path in paths.values():
        assert f"ok  {path}" in result.out
    assert f"ok  {paths['idx.gz']}: IDX, gzipped, {N} samples, 48 B\n" in result.out


def cut(count: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:-count]


def put(offset: int, bytes_: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:offset] + bytes_ + content[offset:][len(bytes_) :]


def flip(place: float) -> Callable[[bytes], bytes]:
    """Flips one bit at a position in the content."""

    def flipped(content: bytes) -> bytes:
        at = int(len(content) * place)
        return content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :]

    return flipped


# The file, the damage, and the expected report.
DAMAGE = [
    ("npy", cut(3), ["offset 128", "144 bytes", "found 141"]),
    ("npy", cut(200), ["offset", "expected"]),
    ("npy", put(0, b"\x93BUMPY"), ["offset 0", "expected", "found"]),
    ("npy", put(20, b"???"), ["offset", "expected"]),
    ("npz", cut(10), ["expected", "found"]),
    ("npz", put(170, b"\xff\xff\xff"), ["[image.npy]", "offset 59", "CRC", "found 0x"]),
    ("deflated", flip(0.3), ["offset", "expected", "found"]),
    ("idx", cut(1), ["offset 16", "144 bytes", "143 bytes"]),
    ("idx", put(0, b"\1\2"), ["offset 0", "expected", "found"]),
    ("idx", put(2, b"\x07"), ["offset", "expected", "found"]),
    ("idx.gz", cut(9), ["offset", "expected more deflated data", "found the end"]),
    ("idx.gz", flip(0.5), ["offset", "expected", "found"]),
    ("idx.gz", put(0, b"\0\0"), ["expected", "found"]),
    ("idx.gz", lambda _: gzip.compress(b"\0\0\x0c\1\0\0\0\x0c"), ["48 bytes", "0 by"]),
    ("records", cut(1), ["offset 176", "whole records of 16 bytes", "15 bytes"]),
    ("csv", put(12, b"x"), ["line 2", "column 1 ('count')", "found 'x'"]),
    ("csv", cut(6), ["line 13", "expected 2 cells", "found 1"]),
    ("csv", put(12, b"\xff"), ["line 2", "column 1 ('count')", "found '\\xff'"]),
    ("csv", put(0, b"\xff"), ["line 1", "a name in UTF-8", "found '\\xffount'"]),
    ("csv", put(13, b"\r"), ["line 2", "expected", "found"]),
    (
        "cifar10 batch",
        cut(7),
        ["offset 33803", "whole records of 3073 bytes", "3066 by"],
    ),
    (
        "cifar10 batch",
        put(3073, b"\x0b"),
        ["offset 3073", "label: sample 1:", "a value below 10", "found 11"],
    ),
    (
        "cifar100 batch",
        put(3074, b"\x20"),
        ["offset 3074", "coarse_label: sample 1:", "a value below 20", "found 32"],
    ),
    ("cifar10 pickle", cut(100), ["offset", "expected", "found"]),
    ("cifar100 pickle", put(2, b"\xff"), ["offset 2", "expected", "found"]),
    ("cifar10 pickle", put(0, b"\1"), ["whole records", "found"]),
    ("cifar10 tar", cut(30000), ["expected", "found"]),
    ("cifar10 tar", put(0, b"daifar"), ["offset", "expected", "found"]),
    ("cifar10 tar.gz", cut(500), ["offset", "expected", "found"]),
    ("cifar100 tar.gz", flip(0.6), ["offset", "expected", "found"]),
]


@pytest.mark.parametrize(("kind", "damage", "words"), DAMAGE)
def test_damage_is_reported_with_its_position(
    run, paths, kind: str, damage: Callable[[bytes], bytes], words: list[str]
) -> None:
    path = paths[kind]
    path.write_bytes(damage(path.read_bytes()))
    result = run("verify", path, paths["tsv"])
    assert result.status == 1
    assert f"ok  {paths['tsv']}" in result.out  # the other files are still checked
    assert f"ok  {path}:" not in result.out
    line = next(line for line in result.err.splitlines() if str(path) in line)
    assert "Traceback" not in result.err
    for word in words:
        assert word in line


def test_every_damaged_shard_is_named(run, paths) -> None:
    shards = paths["shards"]
    for name in ("part-000.npy", "part-002.npy"):
        content = (shards / name).read_bytes()
        (shards / name).write_bytes(content[:-1])
    result = run("verify", shards)
    assert result.status == 1
    assert "part-000.npy" in result.err
    assert "part-001.npy" not in result.err
    assert "part-002.npy" in result.err


def test_every_damaged_batch_is_named(run, paths) -> None:
    folder = paths["cifar10 folder"]
    (folder / "data_batch_1.bin").write_bytes(cifar_binary(10)[:-1])
    (folder / "data_batch_3.bin").write_bytes(put(3073, b"\x0b")(cifar_binary(10)))
    (folder / "data_batch_4.bin").write_bytes(cifar_binary(10)[:-2])
    result = run("verify", folder)
    assert result.status == 1
    assert f"ok  {folder} (test)" in result.out
    assert [line.split(": ")[2] for line in result.err.splitlines()] == [
        str(folder / f"data_batch_{i}.bin") for i in (1, 3, 4)
    ]
    assert "data_batch_3.bin: offset 3073: label: sample 1:" in result.err
    (folder / "data_batch_5.bin").unlink()
    assert "data_batch_5" in run("verify", folder).err


def test_every_damaged_member_is_named(run, tmp_path) -> None:
    path = tmp_path / "x.npz"
    random = np.random.default_rng(0)
    arrays = {name: random.integers(0, 99, 1000) for name in "abc"}
    np.savez_compressed(path, **arrays)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        starts = [member.header_offset for member in archive.infolist()]
    for start in (starts[0], starts[2]):
        content[start + 500] ^= 255
    path.write_bytes(content)
    result = run("verify", path)
    assert result.status == 1
    assert result.err.count("\n") == 2
    for name in "ac":
        assert f"damaged: {path}[{name}.npy]: offset " in result.err


def test_every_damaged_line_is_named(run, tmp_path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,"b\nc"\n1,2\nx,2\n1,2\n1\n1,2,3\n1,y')
    result = run("verify", path)
    assert result.status == 1
    assert [line.split(", column")[0] for line in result.err.splitlines()] == [
        f"millstream: damaged: {path}: line {number}" for number in (4, 6, 7, 8)
    ]
    path.write_text("1,NA\n1,2\n,2\n")
    err = run("verify", path).err
    assert "line 1, column 2: expected a number, found 'NA'" in err
    assert "line 3, column 1: expected a number, found ''" in err
    assert err.count("\n") == 2
    path.write_text("a,b\n" + "1,x\n" * 30)
    err = run("verify", path).err
    assert err.count("\n") == 21
    assert "line 21" in err
    assert err.endswith("and more, which are not listed\n")
    path.write_text('a,b\n1,"2\n1,2\n1,2\n')
    result = run("verify", path)
    assert result.err.count("\n") == 1
    assert "note: lines after line 2 were not checked" in result.out


def test_a_full_disk_is_not_reported_as_damage(
    run, paths, tmp_path, monkeypatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(1 << 16))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        result = run("verify", path, paths["npy"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.status == 1
    assert result.err.startswith(f"millstream: {folder}: File too large")
    assert result.err.endswith(" (TMPDIR)\n")
    assert f"ok  {paths['npy']}" in result.out
    monkeypatch.setattr("tempfile.tempdir", str(folder / "missing"))
    result = run("verify", path)
    assert result.status == 1
    assert result.err.startswith(f"millstream: {folder / 'missing'}: No such file")


def test_shards_that_differ(run, paths) -> None:
    np.save(paths["shards"] / "part-001.npy", IMAGES.astype(np.int16))
    result = run("verify", paths["shards"])
    assert result.status == 1
    for word in ("part-001.npy", "expected", "uint8", "found", "int16"):
        assert word in result.err


def test_a_batch_that_is_missing(run, tmp_path) -> None:
    batches = {f"data_batch_{i}.bin": cifar_binary(10) for i in (1, 2, 4, 5)}
    for path in (
        write_folder(tmp_path / "folder", batches),
        write_archive(tmp_path / "archive.tar.gz", batches),
    ):
        result = run("verify", path, "--split", "train")
        assert result.status == 1
        assert "data_batch_3" in result.err


def test_an_archive_of_other_things(run, tmp_path) -> None:
    path = write_archive(tmp_path / "other.tar", {"readme": b"hello"})
    result = run("verify", path)
    assert result.status == 1
    assert f"{path}: expected CIFAR's batches in the archive" in result.err


def test_unsupported_gzip_files(run, tmp_path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    result = run("verify", path)
    assert result.status == 1
    assert "unpack the file first" in result.err


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.asfortranarray(IMAGES), ["fortran_order"]),
        (IMAGES.astype(">i4"), [">i4"]),
        (np.array([b"a", b"b"]), ["S1"]),
        (np.float64(3), ["()"]),
    ],
)
def test_unsupported_arrays(run, tmp_path, array, words: list[str]) -> None:
    np.save(tmp_path / "x.npy", array)
    result = run("verify", tmp_path / "x.npy")
    assert result.status == 1
    for word in ["x.npy", "expected", "found", *words]:
        assert word in result.err


def test_samples_without_values(run, tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 0)))
    assert run("verify", tmp_path / "x.npy").status == 0
    assert "x: no values" in run("inspect", tmp_path / "x.npy").out


def test_an_array_without_samples(run, tmp_path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 3)))
    result = run("verify", tmp_path / "x.npy")
    assert result.status == 1
    expected = "offset 128: expected at least one row of 'x', found 0"
    assert f"{tmp_path / 'x.npy'}: {expected}" in result.err


def test_a_file_that_cannot_be_read(run, tmp_path) -> None:
    path = tmp_path / "x.npy"
    path.symlink_to(tmp_path / "nowhere")
    result = run("verify", path)
    assert result.status == 1
    assert result.err == f"millstream: {path}: No such file or directory\n"


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("millstream._cli.reading.BATCH_BYTES", 1 << 16)
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((64, 1 << 16), np.uint8))
    (data,) = find(path, Options())
    whole = data.open

    def shrinking(cache: Path):
        source = whole(cache)
        os.truncate(path, 1 << 20)
        return source

    object.__setattr__(data, "open", shrinking)
    (defect,) = examine(data).defects
    assert str(path) in defect
    assert "samples " in defect


def test_values_that_are_not_finite_are_reported(run, tmp_path) -> None:
    values = np.zeros((5, 2), np.float32)
    values[3, 1], values[4, 0] = np.nan, np.inf
    np.save(tmp_path / "x.npy", values)
    result = run("verify", tmp_path / "x.npy")
    assert result.status == 0
    assert "note: x: values that are not finite: 2, the first in sample 3" in result.out


def test_long_reports_are_truncated(run, tmp_path) -> None:
    path = tmp_path / "test_batch.bin"
    path.write_bytes(b"\xff" * (3073 * 100))
    result = run("verify", path)
    assert result.status == 1
    assert result.err.count("\n") == 21
    assert "and more" in result.err


def test_progress_is_shown_with_its_option(run, paths, monkeypatch) -> None:
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    result = run("verify", paths["npz"])
    assert result.status == 0
    assert "verify stored.npz: 100%|" in result.err


def test_members_with_long_names_and_folders(run, tmp_path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **{"a/b": IMAGES, "ü" * 100: IMAGES})
    assert run("verify", path).status == 0
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("readme.txt", "hello")
    assert run("verify", path).status == 0
