"""Processes: Ctrl-C, exits, forks, batches that are kept, thousands of loaders."""

from __future__ import annotations

import gc
import signal
import subprocess
import textwrap
from typing import Any

import jax
import numpy as np
import psutil
import pytest
from conftest import Python, rows_of
from millstream import ArraySampleSource, BatchTransform, DataLoader
from walks import same_bytes, specified, stacked

ENDLESS = """
    import sys
    import jax, jax.numpy as jnp, numpy as np
    from millstream import ArraySampleSource, BatchTransform, DataLoader
    from millstream import HostCallbackTransform, MapTransform

    def say_started():
        print("started", flush=True)

    data = np.broadcast_to(np.arange(WIDTH, dtype=np.float32), (10**9, WIDTH))
    loader = DataLoader([ArraySampleSource({"x": data}), BatchTransform(128)])
    state = loader.init_state(0)
"""


def endless(code: str, width: int = 4) -> str:
    """Returns a program: a loader of samples of ``width`` numbers, then ``code``."""
    return textwrap.dedent(ENDLESS).replace("WIDTH", str(width)) + textwrap.dedent(code)


def interrupted(python: Python, code: str, width: int = 4, signals: int = 1) -> str:
    """Runs code until it says that it started, and sends Ctrl-C; what it printed then.

    The epochs of the code have millions of steps: only Ctrl-C ends them.
    """
    process = python.start(endless(code, width))
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != "started\n":
        process.kill()
        pytest.fail(f"{line}{process.communicate()[1]}")
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
    return python.finished(process)


@pytest.mark.parametrize(("width", "last"), [(4, 100), (4096, 10)])
def test_ctrl_c_leaves_iterate(python: Python, width: int, last: int) -> None:
    code = f"""
    try:
        for step, (batch, mask) in enumerate(loader.iterate(state)):
            if step == {last}:
                say_started()
    except KeyboardInterrupt:
        print("interrupted")
    print(len(list(loader.iterate(state, steps=3))))
    batch, state, mask = loader.next_batch(state)
    print(batch["x"].shape)
    """
    found = interrupted(python, code, width=width)
    assert found == f"interrupted\n3\n(128, {width})\n"


@pytest.mark.parametrize("width", [4, 4096])
def test_ctrl_c_leaves_an_eager_scan(python: Python, width: int) -> None:
    code = """
    def body(carry, batch, mask):
        jax.debug.callback(first, carry)
        return carry + 1, None

    def first(step):
        if step == 5:
            say_started()

    def quiet(carry, batch, mask):
        return carry + batch["x"][0, 1], None

    try:
        loader.scan_epoch(state, 0, body)
    except KeyboardInterrupt:
        print("interrupted")
    # And the next scan runs.
    after, total, _ = loader.scan_epoch(state, 0.0, quiet, steps=3)
    print(after.step, float(total))
    """
    # This test ignores effects of the interrupted program.
    assert interrupted(python, code, width=width) == "interrupted\n3 3.0\n"


def test_ctrl_c_leaves_an_eager_scan_under_asyncio(python: Python) -> None:
    code = """
    import asyncio

    def body(carry, batch, mask):
        jax.debug.callback(first, carry)
        return carry + 1, None

    def first(step):
        if step == 5:
            say_started()

    async def main():
        await asyncio.sleep(0)
        try:
            loader.scan_epoch(state, 0, body)
        finally:
            print("left the scan")

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted")
    after, _, _ = loader.scan_epoch(state, 0, lambda c, b, m: (c, None), steps=3)
    print(after.step)
    """
    assert interrupted(python, code) == "left the scan\ninterrupted\n3\n"


def test_ctrl_c_ends_a_program_that_does_not_catch_it(python: Python) -> None:
    code = """
    import threading
    threading.Timer(0.3, say_started).start()
    loader.scan_epoch(state, 0.0, lambda c, b, m: (c + b["x"].sum(), None))
    """
    process = python.start(endless(code))
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert "KeyboardInterrupt" in err.splitlines()[-1]
    assert process.returncode in (-signal.SIGINT, 130)


def test_a_user_defined_ctrl_c_handler_is_kept(python: Python) -> None:
    code = """
    import signal, os
    seen = []
    def note(number, frame):
        seen.append(number)
    signal.signal(signal.SIGINT, note)
    after, _, _ = loader.scan_epoch(state, 0, lambda c, b, m: (c, None), steps=50)
    say_started()
    while not seen:
        after, _, _ = loader.scan_epoch(state, 0, lambda c, b, m: (c, None), steps=50)
    print(len(seen), after.step, signal.getsignal(signal.SIGINT) is note)
    """
    assert interrupted(python, code) == "1 50 True\n"


def test_the_ctrl_c_handler_is_restored(python: Python) -> None:
    code = """
    import signal
    try:
        say_started()
        while True:
            loader.next_batch(state)
    except KeyboardInterrupt:
        pass
    loader.scan_epoch(state, 0, lambda c, b, m: (c, None), steps=50)
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("as ever")
    """
    assert interrupted(python, code) == "True\nas ever\n"


@pytest.mark.filterwarnings("ignore:.*Keep fewer batches:ResourceWarning")
@pytest.mark.parametrize("width", [3, 20_000])
def test_keeping_every_batch_of_an_epoch(width: int) -> None:
    n, batch = 1600, 16
    data = np.broadcast_to(np.arange(n, dtype=np.int32)[:, None], (n, width))
    loader = DataLoader([ArraySampleSource(data), BatchTransform(batch)], prefetch=2)
    assert (loader._built.engine.batch_bytes > 1 << 20) == (width == 20_000)
    state = loader.init_state(0)
    kept = list(loader.iterate(state))
    assert len(kept) == n // batch
    for step in (0, 1, 50, 99):
        words = np.asarray(state.words).copy()
        words[4] = step
        assert np.array_equal(kept[step][0][:, -1], loader.which_samples(words))
    seen = np.concatenate([np.asarray(batch)[:, 0] for batch, _ in kept])
    assert sorted(seen) == list(range(n))


def test_the_interpreter_exits_in_the_middle_of_an_epoch(python: Python) -> None:
    for width in (4, 4096):
        code = """
            iterator = loader.iterate(state)
            kept = [next(iterator) for _ in range(5)]
            step = jax.jit(loader.next_batch)
            batch, state, mask = step(state)   # not waited for
            print("leaving")
        """
        assert python.run(endless(code, width)) == "leaving\n"


FORKING = """
    import os, sys, warnings
    import numpy as np
    from conftest import rows_of
    from millstream import ArraySampleSource, BatchTransform, DataLoader
    from walks import iterated, same_walk, specified

    # JAX warns that it has threads: that is so, and not what is tested here.
    warnings.filterwarnings("ignore", category=RuntimeWarning, message=".*fork.*")
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")

    data = np.arange(129 * 11_000, dtype=np.int32).reshape(129, 11_000)
    loader = DataLoader([ArraySampleSource(data), BatchTransform(32)], threads=2,
                        prefetch=4)
    state = loader.init_state(0)
    iterator = loader.iterate(state, steps=100)
    expected = specified(loader, state, 10)
    next(iterator)
"""


WAITING = """
    import threading, time
    import jax, numpy as np
    from millstream import BatchTransform, DataLoader, DiskSampleSource, loadax

    begun = threading.Event()

    def slow(index):
        begun.set()
        time.sleep(3600)

    class Items:
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return slow(index)

    def batches():
        if "WHERE" == "loadax":
            builder = loadax.DataLoader(loadax.Batcher(list)).batch_size(4).workers(2)
            return iter(builder.build(Items()))
        spec = jax.ShapeDtypeStruct((), np.int32)
        source = DiskSampleSource(10, slow, sample_spec=spec)
        loader = DataLoader([source, BatchTransform(4)])
        return loader.iterate(loader.init_state(0))

    threading.Thread(target=lambda: next(batches()), daemon=True).start()
    assert begun.wait(100)
    print("waiting")
"""


@pytest.mark.parametrize("where", ["millstream", "loadax"])
def test_a_daemon_thread_waits_for_a_batch_at_exit(python: Python, where: str) -> None:
    assert python.run(WAITING.replace("WHERE", where)) == "waiting\n"


def test_a_fork_while_the_engine_works_and_the_child_deletes_the_loader(
    python: Python,
) -> None:
    code = textwrap.dedent(FORKING) + textwrap.dedent("""
        import gc
        for _ in range(5):
            next(iterator)
            child = os.fork()
            if child == 0:
                # Our destructors run; JAX's own client cannot be destroyed in a child,
                # so that it leaves as those of multiprocessing do.
                status = 1
                try:
                    del loader, iterator
                    gc.collect()
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
        assert sum(1 for _ in iterator) == 94
        same_walk(iterated(loader, state, 10), expected)
        print("well")
    """)
    assert python.run(code) == "well\n"


def test_a_child_that_never_used_jax_exits_normally(python: Python) -> None:
    code = textwrap.dedent(FORKING).replace("next(iterator)", "") + textwrap.dedent("""
        words = np.asarray(state.words)
        for step in range(5):
            loader._built.engine.take(words)
            words = expected[2][step]
            child = os.fork()
            if child == 0:
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        print("well")
    """)
    assert python.run(code) == "well\n"


def test_the_child_of_a_fork_requests_batches(python: Python) -> None:
    code = textwrap.dedent(FORKING) + textwrap.dedent("""
        words = np.asarray(state.words)
        for _ in range(3):
            next(iterator)
            child = os.fork()
            if child == 0:
                # JAX does not live in a forked child; the engine does.
                status = 1
                try:
                    found = words
                    for step in range(10):
                        rows, mask = loader._built.engine.take(found)
                        assert np.array_equal(rows, expected[0][step])
                        found = expected[2][step]
                    other = DataLoader([ArraySampleSource(data), BatchTransform(8)])
                    other._built.engine.take(np.asarray(other.init_state(1).words))
                    del other
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
        same_walk(iterated(loader, state, 10), expected)
        print("well")
    """)
    assert python.run(code) == "well\n"


def test_the_child_of_a_fork_iterates(python: Python) -> None:
    code = textwrap.dedent(FORKING) + textwrap.dedent("""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                found = [np.asarray(b) for b, _ in loader.iterate(state, steps=10)]
                assert np.array_equal(found, expected[0])
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        same_walk(iterated(loader, state, 10), expected)
        print("well")
    """)
    assert python.run(code) == "well\n"


@pytest.mark.soak
def test_ten_thousand_loaders_leave_nothing_behind() -> None:
    source = ArraySampleSource(rows_of(100))
    process = psutil.Process()

    def make(count: int) -> None:
        for i in range(count):
            loader = DataLoader([source, BatchTransform(4)], threads=2, prefetch=2)
            if i % 10 == 0:
                loader.next_batch(loader.init_state(0))

    make(1000)
    jax.block_until_ready(jax.numpy.zeros(1))
    memory, threads = process.memory_info().rss, process.num_threads()
    make(9000)
    # 9,000 loaders that leaked would be at least a few kB each.
    assert process.memory_info().rss - memory < 16 << 20
    assert process.num_threads() <= threads


def test_loaders_with_big_batches_leave_nothing_behind() -> None:
    data = np.arange(64 * 11_000, dtype=np.int32).reshape(64, 11_000)
    process = psutil.Process()

    def make(count: int) -> None:
        for _ in range(count):
            loader = DataLoader(
                [ArraySampleSource(data), BatchTransform(32)], prefetch=2
            )
            for _ in loader.iterate(loader.init_state(0)):
                break

    make(20)
    gc.collect()
    memory, threads = process.memory_info().rss, process.num_threads()
    make(100)
    jax.block_until_ready(jax.device_put(np.zeros(1)))  # JAX releases batches late
    gc.collect()
    assert process.memory_info().rss - memory < 60 << 20  # each has at least 1.4 MB
    assert process.num_threads() <= threads


def test_a_loader_that_is_deleted_in_the_middle_of_its_epoch() -> None:
    data = np.arange(129 * 11_000, dtype=np.int32).reshape(129, 11_000)
    kept: list[Any] = []
    expected: Any = None
    for _ in range(5):
        loader = DataLoader([ArraySampleSource(data), BatchTransform(32)], prefetch=4)
        expected = specified(loader, loader.init_state(0), 2)
        iterator = loader.iterate(loader.init_state(0))
        kept.append([next(iterator), next(iterator)])
        del loader, iterator
    for pair in kept:
        same_bytes(stacked((b, m, 0) for b, m in pair)[:2], expected[:2])


@pytest.mark.parametrize("package", ["millstream", "millstream.hydrax"])
def test_public_names_are_imported_on_first_use(python: Python, package: str) -> None:
    python.run(f"""
        import sys
        from typing import get_origin  # type aliases have one, and another __name__
        import {package} as package
        assert "jax" not in sys.modules
        names = package.__all__
        assert names == sorted(set(names)) == dir(package)
        assert {{"DataLoader", "Dataloader"}} & set(names)
        assert not any(name.startswith("_") for name in names), names
        for name in names:
            value = getattr(package, name)
            assert get_origin(value) or value.__name__ == name, name
            assert name in vars(package)
        from {package} import *
        assert set(names) <= set(globals())
        try:
            package.nothing
        except AttributeError as error:
            assert str(error) == "module '{package}' has no attribute 'nothing'"
        else:
            raise AssertionError
    """)
