"""Streams and environments for tests."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Count:
    """Counts, with random noise. Every third value does not count if ``holes``."""

    def __init__(self, steps: int = 5, holes: bool = False) -> None:
        self.steps_per_epoch = steps
        self.holes = holes

    def init_state(self, key: Any) -> Any:
        return {"key": key, "n": 0}  # a Python number, which has a weak type

    def next(self, state: Any) -> tuple[Any, Any, Any]:
        n = state["n"]
        key = jax.random.fold_in(state["key"], n)
        value = {"n": n, "x": jax.random.normal(key, (3,))}
        mask = (n % 3 != 1) if self.holes else True
        return value, mask, {"key": state["key"], "n": n + 1}

    def element_spec(self) -> Any:
        return {
            "n": jax.ShapeDtypeStruct((), np.int32),
            "x": jax.ShapeDtypeStruct((3,), np.float32),
        }


class CountMany(Count):
    """The same values, only by ``next_many``."""

    def next_many(self, state: Any, count: int) -> tuple[Any, Any, Any]:
        n = state["n"] + jnp.arange(count, dtype=np.int32)

        def noise(k: Any) -> Any:
            return jax.random.normal(jax.random.fold_in(state["key"], k), (3,))

        mask = (n % 3 != 1) if self.holes else jnp.ones(count, bool)
        after = {"key": state["key"], "n": state["n"] + count}
        return {"n": n, "x": jax.vmap(noise)(n)}, mask, after


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class WalkState:
    place: Any
    time: Any


class Walk:
    """An environment with Gymnax's interface: a random walk that ends at +-1.

    ``step`` returns five values, or six with ``truncates``.
    """

    def __init__(self, truncates: bool = False) -> None:
        self.truncates = truncates

    def reset(self, key: Any, params: Any = None) -> tuple[Any, Any]:
        place = jax.random.uniform(key, (2,), minval=-0.2, maxval=0.2)
        return place, WalkState(place, jnp.int32(0))

    def step(self, key: Any, state: Any, action: Any, params: Any = None) -> Any:
        key, reset_key = jax.random.split(key)
        move = (action.astype(np.float32) - 0.5) * params
        place = state.place + move + 0.1 * jax.random.normal(key, (2,))
        time = state.time + 1
        ended, late = jnp.abs(place).max() > 1, time >= 9
        done = ended | late
        obs, start = self.reset(reset_key, params)
        after = jax.tree.map(
            lambda a, b: jnp.where(done, a, b), start, WalkState(place, time)
        )
        first = jnp.where(done, obs, place)
        reward = -jnp.abs(place).sum()
        info = {"time": time, "final_observation": place}
        if self.truncates:
            return first, after, reward, ended, late, info
        return first, after, reward, done, info


def policy(obs: Any, params: Any, key: Any) -> Any:
    return jax.random.bernoulli(key, jax.nn.sigmoid(obs @ params)).astype(np.int32)


def policy_step(obs: Any, state: Any, new_episode: Any, key: Any) -> Any:
    count = jnp.where(new_episode, 0, state["count"] + 1)
    return policy(obs, state["weights"], key), {**state, "count": count}


PARAMS = np.array([0.5, -0.25], np.float32)
POLICY = {"weights": PARAMS, "count": np.int32(0)}
