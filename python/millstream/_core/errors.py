"""The exceptions of Millstream, and functions that compose and convert them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from millstream._core.public import public

# The attributes of errors that the engine raises.
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

# The attribute with the item for which a function of the user raised an error.
ITEM = "_millstream_item"

_IN_MESSAGE = frozenset(FIELDS) - {"kind", "pid"}


class _WithFields(Exception):
    """An exception with the attributes in ``FIELDS``.

    They are in its ``__dict__``, so copies and pickles keep them.
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
    """The data does not match its format.

    The message names the file and the position in it, and what was expected and found.
    The attributes hold the same facts. An attribute is None if it is unknown. Wrong
    arguments raise ``ValueError``. Failed reads raise ``OSError``, which has the same
    attributes if the engine raised it.

    Attributes:
      kind: The kind of error: "data".
      path: The file.
      offset: The position of the error in the file, in bytes. For a compressed file it
        may be the position in the decompressed data.
      line: The line of a table, starting at 1.
      sample: The number of the sample, within the file if ``path`` is known.
      field: The field of the sample, or the column of the table.
      expected: What the format requires.
      found: What the file contains.
      text: A further description, or None.
      pid: None. In a ``WorkerError`` it is the id of the worker process.
    """


class DownloadError(OSError):
    """A file could not be fetched from any of its mirrors.

    The message says why each mirror failed and how to fetch the file by hand.
    """


@public
class WorkerError(_WithFields, RuntimeError):
    """A worker process ended, or was closed, before it returned its samples.

    The message names the process, how it ended and the sample that it was making. If a
    function raised ``SystemExit``, ``KeyboardInterrupt`` or ``GeneratorExit``, that
    exception is the ``__cause__``, and the worker continues.

    The attributes are those of ``DataError``. ``sample`` is None if the worker was
    making several samples or none. ``pid`` is the id of the process. ``kind`` is
    "worker_died", "function" if a function raised one of these exceptions, or "closed"
    if the workers were closed.
    """


@public
class WorkerTimeout(_WithFields, TimeoutError):
    """A sample took longer than ``timeout`` allows.

    The message names the worker and the sample, and shows the Python stack of the
    worker. A worker process is replaced. A thread cannot be stopped, so its source
    raises this error from then on and must be built again.

    The attributes are those of ``DataError``. ``sample`` is None if the worker was
    making several samples. ``pid`` is None for a thread. ``kind`` is "worker_stalled".
    """


def error_fields(error: BaseException) -> dict[str, Any]:
    """Returns the attributes of an error that are in ``FIELDS`` and not None."""
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
    """Returns a ``DataError`` with a message composed from its attributes."""
    fields: dict[str, Any] = {"kind": "data", "path": os.fspath(path)}
    fields |= {"expected": expected, "found": found, "text": text}
    fields |= {"offset": offset, "line": line}
    fields = {name: value for name, value in fields.items() if value not in (None, "")}
    return DataError(_composed(fields), **fields)


def text_without_path(error: DataError) -> str:
    """Returns the message of an error without its path."""
    fields = error_fields(error)
    return _composed(fields) if fields.pop("path", None) is not None else str(error)


def _composed(fields: dict[str, Any]) -> str:
    """Returns the message that the engine composes from the attributes of an error."""
    from millstream import _engine

    given = {}
    for name in _IN_MESSAGE & fields.keys():
        value = fields[name]
        if isinstance(value, str) and name != "path":  # a path may have any bytes
            value = value.encode(errors="backslashreplace").decode()
        given[name] = value
    return _engine.error_text(**given)


def stand_in(
    error: BaseException, where: str, sample: int | None = None
) -> Exception | None:
    """Returns the exception to raise instead of ``error``, or None to keep ``error``.

    A function of the user raised ``error``; ``where`` says when, for the message.

    ``StopIteration`` would silently end the loop over batches. A ``SystemExit`` or
    another ``BaseException`` would end the program.
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
    """Copies the notes and the attribute ``ITEM`` of ``error`` to ``other``."""
    for note in getattr(error, "__notes__", []):
        other.add_note(note)
    if hasattr(error, ITEM):
        setattr(other, ITEM, getattr(error, ITEM))


def started(start: Callable[[], Any]) -> Any:
    """Calls ``start``, which runs code of the user when a worker starts.

    Raises the exception that ``stand_in`` returns, if any.
    """
    try:
        return start()
    except BaseException as error:
        other = stand_in(error, "during startup")
        if other is None:
            raise
        raise other from error


def thrown(packed: bytes, message: str) -> BaseException:
    """Unpickles the exception of a worker process.

    Returns a ``WorkerError`` with ``message`` if that fails. The bytes can be trusted,
    because this process started the worker.
    """
    import pickle

    try:
        error, error.__cause__ = pickle.loads(packed)
    except Exception:
        return WorkerError(message)
    return error if isinstance(error, BaseException) else WorkerError(message)
