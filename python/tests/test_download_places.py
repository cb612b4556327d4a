"""Downloads by several processes, into unusual folders, and their progress bar."""

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import file_server
import pytest
from downloads import CONTENT, NOWHERE, described
from file_server import FileServer
from millstream._core.errors import DownloadError
from millstream._core.progress_bar import ProgressBar, amount_text
from millstream._datasets.download import fetch

pytestmark = pytest.mark.usefixtures("no_surroundings")

_CHILD = """
import sys
from pathlib import Path
from millstream._datasets.download import RemoteFile, fetch
url, target, size, sha256 = sys.argv[1:]
fetch(RemoteFile("a", (url,), size=int(size), sha256=sha256), Path(target))
"""


def _child(url: str, target: Path) -> subprocess.Popen[str]:
    digest = hashlib.sha256(CONTENT).hexdigest()
    arguments = [url, str(target), str(len(CONTENT)), digest]
    search = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, *arguments],
        env={**os.environ, "PYTHONPATH": search},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_wait_for_each_other(server: FileServer, tmp_path: Path) -> None:
    started = threading.Event()

    def slow(handler: file_server._Handler) -> None:
        started.set()
        time.sleep(0.5)
        file_server.whole(CONTENT)(handler)

    url = server.offer("/a", slow)
    children = [_child(url, tmp_path / "a") for _ in range(3)]
    assert started.wait(120)
    fetch(described(url), tmp_path / "a")
    for child in children:
        assert child.communicate(timeout=120)[1] == ""
        assert child.returncode == 0
    assert server.ranges("/a") == [None]
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_without_locks_threads_download_separately(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    both = threading.Barrier(2)

    def together(handler: file_server._Handler) -> None:
        both.wait(60)
        file_server.whole(CONTENT)(handler)

    monkeypatch.setattr("fcntl.flock", refuse)
    file = described(server.offer("/a", together))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: fetch(file, tmp_path / "a"), range(2)))
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(DownloadError):
        fetch(described(server.offer("/b", file_server.whole(b"b"))), tmp_path / "b")
    assert not list(tmp_path.glob("*.part"))


def test_the_download_of_a_killed_process_is_resumed(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer(
        "/a",
        file_server.in_turn(
            file_server.stalling(CONTENT, after=200_000), file_server.whole(CONTENT)
        ),
    )
    part = tmp_path / "a.part"
    with _child(url, tmp_path / "a") as child:
        deadline = time.monotonic() + 120
        while not (part.exists() and part.stat().st_size >= 131_072):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.kill()
    kept = part.stat().st_size
    fetch(described(url), tmp_path / "a")
    assert server.ranges("/a") == [None, f"bytes={kept}-"]
    assert (tmp_path / "a").read_bytes() == CONTENT


@contextlib.contextmanager
def _without_privileges() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_error_names_a_folder_that_is_not_writable() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        target = Path(folder) / "sub" / "data.bin"
        with _without_privileges(), pytest.raises(PermissionError) as caught:
            fetch(described(NOWHERE), target)
    text = str(caught.value)
    for part in (f"cannot write {target.parent}", "cache_dir=", NOWHERE, str(target)):
        assert part in text


def test_the_error_names_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot write"):
        fetch(described(NOWHERE), tmp_path / "file" / "data.bin")


def test_the_error_names_a_folder_in_place_of_the_file(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer("/a", file_server.whole(CONTENT))
    with pytest.raises(IsADirectoryError, match="cannot write"):
        fetch(described(url), tmp_path)


def test_the_error_of_a_full_disk_names_the_folder(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    url = server.offer("/a", file_server.whole(CONTENT))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        fetch(described(url), tmp_path / "a")
    assert caught.value.errno == errno.ENOSPC
    assert f"cannot write {tmp_path}" in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "url", ["nothing://host/a", "plain", "http://127.0.0.1:9/a b", "http://[::1/a"]
)
def test_after_an_invalid_url_the_next_is_tried(
    server: FileServer, tmp_path: Path, url: str
) -> None:
    good = server.offer("/good", file_server.whole(CONTENT))
    assert fetch(described(url, good), tmp_path / "a").read_bytes() == CONTENT


def test_a_good_file_needs_no_writable_folder(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(CONTENT)
    fetch(described(NOWHERE), target)
    assert list(tmp_path.iterdir()) == [target]


def test_progress_is_shown_on_request(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.offer("/a", file_server.whole(CONTENT))
    fetch(described(url), tmp_path / "a")
    assert capsys.readouterr() == ("", "")
    fetch(described(NOWHERE, url), tmp_path / "b", progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Connection refused" in shown.err
    assert "b: 100%|" in shown.err
    assert "300k/300k" in shown.err
    assert shown.err.endswith("\n")


def test_progress_without_a_total() -> None:
    stream = io.StringIO()
    with ProgressBar("a", shown=True, stream=stream) as bar:
        bar.update(0)
        bar.update(1500)
    assert "a: 1.50kB" in stream.getvalue()


@pytest.mark.parametrize("total", [None, 26_421_880])
def test_progress_without_tqdm(
    monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    stream = io.StringIO()
    with ProgressBar("a", total, shown=True, stream=stream) as bar:
        bar.say("from here")
        bar.update(0)
        bar.update(1500)
    more = " of 26.4 MB" if total else ""
    assert stream.getvalue() == f"from here\na: 1.5 kB{more}\n"


def test_progress_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    assert not ProgressBar("a", stream=stream).shown
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    assert ProgressBar("a", stream=stream).shown
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "0")
    assert not ProgressBar("a", stream=stream).shown


@pytest.mark.parametrize("asked", [None, "1"])
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_missing_or_closed_stderr_is_ignored(
    server: FileServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_closed: bool,
    asked: str | None,
) -> None:
    stream = io.StringIO() if is_closed else None
    if stream is not None:
        stream.close()
    if asked is not None:
        monkeypatch.setenv("MILLSTREAM_PROGRESS", asked)
    monkeypatch.setattr(sys, "stderr", stream)
    file = described(NOWHERE, server.offer("/a", file_server.whole(CONTENT)))
    assert fetch(file, tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("total", [None, 26_421_880])
def test_a_bar_fits_its_terminal(columns: int, total: int | None) -> None:
    ours, its = pty.openpty()
    size = struct.pack("HHHH", 24, columns, 0, 0)
    fcntl.ioctl(its, termios.TIOCSWINSZ, size)
    with open(its, "w") as stream, open(ours, "rb", buffering=0) as terminal:
        name = "emnist-letters-train-images-idx3-ubyte.gz"
        bar = ProgressBar(name, total, stream=stream)
        assert bar.shown
        bar.update(13_000_000)
        bar.close()
        lines = terminal.read(65536).decode().split("\r")
    shown = next(line for line in lines if line.startswith("emnis"))
    assert len(shown.removesuffix("\x1b[A")) <= columns
    if columns == 200:
        assert shown.startswith(f"{name}: ")
        assert "13.0M" in shown


def test_amounts_have_units() -> None:
    assert [amount_text(n) for n in (0, 999, 1000, 26_421_880, 5e15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "26.4 MB",
        "5000.0 TB",
    ]
