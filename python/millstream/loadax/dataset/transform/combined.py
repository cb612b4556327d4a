"""Combined data sets."""

from millstream.loadax import CombinedDataset as CombinedDataset
