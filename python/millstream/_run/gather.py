"""Gathers batches in XLA from arrays on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream._core.description import Tree
from millstream._delivery import jit
from millstream._order import jnp_orders
from millstream._run.keys import Origin
from millstream._run.state import CHECK, EPOCH, STEP_HIGH, STEP_LOW
from millstream._run.tracing import masked, run_stages

if TYPE_CHECKING:
    from millstream._run.built import BuiltPipeline


def gathered(
    built: BuiltPipeline, words: Any, arrays: list[Any]
) -> tuple[Tree, Any, Origin, Any]:
    """Traces one batch: ``(value, mask, origin, words)``, the same as from the engine.

    XLA gathers the samples, runs the native stages and pads the batch.
    """
    (indices, *epochs), mask, after = _indices(built, words)
    origin = built.origin(words, [*epochs, indices])
    leaves = [jnp.take(x, indices, axis=0, mode="clip") for x in arrays]
    _, tree, _ = built.head.native()
    value = jax.tree.map(lambda position: leaves[position], tree)
    earlier = [p for p in built.placed if p.native]
    samples = [p for p in earlier if not p.batched]
    value, _ = run_stages(built, samples, value, mask, origin, rows=True)
    value = jax.tree.map(lambda x: masked(x, mask), value)
    batches = [p for p in earlier if p.batched]
    value, _ = run_stages(built, batches, value, mask, origin, rows=False)
    if not built.batched:
        taken = jax.tree.map(lambda x: x[0], (value, mask, origin.rows))
        value, mask, rows = taken
        origin = origin._replace(rows=rows)
    return value, mask, origin, after


def _indices(built: BuiltPipeline, words: Any) -> tuple[list[Any], Any, Any]:
    """Traces the sample indices and the mask of a batch, and the next words.

    The epochs of the rows follow the indices if a stage needs them.
    """
    n = built.head.num_samples
    order = built.head.order.traced(n)
    length = built.head.order.length(n)
    if order is None or (built.policy == "wrap" and length % built.batch_size):
        return jit.native_indices(built, words)
    indices, mask = jnp_orders.batch_indices(order, length, built.batch_size, words)
    # A program cannot raise. If the state is not valid for this pipeline, all rows
    # become padding.
    mask &= words[CHECK] == np.uint32(built.plan.check_word)
    mask &= (words[STEP_LOW] < np.uint32(built.steps)) & (words[STEP_HIGH] == 0)
    lists = [indices]
    if built.keys_samples:
        lists.append(jnp.broadcast_to(words[EPOCH], indices.shape))
    return lists, mask, jnp_orders.next_words(words, built.steps)
