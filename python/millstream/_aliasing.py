"""JAX arrays over the host's memory, with no copy and little ado."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np


class _Like(NamedTuple):
    """What JAX calls the arrays of one field."""

    aval: Any
    sharding: Any
    devices: list[jax.Device]


class Aliasing:
    """Places arrays that have the same shapes and dtypes each time.

    ``jax.device_put`` is some hundred calls in Python, which take as long as copying a
    megabyte. What it ends in has no public name; it is asked directly, on the CPU and
    as ``device_put`` was before, wherever nothing bids JAX to do otherwise.
    """

    def __init__(self, device: jax.Device | None) -> None:
        self._device = device
        self._known: tuple[Any, list[_Like]] | None = None  # the default device first

    def __call__(self, arrays: list[np.ndarray]) -> list[jax.Array]:
        """The arrays as JAX's, where they lie if that is possible."""
        config: Any = jax.config
        known = self._known
        if (
            known is None
            or config.jax_default_device is not known[0]
            or config.jax_transfer_guard_host_to_device not in (None, "allow")
        ):
            return self._slowly(arrays)
        return self._directly(arrays, known[1])

    def _directly(
        self, arrays: list[np.ndarray], likes: list[_Like]
    ) -> list[jax.Array]:
        committed = self._device is not None
        return [
            _put(like.aval, like.sharding, [array], like.devices, committed)
            for like, array in zip(likes, arrays, strict=True)
        ]

    def _slowly(self, arrays: list[np.ndarray]) -> list[jax.Array]:
        placed: list[jax.Array] = jax.device_put(arrays, self._device)
        if _put is not None and all(map(_is_simple, placed)):
            likes = [_Like(x.aval, x.sharding, [*x.devices()]) for x in placed]
            try:
                self._directly(arrays, likes)
            except Exception:
                return placed  # another JAX, or one that is told not to
            config: Any = jax.config
            self._known = (config.jax_default_device, likes)
        return placed


def _is_simple(placed: jax.Array) -> bool:
    """Whether the next array of this kind is the same by any path.

    Not inside of jit, where it is traced, nor for 64 bits, which come as JAX is told.
    """
    if isinstance(placed, jax.core.Tracer) or placed.dtype.itemsize >= 8:
        return False
    return all(device.platform == "cpu" for device in placed.devices())


def _batched_device_put() -> Any:
    """jaxlib's ``put(aval, sharding, arrays, devices, committed)``; None without it."""
    try:
        from jax._src.lib import xla_client  # type: ignore[attr-defined]
    except ImportError:
        return None
    return getattr(xla_client, "batched_device_put", None)


_put = _batched_device_put()
