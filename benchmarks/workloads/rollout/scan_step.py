"""By hand: a scan of `env.step`, with `vmap` for several environments.

The environment resets itself at the end of an episode. There is no epoch, no second
reset and no mask, and the keys differ from those of the loaders.
"""

from typing import Any

import jax

from workloads.rollout.workload import (
    ENV,
    ENV_PARAMS,
    PARAMS,
    SEED,
    STEPS,
    Rollout,
    policy,
    transition_of,
)


def advance(obs: Any, state: Any, params: Any, key: Any) -> tuple[Any, Any, Any]:
    """One step of one environment."""
    policy_key, step_key = jax.random.split(key)
    action, _ = policy(obs, params, None, policy_key)
    after = ENV.step(step_key, state, action, ENV_PARAMS)
    return transition_of(obs, action, after)


def build(envs: int | None) -> Rollout:
    """The batches of one or several environments."""
    reset, stepped = ENV.reset, advance
    if envs is not None:
        reset = jax.vmap(reset, in_axes=(0, None))
        stepped = jax.vmap(advance, in_axes=(0, 0, None, 0))

    def keys_of(key: Any) -> Any:
        return key if envs is None else jax.random.split(key, envs)

    def step(carry: Any) -> tuple[Any, Any]:
        def body(carry: Any, _: None) -> tuple[Any, Any]:
            obs, state, params, key = carry
            key, now = jax.random.split(key)
            value, obs, state = stepped(obs, state, params, keys_of(now))
            return (obs, state, params, key), value

        carry, batch = jax.lax.scan(body, carry, length=STEPS)
        return batch, carry

    key, now = jax.random.split(jax.random.PRNGKey(SEED))
    start = *reset(keys_of(now), ENV_PARAMS), PARAMS, key
    return Rollout(start, step, same_keys=False)
