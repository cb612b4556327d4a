"""The windowed shuffle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import rows_of
from millstream import ArraySampleSource, BatchTransform, DataLoader, Shuffle
from millstream._order.orders import Order
from walks import (
    indexed,
    iterated,
    jitted,
    maps_over_seeds,
    resumes_everywhere,
    same_walk,
    scanned,
    specified,
    stepped,
)

SIZES = [(10, 3, 2), (200, 1, 1), (500, 7, 5), (1000, 16, 4), (1000, 300, 2)]
"""Samples, block size, window."""


def loader_of(n: int, order: Order, batch: int = 7, **more: Any) -> DataLoader:
    remainder = more.pop("remainder", "pad")
    source = ArraySampleSource(rows_of(n), order)
    return DataLoader([source, BatchTransform(batch, remainder=remainder)], **more)


def epoch_of(n: int, order: Order, seed: int = 0, epoch: int = 0) -> np.ndarray:
    loader = loader_of(n, order, 32)
    words = np.array(loader.init_state(seed).words)
    words[3] = epoch
    found = []
    for step in range(loader.steps_per_epoch):
        words[4] = step
        found.append(loader.which_samples(words))
    samples = np.concatenate(found)
    return samples[samples >= 0]


@pytest.mark.parametrize(("n", "block", "window"), SIZES)
def test_an_epoch_has_every_sample_once(n: int, block: int, window: int) -> None:
    order = Shuffle(window=window, block_size=block)
    epochs = [epoch_of(n, order, epoch=epoch) for epoch in range(3)]
    for samples in epochs:
        np.testing.assert_array_equal(np.sort(samples), np.arange(n))
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[0], epoch_of(n, order, seed=1))
    np.testing.assert_array_equal(epochs[2], epoch_of(n, order, epoch=2))


@pytest.mark.parametrize(("n", "block", "window"), SIZES)
def test_a_window_reads_only_its_own_blocks(n: int, block: int, window: int) -> None:
    for epoch in range(3):
        order = Shuffle(window=window, block_size=block)
        blocks = epoch_of(n, order, epoch=epoch) // block
        # A short block moves the following windows by less than a block. So samples
        # as long as one window touch the blocks of at most two windows.
        for first in range(0, n, window * block):
            touched = np.unique(blocks[first : first + window * block])
            assert len(touched) <= 2 * window
        # Every block is read within one window.
        for number in np.unique(blocks):
            places = np.flatnonzero(blocks == number)
            assert places[-1] - places[0] < window * block


def test_even_blocks_are_read_window_by_window() -> None:
    blocks = epoch_of(960, Shuffle(window=4, block_size=16)) // 16
    windows = [np.unique(part) for part in blocks.reshape(-1, 64)]
    assert all(len(touched) == 4 for touched in windows)
    assert len(np.unique(np.concatenate(windows))) == 60
    assert any(np.ptp(touched) > 10 for touched in windows)


@pytest.mark.parametrize(
    ("n", "block", "window", "remainder"),
    [*((*size, "pad") for size in SIZES), (10, 3, 2, "wrap"), (1000, 16, 4, "drop")],
)
def test_every_delivery_gives_the_same(
    n: int, block: int, window: int, remainder: str
) -> None:
    order = Shuffle(window=window, block_size=block)
    loader = loader_of(n, order, remainder=remainder)
    traced = loader_of(n, order, remainder=remainder, traced=True)
    steps = min(2 * loader.steps_per_epoch + 1, 60)
    for seed in (0, 123456789):
        state = loader.init_state(seed)
        expected = specified(loader, state, steps)
        same_walk(indexed(loader, rows_of(n), state, steps), expected)
        same_walk(jitted(traced, state, steps), expected)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(stepped(loader, state, steps), expected)
    same_walk(jitted(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)


def test_a_traced_window_can_be_scanned() -> None:
    order = Shuffle(window=4, block_size=16)
    loader, traced = loader_of(1000, order), loader_of(1000, order, traced=True)
    state = loader.init_state(1)
    same_walk(scanned(traced, state, 40), specified(loader, state, 40))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(threads: int) -> None:
    order = Shuffle(window=4, block_size=16)
    loader = loader_of(1000, order, threads=threads, prefetch=4)
    state = loader.init_state(5)
    expected = specified(loader_of(1000, order), state, 30)
    same_walk(iterated(loader, state, 30), expected)


def test_a_state_resumes_at_every_step() -> None:
    loader = loader_of(100, Shuffle(window=2, block_size=8))
    resumes_everywhere(loader, loader.init_state(7), 2 * loader.steps_per_epoch)


def test_vmap_over_seeds() -> None:
    for traced in (False, True):
        loader = loader_of(300, Shuffle(window=3, block_size=16), traced=traced)
        maps_over_seeds(loader, 4, 1)


def test_the_state_of_another_window_is_refused() -> None:
    plain = loader_of(300, Shuffle())
    narrow = loader_of(300, Shuffle(window=3, block_size=16))
    for other in (
        plain,
        loader_of(300, Shuffle(window=4, block_size=16)),
        loader_of(300, Shuffle(window=3, block_size=17)),
    ):
        with pytest.raises(ValueError, match="state"):
            narrow.next_batch(other.init_state(0))
    same = loader_of(300, Shuffle(window=3, block_size=16))
    narrow.next_batch(same.init_state(0))


def test_a_split_is_shuffled_within_windows() -> None:
    source = ArraySampleSource(rows_of(100), Shuffle(window=2, block_size=8))
    for part in source.split(0.7, 0.3, shuffle=False):
        native = DataLoader([part, BatchTransform(10)])
        traced = DataLoader([part, BatchTransform(10)], traced=True)
        state = native.init_state(1)
        steps = 2 * native.steps_per_epoch
        same_walk(jitted(traced, state, steps), specified(native, state, steps))


def test_blocks_have_1024_samples_by_default() -> None:
    np.testing.assert_array_equal(
        epoch_of(5000, Shuffle(window=2)),
        epoch_of(5000, Shuffle(window=2, block_size=1024)),
    )
    assert repr(Shuffle()) == "Shuffle()"
    assert "window=2" in loader_of(5000, Shuffle(window=2)).explain()


def test_sizes_above_the_number_of_samples() -> None:
    everything = epoch_of(50, Shuffle(window=1, block_size=50))
    for huge in (51, 1 << 40, 1 << 80):
        found = epoch_of(50, Shuffle(window=huge, block_size=huge))
        np.testing.assert_array_equal(found, everything)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "8"])
def test_wrong_sizes_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="window must be a whole number"):
        Shuffle(window=wrong)
    with pytest.raises(ValueError, match="block_size must be a whole number"):
        Shuffle(window=2, block_size=wrong)
    with pytest.raises(ValueError, match="block_size=8 needs a window"):
        Shuffle(block_size=8)
