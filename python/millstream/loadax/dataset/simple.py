"""Data sets of a list."""

from millstream.loadax import SimpleDataset as SimpleDataset
