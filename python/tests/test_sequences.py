"""Every way of delivery gives the batches of the single-threaded specification."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from conftest import rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    Listed,
    NormalizeImageTransform,
    Weighted,
    WithReplacement,
)
from walks import (
    indexed,
    iterated,
    jitted,
    maps_over_seeds,
    same_bytes,
    same_walk,
    scanned,
    scans_over_seeds,
    specified,
    stacked,
    stepped,
)

SIZES = (1, 5, 127, 128, 129, 1003)
BATCHES = (1, 2, 32, 128)
EPOCHS = 3


def loader_of(
    n: int, batch: int, remainder: str = "pad", ordering: Any = "shuffle", **knobs: Any
) -> DataLoader:
    source = ArraySampleSource(rows_of(n), ordering)
    return DataLoader([source, BatchTransform(batch, remainder=remainder)], **knobs)


def cases(remainder: str) -> list[tuple[int, int]]:
    return [(n, b) for n in SIZES for b in BATCHES if remainder != "drop" or n >= b]


@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
def test_the_host_loop_and_eager_steps_follow_the_specification(remainder: str) -> None:
    for n, batch in cases(remainder):
        loader = loader_of(n, batch, remainder)
        state = loader.init_state(n)
        steps = EPOCHS * loader.steps_per_epoch
        expected = specified(loader, state, steps)
        same_walk(indexed(loader, rows_of(n), state, steps), expected)
        same_walk(iterated(loader, state, steps), expected)
        same_walk(stepped(loader, state, steps), expected)


@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
@pytest.mark.parametrize(("n", "batch"), [(5, 2), (127, 32), (129, 128), (1003, 32)])
def test_jit_and_scan_follow_the_specification(
    n: int, batch: int, remainder: str
) -> None:
    loader = loader_of(n, batch, remainder)
    state = loader.init_state(n)
    steps = EPOCHS * loader.steps_per_epoch
    expected = specified(loader, state, steps)
    same_walk(jitted(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)


@pytest.mark.parametrize(("n", "batch"), [(1, 1), (1, 128), (5, 32), (128, 128)])
def test_scan_follows_the_specification_at_the_edges(n: int, batch: int) -> None:
    for remainder in ("pad", "wrap"):
        loader = loader_of(n, batch, remainder)
        state = loader.init_state(n)
        steps = EPOCHS * loader.steps_per_epoch
        same_walk(scanned(loader, state, steps), specified(loader, state, steps))


@pytest.mark.parametrize(
    ("n", "batch", "remainder"),
    [
        (1, 1, "pad"),
        (5, 2, "wrap"),
        (128, 32, "drop"),
        (129, 128, "wrap"),
        (1003, 32, "pad"),
        (1003, 128, "drop"),
        (1003, 128, "wrap"),
    ],
)
def test_the_traced_path_follows_the_specification(
    n: int, batch: int, remainder: str
) -> None:
    loader = loader_of(n, batch, remainder, traced=True)
    state = loader.init_state(n)
    steps = EPOCHS * loader.steps_per_epoch
    same_walk(scanned(loader, state, steps), specified(loader, state, steps))


def test_the_traced_path_in_the_host_loop() -> None:
    loader = loader_of(129, 32, traced=True)
    state = loader.init_state(3)
    expected = specified(loader, state, 15)
    same_walk(iterated(loader, state, 15), expected)
    same_walk(stepped(loader, state, 15), expected)
    same_walk(jitted(loader, state, 15), expected)


ORDERS = {
    "sequential": "sequential",
    "replacement": WithReplacement(),
    "replacement of another length": WithReplacement(75),
    "weighted": Weighted(np.arange(129) % 5),
    "weighted of another length": Weighted(np.arange(129) + 1.0, 300),
    "listed": Listed(np.arange(100)[::-1]),
    "listed and shuffled": Listed([5, 128, 0, 77, 3], shuffle=True),
    "a list an epoch": Listed([[1, 2, 3], [4, 5, 6]]),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("remainder", ["pad", "wrap"])
def test_orders_are_the_same_with_every_delivery(name: str, remainder: str) -> None:
    _check_deliveries(ArraySampleSource(rows_of(129), ORDERS[name]), remainder)


def test_an_order_that_wraps_is_the_same_when_traced() -> None:
    source = ArraySampleSource(
        rows_of(129), Listed([[1, 2, 3], [4, 5, 6]], shuffle=True)
    )
    _check_deliveries(source, "wrap", traced=True)


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("shuffle", [True, False])
def test_splits_are_the_same_with_every_delivery(part: int, shuffle: bool) -> None:
    source = ArraySampleSource(rows_of(1003)).split(0.8, 0.2, seed=4, shuffle=shuffle)
    _check_deliveries(source[part], "pad")


def test_folds_are_the_same_with_every_delivery() -> None:
    training, validation = ArraySampleSource(rows_of(129)).folds(4, seed=2)[1]
    _check_deliveries(training, "wrap")
    _check_deliveries(validation, "pad")


def _check_deliveries(
    source: ArraySampleSource, remainder: str, traced: bool = False
) -> None:
    pipeline = BatchTransform(32, remainder=remainder)(source)
    loader = DataLoader(pipeline)
    state = loader.init_state(11)
    steps = EPOCHS * loader.steps_per_epoch
    expected = specified(loader, state, steps)
    same_walk(indexed(loader, source.data, state, steps), expected)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)
    if traced or remainder == "pad":  # compiling it takes longest
        same_walk(scanned(DataLoader(pipeline, traced=True), state, steps), expected)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads_and_prefetch_change_nothing(threads: int) -> None:
    plain = loader_of(1003, 32)
    state = plain.init_state(5)
    steps = EPOCHS * plain.steps_per_epoch
    expected = specified(plain, state, steps)
    for prefetch in (0, 1, 5):
        loader = loader_of(1003, 32, threads=threads, prefetch=prefetch)
        same_walk(iterated(loader, state, steps), expected)
        same_walk(scanned(loader, state, steps), expected)


def big_source() -> ArraySampleSource:
    image = np.arange(129 * 11_000, dtype=np.int32).reshape(129, 11_000)
    return ArraySampleSource({"image": image, "label": np.arange(129)})


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_big_batches_come_from_slots_with_the_same_bytes(threads: int) -> None:
    pipeline = BatchTransform(32)(big_source())
    plain = DataLoader(pipeline)
    assert plain._built.engine.batch_bytes > 1 << 20
    state = plain.init_state(5)
    expected = specified(plain, state, 15)
    for prefetch in (0, 1, 5):
        loader = DataLoader(pipeline, threads=threads, prefetch=prefetch)
        same_walk(iterated(loader, state, 15), expected)
    same_walk(stepped(loader, state, 15), expected)
    same_walk(scanned(loader, state, 15), expected)


def test_kept_batches_are_not_overwritten() -> None:
    loader = DataLoader(BatchTransform(32)(big_source()), prefetch=2)
    state = loader.init_state(0)
    kept = list(loader.iterate(state, steps=10))
    expected = specified(loader, state, 10)
    same_bytes(stacked((b, m, 0) for b, m in kept)[:2], expected[:2])


def test_vmap_over_seeds_matches_single_seeds() -> None:
    loader = loader_of(129, 32)
    maps_over_seeds(loader, 4, 15)
    scans_over_seeds(loader, 4, 15)


def test_vmap_over_seeds_of_the_traced_path() -> None:
    maps_over_seeds(loader_of(129, 32, "wrap", traced=True), 3, 15)


@pytest.mark.parametrize("n", SIZES)
def test_every_sample_comes_once_per_epoch_and_epochs_differ(n: int) -> None:
    for batch in BATCHES:
        loader = loader_of(n, batch)
        _, masks, words = specified(
            loader, loader.init_state(1), 3 * loader.steps_per_epoch
        )
        orders = []
        state = loader.init_state(1)
        for _ in range(3):
            iterator = loader.iterate(state)
            ids = np.concatenate([np.asarray(b["x"])[m, 0] for b, m in iterator])
            assert sorted(ids) == list(range(1, n + 1))
            orders.append(tuple(ids))
            state = iterator.state
        assert masks.sum() == 3 * n
        assert list(words[-1][3:6]) == [3, 0, 0]
        assert n < 100 or len(set(orders)) == 3


def test_wrap_gives_every_sample_equally_often_across_epochs() -> None:
    loader = loader_of(5, 2, "wrap")
    state = loader.init_state(9)
    batches, masks, _ = specified(loader, state, 10)
    assert masks.all()
    for epoch in batches["x"][..., 0].reshape(4, 5):
        assert sorted(epoch) == [1, 2, 3, 4, 5]


def test_drop_leaves_the_remainder_out() -> None:
    loader = loader_of(129, 32, "drop")
    batches, masks, _ = specified(loader, loader.init_state(0), loader.steps_per_epoch)
    assert loader.steps_per_epoch == 4
    assert masks.all()
    assert len(np.unique(batches["x"][..., 0])) == 128


def test_partial_shortens_the_last_batch_and_is_an_error_in_jit() -> None:
    loader = loader_of(5, 2, "partial")
    padded = loader_of(5, 2)
    for _ in range(2):
        state = loader.init_state(0)
        sizes = []
        expected = padded.iterate(padded.init_state(0))
        for (batch, mask), (whole, valid) in zip(
            loader.iterate(state), expected, strict=True
        ):
            sizes.append(mask.shape[0])
            assert mask.all()
            rows = np.asarray(valid)
            same_bytes(batch, jax.tree.map(lambda x, r=rows: np.asarray(x)[r], whole))
        assert sizes == [2, 2, 1]
    with pytest.raises(ValueError, match=r"remainder='partial'.*inside jit"):
        jax.jit(loader.next_batch)(state)
    with pytest.raises(ValueError, match="remainder='partial'"):
        loader.scan_epoch(state, 0, lambda c, b, m: (c, None))


@pytest.mark.parametrize("traced", [False, True])
def test_padding_is_zero_after_batching_and_later_stages_transform_it(
    traced: bool,
) -> None:
    source = ArraySampleSource({"image": np.full((3, 2), 200, np.uint8)})
    normalize = NormalizeImageTransform(scale=0.5, offset=1.0)

    def last(*stages: Any) -> tuple[np.ndarray, np.ndarray]:
        loader = DataLoader([source, *stages], traced=traced)
        walks = [iterated(loader, loader.init_state(0), 2)]
        walks.append(scanned(loader, loader.init_state(0), 2))
        same_walk(walks[1], walks[0])
        return walks[0][0]["image"][1], walks[0][1][1]

    image, mask = last(BatchTransform(2))
    assert image.tolist() == [[200, 200], [0, 0]]
    assert mask.tolist() == [True, False]
    image, mask = last(normalize, BatchTransform(2))
    assert image.tolist() == [[101, 101], [0, 0]]
    image, mask = last(BatchTransform(2), normalize)
    assert image.tolist() == [[101, 101], [1, 1]]
    assert mask.tolist() == [True, False]


def test_which_samples_gives_the_rows_of_each_batch() -> None:
    loader = loader_of(129, 32)
    state = loader.init_state(8)
    for _ in range(10):
        samples = loader.which_samples(state)
        assert samples.dtype == np.int64
        batch, state, mask = loader.next_batch(state)
        found = np.asarray(batch["x"])[:, 0] - 1
        assert np.array_equal(np.where(mask, found, -1), samples)


def test_which_samples_at_the_far_end_of_a_billion() -> None:
    data = np.broadcast_to(np.float32(1), (10**9,))
    loader = DataLoader([ArraySampleSource(data), BatchTransform(7)])
    words = np.asarray(loader.init_state(0).words).copy()
    words[4] = loader.steps_per_epoch - 1
    samples = loader.which_samples(words)
    assert (samples >= 0).sum() == 10**9 % 7
    assert samples.max() < 10**9
