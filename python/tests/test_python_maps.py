"""PythonMapTransform and fill_source: functions on samples, and their randomness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from conftest import rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataLoader,
    DiskSampleSource,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
    NpySource,
    PythonMapTransform,
    RenameTransform,
    fill_source,
)
from millstream._workers.rows import FieldSpec
from millstream._workers.tasks import Chunk, FillTask
from walks import (
    indexed,
    iterated,
    jitted,
    same_bytes,
    same_walk,
    scanned,
    specified,
    stepped,
)

N, BATCH, STEPS = 21, 6, 7
KINDS = ["thread", "process"]


def mapped(fn: Any, data: Any) -> Any:
    """Returns the results of a function for each sample, as arrays in memory."""
    count = len(jax.tree.leaves(data)[0])
    rows = [fn(jax.tree.map(lambda x, i=i: x[i], data)) for i in range(count)]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def same_everywhere(loader: DataLoader, state: Any, expected: Any) -> None:
    same_walk(specified(loader, state, STEPS), expected)
    same_walk(iterated(loader, state, STEPS), expected)
    same_walk(stepped(loader, state, STEPS), expected)
    same_walk(jitted(loader, state, STEPS), expected)
    same_walk(scanned(loader, state, STEPS), expected)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_before_batching(kind: str, workers: int) -> None:
    data = rows_of(N)
    stage = PythonMapTransform(fns.reshaped, workers=workers, worker_kind=kind)
    loader = DataLoader([ArraySampleSource(data), stage, BatchTransform(BATCH)])
    spec = loader.element_spec()
    assert isinstance(spec, fns.Pair)
    assert spec.left.shape == (BATCH, 3, 3)
    assert spec.right["flag"].dtype == np.bool_
    state = loader.init_state(0)
    same_everywhere(
        loader, state, indexed(loader, mapped(fns.reshaped, data), state, STEPS)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_after_batching_also_maps_padding(kind: str) -> None:
    data = rows_of(N)
    stage = PythonMapTransform(fns.reshaped, workers=2, worker_kind=kind)
    loader = DataLoader([ArraySampleSource(data), BatchTransform(BATCH), stage])
    state = loader.init_state(0)
    batches, masks, words = indexed(loader, data, state, STEPS)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batches)
    whole = jax.tree.map(
        lambda x: x.reshape(STEPS, BATCH, *x.shape[1:]), mapped(fns.reshaped, rows)
    )
    same_everywhere(loader, state, (whole, masks, words))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [False, True])
def test_a_function_may_change_its_sample(kind: str, after: bool) -> None:
    data = rows_of(N)
    before = jax.tree.map(np.copy, data)
    stage = PythonMapTransform(fns.in_place, worker_kind=kind)
    batch = BatchTransform(16)  # with several rows of padding
    stages = [batch, stage] if after else [stage, batch]
    loader = DataLoader([ArraySampleSource(data), *stages])
    state = loader.init_state(0)
    plain = DataLoader([ArraySampleSource(before), batch])
    batches, masks, words = iterated(plain, plain.init_state(0), 3)
    shown = masks if not after else np.ones_like(masks)
    expected = {
        "x": np.where(shown[..., None], batches["x"] + 1, 0).astype(np.int32),
        "y": np.where(shown, batches["y"] + 1, 0).astype(np.uint8),
    }
    for walk in (specified, iterated, jitted, iterated):
        same_walk(walk(loader, state, 3), (expected, masks, words))
    same_bytes(data, before)


def test_several_maps_between_native_and_traced_stages(tmp_path: Path) -> None:
    data = {
        "x": np.arange(N * 4, dtype=np.uint8).reshape(N, 2, 2),
        "y": np.arange(N, dtype=np.int32),
    }
    files = {name: tmp_path / f"{name}.npy" for name in data}
    for name, file in files.items():
        np.save(file, data[name])

    def plus_one(sample: Any) -> Any:
        return {**sample, "x": sample["x"] + np.float32(1)}

    def tripled(sample: Any) -> Any:
        return {"x": sample["x"] * np.float32(3), "z": -sample["y"]}

    def minus(batch: Any, mask: Any) -> Any:
        return {**batch, "x": batch["x"] - 2}

    stages = [
        NormalizeImageTransform("x"),
        PythonMapTransform(plus_one, workers=2),
        BatchTransform(BATCH),
        PythonMapTransform(tripled),
        MapTransform(minus),
    ]
    state: Any = None
    for source in (ArraySampleSource(data), NpySource(files)):
        loader = DataLoader([source, *stages])
        state = loader.init_state(0)
        batches, masks, words = indexed(loader, data, state, STEPS)
        x = batches["x"].astype(np.float32) / np.float32(255) + np.float32(1)
        x = np.where(masks[..., None, None], x, np.float32(0)) * np.float32(3) - 2
        expected = ({"x": x.astype(np.float32), "z": -batches["y"]}, masks, words)
        same_walk(iterated(loader, state, STEPS), expected)
        same_walk(jitted(loader, state, STEPS), expected)
        same_walk(scanned(loader, state, STEPS), expected)


def test_a_map_after_a_function_source() -> None:
    source = DiskSampleSource(N, fns.plain, worker_kind="process")
    stage = PythonMapTransform(fns.doubled, worker_kind="process")
    loader = DataLoader([source, stage, BatchTransform(BATCH)])
    state = loader.init_state(0)
    rows = [fns.plain(i) for i in range(N)]
    data = {
        "x": np.stack([row["x"] * 2 for row in rows]),
        "y": np.array([row["y"] for row in rows], np.int32),
    }
    same_everywhere(loader, state, indexed(loader, data, state, STEPS))
    assert len(source.pids) == len(stage.pids) == 1
    assert source.pids != stage.pids


# Randomness.


def seeds_of(walk: Any) -> np.ndarray:
    words = walk[0]["seed"].astype(np.uint64)
    return (words[..., 0] << np.uint64(32) | words[..., 1]).ravel()


def seed_loader(fn: Any, kind: str = "thread", **knobs: Any) -> DataLoader:
    stage = PythonMapTransform(fn, workers=2, worker_kind=kind)
    source = ArraySampleSource(rows_of(12))
    return DataLoader([source, stage, BatchTransform(BATCH)], **knobs)


def test_seeds_are_the_same_with_every_delivery_and_worker_kind() -> None:
    threads = seed_loader(fns.seeded)
    state = threads.init_state(3)
    expected = specified(threads, state, STEPS)
    same_everywhere(threads, state, expected)
    same_walk(iterated(seed_loader(fns.seeded, "process"), state, STEPS), expected)
    same_walk(iterated(seed_loader(fns.seeded, prefetch=0), state, STEPS), expected)
    keys = iterated(seed_loader(fns.keyed), state, STEPS)
    same_bytes(keys[0]["seed"], expected[0]["seed"])
    same_bytes(
        iterated(threads, expected[2][2], 2)[0],
        jax.tree.map(lambda x: x[3:5], expected[0]),
    )


def seeds_after(*stages: Any) -> list[int]:
    """Returns the seeds of a last stage for samples 0 to 2."""

    def last(sample: Any, seed: int) -> Any:
        return {"seed": np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)}

    source = ArraySampleSource(rows_of(3), "sequential")
    pipeline = [source, *stages, PythonMapTransform(last), BatchTransform(3)]
    loader = DataLoader(pipeline)
    return [int(x) for x in seeds_of(iterated(loader, loader.init_state(7), 1))]


FIRST_FUNCTION = [3547177416978640696, 14448696057363865562, 7847885286670883632]
SECOND_FUNCTION = [5519968049896979309, 1691813575259134768, 5273650682404230456]
"""These seeds are guaranteed. See the table of stages in docs/semantics.md."""


def test_stages_without_randomness_do_not_change_seeds() -> None:
    assert seeds_after() == FIRST_FUNCTION
    plain = PythonMapTransform(lambda sample: sample)
    rename = RenameTransform({"y": "z"})
    cast = CastTransform("x", np.float32)
    assert seeds_after(rename) == FIRST_FUNCTION
    assert seeds_after(cast, rename, FlattenTransform("x")) == FIRST_FUNCTION
    assert seeds_after(plain, rename) == FIRST_FUNCTION


def test_each_random_function_gets_the_next_number() -> None:
    drawing = PythonMapTransform(lambda sample, seed: sample)
    assert seeds_after(drawing) == SECOND_FUNCTION
    assert seeds_after(RenameTransform({"y": "z"}), drawing) == SECOND_FUNCTION


def test_seeds_differ_between_samples_epochs_seeds_and_stages() -> None:
    loader = seed_loader(fns.seeded)
    first = iterated(loader, loader.init_state(3), 8)  # 4 epochs of 12 samples
    other = iterated(loader, loader.init_state(4), 8)
    seen = np.concatenate([seeds_of(first), seeds_of(other)])
    assert len(set(seen.tolist())) == 2 * 48

    def again(sample: Any, seed: int) -> Any:
        words = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
        return {"before": sample["seed"], "seed": words}

    source = ArraySampleSource(rows_of(12))
    stages = [PythonMapTransform(fns.keyed), PythonMapTransform(again)]
    loader = DataLoader([source, *stages, BatchTransform(BATCH)])
    batches, _, _ = iterated(loader, loader.init_state(3), 2)
    same_bytes(batches["before"], first[0]["seed"][:2])
    assert not (batches["before"] == batches["seed"]).any()


def test_the_seed_of_a_sample_does_not_depend_on_its_row() -> None:
    """Another batch size changes nothing."""
    source = ArraySampleSource(rows_of(12))
    found = []
    for size in (2, 5, 12):
        stages = [PythonMapTransform(fns.keyed, workers=3), BatchTransform(size)]
        loader = DataLoader([source, *stages])
        seeds = {}
        for batch, mask in loader.iterate(loader.init_state(0)):
            for k in np.flatnonzero(mask):
                seeds[int(batch["y"][k])] = batch["seed"][k].tolist()
        found.append(seeds)
    assert len(found[0]) == 12
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", KINDS)
def test_fill_functions_write_in_place(kind: str) -> None:
    data = ["a", "millstone", "", "grain", "flour", "mill"]
    shape = jax.ShapeDtypeStruct
    arrays = {
        "letters": shape((9,), np.uint8),
        "length": shape((), np.int32),
        "seed": shape((2,), np.uint32),
    }
    source = fill_source(
        fns.filled, data, arrays, ordering="sequential", workers=2, worker_kind=kind
    )
    loader = DataLoader([source, BatchTransform(4)])
    state = loader.init_state(0)
    expected = specified(loader, state, 4)
    batches, masks, _ = expected
    words = [
        letters[:length].tobytes().decode()
        for letters, length in zip(
            batches["letters"][masks], batches["length"][masks], strict=True
        )
    ]
    assert words == data + data
    assert not batches["letters"][~masks].any()
    assert len(set(seeds_of(expected)[masks.ravel()].tolist())) == 12
    same_walk(iterated(loader, state, 4), expected)
    same_walk(jitted(loader, state, 4), expected)
    same_walk(scanned(loader, state, 4), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_elements_that_a_fill_function_does_not_write_are_zero(kind: str) -> None:
    spec = {"x": jax.ShapeDtypeStruct((8,), np.int32)}
    source = fill_source(
        fns.fill_one, range(11), spec, ordering="sequential", worker_kind=kind
    )
    loader = DataLoader([source, BatchTransform(5, remainder="wrap")], prefetch=2)
    whole = np.zeros((11, 8), np.int32)
    whole[np.arange(11), np.arange(11) % 8] = np.arange(1, 12)
    expected = np.resize(whole, (55, 8)).reshape(11, 5, 8)
    batches, _, _ = iterated(loader, loader.init_state(0), 11)
    assert np.array_equal(batches["x"], expected)


def test_a_fill_function_that_writes_everything_needs_no_clearing() -> None:
    indices, row = np.array([3, -1]), np.zeros(1, np.int64)
    for clear in (True, False):
        rows = np.full((2, 8), 7, np.int32)
        task = FillTask(
            fns.fill_one,
            range(9),
            clear=clear,
            outputs=(FieldSpec("x", "int32", (8,)),),
        )
        task.make(Chunk(indices, None, [], [rows], row))
        assert rows[0].tolist() == [
            *[0 if clear else 7] * 3,
            4,
            *[0 if clear else 7] * 4,
        ]
        assert not rows[1].any()  # padding


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_of_a_fill_function_is_ignored(kind: str) -> None:
    spec = {"x": jax.ShapeDtypeStruct((2,), np.int32)}
    source = fill_source(
        fns.fill_and_return, range(4), spec, ordering="sequential", worker_kind=kind
    )
    loader = DataLoader([source, BatchTransform(4)])
    ((batch, _),) = loader.iterate(loader.init_state(0))
    np.testing.assert_array_equal(batch["x"], [[k, k] for k in range(4)])


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_for_an_unknown_array_lists_the_arrays(kind: str) -> None:
    spec = {"image": jax.ShapeDtypeStruct((8,), np.int32)}
    source = fill_source(fns.fill_one, range(4), spec, worker_kind=kind)
    loader = DataLoader([source, BatchTransform(4)])
    with pytest.raises(KeyError, match="x") as caught:
        next(loader.iterate(loader.init_state(0)))
    notes = "\n".join(caught.value.__notes__)
    assert "the arrays are named ['image']" in notes
    assert "raised for sample" in notes


def test_fill_sources_are_checked() -> None:
    spec = {"a": jax.ShapeDtypeStruct((), np.int32)}
    with pytest.raises(ValueError, match="data must be a sequence with at least one"):
        fill_source(fns.filled, [], spec)
    with pytest.raises(ValueError, match="at least one array"):
        fill_source(fns.filled, ["a"], {})
    with pytest.raises(ValueError, match="workers must be a whole number"):
        DataLoader([fill_source(fns.filled, ["a"], spec, workers=0)])


# Errors.


def test_a_traced_stage_before_it_is_an_error() -> None:
    source = ArraySampleSource(rows_of(N))
    stage = PythonMapTransform(fns.doubled)
    traced = MapTransform(lambda batch, mask: batch)
    order = r"stage 3, Python.* stage 2, {}, which .*Put stage 3 before stage 2"
    with pytest.raises(TypeError, match=order.format("MapTransform")):
        DataLoader([source, BatchTransform(BATCH), traced, stage])
    callback = HostCallbackTransform(lambda batch, mask: None)
    with pytest.raises(TypeError, match=order.format("HostCallbackTransform")):
        DataLoader([source, BatchTransform(BATCH), callback, stage])
    with pytest.raises(ValueError, match=r"traced=True .* Remove traced=True"):
        DataLoader([source, stage, BatchTransform(BATCH)], traced=True)


def test_wrong_functions_are_errors() -> None:
    with pytest.raises(TypeError, match="PythonMapTransform needs a function, not 3"):
        PythonMapTransform(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes both seed and key"):
        PythonMapTransform(lambda sample, seed, key: sample)
    source = ArraySampleSource(rows_of(N))
    stage = PythonMapTransform(lambda sample: {"x": "text"}, host_fields=())
    with pytest.raises(TypeError, match=r"'x' has the dtype .* JAX arrays cannot hold"):
        DataLoader([source, stage])
    with pytest.raises(TypeError, match=r"dtype <U4, .* Return a dict"):
        DataLoader([source, PythonMapTransform(lambda sample: "text")])
    with pytest.raises(ValueError, match=r"only the host fields \['x'\]"):
        DataLoader([source, PythonMapTransform(lambda sample: {"x": "text"})])

    def fails(sample: Any) -> Any:
        raise fns.OwnError("the first sample", 0)

    with pytest.raises(fns.OwnError, match="the first sample"):
        DataLoader([source, PythonMapTransform(fails)])


def test_a_result_with_another_spec_is_named() -> None:
    def fn(sample: Any) -> Any:
        return {"x": np.zeros(2 if sample["y"] == 4 else 3, np.float32)}

    source = ArraySampleSource(rows_of(N), "sequential")
    spec = {"x": jax.ShapeDtypeStruct((3,), np.float32)}
    for given in (None, spec):
        stage = PythonMapTransform(fn, given)
        loader = DataLoader([source, stage, BatchTransform(BATCH)])
        with pytest.raises(ValueError, match=r"^x: expected float32\[3\]") as caught:
            next(loader.iterate(loader.init_state(0)))
        assert "raised for sample 3" in "".join(caught.value.__notes__)


def test_explain_names_it() -> None:
    source = ArraySampleSource(rows_of(N))
    stage = PythonMapTransform(fns.reshaped, workers=2)
    for stages in ([stage, BatchTransform(BATCH)], [BatchTransform(BATCH), stage]):
        text = DataLoader([source, *stages]).explain()
        line = next(x for x in text.splitlines() if "PythonMapTransform" in x)
        assert "Python, 2 worker threads" in line
        assert "float32" in line
        assert "bool" in line


def test_stages_do_not_keep_workers_of_deleted_loaders() -> None:
    stage = PythonMapTransform(fns.doubled, worker_kind="process")
    source = ArraySampleSource(rows_of(N))
    loader = DataLoader([source, stage, BatchTransform(BATCH)])
    next(loader.iterate(loader.init_state(0)))
    assert len(stage.pids) == 1
    del loader
    assert stage.pids == []
