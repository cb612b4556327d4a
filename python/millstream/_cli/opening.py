"""Opens data sets, and unpacks compressed ones into a temporary folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from millstream import _engine
from millstream._cli.reading import fields_of
from millstream._core.errors import DataError, error_fields
from millstream._formats.detect import DataSet, Options, find
from millstream._formats.schema import UsageError, is_utf8


class TemporaryError(OSError):
    """The folder for temporary files is full or not usable."""

    @classmethod
    def of(cls, error: OSError) -> TemporaryError:
        folder = tempfile.tempdir  # None if no folder is usable
        why = os.strerror(error.errno or 0) if folder else error.strerror
        why = f"{why}, in the folder for temporary files (TMPDIR)"
        return cls(error.errno, why, folder)


@contextlib.contextmanager
def opened(
    data: DataSet,
    *,
    fields: tuple[str, ...] = (),
    opener: Callable[[Path], _engine.Source] | None = None,
) -> Iterator[_engine.Source]:
    """Yields the engine's source of a data set, or the one ``opener`` returns.

    Compressed data is unpacked into a temporary folder, which is deleted at the end.
    Every ``DataError`` raised inside the with block names a file. Raises
    ``TemporaryError`` if unpacking fails, for example on a full disk.
    """
    with _temporary_folder() as folder:
        try:
            source = (opener or data.open)(Path(folder))
            found = tuple(field.name for field in fields_of(source))
            if fields and found != fields:
                raise UsageError(
                    f"{data.path}: --fields works for .npz, tables and folders, not "
                    f"for {data.title}. Its fields are {', '.join(found)}."
                )
            yield source
        except DataError as error:
            if error.path is not None:
                raise
            known = {**error_fields(error), "path": str(data.path)}
            raise DataError(f"{data.path}: {error}", **known) from error
        except OSError as error:
            if Path(str(error.filename or "")).is_relative_to(folder):
                raise TemporaryError.of(error) from error
            raise
        except ValueError as error:
            # The engine raises it for an unknown field.
            if getattr(error, "field", None) in fields:
                raise UsageError(str(error)) from error
            raise


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="millstream-")
    except OSError as error:
        raise TemporaryError.of(error) from error


def error_text(error: Exception) -> str:
    """Returns the text of an error in one line, with the file."""
    if not isinstance(error, OSError) or error.strerror is None:
        return " ".join(str(error).split("\n"))
    if error.filename is None or hasattr(error, "kind"):  # the text has the file
        return error.strerror
    return f"{error.filename}: {error.strerror}"


def joined(sources: Sequence[str], options: Options) -> DataSet:
    """Returns one data set for a path, or for NAME=PATH of each field.

    Raises ``UsageError`` for a missing or wrong name, and ``ValueError`` if a path has
    several data sets.
    """
    if len(sources) == 1 and ("=" not in sources[0] or Path(sources[0]).exists()):
        return _only(Path(sources[0]), options)
    named: dict[str, DataSet] = {}
    for word in sources:
        name, equals, path = word.partition("=")
        if not equals or not name:
            raise UsageError(
                f"{word}: with several sources, each needs a name: NAME=PATH"
            )
        if not is_utf8(name):
            raise UsageError(f"{word}: expected a name in UTF-8, found {name!r}")
        if name in named:
            raise UsageError(f"{word}: expected different names, found {name!r} twice")
        named[name] = _only(Path(path), options)

    def open_all(cache: Path) -> _engine.Source:
        return _engine.zipped(
            [_renamed(data.open(cache), name, data) for name, data in named.items()]
        )

    parts = list(named.values())
    title = " and ".join(dict.fromkeys(data.title for data in parts))
    paths = ", ".join(str(data.path) for data in parts)
    return DataSet(Path(paths), title, open_all)


def _only(path: Path, options: Options) -> DataSet:
    found = find(path, options)
    if len(found) > 1:
        names = ", ".join(data.name for data in found)
        hint = "--split" if found[0].split else "NAME=PATH for each field"
        raise ValueError(f"{path}: holds several data sets ({names}). Use {hint}.")
    return found[0]


def _renamed(source: _engine.Source, name: str, data: DataSet) -> _engine.Source:
    fields = fields_of(source)
    if len(fields) > 1:
        names = ", ".join(field.name for field in fields)
        raise ValueError(
            f"{data.path}: expected one field for {name!r}, found {len(fields)} "
            f"({names}). Use a file with one field."
        )
    field = fields[0]
    return _engine.recast(source, [(name, field.dtype, list(field.shape), False)])
