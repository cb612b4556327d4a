"""The stages: what is done to samples and to batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from millstream import _engine
from millstream._core.arguments import flag, number, whole
from millstream._core.devices import device_named
from millstream._delivery.sharding import constrained, placement_of
from millstream._run.pipeline import Stage, Tree, keyed, with_key
from millstream._sources.ordered import names_of

_REMAINDERS = ("pad", "drop", "wrap", "partial")


@dataclass(frozen=True, eq=False)
class BatchTransform(Stage):
    """Batches of ``batch_size`` samples.

    The samples left over at the end of an epoch are padded with zeros, their mask
    False; with ``drop_last`` they are left out. ``remainder`` says it by name: "pad",
    "drop", "wrap" (into the next epoch) or "partial" (a shorter last batch, in a Python
    loop only). Building the pipeline fails where a batch is not as
    ``element_spec_override`` says.
    """

    batch_size: int
    drop_last: bool = False
    pad_last_batch: bool = False
    element_spec_override: Tree = None
    remainder: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        given: Any = self.batch_size
        if isinstance(given, float | np.floating) and given.is_integer():
            given = int(given)
        size = whole("BatchTransform: batch_size", given, 1, 1 << 31)
        flag("BatchTransform: drop_last", self.drop_last)
        flag("BatchTransform: pad_last_batch", self.pad_last_batch)
        chosen = self.remainder or ("drop" if self.drop_last else "pad")
        if chosen not in _REMAINDERS:
            raise ValueError(
                f"BatchTransform: remainder is one of {_REMAINDERS}, not {chosen!r}"
            )
        if self.remainder and self.drop_last and chosen != "drop":
            raise ValueError(
                f"BatchTransform: drop_last contradicts remainder={chosen!r}"
            )
        if self.pad_last_batch and not self.drop_last and chosen != "pad":
            raise ValueError(
                f"BatchTransform: pad_last_batch contradicts remainder={chosen!r}"
            )
        object.__setattr__(self, "remainder", chosen)
        object.__setattr__(self, "batch_size", size)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        return value  # rows are batches already where anything is traced


@dataclass(frozen=True, eq=False)
class MapTransform(Stage):
    """``fn(value, mask) -> value``, pure and traced by XLA.

    Before batching it sees one sample and is vmapped over the rows of a batch. Where
    ``remainder="partial"`` makes the last batch shorter, it sees that shorter batch.
    Building the pipeline fails where a value is not as ``element_spec_override`` says.
    """

    fn: Callable[[Tree, Any], Tree]
    element_spec_override: Tree = None

    def __post_init__(self) -> None:
        _check_callable(self, self.fn)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        return self.fn(value, mask)


@dataclass(frozen=True, eq=False)
class HostCallbackTransform(Stage):
    """``fn(batch, mask)`` in Python, with NumPy arrays, once a delivered batch.

    A batch that it returns goes on in place of the one that it was given and has to
    look the same, or as ``element_spec_override`` says; None changes nothing.
    """

    fn: Callable[[Tree, np.ndarray], Tree | None]
    element_spec_override: Tree = None

    def __post_init__(self) -> None:
        _check_callable(self, self.fn)

    def run(self, value: Tree, mask: Any) -> Tree:
        """Calls ``fn`` and returns the batch that goes on, as NumPy arrays."""
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
        return _checked(returned, spec, "HostCallbackTransform")

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        return self.through(self.run, value, mask)

    def through(self, run: Callable[..., Tree], value: Tree, mask: Any) -> Tree:
        """What becomes of ``value`` in a program that calls ``run`` as it runs."""
        from jax.experimental import io_callback

        spec = self.element_spec_override
        if spec is None:
            spec = value
        result = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), spec)
        return io_callback(run, result, value, mask)


@dataclass(frozen=True, eq=False)
class DevicePutTransform(Stage):
    """Puts batches onto ``device``: one of JAX's, or "cpu", "gpu:1"; or the first.

    In a Python loop the arrays arrive there. Inside of jit the program itself says
    where it runs, and batches are made there.

    A ``NamedSharding`` in its place splits batches over the devices of its mesh, in a
    Python loop and inside of jit: each process reads the rows that its devices need,
    each row once, and the arrays are global. See docs/sharding.md.
    """

    device: Any = None

    def __post_init__(self) -> None:
        if self.device is None:
            chosen: Any = jax.local_devices()[0]
        elif isinstance(self.device, jax.sharding.Sharding):
            chosen = placement_of(self.device)
        else:
            chosen = device_named(self.device)
        object.__setattr__(self, "device", chosen)

    @property
    def sharding(self) -> NamedSharding | None:
        """How batches are split over devices, or None for one device."""
        return self.device if isinstance(self.device, NamedSharding) else None

    def native(
        self, tree: Tree, names: list[str], batched: bool
    ) -> tuple[list[_engine.Transform], Tree, list[str]]:
        return [], tree, names

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        if self.sharding is None or not batched:
            return value
        return constrained(self.sharding, value)


@dataclass(frozen=True, eq=False)
class NormalizeImageTransform(Stage):
    """``data_key`` as ``dtype``, times ``scale``, plus ``offset``."""

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
                f"and an offset of {self.offset} need a floating dtype, not {dtype}"
            )
        object.__setattr__(self, "dtype", dtype)

    def native(
        self, tree: Tree, names: list[str], batched: bool
    ) -> tuple[list[_engine.Transform], Tree, list[str]]:
        name = names[keyed(tree, self.data_key, type(self).__name__)]
        stage = _engine.normalize(name, self.dtype.name, self.scale, self.offset)
        return [stage], tree, names

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, type(self).__name__).astype(self.dtype)
        # The engine rounds after every step, and so must this.
        small = self.dtype.itemsize == 2
        if self.scale != 1 or self.offset != 0:
            x = lax.optimization_barrier(x) if small else x
            x = x * jnp.asarray(self.scale, self.dtype)
            x = lax.optimization_barrier(x) if small else _rounded(x)
        if self.offset != 0:
            x = x + jnp.asarray(self.offset, self.dtype)
        x = lax.optimization_barrier(x) if small else x
        return with_key(value, self.data_key, x)


@dataclass(frozen=True, eq=False)
class CastTransform(Stage):
    """``data_key`` as ``dtype``."""

    data_key: str
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", jax.dtypes.canonicalize_dtype(self.dtype))

    def native(
        self, tree: Tree, names: list[str], batched: bool
    ) -> tuple[list[_engine.Transform], Tree, list[str]]:
        name = names[keyed(tree, self.data_key, "CastTransform")]
        return [_engine.normalize(name, self.dtype.name)], tree, names

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, "CastTransform").astype(self.dtype)
        return with_key(value, self.data_key, x)


@dataclass(frozen=True, eq=False)
class FlattenTransform(Stage):
    """Joins the axes of ``data_key`` from ``start_index`` on into one.

    Axes are counted as the stage sees them: after batching axis 0 is the batch, which
    stays.
    """

    data_key: str
    start_index: int = 1

    def __post_init__(self) -> None:
        first = whole(f"{type(self).__name__}: start_index", self.start_index, 0)
        object.__setattr__(self, "start_index", first)

    def _first_axis(self, batched: bool) -> int:
        """The first axis to join, counted in one sample."""
        first = self.start_index - (1 if batched else 0)
        if first < 0:
            raise ValueError(
                f"{type(self).__name__}({self.data_key!r}): start_index "
                f"{self.start_index} would join the axis of the batch"
            )
        return first

    def native(
        self, tree: Tree, names: list[str], batched: bool
    ) -> tuple[list[_engine.Transform], Tree, list[str]]:
        name = names[keyed(tree, self.data_key, type(self).__name__)]
        return [_engine.flatten(name, self._first_axis(batched))], tree, names

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, type(self).__name__)
        kept = self._first_axis(batched) + (1 if batched else 0)
        if kept > x.ndim:
            raise ValueError(
                f"{type(self).__name__}({self.data_key!r}): axis {self.start_index} is "
                f"out of range for shape {x.shape}"
            )
        return with_key(value, self.data_key, x.reshape(*x.shape[:kept], -1))


@dataclass(frozen=True, eq=False)
class FlattenImageTransform(FlattenTransform):
    """Makes a vector of each image under ``data_key``, before batching or after."""

    data_key: str = "image"
    start_index: int = field(default=0, init=False)

    def _first_axis(self, batched: bool) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class RenameTransform(Stage):
    """Gives keys other names: ``{"old": "new"}``."""

    renames: Mapping[str, str]

    def __post_init__(self) -> None:
        if not isinstance(self.renames, Mapping):
            raise TypeError(
                'RenameTransform: renames is a dict, {"old": "new"}, '
                f"not {self.renames!r}"
            )
        for key, new in self.renames.items():
            if not isinstance(new, str):
                raise TypeError(
                    f"RenameTransform: the new name of {key!r} is a str, not {new!r}"
                )

    def _renamed(self, tree: Tree) -> dict[str, Any]:
        if not isinstance(tree, Mapping):
            raise TypeError(
                f"RenameTransform needs samples that are dicts, not {type(tree)}"
            )
        for key in self.renames:
            if key not in tree:
                raise KeyError(
                    f"RenameTransform: there is no key {key!r}, only {sorted(tree)}"
                )
        renamed = {self.renames.get(key, key): value for key, value in tree.items()}
        if len(renamed) != len(tree):
            raise ValueError(
                f"RenameTransform: {dict(self.renames)} gives two of {sorted(tree)} "
                "one name"
            )
        return renamed

    def native(
        self, tree: Tree, names: list[str], batched: bool
    ) -> tuple[list[_engine.Transform], Tree, list[str]]:
        renamed = self._renamed(tree)
        names_of("RenameTransform", renamed)
        after = list(names)
        for key, new in self.renames.items():
            for position in jax.tree.leaves(tree[key]):
                after[position] = new + names[position][len(str(key)) :]
        changed = {a: b for a, b in zip(names, after, strict=True) if a != b}
        return [_engine.rename(changed)], renamed, after

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        return self._renamed(value)


def _rounded(product: Any) -> Any:
    """The same values, in a form that no compiler fuses with a sum that follows.

    LLVM makes one rounding of a product and a sum, through XLA's barriers as well; a
    maximum that changes nothing keeps it from seeing both at once.
    """
    if not jnp.issubdtype(product.dtype, jnp.floating):
        return product
    least = jnp.asarray(jnp.finfo(product.dtype).min, product.dtype)
    return jnp.where(product < least, product, lax.max(product, least))


def _check_callable(stage: Stage, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"{type(stage).__name__} needs a function, not {fn!r}")


def _checked(value: Tree, spec: Tree, stage: str) -> Tree:
    """``value`` as NumPy arrays that look as ``spec`` says."""
    arrays = jax.tree.map(np.asarray, value)
    check_spec(arrays, spec, stage)
    return arrays


def check_spec(value: Tree, spec: Tree, stage: str) -> None:
    """Raises ``ValueError`` unless ``value`` looks as ``spec`` says."""
    wanted, structure = jax.tree.flatten(spec)
    leaves, found = jax.tree.flatten(value)
    if found != structure:  # type: ignore[operator]
        raise ValueError(f"{stage} returned {found}; expected {structure}")
    for array, want in zip(leaves, wanted, strict=True):
        if array.shape != want.shape or array.dtype != want.dtype:
            raise ValueError(
                f"{stage} returned {array.dtype}{list(array.shape)}; "
                f"expected {want.dtype}{list(want.shape)}"
            )
