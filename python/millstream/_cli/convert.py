"""``millstream convert``: writes the samples of one format in another."""

from __future__ import annotations

import json
import os
import re
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream import _engine
from millstream._cli.casting import cast_source
from millstream._cli.formats import IDX_NAME, MANIFEST
from millstream._cli.output import printable
from millstream._cli.reading import Reader, fields_of, sample_bytes
from millstream._cli.schema import UsageError, read_json
from millstream._core.errors import DataError
from millstream._core.progress_bar import ProgressBar

WRITTEN = ("npy", "npz", "idx", "packed", "csv", "tsv")

_SUFFIXES = {f".{name}": name for name in WRITTEN}
_UNSAFE = re.compile(r"[^\w.-]+")
_IN_IDX = ("uint8", "int8", "int16", "int32", "float32", "float64")
_GREATEST_IN_TABLE = (1 << 63) - 1

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Target:
    """A place to write to, and how: one file, or a folder of one a field."""

    path: Path
    format: str
    folder: bool


def target_of(path: Path, wanted: str | None) -> Target:
    """What to write at ``path``: by its suffix, unless a format is asked for.

    A name without a suffix is a folder of .npy files. Raises ``UsageError`` for a name
    that does not tell.
    """
    if path.suffix == ".gz":
        raise UsageError(f"{path}: gzipped files are not written")
    by_name = _SUFFIXES.get(path.suffix.lower())
    if by_name is None and IDX_NAME.search(path.name):
        by_name = "idx"
    if wanted is None and by_name is None and path.suffix:
        raise UsageError(
            f"{path}: the suffix {path.suffix!r} names no format: use one of "
            f"{', '.join(_SUFFIXES)}, or --to"
        )
    form = wanted or by_name or "npy"
    return Target(path, form, form in ("npy", "idx") and by_name is None)


def write(
    source: _engine.Source,
    target: Target,
    *,
    force: bool,
    casts: dict[str, str],
) -> None:
    """Writes all samples of ``source`` to ``target``, which appears when it is whole.

    Raises ``ValueError`` for what the format cannot hold and for a target that exists,
    unless ``force``; nothing is left behind then.
    """
    _check_place(target, force)
    parent = target.path.parent
    prefix = f".{target.path.name}."
    with tempfile.TemporaryDirectory(".part", prefix, dir=parent) as folder:
        beside = Path(folder)
        total = len(source) * sample_bytes(source)
        label = printable(f"convert {target.path.name}")
        with ProgressBar(label, total * 2 if casts else total) as bar:
            each, before = sample_bytes(source), 0
            if casts:
                source = cast_source(source, casts, lambda n: bar.update(n * each))
                before = total
            _check_dtypes(source, target)
            _check_values(source, target)
            made = _write_beside(
                source, target, beside, lambda n: bar.update(before + n * each)
            )
        _move(made, target.path, beside)


def _check_place(target: Target, force: bool) -> None:
    path = target.path
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: expected a folder to write to, found none")
    if not os.path.lexists(path):
        return
    if not force:
        raise ValueError(f"{path}: exists already; --force replaces it")
    if path.is_dir() and (not target.folder or not _is_ours(path)):
        raise ValueError(
            f"{path}: is a folder that this command did not write: it is not replaced"
        )
    if target.folder and not path.is_dir():
        raise ValueError(f"{path}: expected a folder to replace, found a file")


def _is_ours(folder: Path) -> bool:
    """Whether there is nothing in a folder but what a manifest names."""
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    try:
        stored: Any = read_json(folder / MANIFEST, "")
        return names <= {MANIFEST, *stored.values()}
    except (OSError, DataError, AttributeError, TypeError):
        return False


def _check_dtypes(source: _engine.Source, target: Target) -> None:
    """Raises ``ValueError`` naming the first field whose dtype a format does not have.

    The engine refuses them too, but does not know what to do about it.
    """
    for name, dtype, _ in fields_of(source):
        if target.format == "idx" and dtype not in _IN_IDX:
            raise ValueError(
                f"{target.path}: '{name}' is {dtype}, and IDX holds "
                f"{', '.join(_IN_IDX)}: --cast {name}={_IN_IDX[0]}, for example"
            )
        if target.format in ("npy", "npz") and dtype == "bfloat16":
            raise ValueError(
                f"{target.path}: '{name}' is bfloat16, which NumPy does not have: "
                f"--cast {name}=float32"
            )
        if target.format in ("csv", "tsv") and dtype.startswith("complex"):
            raise ValueError(
                f"{target.path}: '{name}' is {dtype}, and tables hold real numbers"
            )


def _check_values(source: _engine.Source, target: Target) -> None:
    """Raises ``ValueError`` for numbers that a table would not give back."""
    fields = fields_of(source)
    wide = [i for i, field in enumerate(fields) if field.dtype == "uint64"]
    if target.format not in ("csv", "tsv") or not wide:
        return
    reader = Reader(source)
    for step in range(reader.steps):
        columns = reader.batch(step)
        for i in wide:
            beyond = columns[i] > _GREATEST_IN_TABLE
            if beyond.any():
                row = int(beyond.reshape(len(beyond), -1).any(axis=1).argmax())
                value = int(columns[i][row].max())
                raise ValueError(
                    f"{target.path}: '{fields[i].name}', sample "
                    f"{step * reader.rows + row}: {value} is more than the "
                    f"{_GREATEST_IN_TABLE} that integers in tables can be"
                )


def _write_beside(
    source: _engine.Source, target: Target, beside: Path, progress: Progress
) -> Path:
    made = beside / "made" / target.path.name
    made.parent.mkdir()
    names = [field.name for field in fields_of(source)]
    if target.format == "npz":
        arrays = _array_files(names, beside / "arrays", ".npy")
        _engine.write_npy(source, list(arrays.values()), progress)
        _write_npz(made, arrays)
    elif target.format in ("npy", "idx"):
        write_arrays = (
            _engine.write_npy if target.format == "npy" else _engine.write_idx
        )
        if not target.folder:
            if len(names) > 1:
                raise ValueError(
                    f"{target.path}: a file of this format holds one field, and there "
                    f"are {len(names)} ({', '.join(names)}): name a folder"
                )
            write_arrays(source, [made], progress)
        else:
            files = _array_files(names, made, f".{target.format}")
            write_arrays(source, list(files.values()), progress)
            manifest = {name: path.name for name, path in files.items()}
            text = json.dumps(manifest, indent=2, ensure_ascii=False)
            (made / MANIFEST).write_text(f"{text}\n", "utf-8")
    elif target.format == "packed":
        _engine.write_packed(source, made, progress)
    else:
        delimiter = "\t" if target.format == "tsv" else ","
        _engine.write_csv(source, made, delimiter, progress)
    return made


def _array_files(names: list[str], folder: Path, suffix: str) -> dict[str, Path]:
    """A file for each field, whose name is as near the field's as file systems let."""
    folder.mkdir()
    files: dict[str, Path] = {}
    for i, name in enumerate(names):
        safe = _UNSAFE.sub("_", name).strip(".")[:100] or f"field{i}"
        if folder / f"{safe}{suffix}" in files.values():
            safe = f"{safe}-{i}"
        files[name] = folder / f"{safe}{suffix}"
    return files


def _write_npz(made: Path, arrays: dict[str, Path]) -> None:
    """Stores the arrays as they are, so that they can be mapped; takes the files."""
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, path in arrays.items():
            archive.write(path, f"{name}.npy")
            path.unlink()
    with made.open("rb") as file:
        os.fsync(file.fileno())


def _move(made: Path, path: Path, beside: Path) -> None:
    """Puts what was made into its place; a folder that was there goes."""
    if path.is_dir() and not path.is_symlink():
        path.rename(beside / "replaced")
    try:
        made.replace(path)
    except OSError:
        if (beside / "replaced").exists():
            (beside / "replaced").rename(path)
        raise
