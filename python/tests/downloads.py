"""What the tests of downloads share: a file, and where it is not."""

from __future__ import annotations

import hashlib
import random

from millstream._datasets.download import RemoteFile

CONTENT = random.Random(5).randbytes(300_000)
NOWHERE = "http://127.0.0.1:9/nothing"


def described(*urls: str, content: bytes = CONTENT) -> RemoteFile:
    """The description of a file that these addresses offer."""
    return RemoteFile(
        "data.bin",
        urls,
        folder="things",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
