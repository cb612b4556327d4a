"""The program of a worker process. Runs by its path, and imports no jax.

It runs none of the user's ``__main__``: functions come by the path of their module or,
those of ``__main__``, by value.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))
    from millstream import _engine
    from millstream._core.errors import started

    for descriptor in (3, 4, 5):
        os.set_inheritable(descriptor, False)
    faulthandler.register(
        _engine.STACK_SIGNAL, file=_engine.STACK_DESCRIPTOR, all_threads=True
    )
    worker = _engine.Worker(int(sys.argv[1]))
    try:
        task = started(lambda: _set_up(worker.setup))
    except BaseException as error:
        _fail(worker, -1, error)
        return
    _serve(worker, task)


def _set_up(setup: bytes) -> Any:
    import pickle

    told = pickle.loads(setup)
    sys.path[:] = told["path"]
    sys.argv[:] = told["argv"]
    if told["nice"]:
        os.nice(told["nice"])
    task = pickle.loads(told["task"])
    task.start()
    return task


def _serve(worker: Any, task: Any) -> None:
    row = worker.row
    worker.ready([c.spec for c in task.inputs], [c.spec for c in task.outputs])
    given, made = _Staging(), _Staging()
    busy = False

    def interrupt(number: int, frame: Any) -> None:
        if busy:  # an idle worker goes on
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    while (chunk := worker.next()) is not None:
        try:
            busy = True
            answer = _answer(task, chunk, row, given, made)
            busy = False
        except BaseException as error:
            busy = False
            _fail(worker, max(int(row[0]), 0), error)
        else:
            worker.done(answer)


def _answer(task: Any, chunk: Any, row: Any, given: _Staging, made: _Staging) -> bytes:
    """A function may keep arrays, and other tasks write to the shared memory later."""
    from millstream._workers.tasks import packed, run

    indices, seeds, inputs, outputs = chunk
    if inputs:
        shared, inputs = inputs, given.like(inputs)
        _copy(shared, inputs)
    own_outputs = made.like(outputs) if task.gives_rows else outputs
    host_values = run(task, indices, seeds, inputs, own_outputs, row)
    if task.gives_rows:
        _copy(own_outputs, outputs)
    return packed(task, indices, host_values, row)


def _copy(columns: list[Any], to: list[Any]) -> None:
    for rows, target in zip(columns, to, strict=True):
        target[...] = rows


class _Staging:
    """Arrays of this process's, used again unless a function kept one."""

    def __init__(self) -> None:
        self._arrays: list[Any] = []
        self._unused: list[int] = []

    def like(self, columns: list[Any]) -> list[Any]:
        import numpy as np

        kept = _counts(self._arrays) != self._unused
        if kept or not self._arrays or len(self._arrays[0]) < len(columns[0]):
            self._arrays = [np.empty_like(rows) for rows in columns]
            self._unused = _counts(self._arrays)
        return [rows[: len(columns[0])] for rows in self._arrays]


def _counts(arrays: list[Any]) -> list[int]:
    return [sys.getrefcount(rows) for rows in arrays]


def _fail(worker: Any, row: int, error: BaseException) -> None:
    message = _words(error).encode(errors="backslashreplace")  # a path may be any bytes
    worker.failed(row, message, _packed(error), _is_transient(error))


def _is_transient(error: BaseException) -> bool:
    """Whether another try may succeed, as after a signal."""
    from millstream._core.errors import WorkerError

    if isinstance(error, OSError):
        return error.errno == errno.EIO
    return isinstance(error, WorkerError)


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _packed(error: BaseException) -> bytes:
    """The exception and its cause, to be raised in another process.

    The traceback becomes a note. A cause that cannot be packed is left out.
    """
    import pickle
    import traceback

    trace = "".join(traceback.format_exception(error))
    error.add_note(f"\nin worker process {os.getpid()}:\n{trace}")
    for cause in (error.__cause__, None):
        for dumps in _dumpers():
            try:
                packed: bytes = dumps((error, cause))
                pickle.loads(packed)  # some can be packed and not unpacked
            except Exception:
                continue
            return packed
    from millstream._core.errors import WorkerError, copy_notes

    stand_in = WorkerError(_words(error), kind="function", pid=os.getpid())
    copy_notes(error, stand_in)
    return pickle.dumps((stand_in, None))


def _dumpers() -> list[Any]:
    import pickle

    found: list[Any] = [pickle.dumps]
    if "cloudpickle" in sys.modules:  # the function came by value, and may its error
        found.append(sys.modules["cloudpickle"].dumps)
    return found


if __name__ == "__main__":
    main()
