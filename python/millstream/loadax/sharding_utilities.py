"""Meshes for data-parallel and fully sharded training."""

from millstream.loadax import ddp_sharding as ddp_sharding
from millstream.loadax import fsdp_sharding as fsdp_sharding
