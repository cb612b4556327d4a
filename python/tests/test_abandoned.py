"""Iterators that are deleted before their end, and the iterators after them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream import (
    BatchTransform,
    DataLoader,
    DatasetSource,
    DiskSampleSource,
    loadax,
)
from walks import same_bytes

N, BATCH, AHEAD = 10000, 16, 16


class Gated:
    """Records the requested samples. Samples after the first batch wait for a file.

    Each worker process has a copy, so it records the samples in a file.
    """

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.gate = folder / "gate"

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        with self.calls.open("a") as file:
            file.write(f"{index}\n")
        deadline = time.monotonic() + 100
        while BATCH <= index < N // 2 and not self.gate.exists():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return {"x": np.int64(index)}

    def before(self, index: int, times: int) -> int:
        """Returns how many requests came before the n-th request for a sample."""
        calls = [int(line) for line in self.calls.read_text().split()]
        return [at for at, call in enumerate(calls) if call == index][times - 1]

    def open_later(self) -> None:
        threading.Timer(1.0, self.gate.touch).start()


def later(loader: DataLoader) -> Any:
    """Returns the state at the second half of the samples."""
    words = np.array(loader.init_state(0).words)
    words[4] = N // BATCH - 2 * AHEAD
    return words


def loader_of(folder: Path, kind: str) -> tuple[DataLoader, Gated]:
    gated = Gated(folder)
    source = DatasetSource(gated, workers=2, worker_kind=kind, ordering="sequential")
    return DataLoader([source, BatchTransform(BATCH)], prefetch=AHEAD), gated


@pytest.mark.parametrize("how", ["dropped", "closed", "set"])
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_queued_batches_of_a_deleted_iterator_are_not_made(
    tmp_path: Path, kind: str, how: str
) -> None:
    loader, gated = loader_of(tmp_path, kind)
    iterator = loader.iterate(loader.init_state(0))
    next(iterator)
    following = loader.iterate(later(loader))
    gated.open_later()
    if how == "dropped":
        del iterator
    elif how == "closed":
        iterator.close()
    else:
        iterator.set_state(following.get_state())
        following = iterator
    batch, _ = next(following)
    first = (N // BATCH - 2 * AHEAD) * BATCH
    assert np.asarray(batch["x"]).tolist() == list(range(first, first + BATCH))
    assert gated.before(first, times=1) < BATCH * AHEAD // 2


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_second_iterator_finds_the_prefetched_batches(
    tmp_path: Path, kind: str
) -> None:
    loader, gated = loader_of(tmp_path, kind)
    gated.gate.touch()
    iterator = loader.iterate(loader.init_state(0))
    state = iterator.state
    for _ in range(20):
        next(iterator)
        state = iterator.state
        del iterator
        iterator = loader.iterate(state)
    del iterator
    samples = gated.calls.read_text().split()
    # The first two calls find the fields of a sample and check that it is pure.
    assert max(Counter(samples[2:]).values()) == 1


def test_restoring_at_every_step_after_deleted_iterators() -> None:
    source = DiskSampleSource(40, lambda i: {"x": np.int32(i)}, workers=3)
    loader = DataLoader([source, BatchTransform(6)], prefetch=3)
    walk = loader.iterate(loader.init_state(5), steps=20)
    states, expected = [], []
    while len(walk):
        states.append(loader.save(walk.state))
        expected.append(next(walk))
    for at in (*range(20), *reversed(range(20))):
        iterator = loader.iterate(loader.restore(states[at]), steps=3)
        for batch in expected[at : at + 2]:
            same_bytes(next(iterator), batch)


@pytest.mark.parametrize("size", [10, 200])
def test_a_new_seed_each_epoch_makes_each_sample_once(size: int) -> None:
    calls: Counter[int] = Counter()

    class Items:
        def __len__(self) -> int:
            return 2000

        def __getitem__(self, index: int) -> Any:
            calls[index] += 1
            return {"x": np.int32(index)}

    loader = DataLoader([DatasetSource(Items()), BatchTransform(size)], prefetch=2)
    for seed in range(8):
        calls.clear()
        for _ in loader.iterate(loader.init_state(seed)):
            pass
        # And the prefetched samples of an epoch that is not continued.
        assert sum(calls.values()) <= 2000 + 4 * size


def test_queued_batches_of_a_deleted_loadax_iterator_are_not_made(
    tmp_path: Path,
) -> None:
    gated = Gated(tmp_path)
    batcher: loadax.Batcher[Any, list[Any]] = loadax.Batcher(list)
    builder = loadax.DataLoader(batcher, worker_kind="process").batch_size(BATCH)
    loader = builder.workers(1).prefetch(AHEAD).build(gated)
    walk = iter(loader)
    next(walk)
    gated.open_later()
    del walk
    assert len(next(iter(loader))) == BATCH
    assert gated.before(BATCH - 1, times=2) < BATCH * AHEAD // 2
    loader.close()
