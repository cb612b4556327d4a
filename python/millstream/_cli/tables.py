"""Tells tables of numbers from other files, and how they are written down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from millstream import _engine
from millstream._errors import DataError

_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "spaces", "|": "bars"}
_START = 1 << 20  # bytes that are looked at, and the rest of the line where they end
_LONGEST = 1 << 26


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

    def open(self, path: Path, columns: Sequence[str]) -> _engine.Source:
        """The engine's source of a table that is written so."""
        return _engine.csv(path, self.delimiter, self.header, list(columns), False)


def is_table(name: str, head: bytes, *, guess_text: bool) -> bool:
    """Whether a file is a table: by its name, or where asked because it is text."""
    if name.endswith((".csv", ".tsv", ".tab")):
        return True
    return guess_text and bool(head) and _is_text(head)


def form_of(path: Path, delimiter: str | None, header: bool | None) -> Form:
    """How a table is written, told by its first two lines; what is given is kept.

    The first line is a header if none of its cells is a number. A number in quotes is a
    name, unless the line below has quotes there too. Raises ``DataError`` for cells
    that stand apart by several blanks.
    """
    text = _start(path)
    if delimiter is None:
        tabs = path.suffix.lower() in (".tsv", ".tab")
        delimiter = "\t" if tabs else _delimiter(path, text)
    if header is None:
        header = _is_header(text, delimiter)
    return Form(delimiter, header)


def _start(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(_START) + file.readline(_LONGEST)
    return start.decode("utf-8", "replace").removeprefix("\ufeff")


def _delimiter(path: Path, text: str) -> str:
    line, *more = (line.rstrip("\r") for line in text.split("\n", 2)[:2])
    best = max(",\t;|", key=line.count)
    below = more[0] if more and more[0] else line
    if best in line or " " not in below.strip():
        return best
    for number, words in enumerate((line, below), 1):
        if words != " ".join(words.split()):
            raise DataError(
                f"{path}: line {number}: expected cells with one character between "
                f"them, found several blanks"
            )
    return " "


def _is_header(text: str, delimiter: str) -> bool:
    first, at = _cells(text, 0, delimiter)
    second, _ = _cells(text, at, delimiter)
    for cell, below in zip_longest(first, second[: len(first)], fillvalue=""):
        is_name = cell.startswith('"') and not below.startswith('"')
        if not is_name and _is_number(cell.strip('"')):
            return False
    return True


def _cells(text: str, at: int, delimiter: str) -> tuple[list[str], int]:
    """The cells of the line at ``at``, quotes and all, and where the next begins."""
    between = re.escape(delimiter)
    pattern = re.compile(rf'("(?:[^"]|"")*+"|[^{between}\n]*+)({between}|\r?(?:\n|\Z))')
    cells = []
    while found := pattern.match(text, at):
        cells.append(found[1])
        at = found.end()
        if found[2] != delimiter:
            break
    return cells, at


def _is_number(cell: str) -> bool:
    """Whether the engine takes a cell for a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell


def _is_text(head: bytes) -> bool:
    if any(byte < 9 or 13 < byte < 32 for byte in head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a character that the end cut
    return True
