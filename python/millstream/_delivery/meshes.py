"""Arranges the devices of one or several processes in the shape of a mesh."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax.experimental import mesh_utils

Devices = Sequence[jax.Device]
MeshShape = Sequence[int]


@dataclass(frozen=True)
class HybridMeshShape:
    """The shape of a mesh within a process (ICI) and across processes (DCN)."""

    ici_mesh_shape: MeshShape
    dcn_mesh_shape: MeshShape

    def __post_init__(self) -> None:
        if len(self.ici_mesh_shape) != len(self.dcn_mesh_shape):
            raise ValueError(
                "ici_mesh_shape and dcn_mesh_shape must have the same number of axes; "
                f"found {self.ici_mesh_shape} and {self.dcn_mesh_shape}"
            )

    def __len__(self) -> int:
        return len(self.ici_mesh_shape)


def inferred_shape(
    mesh_shape: MeshShape, *, num_devices: int | None = None
) -> tuple[int, ...]:
    """Returns the shape, with -1 replaced by the number of remaining devices."""
    shape = tuple(mesh_shape)
    if shape.count(-1) > 1:
        raise ValueError(f"only one axis of a mesh may be -1; found {shape}")
    if any(size < 1 and size != -1 for size in shape):
        raise ValueError(
            f"the axes of a mesh must have a length of at least 1, or -1; found {shape}"
        )
    if -1 not in shape:
        return shape
    devices = jax.device_count() if num_devices is None else num_devices
    known = math.prod(size for size in shape if size != -1)
    if devices % known:
        raise ValueError(
            f"the -1 in the mesh shape {shape} cannot be inferred: {devices} devices "
            f"cannot be divided by {known}"
        )
    return tuple(devices // known if size == -1 else size for size in shape)


def one_process_mesh(
    mesh_shape: MeshShape, *, devices: Devices | None = None
) -> np.ndarray:
    """Returns devices in the given shape, without regard to their processes.

    Raises ``ValueError`` if their number does not fit.
    """
    given = list(jax.devices() if devices is None else devices)
    shape = inferred_shape(mesh_shape, num_devices=len(given))
    if math.prod(shape) != len(given):
        raise ValueError(
            f"a mesh of shape {shape} needs {math.prod(shape)} devices; found "
            f"{len(given)}"
        )
    return np.asarray(mesh_utils.create_device_mesh(shape, given))


def hybrid_mesh(
    mesh_shape: HybridMeshShape, *, devices: Devices | None = None
) -> np.ndarray:
    """Returns devices in a shape, with each process's devices adjacent."""
    given = list(jax.devices() if devices is None else devices)
    processes = len({device.process_index for device in given})
    local = len(given) // processes
    inner = inferred_shape(mesh_shape.ici_mesh_shape, num_devices=local)
    outer = inferred_shape(mesh_shape.dcn_mesh_shape, num_devices=processes)
    if math.prod(outer) != processes or math.prod(inner) * processes != len(given):
        raise ValueError(
            f"a mesh of {outer} processes with {inner} devices each does not fit "
            f"{processes} process(es) with {local} devices each"
        )
    if processes == 1:
        return one_process_mesh(inner, devices=given)
    return np.asarray(
        mesh_utils.create_hybrid_device_mesh(
            inner, outer, given, process_is_granule=True
        )
    )


def process_mesh(
    mesh_shape: MeshShape | HybridMeshShape, *, devices: Devices | None = None
) -> np.ndarray:
    """Returns devices in the given shape.

    Several processes divide the first axis of a `MeshShape` that is longer than 1, if
    their number divides its length.
    """
    given = list(jax.devices() if devices is None else devices)
    if not given:
        raise ValueError("a mesh needs devices; found none")
    if isinstance(mesh_shape, HybridMeshShape):
        return hybrid_mesh(mesh_shape, devices=given)
    shape = inferred_shape(mesh_shape, num_devices=len(given))
    processes = len({device.process_index for device in given})
    first = next((axis for axis, size in enumerate(shape) if size > 1), None)
    if processes == 1 or first is None or shape[first] % processes:
        return one_process_mesh(shape, devices=given)
    inner, outer = list(shape), [1] * len(shape)
    inner[first], outer[first] = shape[first] // processes, processes
    return hybrid_mesh(HybridMeshShape(inner, outer), devices=given)


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
        laid_out = process_mesh(self.mesh_shape, devices=devices)
        return jax.sharding.Mesh(laid_out, tuple(self.mesh_axis_names))

    @property
    def hosts(self) -> int:
        """The number of processes."""
        return jax.process_count()

    @property
    def host_id(self) -> int:
        """The number of this process."""
        return jax.process_index()
