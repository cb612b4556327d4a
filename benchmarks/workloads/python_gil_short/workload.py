"""The stream of `python_gil` with a function that holds the GIL for 20 us."""

from functools import partial

from functions import ROWS, shortly_held_row
from workloads.python_gil import workload

prepare = partial(
    workload.prepare, function=shortly_held_row, length=len(ROWS), window=200
)
