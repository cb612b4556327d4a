"""Random arguments of functions: seed, key and rng, in sources and in stages."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
import random_functions as fns
from millstream import BatchTransform, DataLoader, DiskSampleSource, PythonMapTransform
from millstream._workers.randomness import generator
from walks import (
    indexed,
    iterated,
    jitted,
    resumes_everywhere,
    same_bytes,
    same_walk,
    scanned,
    specified,
    stepped,
)

N, BATCH, SEED = 12, 5, 3
KINDS = ["thread", "process"]
SPEC = {
    "i": jax.ShapeDtypeStruct((), np.int32),
    "part": jax.ShapeDtypeStruct((), np.int32),
    "seed": jax.ShapeDtypeStruct((2,), np.uint32),
}
DRAWS = {"draws": jax.ShapeDtypeStruct((5,), np.float32)}


def disk(length: int, part: int = 0, **more: Any) -> Any:
    return DiskSampleSource(length, fns.Part(part), **more)


def fill(length: int, part: int = 0, **more: Any) -> Any:
    return ms.fill_source(fns.FillPart(part), range(length), SPEC, **more)


FACTORIES = {"disk": (disk, fns.SOURCE), "fill": (fill, fns.FUNCTION)}


def two(make: Any) -> list[Any]:
    return [make(5, 0), make(7, 1)]


def zipped(make: Any) -> Any:
    other = ms.ArraySampleSource({"other": np.arange(N, dtype=np.int32)})
    return ms.zip_sources({"drawn": make(N), "array": other})


COMBINED: dict[str, Any] = {
    "plain": lambda make: make(N),
    "sequential": lambda make: make(N, ordering="sequential"),
    "concatenate": lambda make: ms.concatenate(two(make)),
    "subset": lambda make: ms.Subset(make(20), [19, 3, 4, 7, 0, 12]),
    "slice": lambda make: make(20)[18:2:-2],
    "split": lambda make: make(N).split(0.5, 0.5)[1],
    "folds": lambda make: make(N).folds(3)[1][0],
    "mix": lambda make: ms.mix(two(make), [1, 3]),
    "zip": zipped,
    "nested": lambda make: ms.concatenate(
        [make(9, 0)[::2], ms.concatenate(two(make)).split(0.5, 0.5)[0]]
    ),
    "part of a mixture": lambda make: ms.Subset(
        ms.mix(two(make)), [0, 4, 5, 11], "shuffle"
    ),
}


def drawn_fields(batch: Any) -> Any:
    return batch.get("drawn", batch)


def check_seeds(loader: DataLoader, walk: Any, stage: int) -> list[set[int]]:
    """Compares the seeds of a walk. Returns the seeds of each epoch."""
    batches, masks, _ = walk
    fields = drawn_fields(batches)
    steps, found = loader.steps_per_epoch, seeds_in(batches)
    epochs: list[set[int]] = []
    for step, mask in enumerate(masks):
        epoch = step // steps
        epochs += [set()] * (epoch == len(epochs))
        for k in np.flatnonzero(mask):
            index = int(fields["i"][step, k])
            assert found[step, k] == fns.seed_of(SEED, epoch, index, stage), (epoch, k)
            epochs[epoch].add(int(found[step, k]))
    return epochs


def seeds_in(batches: Any) -> np.ndarray:
    return fns.seeds_of(drawn_fields(batches)["seed"])


@pytest.mark.parametrize("combination", COMBINED)
@pytest.mark.parametrize("factory", FACTORIES)
def test_seeds_depend_on_the_seed_the_epoch_and_the_own_index(
    factory: str, combination: str
) -> None:
    make, stage = FACTORIES[factory]
    source = COMBINED[combination](functools.partial(make, workers=2))
    loader = DataLoader([source, BatchTransform(BATCH)])
    state, steps = loader.init_state(SEED), 2 * loader.steps_per_epoch
    expected = specified(loader, state, steps)
    first, second = check_seeds(loader, expected, stage)
    assert first
    assert not first & second
    for walk in (iterated, stepped, jitted, scanned):
        same_walk(walk(loader, state, steps), expected)
    resumes_everywhere(loader, state, steps)
    other = specified(loader, loader.init_state(SEED + 1), steps)
    assert not np.isin(seeds_in(other[0])[other[1]], [*first, *second]).any()


@pytest.mark.parametrize("combination", ["concatenate", "split", "mix", "zip"])
@pytest.mark.parametrize("factory", FACTORIES)
def test_seeds_in_worker_processes(factory: str, combination: str) -> None:
    make, stage = FACTORIES[factory]
    walks = []
    for kind in KINDS:
        source = COMBINED[combination](functools.partial(make, worker_kind=kind))
        loader = DataLoader([source, BatchTransform(BATCH)])
        steps = 2 * loader.steps_per_epoch
        walks.append(iterated(loader, loader.init_state(SEED), steps))
        check_seeds(loader, walks[-1], stage)
    same_walk(*walks)


@pytest.mark.parametrize("factory", FACTORIES)
def test_rows_that_wrap_get_the_seeds_of_the_next_epoch(factory: str) -> None:
    make, stage = FACTORIES[factory]
    source = ms.concatenate([make(5, 0), make(7, 1)], ordering="sequential")
    loader = DataLoader([source, BatchTransform(BATCH, remainder="wrap")])
    batches, _, _ = iterated(loader, loader.init_state(SEED), 5)
    indices, seeds = batches["i"].ravel(), seeds_in(batches).ravel()
    expected = [
        fns.seed_of(SEED, row // N, int(i), stage) for row, i in enumerate(indices)
    ]
    assert seeds.tolist() == expected


@pytest.mark.parametrize("factory", FACTORIES)
def test_single_samples_have_seed_0_and_epoch_0(factory: str) -> None:
    make, stage = FACTORIES[factory]
    source = make(N)
    both = ms.concatenate([make(4, 1), source])
    for sample, index in (
        (source[7], 7),
        (source[-1], 11),
        (source[2:][5], 7),
        (both[11], 7),
        (both[3], 3),
    ):
        assert sample["i"] == index
        assert fns.seeds_of(sample["seed"]) == fns.seed_of(0, 0, index, stage)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_that_fail_for_a_seed_are_skipped(kind: str) -> None:
    source = DiskSampleSource(N, fns.failing, SPEC, worker_kind=kind)
    pair = [source, disk(3, 1, worker_kind=kind)]
    loader = DataLoader([ms.concatenate(pair), BatchTransform(BATCH)], on_error="skip")
    state, steps = loader.init_state(SEED), 3 * loader.steps_per_epoch
    expected = specified(loader, state, steps)
    check_seeds(loader, expected, fns.SOURCE)
    words, skipped = np.asarray(state.words), 0
    for step in range(steps):
        epoch = step // loader.steps_per_epoch
        for k, sample in enumerate(loader.which_samples(words)):
            bad = sample < 0 or (
                sample < N
                and fns.fails(fns.seed_of(SEED, epoch, int(sample), fns.SOURCE))
            )
            assert expected[1][step, k] == (not bad)
            skipped += sample >= 0 and bad
        words = expected[2][step]
    assert skipped > 3
    for walk in (iterated, jitted, scanned):
        same_walk(walk(loader, state, steps), expected)


def test_host_fields_of_random_samples() -> None:
    source = DiskSampleSource(N, fns.with_text)
    assert source.host_field_names == ("text",)
    loader = DataLoader([source, BatchTransform(4)])
    for epoch, run in enumerate(loader.epochs(2, seed=SEED)):
        for batch, _ in run:
            assert batch["text"] == [
                f"{i} {fns.seed_of(SEED, epoch, int(i), fns.SOURCE)}"
                for i in batch["i"]
            ]


# Fixed values, which never change.

FILL = [
    [3547177416978640696, 14448696057363865562, 7847885286670883632],
    [15343785625997199507, 15687552457865946276, 1335868328470642918],
]
SAMPLES = [
    [6553432474751583737, 8002251755056524169, 8768204250954062072],
    [18313766964636979527, 13003321411622303779, 2470826724582839831],
]
AFTER_FILL = [
    [5519968049896979309, 1691813575259134768, 5273650682404230456],
    [12407428906561476256, 5878162173264734409, 6415963959412806014],
]

KNOWN_NUMBERS = [
    [467666902, 1593008007],
    [1877451470, 1442800299],
    [869302418, 1461628219],
]


def after(sample: Any, seed: int) -> Any:
    return {**sample, "later": fns.words_of(seed)}


def known_seeds(source: Any, *fields: str) -> list[list[list[int]]]:
    """Returns the seeds of two epochs for samples 0 to 2, of each field."""
    loader = DataLoader([source, PythonMapTransform(after), BatchTransform(3)])
    batches, _, _ = iterated(loader, loader.init_state(7), 2)
    return [fns.seeds_of(batches[field]).tolist() for field in fields]


def test_fill_sources_and_functions_after_them_keep_their_seeds() -> None:
    source = fill(3, ordering="sequential")
    assert known_seeds(source, "seed", "later") == [FILL, AFTER_FILL]
    several = ms.concatenate([fill(1), fill(2)], ordering="sequential")
    assert known_seeds(several, "later") == [AFTER_FILL]
    later = [[fns.seed_of(7, epoch, i, 1) for i in range(3)] for epoch in range(2)]
    assert later == AFTER_FILL


def test_a_function_after_batching_counts_a_fill_source() -> None:
    source = fill(3, ordering="sequential")
    loader = DataLoader([source, BatchTransform(3), PythonMapTransform(after)])
    batches, _, _ = iterated(loader, loader.init_state(7), 2)
    assert fns.seeds_of(batches["later"]).tolist() == AFTER_FILL


def test_sample_functions_share_no_seed_with_later_stages() -> None:
    source = disk(3, ordering="sequential")
    own, later = known_seeds(source, "seed", "later")
    assert own == SAMPLES
    assert later == FILL  # as after a source that draws nothing


def test_rng_draws_the_same_numbers_in_every_version() -> None:
    def numbers(item: int, arrays: Any, rng: np.random.Generator) -> None:
        arrays["x"][:] = rng.integers(0, 2**31, 2)

    spec = {"x": jax.ShapeDtypeStruct((2,), np.int32)}
    source = ms.fill_source(numbers, range(3), spec, ordering="sequential")
    loader = DataLoader([source, BatchTransform(3)])
    batch, _, _ = loader.next_batch(loader.init_state(7))
    first = np.random.Generator(np.random.Philox(key=FILL[0][0]))
    assert np.asarray(batch["x"][0]).tolist() == first.integers(0, 2**31, 2).tolist()
    assert np.asarray(batch["x"]).tolist() == KNOWN_NUMBERS


# The argument.


@pytest.mark.parametrize("kind", KINDS)
def test_rng_is_rekeyed_for_each_sample(kind: str) -> None:
    by_seed = DiskSampleSource(40, fns.with_seed)
    by_rng = DiskSampleSource(40, fns.with_rng, workers=3, worker_kind=kind)
    walks = []
    for source in (by_seed, by_rng):
        loader = DataLoader([source, BatchTransform(7)])
        walks.append(iterated(loader, loader.init_state(SEED), 12)[0]["draws"])
    same_bytes(*walks)
    assert len(np.unique(walks[0][:, :, 3])) == 80 + 1  # and zero in padding


@pytest.mark.parametrize("kind", KINDS)
def test_rng_in_stages_and_fill_functions(kind: str) -> None:
    source = ms.ArraySampleSource({"i": np.arange(9, dtype=np.int32)}, "sequential")
    stage = PythonMapTransform(fns.map_rng, workers=2, worker_kind=kind)
    filled = ms.fill_source(
        fns.fill_rng, range(9), DRAWS, ordering="sequential", worker_kind=kind
    )
    expected = [
        fns.expected_draws(fns.seed_of(SEED, epoch, i, fns.FUNCTION))
        for epoch in range(2)
        for i in range(9)
    ]
    for pipeline in ([source, stage], [filled]):
        loader = DataLoader([*pipeline, BatchTransform(9)])
        assert loader._built.depends_on_epoch
        batches, _, _ = iterated(loader, loader.init_state(SEED), 2)
        same_bytes(batches["draws"], np.stack(expected).reshape(2, 9, 5))


def test_each_thread_has_one_generator() -> None:
    barrier = threading.Barrier(2, timeout=60)

    def draw(seed: int) -> tuple[Any, list[float]]:
        barrier.wait()
        rng = generator(seed)
        barrier.wait()
        numbers = rng.random(3).tolist()
        barrier.wait()
        return rng, numbers + rng.random(3).tolist()

    with ThreadPoolExecutor(2) as threads:
        (a, one), (b, other) = threads.map(draw, [5, 6])
    assert a is not b
    for seed, numbers in ((5, one), (6, other)):
        fresh = np.random.Generator(np.random.Philox(key=seed))
        assert numbers == fresh.random(6).tolist()
    assert generator(5) is generator(6)


def test_rng_cannot_spawn() -> None:
    def spawn(index: int, rng: Any) -> Any:
        return {"x": rng.spawn(1)[0].random()}

    with pytest.raises(TypeError, match="spawn"):
        DiskSampleSource(N, spawn)


def test_key_is_the_seed_in_two_words() -> None:
    spec = {"seed": SPEC["seed"]}
    for source, stage in (
        (DiskSampleSource(N, fns.with_key), fns.SOURCE),
        (ms.fill_source(fns.fill_key, range(N), spec), fns.FUNCTION),
        (ms.fill_source(fns.fill_any_name, range(N), spec), fns.FUNCTION),
    ):
        for i in range(N):
            seed = fns.seed_of(0, 0, i, stage)
            assert source[i]["seed"].tolist() == [seed >> 32, seed & fns.MASK]


def test_the_first_sample_is_made_twice_with_the_seed_of_sample_0() -> None:
    seen = []

    def load(index: int, seed: int) -> Any:
        seen.append((index, seed))
        return {"x": np.random.default_rng(seed).random(2)}

    source = DiskSampleSource(N, load)
    assert seen == [(0, fns.seed_of(0, 0, 0, fns.SOURCE))] * 2
    source[0]
    assert len(set(seen)) == 1


def test_a_parameter_with_a_default_keeps_it() -> None:
    source = DiskSampleSource(N, fns.with_defaults)
    assert source[4]["x"].tolist() == [4, 5, 6, 1]
    loader = DataLoader([source, BatchTransform(N)])
    data = {"x": np.array([[i, 5, 6, 1] for i in range(N)], np.int32)}
    state = loader.init_state(SEED)
    same_walk(iterated(loader, state, 2), indexed(loader, data, state, 2))
    bound = functools.partial(fns.with_seed, seed=9)
    assert DiskSampleSource(N, bound)[4]["seed"].tolist() == [0, 9]

    def fn(sample: Any, rng: Any = None) -> Any:
        return {"none": np.array(rng is None)}

    pipeline = [source, PythonMapTransform(fn), BatchTransform(N)]
    loader = DataLoader(pipeline)
    assert np.asarray(loader.next_batch(loader.init_state(0))[0]["none"]).all()


def test_the_first_parameter_is_the_index_whatever_its_name() -> None:
    assert DiskSampleSource(N, fns.named_seed)[4]["x"].tolist() == [4, 8]
    stage = PythonMapTransform(lambda key: {"y": key["x"] + 1})
    source = DiskSampleSource(N, fns.named_seed, ordering="sequential")
    loader = DataLoader([source, stage, BatchTransform(2)])
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert np.asarray(batch["y"]).tolist() == [[1, 1], [2, 3]]


def test_two_random_arguments_are_an_error() -> None:
    with pytest.raises(TypeError, match=r"DiskSample.* takes both seed and rng"):
        DiskSampleSource(N, lambda index, rng, seed: {"x": index})
    with pytest.raises(TypeError, match=r"PythonMap.* takes both key and rng\. R"):
        PythonMapTransform(lambda sample, rng, key=None: sample)


@pytest.mark.parametrize(
    ("source", "draws"),
    [
        (disk(N, ordering="sequential"), True),
        (fill(N, ordering="sequential"), True),
        (disk(N, ordering="sequential")[2:], True),
        (ms.concatenate([disk(N), fill(N)], ordering="sequential"), True),
        (DiskSampleSource(N, fns.with_defaults, ordering="sequential"), False),
    ],
)
def test_repeating_an_epoch_warns_if_the_source_draws(source: Any, draws: bool) -> None:
    loader = DataLoader([source, BatchTransform(N)])
    state = loader.init_state(0)
    list(loader.iterate(state))
    if draws:
        with pytest.warns(UserWarning, match="repeats that epoch"):
            list(loader.iterate(state))
    else:
        list(loader.iterate(state))


# fill_source as a source.


@pytest.mark.parametrize("kind", KINDS)
def test_fill_sources_are_sources(kind: str) -> None:
    source = fill(N, worker_kind=kind)
    assert len(source) == N
    assert source[3]["i"] == 3
    with pytest.raises(IndexError, match="sample 12 of 12 does not exist"):
        source[N]
    parts = source.split(8, 4)
    assert [len(part) for part in parts] == [8, 4]
    seen = sorted(int(part[i]["i"]) for part in parts for i in range(len(part)))
    assert seen == list(range(N))
    assert [len(v) for _, v in source.folds(4)] == [3] * 4
    source.close()
    with pytest.raises(Exception, match="closed"):
        source[0]
