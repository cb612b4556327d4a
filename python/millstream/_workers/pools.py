"""Worker pools: threads and processes that run a task, and how a task is sent."""

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

# What ``__main__`` is called in a process that multiprocessing spawned.
_MP_MAIN = "__mp_main__"

_FOREVER = 1e8
_MOST = (1 << 31) - 1

_pools: weakref.WeakSet[Any] = weakref.WeakSet()


def worker_pool(
    task: Task,
    workers: int,
    worker_kind: str,
    *,
    timeout: float | None = None,
    restart_workers: int = 0,
    nice: int = 0,
) -> WorkerPool:
    """Workers that begin with the first rows that are asked of them.

    Raises ``ValueError`` or ``TypeError`` where an argument does not suit.
    """
    workers, restart_workers = checked_workers(workers, worker_kind, restart_workers)
    most = None if timeout is None else seconds("timeout", timeout)
    patience = 0 if most is None else max(int(most * 1000), 1)
    if worker_kind == "thread":
        made = _engine.thread_worker_pool(_called(task), workers, patience)
    else:
        made = _engine.process_worker_pool(
            command(),
            environment(),
            setup(task, nice),
            workers,
            patience,
            restart_workers,
        )
    return WorkerPool(made)


def checked_workers(
    workers: Any, worker_kind: Any, restart_workers: Any
) -> tuple[int, int]:
    """Both numbers as ints; ``ValueError`` names what does not suit."""
    workers = whole("workers", workers, 1, _MOST)
    restart_workers = whole("restart_workers", restart_workers, 0, _MOST)
    if worker_kind not in KINDS:
        raise ValueError(f"worker_kind is one of {KINDS}, not {worker_kind!r}")
    if restart_workers and worker_kind == "thread":
        raise ValueError("restart_workers is for worker_kind='process'")
    return workers, restart_workers


def seconds(name: str, value: Any, *, forever: bool = False) -> float | None:
    """The seconds that the argument ``name`` allows; None for any time.

    Any time is infinity, more than three years and, if ``forever``, 0 or less.
    """
    known = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not known or not (value > 0 or (forever and value <= 0)):
        least = "" if forever else " above 0"
        raise ValueError(f"{name} must be a number of seconds{least}, not {value!r}")
    return float(value) if 0 < value < _FOREVER else None


def _called(task: Task) -> Callable[..., list[Any] | None]:
    """What threads call: the task, which starts once in each of them."""
    if type(task).start is Task.start:
        return functools.partial(run, task)
    begun: set[int] = set()

    def call(*arguments: Any) -> list[Any] | None:
        thread = threading.get_ident()
        if thread not in begun:
            started(task.start)
            begun.add(thread)
        return run(task, *arguments)

    return call


class WorkerPool:
    """Workers of one task. They end when it is closed or let go of, and at exit."""

    def __init__(self, native: _engine.WorkerPool) -> None:
        self.native = native
        _pools.add(self)

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return list(self.native.pids)

    def close(self) -> None:
        self.native.close()


@atexit.register
def _close_all() -> None:
    for one in list(_pools):
        one.close()


@dataclass(frozen=True, eq=False, kw_only=True)
class UsesWorkers:
    """Who calls a function: the arguments of everything that has workers."""

    workers: int = 1
    worker_kind: str = "thread"
    timeout: float | None = None
    restart_workers: int = 0

    def _pool_for(self, task: Task) -> WorkerPool:
        return worker_pool(
            task,
            self.workers,
            self.worker_kind,
            timeout=self.timeout,
            restart_workers=self.restart_workers,
        )


def command() -> list[bytes]:
    """What runs a worker: this Python, with none of the folder of the program."""
    if not sys.executable:
        raise RuntimeError("worker processes need sys.executable, which is not set")
    program = os.path.join(os.path.dirname(__file__), "worker.py")
    words = [sys.executable, "-P", program, str(os.getpid())]
    return [os.fsencode(word) for word in words]


def environment() -> list[bytes]:
    """This process's environment, but no accelerator: one process has it already."""
    known = {**os.environb, b"JAX_PLATFORMS": b"cpu", b"MILLSTREAM_WORKER": b"1"}
    return [name + b"=" + value for name, value in known.items()]


def setup(task: Task, nice: int = 0) -> bytes:
    """What a worker is told first.

    Raises ``TypeError`` naming what cannot be sent, and the extra that would help.
    """
    return pickle.dumps(
        {
            "path": list(sys.path),
            "argv": list(sys.argv),
            "nice": nice,
            "task": packed(task),
        }
    )


def packed(task: Task) -> bytes:
    """The task, its functions by the path of their module, or else by value."""
    buffer = io.BytesIO()
    try:
        _ByPath(buffer, protocol=5).dump(task)
    except Exception as plain:
        return _by_value(task, plain)
    return buffer.getvalue()


class _ByPath(pickle.Pickler):
    """Refuses what is of ``__main__``: a worker has another."""

    def reducer_override(self, value: Any) -> Any:
        if getattr(value, "__module__", None) in ("__main__", _MP_MAIN) and (
            isinstance(value, type) or callable(value)
        ):
            raise pickle.PicklingError(f"{value!r} is of __main__")
        return NotImplemented


def _by_value(task: Task, plain: Exception) -> bytes:
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise TypeError(
            f"worker processes cannot be sent this: {plain}. Put the function into "
            "a module, or install millstream[workers] (cloudpickle) to send it by value"
        ) from plain
    main = sys.modules.get(_MP_MAIN)
    others = _MP_MAIN not in cloudpickle.list_registry_pickle_by_value()
    try:
        if main is not None:
            cloudpickle.register_pickle_by_value(main)
        return bytes(cloudpickle.dumps(task, protocol=5))
    except Exception as error:
        raise TypeError(f"worker processes cannot be sent {task!r}: {error}") from error
    finally:
        if main is not None and others:
            cloudpickle.unregister_pickle_by_value(main)
