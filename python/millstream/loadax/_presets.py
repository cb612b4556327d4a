"""Mesh configurations for data-parallel and fully sharded training."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from millstream.loadax._mesh import HybridMeshShape, MeshConfig, MeshRule


def make_ddp_mesh_config(
    mesh_axis_names: Sequence[str] = ("data",),
    batch_axis_names: str | Sequence[str] = "data",
    mesh_rules: Sequence[MeshRule] | None = None,
    mesh_selector: str | None = None,
) -> MeshConfig:
    """Data parallelism: all devices along the first axis."""
    rest = [1] * (len(mesh_axis_names) - 1)
    shape = HybridMeshShape(
        (jax.local_device_count(), *rest), (jax.process_count(), *rest)
    )
    config = MeshConfig(shape, tuple(mesh_axis_names), batch_axis_names, mesh_rules)
    return config.selected(mesh_selector)


def make_fsdp_mesh_config(
    mesh_axis_names: Sequence[str],
    batch_axis_names: str | Sequence[str] = "data",
    mesh_rules: Sequence[MeshRule] | None = None,
    mesh_selector: str | None = None,
) -> MeshConfig:
    """FSDP: processes along the first axis, each one's devices along the last."""
    rest = [1] * (len(mesh_axis_names) - 1)
    shape = HybridMeshShape(
        (*rest, jax.local_device_count()), (jax.process_count(), *rest)
    )
    config = MeshConfig(shape, tuple(mesh_axis_names), batch_axis_names, mesh_rules)
    return config.selected(mesh_selector)
