"""By hand: `jnp.take` of 1e6 rows by a permutation that is the state."""

from functools import partial

from workloads.scaling.take_1e4 import stepper
from workloads.scaling.workload import STEPS

build = partial(stepper, 10**6, STEPS)
