"""Imports of packages that Millstream does not require."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def optional(module: str, user: str, extra: str) -> Any:
    """Imports ``module`` for ``user``. The error names the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{user} needs the package {package}: pip install 'millstream[{extra}]'"
        ) from error
