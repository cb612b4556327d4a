"""Meshes, presets and placement, on eight devices."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from conftest import Python
from millstream.loadax import (
    DataPartitionType,
    HybridMeshShape,
    MeshConfig,
    create_device_mesh,
    global_to_host_array,
    host_to_global_device_array,
    infer_mesh_shape,
    make_fsdp_mesh_config,
    with_sharding_constraint,
)

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def test_one_axis_may_be_inferred() -> None:
    assert infer_mesh_shape((2, -1), num_devices=8) == (2, 4)
    assert infer_mesh_shape((-1,), num_devices=8) == (8,)
    assert infer_mesh_shape((2, 3), num_devices=8) == (2, 3)
    with pytest.raises(ValueError, match="only one axis of a mesh may be -1"):
        infer_mesh_shape((-1, -1), num_devices=8)
    with pytest.raises(ValueError, match="8 devices cannot be divided by 3"):
        infer_mesh_shape((3, -1), num_devices=8)
    with pytest.raises(ValueError, match="a length of at least 1"):
        infer_mesh_shape((0, 8), num_devices=8)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(
        ValueError, match=r"same number of axes; found \(1, 2\) and \(1,\)"
    ):
        HybridMeshShape((1, 2), (1,))
    assert len(HybridMeshShape((1, 2), (1, 1))) == 2
    with pytest.raises(ValueError, match="has 2 axes, but mesh_axis_names has 1"):
        MeshConfig((1, 1), ("data",))
    with pytest.raises(ValueError, match="no mesh axis 'data' to shard along"):
        MeshConfig((1,), ("model",))
    with pytest.raises(ValueError, match="needs 99 devices; found"):
        create_device_mesh((99,))
    with pytest.raises(ValueError, match="does not fit 1 process"):
        create_device_mesh(HybridMeshShape((1,), (7,)))
    with pytest.raises(ValueError, match="a mesh needs devices"):
        create_device_mesh((1,), devices=[])


def test_rules() -> None:
    rules = [("tpu-v4", (4, 2)), ("gpu-.*-8", (1, 8)), ("none", None)]
    config = MeshConfig((2, 4), ("data", "model"), mesh_rules=rules)
    assert config.selected("gpu-a100-8").mesh_shape == (1, 8)
    assert config.selected("cpu").mesh_shape == (2, 4)
    assert config.selected(None) == config
    with pytest.raises(ValueError, match="the mesh rule 'none' has no shape"):
        config.selected("none")
    made = make_fsdp_mesh_config(("data", "model"), "data", rules, "tpu-v4-16")
    assert made.mesh_shape == (4, 2)


def test_no_mesh() -> None:
    with pytest.raises(ValueError, match="there is no mesh: enter"):
        host_to_global_device_array(np.zeros(4))
    x = jax.numpy.zeros(4)
    assert with_sharding_constraint(x, jax.P("data")) is x
    with pytest.raises(TypeError, match=r"\['a'\] must be a jax.Array, not int"):
        global_to_host_array({"a": 1})


PLACEMENT = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from millstream.loadax import *

config = MeshConfig((4, -1), ("data", "model"), ("data",))
mesh = config.create_device_mesh()
assert mesh.shape == {"data": 4, "model": 2} and mesh.size == 8
assert (config.hosts, config.host_id) == (1, 0)
some = config.create_device_mesh(jax.devices()[:4])
assert some.shape == {"data": 4, "model": 1}
hybrid = MeshConfig(HybridMeshShape((2, 4), (1, 1)), ("data", "model"))
assert hybrid.create_device_mesh(jax.devices()).shape == {"data": 2, "model": 4}
assert build_standard_mesh((2, 4)).shape == (2, 4)
assert create_hybrid_device_mesh(HybridMeshShape((8,), (1,))).shape == (8,)
assert len({d.id for d in create_device_mesh((2, 2, 2)).flat}) == 8

ddp = make_ddp_mesh_config()
assert ddp.mesh_shape == HybridMeshShape((8,), (1,))
assert ddp.create_device_mesh().shape == {"data": 8}
two = make_ddp_mesh_config(("data", "model")).create_device_mesh()
assert two.shape == {"data": 8, "model": 1}
fsdp = make_fsdp_mesh_config(mesh_axis_names=("data", "model"))
assert fsdp.mesh_shape == HybridMeshShape((1, 8), (1, 1))
assert fsdp.create_device_mesh().shape == {"data": 1, "model": 8}

host = {"x": np.arange(32.0).reshape(16, 2), "y": np.arange(16)}
with jax.set_mesh(mesh):
    whole = host_to_global_device_array(host)
    assert data_partition_type_to_spec(DataPartitionType.FULL) == P(("data", "model"))
    for name, leaf in whole.items():
        assert leaf.sharding.spec == P(("data", "model")), leaf.sharding
        assert {s.data.shape[0] for s in leaf.addressable_shards} == {2}
    back = global_to_host_array(whole)
    assert all((back[name] == host[name]).all() for name in host)
    everywhere = host_to_global_device_array(
        host, partition=DataPartitionType.REPLICATED)
    assert all(leaf.is_fully_replicated for leaf in everywhere.values())
    assert {len(leaf.sharding.device_set) for leaf in everywhere.values()} == {8}
    back = global_to_host_array(everywhere, partition=DataPartitionType.REPLICATED)
    assert all((back[name] == host[name]).all() for name in host)

    @jax.jit
    def constrained(x):
        return with_sharding_constraint(x * 2, P("data"))
    y = constrained(jnp.arange(8.0))
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("data")), 1), y.sharding
    try:
        host_to_global_device_array(np.zeros(12))
        raise SystemExit("no error")
    except ValueError as error:
        assert "12 rows" in str(error) and "8 blocks" in str(error), error
    replicated = NamedSharding(mesh, P("data"))
    try:
        global_to_host_array(
            jax.device_put(np.zeros(8), replicated),
            partition=DataPartitionType.REPLICATED)
        raise SystemExit("no error")
    except ValueError as error:
        assert "must be fully replicated" in str(error), error
    try:
        global_to_host_array(
            jax.device_put(np.zeros((8, 2)), NamedSharding(mesh, P(None, "model"))))
        raise SystemExit("no error")
    except ValueError as error:
        assert "must be sharded along its first axis only" in str(error), error

# Replicated rows come back once. An explicit sharding needs no current mesh.
rows = jax.device_put(np.arange(8), NamedSharding(mesh, P("data")))
assert global_to_host_array(rows).tolist() == list(range(8))
by_model = NamedSharding(mesh, P("model"))
outside = jax.jit(lambda x: with_sharding_constraint(x, by_model))
assert outside(jnp.arange(8)).sharding.spec == P("model")
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    with mesh:  # as Loadax has it
        entered = jax.jit(lambda x: with_sharding_constraint(x, P("data")))
        assert entered(jnp.arange(8)).sharding.spec == P("data")
print("done")
"""


def test_placement_on_eight_devices(python: Python) -> None:
    assert python.run(PLACEMENT, **EIGHT) == "done\n"


def test_partitions_must_be_enum_members() -> None:
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    with pytest.raises(
        TypeError, match="partition must be a DataPartitionType, not 'full'"
    ):
        host_to_global_device_array(np.zeros(4), partition="full", mesh=mesh)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="partition must be a DataPartitionType"):
        global_to_host_array(jax.numpy.zeros(3), partition="full")  # type: ignore[arg-type]
    placed = host_to_global_device_array(
        np.arange(4), partition=DataPartitionType.FULL, mesh=mesh
    )
    assert placed.sharding.mesh == mesh
