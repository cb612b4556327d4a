"""Frames of pandas and tables of Arrow as sources."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import millstream as ms
import numpy as np
import pandas as pd
import pytest

pa = pytest.importorskip("pyarrow")

COUNT, BATCH = 23, 5


def frame() -> pd.DataFrame:
    numbers = np.arange(COUNT)
    return pd.DataFrame(
        {
            "count": numbers,
            "byte": numbers.astype(np.uint8),
            "half": (numbers / 4).astype(np.float16),
            "wide": numbers / 8,
            "flag": numbers % 3 == 0,
            "nullable": pd.array(numbers - 9, dtype="Int16"),
            "maybe": pd.array(numbers % 2 == 0, dtype="boolean"),
            "arrow": pd.array(numbers * 2, dtype="int32[pyarrow]"),
            "sparse": pd.arrays.SparseArray(numbers // 20),
        }
    )


def check(source: Any, data: dict[str, np.ndarray]) -> None:
    """Compares a source with arrays, in a loop, inside jit and after each resume."""
    arrays = ms.ArraySampleSource(data)
    ours, plain = (
        ms.DataLoader([s, ms.BatchTransform(BATCH)]) for s in (source, arrays)
    )
    state = start = ours.init_state(4)
    expected = [tuple(item) for item in plain.iterate(plain.init_state(4))]
    step = jax.jit(ours.next_batch)
    for k, (batch, mask) in enumerate(expected):
        rest = [tuple(item) for item in ours.iterate(ours.restore(ours.save(state)))]
        same(rest, expected[k:])
        found, state, found_mask = step(state)
        same((found, found_mask), (batch, mask))
    _, _, scanned = ours.scan_epoch(start, 0, lambda c, batch, mask: (c, (batch, mask)))
    same(scanned, jax.tree.map(lambda *rows: np.stack(rows), *expected))


def same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_every_row_is_the_frame_s() -> None:
    table = frame()
    source = ms.as_source(table)
    assert source.origin == "pandas DataFrame, 9 numeric columns"
    for i in range(COUNT):
        assert {name: value.item() for name, value in source[i].items()} == dict(
            table.iloc[i]
        )
    dtypes = {name: value.dtype.name for name, value in source[0].items()}
    assert dtypes["half"] == "float16"
    assert dtypes["nullable"] == "int16"
    assert dtypes["maybe"] == "bool"
    assert dtypes["arrow"] == "int32"


def test_deliveries() -> None:
    table = frame()
    kinds = {"byte": np.uint8, "half": np.float16, "nullable": np.int16}
    check(
        ms.as_source(table),
        {name: np.array(list(table[name]), kinds.get(str(name))) for name in table},
    )


def test_columns_are_not_copied() -> None:
    table = pd.DataFrame({"a": np.arange(9.0), "b": np.arange(9.0) * 2})
    source = ms.as_source(table)
    assert np.shares_memory(source.data["b"], table["b"].to_numpy())  # type: ignore[attr-defined]
    strided = pd.DataFrame(np.arange(12.0).reshape(4, 3), columns=list("abc"))
    assert ms.as_source(strided)[2]["b"] == 7


def test_an_index_and_missing_floats_stay() -> None:
    table = pd.DataFrame({"a": [1.0, np.nan, 3.0]}, index=[9, 8, 7])
    source = ms.as_source(table, ordering="sequential")
    assert [source[i]["a"].item() for i in (0, 2)] == [1, 3]
    assert np.isnan(source[1]["a"])


def test_names() -> None:
    numbers = np.zeros((3, 2))
    assert ms.as_source(pd.DataFrame(numbers))[0].keys() == {"0", "1"}
    for names in (["a", "a"], [1, "1"]):
        with pytest.raises(ValueError, match="has 2 columns named"):
            ms.as_source(pd.DataFrame(numbers, columns=names))
    pairs = pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
    with pytest.raises(ValueError, match=r"MultiIndex.*set_axis\("):
        ms.as_source(pd.DataFrame(numbers, columns=pairs))


OTHERS = {
    "text": ["x", "y", "z"],
    "objects": [1, "x", None],
    "rows": [np.zeros(2)] * 3,
    "categories": pd.Categorical([1, 2, 1]),
    "dates": pd.to_datetime(["2020-01-01"] * 3),
    "times": pd.to_timedelta([1, 2, 3]),
    "periods": pd.period_range("2020", periods=3),
    "intervals": pd.interval_range(0, 3),
    "strings": pd.array(["a", "b", "c"], dtype="string"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_columns_are_refused(kind: str) -> None:
    table = pd.DataFrame({"a": [1, 2, 3], "other": OTHERS[kind]})
    with pytest.raises(TypeError, match="not numbers: 'other'") as error:
        ms.as_source(table)
    assert "as_source(frame[['a']])" in str(error.value)
    assert ms.as_source(table[["a"]])[2] == {"a": 3}


@pytest.mark.parametrize("dtype", ["Int64", "Float32", "boolean", "int8[pyarrow]"])
def test_missing_values(dtype: str) -> None:
    values = pd.array([1, 0, None, 1], dtype=dtype)
    with pytest.raises(ms.DataError, match="item 2 of column 'x' is null") as error:
        ms.as_source(pd.DataFrame({"x": values}))
    assert (error.value.sample, error.value.field) == (2, "x")
    assert "frame.dropna(subset=['x'])" in str(error.value)
    table = pd.DataFrame({"x": values}).dropna(subset=["x"])
    assert [ms.as_source(table)[i]["x"].item() for i in range(3)] == [1, 0, 1]


def test_other_objects() -> None:
    table = frame()
    with pytest.raises(TypeError, match=r"groups instead of rows"):
        ms.as_source(table.groupby("flag"))
    with pytest.raises(TypeError, match=r"series.to_frame\(\)"):
        ms.as_source(table["count"])
    with pytest.raises(ValueError, match="has no rows"):
        ms.as_source(table[:0])
    with pytest.raises(ValueError, match="has no columns"):
        ms.as_source(table[[]])


def arrow_table() -> Any:
    """A table whose columns have chunks of different sizes."""
    numbers = np.arange(COUNT)
    rows = pa.array(np.repeat(numbers, 3).astype(np.float32))
    return pa.table(
        {
            "count": pa.chunked_array([pa.array(numbers[:4]), pa.array(numbers[4:])]),
            "flag": pa.chunked_array([numbers[:9] % 2 == 0, numbers[9:] % 2 == 0]),
            "x": pa.FixedSizeListArray.from_arrays(rows, 3),
        }
    )


def test_arrow_tables() -> None:
    table = arrow_table()
    source = ms.as_source(table)
    assert source.origin == "Arrow Table, 3 numeric columns"
    numbers = np.arange(COUNT)
    x = np.repeat(numbers, 3).reshape(-1, 3).astype(np.float32)
    data = {"count": numbers, "flag": numbers % 2 == 0, "x": x}
    check(source, data)
    check(pickle.loads(pickle.dumps(source)), data)
    part = table.slice(3, 15)
    check(ms.as_source(part), {name: rows[3:18] for name, rows in data.items()})
    with pytest.raises(ms.DataError, match="item 1 of column 'a' is null"):
        ms.as_source(pa.table({"a": [1, None]}))
    with pytest.raises(TypeError, match=r"'a' \(string\).*table.select"):
        ms.as_source(pa.table({"a": ["x"], "b": [1]}))
