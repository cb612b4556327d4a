"""Millstream's `GymnaxSource`, in a scan of `next_batch`."""

from typing import Any

import millstream as ms

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


def build(envs: int | None) -> Rollout:
    """The batches of a loader over one or several environments."""
    source = ms.GymnaxSource(
        ENV,
        ENV_PARAMS,
        policy_step_fn=policy,
        policy_state_template=PARAMS,
        steps_per_epoch=EPOCH,
        num_envs=envs,
    )
    loader = ms.DataLoader([source, ms.BatchTransform(STEPS)])

    def step(state: Any) -> tuple[Any, Any]:
        batch, state, _ = loader.next_batch(state)
        return batch, state

    return Rollout(ms.set_loader_policy_state(loader.init_state(SEED), PARAMS), step)
