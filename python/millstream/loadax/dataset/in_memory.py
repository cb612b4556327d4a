"""Data sets in memory."""

from millstream.loadax import InMemoryDataset as InMemoryDataset
