"""Programs without a home folder: HOME is not set, and the user is unknown."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can take the number of a user without a name"
)

_PROGRAM = """
import os, sys
import numpy as np
import millstream as ms

os.chdir(sys.argv[1])
os.environ.pop("HOME", None)
os.environ.pop("MILLSTREAM_CACHE", None)
os.setresuid(54321, 0, 0)  # the effective user still reads the files


def shown(make):
    try:
        print(len(make()))
    except Exception as error:
        print(type(error).__name__, error)


shown(lambda: ms.NpzSource("stored.npz"))
shown(lambda: ms.IdxSource({"x": "x.idx"}))
shown(lambda: ms.CifarSource(["test_batch.bin"]))
shown(lambda: ms.NpzSource("packed.npz", cache_dir="cache"))
shown(lambda: ms.CIFAR10Dataset("test", "."))
shown(lambda: ms.FashionMNISTDataset("test"))
shown(lambda: ms.NpzSource("packed.npz"))
shown(lambda: ms.MNISTDataset())
"""


def test_only_sources_that_unpack_need_a_cache(tmp_path: Path) -> None:
    np.savez(tmp_path / "stored.npz", x=np.arange(6))
    np.savez_compressed(tmp_path / "packed.npz", x=np.arange(5))
    idx = bytes([0, 0, 8, 1, 0, 0, 0, 4]) + bytes(4)
    (tmp_path / "x.idx").write_bytes(idx)
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073 * 3))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    opened = ["6", "4", "3", "5", "3", "10000"]
    assert lines[:6] == opened, done.stdout + done.stderr
    assert lines[6].startswith("ValueError packed.npz: is compressed, and there is no ")
    assert lines[7].startswith(
        "RuntimeError there is no home folder for the cache .cache/"
    )
    assert all("cache_dir=" in line for line in lines[6:])
