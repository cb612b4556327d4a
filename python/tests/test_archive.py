"""Archives: what is in them comes out, and never anywhere else."""

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from millstream._archive import extract_folder, extract_member
from millstream._errors import DataError

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


def test_a_folder_comes_out_whole(archive: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    folder = extract_folder(archive, "data", into)
    assert folder == into / "data"
    assert (folder / "a.bin").read_bytes() == FILES["data/a.bin"]
    assert (folder / "deep" / "b.bin").read_bytes() == b"b"
    assert [path.name for path in into.iterdir()] == ["data"]


def test_a_member_comes_out_alone(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "b"
    assert extract_member(archive, "b.bin", target).read_bytes() == b"b"
    assert [path.name for path in target.parent.iterdir()] == ["b"]


def test_what_is_not_there_is_named(archive: Path, tmp_path: Path) -> None:
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


def damaged(path: Path) -> None:
    with pytest.raises(DataError, match="archive"):
        extract_folder(path, "data", path.parent)
    assert not (path.parent / "data").exists()
    assert not list(path.parent.glob(".data*"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_cut_archive_leaves_nothing_behind(archive: Path, share: float) -> None:
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


def test_a_directory_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found a directory"):
        extract_member(tmp_path, "a", tmp_path / "b")


OUTSIDE = ["/tmp/millstream-evil", "../evil", "data/../../evil", "data\\..\\evil"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_places_outside_are_refused(tmp_path: Path, name: str) -> None:
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
    assert list(into.iterdir()) == []
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


def test_modes_and_owners_are_not_taken_over(tmp_path: Path) -> None:
    member = tarfile.TarInfo("data/run")
    member.mode = 0o6777
    folder = extract_folder(tar_file(tmp_path / "archive", member), "data", tmp_path)
    assert (folder / "run").stat().st_mode & 0o7111 == 0
