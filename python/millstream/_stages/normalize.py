"""Stages that convert, scale and shift a field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from millstream import _engine
from millstream._core.arguments import number
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._sources.arrays import DTYPES
from millstream._stages.stage import Key, Stage, keyed, with_key

if TYPE_CHECKING:
    from millstream._run.builder import Builder


@public
@dataclass(frozen=True, eq=False)
class NormalizeImageTransform(Stage):
    """Converts ``data_key`` and computes ``(x * scale + offset - mean) / std``.

    Args:
      data_key: The key of the images; a position if samples are tuples.
      dtype: The dtype to convert to. Each operation is rounded to it.
      scale: The factor. The default maps uint8 to [0, 1].
      offset: The number to add after scaling.
      mean: The number to subtract, or one number per channel. Channels are the last
        axis.
      std: The number to divide by, or one number per channel.
    """

    data_key: Key = "image"
    dtype: Any = jnp.float32
    scale: float = 1 / 255
    offset: float = 0.0
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        for name in ("scale", "offset"):
            number(f"{type(self).__name__}: {name}", getattr(self, name))
        for name in ("mean", "std"):
            given = _per_channel(f"{type(self).__name__}: {name}", getattr(self, name))
            object.__setattr__(self, name, given)
        self._check_std()
        dtype = _dtype(self, self.dtype)
        if not jnp.issubdtype(dtype, jnp.floating) and (
            self.scale != 1 or self.offset != 0
        ):
            raise ValueError(
                f"{type(self).__name__}({self.data_key!r}): a scale of {self.scale} "
                f"and an offset of {self.offset} need a floating dtype, not {dtype}. "
                "Pass dtype=jnp.float32, for example."
            )
        if not jnp.issubdtype(dtype, jnp.floating) and self._standardizes:
            raise ValueError(
                f"{type(self).__name__}({self.data_key!r}): a mean and a std need a "
                f"floating dtype, not {dtype}. Pass dtype=jnp.float32, for example."
            )
        object.__setattr__(self, "dtype", dtype)

    @property
    def _standardizes(self) -> bool:
        return self.mean != 0 or self.std != 1

    def _check_std(self) -> None:
        who = f"{type(self).__name__}({self.data_key!r})"
        if not np.all(np.asarray(self.std) > 0):
            raise ValueError(f"{who}: std must be greater than 0, not {self.std}")
        several = [x for x in (self.mean, self.std) if isinstance(x, tuple)]
        if len({len(x) for x in several}) > 1:
            mean, std = several
            raise ValueError(
                f"{who}: mean has {len(mean)} entries, but std has {len(std)}. Pass "
                "one entry per channel to both."
            )

    def _rounded_to_dtype(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the mean and the std as arrays of the dtype."""
        return np.asarray(self.mean, self.dtype), np.asarray(self.std, self.dtype)

    def place(self, builder: Builder) -> None:
        if not builder.native:
            builder.add_traced(self.trace)
            return
        # Rounded here, so that the engine and XLA use the same numbers.
        mean, std = (x.astype(np.float64).tolist() for x in self._rounded_to_dtype())
        transform = _engine.normalize(
            builder.field(self.data_key),
            self.dtype.name,
            self.scale,
            self.offset,
            mean,
            std,
        )
        builder.add_native([transform], trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, type(self).__name__).astype(self.dtype)
        self._check_channels(x.shape[1:] if batched else x.shape)
        # The engine rounds after each operation, so XLA must not fuse them.
        small = self.dtype.itemsize == 2
        if self.scale != 1 or self.offset != 0:
            x = lax.optimization_barrier(x) if small else x
            x = x * jnp.asarray(self.scale, self.dtype)
            x = lax.optimization_barrier(x) if small else _rounded(x)
        if self.offset != 0:
            x = x + jnp.asarray(self.offset, self.dtype)
        x = lax.optimization_barrier(x) if small else x
        if self._standardizes:
            keep = lax.optimization_barrier if small else _rounded
            mean, std = self._rounded_to_dtype()
            x = keep(keep(x) - mean)
            # XLA would replace a division by a constant by a multiplication.
            x = keep(x / jnp.where(jnp.isnan(x), x, std))
        return with_key(value, self.data_key, x)

    def _check_channels(self, shape: tuple[int, ...]) -> None:
        """Raises ``ValueError`` unless there is one entry per channel."""
        found = shape[-1] if shape else 0
        for name in ("mean", "std"):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != found:
                raise ValueError(
                    f"{type(self).__name__}({self.data_key!r}): {name} has "
                    f"{len(given)} entries, but the last axis of {self.data_key!r}, of "
                    f"shape {shape}, has {found} channels. Pass one entry per channel, "
                    "or one number."
                )


@public
@dataclass(frozen=True, eq=False)
class CastTransform(Stage):
    """Converts ``data_key`` to ``dtype``."""

    data_key: Key
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype(self, self.dtype))

    def place(self, builder: Builder) -> None:
        if not builder.native:
            builder.add_traced(self.trace)
            return
        transform = _engine.normalize(builder.field(self.data_key), self.dtype.name)
        builder.add_native([transform], trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, "CastTransform").astype(self.dtype)
        return with_key(value, self.data_key, x)


def _per_channel(name: str, value: Any) -> float | tuple[float, ...]:
    """Returns a finite number, or a tuple of them."""
    if isinstance(value, str | bytes) or np.ndim(value) == 0:
        return _finite(name, value)
    if np.ndim(value) > 1 or not len(value):
        raise ValueError(
            f"{name} must be a number or a sequence with one number per channel, not "
            f"an array of shape {np.shape(value)}"
        )
    return tuple(_finite(name, entry) for entry in value)


def _finite(name: str, value: Any) -> float:
    found = number(name, value)
    if not math.isfinite(found):
        raise ValueError(f"{name} must be finite, not {found}")
    return found


def _dtype(stage: Stage, dtype: Any) -> Any:
    """Returns the dtype that JAX uses. Raises ``TypeError`` if it is unknown."""
    try:
        return jax.dtypes.canonicalize_dtype(dtype)
    except TypeError as error:
        raise TypeError(
            f"{type(stage).__name__}: unknown dtype {dtype!r}: expected one of "
            f"{', '.join(sorted(DTYPES))}"
        ) from error


def _rounded(product: Any) -> Any:
    """Returns the same values, but keeps XLA from combining operations.

    LLVM fuses a product and a sum even across an XLA optimization barrier. A maximum
    that changes no value between them prevents it.
    """
    if not jnp.issubdtype(product.dtype, jnp.floating):
        return product
    least = jnp.asarray(jnp.finfo(product.dtype).min, product.dtype)
    return jnp.where(product < least, product, lax.max(product, least))
