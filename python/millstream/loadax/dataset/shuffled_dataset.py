"""Shuffled data sets."""

from millstream.loadax import Shuffleable as Shuffleable
from millstream.loadax import ShuffledDataset as ShuffledDataset
