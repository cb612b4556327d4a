"""Ranges."""

from millstream.loadax import RangeDataset as RangeDataset
