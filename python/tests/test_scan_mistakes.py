"""Functions that ``scan_epoch`` cannot call, or whose results it cannot use."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import pytest
from conftest import rows_of


def scan_outside(body: Any) -> Any:
    loader = ms.DataLoader([ms.ArraySampleSource(rows_of(10)), ms.BatchTransform(4)])
    return loader.scan_epoch(loader.init_state(0), jnp.zeros(()), body)


def scan_inside(body: Any) -> Any:
    loader = ms.DataLoader([ms.ArraySampleSource(rows_of(10)), ms.BatchTransform(4)])
    scan = jax.jit(lambda state, carry: loader.scan_epoch(state, carry, body))
    return scan(loader.init_state(0), jnp.zeros(()))


scans = pytest.mark.parametrize("scan", [scan_outside, scan_inside])


@scans
@pytest.mark.parametrize(
    ("body", "found"),
    [
        (lambda carry, batch, mask: carry, "Tracer"),
        (lambda carry, batch, mask: None, "found NoneType"),
        (lambda carry, batch, mask: {"carry": carry, "loss": 0}, "found dict"),
        (lambda carry, batch, mask: (carry, 0, 1), "found a tuple of 3 values"),
    ],
)
def test_a_body_must_return_a_pair(scan, body, found):
    with pytest.raises(TypeError) as caught:
        scan(body)
    assert "body_fn must return (carry, output), found " in str(caught.value)
    assert found in str(caught.value)
    assert "return carry, None" in str(caught.value)


@scans
@pytest.mark.parametrize(
    "body",
    [
        lambda carry, batch: (carry, None),
        lambda carry, batch, mask, key, step=1: (carry, None),
        lambda carry, *, batch, mask: (carry, None),
        functools.partial(lambda carry, batch, mask: (carry, None), 1.0),
        jax.jit(lambda carry, batch: (carry, None)),
    ],
)
def test_a_body_with_other_parameters_shows_the_right_ones(scan, body):
    with pytest.raises(TypeError, match=re.escape("body_fn(carry, batch, mask)")):
        scan(body)


def test_an_error_inside_a_body_is_the_error_itself():
    def body(carry: Any, batch: Any, mask: Any) -> Any:
        raise TypeError("from the body")

    with pytest.raises(TypeError, match=r"^from the body"):
        scan_outside(body)


class Counter:
    def __call__(self, carry: Any, *batch_and_mask: Any) -> Any:
        return carry + 1, None

    def method(self, carry: Any, batch: Any, mask: Any, step: int = 1) -> Any:
        return [carry + step, None]


@scans
@pytest.mark.parametrize(
    "body",
    [
        Counter(),
        Counter().method,
        jax.jit(lambda carry, batch, mask: (carry + 1, None)),
        functools.partial(lambda step, carry, batch, mask: (carry + step, None), 1),
    ],
)
def test_callables_that_take_three_arguments_are_bodies(scan, body):
    assert scan(body)[1] == 3
