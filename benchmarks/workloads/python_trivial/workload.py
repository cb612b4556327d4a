"""The stream of `python_gil` with a function that only returns its row.

It measures the cost of delivering samples.
"""

from functools import partial

from functions import ROWS, row
from workloads.python_gil import workload

prepare = partial(workload.prepare, function=row, length=len(ROWS), window=400)
