"""File locks: one thread of one process makes a file while others wait."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


@contextlib.contextmanager
def locked(
    target: Path, *, when_waiting: Callable[[], None] | None = None
) -> Iterator[bool]:
    """Hold the lock of ``target``: the file ``.{name}.lock`` next to it.

    The lock works between threads and between processes. Yields False on a file system
    without locks, else True. Calls ``when_waiting`` if another thread or process holds
    the lock. The lock file is not deleted.
    """
    import fcntl

    lock = open_regular(target.with_name(f".{target.name}.lock"))
    try:
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
    finally:
        os.close(lock)


def open_regular(path: Path) -> int:
    """Open ``path`` for reading and writing; create it if it is missing.

    Raises ``OSError`` for anything but a regular file with one link. In a folder that
    others can write to, a link could point elsewhere and a pipe could block forever.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
    raise FileExistsError(
        errno.EEXIST, "expected a regular file, found a link or a device", str(path)
    )
