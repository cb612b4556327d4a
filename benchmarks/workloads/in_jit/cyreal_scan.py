"""Cyreal's `scan_epoch` inside jit.

Outside jit it compiles again at every call.
"""

import jax

from dataset import Arrays
from workloads.host_loop.cyreal_next import loader_of
from workloads.in_jit.workload import Body, Epoch, scan_of


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of cyreal's loader in one jit."""
    return scan_of(loader_of(data), jax.random.PRNGKey(0), body)
