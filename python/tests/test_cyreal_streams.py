"""Environments and replay buffers with the interfaces of Cyreal and Cereal.

`make integrations` compares their values with those of the original package.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from millstream import cereal, cyreal
from millstream.cyreal import v02

LEAVES = {"state", "action", "reward", "next_state", "done"}


class Walk:
    """An environment whose state grows by each action, up to a limit."""

    def reset(self, key: Any, limit: Any) -> Any:
        del key, limit
        return jnp.zeros(1), jnp.float32(0)

    def step(self, key: Any, state: Any, action: Any, limit: Any) -> Any:
        del key
        state = state + action
        done = state >= limit
        return state[None], state, -state, done, {"doubled": 2 * state}


def policy_fn(obs: Any, params: Any, key: Any) -> Any:
    del obs, key
    return params


def policy_step(obs: Any, policy: Any, new_episode: Any, key: Any) -> Any:
    del obs, new_episode, key
    return policy["action"], policy


def policy(action: float = 1.0) -> dict[str, Any]:
    return {"action": jnp.float32(action)}


@pytest.mark.parametrize("package", [cyreal, cereal])
def test_the_first_signature(package: Any) -> None:
    source = package.GymnaxSource(Walk(), 2.5, policy_fn, jnp.float32(1), 4)
    loader = package.DataLoader([source, package.BatchTransform(4)])
    state = loader.init_state(jax.random.PRNGKey(0))
    for _ in range(2):  # an epoch starts with a new episode
        batch, state, mask = loader.next_batch(state)
        assert set(batch) == LEAVES
        assert batch["state"].ravel().tolist() == [0, 1, 2, 0]
        assert batch["done"].tolist() == [False, False, True, False]
        assert mask.all()
    assert state.epoch == 2


def gymnax_source(steps_per_epoch: int = 4) -> Any:
    return v02.sources.GymnaxSource(Walk(), 2.5, policy_step, policy(), steps_per_epoch)


def test_the_signature_of_0_2() -> None:
    same = v02.transforms.MapTransform(lambda batch, mask: batch)
    batch = v02.transforms.BatchTransform(2)
    loader = v02.loader.DataLoader([gymnax_source(), batch, same])
    first = loader.init_state(jax.random.PRNGKey(0))
    with pytest.raises(ValueError, match="policy"):
        loader.next(first)
    state = v02.rl.set_loader_policy_state(first, policy(2.0))
    values, state, mask = jax.jit(loader.next)(state)
    assert set(values) == LEAVES | {"info"}
    assert values["action"].tolist() == [2, 2]
    assert values["info"]["doubled"].tolist() == [4, 8]
    assert mask.tolist() == [True, True]
    _, state, _ = loader.next(state)
    assert int(state.inner_state.inner_state.epoch) == 1
    assert int(state.inner_state.position_in_epoch) == 0


def test_the_source_alone() -> None:
    source = gymnax_source(3)
    state = source.init_state(jax.random.PRNGKey(0))
    state = v02.rl.set_source_policy_state(state, policy(), new_episode=False)
    assert not state.new_episode
    for _ in range(3):
        value, mask, state = source.next(state)
        assert bool(mask)
    assert int(state.epoch) == 1
    assert bool(state.new_episode)
    assert value["reward"] == -3
    states = jax.vmap(source.init_state)(jax.random.split(jax.random.PRNGKey(1), 4))
    states = jax.vmap(lambda s: v02.rl.set_source_policy_state(s, policy()))(states)
    values, masks, _ = jax.vmap(source.next)(states)
    assert values["action"].shape == masks.shape == (4,)


def numbers(length: int) -> Any:
    return v02.sources.ArraySource({"value": jnp.arange(length)}, "sequential")


def test_the_contents_of_a_reservoir() -> None:
    capacity, total, key = 4, 20, jax.random.PRNGKey(123)
    stage = v02.transforms.BufferTransform(
        capacity, capacity, 1, "sequential", "reservoir"
    )
    pipeline = stage(numbers(total))
    state = pipeline.init_state(key)
    expected, rng = np.zeros(capacity, np.int32), jax.random.fold_in(key, 1)
    for value in range(total):
        _, _, state = pipeline.next(state)
        rng, write_key, _ = jax.random.split(rng, 3)
        row = value
        if value >= capacity:
            row = int(jax.random.randint(write_key, (), 0, value + 1))
        if row < capacity:
            expected[row] = value
    assert np.array_equal(state.buffer["value"], expected)


def test_several_samples_and_batches() -> None:
    buffer = v02.transforms.BufferTransform(16, 4, sample_size=4, mode="shuffled")
    loader = v02.loader.DataLoader(
        [numbers(32), buffer, v02.transforms.BatchTransform(3)]
    )
    state = loader.init_state(jax.random.PRNGKey(0))
    masks = []
    for _ in range(3):
        batch, state, mask = loader.next(state)
        assert batch["value"].shape == (3, 4)
        masks.append(mask.tolist())
    # One flag per value: before the buffer is filled, a value has empty samples.
    assert masks == [[False] * 3, [False, True, True], [True] * 3]
