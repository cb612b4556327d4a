"""Reading CIFAR's pickled batches never runs pickled code."""

import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream import CIFAR10Dataset
from millstream._core.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Return a batch as pickled by Python 2 with an old NumPy."""
    shape = b"".join(b"M" + struct.pack("<H", size) for size in pixels.shape)
    return (
        b"\x80\x02}q\x01(U\x04dataq\x02"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x03"
        b"cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05(K\x01"
        + shape
        + b"\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", pixels.nbytes)
        + pixels.tobytes()
        + b"tbU\x06labelsq\x08]q\x09("
        + b"".join(b"K" + bytes([label]) for label in labels)
        + b"eU\x0bbatch_labelq\x0aU\x05firstu."
    )


def read(folder: Path, content: bytes) -> dict[str, np.ndarray]:
    (folder / "test_batch").write_bytes(content)
    return CIFAR10Dataset("test", folder).as_array_dict()


def check(found: dict[str, np.ndarray]) -> None:
    images = PIXELS.reshape(2, 3, 32, 32).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found["image"], images)
    np.testing.assert_array_equal(found["label"], np.array([3, 7], np.int32))


def test_batches_pickled_by_python_2(tmp_path: Path) -> None:
    check(read(tmp_path, python2_batch(PIXELS, [3, 7])))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("key", [str, str.encode], ids=["str", "bytes"])
def test_batches_of_all_protocols(tmp_path: Path, protocol: int, key: Any) -> None:
    given = {
        key("batch_label"): "ä",
        key("labels"): [3, 7],
        key("data"): PIXELS,
        key("filenames"): [b"\xff\x00.png", "b.png"],
        key("nested"): {"a": (None, True, False), "b": ()},
        key("again"): PIXELS,
    }
    check(read(tmp_path, pickle.dumps(given, protocol)))


class Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __repr__(self) -> str:
        function, arguments = self.call
        return f"{function.__name__}{arguments}"

    def __reduce__(self) -> Any:
        return self.call


RUN: list[str] = []


class Stateful:
    def __repr__(self) -> str:
        return "Stateful()"

    def __setstate__(self, state: object) -> None:
        RUN.append("setstate")

    def __getstate__(self) -> dict[str, int]:
        return {"a": 1}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "evil",
    [
        Calls(RUN.append, "called"),
        Calls(print, "called"),
        Calls(eval, "RUN.append('called')"),
        Calls(np.load, "/etc/passwd", None, True),
        Calls(np.dtype, "O"),
        Calls(np.dtype, "u1,u1"),
        Stateful(),
        np.float64(1.0),
        np.array([None]),
        {1, 2},
        print,
    ],
    ids=repr,
)
def test_pickled_code_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: int, evil: Any
) -> None:
    content = pickle.dumps({"data": evil, "labels": [3, 7]}, protocol)
    with pytest.raises(DataError, match="test_batch: "):
        read(tmp_path, content)
    assert capsys.readouterr() == ("", "")
    assert RUN == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"not a pickle",
        b"\x80\x02N.",
        b"\x80\x02]q\x01.",
        b"(dp0\nS'a'\ncos\nsystem\n(S'true'\ntRs.",
        b"(S'true'\nios\nsystem\n.",
        b"(cos\nsystem\nS'true'\no.",
        b"\x80\x02\x82\x01.",
        b"Pid\n.",
        b"\x80\x02}X\x01\x00\x00\x00acnumpy\nndarray\ns.",
        b"\x80\x02}(U\x01aK\x01U\x01bu.",
        b"\x80\x02}]K\x01s.",
        b"h\x05.",
        b"e.",
        b"\x80\x02T\xff\xff\xff\x7f.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
    ],
)
def test_other_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, content)
    assert str(tmp_path / "test_batch") in str(caught.value)


def test_an_array_that_does_not_fit_its_shape_is_refused(tmp_path: Path) -> None:
    content = python2_batch(PIXELS, [1, 2])
    wrong = content.replace(b"M\x02\x00M\x00\x0c", b"M\x03\x00M\x00\x0c")
    with pytest.raises(DataError, match="3 images of 3072 bytes, found 6144 bytes"):
        read(tmp_path, wrong)


def test_damaged_pickles_give_data_or_a_data_error(tmp_path: Path) -> None:
    chooser = random.Random(1)
    batch = {"data": PIXELS, "labels": [1, 2]}
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        good = pickle.dumps(batch, protocol)
        image = good.index(PIXELS.tobytes()[:16]) if protocol > 2 else 0
        places = [*range(max(image, 200)), *range(len(good) - 50, len(good))]
        for _ in range(300):
            damaged = bytearray(good)
            for _ in range(chooser.randint(1, 3)):
                damaged[chooser.choice(places)] = chooser.randrange(256)
            cut = chooser.randrange(len(damaged)) if chooser.random() < 0.2 else None
            try:
                read(tmp_path, damaged[:cut])
            except DataError:
                continue


_DEEP = b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s."
# Each tuple contains the previous one twice, so hashing the last takes 2**40 steps.
_WIDE = b"\x80\x02})" + b"q\x00h\x00\x86" * 40 + b"K\x01s."


@pytest.mark.parametrize("content", [_DEEP, _WIDE], ids=["deep", "wide"])
def test_nested_tuples_are_refused_quickly(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "test_batch").write_bytes(content)
    program = f"""
import millstream
try:
    len(millstream.CIFAR10Dataset("test", {str(tmp_path)!r}))
except millstream.DataError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "expected a dict with 'data', found none" in done.stdout
