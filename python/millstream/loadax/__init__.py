"""The interface of the Loadax library, implemented by Millstream.

To switch from Loadax, change the import and keep your code.

The engine's workers load items ahead, or a plain loop loads them one by one. Items
always come in order. docs/loadax.md lists the differences from Loadax.
"""

from typing import TYPE_CHECKING

from millstream._core.lazy import lazy
from millstream.loadax._batching import Batcher, BatchStrategy, FixedBatchStrategy
from millstream.loadax._builder import DataLoader, DataloaderBuilder
from millstream.loadax._dataset import (
    Dataset,
    DatasetIterator,
    Indexed,
    Shardable,
    Shuffleable,
)
from millstream.loadax._drawn import (
    SampledDataset,
    SampledDatasetWithoutReplacement,
    SampledDatasetWithReplacement,
    ShuffledDataset,
)
from millstream.loadax._hugging_face import HuggingFaceDataset
from millstream.loadax._loaders import (
    Dataloader,
    DistributedDataLoader,
    NaiveDataLoader,
)
from millstream.loadax._loading import BatchIterator, Progress, SkippedItemWarning
from millstream.loadax._memory import InMemoryDataset, RangeDataset, SimpleDataset
from millstream.loadax._sharding import (
    DistributedShardingStrategy,
    NoShardingStrategy,
    ShardingStrategy,
    ddp_sharding,
    fsdp_sharding,
)
from millstream.loadax._shards import ShardedDataset, compute_shard_boundaries
from millstream.loadax._views import (
    CombinedDataset,
    FilteredDataset,
    MappedBatchDataset,
    MappedDataset,
    PartialDataset,
)

if TYPE_CHECKING:
    from millstream.loadax._mesh import (
        HybridMeshShape,
        MeshConfig,
        MeshShape,
        build_standard_mesh,
        create_device_mesh,
        create_hybrid_device_mesh,
        infer_mesh_shape,
    )
    from millstream.loadax._placement import (
        DataPartitionType,
        data_partition_type_to_spec,
        global_to_host_array,
        host_to_global_device_array,
        with_sharding_constraint,
    )
    from millstream.loadax._presets import make_ddp_mesh_config, make_fsdp_mesh_config

NaiveDataloader = NaiveDataLoader

__all__ = [
    "BatchIterator",
    "BatchStrategy",
    "Batcher",
    "CombinedDataset",
    "DataLoader",
    "DataPartitionType",
    "Dataloader",
    "DataloaderBuilder",
    "Dataset",
    "DatasetIterator",
    "DistributedDataLoader",
    "DistributedShardingStrategy",
    "FilteredDataset",
    "FixedBatchStrategy",
    "HuggingFaceDataset",
    "HybridMeshShape",
    "InMemoryDataset",
    "Indexed",
    "MappedBatchDataset",
    "MappedDataset",
    "MeshConfig",
    "MeshShape",
    "NaiveDataLoader",
    "NaiveDataloader",
    "NoShardingStrategy",
    "PartialDataset",
    "Progress",
    "RangeDataset",
    "SampledDataset",
    "SampledDatasetWithReplacement",
    "SampledDatasetWithoutReplacement",
    "Shardable",
    "ShardedDataset",
    "ShardingStrategy",
    "Shuffleable",
    "ShuffledDataset",
    "SimpleDataset",
    "SkippedItemWarning",
    "build_standard_mesh",
    "compute_shard_boundaries",
    "create_device_mesh",
    "create_hybrid_device_mesh",
    "data_partition_type_to_spec",
    "ddp_sharding",
    "fsdp_sharding",
    "global_to_host_array",
    "host_to_global_device_array",
    "infer_mesh_shape",
    "make_ddp_mesh_config",
    "make_fsdp_mesh_config",
    "with_sharding_constraint",
]

if not TYPE_CHECKING:
    __getattr__, __dir__, _ = lazy()
