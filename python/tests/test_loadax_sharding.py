"""Shards, and batches on eight CPU devices in processes of their own."""

from __future__ import annotations

import socket
from typing import Any

import jax
import pytest
from conftest import Python
from millstream.loadax import (
    Batcher,
    DataLoader,
    DistributedDataLoader,
    DistributedShardingStrategy,
    FixedBatchStrategy,
    NoShardingStrategy,
    RangeDataset,
    ShardingStrategy,
    ddp_sharding,
    fsdp_sharding,
)

LISTS: Batcher[Any, list[Any]] = Batcher(list)
EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def one_mesh() -> jax.sharding.Mesh:
    return jax.sharding.Mesh(jax.devices()[:1], ("data",))


def shards(n: int, count: int, size: int, **more: Any) -> list[Any]:
    builder = DataLoader(LISTS, **more).batch_size(size)
    return [
        builder.shard(one_mesh(), "data", count, shard).build(range(n))
        for shard in range(count)
    ]


@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("n", [0, 1, 3, 8, 11, 50])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_shards_agree_on_their_batches(n: int, count: int, remainder: str) -> None:
    loaders = shards(n, count, 2, remainder=remainder)
    walks = [list(loader) for loader in loaders]
    sizes = [[len(batch) for batch in walk] for walk in walks]
    assert sizes == [sizes[0]] * count
    assert {len(loader) for loader in loaders} == {len(sizes[0])}
    each = n // count if remainder == "drop" else -(-n // count)
    assert {loader.num_items() for loader in loaders} == {each}
    items = [x for walk in walks for batch in walk for x in batch]
    if remainder == "drop":
        assert len(set(items)) == len(items)
    else:
        assert set(items) == set(range(n))


def test_shard_zero_is_a_shard() -> None:
    loader = DistributedDataLoader(
        RangeDataset(0, 10),
        LISTS,
        FixedBatchStrategy(5),
        1,
        1,
        NoShardingStrategy(),
        shard_id=0,
        num_shards=2,
    )
    assert (loader.shard_id, loader.num_shards) == (0, 2)
    assert list(loader) == [[0, 1, 2, 3, 4]]
    assert len(loader) == 1
    assert iter(loader).progress().items_total == 5


def test_padded_shards_load_their_neighbours_first_items() -> None:
    walks = [[x for b in walk for x in b] for walk in shards(5, 3, 2, remainder="pad")]
    assert walks == [[0, 1], [2, 3], [4, 0]]


@pytest.mark.parametrize("kind", [NoShardingStrategy, DistributedShardingStrategy])
def test_shard_indices(kind: Any) -> None:
    strategy = kind() if kind is NoShardingStrategy else kind(one_mesh())
    ranges = [strategy.get_shard_indices(11, shard, 4) for shard in range(4)]
    assert ranges == [range(3), range(3, 6), range(6, 9), range(9, 11)]
    assert isinstance(strategy, ShardingStrategy)


def test_no_sharding() -> None:
    loader = DataLoader(LISTS).batch_size(2).build(range(4))
    strategy = loader.sharding_strategy
    assert not strategy.needs_sharding()
    assert strategy.distribute_global_batch([1, 2]) == [1, 2]
    with pytest.raises(ValueError, match="no mesh"):
        strategy.named_sharding("data")
    with pytest.raises(ValueError, match="no mesh"):
        strategy.distribute_global_batch([1, 2], data_axis="data")


def test_bad_axes() -> None:
    strategy = DistributedShardingStrategy(one_mesh())
    assert strategy.needs_sharding()
    with pytest.raises(ValueError, match="no mesh axis 'rows'; the axes are 'data'"):
        DataLoader(LISTS).shard(one_mesh(), "rows")
    with pytest.raises(ValueError, match="no mesh axis 'rows'"):
        strategy.named_sharding(None, "rows")
    with pytest.raises(ValueError, match="no mesh axis 'rows'"):
        strategy.distribute_global_batch([1], data_axis="rows")
    with pytest.raises(TypeError, match=r"mesh must be a jax\.sharding\.Mesh, not"):
        DataLoader(LISTS).shard("mesh")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Either both"):
        DataLoader(LISTS).shard(one_mesh(), num_shards=2).build([1])
    with pytest.raises(ValueError, match="devices cannot be divided into 1000 shards"):
        fsdp_sharding(1000)


def test_presets_of_one_device() -> None:
    mesh, names = ddp_sharding()
    assert names == mesh.axis_names == ("data",)
    mesh, names = fsdp_sharding()
    assert names == mesh.axis_names == ("data", "model")


DISTRIBUTE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from millstream.loadax import *

devices = np.array(jax.devices())
assert devices.size == 8
items = [{"x": np.full((3,), k, np.float32), "y": k} for k in range(32)]

def check(mesh, axis, spec, parts):
    loader = (DataLoader(Batcher.stack()).batch_size(16).workers(2)
              .shard(mesh, axis).build(items))
    assert (loader.num_shards, loader.shard_id, len(loader)) == (1, 0, 2)
    for step, local in enumerate(loader):
        whole = loader.sharding_strategy.distribute_global_batch(local)
        for name, leaf in whole.items():
            wanted = NamedSharding(mesh, spec)
            assert leaf.sharding.is_equivalent_to(wanted, leaf.ndim), leaf.sharding
            shapes = {shard.data.shape[0] for shard in leaf.addressable_shards}
            assert shapes == {16 // parts}, shapes
            assert (np.asarray(leaf) == local[name]).all()
        total = jax.jit(lambda batch: batch["y"].sum())(whole)
        assert total == sum(range(16 * step, 16 * step + 16))
    return loader

cube = Mesh(devices.reshape(2, 2, 2), ("replica", "data", "model"))
check(Mesh(devices, ("data",)), None, P("data"), 8)
check(Mesh(devices.reshape(4, 2), ("data", "model")), "data", P("data"), 4)
check(Mesh(devices.reshape(4, 2), ("model", "data")), "data", P("data"), 2)
check(Mesh(devices[::-1], ("data",)), "data", P("data"), 8)
check(cube, ("replica", "data"), P(("replica", "data")), 4)
check(jax.make_mesh((8,), ("data",)), "data", P("data"), 8)
loader = check(cube, "model", P("model"), 2)

strategy = loader.sharding_strategy
other = strategy.distribute_global_batch(np.arange(8), data_axis=("data", "model"))
assert other.sharding.is_equivalent_to(NamedSharding(cube, P(("data", "model"))), 1)
assert strategy.named_sharding("data", None, "model").spec == P("data", None, "model")

def error(batch, **more):
    try:
        strategy.distribute_global_batch(batch, **more)
    except ValueError as raised:
        return str(raised)
    raise AssertionError("no error")

text = error({"x": np.zeros((6, 2)), "z": np.zeros(7)})
assert "['z']" in text and "7 rows" in text and "2 blocks" in text, text
assert "[0]" in error([1, 2]) and "without rows" in error([1, 2])

mesh, names = ddp_sharding()
assert names == ("data",) and mesh.shape == {"data": 8}
odd = DataLoader(Batcher.stack()).shard(mesh)
try:
    odd.batch_size(12).build(items)
    raise AssertionError("no error")
except ValueError as raised:
    assert "12 items cannot be divided over the 8 blocks" in str(raised), raised
odd.batch_size(16).build(items[:24])
try:  # warnings are errors here
    odd.batch_size(16).build(items[:25])
    raise AssertionError("no warning")
except UserWarning as raised:
    assert "the last batch has 9 items, which cannot be divided" in str(raised), raised
DataLoader(Batcher.stack(), drop_last=True).batch_size(16).shard(mesh).build(items[:25])
mesh, names = fsdp_sharding()
assert names == ("data", "model") and mesh.shape == {"data": 1, "model": 8}
mesh, names = fsdp_sharding(2)
assert mesh.shape == {"data": 2, "model": 4}

def mean(x):
    return jax.lax.pmean(x.mean(), "data")
ddp = ddp_sharding()[0]
placed = DistributedShardingStrategy(ddp).distribute_global_batch(jnp.arange(16.0))
step = jax.jit(jax.shard_map(mean, mesh=ddp, in_specs=P("data"), out_specs=P()))
assert step(placed) == 7.5
print("done")
"""


def test_distribute_on_eight_devices(python: Python) -> None:
    assert python.run(DISTRIBUTE, **EIGHT) == "done\n"


PROCESSES = """
import sys
import jax, numpy as np
port, rank, count = map(int, sys.argv[1:4])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
from jax.sharding import Mesh, PartitionSpec as P
from jax.experimental import multihost_utils
from millstream.loadax import *

assert jax.process_count() == count and jax.local_device_count() == 2
devices = np.array(jax.devices())
items = [{"x": np.full((2,), k, np.float32), "y": k} for k in range(19)]
builder = DataLoader(Batcher.stack(), drop_last=True).batch_size(4).workers(2)

def totals(mesh, axis, count_of_shards, more=None):
    loader = (more or builder).shard(mesh, axis).build(items)
    assert loader.num_shards == count_of_shards, loader.num_shards
    seen = []
    for local in loader:
        whole = loader.sharding_strategy.distribute_global_batch(local)
        assert whole["x"].shape == (4 * count_of_shards, 2)
        rows = multihost_utils.process_allgather(whole["y"], tiled=True)
        seen.append(rows.tolist())
        total = jax.jit(lambda b: b["y"].sum(), out_shardings=None)(whole)
        assert int(total.addressable_data(0)) == sum(rows.tolist())
    return loader, seen

# Every process has its own shard, and the mesh places its rows.
loader, seen = totals(Mesh(devices, ("data",)), "data", 2)
assert loader.shard_id == rank
assert seen == [[0, 1, 2, 3, 10, 11, 12, 13], [4, 5, 6, 7, 14, 15, 16, 17]], seen
assert len(loader) == 2

# The mesh in another order: process 1 has the first rows.
loader, seen = totals(Mesh(devices[::-1], ("data",)), "data", 2)
assert loader.shard_id == 1 - rank
assert seen[0] == [0, 1, 2, 3, 10, 11, 12, 13], seen

# With the model split across processes, both hold all rows and load the same shard.
loader, seen = totals(Mesh(devices.reshape(2, 2).T, ("data", "model")), "data", 1)
assert loader.shard_id == 0 and len(loader) == 4
assert seen[0] == [0, 1, 2, 3], seen

# A process whose rows are not contiguous is refused.
try:
    builder.shard(Mesh(devices[[0, 2, 1, 3]], ("data",)), "data").build(items)
    raise SystemExit("no error")
except ValueError as error:
    assert "do not give each process an equal, contiguous" in str(error), error

# Processes with different arguments all get an error.
flat, square = Mesh(devices, ("data",)), Mesh(devices.reshape(2, 2), ("data", "model"))
across = Mesh(devices.reshape(2, 2).T, ("data", "model"))
usual = {"n": 19, "size": 4, "drop_last": True, "mesh": flat}
for ours, theirs, what in (
    ({}, {"n": 12}, "in process 1 the number of samples is 12, not 19"),
    ({}, {"size": 2}, "in process 1 the batch size is 2, not 4"),
    ({}, {"drop_last": False}, "in process 1 drop_last is False, not True"),
    ({}, {"mesh": square}, "over mesh (data=2, model=2), not"),
    ({"mesh": across}, {"mesh": square}, "the number of shards is 2, not 1"),
):
    given = {**usual, **(theirs if rank else ours)}
    odd = DataLoader(Batcher.stack(), drop_last=given["drop_last"])
    odd = odd.batch_size(given["size"]).shard(given["mesh"], "data")
    try:
        odd.build(items[: given["n"]])
        raise SystemExit(f"no error: {what}")
    except ValueError as error:
        assert what in str(error), error
odd.shard(flat, "data", 2, rank).build(items[: 12 + rank])  # asked for: not compared

# Presets and placement.
mesh = make_ddp_mesh_config().create_device_mesh()
assert mesh.shape == {"data": 4}
fsdp = make_fsdp_mesh_config(("data", "model"))
assert fsdp.create_device_mesh().shape == {"data": 2, "model": 2}
assert (fsdp.hosts, fsdp.host_id) == (2, rank)
assert fsdp_sharding()[0].shape == {"data": 2, "model": 2}
assert {d.process_index for d in fsdp.create_device_mesh().devices[1]} == {1}
shape = create_device_mesh((1, 4))
assert [d.process_index for d in shape[0]] == [0, 0, 1, 1]
for odd in (mesh, Mesh(devices[[0, 2, 1, 3]], ("data",))):
    local = np.arange(4) + 10 * rank
    whole = host_to_global_device_array({"a": local}, mesh=odd)
    assert whole["a"].shape == (8,)
    assert global_to_host_array(whole)["a"].tolist() == local.tolist()
everywhere = host_to_global_device_array(
    np.arange(3), partition=DataPartitionType.REPLICATED, mesh=mesh)
assert everywhere.is_fully_replicated
back = global_to_host_array(everywhere, partition=DataPartitionType.REPLICATED)
assert back.tolist() == [0, 1, 2]
print("done")
"""


def test_two_processes_of_two_devices(python: Python) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    started = [
        python.start(
            f"import sys; sys.argv[1:] = ['{port}', '{rank}', '2']\n" + PROCESSES,
            **flags,
        )
        for rank in range(2)
    ]
    try:
        for process in started:
            assert python.finished(process).splitlines()[-1] == "done"
    finally:
        for process in started:
            process.kill()
            process.communicate()
