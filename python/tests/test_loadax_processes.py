"""Loadax's loaders with worker processes."""

from __future__ import annotations

import gc
import os
import time

import loadax_items
import pytest
from conftest import Python
from millstream.loadax import (
    Batcher,
    DataLoader,
    Dataloader,
    MappedDataset,
    RangeDataset,
    ShuffledDataset,
    SkippedItemWarning,
)


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}/cmdline")}


def have_ended(pids: set[int]) -> bool:
    """Whether these processes end within half a minute."""
    for _ in range(3000):
        if not alive(pids):
            return True
        time.sleep(0.01)
    return False


def test_workers_are_other_processes_and_stay_for_the_next_epoch() -> None:
    dataset = MappedDataset(RangeDataset(0, 20), loadax_items.process)
    loader = Dataloader(dataset, 4, num_workers=2, worker_kind="process")
    epochs = [{pid for batch in loader for pid in batch} for _ in range(2)]
    pids = epochs[0] | epochs[1]
    assert os.getpid() not in pids
    assert len(pids) <= 2
    assert alive(pids) == pids
    first, second = iter(loader), iter(loader)
    pids |= {*next(first), *next(second), *next(first)}
    assert len(pids) <= 2
    loader.close()
    assert have_ended(pids)
    assert len(next(iter(loader))) == 4  # with new processes
    loader.close()


def test_the_same_batches_as_threads_give() -> None:
    dataset = ShuffledDataset(RangeDataset(0, 300), 3).map(loadax_items.doubled)
    threads = DataLoader(Batcher(sum)).batch_size(7).workers(2).build(dataset)
    builder = DataLoader(Batcher(sum), worker_kind="process").batch_size(7).workers(2)
    processes = builder.build(dataset)
    assert list(processes) == list(threads)
    later = processes.at_epoch(1)
    assert list(later) == list(threads.at_epoch(1))
    assert list(processes) == list(threads)


def test_a_deleted_loader_ends_its_workers() -> None:
    dataset = MappedDataset(RangeDataset(0, 4), loadax_items.process)
    loader = Dataloader(dataset, 2, num_workers=1, worker_kind="process")
    pids = {pid for batch in loader for pid in batch}
    assert alive(pids)
    del loader
    gc.collect()
    assert have_ended(pids)


def test_errors_keep_their_type() -> None:
    dataset = MappedDataset(RangeDataset(0, 8), loadax_items.fail_at_five)
    loader = Dataloader(dataset, 2, num_workers=2, worker_kind="process")
    for _ in range(2):
        walk = iter(loader)
        assert [next(walk), next(walk)] == [[0, 1], [2, 3]]
        with pytest.raises(KeyError, match="no 5") as raised:
            next(walk)
        assert any("5" in note for note in raised.value.__notes__)
        assert list(walk) == []
    skipping = Dataloader(
        dataset, 4, num_workers=1, worker_kind="process", on_error="skip"
    )
    with pytest.warns(SkippedItemWarning, match="item 5 was left out: KeyError"):
        assert list(skipping) == [[0, 1, 2, 3], [4, 6, 7]]


def test_workers_do_not_import_jax(python: Python) -> None:
    code = """
    import sys
    import loadax_items
    from millstream.loadax import Dataloader, MappedDataset, RangeDataset
    from millstream.loadax import ShuffledDataset

    if __name__ == "__main__":
        assert "jax" not in sys.modules
        dataset = MappedDataset(RangeDataset(0, 3), loadax_items.has_jax)
        loader = Dataloader(dataset, 3, num_workers=1, worker_kind="process")
        print(list(loader))
        dataset = ShuffledDataset(RangeDataset(0, 3), 1).map(loadax_items.has_jax)
        loader = Dataloader(dataset, 3, num_workers=1, worker_kind="process")
        print(list(loader))
    """
    assert python.run(code) == "[[False, False, False]]\n" * 2
