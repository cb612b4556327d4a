"""``millstream convert`` preserves all values, or writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cli_files
import jax.numpy as jnp
import numpy as np
import pytest
from cli_files import (
    IMAGES,
    LABELS,
    PIXELS,
    SCHEMA,
    N,
    Run,
    records,
    write_all,
)
from millstream._cli.opening import opened
from millstream._cli.reading import Reader
from millstream._formats.detect import Options, find


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "in").mkdir()
    return write_all(tmp_path / "in")


def values(path: Path, **options: Any) -> dict[str, np.ndarray]:
    """Returns all samples of the data set at a path."""
    (data,) = find(path, Options(**options))
    with opened(data) as source:
        reader = Reader(source)
        batches = [[column.copy() for column in batch] for batch in reader]
    names = [field.name for field in reader.fields]
    return dict(
        zip(names, map(np.concatenate, zip(*batches, strict=True)), strict=True)
    )


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def fails(result: Run, *words: str, status: int = 1) -> None:
    assert result.out == ""
    cli_files.fails(result, *words, status=status)


BOTH = {"image": IMAGES, "label": LABELS}


@pytest.mark.parametrize("source", ["npz", "deflated", "fields", "records"])
@pytest.mark.parametrize("target", ["x.npz", "x.packed", "folder", "x.idx"])
def test_round_trips(run, paths, tmp_path, source: str, target: str) -> None:
    path = tmp_path / target
    extra = ["--to", "idx"] if target == "x.idx" else []
    if extra:
        path = tmp_path / "idx-folder"
    result = run("convert", paths[source], path, *extra)
    assert result.status == 0, result.err
    assert result.out == f"{path}: {N} samples from {paths[source]}\n"
    same(values(path), BOTH)
    assert {p.name for p in tmp_path.iterdir()} == {"in", path.name}
    assert run("verify", path).status == 0


def test_numpy_reads_the_files(run, paths, tmp_path) -> None:
    assert run("convert", paths["records"], tmp_path / "x.npz").status == 0
    with np.load(tmp_path / "x.npz") as stored:
        same(dict(stored), BOTH)
    assert run("convert", paths["records"], tmp_path / "x").status == 0
    np.testing.assert_array_equal(np.load(tmp_path / "x" / "image.npy"), IMAGES)
    names = json.loads((tmp_path / "x" / "fields.json").read_text())
    assert list(names.items()) == [("image", "image.npy"), ("label", "label.npy")]


@pytest.mark.parametrize("suffix", [".npy", ".idx", "-idx3-ubyte", ".packed", ".npz"])
@pytest.mark.parametrize("source", ["npy", "idx", "shards"])
def test_one_field(run, paths, tmp_path, source: str, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    assert run("convert", f"image={paths[source]}", path).status == 0
    (found,) = values(path).values()
    np.testing.assert_array_equal(found, IMAGES)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables(run, paths, tmp_path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    assert run("convert", paths["npz"], path).status == 0
    found = values(path)
    pixels = np.stack([found[f"image_{i}"] for i in range(12)], axis=1)
    np.testing.assert_array_equal(pixels, IMAGES.reshape(N, 12))
    np.testing.assert_array_equal(found["label"], LABELS)
    assert ("\t" in path.read_text()) == (suffix == "tsv")


def test_tables_keep_real_numbers(run, tmp_path) -> None:
    random = np.random.default_rng(0)
    x = np.concatenate(
        [random.normal(size=50), [np.inf, -np.inf, np.nan, -0.0, 5e-324]]
    )
    np.savez(tmp_path / "x.npz", x=x, f=x.astype(np.float32), b=x > 0)
    assert run("convert", tmp_path / "x.npz", tmp_path / "x.csv").status == 0
    found = values(tmp_path / "x.csv")
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["f"].astype(np.float32), x.astype(np.float32))
    np.testing.assert_array_equal(found["b"], x > 0)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables_keep_the_sign_of_zero(run, tmp_path, suffix: str) -> None:
    real = np.array([[1, -0.0], [-0.0, 0], [2, 3]])
    whole = np.array([1, 0, 2])
    expected = {"x\ny_0": real[:, 0], "x\ny_1": real[:, 1], "n": whole}
    for dtype in ("float64", "float16"):
        np.savez(tmp_path / "x.npz", **{"x\ny": real.astype(dtype), "n": whole})
        path = tmp_path / f"x.{suffix}"
        assert run("convert", tmp_path / "x.npz", path, "--force").status == 0
        found = values(path)
        same(found, expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(np.signbit(found[name]), np.signbit(array))


def test_a_table_to_a_folder_and_back(run, paths, tmp_path) -> None:
    (tmp_path / "wide.csv").write_text("x_0,x_1,a/b,a b\n1,2,3,4.5\n5,6,7,8\n")
    expected = values(tmp_path / "wide.csv")
    assert run("convert", tmp_path / "wide.csv", tmp_path / "wide").status == 0
    same(values(tmp_path / "wide"), expected)
    back = tmp_path / "back.csv"
    assert run("convert", tmp_path / "wide", back).status == 0
    same(values(back), expected)


def test_cifar(run, paths, tmp_path) -> None:
    images = PIXELS.reshape(N, 3, 32, 32).transpose(0, 2, 3, 1)
    for kind in ("folder", "pickled", "tar", "tar.gz"):
        source = paths[f"cifar100 {kind}"]
        fails(run("convert", source, tmp_path / "x.packed"), "--split", "(test)")
        path = tmp_path / f"{kind}.packed"
        assert run("convert", source, path, "--split", "test").status == 0
        labels = LABELS.astype(np.uint8)
        expected = {"image": images, "label": labels, "coarse_label": labels % 2}
        same(values(path), expected)


def test_several_sources(run, paths, tmp_path) -> None:
    path = tmp_path / "x.packed"
    images, labels = f"image={paths['idx']}", f"label={paths['idx.gz']}"
    assert run("convert", images, labels, path).status == 0
    same(values(path), BOTH)
    other = tmp_path / "y.packed"
    assert run("convert", f"image={paths['npy']}", labels, other).status == 0
    assert other.read_bytes() == path.read_bytes()
    result = run("convert", images, images, tmp_path / "z.npz")
    fails(result, "twice", status=2)
    result = run("convert", images, paths["npy"], tmp_path / "z.npz")
    fails(result, "NAME=PATH", status=2)
    fails(run("convert", images, f"x={paths['npz']}", tmp_path / "z.npz"), "one field")
    fails(run("convert", paths["npy"].parent, tmp_path / "z.npz"), "several data sets")


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.array([0, 255]), "uint8"),
        (np.array([-128, 127]), "int8"),
        (np.array([0.0, 1.0]), "bool"),
        (np.array([1.0, -3.0]), "int16"),
        (np.array([0, 2**53]), "float64"),
        (np.array([0.1, np.nan, np.inf]), "float32"),
        (np.array([1, 2**63], np.uint64), "float32"),
        (np.array([0.5, -2.0]), "bfloat16"),
    ],
)
def test_casts(run, tmp_path, given: np.ndarray, dtype: str) -> None:
    np.savez(tmp_path / "x.npz", x=given)
    path = tmp_path / "y.packed"
    result = run("convert", tmp_path / "x.npz", path, "--cast", f"x={dtype}")
    assert result.status == 0, result.err
    same(values(path), {"x": given.astype(jnp.dtype(dtype))})


@pytest.mark.parametrize(
    ("given", "dtype", "value"),
    [
        (np.array([0, 256]), "uint8", "256"),
        (np.array([0, -1]), "uint64", "-1"),
        (np.array([0, 2**63], np.uint64), "int64", str(2**63)),
        (np.array([0, 2**40]), "int32", str(2**40)),
        (np.array([0, 1.5]), "int32", "1.5"),
        (np.array([0, np.nan]), "int32", "nan"),
        (np.array([0, 2.0**31]), "int32", "2147483648.0"),
        (np.array([0, 2**53 + 1]), "float64", str(2**53 + 1)),
        (np.array([0, 2**63 - 1]), "float64", str(2**63 - 1)),
        (np.array([0, 1e300]), "float32", "1e+300"),
        (np.array([0, 2]), "bool", "2"),
        (np.array([0, 1j]), "float64", "1j"),
    ],
)
def test_casts_that_lose_values(run, tmp_path, given, dtype: str, value: str) -> None:
    np.savez(tmp_path / "x.npz", x=given)
    path = tmp_path / "y.packed"
    result = run("convert", tmp_path / "x.npz", path, "--cast", f"x={dtype}")
    fails(result, "'x'", "sample 1", value, dtype)
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_casts_of_missing_fields(run, paths, tmp_path) -> None:
    result = run("convert", paths["npz"], tmp_path / "x.npz", "--cast", "y=int8")
    fails(result, "'y'", "label", status=2)


def test_data_that_a_format_cannot_hold(run, tmp_path) -> None:
    source = tmp_path / "x.npz"
    np.savez(source, a=np.ones(3, np.uint8), b=np.array([1, 2, 2**63], np.uint64))
    fails(run("convert", source, tmp_path / "y", "--to", "idx"), "'b'", "uint64")
    fails(run("convert", source, tmp_path / "y.csv"), "'b'", "sample 2", str(2**63))
    fails(run("convert", source, tmp_path / "y.npy"), "one field", "a, b")
    np.savez(tmp_path / "c.npz", z=np.ones(3, np.complex64))
    fails(run("convert", tmp_path / "c.npz", tmp_path / "y.csv"), "'z'", "complex64")
    half = ["--schema", "h:bfloat16"]
    (tmp_path / "h").write_bytes(bytes(8))
    fails(run("convert", tmp_path / "h", tmp_path / "y.npy", *half), "'h'", "bfloat16")
    assert {p.name for p in tmp_path.iterdir()} == {"x.npz", "c.npz", "h"}
    half += ["--cast", "h=float32"]
    assert run("convert", tmp_path / "h", tmp_path / "y.npy", *half).status == 0


def test_files_are_replaced_only_with_an_option(run, paths, tmp_path) -> None:
    path = tmp_path / "x.packed"
    path.write_text("mine")
    fails(run("convert", paths["npz"], path), str(path), "--force")
    assert path.read_text() == "mine"
    assert run("convert", paths["npz"], path, "--force").status == 0
    same(values(path), BOTH)


def test_unusual_names(run, paths, tmp_path) -> None:
    for name in ("arrays", "made", "marked", "replaced"):
        for _ in range(2):
            assert run("convert", paths["npz"], tmp_path / name, "--force").status == 0
        same(values(tmp_path / name), BOTH)
    path = tmp_path / "a" / "arrays"
    path.parent.mkdir()
    assert run("convert", paths["npz"], path, "--to", "npz").status == 0
    same(values(path), BOTH)


def test_only_folders_that_millstream_wrote_are_replaced(run, paths, tmp_path) -> None:
    path = tmp_path / "out"
    assert run("convert", paths["csv"], path).status == 0
    fails(run("convert", paths["npz"], path), "--force")
    assert run("convert", paths["npz"], path, "--force").status == 0
    same(values(path), BOTH)
    assert sorted(p.name for p in path.iterdir()) == [
        "fields.json",
        "image.npy",
        "label.npy",
    ]
    (path / "mine.txt").write_text("keep")
    fails(run("convert", paths["npz"], path, "--force"), "not replaced")
    fails(run("convert", paths["npz"], path, "--force", "--to", "npz"), "not replaced")
    assert (path / "mine.txt").read_text() == "keep"
    assert {p.name for p in tmp_path.iterdir()} == {"in", "out"}


def test_a_source_converted_onto_itself(run, tmp_path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(5))
    cast = ["--cast", "x=uint8"]
    assert run("convert", path, path, "--force", *cast).status == 0
    np.testing.assert_array_equal(np.load(path), np.arange(5, dtype=np.uint8))


def test_no_files_are_left_after_an_error(run, paths, tmp_path, monkeypatch) -> None:
    damaged = tmp_path / "damaged.idx.gz"
    damaged.write_bytes(paths["idx.gz"].read_bytes()[:-9])
    fails(run("convert", damaged, tmp_path / "x.npy"), str(damaged), "expected")
    fails(run("convert", paths["npz"], tmp_path / "no" / "x.npy"), "found none")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("millstream._core.progress_bar.ProgressBar.update", interrupted)
    for target in ("x.npz", "x.packed", "x.csv", "x"):
        result = run("convert", paths["npz"], tmp_path / target)
        assert result.status == 130
        assert result.err == "millstream: interrupted\n"
    assert {p.name for p in tmp_path.iterdir()} == {"in", "damaged.idx.gz"}


def test_progress_is_shown_with_its_option(run, paths, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    result = run("convert", paths["npz"], tmp_path / "x.csv", "--cast", "label=int8")
    assert result.status == 0
    assert "convert x.csv: 100%|" in result.err


def test_records_with_a_schema(run, tmp_path) -> None:
    (tmp_path / "r").write_bytes(b"12345678" + records())
    more = ["--schema", SCHEMA, "--offset", "8"]
    assert run("convert", tmp_path / "r", tmp_path / "x.npz", *more).status == 0
    same(values(tmp_path / "x.npz"), BOTH)
