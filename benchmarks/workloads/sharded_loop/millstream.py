"""Millstream's `iterate` with a `NamedSharding`, as docs/sharding.md shows it."""

from collections.abc import Iterator

import jax
import millstream as ms
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from workloads.sharded_loop.workload import BATCH, RECORDS, Loop


def loop_of(records: np.ndarray, placement: object, devices: int) -> Loop:
    """The loop over `iterate`."""
    loader = ms.DataLoader(
        pipeline=[
            ms.ArraySampleSource({"record": records}, ordering="shuffle"),
            ms.BatchTransform(batch_size=BATCH),
            ms.DevicePutTransform(placement),
        ]
    )

    def epochs(count: int) -> Iterator[jax.Array]:
        steps = count * RECORDS // BATCH
        for batch, _ in loader.iterate(loader.init_state(0), steps=steps):
            yield batch["record"]

    return Loop(epochs, devices)


def build(records: np.ndarray) -> Loop:
    """Places an eighth of each batch on each device."""
    mesh = jax.make_mesh((8,), ("data",))
    return loop_of(records, NamedSharding(mesh, PartitionSpec("data")), 8)
