"""Offline reinforcement learning: collects transitions, saves them, learns from files.

A simple controller of CartPole that often acts at random collects the transitions.
The program writes them to one file of records. Then it trains a network by Q-learning
on shuffled batches of that file, without the environment, and compares the mean return
of the learned policy with that of the controller. It fails unless the return has at
least doubled. With --picture it draws the returns, which needs matplotlib.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import cartpole
import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np

BATCH = 256


def behave(obs, chance, key):
    """Pushes towards the side to which the pole falls, or at random by ``chance``."""
    coin, choice = jax.random.split(key)
    falling = (obs[2] + obs[3] > 0).astype(jnp.int32)
    random = jax.random.randint(choice, (), 0, 2)
    return jnp.where(jax.random.uniform(coin) < chance, random, falling)


def collect(path, count, chance=0.7, seed=0):
    """Writes transitions of the controller; returns the mean return of its episodes."""
    source = cartpole.environment(behave, jnp.float32(chance), steps_per_epoch=count)
    loader = ms.DataLoader([source, ms.BatchTransform(1000, drop_last=True)])
    batches = [batch for batch, _ in loader.run(seed=seed, epochs=1)]
    data = jax.tree.map(lambda *parts: np.concatenate(parts), *batches)
    ms.write_packed(ms.ArraySampleSource(data), path)
    return float(data["reward"].sum() / data["done"].sum())


def train(path, epochs, seed=0):
    """Trains on a file of transitions; returns the mean return after each epoch."""
    loader = ms.DataLoader(
        [ms.PackedSource(path), ms.BatchTransform(BATCH, drop_last=True)]
    )
    params = cartpole.init_params(jax.random.key(seed))
    judge = cartpole.evaluator(params)
    evaluate = jax.jit(lambda params: cartpole.mean_return(judge, params))

    def update(carry, batch, mask):
        params, target, moments = carry
        value, grads = jax.value_and_grad(cartpole.loss)(params, target, batch, mask)
        params, moments = cartpole.adam(params, moments, grads)
        step = cartpole.TARGET_STEP
        target = jax.tree.map(lambda t, p: t + step * (p - t), target, params)
        return (params, target, moments), value

    state = loader.init_state(seed)
    carry = params, params, cartpole.adam_start(params)
    returns = [float(evaluate(params))]
    for epoch in range(epochs):
        state, carry, losses = loader.scan_epoch(state, carry, update)
        returns.append(float(evaluate(carry[0])))
        print(f"epoch {epoch}: loss {losses.mean():.3f}, mean return {returns[-1]:.1f}")
    return returns


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", help="keep the transitions in this file")
    parser.add_argument("--picture", help="write the learning curve to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(arguments.file or Path(folder) / "transitions.packed")
        behaved = collect(path, arguments.transitions, seed=arguments.seed)
        size = path.stat().st_size
        print(f"{arguments.transitions:,} transitions in {size:,} bytes")
        print(f"mean return of the controller: {behaved:.1f}")
        returns = train(path, arguments.epochs, arguments.seed)
    if arguments.picture:
        from curves import draw

        draw(
            arguments.picture,
            {"policy learned from the file": (range(len(returns)), returns)},
            title="CartPole, offline Q-learning",
            x="epochs over the file",
            y="mean return of 32 episodes",
            lines={"controller that collected the data": behaved},
        )
    last = returns[-5:]
    reached = sum(last) / len(last)
    print(f"mean of the last evaluations: {reached:.1f}")
    if reached < 2 * behaved:
        raise SystemExit(f"expected {2 * behaved:.1f}, found {reached:.1f}")


if __name__ == "__main__":
    main()
