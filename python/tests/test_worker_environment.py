"""Worker processes in unusual environments, and the number of threads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import worker_functions as fns
from conftest import Python
from millstream import BatchTransform, DataLoader, DiskSampleSource

KINDS = ["thread", "process"]
NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS: dict[str, dict[str, str]] = {
    "a value that is not UTF-8": {"LATIN_1": "sch\udcf6n"},
    "an ASCII locale": NO_UTF8,
    "a value in an ASCII locale": {**NO_UTF8, "UTF_8": "schön", "L1": "sch\udcf6n"},
    "Latin-1 streams": {"PYTHONIOENCODING": "latin-1"},
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_workers_start_in_any_environment(name: str, python: Python) -> None:
    told = python.run(
        """
        import os
        import worker_functions as fns
        from millstream import BatchTransform, DataLoader, DiskSampleSource

        known = {name: os.environb.get(name) for name in (b"LATIN_1", b"UTF_8", b"L1")}
        source = DiskSampleSource(4, fns.Surrounded(known), worker_kind="process")
        loader = DataLoader([source, BatchTransform(4)])
        batch, _ = next(loader.iterate(loader.init_state(0)))
        print(batch["same"].tolist())
        """,
        **SURROUNDINGS[name],
    )
    assert told == "[1, 1, 1, 1]\n"


@pytest.mark.parametrize("surroundings", [{}, NO_UTF8])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_may_contain_invalid_utf8(
    kind: str, surroundings: dict[str, str], python: Python
) -> None:
    told = python.run(
        f"""
        import jax, numpy as np
        import worker_functions as fns
        from millstream import BatchTransform, DataLoader, DiskSampleSource

        spec = {{"y": jax.ShapeDtypeStruct((), np.int32)}}
        source = DiskSampleSource(4, fns.unreadable, spec, worker_kind={kind!r})
        loader = DataLoader([source, BatchTransform(4)])
        try:
            next(loader.iterate(loader.init_state(0)))
        except ValueError as error:
            print(ascii(str(error)))
        try:
            jax.block_until_ready(jax.jit(loader.next_batch)(loader.init_state(0)))
        except Exception:
            print(type(loader.last_error).__name__)
        """,
        **surroundings,
    )
    assert told == r"'cannot read sch\udcf6n, sch\xf6n'" + "\nValueError\n"


def threads() -> Counter[str]:
    """Counts the engine's threads by the beginning of their names."""
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:  # the thread ended meanwhile
            continue
        found[name.rstrip("0123456789")] += 1
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_loader_starts_the_threads_that_its_workers_need(
    kind: str, workers: int
) -> None:
    before = threads()
    source = DiskSampleSource(200, fns.plain, workers=workers, worker_kind=kind)
    loader = DataLoader([source, BatchTransform(4)], threads=1)
    for _ in loader.iterate(loader.init_state(0)):
        pass
    new = threads() - before
    waiting = new["millstream-"]
    assert waiting <= 2 * workers + 4, new
    calling = new["millstream-call"] + new["millstream-proc"]
    assert calling == (workers if kind == "thread" else 1), new
