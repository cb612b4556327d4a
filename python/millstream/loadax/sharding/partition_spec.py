"""Partitions."""

from millstream.loadax import DataPartitionType as DataPartitionType
from millstream.loadax import data_partition_type_to_spec as data_partition_type_to_spec
