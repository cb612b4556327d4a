"""Missing values, booleans, comments and arrays of columns in CSV files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from millstream import BatchTransform, CsvSource, DataError, DataLoader
from walks import check, same_bytes

NAN = float("nan")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def samples(source: Any) -> Any:
    """Returns all samples as one array per field."""
    rows = [source[i] for i in range(len(source))]
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def test_missing_values_are_filled(path: Path) -> None:
    path.write_text("a,b,c\n1,0.5,7\nNA,,8\n3, n/a ,9\nnull,2,\n")
    found = samples(CsvSource(path, missing=-1))
    same_bytes(
        found,
        {
            "a": np.array([1, -1, 3, -1]),
            "b": np.array([0.5, -1, -1, 2]),
            "c": np.array([7, 8, 9, -1]),
        },
    )
    found = samples(CsvSource(path, missing=NAN, columns=["a", "b"]))
    same_bytes(
        found, {"a": np.array([1, NAN, 3, NAN]), "b": np.array([0.5, NAN, NAN, 2])}
    )
    only = samples(CsvSource(path, missing=0, columns={"x": ["a", "c"]}))
    same_bytes(only, {"x": np.array([[1, 7], [0, 8], [3, 9], [0, 0]])})


def test_a_missing_value_is_an_error_that_names_the_option(path: Path) -> None:
    for cell in ("", "NA", "null"):
        path.write_text(f"a,b\n1,2\n3,{cell}\n")
        with pytest.raises(DataError, match=r"line 3, column 2 \('b'\).*missing="):
            CsvSource(path)
    path.write_text("a\ntrue\nNA\n")
    with pytest.raises(DataError, match="missing="):
        CsvSource(path)
    with pytest.raises(DataError, match=r"missing= must be 0, 1 or \"mask\""):
        CsvSource(path, missing=-1)
    path.write_text("a\n1\nunknown\n")
    with pytest.raises(DataError, match=r"found 'unknown'; read only other columns"):
        CsvSource(path, missing=0)
    for wrong, error in (("0", ValueError), ([0], TypeError), (1j, TypeError)):
        with pytest.raises(error, match="missing"):
            CsvSource(path, missing=wrong)  # type: ignore[arg-type]


def test_nan_is_a_missing_value(path: Path) -> None:
    path.write_text("a,b,c\n1,0.5,true\nnan,NaN,NAN\n")
    found = samples(CsvSource(path, missing=0))
    data = {"a": [1, 0], "b": [0.5, 0], "c": [True, False]}
    same_bytes(found, {key: np.array(x) for key, x in data.items()})
    marked = samples(CsvSource(path, missing="mask"))
    for key in ("a", "b", "c"):
        same_bytes(marked[f"{key}_present"], np.array([True, False]))
    numbers = samples(CsvSource(path, columns=["a", "b"]))
    assert np.isnan(numbers["a"][1])
    assert np.isnan(numbers["b"][1])


def test_a_boolean_does_not_contradict_its_error(path: Path) -> None:
    path.write_text("a\ntrue\n")
    with pytest.raises(DataError, match=r"expected a number.*'true'.*missing= must be"):
        CsvSource(path, missing=-1)


def test_missing_values_are_marked(path: Path) -> None:
    path.write_text("a,b,c\n1,true,5\n,NA,6\n3,false,7\n")
    source = CsvSource(path, missing="mask")
    data = {
        "a": np.array([1, 0, 3], np.int32),
        "a_present": np.array([True, False, True]),
        "b": np.array([True, False, False]),
        "b_present": np.array([True, False, True]),
        "c": np.array([5, 6, 7], np.int32),
        "c_present": np.ones(3, bool),
    }
    loader = DataLoader(
        [CsvSource(path, "sequential", missing="mask"), BatchTransform(3)]
    )
    batch, _, _ = loader.next_batch(loader.init_state(0))
    same_bytes(batch, data)
    again = pickle.loads(pickle.dumps(source))
    same_bytes(samples(again), samples(source))
    array = samples(CsvSource(path, missing="mask", columns={"x": [0, 2]}))
    same_bytes(array["x_present"], np.array([[True, True], [False, True], [True] * 2]))
    path.write_text("a,a_present\n1,2\n")
    with pytest.raises(ValueError, match=r"mask of 'a'.*'a_present'.*columns={"):
        CsvSource(path, missing="mask")
    renamed = CsvSource(path, missing="mask", columns={"a": "a", "b": "a_present"})
    assert set(renamed[0]) == {"a", "a_present", "b", "b_present"}


def test_booleans(path: Path) -> None:
    path.write_text("flag,x\nTrue,1\nFALSE,2\n true ,3\n")
    source = CsvSource(path)
    same_bytes(samples(source)["flag"], np.array([True, False, True]))
    check(CsvSource(path, columns=["flag"]), {"flag": np.array([True, False, True])})
    path.write_text("flag\nTrue\n1\n")
    with pytest.raises(DataError, match=r"line 3.*expected true or false, found '1'"):
        CsvSource(path)
    path.write_text("flag\n1\nTrue\n")
    with pytest.raises(DataError, match=r"line 3.*expected a number, found 'True'"):
        CsvSource(path)
    path.write_text("true,false\nfalse,false\n")
    source = CsvSource(path)  # the first line is data
    assert len(source) == 2
    same_bytes(
        samples(CsvSource(path, columns={"x": slice(None)})),
        {"x": np.array([[True, False], [False, False]])},
    )


def test_comments(path: Path) -> None:
    path.write_text('# made by hand\n#1,2\nn,x\n#\n1,"\n#a"\n\n2,#b\n# the "end')
    source = CsvSource(path, columns=["n"], comment="#")
    same_bytes(samples(source), {"n": np.array([1, 2])})
    path.write_text("# a,b\n1,2\n# more\n3,4\n")
    assert list(CsvSource(path, comment="#")[1]) == ["column0", "column1"]
    with pytest.raises(DataError, match=r'pass comment="#"'):
        CsvSource(path)
    path.write_text("# two sensors\na,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no column 'a'.*pass comment=\"#\""):
        CsvSource(path, columns=["a"])
    path.write_text('; x\n"1",2\n; x\n\n3,4\n')
    assert len(CsvSource(path, comment=";", header=False)) == 2
    for wrong in ("", "//", ",", '"', "\n"):
        with pytest.raises(ValueError, match="comment"):
            CsvSource(path, comment=wrong)


@pytest.mark.parametrize("header", [True, False])
def test_columns_as_one_array(path: Path, header: bool) -> None:
    matrix = np.random.default_rng(0).normal(size=(40, 30))
    labels = np.arange(40)
    names = ",".join(["label", *(f"f{i}" for i in range(30))]) + "\n"
    rows = zip(labels, matrix, strict=True)
    lines = (f"{label}," + ",".join(map(repr, row.tolist())) for label, row in rows)
    path.write_text(names * header + "\n".join(lines))
    source = CsvSource(path, columns={"x": slice(1, 31), "label": 0})
    same_bytes(samples(source), {"x": matrix, "label": labels})
    for columns, expected in (
        ({"x": slice(-2, None)}, matrix[:, 28:]),
        ({"x": slice(1, None, 7)}, matrix[:, ::7]),
        ({"x": [3, 1, -1]}, matrix[:, [2, 0, 29]]),
        ({"x": range(3, 0, -1)}, matrix[:, [2, 1, 0]]),
        ({"x": [0]}, labels[:, None]),
        ({"x": np.int64(2)}, matrix[:, 1]),
        ({"x": slice(0, 1)}, labels[:, None]),
    ):
        same_bytes(samples(CsvSource(path, columns=columns)), {"x": expected})
    if header:
        mixed = CsvSource(path, columns={"x": ["f3", 0, "f0"], "y": "f3"})
        expected = np.stack([matrix[:, 3], labels, matrix[:, 0]], axis=1)
        same_bytes(samples(mixed), {"x": expected, "y": matrix[:, 3]})


def test_an_array_reaches_batches(path: Path) -> None:
    path.write_text("".join(f"{i},{i + 1},{i + 2}\n" for i in range(20)))
    source = CsvSource(path, "sequential", columns={"x": slice(0, 2), "y": 2})
    loader = DataLoader([source, BatchTransform(4)])
    batch, _, _ = loader.next_batch(loader.init_state(0))
    ids = np.arange(4, dtype=np.int32)
    same_bytes(batch, {"x": np.stack([ids, ids + 1], axis=1), "y": ids + 2})
    assert repr(source).count("slice(0, 2, None)") == 1


def test_an_array_has_integers_only_if_all_columns_have(path: Path) -> None:
    path.write_text("a,b,c\n1,2,0.5\n3,4,1\n")
    assert CsvSource(path, columns={"x": slice(0, 2)})[0]["x"].dtype == np.int64
    assert CsvSource(path, columns={"x": slice(0, 3)})[0]["x"].dtype == np.float64
    path.write_text(f"a,b\n1,{2**40}\n")
    with pytest.raises(DataError, match=r"t\.csv: .*x.*sample 0"):
        CsvSource(path, columns={"x": slice(0, 2)})


def test_wrong_columns(path: Path) -> None:
    path.write_text("a,b,c\n1,2,x\n")
    for columns, error, message in (
        ({}, ValueError, "columns is empty"),
        ({"x": []}, ValueError, "list of columns for 'x' is empty"),
        ({"x": 3}, ValueError, "no column 3 for 'x': the table has 3 columns"),
        ({"x": -4}, ValueError, "no column -4"),
        ({"x": "d"}, ValueError, "no column 'd'"),
        ({"x": ["a", "d"]}, ValueError, "no column 'd'"),
        ({"x": slice(1, 5)}, ValueError, "no column 4 for 'x'"),
        ({"x": slice(2, 1)}, ValueError, "selects none of 3 columns"),
        ({"x": slice(2, 0, -1)}, ValueError, "positive step.*Pass a list"),
        ({"x": slice("a", "b")}, TypeError, "slice of column indices for 'x'"),
        ({"x": 0.5}, TypeError, "columns of 'x' to be a name, an index.*found 0.5"),
        ({"x": True}, TypeError, "found True"),
        ({"x": [["a"]]}, TypeError, "found .'a'."),
        ({0: "a"}, TypeError, "keys of columns to be names, found 0"),
        ([0, 1], TypeError, "pass a dict such as"),
        ({"x": slice(0, 3)}, DataError, r"line 2, column 3 \('c'\): expected a number"),
    ):
        with pytest.raises(error, match=message):
            CsvSource(path, columns=columns)  # type: ignore[arg-type]
    assert CsvSource(path, columns={"x": slice(0, 2)})[0]["x"].tolist() == [1, 2]
