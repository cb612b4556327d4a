"""Finds the part of a pipeline that cannot be pickled."""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import jax

from millstream._core.description import Description


def check_picklable(pipeline: Sequence[Any]) -> None:
    """Raises ``TypeError`` if the source or a stage cannot be pickled, and names it."""
    for number, part in enumerate(pipeline):
        error = _failure(part)
        if error is not None:
            place = f"stage {number}" if number else "the source"
            name = f"{place}, {type(part).__name__}"
            what = _message(*_culprit(part, error), is_stage=bool(number))
            raise TypeError(f"{name}: {what}") from error


def pickles_by_value(frame: types.FrameType) -> bool:
    """Whether ``frame`` belongs to a pickler that may send functions by value.

    The picklers of cloudpickle, which Ray and other libraries use, do so.
    """
    return hasattr(frame.f_locals.get("self"), "reducer_override")


class _NoFile:
    def write(self, data: Any) -> int:
        return len(data)


def _failure(value: Any) -> Exception | None:
    """Returns the exception of pickling ``value``, or None. Copies no NumPy arrays."""
    try:
        pickler = pickle.Pickler(_NoFile(), 5, buffer_callback=lambda _: None)
        pickler.dump(value)
    except Exception as error:  # objects of the user may raise any exception
        return error
    return None


def _culprit(value: Any, error: Exception) -> tuple[Any, Exception]:
    """Returns the innermost part of ``value`` that cannot be pickled, and its error."""
    for part in _parts(value):
        cause = _failure(part)
        if cause is not None:
            return _culprit(part, cause)
    return value, error


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Description):
        return [getattr(value, f.name) for f in fields(value) if f.init]  # type: ignore[arg-type]
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    return [value.__self__] if isinstance(value, types.MethodType) else []


def _message(value: Any, error: Exception, *, is_stage: bool) -> str:
    """Returns what cannot be pickled and what to do instead."""
    elsewhere = "Build the loader in the other process"
    if isinstance(value, jax.stages.Wrapped):
        name = getattr(value, "__name__", "")
        return (
            f"its jitted function {name} cannot be pickled. Pass the function without "
            "jax.jit."
        )
    if isinstance(value, types.FunctionType):
        return (
            f"its function {value.__name__} cannot be pickled. Define it at the top "
            "level of a module."
        )
    if isinstance(value, jax.Device | jax.sharding.Sharding):
        if is_stage:
            remedy = f"{elsewhere}, or add the stage there."
        else:
            remedy = 'Pass the name of the device, such as "gpu:1".'
        return f"{value} cannot be pickled. {remedy}"
    return f"{type(value).__name__} cannot be pickled: {error}. {elsewhere}."
