"""Presets of mesh configurations."""

from millstream.loadax import make_ddp_mesh_config as make_ddp_mesh_config
from millstream.loadax import make_fsdp_mesh_config as make_fsdp_mesh_config
