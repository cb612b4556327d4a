"""The code blocks of Loadax's documentation; only the import line is changed.

The test provides names that the blocks use but do not import, such as `time`. If the
documented output contradicts the code, the test follows the code: a batch of two is
`[1, 2]` and not `1`, and batches that are summed are numbers.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import TESTS, Python
from millstream.loadax import InMemoryDataset, RangeDataset

PAIRS = "[1, 2]\n[3, 4]\n[5, 6]\n[7, 8]\n[9, 10]\n"
BLOCKS = [
    ("in_memory", PAIRS),
    ("two_iterators", "[1, 2]\n[1, 2]\n"),
    ("prefetch", PAIRS),
    ("workers", "[0, 2]\n[4, 6]\n[8, 10]\n[12, 14]\n[16, 18]\n"),
    ("types", "1\n5\n9\n13\n17\n"),
    ("datasets", ""),
    ("transforms", ""),
]


def seed(name: str) -> str:
    code = (TESTS / "seeds" / f"003_{name}.txt").read_text()
    return code.replace("from loadax import", "from millstream.loadax import")


def test_every_block_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {"time": time}
    for block, printed in BLOCKS:
        exec(compile(seed(block), block, "exec"), names)
        assert capsys.readouterr().out == printed, block
    assert list(names["dataset"]) != list(range(0, 20, 2))
    assert sorted(names["dataset"]) == list(range(0, 20, 2))


def test_a_loader_is_stateless(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(seed("in_memory"), names)
    loader = names["loader"]
    for _ in range(3):
        assert [*map(str, loader)] == PAIRS.split("\n")[:-1]
    assert capsys.readouterr().out == PAIRS


def test_the_data_sets_of_the_documentation() -> None:
    names: dict[str, Any] = {"InMemoryDataset": InMemoryDataset}
    first, second = seed("datasets").splitlines()
    exec(first, names)
    assert list(names["dataset"]) == list(range(1, 11))
    names["RangeDataset"] = RangeDataset
    exec(second, names)
    assert list(names["dataset"]) == list(range(10))


SETUP = """
import jax, numpy as np
num_data_shards, num_model_shards, loss = 4, 2, 0.0
"""

CHECK = """
from jax.sharding import NamedSharding, PartitionSpec as P
assert len(dataloader) == 16 and dataloader.num_shards == 1
expected = NamedSharding(mesh, P("data"))
for k, local_batch in enumerate(dataloader):
    assert isinstance(local_batch, jax.Array) and len(local_batch.devices()) == 1
    whole = dataloader.sharding_strategy.distribute_global_batch(local_batch)
    assert whole.sharding.is_equivalent_to(expected, 1), whole.sharding
    assert {s.data.shape for s in whole.addressable_shards} == {(2,)}
    assert whole.tolist() == list(range(8 * k, 8 * k + 8))
assert k == 15
assert global_batch.tolist() == list(range(120, 128))
print("done")
"""


def test_the_distributed_block_on_eight_devices(python: Python) -> None:
    code = seed("distributed")
    elided = "shard however you like (see fsdp example for zero style fsdp)\n    ...\n"
    assert code.count(elided) == 1  # the documentation leaves out the model
    code = code.replace(elided, elided.replace("...", "return None, None"))
    flags = "--xla_force_host_platform_device_count=8"
    assert python.run(SETUP + code + CHECK, XLA_FLAGS=flags) == "done\n"
