"""Meshes for data-parallel and fully sharded training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.loadax import _arguments as check

if TYPE_CHECKING:
    from jax.sharding import Mesh

    ShardingPreset = tuple[Mesh, tuple[str, ...]]


def ddp_sharding() -> ShardingPreset:
    """A mesh of all devices along one axis, ``data``, and its axis names."""
    mesh, _ = fsdp_sharding()
    return type(mesh)(mesh.devices.reshape(-1), ("data",)), ("data",)


def fsdp_sharding(num_data_shards: int | None = None) -> ShardingPreset:
    """A mesh of all devices with the axes ``data`` and ``model``, and its axis names.

    The length of the data axis is ``num_data_shards``, or the number of processes.
    """
    import jax
    import numpy as np

    shards, devices = num_data_shards or jax.process_count(), jax.device_count()
    if devices % check.whole("num_data_shards", shards, 1):
        raise ValueError(
            f"{devices} devices cannot be divided into {shards} shards. Choose a "
            f"num_data_shards that divides {devices}."
        )
    # jax.devices() is ordered by process, so each process's rows are contiguous.
    grid = np.array(jax.devices()).reshape(shards, -1)
    return jax.sharding.Mesh(grid, ("data", "model")), ("data", "model")
