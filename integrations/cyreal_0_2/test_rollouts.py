"""Rollouts of one environment, compared with cyreal 0.2.1 bit for bit.

Both packages use the same key recipe, and XLA compiles both in the same process.
"""

from __future__ import annotations

from typing import Any

import cyreal.loader
import cyreal.rl
import cyreal.sources
import cyreal.transforms
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import check_same, scanned
from millstream import cereal
from millstream.cyreal import v02

STEPS_PER_EPOCH, BATCH, BATCHES = 800, 50, 40
FIELDS = ("env_state", "obs", "key", "step", "epoch", "policy_state", "new_episode")
WEIGHTS = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6], [0.7, -0.8]], np.float32)


def policy_step(obs: Any, policy: Any, new_episode: Any, key: Any) -> Any:
    """A policy that counts its steps since the start of an episode."""
    count = jnp.where(new_episode, 0, policy["count"] + 1)
    action = jax.random.categorical(key, obs @ policy["weights"])
    return action, {**policy, "count": count}


def policy() -> dict[str, Any]:
    return {"weights": jnp.asarray(WEIGHTS), "count": jnp.int32(0)}


def policy_fn(obs: Any, weights: Any, key: Any) -> Any:
    """The same actions, by a function with the seed's signature."""
    return jax.random.categorical(key, obs @ weights)


def source(package: Any, steps_per_epoch: int = STEPS_PER_EPOCH) -> Any:
    env, params = gymnax.make("CartPole-v1")
    return package.GymnaxSource(env, params, policy_step, policy(), steps_per_epoch)


def started(loader: Any, rl: Any) -> Any:
    return rl.set_loader_policy_state(
        loader.init_state(jax.random.PRNGKey(5)), policy()
    )


def source_state(state: Any) -> Any:
    """Returns the state of the source inside the states of the stages."""
    while not hasattr(state, "policy_state"):
        state = state.inner_state
    return state


def fields(state: Any) -> dict[str, Any]:
    found = source_state(state)
    return {
        name: jax.tree.leaves(getattr(found, name)) for name in FIELDS
    }  # the classes of the two states differ, their leaves do not


def their_rollout(**remainder: Any) -> Any:
    steps_per_epoch = remainder.pop("steps_per_epoch", STEPS_PER_EPOCH)
    loader = cyreal.loader.DataLoader(
        [
            source(cyreal.sources, steps_per_epoch),
            cyreal.transforms.BatchTransform(BATCH, **remainder),
        ]
    )
    return scanned(loader, started(loader, cyreal.rl), BATCHES)


@pytest.fixture(scope="module")
def expected() -> Any:
    """2,000 steps with two epoch ends, and the last state."""
    found, state = their_rollout()
    assert int(source_state(state).epoch) == 2
    assert int(found[0]["done"].sum()) > 20
    return found, state


def test_values_and_the_last_state(expected: Any) -> None:
    loader = v02.DataLoader([source(v02.sources), v02.BatchTransform(BATCH)])
    found, state = scanned(loader, started(loader, v02.rl), BATCHES)
    check_same(found, expected[0])
    check_same(fields(state), fields(expected[1]))


def test_a_python_loop_gives_the_same(expected: Any) -> None:
    loader = v02.DataLoader([source(v02.sources), v02.BatchTransform(BATCH)])
    iterator = loader.iterate(started(loader, v02.rl), steps=BATCHES)
    batches = jax.tree.map(lambda *rows: np.stack(rows), *iterator)
    check_same(batches, expected[0])
    check_same(fields(iterator.state), fields(expected[1]))


def test_the_first_signature_gives_the_same(expected: Any) -> None:
    env, params = gymnax.make("CartPole-v1")
    own = cereal.GymnaxSource(env, params, policy_fn, WEIGHTS, STEPS_PER_EPOCH)
    loader = v02.DataLoader([own, v02.BatchTransform(BATCH)])
    state = loader.init_state(jax.random.PRNGKey(5))
    (batch, mask), _ = scanned(loader, state, BATCHES)
    rest = {key: value for key, value in expected[0][0].items() if key != "info"}
    check_same((batch, mask), (rest, expected[0][1]))


@pytest.mark.parametrize("remainder", ["drop_last", "pad_last_batch"])
def test_an_epoch_that_is_no_multiple_of_the_batch(remainder: str) -> None:
    options = {remainder: True}
    expected, state = their_rollout(steps_per_epoch=130, **options)
    loader = v02.DataLoader(
        [source(v02.sources, 130), v02.BatchTransform(BATCH, **options)]
    )
    found, last = scanned(loader, started(loader, v02.rl), BATCHES)
    check_same(found, expected)
    check_same(fields(last), fields(state))


def test_a_source_of_cyreal_in_a_pipeline_of_millstream(expected: Any) -> None:
    loader = v02.DataLoader([source(cyreal.sources), v02.BatchTransform(BATCH)])
    state = v02.rl.set_loader_policy_state(
        loader.init_state(jax.random.PRNGKey(5)), policy()
    )
    found, _ = scanned(loader, state, BATCHES)
    check_same(found, expected[0])


def test_a_policy_that_was_never_set() -> None:
    for package, loader in ((cyreal.sources, cyreal.loader), (v02.sources, v02)):
        built = loader.DataLoader([source(package)])
        with pytest.raises(ValueError, match="policy"):
            built.next(built.init_state(jax.random.PRNGKey(0)))
