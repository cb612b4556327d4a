"""Files that one thread of one process makes while others wait."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


@contextlib.contextmanager
def locked(
    target: Path, *, when_waiting: Callable[[], None] | None = None
) -> Iterator[bool]:
    """Hold the lock of ``target``: the file ``.{name}.lock`` beside it, which stays.

    Threads exclude each other as processes do. Yields whether the lock is held: False
    on a file system that has none. ``when_waiting`` is called if another has it.
    """
    import fcntl

    with target.with_name(f".{target.name}.lock").open("w") as lock:
        is_held = True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if when_waiting is not None:
                when_waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            is_held = False
        yield is_held
