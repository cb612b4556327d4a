"""The exceptions of Millstream's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from millstream._core.public import public

# The attributes that errors of the engine have.
FIELDS = (
    "kind",
    "path",
    "offset",
    "line",
    "sample",
    "field",
    "expected",
    "found",
    "text",
    "pid",
)

# On an error that a user's function raised for an item: the number of the item.
ITEM = "_millstream_item"

_TOLD = frozenset(FIELDS) - {"kind", "pid"}  # by a message


class _WithFields(Exception):
    """An exception that says what it is about by attributes.

    They are part of its ``__dict__``, so that copies and pickles have them too.
    """

    def __init__(
        self,
        *args: object,
        kind: str | None = None,
        path: str | None = None,
        offset: int | None = None,
        line: int | None = None,
        sample: int | None = None,
        field: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        text: str | None = None,
        pid: int | None = None,
    ) -> None:
        super().__init__(*args)
        self.kind = kind
        self.path = path
        self.offset = offset
        self.line = line
        self.sample = sample
        self.field = field
        self.expected = expected
        self.found = found
        self.text = text
        self.pid = pid


@public
class DataError(_WithFields):
    """The bytes of a data set are not what their format promises.

    The message names the file, where in it the trouble is, what was expected and what
    was found. The same is in attributes, which are None where they are unknown or do
    not apply. Wrong arguments raise ``ValueError``. Failed reads raise ``OSError``,
    which has the same attributes where the engine raised it.

    Attributes:
      kind: What sort of error it is, in one word: "data".
      path: The file.
      offset: The byte in the file where the trouble is. In a compressed file it may
        count the bytes of what was compressed.
      line: The line of a table, from 1.
      sample: The number of the sample, within the file if ``path`` is known.
      field: The field of the sample, or the column of the table.
      expected: What should be there.
      found: What is there.
      text: What is wrong, where ``expected`` and ``found`` do not say it.
      pid: None; it is the worker process in a ``WorkerError``.
    """


class DownloadError(OSError):
    """A file could not be fetched from any of its mirrors.

    The message says why each mirror failed and how to fetch the file by hand.
    """


@public
class WorkerError(_WithFields, RuntimeError):
    """A worker process ended before its samples were made, or was asked to.

    The message names the process, how it ended and the sample that it was at. Where a
    function raised ``SystemExit``, ``KeyboardInterrupt`` or ``GeneratorExit``, that is
    the cause, and the worker goes on.

    The attributes are those of ``DataError``. ``sample`` is None where the worker was
    at several samples or at none, and ``pid`` is the process. ``kind`` is
    "worker_died", "function" where a function raised such an exception, or "closed"
    where the workers were closed.
    """


@public
class WorkerTimeout(_WithFields, TimeoutError):
    """A sample took longer than ``timeout`` allows.

    The message names the worker, the sample and where in Python the worker is. A worker
    process is replaced. A thread cannot be stopped, so its source raises this error
    from then on and has to be built again.

    The attributes are those of ``DataError``. ``sample`` is None where the worker was
    at several samples, and ``pid`` is None where it was a thread. ``kind`` is
    "worker_stalled".
    """


def error_fields(error: BaseException) -> dict[str, Any]:
    """The attributes that say what an error is about; those that are None left out."""
    found = {name: getattr(error, name, None) for name in FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def data_error(
    text: str = "",
    *,
    path: str | os.PathLike[str],
    expected: str = "",
    found: str = "",
    offset: int | None = None,
    line: int | None = None,
) -> DataError:
    """A ``DataError`` whose message is composed of its fields and ``text``."""
    fields: dict[str, Any] = {"kind": "data", "path": os.fspath(path)}
    fields |= {"expected": expected, "found": found, "text": text}
    fields |= {"offset": offset, "line": line}
    fields = {name: value for name, value in fields.items() if value not in (None, "")}
    return DataError(_composed(fields), **fields)


def text_without_path(error: DataError) -> str:
    """The message for those who know which file it is about."""
    fields = error_fields(error)
    return _composed(fields) if fields.pop("path", None) is not None else str(error)


def _composed(fields: dict[str, Any]) -> str:
    """The message that the engine composes of the fields of an error."""
    from millstream import _engine

    given = {}
    for name in _TOLD & fields.keys():
        value = fields[name]
        if isinstance(value, str) and name != "path":  # which may hold any bytes
            value = value.encode(errors="backslashreplace").decode()
        given[name] = value
    return _engine.error_text(**given)


def stand_in(
    error: BaseException, where: str, sample: int | None = None
) -> Exception | None:
    """What to raise from ``error``, which a function raised, or None for itself.

    ``StopIteration`` would silently end the loop over batches, and what is no
    ``Exception``, such as ``SystemExit``, the program.
    """
    other: Exception
    if isinstance(error, StopIteration):
        other = RuntimeError(f"a function raised StopIteration {where}")
    elif isinstance(error, Exception):
        return None
    else:
        words = f": {error}" if str(error) else ""
        other = WorkerError(
            f"a function raised {type(error).__name__} in a worker, {where}{words}",
            kind="function",
            sample=sample,
        )
    copy_notes(error, other)
    return other


def copy_notes(error: BaseException, other: BaseException) -> None:
    """Gives ``other``, which is raised for ``error``, its notes and its item."""
    for note in getattr(error, "__notes__", []):
        other.add_note(note)
    if hasattr(error, ITEM):
        setattr(other, ITEM, getattr(error, ITEM))


def started(start: Callable[[], Any]) -> Any:
    """Calls what runs code of the user's when a worker starts."""
    try:
        return start()
    except BaseException as error:
        other = stand_in(error, "when it started")
        if other is None:
            raise
        raise other from error


def thrown(packed: bytes, message: str) -> BaseException:
    """The exception that a worker process packed; one with its words if it cannot be.

    The bytes come from a process that this one started.
    """
    import pickle

    try:
        error, error.__cause__ = pickle.loads(packed)
    except Exception:
        return WorkerError(message)
    return error if isinstance(error, BaseException) else WorkerError(message)
