"""The shapes of device meshes, and presets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from millstream._delivery import meshes
from millstream.loadax import _arguments as check

MeshShape = meshes.MeshShape
HybridMeshShape = meshes.HybridMeshShape
MeshConfig = meshes.MeshConfig
infer_mesh_shape = meshes.inferred_shape
build_standard_mesh = meshes.one_process_mesh
create_hybrid_device_mesh = meshes.hybrid_mesh
create_device_mesh = meshes.process_mesh
ShardingPreset = tuple[jax.sharding.Mesh, tuple[str, ...]]
Rules = Sequence[meshes.MeshRule] | None


def make_ddp_mesh_config(
    mesh_axis_names: Sequence[str] = ("data",),
    batch_axis_names: str | Sequence[str] = "data",
    mesh_rules: Rules = None,
    mesh_selector: str | None = None,
) -> MeshConfig:
    """Data parallelism: all devices along the first axis."""
    config = make_fsdp_mesh_config(mesh_axis_names, batch_axis_names, mesh_rules)
    rest = [1] * (len(mesh_axis_names) - 1)
    inner = (jax.local_device_count(), *rest)
    shape = HybridMeshShape(inner, (jax.process_count(), *rest))
    return replace(config, mesh_shape=shape).selected(mesh_selector)


def make_fsdp_mesh_config(
    mesh_axis_names: Sequence[str],
    batch_axis_names: str | Sequence[str] = "data",
    mesh_rules: Rules = None,
    mesh_selector: str | None = None,
) -> MeshConfig:
    """FSDP: processes along the first axis, each one's devices along the last."""
    rest = [1] * (len(mesh_axis_names) - 1)
    inner = (*rest, jax.local_device_count())
    shape = HybridMeshShape(inner, (jax.process_count(), *rest))
    config = MeshConfig(shape, tuple(mesh_axis_names), batch_axis_names, mesh_rules)
    return config.selected(mesh_selector)


def ddp_sharding() -> ShardingPreset:
    """A mesh of all devices along one axis, ``data``, and its axis names."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    return mesh, mesh.axis_names


def fsdp_sharding(num_data_shards: int | None = None) -> ShardingPreset:
    """A mesh of all devices with the axes ``data`` and ``model``, and its axis names.

    The length of the data axis is ``num_data_shards``, or the number of processes.
    """
    shards, devices = num_data_shards or jax.process_count(), jax.device_count()
    if devices % check.whole("num_data_shards", shards, 1):
        raise ValueError(
            f"{devices} devices cannot be divided into {shards} shards. Choose a "
            f"num_data_shards that divides {devices}."
        )
    # jax.devices() is ordered by process, so each process's rows are contiguous.
    grid = np.array(jax.devices()).reshape(shards, -1)
    mesh = jax.sharding.Mesh(grid, ("data", "model"))
    return mesh, mesh.axis_names
