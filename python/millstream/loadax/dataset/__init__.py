"""Data sets: items by index."""

from millstream.loadax import Dataset as Dataset
from millstream.loadax import InMemoryDataset as InMemoryDataset
from millstream.loadax import RangeDataset as RangeDataset
from millstream.loadax import SimpleDataset as SimpleDataset
