"""Traces the stages of a pipeline that the engine does not run."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from millstream._core.description import Tree
from millstream._delivery.sharding import constrained
from millstream._run.keys import Origin

if TYPE_CHECKING:
    from millstream._run.builder import Placed
    from millstream._run.built import BuiltPipeline
    from millstream._run.stream import Built
    from millstream._stages.map import HostCallbackTransform


def finish(
    built: BuiltPipeline, value: Tree, mask: Any, origin: Origin, later: list[Placed]
) -> tuple[Tree, Any]:
    """Traces the stages ``later`` on a value of the engine.

    Returns ``(value, mask)``.
    """
    samples = [p for p in later if not p.batched]
    value, mask = run_stages(built, samples, value, mask, origin, rows=built.batched)
    if samples and built.batched:
        value = jax.tree.map(lambda x: masked(x, mask), value)
    batches = [p for p in later if p.batched]
    return run_stages(built, batches, value, mask, origin, rows=False)


def run_stages(
    built: BuiltPipeline,
    placed: list[Placed],
    value: Tree,
    mask: Any,
    origin: Origin,
    *,
    rows: bool,
) -> tuple[Tree, Any]:
    """Traces stages one after another; with ``rows``, vmapped over rows.

    Returns ``(value, mask)``.
    """
    for calls, group in itertools.groupby(placed, lambda p: p.callback is not None):
        stages = list(group)

        def one(value: Tree, mask: Any, rows: Any, stages: Any = stages) -> Any:
            for p in stages:
                value, mask = p.run(value, mask, origin._replace(rows=rows))
            return value, mask

        if calls:
            for p in stages:
                value = called(built, p.callback, value, mask, p.batched)
        else:
            value, mask = (jax.vmap(one) if rows else one)(value, mask, origin.rows)
    if built.split is not None and any(p.changes_mask for p in placed):
        mask = constrained(built.split.rows_sharding, mask)
    return value, mask


def called(
    built: Built,
    callback: HostCallbackTransform | None,
    value: Tree,
    mask: Any,
    batched: bool,
) -> Tree:
    """Traces a callback. ``last_error`` keeps an exception that it raises."""
    assert callback is not None
    owner = weakref.ref(built)  # compiled programs keep the function alive

    def run(value: Tree, mask: Any, batched: bool) -> Tree:
        try:
            return callback.run(value, mask, batched)
        except BaseException as error:
            built = owner()
            if built is not None:
                built.keep_error(error)
            raise

    value = callback.through(run, value, mask, batched)
    if built.split is not None:  # the callback returns whole batches
        value = constrained(built.split.rows_sharding, value)
    return value


def masked(x: Any, mask: Any) -> Any:
    """Returns ``x`` with zeros where the mask is False."""
    wide = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    return jnp.where(wide, x, jnp.zeros((), x.dtype))
