"""Streams around streams: the stages of a pipeline whose source is a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from millstream._core.description import Tree
from millstream._run.keys import Origin
from millstream._run.state import WORDS

if TYPE_CHECKING:
    from millstream._run.built import BuiltPipeline
    from millstream._sources.streams import Stream

Run = Callable[[Tree, Any, Origin], tuple[Tree, Any]]
"""A stage: ``(value, mask, origin) -> (value, mask)``."""


def strong(tree: Tree) -> Tree:
    """Returns a pytree of arrays without weak types, which would compile twice."""

    def one(x: Any) -> Any:
        x = jnp.asarray(x)
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return x
        return lax.convert_element_type(x, x.dtype)

    return jax.tree.map(one, tree)


def specs(tree: Tree) -> Tree:
    """Returns the specs of a pytree, without weak types."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def check_same(found: Tree, expected: Tree, what: str, advice: str) -> None:
    """Raises ``TypeError`` that names the first leaf that differs."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(found)
    wanted, its_structure = jax.tree_util.tree_flatten_with_path(expected)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    others = [jax.tree_util.keystr(path) for path, _ in wanted]
    if structure != its_structure:  # type: ignore[operator]
        extra = [name for name in names if name not in others]
        missing = [name for name in others if name not in names]
        differs = [f"{name} is new" for name in extra]
        differs += [f"{name} is missing" for name in missing]
        listed = "; ".join(differs) or f"expected {its_structure}, found {structure}"
        raise TypeError(f"{what} has another structure: {listed}. {advice}")
    for name, (_, a), (_, b) in zip(names, leaves, wanted, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise TypeError(
                f"{what}: expected {b.dtype}{list(b.shape)} for "
                f"{name or 'the value'}, found {a.dtype}{list(a.shape)}. {advice}"
            )


class Node:
    """A stream that is a part of a pipeline."""

    steps_per_epoch: int
    element: Tree
    """The spec of a value."""
    mask: Any
    """The spec of a mask."""
    state: Tree
    """The spec of a complete state, or None if it is not known."""

    def init_state(self, key: Any) -> Any:
        raise NotImplementedError

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        raise NotImplementedError

    def many(self, state: Any, count: int) -> tuple[Tree, Any, Any]:
        """Returns ``(values, masks, state)`` of ``count`` values, stacked."""

        def step(state: Any, _: None) -> tuple[Any, tuple[Tree, Any]]:
            value, mask, state = self.next(state)
            return state, (value, mask)

        state, (values, masks) = lax.scan(step, state, None, length=count)
        return values, masks, state

    def check_state(self, state: Any) -> None:
        """Raises ``ValueError`` for a state that cannot be used."""


KEY = jax.ShapeDtypeStruct((2,), np.uint32)


def _is_none(x: Any) -> bool:
    return x is None


def _check_keys(state: Tree, name: str) -> None:
    """Raises ``TypeError`` for typed keys, which cannot be saved."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise TypeError(
                f"the state of {name} has a typed key at "
                f"{jax.tree_util.keystr(path) or 'its only leaf'}, which cannot be "
                "saved. Store jax.random.key_data(key)."
            )


class Head(Node):
    """The stream at the head of a pipeline. Checks what it returns."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = type(stream).__name__
        steps = stream.steps_per_epoch
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer):
            raise TypeError(
                f"{self.name}: steps_per_epoch must be an int, not {steps!r}"
            )
        if steps < 1:
            raise ValueError(
                f"{self.name}: steps_per_epoch must be positive, not {steps}"
            )
        self.steps_per_epoch = int(steps)
        self._many = getattr(stream, "next_many", None)
        self._check = getattr(stream, "check_state", None)
        self.element = specs(stream.element_spec())
        self.mask = jax.ShapeDtypeStruct((), np.bool_)
        complete = getattr(stream, "state_spec", None)
        first = jax.eval_shape(self.init_state, KEY) if complete is None else complete()
        self.state = specs(first)
        if complete is None and None in jax.tree.leaves(first, is_leaf=_is_none):
            self.state = None  # the missing parts are set later
            return
        result = jax.eval_shape(self._raw, self.state)
        value, mask, state = self._checked(result)
        _check_keys(self.state, self.name)
        if not hasattr(mask, "dtype") or mask.dtype != np.bool_:
            found = getattr(mask, "dtype", type(mask).__name__)
            raise TypeError(
                f"{self.name}.next must return (value, mask, state), where the mask is "
                f"a boolean; found {found} as the mask"
            )
        advice = "Return a state of the same structure, shapes and dtypes."
        check_same(specs(state), self.state, f"the state from {self.name}.next", advice)
        advice = "Let element_spec() describe the values of next()."
        check_same(specs(value), self.element, f"the value of {self.name}.next", advice)
        self.mask = specs(mask)
        if self._many is not None:
            self._check_many(self._many)

    def _checked(self, result: Any, method: str = "next") -> tuple[Tree, Any, Any]:
        if not isinstance(result, tuple | list) or len(result) != 3:
            found = type(result).__name__
            if isinstance(result, tuple | list):
                found = f"a {found} of {len(result)} values"
            raise TypeError(
                f"{self.name}.{method} must return (value, mask, state), found {found}"
            )
        return result[0], result[1], result[2]

    def _check_many(self, many: Any) -> None:
        """Raises ``TypeError`` unless ``next_many`` returns stacked values."""
        result = jax.eval_shape(lambda state: many(state, 3), self.state)
        stacked = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((3, *x.shape), x.dtype),
            (self.element, self.mask),
        )
        check_same(
            specs(self._checked(result, "next_many")),
            (*stacked, self.state),
            f"the result of {self.name}.next_many(state, 3)",
            "Return (values, masks, state), with the rows on a leading axis.",
        )

    def _raw(self, state: Any) -> Any:
        return self.stream.next(state)

    def init_state(self, key: Any) -> Any:
        return strong(self.stream.init_state(key))

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        value, mask, state = self._checked(self.stream.next(state))
        return strong(value), jnp.asarray(mask, bool), strong(state)

    def many(self, state: Any, count: int) -> tuple[Tree, Any, Any]:
        if self._many is None:
            return super().many(state, count)
        value, mask, state = self._checked(self._many(state, count), "next_many")
        return strong(value), jnp.asarray(mask, bool), strong(state)

    def check_state(self, state: Any) -> None:
        if self._check is not None:
            self._check(state)


class NativeNode(Node):
    """A pipeline of the engine as a stream. Its state is eight words."""

    def __init__(self, built: BuiltPipeline) -> None:
        built.check_traceable()
        if built.host_fields:
            raise TypeError(
                f"samples with the host fields {list(built.host_fields)} cannot be "
                "stored in a buffer, because host fields cannot be inside jit"
            )
        self.built = built
        self.steps_per_epoch = built.steps
        self.state = jax.ShapeDtypeStruct((WORDS,), np.uint32)
        value, mask, _ = jax.eval_shape(self.next, self.state)
        self.element, self.mask = specs((value, mask))

    def init_state(self, key: Any) -> Any:
        return jnp.asarray(self.built.init_state(key).words)

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        return self.built.step(state, self.built.arrays())


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class MapState:
    """The state of a stage that takes a key."""

    inner_state: Any
    key: Any
    epoch: Any
    position_in_epoch: Any


class Mapped(Node):
    """A stream whose values and masks are mapped by a stage without a state."""

    def __init__(self, inner: Node, run: Run) -> None:
        self.inner = inner
        self.run = run
        self.steps_per_epoch = inner.steps_per_epoch
        self.state = inner.state
        self.element, self.mask = specs(
            jax.eval_shape(run, inner.element, inner.mask, Origin())
        )

    def init_state(self, key: Any) -> Any:
        return self.inner.init_state(key)

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        value, mask, state = self.inner.next(state)
        return *self.run(value, mask, Origin()), state

    def many(self, state: Any, count: int) -> tuple[Tree, Any, Any]:
        values, masks, state = self.inner.many(state, count)
        run = jax.vmap(lambda value, mask: self.run(value, mask, Origin()))
        return *run(values, masks), state

    def check_state(self, state: Any) -> None:
        self.inner.check_state(state)


class Called(Node):
    """A stream whose values are passed to a function of Python."""

    def __init__(self, inner: Node, call: Callable[[Tree, Any], Tree]) -> None:
        self.inner, self.call = inner, call
        self.steps_per_epoch = inner.steps_per_epoch
        self.state, self.mask = inner.state, inner.mask
        self.element = specs(jax.eval_shape(call, inner.element, inner.mask))

    def init_state(self, key: Any) -> Any:
        return self.inner.init_state(key)

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        value, mask, state = self.inner.next(state)
        return self.call(value, mask), mask, state

    def many(self, state: Any, count: int) -> tuple[Tree, Any, Any]:
        values, masks, state = self.inner.many(state, count)
        return self.call(values, masks), masks, state

    def check_state(self, state: Any) -> None:
        self.inner.check_state(state)


class Keyed(Node):
    """A stream that is mapped by a stage with a key.

    The key of a value depends on the epoch of ``inner`` and the position in it.
    """

    def __init__(self, inner: Node, run: Run, batched: bool) -> None:
        self.inner, self.run, self.batched = inner, run, batched
        self.steps_per_epoch = inner.steps_per_epoch
        word = jax.ShapeDtypeStruct((), np.uint32)
        complete = inner.state is not None
        self.state = MapState(inner.state, KEY, word, word) if complete else None
        words = jax.ShapeDtypeStruct((WORDS,), np.uint32)
        self.element, self.mask = specs(
            jax.eval_shape(run, inner.element, inner.mask, Origin(words, (word, word)))
        )

    def init_state(self, key: Any) -> Any:
        zero = jnp.zeros((), np.uint32)
        return MapState(self.inner.init_state(key), jnp.asarray(key), zero, zero)

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        value, mask, inner_state = self.inner.next(state.inner_state)
        epoch, step = state.epoch, state.position_in_epoch
        zero = jnp.zeros((), np.uint32)
        words = jnp.stack([zero, *state.key, epoch, step, zero, zero, zero])
        value, mask = self.run(value, mask, Origin(words, (epoch, step)))
        ended = step + 1 >= self.steps_per_epoch
        after = MapState(
            inner_state,
            state.key,
            epoch + ended.astype(np.uint32),
            jnp.where(ended, zero, step + 1),
        )
        return value, mask, after

    def check_state(self, state: Any) -> None:
        self.inner.check_state(state.inner_state)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class BatchState:
    """The state of ``BatchTransform`` after a stream."""

    inner_state: Any
    position_in_epoch: Any


class Batched(Node):
    """Batches of a stream. ``remainder`` is "pad", "drop" or "wrap"."""

    def __init__(
        self, inner: Node, size: int, remainder: str, *, one_mask: bool = False
    ) -> None:
        self.inner, self.size, self.remainder = inner, size, remainder
        self._one_mask = one_mask
        self._samples = inner.steps_per_epoch
        if remainder == "drop" and self._samples < size:
            raise ValueError(
                f"BatchTransform: drop_last drops every batch, because an epoch has "
                f"{self._samples} samples and a batch {size}. Use smaller batches."
            )
        full, rest = divmod(self._samples, size)
        self.steps_per_epoch = full + (rest > 0 and remainder != "drop")
        self._exact = rest == 0 or remainder == "wrap"
        position, complete = jax.ShapeDtypeStruct((), np.int32), inner.state is not None
        self.state = BatchState(inner.state, position) if complete else None
        self.element, mask = jax.tree.map(self._rows, (inner.element, inner.mask))
        self.mask = self._rows(jax.ShapeDtypeStruct((), np.bool_)) if one_mask else mask

    def _rows(self, x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.size, *x.shape), x.dtype)

    def init_state(self, key: Any) -> Any:
        return BatchState(self.inner.init_state(key), jnp.zeros((), np.int32))

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        inner_state, position = state.inner_state, state.position_in_epoch
        if self.remainder == "drop" and not self._exact:
            inner_state, position = self._skip_rest(inner_state, position)
        if self._exact or self.remainder == "drop":
            values, masks, inner_state = self.inner.many(inner_state, self.size)
            position = (position + self.size) % self._samples
        else:
            values, masks, inner_state = self._padded(inner_state, position)
            taken = jnp.minimum(self.size, self._samples - position)
            position = (position + taken) % self._samples
        if self._one_mask and masks.ndim > 1:
            masks = jnp.all(masks, axis=tuple(range(1, masks.ndim)))
        return values, masks, BatchState(inner_state, position)

    def _skip_rest(self, inner_state: Any, position: Any) -> tuple[Any, Any]:
        """Runs the stream to the end of its epoch if no whole batch is left.

        It does so before the first batch of an epoch and not after the last one, so
        that a policy that is set in between is used.
        """
        left = self._samples - position
        rest = jnp.where(left < self.size, left, 0)
        # A loop and not a branch: XLA would copy a buffer in the state for a branch.
        inner_state = lax.fori_loop(
            0, rest, lambda _, state: self.inner.next(state)[2], inner_state
        )
        return inner_state, jnp.where(rest > 0, 0, position)

    def _padded(self, inner_state: Any, position: Any) -> tuple[Tree, Any, Any]:
        """Takes the values that are left in the epoch. Other rows are zero."""

        def rows(spec: Any) -> Any:
            return jnp.zeros((self.size, *spec.shape), spec.dtype)

        def step(k: Any, carried: Any) -> Any:
            state, values, masks = carried
            value, mask, state = self.inner.next(state)

            def put(all_rows: Any, row: Any) -> Any:
                return lax.dynamic_update_index_in_dim(all_rows, row, k, 0)

            return state, jax.tree.map(put, values, value), put(masks, mask)

        count = jnp.minimum(self.size, self._samples - position)
        empty = jax.tree.map(rows, (self.inner.element, self.inner.mask))
        inner_state, values, masks = lax.fori_loop(
            0, count, step, (inner_state, *empty)
        )
        return values, masks, inner_state

    def check_state(self, state: Any) -> None:
        self.inner.check_state(state.inner_state)
