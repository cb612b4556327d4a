"""The warning about a function that `scan_epoch` compiles again at each call."""

from __future__ import annotations

import functools
import gc
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from conftest import rows_of
from millstream import ArraySampleSource, BatchTransform, DataLoader

Body = Callable[[Any, Any, Any], Any]

amount = 1


@pytest.fixture
def loader() -> DataLoader:
    return DataLoader([ArraySampleSource(rows_of(10)), BatchTransform(5)])


class Counter:
    """A callable object with a method, neither of which is a function."""

    def __call__(self, carry: Any, batch: Any, mask: Any) -> Any:
        return carry + 1, None

    def method(self, carry: Any, batch: Any, mask: Any) -> Any:
        return carry + 1, None


def module_level(step: int, carry: Any, batch: Any, mask: Any) -> Any:
    return carry + step, None


def new_function() -> Body:
    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + 1, None

    return body


def line_of(function: Any) -> int:
    code = inspect.unwrap(function).__code__
    assert code.co_filename == __file__
    return int(code.co_firstlineno)


KINDS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "function": (new_function, "body", line_of(new_function())),
    "method": (lambda: Counter().method, "Counter.method", line_of(Counter.method)),
    "object": (Counter, "Counter.__call__", line_of(Counter.__call__)),
    "partial": (
        lambda: functools.partial(module_level, 1),
        "module_level",
        line_of(module_level),
    ),
    "partial of a method": (
        lambda: functools.partial(Counter().method),
        "Counter.method",
        line_of(Counter.method),
    ),
    "jitted": (lambda: jax.jit(new_function()), "body", line_of(new_function())),
}


def called(loader: DataLoader, body: Any, **more: Any) -> int:
    _, total, _ = loader.scan_epoch(loader.init_state(0), jnp.int32(0), body, **more)
    return int(total)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [False, True])
def test_the_third_new_function_warns_once(
    loader: DataLoader, kind: str, kept: bool
) -> None:
    make, name, line = KINDS[kind]
    state, bodies = loader.init_state(0), []
    for call in range(1, 7):
        body = make()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader.scan_epoch(state, jnp.int32(0), body)
        assert len(caught) == (call == 3)
        if call == 3:
            assert caught[0].category is UserWarning
            assert caught[0].filename == __file__
            assert caught[0].lineno > line_of(test_the_third_new_function_warns_once)
            assert str(caught[0].message) == (
                f"scan_epoch compiled the function {name} at {__file__}:{line} three "
                "times, because each call passed a new function object. Define the "
                "function once, outside the loop."
            )
        bodies = [*bodies, body] if kept else []
        del body
        gc.collect()


def test_each_loader_and_each_place_counts_alone(loader: DataLoader) -> None:
    other = DataLoader([ArraySampleSource(rows_of(10)), BatchTransform(2)])
    for _ in range(2):
        called(loader, new_function())
        called(loader, lambda c, b, m: (c + 1, None))
        called(other, new_function())
    for this in (loader, other):
        with pytest.warns(UserWarning, match="compiled the function body at"):
            called(this, new_function())


def test_functions_on_one_line_count_alone(loader: DataLoader) -> None:
    bodies = lambda c, *_: (c, 0), lambda c, *_: (c + 1, 0), lambda c, *_: (c + 2, 0)
    assert len({line_of(body) for body in bodies}) == 1
    assert [called(loader, body) for body in bodies] == [0, 2, 4]


def test_one_function_never_warns(loader: DataLoader) -> None:
    counter = Counter()
    for body in (new_function(), counter, functools.partial(module_level, 1)):
        for steps in range(1, 5):
            for unroll in (1, 2):
                assert called(loader, body, steps=steps, unroll=unroll) == steps
    for steps in range(1, 5):
        assert called(loader, counter.method, steps=steps) == steps


def test_the_users_own_jit_never_warns(loader: DataLoader) -> None:
    for _ in range(4):

        @jax.jit
        def epoch(state: Any) -> Any:
            return loader.scan_epoch(state, jnp.int32(0), new_function())[1]

        assert int(epoch(loader.init_state(0))) == 2


def test_an_object_without_weak_references_does_not_warn(loader: DataLoader) -> None:
    class Slots:
        __slots__ = ()  # no weak references, so its programs are not kept

        def __call__(self, carry: Any, batch: Any, mask: Any) -> Any:
            return carry + 1, None

    body = Slots()
    assert [called(loader, body) for _ in range(4)] == [2] * 4


def test_equal_functions_read_changed_variables(
    loader: DataLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def new() -> Body:
        return lambda carry, batch, mask: (carry + amount, None)

    one, two = new(), new()
    assert one.__code__ == two.__code__  # type: ignore[attr-defined]
    assert called(loader, one) == 2
    monkeypatch.setitem(globals(), "amount", 5)
    assert called(loader, two) == 10
    monkeypatch.setitem(globals(), "amount", 7)
    with pytest.warns(UserWarning, match=re.escape(f"{__file__}:")):
        assert called(loader, new()) == 14
