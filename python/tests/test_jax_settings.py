"""Loaders under settings of JAX that change after they were built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest

WIDE = np.array([2**40, 2**41 + 1, 3, -(2**50), 5, 6, 7, 8])
MESSAGE = r"jax_enable_x64 was {} when this DataLoader was built and is {}"


@pytest.fixture
def x64() -> Iterator[Callable[[bool], None]]:
    def turn(on: bool) -> None:
        jax.config.update("jax_enable_x64", on)

    before = jax.config.jax_enable_x64
    yield turn
    turn(before)


def loader_of(data: Any, *stages: Any, **more: Any) -> ms.DataLoader:
    source = ms.ArraySampleSource(data, "sequential")
    return ms.DataLoader([source, ms.BatchTransform(2), *stages], **more)


def total(carry: Any, batch: Any, mask: Any) -> Any:
    return carry, batch.sum()


ENTRIES: dict[str, Callable[[ms.DataLoader, Any], Any]] = {
    "iterate": lambda loader, state: next(loader.iterate(state)),
    "next_batch": lambda loader, state: loader.next_batch(state),
    "jit": lambda loader, state: jax.jit(loader.next_batch)(state),
    "vmap": lambda loader, state: jax.vmap(loader.next_batch)(
        jax.vmap(loader.init_state)(np.arange(3))
    ),
    "scan_epoch": lambda loader, state: loader.scan_epoch(state, 0, total),
    "scan_epoch in jit": lambda loader, state: jax.jit(
        lambda s: loader.scan_epoch(s, 0, total)
    )(state),
    "element_spec": lambda loader, state: loader.element_spec(),
}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("kind", ["plain", "stages", "traced"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_other_dtypes_than_a_loader_was_built_with_are_refused(
    entry: str, kind: str, on: bool, x64: Callable[[bool], None]
) -> None:
    x64(on)
    stages = [ms.MapTransform(lambda b, m: b + 1)] if kind == "stages" else []
    loader = loader_of(WIDE if on else WIDE % 9, *stages, traced=kind == "traced")
    state = loader.init_state(0)
    ENTRIES[entry](loader, state)
    x64(not on)
    words = ("on", "off") if on else ("off", "on")
    with pytest.raises(RuntimeError, match=MESSAGE.format(*words)):
        ENTRIES[entry](loader, state)
    x64(on)
    ENTRIES[entry](loader, state)


def test_a_loop_is_refused_where_the_setting_changes_within(
    x64: Callable[[bool], None],
) -> None:
    x64(True)
    loader = loader_of(WIDE)
    running = loader.iterate(loader.init_state(0), steps=20)
    for _ in range(5):
        next(running)
    x64(False)
    with pytest.raises(RuntimeError, match=MESSAGE.format("on", "off")):
        next(running)
    x64(True)
    batch, _ = next(running)  # the one that was refused
    np.testing.assert_array_equal(batch, WIDE[2:4])


def test_a_context_counts_as_well() -> None:
    loader = loader_of(WIDE % 9)
    with (
        jax.enable_x64(True),
        pytest.raises(RuntimeError, match=MESSAGE.format("off", "on")),
    ):
        loader.next_batch(loader.init_state(0))
