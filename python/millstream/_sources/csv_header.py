"""Tells whether the first line of a table names its columns."""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

_START = 1 << 20  # bytes that are looked at, and the rest of the line where they end
_LONGEST = 1 << 26


def start_of(path: Path) -> str:
    """Return the first lines of a table, from the first that is not empty."""
    with path.open("rb") as file:
        start = file.read(_START) + file.readline(_LONGEST)
    return start.decode("utf-8", "replace").removeprefix("\ufeff").lstrip("\r\n")


def is_header(text: str, delimiter: str) -> bool:
    """Whether the first line of a table names its columns.

    It does if none of its cells is a number. A number in quotes is a name, unless the
    line below has quotes there too.
    """
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
