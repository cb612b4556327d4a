"""Opens URLs with time limits, so that no server can block a request forever."""

from __future__ import annotations

import functools
import http.client
import io
import socket
import time
import urllib.request
from typing import Any

_MIN_RATE = 256  # bytes per second of the body


def opened(request: urllib.request.Request, timeout: float) -> Any:
    """Return the response to a request. Read its body with ``read1``.

    Raises ``TimeoutError`` if the headers take more than ``timeout`` seconds, or if the
    body arrives at less than 256 bytes/s over ``timeout`` seconds.
    """
    opener = urllib.request.build_opener(_HttpHandler, _HttpsHandler, _Redirects)
    return opener.open(request, timeout=timeout)


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket; raises ``TimeoutError`` after ``deadline``."""

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
    """A response with one deadline for all headers and a minimum rate for the body."""

    def __init__(
        self, sock: socket.socket, *arguments: Any, timeout: float, **more: Any
    ) -> None:
        super().__init__(sock, *arguments, **more)
        self._timeout = timeout
        self._reader = _DeadlineReader(sock, self.fp)
        self.fp = io.BufferedReader(self._reader)
        self._received: float = 0
        self._extend_deadline()

    def _extend_deadline(self) -> None:
        self._received = 0
        self._reader.deadline = time.monotonic() + self._timeout

    def begin(self) -> None:
        try:
            super().begin()
        except TimeoutError as error:
            late = f"sent no complete headers for {self._timeout:g} s"
            raise TimeoutError(late) from error
        self._extend_deadline()

    def read1(self, n: int = -1) -> bytes:
        try:
            chunk = super().read1(n)
        except TimeoutError as error:
            few = (
                f"sent less than {_MIN_RATE} bytes/s"
                if self._received
                else "was silent"
            )
            raise TimeoutError(f"{few} for {self._timeout:g} s") from error
        self._received += len(chunk)
        if self._received >= _MIN_RATE * self._timeout:
            self._extend_deadline()
        return chunk


class _TimedHandler(urllib.request.AbstractHTTPHandler):
    """Opens connections whose responses have deadlines."""

    def do_open(self, http_class: Any, req: Any, **more: Any) -> Any:
        def connect(host: str, **options: Any) -> Any:
            connection = http_class(host, **options)
            connection.response_class = functools.partial(
                _Response, timeout=req.timeout
            )
            return connection

        return super().do_open(connect, req, **more)


class _HttpHandler(_TimedHandler, urllib.request.HTTPHandler): ...


class _HttpsHandler(_TimedHandler, urllib.request.HTTPSHandler): ...


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, *more: Any) -> Any:
        fp.close()  # otherwise urllib reads the whole body of the redirect
        return super().redirect_request(req, fp, *more)
