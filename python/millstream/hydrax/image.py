"""Images in sRGB for loader functions; needs ``millstream[images]`` (Pillow)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from typing import Any, ClassVar, TypeVar

import numpy as np

try:
    from PIL import Image, ImageCms
except ImportError as error:
    raise ImportError(
        "millstream.hydrax.image needs Pillow: pip install 'millstream[images]'"
    ) from error

__all__ = [
    "CONVERT_PERCEPTUAL",
    "CONVERT_RELATIVE",
    "Coefs",
    "convert_balanced_to_frac_chw",
    "convert_balanced_to_frac_hwc",
    "convert_frac_to_balanced_chw",
    "convert_frac_to_balanced_hwc",
    "convert_oklab_to_srgb_frac_chw",
    "convert_oklab_to_srgb_frac_hwc",
    "convert_srgb_to_oklab_frac_chw",
    "convert_srgb_to_oklab_frac_hwc",
    "from_srgb_hwc",
    "open_srgb",
    "set_max_image_pixels",
    "write_chw",
    "write_hwc",
]

A = TypeVar("A")

_HIGH_RESOLUTION = 0x0400
_BLACK_POINT = 0x2000

CONVERT_PERCEPTUAL = (ImageCms.Intent.PERCEPTUAL, _HIGH_RESOLUTION)
"""Perceptual intent, with high-resolution lookup tables."""

CONVERT_RELATIVE = (
    ImageCms.Intent.RELATIVE_COLORIMETRIC,
    _HIGH_RESOLUTION | _BLACK_POINT,
)
"""Relative colorimetric intent with black point compensation, and the same tables."""


class Coefs:
    """Coefficients of the map ``pixel / divisor - subtrahend``.

    ``coefs[dtype]`` is an array of two rows, divisors and subtrahends. A row has one
    value per channel, or one value for all channels.
    """

    __slots__ = ("_by_dtype", "_values")

    FRACTIONAL: ClassVar[Coefs]
    """From [0, 255] to [0, 1]."""
    IMAGENET_SRGB: ClassVar[Coefs]
    """From [0, 255] to values standardised with ImageNet's mean and deviation."""
    IMAGENET_SRGB_ALPHA: ClassVar[Coefs]
    """The same for RGB, and [0, 1] for the alpha channel."""

    def __init__(self, coefs: Any) -> None:
        self._values = np.array(coefs, np.float64)
        if self._values.ndim != 2 or len(self._values) != 2:
            raise ValueError(
                "coefficients must be two rows, divisors and subtrahends; found an "
                f"array of shape {self._values.shape}"
            )
        self._by_dtype: dict[np.dtype[Any], np.ndarray[Any, Any]] = {}

    def __getitem__(self, dtype: Any) -> np.ndarray[Any, Any]:
        dtype = np.dtype(dtype)
        if dtype not in self._by_dtype:
            values = self._values.astype(dtype)
            values.setflags(write=False)
            self._by_dtype[dtype] = values
        return self._by_dtype[dtype]

    @staticmethod
    @lru_cache(maxsize=8)
    def balanced(scale: float = 1.0, *, alpha: bool = False) -> Coefs:
        """From [0, 255] to [-scale, scale]; with ``alpha``, that channel to [0, 1]."""
        divisors, subtrahends = [127.5 / scale] * 3, [scale] * 3
        if alpha:
            return Coefs([[*divisors, 255.0], [*subtrahends, 0.0]])
        return Coefs([divisors, subtrahends])


def _standardised(alpha: bool) -> Coefs:
    mean, deviation = np.array(
        [[123.675, 116.28, 103.53], [58.395, 57.12, 57.375]], np.float64
    )
    coefs = np.stack([deviation, mean / deviation])
    return Coefs(np.hstack([coefs, [[255.0], [0.0]]]) if alpha else coefs)


Coefs.FRACTIONAL = Coefs([[255.0], [0.0]])
Coefs.IMAGENET_SRGB = _standardised(False)
Coefs.IMAGENET_SRGB_ALPHA = _standardised(True)


def set_max_image_pixels(threshold: int | None) -> None:
    """Sets the number of pixels above which Pillow refuses to open an image.

    Pillow warns above half that number. None removes the limit. The setting is global.
    """
    Image.MAX_IMAGE_PIXELS = None if threshold is None else (threshold + 1) // 2


def open_srgb(
    fp: Any,
    *,
    mode: str = "RGB",
    convert: tuple[ImageCms.Intent, int] = CONVERT_RELATIVE,
    formats: list[str] | tuple[str, ...] | None = None,
) -> Image.Image:
    """Opens an image from a path, a file or bytes, and converts it to sRGB.

    ``convert`` is (rendering intent, ImageCms flags) for an image with an embedded
    colour profile. If the profile does not support the intent, its default intent is
    used. ``mode`` is "RGB", "RGBA" or "RGBa".
    """
    if isinstance(fp, (bytes, bytearray, memoryview)):
        fp = BytesIO(fp)
    image: Image.Image = Image.open(fp, formats=formats)
    profile = image.info.get("icc_profile")
    if profile:
        image = _converted(image, profile, convert, alpha=mode.lower() == "rgba")
    if image.mode == "RGB" and mode == "RGBa":  # Pillow cannot convert directly
        image = image.convert("RGBA")
    if image.mode != mode:
        return image.convert(mode)
    image.load()
    return image


def _converted(
    image: Image.Image,
    packed: bytes,
    convert: tuple[ImageCms.Intent, int],
    *,
    alpha: bool,
) -> Image.Image:
    profile = ImageCms.ImageCmsProfile(BytesIO(packed))
    intent, flags = convert
    if ImageCms.isIntentSupported(profile, intent, ImageCms.Direction.INPUT) != 1:
        intent = ImageCms.Intent(ImageCms.getDefaultIntent(profile))
        if intent != ImageCms.Intent.RELATIVE_COLORIMETRIC:
            flags &= ~_BLACK_POINT
    if profile.profile.xcolor_space.strip() == "RGB" and image.mode != "RGB":
        # An RGB profile cannot be applied to palette indices or grey levels.
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    transparency = image.getchannel("A") if image.mode in ("RGBA", "LA") else None
    if transparency is not None:
        image = image.convert(image.mode.removesuffix("A"))
    converted = ImageCms.profileToProfile(
        image,
        profile,
        ImageCms.createProfile("sRGB"),
        renderingIntent=intent,
        outputMode="RGB",
        flags=ImageCms.Flags(flags),
    )
    assert converted is not None
    converted.info.pop("icc_profile", None)
    if alpha and transparency is not None:
        converted.putalpha(transparency)
    return converted


def write_hwc(
    image: Any, array: np.ndarray[Any, Any], coefs: Coefs | None = None
) -> None:
    """Writes a Pillow image or an HWC array into an array of shape HWC."""
    _write(np.asarray(image), array, coefs, "HWC", (1, 1, -1))


def write_chw(
    image: Any, array: np.ndarray[Any, Any], coefs: Coefs | None = None
) -> None:
    """Writes a Pillow image or an HWC array into an array of shape CHW."""
    pixels = np.asarray(image)
    if pixels.ndim == 3:
        pixels = pixels.transpose(2, 0, 1)
    _write(pixels, array, coefs, "CHW", (-1, 1, 1))


def _write(
    pixels: np.ndarray[Any, Any],
    array: np.ndarray[Any, Any],
    coefs: Coefs | None,
    order: str,
    channels: tuple[int, int, int],
) -> None:
    if pixels.ndim != 3 or pixels.shape != array.shape:
        raise ValueError(
            f"expected an image of shape {array.shape} ({order}), found {pixels.shape}"
        )
    if coefs is not None and array.dtype.kind in "biu":
        raise TypeError(
            f"coefficients need a floating-point array; found {array.dtype}. Declare a "
            "floating-point dtype, or leave out coefs="
        )
    np.copyto(array, pixels, casting="safe")
    if coefs is not None:
        divisors, subtrahends = coefs[array.dtype]
        array /= divisors.reshape(channels)
        array -= subtrahends.reshape(channels)


def from_srgb_hwc(
    image: Any, coefs: Coefs, *, mode: str | None = None, copy: bool = False
) -> Image.Image:
    """A Pillow image of sRGB values in HWC, which ``coefs`` scaled from [0, 255].

    Values are rounded and clipped. Without ``copy`` a NumPy array is overwritten, so do
    not use it afterwards. A JAX array is always copied.
    """
    values = np.asarray(image)
    if copy or not values.flags.writeable or values.dtype.itemsize < 4:
        worked = values.dtype if values.dtype.itemsize >= 4 else np.dtype(np.float32)
        values = np.array(values, dtype=worked)
    if values.ndim != 3 or values.dtype.kind != "f":
        raise ValueError(
            "expected an image that is HWC and of floating-point numbers, found shape "
            f"{values.shape} and {values.dtype}"
        )
    divisors, subtrahends = coefs[values.dtype]
    values += subtrahends
    values *= divisors
    np.nan_to_num(values, copy=False, nan=0.0, posinf=255.0, neginf=0.0)
    np.clip(np.round(values, out=values), 0.0, 255.0, out=values)
    pixels = np.ascontiguousarray(values.astype(np.uint8))
    if mode is None:
        return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.tobytes())


def convert_srgb_to_oklab_frac_hwc(image: A) -> A:
    """Converts sRGB in [0, 1], HWC, to Oklab.

    Changes a NumPy array in place and returns it; returns a new array for a JAX array.
    The array may have dimensions before H. Alpha stays as it is. The same holds for the
    other conversions.
    """
    return _convert(image, -1, _oklab_from_srgb)


def convert_srgb_to_oklab_frac_chw(image: A) -> A:
    """Converts sRGB in [0, 1], CHW, to Oklab."""
    return _convert(image, -3, _oklab_from_srgb)


def convert_oklab_to_srgb_frac_hwc(image: A) -> A:
    """Converts Oklab, HWC, to sRGB in [0, 1]."""
    return _convert(image, -1, _srgb_from_oklab)


def convert_oklab_to_srgb_frac_chw(image: A) -> A:
    """Converts Oklab, CHW, to sRGB in [0, 1]."""
    return _convert(image, -3, _srgb_from_oklab)


def convert_frac_to_balanced_hwc(image: A, scale: float = 1.0) -> A:
    """Maps [0, 1], HWC, to [-scale, scale]."""
    return _convert(image, -1, lambda x, _: (x - 0.5) * (2 * scale))


def convert_frac_to_balanced_chw(image: A, scale: float = 1.0) -> A:
    """Maps [0, 1], CHW, to [-scale, scale]."""
    return _convert(image, -3, lambda x, _: (x - 0.5) * (2 * scale))


def convert_balanced_to_frac_hwc(image: A, scale: float = 1.0) -> A:
    """Maps [-scale, scale], HWC, to [0, 1]."""
    return _convert(image, -1, lambda x, _: x / (2 * scale) + 0.5)


def convert_balanced_to_frac_chw(image: A, scale: float = 1.0) -> A:
    """Maps [-scale, scale], CHW, to [0, 1]."""
    return _convert(image, -3, lambda x, _: x / (2 * scale) + 0.5)


# The Oklab matrices are Björn Ottosson's. The transfer function of sRGB is that of
# IEC 61966-2-1.
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


def _oklab_from_srgb(colours: Any, xp: Any) -> Any:
    """sRGB in [0, 1] as Oklab; ``xp`` is ``numpy`` or ``jax.numpy``."""
    curved = ((xp.maximum(colours, 0.04045) + 0.055) / 1.055) ** 2.4
    linear = xp.where(colours > 0.04045, curved, colours / 12.92)
    return _times(xp.cbrt(_times(linear, _LMS_FROM_RGB)), _LAB_FROM_LMS)


def _srgb_from_oklab(colours: Any, xp: Any) -> Any:
    """Oklab as sRGB. Colours outside the sRGB gamut get values outside [0, 1]."""
    linear = _times(_times(colours, _LMS_FROM_LAB) ** 3, _RGB_FROM_LMS)
    curved = 1.055 * xp.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055
    return xp.where(linear > 0.0031308, curved, linear * 12.92)


def _times(colours: Any, matrix: np.ndarray[Any, Any]) -> Any:
    """The matrix applied to each colour."""
    return colours @ matrix.T.astype(colours.dtype)


def _convert(image: A, axis: int, function: Callable[[Any, Any], Any]) -> A:
    """The image with its first three channels converted. ``axis`` is that of channels.

    Changes a NumPy array in place and returns it; returns a new array for a JAX array.
    """
    array: Any = image
    xp: Any = np
    if not isinstance(array, np.ndarray):
        import jax

        if not isinstance(array, jax.Array):
            raise TypeError(
                f"expected a NumPy or JAX array, found {type(array).__name__}"
            )
        xp = jax.numpy
    dtype = np.dtype(array.dtype)
    if dtype.kind != "f" and dtype.name != "bfloat16":
        raise TypeError(f"colours must be floating-point numbers; found {dtype}")
    if array.ndim < 3 or array.shape[axis] < 3:
        raise ValueError(
            f"expected an image of shape {'HWC' if axis == -1 else 'CHW'} with at "
            f"least 3 channels, found {tuple(array.shape)}"
        )
    worked = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
    channels = xp.moveaxis(array, axis, -1)
    new = function(channels[..., :3].astype(worked), xp).astype(dtype)
    if xp is np:
        channels[..., :3] = new
        return image
    whole: A = xp.moveaxis(xp.concatenate([new, channels[..., 3:]], -1), -1, axis)
    return whole
