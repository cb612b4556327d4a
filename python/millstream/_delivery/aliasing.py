"""JAX arrays that alias host memory, without a copy."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np


class FastPut(NamedTuple):
    """Places arrays like an earlier array of the same shape and dtype.

    ``jax.device_put`` makes about a hundred calls in Python, which take as long as
    copying a megabyte. ``put`` directly calls the private jaxlib function in which
    ``device_put`` ends. It is only used on the CPU. The fields are its arguments.
    """

    aval: Any
    sharding: Any
    devices: list[jax.Device]
    committed: bool

    def put(self, shards: list[np.ndarray]) -> jax.Array:
        """Returns an array of one shard per device. It aliases shards if possible."""
        array: jax.Array = _put(
            self.aval, self.sharding, shards, self.devices, self.committed
        )
        return array


def fast_put_of(placed: jax.Array, shards: list[np.ndarray]) -> FastPut | None:
    """Returns a ``FastPut`` for arrays like ``placed``, or None if that is impossible.

    ``placed`` is the result of ``jax.device_put`` for ``shards``.
    """
    if _put is None or not _is_simple(placed):
        return None
    devices = [shard.device for shard in placed.addressable_shards]
    fast_put = FastPut(placed.aval, placed.sharding, devices, placed.committed)
    try:
        fast_put.put(shards)
    except Exception:
        return None  # another version of jaxlib, or a setting that forbids it
    return fast_put


def is_guarded() -> bool:
    """Whether JAX's transfer guard checks transfers from the host to devices."""
    guard = jax.config.jax_transfer_guard_host_to_device  # type: ignore[attr-defined]
    return guard not in (None, "allow")


class Aliasing:
    """Places arrays on one device. Each call must pass the same shapes and dtypes."""

    def __init__(self) -> None:
        self._known: tuple[Any, Any, list[FastPut]] | None = None

    def __call__(
        self, arrays: list[np.ndarray], device: jax.Device | None = None
    ) -> list[jax.Array]:
        """Returns the arrays as JAX arrays that alias them if possible."""
        default = jax.config.jax_default_device  # type: ignore[attr-defined]
        known_default, known_device, fast_puts = self._known or (None, None, None)
        same = default is known_default and device is known_device
        if fast_puts is not None and same and not is_guarded():
            pairs = zip(fast_puts, arrays, strict=True)
            return [fast_put.put([array]) for fast_put, array in pairs]
        placed: list[jax.Array] = jax.device_put(arrays, device)
        found = [
            fast_put_of(x, [array]) for x, array in zip(placed, arrays, strict=True)
        ]
        known = [fast_put for fast_put in found if fast_put is not None]
        self._known = (default, device, known) if len(known) == len(found) else None
        return placed


def _is_simple(placed: jax.Array) -> bool:
    """Whether ``FastPut.put`` does the same as ``jax.device_put`` for such arrays.

    It does not for tracers, nor for 64-bit types, whose result depends on x64.
    """
    if isinstance(placed, jax.core.Tracer) or placed.dtype.itemsize >= 8:
        return False
    devices: Any = placed.sharding.device_set
    kind = placed.sharding.memory_kind
    return all(
        device.platform == "cpu" and kind in (None, device.default_memory().kind)
        for device in devices
    )


def _batched_device_put() -> Any:
    """Returns jaxlib's ``batched_device_put``, or None if it does not exist.

    Its arguments are (aval, sharding, arrays, devices, committed).
    """
    try:
        from jax._src.lib import xla_client  # type: ignore[attr-defined]
    except ImportError:
        return None
    return getattr(xla_client, "batched_device_put", None)


_put = _batched_device_put()
