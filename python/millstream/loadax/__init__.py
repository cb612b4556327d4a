"""The interface of the Loadax library, implemented by Millstream.

To switch from Loadax, change the import and keep your code.

The engine's workers load items ahead, or a plain loop loads them one by one. Items
always come in order. docs/loadax.md lists the differences from Loadax.
"""

from typing import TYPE_CHECKING

from millstream._core.lazy import lazy_names

if TYPE_CHECKING:
    from millstream.loadax.batcher import *  # noqa: F403
    from millstream.loadax.dataloader.builder import *  # noqa: F403
    from millstream.loadax.dataloader.loader import *  # noqa: F403
    from millstream.loadax.dataloader.sharding import *  # noqa: F403
    from millstream.loadax.dataset.integrations import *  # noqa: F403
    from millstream.loadax.dataset.protocol import *  # noqa: F403
    from millstream.loadax.dataset.transform import *  # noqa: F403
    from millstream.loadax.sharding.mesh_shape import *  # noqa: F403
    from millstream.loadax.sharding.placement import *  # noqa: F403

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        {
            "batcher": "Batcher BatchStrategy FixedBatchStrategy",
            "dataloader.builder": "DataLoader DataloaderBuilder",
            "dataloader.loader": (
                "BatchIterator Dataloader DistributedDataLoader NaiveDataLoader "
                "NaiveDataloader Progress SkippedItemWarning"
            ),
            "dataloader.sharding": (
                "DistributedShardingStrategy NoShardingStrategy ShardingStrategy"
            ),
            "dataset.integrations": "HuggingFaceDataset PolarsDataset SQLiteDataset",
            "dataset.protocol": (
                "Dataset DatasetItem DatasetIterator InMemoryDataset Indexed "
                "RangeDataset Shardable Shuffleable SimpleDataset"
            ),
            "dataset.transform": (
                "CombinedDataset FilteredDataset MappedBatchDataset MappedDataset "
                "PartialDataset SampledDataset SampledDatasetWithReplacement "
                "SampledDatasetWithoutReplacement ShardedDataset ShuffledDataset "
                "compute_shard_boundaries"
            ),
            "sharding.mesh_shape": (
                "HybridMeshShape MeshConfig MeshShape build_standard_mesh "
                "create_device_mesh create_hybrid_device_mesh infer_mesh_shape "
                "make_ddp_mesh_config make_fsdp_mesh_config ddp_sharding fsdp_sharding"
            ),
            "sharding.placement": (
                "DataPartitionType data_partition_type_to_spec global_to_host_array "
                "host_to_global_device_array with_sharding_constraint"
            ),
        }
    )
