"""Data parallelism."""

from millstream.loadax import make_ddp_mesh_config as make_ddp_mesh_config
