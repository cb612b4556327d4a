"""Sampled data sets."""

from millstream.loadax import (
    SampledDatasetWithoutReplacement as SampledDatasetWithoutReplacement,
)
from millstream.loadax import (
    SampledDatasetWithReplacement as SampledDatasetWithReplacement,
)
