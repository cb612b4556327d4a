"""FilterTransform: a pipeline that continues with the samples kept."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from conftest import fails, rows_of
from walks import (
    iterated,
    jitted,
    maps_over_seeds,
    resumes_everywhere,
    same_bytes,
    same_walk,
    scanned,
    specified,
    stepped,
)

N, BATCH = 50, 4
KEPT = np.arange(2, N, 3)
"""The samples that ``Third`` keeps: 16, in 4 batches."""
STEPS = 6


class Third:
    """Keeps every third sample of ``rows_of(N)`` and records the labels it sees."""

    def __init__(self, key: str = "y") -> None:
        self.key = key
        self.seen: list[int] = []

    def __call__(self, sample: Any) -> Any:
        assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(sample))
        assert sample["x"].shape == (3,)
        self.seen.append(int(sample[self.key]))
        return sample[self.key] % 3 == 0


def source(ordering: Any = "shuffle") -> ms.ArraySampleSource:
    return ms.ArraySampleSource(rows_of(N), ordering)


def filtered(predicate: Any, *stages: Any, **knobs: Any) -> ms.DataLoader:
    pipeline = [source(), ms.FilterTransform(predicate), *stages]
    return ms.DataLoader([*pipeline, ms.BatchTransform(BATCH)], **knobs)


def test_the_predicate_is_called_once_for_every_sample() -> None:
    third = Third()
    loader = filtered(third)
    assert third.seen == rows_of(N)["y"].tolist()
    list(loader.run(seed=0, epochs=2))
    assert len(third.seen) == N
    assert loader.steps_per_epoch == len(loader) == 4
    third.seen.clear()
    pipeline = ms.BatchTransform(BATCH)(ms.FilterTransform(third)(source()))
    assert third.seen == []  # until it is built
    assert pipeline.steps_per_epoch == 4
    assert len(third.seen) == N


@pytest.mark.parametrize(
    "knobs",
    [{"traced": True}, {"threads": 1, "prefetch": 0}, {"threads": 4, "prefetch": 5}],
)
def test_it_delivers_the_batches_of_a_subset(knobs: dict[str, Any]) -> None:
    plain = ms.DataLoader([ms.Subset(source(), KEPT), ms.BatchTransform(BATCH)])
    expected = specified(plain, plain.init_state(3), STEPS)
    mask = np.isin(np.arange(N), KEPT)
    for predicate in (Third(), mask):
        loader = filtered(predicate, **knobs)
        state = loader.init_state(3)
        states = specified(loader, state, STEPS)[2]  # with another check word
        wanted = (*expected[:2], states)
        for way in (iterated, stepped, jitted, scanned):
            same_walk(way(loader, state, STEPS), wanted)


def test_it_resumes_at_each_step_and_maps_over_seeds() -> None:
    loader = filtered(Third())
    resumes_everywhere(loader, loader.init_state(3), STEPS)
    maps_over_seeds(loader, 2, 2)


def test_random_stages_after_it_see_the_samples_of_a_subset() -> None:
    images = (np.arange(N * 4 * 4 * 1) % 251).astype(np.uint8).reshape(N, 4, 4, 1)
    pixels = ms.ArraySampleSource({"image": images})
    stages = [ms.RandomFlipTransform("image"), ms.BatchTransform(BATCH)]
    plain = ms.DataLoader([ms.Subset(pixels, KEPT), *stages])
    keep = np.isin(np.arange(N), KEPT)
    loader = ms.DataLoader([pixels, ms.FilterTransform(keep), *stages])
    expected = specified(plain, plain.init_state(3), STEPS)
    same_bytes(iterated(loader, loader.init_state(3), STEPS)[:2], expected[:2])


def test_which_samples_gives_the_original_indices() -> None:
    loader = filtered(Third())
    state = loader.init_state(3)
    for batch, mask in loader.iterate(state):
        indices = loader.which_samples(state)
        same_bytes(np.asarray(batch["y"]), rows_of(N)["y"][indices])
        assert mask.all()
        _, state, _ = loader.next_batch(state)
    part, _ = source().split(0.5, 0.5)
    two = ms.FilterTransform(lambda sample: sample["y"] % 2 == 0)
    for pipeline in (
        [part, ms.FilterTransform(Third())],
        [source(), ms.FilterTransform(Third()), two],
        [part, ms.FilterTransform(Third()), two],
        [source().folds(3)[1][0], two],
        [ms.Subset(source(), np.arange(N)[::-1]), two],
    ):
        loader = ms.DataLoader([*pipeline, ms.BatchTransform(BATCH)])
        state = loader.init_state(3)
        for _ in range(loader.steps_per_epoch):
            indices = loader.which_samples(state)
            batch, state, mask = loader.next_batch(state)
            whole = rows_of(N)["y"]
            if isinstance(pipeline[0], ms.Subset):
                whole = whole[::-1]
            wanted = np.where(indices < 0, 0, whole[np.maximum(indices, 0)])
            same_bytes(np.asarray(batch["y"]), wanted)
            assert np.array_equal(mask, indices >= 0)


def test_it_sees_the_samples_after_earlier_stages() -> None:
    third = Third("label")

    def doubled(sample: Any) -> Any:
        return {**sample, "label": np.int32(2 * sample["label"])}

    stages = [ms.RenameTransform({"y": "label"}), ms.PythonMapTransform(doubled)]
    pipeline = [source("sequential"), *stages, ms.FilterTransform(third)]
    loader = ms.DataLoader([*pipeline, ms.BatchTransform(BATCH)])
    assert third.seen == [2 * y for y in rows_of(N)["y"].tolist()]
    first, _ = next(loader.run(seed=0))
    assert first["label"].tolist() == [6, 12, 18, 24]
    assert sum(int(mask.sum()) for _, mask in loader.run(seed=0, epochs=1)) == len(KEPT)


def test_host_fields_reach_the_predicate() -> None:
    def sample(index: int) -> Any:
        return {"y": np.int32(index), "name": "even" if index % 2 == 0 else "odd"}

    def is_odd(sample: Any) -> bool:
        return sample["name"] == "odd"

    read = ms.DiskSampleSource(9, sample, host_fields=["name"], ordering="sequential")
    loader = ms.DataLoader([read, ms.FilterTransform(is_odd), ms.BatchTransform(4)])
    ((batch, _),) = loader.run(seed=0, epochs=1)
    assert batch["y"].tolist() == [1, 3, 5, 7]
    assert batch["name"] == ["odd"] * 4


@pytest.mark.parametrize("saved", ["dict", "bare"])
def test_states_of_another_filter_are_refused(saved: str) -> None:
    loader = filtered(Third())
    state = loader.init_state(3)
    other = filtered(lambda sample: sample["y"] % 3 == 1)  # keeps one more
    same_count = filtered(np.roll(np.isin(np.arange(N), KEPT), -1))
    without = ms.DataLoader([source(), ms.BatchTransform(BATCH)])
    equal = filtered(np.isin(np.arange(N), KEPT))
    if saved == "bare":
        for loader in (other, same_count, without):
            with pytest.raises(ValueError, match="belongs to another pipeline"):
                loader.next_batch(state)
        equal.next_batch(state)
        return
    text = loader.save(state)
    assert equal.restore(text) == state
    result = "the result of the filter was 16 samples with the hash [0-9a-f]{16} and is"
    with pytest.raises(ValueError, match=f"samples was 16 and is 17; {result} 17 samp"):
        other.restore(text)
    with pytest.raises(ValueError, match=f"pipeline: {result} 16 samples with"):
        same_count.restore(text)
    with pytest.raises(ValueError, match=f"{result} None"):
        without.restore(text)


def test_bad_predicates() -> None:
    def fail(sample: Any) -> bool:
        raise OverflowError("own") if sample["y"] == 8 else KeyError("y")

    name = "FilterTransform"
    nothing = f"stage 1, {name}, keeps none of 50 samples"
    fails(lambda: filtered(lambda sample: False), nothing, kind=ValueError)
    fails(lambda: filtered(np.zeros(N, bool)), nothing, kind=ValueError)
    short = f"{name}: predicate has 3 elements, but the source has 50 samples"
    fails(lambda: filtered(np.ones(3, bool)), short, kind=ValueError)
    wanted = f"{name} needs a function or a vector of booleans, found int64[3]"
    fails(lambda: ms.FilterTransform(np.arange(3)), wanted, "use Subset")
    fails(lambda: ms.FilterTransform(np.ones((2, 2), bool)), "found bool[2, 2]")
    returned = f"{name}: predicate returned 1 for sample 0; expected True or False"
    fails(lambda: filtered(lambda sample: 1), returned)
    fails(lambda: filtered(lambda sample: sample["x"] > 0), "for sample 0; expected")
    noted = f"{name} called predicate with sample 0"
    fails(lambda: filtered(fail), noted, kind=KeyError)
    last = filtered(lambda sample: sample["y"] == N)
    assert last.steps_per_epoch == 1
    part = source().split(20, 30)[0]
    fails(
        lambda: ms.DataLoader([part, ms.FilterTransform(np.ones(N, bool))]),
        "predicate has 50 elements, but the source has 20 samples",
        kind=ValueError,
    )


def random_function(sample: Any, seed: int) -> Any:
    return sample


EARLIER = {
    "draws": (lambda: ms.RandomFlipTransform("image"), ValueError),
    "worker that draws": (lambda: ms.PythonMapTransform(random_function), ValueError),
    "key": (lambda: ms.MapTransform(lambda value, key: value), TypeError),
    "map": (lambda: ms.MapTransform(lambda value, mask: value), TypeError),
    "callback": (lambda: ms.HostCallbackTransform(lambda value, mask: None), TypeError),
    "batch": (lambda: ms.BatchTransform(BATCH), ValueError),
}


@pytest.mark.parametrize("kind", EARLIER)
def test_it_stands_before_stages_that_draw_and_before_batching(kind: str) -> None:
    make, error = EARLIER[kind]
    stage = make()
    images = ms.ArraySampleSource({"image": np.zeros((5, 4, 4, 1), np.uint8)})
    keep = ms.FilterTransform(np.ones(5, bool))
    named = f"stage 1, {type(stage).__name__}" if kind != "batch" else "BatchTransform"
    fails(
        lambda: ms.DataLoader([images, stage, keep]),
        "stage 2, FilterTransform",
        named,
        kind=error,
    )


def test_sources() -> None:
    third = ms.FilterTransform(lambda sample: sample["y"] % 3 == 0)
    batches = ms.BatchTransform(BATCH)
    both = ms.concatenate([source(), source()])
    loader = ms.DataLoader([both, third, batches])
    assert sorted(labels(loader)) == sorted(rows_of(N)["y"][KEPT].tolist() * 2)
    zipped = ms.zip_sources({"a": source(), "b": source()})
    nested = ms.FilterTransform(lambda sample: sample["a"]["y"] % 3 == 0)
    assert ms.DataLoader([zipped, nested, batches]).steps_per_epoch == 4
    drawn = source(ms.WithReplacement(num_samples=80))
    loader = ms.DataLoader([drawn, third, batches])
    assert loader.steps_per_epoch == 20
    assert all(label % 3 == 0 for label in labels(loader))
    for named, order in (
        (source(ms.Weighted(np.ones(N))), "Weighted"),
        (source(ms.Listed(np.arange(5))), "Listed"),
        (ms.mix([source(), source()]), "MixtureOrder"),
        (source().split(25, 25, ordering=ms.Weighted(np.ones(25)))[0], "Weighted"),
    ):
        for build in (ms.DataLoader, lambda pipeline: pipeline[1](pipeline[0])):
            fails(
                lambda named=named, build=build: build([named, third]),
                f"stage 1, FilterTransform: the order {order} refers to samples",
                kind=ValueError,
            )


def labels(loader: ms.DataLoader) -> list[int]:
    """Returns the labels of the real rows of an epoch."""
    run = loader.run(seed=0, epochs=1)
    return [int(y) for batch, mask in run for y in batch["y"][np.asarray(mask)]]


def test_a_source_that_draws_needs_an_array() -> None:
    def sample(index: int, rng: Any) -> Any:
        return {"y": np.float32(index + rng.random() / 2)}

    drawing = ms.DiskSampleSource(6, sample, ordering="sequential")
    fails(
        lambda: ms.DataLoader([drawing, ms.FilterTransform(lambda s: s["y"] > 2)]),
        "stage 1, FilterTransform",
        "the samples of DiskSampleSource depend on the seed and the epoch",
        kind=ValueError,
    )
    keep = ms.FilterTransform(np.arange(6) > 3)
    loader = ms.DataLoader([drawing, keep, ms.BatchTransform(2)])
    assert labels(loader) == [4, 5]


def test_samples_that_fail_are_kept_and_skipped() -> None:
    def sample(index: int) -> Any:
        if index == 5:
            raise ValueError("corrupt")
        return {"y": np.int32(index)}

    read = ms.DiskSampleSource(9, sample, ordering="sequential")
    odd = ms.FilterTransform(lambda sample: sample["y"] % 2 == 1)
    pipeline = [read, odd, ms.BatchTransform(4)]
    with pytest.raises(ValueError, match="corrupt"):
        ms.DataLoader(pipeline)
    loader = ms.DataLoader(pipeline, on_error="skip")
    ((batch, mask),) = loader.run(seed=0, epochs=1)
    assert batch["y"].tolist() == [1, 3, 0, 7]
    assert mask.tolist() == [True, True, False, True]
    assert list(loader.skipped) == [5]


def test_progress(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    filtered(Third())
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    filtered(Third())
    shown = capsys.readouterr().err
    assert "filter: " in shown
    assert "50" in shown
    filtered(np.ones(N, bool))
    assert capsys.readouterr().err == ""


def by_label(sample: Any) -> bool:
    return bool(sample["y"] % 3 == 0)


def test_pickles_explains_and_copies() -> None:
    loader = filtered(by_label)
    copy = pickle.loads(pickle.dumps(loader))
    state = loader.init_state(3)
    same_walk(iterated(copy, state, STEPS), iterated(loader, state, STEPS))
    table = loader.explain()
    assert "16 samples" in table.splitlines()[2]
    assert "FilterTransform(keeps 16 of 50)" in table
    assert "predicate=by_label" in repr(loader)


def test_a_stream_clears_the_mask() -> None:
    third = ms.FilterTransform(lambda value: value["y"] % 3 == 0)
    assert third.changes_mask
    value = {"y": np.arange(6)}

    @jax.jit
    def run(value: Any, mask: Any) -> Any:
        return third.trace(value, mask, False)

    given = np.array([True, True, True, False, True, True])
    after, mask = run(value, given)
    same_bytes(after["y"], value["y"].astype(np.int32))
    assert mask.tolist() == [True, False, False, False, False, False]
    for y, keep in ((3, True), (4, False)):
        assert bool(run({"y": np.int32(y)}, np.True_)[1]) is keep
        assert bool(run({"y": np.int32(y)}, np.False_)[1]) is False
    wrong = ms.FilterTransform(lambda value: value["y"])
    fails(lambda: wrong.trace(value, given, False), "expected a boolean scalar")
    flags = ms.FilterTransform(given)
    fails(lambda: flags.trace(value, given, False), "Pass a function")


# The cache.


def cached(predicate: Any, path: Path, head: Any = None) -> ms.DataLoader:
    stages = [ms.FilterTransform(predicate, cache=path), ms.BatchTransform(BATCH)]
    return ms.DataLoader([source() if head is None else head, *stages])


def test_a_cache_replaces_the_calls(tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    third = Third()
    loader = cached(third, path)
    assert len(third.seen) == N
    assert [file.name for file in tmp_path.iterdir()] == ["kept.npz"]
    third.seen.clear()
    again = cached(third, path)
    assert third.seen == []
    state = loader.init_state(3)
    same_walk(iterated(again, state, STEPS), iterated(loader, state, STEPS))
    part, other = source().split(0.5, 0.5)
    path = tmp_path / "part.npz"
    loader = cached(third, path, part)
    third.seen.clear()
    again = cached(third, path, part)
    assert third.seen == []
    assert again.init_state(3) == loader.init_state(3)
    with pytest.raises(ValueError, match="belongs to other samples: the hash"):
        cached(third, path, other)


def test_a_failed_predicate_leaves_no_cache(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        cached(lambda sample: sample["unknown"], tmp_path / "kept.npz")
    assert list(tmp_path.iterdir()) == []


def test_bad_caches(tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    third = Third()
    cached(third, path)
    good = path.read_bytes()
    third.seen.clear()
    smaller = ms.ArraySampleSource(rows_of(N - 1))
    message = "is for 50 samples, but the source has 49. Delete the file"
    with pytest.raises(ValueError, match=message):
        cached(third, path, smaller)
    damaged = {
        "cut": good[: len(good) // 2],
        "empty": b"",
        "text": b"not a cache",
    }
    for content in damaged.values():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"kept.npz' is damaged or is not a cache"):
            cached(third, path)
    with np.load(io.BytesIO(good)) as file:
        arrays = dict(file)
    for change in ({"kept": KEPT + 1}, {"hash": "0" * 16}, {"kept": KEPT + N}):
        np.savez(path, **{**arrays, **change})
        with pytest.raises(ValueError, match="is damaged or belongs to other samples"):
            cached(third, path)
    for change in ({"kept": KEPT * 0.5}, {"kept": np.array([None])}):
        np.savez(path, **{**arrays, **change})
        with pytest.raises(ValueError, match="is damaged or is not a cache"):
            cached(third, path)
    np.savez(path, samples=N)
    with pytest.raises(ValueError, match="is damaged or is not a cache"):
        cached(third, path)
    assert third.seen == []  # a bad cache is never replaced
    with pytest.raises(FileNotFoundError, match="the folder of cache="):
        cached(third, tmp_path / "missing" / "kept.npz")
    assert third.seen == []
    with pytest.raises(ValueError, match="stores the result of a function"):
        ms.FilterTransform(np.ones(3, bool), cache=path)
