"""By hand: a scan of `env.step`, with `vmap` for several environments.

The environment resets itself at the end of an episode. There is no epoch, no second
reset and no mask, and the keys differ from those of the loaders. The keys of a batch
are drawn at once.
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


def advance(obs: Any, state: Any, params: Any, keys: Any) -> tuple[Any, Any, Any]:
    """One step of one environment."""
    action, _ = policy(obs, params, None, keys[0])
    after = ENV.step(keys[1], state, action, ENV_PARAMS)
    return transition_of(obs, action, after)


def build(envs: int | None) -> Rollout:
    """The batches of one or several environments."""
    shape = () if envs is None else (envs,)
    reset, stepped = ENV.reset, advance
    if envs is not None:
        reset = jax.vmap(reset, in_axes=(0, None))
        stepped = jax.vmap(advance, in_axes=(0, 0, None, 0))

    def step(carry: Any) -> tuple[Any, Any]:
        def body(carry: Any, keys: Any) -> tuple[Any, Any]:
            obs, state, params = carry
            value, obs, state = stepped(obs, state, params, keys)
            return (obs, state, params), value

        *carry, key = carry
        key, now = jax.random.split(key)
        keys = jax.random.split(now, (STEPS, *shape, 2))
        carry, batch = jax.lax.scan(body, tuple(carry), keys)
        return batch, (*carry, key)

    key, now = jax.random.split(jax.random.PRNGKey(SEED))
    start = *reset(jax.random.split(now, shape), ENV_PARAMS), PARAMS, key
    return Rollout(start, step, same_keys=False)
