"""The program of a worker process. It runs as a script and does not import jax.

It does not run the user's ``__main__``. Functions arrive as pickles: by reference to
their module, or by value if they are defined in ``__main__``.
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

    message = pickle.loads(setup)
    sys.path[:] = message["path"]
    sys.argv[:] = message["argv"]
    if message["nice"]:
        os.nice(message["nice"])
    task = pickle.loads(message["task"])
    task.start()
    return task


def _serve(worker: Any, task: Any) -> None:
    row = worker.row
    worker.ready([c.spec for c in task.inputs], [c.spec for c in task.outputs])
    inputs, outputs = _Staging(), _Staging()
    busy = False

    def interrupt(number: int, frame: Any) -> None:
        if busy:  # Ctrl-C does not stop an idle worker
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    while (chunk := worker.next()) is not None:
        try:
            busy = True
            answer = _answer(task, chunk, row, inputs, outputs)
            busy = False
        except BaseException as error:
            busy = False
            _fail(worker, max(int(row[0]), 0), error)
        else:
            worker.done(answer)


def _answer(
    task: Any, chunk: Any, row: Any, own_inputs: _Staging, own_outputs: _Staging
) -> list[bytes]:
    """Runs the task for a chunk and returns the pickled host values.

    The task gets arrays of this process instead of shared memory, because its function
    may keep them, and later chunks reuse the shared memory.
    """
    from millstream._workers.tasks import pickled_host_values, run

    indices, seeds, shared_inputs, shared_outputs, host_inputs = chunk
    inputs, outputs = shared_inputs, shared_outputs
    if shared_inputs:
        inputs = own_inputs.like(shared_inputs)
        _copy(shared_inputs, inputs)
    if task.exposes_outputs:
        outputs = own_outputs.like(shared_outputs)
    host_values = run(
        task, indices, seeds, inputs, outputs, row, host_inputs, in_process=True
    )
    if task.exposes_outputs:
        _copy(outputs, shared_outputs)
    return pickled_host_values(task, indices, host_values, row)


def _copy(columns: list[Any], to: list[Any]) -> None:
    for rows, target in zip(columns, to, strict=True):
        target[...] = rows


class _Staging:
    """Arrays in this process's memory. They are reused unless a function kept one."""

    def __init__(self) -> None:
        self._arrays: list[Any] = []
        self._unused_counts: list[int] = []

    def like(self, columns: list[Any]) -> list[Any]:
        """Returns arrays with the shapes and dtypes of ``columns``."""
        import numpy as np

        kept = _reference_counts(self._arrays) != self._unused_counts
        if kept or not self._arrays or len(self._arrays[0]) < len(columns[0]):
            self._arrays = [np.empty_like(rows) for rows in columns]
            self._unused_counts = _reference_counts(self._arrays)
        return [rows[: len(columns[0])] for rows in self._arrays]


def _reference_counts(arrays: list[Any]) -> list[int]:
    return [sys.getrefcount(rows) for rows in arrays]


def _fail(worker: Any, row: int, error: BaseException) -> None:
    # A message may contain a path with bytes that are not UTF-8.
    message = _words(error).encode(errors="backslashreplace")
    worker.failed(row, message, _pickled(error), _is_transient(error))


def _is_transient(error: BaseException) -> bool:
    """Whether another attempt may succeed, for example after a signal."""
    from millstream._core.errors import WorkerError

    if isinstance(error, OSError):
        return error.errno == errno.EIO
    return isinstance(error, WorkerError)


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _pickled(error: BaseException) -> bytes:
    """Pickles an exception and its cause, so that another process can raise it.

    The traceback becomes a note. A cause that cannot be pickled is left out. An
    exception that cannot be pickled is replaced by a ``WorkerError``.
    """
    import pickle
    import traceback

    trace = "".join(traceback.format_exception(error))
    error.add_note(f"\nin worker process {os.getpid()}:\n{trace}")
    for cause in (error.__cause__, None):
        for dumps in _dumpers():
            try:
                pickled: bytes = dumps((error, cause))
                pickle.loads(pickled)  # some exceptions fail only here
            except Exception:
                continue
            return pickled
    from millstream._core.errors import WorkerError, copy_notes

    stand_in = WorkerError(_words(error), kind="function", pid=os.getpid())
    copy_notes(error, stand_in)
    return pickle.dumps((stand_in, None))


def _dumpers() -> list[Any]:
    import pickle

    found: list[Any] = [pickle.dumps]
    # Like the function, its exception class may have to be pickled by value.
    if "cloudpickle" in sys.modules:
        found.append(sys.modules["cloudpickle"].dumps)
    return found


if __name__ == "__main__":
    main()
