"""Detects the format of a path by its first bytes and its name."""

from __future__ import annotations

import importlib
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from millstream import _engine
from millstream._core.errors import DataError, data_error, error_fields
from millstream._formats import cifar, tables
from millstream._formats.schema import (
    Field,
    UsageError,
    is_utf8,
    read_json,
    read_schema,
)

KNOWN = (
    ".npy, folders of .npy, .npz, IDX (raw or gzipped), CIFAR (binary, pickled, "
    "folders and archives), packed records and tables (CSV, TSV)"
)
MANIFEST = "fields.json"

_HEAD = 4096
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_GZIP = b"\x1f\x8b"
_IDX_TYPES = frozenset((0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E))
IDX_NAME = re.compile(r"(\.idx|idx\d?-u?byte|\.idx\d-ubyte)(\.gz)?$", re.IGNORECASE)
_DIGITS = re.compile(rb"([0-9]+)")
_NUMBER = re.compile(r"[-_.]?\d+(-of-\d+)?$")
_SUFFIXES = re.compile(r"\.(npy|idx)(\.gz)?$|\.gz$", re.IGNORECASE)

FieldFiles = list[tuple[str, list[Path]]]


@dataclass(frozen=True)
class Options:
    """The options of the command line that say how to read the files."""

    schema: tuple[Field, ...] | None = None
    offset: int = 0
    fields: tuple[str, ...] = ()
    split: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    shards: bool = False


@dataclass(frozen=True)
class PublicSource:
    """A public class, such as ``NpySource``, and its arguments. The class needs jax."""

    name: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]

    def make(self, ordering: Any) -> Any:
        """Returns the source."""
        kind = getattr(importlib.import_module("millstream"), self.name)
        return kind(*self.arguments, ordering=ordering, **self.named)

    def __str__(self) -> str:
        arguments = [
            repr(str(value) if isinstance(value, Path) else value)
            for value in self.arguments
        ]
        named = [f"{name}={value!r}" for name, value in self.named.items()]
        return f"{self.name}({', '.join([*arguments, *named])})"


def _public_source(name: str, *arguments: Any, **named: Any) -> PublicSource:
    return PublicSource(name, arguments, named)


@dataclass(frozen=True)
class DataSet:
    """The samples at a path.

    ``open(folder)`` returns the engine's source and may unpack files into the folder.
    ``source`` is the public source of the same samples.
    ``parts`` open single files or arrays of the data set. A ``zipped`` file has
    checksums. ``table`` is the form of a table.
    """

    path: Path
    title: str
    open: Callable[[Path], _engine.Source]
    source: PublicSource | None = None
    parts: tuple[Callable[[Path], _engine.Source], ...] = ()
    split: str | None = None
    zipped: bool = False
    table: tables.Form | None = None

    @property
    def name(self) -> str:
        """The path, followed by the split if there is one."""
        return f"{self.path} ({self.split})" if self.split else str(self.path)


def find(
    path: Path, options: Options, schema_hint: str = "use --schema"
) -> list[DataSet]:
    """Returns the data sets at ``path``, which is a file, a folder or an archive.

    Raises ``DataError`` if there is none, and ``OSError`` if the path cannot be read.
    ``schema_hint`` says in the error how to pass the schema of records.
    """
    if path.is_dir():
        return _in_folder(path, options)
    _check_kind(path)
    found = _in_file(path, options, guess_text=True)
    if not found:
        head = _head(path)
        shown = f"a file that begins with {head[:8]!r}" if head else "an empty file"
        raise data_error(
            f"for packed records without a header, {schema_hint} or put "
            f"{path.name}.json next to the file",
            path=path,
            expected=f"one of {KNOWN}",
            found=shown,
        )
    return found


def _check_kind(path: Path) -> None:
    """Raises ``DataError`` for pipes, sockets and devices: reading may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode), "something else")
        raise data_error(path=path, expected="a file or a folder", found=kind)


def field_name(path: Path) -> str:
    """Returns the name of a field for a file: the file name without suffixes."""
    name = _encodable(path.name)
    return _SUFFIXES.sub("", name) or name


def _encodable(name: str) -> str:
    """Returns a file name in UTF-8, with other bytes escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def npy_set(path: Path, fields: FieldFiles, title: str) -> DataSet:
    """Returns a data set of .npy files."""
    source = _public_source("NpySource", _named(path, fields))
    return _arrays_set(path, fields, title, lambda files, _: _engine.npy(files), source)


def idx_set(path: Path, fields: FieldFiles, title: str = "") -> DataSet:
    """Returns a data set of IDX files."""
    if not title:
        is_gzip = _head(fields[0][1][0]).startswith(_GZIP)
        title = "IDX, gzipped" if is_gzip else "IDX"
    source = _public_source("IdxSource", _named(path, fields))
    return _arrays_set(path, fields, title, _engine.idx, source)


def _named(path: Path, fields: FieldFiles) -> Any:
    """Returns the files of each field. An array alone has no name."""
    if len(fields) > 1 or (path / MANIFEST).exists():
        return dict(fields)
    return fields[0][1]


def _arrays_set(
    path: Path,
    fields: FieldFiles,
    title: str,
    opener: Callable[[FieldFiles, Path], _engine.Source],
    source: PublicSource,
) -> DataSet:
    files = [(name, file) for name, shards in fields for file in shards]
    return DataSet(
        path,
        title,
        partial(opener, fields),
        source,
        tuple(partial(opener, [(name, [file])]) for name, file in files),
    )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)


def _in_file(
    path: Path, options: Options, *, guess_text: bool = False
) -> list[DataSet]:
    """Returns the data sets in a file, or an empty list for an unknown format."""
    head = _head(path)
    name = path.name.lower()
    if head.startswith(b"\x93NUMPY"):
        return [npy_set(path, [(field_name(path), [path])], "NumPy .npy")]
    if head.startswith(b"PK\x03\x04"):
        return [_npz_set(path, options)]
    if head.startswith(b"MSPACKED"):
        return [_packed_set(path)]
    if head.startswith(_GZIP):
        return _in_gzip(path, head, options)
    schema_file = _schema_file(path)
    schema = options.schema or (read_schema(schema_file) if schema_file else None)
    if schema:
        return [_records_set(path, schema, options.offset)]
    if head[257:262] == b"ustar" or name.endswith(".tar"):
        return _archive_sets(path, options)
    if batch := cifar.batch_kind(path, head):
        return [_cifar_batch_set(path, *batch)]
    if _is_idx(head) or IDX_NAME.search(name):
        return [idx_set(path, [(field_name(path), [path])])]
    if name.endswith(".npy"):
        return [npy_set(path, [(field_name(path), [path])], "NumPy .npy")]
    if name.endswith(".npz"):
        return [_npz_set(path, options)]
    if name.endswith(".packed"):
        return [_packed_set(path)]
    if tables.is_table(name, head, guess_text=guess_text):
        return [_table_set(path, options)]
    return []


def _in_gzip(path: Path, head: bytes, options: Options) -> list[DataSet]:
    name = path.name.lower()
    try:
        inside = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except zlib.error:
        inside = b""
    is_tar = inside[257:262] == b"ustar" or name.endswith((".tar.gz", ".tgz"))
    if is_tar and not _is_idx(inside):
        return _archive_sets(path, options)
    if inside and not _is_idx(inside) and not IDX_NAME.search(name):
        raise data_error(
            "unpack the file first",
            path=path,
            expected="a gzipped IDX file or CIFAR archive",
            found=f"gzipped bytes that begin with {inside[:8]!r}",
        )
    return [idx_set(path, [(field_name(path), [path])])]


def _is_idx(head: bytes) -> bool:
    return (
        head[:2] == b"\0\0" and len(head) > 3 and head[2] in _IDX_TYPES and head[3] > 0
    )


def _schema_file(path: Path) -> Path | None:
    schema_file = path.with_name(f"{path.name}.json")
    return schema_file if schema_file.is_file() else None


def _packed_set(path: Path) -> DataSet:
    return DataSet(
        path,
        "packed records",
        lambda _: _engine.packed(path, None, 0),
        _public_source("PackedSource", path),
    )


def _records_set(path: Path, schema: tuple[Field, ...], offset: int) -> DataSet:
    specs = [(field.name, field.dtype, list(field.shape)) for field in schema]
    record = {field.name: (field.dtype, field.shape) for field in schema}
    return DataSet(
        path,
        "packed records, without a header",
        lambda _: _engine.packed(path, specs, offset),
        _public_source("PackedSource", path, record, offset=offset),
    )


def _npz_set(path: Path, options: Options) -> DataSet:
    def opener(names: Sequence[str]) -> Callable[[Path], _engine.Source]:
        return lambda cache: _engine.npz(path, list(names), cache)

    try:
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        members = []  # the engine reports the damage
    return DataSet(
        path,
        "NumPy .npz",
        opener(options.fields),
        _public_source("NpzSource", path),
        tuple(opener([name]) for name in members),
        zipped=True,
    )


def _table_set(path: Path, options: Options) -> DataSet:
    form = tables.form_of(path, options.delimiter, options.header)

    def open_table(_: Path) -> _engine.Source:
        try:
            return form.open(path, options.fields)
        except DataError as error:
            if options.header is None and not form.header and error.line == 1:
                hint = "; use --header if line 1 names the columns"
                raise DataError(f"{error}{hint}", **error_fields(error)) from error
            raise

    source = _public_source(
        "CsvSource", path, delimiter=form.delimiter, header=form.header
    )
    return DataSet(path, form.title, open_table, source, table=form)


def _cifar_batch_set(path: Path, classes: int, title: str) -> DataSet:
    title = f"CIFAR-{classes}, a {title} batch"
    source = _public_source("CifarSource", [path], classes=classes)
    return DataSet(path, title, _cifar_part(path, classes), source)


def _cifar_part(file: Path, classes: int) -> Callable[[Path], _engine.Source]:
    return lambda _: _engine.cifar_batches([file], classes)


def _archive_sets(path: Path, options: Options) -> list[DataSet]:
    classes = cifar.archive_kind(path)
    splits = [options.split] if options.split else ["train", "test"]
    return [_cifar_set(path, classes, split, "archive", (path,)) for split in splits]


def _cifar_set(
    path: Path, classes: int, split: str, place: str, files: tuple[Path, ...]
) -> DataSet:
    return DataSet(
        path,
        f"CIFAR-{classes}, {place}",
        lambda cache: _engine.cifar(path, classes, split, cache),
        _public_source("CifarSource", path, classes=classes, train=split == "train"),
        tuple(_cifar_part(file, classes) for file in files),
        split=split,
    )


def _in_folder(folder: Path, options: Options) -> list[DataSet]:
    files = sorted(
        (path for path in folder.iterdir() if path.is_file()), key=_by_number
    )
    manifest = folder / MANIFEST
    if manifest in files:
        return [_manifest_set(folder, manifest, options)]
    described = {path for path in files if options.schema or _schema_file(path)}
    splits = cifar.folder_splits([path for path in files if path not in described])
    if splits:
        return [
            _cifar_set(folder, classes, split, "folder", batches)
            for classes, split, batches in splits
            if options.split in (None, split)
        ] + [data for path in sorted(described) for data in _in_file(path, options)]
    found = []
    arrays = [path for path in files if path.suffix == ".npy"]
    if arrays:
        fields = _folder_fields(folder, arrays, options)
        shards = sum(len(part) for _, part in fields)
        title = "folder of .npy" + (
            f" ({shards} shards)" if shards > len(fields) else ""
        )
        found.append(npy_set(folder, fields, title))
    for path in files:
        if path.suffix not in (".npy", ".json"):
            found += _in_file(path, options)
    if not found:
        raise data_error(path=folder, expected=f"{KNOWN} in this folder", found="none")
    return found


def _by_number(path: Path) -> list[bytes | tuple[int, int]]:
    """Sorts shards as the engine does: compares the numbers in names by value."""
    runs = _DIGITS.split(os.fsencode(path.name))
    return [(int(run), len(run)) if i % 2 else run for i, run in enumerate(runs)]


def _folder_fields(folder: Path, files: list[Path], options: Options) -> FieldFiles:
    """Groups files into fields. Shards of a field differ in a number at the end."""
    fields: dict[str, list[Path]] = {}
    for file in files:
        name = "" if options.shards else _NUMBER.sub("", file.stem)
        name = _encodable(name or folder.resolve().name)
        fields.setdefault(name, []).append(file)
    return _chosen(folder, fields, options)


def _manifest_set(folder: Path, manifest: Path, options: Options) -> DataSet:
    expected = 'a dict such as {"image": "image.npy"}'
    stored = read_json(manifest, expected)

    def refusal(found: str) -> DataError:
        return data_error(path=manifest, expected=expected, found=found)

    if not isinstance(stored, dict) or not stored:
        raise refusal(f"{stored!r:.60}")
    fields: dict[str, list[Path]] = {}
    for name, file in stored.items():
        if not is_utf8(name):
            raise refusal(f"the name {name!r}")
        if not isinstance(file, str) or Path(file).name != file or not is_utf8(file):
            raise refusal(f"{file!r:.60} for {name!r}")
        fields[name] = [folder / file]
    chosen = _chosen(folder, fields, options)
    for _, (file,) in chosen:
        _check_kind(file)
    if all(file.suffix == ".npy" for _, shards in chosen for file in shards):
        return npy_set(folder, chosen, "folder of .npy")
    return idx_set(folder, chosen, "folder of IDX")


def _chosen(
    folder: Path, fields: dict[str, list[Path]], options: Options
) -> FieldFiles:
    for name in options.fields:
        if name not in fields:
            raise UsageError(
                f"{folder}: unknown field {name!r}: expected one of {[*fields]}"
            )
    return [(name, fields[name]) for name in options.fields or fields]
