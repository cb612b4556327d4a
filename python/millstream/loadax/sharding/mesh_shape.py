"""The shapes of device meshes, and presets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax

from millstream._delivery import meshes
from millstream._delivery.meshes import Devices

MeshShape = Sequence[int]
HybridMeshShape = meshes.HybridMeshShape
infer_mesh_shape = meshes.inferred_shape
build_standard_mesh = meshes.one_process_mesh
create_hybrid_device_mesh = meshes.hybrid_mesh
create_device_mesh = meshes.process_mesh


MeshRule = tuple[str, MeshShape | HybridMeshShape | None]


@dataclass(frozen=True)
class MeshConfig:
    """A mesh's shape, its axis names, and the axes that shard a batch's rows.

    One length in a `MeshShape` may be -1, which stands for the remaining devices.
    ``mesh_rules`` are pairs of a regular expression and a shape, for `selected`.
    """

    mesh_shape: MeshShape | HybridMeshShape
    mesh_axis_names: Sequence[str]
    batch_axis_names: str | Sequence[str] = "data"
    mesh_rules: Sequence[MeshRule] | None = None

    def __post_init__(self) -> None:
        names, batch = tuple(self.mesh_axis_names), self.batch_axis_names
        if len(self.mesh_shape) != len(names):
            raise ValueError(
                f"a mesh of shape {self.mesh_shape} has {len(self.mesh_shape)} axes, "
                f"but mesh_axis_names has {len(names)}: {names}"
            )
        for name in (batch,) if isinstance(batch, str) else batch:
            if name not in names:
                raise ValueError(
                    f"batch_axis_names has no mesh axis {name!r} to shard along; the "
                    f"axes are {', '.join(map(repr, names))}"
                )

    def selected(self, selector: str | None) -> MeshConfig:
        """This configuration with the shape of the first rule that matches.

        Rules match the start of ``selector``. If none does, nothing changes.
        """
        for pattern, shape in self.mesh_rules or ():
            if selector is not None and re.match(pattern, selector):
                if shape is None:
                    raise ValueError(f"the mesh rule {pattern!r} has no shape")
                return replace(self, mesh_shape=shape)
        return self

    def create_device_mesh(self, devices: Devices | None = None) -> jax.sharding.Mesh:
        """The mesh of ``devices``, or of all devices."""
        laid_out = create_device_mesh(self.mesh_shape, devices=devices)
        return jax.sharding.Mesh(laid_out, tuple(self.mesh_axis_names))

    @property
    def hosts(self) -> int:
        """The number of processes."""
        return jax.process_count()

    @property
    def host_id(self) -> int:
        """The number of this process."""
        return jax.process_index()


def make_ddp_mesh_config(
    mesh_axis_names: Sequence[str] = ("data",),
    batch_axis_names: str | Sequence[str] = "data",
    mesh_rules: Sequence[MeshRule] | None = None,
    mesh_selector: str | None = None,
) -> MeshConfig:
    """Data parallelism: all devices along the first axis."""
    rest = [1] * (len(mesh_axis_names) - 1)
    inner = (jax.local_device_count(), *rest)
    shape = HybridMeshShape(inner, (jax.process_count(), *rest))
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
    inner = (*rest, jax.local_device_count())
    shape = HybridMeshShape(inner, (jax.process_count(), *rest))
    config = MeshConfig(shape, tuple(mesh_axis_names), batch_axis_names, mesh_rules)
    return config.selected(mesh_selector)
