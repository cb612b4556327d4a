"""Millstream with a function whose module imports JAX, so each worker imports JAX."""

from functools import partial

from started_with_jax import numbered
from workloads.start_workers import millstream

first_batch = partial(millstream.first_batch, numbered)
