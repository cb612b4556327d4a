"""Reads pickled numbers, text and arrays without running what a pickle asks for.

CIFAR's Python archives are pickles. This reads the few instructions that such data
needs and refuses all others: no name in a file is ever looked up or called.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream._errors import DataError

_NAMES = {
    "numpy.core.multiarray _reconstruct": "reconstruct",
    "numpy._core.multiarray _reconstruct": "reconstruct",
    "numpy.core.numeric _frombuffer": "frombuffer",
    "numpy._core.numeric _frombuffer": "frombuffer",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_MARK = object()


@dataclass(frozen=True)
class _Name:
    role: str


@dataclass
class _Dtype:
    dtype: np.dtype[Any]


@dataclass
class _Array:
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    order: str = "C"
    data: bytes | bytearray = b""


def read_pickled_dict(path: Path) -> dict[str, Any]:
    """Return the dictionary that is pickled in a file.

    Keys are text, and values are numbers, text, bytes, NumPy arrays, or lists, tuples
    and dictionaries of them. Text that Python 2 wrote comes as bytes.

    Raises ``DataError`` for anything else, naming the byte where it stands.
    """
    value = _Reader(path).read()
    if not isinstance(value, dict):
        raise DataError(
            f"{path}: expected a pickled dictionary, found {type(value).__name__}"
        )
    return {
        key.decode("latin-1") if isinstance(key, bytes) else str(key): _plain(
            item, path
        )
        for key, item in value.items()
    }


class _Reader:
    """Follows a pickle's instructions with a stack of plain values."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._position = 0

    def read(self) -> Any:
        try:
            return self._value()
        except _Refused as error:
            raise DataError(
                f"{self._path}: offset {self._position}: {error}"
            ) from error
        except (
            AttributeError,
            IndexError,
            KeyError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            raise DataError(
                f"{self._path}: damaged pickle after offset {self._position}: {error}"
            ) from error

    def _value(self) -> Any:
        with warnings.catch_warnings():
            # Text in damaged pickles may hold odd escapes, of which Python warns.
            warnings.simplefilter("ignore", DeprecationWarning)
            for name, argument, position in self._instructions():
                self._position = position
                if name == "STOP":
                    break
                self._follow(name, argument)
        return self._stack.pop()

    def _instructions(self) -> Iterator[tuple[str, Any, int]]:
        import pickletools

        for opcode, argument, position in pickletools.genops(self._path.read_bytes()):
            yield opcode.name, argument, position or 0

    def _follow(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _PUSHED:
            stack.append(argument)
        elif name in _PUSHED_BYTES:
            stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._pop(int(name[-1]))))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self._pop_to_mark()
            stack.append(_COLLECTED[name](items))
        elif name in ("APPEND", "APPENDS"):
            items = self._pop(1) if name == "APPEND" else self._pop_to_mark()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if name == "SETITEM" else self._pop_to_mark()
            self._top(dict).update(_paired(items))
        elif name == "GLOBAL":
            stack.append(_named(argument))
        elif name == "STACK_GLOBAL":
            stack.append(_named(" ".join(self._pop(2))))
        elif name == "REDUCE":
            function, arguments = self._pop(2)
            stack.append(_made(function, arguments))
        elif name == "BUILD":
            (state,) = self._pop(1)
            _build(stack[-1], state)
        elif name not in ("PROTO", "FRAME"):
            raise _Refused(f"the instruction {name} is not needed for data")

    def _top(self, kind: type) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise _Refused(f"expected a {kind.__name__} to add to")
        return self._stack[-1]

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError("the stack is empty")
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _pop_to_mark(self) -> list[Any]:
        items = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]


class _Refused(Exception):
    """The pickle asks for more than data."""


_PUSHED = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
        *("FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
_PUSHED_BYTES = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}


def _paired(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


_COLLECTED: dict[str, Callable[[list[Any]], Any]] = {
    "TUPLE": tuple,
    "LIST": list,
    "DICT": _paired,
}


def _named(name: str) -> _Name:
    if name not in _NAMES:
        raise _Refused(f"asks for {name.replace(' ', '.')}, which is never run")
    return _Name(_NAMES[name])


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _made(function: Any, arguments: Any) -> Any:
    role = function.role if isinstance(function, _Name) else None
    if role == "reconstruct":
        return _Array()
    if role == "encode":
        text, encoding = arguments
        if _text(encoding) != "latin1":
            raise _Refused(f"asks for the encoding {encoding!r}")
        return str(text).encode("latin-1")
    if role == "dtype":
        code = _text(arguments[0])
        if not _DTYPE.fullmatch(code):
            raise _Refused(f"asks for an array of {code!r}")
        return _Dtype(np.dtype(code))
    if role == "frombuffer":
        data, dtype, shape, order = arguments
        return _Array(dtype.dtype, tuple(shape), _text(order), data)
    raise _Refused("calls something that is not a NumPy array")


def _build(value: Any, state: Any) -> None:
    if isinstance(value, _Dtype):
        byte_order = _text(state[1])
        if byte_order in ("<", ">"):
            value.dtype = value.dtype.newbyteorder("<" if byte_order == "<" else ">")
    elif isinstance(value, _Array):
        _, shape, dtype, is_fortran, data = state
        value.dtype = dtype.dtype
        value.shape = tuple(shape)
        value.order = "F" if is_fortran else "C"
        value.data = data.encode("latin-1") if isinstance(data, str) else data
    else:
        raise _Refused(f"sets the state of a {type(value).__name__}")


def _plain(value: Any, path: Path) -> Any:
    if isinstance(value, _Array):
        return _filled(value, path)
    if isinstance(value, (_Name, _Dtype)):
        raise DataError(f"{path}: expected data, found the name of a type")
    return value


def _filled(array: _Array, path: Path) -> NDArray[Any]:
    if (
        array.dtype is None
        or not isinstance(array.data, (bytes, bytearray))
        or array.order not in ("C", "F")
        or not all(isinstance(size, int) and size >= 0 for size in array.shape)
    ):
        raise DataError(f"{path}: expected an array, found one without its parts")
    expected = math.prod(array.shape) * array.dtype.itemsize
    if len(array.data) != expected:
        raise DataError(
            f"{path}: an array {array.dtype}{list(array.shape)} needs {expected} "
            f"bytes, found {len(array.data)}"
        )
    flat = np.frombuffer(array.data, array.dtype)
    return flat.reshape(array.shape, order="F" if array.order == "F" else "C")
