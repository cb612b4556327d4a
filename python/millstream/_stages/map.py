"""Stages that call a function of the user: traced, or in Python at delivery."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap

from millstream._core.arguments import flag
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._stages.parameters import MappedFunction
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._run.builder import Builder

_OVERRIDE = (
    ". If fn changes the structure, shapes or dtypes, declare the result with "
    "element_spec_override, a pytree of jax.ShapeDtypeStruct"
)


@public
@dataclass(frozen=True, eq=False)
class MapTransform(Stage):
    """Maps values by ``fn(value, mask) -> value``, which JAX traces. It must be pure.

    After batching, ``fn`` receives a batch. Before batching, it receives one sample and
    is vmapped over the rows of a batch. With ``remainder="partial"`` the last batch may
    be shorter.

    ``fn(value, mask, key)`` and ``fn(value, key)`` also receive a typed JAX key. The
    key depends only on the seed, the epoch, the stage and the sample, or the step after
    batching. A parameter gets the key if it is called ``key`` and has no default. A
    parameter called ``mask`` then gets the mask, wherever it stands.

    Building the pipeline raises ``ValueError`` if a value does not match
    ``element_spec_override``, and ``TypeError`` if ``fn`` has other parameters without
    a default.
    """

    fn: Callable[..., Tree]
    element_spec_override: Tree = None

    def __post_init__(self) -> None:
        _check_callable(self, self.fn)

    def place(self, builder: Builder) -> None:
        keyed = MappedFunction(self.fn, builder.stage).keyed
        builder.add_traced(self.trace, keyed=keyed, expected=self.element_spec_override)

    def trace(self, value: Tree, mask: Any, batched: bool, key: Any = None) -> Tree:
        return MappedFunction(self.fn, type(self).__name__)(value, mask, key)


@public
@dataclass(frozen=True, eq=False)
class HostCallbackTransform(Stage):
    """Calls ``fn(value, mask)`` in Python with NumPy arrays at delivery.

    After batching, ``fn`` receives each delivered batch. Before batching, it receives
    one sample and a scalar mask, for each row of a delivered batch whose mask is True,
    in the order of the rows. Prefetching does not call it.

    What ``fn`` returns replaces the value. It must have the same structure, shapes and
    dtypes, or those of ``element_spec_override``. If ``fn`` returns None, the value
    stays as it is.

    Inside jit, XLA decides the order of the calls for different batches. With
    ``ordered`` they are called in the order of the batches. ``vmap`` and batches on
    several devices are then not possible.
    """

    fn: Callable[[Tree, np.ndarray], Tree | None]
    element_spec_override: Tree = None
    ordered: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_callable(self, self.fn)
        flag("HostCallbackTransform: ordered", self.ordered)

    def place(self, builder: Builder) -> None:
        builder.add_host_callback(self, expected=self.element_spec_override)

    def run(self, value: Tree, mask: Any, batched: bool) -> Tree:
        """Calls ``fn`` and returns the resulting batch as NumPy arrays.

        Unless ``batched``, it calls ``fn`` for each row whose mask is True, or for one
        sample if the mask is a scalar. Other rows keep their values, or become zero if
        there is an ``element_spec_override``.
        """
        given, flags = jax.device_get((value, mask))
        if batched:
            return self._called(given, flags, ", with the batch axis.")
        result = jax.tree.map(np.array, given)
        if self.element_spec_override is not None:
            result = jax.tree.map(
                lambda spec: np.zeros((*flags.shape, *spec.shape), spec.dtype),
                self.element_spec_override,
            )
        for row in np.argwhere(flags):
            where = (*row, ...)  # a scalar mask has one row, without an index
            sample, one = jax.tree.map(lambda x, at=where: x[at], (given, flags))
            made = self._called(sample, one, ", without the batch axis.")
            for rows, leaf in zip(
                jax.tree.leaves(result), jax.tree.leaves(made), strict=True
            ):
                rows[where] = leaf
        return result

    def _called(self, given: Tree, mask: np.ndarray, advice: str) -> Tree:
        """Calls ``fn`` once and returns what replaces ``given``."""
        try:
            returned = self.fn(given, mask)
        except StopIteration as error:
            raise RuntimeError(
                "HostCallbackTransform: fn raised StopIteration"
            ) from error
        spec = self.element_spec_override
        if spec is None:
            spec = given
        if returned is None:
            returned = given
        arrays = jax.tree.map(np.asarray, returned)
        check_spec(arrays, spec, "HostCallbackTransform", _OVERRIDE + advice)
        return arrays

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        return self.through(self.run, value, mask, batched)

    def through(
        self, run: Callable[..., Tree], value: Tree, mask: Any, batched: bool
    ) -> Tree:
        """Traces an ``io_callback``: the compiled program calls ``run`` in Python.

        The arguments of ``run`` are those of the method ``run``. Unless ``batched``,
        the value has the leading axes of the mask.
        """
        from jax.experimental import io_callback

        spec, lead = self.element_spec_override, () if batched else mask.shape
        if spec is None:
            spec, lead = value, ()
        result = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), spec
        )
        if self.ordered:
            value, mask = _not_mapped((value, mask))
        call = functools.partial(run, batched=batched)
        return io_callback(call, result, value, mask, ordered=self.ordered)

    def shortened(self, full: int, rows: int) -> HostCallbackTransform:
        """Returns this stage for a last batch of ``rows`` instead of ``full`` rows."""
        if self.element_spec_override is None:
            return self

        def short(spec: Any) -> jax.ShapeDtypeStruct:
            lead = (rows,) if spec.shape[:1] == (full,) else spec.shape[:1]
            return jax.ShapeDtypeStruct((*lead, *spec.shape[1:]), spec.dtype)

        spec = jax.tree.map(short, self.element_spec_override)
        return replace(self, element_spec_override=spec)


@custom_vmap
def _not_mapped(value: Tree) -> Tree:
    """Returns ``value``. Raises ``ValueError`` under vmap."""
    return value


@_not_mapped.def_vmap
def _refuse(size: int, batched: Any, value: Tree) -> Any:
    raise ValueError(
        "HostCallbackTransform(ordered=True) cannot be used under vmap, which has no "
        "order. Use ordered=False."
    )


def _check_callable(stage: Stage, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"{type(stage).__name__} needs a function, not {fn!r}")


def check_spec(value: Tree, spec: Tree, stage: str, advice: str = "") -> None:
    """Raises ``ValueError`` unless structure, shapes and dtypes match ``spec``.

    The message names the leaf that differs.
    """
    wanted, structure = jax.tree_util.tree_flatten_with_path(spec)
    leaves, found = jax.tree_util.tree_flatten_with_path(value)
    if found != structure:  # type: ignore[operator]
        known, given = ([path for path, _ in each] for each in (wanted, leaves))
        differ = [f"without {_leaf(path)}" for path in known if path not in given]
        differ += [f"with {_leaf(path)}" for path in given if path not in known]
        raise ValueError(
            f"{stage} returned a value {' and '.join(differ) or found}; "
            f"expected {structure}{advice}"
        )
    for (path, array), (_, want) in zip(leaves, wanted, strict=True):
        if array.shape != want.shape or array.dtype != want.dtype:
            raise ValueError(
                f"{stage} returned {array.dtype}{list(array.shape)} for {_leaf(path)}; "
                f"expected {want.dtype}{list(want.shape)}{advice}"
            )


def _leaf(path: Any) -> str:
    return jax.tree_util.keystr(path) or "the value"
