"""Opens data sets for as long as a command needs them."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from millstream import _engine
from millstream._cli.formats import DataSet, Options, find
from millstream._cli.reading import fields_of
from millstream._cli.schema import UsageError, is_utf8
from millstream._core.errors import DataError

UNPACKED = " (unpacked)"  # stands behind the name of a file that was


class TemporaryError(OSError):
    """The folder for temporary files is full, or cannot be used."""

    @classmethod
    def of(cls, error: OSError) -> TemporaryError:
        folder = tempfile.tempdir  # None where there is not one that can be used
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
    """The engine's source of a data set, or of the part that ``opener`` opens.

    What is compressed is unpacked into a folder of its own, which goes when the source
    does. ``DataError`` that is raised meanwhile names the files that users know.
    Raises ``TemporaryError`` where there is no room for it.
    """
    with _temporary_folder() as folder:
        try:
            source = (opener or data.open)(Path(folder))
            found = tuple(field.name for field in fields_of(source))
            if fields and found != fields:
                raise UsageError(
                    f"{data.path}: --fields chooses from .npz, tables and folders; "
                    f"{data.title} comes with {', '.join(found)}"
                )
            yield source
        except DataError as error:
            raise DataError(_known_names(str(error), Path(folder), data)) from error
        except OSError as error:
            if folder in str(error):
                raise TemporaryError.of(error) from error
            raise
        except UnicodeDecodeError as error:  # a message or a name with bytes of a file
            text = error.object.decode("utf-8", "backslashreplace")
            if "expected" not in text:
                text = f"expected names in UTF-8, found '{text}'"
            raise DataError(_known_names(text, Path(folder), data)) from error
        except ValueError as error:
            if fields and "there is no " in str(error):  # the engine's, of --fields
                raise UsageError(str(error)) from error
            raise


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="millstream-")
    except OSError as error:
        raise TemporaryError.of(error) from error


def error_text(error: Exception) -> str:
    """An error in one line, with the file that it is about."""
    if not isinstance(error, OSError) or error.strerror is None:
        return " ".join(str(error).split("\n"))
    name = error.filename
    if name is None or str(name) in error.strerror:
        return error.strerror
    return f"{name}: {error.strerror}"


def joined(sources: Sequence[str], options: Options) -> DataSet:
    """The one data set that is meant by paths, or by NAME=PATH for each field.

    Raises ``UsageError`` for names that are missing, ``ValueError`` where there are
    several data sets.
    """
    if len(sources) == 1 and ("=" not in sources[0] or Path(sources[0]).exists()):
        return _only(Path(sources[0]), options)
    named: dict[str, DataSet] = {}
    for word in sources:
        name, equals, path = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{word}: of several sources each needs a name: NAME=PATH")
        if not is_utf8(name):
            raise UsageError(f"{word}: expected a name in UTF-8, found {name!r}")
        if name in named:
            raise UsageError(
                f"{word}: expected names that differ, found {name!r} twice"
            )
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
        raise ValueError(f"{path}: holds several data sets ({names}): use {hint}")
    return found[0]


def _renamed(source: _engine.Source, name: str, data: DataSet) -> _engine.Source:
    fields = fields_of(source)
    if len(fields) > 1:
        names = ", ".join(field.name for field in fields)
        raise ValueError(
            f"{data.path}: {name!r} names one field, and there are {len(fields)} "
            f"({names})"
        )
    field = fields[0]
    return _engine.recast(source, [(name, field.dtype, list(field.shape), False)])


def _known_names(text: str, folder: Path, data: DataSet) -> str:
    """The text with the original's name in place of an unpacked file's or of none."""
    inside = re.escape(str(folder)) + r"/[^:\[]+"
    text = re.sub(inside, lambda _: f"{data.path}{UNPACKED}", text)
    named = any(path in text for path in str(data.path).split(", "))
    return text if named else f"{data.path}: {text}"
