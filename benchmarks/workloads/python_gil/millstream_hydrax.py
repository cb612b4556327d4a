"""The program of `hydrax.py` with `millstream.hydrax`: only the import differs."""

from collections.abc import Iterator, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from millstream import hydrax

from dataset import BATCH
from functions import ROWS, WORKERS
from workloads.python_gil.workload import Function, Stream

DEPTH = 32


def load(
    function: Function, index: int, arrays: Mapping[str, np.ndarray], seed: int | None
) -> None:
    """Writes a sample into the arrays of its row."""
    arrays["row"][:] = function(index)


def build(function: Function, length: int) -> Stream:
    """The stream of JAX arrays that alias shared memory."""

    def batches() -> Iterator[jax.Array]:
        layout = {"row": (ROWS.shape[1:], np.uint8, jnp.uint8)}
        group = hydrax.DataGroup(
            BATCH, range(length), loader_arrays=layout, shuffle_first=True
        )
        loader = hydrax.Dataloader(
            partial(load, function), group, loader_count=WORKERS, depth=DEPTH
        )
        with loader:
            for batch in loader:
                yield batch.arrays["row"]
                del batch

    return Stream(batches, ahead=DEPTH + 4)
