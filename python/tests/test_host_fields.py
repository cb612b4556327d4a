"""Host fields: values that are not arrays reach the Python loop as lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from millstream import (
    BatchTransform,
    DataLoader,
    DiskSampleSource,
    MapTransform,
    PythonMapTransform,
    Subset,
    concatenate,
    mix,
    zip_sources,
)

N, BATCH = 10, 4
KINDS = ["thread", "process"]


def path_of(i: int) -> Path | None:
    return None if i < 0 else Path(f"/data/{i}.png")


def check(loader: DataLoader, state: Any, steps: int, trimmed: bool = False) -> None:
    """Checks that each list has the values of its batch's samples, None for padding."""
    words = np.asarray(state.words)
    iterator = loader.iterate(state, steps=steps)
    for batch, mask in iterator:
        samples = loader.which_samples(words).tolist()
        if trimmed:
            samples = [i for i in samples if i >= 0]
        assert isinstance(batch["path"], list)
        assert batch["path"] == [path_of(i) for i in samples]
        assert batch["words"] == [
            None if i < 0 else fns.with_host_fields(i)["words"] for i in samples
        ]
        assert batch["object"] == [
            None if i < 0 else fns.with_host_fields(i)["object"] for i in samples
        ]
        assert isinstance(batch["x"], jax.Array)
        assert np.asarray(batch["x"])[:, 0].tolist() == [max(i, 0) for i in samples]
        assert mask.shape == (len(samples),)
        words = np.asarray(iterator.state.words)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 3])
def test_they_come_with_their_samples(kind: str, workers: int) -> None:
    source = DiskSampleSource(
        N, fns.with_host_fields, workers=workers, worker_kind=kind
    )
    assert source.host_field_names == ("path", "words", "object")
    loader = DataLoader([source, BatchTransform(BATCH)])
    assert sorted(loader.element_spec()) == ["x", "y"]
    check(loader, loader.init_state(0), 7)  # with padding, across epochs
    check(loader, loader.init_state(0), 7)
    state = loader.init_state(1)
    batch, state, _ = loader.next_batch(state)
    check(loader, state, 3)
    assert sorted(batch) == ["object", "path", "words", "x", "y"]

    partial = BatchTransform(BATCH, remainder="partial")
    loader = DataLoader([source, partial])
    check(loader, loader.init_state(0), 3, trimmed=True)

    loader = DataLoader([source, BatchTransform(BATCH)], prefetch=0)
    check(loader, loader.init_state(0), 4)


def test_inside_jit_there_are_only_arrays() -> None:
    source = DiskSampleSource(N, fns.with_host_fields, None, "sequential")
    loader = DataLoader([source, BatchTransform(BATCH)])
    batch, _, _ = jax.jit(loader.next_batch)(loader.init_state(0))
    assert sorted(batch) == ["x", "y"]

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        assert sorted(batch) == ["x", "y"]
        return carry + batch["x"].sum(), None

    _, total, _ = loader.scan_epoch(loader.init_state(0), 0, body)
    assert int(total) == 2 * sum(range(N))


@pytest.mark.parametrize("kind", KINDS)
def test_a_traced_stage_sees_only_the_arrays(kind: str) -> None:
    def moved(batch: Any, mask: Any) -> Any:
        assert sorted(batch) == ["x", "y"]
        return {"x": batch["x"] + 100}

    source = DiskSampleSource(
        N, fns.with_host_fields, None, "sequential", worker_kind=kind
    )
    loader = DataLoader([source, BatchTransform(BATCH), MapTransform(moved)])
    batches = [batch for batch, _ in loader.iterate(loader.init_state(0))]
    assert [sorted(batch) for batch in batches] == [
        ["object", "path", "words", "x"]
    ] * 3
    assert batches[2]["path"] == [path_of(8), path_of(9), None, None]
    assert np.asarray(batches[2]["x"])[:, 0].tolist() == [108, 109, 100, 100]


def test_a_python_map_drops_what_it_does_not_return() -> None:
    def negated(sample: Any) -> Any:
        assert sorted(sample) == ["object", "path", "words", "x", "y"]
        return {"x": -sample["x"], "path": sample["path"]}

    source = DiskSampleSource(N, fns.with_host_fields, None, "sequential")
    stages = [PythonMapTransform(negated), BatchTransform(BATCH)]
    loader = DataLoader([source, *stages])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert sorted(batch) == ["path", "x"]
    assert batch["path"] == [path_of(i) for i in range(4)]
    assert np.asarray(batch["x"])[:, 0].tolist() == [0, -1, -2, -3]


def test_without_a_batch_they_are_values() -> None:
    source = DiskSampleSource(N, fns.with_host_fields, None, "sequential")
    loader = DataLoader([source])
    found = [sample["path"] for sample, _ in loader.iterate(loader.init_state(0))]
    assert found == [path_of(i) for i in range(N)]


def test_with_a_spec_they_are_named() -> None:
    shape = jax.ShapeDtypeStruct
    spec = {"x": shape((2,), np.int32), "y": shape((), np.uint8)}
    host = ("path", "words", "object")
    source = DiskSampleSource(N, fns.with_host_fields, spec, host_fields=host)
    loader = DataLoader([source, BatchTransform(BATCH)])
    check(loader, loader.init_state(0), 3)
    source = DiskSampleSource(N, fns.with_host_fields, spec)
    loader = DataLoader([source, BatchTransform(BATCH)])
    with pytest.raises(ValueError, match=r"expected keys \['x', 'y'\], found"):
        next(loader.iterate(loader.init_state(0)))


def test_parts_of_a_split_keep_them() -> None:
    source = DiskSampleSource(N, fns.with_host_fields)
    for part in source.split(6, 4):
        loader = DataLoader([part, BatchTransform(BATCH)])
        check(loader, loader.init_state(0), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_without_them_is_named(kind: str) -> None:
    source = DiskSampleSource(
        N, fns.loses_its_path, None, "sequential", worker_kind=kind
    )
    loader = DataLoader([source, BatchTransform(BATCH)])
    with pytest.raises(ValueError, match=r"expected keys \['path'\], found") as caught:
        next(loader.iterate(loader.init_state(0)))
    assert "raised for sample 3" in "".join(caught.value.__notes__)


def test_values_that_cannot_be_pickled_are_named() -> None:
    """Threads pass any object. Processes have to pickle it."""
    source = DiskSampleSource(N, fns.with_a_lock, host_fields=("lock",))
    loader = DataLoader([source, BatchTransform(BATCH)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert len(batch["lock"]) == BATCH
    source = DiskSampleSource(
        N, fns.with_a_lock, host_fields=("lock",), worker_kind="process"
    )
    loader = DataLoader([source, BatchTransform(BATCH)])
    with pytest.raises(TypeError, match="cannot pickle"):
        next(loader.iterate(loader.init_state(0)))


def test_a_value_that_cannot_be_pickled_is_named_with_its_sample() -> None:
    def loader_of(**more: Any) -> DataLoader:
        source = DiskSampleSource(
            N,
            fns.with_one_lock,
            None,
            "sequential",
            host_fields=("lock",),
            worker_kind="process",
        )
        return DataLoader([source, BatchTransform(BATCH)], prefetch=1, **more)

    loader = loader_of()
    with pytest.raises(TypeError, match="cannot pickle") as caught:
        list(loader.iterate(loader.init_state(0)))
    assert "raised for sample 6" in "".join(caught.value.__notes__)
    loader = loader_of(on_error="skip")
    batches = [batch for batch, _ in loader.iterate(loader.init_state(0))]
    assert batches[1]["lock"] == ["4", "5", None, "7"]
    assert np.asarray(batches[1]["x"]).tolist() == [5, 6, 0, 8]
    assert list(loader.skipped) == [6]


def test_an_array_with_the_name_of_a_host_field_is_an_error() -> None:
    def added(batch: Any, *_: Any) -> Any:
        return {**batch, "path": batch["x"]}

    source = DiskSampleSource(N, fns.with_host_fields)
    stages = [BatchTransform(BATCH), MapTransform(added)]
    with pytest.raises(ValueError, match="a stage makes an array 'path'"):
        DataLoader([source, *stages])


def odd_sample(i: int) -> dict[str, Any]:
    return {**fns.with_host_fields(0), "other": {i}}


@pytest.mark.parametrize("kind", KINDS)
def test_they_come_with_samples_of_combined_sources(kind: str) -> None:
    def source(first: int, count: int) -> Any:
        made = DiskSampleSource(N, fns.with_host_fields, workers=2, worker_kind=kind)
        return made[first : first + count]

    listed = Subset(source(0, N), [7, 2, 2, 9])
    samples = [7, 2, 2, 9, 3, 4, 5]
    both = [
        concatenate([listed, source(3, 3)]),
        mix([listed, source(3, 3)], weights=[2, 1]),
    ]
    for whole in both:
        loader = DataLoader([whole, BatchTransform(5)])
        state = loader.init_state(4)
        words = np.asarray(state.words)
        iterator = loader.iterate(state, steps=5)
        for batch, _ in iterator:
            chosen = [samples[i] if i >= 0 else -1 for i in loader.which_samples(words)]
            assert batch["path"] == [path_of(i) for i in chosen]
            assert np.asarray(batch["x"])[:, 0].tolist() == [max(i, 0) for i in chosen]
            words = np.asarray(iterator.state.words)


def test_combinations_that_would_lose_them_are_errors() -> None:
    source = DiskSampleSource(N, fns.with_host_fields)
    with pytest.raises(ValueError, match=r"'a' has host fields \(path"):
        zip_sources({"a": source})
    with pytest.raises(ValueError, match=r"source 0 have .*, those of source 1 .*oth"):
        concatenate([source, DiskSampleSource(N, odd_sample)])
