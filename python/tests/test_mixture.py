"""Mixtures: several sources in exact proportions, each with its own epochs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import rows_of
from millstream import ArraySampleSource, BatchTransform, DataLoader, Shuffle
from millstream._sources.mixture import whole_weights
from walks import (
    indexed,
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

SIZES = (10, 150, 7)
FIRSTS = (0, 10, 160, 167)


def data_of(number: int, n: int) -> dict[str, np.ndarray]:
    """Returns rows that identify their source."""
    rows = rows_of(n)
    return {"x": rows["x"] + 1000 * number, "y": rows["y"]}


def sources(*orderings: Any) -> list[ArraySampleSource]:
    orderings = orderings or ("shuffle", Shuffle(window=2, block_size=16), "sequential")
    return [
        ArraySampleSource(data_of(i, n), ordering)
        for i, (n, ordering) in enumerate(zip(SIZES, orderings, strict=True))
    ]


def all_rows() -> dict[str, np.ndarray]:
    parts = [data_of(i, n) for i, n in enumerate(SIZES)]
    return {key: np.concatenate([part[key] for part in parts]) for key in ("x", "y")}


def loader_of(source: Any, batch: int = 8, **more: Any) -> DataLoader:
    remainder = more.pop("remainder", "pad")
    return DataLoader([source, BatchTransform(batch, remainder=remainder)], **more)


def samples_of(source: Any, epochs: int, seed: int = 0) -> np.ndarray:
    """Returns the samples of all epochs, one after the other."""
    loader = loader_of(source)
    state = loader.init_state(seed)
    found = []
    for _ in range(epochs * loader.steps_per_epoch):
        found.append(loader.which_samples(state))
        _, state, _ = loader.next_batch(state)
    samples = np.concatenate(found)
    return samples[samples >= 0]


def component_of(samples: np.ndarray) -> np.ndarray:
    return np.searchsorted(FIRSTS[1:], samples, side="right")


@pytest.mark.parametrize("weights", [[5, 3, 2], [0.7, 0.2, 0.1], [1, 1000, 1]])
def test_proportions_hold_in_every_stretch(weights: list[float]) -> None:
    turns = component_of(samples_of(ms.mix(sources(), weights), 12))
    shares = np.asarray(weights) / np.sum(weights)
    taken = np.cumsum(turns[:, None] == np.arange(3), axis=0)
    owed = np.arange(1, len(turns) + 1)[:, None] * shares
    off = np.concatenate([np.zeros((1, 3)), taken - owed])
    assert np.abs(off).max() < 2
    for stretch in (1, 8, 10, 100, 1000):
        assert np.abs(off[stretch:] - off[:-stretch]).max() < 4


def test_two_sources_are_never_off_by_more_than_a_half() -> None:
    for a, b in itertools.product((1, 2, 3, 7, 10), (1, 4, 9)):
        turns = samples_of(
            ms.mix([ArraySampleSource(rows_of(1))] * 2, [a, b], num_samples=100), 2
        )
        off = np.cumsum(turns) - np.arange(1, 201) * b / (a + b)
        assert np.abs(off).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("num_samples", [None, 1, 40, 1001])
def test_each_source_goes_through_its_own_epochs(num_samples: int | None) -> None:
    mixture = ms.mix(sources(), [5, 3, 2], num_samples=num_samples)
    length = num_samples or sum(SIZES)
    samples = samples_of(mixture, max(1, 1500 // length))
    turns = component_of(samples)
    for i, n in enumerate(SIZES):
        own = samples[turns == i] - FIRSTS[i]
        epochs = [own[at : at + n] for at in range(0, len(own) - n + 1, n)]
        assert len(epochs) >= 2
        for one in epochs:
            np.testing.assert_array_equal(np.sort(one), np.arange(n))
        if i != 2:
            assert not np.array_equal(epochs[0], epochs[1])
        else:
            np.testing.assert_array_equal(epochs[0], np.arange(n))


def test_epochs_of_the_mixture_are_ranges_of_one_sequence() -> None:
    whole = samples_of(ms.mix(sources(), [5, 3, 2], num_samples=720), 1)
    for length in (1, 16, 80, 240):
        cut = samples_of(
            ms.mix(sources(), [5, 3, 2], num_samples=length), 720 // length
        )
        np.testing.assert_array_equal(cut, whole)


def test_without_weights_an_epoch_has_every_sample_once() -> None:
    samples = samples_of(ms.mix(sources()), 4)
    for epoch in samples.reshape(4, sum(SIZES)):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(sum(SIZES)))
    assert loader_of(ms.mix(sources())).steps_per_epoch == -(-sum(SIZES) // 8)


def test_sources_of_one_size_are_shuffled_apart() -> None:
    pair = [ArraySampleSource(rows_of(200)), ArraySampleSource(rows_of(200))]
    samples = samples_of(ms.mix(pair), 1)
    one, other = samples[samples < 200], samples[samples >= 200] - 200
    assert np.count_nonzero(one == other) < 10


@pytest.mark.parametrize(
    ("weights", "num_samples", "remainder"),
    [
        ([6, 3, 1], None, "pad"),
        ([6, 3, 1], None, "wrap"),
        ([0, 1, 2], 50, "drop"),
        (None, 21, "wrap"),
        ([1, 0, 0], 9, "pad"),
        ([0.1, 1, 3], 77, "pad"),
    ],
)
def test_every_delivery_gives_the_same(
    weights: list[float] | None, num_samples: int | None, remainder: str
) -> None:
    mixture = ms.mix(sources(), weights, num_samples=num_samples)
    loader = loader_of(mixture, remainder=remainder)
    traced = loader_of(mixture, remainder=remainder, traced=True)
    steps = 40
    for seed in (0, 123456789):
        state = loader.init_state(seed)
        expected = specified(loader, state, steps)
        same_walk(indexed(loader, all_rows(), state, steps), expected)
        same_walk(jitted(traced, state, steps), expected)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(stepped(loader, state, steps), expected)
    same_walk(jitted(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)


@pytest.mark.parametrize("remainder", ["pad", "wrap"])
def test_the_last_epochs_are_the_same_when_traced(remainder: str) -> None:
    """At the end, counters need two words, and epochs of components wrap around."""
    large = (1 << 31) - 1
    pair = sources()[:2]
    mixture = ms.mix(pair, [3, large - 3], num_samples=large)
    loader = loader_of(mixture, remainder=remainder)
    traced = loader_of(mixture, remainder=remainder, traced=True)
    step_traced = jax.jit(traced.next_batch)
    words = np.array(loader.init_state(3).words)
    for epoch in (1, 70_000, (1 << 31) + 5, (1 << 32) - 1):
        for step in (0, 1000, loader.steps_per_epoch - 1):
            words[3], words[4] = epoch, step
            state = ms.LoaderState(words.copy())
            batch, after, mask = loader.next_batch(state)
            found, found_after, found_mask = step_traced(state)
            same_bytes((found, found_mask), (batch, mask))
            same_bytes(found_after.words, np.asarray(after.words))


def test_a_traced_mixture_can_be_scanned() -> None:
    mixture = ms.mix(sources()[:2], [6, 3])
    loader, traced = loader_of(mixture), loader_of(mixture, traced=True)
    state = loader.init_state(0)
    same_walk(scanned(traced, state, 40), specified(loader, state, 40))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(threads: int) -> None:
    mixture = ms.mix(sources(), [5, 3, 2], num_samples=1000)
    loader = loader_of(mixture, 100, threads=threads, prefetch=3)
    state = loader.init_state(5)
    expected = specified(loader_of(mixture, 100), state, 25)
    same_walk(iterated(loader, state, 25), expected)


def test_a_state_resumes_at_every_step() -> None:
    loader = loader_of(ms.mix(sources(), [5, 3, 2], num_samples=99))
    resumes_everywhere(loader, loader.init_state(7), 3 * loader.steps_per_epoch)


def test_seeds_may_be_mapped_over() -> None:
    for traced in (False, True):
        pair = sources("shuffle", "sequential", "shuffle")[:2]
        loader = loader_of(ms.mix(pair, [5, 3]), traced=traced)
        maps_over_seeds(loader, 4, 1)


def test_mixtures_can_be_mixed() -> None:
    inner = ms.mix(sources()[:2], [1, 1], num_samples=30)
    outer = ms.mix([inner, sources()[2]], [3, 1], num_samples=64)
    loader, traced = loader_of(outer), loader_of(outer, traced=True)
    state = loader.init_state(2)
    expected = specified(loader, state, 30)
    same_walk(indexed(loader, all_rows(), state, 30), expected)
    same_walk(jitted(traced, state, 30), expected)
    turns = component_of(samples_of(outer, 4))
    assert list(np.bincount(turns)) == [96, 96, 64]


def test_every_ordering_can_be_a_component() -> None:
    mixture = ms.mix(
        sources(
            ms.WithReplacement(4),
            ms.Weighted(np.arange(150.0), 33),
            ms.Listed([[6, 0, 3], [1, 1, 2]], shuffle=True),
        ),
        [4, 3, 2],
    )
    assert loader_of(mixture, 1).steps_per_epoch == 4 + 33 + 3
    loader, traced = loader_of(mixture), loader_of(mixture, traced=True)
    state = loader.init_state(2)
    same_walk(jitted(traced, state, 30), specified(loader, state, 30))


def test_parts_of_a_split_can_be_mixed() -> None:
    train, other = ArraySampleSource(rows_of(50)).split(40, 10)
    loader = loader_of(ms.mix([train, other], [1, 1]))
    state = loader.init_state(0)
    seen = np.concatenate([loader.which_samples(s) for s in _states(loader, state, 20)])
    assert len(np.unique(seen[(seen >= 0) & (seen < 50)])) == 40
    assert len(np.unique(seen[seen >= 50])) == 10


def _states(loader: DataLoader, state: Any, steps: int) -> list[Any]:
    found = []
    for _ in range(steps):
        found.append(state)
        _, state, _ = loader.next_batch(state)
    return found


def test_stages_follow_a_mixture() -> None:
    images = [
        ArraySampleSource({"image": np.full((n, 4, 4, 1), n, np.uint8)})
        for n in (10, 20)
    ]
    loader = DataLoader(
        [
            ms.mix(images, [1, 1]),
            ms.NormalizeImageTransform(),
            BatchTransform(6),
            ms.MapTransform(lambda batch, mask: {"mean": batch["image"].mean()}),
        ]
    )
    batch, _, _ = jax.jit(loader.next_batch)(loader.init_state(0))
    np.testing.assert_allclose(batch["mean"], 15 / 255, rtol=1e-6)


def test_the_state_of_another_mixture_is_an_error() -> None:
    loader = loader_of(ms.mix(sources(), [5, 3, 2]))
    for other in (
        ms.mix(sources(), [5, 3, 1]),
        ms.mix(sources(), [5, 3, 2], num_samples=100),
        ms.mix(sources("shuffle", "shuffle", "shuffle"), [5, 3, 2]),
    ):
        with pytest.raises(ValueError, match="state"):
            loader.next_batch(loader_of(other).init_state(0))
    loader.next_batch(loader_of(ms.mix(sources(), [50, 30, 20])).init_state(0))


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ([0.7, 0.3], (7, 3)),
        ([0.1, 0.1, 0.1], (1, 1, 1)),
        ([1 / 3, 2 / 3], (1, 2)),
        ([0.123456, 0.876544], (1929, 13696)),
        ([60_000, 50_000, 1_281_167], (60_000, 50_000, 1_281_167)),
        ([6, 4, 0], (3, 2, 0)),
        ([np.float64(0.25), np.int64(1)], (1, 4)),
        ([1e300, 3e300], (1, 3)),
        ([1e-300, 1.0], (1, 1 << 30)),
        ([2**0.5, 1.0], (628983398, 444758426)),
    ],
)
def test_weights_become_whole_numbers(weights: Any, whole: tuple[int, ...]) -> None:
    found = whole_weights(weights, len(weights))
    assert found == whole
    shares, total = np.asarray(weights, float), sum(found)
    np.testing.assert_allclose(
        np.asarray(found) / total, shares / shares.sum(), atol=2**-29
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], "found 2 weights for 3 sources"),
        ([1, -1, 1], "weight 1 is -1"),
        ([1, 1, float("nan")], "weight 2 is nan"),
        ([1, float("inf"), 1], "weight 1 is inf"),
        ([0, 0, 0], "all weights are 0"),
    ],
)
def test_wrong_weights_are_errors(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ms.mix(sources(), weights)


def test_components_that_differ_are_named() -> None:
    first = ArraySampleSource({"x": np.zeros((4, 3), np.float32)})
    cases: list[tuple[Any, str]] = [
        ({"x": np.zeros((4, 2), np.float32)}, r"and float32\[2\] in component 1"),
        ({"x": np.zeros((4, 3), np.int32)}, r"and int32\[3\] in component 1"),
        ({"y": np.zeros((4, 3), np.float32)}, "those of component 1 have"),
        ((np.zeros((4, 3), np.float32),), "those of component 1 have"),
    ]
    for data, message in cases:
        with pytest.raises(ValueError, match=message):
            ms.mix([first, ArraySampleSource(data)])
        with pytest.raises(
            ValueError, match=message.replace("component 1", "component 2")
        ):
            ms.mix([first, first, ArraySampleSource(data)])
    with pytest.raises(ValueError, match="sources is empty"):
        ms.mix([])
    with pytest.raises(TypeError, match=r"component 1 .*, found Pipeline"):
        ms.mix([first, BatchTransform(2)(first)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"component 0 .*, found dict"):
        ms.mix([{"x": np.zeros(3)}])  # type: ignore[list-item]


def test_weights_of_any_size_are_accepted() -> None:
    assert whole_weights([10**400, 1, 1], 3) == (1 << 30, 1, 1)


def test_weights_are_numbers_in_a_list() -> None:
    a, b = sources()[:2]
    for wrong in ({0: 1, 1: 2}, "12"):
        with pytest.raises(TypeError, match="expected weights to be a list"):
            ms.mix([a, b], wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mix: weight 1 must be a number, not '2'"):
        ms.mix([a, b], [1, "2"])  # type: ignore[list-item]


def test_its_samples_are_the_concatenated_samples() -> None:
    a, b = ms.ArraySampleSource(np.arange(5)), ms.ArraySampleSource(np.arange(10, 13))
    mixture = ms.mix([a, b], [1, 1], num_samples=100)
    assert len(mixture) == mixture.num_samples == 8
    assert [int(x) for x in mixture] == [0, 1, 2, 3, 4, 10, 11, 12]
    assert mixture[-1] == 12
    assert mixture.steps_per_epoch == 100
    assert sorted(int(x) for x in ms.Subset(mixture, [7, 0], "shuffle")) == [0, 12]
    parts = mixture.split(3, 5, ordering="sequential")
    assert sorted(int(x) for part in parts for x in part) == sorted(map(int, mixture))


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True])
def test_wrong_lengths_are_errors(wrong: Any) -> None:
    with pytest.raises(ValueError, match="num_samples must be a whole number"):
        ms.mix(sources(), num_samples=wrong)


def test_an_epoch_of_more_than_32_bits_can_be_traced() -> None:
    mixture = ms.mix(sources(), num_samples=1 << 40)
    loader, traced = loader_of(mixture), loader_of(mixture, traced=True)
    words = np.array(loader.init_state(0).words)
    words[4:6] = (1 << 32) - 2, 3  # the step's low and high word
    state = ms.LoaderState(words)
    same_walk(jitted(traced, state, 4), specified(loader, state, 4))


def test_files_are_mixed_as_arrays_are(tmp_path: Path) -> None:
    """Sources in memory, on disk, or both give the same batches and states."""
    memory = sources()
    disk = []
    for i, source in enumerate(memory):
        paths = {name: tmp_path / f"{name}{i}.npy" for name in ("x", "y")}
        for name, path in paths.items():
            np.save(path, data_of(i, SIZES[i])[name])
        disk.append(ms.NpySource(paths, ordering=source.ordering))
    expected_loader = loader_of(ms.mix(memory, [5, 3, 2]))
    state = expected_loader.init_state(4)
    expected = specified(expected_loader, state, 50)
    for mixed in (disk, [memory[0], disk[1], disk[2]]):
        loader = loader_of(ms.mix(mixed, [5, 3, 2]), threads=2, prefetch=3)
        same_walk(iterated(loader, state, 50), expected)
        same_walk(jitted(loader, state, 50), expected)
        same_walk(scanned(loader, state, 50), expected)


def test_jax_arrays_are_mixed_in_place() -> None:
    data = [jax.tree.map(jnp.asarray, data_of(i, n)) for i, n in enumerate(SIZES)]
    mixture = ms.mix([ArraySampleSource(one) for one in data], [1, 1, 1])
    loader = loader_of(mixture)
    state = loader.init_state(0)
    same_walk(specified(loader, state, 20), indexed(loader, all_rows(), state, 20))
