"""Sampled data sets."""

from millstream.loadax.dataset import transform

SampledDatasetWithReplacement = transform.SampledDatasetWithReplacement
SampledDatasetWithoutReplacement = transform.SampledDatasetWithoutReplacement
