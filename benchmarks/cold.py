"""Removes a file from the page cache, and counts its pages in the cache."""

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

MADV_DONTNEED = 4
PROT_READ = 1
MAP_SHARED = 1
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def maps_of(path: Path) -> Iterator[tuple[int, int]]:
    """The address and size of every memory map of a file in this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(f" {path}"):
            begin, end = (int(each, 16) for each in line.split()[0].split("-"))
            yield begin, end - begin


def resident(path: Path) -> int:
    """The number of a file's pages in the page cache."""
    size = path.stat().st_size
    pages = ctypes.create_string_buffer((size + mmap.PAGESIZE - 1) // mmap.PAGESIZE)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        begin = LIBC.mmap(None, size, PROT_READ, MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if begin in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap", str(path))
    failed = LIBC.mincore(begin, size, pages) != 0
    code = ctypes.get_errno()
    LIBC.munmap(begin, size)
    if failed:
        raise OSError(code, "mincore", str(path))
    return sum(1 for page in pages.raw if page & 1)


def release(path: Path) -> None:
    """Unmaps a file's pages, because the kernel does not evict mapped pages."""
    for begin, size in maps_of(path):
        if LIBC.madvise(begin, size, MADV_DONTNEED) != 0:
            raise OSError(ctypes.get_errno(), "madvise", str(path))


def drop(path: Path) -> None:
    """Removes a file from the page cache; raises if a page of it stays."""
    release(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    if left := resident(path):
        raise RuntimeError(
            f"{path}: {left} pages stayed in the page cache. Is another process using "
            "the file?"
        )
