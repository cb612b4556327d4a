"""Loaders with settings of JAX that change after the loader was built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest

WIDE = np.array([2**40, 2**41 + 1, 3, -(2**50), 5, 6, 7, 8])
MESSAGE = r"jax_enable_x64 was {} when this DataLoader was built and is now {}"


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
def test_a_changed_x64_setting_is_an_error(
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


def test_a_setting_that_changes_in_a_loop_is_an_error(
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
    batch, _ = next(running)  # the batch that failed
    np.testing.assert_array_equal(batch, WIDE[2:4])


def test_a_context_counts_as_well() -> None:
    loader = loader_of(WIDE % 9)
    with (
        jax.enable_x64(True),
        pytest.raises(RuntimeError, match=MESSAGE.format("off", "on")),
    ):
        loader.next_batch(loader.init_state(0))


def odd_rows(width: int) -> np.ndarray:
    """Returns rows with NaN and infinity, which debug_nans and debug_infs reject."""
    rows = np.arange(23 * width, dtype=np.float32).reshape(23, width)
    rows[rows % 7 == 0] = np.nan
    rows[rows % 5 == 0] = np.inf
    return rows


def doubled() -> ms.MapTransform:
    return ms.MapTransform(lambda b, m: b * 2)


def called() -> ms.HostCallbackTransform:
    return ms.HostCallbackTransform(lambda b, m: b * 2)


LINES: dict[str, Callable[[], Any]] = {
    "small": lambda: (3, []),
    "large": lambda: (1 << 18, []),
    "stages": lambda: (3, [doubled()]),
    "callbacks": lambda: (3, [doubled(), called(), doubled()]),
}


def line_of(line: str, kind: str) -> ms.DataLoader:
    width, stages = LINES[line]()
    remainder = "partial" if kind == "partial" else "pad"
    source = ms.ArraySampleSource(odd_rows(width), "sequential")
    batches = ms.BatchTransform(5, remainder=remainder)
    return ms.DataLoader([source, batches, *stages], traced=kind == "traced")


def looped(loader: ms.DataLoader, state: Any) -> list[np.ndarray]:
    return [np.asarray(batch) for batch, _ in loader.iterate(state, steps=12)]


def stepped(loader: ms.DataLoader, state: Any) -> list[np.ndarray]:
    batches = []
    for _ in range(12):
        batch, state, _ = loader.next_batch(state)
        batches.append(np.asarray(batch))
    return batches


@pytest.mark.parametrize("setting", ["transfer_guard", "debug_nans", "debug_infs"])
@pytest.mark.parametrize("kind", ["plain", "traced", "partial"])
@pytest.mark.parametrize("line", LINES)
def test_debugging_settings_do_not_stop_loops(
    line: str, kind: str, setting: str, capfd: pytest.CaptureFixture[str]
) -> None:
    loader = line_of(line, kind)
    state = loader.init_state(0)
    expected = looped(line_of(line, kind), state)
    value = "disallow" if setting == "transfer_guard" else True
    for walk in (looped, stepped):
        with getattr(jax, setting)(value):
            found = walk(loader, state)
        for batch, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(batch, wanted)
    assert "nan value" not in capfd.readouterr().out


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("setting", ["transfer_guard", "debug_nans"])
def test_a_setting_may_change_in_the_middle_of_a_loop(line: str, setting: str) -> None:
    loader = line_of(line, "plain")
    state = loader.init_state(0)
    expected = looped(line_of(line, "plain"), state)
    running = loader.iterate(state, steps=12)
    found = [next(running)[0] for _ in range(6)]
    with getattr(jax, setting)("disallow" if setting == "transfer_guard" else True):
        found += [next(running)[0] for _ in range(3)]
    found += [next(running)[0] for _ in range(3)]
    for batch, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch, wanted)


@pytest.mark.parametrize("kind", ["plain", "traced"])
@pytest.mark.parametrize("line", LINES)
def test_scan_epoch_makes_no_implicit_transfer(line: str, kind: str) -> None:
    loader = line_of(line, kind)
    state = loader.init_state(0)
    with jax.transfer_guard("disallow"):
        after, _, counts = loader.scan_epoch(state, None, lambda c, b, m: (c, m.sum()))
        jax.block_until_ready(counts)
    assert after.epoch == 1
    assert int(counts.sum()) == 23


def test_debugging_settings_still_apply_to_user_programs() -> None:
    loader = line_of("small", "plain")
    divide = jax.jit(lambda batch: batch * 0 / 0)
    with jax.debug_nans(True):
        for batch, _ in loader.iterate(loader.init_state(0)):
            with pytest.raises(FloatingPointError):
                divide(batch)


@pytest.mark.parametrize("line", LINES)
def test_every_way_of_delivery_keeps_the_reserved_words(line: str) -> None:
    loader = line_of(line, "plain")
    words = np.array(loader.init_state(7).words)
    words[6:] = 11, 13
    state = ms.LoaderState(words)
    running = loader.iterate(state, steps=9)
    jitted, eager, step = state, state, jax.jit(loader.next_batch)
    for _ in range(9):
        next(running)
        _, jitted, _ = step(jitted)
        _, eager, _ = loader.next_batch(eager)
        assert np.asarray(eager.words)[6:].tolist() == [11, 13]
        assert eager == jitted == running.state
    scanned, _, _ = loader.scan_epoch(state, 0, lambda c, b, m: (c, None))
    assert np.asarray(scanned.words)[6:].tolist() == [11, 13]
