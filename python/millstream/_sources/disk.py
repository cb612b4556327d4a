"""Sources of samples in files. The engine reads the files in place if possible."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from millstream import _engine
from millstream._core.arguments import flag, whole
from millstream._core.description import Tree
from millstream._core.errors import DataError
from millstream._core.public import public
from millstream._sources.advice import other_format
from millstream._sources.arrays import DTYPES
from millstream._sources.ordered import OrderedSource, name_of, recast

AnyPath = str | os.PathLike[str]


def cache_path(cache_dir: AnyPath | None = None) -> Path | str:
    """Returns the folder for unpacked files.

    It is ``cache_dir``, or the environment variable MILLSTREAM_CACHE, or
    ``~/.cache/millstream``. Without a home folder it is "". Then the engine only opens
    files that need no unpacking.
    """
    if cache_dir is None:
        cache_dir = os.environ.get("MILLSTREAM_CACHE") or None
    if cache_dir is not None:
        return path_of(cache_dir).expanduser()
    try:
        return Path.home() / ".cache" / "millstream"
    except RuntimeError:
        return ""


@public
@dataclass(frozen=True, eq=False)
class NpySource(OrderedSource):
    """Samples whose fields are rows of ``.npy`` files.

    The engine maps the files into memory. A source of any size opens at once, and the
    data stays in the page cache: the process itself only holds a few batches. If a file
    shrinks, reading it raises an ``OSError`` that names the file. A file that is
    deleted stays readable.

    Args:
      paths: A pytree of files, such as ``{"image": "x.npy", "label": "y.npy"}``. A list
        of files, or a folder, is one array in shards. The files of a folder are sorted
        by name, with numbers by value: ``part-2.npy`` comes before ``part-10.npy``.
      ordering: "shuffle", "sequential", or an Order.
    """

    paths: Tree
    ordering: Any = "shuffle"

    def __post_init__(self) -> None:
        fields, tree = _fields("NpySource", self.paths)
        raw = "For raw bytes, use PackedSource(path, {'x': np.uint8}) with your dtype."
        with _advice_on_first_bytes(raw):
            native = _engine.npy(fields)
        self._open(native, tree)


@public
@dataclass(frozen=True, eq=False)
class NpzSource(OrderedSource):
    """Samples whose fields are rows of the arrays in an ``.npz`` file.

    The engine maps the arrays that ``np.savez`` wrote. It unpacks compressed arrays
    once into the cache and verifies their checksums.

    Args:
      path: The file.
      ordering: "shuffle", "sequential", or an Order.
      names: A pytree of the names of arrays in the file, such as
        ``{"image": "x_train", "label": "y_train"}``. None takes a dict of all arrays.
      cache_dir: The folder for unpacked files. The default is the environment variable
        MILLSTREAM_CACHE, or ``~/.cache/millstream``.
    """

    path: AnyPath
    ordering: Any = "shuffle"
    names: Tree = field(default=None, kw_only=True)
    cache_dir: AnyPath | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        members, structure = jax.tree.flatten(self.names)
        for member in members:
            if not isinstance(member, str):
                raise TypeError(
                    f"NpzSource: expected names to be strings, found {member!r}"
                )
            if not member:
                raise ValueError("NpzSource: names contains an empty name")
        native = _engine.npz(path_of(self.path), members, cache_path(self.cache_dir))
        tree = jax.tree.unflatten(structure, range(len(members))) if members else None
        self._open(native, tree)


@public
@dataclass(frozen=True, eq=False)
class IdxSource(OrderedSource):
    """Samples whose fields are rows of IDX files, the format of MNIST.

    The engine maps raw files into memory. It unpacks gzipped files once into the cache
    and verifies their checksums.

    Args:
      paths: A pytree of files. A list of files is one array in shards.
      ordering: "shuffle", "sequential", or an Order.
      cache_dir: The folder for unpacked files. The default is the environment variable
        MILLSTREAM_CACHE, or ``~/.cache/millstream``.
    """

    paths: Tree
    ordering: Any = "shuffle"
    cache_dir: AnyPath | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        fields, tree = _fields("IdxSource", self.paths)
        self._open(_engine.idx(fields, cache_path(self.cache_dir)), tree)


@public
@dataclass(frozen=True, eq=False)
class CifarSource(OrderedSource):
    """Samples of CIFAR-10 or CIFAR-100, from the binary or the pickled version.

    A sample is ``{"image": uint8[32, 32, 3], "label": int32}``. CIFAR-100 adds
    ``"coarse_label"``. The images stay on disk. The engine parses pickled files itself
    and executes no code from them.

    Args:
      path: The published archive, its unpacked folder, or a list of batch files.
      ordering: "shuffle", "sequential", or an Order.
      classes: 10 or 100.
      train: True takes the training batches of a folder or an archive, False the test
        batches.
      cache_dir: The folder for an unpacked archive. The default is the environment
        variable MILLSTREAM_CACHE, or ``~/.cache/millstream``.
    """

    path: AnyPath | list[AnyPath]
    ordering: Any = "shuffle"
    classes: int = field(default=10, kw_only=True)
    train: bool = field(default=True, kw_only=True)
    cache_dir: AnyPath | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        flag("CifarSource: train", self.train)
        if isinstance(self.path, list):
            paths = [path_of(path) for path in self.path]
            native = _engine.cifar_batches(paths, self.classes)
        else:
            cache = cache_path(self.cache_dir)
            split = "train" if self.train else "test"
            native = _engine.cifar(path_of(self.path), self.classes, split, cache)
        names = [name for name, _, _ in native.schema]
        labels = {i: (name, "int32") for i, name in enumerate(names) if name != "image"}
        self._open(recast(native, labels))


@public
@dataclass(frozen=True, eq=False)
class PackedSource(OrderedSource):
    """Samples that are fixed-size records in one file, without gaps between them.

    Args:
      path: The file.
      schema: The fields of a record, little-endian and without padding. It is a
        structured NumPy dtype, as for ``np.fromfile``, or a dict from names to dtypes,
        ``(dtype, shape)`` or ``jax.ShapeDtypeStruct``, in the order of the bytes. None
        reads the schema from the header that ``write_packed`` writes.
      ordering: "shuffle", "sequential", or an Order.
      offset: The number of bytes before the first record. It needs a schema.
    """

    path: AnyPath
    schema: Any = None
    ordering: Any = "shuffle"
    offset: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        offset = whole("PackedSource: offset", self.offset, 0)
        if self.schema is None and offset:
            raise ValueError(
                f"PackedSource: offset={offset} needs a schema, because without one "
                "the file's header says where records begin. Pass schema=."
            )
        schema = None if self.schema is None else _schema(self.schema)
        advice = "For a file without a header, pass a schema, such as "
        with _advice_on_first_bytes(advice + "{'token': np.uint16}"):
            native = _engine.packed(path_of(self.path), schema, offset)
        self._open(native)


@contextlib.contextmanager
def _advice_on_first_bytes(advice: str) -> Iterator[None]:
    """Adds a note to the error for a file whose first bytes are wrong."""
    try:
        yield
    except DataError as error:
        if error.offset == 0:
            error.add_note(advice)
        raise


def path_of(path: Any) -> Path:
    """Returns the path of a file. Raises an error for a wrong argument."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"expected the path of a file, found {path!r}")
    found = Path(path)
    if not str(path):
        raise ValueError("expected the path of a file, found ''")
    if "\0" in str(found):
        raise ValueError(f"embedded null byte in the path {str(found)!r}")
    advice = other_format(found)
    if advice is not None:
        raise ValueError(f"{found}: {advice}")
    return found


def _fields(caller: str, paths: Tree) -> tuple[list[tuple[str, list[Path]]], Tree]:
    """Returns (name, files) of each leaf, and the pytree of their positions."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(
        paths, is_leaf=lambda node: isinstance(node, list)
    )
    if not leaves:
        raise ValueError(f"{caller}: paths={paths!r} contains no files")
    fields = []
    for where, leaf in leaves:
        files = leaf if isinstance(leaf, list) else [leaf]
        if not files:
            raise ValueError(f"{caller}: the list for '{name_of(where)}' has no files")
        fields.append((name_of(where), [path_of(file) for file in files]))
    return fields, jax.tree.unflatten(structure, range(len(fields)))


_FieldType = tuple[np.dtype[Any], tuple[int, ...]]
"""Dtype and shape of a field."""


def _schema(schema: Any) -> list[tuple[str, str, list[int]]]:
    """Returns (name, dtype, shape) of each field, in their order in a record."""
    if isinstance(schema, Mapping):
        types = {str(name): _field_type(name, spec) for name, spec in schema.items()}
    else:
        types = _field_types(np.dtype(schema))
    for name, (dtype, _) in types.items():
        if dtype.name not in DTYPES:
            raise TypeError(
                f"PackedSource: '{name}' has the dtype {dtype}, which batches cannot "
                "hold. Use a boolean or numeric dtype."
            )
        if dtype.byteorder == ">":
            raise ValueError(
                f"PackedSource: '{name}' is big-endian. Records must be little-endian."
            )
    return [(name, dtype.name, list(shape)) for name, (dtype, shape) in types.items()]


def _field_types(record: np.dtype[Any]) -> dict[str, _FieldType]:
    """Returns the fields of a structured dtype, sorted by offset."""
    if record.fields is None or record.names is None:
        raise TypeError(
            "PackedSource: expected the schema to be a dict or a structured dtype, "
            f"found {record!r}. Name the field: {{'x': np.{record.base.name}}}"
        )
    members = {name: record.fields[name] for name in record.names}
    size = 0
    for name in sorted(members, key=lambda name: members[name][1]):
        dtype, offset = members[name][:2]
        if offset != size:
            raise ValueError(
                f"PackedSource: '{name}' starts at byte {offset} of a record, but the "
                f"fields before it end at byte {size}. Records must have no padding."
            )
        size += dtype.itemsize
    if size != record.itemsize:
        raise ValueError(
            f"PackedSource: the dtype has {record.itemsize} bytes, but its fields end "
            f"at byte {size}. Records must have no padding."
        )
    return {
        name: (dtype.base, dtype.shape)
        for name, (dtype, *_) in sorted(members.items(), key=lambda item: item[1][1])
    }


def _field_type(name: Any, spec: Any) -> _FieldType:
    if isinstance(spec, jax.ShapeDtypeStruct):
        spec = (spec.dtype, spec.shape)
    try:
        base, shape = spec if isinstance(spec, tuple) else (spec, ())
        dtype = np.dtype(base)
        extents = shape if isinstance(shape, Iterable) else (shape,)
        return dtype.base, (*map(operator.index, extents), *dtype.shape)
    except (TypeError, ValueError):
        raise TypeError(
            f"PackedSource: expected '{name}' to be a dtype or (dtype, shape), found "
            f"{spec!r}"
        ) from None
