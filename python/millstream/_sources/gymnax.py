"""A stream of transitions from a Gymnax environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from millstream._core import threefry
from millstream._core.arguments import whole
from millstream._core.description import Description, Tree
from millstream._core.public import public

_GYMNAX = "gymnax.environments.environment"


@public
@jax.tree_util.register_dataclass
@dataclass
class GymnaxSourceState:
    """The state of a ``GymnaxSource``.

    With ``num_envs``, all but ``step``, ``epoch`` and a shared policy have a leading
    axis.
    """

    env_state: Any
    obs: Any
    key: Any
    step: Any
    epoch: Any
    policy_state: Any = None
    new_episode: Any = None


class _Draws(NamedTuple):
    """What a step needs that depends on its key alone."""

    policy_key: Any
    step_key: Any
    restart: Any
    """``(obs, state)`` of the environment's own reset, or None if its step resets."""
    reset: Any
    """``(obs, state)`` of the reset after the end of an episode, or None."""
    epoch_key: Any


@public
@dataclass(frozen=True, eq=False)
class GymnaxSource(Description):
    """Transitions of a Gymnax environment that a policy controls, one per sample.

    A transition is a dict of ``state``, ``action``, ``reward``, ``next_state`` and
    ``done``. ``policy_step_fn`` also adds ``info``. In the last step of an episode,
    ``next_state`` is not the last observation, because environments reset themselves
    in that step.

    Replace the parameters of the policy with ``set_loader_policy_state``.

    Args:
      env: The environment.
      env_params: Its parameters; None for its defaults.
      policy_fn: ``policy_fn(obs, params, key) -> action``.
      policy_params: The parameters of ``policy_fn``.
      steps_per_epoch: The number of steps in an epoch.
      policy_step_fn: ``policy_step_fn(obs, policy_state, new_episode, key) -> (action,
        policy_state)``, for policies with a state. Use it instead of ``policy_fn``.
      policy_state_template: A policy state, or its spec. Only its structure, shapes and
        dtypes are used. Set the first policy state with ``set_loader_policy_state``.
      reset_on_epoch: Whether to reset the environment again at the end of each episode
        and of each epoch. False leaves all resets to the environment.
      num_envs: How many environments to step at once. Samples then have a leading axis
        of this length, and so has their mask.
      policy_axes: The axes of the policy's parameters or state, as ``in_axes`` of
        ``jax.vmap``. None means that all environments share them. With ``{"weights":
        None, "memory": 0}``, each environment has its own ``memory``.
      final_observation: Whether a transition has the last observation of its episode as
        ``final_observation``. The environment must give it in ``info``.
    """

    env: Any
    env_params: Any = None
    policy_fn: Callable[..., Any] | None = None
    policy_params: Any = None
    steps_per_epoch: int = 1024
    _: dataclasses.KW_ONLY
    policy_step_fn: Callable[..., Any] | None = None
    policy_state_template: Any = None
    reset_on_epoch: bool = True
    num_envs: int | None = None
    policy_axes: Any = None
    final_observation: bool = False

    def __post_init__(self) -> None:
        whole("GymnaxSource: steps_per_epoch", self.steps_per_epoch, 1)
        if self.num_envs is not None:
            whole("GymnaxSource: num_envs", self.num_envs, 1)
        if isinstance(self.env, tuple | str):
            raise TypeError(
                f"GymnaxSource: env is a {type(self.env).__name__}, not an "
                "environment. Write env, env_params = gymnax.make(name)."
            )
        if isinstance(self.env, type):
            raise TypeError(
                f"GymnaxSource: env is the class {self.env.__name__} (did you forget "
                "to call it?)"
            )
        self._check_policy()
        count = len(self._step_values)
        if count not in (5, 6):
            raise TypeError(
                "GymnaxSource: env.step must return 5 values (obs, state, reward, "
                "done, info) or 6 (terminated and truncated instead of done), found "
                f"{count}"
            )

    def _check_policy(self) -> None:
        if (self.policy_fn is None) == (self.policy_step_fn is None):
            found = "neither" if self.policy_fn is None else "both"
            raise TypeError(
                "GymnaxSource takes policy_fn(obs, params, key) or policy_step_fn(obs, "
                f"policy_state, new_episode, key), found {found}"
            )
        if not callable(self.policy_fn or self.policy_step_fn):
            raise TypeError("GymnaxSource: the policy must be a function")
        if self.policy_fn is not None and self.policy_state_template is not None:
            raise TypeError(
                "GymnaxSource: policy_state_template belongs to policy_step_fn. Pass "
                "policy_params to policy_fn."
            )
        if self.policy_step_fn is not None and self.policy_params is not None:
            raise TypeError(
                "GymnaxSource: policy_params belongs to policy_fn. Pass "
                "policy_state_template to policy_step_fn."
            )
        if self.policy_step_fn is not None and self.policy_state_template is None:
            raise ValueError(
                "GymnaxSource: policy_step_fn needs a policy_state_template, which "
                "has the shapes of the policy's state"
            )

    # The environment.

    @cached_property
    def _params(self) -> Any:
        defaults = self.env_params is None and hasattr(self.env, "default_params")
        return self.env.default_params if defaults else self.env_params

    @cached_property
    def _step_values(self) -> tuple[Any, ...]:
        """The specs of what ``env.step`` returns."""

        def once(key: Any, policy: Any) -> Any:
            obs, state = self.env.reset(key, self._params)
            action, _ = self._policy(obs, policy, jnp.array(True), key)
            return self.env.step(key, state, action, self._params)

        template, key, each = self._policy_template, _KEY, once
        if self.num_envs is not None:
            key = jax.ShapeDtypeStruct((self.num_envs, 2), np.uint32)
            each = jax.vmap(once, (0, self.policy_axes))
        return tuple(jax.eval_shape(each, key, template))

    @cached_property
    def _resets_itself(self) -> bool:
        """Whether ``step`` and ``reset`` are those of Gymnax, which can be divided.

        The reset in ``step`` depends on its key alone, so ``next_many`` can do it for
        all steps at once.
        """
        return all(
            next(c for c in type(self.env).__mro__ if name in c.__dict__).__module__
            == _GYMNAX
            for name in ("step", "reset")
        )

    def _stepped(
        self, draws: _Draws, state: Any, action: Any
    ) -> tuple[Any, Any, Any, Any, Any]:
        """Returns ``(obs, state, reward, done, info)`` after a step."""
        if draws.restart is None:
            values = self.env.step(draws.step_key, state, action, self._params)
            obs, state, reward, *ends, info = values
            done = ends[0] if len(ends) == 1 else jnp.logical_or(*ends)
            return obs, state, reward, done, info
        last_obs, after, reward, done, info = self.env.step_env(
            draws.step_key, state, action, self._params
        )
        if len(self._step_values) == 6:
            ends = {
                "terminated": done,
                "truncated": self.env.is_truncated(after, self._params),
            }
            done = jnp.logical_or(*ends.values())
            info = {**info, **ends, "final_observation": last_obs}
        obs, state = _chosen(done, draws.restart, (last_obs, after))
        return obs, state, reward, done, info

    # The policy.

    @property
    def _policy_template(self) -> Any:
        if self.policy_fn is not None:
            return self.policy_params
        return self.policy_state_template

    def _policy(self, obs: Any, state: Any, new_episode: Any, key: Any) -> Any:
        """Returns ``(action, policy_state)``."""
        if self.policy_fn is not None:
            return self.policy_fn(obs, state, key), state
        result = self.policy_step_fn(obs, state, new_episode, key)  # type: ignore[misc]
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(
                "GymnaxSource: policy_step_fn must return (action, policy_state), "
                f"found {type(result).__name__}"
            )
        return result[0], result[1]

    # The stream.

    def element_spec(self) -> Tree:
        """Returns the spec of a transition."""
        value, _, _ = jax.eval_shape(self.next, self.state_spec())
        return value

    def state_spec(self) -> GymnaxSourceState:
        """Returns the spec of a state with a policy state."""
        state = jax.eval_shape(self.init_state, _KEY)
        template = jax.tree.map(_spec, self._policy_template)
        return dataclasses.replace(state, policy_state=template)

    def init_state(self, key: Any = None) -> GymnaxSourceState:
        """Returns the first state; that of ``policy_step_fn`` has no policy state."""
        key = jax.random.PRNGKey(0) if key is None else jnp.asarray(key)
        if self.num_envs is not None:
            key = threefry.split(key, self.num_envs)
        key, obs, env_state = self._each(self._first)(key)
        zero = jnp.zeros((), np.int32)
        policy = jax.tree.map(jnp.asarray, self.policy_params)
        new = jnp.ones(() if self.num_envs is None else (self.num_envs,), bool)
        return GymnaxSourceState(env_state, obs, key, zero, zero, policy, new)

    def _first(self, key: Any) -> tuple[Any, Any, Any]:
        key, env_key = threefry.split(key)
        return key, *self.env.reset(env_key, self._params)

    def check_state(self, state: GymnaxSourceState) -> None:
        """Raises ``ValueError`` if the policy state was never set."""
        if self.policy_step_fn is not None and state.policy_state is None:
            raise ValueError(
                "GymnaxSource: the state has no policy_state. Set it before the first "
                "step: state = set_loader_policy_state(state, policy_state)"
            )

    def split(self, *_: Any) -> NoReturn:
        """Raises ``TypeError``, because a stream has no samples to divide."""
        raise TypeError(
            "a GymnaxSource cannot be split, because it makes its samples one after "
            "another. Use two sources with different seeds."
        )

    def next(self, state: GymnaxSourceState) -> tuple[Tree, Any, GymnaxSourceState]:
        """Returns ``(transition, mask, state)``."""
        self.check_state(state)
        keys = self._each(lambda key: threefry.split(key, 5))(state.key)
        return self._advance(
            state, self._each(self._first_of)(keys), self._draws_of(keys)
        )

    def next_many(
        self, state: GymnaxSourceState, count: int
    ) -> tuple[Tree, Any, GymnaxSourceState]:
        """Returns the same as ``count`` calls of ``next``, stacked.

        Keys and resets do not depend on the policy, so they are made first.
        """
        self.check_state(state)
        split = self._each(lambda key: threefry.split(key, 5))

        def next_keys(key: Any, _: None) -> tuple[Any, Any]:
            keys = split(key)
            return self._each(self._first_of)(keys), keys

        _, keys = lax.scan(next_keys, state.key, None, length=count)

        def step(state: Any, drawn: Any) -> tuple[Any, Any]:
            value, mask, state = self._advance(state, *drawn)
            return state, (value, mask)

        drawn = (
            jax.vmap(self._each(self._first_of))(keys),
            jax.vmap(self._draws_of)(keys),
        )
        state, (values, masks) = lax.scan(step, state, drawn, length=count)
        return values, masks, state

    @staticmethod
    def _first_of(keys: Any) -> Any:
        return keys[0]

    def _draws_of(self, keys: Any) -> _Draws:
        """Returns what a step needs from its five keys, for all environments."""
        return self._each(self._draws)(keys)

    def _draws(self, keys: Any) -> _Draws:
        _, policy_key, step_key, done_key, epoch_key = keys
        restart = None
        if self._resets_itself:
            step_key, restart_key = threefry.split(step_key)
            restart = self.env.reset_env(restart_key, self._params)
        reset = self.env.reset(done_key, self._params) if self.reset_on_epoch else None
        return _Draws(policy_key, step_key, restart, reset, epoch_key)

    def _advance(
        self, state: GymnaxSourceState, key: Any, draws: _Draws
    ) -> tuple[Tree, Any, GymnaxSourceState]:
        one, axes = self._transition, self.policy_axes
        if self.num_envs is not None:
            one = jax.vmap(one, (0, 0, axes, 0, 0), (0, 0, 0, 0, axes))
        try:
            value, obs, env_state, done, policy = one(
                state.obs, state.env_state, state.policy_state, state.new_episode, draws
            )
        except ValueError as error:
            if self.num_envs is None or self.policy_step_fn is None:
                raise
            raise ValueError(
                f"GymnaxSource: policy_step_fn failed for {self.num_envs} environments "
                f"with policy_axes={self.policy_axes!r}. If each environment has its "
                "own policy state, pass policy_axes=0 and a policy_state_template "
                f"with a leading axis of {self.num_envs}. The error was: {error}"
            ) from error
        step = state.step + 1
        ended = step >= self.steps_per_epoch
        new_episode = done
        if self.reset_on_epoch:

            def reset() -> tuple[Any, Any]:
                fresh = self._each(lambda key: self.env.reset(key, self._params))
                return _like(fresh(draws.epoch_key), (obs, env_state))

            obs, env_state = lax.cond(ended, reset, lambda: (obs, env_state))
            new_episode = new_episode | ended
        after = GymnaxSourceState(
            env_state,
            obs,
            key,
            jnp.where(ended, 0, step),
            state.epoch + ended,
            policy,
            new_episode,
        )
        return value, jnp.ones(done.shape, bool), after

    def _transition(
        self, obs: Any, env_state: Any, policy: Any, new_episode: Any, draws: _Draws
    ) -> tuple[Any, ...]:
        """Makes one step of one environment."""
        action, policy = self._policy(obs, policy, new_episode, draws.policy_key)
        next_obs, env_state, reward, done, info = self._stepped(
            draws, env_state, action
        )
        value = {
            "state": obs,
            "action": action,
            "reward": reward,
            "next_state": next_obs,
            "done": done,
        }
        if self.policy_step_fn is not None:
            value["info"] = info
        if self.final_observation:
            if "final_observation" not in info:
                raise ValueError(
                    "GymnaxSource: the environment gives no 'final_observation' in "
                    f"info, which has the keys {sorted(info)}. Remove "
                    "final_observation=True."
                )
            value["final_observation"] = info["final_observation"]
        ended = jnp.asarray(done, bool).reshape(())
        after = next_obs, env_state
        if draws.reset is not None:
            after = _chosen(ended, _like(draws.reset, after), after)
        return value, *after, ended, policy

    def _each(self, one: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``one``, for all environments."""
        return one if self.num_envs is None else jax.vmap(one)


_KEY = jax.ShapeDtypeStruct((2,), np.uint32)


def _spec(x: Any) -> jax.ShapeDtypeStruct:
    x = x if hasattr(x, "dtype") and hasattr(x, "shape") else jnp.asarray(x)
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))


def _chosen(first: Any, a: Tree, b: Tree) -> Tree:
    return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)


def _like(tree: Tree, other: Tree) -> Tree:
    """Returns a pytree with the dtypes of another one."""
    return jax.tree.map(
        lambda x, y: jnp.asarray(x).astype(jnp.result_type(y)), tree, other
    )
