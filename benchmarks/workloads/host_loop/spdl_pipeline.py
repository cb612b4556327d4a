"""SPDL: a pipeline of threads, each item a batch gathered at once."""

from collections.abc import Iterator

import numpy as np
from spdl.pipeline import PipelineBuilder

from dataset import BATCH, Arrays, normalized
from workloads.host_loop.workload import Loop


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    generator = np.random.default_rng(0)

    def indices() -> Iterator[np.ndarray]:
        order = generator.permutation(len(data))
        yield from np.split(order, range(BATCH, len(data), BATCH))

    def gathered(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        image = data.image[chosen]
        return normalized(image) if normalize else image, data.label[chosen]

    def epoch() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        builder = PipelineBuilder().add_source(indices()).pipe(gathered, concurrency=2)
        pipeline = builder.add_sink(8).build(num_threads=2)
        with pipeline.auto_stop():
            yield from pipeline

    return Loop(epoch)
