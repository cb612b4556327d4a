"""The stage that keeps values of a stream in a replay buffer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from millstream._core import threefry
from millstream._core.arguments import whole
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._run.stream_nodes import KEY, Node
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._run.stream_builder import StreamBuilder

_MODES = ("sequential", "shuffled")
_WRITE_MODES = ("fifo", "reservoir")

# The counter ``seen`` stops here. Far beyond it, a reservoir writes almost nothing.
_MAX_SEEN = (1 << 31) - 1


@public
@dataclass(frozen=True, eq=False)
class BufferTransform(Stage):
    """Stores values in a buffer and delivers stored values, as for experience replay.

    It may follow a stream or any other source. Each step stores one value if its mask
    is True. A value with several masks, such as one of many environments, is stored if
    all of them are True. Once ``prefill`` values are stored, each step
    delivers ``sample_size`` stored values with a leading axis, or one value without it
    if ``sample_size`` is 1. Before that, it delivers the value that was just made,
    followed by zeros whose mask is False.

    The buffer is a part of the loader's state. Programs update it in place if they own
    the state: Python loops, ``scan_epoch``, and ``jax.jit(loader.next_batch,
    donate_argnums=0)``.

    Args:
      capacity: How many values to store.
      prefill: How many values must be stored before stored values are delivered.
      sample_size: How many values to deliver in each step.
      mode: "sequential" reads the buffer in a circle. "shuffled" draws values at random
        with replacement.
      write_mode: What to overwrite if the buffer is full. "fifo" replaces the oldest
        value. "reservoir" keeps a random sample of all values. It counts up to 2^31 - 1
        values; beyond that, each value is stored with the same probability.
    """

    capacity: int
    prefill: int
    sample_size: int = 1
    mode: str = "sequential"
    write_mode: str = "fifo"

    stateful: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("capacity", "prefill", "sample_size"):
            count = whole(f"BufferTransform: {name}", getattr(self, name), 1, 1 << 31)
            object.__setattr__(self, name, count)
        for name, least in (("prefill", "capacity"), ("sample_size", "capacity")):
            if getattr(self, name) > getattr(self, least):
                raise ValueError(
                    f"BufferTransform: {name} must be at most {least}, found "
                    f"{name}={getattr(self, name)} and {least}={self.capacity}"
                )
        if self.prefill < self.sample_size:
            raise ValueError(
                "BufferTransform: prefill must be at least sample_size, found "
                f"prefill={self.prefill} and sample_size={self.sample_size}"
            )
        for name, known in (("mode", _MODES), ("write_mode", _WRITE_MODES)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"BufferTransform: {name} must be one of {known}, not "
                    f"{getattr(self, name)!r}"
                )

    def place(self, builder: Any) -> None:
        stream_builder: StreamBuilder = builder
        label = f"BufferTransform({self.capacity}, {self.mode}, {self.write_mode})"
        stream_builder.add_node(Buffered(stream_builder.node, self), label)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class BufferState:
    """The state of a ``BufferTransform``."""

    inner_state: Any
    buffer: Tree
    """The stored values, with a leading axis of ``capacity`` rows."""
    count: Any
    """How many rows hold a value."""
    write_index: Any
    read_index: Any
    seen: Any
    """How many values were offered to the buffer, up to 2^31 - 1."""
    rng: Any


class Buffered(Node):
    """A stream of stored values of another stream."""

    def __init__(self, inner: Node, stage: BufferTransform) -> None:
        self.inner, self.stage = inner, stage
        self.steps_per_epoch = inner.steps_per_epoch
        if not jax.tree.leaves(inner.element):
            raise ValueError("BufferTransform needs values with at least one array")
        rows = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((stage.capacity, *x.shape), x.dtype),
            inner.element,
        )
        number = jax.ShapeDtypeStruct((), np.int32)
        numbers = (number, number, number, number)
        complete = inner.state is not None
        state = BufferState(inner.state, rows, *numbers, KEY)
        self.state, self._rows = state if complete else None, rows
        lead = () if stage.sample_size == 1 else (stage.sample_size,)
        self.element = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), inner.element
        )
        self.mask = jax.ShapeDtypeStruct(lead, np.bool_)

    def init_state(self, key: Any) -> BufferState:
        rows = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self._rows)
        zero = jnp.zeros((), np.int32)
        rng = threefry.fold_in(jnp.asarray(key), 1)
        inner_state = self.inner.init_state(key)
        return BufferState(inner_state, rows, zero, zero, zero, zero, rng)

    def next(self, state: BufferState) -> tuple[Tree, Any, BufferState]:
        stage = self.stage
        value, mask, inner_state = self.inner.next(state.inner_state)
        valid = jnp.all(mask)
        rng, write_key, sample_key = threefry.split(state.rng, 3)
        seen = jnp.where(state.seen < _MAX_SEEN, state.seen + valid, state.seen)
        row, wrote, write_index = self._target(state, valid, seen, write_key)
        buffer = self._written(state.buffer, value, row, wrote)
        count = jnp.minimum(state.count + wrote, stage.capacity)
        ready = state.count >= stage.prefill
        indices, read_index = self._chosen(state, count, sample_key)
        taken = jax.tree.map(lambda rows: jnp.take(rows, indices, axis=0), buffer)
        first = jnp.arange(stage.sample_size) == 0

        def delivered(stored: Any, live: Any) -> Any:
            shape = (-1, *[1] * live.ndim)
            early = jnp.where(first.reshape(shape), live, jnp.zeros((), live.dtype))
            return jnp.where(ready, stored, early)

        value = jax.tree.map(delivered, taken, value)
        masks = jnp.where(ready, True, first & valid)
        if stage.sample_size == 1:
            value, masks = jax.tree.map(lambda x: x[0], (value, masks))
        after = BufferState(
            inner_state,
            buffer,
            count,
            write_index,
            jnp.where(ready, read_index, state.read_index),
            seen,
            rng,
        )
        return value, masks, after

    def _target(
        self, state: BufferState, valid: Any, seen: Any, key: Any
    ) -> tuple[Any, Any, Any]:
        """Returns the row to write, whether to write it, and the next write index."""
        capacity = self.stage.capacity
        if self.stage.write_mode == "fifo":
            after = jnp.where(
                valid, (state.write_index + 1) % capacity, state.write_index
            )
            return state.write_index, valid, after
        full = state.count >= capacity
        drawn = threefry.randint(key, 1, jnp.maximum(seen, 1))[0]
        row = jnp.where(full, drawn, state.write_index)
        after = jnp.where(
            valid & ~full, (state.write_index + 1) % capacity, state.write_index
        )
        return row, valid & (row < capacity), after

    def _written(self, buffer: Tree, value: Tree, row: Any, wrote: Any) -> Tree:
        """Returns the buffer with another row. XLA does this in place."""
        row = jnp.clip(row, 0, self.stage.capacity - 1)

        def one(rows: Any, new: Any) -> Any:
            old = lax.dynamic_index_in_dim(rows, row, 0, keepdims=False)
            return lax.dynamic_update_index_in_dim(
                rows, jnp.where(wrote, new, old), row, 0
            )

        return jax.tree.map(one, buffer, value)

    def _chosen(self, state: BufferState, count: Any, key: Any) -> tuple[Any, Any]:
        """Returns the rows to deliver and the next read index."""
        size, stored = self.stage.sample_size, jnp.maximum(count, 1)
        if self.stage.mode == "shuffled":
            return threefry.randint(key, size, stored), state.read_index
        rows = (state.read_index + jnp.arange(size, dtype=np.int32)) % stored
        return rows, (state.read_index + size) % stored

    def check_state(self, state: Any) -> None:
        self.inner.check_state(state.inner_state)
