"""SQLiteDataset reads the rows of a table, also while others write to the file."""

from __future__ import annotations

import pickle
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Python
from millstream import BatchTransform, DataError, DatasetSource, WorkerError
from millstream import DataLoader as Loader
from millstream.loadax import Batcher, DataLoader, ShuffledDataset, SQLiteDataset

ROWS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of 40 rows whose row ids 3, 6, 9, ... have gaps, and other tables."""
    file = tmp_path / "100% of the #data?.db"
    with sqlite3.connect(file) as writer:
        writer.execute('CREATE TABLE "my ""rows" (x REAL, label INTEGER, name TEXT)')
        writer.executemany(
            'INSERT INTO "my ""rows" (rowid, x, label, name) VALUES (?, ?, ?, ?)',
            [(3 * k + 3, k / 2, k, f"row {k}") for k in range(ROWS)],
        )
        writer.execute("CREATE TABLE keyed (k TEXT PRIMARY KEY, v) WITHOUT ROWID")
        writer.execute("CREATE TABLE hides (rowid, _rowid_, v)")
        writer.execute("INSERT INTO hides VALUES (9, 9, 'a'), (9, 9, 'b')")
        writer.execute("CREATE TABLE all_hidden (rowid, oid, _rowid_)")
        writer.execute("CREATE TABLE empty (v)")
        writer.execute("CREATE VIEW seen AS SELECT * FROM keyed")
        writer.execute("CREATE INDEX an_index ON empty (v)")
    writer.close()
    return file


TABLE = 'my "rows'


def row(k: int) -> dict[str, Any]:
    return {"x": k / 2, "label": k, "name": f"row {k}"}


def test_rows_with_gaps_between_row_ids(path: Path) -> None:
    dataset = SQLiteDataset(path, TABLE)
    assert len(dataset) == ROWS
    assert [dataset[k] for k in range(ROWS)] == [row(k) for k in range(ROWS)]
    assert dataset[-1] == row(ROWS - 1)
    assert dataset.get(ROWS) is None
    with pytest.raises(IndexError, match="out of range"):
        dataset[ROWS]
    some = SQLiteDataset(str(path), TABLE, ["name", "x"])
    assert list(some[1].items()) == [("name", "row 1"), ("x", 0.5)]
    assert list(SQLiteDataset(path, "hides")) == [
        {"rowid": 9, "_rowid_": 9, "v": "a"},
        {"rowid": 9, "_rowid_": 9, "v": "b"},
    ]
    assert list(SQLiteDataset(path, "EMPTY")) == []
    assert repr(some) == f"SQLiteDataset(items=SQLiteRows({str(path)!r}, {TABLE!r}))"
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy[7] == row(7)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_workers_have_connections_of_their_own(path: Path, kind: str) -> None:
    dataset = ShuffledDataset(SQLiteDataset(path, TABLE, ["x", "label"]), 5)
    builder = DataLoader(Batcher.stack(), worker_kind=kind).batch_size(16)
    loader = builder.workers(3).build(dataset)
    expected = [int(k) for k in ShuffledDataset(range(ROWS), 5)]
    for _ in range(2):
        batches = list(loader)
        labels = np.concatenate([batch["label"] for batch in batches])
        assert labels.tolist() == expected
        x = np.concatenate([batch["x"] for batch in batches])
        assert x.tolist() == [k / 2 for k in expected]
    loader.close()


def test_connections_are_used_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    connect = sqlite3.connect

    def counted(*args: Any, **more: Any) -> Any:
        opened.append(args)
        return connect(*args, **more)

    monkeypatch.setattr(sqlite3, "connect", counted)
    dataset = SQLiteDataset(path, TABLE, ["x", "label"])
    loader = DataLoader(Batcher.stack()).batch_size(2).workers(3).build(dataset)
    for _ in range(3):
        assert sum(len(batch["x"]) for batch in loader) == ROWS
    assert 1 <= len(opened) <= 4  # this thread and three workers


def test_a_request_is_one_query(path: Path) -> None:
    dataset = SQLiteDataset(path, TABLE)
    queries: list[str] = []
    dataset.items._idle[0].set_trace_callback(queries.append)
    assert dataset._items([5, 3, 5]) == [row(5), row(3), row(5)]
    assert len(queries) == 1
    many = [k % ROWS for k in range(1234)]
    assert dataset._items(many) == [row(k) for k in many]
    assert len(queries) == 4  # up to 500 rows each


def test_as_a_source_of_millstream(path: Path) -> None:
    source = DatasetSource(SQLiteDataset(path, TABLE), ordering="sequential")
    loader = Loader([source, BatchTransform(8)])
    batch, _ = next(iter(loader.run(seed=0, epochs=1)))
    assert batch["label"].tolist() == list(range(8))
    assert batch["name"][:2] == ["row 0", "row 1"]


def test_the_file_is_not_changed(path: Path) -> None:
    before = path.read_bytes()
    dataset = SQLiteDataset(path, TABLE)
    with pytest.raises(DataError, match="readonly database"):
        dataset.items._query("DELETE FROM empty")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("seen", "'seen' is a view, which has no row ids"),
        ("keyed", "'keyed' is a table WITHOUT ROWID"),
        ("all_hidden", "'all_hidden' is a table WITHOUT ROWID, or its columns hide"),
        ("an_index", "there is no table 'an_index'; the tables are 'my \"rows'"),
        ("rows; DROP TABLE x", "there is no table 'rows; DROP TABLE x'"),
    ],
)
def test_tables_without_row_ids(path: Path, table: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as raised:
        SQLiteDataset(path, table)
    assert str(path) in str(raised.value)


def test_unknown_columns_and_files(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no column 'y'; the columns are 'x', 'label'"):
        SQLiteDataset(path, TABLE, ["x", "y"])
    with pytest.raises(FileNotFoundError, match=r"there is no SQLite file '.*no\.db'"):
        SQLiteDataset(tmp_path / "no.db", TABLE)
    assert not (tmp_path / "no.db").exists()
    other = tmp_path / "other.db"
    other.write_bytes(b"PK\3\4" + bytes(5000))
    with pytest.raises(DataError, match="it is not a SQLite file") as raised:
        SQLiteDataset(other, TABLE)
    assert raised.value.path == str(other)
    other.write_bytes(path.read_bytes()[:8192])
    with pytest.raises(DataError, match=r"other\.db: SQLite cannot read it"):
        list(SQLiteDataset(other, TABLE))


def test_a_deleted_row_is_an_error_that_names_it(path: Path) -> None:
    dataset = SQLiteDataset(path, TABLE)
    loader = DataLoader(Batcher(list)).batch_size(4).workers(2).build(dataset)
    with sqlite3.connect(path) as writer:
        writer.execute('DELETE FROM "my ""rows" WHERE rowid = 18')
        writer.execute('UPDATE "my ""rows" SET name = ? WHERE rowid = 3', ("new",))
        writer.execute('INSERT INTO "my ""rows" (name) VALUES (?)', ("later",))
    writer.close()
    walk = iter(loader)
    assert next(walk)[0]["name"] == "new"
    with pytest.raises(DataError, match=r"the row with rowid 18 .* was deleted") as why:
        next(walk)
    assert why.value.sample == 5
    assert len(dataset) == ROWS
    assert len(SQLiteDataset(path, TABLE)) == ROWS
    with sqlite3.connect(path) as writer:
        writer.execute('DROP TABLE "my ""rows"')
    writer.close()
    with pytest.raises(DataError, match="no such table"):
        dataset[0]


def test_a_locked_file(path: Path) -> None:
    dataset = SQLiteDataset(path, TABLE, timeout=0.05)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DataError, match=r"has locked it for more than 0\.05 s"):
        SQLiteDataset(path, TABLE, timeout=0.05)
    with pytest.raises(DataError, match="End its transaction, or read a copy"):
        dataset[0]
    writer.execute("COMMIT")
    assert dataset[0] == row(0)
    patient = SQLiteDataset(path, TABLE, timeout=60)
    writer.execute("BEGIN EXCLUSIVE")
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(patient[1]))
    reader.start()
    writer.execute("ROLLBACK")
    reader.join()
    writer.close()
    assert found == [row(1)]


KILLED = """
import os, sys
from millstream.loadax import Batcher, DataLoader, SQLiteDataset

if __name__ == "__main__":
    dataset = SQLiteDataset(sys.argv[1], 'my "rows', ["label"])
    builder = DataLoader(Batcher.stack(), worker_kind="process").batch_size(4)
    loader = builder.workers(1).build(dataset)
    walk = iter(loader)
    next(walk)
    for pid in loader._workers._executor.pids:
        os.kill(pid, 9)
    try:
        list(walk)
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_worker_that_dies(path: Path, python: Python) -> None:
    code = f"import sys; sys.argv[1:] = [{str(path)!r}]\n{KILLED}"
    assert python.run(code) == f"{WorkerError.__name__}\n"
