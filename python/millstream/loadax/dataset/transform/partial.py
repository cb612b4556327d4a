"""Parts of data sets."""

from millstream.loadax import PartialDataset as PartialDataset
