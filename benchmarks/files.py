"""Files whose rows contain their own numbers; written once into the cache folder."""

import fcntl
import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cold import resident
from dataset import CACHE

FACTOR, STEP = np.uint32(2654435761), np.uint32(40503)
INVERSE = np.uint32(pow(int(FACTOR), -1, 2**32))
PIECE = 2**24
PASSES = 4


def rows_of(numbers: np.ndarray, words: int) -> np.ndarray:
    """The rows with these numbers: word j of row i is i * FACTOR + j * STEP."""
    columns = np.arange(words, dtype=np.uint32) * STEP
    return numbers.astype(np.uint32)[:, None] * FACTOR + columns


def numbers_of(rows: np.ndarray) -> np.ndarray:
    """The numbers of rows that `rows_of` made, from their first words."""
    return (rows[:, 0] * INVERSE).astype(np.int64)


def made_once(name: str, write: Callable[[Path], None]) -> Path:
    """The file ``name`` in the cache folder; the first caller writes it."""
    path = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_name(f"unfinished-{name}")
            write(unfinished)
            unfinished.replace(path)
    return path


def rows_file(rows: int, words: int) -> Path:
    """A `.npy` file of uint32[rows, words] from `rows_of`."""

    def write(path: Path) -> None:
        piece = PIECE // (4 * words)
        header = {"descr": "<u4", "fortran_order": False, "shape": (rows, words)}
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for first in range(0, rows, piece):
                rows_of(np.arange(first, min(rows, first + piece)), words).tofile(file)

    return made_once(f"rows-{rows}x{words}.npy", write)


def warm(path: Path) -> None:
    """Reads a file until the page cache holds all of it; raises if it never does."""
    pages = -(-path.stat().st_size // mmap.PAGESIZE)
    for _ in range(PASSES):
        if resident(path) == pages:
            return
        with open(path, "rb", buffering=0) as file:
            buffer = bytearray(PIECE)
            while file.readinto(buffer):
                pass
    if missing := pages - resident(path):
        raise RuntimeError(
            f"{path.name}: {missing} of {pages} pages are not in the page cache. The "
            "machine needs more free memory."
        )
