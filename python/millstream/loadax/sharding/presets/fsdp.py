"""Fully sharded data parallelism."""

from millstream.loadax import make_fsdp_mesh_config as make_fsdp_mesh_config
