"""Which parameters of a function get the value, the mask and the key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from millstream._core.description import Tree

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class MappedFunction:
    """A function of a ``MapTransform``, and how to call it.

    A parameter ``key`` without a default gets the key. The other parameters without a
    default get the value and the mask, in this order. A parameter ``mask`` gets the
    mask, wherever it stands. The mask may be left out only if there is a key. A
    function without a key and ``mask`` that takes two positional arguments gets the
    value and the mask, also if these parameters have defaults.

    Raises ``TypeError``, whose message names ``stage``, for other parameters.
    """

    def __init__(self, fn: Callable[..., Tree], stage: str) -> None:
        self._fn = fn
        self._signature: inspect.Signature | None = None
        self._roles: dict[str, str] = {}
        try:
            signature = inspect.signature(fn)
        except (TypeError, ValueError):  # a built-in function without a signature
            self.keyed = False
            return
        required = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.default is parameter.empty and parameter.kind not in _VARIADIC
        ]
        self.keyed = "key" in required
        """Whether the function takes a key."""
        if not self.keyed and "mask" not in required and _takes_two(signature):
            return
        others = [name for name in required if name not in ("key", "mask")]
        counts = (1,) if "mask" in required else (1, 2) if self.keyed else (2,)
        if len(others) not in counts:
            name = getattr(fn, "__name__", type(fn).__name__)
            raise TypeError(
                f"{stage}: expected fn(value, mask), fn(value, mask, key) or "
                f"fn(value, key), found {name}{signature}. Add the missing parameters, "
                "and give all others a default."
            )
        roles = dict(zip(others, ("value", "mask"), strict=False))
        named = {name: name for name in ("mask", "key") if name in required}
        self._signature, self._roles = signature, roles | named

    def __call__(self, value: Tree, mask: Any, key: Any = None) -> Tree:
        if self._signature is None:
            return self._fn(value, mask)
        parts = {"value": value, "mask": mask, "key": key}
        arguments = {name: parts[role] for name, role in self._roles.items()}
        bound = inspect.BoundArguments(self._signature, arguments)
        return self._fn(*bound.args, **bound.kwargs)


def _takes_two(signature: inspect.Signature) -> bool:
    """Whether a function can be called with two positional arguments."""
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True
