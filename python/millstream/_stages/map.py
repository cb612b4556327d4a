"""Stages that call a function of the user: traced, or in Python for each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from millstream._core.description import Tree
from millstream._core.public import public
from millstream._stages.parameters import MappedFunction
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._run.builder import Builder

_OVERRIDE = (
    ". If fn changes the structure, shapes or dtypes, declare the result with "
    "element_spec_override, a pytree of jax.ShapeDtypeStruct with the batch axis."
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
    """Calls ``fn(batch, mask)`` in Python, with NumPy arrays, once per delivered batch.

    A batch that ``fn`` returns replaces the delivered one. It must have the same
    structure, shapes and dtypes, or those of ``element_spec_override``. If ``fn``
    returns None, the batch stays as it is.
    """

    fn: Callable[[Tree, np.ndarray], Tree | None]
    element_spec_override: Tree = None

    def __post_init__(self) -> None:
        _check_callable(self, self.fn)

    def place(self, builder: Builder) -> None:
        builder.add_host_callback(self, expected=self.element_spec_override)

    def run(self, value: Tree, mask: Any) -> Tree:
        """Calls ``fn`` and returns the resulting batch as NumPy arrays."""
        given, flags = jax.device_get((value, mask))
        try:
            returned = self.fn(given, flags)
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
        check_spec(arrays, spec, "HostCallbackTransform", _OVERRIDE)
        return arrays

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        return self.through(self.run, value, mask)

    def through(self, run: Callable[..., Tree], value: Tree, mask: Any) -> Tree:
        """Traces an ``io_callback``: the compiled program calls ``run`` in Python."""
        from jax.experimental import io_callback

        spec = self.element_spec_override
        if spec is None:
            spec = value
        result = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), spec)
        return io_callback(run, result, value, mask)

    def shortened(self, batch_size: int, rows: int) -> HostCallbackTransform:
        """Returns this stage for a last batch of ``rows`` instead of ``batch_size``."""
        if self.element_spec_override is None:
            return self

        def short(spec: Any) -> jax.ShapeDtypeStruct:
            lead = (rows,) if spec.shape[:1] == (batch_size,) else spec.shape[:1]
            return jax.ShapeDtypeStruct((*lead, *spec.shape[1:]), spec.dtype)

        spec = jax.tree.map(short, self.element_spec_override)
        return replace(self, element_spec_override=spec)


def _check_callable(stage: Stage, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"{type(stage).__name__} needs a function, not {fn!r}")


def check_spec(value: Tree, spec: Tree, stage: str, advice: str = "") -> None:
    """Raises ``ValueError`` unless structure, shapes and dtypes match ``spec``."""
    wanted, structure = jax.tree.flatten(spec)
    leaves, found = jax.tree.flatten(value)
    if found != structure:  # type: ignore[operator]
        raise ValueError(f"{stage} returned {found}; expected {structure}{advice}")
    for array, want in zip(leaves, wanted, strict=True):
        if array.shape != want.shape or array.dtype != want.dtype:
            raise ValueError(
                f"{stage} returned {array.dtype}{list(array.shape)}; "
                f"expected {want.dtype}{list(want.shape)}{advice}"
            )
