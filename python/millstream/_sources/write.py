"""Writes the samples of a source to files, in the order of their indices.

The engine writes files under temporary names and renames them when they are complete.
It regularly calls ``progress`` with the number of samples written. ``progress`` may
raise an exception to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._sources.disk import AnyPath
from millstream._sources.ordered import name_of, resolve_split
from millstream._sources.source import SampleSource

Progress = Callable[[int], None]


@public
def write_npy(
    source: SampleSource, paths: Tree, *, progress: Progress | None = None
) -> None:
    """Writes one ``.npy`` file per field.

    ``paths`` is a pytree of paths with the structure of a sample.
    """
    native, files = _files("write_npy", source, paths)
    _engine.write_npy(native, files, progress)


@public
def write_idx(
    source: SampleSource, paths: Tree, *, progress: Progress | None = None
) -> None:
    """Writes one uncompressed IDX file per field.

    ``paths`` is a pytree of paths with the structure of a sample.
    """
    native, files = _files("write_idx", source, paths)
    _engine.write_idx(native, files, progress)


@public
def write_packed(
    source: SampleSource, path: AnyPath, *, progress: Progress | None = None
) -> None:
    """Writes one file of records with a header. ``PackedSource(path)`` reads it."""
    _engine.write_packed(resolve_split(source).native()[0], Path(path), progress)


@public
def write_csv(
    source: SampleSource,
    path: AnyPath,
    *,
    delimiter: str = ",",
    progress: Progress | None = None,
) -> None:
    """Writes a CSV file with a header line. A field has one column per element."""
    _engine.write_csv(
        resolve_split(source).native()[0], Path(path), delimiter, progress
    )


def _files(caller: str, source: Any, paths: Tree) -> tuple[_engine.Source, list[Path]]:
    """Returns the engine's source and the path for each of its fields."""
    native, _, names = resolve_split(source).native()
    places = jax.tree_util.tree_flatten_with_path(paths)[0]
    files = {name_of(where): Path(path) for where, path in places}
    if sorted(files) != sorted(names):
        raise ValueError(
            f"{caller}: expected paths for the fields {sorted(names)}, found "
            f"{sorted(files)}"
        )
    return native, [files[name] for name in names]
