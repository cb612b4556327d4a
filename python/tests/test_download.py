"""Downloads from a server that breaks off, stalls, redirects and sends wrong data."""

import hashlib
import threading
import time
from pathlib import Path

import file_server
import pytest
from downloads import CONTENT, NOWHERE, described
from file_server import FileServer
from millstream._core.errors import DownloadError, data_error
from millstream._datasets.download import RemoteFile, fetch

pytestmark = pytest.mark.usefixtures("no_surroundings")


def test_a_file_is_fetched_once(server: FileServer, tmp_path: Path) -> None:
    url = server.offer("/a", file_server.whole(CONTENT))
    target = tmp_path / "new" / "folder" / "data.bin"
    assert fetch(described(url), target) == target
    assert target.read_bytes() == CONTENT
    assert fetch(described(url), target).read_bytes() == CONTENT
    assert server.ranges("/a") == [None]
    assert sorted(p.name for p in target.parent.iterdir()) == [
        ".data.bin.lock",
        "data.bin",
    ]


def test_the_rest_is_requested_after_a_broken_connection(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer("/a", file_server.cut_off(CONTENT, after=120_000))
    assert fetch(described(url), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/a") == [None, "bytes=120000-", "bytes=240000-"]


def test_the_next_call_resumes_from_another_mirror(
    server: FileServer, tmp_path: Path
) -> None:
    broken = file_server.in_turn(
        file_server.cut_off(CONTENT, after=1000), file_server.status(404)
    )
    target = tmp_path / "a"
    with pytest.raises(DownloadError, match="404"):
        fetch(described(server.offer("/a", broken)), target)
    assert not target.exists()
    assert (tmp_path / "a.part").stat().st_size == 1000
    fetch(described(server.offer("/b", file_server.whole(CONTENT))), target)
    assert target.read_bytes() == CONTENT
    assert server.ranges("/b") == ["bytes=1000-"]
    assert not (tmp_path / "a.part").exists()


def test_a_server_that_ignores_ranges_restarts(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT[:5000])
    url = server.offer("/a", file_server.without_ranges(CONTENT))
    assert fetch(described(url), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/a") == ["bytes=5000-"]


def test_a_server_without_progress_fails(server: FileServer, tmp_path: Path) -> None:
    url = server.offer("/a", file_server.without_ranges(CONTENT, after=5000))
    with pytest.raises(DownloadError, match="broke off after 5000 of 300000"):
        fetch(described(url), tmp_path / "a")
    assert len(server.requests) <= 4


def test_a_part_of_another_file_is_discarded(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "a.part").write_bytes(b"x" * 5000)
    url = server.offer("/a", file_server.whole(CONTENT))
    assert fetch(described(url), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/a") == ["bytes=5000-", None]


@pytest.mark.parametrize("left", [CONTENT, CONTENT + b"more", b"x" * len(CONTENT)])
def test_a_complete_part_is_checked_before_it_is_used(
    server: FileServer, tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "a.part").write_bytes(left)
    url = server.offer("/a", file_server.whole(CONTENT))
    assert fetch(described(url), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/a") == ([] if left == CONTENT else [None])


def test_bytes_from_another_offset_are_refused(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT[:5000])
    bad = server.offer("/bad", file_server.from_elsewhere(CONTENT, shift=7))
    with pytest.raises(
        DownloadError, match="bytes from 5000, received bytes from 5007"
    ):
        fetch(described(bad), tmp_path / "a")


@pytest.mark.parametrize("length", [299_999, 300_001, 5])
def test_a_wrong_content_length_is_refused(
    server: FileServer, tmp_path: Path, length: int
) -> None:
    lying = server.offer("/a", file_server.announcing(CONTENT, length=length))
    good = server.offer("/b", file_server.whole(CONTENT))
    assert fetch(described(lying, good), tmp_path / "a").read_bytes() == CONTENT
    with pytest.raises(
        DownloadError, match=f"300000 bytes, the mirror announces {length}"
    ):
        fetch(described(lying), tmp_path / "other")


def test_a_content_length_longer_than_a_body_with_the_right_checksum(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer("/a", file_server.announcing(CONTENT, length=300_100))
    file = RemoteFile("a", (url,), sha256=hashlib.sha256(CONTENT).hexdigest())
    assert fetch(file, tmp_path / "a").read_bytes() == CONTENT


def test_no_content_length(server: FileServer, tmp_path: Path) -> None:
    url = server.offer("/a", file_server.announcing(CONTENT, length=None))
    assert fetch(described(url), tmp_path / "a").read_bytes() == CONTENT
    more = server.offer("/more", file_server.announcing(CONTENT + b"!", length=None))
    with pytest.raises(DownloadError, match="sends more than 300000 bytes"):
        fetch(described(more), tmp_path / "b")


PAGE = b"<html>log in</html>"


@pytest.mark.parametrize(
    "page",
    [file_server.in_chunks(PAGE), file_server.announcing(PAGE, length=None)],
    ids=["chunked", "until it closes"],
)
@pytest.mark.parametrize("kept", [0, 5, 250_000])
def test_a_page_without_content_length_keeps_the_part(
    server: FileServer, tmp_path: Path, page: file_server.Behaviour, kept: int
) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(CONTENT[:kept])
    login = server.offer("/login", page)
    with pytest.raises(DownloadError, match="expected 300000 bytes, found 19"):
        fetch(described(login), tmp_path / "a")
    assert len(server.ranges("/login")) <= 2
    assert (part.read_bytes() if part.exists() else b"") == CONTENT[:kept]
    good = server.offer("/good", file_server.whole(CONTENT))
    assert fetch(described(login, good), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/good") == [f"bytes={kept}-" if kept else None]
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize("kept", [0, 250_000])
def test_a_body_that_is_too_long_is_discarded(
    server: FileServer, tmp_path: Path, kept: int
) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(CONTENT[:kept])
    endless = server.offer("/endless", file_server.in_chunks(bytes(400_000)))
    with pytest.raises(DownloadError, match="sends more than 300000 bytes"):
        fetch(described(endless), tmp_path / "a")
    assert (part.read_bytes() if part.exists() else b"") == CONTENT[:kept]
    assert len(server.requests) == 1


def test_the_limit_ends_a_body_of_unknown_size(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer("/a", file_server.in_chunks(bytes(400_000)))
    with pytest.raises(DownloadError, match="sends more than 1000 bytes"):
        fetch(RemoteFile("a", (url,), limit=1000), tmp_path / "a")
    assert not list(tmp_path.glob("a*"))


@pytest.mark.parametrize("kept", [0, 250_000])
def test_http_416_keeps_the_part(server: FileServer, tmp_path: Path, kept: int) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT[:kept])
    empty = server.offer("/empty", file_server.status(416))
    with pytest.raises(DownloadError, match="HTTP 416"):
        fetch(described(empty), tmp_path / "a")
    good = server.offer("/good", file_server.whole(CONTENT))
    assert fetch(described(empty, good), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/good") == [f"bytes={kept}-" if kept else None]


def test_a_part_longer_than_the_file_of_unknown_size(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "a.part").write_bytes(bytes(400_000))
    url = server.offer("/a", file_server.whole(CONTENT))
    file = RemoteFile("a", (url,), sha256=hashlib.sha256(CONTENT).hexdigest())
    assert fetch(file, tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/a")[:2] == ["bytes=400000-", None]


@pytest.mark.parametrize("name", ["Content_Length", "Content_Range"])
def test_absurd_numbers_in_headers_fail_the_mirror(
    server: FileServer, tmp_path: Path, name: str
) -> None:
    (tmp_path / "a.part").write_bytes(CONTENT[:5000])
    bad = server.offer("/bad", file_server.many_digits(name))
    good = server.offer("/good", file_server.whole(CONTENT))
    assert fetch(described(bad, good), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/good") == ["bytes=5000-"]


def test_broken_connections_with_progress_are_resumed(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer("/a", file_server.cut_off(CONTENT, after=10_000))
    assert fetch(described(url), tmp_path / "a").read_bytes() == CONTENT
    assert len(server.requests) == 30


def test_broken_connections_with_little_progress_fail(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer("/a", file_server.cut_off(CONTENT, after=10))
    with pytest.raises(DownloadError, match="broke off after 20 of 300000"):
        fetch(described(url), tmp_path / "a")
    assert len(server.requests) == 2


def test_a_wrong_file_in_several_responses_fails(
    server: FileServer, tmp_path: Path
) -> None:
    wrong = bytes(len(CONTENT))
    url = server.offer("/a", file_server.cut_off(wrong, after=120_000))
    with pytest.raises(DownloadError, match="expected sha256"):
        fetch(described(url), tmp_path / "a")
    assert len(server.requests) == 3
    assert not (tmp_path / "a.part").exists()


def test_a_slow_response_times_out(server: FileServer, tmp_path: Path) -> None:
    slow = server.offer("/slow", file_server.trickling(CONTENT))
    good = server.offer("/good", file_server.whole(CONTENT))
    fetch(described(slow, good), tmp_path / "a", timeout=0.3)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert len(server.ranges("/slow")) == 1
    with pytest.raises(DownloadError, match=r"less than 256 bytes/s for 0\.3 s"):
        fetch(described(slow), tmp_path / "b", timeout=0.3)


def test_after_a_wrong_checksum_the_next_mirror_is_tried(
    server: FileServer, tmp_path: Path
) -> None:
    other = bytes(len(CONTENT))
    bad = server.offer("/bad", file_server.whole(other))
    good = server.offer("/good", file_server.whole(CONTENT))
    assert fetch(described(bad, good), tmp_path / "a").read_bytes() == CONTENT
    with pytest.raises(DownloadError) as caught:
        fetch(described(bad), tmp_path / "b")
    assert hashlib.sha256(CONTENT).hexdigest() in str(caught.value)
    assert hashlib.sha256(other).hexdigest() in str(caught.value)
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "b.part").exists()


def test_a_file_without_a_checksum_is_not_resumed(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "a.part").write_bytes(b"old")
    url = server.offer("/a", file_server.whole(CONTENT))
    assert fetch(RemoteFile("a", (url,)), tmp_path / "a").read_bytes() == CONTENT
    assert server.ranges("/a") == [None]
    cut = server.offer("/cut", file_server.cut_off(CONTENT, after=1000))
    with pytest.raises(DownloadError, match="broke off"):
        fetch(RemoteFile("b", (cut,)), tmp_path / "b")
    assert set(server.ranges("/cut")) == {None}


def numbers(path: Path) -> None:
    if not path.read_bytes().isdigit():
        found = repr(path.read_bytes())
        raise data_error(path=path, expected="digits", found=found)


def test_a_check_replaces_a_checksum(server: FileServer, tmp_path: Path) -> None:
    page = server.offer("/page", file_server.whole(b"<html>log in</html>"))
    good = server.offer("/good", file_server.whole(b"123"))
    file = RemoteFile("a", (page, good), check=numbers)
    assert fetch(file, tmp_path / "a").read_bytes() == b"123"
    assert fetch(file, tmp_path / "a").read_bytes() == b"123"
    assert len(server.ranges("/good")) == 1
    with pytest.raises(DownloadError) as caught:
        fetch(RemoteFile("b", (page,), check=numbers), tmp_path / "b")
    said = f"{page}: expected digits, found b'<html>log in</html>'"
    assert said in str(caught.value)
    assert not list(tmp_path.glob("b*"))


def test_redirects_are_followed(server: FileServer, tmp_path: Path) -> None:
    good = server.offer("/good", file_server.whole(CONTENT))
    url = server.offer("/a", file_server.redirect("/b"))
    server.offer("/b", file_server.redirect(good))
    assert fetch(described(url), tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("where", [NOWHERE, "/loop", "/missing", "file:///etc/passwd"])
def test_after_a_broken_redirect_the_next_mirror_is_tried(
    server: FileServer, tmp_path: Path, where: str
) -> None:
    good = server.offer("/good", file_server.whole(CONTENT))
    bad = server.offer("/loop", file_server.redirect(where))
    assert fetch(described(bad, good), tmp_path / "a").read_bytes() == CONTENT
    with pytest.raises(DownloadError):
        fetch(described(bad), tmp_path / "b")


def test_a_stalled_response_times_out_and_is_resumed(
    server: FileServer, tmp_path: Path
) -> None:
    url = server.offer(
        "/a",
        file_server.in_turn(
            file_server.stalling(CONTENT, after=1000), file_server.whole(CONTENT)
        ),
    )
    began = time.monotonic()
    fetch(described(url), tmp_path / "a", timeout=0.3)
    assert time.monotonic() - began < 10
    assert server.ranges("/a") == [None, "bytes=1000-"]
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_after_a_silent_mirror_the_next_is_tried(
    server: FileServer, tmp_path: Path
) -> None:
    silent = server.offer("/silent", file_server.stalling(CONTENT, after=0))
    good = server.offer("/good", file_server.whole(CONTENT))
    fetch(described(silent, good), tmp_path / "a", timeout=0.2)
    assert server.ranges("/silent") == [None]
    with pytest.raises(DownloadError, match=r"silent for 0\.2 s"):
        fetch(described(silent), tmp_path / "b", timeout=0.2)


@pytest.mark.parametrize("code", [403, 404, 410, 500, 503])
def test_after_an_http_error_the_next_mirror_is_tried(
    server: FileServer, tmp_path: Path, code: int
) -> None:
    bad = server.offer("/bad", file_server.status(code))
    good = server.offer("/good", file_server.whole(CONTENT))
    fetch(described(NOWHERE, bad, good), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert len(server.ranges("/bad")) == 1


def test_a_transient_error_is_retried(server: FileServer, tmp_path: Path) -> None:
    url = server.offer(
        "/a",
        file_server.in_turn(file_server.status(503), file_server.whole(CONTENT)),
    )
    fetch(described(url), tmp_path / "a")
    gone = server.offer("/gone", file_server.status(404))
    with pytest.raises(DownloadError):
        fetch(described(gone), tmp_path / "b")
    assert len(server.ranges("/gone")) == 1


def test_offline_errors_have_manual_instructions(tmp_path: Path) -> None:
    file = described(NOWHERE, "http://127.0.0.1:9/other")
    with pytest.raises(DownloadError) as caught:
        fetch(file, tmp_path / "data.bin")
    text = str(caught.value)
    for part in (*file.urls, str(file.sha256), "300000", str(tmp_path / "data.bin")):
        assert part in text
    assert "Connection refused" in text
    assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("found", [b"", CONTENT[:-1], bytes(len(CONTENT))])
def test_a_damaged_file_in_the_cache_is_replaced(
    server: FileServer, tmp_path: Path, found: bytes
) -> None:
    target = tmp_path / "a"
    target.write_bytes(found)
    fetch(described(server.offer("/a", file_server.whole(CONTENT))), target)
    assert target.read_bytes() == CONTENT


def test_a_damaged_file_stays_until_its_replacement_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"damaged")
    with pytest.raises(DownloadError):
        fetch(described(NOWHERE), target)
    assert target.read_bytes() == b"damaged"


def test_mirrors_replace_the_public_urls(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.offer("/m/things/data.bin", file_server.whole(CONTENT))
    file = described(NOWHERE)
    fetch(file, tmp_path / "a", mirrors=[f"{server.url}/m/"])
    monkeypatch.setenv("MILLSTREAM_MIRROR", f"{server.url}/none {server.url}/m")
    fetch(file, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == CONTENT
    monkeypatch.setenv("MILLSTREAM_MIRROR", f"{server.url}/none")
    with pytest.raises(DownloadError, match="404"):
        fetch(file, tmp_path / "c")


def test_a_folder_can_be_a_mirror(tmp_path: Path) -> None:
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "data.bin").write_bytes(CONTENT)
    fetch(described(NOWHERE), tmp_path / "a", mirrors=[tmp_path.as_uri()])
    assert (tmp_path / "a").read_bytes() == CONTENT
    with pytest.raises(DownloadError, match="No such file"):
        fetch(described(NOWHERE), tmp_path / "b", mirrors=[f"{tmp_path.as_uri()}/no"])


def test_a_proxy_is_taken_from_the_environment(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://nowhere.invalid/data.bin"
    server.offer(url, file_server.whole(CONTENT))
    monkeypatch.setenv("http_proxy", server.url)
    fetch(described(url), tmp_path / "a")
    assert server.requests == [(url, None)]


_OK = b"HTTP/1.1 200 OK\r\n"
_MOVED = b"HTTP/1.1 302 Found\r\nLocation: /good\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("before", "drop"),
    [
        (_OK + b"X-Header: ", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: /good\r\nContent-Length: 9999\r\n\r\n",
            b"a",
        ),
        (b"HTTP/1.1 302 Found\r\nLocation: /good\r\n\r\n", b"a" * 4096),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 9999\r\n\r\n", b"a"),
        (_CHUNKED + b"5;", b"a"),
        (_CHUNKED + b"1\r\na\r\n", b"1\r\na\r\n"),
        (_CHUNKED + b"%x\r\n" % len(CONTENT) + CONTENT + b"\r\n0\r\nX-Header: ", b"a"),
    ],
    ids=[
        *("header", "1xx", "redirect", "long redirect", "error", "chunk extension"),
        *("chunks", "trailer"),
    ],
)
def test_no_slow_response_lasts_forever(
    server: FileServer, tmp_path: Path, before: bytes, drop: bytes
) -> None:
    dripped = server.offer("/dripped", file_server.dripping(before, drop))
    good = server.offer("/good", file_server.whole(CONTENT))
    file = described(dripped, good)

    def fetch_it() -> None:
        fetch(file, tmp_path / "a", timeout=0.5)

    threads = [threading.Thread(target=fetch_it, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert (tmp_path / "a").read_bytes() == CONTENT
