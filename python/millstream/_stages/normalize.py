"""Stages that convert, scale and shift a field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from millstream import _engine
from millstream._core.arguments import number
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._stages.stage import Stage, keyed, with_key

if TYPE_CHECKING:
    from millstream._run.builder import Builder


@public
@dataclass(frozen=True, eq=False)
class NormalizeImageTransform(Stage):
    """Converts ``data_key`` to ``dtype`` and computes ``x * scale + offset``."""

    data_key: str = "image"
    dtype: Any = jnp.float32
    scale: float = 1 / 255
    offset: float = 0.0

    def __post_init__(self) -> None:
        for name in ("scale", "offset"):
            number(f"{type(self).__name__}: {name}", getattr(self, name))
        dtype = jax.dtypes.canonicalize_dtype(self.dtype)
        if not jnp.issubdtype(dtype, jnp.floating) and (
            self.scale != 1 or self.offset != 0
        ):
            raise ValueError(
                f"{type(self).__name__}({self.data_key!r}): a scale of {self.scale} "
                f"and an offset of {self.offset} need a floating dtype, not {dtype}. "
                "Pass dtype=jnp.float32, for example."
            )
        object.__setattr__(self, "dtype", dtype)

    def place(self, builder: Builder) -> None:
        if not builder.native:
            builder.add_traced(self.trace)
            return
        field, dtype = builder.field(self.data_key), self.dtype.name
        transform = _engine.normalize(field, dtype, self.scale, self.offset)
        builder.add_native([transform], trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, type(self).__name__).astype(self.dtype)
        # The engine rounds after each operation, so XLA must not fuse them.
        small = self.dtype.itemsize == 2
        if self.scale != 1 or self.offset != 0:
            x = lax.optimization_barrier(x) if small else x
            x = x * jnp.asarray(self.scale, self.dtype)
            x = lax.optimization_barrier(x) if small else _rounded(x)
        if self.offset != 0:
            x = x + jnp.asarray(self.offset, self.dtype)
        x = lax.optimization_barrier(x) if small else x
        return with_key(value, self.data_key, x)


@public
@dataclass(frozen=True, eq=False)
class CastTransform(Stage):
    """Converts ``data_key`` to ``dtype``."""

    data_key: str
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", jax.dtypes.canonicalize_dtype(self.dtype))

    def place(self, builder: Builder) -> None:
        if not builder.native:
            builder.add_traced(self.trace)
            return
        transform = _engine.normalize(builder.field(self.data_key), self.dtype.name)
        builder.add_native([transform], trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, "CastTransform").astype(self.dtype)
        return with_key(value, self.data_key, x)


def _rounded(product: Any) -> Any:
    """Returns the same values, but prevents a fused multiply-add with a later sum.

    LLVM fuses a product and a sum even across an XLA optimization barrier. A maximum
    that changes no value between them prevents it.
    """
    if not jnp.issubdtype(product.dtype, jnp.floating):
        return product
    least = jnp.asarray(jnp.finfo(product.dtype).min, product.dtype)
    return jnp.where(product < least, product, lax.max(product, least))
