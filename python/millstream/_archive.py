"""Unpacks tar and zip archives without leaving the folder they are unpacked into."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from millstream._errors import DataError

_CHUNK = 1 << 20

Member = tuple[tuple[str, ...], IO[bytes], int]


def extract_folder(archive: Path, name: str, into: Path) -> Path:
    """Return ``into / name``, unpacked from the folder ``name`` of ``archive``.

    The folder appears only once it is complete; when another process is first, its
    folder is kept. Archive members that name a place outside, links and devices are
    refused before anything is written in their place.

    Raises ``DataError`` for a damaged or dangerous archive and for one without
    ``name``.
    """
    final = into / name
    unfinished = into / f".{name}.{os.getpid()}.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with _naming_damage(archive):
            for parts, stream, size in _members(archive):
                if parts[0] == name and len(parts) > 1:
                    path = unfinished.joinpath(*parts[1:])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _write(archive, "/".join(parts), stream, size, path)
        if not unfinished.exists():
            raise DataError(f"{archive}: expected files in {name}/, found none")
        try:
            unfinished.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return final


def extract_member(archive: Path, name: str, target: Path) -> Path:
    """Return ``target``, a copy of ``name`` in whatever folder of ``archive`` it is.

    Raises ``DataError`` for a damaged or dangerous archive and for one without
    ``name``.
    """
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _naming_damage(archive):
            for parts, stream, size in _members(archive):
                if parts[-1] == name:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    unfinished.unlink(missing_ok=True)
                    _write(archive, "/".join(parts), stream, size, unfinished)
                    os.replace(unfinished, target)
                    return target
    finally:
        unfinished.unlink(missing_ok=True)
    raise DataError(f"{archive}: expected a member {name}, found none")


@contextlib.contextmanager
def _naming_damage(archive: Path) -> Iterator[None]:
    import gzip
    import lzma
    import tarfile
    import zipfile
    import zlib

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
        raise DataError(f"{archive}: damaged archive: {error}") from error


def _members(archive: Path) -> Iterator[Member]:
    import zipfile

    if archive.is_dir():
        raise DataError(f"{archive}: expected an archive, found a directory")
    if zipfile.is_zipfile(archive):
        return _zip_members(archive)
    return _tar_members(archive)


def _zip_members(archive: Path) -> Iterator[Member]:
    import zipfile

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
    import tarfile

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
        # A compressed stream is known to be whole only once it is read to its end.
        while opened.fileobj is not None and opened.fileobj.read(_CHUNK):
            pass


def _checked_parts(archive: Path, name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise _refusal(archive, name, "leads out of the folder")
    return path.parts or (".",)


def _refusal(archive: Path, name: str, why: str) -> DataError:
    return DataError(f"{archive}: member {name!r} {why}, so nothing is unpacked")


def _write(archive: Path, name: str, stream: IO[bytes], size: int, path: Path) -> None:
    written = 0
    try:
        output = path.open("xb")
    except FileExistsError as error:
        raise DataError(f"{archive}: member {name!r} occurs twice") from error
    with output:
        while chunk := stream.read(_CHUNK):
            written += len(chunk)
            output.write(chunk)
    if written != size:
        raise DataError(
            f"{archive}: member {name!r}: expected {size} bytes, found {written}"
        )
