"""Writes the samples of a source to files, in the order of their numbers.

Files are written beside their names and renamed when they are whole. ``progress`` is
told from time to time how many samples are written, and may raise to stop.
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
from millstream._sources.ordered import name_of, own
from millstream._sources.source import SampleSource

Progress = Callable[[int], None]


@public
def write_npy(
    source: SampleSource, paths: Tree, *, progress: Progress | None = None
) -> None:
    """Write an ``.npy`` file for each field: ``paths`` is the tree of a sample."""
    native, files = _placed("write_npy", source, paths)
    _engine.write_npy(native, files, progress)


@public
def write_idx(
    source: SampleSource, paths: Tree, *, progress: Progress | None = None
) -> None:
    """Write a raw IDX file for each field: ``paths`` is the tree of a sample."""
    native, files = _placed("write_idx", source, paths)
    _engine.write_idx(native, files, progress)


@public
def write_packed(
    source: SampleSource, path: AnyPath, *, progress: Progress | None = None
) -> None:
    """Write one file of records that describes itself; ``PackedSource`` reads it."""
    _engine.write_packed(own(source).native()[0], Path(path), progress)


@public
def write_csv(
    source: SampleSource,
    path: AnyPath,
    *,
    delimiter: str = ",",
    progress: Progress | None = None,
) -> None:
    """Write a table with a header; a field of several elements is as many columns."""
    _engine.write_csv(own(source).native()[0], Path(path), delimiter, progress)


def _placed(who: str, source: Any, paths: Tree) -> tuple[_engine.Source, list[Path]]:
    """The engine's source, and a file for each of its fields."""
    native, _, names = own(source).native()
    places = jax.tree_util.tree_flatten_with_path(paths)[0]
    files = {name_of(where): Path(path) for where, path in places}
    if sorted(files) != sorted(names):
        raise ValueError(
            f"{who}: samples have the fields {sorted(names)}, there are files for "
            f"{sorted(files)}"
        )
    return native, [files[name] for name in names]
