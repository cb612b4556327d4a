"""The types of loaders and of their iterators."""

from millstream.loadax import BatchIterator, DistributedDataLoader

DataloaderProtocol = DistributedDataLoader
DataloaderIteratorProtocol = BatchIterator
