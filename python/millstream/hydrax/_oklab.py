"""Conversion between sRGB and Oklab, for NumPy and JAX arrays.

The Oklab matrices are Björn Ottosson's. The transfer function of sRGB is that of
IEC 61966-2-1. Arrays have their channels last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_LMS_FROM_RGB = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LAB_FROM_LMS = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
# The published inverses are rounded. Exact ones make a round trip return the colour.
_RGB_FROM_LMS = np.linalg.inv(_LMS_FROM_RGB)
_LMS_FROM_LAB = np.linalg.inv(_LAB_FROM_LMS)


def oklab_from_srgb(colours: Any, xp: Any) -> Any:
    """sRGB in [0, 1] as Oklab; ``xp`` is ``numpy`` or ``jax.numpy``."""
    curved = ((xp.maximum(colours, 0.04045) + 0.055) / 1.055) ** 2.4
    linear = xp.where(colours > 0.04045, curved, colours / 12.92)
    return _times(xp.cbrt(_times(linear, _LMS_FROM_RGB)), _LAB_FROM_LMS)


def srgb_from_oklab(colours: Any, xp: Any) -> Any:
    """Oklab as sRGB. Colours outside the sRGB gamut get values outside [0, 1]."""
    linear = _times(_times(colours, _LMS_FROM_LAB) ** 3, _RGB_FROM_LMS)
    curved = 1.055 * xp.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055
    return xp.where(linear > 0.0031308, curved, linear * 12.92)


def converted(image: Any, channel_axis: int, convert: Callable[[Any, Any], Any]) -> Any:
    """The image with its first three channels converted.

    Changes a NumPy array in place and returns it; returns a new array for a JAX array.
    Further channels stay as they are. The array may have leading dimensions.
    """
    dtype = np.dtype(image.dtype)
    if dtype.kind != "f" and dtype.name != "bfloat16":
        raise TypeError(f"colours must be floating-point numbers; found {dtype}")
    if image.ndim < 3 or image.shape[channel_axis] < 3:
        order = "HWC" if channel_axis == -1 else "CHW"
        raise ValueError(
            f"expected an image of shape {order} with at least 3 channels, found "
            f"{tuple(image.shape)}"
        )
    worked = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
    if isinstance(image, np.ndarray):
        colours = np.moveaxis(image, channel_axis, -1)[..., :3]
        colours[...] = convert(colours.astype(worked), np).astype(dtype)
        return image
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(image, jax.Array):
        raise TypeError(f"expected a NumPy or JAX array, found {type(image).__name__}")
    import jax.numpy as jnp

    channels = jnp.moveaxis(image, channel_axis, -1)
    new = convert(channels[..., :3].astype(worked), jnp).astype(dtype)
    whole = jnp.concatenate([new, channels[..., 3:]], axis=-1)
    return jnp.moveaxis(whole, -1, channel_axis)


def _times(colours: Any, matrix: np.ndarray[Any, Any]) -> Any:
    """The matrix applied to each colour."""
    return colours @ matrix.T.astype(colours.dtype)
