"""Fetches files into a cache: checked, resumed, one process at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream._errors import DataError, DownloadError
from millstream._lock import locked
from millstream._progress import ProgressBar

_CHUNK = 1 << 16
_ROUNDS = 2
_MOST_BREAKS = 4096
_SLOWEST = 256
_DIGITS = 100
_PAUSE = 1.0
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNWRITABLE = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
        *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    }
)


@dataclass(frozen=True)
class RemoteFile:
    """A file that mirrors offer, and how to know it when it has come.

    ``folder`` tells files of one name apart on a mirror of one's own, which holds
    ``folder/name``. ``size`` is known or else at most ``limit``. ``check`` reads a file
    that has no checksum and raises ``DataError`` unless it is what it should be.
    """

    name: str
    urls: tuple[str, ...]
    folder: str = ""
    size: int | None = None
    limit: int | None = None
    sha256: str | None = None
    md5: str | None = None
    check: Callable[[Path], object] | None = None

    @property
    def has_sum(self) -> bool:
        """Whether there is a checksum; only then are pieces put together."""
        return self.sha256 is not None or self.md5 is not None

    def problem_with(self, path: Path) -> str | None:
        """Return what is wrong with the file at ``path``, or ``None``."""
        found = path.stat().st_size
        if self.size is not None and found != self.size:
            return f"expected {self.size} bytes, found {found}"
        for kind, expected in (("sha256", self.sha256), ("md5", self.md5)):
            if expected is not None:
                digest = _digest(path, kind)
                if digest != expected.lower():
                    return f"expected {kind} {expected}, found {digest}"
        if self.check is not None:
            try:
                self.check(path)
            except DataError as error:
                return str(error).removeprefix(f"{path}: ")
        return None

    def addresses(self, mirrors: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the URLs to try in turn.

        ``mirrors``, or else the base URLs in the environment variable
        MILLSTREAM_MIRROR (separated by blanks), take the place of the public ones.
        """
        if mirrors is None:
            mirrors = os.environ.get("MILLSTREAM_MIRROR", "").split()
        if not mirrors:
            return self.urls
        path = f"{self.folder}/{self.name}" if self.folder else self.name
        return tuple(f"{base.rstrip('/')}/{path}" for base in mirrors)


def fetch(
    file: RemoteFile,
    target: Path,
    *,
    mirrors: Sequence[str] | None = None,
    timeout: float = 30.0,
    progress: bool | None = None,
) -> Path:
    """Return ``target`` once it holds ``file``, fetching it where need be.

    A file that is there already and passes its checks is left alone; one that does not
    is replaced. Mirrors are tried in turn; one that sends something else, such as a
    page to log in at, has failed and nothing of it is kept. What has come of a file
    with a checksum is kept in ``target`` + ``.part`` and the next call, in this process
    or another, asks for the rest. The name ``target`` only ever holds a checked file.
    Other threads and processes wait and then find it. ``timeout`` is the longest
    silence in seconds, and less than 256 bytes/s for as long is silence too; a proxy is
    taken from the environment.

    Raises ``DownloadError`` with the steps to do it by hand when no mirror delivers.
    """
    target = Path(target)
    if _is_good(file, target):
        return target
    urls = file.addresses(mirrors)
    with _explained_permission(file, target, urls):
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            ProgressBar(target.name, file.size, shown=progress) as bar,
            _part_of(target, bar) as part,
        ):
            if _is_good(file, target):
                return target
            _fetch_from_any(urls, file, part, target, timeout=timeout, bar=bar)
            os.replace(part, target)
    return target


class _MirrorError(Exception):
    def __init__(self, reason: str, *, transient: bool = False) -> None:
        super().__init__(reason)
        self.transient = transient


def _fetch_from_any(
    urls: Sequence[str],
    file: RemoteFile,
    part: Path,
    target: Path,
    *,
    timeout: float,
    bar: ProgressBar,
) -> None:
    reasons: dict[str, str] = {}
    waiting = list(urls)
    for round_number in range(_ROUNDS):
        if round_number and waiting:
            time.sleep(_PAUSE)
        again = []
        for url in waiting:
            try:
                _fetch_from(url, file, part, timeout=timeout, bar=bar)
            except _MirrorError as error:
                reasons[url] = str(error)
                bar.say(f"{url}: {error}")
                if error.transient:
                    again.append(url)
            else:
                return
        waiting = again
    raise DownloadError(_by_hand(file, target, urls, reasons))


def _fetch_from(
    url: str, file: RemoteFile, part: Path, *, timeout: float, bar: ProgressBar
) -> None:
    """Return once ``part`` is good, or raise with what of it may still become so."""
    is_own = False
    while True:
        start = _resume_point(file, part)
        if start and _is_good(file, part):
            return
        is_own = is_own or not start  # all of the part is what this mirror sent
        began = time.monotonic()
        with _opened(url, start, timeout) as response:
            begin, total = _extent(response, file, start)
            # Until it is known to be the file, it does not take the place of a part.
            into = part if begin == start else _beside(part)
            broken = _receive(response, file, into, begin, total, timeout, bar)
        problem = file.problem_with(into)
        if problem is None and (broken is None or file.has_sum):
            os.replace(into, part)
            return
        found = into.stat().st_size
        is_whole = broken is None if file.size is None else found == file.size
        if broken is not None and broken.transient and file.has_sum and not is_whole:
            if found > start:
                os.replace(into, part)
                is_own = is_own or begin == 0
            if found - start < _least_advance(file, time.monotonic() - began):
                raise broken
        elif is_whole and begin and not is_own:
            part.unlink()
        else:
            if begin and not is_whole:
                os.truncate(into, begin)
            else:
                into.unlink()
            # Without a length, a break may look like an end.
            is_short = total is None and not is_whole
            raise broken or _MirrorError(str(problem), transient=is_short)


def _least_advance(file: RemoteFile, seconds: float) -> float:
    """Bytes that a mirror must have sent before a break to be asked for the rest."""
    share = _CHUNK if file.size is None else file.size // _MOST_BREAKS + 1
    return max(share, _SLOWEST * seconds)


def _beside(part: Path) -> Path:
    return part.with_name(f"{part.name}.new")


def _resume_point(file: RemoteFile, part: Path) -> int:
    if not part.exists():
        return 0
    found = part.stat().st_size
    is_whole = found == file.size and file.problem_with(part) is None
    may_grow = file.size is None or found < file.size
    if file.has_sum and (is_whole or may_grow):
        return found
    part.unlink()
    return 0


def _opened(url: str, start: int, timeout: float) -> Any:
    """The answer to a request for the bytes from ``start``, or failing that for all."""
    import http.client
    import urllib.error
    import urllib.request

    headers = {"User-Agent": "millstream", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        return urllib.request.build_opener().open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _opened(url, 0, timeout)
        raise _MirrorError(
            f"HTTP {error.code} {error.reason}",
            transient=error.code in _TRANSIENT_STATUS,
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        passing = (TimeoutError, ConnectionError, http.client.HTTPException)
        raise _MirrorError(
            _reason(cause, timeout), transient=isinstance(cause, passing)
        ) from error


def _extent(response: Any, file: RemoteFile, start: int) -> tuple[int, int | None]:
    """The first byte that is sent, and how many the file has if that is announced."""
    begin = _first_byte(response) if start else 0
    if begin not in (0, start):
        raise _MirrorError(f"asked for bytes from {start}, was sent them from {begin}")
    announced = _number(response.headers.get("Content-Length") or "")
    total = None if announced is None else begin + announced
    if None not in (total, file.size) and total != file.size:
        raise _MirrorError(f"expected {file.size} bytes, it announces {total}")
    return begin, total


def _receive(
    response: Any,
    file: RemoteFile,
    into: Path,
    begin: int,
    total: int | None,
    timeout: float,
    bar: ProgressBar,
) -> _MirrorError | None:
    """Write what comes to ``into`` from ``begin`` on; return why it broke off."""
    done = begin
    most = file.limit if file.size is None else file.size
    with into.open("r+b" if begin else "wb") as output:
        output.seek(begin)
        output.truncate()
        bar.update(done, total)
        try:
            for chunk in _chunks(response, timeout):
                done += len(chunk)
                if most is not None and done > most:
                    return _MirrorError(f"sends more than {most} bytes")
                output.write(chunk)
                bar.update(done, total)
        except _MirrorError as error:
            return error
        output.flush()
        os.fsync(output.fileno())
    if total is not None and done < total:
        return _MirrorError(f"broke off after {done} of {total} bytes", transient=True)
    return None


def _chunks(response: Any, timeout: float) -> Iterator[bytes]:
    import http.client

    began, came = time.monotonic(), 0
    try:
        while chunk := response.read1(_CHUNK):
            yield chunk
            came += len(chunk)
            seconds = time.monotonic() - began
            if seconds >= timeout:
                if came < _SLOWEST * seconds:
                    raise _MirrorError(
                        f"sent less than {_SLOWEST} bytes/s for {timeout:g} s",
                        transient=True,
                    )
                began, came = time.monotonic(), 0
    except (OSError, http.client.HTTPException) as error:
        raise _MirrorError(_reason(error, timeout), transient=True) from error


def _reason(cause: object, timeout: float) -> str:
    if isinstance(cause, TimeoutError):
        return f"silent for {timeout:g} s"
    return str(cause) or type(cause).__name__


def _first_byte(response: Any) -> int:
    if response.status != 206:
        return 0
    unit, _, span = (response.headers.get("Content-Range") or "").partition(" ")
    first = _number(span.partition("-")[0]) if unit == "bytes" else None
    return -1 if first is None else first


def _number(text: str) -> int | None:
    if len(text) > _DIGITS:
        raise _MirrorError(f"announces a number of {len(text)} characters")
    return int(text) if text.isdecimal() else None


def _is_good(file: RemoteFile, path: Path) -> bool:
    return path.is_file() and file.problem_with(path) is None


def _digest(path: Path, kind: str) -> str:
    import hashlib

    with path.open("rb") as stream:
        digest = hashlib.file_digest(
            stream, lambda: hashlib.new(kind, usedforsecurity=False)
        )
    return digest.hexdigest()


@contextlib.contextmanager
def _part_of(target: Path, bar: ProgressBar) -> Iterator[Path]:
    """The file to fetch ``target`` into, the caller's alone while this lasts."""
    import secrets

    def say() -> None:
        bar.say(f"{target.name}: waiting for another process or thread")

    with locked(target, when_waiting=say) as is_held:
        own = "" if is_held else f".{secrets.token_hex(8)}"
        part = target.with_name(f"{target.name}{own}.part")
        try:
            yield part
        finally:
            _beside(part).unlink(missing_ok=True)
            if not is_held:
                part.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained_permission(
    file: RemoteFile, target: Path, urls: Sequence[str]
) -> Iterator[None]:
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise type(error)(
            error.errno,
            f"cannot write {error.filename or target.parent} to fetch {target.name}: "
            f"{error.strerror}. Pass cache_dir= with a folder that can be written.\n"
            f"{_steps(file, target, urls)}",
        ) from error


def _by_hand(
    file: RemoteFile, target: Path, urls: Sequence[str], reasons: dict[str, str]
) -> str:
    tried = "\n".join(f"  {url}: {reason}" for url, reason in reasons.items())
    return f"could not fetch {target.name}:\n{tried}\n{_steps(file, target, urls)}"


def _steps(file: RemoteFile, target: Path, urls: Sequence[str]) -> str:
    listed = dict.fromkeys((*urls, *file.urls))
    lines = ["To do it by hand, fetch one of", *(f"  {url}" for url in listed)]
    known = {"size": file.size, "sha256": file.sha256, "md5": file.md5}
    checks = [f"{kind} {value}" for kind, value in known.items() if value is not None]
    if checks:
        lines += ["check it", *(f"  {check}" for check in checks)]
    return "\n".join([*lines, "and save it as", f"  {target}"])
