"""Trains with fully sharded weights (FSDP) on the devices of one process, and resumes.

Each device holds a part of every weight and of every batch. XLA gathers the weights of
a layer when it needs them. Halfway, in the middle of an epoch, the example saves the
weights and the loader's state to a checkpoint, discards them, and resumes from the
checkpoint. To save a checkpoint from several processes, use Orbax.

This command simulates eight devices on the CPU:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/fsdp.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import jax
import numpy as np
from data_parallel import generated, mesh_of_all_devices, pipeline
from fashion_mnist import accuracy, init_params, update
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def split_of(x, mesh):
    """A sharding along the first axis that the number of devices divides, if any."""
    for axis, extent in enumerate(x.shape):
        if extent % mesh.size == 0:
            return NamedSharding(mesh, P(*[None] * axis, "data"))
    return NamedSharding(mesh, P())


def sharded(params, mesh):
    """The weights, sharded over the devices."""
    return jax.tree.map(lambda x: jax.device_put(x, split_of(x, mesh)), params)


def step_of(mesh, params):
    """A jitted step that keeps the weights sharded."""
    layout = jax.tree.map(lambda x: split_of(x, mesh), params)
    return jax.jit(update, donate_argnums=0, out_shardings=(layout, None))


def save(folder, loader, state, params):
    """Writes a checkpoint atomically."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(params)]
    saved = np.frombuffer(loader.save(state, format="bytes"), np.uint8)
    np.savez(folder / "partial.npz", *leaves, state=saved)
    (folder / "partial.npz").replace(folder / "checkpoint.npz")


def restored(folder, loader, like, mesh):
    """The state and the weights of a checkpoint, sharded over the mesh."""
    with np.load(folder / "checkpoint.npz") as checkpoint:
        state = loader.restore(checkpoint["state"].tobytes())
        leaves = [checkpoint[name] for name in checkpoint.files if name != "state"]
    return state, sharded(jax.tree.unflatten(jax.tree.structure(like), leaves), mesh)


def train(data, test, steps, folder=None, seed=0):
    """Trains for ``steps`` steps; returns the losses and the accuracy.

    With a ``folder`` it saves a checkpoint there halfway and resumes from it.
    """
    mesh = mesh_of_all_devices()
    loader = pipeline(data, mesh)
    first = init_params(jax.random.key(seed))
    params, state, losses = sharded(first, mesh), loader.init_state(seed), []
    step = step_of(mesh, first)

    def run(state, params, count):
        batches = loader.iterate(state, steps=count)
        for batch, mask in batches:
            params, value = step(params, batch, mask)
            losses.append(float(value))
        return batches.state, params

    if folder is not None:
        half = steps // 2
        save(folder, loader, *run(state, params, half))
        state, params = restored(folder, loader, first, mesh)
        print(f"saved and resumed at {state}")
        steps -= half
    _, params = run(state, params, steps)
    score = float(accuracy(params, test["image"], test["label"]))
    held = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(params))
    whole = sum(x.nbytes for x in jax.tree.leaves(params))
    print(
        f"loss {np.mean(losses[-10:]):.4f}, accuracy {score:.4f}; a device holds "
        f"{held:,} of {whole:,} bytes of weights"
    )
    return losses, score


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--samples", type=int, default=6000)
    arguments = parser.parse_args()
    data, test = generated(arguments.samples), generated(1000, seed=1)
    test["image"] = test["image"] / np.float32(255)
    with tempfile.TemporaryDirectory() as folder:
        train(data, test, arguments.steps, Path(folder))


if __name__ == "__main__":
    main()
