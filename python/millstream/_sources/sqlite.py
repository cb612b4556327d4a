"""The rows of a table in a SQLite file, by index."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from millstream._core.errors import DataError

# The names of the row id. A column of a table may hide some of them.
_ROWID = ("rowid", "_rowid_", "oid")

# SQLite allows at least 999 parameters in a query.
_MAX_PARAMETERS = 500


class SQLiteRows:
    """The rows of a table, as dicts of Python values, in the order of their row ids.

    The list of row ids is read once. Later rows are not seen, and a row that was
    deleted raises an error. Connections are read-only. Each process has its own, and as
    many as threads read at once.

    Args:
      path: The file.
      table: The name of a table. Views and tables WITHOUT ROWID have no row ids and
        raise ``ValueError``.
      columns: The names of the columns to read. None reads all.
      timeout: How many seconds to wait for a lock of another process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        columns: Sequence[str] | None = None,
        timeout: float = 5.0,
    ) -> None:
        self.path, self.table, self._timeout = os.fspath(path), table, timeout
        self._idle: list[sqlite3.Connection] = []
        if not os.path.isfile(self.path):
            raise FileNotFoundError(f"there is no SQLite file {self.path!r}")
        kinds = self._query(
            "SELECT type FROM sqlite_master WHERE lower(name) = lower(?)", (table,)
        )
        if not kinds or kinds[0][0] not in ("table", "view"):
            found = self._query("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = ", ".join(repr(name) for (name,) in found) or "none"
            raise ValueError(
                f"{self.path}: there is no table {table!r}; the tables are {names}"
            )
        if kinds[0][0] == "view":
            raise ValueError(
                f"{self.path}: {table!r} is a view, which has no row ids. Store its "
                "rows with CREATE TABLE ... AS SELECT, or name a table."
            )
        every = [row[1] for row in self._query(f"PRAGMA table_info({_quoted(table)})")]
        self.columns = tuple(every if columns is None else columns)
        if unknown := [name for name in self.columns if name not in every]:
            raise ValueError(
                f"{self.path}: the table {table!r} has no column {unknown[0]!r}; the "
                f"columns are {', '.join(map(repr, every))}"
            )
        hidden = {name.lower() for name in every}
        self._rowid = next((name for name in _ROWID if name not in hidden), "")
        if not self._rowid or not self._has_rowids():
            raise ValueError(
                f"{self.path}: the table {table!r} is a table WITHOUT ROWID, or its "
                f"columns hide the row id. Copy it with CREATE TABLE ... AS SELECT."
            )
        query = f"SELECT {self._rowid} FROM {_quoted(table)} ORDER BY 1"
        self._rowids = np.array(self._query(query), np.int64).reshape(-1)

    def __len__(self) -> int:
        return len(self._rowids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Returns several rows with as few queries as possible."""
        rowids = self._rowids[list(indices)].tolist()
        names = ", ".join(map(_quoted, self.columns))
        select = f"SELECT {self._rowid}, {names} FROM {_quoted(self.table)}"
        found: dict[int, tuple[Any, ...]] = {}
        for first in range(0, len(rowids), _MAX_PARAMETERS):
            wanted = rowids[first : first + _MAX_PARAMETERS]
            marks = ", ".join("?" * len(wanted))
            query = f"{select} WHERE {self._rowid} IN ({marks})"
            found.update((row[0], row[1:]) for row in self._query(query, wanted))
        for index, rowid in zip(indices, rowids, strict=True):
            if rowid not in found:
                raise DataError(
                    f"{self.path}: the row with rowid {rowid} of the table "
                    f"{self.table!r} (item {index}) was deleted after the file was "
                    "opened. Open the file again.",
                    kind="data",
                    path=self.path,
                    sample=int(index),
                )
        return [dict(zip(self.columns, found[rowid], strict=True)) for rowid in rowids]

    def __repr__(self) -> str:
        return f"SQLiteRows({self.path!r}, {self.table!r})"

    def _has_rowids(self) -> bool:
        try:
            self._query(f"SELECT {self._rowid} FROM {_quoted(self.table)} LIMIT 1")
        except DataError:
            return False
        return True

    def _query(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            connection = self._connection()
            try:
                return list(connection.execute(text, values))
            finally:
                self._idle.append(connection)
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            what = f"SQLite cannot read it: {error}"
            if name == "SQLITE_NOTADB":
                what = "it is not a SQLite file"
            elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                what = (
                    f"another process has locked it for more than {self._timeout:g} s. "
                    "End its transaction, or read a copy of the file"
                )
            raise DataError(
                f"{self.path}: {what}", kind="data", path=self.path, text=str(error)
            ) from error

    def _connection(self) -> sqlite3.Connection:
        """Returns a connection that no other thread uses."""
        try:
            return self._idle.pop()
        except IndexError:
            uri = f"{Path(self.path).absolute().as_uri()}?mode=ro"
            return sqlite3.connect(
                uri, self._timeout, uri=True, check_same_thread=False
            )

    def __del__(self) -> None:
        for connection in self.__dict__.get("_idle", ()):
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_idle": []}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
