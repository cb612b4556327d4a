"""The public surface of Loadax: module paths, attributes, texts, arguments."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from millstream import loadax
from millstream.loadax import (
    Batcher,
    BatchStrategy,
    CombinedDataset,
    DataLoader,
    Dataloader,
    DataloaderBuilder,
    Dataset,
    DistributedDataLoader,
    DistributedShardingStrategy,
    FilteredDataset,
    FixedBatchStrategy,
    InMemoryDataset,
    MappedBatchDataset,
    MappedDataset,
    NaiveDataLoader,
    NoShardingStrategy,
    PartialDataset,
    RangeDataset,
    SampledDataset,
    SampledDatasetWithReplacement,
    ShardedDataset,
    ShuffledDataset,
    SimpleDataset,
    compute_shard_boundaries,
)
from type_checker import check_types

# The modules of Loadax 0.1 and 0.2, and of its unreleased third generation.
PATHS = {
    "batcher": "Batcher",
    "strategy": "BatchStrategy FixedBatchStrategy",
    "sharding_utilities": "ddp_sharding fsdp_sharding",
    "dataloader": "DataLoader DataloaderBuilder Dataloader NaiveDataLoader "
    "NaiveDataloader",
    "dataloader.builder": "DataLoader DataloaderBuilder",
    "dataloader.loader": "Dataloader",
    "dataloader.distributed": "DistributedDataLoader",
    "dataloader.naive": "NaiveDataLoader NaiveDataloader",
    "dataloader.progress": "Progress",
    "dataloader.sharding": "ShardingStrategy NoShardingStrategy "
    "DistributedShardingStrategy",
    "dataset": "Dataset InMemoryDataset RangeDataset",
    "dataset.protocol": "Dataset DatasetIterator DatasetItem",
    "dataset.in_memory": "InMemoryDataset",
    "dataset.range": "RangeDataset",
    "dataset.huggingface": "HuggingFaceDataset",
    "dataset.huggingface.dataset": "HuggingFaceDataset",
    "dataset.transform": "CombinedDataset MappedDataset PartialDataset "
    "SampledDatasetWithoutReplacement SampledDatasetWithReplacement ShuffledDataset",
    "dataset.transform.combined": "CombinedDataset",
    "dataset.transform.mapped": "MappedDataset",
    "dataset.transform.partial": "PartialDataset",
    "dataset.transform.sampled": "SampledDatasetWithReplacement "
    "SampledDatasetWithoutReplacement",
    "dataset.transform.shuffled": "ShuffledDataset",
    "dataset.dataset": "Dataset MappedDataset FilteredDataset MappedBatchDataset",
    "dataset.simple": "SimpleDataset",
    "dataset.combined_dataset": "CombinedDataset",
    "dataset.partial_dataset": "PartialDataset",
    "dataset.sampled_dataset": "SampledDataset",
    "dataset.sharded_dataset": "Shardable ShardedDataset compute_shard_boundaries",
    "dataset.shuffled_dataset": "Shuffleable ShuffledDataset",
    "sharding": "HybridMeshShape MeshConfig MeshShape DataPartitionType "
    "global_to_host_array host_to_global_device_array with_sharding_constraint",
    "sharding.mesh_shape": "HybridMeshShape MeshConfig MeshShape",
    "sharding.mesh_utils": "build_standard_mesh create_device_mesh "
    "create_hybrid_device_mesh infer_mesh_shape",
    "sharding.partition_spec": "DataPartitionType data_partition_type_to_spec",
    "sharding.placement": "global_to_host_array host_to_global_device_array "
    "with_sharding_constraint",
    "sharding.presets": "make_ddp_mesh_config make_fsdp_mesh_config",
    "sharding.presets.ddp": "make_ddp_mesh_config",
    "sharding.presets.fsdp": "make_fsdp_mesh_config",
}


@pytest.mark.parametrize("path", PATHS)
def test_module_paths(path: str) -> None:
    module = importlib.import_module(f"millstream.loadax.{path}")
    for name in PATHS[path].split():
        assert getattr(module, name) is getattr(loadax, name)
        assert name in loadax.__all__


def test_protocols_of_loaders() -> None:
    from millstream.loadax.dataloader.protocol import (
        DataloaderIteratorProtocol,
        DataloaderProtocol,
    )

    loader = Dataloader([1], 1)
    assert isinstance(loader, DataloaderProtocol)
    assert isinstance(iter(loader), DataloaderIteratorProtocol)


def test_a_type_checker_knows_the_modules(tmp_path: Path) -> None:
    lines = [
        f"from millstream.loadax.{path} import {', '.join(names.split())}"
        for path, names in PATHS.items()
    ]
    lines.append(f"from millstream.loadax import {', '.join(loadax.__all__)}")
    done = check_types("\n".join(lines) + "\n", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [n for n in loadax.__all__ if n[0].isupper()])
def test_classes_pickle_by_name(name: str) -> None:
    value = getattr(loadax, name)
    if isinstance(value, type):
        assert pickle.loads(pickle.dumps(value)) is value


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Loader'"):
        loadax.Loader  # type: ignore[attr-defined]  # noqa: B018
    assert dir(loadax) == sorted(loadax.__all__)


TEN = list(range(10))


def plus(x: int) -> int:
    return x + 1


@pytest.mark.parametrize(
    ("dataset", "attributes"),
    [
        (InMemoryDataset(TEN), {"items": TEN}),
        (SimpleDataset(TEN), {"items": TEN}),
        (RangeDataset(0, 9, 2), {"start": 0, "end": 9, "step": 2}),
        (MappedDataset(SimpleDataset(TEN), plus), {"map_fn": plus}),
        (MappedBatchDataset(TEN, sum, 4), {"batch_size": 4, "fn": sum}),
        (FilteredDataset(TEN, bool), {"predicate": bool}),
        (PartialDataset(TEN, 2, 5), {"start": 2, "end": 5}),
        (SampledDataset(TEN, 4, 0), {"sample_size": 4, "key": (0, 0)}),
        (SampledDatasetWithReplacement(TEN, 12, 0), {"sample_size": 12}),
        (ShuffledDataset(TEN, 7), {"key": (0, 7)}),
        (
            ShardedDataset(TEN, 3, 1),
            {
                "num_shards": 3,
                "shard_id": 1,
                "drop_remainder": True,
                "start": 3,
                "end": 6,
            },
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_attributes_of_data_sets(
    dataset: Dataset[int], attributes: dict[str, Any]
) -> None:
    for name, value in attributes.items():
        assert getattr(dataset, name) == value
    if hasattr(dataset, "dataset"):
        assert list(dataset.dataset) == TEN


def test_reprs() -> None:
    two = RangeDataset(0, 2)
    assert repr(InMemoryDataset(TEN)) == "InMemoryDataset(items=[0, 1]...)"
    assert repr(two) == "RangeDataset(start=0, end=2, step=1)"
    assert repr(CombinedDataset([two])) == (
        "CombinedDataset(datasets=[RangeDataset(start=0, end=2, step=1)])"
    )
    shown = repr(MappedDataset(two, plus))
    assert shown.startswith("MappedDataset(dataset=RangeDataset(start=0, ")
    assert "map_fn=<function plus" in shown
    assert repr(ShuffledDataset(two)).startswith("ShuffledDataset(dataset=Range")
    assert repr(iter(Dataloader(TEN, 4)).progress()) == (
        "Progress(items_processed=0, items_total=10)"
    )
    calls: list[int] = []
    repr(FilteredDataset(TEN, lambda x: calls.append(x) or True))
    assert calls == []  # the repr does not read the items


def test_attributes_of_loaders() -> None:
    dataset, batcher = RangeDataset(0, 10), Batcher(sum)
    loader = DataLoader(batcher).batch_size(4).workers(3).prefetch(5).build(dataset)
    assert loader.dataset is dataset
    assert loader.batcher is batcher
    assert isinstance(loader.strategy, FixedBatchStrategy)
    assert (loader.num_workers, loader.prefetch_factor) == (3, 5)
    assert (loader.shard_id, loader.num_shards) == (0, 1)
    assert isinstance(loader.sharding_strategy, NoShardingStrategy)
    assert (loader.num_items(), loader.num_batches(), len(loader)) == (10, 3, 3)
    naive = NaiveDataLoader(dataset, batcher, FixedBatchStrategy(4))
    assert naive.dataset is dataset
    assert naive.batcher is batcher
    assert (naive.num_items(), naive.num_batches()) == (10, 3)
    assert not isinstance(DataLoader(batcher), DistributedDataLoader)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    strategy = DistributedShardingStrategy(mesh)
    assert strategy.mesh is mesh
    assert strategy.data_shard_axis == ("data",)
    assert strategy.shards() == (1, 0)
    assert (strategy.blocks(), strategy.processes()) == (1, [0])


def test_defaults_of_the_builder() -> None:
    loader = DataloaderBuilder(Batcher(list)).build(RangeDataset(0, 3))
    assert list(loader) == [[0], [1], [2]]
    assert (loader.num_workers, loader.prefetch_factor) == (1, 2)
    without = DistributedDataLoader([1, 2], Batcher(sum), FixedBatchStrategy(2), 1, 1)
    assert list(without) == [3]  # Loadax 0.1: the sharding strategy is optional


class Evens(BatchStrategy[int]):
    """A strategy as in Loadax, where ``force`` is a keyword argument."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def add(self, item: int) -> None:
        self.items.append(item)

    def batch(self, *, force: bool) -> list[int] | None:
        if self.items and (force or len(self.items) == 2):
            taken, self.items = self.items, []
            return taken
        return None

    def clone(self) -> Evens:
        return Evens()


def test_a_strategy_whose_force_is_a_keyword() -> None:
    loader = NaiveDataLoader(range(5), Batcher(list), Evens())
    assert list(iter(loader)) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: SimpleDataset(TEN)[10], IndexError, "out of range"),
        (lambda: ShardedDataset(TEN, 2, 0)[5], IndexError, "out of range"),
        (lambda: RangeDataset(1, 1), ValueError, "start must be less than end"),
        (lambda: RangeDataset(0, 1, 0), ValueError, "step must be greater than 0"),
        (lambda: PartialDataset(TEN, 5, 3), ValueError, "Invalid start or end index"),
        (lambda: SampledDataset(TEN, 11, 0), ValueError, "Invalid sample size"),
        (
            lambda: compute_shard_boundaries(0, 0, 3),
            ValueError,
            "num_shards must be greater than 0",
        ),
        (
            lambda: compute_shard_boundaries(2, 2, 3),
            ValueError,
            r"must be in the range \[0, 2\)",
        ),
        (
            lambda: compute_shard_boundaries(2, -1, 3),
            ValueError,
            r"must be in the range \[0, 2\)",
        ),
        (lambda: Dataloader([1], 0), ValueError, "batch_size must be at least 1"),
        (
            lambda: DistributedDataLoader(
                [1], Batcher(list), FixedBatchStrategy(1), 0, 1
            ),
            AssertionError,
            "num_workers must be at least 1",
        ),
        (
            lambda: DistributedDataLoader(
                [1], Batcher(list), FixedBatchStrategy(1), 1, 0
            ),
            AssertionError,
            "prefetch_factor must be at least 1",
        ),
    ],
)
def test_the_words_of_errors(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()


def test_arguments_that_another_generation_names_differently() -> None:
    renamed: Any = PartialDataset
    assert list(renamed(TEN, start_index=2, end_index=4)) == [2, 3]
    assert len(renamed.split(TEN, num_parts=3)) == 3
    assert len(renamed.split_dataset(TEN, num_partitions=3)) == 3
    mapped: Any = MappedDataset
    assert list(mapped([1], transform=plus)) == [2]
    batched: Any = MappedBatchDataset
    assert list(batched(TEN, transform=sum, batch_size=10)) == [45]
    three: Any = RangeDataset(0, 3)
    assert list(three.map(transform=plus)) == [1, 2, 3]
    assert list(three.map_batch(transform=sum)) == [3]


LISTS: Batcher[Any, list[Any]] = Batcher(list)
TWO: FixedBatchStrategy[Any] = FixedBatchStrategy(2)
OLDER = r"belongs to the first and second generation of Loadax \(0\.1 and 0\.2\)"
THIRD = "belongs to the third generation of Loadax"


@pytest.mark.parametrize(
    ("build", "name", "generation"),
    [
        (lambda new, old: new(TEN, 2, shard_id=0), "shard_id", OLDER),
        (lambda new, old: new(TEN, 2, num_shards=2), "num_shards", OLDER),
        (lambda new, old: new(TEN, 2, strategy=TWO), "strategy", OLDER),
        (lambda new, old: new(TEN, 2, workers=2), "workers", OLDER),
        (lambda new, old: new(TEN, 2, prefetch=2), "prefetch", OLDER),
        (lambda new, old: new(LISTS), "batcher", OLDER),
        (lambda new, old: old(LISTS, batch_size=2), "batch_size", THIRD),
        (lambda new, old: old(LISTS, num_workers=2), "num_workers", THIRD),
        (lambda new, old: old(LISTS, prefetch_factor=2), "prefetch_factor", THIRD),
        (lambda new, old: old(LISTS, dataset=TEN), "dataset", THIRD),
        (
            lambda new, old: new(TEN, LISTS, TWO, 1, 1, batch_size=2),
            "batch_size",
            THIRD,
        ),
        (
            lambda new, old: NaiveDataLoader(TEN, LISTS, TWO, num_workers=2),  # type: ignore[call-arg]
            "num_workers",
            THIRD,
        ),
        (
            lambda new, old: DistributedDataLoader(TEN, LISTS, TWO, 1, 1, batch_size=2),  # type: ignore[call-arg]
            "batch_size",
            THIRD,
        ),
    ],
)
def test_arguments_of_another_generation(
    build: Any, name: str, generation: str
) -> None:
    with pytest.raises(TypeError, match=f"has no argument {name}, which {generation}"):
        build(Dataloader, DataLoader)


def test_mesh_rules_of_both_presets() -> None:
    rules = [("gpu", (1, 1))]
    for make in (loadax.make_ddp_mesh_config, loadax.make_fsdp_mesh_config):
        config = make(("data", "model"), ("data",), rules, "gpu-8")
        assert config.mesh_shape == (1, 1)
        assert (config.mesh_axis_names, config.batch_axis_names) == (
            ("data", "model"),
            ("data",),
        )
        assert make(("data", "model"), mesh_rules=rules).mesh_shape != (1, 1)
    with pytest.raises(ValueError, match="no mesh axis 'rows' to shard along"):
        loadax.make_ddp_mesh_config(batch_axis_names="rows")


def test_samples_with_replacement_are_another_class() -> None:
    drawn = SampledDatasetWithReplacement(TEN, 20, 1)
    assert not isinstance(drawn, SampledDataset)
    assert SampledDataset is loadax.SampledDatasetWithoutReplacement


def test_other_wrong_arguments_of_loaders() -> None:
    builder: Any = DataLoader
    with pytest.raises(TypeError, match=r"of the third generation of Loadax, is Data"):
        builder(TEN, 2)
    with pytest.raises(TypeError, match="the only argument"):
        builder(LISTS, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        builder(LISTS, colour=1)
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip', not ''"):
        builder(LISTS, on_error="").build(TEN)
