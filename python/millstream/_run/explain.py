"""The plan of a pipeline as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from millstream._delivery.jit import dtype_named
from millstream._stages.batch import BatchTransform
from millstream._stages.device_put import DevicePutTransform
from millstream._stages.map import HostCallbackTransform
from millstream._stages.stage import WorkerStage

if TYPE_CHECKING:
    from millstream._run.built import Placed, Program


def explained(program: Program) -> str:
    """Each stage, where it runs, and what leaves it."""
    head = program.head
    where = "XLA" if program.traced else "native"
    sample = _sample_spec(program)
    rows = [
        ("stage", "runs in", "gives"),
        (f"order: {head.order}", where, f"{head.num_samples} samples"),
        (type(head).__name__, where, _described(sample)),
    ]
    for placed, value in specs_after(program):
        stage = placed.stage
        runs = where if placed.native else "XLA"
        if isinstance(stage, HostCallbackTransform):
            runs = "Python"
        elif isinstance(stage, WorkerStage):
            runs = "Python workers"
        rows.append((_named(stage), runs, _described(value)))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    engine = program.engine
    lines.append(
        f"{program.steps} steps an epoch, {engine.batch_bytes} bytes a batch; "
        f"at most {engine.threads} threads, {engine.prefetch} batches ahead"
    )
    return "\n".join(lines)


def specs_after(program: Program) -> Iterator[tuple[Placed, Any]]:
    """Each stage, and what leaves it."""
    value: Any = _sample_spec(program)
    mask: Any = jax.ShapeDtypeStruct((), bool)
    for placed in program.placed:
        value, mask = _after(placed, value, mask)
        yield placed, value


def _sample_spec(program: Program) -> Any:
    source, tree, _ = program.head.native()
    fields = [
        jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype_named(dtype)))
        for _, dtype, shape in source.schema
    ]
    return jax.tree.map(lambda position: fields[position], tree)


def _after(placed: Placed, value: Any, mask: Any) -> tuple[Any, Any]:
    stage = placed.stage
    if isinstance(stage, BatchTransform):

        def batched(x: Any) -> Any:
            return jax.ShapeDtypeStruct((stage.batch_size, *x.shape), x.dtype)

        return jax.tree.map(batched, (value, mask))

    if placed.spec is not None:
        lead = mask.shape  # the rows of a batch, or nothing
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), placed.spec
        ), mask

    def run(value: Any, mask: Any) -> Any:
        return stage.trace(value, mask, placed.batched)

    return jax.eval_shape(run, value, mask), mask


def _named(stage: Any) -> str:
    if isinstance(stage, BatchTransform):
        return f"BatchTransform({stage.batch_size}, {stage.remainder})"
    if isinstance(stage, DevicePutTransform) and stage.sharding is not None:
        return f"DevicePutTransform({stage.sharding.spec})"
    return type(stage).__name__


def _described(spec: Any) -> str:
    leaves = jax.tree_util.tree_flatten_with_path(spec)[0]
    parts = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        shape = ", ".join(str(extent) for extent in leaf.shape)
        parts.append(f"{name + ': ' if name else ''}{leaf.dtype}[{shape}]")
    return ", ".join(parts)
