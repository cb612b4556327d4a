"""jax-dataloader with its own backend."""

import jax_dataloader as jdl

from dataset import BATCH, Arrays, normalized
from workloads.host_loop.workload import Loop


class NormalizedDataset(jdl.ArrayDataset):
    """The arrays, with the first cast and scaled when a batch is read."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return normalized(image), label


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    dataset = NormalizedDataset if normalize else jdl.ArrayDataset
    loader = jdl.DataLoader(
        dataset(data.image, data.label), "jax", batch_size=BATCH, shuffle=True
    )
    return Loop(lambda: loader)
