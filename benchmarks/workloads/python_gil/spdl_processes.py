"""SPDL: a pipeline whose items are batches, made in a pool of processes.

Two tasks for each process are under way, so that none waits for the pipeline. One
sample per item would need one message for each sample.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
from spdl.pipeline import PipelineBuilder

from functions import WORKERS, rows_of, shuffled
from workloads.python_gil.workload import Function, Stream


def build(function: Function, length: int) -> Stream:
    """The stream of NumPy arrays."""

    def batches() -> Iterator[np.ndarray]:
        indices = (batch.tolist() for batch in shuffled(length))
        with ProcessPoolExecutor(WORKERS, get_context("spawn")) as executor:
            builder = PipelineBuilder().add_source(indices)
            builder = builder.pipe(
                partial(rows_of, function),
                executor=executor,
                concurrency=2 * WORKERS,
                output_order="input",
            )
            pipeline = builder.add_sink(8).build(num_threads=1)
            with pipeline.auto_stop():
                yield from pipeline

    return Stream(batches)
