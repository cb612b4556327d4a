"""Extraction of archives, which never writes outside the target folder."""

import contextlib
import errno
import io
import os
import resource
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from millstream._core.errors import DataError
from millstream._datasets import archive as archives
from millstream._datasets.archive import extract_folder, extract_member

FILES = {"data/a.bin": b"a" * 5000, "data/deep/b.bin": b"b", "other/c": b"c"}


def tar_file(
    path: Path, *extra: tarfile.TarInfo, files: dict[str, bytes] = FILES
) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in extra:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def zip_file(
    path: Path, *extra: zipfile.ZipInfo, files: dict[str, bytes] = FILES
) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/", b"")
        for name, content in files.items():
            archive.writestr(name, content)
        for member in extra:
            archive.writestr(member, b"/etc/passwd")
    return path


@pytest.fixture(params=[tar_file, zip_file], ids=["tar", "zip"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = request.param(tmp_path / "archive")
    return path


def test_a_folder_is_extracted(archive: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    folder = extract_folder(archive, "data", into)
    assert folder == into / "data"
    assert (folder / "a.bin").read_bytes() == FILES["data/a.bin"]
    assert (folder / "deep" / "b.bin").read_bytes() == b"b"
    assert sorted(path.name for path in into.iterdir()) == [".data.lock", "data"]


def test_a_member_is_extracted(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "b"
    assert extract_member(archive, "b.bin", target).read_bytes() == b"b"
    assert sorted(path.name for path in target.parent.iterdir()) == [".b.lock", "b"]


def test_the_error_names_what_is_missing(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected files in nothing/, found none"):
        extract_folder(archive, "nothing", tmp_path)
    with pytest.raises(DataError, match=r"expected a member z\.bin, found none"):
        extract_member(archive, "z.bin", tmp_path / "z")


def test_a_folder_of_another_process_is_kept(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").write_bytes(b"")
    folder = extract_folder(archive, "data", tmp_path)
    assert [path.name for path in folder.iterdir()] == ["mine"]
    assert not list(tmp_path.glob(".data*"))


def test_folders_of_killed_processes_are_deleted(archive: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    for name in (".data.abc_1.part", ".data.more.abc_1.part", ".a.bin.abc_1.part"):
        (into / name / "deep").mkdir(parents=True)
    extract_folder(archive, "data", into)
    extract_member(archive, "a.bin", into / "a.bin")
    kept = {".data.more.abc_1.part", ".data.lock", ".a.bin.lock", "data", "a.bin"}
    assert {path.name for path in into.iterdir()} == kept


def test_an_empty_folder_is_filled(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert (extract_folder(archive, "data", tmp_path) / "a.bin").exists()


def test_extract_member_replaces_a_file(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "b"
    target.write_bytes(b"damaged")
    assert extract_member(archive, "b.bin", target).read_bytes() == b"b"


def test_a_member_of_another_thread_is_kept(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def waited(target: Path) -> Iterator[bool]:
        target.write_bytes(b"theirs")
        yield True

    monkeypatch.setattr(archives, "locked", waited)
    assert extract_member(archive, "b.bin", tmp_path / "b").read_bytes() == b"theirs"


def without_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


Unpack = Callable[[Path, Path], Path]


@pytest.mark.parametrize("has_locks", [True, False])
@pytest.mark.parametrize(
    "unpack",
    [
        lambda path, into: extract_folder(path, "data", into) / "a.bin",
        lambda path, into: extract_member(path, "a.bin", into / "a"),
    ],
    ids=["folder", "member"],
)
def test_threads_that_unpack_one_archive(
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unpack: Unpack,
    has_locks: bool,
) -> None:
    real, together = archives._members, threading.Barrier(4)

    def members(path: Path) -> Iterator[archives.Member]:
        together.wait(60)
        return real(path)

    if not has_locks:
        monkeypatch.setattr(archives, "_members", members)
        monkeypatch.setattr("fcntl.flock", without_locks)
    begin = threading.Barrier(4)

    def work(_: int) -> bytes:
        begin.wait(60)
        return unpack(archive, tmp_path / "into").read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [FILES["data/a.bin"]] * 4
    assert not list((tmp_path / "into").glob("*.part"))


def test_a_folder_is_unpacked_once(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, reads = archives._members, []

    def members(path: Path) -> Iterator[archives.Member]:
        reads.append(path)
        return real(path)

    monkeypatch.setattr(archives, "_members", members)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: extract_folder(archive, "data", tmp_path), range(8)))
    assert len(reads) == 1


def test_an_extracted_folder_has_the_mode_of_the_umask(
    archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    folder = extract_folder(archive, "data", tmp_path)
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode


def damaged(path: Path) -> None:
    with pytest.raises(DataError, match="archive"):
        extract_folder(path, "data", path.parent)
    assert not (path.parent / "data").exists()
    assert not list(path.parent.glob(".data*.part"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_archive_leaves_nothing_behind(archive: Path, share: float) -> None:
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    damaged(archive)


def test_a_changed_byte_is_noticed_in_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/a.bin", b"a" * 5000)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"a" * 5000, b"a" * 2500 + b"b" + b"a" * 2499))
    damaged(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found a directory"):
        extract_member(tmp_path, "a", tmp_path / "b")


OUTSIDE = ["/tmp/millstream-evil", "../evil", "data/../../evil", "data\\..\\evil"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    into = tmp_path / "into"
    into.mkdir()
    files = {"data/a": b"a", name: b"evil", "data/z": b"z"}
    for path in (
        tar_file(tmp_path / "t", files=files),
        zip_file(tmp_path / "z", files=files),
    ):
        with pytest.raises(DataError, match="leads out of the folder"):
            extract_folder(path, "data", into)
        with pytest.raises(DataError, match="leads out of the folder"):
            extract_member(path, "z", into / "target")
    assert not [path for path in into.iterdir() if path.suffix != ".lock"]
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("data/link")
    member.type, member.linkname = kind, "/etc/passwd"
    path = tar_file(tmp_path / "archive", member)
    with pytest.raises(DataError, match="'data/link' is a link or a device"):
        extract_folder(path, "data", tmp_path)
    assert not (tmp_path / "data").exists()


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    member = zipfile.ZipInfo("data/link")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = zip_file(tmp_path / "archive", member)
    with pytest.raises(DataError, match="'data/link' is a link or a device"):
        extract_folder(path, "data", tmp_path)


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = tar_file(tmp_path / "archive", tarfile.TarInfo("data/a.bin"))
    with pytest.raises(DataError, match="occurs twice"):
        extract_folder(path, "data", tmp_path)


def test_modes_and_owners_are_ignored(tmp_path: Path) -> None:
    member = tarfile.TarInfo("data/run")
    member.mode = 0o6777
    folder = extract_folder(tar_file(tmp_path / "archive", member), "data", tmp_path)
    assert (folder / "run").stat().st_mode & 0o7111 == 0


def test_the_error_of_a_full_disk_names_the_file(tmp_path: Path) -> None:
    path = tar_file(tmp_path / "archive", files={"data/a": bytes(3 << 20)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            extract_folder(path, "data", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert Path(caught.value.filename).name == "a"
    assert str(tmp_path) in str(caught.value)
    assert not (tmp_path / "data").exists()
