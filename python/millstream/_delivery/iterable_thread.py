"""Runs the reader of an iterable in a thread, ahead of the loop."""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from typing import Any

from millstream._delivery.iterable_reader import Made, Reader

_POLL_SECONDS = 1.0
_EXIT_SECONDS = 5.0


class LostThread(Exception):
    """The thread of a reader no longer exists, for example after a fork."""


class _Producer(threading.Thread):
    """Runs a reader. It makes a batch for each permit, until it is stopped.

    ``SimpleQueue`` is the only way to reach it: the garbage collector may stop it while
    any lock is held.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(name="millstream iterable", daemon=True)
        self._reader: Reader | None = reader
        self.permits: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.made: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_stopped = False

    def run(self) -> None:
        _running.add(self)
        try:
            self._produce()
        finally:
            self._reader = None
            _running.discard(self)

    def _produce(self) -> None:
        reader = self._reader
        assert reader is not None
        item: Any = True
        while item is not None and not isinstance(item, BaseException):
            if not self.permits.get() or self.is_stopped:
                return
            try:
                item = reader.read()
            except BaseException as error:
                item = error
            self.made.put(item)

    def stop(self) -> None:
        self.is_stopped = True
        self.permits.put(False)


_running: set[_Producer] = set()


@atexit.register
def _stop_all() -> None:
    """Ends the threads before the interpreter does, unless an iterator blocks."""
    deadline = time.monotonic() + _EXIT_SECONDS
    running = list(_running)
    for producer in running:
        producer.stop()
    for producer in running:
        producer.join(max(0.0, deadline - time.monotonic()))


class ReaderAhead:
    """A reader in a thread of its own, ``prefetch`` batches ahead.

    The thread ends when this object is deleted or closed, and at the limits.
    """

    def __init__(self, reader: Reader, prefetch: int) -> None:
        self.limits = reader.limits
        self._producer = _Producer(reader)
        weakref.finalize(self, self._producer.stop).atexit = False
        for _ in range(prefetch):
            self._producer.permits.put(True)
        self._producer.start()

    def read(self) -> Made | None:
        producer = self._producer
        while True:
            try:
                item = producer.made.get(timeout=_POLL_SECONDS)
                break
            except queue.Empty:
                if not producer.is_alive() and producer.made.empty():
                    raise LostThread from None
        if isinstance(item, BaseException):
            try:
                raise item
            finally:
                del item
        producer.permits.put(True)
        made: Made | None = item
        return made

    def close(self) -> None:
        self._producer.stop()
