"""Rollouts with gymnax 1.0.x, whose environments return six values from a step."""

from __future__ import annotations

from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import millstream
import numpy as np
import pytest
from conftest import check_same, scanned

WEIGHTS = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6], [0.7, -0.8]], np.float32)
STEPS_PER_EPOCH, BATCH, BATCHES = 150, 25, 16


def policy(obs: Any, weights: Any, key: Any) -> Any:
    return jax.random.categorical(key, obs @ weights)


def test_a_step_returns_six_values() -> None:
    """``GymnaxSource`` relies on these facts."""
    env, params = gymnax.make("CartPole-v1")
    key = jax.random.PRNGKey(0)
    obs, state = env.reset(key, params)
    *_, terminated, truncated, info = env.step(key, state, 0, params)
    assert terminated.dtype == truncated.dtype == jnp.bool_
    assert {"terminated", "truncated", "final_observation"} <= set(info)
    assert info["final_observation"].shape == obs.shape


def reference(env: Any, params: Any, steps: int) -> Any:
    """A rollout by hand: the documented keys, and a reset after each episode."""

    def step(carried: Any, _: None) -> Any:
        key, obs, env_state, count = carried
        key, policy_key, step_key, done_key, epoch_key = jax.random.split(key, 5)
        action = policy(obs, WEIGHTS, policy_key)
        next_obs, next_state, reward, terminated, truncated, info = env.step(
            step_key, env_state, action, params
        )
        done = terminated | truncated
        value = {
            "state": obs,
            "action": action,
            "reward": reward,
            "next_state": next_obs,
            "done": done,
        }
        ends = count + 1 >= STEPS_PER_EPOCH
        pairs = [(done, env.reset(done_key, params))]
        pairs.append((ends, env.reset(epoch_key, params)))
        after = (next_obs, next_state)
        for flag, fresh in pairs:
            after = jax.tree.map(
                lambda new, old, flag=flag: jnp.where(flag, new, old), fresh, after
            )
        carried = (key, *after, jnp.where(ends, 0, count + 1))
        return carried, (value, info["final_observation"])

    key, env_key = jax.random.split(jax.random.PRNGKey(5))
    start = (key, *env.reset(env_key, params), jnp.int32(0))
    return jax.jit(lambda c: jax.lax.scan(step, c, None, length=steps)[1])(start)


@pytest.fixture(scope="module")
def expected() -> Any:
    env, params = gymnax.make("CartPole-v1")
    values, final = reference(env, params, BATCH * BATCHES)
    assert int(values["done"].sum()) > 5
    return jax.tree.map(
        lambda x: x.reshape(BATCHES, BATCH, *x.shape[1:]), (values, final)
    )


def test_values(expected: Any) -> None:
    env, params = gymnax.make("CartPole-v1")
    source = millstream.GymnaxSource(
        env, params, policy, WEIGHTS, STEPS_PER_EPOCH, final_observation=True
    )
    loader = millstream.DataLoader([source, millstream.BatchTransform(BATCH)])
    state = loader.init_state(jax.random.PRNGKey(5))
    (batch, mask), _ = scanned(loader, state, BATCHES)
    final = batch.pop("final_observation")
    check_same((batch, final), expected)
    assert bool(mask.all())


def test_several_environments() -> None:
    env, params = gymnax.make("CartPole-v1")
    options = {"steps_per_epoch": STEPS_PER_EPOCH}
    several = millstream.GymnaxSource(
        env, params, policy, WEIGHTS, num_envs=3, **options
    )
    loader = millstream.DataLoader([several])
    key = jax.random.PRNGKey(5)
    (found, mask), _ = scanned(loader, loader.init_state(key), 60)
    assert mask.shape == (60, 3)
    one = millstream.DataLoader(
        [millstream.GymnaxSource(env, params, policy, WEIGHTS, **options)]
    )
    for number, inner in enumerate(jax.random.split(key, 3)):
        (single, _), _ = scanned(one, one.init_state(inner), 60)
        for name in ("action", "done"):
            assert np.array_equal(found[name][:, number], single[name])
        for name in ("state", "next_state", "reward"):
            np.testing.assert_allclose(
                found[name][:, number], single[name], rtol=1e-5, atol=1e-5
            )
