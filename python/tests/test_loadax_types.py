"""A type checker infers the type of a batch."""

from __future__ import annotations

import re
from pathlib import Path

from type_checker import check_types

SNIPPET = """
from millstream.loadax import (
    Batcher, CombinedDataset, DataLoader, Dataloader, Dataset, FixedBatchStrategy,
    InMemoryDataset, MappedDataset, NaiveDataLoader, NoShardingStrategy, RangeDataset,
    SampledDatasetWithReplacement, ShardedDataset, ShuffledDataset,
)

def total(x: list[int]) -> float:
    return sum(x) / 2

def name(x: int) -> str:
    return str(x)

loader = DataLoader(Batcher(total)).batch_size(2).workers(2).build(RangeDataset(0, 10))
for batch in loader:
    reveal_type(batch)  # float
reveal_type(next(iter(loader)))  # float
reveal_type(RangeDataset(0, 10).get(3))  # int | None
reveal_type(MappedDataset(RangeDataset(0, 10), name)[0])  # str
reveal_type(RangeDataset(0, 3).map(name).filter(bool)[0])  # str
reveal_type(RangeDataset(0, 3).map_batch(total)[0])  # float
reveal_type(ShuffledDataset(InMemoryDataset(["a"]), 1)[0])  # str
reveal_type(CombinedDataset(RangeDataset(0, 3), RangeDataset(0, 4))[0])  # int
reveal_type(CombinedDataset([RangeDataset(0, 3), RangeDataset(0, 4)])[0])  # int
reveal_type(ShardedDataset(["a"], 1, 0)[0])  # str
reveal_type(SampledDatasetWithReplacement([1.5], 1, 0)[0])  # float
reveal_type([b for b in Dataloader(["a", "b"], 2)])  # list[list[str]]
two, whole = FixedBatchStrategy[int](2), NoShardingStrategy()
sharded = Dataloader(RangeDataset(0, 3), Batcher(total), two, 1, 2, whole)
reveal_type([b for b in sharded])  # list[float]
naive = NaiveDataLoader(RangeDataset(0, 3), Batcher(total), FixedBatchStrategy(2))
reveal_type([b for b in naive])  # list[float]

class Words(Dataset[str]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        return "a"

reveal_type([x for x in Words()])  # list[str]
DataLoader(Batcher(total)).build(Words())  # error
"""


def test_a_checker_infers_the_batch(tmp_path: Path) -> None:
    done = check_types(SNIPPET, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    said: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if found := re.match(r"snippet\.py:(\d+): (\w+): (.*)", line):
            said.setdefault(int(found[1]), f"{found[2]} {found[3]}")
    for number, line in enumerate(SNIPPET.splitlines(), 1):
        if "  # " not in line:
            assert number not in said, (line, said[number])
            continue
        expected = line.split("  # ")[1]
        if expected == "error":
            assert "error" in said[number]
            assert "Words" in said[number]
        else:
            shown = said[number].replace("builtins.", "")
            assert f'Revealed type is "{expected}"' in shown, (line, shown)
