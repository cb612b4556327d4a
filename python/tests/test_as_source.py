"""`as_source` recognises arrays, files and data sets that need no other library."""

from __future__ import annotations

import copy
import json
import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from cli_files import IMAGES, LABELS, N, cifar_binary, cifar_pickled, records
from collate_functions import Numbered
from conftest import Python, fails, rows_of
from idx_files import write_idx
from millstream.torch import DataLoader

Pair = namedtuple("Pair", "x y")
ROWS = rows_of(10)


def samples(source: Any) -> list[Any]:
    """Returns every sample of a source, read by index."""
    return [source[i] for i in range(source.num_samples)]


def batches(pipeline: Any) -> Any:
    """Returns the batches of two epochs, from a Python loop and from jit."""
    loader = ms.DataLoader([pipeline, ms.BatchTransform(4)])
    in_loop = [batch for batch, _ in loader.run(seed=3, epochs=2)]
    state = loader.init_state(3)
    for expected in in_loop:
        batch, state, _ = jax.jit(loader.next_batch)(state)
        jax.tree.map(np.testing.assert_array_equal, batch, expected)
    return in_loop


def check_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


# Arrays


@pytest.mark.parametrize(
    ("data", "origin"),
    [
        (ROWS, "dict of arrays"),
        ((ROWS["x"], ROWS["y"]), "tuple of arrays"),
        (Pair(ROWS["x"], {"y": ROWS["y"]}), "Pair of arrays"),
        (ROWS["x"], "ndarray"),
        ({"x": jnp.asarray(ROWS["x"])}, "dict of arrays"),
        (jnp.asarray(ROWS["x"]), "ArrayImpl"),
    ],
)
def test_arrays(data, origin):
    source = ms.as_source(data)
    assert isinstance(source, ms.ArraySampleSource)
    assert source.origin == origin
    assert f"origin='{origin}'" in repr(source)
    check_same(samples(source), samples(ms.ArraySampleSource(data)))
    check_same(batches(data), batches(ms.ArraySampleSource(data)))
    in_order = ms.as_source(data, ordering="sequential")
    check_same(batches(in_order), batches(ms.ArraySampleSource(data, "sequential")))


def test_a_mapping_that_is_no_dict(tmp_path):
    np.savez(tmp_path / "a.npz", **ROWS)
    with np.load(tmp_path / "a.npz") as stored:
        source = ms.as_source(stored)
    check_same(samples(source), samples(ms.ArraySampleSource(ROWS)))


def test_wrong_arrays_are_errors_of_their_own():
    text = "one row per sample"
    fails(lambda: ms.as_source({"x": 1.0}), "'x' is a scalar", text, kind=ValueError)
    fails(lambda: ms.as_source(np.float32(1)), "is a scalar", text, kind=ValueError)
    fails(lambda: ms.as_source((1, 2)), "is a list", text, kind=ValueError)
    fails(lambda: ms.as_source({}), "contains no arrays", kind=ValueError)
    uneven = {"x": np.zeros(3), "y": np.zeros(4)}
    fails(lambda: ms.as_source(uneven), "'y'", "4", kind=ValueError)


def test_a_list_may_mean_samples_or_arrays():
    lines = ("DatasetSource(samples)", "ArraySampleSource(tuple(arrays))")
    for given in ([ROWS["x"], ROWS["y"]], [{"x": 1}, {"x": 2}], []):
        fails(lambda given=given: ms.as_source(given), *lines)
    fails(lambda: ms.DataLoader([[ROWS["x"], ROWS["y"]]]), *lines)


# Data sets


class Several(Numbered):
    """A data set that reads several samples at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(np.full(2, -i, np.float32), i) for i in indices]


def test_a_data_set_runs_in_workers():
    source = ms.as_source(Numbered(10), ordering="sequential", workers=2)
    assert isinstance(source, ms.DatasetSource)
    assert (source.workers, source.worker_kind) == (2, "thread")
    assert source.origin == "Numbered, in workers"
    expected = [(np.full(2, i, np.float32), np.int32(i)) for i in range(10)]
    check_same(samples(source), expected)
    loader = ms.DataLoader([source, ms.BatchTransform(4)])
    assert "the data set is Numbered, in workers" in loader.explain()
    assert "the data set is Numbered" in loader._repr_html_()
    assert samples(ms.as_source(range(3))) == [0, 1, 2]


def test_several_samples_are_asked_for_at_once():
    source = ms.as_source(Several(10), ordering="sequential")
    loader = ms.DataLoader([source, ms.BatchTransform(4)])
    (first, _), _ = next(loader.run())
    np.testing.assert_array_equal(first[:, 0], [0, -1, -2, -3])


def test_worker_processes():
    source = ms.as_source(Numbered(6), ordering="sequential", worker_kind="process")
    check_same(samples(source), samples(ms.as_source(Numbered(6))))
    source.close()


def test_a_folder_of_the_user_named_datasets_is_not_hugging_face():
    kind = type("Dataset", (Numbered,), {"__module__": "datasets.mine"})
    assert ms.as_source(kind(3)).origin == "Dataset, in workers"


def test_an_array_in_a_file_is_not_loaded():
    names = {"__module__": "h5py._hl.dataset", "shape": (3,), "dtype": np.float32}
    kind = type("Dataset", (Numbered,), names)
    assert ms.as_source(kind(3)).origin == "Dataset, in workers"


def test_an_empty_data_set_is_an_error():
    fails(lambda: ms.as_source(Numbered(0)), "Numbered has no samples", kind=ValueError)


@pytest.mark.parametrize("data", [ROWS, Numbered(3)])
def test_workers_are_checked_also_for_arrays(data):
    fails(lambda: ms.as_source(data, workers=0), "workers", kind=ValueError)
    fails(lambda: ms.as_source(data, worker_kind="x"), "worker_kind", kind=ValueError)
    fails(lambda: ms.as_source(data, ordering="x"), "shuffle", kind=ValueError)


def test_a_source_is_returned_with_its_own_order():
    source = ms.ArraySampleSource(ROWS, "sequential")
    assert ms.as_source(source, ordering="shuffle") is source
    pipeline = ms.BatchTransform(2)(source)
    assert ms.as_source(pipeline) is pipeline
    fails(lambda: DataLoader(pipeline), "pipeline with stages", "millstream.DataLoader")


# What has no samples with indices


def generate() -> Any:
    yield {"x": 1}


class OnlyIterated:
    def __iter__(self) -> Any:
        return generate()


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (None, ["NoneType", "ArraySampleSource(data)"]),
        (3, ["found int"]),
        (b"abc", ["found bytes"]),
        (len, ["DiskSampleSource(length, fn)"]),
        (Numbered, ["the class Numbered", "Write Numbered(...)"]),
        (generate(), ["IterableSource(function)"]),
        (OnlyIterated(), ["OnlyIterated can only be iterated", "IterableSource"]),
        ({1, 2}, ["IterableSource"]),
        (ms.IterableSource(generate), ["is a stream", "first entry of a pipeline"]),
        ({"train": Numbered(2), "test": Numbered(2)}, ["['train', 'test']"]),
    ],
)
def test_other_values_are_refused_by_name(value, texts):
    fails(lambda: ms.as_source(value), "as_source: ", *texts)
    fails(lambda: DataLoader(value), "DataLoader: ", *texts)
    fails(lambda: DataLoader(value, 2, collate_fn=list), "DataLoader: ", *texts)
    if not isinstance(value, ms.IterableSource):
        fails(lambda: ms.DataLoader([value]), "DataLoader: entry 0: ", *texts)


# Files


def check_file(path: Path, expected: Any, title: str) -> None:
    for given in (path, str(path)):
        source = ms.as_source(given)
        assert type(source) is type(expected)
        assert title in source.origin
        check_same(samples(source), samples(expected))
        again = pickle.loads(pickle.dumps(source))
        check_same(samples(again), samples(expected))
    check_same(batches(path), batches(expected))


def test_npy(tmp_path):
    path = tmp_path / "image.npy"
    np.save(path, IMAGES)
    check_file(path, ms.NpySource(path), "NumPy .npy")


def test_a_folder_of_npy(tmp_path):
    np.save(tmp_path / "part-2.npy", IMAGES[:4])
    np.save(tmp_path / "part-10.npy", IMAGES[4:])
    check_file(tmp_path, ms.NpySource(tmp_path), "2 shards")
    np.save(tmp_path / "label.npy", LABELS)
    expected = ms.ArraySampleSource({"label": LABELS, "part": IMAGES})
    check_same(samples(ms.as_source(tmp_path)), samples(expected))


def test_a_folder_with_names_of_fields(tmp_path):
    np.save(tmp_path / "a.npy", IMAGES)
    (tmp_path / "fields.json").write_text(json.dumps({"image": "a.npy"}))
    check_file(tmp_path, ms.NpySource({"image": tmp_path / "a.npy"}), "folder of .npy")


def test_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, image=IMAGES, label=LABELS)
    check_file(path, ms.NpzSource(path), "NumPy .npz")


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "images.idx.gz"])
def test_idx(tmp_path, name):
    path = write_idx(tmp_path / name, IMAGES)
    check_file(path, ms.IdxSource(path), "IDX")


@pytest.mark.parametrize(
    ("name", "between"), [("a.csv", ","), ("a.tsv", "\t"), ("a.txt", ";")]
)
def test_tables(tmp_path, name, between):
    path = tmp_path / name
    lines = [["x", "y"], *([str(i), str(i / 2)] for i in range(5))]
    path.write_text("\n".join(between.join(cells) for cells in lines))
    check_file(path, ms.CsvSource(path, delimiter=between), "table with")


def test_packed(tmp_path):
    path = tmp_path / "a.packed"
    ms.write_packed(ms.ArraySampleSource(ROWS, "sequential"), path)
    check_file(path, ms.PackedSource(path), "packed records")


def test_records_with_a_schema_next_to_them(tmp_path):
    path = tmp_path / "records.bin"
    path.write_bytes(records())
    remedy = f"PackedSource({str(path)!r}, "
    fails(lambda: ms.as_source(path), remedy, "records.bin.json", kind=ms.DataError)
    schema = {"image": "uint8(4,3)", "label": "int32"}
    (tmp_path / "records.bin.json").write_text(json.dumps(schema))
    expected = ms.PackedSource(path, {"image": (np.uint8, (4, 3)), "label": np.int32})
    check_file(path, expected, "without a header")


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("make", [cifar_binary, cifar_pickled])
def test_cifar(tmp_path, classes, make):
    binary = ".bin" if make is cifar_binary else ""
    names = ["data_batch_1", "test_batch"] if classes == 10 else ["train", "test"]
    for name in names:
        (tmp_path / f"{name}{binary}").write_bytes(make(classes))
    path = tmp_path / f"{names[0]}{binary}"
    check_file(path, ms.CifarSource([path], classes=classes), f"CIFAR-{classes}")
    text = f"holds several data sets ({tmp_path} (train), {tmp_path} (test))"
    remedy = f"Write CifarSource({str(tmp_path)!r}, classes={classes}, train=True)"
    fails(lambda: ms.as_source(tmp_path), text, remedy, kind=ValueError)


def test_errors_of_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        ms.as_source(tmp_path / "missing.npy")
    fails(lambda: ms.as_source(""), "path of a file, found ''", kind=ValueError)
    fails(lambda: ms.as_source(tmp_path), "in this folder", kind=ms.DataError)
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n1\n")
    text = "Pass the path of one of them"
    fails(lambda: ms.as_source(tmp_path), "a.csv, ", text, kind=ValueError)
    fails(lambda: ms.as_source("a.parquet"), "pandas.read_parquet", kind=ValueError)


# Origins


def test_the_origin_survives():
    source = ms.as_source(ROWS)
    first, _ = source.split(0.5, 0.5)
    training, _ = source.folds(2)[0]
    for other in (
        copy.copy(source),
        copy.deepcopy(source),
        pickle.loads(pickle.dumps(source)),
        source[2:5],
        source[[3, 1]][1:],
        pickle.loads(pickle.dumps(source[2:5])),
        first,
        first[:2],
        pickle.loads(pickle.dumps(first)),
        training,
    ):
        assert other.origin == "dict of arrays"
    assert ms.ArraySampleSource(ROWS).origin is None
    assert "origin" not in repr(ms.ArraySampleSource(ROWS))
    assert source == ms.ArraySampleSource(ROWS)


def test_loaders_over_data_sets_can_be_pickled():
    for data in (ROWS, Numbered(10)):
        loader = ms.DataLoader([data, ms.BatchTransform(4)])
        again = pickle.loads(pickle.dumps(loader))
        check_same(list(again.run(epochs=1)), list(loader.run(epochs=1)))
        assert "the data set is" in again.explain()


def test_the_loader_for_plain_loops_takes_arrays_and_files(tmp_path):
    np.save(tmp_path / "a.npy", IMAGES)
    (batch,) = DataLoader(tmp_path / "a.npy", N)
    np.testing.assert_array_equal(batch, IMAGES)
    batch = next(iter(DataLoader(ROWS, 4, collate_fn=list, output="numpy")))
    check_same(batch, samples(ms.ArraySampleSource(ROWS))[:4])


def test_no_library_is_imported(tmp_path):
    code = """
        import sys
        import millstream as ms
        import numpy as np

        ms.as_source({"x": np.zeros(3)})
        ms.as_source(range(3))
        heavy = ("torch", "datasets", "pandas", "polars", "grain", "tensorflow", "PIL")
        assert not set(heavy) & set(sys.modules), sorted(sys.modules)
    """
    Python(tmp_path).run(code)
