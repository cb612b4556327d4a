"""Progress on real terminals, in a Jupyter kernel, and on streams that fail."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
import threading

import progress_loops
import pytest
from conftest import Python

COMPARE = "import progress_loops; progress_loops.compare()"
HIDE_TQDM = "import sys; sys.modules['tqdm'] = None\n"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)


def on_terminal(python: Python, code: str, columns: int, **more: str) -> str:
    """Runs code with a terminal as standard error. Returns what it wrote there."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 0, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=python.environment(**more),
        stdout=subprocess.PIPE,
        stderr=its,
        text=True,
    )
    os.close(its)
    written = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # EIO: the terminal is closed
            while part := os.read(ours, 65536):
                written.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=120)
    reader.join()
    os.close(ours)
    assert process.returncode == 0, (out, written.decode())
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("hide", ["", HIDE_TQDM])
@pytest.mark.parametrize("columns", [0, 1, 5, 20, 100])
def test_a_terminal_of_any_width(python: Python, columns: int, hide: str) -> None:
    shown = on_terminal(python, hide + COMPARE, columns)
    fits = max((columns or 80) - 1, 1)
    texts = re.split("[\r\n]", shown)
    assert max(map(len, texts)) <= fits
    *lines, last = shown.split("\n")
    assert last == ""
    ends = [line.split("\r")[-1] for line in lines]
    assert len(ends) == 3
    if columns in (0, 100):
        assert "epoch 1: " in ends[0]
        assert "train: " in ends[1]
        assert "epoch 0: " in ends[2]
        wanted = "10 of 10 steps" if hide else "10/10"
        assert all(wanted in end for end in ends)
        assert ends[0].rstrip().endswith(("limited by the data", "limited by the step"))


def test_columns_limit_the_width(python: Python) -> None:
    for hide in ("", HIDE_TQDM):
        shown = on_terminal(python, hide + COMPARE, 100, COLUMNS="30")
        assert max(map(len, re.split("[\r\n]", shown))) == 29
    shown = on_terminal(python, COMPARE, 40, COLUMNS="many")
    assert max(map(len, re.split("[\r\n]", shown))) == 39


BROKEN = {
    "closed": "sys.stderr.close()",
    "none": "sys.stderr = None",
    "pipe": "r, w = os.pipe(); os.close(r); os.dup2(w, 2)",
    "no_descriptor": "os.close(2)",
    "full": "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
}


@pytest.mark.parametrize("hide", ["", HIDE_TQDM])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_stderr_does_not_break_loops(
    python: Python, kind: str, hide: str
) -> None:
    setup = f"import os, sys; {BROKEN[kind]}\n"
    code = f"{hide}{setup}{COMPARE}; print('same')"
    assert python.run(code, MILLSTREAM_PROGRESS="1") == "same\n"


def test_a_stderr_that_breaks_in_the_middle(python: Python) -> None:
    code = """
        import sys, progress_loops
        run = progress_loops.loader().run(epochs=9, progress=True)
        for batch, mask in run:
            if run.epoch_ended and run.epoch == 1:
                sys.stderr.close()
        print(run.step)
    """
    assert python.run(code, MILLSTREAM_PROGRESS="1") == "45\n"


@pytest.mark.parametrize("method", ["__init__", "display", "format_meter"])
def test_an_error_of_tqdm_does_not_break_loops(monkeypatch, capsys, method) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of tqdm")

    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    monkeypatch.setattr(f"tqdm.std.tqdm.{method}", fails)
    progress_loops.compare()
    assert "ZeroDivisionError" not in capsys.readouterr().err


def test_tqdm_can_be_disabled(python: Python) -> None:
    assert on_terminal(python, COMPARE, 80, TQDM_DISABLE="1") == ""


def test_tqdm_write_clears_the_bar(python: Python) -> None:
    code = """
        import sys, tqdm, progress_loops
        run = progress_loops.loader().run(epochs=1, progress=True)
        next(run)
        tqdm.tqdm.write("text", file=sys.stderr)
        run.close()
    """
    assert "\rtext\n" in on_terminal(python, code, 80)


class Kernel:
    """A Jupyter kernel that runs cells and returns their messages."""

    def __init__(self, python: Python) -> None:
        from jupyter_client import KernelManager

        self.manager = KernelManager(kernel_name="python3")
        kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager.kernel_spec.argv = kernel
        self.manager.start_kernel(env=python.environment(), cwd=python.folder)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> list[str]:
        """Returns the texts sent to standard error, one per message."""
        texts: list[str] = []

        def receive(message) -> None:
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stderr":
                texts.append(content["text"])

        reply = self.client.execute_interactive(
            textwrap.dedent(code), timeout=60, output_hook=receive
        )
        assert reply["content"]["status"] == "ok", reply
        return texts

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    made = Kernel(Python(tmp_path_factory.mktemp("kernel")))
    yield made
    made.close()


LOOPS = {
    "run": "for _ in data.run(epochs=1, progress=True): pass",
    "iterate": "for _ in data.iterate(state, progress=True): pass",
    "scan": "data.scan_epoch(state, 0, progress_loops.body, progress=True);",
}


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_notebook_shows_progress_while_a_loop_runs(kernel, loop, hidden) -> None:
    tqdm = "sys.modules['tqdm'] = None" if hidden else "sys.modules.pop('tqdm', None)"
    kernel.run(f"import sys; {tqdm}")
    kernel.run("import progress_loops; data = progress_loops.loader(seconds=2)")
    kernel.run("state = data.init_state(0)")
    texts = kernel.run(LOOPS[loop])
    # The kernel sends what was written at least every 0.2 seconds.
    assert len(texts) >= 3, texts
    assert " 0 of 100 steps" in texts[0] or " 0/100" in texts[0]
    shown = "".join(texts)
    assert max(map(len, re.split("[\r\n]", shown))) <= 79
    assert ("100 of 100 steps" if hidden else "100/100") in shown.split("\r")[-1]
    assert shown.endswith("\n")
    assert "ipywidgets" not in shown
