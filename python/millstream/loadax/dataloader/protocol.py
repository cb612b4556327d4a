"""Protocols of loaders and of their iterators."""

from typing import Any, Protocol

from millstream.loadax.dataloader.loader import Progress


class DataloaderIteratorProtocol(Protocol):
    """An iterator over batches."""

    def progress(self) -> Progress: ...

    def __next__(self) -> Any: ...


class DataloaderProtocol(Protocol):
    """A loader."""

    def __iter__(self) -> DataloaderIteratorProtocol: ...

    def num_items(self) -> int: ...
