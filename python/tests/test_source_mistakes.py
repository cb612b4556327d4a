"""Errors for values that are not sources, and for files of another format."""

from __future__ import annotations

import re

import millstream as ms
import numpy as np
import pytest
from conftest import fails


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        ("tok.npy", "Write NpySource('tok.npy')."),
        (np.arange(10), "Write ArraySampleSource(data)."),
        (lambda index: index, "Write DiskSampleSource(length, fn)"),
        (range(10), "Write DatasetSource(dataset)."),
    ],
)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("WindowSource", lambda value: ms.WindowSource(value, 3)),
        ("concatenate", lambda value: ms.concatenate([value])),
        ("zip_sources", lambda value: ms.zip_sources({"x": value})),
        ("mix", lambda value: ms.mix([value])),
    ],
)
def test_a_value_that_is_no_source_shows_the_source(name, call, value, instead):
    fails(lambda: call(value), f"{name}: expected ", instead)


def test_stages_belong_after_the_combination():
    source = ms.ArraySampleSource(np.arange(10))
    for wrong in (ms.BatchTransform(2), ms.BatchTransform(2)(source)):
        text = "Add stages to the result of concatenate"
        fails(lambda wrong=wrong: ms.concatenate([source, wrong]), text)


@pytest.mark.parametrize("size", [4, 1000])
def test_a_file_without_a_header_needs_a_schema(tmp_path, size):
    path = tmp_path / "tokens.bin"
    np.arange(size // 2, dtype=np.uint16).tofile(path)
    text = "pass a schema, such as {'token': np.uint16}"
    fails(lambda: ms.PackedSource(path), text, kind=ms.DataError)
    assert ms.PackedSource(path, {"token": np.uint16})[1]["token"] == 1
    raw = "For raw bytes, use PackedSource("
    fails(lambda: ms.NpySource(path), raw, kind=ms.DataError)


def test_a_dtype_as_schema_shows_a_dict(tmp_path):
    path = tmp_path / "tokens.bin"
    np.arange(10, dtype=np.uint16).tofile(path)
    fails(lambda: ms.PackedSource(path, np.uint16), "{'x': np.uint16}")


def test_an_error_after_the_magic_does_not_mention_raw_bytes(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(10))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ms.DataError) as caught:
        ms.NpySource(path)
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("order", [ms.WithReplacement, ms.Shuffle, ms.Sequential])
def test_the_class_of_an_order_shows_a_call(order):
    text = f"found the class {order.__name__}. Call it: {order.__name__}()"
    with pytest.raises(ValueError, match=re.escape(text)):
        ms.ArraySampleSource(np.arange(10), ordering=order)
