"""Finds JAX devices by name, such as ``"gpu:1"``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax


def device_named(name: jax.Device | str | None = None) -> jax.Device:
    """Return the local device called ``name``.

    ``"cpu"`` is the first device of that platform, ``"gpu:1"`` the second GPU. A device
    is returned unchanged. None gives JAX's default device.

    Raises ``ValueError`` for an unknown platform or an index out of range.
    """
    import jax

    if isinstance(name, jax.Device):
        return name
    if name is None:
        return _default_device()
    if not isinstance(name, str):
        raise ValueError(
            "a device must be a jax.Device, a string such as 'cpu' or 'gpu:1', or "
            f"None; found {name!r} of type {type(name).__name__}"
        )
    platform, colon, index = name.strip().lower().partition(":")
    if not platform or (colon and not (index.isascii() and index.isdigit())):
        raise ValueError(
            f"device {name!r} must have the form 'platform' or 'platform:index', such "
            "as 'cpu' or 'gpu:1'"
        )
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError as error:
        raise ValueError(
            f"device {name!r}: JAX has no platform {platform!r} here; the platforms "
            f"are {', '.join(_platforms())}"
        ) from error
    position = int(index or 0)
    if position >= len(devices):
        raise ValueError(
            f"device {name!r}: index {position} is out of range, because platform "
            f"{platform!r} has {len(devices)} device(s), numbered from 0"
        )
    return devices[position]


def _default_device() -> jax.Device:
    import jax

    default: object = getattr(jax.config, "jax_default_device", None)
    if isinstance(default, jax.Device):
        return default
    if isinstance(default, str):
        return device_named(default)
    return jax.local_devices()[0]


def _platforms() -> list[str]:
    from jax.extend.backend import backends

    names = {
        device.platform
        for client in backends().values()
        for device in client.local_devices()
    }
    return sorted(repr(name) for name in names)
