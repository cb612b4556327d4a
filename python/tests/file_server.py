"""An HTTP server on loopback that can misbehave in many ways."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[["_Handler"], None]


@dataclass
class FileServer:
    """Answers each path as in ``routes`` and records the requests."""

    url: str = ""
    routes: dict[str, Behaviour] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def offer(self, path: str, behaviour: Behaviour) -> str:
        """Returns a URL that answers with ``behaviour`` from now on."""
        self.routes[path] = behaviour
        return self.url + path

    def ranges(self, path: str) -> list[str | None]:
        """Returns the Range header of each request for ``path``."""
        return [asked for requested, asked in self.requests if requested == path]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    files: FileServer

    def do_GET(self) -> None:
        self.files.requests.append((self.path, self.headers.get("Range")))
        behaviour = self.files.routes.get(self.path, status(404))
        with contextlib.suppress(ConnectionError):
            behaviour(self)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def start(self) -> int:
        """Returns the first byte of the requested range."""
        asked = self.headers.get("Range")
        return int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0

    def head(self, code: int, **headers: object) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    """Yields a server that runs until the block ends."""
    files = FileServer()
    handler = type("Handler", (_Handler,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    files.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield files
    finally:
        files.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def whole(content: bytes) -> Behaviour:
    """Serves ``content``, or the part in the Range header."""
    return cut_off(content, after=len(content))


def cut_off(content: bytes, *, after: int) -> Behaviour:
    """Announces the whole range, sends ``after`` bytes and closes the connection."""

    def answer(handler: _Handler) -> None:
        start = handler.start()
        if start >= len(content) and start:
            return handler.head(416, Content_Length=0)
        length = len(content) - start
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            handler.head(206, Content_Length=length, Content_Range=span)
        else:
            handler.head(200, Content_Length=length)
        handler.wfile.write(content[start : start + after])
        return None

    return answer


def without_ranges(content: bytes, *, after: int | None = None) -> Behaviour:
    """Serves the whole ``content`` and ignores the Range header."""

    def answer(handler: _Handler) -> None:
        handler.head(200, Content_Length=len(content))
        handler.wfile.write(content[:after])

    return answer


def announcing(content: bytes, *, length: int | None) -> Behaviour:
    """Serves ``content`` with a wrong Content-Length, or without one."""

    def answer(handler: _Handler) -> None:
        if length is None:
            handler.head(200)
        else:
            handler.head(200, Content_Length=length)
        handler.wfile.write(content)

    return answer


def from_elsewhere(content: bytes, *, shift: int) -> Behaviour:
    """Answers a Range with bytes from another position."""

    def answer(handler: _Handler) -> None:
        start = max(handler.start() + shift, 0)
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.head(206, Content_Length=len(content) - start, Content_Range=span)
        handler.wfile.write(content[start:])

    return answer


def many_digits(name: str) -> Behaviour:
    """Answers with an impossibly large number in a header."""
    digits = "9" * 5000
    if name == "Content_Range":
        return lambda handler: handler.head(206, Content_Range=f"bytes {digits}-")
    return lambda handler: handler.head(200, Content_Length=digits)


def stalling(content: bytes, *, after: int) -> Behaviour:
    """Sends ``after`` bytes and then nothing until the server closes."""

    def answer(handler: _Handler) -> None:
        start = handler.start()
        handler.head(
            206 if start else 200,
            Content_Length=len(content) - start,
            Content_Range=f"bytes {start}-{len(content) - 1}/{len(content)}",
        )
        handler.wfile.write(content[start : start + after])
        handler.wfile.flush()
        handler.files.closing.wait(20)

    return answer


def trickling(content: bytes) -> Behaviour:
    """Sends single bytes with long pauses until the server closes."""

    def answer(handler: _Handler) -> None:
        start = handler.start()
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        length = len(content) - start
        handler.head(206 if start else 200, Content_Length=length, Content_Range=span)
        for at in range(start, len(content)):
            handler.wfile.write(content[at : at + 1])
            if handler.files.closing.wait(0.05):
                return

    return answer


def in_chunks(content: bytes) -> Behaviour:
    """Serves the whole ``content`` in chunks, without a length."""

    def answer(handler: _Handler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.head(200, Transfer_Encoding="chunked", Connection="close")
        handler.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content))

    return answer


def redirect(location: str) -> Behaviour:
    """Redirects requests to ``location``."""
    return lambda handler: handler.head(302, Location=location, Content_Length=0)


def status(code: int) -> Behaviour:
    """Answers with an error status and no content."""
    return lambda handler: handler.head(code, Content_Length=0)


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """Uses each of ``behaviours`` for one request, and the last one for all others."""
    left = list(behaviours)

    def answer(handler: _Handler) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(handler)

    return answer


def dripping(before: bytes, drop: bytes) -> Behaviour:
    """Sends ``before``, then ``drop`` with pauses, until the server closes."""

    def answer(handler: _Handler) -> None:
        handler.wfile.write(before)
        while not handler.files.closing.wait(0.02):
            handler.wfile.write(drop)

    return answer
