"""Opens URLs such that no server can keep a request waiting for ever."""

from __future__ import annotations

import functools
import http.client
import io
import socket
import time
import urllib.request
from typing import Any

_SLOWEST = 256  # bytes of the body in a second


def opened(request: urllib.request.Request, timeout: float) -> Any:
    """Return the answer to a request, whose ``read1`` gives its body in pieces.

    The headers have to come within ``timeout`` seconds, and so do each 256 bytes of
    the body times ``timeout``. What is late is a ``TimeoutError``.
    """
    opener = urllib.request.build_opener(_Http, _Https, _Redirects)
    return opener.open(request, timeout=timeout)


class _Received(io.RawIOBase):
    """What a socket receives until ``deadline``; then ``TimeoutError``."""

    deadline = 0.0

    def __init__(self, sock: socket.socket, stream: Any) -> None:
        self._sock = sock
        self._raw = stream.detach()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """One deadline for all headers of an answer, and a least rate for its body."""

    def __init__(
        self, sock: socket.socket, *arguments: Any, timeout: float, **more: Any
    ) -> None:
        super().__init__(sock, *arguments, **more)
        self._timeout = timeout
        self._received = _Received(sock, self.fp)
        self.fp = io.BufferedReader(self._received)
        self._came: float = 0
        self._extend()

    def _extend(self) -> None:
        self._came = 0
        self._received.deadline = time.monotonic() + self._timeout

    def begin(self) -> None:
        try:
            super().begin()
        except TimeoutError as error:
            late = f"sent no complete headers for {self._timeout:g} s"
            raise TimeoutError(late) from error
        self._extend()

    def read1(self, n: int = -1) -> bytes:
        try:
            chunk = super().read1(n)
        except TimeoutError as error:
            few = f"sent less than {_SLOWEST} bytes/s" if self._came else "silent"
            raise TimeoutError(f"{few} for {self._timeout:g} s") from error
        self._came += len(chunk)
        if self._came >= _SLOWEST * self._timeout:
            self._extend()
        return chunk


class _Pacing(urllib.request.AbstractHTTPHandler):
    def do_open(self, http_class: Any, req: Any, **more: Any) -> Any:
        def connection(host: str, **given: Any) -> Any:
            made = http_class(host, **given)
            made.response_class = functools.partial(_Response, timeout=req.timeout)
            return made

        return super().do_open(connection, req, **more)


class _Http(_Pacing, urllib.request.HTTPHandler): ...


class _Https(_Pacing, urllib.request.HTTPSHandler): ...


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, *more: Any) -> Any:
        fp.close()  # or its body would be read to its end
        return super().redirect_request(req, fp, *more)
