"""The door into jit: the engine's batches as results of a foreign function call."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream import _engine
from millstream._sharding import Split, over_shards
from millstream._state import WORDS

if TYPE_CHECKING:
    from millstream._program import Program

# What JAX raises where a compiled call fails. One that it dispatches in place, of a
# program that it has run before, comes as a ValueError with the status for its text.
FAILURES = (jax.errors.JaxRuntimeError, ValueError)

STATE_SPEC = jax.ShapeDtypeStruct((WORDS,), np.uint32)


def is_failure(error: Exception) -> bool:
    """Whether one of `FAILURES` is of a call, and not of what was traced."""
    if isinstance(error, jax.errors.JaxRuntimeError):
        return True
    return re.match(r"[A-Z_]+: ", str(error)) is not None


@functools.cache
def dtype_named(name: str) -> np.dtype[Any]:
    """NumPy's dtype of an engine name; bfloat16 is one that JAX brings."""
    return np.dtype(jnp.bfloat16) if name == "bfloat16" else np.dtype(name)


@functools.cache
def register() -> None:
    """Tells XLA of the handlers, once and not before they are needed."""
    for name, handler in _engine.handlers().items():
        jax.ffi.register_ffi_target(name, handler, platform="cpu")


@functools.cache
def _only_cpu() -> bool:
    """Whether this process has no device but CPUs, so that no other code is needed."""
    return all(device.platform == "cpu" for device in jax.devices())


def native_batch(program: Program, words: Any) -> tuple[list[Any], Any, Any]:
    """``(leaves, mask, words)`` from the engine, inside of jit.

    On the CPU XLA calls the engine; elsewhere it calls back to the host.
    """
    register()
    if program.split is not None:
        fields = len(program.leaf_specs())
        return over_shards(
            program.split, fields, functools.partial(_shard, program, program.split)
        )(words)
    if _only_cpu():
        return _foreign_call(program, words)
    return jax.lax.platform_dependent(
        words,
        cpu=functools.partial(_foreign_call, program),
        default=functools.partial(_host_call, program),
    )


def _shard(
    program: Program, split: Split, words: Any, number: Any
) -> tuple[list[Any], Any, Any]:
    """``(leaves, mask, words)`` of one shard, on the device that is to hold it."""
    if _only_cpu():
        return _foreign_shard(program, split, words, number)
    return jax.lax.platform_dependent(
        words,
        number,
        cpu=functools.partial(_foreign_shard, program, split),
        default=functools.partial(_host_shard, program, split),
    )


def _shard_results(program: Program, split: Split) -> list[jax.ShapeDtypeStruct]:
    *batch, after = _results(program)
    rows = (split.rows,)
    return [
        *(jax.ShapeDtypeStruct(rows + x.shape[1:], x.dtype) for x in batch),
        after,
    ]


def _foreign_shard(
    program: Program, split: Split, words: Any, number: Any
) -> tuple[list[Any], Any, Any]:
    name = "millstream_shard" if program.resident else "millstream_shard_later"
    results = _shard_results(program, split)
    call = jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")
    digest = np.uint64(program.plan.digest).astype(np.int64)
    *leaves, mask, after = call(
        words,
        number,
        plan=np.int64(program.engine.serial),
        digest=digest,
        rows=np.int64(split.rows),
    )
    return leaves, mask, after


def _host_shard(
    program: Program, split: Split, words: Any, number: Any
) -> tuple[list[Any], Any, Any]:
    specs = _shard_results(program, split)

    def fetch(words: Any, number: Any) -> list[np.ndarray]:
        known = np.asarray(words, np.uint32)
        first = int(number) * split.rows
        fields: Any = program.engine.take_shard(known, first, split.rows)
        return [*fields, program.plan.next_state(known)]

    *leaves, mask, after = jax.pure_callback(
        fetch, specs, words, number, vmap_method="sequential"
    )
    return leaves, mask, after


def _results(program: Program) -> list[jax.ShapeDtypeStruct]:
    return [*program.leaf_specs(), program.mask_spec(), STATE_SPEC]


def _foreign_call(program: Program, words: Any) -> tuple[list[Any], Any, Any]:
    name = "millstream_batch" if program.resident else "millstream_batch_later"
    call = jax.ffi.ffi_call(name, _results(program), vmap_method="broadcast_all")
    digest = np.uint64(program.plan.digest).astype(np.int64)
    *leaves, mask, after = call(
        words, plan=np.int64(program.engine.serial), digest=digest
    )
    return leaves, mask, after


def _host_call(program: Program, words: Any) -> tuple[list[Any], Any, Any]:
    specs = _results(program)

    def fetch(words: Any) -> list[np.ndarray]:
        known = np.asarray(words, np.uint32)
        fields = program.rows_of(program.engine.take(known))
        return [*fields, program.plan.next_state(known)]

    *leaves, mask, after = jax.pure_callback(
        fetch, specs, words, vmap_method="sequential"
    )
    return leaves, mask, after


@functools.cache
def shared_call(specs: tuple[tuple[tuple[int, ...], Any], ...], structure: Any) -> Any:
    """A jitted call for a Python loop: ``(words, number) -> (value, words)``.

    The loader's number is an argument, so all loaders of one shape share one program.
    """
    register()
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in specs]
    call = jax.ffi.ffi_call("millstream_host_batch", [*results, STATE_SPEC])

    def fetch(words: Any, number: Any) -> tuple[Any, Any]:
        *leaves, after = call(words, number)
        positions = jax.tree.unflatten(*structure)
        return jax.tree.map(lambda i: leaves[i], positions), after

    return jax.jit(fetch)
