"""Caches that other users or several processes write to."""

import contextlib
import gzip
import os
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import file_server
import pytest
from downloads import CONTENT, described
from file_server import FileServer
from millstream import IdxSource
from millstream._datasets.download import fetch

pytestmark = pytest.mark.usefixtures("no_surroundings")

LARGE = 256 << 20


def _symlink(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def _pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


_FETCH = """
import sys
from pathlib import Path
from millstream._datasets.download import RemoteFile, fetch
url, target, size, sha256 = sys.argv[1:]
try:
    fetch(RemoteFile("a", (url,), size=int(size), sha256=sha256), Path(target))
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("name", [".data.bin.lock", "data.bin.part"])
@pytest.mark.parametrize("put", [_symlink, _hard_link, _pipe])
def test_links_of_other_users_are_not_followed(
    server: FileServer, tmp_path: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    victim, cache = tmp_path / "victim", tmp_path / "cache"
    victim.write_bytes(b"dear to me")
    cache.mkdir()
    put(cache / name, victim)
    file = described(server.offer("/a", file_server.whole(CONTENT)))
    target = cache / "data.bin"
    arguments = [*file.urls, str(target), str(file.size), str(file.sha256)]
    done = subprocess.run(
        [sys.executable, "-c", _FETCH, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert victim.read_bytes() == b"dear to me"
    assert str(cache / name) in done.stdout
    assert "expected a regular file" in done.stdout
    assert done.stderr == ""
    (cache / name).unlink()
    assert fetch(file, target).read_bytes() == CONTENT


def _idx_gz(path: Path, promised: int, size: int) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(struct.pack(">HBBI", 0, 8, 1, promised))
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))


_UNPACK = """
import sys
from millstream import IdxSource
print("opening", flush=True)
print(len(IdxSource({"x": sys.argv[1]}, cache_dir=sys.argv[2])), flush=True)
"""


@contextlib.contextmanager
def _unpacking(path: Path, cache: Path) -> Iterator[subprocess.Popen[str]]:
    """Yields a process that is about to unpack."""
    command = [sys.executable, "-c", _UNPACK, str(path), str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "opening\n"
            yield child
        finally:
            child.kill()


def _parts(cache: Path) -> list[str]:
    return [path.name for path in cache.glob("*.part*")]


def _wait_for_a_part(cache: Path) -> None:
    deadline = time.monotonic() + 60
    while not _parts(cache):
        assert time.monotonic() < deadline


def test_one_process_unpacks_and_others_wait(tmp_path: Path) -> None:
    path, cache = tmp_path / "x.idx.gz", tmp_path / "cache"
    _idx_gz(path, LARGE, LARGE)
    with _unpacking(path, cache) as first:
        _wait_for_a_part(cache)
        first.send_signal(signal.SIGSTOP)
        with _unpacking(path, cache) as second:
            until = time.monotonic() + 2
            while time.monotonic() < until:
                assert len(_parts(cache)) == 1
            first.send_signal(signal.SIGCONT)
            assert first.communicate(timeout=120)[0] == f"{LARGE}\n"
            assert second.communicate(timeout=120)[0] == f"{LARGE}\n"
    assert _parts(cache) == []


def test_a_partial_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    path, cache = tmp_path / "x.idx.gz", tmp_path / "cache"
    _idx_gz(path, LARGE, LARGE)
    with _unpacking(path, cache) as child:
        _wait_for_a_part(cache)
        child.kill()
    assert len(_parts(cache)) == 1
    assert len(IdxSource({"x": path}, cache_dir=cache)) == LARGE
    assert _parts(cache) == []


def test_a_partial_file_of_another_user_is_not_touched(tmp_path: Path) -> None:
    path, cache = tmp_path / "x.idx.gz", tmp_path / "cache"
    _idx_gz(path, 1 << 20, 1 << 20)
    victim = tmp_path / "victim"
    victim.write_bytes(b"dear to me")
    (unpacked,) = (
        file for file in _unpacked_names(path, cache) if not file.name.endswith(".sum")
    )
    for put in (_symlink, _hard_link, _pipe):
        unpacked.unlink()
        part = unpacked.with_name(f"{unpacked.name}.part")
        put(part, victim)
        assert len(IdxSource({"x": path}, cache_dir=cache)) == 1 << 20
        assert victim.read_bytes() == b"dear to me"
        part.unlink()


def _unpacked_names(path: Path, cache: Path) -> list[Path]:
    IdxSource({"x": path}, cache_dir=cache)
    return list(cache.iterdir())


_LIMITED = """
import resource, sys
import millstream
limit = 32 << 20
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
path, cache = sys.argv[1:]
try:
    if path.endswith(".npz"):
        millstream.NpzSource(path, cache_dir=cache)
    else:
        millstream.IdxSource({"x": path}, cache_dir=cache)
except millstream.DataError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["x.idx.gz", "x.npz"])
def test_unpacking_stops_at_the_size_in_the_header(tmp_path: Path, name: str) -> None:
    path, cache = tmp_path / name, tmp_path / "cache"
    if name == "x.npz":
        fields = "{'descr': '|u1', 'fortran_order': False, 'shape': (10,), }"
        header = fields.ljust(117) + "\n"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
            archive.writestr("x.npy", start + header.encode() + bytes(LARGE))
    else:
        _idx_gz(path, 10, LARGE)
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(path), str(cache)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    assert str(path) in done.stdout
    assert "expected 1" in done.stdout
    assert list(cache.iterdir()) == []
