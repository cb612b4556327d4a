"""Describes a pipeline as a table."""

from __future__ import annotations

import functools
import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from millstream import _engine
from millstream._delivery.jit import STATE_SPEC, dtype_named
from millstream._order.orders import SplitRange
from millstream._run.iterable import IterablePipeline
from millstream._run.keys import Origin
from millstream._run.stream import StreamPipeline
from millstream._sources.arrays import ArraySampleSource
from millstream._workers.pools import UsesWorkers

if TYPE_CHECKING:
    from millstream._order.orders import Order
    from millstream._run.builder import Placed
    from millstream._run.built import BuiltPipeline
    from millstream._run.stats import Stats
    from millstream._run.stream import Built


def explained(built: Built, stats: Stats) -> str:
    """Returns a table of the stages, where they run and what they output."""
    rows = _rows(built)
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, *_summary(built, stats)])


def explained_in_html(built: Built, stats: Stats) -> str:
    """Returns the same as HTML."""
    header, *rows = [
        [html.escape(cell, quote=False) for cell in row] for row in _rows(built)
    ]
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows
    )
    summary = "<br>".join(html.escape(line) for line in _summary(built, stats))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{summary}</p>"
    )


def _rows(built: Built) -> list[tuple[str, str, str]]:
    """Returns the cells of the table: the stage, where it runs and what it outputs."""
    if isinstance(built, StreamPipeline):
        return _stream_rows(built)
    if isinstance(built, IterablePipeline):
        return _iterable_rows(built)
    head = built.head
    where = "XLA" if built.traced else "native"
    sample = _described(_sample_spec(built), head.host_field_names)
    order, label = head.order, f"order: {head.order}"
    if isinstance(order, SplitRange):
        label = f"order: {order.inner} of a part of {head.num_samples} samples"
    rows = [
        ("stage", "runs in", "gives"),
        (label, where, _count(order, head.num_samples)),
        (type(head).__name__, _where_source_runs(head) or where, sample),
    ]
    for placed, value, _ in specs_after(built):
        runs = where if placed.runs == "native" else placed.runs
        rows.append((placed.label, runs, _described(value, placed.host_fields)))
    return rows


def _stream_rows(built: StreamPipeline) -> list[tuple[str, str, str]]:
    if built.inner is None:
        name, what = type(built.head).__name__, _described(built.source_element, ())
        rows = [("stage", "runs in", "gives"), (f"{name}, a stream", "XLA", what)]
    else:
        rows = _rows(built.inner)
    placed = built.placed
    return rows + [(p.label, p.runs, _described(p.element, ())) for p in placed]


def _iterable_rows(built: IterablePipeline) -> list[tuple[str, str, str]]:
    thread = "one thread" if built.prefetch else "the thread of the loop"
    sample = _described(_sample_spec(built), ())
    rows = [
        ("stage", "runs in", "gives"),
        ("IterableSource", f"Python, {thread}", sample),
    ]
    for placed, value, _ in specs_after(built):
        runs = placed.runs
        if runs == "native" and placed in built.later:
            runs = "XLA"
        rows.append((placed.label, runs, _described(value, ())))
    return rows


def _iterable_summary(built: IterablePipeline) -> list[str]:
    how = built.resumes or (
        "through state_dict() or get_state() of the iterable, or else by skipping "
        "samples; known after the first batch"
    )
    steps = "an epoch ends when the iterator does"
    if built.steps:
        steps = f"{_steps_text(built.steps)} an epoch"
    return [
        f"{steps}, {built.rows.bytes} bytes a batch; {built.prefetch} batches ahead",
        f"resumes {how}",
        "the same state gives the same batch only if the iterable yields the same "
        "samples again",
    ]


def _steps_text(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _summary(built: Built, stats: Stats) -> list[str]:
    """Returns the lines below the table."""
    steps = _steps_text(built.steps)
    if isinstance(built, IterablePipeline):
        lines = _iterable_summary(built)
    elif isinstance(built, StreamPipeline):
        size = built.sample_bytes * built.batch_size
        state = sum(
            x.size * x.dtype.itemsize for x in jax.tree.leaves(built.node.state)
        )
        lines = [f"{steps} an epoch, {size} bytes a batch, {state} bytes a state"]
    else:
        engine = built.engine
        lines = [
            f"{steps} an epoch, {engine.batch_bytes} bytes a batch; "
            f"at most {engine.threads} threads, {engine.prefetch} batches ahead",
            *_packing_advice(built),
        ]
        if built.head.origin is not None:
            lines.insert(0, f"the data set is {built.head.origin}")
    if stats.samples or stats.measured_steps:
        lines.append(str(stats))
    return lines


# Packing was measured with these numbers of float32 columns and 10 M rows, shuffled.
_PACKED_SPEEDUPS = {20: 4, 8: 3}
_FEWEST_BYTES = 64 << 20
"""Smaller tables fit into the caches of many CPUs."""


def _packing_advice(built: BuiltPipeline) -> list[str]:
    """Returns a line if ``pack=True`` would make a source of arrays faster."""
    if built.traced or not isinstance(built.head, ArraySampleSource):
        return []
    columns, size = built.head.native()[0].packable
    speedups = [s for least, s in _PACKED_SPEEDUPS.items() if columns >= least]
    if not speedups or size < _FEWEST_BYTES:
        return []
    return [
        f"gathers {columns} columns one by one; pack=True copies {size // 10**6} MB "
        f"once and is about {speedups[0]} times as fast"
    ]


def _count(order: Order, n: int) -> str:
    """Returns the number of samples, and how many an epoch has if it differs."""
    count = order.count if isinstance(order, SplitRange) else n
    length = order.length(n)
    return f"{count} samples" + (f", {length} an epoch" if length != count else "")


def _where_source_runs(source: Any) -> str:
    """Returns "Python, 2 worker threads" for a Python source, and "" for others."""
    if isinstance(source, UsesWorkers):
        return source.workers_text
    parts = [_where_source_runs(part) for part in getattr(source, "_components", ())]
    return "; ".join(dict.fromkeys(part for part in parts if part))


def specs_after(built: BuiltPipeline) -> Iterator[tuple[Placed, Any, Any]]:
    """Yields each stage with the specs of its output and of the mask after it.

    The engine knows the specs of native stages. JAX traces the others.
    """
    transforms = [t for placed in built.placed for t in placed.transforms]
    source, _, _ = built.head.native()
    schemas = iter(_engine.schemas_after(source, transforms))
    fields: Any = source.schema
    value: Any = _sample_spec(built)
    mask: Any = jax.ShapeDtypeStruct((), bool)
    word = jax.ShapeDtypeStruct((), np.uint32)
    origin = Origin(STATE_SPEC, (word, word))
    for placed in built.placed:
        if placed.batched and not mask.shape:  # the stage that batches
            mask = jax.ShapeDtypeStruct((built.batch_size,), bool)
            value = jax.tree.map(functools.partial(_with_rows, mask), value)
        elif placed.native:
            for _ in placed.transforms:
                fields = next(schemas)
            value = _spec(mask, fields, placed.tree)
        else:
            value, mask = jax.eval_shape(placed.run, value, mask, origin)
        yield placed, value, mask


def _sample_spec(built: BuiltPipeline) -> Any:
    source, tree, _ = built.head.native()
    return _spec(jax.ShapeDtypeStruct((), bool), source.schema, tree)


def _spec(mask: Any, schema: list[Any], tree: Any) -> Any:
    """Returns the spec of the engine's fields, with the leading shape of ``mask``."""
    fields = [
        jax.ShapeDtypeStruct(
            (*mask.shape, *shape), jax.dtypes.canonicalize_dtype(dtype_named(dtype))
        )
        for _, dtype, shape in schema
    ]
    return jax.tree.map(lambda position: fields[position], tree)


def _with_rows(mask: Any, x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*mask.shape, *x.shape), x.dtype)


def _described(spec: Any, host_fields: tuple[str, ...]) -> str:
    leaves = jax.tree_util.tree_flatten_with_path(spec)[0]
    parts = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        shape = ", ".join(str(extent) for extent in leaf.shape)
        parts.append(f"{name + ': ' if name else ''}{leaf.dtype}[{shape}]")
    return ", ".join([*parts, *(f"{key}: host field" for key in host_fields)])
