"""Worker pools: threads or processes that run a task."""

from __future__ import annotations

import atexit
import functools
import io
import numbers
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream import _engine
from millstream._core.arguments import whole
from millstream._core.errors import started
from millstream._workers.tasks import Task, run

KINDS = ("thread", "process")

# The name of ``__main__`` in a process that multiprocessing spawned.
_MP_MAIN = "__mp_main__"

_NO_LIMIT_SECONDS = 1e8

# How much worker processes increase their niceness. XLA's threads wait for each other,
# so a worker that delays one of them delays the whole training step.
NICENESS = 5
_MAX_COUNT = (1 << 31) - 1

_pools: weakref.WeakSet[Any] = weakref.WeakSet()


def worker_pool(
    task: Task,
    workers: int,
    worker_kind: str,
    *,
    timeout: float | None = None,
    restart_workers: int = 0,
    nice: int = NICENESS,
) -> WorkerPool:
    """Returns a pool whose workers start when the engine first requests rows.

    Raises ``ValueError`` or ``TypeError`` for wrong arguments.
    """
    workers, restart_workers = checked_workers(workers, worker_kind, restart_workers)
    limit = None if timeout is None else seconds("timeout", timeout)
    timeout_ms = 0 if limit is None else max(int(limit * 1000), 1)
    if worker_kind == "thread":
        native = _engine.thread_worker_pool(
            _thread_function(task), workers, timeout_ms, task.whole
        )
    else:
        native = _engine.process_worker_pool(
            command(),
            environment(),
            setup(task, nice),
            workers,
            timeout_ms,
            restart_workers,
            task.whole,
        )
    return WorkerPool(native)


def checked_workers(
    workers: Any, worker_kind: Any, restart_workers: Any
) -> tuple[int, int]:
    """Returns ``(workers, restart_workers)`` as ints.

    Raises ``ValueError`` for a wrong argument.
    """
    workers = whole("workers", workers, 1, _MAX_COUNT)
    restart_workers = whole("restart_workers", restart_workers, 0, _MAX_COUNT)
    if worker_kind not in KINDS:
        raise ValueError(f"worker_kind must be one of {KINDS}, not {worker_kind!r}")
    if restart_workers and worker_kind == "thread":
        raise ValueError(
            "restart_workers cannot be combined with worker_kind='thread'. Use "
            "worker_kind='process'."
        )
    return workers, restart_workers


def seconds(name: str, value: Any, *, forever: bool = False) -> float | None:
    """Returns the argument ``name`` as a number of seconds, or None for no limit.

    Infinity and values above three years mean no limit. With ``forever``, so do 0 and
    negative values.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not (value > 0 or (forever and value <= 0)):
        least = "" if forever else " above 0"
        raise ValueError(f"{name} must be a number of seconds{least}, not {value!r}")
    return float(value) if 0 < value < _NO_LIMIT_SECONDS else None


def _thread_function(task: Task) -> Callable[..., list[Any] | None]:
    """Returns the function that worker threads call.

    It runs the task. Before its first call in a thread, it calls ``task.start``.
    """
    if type(task).start is Task.start:
        return functools.partial(run, task)
    started_threads: set[int] = set()

    def call(*arguments: Any) -> list[Any] | None:
        thread = threading.get_ident()
        if thread not in started_threads:
            started(task.start)
            started_threads.add(thread)
        return run(task, *arguments)

    return call


class WorkerPool:
    """The workers of one task.

    They stop when the pool is closed or deleted, and when the process exits.
    """

    def __init__(self, native: _engine.WorkerPool) -> None:
        self.native = native
        _pools.add(self)

    @property
    def pids(self) -> list[int]:
        """The ids of the running worker processes."""
        return list(self.native.pids)

    def close(self) -> None:
        self.native.close()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


@dataclass(frozen=True, eq=False, kw_only=True)
class UsesWorkers:
    """The arguments that sources and stages with workers have in common."""

    workers: int = 1
    worker_kind: str = "thread"
    timeout: float | None = None
    restart_workers: int = 0

    @property
    def workers_text(self) -> str:
        """Where the function runs, such as "Python, 2 worker threads"."""
        kind = "thread" if self.worker_kind == "thread" else "process"
        plural = "" if self.workers == 1 else "s" if kind == "thread" else "es"
        return f"Python, {self.workers} worker {kind}{plural}"

    def _pool_for(self, task: Task) -> WorkerPool:
        return worker_pool(
            task,
            self.workers,
            self.worker_kind,
            timeout=self.timeout,
            restart_workers=self.restart_workers,
        )


def command() -> list[bytes]:
    """Returns the command line of a worker process.

    -P keeps the folder of worker.py out of ``sys.path``.
    """
    if not sys.executable:
        raise RuntimeError(
            "worker processes need sys.executable, which is not set. Set it, or use "
            "worker_kind='thread'."
        )
    program = os.path.join(os.path.dirname(__file__), "worker.py")
    words = [sys.executable, "-P", program, str(os.getpid())]
    return [os.fsencode(word) for word in words]


def environment() -> list[bytes]:
    """Returns the environment variables of a worker process.

    They are those of this process, but JAX may only use the CPU in a worker. The
    accelerators belong to this process.
    """
    variables = {**os.environb, b"JAX_PLATFORMS": b"cpu", b"MILLSTREAM_WORKER": b"1"}
    return [name + b"=" + value for name, value in variables.items()]


def setup(task: Task, nice: int) -> bytes:
    """Returns the first message to a worker process.

    Raises ``TypeError`` if the task cannot be pickled.
    """
    return pickle.dumps(
        {
            "path": list(sys.path),
            "argv": list(sys.argv),
            "nice": nice,
            "task": pickled(task),
        }
    )


# cloudpickle's registry of modules is global, and several threads pickle host values.
_registering = threading.Lock()


def pickled(task: Task) -> bytes:
    """Pickles a task, with functions by reference if possible and else by value."""
    return _pickled(task, "the function")


def pickled_host_value(value: Any, index: int) -> bytes:
    """Pickles the host value of a sample for a worker process."""
    try:
        return _pickled(value, "a host field")
    except Exception as error:
        error.add_note(f"millstream: this error was raised for sample {index}")
        raise


def _pickled(value: Any, what: str) -> bytes:
    buffer = io.BytesIO()
    try:
        _ByReference(buffer, protocol=5).dump(value)
    except Exception as error:
        return _by_value(value, what, error)
    return buffer.getvalue()


class _ByReference(pickle.Pickler):
    """A pickler that rejects objects of ``__main__``, which workers cannot import."""

    def reducer_override(self, value: Any) -> Any:
        if getattr(value, "__module__", None) in ("__main__", _MP_MAIN) and (
            isinstance(value, type) or callable(value)
        ):
            raise pickle.PicklingError(f"{value!r} is defined in __main__")
        return NotImplemented


def _by_value(value: Any, what: str, reason: Exception) -> bytes:
    """Pickles a value with cloudpickle. ``reason`` is why plain pickling failed."""
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise TypeError(
            f"{what} cannot be sent to worker processes: {reason}. Move it to a "
            "module, or install millstream[workers] (cloudpickle) to send it by value."
        ) from reason
    main = sys.modules.get(_MP_MAIN)
    with _registering:
        is_new = _MP_MAIN not in cloudpickle.list_registry_pickle_by_value()
        try:
            if main is not None:
                cloudpickle.register_pickle_by_value(main)
            return bytes(cloudpickle.dumps(value, protocol=5))
        except Exception as error:
            raise TypeError(
                f"{value!r} cannot be sent to worker processes: {error}"
            ) from error
        finally:
            if main is not None and is_new:
                cloudpickle.unregister_pickle_by_value(main)
