"""The same with a function that only returns its row: what is left is hand-over."""

from functools import partial

from functions import ROWS, row
from workloads.python_gil import workload

measure = partial(
    workload.measure, function=row, length=len(ROWS), window=200, count=25
)
