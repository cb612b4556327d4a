"""`millstream.torch.DataLoader` over the same data set, with two worker processes.

Every other option has its default value.
"""

from functools import partial

from workloads.torch_dataset import millstream_0_workers

build = partial(millstream_0_workers.build, num_workers=2)
