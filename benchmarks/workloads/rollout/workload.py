"""Rollouts of CartPole inside jit, in batches of 128 steps.

The reference draws the keys as `GymnaxSource` documents it. A contender with other keys
is only compared with the dynamics of the environment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np

from harness import Task, WrongAnswer
from replay import total

STEPS = 128  # per batch
EPOCH = 500 * STEPS
CHECKED = 8  # batches
SEED = 3
PARAMS = np.array([[0, 0.3], [0, 0.3], [0, 2], [0, 2]], np.float32)
ENV, ENV_PARAMS = gymnax.make("CartPole-v1")


def policy(obs: Any, params: Any, new_episode: Any, key: Any) -> tuple[Any, Any]:
    """A random action that depends on the observation, and the parameters."""
    return jax.random.categorical(key, obs @ params), params


@dataclass(frozen=True)
class Rollout:
    """What a contender builds: `step(state)` returns a batch and the next state.

    The arrays of a batch begin with the axes of steps and environments, or with these
    in reverse order (`steps_first=False`). Without `envs`, they have only the first.
    `same_keys` says whether the rollout is that of the reference.
    """

    state: Any
    step: Callable[[Any], tuple[Any, Any]]
    steps_first: bool = True
    same_keys: bool = True


def transition_of(obs: Any, action: Any, after: Any) -> tuple[Any, Any, Any]:
    """The transition, the next observation and state, from what `step` returned."""
    following, state, reward, terminated, truncated, info = after
    value = {
        "state": obs,
        "action": action,
        "reward": reward,
        "next_state": following,
        "done": terminated | truncated,
        "info": info,
    }
    return value, following, state


def reference(key: Any) -> Any:
    """The first transitions of one environment."""

    def step(carry: Any, _: None) -> tuple[Any, Any]:
        key, obs, state = carry
        key, policy_key, step_key, reset_key, _ = jax.random.split(key, 5)
        action, _ = policy(obs, PARAMS, None, policy_key)
        after = ENV.step(step_key, state, action, ENV_PARAMS)
        value, obs, state = transition_of(obs, action, after)
        fresh = ENV.reset(reset_key, ENV_PARAMS)
        obs, state = jax.tree.map(
            lambda x, y: jnp.where(value["done"], x, y), fresh, (obs, state)
        )
        return (key, obs, state), value

    key, env_key = jax.random.split(key)
    start = key, *ENV.reset(env_key, ENV_PARAMS)
    return jax.lax.scan(step, start, length=CHECKED * STEPS)[1]


def check(batches: Any, envs: int | None, same_keys: bool) -> None:
    """Raises unless the transitions (steps, environments, ...) are right."""
    found = jax.tree.map(np.asarray, batches)
    state, following, done = found["state"], found["next_state"], found["done"]
    stepped = jax.vmap(jax.vmap(outcome))(state, found["action"])
    ends = np.asarray(stepped["ends"])
    if np.any(ends & ~done) or done.mean() > 0.1 or not np.any(done):
        raise WrongAnswer("episodes that end at other steps than CartPole's")
    if not np.allclose(following[~done], stepped["obs"][~done], atol=1e-5):
        raise WrongAnswer("observations that do not follow from the actions")
    if np.abs(following[done]).max() > 0.05:
        raise WrongAnswer("episodes that do not begin near the middle")
    same = np.all(state[1:] == following[:-1], axis=-1)
    if not np.all(same[~done[:-1]]):
        raise WrongAnswer("a transition that does not continue the one before")
    if not same_keys:
        return
    key = jax.random.PRNGKey(SEED)
    keys = key[None] if envs is None else jax.random.split(key, envs)
    wanted = jax.jit(jax.vmap(reference, out_axes=1))(keys)
    # XLA rounds differently if it vectorises over environments. A pole that is balanced
    # multiplies such a difference, so only the first batch of many is comparable.
    some = slice(None if envs is None else STEPS)
    for name in ("action", "done"):
        if not np.array_equal(found[name][some], wanted[name][some]):
            raise WrongAnswer(f"{name} differs from the reference")
    if not np.allclose(state[some], wanted["state"][some], atol=1e-3):
        raise WrongAnswer("observations differ from the reference")


def outcome(obs: Any, action: Any) -> Any:
    """The observation after an action, and whether the pole has fallen."""
    _, state = ENV.reset_env(jax.random.PRNGKey(0), ENV_PARAMS)
    x, x_dot, theta, theta_dot = obs
    state = state.replace(x=x, x_dot=x_dot, theta=theta, theta_dot=theta_dot)
    after = ENV.step_env(jax.random.PRNGKey(0), state, action, ENV_PARAMS)
    return {"obs": after[0], "ends": after[3]}


def prepare(contender: ModuleType, envs: int | None = None, batches: int = 200) -> Task:
    """Checks the first batches. A round is one jitted scan over `batches` batches."""
    rollout: Rollout = contender.build(envs)

    @jax.jit
    def first(state: Any) -> Any:
        def body(state: Any, _: None) -> tuple[Any, Any]:
            batch, state = rollout.step(state)
            return state, batch

        return jax.lax.scan(body, state, length=CHECKED)[1]

    def ordered(x: Any) -> Any:
        x = np.asarray(x)
        if envs is None:
            x = x[:, :, None]
        elif not rollout.steps_first:
            x = np.moveaxis(x, 1, 2)
        return x.reshape(CHECKED * STEPS, *x.shape[2:])

    check(jax.tree.map(ordered, first(rollout.state)), envs, rollout.same_keys)

    @jax.jit
    def run(state: Any) -> Any:
        def body(carry: Any, _: None) -> tuple[Any, None]:
            state, sums = carry
            batch, state = rollout.step(state)
            return (state, sums + total(batch)), None

        return jax.lax.scan(body, (state, jnp.float32(0)), length=batches)[0]

    state = rollout.state

    def round() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(run(state))

    return Task(batches * STEPS * (envs or 1), round)
