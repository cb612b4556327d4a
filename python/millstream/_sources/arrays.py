"""A source of samples over arrays in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream import _engine
from millstream._core.arguments import check_unmasked, flag
from millstream._core.description import Tree
from millstream._core.devices import device_named
from millstream._core.errors import DataError
from millstream._core.public import public
from millstream._sources.advice import advice_for, is_table
from millstream._sources.maps import file_maps
from millstream._sources.ordered import OrderedSource, name_of
from millstream._sources.source import SampleSource

DTYPES = {
    "bool",
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
}


@public
@dataclass(frozen=True, eq=False)
class ArraySampleSource(OrderedSource):
    """A pytree of arrays whose rows are samples.

    The engine reads NumPy arrays and JAX arrays on the CPU in place, at any row stride.
    Other values that NumPy accepts are converted to arrays once. Arrays on an
    accelerator, or moved there by ``storage_device``, stay there, and XLA gathers
    the rows.

    An array may lie in a memory map made by ``np.memmap``, ``mmap.mmap`` or another
    library. If the mapped file shrinks, reading raises an ``OSError`` that names it.

    Args:
      data: A pytree of arrays that share their leading dimension.
      ordering: "shuffle", "sequential", or an Order.
      storage_device: The device that holds the data, or its name, such as "gpu:1".
      pack: Whether to copy arrays with rows of at most 64 bytes once, to memory in
        which the rows of a sample lie side by side. This is faster for tables of many
        columns that exceed the CPU's caches, and does not change the batches. If you
        change such an array later, the copy keeps the old values.
    """

    data: Tree
    ordering: Any = "shuffle"
    storage_device: Any = field(default=None, kw_only=True)
    pack: bool = field(default=False, kw_only=True)
    _leaves: list[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        paths = jax.tree_util.tree_flatten_with_path(self.data, is_leaf=_is_iterator)[0]
        if not paths:
            raise ValueError(
                "ArraySampleSource: data contains no arrays. Pass at least one array."
            )
        names = [name_of(path) for path, _ in paths]
        for path, leaf in paths:
            if _is_iterator(leaf):
                raise TypeError(
                    f"'{name_of(path)}' is not an array. {advice_for(leaf)}."
                )
            if isinstance(leaf, int | float) and path and hasattr(path[-1], "idx"):
                raise ValueError(
                    f"'{name_of(path[:-1])}' is a list. Pass an array with one row per "
                    "sample, such as np.asarray(list)."
                )
        leaves = [_leaf(name, x) for name, (_, x) in zip(names, paths, strict=True)]
        device = None
        if self.storage_device is not None:
            device = device_named(self.storage_device)
            if device.platform != "cpu":
                leaves = [
                    _on_device(name, x, device)
                    for name, x in zip(names, leaves, strict=True)
                ]
        self.__dict__["_leaves"] = leaves
        pack = flag("pack", self.pack)
        if pack and self.device() is not None:
            raise ValueError(
                "pack=True copies arrays in host memory, but these are on "
                f"{self.device()}. Remove pack=True."
            )
        specs = [_spec(name, x) for name, x in zip(names, leaves, strict=True)]
        structure = jax.tree.structure(self.data)
        tree = jax.tree.unflatten(structure, range(len(names)))
        self._open(_engine.arrays(specs, pack), tree)

    def arrays(self) -> list[Any]:
        names = self.native()[2]
        leaves = zip(names, self._leaves, strict=True)
        return [_on_device(name, leaf) for name, leaf in leaves]

    def device(self) -> Any:
        for leaf in self._leaves:
            if isinstance(leaf, jax.Array) and not _on_cpu(leaf):
                return next(iter(leaf.devices()))
        return None


def host_copy(source: SampleSource) -> _engine.Source:
    """Copies the samples from an accelerator to host memory, for the engine to read."""
    with jax.ensure_compile_time_eval():  # also when first asked for inside jit
        leaves = [np.asarray(array) for array in source.arrays() or []]
    _, _, names = source.native()
    specs = [_spec(name, leaf) for name, leaf in zip(names, leaves, strict=True)]
    return _engine.arrays(specs)


def _is_iterator(value: Any) -> bool:
    return hasattr(value, "__next__")


def _on_cpu(leaf: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in leaf.devices())


def _on_device(name: str, leaf: Any, device: Any = None) -> jax.Array:
    """Copies an array to a device.

    Raises ``DataError`` for an integer that JAX would truncate to 32 bits.
    """
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu":
        narrow = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype), copy=False)
        if narrow is not leaf and (narrow != leaf).any():
            place = tuple(np.argwhere(narrow != leaf)[0])
            raise DataError(
                f"{name}: sample {place[0]} holds a value of dtype {leaf.dtype} that "
                f"{narrow.dtype} cannot hold, {leaf[place]}; set jax_enable_x64 for "
                f"64-bit values, or store values that {narrow.dtype} can hold",
                kind="data",
                sample=int(place[0]),
                field=name,
            )
        leaf = narrow
    return jax.device_put(leaf, device)


def _leaf(name: str, value: Any) -> Any:
    """Returns ``value`` as an array that the engine or XLA can read."""
    check_unmasked(name, value)
    if isinstance(value, jax.Array):
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise TypeError(
                f"'{name}' is an array of typed JAX keys. Pass its jax.random.key_data."
            )
        array = np.asarray(value) if _on_cpu(value) else value
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:  # for example rows of different lengths
            raise ValueError(
                f"'{name}' cannot be converted to an array: {error}. All rows must "
                "have the same shape. Pad or crop them."
            ) from error
    if array.dtype.name not in DTYPES:
        raise TypeError(
            f"'{name}' is an array of {array.dtype}, which batches cannot hold. "
            f"{_numbers_of(value, array)}."
        )
    if array.ndim == 0:
        raise ValueError(
            f"'{name}' is a scalar. Pass an array with one row per sample."
        )
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if isinstance(array, np.ndarray) and not _rows_dense(array):
        array = np.ascontiguousarray(array)
    return array


def _numbers_of(value: Any, array: Any) -> str:
    """Returns how to convert an array of another dtype to numbers."""
    if is_table(value):
        return (
            "Pass the columns of a table as arrays: "
            "{name: table[name].to_numpy() for name in table}"
        )
    first = array.flat[0] if array.size else None
    if array.dtype.kind in "US" or isinstance(first, str | bytes):
        return (
            "Convert text to integers: np.unique(text, return_inverse=True)[1] for "
            "categories, or a tokenizer. To deliver text itself, use DatasetSource: "
            "text in its samples arrives as a list for each batch"
        )
    if array.dtype.kind in "Mm":
        return "Convert dates to numbers, such as dates.astype('int64')"
    if hasattr(first, "shape"):
        return "Stack rows of the same shape with np.stack(list(rows))"
    return "Convert it to a boolean or numeric dtype, such as rows.astype(np.float32)"


def _rows_dense(array: np.ndarray) -> bool:
    """Whether each row is contiguous. The distance between rows does not matter."""
    expected = array.itemsize
    for extent, stride in zip(array.shape[:0:-1], array.strides[:0:-1], strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


_Map = tuple[str, int, int, int]
_Spec = tuple[str, str, list[int], int, int, Any, _Map | None]


def _spec(name: str, leaf: Any) -> _Spec:
    """Returns what the engine needs in order to read an array in place."""
    shape = [int(extent) for extent in leaf.shape]
    # The engine checks the shape of an array on an accelerator, and XLA reads it.
    if isinstance(leaf, jax.Array):
        return name, leaf.dtype.name, shape, 0, 0, leaf, None
    address = leaf.__array_interface__["data"][0]
    return name, leaf.dtype.name, shape, address, leaf.strides[0], leaf, _map_of(leaf)


def _map_of(leaf: np.ndarray) -> _Map | None:
    """Returns (path, address, bytes, offset) of the file that an array is mapped from.

    Returns None for an array that is not in a memory map. The function looks into
    /proc/self/maps, because the array's owner may not know its file: ``mmap.mmap``,
    shared memory and the buffers of other libraries do not.
    """
    root: Any = leaf
    while isinstance(root.base, np.ndarray):
        root = root.base
    if root.flags.owndata or leaf.nbytes == 0:
        return None
    begin, end = np.lib.array_utils.byte_bounds(leaf)
    for found in file_maps():
        if found.begin <= begin < found.end:
            return found.path, begin, end - begin, found.offset + begin - found.begin
    return None
