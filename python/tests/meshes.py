"""Meshes of eight devices, and loaders whose batches are split over them."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
from conftest import rows_of
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

N, BATCH = 61, 16
STEPS = 4
"""Steps of an epoch; the last batch has 13 samples."""

LAYOUTS: dict[str, tuple[dict[str, int], P]] = {
    "one axis": ({"data": 8}, P("data")),
    "replicas across a model axis": ({"data": 4, "model": 2}, P("data")),
    "two axes": ({"replica": 2, "data": 4}, P(("replica", "data"))),
    "two axes, the other way round": (
        {"replica": 2, "data": 4},
        P(("data", "replica")),
    ),
    "three axes": (
        {"replica": 2, "data": 2, "model": 2},
        P(("replica", "data")),
    ),
    "the last axis": ({"model": 4, "data": 2}, P("data")),
    "everywhere whole": ({"data": 8}, P()),
    "one device": ({"data": 1}, P("data")),
}


def data() -> dict[str, np.ndarray]:
    z = np.arange(N * 8, dtype=np.float32).reshape(N, 2, 4) / 7
    return {**rows_of(N), "z": z}


def mesh_of(sizes: dict[str, int], kind: AxisType = AxisType.Auto) -> Mesh:
    count = int(np.prod(list(sizes.values())))
    devices = np.array(jax.devices()[:count]).reshape(*sizes.values())
    return Mesh(devices, tuple(sizes), axis_types=(kind,) * len(sizes))


def sharding_of(layout: str, kind: AxisType = AxisType.Auto) -> NamedSharding:
    sizes, spec = LAYOUTS[layout]
    return NamedSharding(mesh_of(sizes, kind), spec)


def loader_of(source: Any, sharding: Any, **more: Any) -> ms.DataLoader:
    stages = [source, ms.BatchTransform(BATCH), ms.DevicePutTransform(sharding)]
    return ms.DataLoader(stages, **more)


def plain_of(source: Any) -> ms.DataLoader:
    return ms.DataLoader([source, ms.BatchTransform(BATCH)])


SIZES = {"data": 2, "model": 4}
SPECS = {"tokens": P("data", "model"), "label": P("data")}


def samples() -> dict[str, np.ndarray]:
    """Returns samples to split with ``SPECS`` over a mesh of ``SIZES``."""
    tokens = np.arange(N * 8, dtype=np.int32).reshape(N, 8)
    return {"tokens": tokens, "label": (np.arange(N) % 251 + 1).astype(np.uint8)}


def shardings(specs: Any = SPECS, kind: AxisType = AxisType.Auto) -> Any:
    mesh = mesh_of(SIZES, kind)
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def rows() -> NamedSharding:
    return NamedSharding(mesh_of(SIZES), P("data"))
