"""The sources of Cyreal 0.2.x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import millstream
from millstream import ArraySampleSource as ArraySource
from millstream import DiskSampleSource as DiskSource
from millstream._core.description import Tree
from millstream._sources.gymnax import GymnaxSourceState
from millstream.cyreal._protocols import Source

__all__ = ["ArraySource", "DiskSource", "GymnaxSource", "GymnaxSourceState", "Source"]


def GymnaxSource(
    env: Any,
    env_params: Any,
    policy_step_fn: Callable[..., Any],
    policy_state_template: Tree = None,
    steps_per_epoch: int = 1024,
) -> millstream.GymnaxSource:
    """Rolls out an environment; see ``millstream.GymnaxSource``."""
    return millstream.GymnaxSource(
        env,
        env_params,
        policy_step_fn=policy_step_fn,
        policy_state_template=policy_state_template,
        steps_per_epoch=steps_per_epoch,
    )
