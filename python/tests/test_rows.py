"""RowWriter: how values of a sample are written to rows of a batch."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from millstream._engine import RowWriter
from millstream._workers.rows import FieldSpec, put_sample, writer

ROWS = 5


class Pair(NamedTuple):
    x: Any
    y: Any


def written(values: list[Any], dtype: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
    column = FieldSpec("x", np.dtype(dtype).name, shape)
    rows = np.full((len(values), *shape), 99, dtype)
    put = writer([rows], (column,), 0).put
    for k, value in enumerate(values):
        put(k, value)
    return rows


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_whole_numbers_of_any_kind(dtype: str) -> None:
    limits = np.iinfo(dtype)
    values = [limits.min, limits.max, np.int8(5), np.uint64(7), np.array(3, dtype), 0]
    expected = [limits.min, limits.max, 5, 7, 3, 0]
    assert written(values, dtype).tolist() == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int64"])
def test_whole_numbers_that_do_not_fit_are_errors(dtype: str) -> None:
    limits = np.iinfo(dtype)
    for value in (limits.max + 1, limits.min - 1):
        with pytest.raises((ValueError, OverflowError)):
            written([value], dtype)


def test_the_largest_64_bit_integers() -> None:
    top = (1 << 64) - 1
    assert written([top, np.uint64(top)], np.uint64).tolist() == [top, top]


def test_other_numbers() -> None:
    floats = written([1, 2.5, np.float16(3), True], np.float32)
    assert floats.tolist() == [1, 2.5, 3, 1]
    assert written([True, np.bool_(False)], np.bool_).tolist() == [True, False]
    with pytest.raises(ValueError, match=r"x: expected int32\[\], found float64"):
        written([1.0], np.int32)


def test_arrays_of_any_layout(tmp_path: Path) -> None:
    whole = np.arange(24, dtype=np.int32).reshape(4, 6)
    values = [whole, np.asfortranarray(whole), np.repeat(whole, 2, 0)[::2], whole[::-1]]
    rows = written(values, np.int32, (4, 6))
    for row, value in zip(rows, values, strict=True):
        assert np.array_equal(row, value)
    swapped = whole.astype(">i4")
    assert np.array_equal(written([swapped], np.int32, (4, 6))[0], whole)
    assert np.array_equal(written([whole.tolist()], np.int32, (4, 6))[0], whole)
    half = whole.astype(ml_dtypes.bfloat16)
    assert np.array_equal(written([half], ml_dtypes.bfloat16, (4, 6))[0], half)
    mapped = np.memmap(tmp_path / "rows", np.int32, "w+", shape=(4, 6))
    mapped[:] = whole
    assert np.array_equal(written([mapped, mapped[::-1]], np.int32, (4, 6))[0], whole)
    assert written([np.empty((0, 3), np.int8)], np.int8, (0, 3)).shape == (1, 0, 3)


def test_rows_far_apart() -> None:
    memory = np.zeros((ROWS, 12), np.uint8)
    rows = memory[:, 2:8].view(np.int16)  # with gaps, and not aligned to int64
    put = writer([rows], (FieldSpec("x", "int16", (3,)),), 0).put
    for k in range(ROWS):
        put(k, np.full(3, k, np.int16))
    assert (rows == np.arange(ROWS)[:, None]).all()
    assert not memory[:, :2].any()
    assert not memory[:, 8:].any()


@pytest.mark.parametrize(
    ("tree", "sample"),
    [
        ({"a": 0, "b": 1}, {"b": 7, "a": np.arange(3.0)}),
        ({"a": 0, "b": 1}, OrderedDict(b=7, a=np.arange(3.0))),
        ((0, 1), (np.arange(3.0), 7)),
        ([0, 1], (np.arange(3.0), 7)),
        ((0, 1), [np.arange(3.0), np.int64(7)]),
        (Pair(0, 1), Pair(np.arange(3.0), 7)),
        ({"a": {"c": 0}, "b": (1,)}, {"a": {"c": np.arange(3.0)}, "b": (7,)}),
        ((0, None, {"b": [1]}), (np.arange(3), None, {"b": [7]})),
    ],
)
def test_samples_of_any_structure(tree: Any, sample: Any) -> None:
    columns = (FieldSpec("a", "float64", (3,)), FieldSpec("b", "int32", ()))
    rows = [np.zeros((ROWS, 3)), np.zeros(ROWS, np.int32)]
    at = np.zeros(1, np.int64)
    indices = np.arange(10, 10 + ROWS)
    seen = []

    def sampled(index: int) -> Any:
        seen.append((index, int(at[0])))
        return sample

    writer(rows, columns, tree).put_all(sampled, indices, at)
    assert seen == [(10 + k, k) for k in range(ROWS)]
    assert (rows[0] == np.arange(3)).all()
    assert (rows[1] == 7).all()


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({"a": np.zeros(3)}, r"the sample: expected keys \['a', 'b'\], found \['a'\]"),
        ({"a": np.zeros(3), "c": 1}, r"expected keys \['a', 'b'\], found \['a', 'c'\]"),
        ({"a": np.zeros(2), "b": 1}, r"a: expected float64\[3\], found float64\[2\]"),
        ({"a": np.zeros(3), "b": 1 << 40}, r"b: .* int64 that int32 cannot hold"),
        ([np.zeros(3), 1], r"the sample: expected keys \['a', 'b'\], found list"),
        (None, r"the sample: expected keys \['a', 'b'\], found NoneType"),
    ],
)
def test_samples_with_another_structure_are_errors(sample: Any, words: str) -> None:
    columns = (FieldSpec("a", "float64", (3,)), FieldSpec("b", "int32", ()))
    rows = [np.zeros((ROWS, 3)), np.zeros(ROWS, np.int32)]
    with pytest.raises(ValueError, match=words):
        writer(rows, columns, {"a": 0, "b": 1}).put(0, sample)


def test_tuples_of_another_length_are_errors() -> None:
    put = writer([np.zeros(ROWS)], (FieldSpec("x", "float64", ()),), (0, ())).put
    put(0, (1.0, ()))
    for sample in ((1.0, (2,)), (1.0,), (np.float64(1), (), 3)):
        with pytest.raises(ValueError, match=r"expected \d values"):
            put(0, sample)


def test_an_error_stops_at_its_row() -> None:
    at = np.zeros(1, np.int64)

    def sampled(index: int) -> int:
        if index == 3:
            raise KeyError(index)
        return index

    rows = np.full(ROWS, -1)
    put = writer([rows], (FieldSpec("x", "int64", ()),), 0)
    with pytest.raises(KeyError):
        put.put_all(sampled, np.arange(ROWS), at)
    assert at[0] == 3
    assert rows.tolist() == [0, 1, 2, -1, -1]


def test_rows_out_of_range() -> None:
    put = writer([np.zeros(ROWS)], (FieldSpec("x", "float64", ()),), 0)
    at = np.zeros(1, np.int64)
    for k in (-1, ROWS):
        with pytest.raises(IndexError):
            put.put(k, 0)
    with pytest.raises(IndexError):
        put.put_all(float, np.arange(ROWS + 1), at)
    with pytest.raises(ValueError, match="int64"):
        put.put_all(float, np.arange(3.0), at)
    frozen = np.zeros(ROWS)
    frozen.flags.writeable = False
    for rows in (frozen, np.zeros(ROWS, ">i4"), np.zeros((ROWS, 4))[:, ::2], [0.0]):
        with pytest.raises(ValueError, match="row"):
            RowWriter([rows], 0, print)


def test_other_threads_run_while_a_large_row_is_copied() -> None:
    large = np.ones(64 << 20, np.uint8)
    rows = np.zeros((1, large.size), np.uint8)
    put = writer([rows], (FieldSpec("x", "uint8", large.shape),), 0).put
    turns, over = 0, False

    def count() -> None:
        nonlocal turns
        while not over:
            turns += 1
            time.sleep(1e-4)

    counting = threading.Thread(target=count)
    counting.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # others run only if this thread releases the GIL
    try:
        before, tries = turns, 0
        while turns == before and tries < 50:
            put(0, large)
            tries += 1
        ran = turns > before
    finally:
        sys.setswitchinterval(interval)
        over = True
        counting.join()
    assert ran
    assert rows.all()


DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
LIMITS = [0, 1, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1]


def results(value: Any, dtype: Any, shape: tuple[int, ...]) -> list[Any]:
    """What the writer and ``put_sample`` do: the bytes written, or the error."""
    dtype = np.dtype(dtype)
    column = FieldSpec("x", dtype.name, shape)
    found: list[Any] = []
    for in_python in (False, True):
        rows = [np.ones((2, *shape), dtype)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                if in_python:
                    put_sample(rows, 1, (value,), (column,), (0,))
                else:
                    writer(rows, (column,), (0,)).put(1, (value,))
                what = rows[0].tobytes()
            except Exception as error:
                what = (type(error), str(error))
        found.append((what, {str(warning.message) for warning in caught}))
    return found


def layouts(values: np.ndarray) -> list[np.ndarray]:
    """The same 2 x 3 values with different strides, alignments and byte orders."""
    unaligned = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype)
    unaligned = unaligned.reshape(2, 3)
    unaligned[...] = values
    swapped = values.astype(values.dtype.newbyteorder())
    return [
        values,
        np.asfortranarray(values),
        np.repeat(values, 2, axis=1)[:, ::2],
        values[::-1, ::-1].copy()[::-1, ::-1],
        np.broadcast_to(values[:1], (2, 3)),
        unaligned,
        swapped,
    ]


@pytest.mark.parametrize("to", [*DTYPES, ml_dtypes.bfloat16])
def test_arrays_of_every_dtype_become_what_put_sample_makes_of_them(to: Any) -> None:
    kinds = [np.dtype(name) for name in DTYPES] + [np.dtype(ml_dtypes.bfloat16)]
    for kind, first in itertools.product(kinds, (0, 6)):
        with np.errstate(all="ignore"):
            values = np.array(LIMITS[first : first + 6]).astype(kind).reshape(2, 3)
        for negative in (values, -values if kind.kind in "if" else values):
            for layout in layouts(negative):
                native, in_python = results(layout, to, (2, 3))
                assert native == in_python, (kind, layout.strides)


@pytest.mark.parametrize("to", [*DTYPES, ml_dtypes.bfloat16])
def test_scalars_of_every_kind_become_what_put_sample_makes_of_them(to: Any) -> None:
    numbers = [0, 1, -1, 127, -129, 255, 256, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
    values: list[Any] = [True, False, np.True_, np.False_, *numbers, 2**63, 2**64, 1j]
    values += [0.0, -0.0, 1.5, 0.1, 1e300, -1e300, float("inf"), float("nan"), 1e-40]
    with np.errstate(all="ignore"):
        for name, number in itertools.product(DTYPES, [*numbers, 1.5, 1e300]):
            values.append(np.array(number).astype(name)[()])
            values.append(np.array(number).astype(name))
    values += [ml_dtypes.bfloat16(1.5), np.datetime64("2020"), np.timedelta64(3, "s")]
    values += [None, "7", b"7", object(), [1], {"a": 1}, np.longlong(5), np.ones(1)]
    for value in values:
        native, in_python = results(value, to, ())
        assert native == in_python, (type(value), value)


def test_an_error_in_a_conversion_is_raised() -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        written([Broken()], np.int32)

    class Interrupted:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written([Interrupted()], np.int32)


def test_objects_with_an_array_interface() -> None:
    class Image:
        @property
        def __array_interface__(self) -> dict[str, Any]:
            data = bytes(range(6))
            return {"shape": (2, 3), "typestr": "|u1", "data": data, "version": 3}

    expected = np.arange(6).reshape(2, 3)
    assert np.array_equal(written([Image()], np.uint8, (2, 3))[0], expected)
    assert np.array_equal(written([Image()], np.float32, (2, 3))[0], expected)
    assert written([memoryview(b"abc")], np.uint8, (3,)).tolist() == [[97, 98, 99]]


@pytest.mark.parametrize(
    "value",
    [
        *(7, True, np.True_, np.int8(7), np.uint64(7), np.array(7), np.array(7, ">i8")),
        *(7.5, np.float64(7.5), np.float32(7.5), np.float16(7.5), np.array(7.5)),
    ],
)
def test_numbers_need_no_python(value: Any) -> None:
    dtypes = [np.float32, np.float64]
    if np.asarray(value).dtype.kind != "f":
        dtypes += [np.int32, np.uint8]
    for dtype in dtypes:
        rows = np.zeros(2, dtype)
        RowWriter([rows], (0, None), pytest.fail).put(1, (value, None))
        assert rows.tolist() == [0, value]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, r"found None\. .* replace None by a number, for example -1"),
        (1.5, r"found float64\[\]\. .* these to int32, or .* all samples to float32"),
        (1 << 70, r"int32 cannot hold 1180591620717411303424\. Use smaller values"),
        ({"a": 1}, r"found object\[\] \(dict\)\. .*host_fields"),
    ],
)
def test_errors_say_what_to_do(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^x: .*{words}"):
        written([value], np.int32)
