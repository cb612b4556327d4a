"""Data sets whose samples change: errors name the sample, the field and the remedy."""

from __future__ import annotations

import re
from typing import Any

import millstream as ms
import numpy as np
import pytest

BAD = 7
X = np.zeros(3, np.float32)


class Changing:
    """Ten samples; those from ``BAD`` on differ from the first ones."""

    def __init__(self, good: Any, bad: Any) -> None:
        self.values = (good, bad)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return self.values[i >= BAD]


class Short(Changing):
    """Says that it has ten samples, but has only seven."""

    def __getitem__(self, i: int) -> Any:
        if i >= BAD:
            raise IndexError("list index out of range")
        return self.values[0]


class Incomplete(Short):
    """Its ``__getitems__`` leaves out samples that it does not have."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.values[0] for i in indices if i < BAD]


CASES: dict[str, tuple[Any, Any, str]] = {
    "None": (
        {"x": X, "label": 1},
        {"x": X, "label": None},
        r"^label: expected int32\[\], found None\. Filter .* for example -1\.$",
    ),
    "None in a tuple": ((X, 1), (X, None), r"^1: expected int32\[\], found None\."),
    "None first": (
        (X, None),
        (X, 1),
        r"^1: expected None, as in the first sample, found int\. Replace None",
    ),
    "float after int": (
        {"label": 1},
        {"label": 1.5},
        r"^label: .* found float64\[\]\. .* to int32, or .* all samples to float32\.$",
    ),
    "floats after ints": (
        np.ones(3, int),
        np.ones(3),
        r"^value: expected int32\[3\], found float64\[3\]\. .*sample_spec",
    ),
    "int after bool": ((X, True), (X, 2), r"^1: expected bool\[\], found int64\[\]\."),
    "shape": (
        {"x": X},
        {"x": X[:2]},
        r"^x: expected float32\[3\], found float32\[2\]\. .* Pad or crop",
    ),
    "range": (
        {"x": np.uint8(1)},
        {"x": 300},
        r"^x: .* uint8 cannot hold\. Use a larger dtype in all samples",
    ),
    "missing key": (
        {"x": X, "y": 1},
        {"x": X},
        r"expected keys \['x', 'y'\], found \['x'\]\. Return the same keys in all",
    ),
    "longer tuple": ((X, 1), (X, 1, 2), r"expected 2 values, found 3\. All samples"),
    "dict after tuple": ((X, 1), {"x": X}, r"expected 2 values, found dict\."),
    "string": (
        (X, 1),
        (X, "cat"),
        r"^1: .* found <U3\[\]\. Return numbers .*host",
    ),
    "object": ((X, 1), (X, {}), r"^1: .* found object\[\] \(dict\)\. .*host_fields"),
}


def raised(dataset: Any, kind: str = "thread") -> BaseException:
    source = ms.DatasetSource(dataset, ordering="sequential", worker_kind=kind)
    loader = ms.DataLoader([source, ms.BatchTransform(5)])
    run = loader.run(seed=0, epochs=1)
    next(run)
    with pytest.raises((ValueError, IndexError)) as caught:
        next(run)
    source.close()
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_samples_that_change(name: str) -> None:
    good, bad, words = CASES[name]
    error = raised(Changing(good, bad))
    assert re.search(words, str(error)), str(error)
    assert f"millstream: this error was raised for sample {BAD}" in error.__notes__


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_data_set_that_is_shorter_than_its_length(kind: str) -> None:
    error = raised(Short(X, X), kind)
    assert isinstance(error, IndexError)
    notes = "\n".join(error.__notes__)
    assert f"raised for sample {BAD}" in notes
    assert "the source has 10 samples" in notes
    assert "If the data set has fewer, correct this number" in notes


def test_several_samples_at_once_that_are_too_few() -> None:
    error = raised(Incomplete(X, X))
    words = r"returned 2 samples for 5 indices\. It must return one sample for each"
    assert re.search(words, str(error)), str(error)
    assert "one of samples [5, 6, 7, 8, 9]" in "\n".join(error.__notes__)
