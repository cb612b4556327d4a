"""Recognises classes of other libraries without importing these libraries."""

from __future__ import annotations

from typing import Any

_LIBRARIES = {
    "torch": "torch",
    "torchvision": "torchvision",
    "grain": "Grain",
    "tensorflow_datasets": "tfds",
    "array_record": "ArrayRecord",
}


MAP_DATASET = "grain._src.python.dataset.dataset.MapDataset"


def full_name(cls: type) -> str:
    """Returns the module and the name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def is_a(x: Any, *names: str) -> bool:
    """Whether a class of ``x`` or one of its bases has one of these full names."""
    return any(full_name(cls) in names for cls in type(x).__mro__)


def defined_by(x: Any, method: str) -> str:
    """Returns the full name of the class that defines a method of ``x``, or ""."""
    for cls in type(x).__mro__:
        if method in vars(cls):
            return full_name(cls)
    return ""


def kind_of(x: Any) -> str:
    """Returns text such as "torchvision MNIST" or "Words, a torch Dataset"."""
    if is_a(x, MAP_DATASET):  # its subclasses are private
        return "Grain MapDataset"
    own = type(x)
    for cls in own.__mro__:
        library = _LIBRARIES.get(cls.__module__.partition(".")[0])
        if library is not None:
            base = f"{library} {cls.__name__}"
            return base if cls is own else f"{own.__name__}, a {base}"
    return own.__name__
