"""Functions of one worker thread, which the thread of the loop may call itself."""

from __future__ import annotations

import signal
import threading
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest

COUNT = 40
BATCH = 4


class Recorded:
    """Samples that record the threads that make them."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.running = 0
        self.most = 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.threads.append(threading.current_thread().name)
        self.running -= 1
        return {"x": np.full(3, index, np.float32)}


def loader_of(data: Any, *, prefetch: int | None = None, **options: Any) -> Any:
    source = ms.DatasetSource(data, ordering="shuffle", **options)
    return ms.DataLoader([source, ms.BatchTransform(BATCH)], prefetch=prefetch)


def test_without_prefetching_the_thread_of_the_loop_makes_every_sample():
    data = Recorded()
    loader = loader_of(data, prefetch=0)
    data.threads.clear()
    for _ in loader.run(epochs=1):
        pass
    assert data.threads == [threading.current_thread().name] * COUNT


def test_a_long_loop_tries_both_threads_and_has_the_same_batches():
    data = Recorded()
    loader = loader_of(data)
    data.threads.clear()
    batches = [np.asarray(batch["x"]) for batch, _ in loader.run(seed=3, epochs=20)]
    here = data.threads.count(threading.current_thread().name)
    assert 64 * BATCH <= here < len(data.threads)
    assert data.most == 1
    expected = loader_of(Recorded(), workers=2)
    for mine, (batch, _) in zip(batches, expected.run(seed=3, epochs=20), strict=True):
        np.testing.assert_array_equal(mine, batch["x"])


@pytest.mark.parametrize(
    "options", [{"workers": 2}, {"timeout": 60.0}], ids=["workers", "timeout"]
)
def test_two_workers_and_time_limits_need_worker_threads(options):
    data = Recorded()
    loader = loader_of(data, prefetch=0, **options)
    data.threads.clear()
    for _ in loader.run(epochs=1):
        pass
    assert threading.current_thread().name not in data.threads


def test_a_program_inside_jit_never_calls_the_function_on_its_own_thread():
    data = Recorded()
    loader = loader_of(data, prefetch=0)
    data.threads.clear()
    _, total, _ = jax.jit(
        lambda state: loader.scan_epoch(
            state, 0.0, lambda carry, batch, mask: (carry + batch["x"].sum(), None)
        )
    )(loader.init_state(0))
    assert float(total) == 3 * sum(range(COUNT))
    assert threading.current_thread().name not in data.threads


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_ctrl_c_in_the_function_is_raised_and_loses_no_batch(on_error):
    class Interrupted(Recorded):
        at: int | None = None

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == self.at:
                self.at = None
                signal.raise_signal(signal.SIGINT)
            return super().__getitem__(index)

    data = Interrupted()
    source = ms.DatasetSource(data, ordering="sequential")
    loader = ms.DataLoader(
        [source, ms.BatchTransform(BATCH)], prefetch=0, on_error=on_error
    )
    run = loader.run(epochs=1)
    next(run)
    data.at = BATCH + 1
    with pytest.raises(KeyboardInterrupt):
        next(run)
    batch, mask = next(run)
    np.testing.assert_array_equal(batch["x"][:, 0], range(BATCH, 2 * BATCH))
    assert np.all(mask)


def test_an_error_names_the_sample_and_the_next_call_tries_again():
    class Failing(Recorded):
        fails = True

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 5 and self.fails:
                raise ValueError("broken")
            return super().__getitem__(index)

    data = Failing()
    source = ms.DatasetSource(data, ordering="sequential")
    loader = ms.DataLoader([source, ms.BatchTransform(BATCH)], prefetch=0)
    run = loader.run(epochs=1)
    next(run)
    with pytest.raises(ValueError, match="broken") as caught:
        next(run)
    assert "sample 5" in "".join(caught.value.__notes__)
    data.fails = False
    batch, _ = next(run)
    np.testing.assert_array_equal(batch["x"][:, 0], range(BATCH, 2 * BATCH))


def test_a_function_may_use_another_loader():
    inner = ms.DataLoader(
        [
            ms.ArraySampleSource({"y": np.arange(50, dtype=np.float32)}),
            ms.BatchTransform(25),
        ]
    )

    class Nested(Recorded):
        def __getitem__(self, index: int) -> dict[str, Any]:
            total = sum(float(batch["y"].sum()) for batch, _ in inner.run(epochs=1))
            assert total == 1225
            return super().__getitem__(index)

    loader = loader_of(Nested(), prefetch=0)
    seen = [batch["x"][:, 0] for batch, _ in loader.run(seed=1, epochs=1)]
    assert sorted(np.concatenate(seen)) == list(range(COUNT))
