"""Learns CartPole with DQN and a replay buffer, in one jitted loop.

Each step of the loop advances the environment, stores the transition, draws old ones
from the buffer and updates the network. The program prints the mean return of greedy
episodes during training. It fails if the last five evaluations have a mean below 300
(of at most 500). With --picture it draws the returns, which needs matplotlib.
"""

from __future__ import annotations

import argparse
import time

import gymnax
import jax
import jax.numpy as jnp
import millstream as ms

SIZES = (4, 64, 64, 2)
CAPACITY = 50_000
BATCH = 64
DISCOUNT = 0.99
STEP_SIZE = 5e-4
TARGET_STEP = 0.005
"""How far the target network moves towards the network in each step."""
WANTED = 300


def init_params(key):
    """A (weights, bias) pair for each layer."""
    keys = jax.random.split(key, len(SIZES) - 1)
    shapes = zip(SIZES, SIZES[1:], keys, strict=False)
    return [
        (jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, jnp.zeros(n))
        for m, n, k in shapes
    ]


def values(params, obs):
    """The value of each action in each of the states."""
    x = obs
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias


def greedy(obs, params, key):
    """The action with the highest value."""
    return jnp.argmax(values(params, obs))


def explore(obs, policy, key):
    """A random action with probability ``epsilon``, otherwise the greedy one."""
    params, epsilon = policy
    chance, choice = jax.random.split(key)
    random = jax.random.randint(choice, (), 0, SIZES[-1])
    return jnp.where(
        jax.random.uniform(chance) < epsilon, random, greedy(obs, params, key)
    )


def environment(policy, params, **options):
    """A source of transitions of CartPole, whose episodes end after 500 steps."""
    env, env_params = gymnax.make("CartPole-v1")
    return ms.GymnaxSource(env, env_params, policy, params, **options)


def replay(params, steps):
    """A loader that delivers batches of transitions from a replay buffer."""
    source = environment(
        explore, (params, jnp.float32(1)), steps_per_epoch=steps, reset_on_epoch=False
    )
    buffer = ms.BufferTransform(
        CAPACITY, prefill=1000, sample_size=BATCH, mode="shuffled"
    )
    return ms.DataLoader([source, buffer])


def evaluator(params, episodes=32):
    """A loader whose epoch has the first 500 steps of several greedy episodes."""
    source = environment(greedy, params, steps_per_epoch=500, num_envs=episodes)
    return ms.DataLoader([source])


def mean_return(loader, params):
    """The mean return of the greedy policy over the episodes of an evaluator."""

    def add(carry, batch, mask):
        total, running = carry
        total += batch["reward"] * running
        return (total, running & ~batch["done"]), None

    state = ms.set_loader_policy_state(loader.init_state(1), params)
    episodes = len(state.stream.new_episode)
    start = jnp.zeros(episodes), jnp.ones(episodes, bool)
    _, (total, _), _ = loader.scan_epoch(state, start, add)
    return total.mean()


def loss(params, target, batch, mask):
    """The mean squared error of the values, by double Q-learning."""
    chosen = jnp.argmax(values(params, batch["next_state"]), axis=1)
    following = values(target, batch["next_state"])
    following = jnp.take_along_axis(following, chosen[:, None], axis=1)[:, 0]
    wanted = batch["reward"] + DISCOUNT * following * ~batch["done"]
    found = values(params, batch["state"])
    found = jnp.take_along_axis(found, batch["action"][:, None], axis=1)[:, 0]
    error = found - jax.lax.stop_gradient(wanted)
    return jnp.sum(error**2 * mask) / jnp.sum(mask)


def adam_start(params):
    """The moments and the step count of Adam."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return zeros, zeros, jnp.float32(0)


def adam(params, moments, grads, step_size=STEP_SIZE):
    """One step of Adam: the parameters and the moments."""
    first, second, count = moments
    count += 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
    scale = step_size * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = jax.tree.map(
        lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), params, first, second
    )
    return params, (first, second, count)


def train(steps, evaluations, seed=0):
    """Trains in one jitted loop; returns the parameters and returns by evaluation."""
    params = init_params(jax.random.key(seed))
    loader, judge = replay(params, steps), evaluator(params)

    def step(carry, number):
        state, params, target, moments = carry
        epsilon = jnp.maximum(1 - number / (0.2 * steps), 0.05)
        state = ms.set_loader_policy_state(state, (params, epsilon))
        batch, state, mask = loader.next_batch(state)
        grads = jax.grad(loss)(params, target, batch, mask)
        params, moments = adam(params, moments, grads)
        target = jax.tree.map(lambda t, p: t + TARGET_STEP * (p - t), target, params)
        return (state, params, target, moments), None

    def part(carry, numbers):
        carry, _ = jax.lax.scan(step, carry, numbers)
        return carry, mean_return(judge, carry[1])

    @jax.jit
    def run(state, params):
        numbers = jnp.arange(steps, dtype=jnp.float32).reshape(evaluations, -1)
        start = state, params, params, adam_start(params)
        (_, params, _, _), returns = jax.lax.scan(part, start, numbers)
        return params, returns

    params, returns = run(loader.init_state(seed), params)
    return params, returns.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", help="write the learning curve to this file")
    arguments = parser.parse_args()
    start = time.perf_counter()
    _, returns = train(arguments.steps, arguments.evaluations, arguments.seed)
    seconds = time.perf_counter() - start
    each = arguments.steps // arguments.evaluations
    at = [each * (i + 1) for i in range(len(returns))]
    for number, value in zip(at, returns, strict=True):
        print(f"step {number:,}: mean return {value:.1f}")
    last = returns[-5:]
    reached = sum(last) / len(last)
    print(f"mean of the last evaluations: {reached:.1f}, {seconds:.1f} s in total")
    if arguments.picture:
        from curves import draw

        draw(
            arguments.picture,
            {"greedy policy": (at, returns)},
            title="CartPole, DQN with a replay buffer",
            x="environment steps",
            y="mean return of 32 episodes",
            lines={"wanted": WANTED},
        )
    if reached < WANTED:
        raise SystemExit(f"expected a mean return of {WANTED}, found {reached:.1f}")


if __name__ == "__main__":
    main()
