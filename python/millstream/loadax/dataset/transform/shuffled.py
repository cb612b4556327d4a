"""Shuffled data sets."""

from millstream.loadax import ShuffledDataset as ShuffledDataset
