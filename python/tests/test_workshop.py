"""Workshop: batches of samples named one by one, in the order they were begun."""

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
from millstream._workers.executor import Made, Workshop
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
def shop(request: pytest.FixtureRequest) -> Iterator[Workshop]:
    """One for all tests that leave it as it was."""
    made = workshop(fns.fill_item, worker_kind=request.param)
    yield made
    made.close()


def workshop(fn: Any, data: Any = DATA, **more: Any) -> Workshop:
    return Workshop(FillTask(fn, data), FIELDS, ROWS, **{"workers": 2, **more})


def check(made: Made | None, indices: list[int], seeds: Any = None) -> None:
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
    assert made.beside[:count] == [f"item {i}" for i in indices]
    assert made.beside[count:] == [None] * (ROWS - count)


def test_batches_come_in_the_order_they_were_begun(shop: Workshop) -> None:
    chosen = np.random.default_rng(0).integers(0, 100, (30, ROWS))
    tickets = [shop.begin(rows) for rows in chosen]
    for ticket, rows in zip(tickets, chosen, strict=True):
        check(ticket.wait(60), rows.tolist())
        assert ticket.done
    # And each may be waited for again, and out of order.
    check(tickets[3].wait(0), chosen[3].tolist())
    check(tickets[1].wait(), chosen[1].tolist())


def test_seeds_reach_their_rows(shop: Workshop) -> None:
    seeds = np.array([0, 1, 2**63, 2**64 - 1, 5, 6, 7, 8], np.uint64)
    indices = [5, 5, 99, 0, 7, 2, 1, 0]
    check(shop.begin(indices, seeds).wait(60), indices, seeds.tolist())


def test_short_batches(shop: Workshop) -> None:
    for count in (1, 3, 0, ROWS):
        indices = list(range(10, 10 + count))
        check(shop.begin(indices).wait(60), indices)


def test_what_does_not_fit_is_refused(shop: Workshop) -> None:
    with pytest.raises(ValueError, match="a batch has 8 rows, not 9 of them"):
        shop.begin(range(9))
    with pytest.raises(ValueError, match="2 seeds do not fit 3 samples"):
        shop.begin([1, 2, 3], np.zeros(2, np.uint64))
    ticket = shop.begin([4, 100])
    with pytest.raises(IndexError) as caught:
        ticket.wait(60)
    assert "this was sample 100" in "".join(caught.value.__notes__)
    check(shop.begin([4]).wait(60), [4])


def test_jax_aliases_every_array(shop: Workshop) -> None:
    made = shop.begin(range(ROWS)).wait(60)
    assert made is not None
    for name, array in made.arrays.items():
        if array.dtype.itemsize == 8:
            continue  # JAX has no such dtype and makes another
        assert array.ctypes.data % 64 == 0
        alias = jax.device_put(array)
        assert alias.unsafe_buffer_pointer() == array.ctypes.data, name


def let_go(shop: Workshop) -> bool:
    """Whether nobody holds a batch: the thread that made the last may for a moment."""
    deadline = time.monotonic() + 60
    while shop.live and time.monotonic() < deadline:
        time.sleep(0.01)
    return shop.live == 0


def test_memory_is_used_again_when_arrays_are_gone(shop: Workshop) -> None:
    addresses = set()
    for _ in range(40):
        made = shop.begin(range(ROWS)).wait(60)
        assert made is not None
        addresses.add(made.arrays["image"].ctypes.data)
        del made
    gc.collect()
    assert len(addresses) < 12
    assert let_go(shop)
    kept = [shop.begin(range(ROWS)).wait(60) for _ in range(60)]
    assert shop.live == 60
    for made in kept:
        check(made, list(range(ROWS)))
    del kept, made
    gc.collect()
    assert let_go(shop)


def test_items_that_are_no_arrays() -> None:
    for kind in KINDS:
        shop = Workshop(ItemTask(fns.as_pair), [], 4, workers=2, worker_kind=kind)
        made = shop.begin([3, 1, 2]).wait(60)
        assert made is not None
        assert made.arrays == {}
        assert [int(pair.left) for pair in made.beside[:3]] == [4, 2, 3]
        assert made.beside[3] is None
        shop.close()
    shop = Workshop(ItemTask(["a", "b"]), [], 2, workers=1)
    made = shop.begin([1, 0]).wait(60)
    assert made is not None
    assert made.beside == ["b", "a"]
    shop.close()


# What goes wrong.


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_come_from_their_own_batch(kind: str) -> None:
    shop = workshop(fns.fill_or_raise, worker_kind=kind)
    tickets = [shop.begin(range(first, first + 4)) for first in (0, 12, 20)]
    check(tickets[0].wait(60), [0, 1, 2, 3])
    for _ in range(2):
        with pytest.raises(fns.OwnError, match="item 13") as caught:
            tickets[1].wait(60)
        assert "this was sample 13" in "".join(caught.value.__notes__)
    check(tickets[2].wait(60), [20, 21, 22, 23])
    shop.close()


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_has_an_end(kind: str, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    shop = workshop(fns.fill_at_the_gate, [str(gate)] * 9, worker_kind=kind)
    ticket = shop.begin([1, 2, 3])
    assert ticket.wait(0) is None
    assert ticket.wait(0.2) is None
    assert not ticket.done
    gate.touch()
    made = ticket.wait(60)
    assert made is not None
    assert made.arrays["label"][:3].tolist() == [1, 1, 1]
    shop.close()


@pytest.mark.parametrize("kind", KINDS)
def test_closing_while_busy(kind: str, tmp_path: Path) -> None:
    shop = workshop(
        fns.fill_at_the_gate,
        [str(tmp_path / "never")] * 9,
        **{
            "worker_kind": kind,
            "workers": 1,
        },
    )
    tickets = [shop.begin([i]) for i in range(4)]
    assert tickets[0].wait(0.5) is None
    errors: list[BaseException] = []

    def waits() -> None:
        try:
            tickets[1].wait(60)
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=waits)
    waiting.start()
    shop.close()
    (tmp_path / "never").touch()  # a thread cannot be ended from outside
    waiting.join(60)
    assert not waiting.is_alive()
    assert [type(error) for error in errors] == [WorkerError]
    assert "closed" in str(errors[0])
    for ticket in tickets[2:]:
        with pytest.raises(WorkerError, match="closed"):
            ticket.wait(60)
    assert shop.pids == []
    with pytest.raises(WorkerError, match="closed"):
        shop.begin([1]).wait(60)
    shop.close()


def test_stalls_and_deaths() -> None:
    shop = workshop(fns.fill_or_die, worker_kind="process", workers=1)
    with pytest.raises(WorkerError, match="status 4 while it made sample 13"):
        shop.begin([12, 13, 14]).wait(60)
    check(shop.begin([1]).wait(60), [1])
    shop.close()
    for kind in KINDS:
        shop = workshop(fns.fill_or_sleep, worker_kind=kind, timeout=0.5)
        with pytest.raises(WorkerTimeout, match="sample 13 has taken more than 500 ms"):
            shop.begin([12, 13]).wait(60)
        if kind == "thread":  # which cannot be stopped
            with pytest.raises(WorkerTimeout, match="closed, because sample 13 has"):
                shop.begin([1]).wait(60)
        else:
            check(shop.begin([1]).wait(60), [1])
        shop.close()


def test_a_startup_runs_once_in_each_worker() -> None:
    for kind in KINDS:
        task = FillTask(fns.fill_started, DATA, fns.start_up)
        shop = Workshop(task, FIELDS, ROWS, workers=2, worker_kind=kind)
        for _ in range(3):
            made = shop.begin(range(4)).wait(60)
            assert made is not None
            seen = set(made.arrays["label"][:4].tolist())
            # Threads share the module that counts.
            assert seen <= ({1} if kind == "process" else {1, 2})
        shop.close()


def test_it_ends_when_it_is_let_go_of() -> None:
    import psutil

    shop = workshop(fns.fill_item, worker_kind="process")
    tickets = [shop.begin(range(ROWS)) for _ in range(10)]
    check(tickets[0].wait(60), list(range(ROWS)))
    pids = shop.pids
    assert len(pids) == 2
    kept = tickets[0].wait()
    del shop, tickets
    gc.collect()
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    check(kept, list(range(ROWS)))  # arrays outlive it
