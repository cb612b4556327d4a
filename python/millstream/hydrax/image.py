"""Images in sRGB for loader functions; needs ``millstream[images]`` (Pillow)."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from typing import Any, ClassVar, TypeVar

import numpy as np

from millstream.hydrax import _oklab

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
"""Perceptual intent, tables of high resolution."""

CONVERT_RELATIVE = (
    ImageCms.Intent.RELATIVE_COLORIMETRIC,
    _HIGH_RESOLUTION | _BLACK_POINT,
)
"""Relative colorimetric intent with black point compensation, the same tables."""


class Coefs:
    """What pixels are divided by, then what is subtracted; ``coefs[dtype]`` has both.

    They are rows of an array, a value a channel or one for all.
    """

    __slots__ = ("_held", "_values")

    FRACTIONAL: ClassVar[Coefs]
    """From [0, 255] to [0, 1]."""
    IMAGENET_SRGB: ClassVar[Coefs]
    """From [0, 255] to what networks trained on ImageNet expect."""
    IMAGENET_SRGB_ALPHA: ClassVar[Coefs]
    """The same, and an alpha channel to [0, 1]."""

    def __init__(self, coefs: Any) -> None:
        self._values = np.array(coefs, np.float64)
        if self._values.ndim != 2 or len(self._values) != 2:
            raise ValueError(
                "coefficients are two rows, divisors and subtrahends, not an array of "
                f"shape {self._values.shape}"
            )
        self._held: dict[np.dtype[Any], np.ndarray[Any, Any]] = {}

    def __getitem__(self, dtype: Any) -> np.ndarray[Any, Any]:
        dtype = np.dtype(dtype)
        if dtype not in self._held:
            values = self._values.astype(dtype)
            values.setflags(write=False)
            self._held[dtype] = values
        return self._held[dtype]

    @staticmethod
    @lru_cache(maxsize=8)
    def balanced(scale: float = 1.0, *, alpha: bool = False) -> Coefs:
        """From [0, 255] to [-scale, scale]; an alpha channel, if any, to [0, 1]."""
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
    """Sets, for all of Pillow, at how many pixels opening an image fails.

    From half as many on Pillow warns. None takes the limit away.
    """
    Image.MAX_IMAGE_PIXELS = None if threshold is None else (threshold + 1) // 2


def open_srgb(
    fp: Any,
    *,
    mode: str = "RGB",
    convert: tuple[ImageCms.Intent, int] = CONVERT_RELATIVE,
    formats: list[str] | tuple[str, ...] | None = None,
) -> Image.Image:
    """The image of a path, a file or bytes, in sRGB.

    A colour profile of its own is converted from, by the profile's default intent where
    it does not support the one asked for. ``mode`` is "RGB", "RGBA" or "RGBa".
    """
    if isinstance(fp, (bytes, bytearray, memoryview)):
        fp = BytesIO(fp)
    image: Image.Image = Image.open(fp, formats=formats)
    profile = image.info.get("icc_profile")
    if profile:
        image = _converted(image, profile, convert, alpha=mode.lower() == "rgba")
    if image.mode == "RGB" and mode == "RGBa":  # Pillow has no way straight there
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
        # Palettes and grey levels are expanded to what the profile speaks of.
        image = image.convert("RGBA" if _has_alpha(image) else "RGB")
    transparency = image.getchannel("A") if image.mode in ("RGBA", "LA") else None
    if image.mode == "LA":
        image = image.convert("L")
    elif image.mode == "RGBA":
        image = image.convert("RGB")
    made = ImageCms.profileToProfile(
        image,
        profile,
        ImageCms.createProfile("sRGB"),
        renderingIntent=intent,
        outputMode="RGB",
        flags=ImageCms.Flags(flags),
    )
    assert made is not None
    made.info.pop("icc_profile", None)
    if alpha and transparency is not None:
        made.putalpha(transparency)
    return made


def _has_alpha(image: Image.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or (
        "transparency" in image.info
    )


def write_hwc(
    image: Any, array: np.ndarray[Any, Any], coefs: Coefs | None = None
) -> None:
    """Writes an image, of Pillow or an HWC array, into an array of shape HWC."""
    _write(np.asarray(image), array, coefs, "HWC", (1, 1, -1))


def write_chw(
    image: Any, array: np.ndarray[Any, Any], coefs: Coefs | None = None
) -> None:
    """Writes an image, of Pillow or an HWC array, into an array of shape CHW."""
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
            f"an image of shape {pixels.shape} ({order}) does not fit an array of "
            f"shape {array.shape}"
        )
    if coefs is not None and array.dtype.kind in "biu":
        raise TypeError(
            f"coefficients need an array of floating-point numbers, not {array.dtype}"
        )
    np.copyto(array, pixels, casting="safe")
    if coefs is not None:
        divisors, subtrahends = coefs[array.dtype]
        array /= divisors.reshape(channels)
        array -= subtrahends.reshape(channels)


def from_srgb_hwc(
    image: Any, coefs: Coefs, *, mode: str | None = None, copy: bool = False
) -> Image.Image:
    """Pillow's image of sRGB values in HWC, which ``coefs`` made of [0, 255].

    Values are rounded and clipped. Unless ``copy``, a NumPy array is worked on in place
    and must not be used any more; a JAX array is always copied.
    """
    values = np.asarray(image)
    if copy or not values.flags.writeable or values.dtype.itemsize < 4:
        worked = values.dtype if values.dtype.itemsize >= 4 else np.dtype(np.float32)
        values = np.array(values, dtype=worked)
    if values.ndim != 3 or values.dtype.kind != "f":
        raise ValueError(
            "an image is HWC and of floating-point numbers, not of shape "
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
    """sRGB in [0, 1], HWC, as Oklab.

    A NumPy array is changed in place, of a JAX array a new one is made; either is
    returned. There may be dimensions before H; alpha is left alone. The other
    conversions do the same.
    """
    return _oklab.converted(image, -1, _oklab.oklab_from_srgb)


def convert_srgb_to_oklab_frac_chw(image: A) -> A:
    """sRGB in [0, 1], CHW, as Oklab."""
    return _oklab.converted(image, -3, _oklab.oklab_from_srgb)


def convert_oklab_to_srgb_frac_hwc(image: A) -> A:
    """Oklab, HWC, as sRGB in [0, 1]."""
    return _oklab.converted(image, -1, _oklab.srgb_from_oklab)


def convert_oklab_to_srgb_frac_chw(image: A) -> A:
    """Oklab, CHW, as sRGB in [0, 1]."""
    return _oklab.converted(image, -3, _oklab.srgb_from_oklab)


def convert_frac_to_balanced_hwc(image: A, scale: float = 1.0) -> A:
    """[0, 1], HWC, as [-scale, scale]."""
    return _oklab.converted(image, -1, lambda x, _: (x - 0.5) * (2 * scale))


def convert_frac_to_balanced_chw(image: A, scale: float = 1.0) -> A:
    """[0, 1], CHW, as [-scale, scale]."""
    return _oklab.converted(image, -3, lambda x, _: (x - 0.5) * (2 * scale))


def convert_balanced_to_frac_hwc(image: A, scale: float = 1.0) -> A:
    """[-scale, scale], HWC, as [0, 1]."""
    return _oklab.converted(image, -1, lambda x, _: x / (2 * scale) + 0.5)


def convert_balanced_to_frac_chw(image: A, scale: float = 1.0) -> A:
    """[-scale, scale], CHW, as [0, 1]."""
    return _oklab.converted(image, -3, lambda x, _: x / (2 * scale) + 0.5)
