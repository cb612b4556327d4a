"""The time to open a source of 1e8 rows, and the memory that it uses.

The file is sparse: its 78 GB take no space on the disk. Only the last row is not zero.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dataset import CACHE
from harness import Task, WrongAnswer

ROWS, BYTES = 10**8, 784
AT_ONCE = 64
MARK = np.arange(BYTES, dtype=np.uint32).astype(np.uint8)


@dataclass(frozen=True)
class Opener:
    """What a contender builds: `open(path)` opens a source, `row` reads a row of it."""

    open: Callable[[Path], Any]
    size: Callable[[Any], int]
    row: Callable[[Any, int], np.ndarray]


def file() -> Path:
    """The .npy file, written once."""
    path = CACHE / f"sparse-{ROWS}x{BYTES}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.npy")
        header = {"descr": "|u1", "fortran_order": False, "shape": (ROWS, BYTES)}
        with temporary.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, header)
            stream.seek((ROWS - 1) * BYTES, os.SEEK_CUR)
            stream.write(MARK.tobytes())
        temporary.replace(path)
    return path


def resident_bytes() -> int:
    """The resident memory of this process, including mapped files."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("Rss:"))


def prepare(contender: ModuleType) -> Task:
    """Checks the first and the last row. A round opens the file many times."""
    path = file()
    opener: Opener = contender.OPENER
    source = opener.open(path)
    if opener.size(source) != ROWS:
        raise WrongAnswer(f"{opener.size(source)} rows instead of {ROWS}")
    for index, wanted in ((0, np.zeros(BYTES, np.uint8)), (ROWS - 1, MARK)):
        if not np.array_equal(opener.row(source, index), wanted):
            raise WrongAnswer(f"row {index} has the wrong bytes")
    del source
    gc.collect()
    before = resident_bytes()
    sources = [opener.open(path) for _ in range(AT_ONCE)]
    memory = max(resident_bytes() - before, 0) // AT_ONCE
    del sources

    def run() -> None:
        for _ in range(AT_ONCE):
            opener.open(path)

    return Task(AT_ONCE, run, extra={"RSS growth, bytes": memory})
