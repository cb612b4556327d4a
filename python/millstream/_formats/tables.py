"""Detects tables of numbers, their delimiter and their header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream import _engine
from millstream._core.errors import data_error
from millstream._sources.csv_header import is_header, start_of

_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "spaces", "|": "bars"}


@dataclass(frozen=True)
class Form:
    """The delimiter of a table, and whether its first line names the columns."""

    delimiter: str
    header: bool

    @property
    def title(self) -> str:
        between = _NAMES.get(self.delimiter, repr(self.delimiter))
        lead = "with a header" if self.header else "without a header"
        return f"table with {between}, {lead}"

    def open(self, path: Path, columns: Sequence[str]) -> _engine.Source:
        """Returns the engine's source of a table of this form."""
        fields = [(name, [name], False) for name in columns]
        return _engine.csv(path, self.delimiter, self.header, fields, False)


def is_table(name: str, head: bytes, *, guess_text: bool) -> bool:
    """Whether a file is a table: by its name or, with ``guess_text``, by its text."""
    if name.endswith((".csv", ".tsv", ".tab")):
        return True
    return guess_text and bool(head) and _is_text(head)


def form_of(path: Path, delimiter: str | None, header: bool | None) -> Form:
    """Returns the form of a table.

    An argument that is None is detected from the first lines of the table. Raises
    ``DataError`` if several blanks separate two cells.
    """
    text = start_of(path)
    if delimiter is None:
        tabs = path.suffix.lower() in (".tsv", ".tab")
        delimiter = "\t" if tabs else _delimiter(path, text)
    if header is None:
        header = is_header(text, delimiter)
    return Form(delimiter, header)


def _delimiter(path: Path, text: str) -> str:
    line, *more = (line.rstrip("\r") for line in text.split("\n", 2)[:2])
    best = max(",\t;|", key=line.count)
    below = more[0] if more and more[0] else line
    if best in line or " " not in below.strip():
        return best
    for number, words in enumerate((line, below), 1):
        if words != " ".join(words.split()):
            raise data_error(
                path=path,
                line=number,
                expected="cells with one character between them",
                found="several blanks",
            )
    return " "


def _is_text(head: bytes) -> bool:
    if any(byte < 9 or 13 < byte < 32 for byte in head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # the head ends within a character
    return True
