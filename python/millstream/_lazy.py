"""Packages that import their names when first asked for: a worker needs no jax."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package, which has an ``__all__``.

    ``homes`` maps the package's modules to the names that are theirs. What is found
    stays in the package. Checkers must not see the ``__getattr__``: they would believe
    that every name exists.
    """
    module = sys.modules[package]
    home_of = {name: home for home, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(module, name, value)
        return value

    def __dir__() -> list[str]:
        return sorted(module.__all__)

    return __getattr__, __dir__
