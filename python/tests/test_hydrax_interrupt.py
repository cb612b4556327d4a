"""Ctrl-C in a loop over Hydrax's batches, under a real terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from conftest import Python

PROGRAM = """
    import fcntl, signal, sys, termios, time

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # this terminal is the program's own
    signal.signal(signal.SIGINT, signal.default_int_handler)

    import hydrax_loaders as loaders
    from millstream.hydrax import DataGroup, Dataloader

    train = DataGroup(4, list(range(1000)), loader_arrays=loaders.ARRAYS)
    loader = Dataloader(loaders.FUNCTION, train, loader_count=2, timeout_sec=0)
    last = -1
    try:
        with loader:
            pids = None
            for batch in loader:
                last = batch.batch_num
                del batch
                pids = loader._run.loaders.pids
                if last == BATCH:
                    print("pids", *pids, flush=True)
                    print("ready", flush=True)
                    BODY
    except KeyboardInterrupt:
        print("aborted after", last, "interrupted", loader.interrupted, flush=True)
        sys.exit(3)
    print("stopped after", last, "interrupted", loader.interrupted, flush=True)
"""


class Terminal:
    """A program in its own terminal, where Ctrl-C reaches all of its processes."""

    def __init__(self, python: Python, code: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code],
            env=python.environment(),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.text = ""

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def read_until(self, word: str) -> None:
        deadline = time.monotonic() + 90
        while word not in self.text:
            if not self._read(deadline):
                pytest.fail(f"{word!r} never came:\n{self.text}")

    def read_to_the_end(self) -> int:
        deadline = time.monotonic() + 90
        while self._read(deadline):
            pass
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the program hangs:\n{self.text}")

    def pids(self) -> list[int]:
        line = next(li for li in self.text.splitlines() if li.startswith("pids "))
        return [int(pid) for pid in line.split()[1:]]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        """Reads output; returns whether there may be more."""
        ready, _, _ = select.select([self._master], [], [], deadline - time.monotonic())
        if not ready:
            return False
        try:
            piece = os.read(self._master, 4096)
        except OSError:  # the program has ended
            return False
        self.text += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)


@pytest.fixture
def terminal(python):
    opened = []

    def run(*, function="fill", batch=3, body="time.sleep(0.01)"):
        code = textwrap.dedent(PROGRAM)
        for name, text in (("FUNCTION", function), ("BATCH", batch), ("BODY", body)):
            code = code.replace(name, str(text))
        opened.append(Terminal(python, code))
        return opened[-1]

    yield run
    for one in opened:
        one.close()


def assert_gone(pids):
    """Checks that the processes end soon without being killed."""
    deadline = time.monotonic() + 30
    left = list(pids)
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if _runs(pid)]
        time.sleep(0.02)
    assert left == []


def _runs(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_one_signal_stops_the_batches_and_the_program_continues(terminal):
    program = terminal(body="time.sleep(0.3)")
    program.read_until("ready")
    program.press_ctrl_c()
    assert program.read_to_the_end() == 0, program.text
    assert "[hydrax] interrupted: no more batches" in program.text
    assert "stopped after 3 interrupted True" in program.text
    assert "Traceback" not in program.text
    assert_gone(program.pids())


def test_one_signal_ends_the_wait_for_a_stalled_batch(terminal):
    program = terminal(function="stall", batch=0, body="pass")
    program.read_until("ready")
    time.sleep(0.3)  # now the program waits for the second batch, which never comes
    program.press_ctrl_c()
    assert program.read_to_the_end() == 0, program.text
    assert "stopped after 0 interrupted True" in program.text
    assert_gone(program.pids())


# The loop's body runs until it has seen both signals.
TWICE = "[time.sleep(0.01) for _ in range(6000) if loader._run.interrupts.stage < 2]"


def test_two_signals_raise_at_the_next_batch(terminal):
    program = terminal(body=TWICE)
    program.read_until("ready")
    program.press_ctrl_c()
    program.read_until("no more batches")
    program.press_ctrl_c()
    assert program.read_to_the_end() == 3, program.text
    assert "aborting at the next batch" in program.text
    assert "aborted after 3 interrupted True" in program.text
    assert_gone(program.pids())


def test_three_signals_end_the_process_and_its_workers(terminal):
    program = terminal(body="[time.sleep(0.01) for _ in range(10**6)]")
    program.read_until("ready")
    before = _shared_memory()
    for said in ("no more batches", "aborting at the next batch", None):
        program.press_ctrl_c()
        if said:
            program.read_until(said)
    assert program.read_to_the_end() == 1, program.text
    assert "stopped after" not in program.text
    assert "aborted after" not in program.text
    assert_gone(program.pids())
    assert _shared_memory() <= before


def _shared_memory():
    return set(os.listdir("/dev/shm"))


def test_the_handler_is_restored_after_the_block(python):
    code = """
        import os, signal
        import hydrax_loaders as loaders
        from millstream.hydrax import DataGroup, Dataloader

        signal.signal(signal.SIGINT, signal.default_int_handler)
        train = DataGroup(4, list(range(16)), loader_arrays=loaders.ARRAYS)
        loader = Dataloader(loaders.fill, train, end_at=("epoch", 1))
        with loader:
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            next(loader)
            os.kill(os.getpid(), signal.SIGINT)
            assert list(loader) == []
        assert loader.interrupted
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted as ever")
        with loader:
            print(len(list(loader)), loader.interrupted)
    """
    assert python.run(code).split("\n")[:2] == ["interrupted as ever", "4 False"]


def test_a_second_signal_after_the_last_batch_is_raised_at_the_end(python):
    code = """
        import os, signal
        import hydrax_loaders as loaders
        from millstream.hydrax import DataGroup, Dataloader

        signal.signal(signal.SIGINT, signal.default_int_handler)
        train = DataGroup(4, list(range(16)), loader_arrays=loaders.ARRAYS)
        loader = Dataloader(loaders.fill, train)
        try:
            with loader:
                next(loader)
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("raised", loader.interrupted)
    """
    assert python.run(code) == "raised True\n"


def test_the_death_of_the_program_ends_its_workers(terminal):
    program = terminal(body="[time.sleep(0.01) for _ in range(10**6)]")
    program.read_until("ready")
    before = _shared_memory()
    os.kill(program.process.pid, signal.SIGKILL)
    program.read_to_the_end()
    assert_gone(program.pids())
    assert _shared_memory() <= before
