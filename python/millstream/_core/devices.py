"""Finds JAX devices by the names that people write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax


def device_named(name: jax.Device | str | None = None) -> jax.Device:
    """Return the device of this process that ``name`` means.

    ``"cpu"`` is the first device of that platform and ``"gpu:1"`` the second; a device
    is returned as it is, and ``None`` gives JAX's default device.

    Raises ``ValueError`` for a platform or an index that does not exist, naming those
    that do.
    """
    import jax

    if isinstance(name, jax.Device):
        return name
    if name is None:
        return _default_device()
    if not isinstance(name, str):
        raise ValueError(
            "a device is a jax.Device, a string such as 'cpu' or 'gpu:1', or None; "
            f"found {name!r} of type {type(name).__name__}"
        )
    platform, colon, index = name.strip().lower().partition(":")
    if not platform or (colon and not (index.isascii() and index.isdigit())):
        raise ValueError(
            f"device {name!r} is not of the form 'platform' or 'platform:index', "
            "such as 'cpu' or 'gpu:1'"
        )
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError as error:
        raise ValueError(
            f"device {name!r}: no platform {platform!r} here; "
            f"the platforms are {', '.join(_platforms())}"
        ) from error
    position = int(index or 0)
    if position >= len(devices):
        raise ValueError(
            f"device {name!r}: platform {platform!r} has {len(devices)} device(s), "
            f"numbered from 0, so there is no {position}"
        )
    return devices[position]


def _default_device() -> jax.Device:
    import jax

    chosen: object = getattr(jax.config, "jax_default_device", None)
    if isinstance(chosen, jax.Device):
        return chosen
    if isinstance(chosen, str):
        return device_named(chosen)
    return jax.local_devices()[0]


def _platforms() -> list[str]:
    from jax.extend.backend import backends

    names = {
        device.platform
        for client in backends().values()
        for device in client.local_devices()
    }
    return sorted(repr(name) for name in names)
