"""Saves the state of a stream: the leaves of a pytree, in binary or as text."""

from __future__ import annotations

import base64
import binascii
import json
import math
import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

if TYPE_CHECKING:
    from millstream._run.stream import Built

MAGIC = b"\x89MSTREAM1"
"""The first bytes of a binary save. The length of the JSON header follows (u64)."""

_MAX_TEXT_BYTES = 1 << 20


class Leaf(NamedTuple):
    """A leaf of a stream's state and its path in the pytree."""

    path: str
    array: np.ndarray


def damaged(why: str) -> ValueError:
    """Returns the error for a saved state that cannot be read."""
    return ValueError(
        f"this is not a saved state, or it is damaged: {why}. Restore an earlier save, "
        "or start again with init_state()."
    )


def leaves(stream: Any) -> list[Leaf]:
    """Returns the leaves of a stream's state as arrays."""
    return [
        Leaf(_name(path), np.asarray(leaf))
        for path, leaf in jax.tree_util.tree_flatten_with_path(stream)[0]
    ]


def texts(found: list[Leaf]) -> list[dict[str, Any]]:
    """Returns leaves as dicts of texts. Raises ``ValueError`` for more than 1 MiB."""
    size = sum(leaf.array.nbytes for leaf in found)
    if size > _MAX_TEXT_BYTES:
        raise ValueError(
            f"the state of the stream has {size} bytes, too many for a dict. Use "
            "save(state, format='bytes')."
        )
    return [
        {**_header(leaf), "data": base64.b64encode(_bytes(leaf)).decode()}
        for leaf in found
    ]


def packed(saved: Mapping[str, Any], found: list[Leaf]) -> bytes:
    """Returns a saved state with its stream as bytes: a JSON header, then the data."""
    header = json.dumps({**saved, "stream": [_header(leaf) for leaf in found]}).encode()
    length = len(header).to_bytes(8, "little")
    return b"".join([MAGIC, length, header, *map(_bytes, found)])


def unpacked(data: bytes) -> dict[str, Any]:
    """Returns the dict of a binary save. ``data`` of each leaf is bytes."""
    start = len(MAGIC) + 8
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    try:
        saved = json.loads(data[start : start + length])
        listed = saved["stream"]
        offset = start + length
        for leaf in listed:
            size = _size(leaf)
            if size > len(data) - offset:
                raise damaged(
                    f"{leaf['path']} needs {size} bytes, but only "
                    f"{len(data) - offset} are left"
                )
            leaf["data"] = data[offset : offset + size]
            offset += size
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise damaged(f"its header is not valid: {error}") from None
    if offset != len(data):
        raise damaged(f"it has {len(data) - offset} bytes after the last leaf")
    return dict(saved)


def restored(built: Built, saved: Any) -> Any:
    """Returns the state of a stream from saved leaves.

    Raises ``ValueError`` if they are damaged, and an error that names a leaf if they
    do not fit the pipeline.
    """
    with_leaves = getattr(built, "with_leaves", None)
    if with_leaves is None:
        raise ValueError(
            "this state has the state of a stream, but this pipeline has no stream"
        )
    found = {}
    try:
        for leaf in saved:
            data = leaf["data"]
            raw = base64.b64decode(data) if isinstance(data, str) else bytes(data)
            if len(raw) != _size(leaf):
                raise damaged(
                    f"expected {_size(leaf)} bytes for {leaf['path']}, found {len(raw)}"
                )
            array = np.frombuffer(raw, _dtype(leaf["dtype"]))
            found[leaf["path"]] = array.reshape(tuple(leaf["shape"])).copy()
    except (KeyError, TypeError, binascii.Error) as error:
        raise damaged(f"the leaves of its stream are {reprlib.repr(error)}") from None
    return with_leaves(found)


def _header(leaf: Leaf) -> dict[str, Any]:
    array = leaf.array
    return {"path": leaf.path, "dtype": array.dtype.name, "shape": list(array.shape)}


def _size(leaf: Mapping[str, Any]) -> int:
    return int(math.prod(map(int, leaf["shape"]))) * _dtype(leaf["dtype"]).itemsize


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(jax.numpy.dtype(name))


def _bytes(leaf: Leaf) -> bytes:
    return np.ascontiguousarray(leaf.array).tobytes()


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
