"""The exceptions of Millstream's own."""


class DataError(Exception):
    """The bytes of a data set are not what their format promises.

    The message names the file, where in it the trouble is, what was expected and what
    was found. Wrong arguments raise ``ValueError`` and failed reads raise ``OSError``.
    """


class DownloadError(OSError):
    """A file could not be fetched from any of its mirrors.

    The message says why each mirror failed and how to fetch the file by hand.
    """


class WorkerError(RuntimeError):
    """A worker process ended before its samples were made.

    The message names the process, how it ended and the sample that it was at.
    """


class WorkerTimeout(TimeoutError):
    """A sample took longer than ``timeout`` allows.

    The message names the worker, the sample and where in Python the worker is. A worker
    process is replaced. A thread cannot be stopped, so its source raises this error
    from then on and has to be built again.
    """


def stand_in(error: BaseException, where: str) -> Exception | None:
    """What to raise from ``error``, which a function raised, or None for itself.

    ``StopIteration`` would silently end the loop over batches.
    """
    if not isinstance(error, StopIteration):
        return None
    other = RuntimeError(f"a function raised StopIteration {where}")
    for note in getattr(error, "__notes__", []):
        other.add_note(note)
    return other


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
