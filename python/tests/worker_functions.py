"""User functions for tests, which worker processes import from this module."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np


def plain(i: int) -> dict[str, Any]:
    """Returns a sample that identifies its index, with fields of several sizes."""
    return {
        "x": np.array([1, 7, -3], np.int32) * (i + 1),
        "y": i % 251 + 1,
        "z": np.full((2, 2), i / 3, np.float32),
    }


class Pair(NamedTuple):
    left: Any
    right: Any


def as_pair(i: int) -> Pair:
    return Pair(np.float32(i + 1), np.full(2, i, np.uint8))


def as_tuple(i: int) -> tuple[Any, ...]:
    return np.arange(i, i + 3, dtype=np.int16), np.uint8(i), [np.float32(i), None]


def as_nested(i: int) -> dict[str, Any]:
    return {
        "b": {"deep": [np.int32(i), np.full(3, i, np.int8)], "flat": np.uint8(i)},
        "a": Pair(np.float32(-i), {"last": np.ones((1, 2), np.float32) * i}),
    }


def as_scalar(i: int) -> Any:
    return np.int32(i * i)


def as_int(i: int) -> Any:
    return i - 5


def all_dtypes(i: int) -> dict[str, Any]:
    return {
        "int": i - 3,
        "float": i / 7,
        "bool": i % 2 == 0,
        "int64": np.arange(i, i + 3),
        "uint64": np.uint64(i),
        "float64": np.full(2, i / 3),
        "float16": np.float16(i / 2),
        "bfloat16": np.full(3, i, ml_dtypes.bfloat16) / 4,
        "int8": np.int8(-i),
        "empty": np.zeros((0, 4), np.float32),
        "complex": np.complex64(i + 1j),
    }


def every_tree(i: int) -> dict[str, Any]:
    kinds = (as_pair, as_tuple, as_nested, as_scalar, as_int, all_dtypes)
    return {fn.__name__: fn(i) for fn in kinds}


def too_wide(i: int) -> dict[str, Any]:
    return {"n": np.array([i, 2**40 if i == 5 else 0])}


def wrong_shape(i: int) -> dict[str, Any]:
    return {"x": np.zeros(4 if i == 3 else 3, np.float32)}


def wrong_dtype(i: int) -> dict[str, Any]:
    return {"x": np.zeros(3, np.float32 if i == 3 else np.int32)}


def wrong_keys(i: int) -> dict[str, Any]:
    return {"x": i, "w": i} if i == 3 else {"x": i, "y": i}


def wrong_kind(i: int) -> Any:
    return [1, 2] if i == 3 else {"x": i, "y": i}


def wrong_count(i: int) -> Any:
    return (i, i, i) if i == 3 else (i, i)


def wrong_string(i: int) -> dict[str, Any]:
    return {"x": "three" if i == 3 else i}


def with_host_fields(i: int) -> dict[str, Any]:
    """Returns a path, a string and an object as host fields, and two arrays."""
    return {
        "x": np.full(2, i, np.int32),
        "path": Path(f"/data/{i}.png"),
        "words": f"sample {i}",
        "y": np.uint8(i),
        "object": {"id": i, "tags": ["a", None]},
    }


def loses_its_path(i: int) -> dict[str, Any]:
    return {"x": i} if i == 3 else {"x": i, "path": f"{i}.png"}


def with_one_lock(i: int) -> dict[str, Any]:
    return {"x": i + 1, "lock": threading.Lock() if i == 6 else f"{i}"}


def with_a_lock(i: int) -> dict[str, Any]:
    return {"x": i, "lock": threading.Lock()}


class Data:
    """A map-style data set."""

    def __init__(self, n: int = 23) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> dict[str, Any]:
        if not 0 <= i < self.n:
            raise IndexError(i)
        return plain(i)


class DataInLots(Data):
    """The same with ``__getitems__``."""

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        assert isinstance(indices, list)
        return [{**plain(i), "lot": len(indices) > 0} for i in indices]

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {**plain(i), "lot": False}


class LotsThatRaise(DataInLots):
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [raising(i) for i in indices]

    def __getitem__(self, i: int) -> dict[str, Any]:
        return plain(i)


class LotsThatWait(LotsThatRaise):
    """Each sample takes 0.2 seconds. Samples from 8 on take far too long."""

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        time.sleep(0.2 * len(indices) if max(indices) < 8 else 20)
        return [plain(i) for i in indices]


class TooFew(DataInLots):
    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return super().__getitems__(indices)[1:]


# Maps.


def doubled(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] * 2, "y": sample["y"]}


def in_place(sample: dict[str, Any]) -> dict[str, Any]:
    sample["x"] += 1
    sample["y"][...] += 1
    return sample


def reshaped(sample: dict[str, Any]) -> Any:
    """Returns another structure, other shapes and dtypes."""
    x = sample["x"].astype(np.float32)
    return Pair(np.outer(x, x) / 2, {"sum": np.int32(x.sum()), "flag": bool(x[0] > 9)})


def seeded(sample: dict[str, Any], seed: int) -> dict[str, Any]:
    assert 0 <= seed < 2**64
    words = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    noise = np.random.default_rng(seed).random(2, np.float32)
    return {**sample, "seed": words, "noise": noise}


def keyed(sample: dict[str, Any], key: np.ndarray) -> dict[str, Any]:
    assert key.shape == (2,)
    assert key.dtype == np.uint32
    return {**sample, "seed": key}


def filled(data: str, arrays: Mapping[str, np.ndarray], seed: int | None) -> None:
    assert seed is not None
    arrays["length"][...] = len(data)
    arrays["letters"][: len(data)] = np.frombuffer(data.encode(), np.uint8)
    arrays["letters"][len(data) :] = 0
    arrays["seed"][:] = seed >> 32, seed & 0xFFFFFFFF


def fill_one(data: int, arrays: Mapping[str, np.ndarray], seed: int | None) -> None:
    """Writes one of several elements."""
    arrays["x"][data % 8] = data + 1


def fill_and_return(data: int, arrays: Mapping[str, np.ndarray], seed: Any) -> Any:
    """Returns an object that cannot be pickled."""
    arrays["x"][:] = data
    return lambda: data


def fill_item(data: str, arrays: Mapping[str, np.ndarray], seed: int | None) -> str:
    number = int(data.split()[1])
    arrays["image"][:] = number % 256
    arrays["label"][...] = number
    arrays["seed"][...] = seed or 0
    return data


def fill_or_raise(data: str, arrays: Mapping[str, np.ndarray], seed: Any) -> str:
    if data == "item 13":
        raise OwnError(data, 13)
    return fill_item(data, arrays, seed)


def fill_or_die(data: str, arrays: Mapping[str, np.ndarray], seed: Any) -> str:
    if data == "item 13":
        os._exit(4)
    return fill_item(data, arrays, seed)


def fill_or_sleep(data: str, arrays: Mapping[str, np.ndarray], seed: Any) -> str:
    if data == "item 13":
        time.sleep(5)
    return fill_item(data, arrays, seed)


def fill_at_the_gate(data: str, arrays: Mapping[str, np.ndarray], seed: Any) -> None:
    while not Path(data).exists():
        time.sleep(0.01)
    arrays["label"][...] = 1


started = 0


def start_up() -> None:
    global started
    started += 1


def fill_started(data: str, arrays: Mapping[str, np.ndarray], seed: Any) -> None:
    arrays["label"][...] = started


# Errors.


class OwnError(ValueError):
    """A user-defined exception with an attribute."""

    def __init__(self, message: str, value: int) -> None:
        super().__init__(message, value)
        self.value = value

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.value})"


class Unpicklable(RuntimeError):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)  # unpickling calls it with one argument

    def __reduce__(self) -> Any:
        raise TypeError("this exception stays where it is")


def raising(i: int) -> dict[str, Any]:
    if i == 6:
        raise OwnError("sample six is bad", 60)
    return plain(i)


def raising_data_error(i: int) -> dict[str, Any]:
    if i == 6:
        from millstream import DataError

        raise DataError(
            "six.txt: line 3: expected a number, found 'six'",
            path="six.txt",
            line=3,
            field="y",
            expected="a number",
            found="'six'",
        )
    return plain(i)


def often_raising(i: int) -> dict[str, Any]:
    if i in (13, 14, 28):
        raise OwnError("another bad sample", i)
    return raising(i)


def raising_with_host_fields(i: int) -> dict[str, Any]:
    if i == 6:
        raise OwnError("no file", i)
    return {"x": i, "path": f"{i}.png"}


def raising_unpicklable(i: int) -> dict[str, Any]:
    if i == 6:
        raise Unpicklable("can", "not")
    return plain(i)


class Unreadable:
    """Raises OSError at one sample. With a file ``once``, only the first time."""

    def __init__(self, code: int, once: Path | None = None) -> None:
        self.code = code
        self._dying = Dying("not at all", once)

    def __call__(self, i: int) -> dict[str, Any]:
        if i == 6 and self._dying._first():
            raise OSError(self.code, "cannot be read")
        return plain(i)


def exiting(i: int) -> dict[str, Any]:
    if i == 6:
        sys.exit("the function left")
    return plain(i)


def interrupting(i: int) -> dict[str, Any]:
    if i == 6:
        raise KeyboardInterrupt("of the function's own")
    return plain(i)


def failing_map(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["y"] == 7:
        raise OwnError("the map fails", 7)
    return sample


class Dying:
    """Ends its process at one sample. With a file ``once``, only the first time."""

    def __init__(self, how: str, once: Path | None = None, at: int = 6) -> None:
        self.how, self.once, self.at = how, once, at

    def __call__(self, i: int) -> dict[str, Any]:
        if i == self.at and self._first():
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "segv":
                signal.signal(signal.SIGSEGV, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGSEGV)
            elif self.how == "exit":
                os._exit(3)
            time.sleep(600)
        return plain(i)

    def _first(self) -> bool:
        if self.once is None:
            return True
        try:
            self.once.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class DeadOnArrival:
    """An object whose unpickling in a worker ends the process or raises."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, i: int) -> dict[str, Any]:
        return plain(i)

    def __reduce__(self) -> Any:
        return _arrive, (self.how,)


def _arrive(how: str) -> DeadOnArrival:
    if "MILLSTREAM_WORKER" in os.environ:
        if how == "exit":
            os._exit(9)
        raise ImportError("this worker lacks what it needs")
    return DeadOnArrival(how)


class Stalling:
    """Sleeps at one sample. With a file ``once``, only the first time."""

    def __init__(self, at: int, seconds: float = 600, once: Path | None = None) -> None:
        self.at, self.seconds = at, seconds
        self._dying = Dying("stall", once, at)

    def __call__(self, i: int) -> dict[str, Any]:
        if i == self.at and self._dying._first():
            self.dreams_of_sheep()
        return plain(i)

    def dreams_of_sheep(self) -> None:
        time.sleep(self.seconds)


def unhurried(i: int) -> dict[str, Any]:
    time.sleep(0.2)
    return plain(i)


class Gated:
    """Sleeps at one sample until a file exists."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, i: int) -> dict[str, Any]:
        while i == 6 and not self.file.exists():
            time.sleep(0.01)
        return plain(i)


def about_the_worker(i: int) -> dict[str, Any]:
    return {
        "i": i,
        "jax": "jax" in sys.modules,
        "main": getattr(sys.modules["__main__"], "__file__", ""),
        "platforms": os.environ.get("JAX_PLATFORMS", ""),
        "argv": list(sys.argv),
        "pid": os.getpid(),
        "nice": os.nice(0),
    }


def wide(i: int) -> np.ndarray:
    """Returns a row of 4 kB."""
    return np.full(1024, i, np.int32)


class Keeping:
    """Keeps its arrays."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, Any]] = []

    def changed(self) -> bool:
        return any((array != value).any() for value, array in self.kept)


class KeepingMap(Keeping):
    """Returns -1 if an array that it keeps has changed."""

    def __call__(self, sample: Any) -> Any:
        self.kept.append((float(sample["x"][0]), sample["x"]))
        return {"x": np.full_like(sample["x"], -1 if self.changed() else 1)}


class KeepingFill(Keeping):
    """Writes -1 if an array that it keeps has changed."""

    def __call__(self, item: int, arrays: Any, seed: Any) -> None:
        arrays["x"][:] = -1 if self.changed() else item
        self.kept.append((item, arrays["x"]))


def stop() -> None:
    raise StopIteration("of the function")


def stopping(i: int) -> dict[str, Any]:
    if i == 10:
        stop()
    return {"y": i}


class Lots:
    """A data set with ``__getitems__``."""

    def __init__(self, length: int, one: Any) -> None:
        self.length = length
        self.one = one

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.one(index)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.one(index) for index in indices]


class OfSample:
    """A map that returns ``one(y)``."""

    def __init__(self, one: Any) -> None:
        self.one = one

    def __call__(self, sample: Any) -> Any:
        return self.one(int(sample["y"]))


class OfItem:
    """A fill function that writes ``one(item)``."""

    def __init__(self, one: Any) -> None:
        self.one = one

    def __call__(self, item: int, arrays: Any, seed: Any) -> None:
        arrays["y"][...] = self.one(item)["y"]


def leave(*_: Any) -> None:
    sys.exit(0)


def leaving(i: int) -> dict[str, Any]:
    if i == 10:
        leave()
    return {"y": i}


def interrupted(i: int) -> dict[str, Any]:
    if i == 10:
        raise KeyboardInterrupt
    return {"y": i}


def closing(i: int) -> dict[str, Any]:
    if i == 10:
        raise GeneratorExit
    return {"y": i}


def signalled(i: int) -> dict[str, Any]:
    """Receives SIGINT while it makes sample 10."""
    if i == 10:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    return {"y": i}


class SignalledOnce:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, i: int) -> dict[str, Any]:
        if i == 10 and not self.path.exists():
            self.path.touch()
            return signalled(i)
        return {"y": i}


class Surrounded:
    """Returns whether environment variables have the values of the parent."""

    def __init__(self, known: dict[bytes, bytes | None]) -> None:
        self.known = known

    def __call__(self, i: int) -> dict[str, Any]:
        same = all(os.environb.get(name) == known for name, known in self.known.items())
        return {"same": int(same)}


def unreadable(i: int) -> dict[str, Any]:
    """Raises an error with a file name that is not UTF-8, as from os.listdir."""
    raise ValueError("cannot read sch\udcf6n, schön")


# Text samples and a tokenizer, for stages that take host fields.

_STORIES = (
    "the reader unread the reading list",
    "walking is unwalkable",
    "",
    "a list reads a walker zzz",
)
PIECES = (
    *("[pad]", "[unknown]", "the", "read", "##er", "un", "##read", "##ing", "list"),
    *("walk", "##walk", "##able", "is", "a", "##s"),
)
LENGTH = 12


def story(i: int) -> dict[str, Any]:
    """Returns a sample without arrays."""
    return {"text": f"{_STORIES[i % len(_STORIES)]} {'a ' * (i % 3)}", "id": f"s{i}"}


def pieces_of(word: str) -> list[int]:
    """Splits a word into the longest pieces of the vocabulary, from the left."""
    found: list[int] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((e for e in ends if prefix + word[start:e] in PIECES), None)
        if end is None:
            return [PIECES.index("[unknown]")]
        found.append(PIECES.index(prefix + word[start:end]))
        start = end
    return found


def tokens_of(text: str) -> np.ndarray:
    tokens = [piece for word in text.split() for piece in pieces_of(word)][:LENGTH]
    return np.array(tokens + [0] * (LENGTH - len(tokens)), np.int32)


def tokenized(sample: dict[str, Any]) -> dict[str, Any]:
    assert sorted(sample) == ["id", "text"]
    return {"tokens": tokens_of(sample["text"])}


def split_words(sample: dict[str, Any]) -> dict[str, Any]:
    """Returns host fields only, and one that the input does not have."""
    return {**sample, "words": ["", *sample["text"].split()]}


def tokenized_words(sample: dict[str, Any]) -> dict[str, Any]:
    text = " ".join(sample["words"])
    return {"id": sample["id"], "tokens": tokens_of(text), "count": len(text.split())}


def upper_case(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "words": sample["words"].upper()}


def bad_story(i: int) -> dict[str, Any]:
    """Raises an error at samples 0, 1 and 6."""
    if i in (0, 1, 6):
        raise OwnError("no story", i)
    return story(i)


def picky_tokenizer(sample: dict[str, Any]) -> dict[str, Any]:
    """Raises an error at samples 0 and 5 of ``story``."""
    if sample["id"] in ("s0", "s5"):
        raise OwnError("a story without tokens", int(sample["id"][1:]))
    return {**sample, "tokens": tokens_of(sample["text"])}


class DyingTokenizer:
    """Ends its process at sample 6, the first time only."""

    def __init__(self, once: Path) -> None:
        self._dying = Dying("exit", once)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        self._dying(int(sample["id"][1:]))
        return tokenized(sample)


class InProcess:
    """Unpickling it raises an error."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise OwnError("cannot be unpickled", 3)


def with_one_refusal(i: int) -> dict[str, Any]:
    return {"x": i, "object": InProcess() if i == 3 else {}}


def only_numbers(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] + 1}


def labelled(sample: dict[str, Any]) -> dict[str, Any]:
    """Adds a host field to a sample without one."""
    return {**sample, "name": f"row {int(sample['x'][0])}"}
