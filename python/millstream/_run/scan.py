"""Scans over the batches of a loader, and their compiled programs."""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from millstream._core.description import Tree
from millstream._delivery import jit
from millstream._run.state import is_traced
from millstream._run.stream import Built

Body = Callable[[Any, Tree, Any], tuple[Any, Any]]

_COMPILED_TOO_OFTEN = 3
_MAX_WRAPPERS = 10


class CompiledScans:
    """The jitted scans of one loader, one for each function, length and unroll.

    It holds a function, or the object of a bound method, weakly.
    """

    def __init__(self, built: Built) -> None:
        self._built = built
        self._programs: dict[int, tuple[weakref.ref[Any], dict[Any, Any]]] = {}
        self._compiled: dict[types.CodeType, int] = {}
        """How many functions with this code were compiled."""

    def __len__(self) -> int:
        """The number of functions that have programs."""
        return len(self._programs)

    def program(self, body: Body, length: int, unroll: int) -> Any:
        """Returns the jitted scan of ``body``.

        Functions with the same code do not share a program, because they may read
        different variables, or global variables that have changed. The third of them
        warns.
        """
        method = getattr(body, "__func__", None)
        owner = body.__self__ if method is not None else body  # type: ignore[attr-defined]
        # Keyed by identity: equal owners may behave differently, or have no hash.
        number, programs, built = id(owner), self._programs, self._built
        if number not in programs:
            try:
                reference = weakref.ref(owner, lambda _: programs.pop(number, None))
            except TypeError:
                return jax.jit(functools.partial(scan, built, body, length, unroll))
            programs[number] = reference, {}
        reference, cached = programs[number]
        key = (method, length, unroll)
        if key not in cached:
            if all(compiled is not method for compiled, _, _ in cached):
                self._count(body)

            def run(position: Any, carry: Any, arrays: Any) -> Any:
                alive: Any = reference()
                body = alive if method is None else functools.partial(method, alive)
                return scan(built, body, length, unroll, position, carry, arrays)

            cached[key] = jax.jit(run)
        return cached[key]

    def _count(self, body: Body) -> None:
        """Counts a new function, and warns if it is the third with the same code."""
        code = _code_of(body)
        if code is None:
            return
        self._compiled[code] = self._compiled.get(code, 0) + 1
        if self._compiled[code] == _COMPILED_TOO_OFTEN:
            name = code.co_qualname.rpartition("<locals>.")[2]
            warnings.warn(
                f"scan_epoch compiled the function {name} at "
                f"{code.co_filename}:{code.co_firstlineno} three times, because each "
                "call passed a new function object. Define the function once, outside "
                "the loop.",
                UserWarning,
                stacklevel=4,  # the caller of scan_epoch
            )


def _code_of(body: Any) -> types.CodeType | None:
    """Returns the code of a function, also of one inside wrappers such as ``jax.jit``.

    For another callable object it is the code of the type's ``__call__``.
    """
    for function in (body, type(body).__call__):
        code = getattr(_unwrapped(function), "__code__", None)
        if isinstance(code, types.CodeType):
            return code
    return None


def _unwrapped(function: Any) -> Any:
    """Returns the function inside partials, bound methods and other wrappers."""
    for _ in range(_MAX_WRAPPERS):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        else:
            function = getattr(function, "__wrapped__", function)
    return function


def check_body(body: Any) -> None:
    """Raises ``TypeError`` unless ``body`` can be called as a body of a scan.

    A function without a signature passes.
    """
    if not callable(body):
        raise TypeError(f"body_fn must be a function, not {body!r}")
    try:
        signature = inspect.signature(body)
    except (TypeError, ValueError):
        return
    try:
        signature.bind("carry", "batch", "mask")
    except TypeError:
        empty = inspect.Parameter.empty
        parameters = signature.parameters.values()
        names = [each.replace(default=empty, annotation=empty) for each in parameters]
        raise TypeError(
            "scan_epoch calls body_fn(carry, batch, mask), but the parameters of the "
            f"function are {inspect.Signature(names)}. Write "
            "def body_fn(carry, batch, mask)."
        ) from None


def _pair(result: Any) -> Any:
    """Returns the result of a body. Raises ``TypeError`` unless it is a pair."""
    if isinstance(result, tuple | list) and len(result) == 2:
        return result
    found = type(result).__name__
    if isinstance(result, tuple | list):
        found = f"a {found} of {len(result)} values"
    raise TypeError(
        f"body_fn must return (carry, output), found {found}. Write return carry, None "
        "if there is no output."
    )


def scan(
    built: Built,
    body: Body,
    length: int,
    unroll: int,
    position: Any,
    carry: Any,
    arrays: list[Any],
) -> tuple[Any, Any, Any]:
    """Traces ``length`` steps. Returns ``(position, carry, outputs)``."""

    def step(carried: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
        position, carry = carried
        batch, mask, position = built.step(position, arrays, consumed=True)
        carry, output = _pair(body(carry, batch, mask))
        return (position, carry), output

    (position, carry), outputs = lax.scan(
        step, (position, carry), None, length=length, unroll=unroll
    )
    return position, carry, outputs


def run_program(
    built: Built, program: Any, position: Any, carry: Any, arrays: list[Any]
) -> Any:
    """Runs a program to its end. Raises the original exception of a failure."""
    built.forget_error()
    guard = built.interruptible(_raises_on_interrupt())
    with guard:
        try:
            result = program(position, carry, arrays)
            if not any(is_traced(leaf) for leaf in jax.tree.leaves(result)):
                jax.block_until_ready(result)
            return result
        except jit.FAILURES as error:
            if guard.interrupted:
                raise KeyboardInterrupt from None
            built.raise_original(error)


def _raises_on_interrupt() -> bool:
    """Whether Ctrl-C must end a program that runs in this thread.

    The handler of ``asyncio.run`` only cancels a task. It has no effect while this
    thread waits for a program, so Ctrl-C must end the program then too.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    asyncio = sys.modules.get("asyncio")
    by_asyncio = asyncio is not None and isinstance(runner, asyncio.Runner)
    return by_asyncio or handler is signal.default_int_handler
