"""Executor: batches of given samples, in the order of submission."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from millstream import WorkerError, WorkerTimeout
from millstream._workers.executor import Executor, HostBatch
from millstream._workers.tasks import FillTask, ItemTask

FIELDS = [
    ("image", np.uint8, (40, 40)),
    ("label", np.int32, ()),
    ("seed", np.uint64, ()),
]
ROWS = 8
DATA = [f"item {i}" for i in range(100)]
KINDS = ["thread", "process"]


@pytest.fixture(scope="module", params=KINDS)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """Returns an executor that tests share if they do not change it."""
    made = new_executor(fns.fill_item, worker_kind=request.param)
    yield made
    made.close()


def new_executor(fn: Any, data: Any = DATA, **more: Any) -> Executor:
    return Executor(FillTask(fn, data), FIELDS, ROWS, **{"workers": 2, **more})


def check(made: HostBatch | None, indices: list[int], seeds: Any = None) -> None:
    assert made is not None
    assert sorted(made.arrays) == ["image", "label", "seed"]
    count = len(indices)
    for name, dtype, shape in FIELDS:
        assert made.arrays[name].shape == (ROWS, *shape)
        assert made.arrays[name].dtype == dtype
    assert made.arrays["label"][:count].tolist() == indices
    assert (made.arrays["image"][:count, 3, 5] == [i % 256 for i in indices]).all()
    wanted = [0] * count if seeds is None else list(seeds)
    assert made.arrays["seed"][:count].tolist() == wanted
    assert made.host_values[:count] == [f"item {i}" for i in indices]
    assert made.host_values[count:] == [None] * (ROWS - count)


def test_batches_come_in_the_order_of_submission(executor: Executor) -> None:
    chosen = np.random.default_rng(0).integers(0, 100, (30, ROWS))
    pending = [executor.submit(rows) for rows in chosen]
    for one, rows in zip(pending, chosen, strict=True):
        check(one.wait(60), rows.tolist())
        assert one.done
    # Waiting again, and in another order, works too.
    check(pending[3].wait(0), chosen[3].tolist())
    check(pending[1].wait(), chosen[1].tolist())


def test_seeds_reach_their_rows(executor: Executor) -> None:
    seeds = np.array([0, 1, 2**63, 2**64 - 1, 5, 6, 7, 8], np.uint64)
    indices = [5, 5, 99, 0, 7, 2, 1, 0]
    check(executor.submit(indices, seeds).wait(60), indices, seeds.tolist())


def test_short_batches(executor: Executor) -> None:
    for count in (1, 3, 0, ROWS):
        indices = list(range(10, 10 + count))
        check(executor.submit(indices).wait(60), indices)


def test_wrong_batches_are_errors(executor: Executor) -> None:
    with pytest.raises(
        ValueError, match="a batch has 8 rows, but 9 indices were given"
    ):
        executor.submit(range(9))
    with pytest.raises(ValueError, match="2 seeds do not fit 3 samples"):
        executor.submit([1, 2, 3], np.zeros(2, np.uint64))
    pending = executor.submit([4, 100])
    with pytest.raises(IndexError) as caught:
        pending.wait(60)
    assert "raised for sample 100" in "".join(caught.value.__notes__)
    check(executor.submit([4]).wait(60), [4])


def test_jax_aliases_every_array(executor: Executor) -> None:
    made = executor.submit(range(ROWS)).wait(60)
    assert made is not None
    for name, array in made.arrays.items():
        if array.dtype.itemsize == 8:
            continue  # JAX converts this dtype, which it does not support
        assert array.ctypes.data % 64 == 0
        alias = jax.device_put(array)
        assert alias.unsafe_buffer_pointer() == array.ctypes.data, name


def let_go(executor: Executor) -> bool:
    """Waits until no batch is live. A worker thread may hold the last one briefly."""
    deadline = time.monotonic() + 60
    while executor.live and time.monotonic() < deadline:
        time.sleep(0.01)
    return executor.live == 0


def test_memory_is_reused_after_arrays_are_deleted(executor: Executor) -> None:
    addresses = set()
    for _ in range(40):
        made = executor.submit(range(ROWS)).wait(60)
        assert made is not None
        addresses.add(made.arrays["image"].ctypes.data)
        del made
    gc.collect()
    assert len(addresses) < 12
    assert let_go(executor)
    kept = [executor.submit(range(ROWS)).wait(60) for _ in range(60)]
    assert executor.live == 60
    for made in kept:
        check(made, list(range(ROWS)))
    del kept, made
    gc.collect()
    assert let_go(executor)


def test_items_that_are_not_arrays() -> None:
    for kind in KINDS:
        executor = Executor(ItemTask(fns.as_pair), [], 4, workers=2, worker_kind=kind)
        made = executor.submit([3, 1, 2]).wait(60)
        assert made is not None
        assert made.arrays == {}
        assert [int(pair.left) for pair in made.host_values[:3]] == [4, 2, 3]
        assert made.host_values[3] is None
        executor.close()
    executor = Executor(ItemTask(["a", "b"]), [], 2, workers=1)
    made = executor.submit([1, 0]).wait(60)
    assert made is not None
    assert made.host_values == ["b", "a"]
    executor.close()


def test_batches_of_groups_in_order() -> None:
    executor = Executor(ItemTask(fns.as_pair), [], 4, workers=2)
    submitted: list[int] = []

    def groups() -> Iterator[np.ndarray]:
        for first in range(0, 18, 4):
            submitted.append(first)
            yield np.arange(first, min(first + 4, 18))

    batches = executor.batches(groups(), ahead=2)
    assert submitted == []
    found = [[int(pair.left) - 1 for pair in next(batches).host_values]]
    assert submitted == [0, 4]
    found += [[int(pair.left) - 1 for pair in made.host_values] for made in batches]
    assert found == [list(range(k, min(k + 4, 18))) for k in range(0, 18, 4)]
    executor.close()


# Errors.


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_are_raised_by_their_own_batch(kind: str) -> None:
    executor = new_executor(fns.fill_or_raise, worker_kind=kind)
    pending = [executor.submit(range(first, first + 4)) for first in (0, 12, 20)]
    check(pending[0].wait(60), [0, 1, 2, 3])
    for _ in range(2):
        with pytest.raises(fns.OwnError, match="item 13") as caught:
            pending[1].wait(60)
        assert "raised for sample 13" in "".join(caught.value.__notes__)
    check(pending[2].wait(60), [20, 21, 22, 23])
    executor.close()


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_with_a_timeout(kind: str, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    executor = new_executor(fns.fill_at_the_gate, [str(gate)] * 9, worker_kind=kind)
    pending = executor.submit([1, 2, 3])
    assert pending.wait(0) is None
    assert pending.wait(0.2) is None
    assert not pending.done
    gate.touch()
    made = pending.wait(60)
    assert made is not None
    assert made.arrays["label"][:3].tolist() == [1, 1, 1]
    executor.close()


@pytest.mark.parametrize("kind", KINDS)
def test_closing_while_busy(kind: str, tmp_path: Path) -> None:
    executor = new_executor(
        fns.fill_at_the_gate,
        [str(tmp_path / "never")] * 9,
        **{
            "worker_kind": kind,
            "workers": 1,
        },
    )
    pending = [executor.submit([i]) for i in range(4)]
    assert pending[0].wait(0.5) is None
    errors: list[BaseException] = []

    def waits() -> None:
        try:
            pending[1].wait(60)
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=waits)
    waiting.start()
    executor.close()
    (tmp_path / "never").touch()  # a thread cannot be stopped from outside
    waiting.join(60)
    assert not waiting.is_alive()
    assert [type(error) for error in errors] == [WorkerError]
    assert "closed" in str(errors[0])
    for one in pending[2:]:
        with pytest.raises(WorkerError, match="closed"):
            one.wait(60)
    assert executor.pids == []
    with pytest.raises(WorkerError, match="closed"):
        executor.submit([1]).wait(60)
    executor.close()


def test_stalls_and_deaths() -> None:
    executor = new_executor(fns.fill_or_die, worker_kind="process", workers=1)
    with pytest.raises(WorkerError, match="status 4 while it made sample 13"):
        executor.submit([12, 13, 14]).wait(60)
    check(executor.submit([1]).wait(60), [1])
    executor.close()
    for kind in KINDS:
        executor = new_executor(fns.fill_or_sleep, worker_kind=kind, timeout=0.5)
        with pytest.raises(WorkerTimeout, match="sample 13 has taken more than 500 ms"):
            executor.submit([12, 13]).wait(60)
        if kind == "thread":  # which cannot be stopped
            with pytest.raises(WorkerTimeout, match="closed, because sample 13 has"):
                executor.submit([1]).wait(60)
        else:
            check(executor.submit([1]).wait(60), [1])
        executor.close()


def test_a_startup_runs_once_in_each_worker() -> None:
    for kind in KINDS:
        task = FillTask(fns.fill_started, DATA, fns.start_up)
        executor = Executor(task, FIELDS, ROWS, workers=2, worker_kind=kind)
        for _ in range(3):
            made = executor.submit(range(4)).wait(60)
            assert made is not None
            seen = set(made.arrays["label"][:4].tolist())
            # Threads share the module with the counter.
            assert seen <= ({1} if kind == "process" else {1, 2})
        executor.close()


def test_it_stops_when_it_is_deleted() -> None:
    import psutil

    executor = new_executor(fns.fill_item, worker_kind="process")
    pending = [executor.submit(range(ROWS)) for _ in range(10)]
    check(pending[0].wait(60), list(range(ROWS)))
    pids = executor.pids
    assert len(pids) == 2
    kept = pending[0].wait()
    del executor, pending
    gc.collect()
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    check(kept, list(range(ROWS)))  # arrays outlive it
