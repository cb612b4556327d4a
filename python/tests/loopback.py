"""One of several processes that train a small network together, over loopback.

    python loopback.py FOLDER JOB PROCESS PORT

The job is a JSON file in the folder. Run by test_processes.py.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

N, BATCH = 90, 16
FEATURES = 6
STEPS = 6
"""Steps of an epoch: the last batch is padded."""


def samples() -> dict[str, np.ndarray]:
    """Returns the training data. All rows have different bytes."""
    x = np.sin(np.arange(N * FEATURES, dtype=np.float32)).reshape(N, FEATURES)
    return {"x": x, "y": np.cos(np.arange(N, dtype=np.float32))}


def update(params: Any, batch: Any, mask: Any) -> tuple[Any, Any]:
    """Does one step of gradient descent. Returns the loss before it too."""
    import jax
    import jax.numpy as jnp

    def loss(params: Any) -> Any:
        hidden = jnp.tanh(batch["x"] @ params["w"])
        error = (hidden @ params["v"] - batch["y"]) ** 2
        return jnp.where(mask, error, 0).sum() / mask.sum()

    value, slopes = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, s: p - 0.1 * s, params, slopes), value


def first_params() -> dict[str, np.ndarray]:
    w = np.linspace(-1, 1, FEATURES * 8, dtype=np.float32).reshape(FEATURES, 8)
    return {"w": w, "v": np.linspace(1, -1, 8, dtype=np.float32)}


def loader_of(job: dict[str, Any], process: int, sharding: Any) -> Any:
    import millstream as ms

    path = Path(job["data"][process % len(job["data"])])
    put = ms.DevicePutTransform(sharding)
    if job.get("functions"):
        source = ms.DiskSampleSource(N, sample, workers=2)
        stages = [source, ms.BatchTransform(BATCH), ms.MapTransform(halved)]
        return ms.DataLoader([*stages, put], on_error="skip")
    return ms.DataLoader([ms.PackedSource(path), ms.BatchTransform(BATCH), put])


def sample(i: int) -> dict[str, Any]:
    """Returns one of the same samples, with host fields."""
    return {**{key: 2 * x[i] for key, x in samples().items()}, "name": f"sample {i}"}


def halved(batch: Any, mask: Any) -> Any:
    return {key: x / 2 for key, x in batch.items()}


def check_names(loader: Any, state: Any, batch: dict[str, Any]) -> None:
    """Checks that host fields are None for rows of other processes."""
    shards = batch["y"].addressable_shards
    mine = {row for s in shards for row in range(*s.index[0].indices(BATCH))}
    for row, i in enumerate(loader.which_samples(state)):
        wanted = f"sample {i}" if row in mine and i >= 0 else None
        assert batch["name"][row] == wanted, (row, i)
    del batch["name"]


def go_alone(folder: Path, loader: Any, process: int) -> None:
    """Process 0 takes a batch. The other processes need not take part."""
    iterator = loader.iterate(loader.init_state(11))
    taken = folder / "taken"
    if process == 0:
        next(iterator)
        taken.touch()
    deadline = time.monotonic() + 20
    while not taken.exists():
        assert time.monotonic() < deadline, "process 0 waits for the others"
        time.sleep(0.05)


def train(folder: Path, job: dict[str, Any], process: int) -> None:
    """Trains from the checkpoint to the job's end and logs every batch to a file."""
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec
    from millstream._run import agreement

    shape = tuple(job.get("mesh", [4]))
    axes = ("data", "model")[: len(shape)]
    mesh = jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * len(shape))
    if job.get("absent") is not None:
        agreement.TIMEOUT_SECONDS = 2.0
        if job["absent"] == process:
            time.sleep(4)
            return
    sharding: Any = NamedSharding(mesh, PartitionSpec("data"))
    if job.get("specs"):  # for each process, the axes of each field
        specs = job["specs"][process % len(job["specs"])]
        sharding = {
            key: NamedSharding(mesh, PartitionSpec(*axes))
            for key, axes in specs.items()
        }
    loader = loader_of(job, process, sharding)
    everywhere = NamedSharding(mesh, PartitionSpec())
    checkpoint = folder / "checkpoint.json"
    key = job.get("keys", [11])
    state, params = loader.init_state(key[process % len(key)]), first_params()
    if checkpoint.exists():
        kept = json.loads(checkpoint.read_text())
        state = loader.restore(kept["state"])
        params = {k: np.array(v, np.float32) for k, v in kept["params"].items()}
    params = jax.device_put(params, everywhere)
    if job.get("late") is not None:
        agreement.TIMEOUT_SECONDS = 1.0
        time.sleep(3 * (job["late"] == process))
    if job.get("functions"):
        go_alone(folder, loader, process)
    step = jax.jit(update)
    for at in range(state.epoch * STEPS + state.step, job["end"]):
        if job.get(
            "inside"
        ):  # in a scan, where the batch comes from the foreign function call
            state, params, losses = loader.scan_epoch(state, params, update, steps=1)
            seen, loss = None, losses[0]
        else:
            iterator = loader.iterate(state, steps=1)
            seen = next(iterator)
            if job.get("specs"):
                assert {key: x.sharding for key, x in seen[0].items()} == sharding
            if job.get("functions"):
                check_names(loader, state, seen[0])
            state = iterator.state
            params, loss = step(params, *seen)
        keep(folder, job["name"], process, at, seen, float(loss))
        if process == 0:
            params_now = {k: np.asarray(v).tolist() for k, v in params.items()}
            kept = {"state": loader.save(state), "params": params_now}
            partial = checkpoint.with_suffix(".partial")
            partial.write_text(json.dumps(kept))
            partial.replace(checkpoint)
        if job.get("kill") == [process, at]:
            os.kill(os.getpid(), signal.SIGKILL)
        if job.get("shrink") == [process, at]:
            os.truncate(job["data"][process], 100)
    rest = {"bytes": loader.bytes_read, "steps": loader.delivered}
    (folder / f"{job['name']}-{process}.json").write_text(json.dumps(rest))


def keep(
    folder: Path, name: str, process: int, at: int, seen: Any, loss: float
) -> None:
    """Logs the rows of this process with their positions, and the loss."""
    arrays: dict[str, Any] = {"loss": loss}
    if seen is not None:
        batch, mask = seen
        for key, leaf in {**batch, "mask": mask}.items():
            rows: dict[int, dict[int, np.ndarray]] = {}
            for shard in leaf.addressable_shards:
                row, column = (at.start or 0 for at in (*shard.index, slice(0))[:2])
                rows.setdefault(row, {})[column] = np.asarray(shard.data)
            for row, parts in rows.items():
                whole = np.concatenate([parts[at] for at in sorted(parts)], axis=-1)
                arrays[f"{key}.{row}"] = whole
    np.savez(folder / f"{name}-{process}-{at}.npz", **arrays)


def main() -> None:
    folder, name, process, port = sys.argv[1:]
    job = json.loads((Path(folder) / f"{name}.job").read_text())
    count = job["processes"]
    devices = math.prod(job.get("mesh", [4])) // count
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import jax

    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            f"localhost:{port}",
            count,
            int(process),
            initialization_timeout=60,
            heartbeat_timeout_seconds=job.get("heartbeat", 5),
            shutdown_timeout_seconds=5,
        )
    train(Path(folder), {**job, "name": name}, int(process))


if __name__ == "__main__":
    main()
