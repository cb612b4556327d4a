"""Data sets, as in the third generation of Loadax."""

from millstream.loadax import Dataset as Dataset
from millstream.loadax import FilteredDataset as FilteredDataset
from millstream.loadax import MappedBatchDataset as MappedBatchDataset
from millstream.loadax import MappedDataset as MappedDataset
