"""Unpacks tar and zip archives, and never writes outside the target folder."""

from __future__ import annotations

import contextlib
import errno
import glob
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from millstream._core.errors import DataError, data_error
from millstream._datasets.lock import locked

_CHUNK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Member = tuple[tuple[str, ...], IO[bytes], int]


def extract_folder(archive: Path, name: str, into: Path) -> Path:
    """Unpack the folder ``name`` of ``archive`` to ``into / name`` and return that.

    The folder appears only once it is complete. An existing folder is used as it is. If
    several threads or processes call this at once, one unpacks and the others wait.

    Raises ``DataError`` if the archive is damaged, has no folder ``name``, or has a
    member that is a link, a device or outside the folder.
    """
    final = into / name
    if is_filled(final):
        return final
    with _scratch(archive, final) as scratch:
        if is_filled(final):
            return final
        unfinished = scratch / name
        for parts, stream, size in _members(archive):
            if parts[0] == name and len(parts) > 1:
                path = unfinished.joinpath(*parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(archive, "/".join(parts), stream, size, path)
        if not unfinished.exists():
            raise data_error(path=archive, expected=f"files in {name}/", found="none")
        try:
            unfinished.rename(final)
        except OSError:
            # On a file system without locks, another process may have been faster.
            if not is_filled(final):
                raise
    return final


def extract_member(archive: Path, name: str, target: Path) -> Path:
    """Unpack the member ``name``, from any folder of ``archive``, to ``target``.

    Replaces an existing ``target``, unless another thread or process has written it
    since this call began. Returns ``target``.

    Raises ``DataError`` if the archive is damaged, has no member ``name``, or has a
    member that is a link, a device or outside the folder.
    """
    before = _version(target)
    with _scratch(archive, target) as scratch:
        if _version(target) not in (None, before):
            return target
        for parts, stream, size in _members(archive):
            if parts[-1] == name:
                unfinished = scratch / target.name
                _write(archive, "/".join(parts), stream, size, unfinished)
                os.replace(unfinished, target)
                return target
    raise data_error(path=archive, expected=f"a member {name}", found="none")


def is_filled(folder: Path) -> bool:
    """Whether the folder exists and is not empty."""
    return folder.is_dir() and any(folder.iterdir())


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _scratch(archive: Path, target: Path) -> Iterator[Path]:
    """Yields a private temporary folder next to ``target`` and deletes it at the end.

    Holds the lock of ``target`` until then. Deletes the folders of killed processes.
    The caller makes a result in the folder and moves it out. Raises ``DataError`` if
    ``archive`` is damaged.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target) as is_held:
        if is_held:
            for other in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
                if other.name.count(".") == target.name.count(".") + 3:
                    shutil.rmtree(other, ignore_errors=True)
        with (
            tempfile.TemporaryDirectory(
                prefix=f".{target.name}.", suffix=".part", dir=target.parent
            ) as folder,
            _damage_as_data_error(archive),
        ):
            yield Path(folder)


@contextlib.contextmanager
def _damage_as_data_error(archive: Path) -> Iterator[None]:
    try:
        yield
    except (
        EOFError,
        gzip.BadGzipFile,
        lzma.LZMAError,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise data_error(f"damaged archive: {error}", path=archive) from error


def _members(archive: Path) -> Iterator[Member]:
    if archive.is_dir():
        raise data_error(path=archive, expected="an archive", found="a directory")
    if zipfile.is_zipfile(archive):
        return _zip_members(archive)
    return _tar_members(archive)


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            parts = _checked_parts(archive, member.filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refusal(archive, member.filename, "is a link or a device")
            if member.flag_bits & 1:
                raise _refusal(archive, member.filename, "is encrypted")
            if not member.is_dir():
                with opened.open(member) as stream:
                    yield parts, stream, member.file_size


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive, "r:*") as opened:
        for member in opened:
            parts = _checked_parts(archive, member.name)
            if member.isdir():
                continue
            stream = opened.extractfile(member) if member.isreg() else None
            if stream is None:
                raise _refusal(archive, member.name, "is a link or a device")
            with stream:
                yield parts, stream, member.size
        # The checksum of a compressed stream is checked only at its end.
        while opened.fileobj is not None and opened.fileobj.read(_CHUNK):
            pass


def _checked_parts(archive: Path, name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise _refusal(archive, name, "leads out of the folder")
    return path.parts or (".",)


def _refusal(archive: Path, name: str, why: str) -> DataError:
    return data_error(f"member {name!r} {why}, so nothing is unpacked", path=archive)


def _write(archive: Path, name: str, stream: IO[bytes], size: int, path: Path) -> None:
    written = 0
    try:
        output = path.open("xb")
    except FileExistsError as error:
        raise data_error(f"member {name!r} occurs twice", path=archive) from error
    try:
        with output:
            while chunk := stream.read(_CHUNK):
                written += len(chunk)
                output.write(chunk)
    except OSError as error:
        if error.errno in _FULL:
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    if written != size:
        raise data_error(
            path=archive,
            expected=f"{size} bytes of member {name!r}",
            found=str(written),
        )
