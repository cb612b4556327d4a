"""Polars frames, compared with their own rows."""

from __future__ import annotations

import copy
import datetime
import pickle

import millstream as ms
import numpy as np
import polars as pl
import pytest
from deliveries import check_source

COUNT = 29
DTYPES = {
    "count": np.int32,
    "byte": np.uint8,
    "half": np.float32,
    "flag": np.bool_,
    "vector": np.float32,
    "matrix": np.int16,
}


def frame(first: int = 0, count: int = COUNT) -> pl.DataFrame:
    rows = range(first, first + count)
    return pl.DataFrame(
        {
            "count": [100 - i for i in rows],
            "byte": pl.Series(list(rows), dtype=pl.UInt8),
            "half": pl.Series([i / 2 for i in rows], dtype=pl.Float32),
            "flag": [i % 3 == 0 for i in rows],
            "vector": pl.Series(
                [[i, i / 4, 1] for i in rows], dtype=pl.Array(pl.Float32, 3)
            ),
            "matrix": pl.Series(
                [[[i, 1], [2, -i]] for i in rows], dtype=pl.Array(pl.Int16, (2, 2))
            ),
        }
    )


def check(table: pl.DataFrame) -> None:
    source = ms.as_source(table)
    assert source.origin == "Polars DataFrame, 6 numeric columns"
    check_source(source, list(table.iter_rows(named=True)), DTYPES)
    for other in (pickle.loads(pickle.dumps(source)), copy.deepcopy(source)):
        assert other[3]["count"] == source[3]["count"]


def test_one_chunk() -> None:
    check(frame())


def test_many_chunks() -> None:
    parts = [frame(first, 3) for first in range(0, 27, 3)]
    table = pl.concat(parts, rechunk=False)
    assert table.n_chunks() == 9
    check(table)
    check(table.slice(2, 20))
    check(table.filter(pl.col("flag")))


def test_numbers_are_not_copied() -> None:
    table = frame()
    columns, selected = ms.as_source(table)._columns()
    assert selected is None
    (chunk,) = columns[0].chunks
    assert np.shares_memory(chunk.owner, table["count"].to_numpy())


@pytest.mark.parametrize(
    "values",
    [
        pl.Series(["a", "b"]),
        pl.Series(["a", "b"], dtype=pl.Categorical),
        pl.Series([datetime.date(2020, 1, 1)] * 2),
        pl.Series([[1], [2, 3]]),
        pl.Series([{"a": 1}] * 2),
        pl.Series([1, 2], dtype=pl.Int128),
        pl.Series([object(), object()], dtype=pl.Object),
    ],
    ids=lambda values: str(values.dtype),
)
def test_other_columns_are_refused(values: pl.Series) -> None:
    table = pl.DataFrame({"x": [1, 2], "other": values})
    with pytest.raises(TypeError, match="not numbers: 'other'") as error:
        ms.as_source(table)
    assert "as_source(frame.select(['x']))" in str(error.value)
    assert ms.as_source(table.select("x"))[1] == {"x": 2}


def test_nulls() -> None:
    pairs = pl.Series([[1, 2], [3, None], [5, 6]], dtype=pl.Array(pl.Int8, 2))
    for values in ([1, None, 3], [True, None, False], pairs):
        table = pl.DataFrame({"y": [1, 2, 3], "x": values})
        with pytest.raises(ms.DataError, match="item 1 of column 'x'") as error:
            ms.as_source(table)
        assert (error.value.sample, error.value.field) == (1, "x")
        assert "frame.drop_nulls('x')" in str(error.value)


def test_other_objects() -> None:
    table = frame()
    with pytest.raises(TypeError, match=r"as_source\(frame.collect\(\)\)"):
        ms.as_source(table.lazy())
    with pytest.raises(TypeError, match="groups instead of rows"):
        ms.as_source(table.group_by("flag"))
    with pytest.raises(TypeError, match=r"series.to_frame\(\)"):
        ms.as_source(table["count"])
    with pytest.raises(ValueError, match="no rows"):
        ms.as_source(table.clear())
