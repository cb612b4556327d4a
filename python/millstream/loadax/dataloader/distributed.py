"""Loaders of shards."""

from millstream.loadax import DistributedDataLoader as DistributedDataLoader
