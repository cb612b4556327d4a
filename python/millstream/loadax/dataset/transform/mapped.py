"""Mapped data sets."""

from millstream.loadax import MappedDataset as MappedDataset
