"""Batching strategies, which group items into batches."""

from millstream.loadax import BatchStrategy as BatchStrategy
from millstream.loadax import FixedBatchStrategy as FixedBatchStrategy
