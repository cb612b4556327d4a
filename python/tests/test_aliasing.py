"""Large batches: JAX arrays that alias the engine's memory."""

import sys
from collections.abc import Iterator
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from millstream._delivery import aliasing
from millstream._delivery.aliasing import Aliasing

ROWS = np.arange(64 << 16, dtype=np.float32).reshape(64, -1)
EACH = 8


def batches(dtype: type = np.float32) -> Iterator[jax.Array]:
    """Returns the batches of `iterate`, each at least 2 MiB."""
    source = ms.ArraySampleSource({"x": ROWS.astype(dtype)}, ordering="sequential")
    loader = ms.DataLoader(pipeline=[source, ms.BatchTransform(batch_size=EACH)])
    for batch, _ in loader.iterate(loader.init_state(0)):
        yield batch["x"]


def aligned(rows: np.ndarray) -> np.ndarray:
    memory = np.empty(rows.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
    copy[:] = rows
    return copy


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Counts the arrays that are placed without `jax.device_put`."""
    calls: list[Any] = []
    put = aliasing._put

    def counting(*arguments: Any) -> Any:
        calls.append(arguments)
        return put(*arguments)

    monkeypatch.setattr(aliasing, "_put", counting)
    return calls


@pytest.mark.parametrize("device", [None, jax.devices("cpu")[0]])
def test_both_ways_make_the_same_array(
    device: jax.Device | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    memory = aligned(ROWS[:EACH])
    place = Aliasing()
    (first,) = place([memory], device)
    before = len(calls)
    (second,) = place([memory], device)
    assert len(calls) == before + 1
    assert second.unsafe_buffer_pointer() == memory.ctypes.data
    assert first.unsafe_buffer_pointer() == memory.ctypes.data
    assert (second.aval, second.sharding) == (first.aval, first.sharding)
    assert second.committed == first.committed == (device is not None)


def test_memory_stays_valid_as_long_as_its_array() -> None:
    place = Aliasing()
    place([aligned(ROWS[:EACH])])
    memory = aligned(ROWS[:EACH])
    held = sys.getrefcount(memory)
    (array,) = place([memory])
    assert sys.getrefcount(memory) > held
    del memory
    np.testing.assert_array_equal(array, ROWS[:EACH])


def test_batches_of_a_loop_do_not_pass_through_device_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = counted(monkeypatch)
    for k, batch in enumerate(batches()):
        np.testing.assert_array_equal(batch, ROWS[k * EACH : (k + 1) * EACH])
    assert len(calls) >= len(ROWS) // EACH - 1


def test_a_jax_without_the_private_function_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aliasing, "_put", None)
    np.testing.assert_array_equal(np.concatenate(list(batches())), ROWS)


def test_a_jax_with_another_private_function_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aliasing, "_put", lambda aval: aval)
    np.testing.assert_array_equal(np.concatenate(list(batches())), ROWS)


@pytest.mark.parametrize("guard", ["disallow", "disallow_explicit"])
def test_transfer_guards_apply_as_for_device_put(guard: str) -> None:
    running = batches()
    next(running)
    next(running)
    with jax.transfer_guard(guard):
        if guard == "disallow":
            next(running)
        else:
            with pytest.raises(jax.errors.JaxRuntimeError, match="host-to-device"):
                next(running)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_64_bit_types_follow_the_x64_setting(dtype: type) -> None:
    with jax.enable_x64(True):
        wide = list(batches(dtype))
    assert {x.dtype for x in wide} == {np.dtype(dtype)}
    np.testing.assert_array_equal(np.concatenate(wide), ROWS)
    narrow = list(batches(dtype))
    assert {x.dtype.itemsize for x in narrow} == {4}
    np.testing.assert_array_equal(np.concatenate(narrow), ROWS)


@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_donated_memory_is_not_written_to() -> None:
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    place = Aliasing()
    memory = aligned(ROWS[:EACH])
    for _ in range(3):
        np.testing.assert_array_equal(double(*place([memory])), 2 * ROWS[:EACH])
        np.testing.assert_array_equal(memory, ROWS[:EACH])
