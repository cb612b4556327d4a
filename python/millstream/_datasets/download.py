"""Downloads files into a cache, checks them and resumes partial downloads."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from millstream._core.errors import DataError, DownloadError, text_without_path
from millstream._core.progress_bar import ProgressBar
from millstream._datasets.http import opened
from millstream._datasets.lock import locked, open_regular

_CHUNK = 1 << 16
_ROUNDS = 2
_MAX_RESUMES = 4096
_TRANSIENT_ERRORS = (TimeoutError, ConnectionError, http.client.HTTPException)
_PAUSE = 1.0
_TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class RemoteFile:
    """A file on mirrors, and how to check a copy of it.

    A private mirror holds the file as ``folder/name``. ``limit`` is the maximum size if
    ``size`` is unknown. ``check`` validates a file without a checksum: it raises
    ``DataError`` if the file is wrong.
    """

    name: str
    urls: tuple[str, ...]
    folder: str = ""
    size: int | None = None
    limit: int | None = None
    sha256: str | None = None
    check: Callable[[Path], object] | None = None

    @property
    def has_sum(self) -> bool:
        """Whether there is a checksum. Only then are partial downloads resumed."""
        return self.sha256 is not None

    def problem_with(self, path: Path) -> str | None:
        """Return a description of what is wrong with the file, or None."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"expected {self.size} bytes, found {size}"
        if self.sha256 is not None:
            with path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != self.sha256.lower():
                return f"expected sha256 {self.sha256}, found {found}"
        if self.check is not None:
            try:
                self.check(path)
            except DataError as error:
                return text_without_path(error)
        return None

    def addresses(self, mirrors: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the URLs to try in turn.

        The base URLs in ``mirrors``, or in the environment variable MILLSTREAM_MIRROR
        (separated by spaces), replace the public URLs.
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
    """Download ``file`` to ``target``, unless it is there, and return ``target``.

    An existing file is kept if it passes its checks and replaced otherwise. Only a
    checked file ever gets the name ``target``. Other threads and processes that want it
    wait.

    Mirrors are tried in turn. A mirror that sends something else, such as a login page,
    has failed, and what it sent is discarded. A partial download of a file with a
    checksum stays in ``target`` + ``.part``, and the next call resumes it.

    A mirror must send its headers within ``timeout`` seconds, and then at least 256
    bytes/s. The environment may name a proxy.

    Raises ``DownloadError`` with manual instructions if all mirrors fail.
    """
    target = Path(target)
    if _is_good(file, target):
        return target
    urls = file.addresses(mirrors)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with ProgressBar(target.name, file.size, shown=progress) as bar:
            waiting = f"{target.name}: waiting for another process or thread"
            with locked(target, when_waiting=lambda: bar.say(waiting)) as is_held:
                if _is_good(file, target):
                    return target
                own = "" if is_held else f".{secrets.token_hex(8)}"
                part = target.with_name(f"{target.name}{own}.part")
                os.close(open_regular(part))
                try:
                    failures = _Download(file, part, timeout, bar).run(urls)
                    if not failures:
                        os.replace(part, target)
                        return target
                finally:
                    if part.exists() and not (is_held and part.stat().st_size):
                        part.unlink()
    except OSError as error:
        raise type(error)(
            error.errno,
            f"cannot write {error.filename or target.parent} to fetch {target.name}: "
            f"{error.strerror}. Pass cache_dir= with a writable folder.\n"
            f"{_steps(file, target, urls)}",
        ) from error
    tried = "".join(f"  {url}: {reason}\n" for url, reason in failures.items())
    raise DownloadError(
        f"could not fetch {target.name}:\n{tried}{_steps(file, target, urls)}"
    )


class _MirrorError(Exception):
    """A mirror failed.

    ``transient`` errors are worth another attempt. After a ``resumable`` one the bytes
    received so far may be the start of the file.
    """

    def __init__(
        self, reason: object, *, transient: bool = False, resumable: bool = False
    ) -> None:
        super().__init__(str(reason) or type(reason).__name__)
        self.transient = transient
        self.resumable = resumable


@dataclass(frozen=True)
class _Download:
    """Downloads ``file`` to ``part``. No other thread or process may write ``part``."""

    file: RemoteFile
    part: Path
    timeout: float
    bar: ProgressBar

    def run(self, urls: Sequence[str]) -> dict[str, str]:
        """Download from the first mirror that works.

        Returns an empty dict, or the reason why each mirror failed.
        """
        reasons: dict[str, str] = {}
        remaining = list(urls)
        for attempt in range(_ROUNDS):
            time.sleep(_PAUSE if attempt and remaining else 0)
            for url in tuple(remaining):
                try:
                    self._fetch_from(url)
                    return {}
                except _MirrorError as error:
                    reasons[url] = str(error)
                    self.bar.say(f"{url}: {error}")
                    if not error.transient:
                        remaining.remove(url)
        return reasons

    def _fetch_from(self, url: str) -> None:
        """Download the file from one mirror.

        If the mirror closes the connection early, the rest is requested again, as long
        as each request makes progress. After an error, a part that can be resumed
        stays on disk.
        """
        file, part = self.file, self.part
        was_begun = file.has_sum and part.stat().st_size > 0
        while not (file.has_sum and _is_good(file, part)):
            broken = None
            with open(open_regular(part), "r+b") as output:
                start = output.seek(0, os.SEEK_END)
                if not file.has_sum or (file.size is not None and start >= file.size):
                    start = output.seek(0)
                    output.truncate()
                try:
                    with self._opened(url, start) as response:
                        self._receive(response, output, start)
                    output.flush()
                    os.fsync(output.fileno())
                except _MirrorError as error:
                    broken = error
            problem = file.problem_with(part)
            if problem is None and (broken is None or file.has_sum):
                return
            found = part.stat().st_size
            may_grow = broken is not None and broken.resumable and found != file.size
            if broken is None or not may_grow or not file.has_sum:
                is_wrong = broken is None or (broken.resumable and found == file.size)
                os.truncate(part, 0 if is_wrong else start)
                if not is_wrong or not was_begun:
                    raise broken or _MirrorError(problem)
                # The part of an earlier call may have been wrong. Try once from 0.
                was_begun = False
                continue
            least = _CHUNK if file.size is None else file.size // _MAX_RESUMES + 1
            if found - start < least:
                raise broken

    def _opened(self, url: str, start: int) -> Any:
        """The response with the bytes from ``start``, or from 0 on HTTP 416."""
        headers = {"User-Agent": "millstream", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            request = urllib.request.Request(url, headers=headers)
            return opened(request, self.timeout)
        except urllib.error.HTTPError as error:
            error.close()
            if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                return self._opened(url, 0)
            transient = error.code in _TRANSIENT_STATUS
            reason = f"HTTP {error.code} {error.reason}"
            raise _MirrorError(reason, transient=transient) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            transient = isinstance(cause, _TRANSIENT_ERRORS)
            raise _MirrorError(cause, transient=transient) from error

    def _receive(self, response: Any, output: IO[bytes], start: int) -> None:
        """Append the response's bytes after ``start`` to ``output``."""
        size, length = self.file.size, getattr(response, "length", None)
        done = 0
        if start and response.status == http.client.PARTIAL_CONTENT:
            span = response.headers.get("Content-Range") or ""
            first = re.match(r"bytes (\d{1,18})-", span)
            done = int(first[1]) if first else -1
        if done not in (0, start):
            raise _MirrorError(
                f"requested bytes from {start}, received bytes from {done}"
            )
        total = size if length is None else done + length
        if size not in (None, total):
            raise _MirrorError(f"expected {size} bytes, the mirror announces {total}")
        while chunk := self._read(response):
            new = chunk[max(start - done, 0) :]
            done += len(chunk)
            most = self.file.limit if size is None else size
            if most is not None and done > most:
                raise _MirrorError(f"the mirror sends more than {most} bytes")
            output.write(new)
            self.bar.update(done, total)
        if length is not None and total is not None and done < total:
            reason = f"the connection broke off after {done} of {total} bytes"
            raise _MirrorError(reason, transient=True, resumable=True)
        # Without a Content-Length, a closed connection looks like the end of the file.
        if size not in (None, done):
            raise _MirrorError(f"expected {size} bytes, found {done}", transient=True)

    def _read(self, response: Any) -> bytes:
        try:
            chunk: bytes = response.read1(_CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _MirrorError(error, transient=True, resumable=True) from error
        return chunk


def _is_good(file: RemoteFile, path: Path) -> bool:
    return path.is_file() and file.problem_with(path) is None


def _steps(file: RemoteFile, target: Path, urls: Sequence[str]) -> str:
    listed = dict.fromkeys((*urls, *file.urls))
    lines = ["To download it by hand, fetch one of", *(f"  {url}" for url in listed)]
    known = {"size": file.size, "sha256": file.sha256}
    checks = [f"{kind} {value}" for kind, value in known.items() if value is not None]
    if checks:
        lines += ["check it", *(f"  {check}" for check in checks)]
    return "\n".join([*lines, "and save it as", f"  {target}"])
