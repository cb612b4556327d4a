"""Replay buffers, compared with cyreal 0.2.1 bit for bit."""

from __future__ import annotations

from typing import Any

import cyreal.loader
import cyreal.transforms
import jax
import jax.numpy as jnp
import pytest
from conftest import check_same, scanned
from millstream.cyreal import v02

STEPS = 60


class Numbers:
    """A stream of numbers. ``gap`` clears the mask of every gap-th value."""

    steps_per_epoch = 37

    def __init__(self, gap: int) -> None:
        self.gap = gap

    def init_state(self, key: Any) -> Any:
        return jnp.int32(0)

    def next(self, state: Any) -> Any:
        value = {"number": state, "row": state * jnp.ones(3, jnp.float32) / 7}
        mask = (state % self.gap) != 1 if self.gap else jnp.bool_(True)
        return value, mask, state + 1

    def element_spec(self) -> Any:
        return {
            "number": jax.ShapeDtypeStruct((), jnp.int32),
            "row": jax.ShapeDtypeStruct((3,), jnp.float32),
        }


def contents(state: Any) -> dict[str, Any]:
    """Returns the buffer and its counters, which may have another dtype."""
    state = state.inner_state
    counters = {
        name: int(getattr(state, name))
        for name in ("count", "write_index", "read_index", "seen")
    }
    return {"buffer": state.buffer, "rng": state.rng, **counters}


@pytest.mark.parametrize(("size", "gap"), [(1, 3), (4, 0)], ids=["holes", "all"])
@pytest.mark.parametrize("mode", ["sequential", "shuffled"])
@pytest.mark.parametrize("write_mode", ["fifo", "reservoir"])
def test_values_masks_and_contents(
    write_mode: str, mode: str, size: int, gap: int
) -> None:
    found = []
    for transforms, loader in (
        (v02.transforms, v02.DataLoader),
        (cyreal.transforms, cyreal.loader.DataLoader),
    ):
        buffer = transforms.BufferTransform(16, 8, size, mode, write_mode)
        built = loader([Numbers(gap), buffer])
        values, state = scanned(built, built.init_state(jax.random.PRNGKey(2)), STEPS)
        found.append((values, contents(state)))
    check_same(*found)


def test_a_full_buffer_before_the_first_sample() -> None:
    found = []
    for transforms, loader in (
        (v02.transforms, v02.DataLoader),
        (cyreal.transforms, cyreal.loader.DataLoader),
    ):
        buffer = transforms.BufferTransform(6, 6, 6, "sequential", "reservoir")
        built = loader([Numbers(3), buffer])
        values, state = scanned(built, built.init_state(jax.random.PRNGKey(2)), STEPS)
        found.append((values, contents(state)))
    check_same(*found)


def test_batches_after_a_buffer() -> None:
    """A batch collapses the masks of a value with several samples."""
    found = []
    for transforms, loader in (
        (v02.transforms, v02.DataLoader),
        (cyreal.transforms, cyreal.loader.DataLoader),
    ):
        buffer = transforms.BufferTransform(16, 8, 4, "shuffled")
        built = loader([Numbers(3), buffer, transforms.BatchTransform(5)])
        found.append(scanned(built, built.init_state(jax.random.PRNGKey(2)), 12)[0])
    check_same(*found)


@pytest.mark.parametrize(
    "arguments",
    [(0, 1), (4, 0), (4, 5), (4, 2, 0), (4, 4, 5), (8, 2, 4), (4, 4, 1, "random")],
)
def test_errors_have_the_same_type(arguments: tuple[Any, ...]) -> None:
    for transforms in (cyreal.transforms, v02.transforms):
        with pytest.raises(ValueError, match=r"capacity|prefill|sample_size|mode"):
            transforms.BufferTransform(*arguments)(Numbers(0))
