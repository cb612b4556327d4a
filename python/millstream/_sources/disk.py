"""Samples in files: descriptions of what the engine reads where it lies."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
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
from millstream._run.state import has_x64
from millstream._sources.arrays import DTYPES
from millstream._sources.csv_header import is_header, start_of
from millstream._sources.ordered import OrderedSource, name_of, recast

AnyPath = str | os.PathLike[str]


def cache_path(cache_dir: AnyPath | None = None) -> Path | str:
    """Where unpacked files are kept: ``cache_dir``, MILLSTREAM_CACHE or ~/.cache.

    Where there is no home folder it is "", with which the engine only opens files that
    need no unpacking.
    """
    if cache_dir is None:
        cache_dir = os.environ.get("MILLSTREAM_CACHE") or None
    if cache_dir is not None:
        return _path(cache_dir).expanduser()
    try:
        return Path.home() / ".cache" / "millstream"
    except RuntimeError:
        return ""


@public
@dataclass(frozen=True, eq=False)
class NpySource(OrderedSource):
    """Samples whose fields are rows of ``.npy`` files, mapped where they are.

    A source of any size opens at once, and what is read is the system's to cache: the
    process's own memory holds a few batches. A file that shrinks while it is read is an
    ``OSError`` that names it; one that is deleted stays readable.

    Args:
      paths: A pytree of files, such as ``{"image": "x.npy", "label": "y.npy"}``. A list
        of files, or a folder of them, is one array in shards; those of a folder follow
        each other by name, numbers by value: ``part-2.npy`` before ``part-10.npy``.
      ordering: "shuffle", "sequential", or an Order.
    """

    paths: Tree
    ordering: Any = "shuffle"

    def __post_init__(self) -> None:
        fields, tree = _fields("NpySource", self.paths)
        self._open(_engine.npy(fields), tree)


@public
@dataclass(frozen=True, eq=False)
class NpzSource(OrderedSource):
    """Samples whose fields are rows of the arrays in an ``.npz`` file.

    Arrays that ``np.savez`` stored are mapped where they are; compressed ones are
    unpacked once into the cache and checked.

    Args:
      path: The file.
      ordering: "shuffle", "sequential", or an Order.
      names: A pytree of the names of arrays in the file, such as
        ``{"image": "x_train", "label": "y_train"}``; None for a dict of all.
      cache_dir: Where to unpack to; by default MILLSTREAM_CACHE or
        ``~/.cache/millstream``.
    """

    path: AnyPath
    ordering: Any = "shuffle"
    names: Tree = field(default=None, kw_only=True)
    cache_dir: AnyPath | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        members, structure = jax.tree.flatten(self.names)
        for member in members:
            if not isinstance(member, str):
                raise TypeError(f"NpzSource: names has {member!r}, not a name")
            if not member:
                raise ValueError("NpzSource: names has '', which names no array")
        native = _engine.npz(_path(self.path), members, cache_path(self.cache_dir))
        tree = jax.tree.unflatten(structure, range(len(members))) if members else None
        self._open(native, tree)


@public
@dataclass(frozen=True, eq=False)
class IdxSource(OrderedSource):
    """Samples whose fields are rows of IDX files, as MNIST and its kin have them.

    Raw files are mapped where they are; gzipped ones are unpacked once into the cache
    and checked.

    Args:
      paths: A pytree of files; a list of files is one array in shards.
      ordering: "shuffle", "sequential", or an Order.
      cache_dir: Where to unpack to; by default MILLSTREAM_CACHE or
        ``~/.cache/millstream``.
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
    """Samples of CIFAR-10 or CIFAR-100, binary or pickled; pickles are not run.

    They are ``{"image": uint8[32, 32, 3], "label": int32}``, of CIFAR-100 with
    ``"coarse_label"`` too. Images stay on disk.

    Args:
      path: The folder or the archive as it is published, or a list of batches.
      ordering: "shuffle", "sequential", or an Order.
      classes: 10 or 100.
      train: Whether to take the training batches of a folder or an archive, or those
        to test with.
      cache_dir: Where to unpack an archive to; by default MILLSTREAM_CACHE or
        ``~/.cache/millstream``.
    """

    path: AnyPath | list[AnyPath]
    ordering: Any = "shuffle"
    classes: int = field(default=10, kw_only=True)
    train: bool = field(default=True, kw_only=True)
    cache_dir: AnyPath | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        flag("CifarSource: train", self.train)
        if isinstance(self.path, list):
            paths = [_path(path) for path in self.path]
            native = _engine.cifar_batches(paths, self.classes)
        else:
            cache = cache_path(self.cache_dir)
            split = "train" if self.train else "test"
            native = _engine.cifar(_path(self.path), self.classes, split, cache)
        names = [name for name, _, _ in native.schema]
        labels = {i: (name, "int32") for i, name in enumerate(names) if name != "image"}
        self._open(recast(native, labels))


@public
@dataclass(frozen=True, eq=False)
class PackedSource(OrderedSource):
    """Samples that are records of one size, back to back in a file.

    Args:
      path: The file.
      schema: The fields of a record, little-endian and without gaps: a structured NumPy
        dtype as ``np.fromfile`` takes it, or in their order a dict of dtypes,
        ``(dtype, shape)`` or ``jax.ShapeDtypeStruct``. None for a file that describes
        itself, as ``write_packed`` writes it.
      ordering: "shuffle", "sequential", or an Order.
      offset: Bytes before the first record, where there is a schema.
    """

    path: AnyPath
    schema: Any = None
    ordering: Any = "shuffle"
    offset: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        offset = whole("PackedSource: offset", self.offset, 0)
        if self.schema is None and offset:
            raise ValueError(
                f"PackedSource: offset={offset} needs a schema; a file that describes "
                "itself says where its records begin"
            )
        schema = None if self.schema is None else _schema(self.schema)
        self._open(_engine.packed(_path(self.path), schema, offset))


@public
@dataclass(frozen=True, eq=False)
class CsvSource(OrderedSource):
    """Samples that are the lines of a table of numbers: a dict of its columns.

    A column is int64 where all its numbers are whole and int64 holds them, else
    float64. Empty lines are skipped. The table is parsed once and kept in memory.

    Args:
      path: The file.
      ordering: "shuffle", "sequential", or an Order.
      columns: Names of the columns to take, or the name of one, or None for all; others
        may be anything.
      header: Whether the first line names the columns; else they are "column0" and on.
        None, the default, takes it for names if none of its cells is a number.
      delimiter: Between cells; None for a tab in ``.tsv`` files and a comma elsewhere.
    """

    path: AnyPath
    ordering: Any = "shuffle"
    columns: str | list[str] | None = field(default=None, kw_only=True)
    header: bool | None = field(default=None, kw_only=True)
    delimiter: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        path = _path(self.path)
        delimiter = self.delimiter
        if delimiter is None:
            delimiter = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
        narrow = not has_x64()
        named = [self.columns] if isinstance(self.columns, str) else self.columns
        columns = [] if named is None else list(named)
        header = self.header
        if header is None:  # wrong arguments are left to the engine to refuse
            is_usable = len(delimiter) == 1 and path.is_file()
            header = not is_usable or is_header(start_of(path), delimiter)
        try:
            native = _engine.csv(path, delimiter, header, columns, narrow)
        except (DataError, ValueError) as error:
            if self.header is None and not header:
                error.add_note(
                    f"{path}: the first line was taken for data, because a cell in it "
                    "is a number. Pass header=True if it names the columns."
                )
            raise
        self._open(native)


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"expected the path of a file, found {path!r}")
    found = Path(path)
    if not str(path):
        raise ValueError("expected the path of a file, found ''")
    if "\0" in str(found):
        raise ValueError(f"embedded null byte in the path {str(found)!r}")
    return found


def _fields(who: str, paths: Tree) -> tuple[list[tuple[str, list[Path]]], Tree]:
    """(name, files) of each leaf, and the tree of their positions."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(
        paths, is_leaf=lambda node: isinstance(node, list)
    )
    if not leaves:
        raise ValueError(f"{who}: there are no files in {paths!r}")
    fields = []
    for where, leaf in leaves:
        files = leaf if isinstance(leaf, list) else [leaf]
        if not files:
            raise ValueError(f"{who}: '{name_of(where)}' is a list of no files")
        fields.append((name_of(where), [_path(file) for file in files]))
    return fields, jax.tree.unflatten(structure, range(len(fields)))


_Form = tuple[np.dtype[Any], tuple[int, ...]]
"""Dtype and shape of a field."""


def _schema(given: Any) -> list[tuple[str, str, list[int]]]:
    """Name, dtype and shape of each field of a record, in the order of their bytes."""
    if isinstance(given, Mapping):
        forms = {str(name): _spec(name, spec) for name, spec in given.items()}
    else:
        forms = _forms(np.dtype(given))
    for name, (dtype, _) in forms.items():
        if dtype.name not in DTYPES:
            raise TypeError(
                f"PackedSource: '{name}' is of {dtype}, which is not a type of numbers "
                "that batches can have"
            )
        if dtype.byteorder == ">":
            raise ValueError(f"PackedSource: '{name}' is big-endian; records are not")
    return [(name, dtype.name, list(shape)) for name, (dtype, shape) in forms.items()]


def _forms(record: np.dtype[Any]) -> dict[str, _Form]:
    """The fields of a structured dtype in the order of their offsets."""
    if record.fields is None or record.names is None:
        raise TypeError(
            f"PackedSource: a schema is a dict or a structured dtype, not {record!r}"
        )
    members = {name: record.fields[name] for name in record.names}
    size = 0
    for name in sorted(members, key=lambda name: members[name][1]):
        dtype, offset = members[name][:2]
        if offset != size:
            raise ValueError(
                f"PackedSource: '{name}' is at byte {offset} of a record, the fields "
                f"before it end at {size}; records have no gaps"
            )
        size += dtype.itemsize
    if size != record.itemsize:
        raise ValueError(
            f"PackedSource: the dtype has records of {record.itemsize} bytes, its "
            f"fields {size}; records have no gaps"
        )
    return {
        name: (dtype.base, dtype.shape)
        for name, (dtype, *_) in sorted(members.items(), key=lambda item: item[1][1])
    }


def _spec(name: Any, spec: Any) -> _Form:
    if isinstance(spec, jax.ShapeDtypeStruct):
        spec = (spec.dtype, spec.shape)
    try:
        given, shape = spec if isinstance(spec, tuple) else (spec, ())
        dtype = np.dtype(given)
        extents = shape if isinstance(shape, Iterable) else (shape,)
        return dtype.base, (*map(operator.index, extents), *dtype.shape)
    except (TypeError, ValueError):
        raise TypeError(
            f"PackedSource: '{name}' is {spec!r}, not a dtype or a (dtype, shape)"
        ) from None
