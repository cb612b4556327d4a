"""Describes a pipeline as a table."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from millstream import _engine
from millstream._delivery.jit import dtype_named

if TYPE_CHECKING:
    from millstream._run.builder import Placed
    from millstream._run.built import BuiltPipeline


def explained(built: BuiltPipeline) -> str:
    """Returns a table of the stages, where they run and what they output."""
    head = built.head
    where = "XLA" if built.traced else "native"
    sample = _sample_spec(built)
    rows = [
        ("stage", "runs in", "gives"),
        (f"order: {head.order}", where, f"{head.num_samples} samples"),
        (type(head).__name__, where, _described(sample)),
    ]
    for placed, value in specs_after(built):
        runs = where if placed.runs == "native" else placed.runs
        rows.append((placed.label, runs, _described(value)))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    engine = built.engine
    lines.append(
        f"{built.steps} steps an epoch, {engine.batch_bytes} bytes a batch; "
        f"at most {engine.threads} threads, {engine.prefetch} batches ahead"
    )
    return "\n".join(lines)


def specs_after(built: BuiltPipeline) -> Iterator[tuple[Placed, Any]]:
    """Yields each stage with the spec of its output.

    The engine knows the specs of native stages. JAX traces the others.
    """
    transforms = [t for placed in built.placed for t in placed.transforms]
    source, _, _ = built.head.native()
    schemas = iter(_engine.schemas_after(source, transforms))
    fields: Any = source.schema
    value: Any = _sample_spec(built)
    mask: Any = jax.ShapeDtypeStruct((), bool)
    for placed in built.placed:
        if placed.batched and not mask.shape:  # the stage that batches
            mask = jax.ShapeDtypeStruct((built.batch_size,), bool)
            value = jax.tree.map(functools.partial(_with_rows, mask), value)
        elif placed.native:
            for _ in placed.transforms:
                fields = next(schemas)
            value = _spec(mask, fields, placed.tree)
        else:
            value = jax.eval_shape(functools.partial(_traced, placed), value, mask)
        yield placed, value


def _traced(placed: Placed, value: Any, mask: Any) -> Any:
    assert placed.trace is not None  # the engine runs stages without a trace
    return placed.trace(value, mask, placed.batched)


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


def _described(spec: Any) -> str:
    leaves = jax.tree_util.tree_flatten_with_path(spec)[0]
    parts = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        shape = ", ".join(str(extent) for extent in leaf.shape)
        parts.append(f"{name + ': ' if name else ''}{leaf.dtype}[{shape}]")
    return ", ".join(parts)
