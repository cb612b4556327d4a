"""The command line: arguments, formats, ``inspect`` and exit statuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cli_files import (
    IMAGES,
    LABELS,
    SCHEMA,
    N,
    fails,
    records,
    write_all,
)
from millstream._cli.histogram import Histogram, Range
from millstream._cli.reading import Reader
from millstream._engine import npy
from millstream._formats.schema import Field, parse_schema


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    return write_all(tmp_path)


FOUND = {
    "npy": ("NumPy .npy", ["image  uint8(4,3)"]),
    "npz": ("NumPy .npz", ["image  uint8(4,3)", "label  int32"]),
    "deflated": ("NumPy .npz", ["image  uint8(4,3)", "label  int32"]),
    "shards": ("folder of .npy (3 shards)", ["part  uint8(4,3)"]),
    "fields": ("folder of .npy", ["image  uint8(4,3)", "label  int32"]),
    "records": (
        "packed records, without a header",
        ["image  uint8(4,3)", "label  int32"],
    ),
    "csv": ("table with commas, with a header", ["count  int64", "value  float64"]),
    "tsv": (
        "table with tabs, without a header",
        ["column0  int64", "column1  float64"],
    ),
    "idx": ("IDX", ["images-idx3-ubyte  uint8(4,3)"]),
    "idx.gz": ("IDX, gzipped", ["labels  int32"]),
    "cifar10 batch": ("CIFAR-10, a binary batch", ["image  uint8(32,32,3)"]),
    "cifar10 pickle": ("CIFAR-10, a pickled batch", ["image  uint8(32,32,3)"]),
    "cifar100 batch": ("CIFAR-100, a binary batch", ["coarse_label  uint8"]),
    "cifar100 pickle": ("CIFAR-100, a pickled batch", ["coarse_label  uint8"]),
}


@pytest.mark.parametrize("kind", FOUND)
def test_inspect_shows_format_and_fields(run, paths, kind: str) -> None:
    result = run("inspect", paths[kind])
    title, fields = FOUND[kind]
    assert result.status == 0
    assert result.err == ""
    assert result.out.startswith(f"{paths[kind]}\n  format   {title}\n")
    assert f"  samples  {N} of " in result.out
    for field in fields:
        assert re.search(rf"{re.escape(field).replace('  ', ' +')}\n", result.out)


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("kind", ["folder", "pickled", "tar", "tar.gz"])
def test_inspect_shows_the_splits_of_cifar(run, paths, classes: int, kind: str) -> None:
    path = paths[f"cifar{classes} {kind}"]
    result = run("inspect", path)
    assert result.status == 0, result.err
    place = "archive" if "tar" in kind else "folder"
    for split, batches in (("train", 5 if classes == 10 else 1), ("test", 1)):
        assert f"{path} ({split})\n  format   CIFAR-{classes}, {place}\n" in result.out
        assert f"  samples  {N * batches} of " in result.out
    assert "(train)" not in run("inspect", path, "--split", "test").out


def test_inspect_shows_samples_and_histograms(run, paths) -> None:
    out = run("inspect", paths["npz"], "--samples", 2).out
    for k in range(2):
        first = " ".join(str(value) for value in IMAGES[k].reshape(-1)[:8])
        assert f"  sample {k} image  {first} ... (12 values)\n" in out
        assert f"           label  {LABELS[k]}\n" in out
    assert "sample 2" not in out
    assert f"label: 0 to 4, mean {LABELS.mean():.6g}\n" in out
    for value in range(5):
        assert re.search(rf"\n    {value}  #+ +{(value == LABELS).sum()}\n", out)
    low, high = IMAGES.min(), IMAGES.max()
    assert f"image: {low} to {high}, mean {IMAGES.mean():.6g}" in out


def test_inspect_shows_samples_of_several_batches(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("millstream._cli.reading.BATCH_BYTES", 16)
    np.save(tmp_path / "x.npy", np.arange(10))
    out = run("inspect", tmp_path / "x.npy", "--samples", 5).out
    shown = re.findall(r"  sample (\d) +x  (\d)\n", out)
    assert shown == [(str(k), str(k)) for k in range(5)]
    assert (
        run("inspect", tmp_path / "x.npy", "--samples", 99).out.count("sample ") == 10
    )


def test_inspect_of_no_samples(run, paths) -> None:
    assert "sample 0" not in run("inspect", paths["npz"], "--samples", 0).out


def test_inspect_draws_from_large_data_sets(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("millstream._cli.inspect._DRAWN_BYTES", 400)
    np.save(tmp_path / "x.npy", np.arange(1000, dtype=np.float32))
    out = run("inspect", tmp_path / "x.npy").out
    assert "of 100 samples, spread evenly" in out
    everything = run("inspect", tmp_path / "x.npy", "--all").out
    assert "spread evenly" not in everything
    assert "x: 0 to 999, mean 499.5\n" in everything


def test_a_schema_on_the_command_line(run, tmp_path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"header--" + records())
    out = run("inspect", path, "--schema", SCHEMA, "--offset", 8).out
    assert "packed records, without a header" in out
    assert f"  samples  {N} of 16 B" in out
    assert run("verify", path, "--schema", SCHEMA).status == 1


def test_fields_are_selected(run, paths) -> None:
    for kind in ("npz", "fields"):
        out = run("inspect", paths[kind], "--fields", "label").out
        assert "image  " not in out
        assert "label  int32" in out
    assert "count" not in run("inspect", paths["csv"], "--fields", "value").out
    for kind, word in (
        ("fields", "image"),
        ("npz", "image"),
        ("csv", "x"),
        ("idx", "images-idx3"),
    ):
        result = run("inspect", paths[kind], "--fields", "x")
        fails(result, str(paths[kind]), word, status=2)


def test_all_files_of_a_folder_as_shards(run, paths) -> None:
    np.save(paths["fields"] / "label.npy", IMAGES)
    out = run("inspect", paths["fields"], "--shards").out
    assert f"  samples  {2 * N} of " in out


def test_a_folder_of_other_files_is_searched(run, tmp_path, paths) -> None:
    (tmp_path / "README.txt").write_text("not a table")
    result = run("verify", tmp_path)
    assert result.status == 0, result.err
    assert "stored.npz" in result.out
    assert "labels.idx.gz" in result.out
    assert f"ok  {tmp_path}: folder of .npy" in result.out
    assert "README" not in result.out


def test_tables_without_names(run, tmp_path) -> None:
    path = tmp_path / "table"
    path.write_text("1;2\n3;4\n")
    assert "semicolons, without a header" in run("inspect", path).out
    assert "  samples  1 of " in run("inspect", path, "--header").out
    fails(run("inspect", path, "--delimiter", ","), "line 2", "'3;4'")


def test_errors_name_the_path_and_other_paths_are_processed(
    run, tmp_path, paths
) -> None:
    missing = tmp_path / "missing"
    result = run("inspect", missing, paths["npy"])
    fails(result, str(missing), "No such file")
    assert "NumPy .npy" in result.out
    (tmp_path / "noise").write_bytes(bytes(range(200, 256)))
    fails(run("inspect", tmp_path / "noise"), "noise", "expected one of", "found")
    (tmp_path / "none").write_bytes(b"")
    fails(run("inspect", tmp_path / "none"), "an empty file")
    (tmp_path / "empty").mkdir()
    fails(run("verify", tmp_path / "empty"), "empty", "found none")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("image", "NAME:DTYPE"),
        ("image:uint9", "uint9"),
        ("a:uint8,a:uint8", "twice"),
        ("a:uint8(2,b)", "character 1"),
        (f"a:uint8({'9' * 23})", "18 digits"),
        ("a\udcff:uint8", "UTF-8"),
        ("", "at least one"),
    ],
)
def test_wrong_schemas(run, paths, text: str, word: str) -> None:
    result = run("inspect", paths["records"], "--schema", text)
    assert result.status == 2
    assert word in result.err
    with pytest.raises(ValueError, match="schema"):
        parse_schema(text)


def test_schemas() -> None:
    fields = parse_schema(" image : uint8( 28, 28,1 ), label:bfloat16")
    assert fields == (
        Field("image", "uint8", (28, 28, 1)),
        Field("label", "bfloat16", ()),
    )
    assert ",".join(map(str, fields)) == "image:uint8(28,28,1),label:bfloat16"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["inspect"],
        ["convert", "a"],
        ["inspect", "a", "--samples", "-1"],
        ["inspect", "a", "--offset", "9" * 23],
        ["inspect", "a", "--fields", "\udcff"],
        ["inspect", "a", "--delimiter", "\udcff"],
        ["inspect", "a", "--delimiter", "ab"],
        ["convert", "a", "b", "--cast", "label"],
        ["convert", "a", "b", "--cast", "label=int"],
        ["convert", "a", "b", "--to", "jpeg"],
        ["convert", "a", "b.jpeg"],
        ["convert", "a", "b.npy.gz"],
    ],
)
def test_wrong_usage_is_status_2(run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.status == 2
    assert result.out == ""
    assert "millstream" in result.err


@pytest.mark.parametrize("command", ["inspect", "verify", "convert"])
def test_help_has_examples(run, command: str) -> None:
    result = run(command, "--help")
    assert result.status == 0
    assert "examples:\n  millstream " in result.out
    assert f"millstream {command}" in result.out
    assert "--schema" in result.out
    assert command in run("--help").out


@pytest.mark.parametrize(
    ("values", "labels", "counts"),
    [
        ([3, 3, 5], ["3", "4", "5"], [2, 0, 1]),
        ([True, False], ["0", "1"], [1, 1]),
        ([-(2**63), 2**63 - 1], None, [1, *[0] * 8, 1]),
        (np.array([0, 2**64 - 1], np.uint64), None, [1, *[0] * 8, 1]),
        (np.array([-128, 127, 127], np.int8), None, [1, *[0] * 8, 2]),
        (np.array([7, 255], np.uint8), None, [1, *[0] * 8, 1]),
        (np.array([-2, 1], np.int8), ["-2", "-1", "0", "1"], [1, 0, 0, 1]),
        ([0.5, 0.5], ["0.5"], [2]),
        ([-1.7e308, 1.7e308, np.nan], None, [1, *[0] * 8, 1]),
        (np.array([0, 1], np.float16), None, [1, *[0] * 8, 1]),
        ([np.inf, 1.0], ["1"], [1]),
    ],
)
def test_histograms(values, labels, counts) -> None:
    array = np.asarray(values)
    found = Range()
    found.add(array)
    histogram = Histogram(found, whole=array.dtype.kind in "iub")
    histogram.add(array)
    assert histogram.counts == counts
    if labels:
        assert [line.split()[0] for line in histogram.lines()] == labels


def test_reading_many_batches(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("millstream._cli.reading.BATCH_BYTES", 64)
    array = np.arange(1003, dtype=np.int64)
    np.save(tmp_path / "x.npy", array)
    source = npy([("x", [tmp_path / "x.npy"])])
    reader = Reader(source)
    assert reader.steps == 126
    np.testing.assert_array_equal(np.concatenate([batch[0] for batch in reader]), array)
    drawn = np.concatenate([batch[0] for batch in Reader(source, drawn=100)])
    assert len(set(drawn.tolist())) == 100
