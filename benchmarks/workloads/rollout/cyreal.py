"""Cyreal's `GymnaxSource`, in a scan of `next`; several environments by `vmap` of it.

Its source expects five values from a step, so a class joins two of gymnax's six. The
environments share the parameters of the policy, which is faster than a copy for each.
"""

from typing import Any

import jax
import jax.numpy as jnp
from cyreal.loader import DataLoader
from cyreal.rl import set_loader_policy_state
from cyreal.sources import GymnaxSource
from cyreal.transforms import BatchTransform

from workloads.rollout.workload import (
    ENV,
    ENV_PARAMS,
    EPOCH,
    PARAMS,
    SEED,
    STEPS,
    Rollout,
    policy,
)


class FiveValues:
    """The environment with the values of gymnax before 1.0."""

    reset = staticmethod(ENV.reset)

    @staticmethod
    def step(*arguments: Any) -> tuple[Any, ...]:
        """Observation, state, reward, done and info."""
        obs, state, reward, terminated, truncated, info = ENV.step(*arguments)
        return obs, state, reward, terminated | truncated, info


def build(envs: int | None) -> Rollout:
    """The batches of a loader, or of a loader for each environment."""
    source = GymnaxSource(FiveValues(), ENV_PARAMS, policy, PARAMS, EPOCH)
    loader = DataLoader([source, BatchTransform(STEPS)])
    params = jnp.asarray(PARAMS)
    key, following = jax.random.PRNGKey(SEED), loader.next
    if envs is None:
        state = loader.init_state(key)
    else:
        state = jax.vmap(loader.init_state)(jax.random.split(key, envs))
        axes = set_loader_policy_state(jax.tree.map(lambda _: 0, state), None)
        following = jax.vmap(loader.next, in_axes=(axes,), out_axes=(0, axes, 0))

    def step(state: Any) -> tuple[Any, Any]:
        batch, state, _ = following(state)
        return batch, state

    return Rollout(set_loader_policy_state(state, params), step, steps_first=False)
