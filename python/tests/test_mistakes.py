"""A mistake that a new user makes gets an error that shows what to write instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import fails, rows_of
from jax.sharding import PartitionSpec as P


def make() -> ms.DataLoader:
    return ms.DataLoader([ms.ArraySampleSource(rows_of(10)), ms.BatchTransform(4)])


# Loops


def test_the_length_of_a_loader_is_its_number_of_batches():
    loader = make()
    assert len(loader) == loader.steps_per_epoch == 3
    assert loader


def test_a_loader_is_not_an_iterator():
    loader = make()
    line = "for batch, mask in loader.run(seed=0, epochs=1): ..."
    fails(lambda: list(loader), "has no position of its own", line)
    fails(lambda: next(loader), "batch, mask = next(run)")


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ((), "loader.run(seed=0, epochs=1)"),
        ((0,), "loader.run(seed=0, epochs=1)"),
        ((np.int64(7),), "seed="),
        ((jax.random.key(7),), "seed="),
    ],
)
def test_iterate_needs_a_state(state, line):
    fails(lambda: make().iterate(*state), "iterate() needs a state", line)


def test_iterate_without_a_state_shows_how_to_make_one():
    fails(lambda: make().iterate(), "loader.iterate(loader.init_state(0))")


def test_run_and_epochs_take_seeds_by_name():
    fails(lambda: make().run(7), "run() needs a state, found 7", "run(seed=7")
    fails(lambda: make().epochs(2, 7), "epochs() needs a state", "epochs(2, seed=7)")


# Arguments of other loaders


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("batch_size", "BatchTransform(batch_size)"),
        ("shuffle", "ordering='shuffle'"),
        ("num_workers", "Pass workers= to DiskSampleSource"),
        ("collate_fn", "PythonMapTransform(fn)"),
        ("sampler", "ordering=Weighted(weights)"),
        ("batch_sampler", "ordering=Listed(indices)"),
        ("drop_last", "remainder='drop'"),
        ("pin_memory", "DevicePutTransform()"),
        ("prefetch_factor", "Pass prefetch="),
        ("persistent_workers", "Remove the argument"),
        ("generator", "loader.run(seed=0)"),
        ("timeout", "Pass timeout= to the source"),
        ("worker_init_fn", "at the top level of the module"),
        ("multiprocessing_context", "worker_kind='process'"),
        ("sharding", "Its arguments are pipeline, threads, prefetch"),
    ],
)
def test_arguments_of_other_loaders_show_ours(name, instead):
    given: Any = {name: 1}
    source = ms.ArraySampleSource(rows_of(10))
    texts = (f"no argument {name}. ", instead)
    fails(lambda: ms.DataLoader([source], **given), *texts)


def test_all_unknown_arguments_are_named():
    given: Any = {"batch_size": 4, "shuffle": True}
    instead = ("BatchTransform(batch_size)", "ordering='shuffle'")
    fails(lambda: ms.DataLoader([1, 2], **given), *instead)


def test_stages_without_a_list_show_the_list():
    stages: Any = [ms.ArraySampleSource(rows_of(10)), ms.BatchTransform(4)]
    fails(lambda: ms.DataLoader(*stages), "DataLoader([source, BatchTransform(128)])")


def test_a_data_set_by_name_shows_the_list():
    given: Any = {"dataset": [1, 2], "batch_size": 2}
    fails(lambda: ms.DataLoader(**given), "DataLoader([dataset, BatchTransform(")
    fails(lambda: ms.DataLoader(), "must be a source, or a list")


def test_our_own_arguments_are_still_accepted():
    loader = ms.DataLoader(pipeline=[ms.ArraySampleSource(rows_of(10))], threads=1)
    assert len(loader) == 10


# Stages


def test_a_function_that_takes_and_returns_a_source_is_a_stage():
    loader = ms.DataLoader(
        [ms.ArraySampleSource(rows_of(10)), lambda source: ms.BatchTransform(5)(source)]
    )
    assert len(loader) == 2


@pytest.mark.parametrize(
    "stage",
    [
        lambda batch, mask: batch,
        lambda batch: batch["x"],
        lambda batch: None,
        lambda batch: batch + 1,
        lambda batch: batch.x,
    ],
)
def test_a_function_that_maps_batches_shows_the_transforms(stage):
    source = ms.ArraySampleSource(rows_of(10))
    fails(
        lambda: ms.DataLoader([source, stage]),
        "entry 1 of the pipeline, the function <lambda>,",
        "MapTransform(fn)",
        "PythonMapTransform(fn)",
        kind=(TypeError, AttributeError),  # type: ignore[arg-type]
    )


def test_an_error_of_a_function_stage_is_the_error_itself():
    source = ms.ArraySampleSource(rows_of(10))
    with pytest.raises(ValueError, match="at least 1"):
        ms.DataLoader([source, lambda source: ms.BatchTransform(0)(source)])


@pytest.mark.parametrize("stage", [ms.CastTransform, ms.NormalizeImageTransform])
def test_an_unknown_dtype_lists_the_known_ones(stage):
    name = f"{stage.__name__}: unknown dtype 'float99'"
    fails(lambda: stage("x", "float99"), name, "bfloat16, bool", "uint8")


@pytest.mark.parametrize("spec", [P("data"), P("data", None)])
def test_a_partition_spec_without_a_mesh_shows_a_sharding(spec):
    fails(
        lambda: ms.DevicePutTransform(spec),
        f"NamedSharding(mesh, {spec})",
        "jax.make_mesh",
        "axis_types=(jax.sharding.AxisType.Auto,)",
    )


def test_a_pytree_of_partition_specs_shows_a_sharding():
    fails(
        lambda: ms.DevicePutTransform({"x": P("data", "model"), "y": P("data")}),
        "['x']: expected a sharding",
        "NamedSharding(mesh, P('data', 'model'))",
        "jax.make_mesh",
    )


def test_a_list_of_devices_is_no_pytree_of_shardings():
    fails(lambda: ms.DevicePutTransform(jax.devices()), "[0]: expected a NamedSharding")


def test_a_mesh_without_a_partition_spec_shows_a_sharding():
    mesh = jax.make_mesh((1,), ("data",))
    fails(lambda: ms.DevicePutTransform(mesh), "NamedSharding(mesh, P('data'))")


@pytest.mark.parametrize(
    "fn",
    [
        lambda batch, mask: {**batch, "z": batch["x"]},
        lambda batch, mask: {**batch, "x": batch["x"].astype(np.float64)},
        lambda batch, mask: {**batch, "x": batch["x"][:2]},
    ],
)
def test_a_callback_that_changes_the_structure_names_the_override(fn):
    stages = [ms.BatchTransform(4), ms.HostCallbackTransform(fn)]
    loader = ms.DataLoader([ms.ArraySampleSource(rows_of(10)), *stages])
    fails(lambda: next(loader.run()), "element_spec_override", kind=ValueError)


# Sources


class Table:
    """Has what a DataFrame of any library has."""

    columns = ("x", "label")
    dtypes = ("float64", "object")
    shape = (3, 2)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)


def tables() -> list[Any]:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0], "label": ["a", "b", "a"]})
    return [frame, Table()]


@pytest.mark.parametrize("number", [0, 1])
def test_a_data_frame_shows_its_columns(number):
    table = tables()[number]
    columns = "table[name].to_numpy() for name in table"
    for call in (
        lambda: ms.DataLoader(table),
        lambda: ms.DatasetSource(table),
    ):
        fails(call, columns)


def test_a_data_frame_with_text_as_arrays_shows_its_columns():
    fails(lambda: ms.ArraySampleSource(tables()[0]), "table[name].to_numpy()")


def test_the_columns_of_a_data_frame_are_a_source():
    table = tables()[0]
    source = ms.ArraySampleSource({"x": table["x"].to_numpy()})
    assert len(source) == 3


def test_following_the_advice_for_text_works():
    text = np.array(["a", "b", "a"])
    source = ms.ArraySampleSource({"x": np.unique(text, return_inverse=True)[1]})
    assert [int(source[i]["x"]) for i in range(3)] == [0, 1, 0]
    loader = ms.DataLoader(
        [
            ms.DatasetSource(
                [{"x": 1, "t": "a"}, {"x": 2, "t": "b"}], ordering="sequential"
            )
        ]
    )
    assert next(loader.run())[0]["t"] == "a"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("a.parquet", "pandas.read_parquet('a.parquet')"),
        ("a.tfrecord", "tensorflow.data.TFRecordDataset('a.tfrecord')"),
        ("a.tfrecord-00000-of-00002", "TFRecordDataset('a.tfrecord-00000-of-00002')"),
        ("a.h5", "h5py.File('a.h5')"),
        ("a.arrow", "datasets.Dataset.from_file('a.arrow')"),
    ],
)
def test_a_path_of_another_format_shows_how_to_read_it(name, instead):
    for path in (name, Path(name)):
        stages = [path, ms.BatchTransform(2)]
        fails(lambda stages=stages: ms.DataLoader(stages), instead, kind=ValueError)
        fails(lambda path=path: ms.DataLoader(path), instead)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("a.npy", "NpySource('a.npy')"),
        ("a.npz", "NpzSource('a.npz')"),
        ("a.csv", "CsvSource('a.csv')"),
        ("folder", "NpySource"),
    ],
)
def test_a_path_without_a_list_shows_its_source(name, instead):
    for path in (name, Path(name)):
        fails(lambda path=path: ms.DataLoader(path), instead)
        with pytest.raises(FileNotFoundError, match=name):
            ms.DataLoader([path, ms.BatchTransform(2)])


@pytest.mark.parametrize("source", [ms.NpySource, ms.CsvSource, ms.PackedSource])
@pytest.mark.parametrize("name", ["a.tfrecord", "a.parquet"])
def test_a_source_of_files_names_a_way_to_read_other_formats(source, name):
    fails(
        lambda: source(name),
        name,
        "Read the file with another library",
        kind=ValueError,
    )


def test_a_generator_shows_sources_with_random_access():
    def samples() -> Any:
        yield {"x": 1}

    made = samples()
    for call in (
        lambda: ms.DataLoader([made, ms.BatchTransform(2)]),
        lambda: ms.DataLoader(made),
        lambda: ms.DatasetSource(made),
    ):
        fails(call, "DatasetSource(list(samples))", "DiskSampleSource(length, fn)")
    assert next(made) == {"x": 1}  # the loader has not consumed it


def test_an_iterable_data_set_shows_sources_with_random_access():
    class Stream:
        def __iter__(self) -> Any:
            return iter([{"x": 1}])

    fails(lambda: ms.DataLoader([Stream()]), "DiskSampleSource(length, fn)")
    fails(lambda: ms.DataLoader(Stream()), "DiskSampleSource(length, fn)")


def test_a_data_set_without_a_list_shows_the_list():
    class Numbers:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> Any:
            return {"x": i}

    fails(lambda: ms.DataLoader(Numbers()), "DataLoader([DatasetSource(dataset)")
    samples: Any = [[{"x": 1}, {"x": 2}]]
    fails(lambda: ms.DataLoader(samples), "DatasetSource(samples)")


def test_arrays_without_a_source_show_the_source():
    for data in ({"x": np.zeros(3)}, np.zeros(3), jnp.zeros(3)):
        fails(lambda data=data: ms.DataLoader(data), "ArraySampleSource(data)")
    arrays = [np.zeros(3), np.zeros((3, 2))]
    fails(lambda: ms.DataLoader(arrays), "ArraySampleSource(data)")
    fails(lambda: ms.DatasetSource(np.zeros(3)), "ArraySampleSource(data)")


def test_errors_do_not_print_arrays():
    with pytest.raises(TypeError) as caught:
        ms.DataLoader([{"x": np.zeros(1000)}, {"x": np.zeros(1000)}])
    assert "keys ['x']" in str(caught.value)
    assert "0." not in str(caught.value)


def test_a_list_of_samples_shows_a_data_set_source():
    for samples in ([1, 2, 3], [{"x": 1.0}, {"x": 2.0}], ["a", "b"]):
        for given in (samples, [samples, ms.BatchTransform(2)]):
            fails(lambda given=given: ms.DataLoader(given), "DatasetSource(samples)")


def test_a_function_as_a_source_shows_a_function_source():
    for fn in (lambda i: {"x": i}, len):
        fails(lambda fn=fn: ms.DataLoader([fn]), "DiskSampleSource(length, fn)")


def test_a_generator_of_arrays_is_not_an_array():
    rows = (np.zeros(2) for _ in range(3))
    fails(lambda: ms.ArraySampleSource({"x": rows}), "'x' is not an array")


def test_an_empty_list_and_a_number_as_a_stage():
    fails(lambda: ms.DataLoader([]), "ArraySampleSource(data)", kind=ValueError)
    source = ms.ArraySampleSource(rows_of(10))
    fails(lambda: ms.DataLoader([source, 42]), "entry 1", "BatchTransform(128)")


# Values


@pytest.mark.parametrize(
    ("array", "instead"),
    [
        (np.array(["a", "b"]), "np.unique(text, return_inverse=True)"),
        (np.array(["a", "b"], object), "np.unique(text, return_inverse=True)"),
        (np.array([b"a", b"b"]), "np.unique(text, return_inverse=True)"),
        (np.array(["2024-01-01"], "M8[D]"), "astype('int64')"),
        (np.array([np.zeros(2), np.zeros(3)], object), "np.stack(list(rows))"),
        (np.array([1, None], object), "astype(np.float32)"),
    ],
)
def test_arrays_of_other_dtypes_name_a_way_to_convert_them(array, instead):
    fails(lambda: ms.ArraySampleSource({"x": array}), "'x' is an array of", instead)


class Ragged:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([[1, 2], [1]])


def test_rows_of_different_lengths_say_pad_or_crop():
    fails(
        lambda: ms.ArraySampleSource({"x": Ragged()}),
        "'x' cannot be converted",
        "Pad or crop",
        kind=ValueError,
    )


def test_a_list_of_numbers_shows_an_array():
    fails(
        lambda: ms.ArraySampleSource({"x": [1, 2, 3]}),
        "'x' is a list",
        "np.asarray",
        kind=ValueError,
    )


def ragged(i: int) -> dict[str, Any]:
    return {"x": np.zeros(38 - i, np.int32)}


def test_samples_of_different_sizes_say_pad_or_crop():
    for source in (
        ms.DiskSampleSource(10, ragged, ordering="sequential"),
        ms.DatasetSource([ragged(i) for i in range(10)], ordering="sequential"),
    ):
        loader = ms.DataLoader([source, ms.BatchTransform(4)])
        fails(
            lambda loader=loader: next(loader.run()),
            "expected int32[38], found int32[37]",
            "Pad or crop them in the function or the data set",
            "or list the field in host_fields and pad it in a PythonMapTransform",
            kind=ValueError,
        )
    stage = ms.PythonMapTransform(lambda sample: ragged(int(sample["x"].sum() % 3)))
    source = ms.ArraySampleSource(rows_of(10), ordering="sequential")
    loader = ms.DataLoader([source, stage, ms.BatchTransform(4)])
    fails(lambda: list(loader.run(epochs=1)), "Pad or crop", kind=ValueError)


def test_lists_of_different_lengths_say_pad_or_crop():
    spec = {"x": [jax.ShapeDtypeStruct((), np.int32)] * 3}
    source = ms.DiskSampleSource(4, lambda i: {"x": [1] * (3 + i)}, spec)
    loader = ms.DataLoader([source, ms.BatchTransform(4)])
    remedy = "np.asarray(values), padded or cropped"
    fails(lambda: next(loader.run()), remedy, kind=ValueError)


def test_text_in_a_table_names_the_columns_argument(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,name\n1,anna\n2,bert\n")
    fails(lambda: ms.CsvSource(path), "anna", "columns=", kind=ms.DataError)
    assert len(ms.CsvSource(path, columns=["x"])) == 2


@pytest.mark.parametrize("kind", ["U", "O"])
def test_npy_files_of_text_and_objects_name_a_way_to_save_them(tmp_path, kind):
    path = tmp_path / "a.npy"
    np.save(path, np.array(["a", "b"], kind), allow_pickle=True)
    fails(lambda: ms.NpySource(path), "save", kind=ms.DataError)


def test_tfrecord_bytes_under_another_name_are_an_error(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x00" * 64)
    with pytest.raises(ms.DataError, match=re.escape(str(path))):
        ms.NpySource(path)
