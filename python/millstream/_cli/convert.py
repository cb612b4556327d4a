"""``millstream convert``: writes samples in another format."""

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
from millstream._cli.output import printable
from millstream._cli.reading import Reader, fields_of, sample_bytes
from millstream._core.errors import DataError
from millstream._core.progress_bar import ProgressBar
from millstream._formats.detect import IDX_NAME, MANIFEST
from millstream._formats.schema import UsageError, read_json

WRITTEN = ("npy", "npz", "idx", "packed", "csv", "tsv")

_SUFFIXES = {f".{name}": name for name in WRITTEN}
_UNSAFE = re.compile(r"[^\w.-]+")
_IN_IDX = ("uint8", "int8", "int16", "int32", "float32", "float64")
_MAX_IN_TABLE = (1 << 63) - 1

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Target:
    """Where to write and in which format: a file, or a folder with a file per field."""

    path: Path
    format: str
    folder: bool


def target_of(path: Path, wanted: str | None) -> Target:
    """Returns the target for ``path``: in the format ``wanted``, or by its suffix.

    A name without a suffix is a folder of .npy files. Raises ``UsageError`` for an
    unknown suffix.
    """
    if path.suffix == ".gz":
        raise UsageError(f"{path}: cannot write gzipped files. Use a name without .gz.")
    by_name = _SUFFIXES.get(path.suffix.lower())
    if by_name is None and IDX_NAME.search(path.name):
        by_name = "idx"
    if wanted is None and by_name is None and path.suffix:
        raise UsageError(
            f"{path}: unknown suffix {path.suffix!r}: expected one of "
            f"{', '.join(_SUFFIXES)}. Or choose a format with --to."
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
    """Writes all samples of ``source`` to ``target``, which appears when complete.

    Raises ``ValueError`` if the format cannot hold the samples, or if the target exists
    and ``force`` is False. Leaves no files after an error.
    """
    _check_place(target, force)
    parent = target.path.parent
    prefix = f".{target.path.name}."
    with tempfile.TemporaryDirectory(".part", prefix, dir=parent) as folder:
        workspace = Path(folder)
        total = len(source) * sample_bytes(source)
        label = printable(f"convert {target.path.name}")
        with ProgressBar(label, total * 2 if casts else total) as bar:
            each, before = sample_bytes(source), 0
            if casts:
                source = cast_source(source, casts, lambda n: bar.update(n * each))
                before = total
            _check_dtypes(source, target)
            _check_values(source, target)
            made = _write_into(
                source, target, workspace, lambda n: bar.update(before + n * each)
            )
        _move(made, target.path, workspace)


def _check_place(target: Target, force: bool) -> None:
    path = target.path
    if not path.parent.is_dir():
        raise ValueError(
            f"{path.parent}: expected a folder to write to, found none. Create it."
        )
    if not os.path.lexists(path):
        return
    if not force:
        raise ValueError(f"{path}: already exists. Use --force to replace it.")
    if path.is_dir() and (not target.folder or not _is_ours(path)):
        raise ValueError(
            f"{path}: this folder is not replaced, because millstream convert did "
            "not write it. Use another name."
        )
    if target.folder and not path.is_dir():
        raise ValueError(
            f"{path}: expected a folder to replace, found a file. Remove it first."
        )


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds only a manifest and the files that it lists."""
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    try:
        stored: Any = read_json(folder / MANIFEST, "")
        return names <= {MANIFEST, *stored.values()}
    except (OSError, DataError, AttributeError, TypeError):
        return False


def _check_dtypes(source: _engine.Source, target: Target) -> None:
    """Raises ``ValueError`` for the first field whose dtype the format does not have.

    The engine raises as well, but its message does not suggest ``--cast``.
    """
    for name, dtype, _ in fields_of(source):
        if target.format == "idx" and dtype not in _IN_IDX:
            raise ValueError(
                f"{target.path}: '{name}' is {dtype}, but IDX has only "
                f"{', '.join(_IN_IDX)}. Use, for example, --cast {name}={_IN_IDX[0]}."
            )
        if target.format in ("npy", "npz") and dtype == "bfloat16":
            raise ValueError(
                f"{target.path}: '{name}' is bfloat16, which NumPy does not have. "
                f"Use --cast {name}=float32."
            )
        if target.format in ("csv", "tsv") and dtype.startswith("complex"):
            raise ValueError(
                f"{target.path}: '{name}' is {dtype}, but tables hold real numbers. "
                "Use another format."
            )


def _check_values(source: _engine.Source, target: Target) -> None:
    """Raises ``ValueError`` for integers that cannot be read back from a table."""
    fields = fields_of(source)
    wide = [i for i, field in enumerate(fields) if field.dtype == "uint64"]
    if target.format not in ("csv", "tsv") or not wide:
        return
    reader = Reader(source)
    for step in range(reader.steps):
        columns = reader.batch(step)
        for i in wide:
            large = columns[i] > _MAX_IN_TABLE
            if large.any():
                row = int(large.reshape(len(large), -1).any(axis=1).argmax())
                value = int(columns[i][row].max())
                raise ValueError(
                    f"{target.path}: '{fields[i].name}', sample "
                    f"{step * reader.rows + row}: {value} is larger than "
                    f"{_MAX_IN_TABLE}, the largest integer in a table. Use "
                    "another format."
                )


def _write_into(
    source: _engine.Source, target: Target, workspace: Path, progress: Progress
) -> Path:
    made = workspace / "made" / target.path.name
    made.parent.mkdir()
    names = [field.name for field in fields_of(source)]
    if target.format == "npz":
        arrays = _array_files(names, workspace / "arrays", ".npy")
        _engine.write_npy(source, list(arrays.values()), progress)
        _write_npz(made, arrays)
    elif target.format in ("npy", "idx"):
        write_arrays = (
            _engine.write_npy if target.format == "npy" else _engine.write_idx
        )
        if not target.folder:
            if len(names) > 1:
                raise ValueError(
                    f"{target.path}: a file of this format holds one field, but there "
                    f"are {len(names)} ({', '.join(names)}). Give the name of a "
                    "folder, without a suffix."
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
    """Returns a file per field, named after it with unsafe characters replaced."""
    folder.mkdir()
    files: dict[str, Path] = {}
    for i, name in enumerate(names):
        safe = _UNSAFE.sub("_", name).strip(".")[:100] or f"field{i}"
        if folder / f"{safe}{suffix}" in files.values():
            safe = f"{safe}-{i}"
        files[name] = folder / f"{safe}{suffix}"
    return files


def _write_npz(made: Path, arrays: dict[str, Path]) -> None:
    """Moves the files into an archive, uncompressed, so that it can be mapped."""
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, path in arrays.items():
            archive.write(path, f"{name}.npy")
            path.unlink()
    with made.open("rb") as file:
        os.fsync(file.fileno())


def _move(made: Path, path: Path, workspace: Path) -> None:
    """Moves ``made`` to ``path`` and replaces a folder that is there."""
    if path.is_dir() and not path.is_symlink():
        path.rename(workspace / "replaced")
    try:
        made.replace(path)
    except OSError:
        if (workspace / "replaced").exists():
            (workspace / "replaced").rename(path)
        raise
