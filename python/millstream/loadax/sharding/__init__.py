"""Meshes and placement."""

from millstream.loadax import DataPartitionType as DataPartitionType
from millstream.loadax import HybridMeshShape as HybridMeshShape
from millstream.loadax import MeshConfig as MeshConfig
from millstream.loadax import MeshShape as MeshShape
from millstream.loadax import global_to_host_array as global_to_host_array
from millstream.loadax import host_to_global_device_array as host_to_global_device_array
from millstream.loadax import with_sharding_constraint as with_sharding_constraint
