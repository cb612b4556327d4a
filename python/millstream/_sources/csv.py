"""A source of samples that are the lines of a CSV file."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream import _engine
from millstream._core.arguments import number
from millstream._core.errors import DataError
from millstream._core.public import public
from millstream._run.state import has_x64
from millstream._sources.csv_header import is_header, start_of
from millstream._sources.disk import AnyPath, path_of
from millstream._sources.ordered import OrderedSource

Column = str | int
Columns = Column | slice | list[Column]
_Reference = str | int | tuple[int, int | None, int]
_Field = tuple[str, list[_Reference], bool]


@public
@dataclass(frozen=True, eq=False)
class CsvSource(OrderedSource):
    """Samples that are the lines of a CSV file, as a dict of its columns.

    A column is bool if all its values are "true" or "false", int64 if all are whole
    numbers that fit, and float64 otherwise. Empty lines are skipped. The engine parses
    the file once and keeps the values in memory.

    Args:
      path: The file.
      ordering: "shuffle", "sequential", or an Order.
      columns: The names of the columns to take, or one name. A dict such as
        ``{"x": slice(1, 501), "label": 0, "y": "height"}`` gives each field a column,
        by name or by index. A slice of indices, or a list of names and indices, is one
        array of these columns, with one dtype for all. None takes all columns. Columns
        that are not taken may hold any text.
      header: Whether the first line names the columns. Without names they are called
        "column0", "column1", ... None treats the first line as names if none of its
        cells is a number or a boolean.
      delimiter: The character between cells. None means a tab in ``.tsv`` and ``.tab``
        files and a comma in all others.
      missing: The number to store for cells that are empty, "NA", "N/A", "null" or
        "nan", in any case. Columns of integers stay integers if it is a whole number.
        "mask" stores 0, and adds to each field NAME a field NAME_present of booleans,
        which is False where the value is missing. None raises ``DataError`` for such a
        cell, but reads "nan" as a number.
      comment: A character. Lines that begin with it are skipped.
    """

    path: AnyPath
    ordering: Any = "shuffle"
    columns: str | list[str] | dict[str, Columns] | None = field(
        default=None, kw_only=True
    )
    header: bool | None = field(default=None, kw_only=True)
    delimiter: str | None = field(default=None, kw_only=True)
    missing: float | str | None = field(default=None, kw_only=True)
    comment: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        path = path_of(self.path)
        delimiter = self.delimiter
        if delimiter is None:
            delimiter = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
        fields = _fields(self.columns)
        missing = _missing(self.missing)
        header = self.header
        if header is None:  # for wrong arguments, the engine raises the error below
            is_usable = len(delimiter) == 1 and path.is_file()
            header = not is_usable or is_header(start_of(path), delimiter, self.comment)
        try:
            native = _engine.csv(
                path,
                delimiter,
                header,
                fields,
                not has_x64(),
                self.comment,
                missing,
                self.missing == "mask",
            )
        except (DataError, ValueError) as error:
            if self.header is None and not header:
                error.add_note(
                    f"{path}: the first line was read as data, because one of its "
                    "cells is a value. Pass header=True if it names the columns."
                )
            raise
        self._open(native)


def _fields(columns: Any) -> list[_Field]:
    """Returns (name, columns, whether it is an array) of each field."""
    if columns is None:
        return []
    if isinstance(columns, Mapping):
        if not columns:
            raise ValueError("CsvSource: columns is empty. Pass at least one column.")
        return [_field(name, wanted) for name, wanted in columns.items()]
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"CsvSource: expected columns to be names, found {name!r}. To take "
                'columns by index, pass a dict such as {"x": slice(1, 501), "y": 0}.'
            )
    return [(name, [name], False) for name in names]


def _field(name: Any, wanted: Any) -> _Field:
    if not isinstance(name, str):
        raise TypeError(
            f"CsvSource: expected the keys of columns to be names, found {name!r}"
        )
    if isinstance(wanted, slice):
        return name, [_range(name, wanted)], True
    if not isinstance(wanted, list | tuple | range):
        return name, [_column(name, wanted)], False
    if not wanted:
        raise ValueError(
            f"CsvSource: the list of columns for '{name}' is empty. Pass at least one."
        )
    return name, [_column(name, column) for column in wanted], True


def _column(name: str, column: Any) -> str | int:
    if isinstance(column, str):
        return column
    try:
        if isinstance(column, bool):
            raise TypeError
        return operator.index(column)
    except TypeError:
        raise TypeError(
            f"CsvSource: expected the columns of '{name}' to be a name, an index, a "
            f"slice or a list of names and indices, found {column!r}"
        ) from None


def _range(name: str, wanted: slice) -> tuple[int, int | None, int]:
    try:
        bounds = [
            None if bound is None else operator.index(bound)
            for bound in (wanted.start, wanted.stop, wanted.step)
        ]
    except TypeError:
        raise TypeError(
            f"CsvSource: expected a slice of column indices for '{name}', found "
            f"{wanted}. Pass a list to take columns by name."
        ) from None
    first, end, step = bounds
    if step is not None and step < 1:
        raise ValueError(
            f"CsvSource: expected the slice for '{name}' to have a positive step, "
            f"found {wanted}. Pass a list of indices, in any order."
        )
    return first or 0, end, step or 1


def _missing(missing: Any) -> float | None:
    """Returns the value to store for missing cells."""
    if missing is None:
        return None
    if isinstance(missing, str):
        if missing != "mask":
            raise ValueError(
                f"CsvSource: expected missing to be a number or 'mask', found "
                f"{missing!r}"
            )
        return 0.0
    return number("CsvSource: missing", missing)
