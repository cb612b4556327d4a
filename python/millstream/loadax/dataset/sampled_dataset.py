"""Sampled data sets."""

from millstream.loadax import SampledDataset as SampledDataset
