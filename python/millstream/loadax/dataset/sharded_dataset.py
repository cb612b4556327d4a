"""Shards of data sets."""

from millstream.loadax import Shardable as Shardable
from millstream.loadax import ShardedDataset as ShardedDataset
from millstream.loadax import compute_shard_boundaries as compute_shard_boundaries
