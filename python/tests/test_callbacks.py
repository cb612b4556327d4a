"""HostCallbackTransform: a Python function that runs once per delivered batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
)

N, BATCH, STEPS = 11, 4, 3


class Calls:
    """Records its labels and masks. Returns the result of `answer`."""

    def __init__(self, answer: Any = None) -> None:
        self.seen: list[tuple[list[int], list[bool]]] = []
        self.answer = answer

    def __call__(self, batch: Any, mask: Any) -> Any:
        assert isinstance(mask, np.ndarray)
        assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(batch))
        self.seen.append((batch["y"].tolist(), mask.tolist()))
        return None if self.answer is None else self.answer(batch, mask)


def loader_with(*stages: Any, **knobs: Any) -> DataLoader:
    source = ArraySampleSource(rows_of(N), "sequential")
    return DataLoader([source, BatchTransform(BATCH), *stages], **knobs)


EPOCH = [
    ([1, 2, 3, 4], [True] * 4),
    ([5, 6, 7, 8], [True] * 4),
    ([9, 10, 11, 0], [True, True, True, False]),
]


@pytest.mark.parametrize("prefetch", [0, 5])
@pytest.mark.parametrize("traced", [False, True])
def test_it_runs_once_for_each_delivered_batch(prefetch: int, traced: bool) -> None:
    calls = Calls()
    loader = loader_with(HostCallbackTransform(calls), prefetch=prefetch, traced=traced)
    assert calls.seen == []
    iterator = loader.iterate(loader.init_state(0))
    for step in range(STEPS):
        next(iterator)
        assert calls.seen == EPOCH[: step + 1]
    calls.seen.clear()
    state = loader.init_state(0)
    for step in range(STEPS):
        _, state, _ = loader.next_batch(state)
        assert calls.seen == EPOCH[: step + 1]


def test_inside_jit_it_runs_once_per_batch() -> None:
    calls = Calls()
    loader = loader_with(HostCallbackTransform(calls))
    step = jax.jit(loader.next_batch)
    state = loader.init_state(0)
    for _ in range(STEPS):
        _, state, _ = jax.block_until_ready(step(state))
    assert calls.seen == EPOCH


@pytest.mark.parametrize("own", [False, True])
def test_inside_a_scan_it_runs_once_per_batch(own: bool) -> None:
    calls = Calls()
    loader = loader_with(HostCallbackTransform(calls))

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + batch["x"].sum(), None

    def run(state: Any) -> Any:
        return loader.scan_epoch(state, jnp.int32(0), body)

    _, total, _ = (jax.jit(run) if own else run)(loader.init_state(0))
    jax.effects_barrier()
    assert int(total) == rows_of(N)["x"].sum()
    # Every batch comes once, in any order.
    assert sorted(calls.seen) == sorted(EPOCH)


def test_its_result_reaches_the_next_stage() -> None:
    def negated(batch: Any, mask: Any) -> Any:
        return {**batch, "x": -batch["x"]}

    def plus_one(batch: Any, mask: Any) -> Any:
        return {**batch, "x": batch["x"] + 1}

    calls = Calls(negated)
    loader = loader_with(HostCallbackTransform(calls), MapTransform(plus_one))
    wanted = -rows_of(N)["x"][:BATCH] + 1
    state = loader.init_state(0)
    for batch in (
        next(loader.iterate(state))[0],
        loader.next_batch(state)[0],
        jax.jit(loader.next_batch)(state)[0],
    ):
        assert isinstance(batch["x"], jax.Array)
        assert np.array_equal(batch["x"], wanted)
    assert len(calls.seen) == 3


def test_several_callbacks_between_traced_stages() -> None:
    order: list[str] = []

    def note(name: str) -> Any:
        def fn(batch: Any, mask: Any) -> None:
            order.append(f"{name}{batch['x'][0, 0]}")

        return HostCallbackTransform(fn)

    def add(batch: Any, mask: Any) -> Any:
        return {**batch, "x": batch["x"] + 10}

    stages = [note("a"), note("b"), MapTransform(add), note("c"), MapTransform(add)]
    loader = loader_with(*stages)
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert order == ["a1", "b1", "c11"]
    assert int(batch["x"][0, 0]) == 21


def test_a_new_spec_is_declared() -> None:
    spec = {"mean": jax.ShapeDtypeStruct((), np.float32)}

    def mean(batch: Any, mask: Any) -> Any:
        return {"mean": np.float32(batch["x"][mask].mean())}

    loader = loader_with(HostCallbackTransform(mean, element_spec_override=spec))
    assert loader.element_spec()["mean"].shape == ()
    wanted = rows_of(N)["x"][:BATCH].mean(dtype=np.float32)
    state = loader.init_state(0)
    assert loader.next_batch(state)[0]["mean"] == wanted
    assert jax.jit(loader.next_batch)(state)[0]["mean"] == wanted


WRONG = {
    "shape": (
        lambda b, m: {**b, "y": b["y"][:2]},
        r"returned uint8\[2\] for \['y'\]; expected uint8\[4\]",
    ),
    "dtype": (
        lambda b, m: {**b, "y": b["y"] * 1.0},
        r"returned float64\[4\] for \['y'\]; expected uint8",
    ),
    "missing": (
        lambda b, m: {"x": b["x"]},
        r"returned a value without \['y'\]; expected .*'y'",
    ),
    "extra": (
        lambda b, m: {**b, "z": b["y"]},
        r"returned a value with \['z'\]; expected .*'y'",
    ),
    "kind": (
        lambda b, m: 7,
        r"returned a value without \['x'\] and without \['y'\] and with the value",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_result_with_another_spec_is_an_error(wrong: str) -> None:
    answer, message = WRONG[wrong]
    loader = loader_with(HostCallbackTransform(answer))
    state = loader.init_state(0)
    message = f"HostCallbackTransform {message}"
    with pytest.raises(ValueError, match=message):
        next(loader.iterate(state))
    with pytest.raises(ValueError, match=message):
        loader.next_batch(state)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(jax.jit(loader.next_batch)(state))


class Sentinel(Exception):
    pass


def fail(batch: Any, mask: Any) -> None:
    raise Sentinel("the user's own")


def test_an_exception_of_the_function_is_raised_unchanged() -> None:
    loader = loader_with(HostCallbackTransform(fail))
    state = loader.init_state(0)
    with pytest.raises(Sentinel, match="the user's own"):
        next(loader.iterate(state))
    with pytest.raises(Sentinel, match="the user's own"):
        loader.next_batch(state)
    assert loader.last_error is None
    with pytest.raises(jax.errors.JaxRuntimeError, match="the user's own"):
        jax.block_until_ready(jax.jit(loader.next_batch)(state))
    assert isinstance(loader.last_error, Sentinel)
    with pytest.raises(Sentinel, match="the user's own"):
        loader.scan_epoch(state, 0, lambda c, b, m: (c, None))
    assert loader.last_error is None


def test_the_last_error_is_the_later_one() -> None:
    loader = loader_with(HostCallbackTransform(fail))
    other = DataLoader([ArraySampleSource(rows_of(N)), BatchTransform(BATCH)])
    step = jax.jit(loader.next_batch)
    for _ in range(2):
        for state, kind in (
            (loader.init_state(0), Sentinel),
            (other.init_state(0), ValueError),
        ):
            with pytest.raises((jax.errors.JaxRuntimeError, ValueError)):
                jax.block_until_ready(step(state))
            assert isinstance(loader.last_error, kind)


def test_without_batching_it_sees_samples() -> None:
    source = ArraySampleSource(rows_of(N), "sequential")
    seen: list[Any] = []

    def note(sample: Any, mask: Any) -> None:
        seen.append((sample["x"].shape, mask.shape))

    loader = DataLoader([source, HostCallbackTransform(note)])
    next(loader.iterate(loader.init_state(0)))
    assert seen == [((3,), ())]
    with pytest.raises(TypeError, match="HostCallbackTransform needs a function"):
        HostCallbackTransform(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ordered must be True or False, not 'yes'"):
        HostCallbackTransform(fail, ordered="yes")  # type: ignore[arg-type]


def test_explain_lists_it_as_python() -> None:
    loader = loader_with(NormalizeImageTransform("x"), HostCallbackTransform(Calls()))
    line = loader.explain().splitlines()[-2]
    assert line.split()[:2] == ["HostCallbackTransform", "Python"]
