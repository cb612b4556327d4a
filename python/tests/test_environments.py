"""Rollouts of environments with the interface of Gymnax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import fails
from millstream._core import threefry
from stream_sources import PARAMS, POLICY, Walk, policy, policy_step

STEPS = 12
LEAVES = {"state", "action", "reward", "next_state", "done"}


def source(**more: Any) -> ms.GymnaxSource:
    given: dict[str, Any] = {"steps_per_epoch": STEPS, **more}
    return ms.GymnaxSource(Walk(), 0.4, policy, PARAMS, **given)


def stepping(**more: Any) -> ms.GymnaxSource:
    return ms.GymnaxSource(
        Walk(),
        0.4,
        steps_per_epoch=STEPS,
        policy_step_fn=policy_step,
        policy_state_template=POLICY,
        **more,
    )


def reference(seed: int, count: int) -> dict[str, list[Any]]:
    """Returns the transitions of `stepping` from jax.random, one step at a time."""
    env = Walk()
    key, env_key = jax.random.split(jax.random.PRNGKey(seed))
    obs, state = env.reset(env_key, 0.4)
    policy_state, new = POLICY, True
    found: dict[str, list[Any]] = {name: [] for name in [*LEAVES, "count"]}
    for k in range(count):
        key, policy_key, step_key, done_key, epoch_key = jax.random.split(key, 5)
        action, policy_state = policy_step(obs, policy_state, new, policy_key)
        after = env.step(step_key, state, action, 0.4)
        next_obs, state, reward, done, _ = after
        row = {
            "state": obs,
            "action": action,
            "reward": reward,
            "next_state": next_obs,
            "done": done,
            "count": policy_state["count"],
        }
        for name, value in row.items():
            found[name].append(value)
        obs, new = next_obs, done
        if done:
            obs, state = env.reset(done_key, 0.4)
        if (k + 1) % STEPS == 0:
            obs, state = env.reset(epoch_key, 0.4)
            new = jnp.array(True)
    return found


def rolled(loader: ms.DataLoader, state: Any, steps: int) -> Any:
    batches = [batch for batch, _ in loader.iterate(state, steps=steps)]
    return jax.tree.map(lambda *rows: np.concatenate(rows), *batches)


@pytest.mark.parametrize("batch", [4, 5])
def test_rollouts_follow_the_recipe(batch: int) -> None:
    stage = ms.BatchTransform(batch, remainder="wrap")
    loader = ms.DataLoader([stepping(), stage])
    state = ms.set_loader_policy_state(loader.init_state(3), POLICY)
    found = rolled(loader, state, 40 // batch)
    expected = reference(3, 40)
    assert sum(map(bool, expected["done"])) >= 3
    for name in ("action", "done"):
        assert np.array_equal(found[name], expected[name]), name
    for name in ("state", "reward", "next_state"):
        assert np.allclose(found[name], np.stack(expected[name]), atol=1e-5), name


def test_next_and_next_many_agree() -> None:
    one = stepping()
    state = ms.set_source_policy_state(one.init_state(jax.random.PRNGKey(1)), POLICY)
    values, masks, after = jax.jit(one.next_many, static_argnums=1)(state, 30)
    step = jax.jit(one.next)
    for k in range(30):
        value, mask, state = step(state)
        assert bool(mask)
        assert bool(masks[k])
        for name in ("action", "done"):
            assert value[name] == values[name][k]
        assert np.allclose(value["state"], values["state"][k], atol=1e-5)
    assert np.array_equal(state.key, after.key)
    assert int(state.epoch) == int(after.epoch) == 2
    assert int(state.policy_state["count"]) == int(after.policy_state["count"])


def test_both_signatures() -> None:
    plain = ms.DataLoader([source(), ms.BatchTransform(4)])
    value, _ = next(plain.run(seed=3))
    assert set(value) == LEAVES
    loader = ms.DataLoader([stepping(), ms.BatchTransform(4)])
    state = ms.set_loader_policy_state(loader.init_state(3), POLICY)
    other, _ = next(loader.run(state))
    assert set(other) == {*LEAVES, "info"}
    for name in LEAVES:
        assert np.array_equal(value[name], other[name])


def test_six_values_and_the_final_observation() -> None:
    more: Any = {"steps_per_epoch": 40, "final_observation": True}
    long = ms.GymnaxSource(Walk(truncates=True), 0.4, policy, PARAMS, **more)
    loader = ms.DataLoader([long, ms.BatchTransform(40)])
    five = ms.DataLoader([source(steps_per_epoch=40), ms.BatchTransform(40)])
    batch, _ = next(loader.run(seed=3))
    same, _ = next(five.run(seed=3))
    for name in LEAVES:
        assert np.array_equal(batch[name], same[name])
    done = np.asarray(batch["done"])
    assert done.any()
    last, following = batch["final_observation"], batch["next_state"]
    assert not np.array_equal(last[done], following[done])
    assert np.array_equal(last[~done], following[~done])


def test_many_environments() -> None:
    many = ms.DataLoader([source(num_envs=3), ms.BatchTransform(4)])
    batch, mask = next(many.run(seed=3))
    assert batch["state"].shape == (4, 3, 2)
    assert mask.shape == (4, 3)
    key = threefry.split(jax.random.PRNGKey(3), 3)
    for lane in range(3):
        one = source()
        values, _, _ = one.next_many(one.init_state(key[lane]), 4)
        assert np.array_equal(batch["action"][:, lane], values["action"])
        assert np.array_equal(batch["done"][:, lane], values["done"])
        assert np.allclose(batch["state"][:, lane], values["state"], atol=1e-5)


def test_many_environments_with_a_policy_state_each() -> None:
    states = jax.tree.map(lambda x: np.stack([x] * 3), POLICY)
    one = ms.GymnaxSource(
        Walk(),
        0.4,
        steps_per_epoch=STEPS,
        policy_step_fn=policy_step,
        policy_state_template=states,
        num_envs=3,
        policy_axes=0,
    )
    loader = ms.DataLoader([one, ms.BatchTransform(4)])
    state = ms.set_loader_policy_state(loader.init_state(3), states)
    run = loader.run(state)
    for _ in range(2):
        next(run)
    count = run.state.stream.inner_state.policy_state["count"]
    assert np.shape(count) == (3,)


def test_resets_can_be_left_to_the_environment() -> None:
    loader = ms.DataLoader([source(reset_on_epoch=False), ms.BatchTransform(STEPS)])
    batches = [batch for batch, _ in loader.run(seed=3, epochs=3)]
    joined = jax.tree.map(lambda *rows: np.concatenate(rows), *batches)
    assert joined["done"].any()
    assert np.array_equal(joined["state"][1:], joined["next_state"][:-1])


def test_policies_can_be_replaced() -> None:
    loader = ms.DataLoader([source(), ms.BatchTransform(4)])
    always = np.array([1e6, 1e6], np.float32)

    @jax.jit
    def first(key: Any, params: Any) -> Any:
        state = ms.set_loader_policy_state(loader.init_state(key), params)
        batch, state, _ = loader.next_batch(state)
        return batch["action"], state.stream.inner_state.policy_state

    _, params = first(jax.random.PRNGKey(0), always)
    assert np.array_equal(params, always)
    state = ms.set_loader_policy_state(loader.init_state(0), PARAMS, new_episode=False)
    assert not bool(state.stream.inner_state.new_episode)
    kept = ms.set_loader_policy_state(state, always)
    assert not bool(kept.stream.inner_state.new_episode)
    list(loader.run(kept, epochs=1))
    assert np.array_equal(always, [1e6, 1e6])  # not donated


def test_resume_in_the_middle_of_a_rollout() -> None:
    buffer = ms.BufferTransform(6, 3, 2, "shuffled")
    loader = ms.DataLoader([source(), buffer, ms.BatchTransform(5)])
    run = loader.run(seed=3, epochs=2)
    walk = []
    state = run.state
    for batch, _ in run:
        walk.append((loader.save(state, format="bytes"), batch))
        state = run.state
    for saved, batch in walk:
        found, _ = next(loader.run(loader.restore(saved)))
        assert jax.tree.all(jax.tree.map(np.array_equal, found, batch))


def test_threefry_draws_what_jax_draws() -> None:
    for seed in range(3):
        key = jax.random.PRNGKey(seed)
        for count in (1, 2, 5):
            assert np.array_equal(
                threefry.split(key, count), jax.random.split(key, count)
            )
            for bound in (1, 3, 65_536, 65_537, (1 << 31) - 1):
                expected = jax.random.randint(key, (count,), 0, jnp.int32(bound))
                found = threefry.randint(key, count, jnp.int32(bound))
                assert np.array_equal(found, expected)
        assert np.array_equal(threefry.fold_in(key, 1), jax.random.fold_in(key, 1))


# Wrong input.


def test_the_policy_state_must_be_set() -> None:
    loader = ms.DataLoader([stepping(), ms.BatchTransform(4)])
    state = loader.init_state(0)
    for call in (
        lambda: loader.run(state),
        lambda: loader.iterate(state),
        lambda: loader.next_batch(state),
        lambda: loader.scan_epoch(state, 0, lambda c, b, m: (c, None)),
    ):
        fails(call, "set_loader_policy_state", kind=ValueError)
    other = ms.set_loader_policy_state(state, {"weights": PARAMS})
    fails(lambda: loader.run(other), "['count'] is missing")
    wide = ms.set_loader_policy_state(state, {**POLICY, "weights": np.zeros(3)})
    fails(lambda: loader.run(wide), "['weights']")


@pytest.mark.parametrize(
    ("more", "texts"),
    [
        ({"policy_fn": None}, ["policy_fn(obs, params, key)"]),
        ({"policy_step_fn": policy_step}, ["found both"]),
        ({"policy_state_template": POLICY}, ["belongs to policy_step_fn"]),
        ({"env": Walk}, ["class Walk", "did you forget to call it"]),
        ({"policy_fn": 3}, ["must be a function"]),
    ],
)
def test_wrong_arguments(more: Any, texts: list[str]) -> None:
    given = {"env": Walk(), "env_params": 0.4, "policy_fn": policy, **more}
    fails(lambda: ms.GymnaxSource(**given), *texts)


def test_policies_of_many_environments_need_axes() -> None:
    more: Any = {"policy_step_fn": policy_step, "policy_state_template": POLICY}
    many = ms.GymnaxSource(Walk(), 0.4, num_envs=3, **more)
    fails(lambda: ms.DataLoader([many]), "policy_axes=0", "of 3", kind=ValueError)
    pair: Any = (Walk(), 0.4)
    fails(lambda: ms.GymnaxSource(pair, None, policy, PARAMS), "gymnax.make(name)")


def test_numpy_numbers_of_64_bits() -> None:
    wide = PARAMS.astype(np.float64)
    loader = ms.DataLoader([ms.GymnaxSource(Walk(), 0.4, policy, wide, 8)])
    state = ms.set_loader_policy_state(loader.init_state(0), wide)
    assert next(loader.run(state))[0]["state"].dtype == np.float32


def test_a_mixture_of_the_signatures() -> None:
    for more in ({"policy_params": PARAMS, "policy_state_template": POLICY}, {}):
        kind = TypeError if more else ValueError
        call: Any = lambda more=more: ms.GymnaxSource(  # noqa: E731
            Walk(), 0.4, policy_step_fn=policy_step, **more
        )
        fails(call, "policy_", kind=kind)


def test_environments_that_return_something_else() -> None:
    class Four(Walk):
        def step(self, *arguments: Any) -> Any:
            return super().step(*arguments)[:4]

    fails(lambda: ms.GymnaxSource(Four(), 0.4, policy, PARAMS), "5 values", "found 4")
    fails(lambda: source(steps_per_epoch=0), "steps_per_epoch", kind=ValueError)
    fails(lambda: source().split(0.8, 0.2), "cannot be split")

    class Silent(Walk):
        def step(self, *arguments: Any) -> Any:
            *values, _ = super().step(*arguments)
            return *values, {}

    silent = ms.GymnaxSource(Silent(), 0.4, policy, PARAMS, final_observation=True)
    fails(lambda: ms.DataLoader([silent]), "final_observation", kind=ValueError)
    fails(lambda: ms.set_source_policy_state({"a": 1}, 1), kind=AttributeError)
    native = ms.DataLoader([ms.ArraySampleSource({"x": np.arange(4)})])
    fails(lambda: ms.set_loader_policy_state(native.init_state(0), 1), "stream")
