"""Device meshes."""

from millstream.loadax import build_standard_mesh as build_standard_mesh
from millstream.loadax import create_device_mesh as create_device_mesh
from millstream.loadax import create_hybrid_device_mesh as create_hybrid_device_mesh
from millstream.loadax import infer_mesh_shape as infer_mesh_shape
