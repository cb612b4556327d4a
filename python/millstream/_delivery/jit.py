"""Delivers batches inside jit, through XLA's foreign function interface."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from millstream import _engine
from millstream._delivery.sharding import Split, on_each_device, over_shards
from millstream._run.state import WORDS, check_x64

if TYPE_CHECKING:
    from millstream._run.built import BuiltPipeline

# The exceptions that JAX raises if a compiled call fails. It raises ValueError if it
# runs the program on the calling thread.
FAILURES = (jax.errors.JaxRuntimeError, ValueError)

STATE_SPEC = jax.ShapeDtypeStruct((WORDS,), np.uint32)


@functools.cache
def dtype_named(name: str) -> np.dtype[Any]:
    """Returns the NumPy dtype for a dtype name. bfloat16 comes from JAX."""
    return np.dtype(jnp.bfloat16) if name == "bfloat16" else np.dtype(name)


@functools.cache
def register() -> None:
    """Registers the engine's handlers with XLA. Only the first call does anything."""
    for name, handler in _engine.handlers().items():
        jax.ffi.register_ffi_target(name, handler, platform="cpu")


@functools.cache
def _only_cpu() -> bool:
    """Whether all devices are CPUs, so that programs need no code for others."""
    return all(device.platform == "cpu" for device in jax.devices())


def native_batch(
    built: BuiltPipeline, words: Any, consumed: bool = False
) -> tuple[list[Any], Any, Any]:
    """Returns ``(leaves, mask, words)`` of a batch of the engine, inside jit.

    ``consumed`` says that the program does not return the batch. Fields with an axis of
    length 1 then come from the engine without their inner axes and are reshaped,
    because XLA's CPU backend does not vectorize reductions over such an axis. A program
    that returned a reshaped field would copy it.
    """
    results = [*built.leaf_specs(), built.mask_spec(), STATE_SPEC]
    flatten = consumed and built.batched
    split = built.split
    if split is not None:
        shard = functools.partial(_shard, built, split, results, flatten)
        return over_shards(split, len(results) - 2, shard)(words)

    def fetch(words: np.ndarray) -> list[np.ndarray]:
        return built.rows_of(built.engine.take(words))

    return _call_engine(built, _target(built, "batch"), fetch, results, flatten, words)


def native_indices(built: BuiltPipeline, words: Any) -> tuple[list[Any], Any, Any]:
    """Returns ``([indices], mask, words)`` of a batch. The index of padding is 0.

    The epochs of the rows follow the indices if a stage needs them.
    """
    rows = (built.batch_size,)
    lists = 2 if built.keys_samples else 1
    results = [
        *[jax.ShapeDtypeStruct(rows, np.uint32)] * lists,
        jax.ShapeDtypeStruct(rows, np.bool_),
        STATE_SPEC,
    ]

    def fetch(words: np.ndarray) -> list[np.ndarray]:
        samples: Any = built.plan.indices(words)
        epochs: Any = built.plan.epochs(words)
        found = [np.maximum(samples, 0).astype(np.uint32), epochs]
        return [*found[:lists], samples >= 0]

    def on_device(words: Any) -> tuple[list[Any], Any, Any]:
        return _call_engine(built, "millstream_indices", fetch, results, False, words)

    if built.split is None:
        return on_device(words)
    return on_each_device(built.split, on_device, PartitionSpec())(words)


def _shard(
    built: BuiltPipeline,
    split: Split,
    whole: list[Any],
    flatten: bool,
    words: Any,
    number: Any,
) -> tuple[list[Any], Any, Any]:
    """Returns ``(leaves, mask, words)`` of one shard, on its own device."""

    def fetch(words: np.ndarray, number: Any) -> list[np.ndarray]:
        first = int(number) * split.rows
        return built.engine.take_shard(words, first, split.rows)

    *batch, after = whole
    results = [
        *(jax.ShapeDtypeStruct((split.rows, *x.shape[1:]), x.dtype) for x in batch),
        after,
    ]
    target, rows = _target(built, "shard"), np.int64(split.rows)
    return _call_engine(
        built, target, fetch, results, flatten, words, number, rows=rows
    )


def _target(built: BuiltPipeline, name: str) -> str:
    """Returns the name of the handler for batches or shards.

    The handler whose name ends in "_later" may return a future to XLA. It is used if
    the engine may have to wait for the batch, or if all shards share one result.
    """
    traits = built.engine.traits
    later = not traits.immediate or (traits.may_fail and built.split is not None)
    return f"millstream_{name}_later" if later else f"millstream_{name}"


def _call_engine(
    built: BuiltPipeline,
    target: str,
    fetch: Callable[..., list[np.ndarray]],
    results: list[jax.ShapeDtypeStruct],
    flatten: bool,
    *operands: Any,
    **attributes: Any,
) -> tuple[list[Any], Any, Any]:
    """Calls the engine inside jit and returns ``(leaves, mask, words)``.

    The first operand is the words of a state. ``results`` ends with the specs of the
    mask and the next words. On the CPU, XLA calls the engine directly. On other devices
    it calls ``fetch`` on the host, which returns the leaves and the mask. With
    ``flatten``, fields with an axis of length 1 are reshaped after the call.
    """
    register()
    called = [_flat(spec) for spec in results] if flatten else results

    def foreign(*operands: Any) -> Any:
        call = jax.ffi.ffi_call(target, called, vmap_method="broadcast_all")
        digest = np.uint64(built.plan.digest).astype(np.int64)
        plan = np.int64(built.engine.serial)
        return call(*operands, plan=plan, digest=digest, **attributes)

    def fetched(words: Any, *others: Any) -> list[np.ndarray]:
        state = np.asarray(words, np.uint32)
        arrays = [*fetch(state, *others), built.plan.next_state(state)]
        return [x.reshape(spec.shape) for x, spec in zip(arrays, called, strict=True)]

    def host(*operands: Any) -> Any:
        return jax.pure_callback(fetched, called, *operands, vmap_method="sequential")

    if _only_cpu():
        answer = foreign(*operands)
    else:
        answer = jax.lax.platform_dependent(*operands, cpu=foreign, default=host)
    if flatten:
        answer = [
            x.reshape(spec.shape) for x, spec in zip(answer, results, strict=True)
        ]
    *leaves, mask, after = answer
    return leaves, mask, after


def _flat(spec: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """Returns the spec of a field with one inner axis, if one of its axes has length 1.

    A field with one element per row has no inner axis.
    """
    rows, *inner = spec.shape
    if 1 not in inner:
        return spec
    size = math.prod(inner)
    return jax.ShapeDtypeStruct((rows, size) if size > 1 else (rows,), spec.dtype)


@functools.cache
def shared_call(
    specs: tuple[tuple[tuple[int, ...], Any], ...],
    structure: Any,
    positions: tuple[int, ...],
    x64: bool,
    steps: int,
) -> Any:
    """Returns a jitted function ``(words, number) -> ([(value, mask), ...], words)``.

    It makes ``steps`` batches. A Python loop calls it with the words of a state and the
    loader's serial number. All loaders whose batches have the same shapes share one
    compiled program.
    """
    register()
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in specs]
    call = jax.ffi.ffi_call("millstream_host_batches", [*results * steps, STATE_SPEC])

    def fetch(words: Any, number: Any) -> tuple[list[tuple[Any, Any]], Any]:
        check_x64(x64)
        *found, after = call(words, number)
        batches = []
        for first in range(0, len(found), len(specs)):
            *leaves, mask = found[first : first + len(specs)]
            value = structure.unflatten([leaves[i] for i in positions])
            batches.append((value, mask))
        return batches, after

    return jax.jit(fetch)
