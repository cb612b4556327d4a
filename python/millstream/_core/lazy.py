"""Lazy imports, so that worker processes can import millstream without jax."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Attributes = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazy() -> Attributes:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of the calling package.

    The package imports its public names under ``if TYPE_CHECKING``, for type checkers.
    Python compiles these imports without running them; this function reads the names
    and their modules from the compiled code. A name stays in the package once imported.
    Type checkers must not see the ``__getattr__``, because they would accept any name.
    """
    package = sys._getframe(1)
    imported = package.f_globals
    module_of: dict[str, str] = {}
    module = ""
    for instruction in dis.get_instructions(package.f_code):
        if instruction.opname == "IMPORT_NAME":
            module = instruction.argval
        elif instruction.opname == "IMPORT_FROM" and instruction.argval not in imported:
            module_of[instruction.argval] = module

    return _attributes(imported, module_of)


def lazy_names(names: Mapping[str, str]) -> Attributes:
    """Return the same as ``lazy``, for the public names of each module.

    The modules are relative to the calling package. Their names are separated by
    spaces. For type checkers, the package imports ``*`` from each of them.
    """
    imported = sys._getframe(1).f_globals
    package = imported["__name__"]
    module_of = {
        name: f"{package}.{module}"
        for module, listed in names.items()
        for name in listed.split()
    }
    return _attributes(imported, module_of)


def _attributes(imported: dict[str, Any], module_of: dict[str, str]) -> Attributes:
    def __getattr__(name: str) -> Any:
        if name not in module_of:
            who = imported["__name__"]
            raise AttributeError(f"module {who!r} has no attribute {name!r}")
        imported[name] = getattr(import_module(module_of[name]), name)
        return imported[name]

    return __getattr__, lambda: sorted(imported["__all__"]), sorted(module_of)
