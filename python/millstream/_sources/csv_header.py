"""Detects whether the first line of a CSV file names the columns."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

_START_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 26


def start_of(path: Path) -> str:
    """Returns the first lines of a file, without empty lines at its beginning.

    It reads ``_START_BYTES`` and then the rest of the last line.
    """
    with path.open("rb") as file:
        start = file.read(_START_BYTES) + file.readline(_MAX_LINE_BYTES)
    return start.decode("utf-8", "replace").removeprefix("\ufeff").lstrip("\r\n")


def is_header(text: str, delimiter: str, comment: str | None = None) -> bool:
    """Whether the first line names the columns.

    It does if none of its cells is a number or a boolean. A value in quotes counts as a
    name, unless the cell below it is in quotes too. Lines that begin with ``comment``
    are skipped.
    """
    first, at = _cells(text, _line_at(text, 0, comment), delimiter)
    second, _ = _cells(text, _line_at(text, at, comment), delimiter)
    for cell, below in zip_longest(first, second[: len(first)], fillvalue=""):
        is_name = cell.startswith('"') and not below.startswith('"')
        if not is_name and _is_value(cell.strip('"')):
            return False
    return True


def _line_at(text: str, at: int, comment: str | None) -> int:
    """Returns where the next line begins that is no comment."""
    while comment and text.startswith((comment, "\n", "\r\n"), at):
        end = text.find("\n", at)
        at = len(text) if end < 0 else end + 1
    return at


def _cells(text: str, at: int, delimiter: str) -> tuple[list[str], int]:
    """Returns the cells of the line at ``at``, with quotes, and the line's end."""
    between = re.escape(delimiter)
    pattern = re.compile(rf'("(?:[^"]|"")*+"|[^{between}\n]*+)({between}|\r?(?:\n|\Z))')
    cells = []
    while found := pattern.match(text, at):
        cells.append(found[1])
        at = found.end()
        if found[2] != delimiter:
            break
    return cells, at


def _is_value(cell: str) -> bool:
    """Whether the engine parses a cell as a number or a boolean."""
    if cell.strip(" \t").lower() in ("true", "false"):
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell
