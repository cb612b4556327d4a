"""Programs on devices where XLA cannot call the engine, simulated on the CPU."""

import jax
import millstream as ms
import numpy as np
import pytest
from millstream._delivery import jit


@pytest.fixture
def elsewhere(monkeypatch):
    """Lowers programs as for a platform other than the CPU."""

    def chosen(*operands, cpu, default):
        return default(*operands)

    def choose():
        monkeypatch.setattr(jit, "_only_cpu", lambda: False)
        monkeypatch.setattr(jax.lax, "platform_dependent", chosen)

    return choose


@pytest.fixture
def loader():
    data = {"x": np.arange(33, dtype=np.float32), "y": np.arange(33)}
    stages = [ms.ArraySampleSource(data), ms.BatchTransform(8)]
    return ms.DataLoader(stages)


def batches(loader, count=12):
    step, state, seen = (
        jax.jit(lambda s: loader.next_batch(s)),
        loader.init_state(5),
        [],
    )
    for _ in range(count):
        batch, state, mask = step(state)
        seen.append((np.asarray(batch["x"]), np.asarray(batch["y"]), np.asarray(mask)))
    return seen, state


def assert_same(some, others):
    for left, right in zip(some, others, strict=True):
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


def test_a_host_callback_gives_the_same_batches(loader, elsewhere):
    expected, end = batches(loader)
    elsewhere()
    found, state = batches(loader)
    assert_same(found, expected)
    assert state == end


def test_a_host_callback_can_be_vmapped(loader, elsewhere):
    states = jax.vmap(loader.init_state)(np.arange(3))
    expected, *_ = jax.vmap(loader.next_batch)(states)
    elsewhere()
    found, *_ = jax.vmap(loader.next_batch)(states)
    np.testing.assert_array_equal(found["x"], expected["x"])


def test_the_platform_is_chosen_when_a_program_is_lowered(loader, monkeypatch):
    expected, end = batches(loader)
    monkeypatch.setattr(jit, "_only_cpu", lambda: False)
    found, state = batches(loader)
    assert_same(found, expected)
    assert state == end


ORDERS = {
    "windows": ms.Shuffle(window=2, block_size=4),
    "weights": ms.Weighted(np.arange(33.0)),
    "lists": ms.Listed([[6, 0, 3, 4, 5], [1, 1, 2, 2, 8]], shuffle=True),
    "draws": ms.WithReplacement(21),
}


@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_traced_gather_takes_indices_from_the_engine(order, remainder, elsewhere):
    data = {"x": np.arange(33, dtype=np.float32), "y": np.arange(33)}
    source = ms.ArraySampleSource(data, ORDERS[order])
    stages = [source, ms.BatchTransform(4, remainder=remainder)]
    expected, end = batches(ms.DataLoader(stages))
    traced = ms.DataLoader(stages, traced=True)
    found, state = batches(traced)
    assert_same(found, expected)
    assert state == end
    states = jax.vmap(traced.init_state)(np.arange(3))
    mapped, *_ = jax.vmap(traced.next_batch)(states)
    elsewhere()
    found, state = batches(traced)
    assert_same(found, expected)
    assert state == end
    again, *_ = jax.vmap(traced.next_batch)(states)
    np.testing.assert_array_equal(again["x"], mapped["x"])


@pytest.mark.parametrize("traced", [False, True])
def test_a_host_callback_gives_the_same_keys(traced, elsewhere):
    def loader():
        wrap = ms.BatchTransform(4, remainder="wrap")
        noise = ms.MapTransform(lambda x, key: x + jax.random.uniform(key))
        head = ms.ArraySampleSource(np.arange(10, dtype=np.float32))
        return ms.DataLoader([head, noise, wrap], traced=traced)

    def walk(loader):
        return loader.scan_epoch(
            loader.init_state(5), 0, lambda carry, x, _: (0, x), steps=7
        )[2]

    expected = walk(loader())
    elsewhere()
    np.testing.assert_array_equal(walk(loader()), expected)
