"""Parses schemas of packed records, from the command line or from JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from millstream._core.errors import data_error

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
MOST_DIGITS = 18  # a number with more digits may not fit into 64 bits

_FIELD = re.compile(r"\s*([^:,()]+?)\s*:\s*(\w+)\s*(?:\(([\d\s,]*)\))?\s*(?:,|$)")
_TYPE = re.compile(r"\s*(\w+)\s*(?:\(([\d\s,]*)\))?\s*")


class UsageError(ValueError):
    """The command line has wrong arguments."""


class Field(NamedTuple):
    """The name, dtype and shape of a field of a sample."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}:{type_text(self)}"


def type_text(field: Field) -> str:
    """Returns the type of a field as in a schema, such as ``"uint8(28,28,1)"``."""
    shape = ",".join(str(extent) for extent in field.shape)
    return f"{field.dtype}({shape})" if field.shape else field.dtype


def parse_schema(text: str) -> tuple[Field, ...]:
    """Returns the fields of a text such as ``"image:uint8(28,28,1),label:int32"``.

    Raises ``ValueError`` with the position of the first error.
    """
    fields: list[Field] = []
    at = 0
    while at < len(text):
        found = _FIELD.match(text, at)
        if not found:
            raise ValueError(
                f"schema: expected NAME:DTYPE or NAME:DTYPE(EXTENT,...) at character "
                f"{at + 1}, found {text[at:]!r}"
            )
        fields.append(_field(found[1], found[2], found[3]))
        at = found.end()
    return _checked(fields)


def read_schema(path: Path) -> tuple[Field, ...]:
    """Returns the fields in a JSON file ``{"image": "uint8(28,28,1)", ...}``.

    Raises ``DataError`` for any other content.
    """
    expected = 'a dict such as {"image": "uint8(28,28,1)"}'
    stored = read_json(path, expected)
    if not isinstance(stored, dict):
        kind = type(stored).__name__
        raise data_error(path=path, expected=expected, found=f"a {kind}")
    try:
        return _checked([_typed(name, text) for name, text in stored.items()])
    except ValueError as error:
        raise data_error(str(error), path=path) from error


def read_json(path: Path, expected: str) -> object:
    """Returns the content of a JSON file.

    Raises ``DataError`` with the text ``expected`` if the file is not valid JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        found = f"invalid JSON: {error}"
        raise data_error(path=path, expected=expected, found=found) from error


def is_utf8(name: str) -> bool:
    """Whether a name can be encoded in UTF-8, as the engine requires."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _typed(name: str, text: object) -> Field:
    found = _TYPE.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise ValueError(
            f"schema: expected a type such as 'uint8(28,28,1)' for {name!r}, "
            f"found {text!r}"
        )
    return _field(name, found[1], found[2])


def _field(name: str, dtype: str, extents: str | None) -> Field:
    if dtype not in DTYPES:
        raise ValueError(
            f"schema: {name!r}: expected one of the dtypes "
            f"{', '.join(DTYPES)}, found {dtype!r}"
        )
    words = [word.strip() for word in (extents or "").split(",") if word.strip()]
    for word in words:
        if len(word) > MOST_DIGITS:
            raise ValueError(
                f"schema: {name!r}: expected extents of up to {MOST_DIGITS} digits, "
                f"found {word:.60}"
            )
    return Field(name, dtype, tuple(int(word) for word in words))


def _checked(fields: list[Field]) -> tuple[Field, ...]:
    if not fields:
        raise ValueError("schema: expected at least one field, found none")
    names = [field.name for field in fields]
    for name in names:
        if not is_utf8(name):
            raise ValueError(f"schema: expected names in UTF-8, found {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"schema: expected different names, found {name!r} twice")
    return tuple(fields)
