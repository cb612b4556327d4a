"""Gathers each batch with `np.take` into one reused array.

Includes the shuffle. Does not include passing the batch to JAX.
"""

from dataset import Arrays
from workloads.host_loop.numpy_take import taken
from workloads.host_loop.workload import Loop


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays that are not passed to JAX."""
    return Loop(taken(data, normalize, reuse=True), reaches_jax=False)
