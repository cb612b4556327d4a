"""What a program does where XLA cannot call the engine, tried on the CPU."""

import jax
import millstream as ms
import numpy as np
import pytest
from millstream import _jit


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


def test_a_call_back_to_the_host_gives_the_same_batches(loader, monkeypatch):
    expected, end = batches(loader)
    monkeypatch.setattr(_jit, "_foreign_call", _jit._host_call)
    found, state = batches(loader)
    assert_same(found, expected)
    assert state == end


def test_a_call_back_to_the_host_can_be_vmapped(loader, monkeypatch):
    states = jax.vmap(loader.init_state)(np.arange(3))
    expected, *_ = jax.vmap(loader.next_batch)(states)
    monkeypatch.setattr(_jit, "_foreign_call", _jit._host_call)
    found, *_ = jax.vmap(loader.next_batch)(states)
    np.testing.assert_array_equal(found["x"], expected["x"])


def test_the_platform_is_chosen_when_a_program_is_lowered(loader, monkeypatch):
    expected, end = batches(loader)
    monkeypatch.setattr(_jit, "_only_cpu", lambda: False)
    found, state = batches(loader)
    assert_same(found, expected)
    assert state == end
