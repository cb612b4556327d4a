"""Columns of fixed-size rows that are stored in chunks, as in Arrow tables."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from millstream import _engine
from millstream._sources.maps import FileMap, file_maps
from millstream._sources.ordered import OrderedSource


class Chunk(NamedTuple):
    """Consecutive rows in memory, one directly after the other."""

    address: int
    rows: int
    owner: Any
    """The object that keeps the memory alive."""


class ChunkedColumn(NamedTuple):
    """A field and the chunks that hold its rows."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: list[Chunk]

    @property
    def row_bytes(self) -> int:
        """The size of a row."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape, dtype=np.int64))


class TableSource(OrderedSource):
    """A source over the columns of a table, which are not copied.

    A subclass is a dataclass with the fields ``table`` and ``ordering``. ``kind`` says
    what the table is.
    """

    kind: ClassVar[str]
    table: Any

    def _columns(self) -> tuple[list[ChunkedColumn], np.ndarray | None]:
        """Returns the columns, and the rows to take if these are not all rows."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        columns, selected = self._columns()
        self._open(_chunked_source(columns, selected))
        self.with_origin(described(self.kind, len(columns)))


def described(kind: str, columns: int) -> str:
    """Returns the text for ``SampleSource.origin``."""
    return f"{kind}, {columns} numeric column{'s' if columns != 1 else ''}"


def chunk_of(array: np.ndarray) -> Chunk:
    """Returns the rows of an array, which is copied unless it is contiguous."""
    array = np.ascontiguousarray(array)
    return Chunk(array.__array_interface__["data"][0], len(array), array)


def _chunked_source(
    columns: list[ChunkedColumn], selected: np.ndarray | None
) -> _engine.Source:
    """Returns a source whose fields are ``columns``.

    The engine maps the files of columns that are in memory maps, so that it can read
    ahead. It reads other columns where they are.
    """
    maps = _Maps()
    on_disk, in_memory = [], []
    for column in columns:
        found = maps.find([chunk.address for chunk in column.chunks])
        if all(map(maps.can_reopen, np.unique(found))):
            on_disk.append((column, found))
        else:
            in_memory.append(column)
    sources = []
    if on_disk:
        sources.append(_file_source(on_disk, maps))
    if in_memory:
        sources.append(_memory_source(in_memory, maps))
    native = sources[0] if len(sources) == 1 else _engine.zipped(sources)
    return native if selected is None else _engine.subset(native, selected)


class _Maps:
    """The file maps of this process, to look up many addresses."""

    def __init__(self) -> None:
        self._maps = file_maps()
        self._begins = np.array([found.begin for found in self._maps])
        self._ends = np.array([found.end for found in self._maps])

    def __getitem__(self, number: int) -> FileMap:
        return self._maps[number]

    def find(self, addresses: list[int]) -> np.ndarray:
        """Returns the number of the map that contains each address, or -1."""
        found = np.searchsorted(self._begins, addresses, "right") - 1
        return np.where(addresses < self._ends[found], found, -1)

    def can_reopen(self, number: int) -> bool:
        """Whether the number is that of a map whose file can be opened again."""
        return number >= 0 and self._maps[number].can_reopen()


def _file_source(
    columns: list[tuple[ChunkedColumn, np.ndarray]], maps: _Maps
) -> _engine.Source:
    numbers = np.unique(np.concatenate([found for _, found in columns]))
    # The offset in its file of an address, minus the address.
    shifts = np.array([maps[i].offset - maps[i].begin for i in numbers])
    fields = []
    for column, found in columns:
        addresses, rows, _ = zip(*column.chunks, strict=True)
        files = np.searchsorted(numbers, found)
        offsets, counts = np.array(addresses) + shifts[files], np.array(rows)
        fields.append(
            (column.name, column.dtype, list(column.shape), files, offsets, counts)
        )
    return _engine.file_chunks([maps[i].path for i in numbers], fields)


def _memory_source(columns: list[ChunkedColumn], maps: _Maps) -> _engine.Source:
    """Concatenates one source for each range of rows without a border of chunks."""
    starts = [
        np.cumsum([0, *(chunk.rows for chunk in column.chunks)]) for column in columns
    ]
    borders = np.unique(np.concatenate(starts))
    found = [np.searchsorted(first, borders[:-1], "right") - 1 for first in starts]
    sources = []
    for part, (begin, end) in enumerate(itertools.pairwise(borders)):
        specs = []
        for column, first, chunks in zip(columns, starts, found, strict=True):
            chunk = column.chunks[chunks[part]]
            skipped = int(begin - first[chunks[part]]) * column.row_bytes
            address, rows = chunk.address + skipped, int(end - begin)
            mapped = None
            (number,) = maps.find([address])
            if number >= 0:
                file = maps[number]
                offset = file.offset + address - file.begin
                mapped = file.path, address, rows * column.row_bytes, offset
            shape, stride = [rows, *column.shape], column.row_bytes
            specs.append(
                (column.name, column.dtype, shape, address, stride, chunk.owner, mapped)
            )
        sources.append(_engine.arrays(specs, False))
    return sources[0] if len(sources) == 1 else _engine.concatenated(sources)
