"""The exceptions of Millstream's own."""

from collections.abc import Callable
from typing import Any

from millstream._core.public import public


@public
class DataError(Exception):
    """The bytes of a data set are not what their format promises.

    The message names the file, where in it the trouble is, what was expected and what
    was found. Wrong arguments raise ``ValueError`` and failed reads raise ``OSError``.
    """


class DownloadError(OSError):
    """A file could not be fetched from any of its mirrors.

    The message says why each mirror failed and how to fetch the file by hand.
    """


@public
class WorkerError(RuntimeError):
    """A worker process ended before its samples were made, or was asked to.

    The message names the process, how it ended and the sample that it was at. Where a
    function raised ``SystemExit``, ``KeyboardInterrupt`` or ``GeneratorExit``, that is
    the cause, and the worker goes on.
    """


@public
class WorkerTimeout(TimeoutError):
    """A sample took longer than ``timeout`` allows.

    The message names the worker, the sample and where in Python the worker is. A worker
    process is replaced. A thread cannot be stopped, so its source raises this error
    from then on and has to be built again.
    """


def stand_in(error: BaseException, where: str) -> Exception | None:
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
            f"a function raised {type(error).__name__} in a worker, {where}{words}"
        )
    for note in getattr(error, "__notes__", []):
        other.add_note(note)
    return other


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
