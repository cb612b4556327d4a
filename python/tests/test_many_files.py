"""More files than a process may map or keep open."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Python

FILES = 70_000
"""More than the 65,530 maps that Linux allows a process."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Writes a folder of small files. The rows of each are its number and 0."""
    folder = tmp_path / "many"
    folder.mkdir()
    np.save(folder / "0.npy", np.zeros((2, 1), np.int32))
    header = (folder / "0.npy").read_bytes()[:-8]
    for file in range(FILES):
        rows = file.to_bytes(4, "little") + bytes(4)
        (folder / f"{file}.npy").write_bytes(header + rows)
    yield folder
    shutil.rmtree(folder)


def test_more_files_than_memory_maps(folder: Path, python: Python) -> None:
    changes = {
        FILES - 1: ("os.utime(path, ns=(1, 1))", "a changed file of 136 bytes"),
        FILES - 2: ("os.truncate(path, 130)", "a changed file of 130 bytes"),
        FILES - 3: ("os.replace(other, path)", "another file of 136 bytes"),
        FILES - 4: ("os.unlink(path)", "No such file"),
    }
    code = f"""
        import os, shutil
        import numpy as np, jax
        from millstream import BatchTransform, DataLoader, NpySource
        folder = {str(folder)!r}
        source = NpySource(folder, ordering="shuffle")
        assert len(source) == {2 * FILES}
        maps = sum(1 for _ in open("/proc/self/maps"))
        assert maps < 30_000, maps
        assert len(os.listdir("/proc/self/fd")) < 200

        loader = DataLoader([source, BatchTransform(1000)])
        total = 0
        for batch, _ in loader.iterate(loader.init_state(0)):
            total += int(np.asarray(batch, np.int64).sum())
        assert total == {FILES} * ({FILES} - 1) // 2, total
        state = loader.init_state(1)
        batch, _, _ = jax.jit(loader.next_batch)(state)  # compiling needs maps too
        which = loader.which_samples(state)
        assert (np.asarray(batch)[:, 0] == np.where(which % 2, 0, which // 2)).all()

        for file, (change, found) in {changes!r}.items():
            path, other = f"{{folder}}/{{file}}.npy", f"{{folder}}/other"
            shutil.copy2(path, other)
            assert source[2 * file] == file
            exec(change)
            try:
                source[2 * file]
            except OSError as error:
                assert error.filename == path, error.filename
                assert found in str(error), error
            else:
                raise AssertionError("nothing was raised")
        print(source[2 * {FILES - 5}])
    """
    assert python.run(code) == f"[{FILES - 5}]\n"
