"""dataset_to_jax: data sets as arrays on a device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from millstream._sources.materialize import dataset_to_jax


class Samples:
    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Arrays(Samples):
    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("samples are not read one by one")

    def as_array_dict(self) -> Any:
        return self.arrays


def test_samples_are_stacked() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
    samples = [{"x": pixels[i], "y": (i, 0.5 * i, i > 2)} for i in range(6)]
    found = dataset_to_jax(Samples(samples))
    np.testing.assert_array_equal(found["x"], pixels)
    assert [leaf.dtype for leaf in found["y"]] == [jnp.int32, jnp.float32, jnp.bool_]
    np.testing.assert_array_equal(found["y"][1], np.arange(6) * 0.5)
    assert found["x"].devices() == {jax.devices("cpu")[0]}


def test_samples_may_be_single_arrays() -> None:
    found = dataset_to_jax(Samples([jnp.ones(3, jnp.bfloat16)] * 4))
    assert (found.shape, found.dtype) == ((4, 3), jnp.bfloat16)


def test_as_array_dict_is_used() -> None:
    arrays = {"x": np.arange(8.0), "y": np.arange(8, dtype=np.int8)}
    found = dataset_to_jax(Arrays(arrays))
    arrays["x"][:] = 0
    np.testing.assert_array_equal(found["x"], np.arange(8.0))
    assert found["y"].dtype == jnp.int8


def test_the_device_is_not_committed() -> None:
    for name in ("cpu", "cpu:0", None, jax.devices("cpu")[0]):
        found = dataset_to_jax(Samples([1, 2]), storage_device=name)
        assert not found.committed


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Samples([]), "Samples has no samples"),
        (Arrays({"x": np.zeros((0, 3))}), "Arrays has no samples"),
        (Arrays({}), "have no fields"),
        (Samples([{}]), "have no fields"),
        (Arrays({"x": np.float32(3)}), "is a scalar"),
        (Arrays({"x": np.ones(3), "y": np.ones(4)}), "'y'.* 4 samples.*'x'.* 3"),
        (Samples([{"x": 1}, {"y": 1}]), "sample 1 has the structure"),
        (Samples([{"x": [1]}, {"x": [1, 2]}]), "sample 1 has the structure"),
        (Samples([np.ones(2), np.ones(3)]), r"sample 1 is float64\[3\], sample 0"),
        (Samples([{"x": 1}, {"x": 1.5}]), r"sample 1 is float64\[\], sample 0 is int"),
        (Samples([{"x": "text"}]), r"\['x'\]: expected numbers or booleans"),
        (Arrays({"x": np.array([None])}), "found object"),
        (Arrays({"x": np.array([2**40 + 5])}), "1099511627781.*do not fit int32"),
        (Arrays({"x": np.array([2**32], np.uint64)}), "do not fit uint32"),
    ],
)
def test_bad_data_sets_are_errors(dataset: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset_to_jax(dataset)


def test_a_bad_device_is_an_error_before_the_data_is_read() -> None:
    with pytest.raises(ValueError, match="no platform 'nothing'"):
        dataset_to_jax(Arrays(None), storage_device="nothing")
