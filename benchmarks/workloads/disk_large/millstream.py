"""Millstream's `iterate` over an `NpySource`, with the defaults of every option.

The engine maps the file and copies each row once, into the batch.
"""

from pathlib import Path

import millstream as ms

from ours import epochs
from streams import Stream
from workloads.disk_large.workload import BATCH


def build(path: Path) -> Stream:
    """The stream of the loader over the file."""
    return Stream(epochs(ms.NpySource(path, ordering="shuffle"), BATCH))
