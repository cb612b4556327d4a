"""Tells tables of numbers from other files, and how they are written down."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "spaces", "|": "bars"}


@dataclass(frozen=True)
class Form:
    """What stands between the cells, and whether the first line names the columns."""

    delimiter: str
    header: bool

    @property
    def title(self) -> str:
        between = _NAMES.get(self.delimiter, repr(self.delimiter))
        lead = "with a header" if self.header else "without a header"
        return f"table with {between}, {lead}"


def is_table(name: str, head: bytes, *, guess_text: bool) -> bool:
    """Whether a file is a table: by its name, or where asked because it is text."""
    if name.endswith((".csv", ".tsv")):
        return True
    return guess_text and bool(head) and _is_text(head)


def form_of(
    path: Path, head: bytes, delimiter: str | None, header: bool | None
) -> Form:
    """How a table that begins with ``head`` is written; what is given is kept."""
    line = head.decode("utf-8", "replace").removeprefix("\ufeff").partition("\n")[0]
    line = line.rstrip("\r")
    if delimiter is None:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(line)
    if header is None:
        header = not all(_is_number(cell) for cell in _cells(line, delimiter))
    return Form(delimiter, header)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []  # damage that whoever reads the table will name


def _delimiter(line: str) -> str:
    return max(",\t;|", key=line.count) if line else ","


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_text(head: bytes) -> bool:
    if any(byte < 9 or 13 < byte < 32 for byte in head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a character that the end cut
    return True
