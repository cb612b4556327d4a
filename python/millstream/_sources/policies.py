"""Functions that replace the policy in the state of a stream."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from millstream._core.public import public
from millstream._run.state import LoaderState
from millstream._run.stream_nodes import strong


@public
def set_loader_policy_state(
    state: LoaderState, policy_state: Any, *, new_episode: Any = None
) -> LoaderState:
    """Returns a loader's state with another state or parameters of the policy.

    ``new_episode`` replaces the flag that tells ``policy_step_fn`` that an episode
    begins. Pass True if the new policy state has no memory of the current episode. None
    keeps the flag.
    """
    if not isinstance(state, LoaderState) or state.stream is None:
        raise TypeError(
            "set_loader_policy_state needs a LoaderState with the state of a stream, "
            f"found {'one without' if isinstance(state, LoaderState) else repr(state)}"
        )
    changed = set_source_policy_state(
        state.stream, policy_state, new_episode=new_episode
    )
    return LoaderState(state.words, changed)


@public
def set_source_policy_state(
    state: Any, policy_state: Any, *, new_episode: Any = None
) -> Any:
    """Returns a state of a stream with another state or parameters of the policy.

    It looks for the first ``policy_state`` along ``inner_state``.
    """
    if hasattr(state, "policy_state"):
        changes = {"policy_state": strong(policy_state)}
        if new_episode is not None:
            shape = jnp.shape(state.new_episode)
            changes["new_episode"] = jnp.broadcast_to(
                jnp.asarray(new_episode, bool), shape
            )
        return dataclasses.replace(state, **changes)
    if hasattr(state, "inner_state"):
        inner = set_source_policy_state(
            state.inner_state, policy_state, new_episode=new_episode
        )
        return dataclasses.replace(state, inner_state=inner)
    raise AttributeError(
        f"no policy_state in the state, which ends with {type(state).__name__}. Only a "
        "GymnaxSource has one."
    )
