"""Hydrax's image functions: colour profiles, coefficients, Oklab."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from millstream.hydrax import image as him
from PIL import Image, ImageCms

# Colours in sRGB and in Oklab, computed with Ottosson's implementation.
KNOWN = [
    ((1.0, 1.0, 1.0), (1.0, 0.0, 0.0)),
    ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    ((1.0, 0.0, 0.0), (0.627955, 0.224863, 0.125846)),
    ((0.0, 1.0, 0.0), (0.866440, -0.233888, 0.179498)),
    ((0.0, 0.0, 1.0), (0.452014, -0.032457, -0.311528)),
    ((0.5, 0.5, 0.5), (0.598181, 0.0, 0.0)),
]
SHAPES = [(2, 4), (3, 2, 4), (2, 1, 2, 4)]


def pixels(shape, channels, dtype=np.float32):
    """Random colours of HWC, dimensions before them as they are given."""
    random = np.random.default_rng(0)
    return random.random((*shape, channels)).astype(dtype)


@pytest.mark.parametrize(("srgb", "oklab"), KNOWN)
def test_known_colours(srgb, oklab):
    image = np.full((2, 3, 3), srgb, np.float64)
    him.convert_srgb_to_oklab_frac_hwc(image)
    np.testing.assert_allclose(image[1, 2], oklab, atol=2e-6)
    him.convert_oklab_to_srgb_frac_hwc(image)
    np.testing.assert_allclose(image[1, 2], srgb, atol=1e-9)


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_channel_orders_alpha_and_leading_dimensions(shape, channels, dtype):
    original = pixels(shape, channels, dtype)
    hwc = original.copy()
    him.convert_srgb_to_oklab_frac_hwc(hwc)
    each = np.array(
        [
            him.convert_srgb_to_oklab_frac_hwc(colour.reshape(1, 1, -1))
            for colour in original.reshape(-1, channels).copy()
        ]
    )
    tolerance = {2: 5e-3, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(hwc, each.reshape(hwc.shape), atol=tolerance)
    assert not np.allclose(hwc[..., :3], original[..., :3], atol=0.01)
    np.testing.assert_array_equal(hwc[..., 3:], original[..., 3:])

    chw = np.moveaxis(original, -1, -3).copy()
    him.convert_srgb_to_oklab_frac_chw(chw)
    np.testing.assert_array_equal(np.moveaxis(chw, -3, -1), hwc)
    him.convert_oklab_to_srgb_frac_chw(chw)
    him.convert_oklab_to_srgb_frac_hwc(hwc)
    np.testing.assert_allclose(hwc, original, atol=tolerance)
    np.testing.assert_array_equal(np.moveaxis(chw, -3, -1), hwc)


def test_non_contiguous_arrays_are_changed_in_place():
    wide = pixels((4, 6), 4)
    original = wide.copy()
    view = wide[::2, 1:4]
    assert him.convert_srgb_to_oklab_frac_hwc(view) is view
    expected = him.convert_srgb_to_oklab_frac_hwc(original[::2, 1:4].copy())
    np.testing.assert_array_equal(wide[::2, 1:4], expected)
    np.testing.assert_array_equal(wide[1::2], original[1::2])


@pytest.mark.parametrize("order", ["hwc", "chw"])
@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize(
    "name", ["srgb_to_oklab_frac", "oklab_to_srgb_frac", "frac_to_balanced"]
)
def test_jax_arrays_give_new_arrays_also_inside_jit(name, order, channels):
    convert = getattr(him, f"convert_{name}_{order}")
    original = pixels((2, 3, 5), channels) * 0.9
    if order == "chw":
        original = np.moveaxis(original, -1, -3)
    expected = convert(original.copy())
    given = jnp.asarray(original)
    for made in (convert(given), jax.jit(convert)(given)):
        assert isinstance(made, jax.Array)
        np.testing.assert_allclose(made, expected, atol=1e-5)
    np.testing.assert_array_equal(given, original)


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("order", ["hwc", "chw"])
def test_balanced_round_trip(scale, order):
    original = pixels((2, 2, 3), 4)
    there = getattr(him, f"convert_frac_to_balanced_{order}")
    back = getattr(him, f"convert_balanced_to_frac_{order}")
    image = original if order == "hwc" else np.moveaxis(original, -1, -3)
    image = image.copy()
    there(image, scale)
    last = image if order == "hwc" else np.moveaxis(image, -3, -1)
    expected = (original[..., :3] - 0.5) * 2 * scale
    np.testing.assert_allclose(last[..., :3], expected, atol=1e-6)
    np.testing.assert_array_equal(last[..., 3], original[..., 3])
    back(image, scale)
    np.testing.assert_allclose(last, original, atol=1e-6)


@pytest.mark.parametrize(
    ("image", "error", "text"),
    [
        (np.zeros((2, 2, 3), np.uint8), TypeError, "found uint8"),
        (np.zeros((2, 3)), ValueError, r"HWC with at least 3 channels, found \(2, 3\)"),
        (np.zeros((2, 2, 1)), ValueError, "at least 3 channels"),
    ],
)
def test_wrong_images_are_refused(image, error, text):
    with pytest.raises(error, match=text):
        him.convert_srgb_to_oklab_frac_hwc(image)


def picture(mode="RGB", size=(5, 4)):
    random = np.random.default_rng(1)
    channels = {"RGB": 3, "RGBA": 4}[mode]
    values = random.integers(0, 256, (size[1], size[0], channels), dtype=np.uint8)
    return Image.fromarray(values, mode=None), values


def test_images_are_written_with_and_without_coefficients():
    image, values = picture()
    array = np.empty((4, 5, 3), np.uint8)
    him.write_hwc(image, array)
    np.testing.assert_array_equal(array, values)
    array = np.empty((3, 4, 5), np.float32)
    him.write_chw(values, array, him.Coefs.FRACTIONAL)
    np.testing.assert_allclose(array, values.transpose(2, 0, 1) / 255, atol=1e-7)


@pytest.mark.parametrize(
    ("coefs", "mode", "low", "high"),
    [
        (him.Coefs.FRACTIONAL, "RGB", (0, 0, 0), (1, 1, 1)),
        (him.Coefs.FRACTIONAL, "RGBA", (0, 0, 0, 0), (1, 1, 1, 1)),
        (him.Coefs.balanced(), "RGB", (-1, -1, -1), (1, 1, 1)),
        (
            him.Coefs.balanced(0.5, alpha=True),
            "RGBA",
            (-0.5,) * 3 + (0,),
            (0.5,) * 3 + (1,),
        ),
        (
            him.Coefs.IMAGENET_SRGB,
            "RGB",
            (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225),
            (0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225),
        ),
        (
            him.Coefs.IMAGENET_SRGB_ALPHA,
            "RGBA",
            (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225, 0),
            (0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225, 1),
        ),
    ],
)
def test_coefficients_round_trip(coefs, mode, low, high):
    _, values = picture(mode)
    values[0, 0], values[0, 1] = 0, 255
    hwc = np.empty(values.shape, np.float32)
    him.write_hwc(values, hwc, coefs)
    np.testing.assert_allclose(hwc[0, 0], low, atol=1e-5)
    np.testing.assert_allclose(hwc[0, 1], high, atol=1e-5)
    chw = np.empty(np.moveaxis(values, -1, 0).shape, np.float32)
    him.write_chw(values, chw, coefs)
    np.testing.assert_array_equal(np.moveaxis(chw, 0, -1), hwc)
    for given in (hwc.copy(), jnp.asarray(hwc), np.asfortranarray(hwc)):
        made = him.from_srgb_hwc(given, coefs)
        assert made.mode == mode
        np.testing.assert_array_equal(np.asarray(made), values)


def test_from_srgb_copies_rounds_clips_and_takes_a_mode():
    values = np.array([[[-0.2, 0.5, 1.3, 0.501]]], np.float32)
    before = values.copy()
    made = him.from_srgb_hwc(values, him.Coefs.FRACTIONAL, mode="RGBa", copy=True)
    np.testing.assert_array_equal(values, before)
    assert made.mode == "RGBa"
    assert list(made.tobytes()) == [0, 128, 255, 128]
    with pytest.raises(ValueError, match="HWC and of floating-point"):
        him.from_srgb_hwc(np.zeros((2, 2), np.float32), him.Coefs.FRACTIONAL)


def test_coefficients_have_any_dtype_and_are_read_only():
    coefs = him.Coefs([[2, 4, 8], [1, 0, 0]])
    assert coefs["float16"].dtype == np.float16
    assert coefs[np.float32] is coefs[np.float32]
    with pytest.raises(ValueError, match="read-only"):
        coefs[np.float32][0] = 1
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        him.Coefs([1, 2, 3])


@pytest.mark.parametrize(
    ("array", "coefs", "error", "text"),
    [
        (
            np.empty((4, 4, 3)),
            None,
            ValueError,
            r"\(4, 4, 3\) \(HWC\), found \(4, 5, 3\)",
        ),
        (np.empty((4, 5, 3), np.uint8), him.Coefs.FRACTIONAL, TypeError, "found uint8"),
        (np.empty((4, 5, 3), np.int8), None, TypeError, "safe"),
    ],
)
def test_images_that_do_not_fit_are_refused(array, coefs, error, text):
    image, _ = picture()
    with pytest.raises(error, match=text):
        him.write_hwc(image, array, coefs)


def saved(image, **more):
    buffer = io.BytesIO()
    image.save(buffer, "PNG", **more)
    return buffer.getvalue()


def linear_profile():
    """A profile with the primaries of sRGB and a gamma of 1."""
    import struct

    def fixed(*values):
        return b"".join(struct.pack(">i", round(v * 65536)) for v in values)

    def xyz(*values):
        return b"XYZ \0\0\0\0" + fixed(*values)

    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, 256) + b"\0\0"
    text = b"desc\0\0\0\0" + struct.pack(">I", 7) + b"linear\0" + b"\0" * 79
    tags = {
        b"desc": text + b"\0" * (-len(text) % 4),
        b"wtpt": xyz(0.9642, 1.0, 0.8249),
        b"rXYZ": xyz(0.4360747, 0.2225045, 0.0139322),
        b"gXYZ": xyz(0.3850649, 0.7168786, 0.0971045),
        b"bXYZ": xyz(0.1430804, 0.0606169, 0.7141733),
        b"rTRC": curve,
        b"gTRC": curve,
        b"bTRC": curve,
    }
    offset = 128 + 4 + 12 * len(tags)
    table, body = struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        table += name + struct.pack(">II", offset + len(body), len(data))
        body += data
    size = offset + len(body)
    header = struct.pack(
        ">I4sI4s4s4s", size, b"\0" * 4, 0x02400000, b"mntr", b"RGB ", b"XYZ "
    )
    header += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + b"\0" * 28
    header += fixed(0.9642, 1.0, 0.8249)
    return header.ljust(128, b"\0") + table + body


def srgb_of_linear(values):
    x = values / 255
    return 255 * np.where(x > 0.0031308, 1.055 * x ** (1 / 2.4) - 0.055, 12.92 * x)


def test_an_embedded_profile_is_converted():
    image, values = picture()
    profile = linear_profile()
    made = him.open_srgb(saved(image, icc_profile=profile))
    assert made.mode == "RGB"
    np.testing.assert_allclose(np.asarray(made), srgb_of_linear(values), atol=2)
    assert "icc_profile" not in made.info
    made = him.open_srgb(
        io.BytesIO(saved(image, icc_profile=profile)), convert=him.CONVERT_PERCEPTUAL
    )
    np.testing.assert_allclose(np.asarray(made), srgb_of_linear(values), atol=2)


def test_alpha_is_kept_with_a_profile():
    image, values = picture("RGBA")
    packed = saved(image, icc_profile=linear_profile())
    made = np.asarray(him.open_srgb(packed, mode="RGBA"))
    np.testing.assert_array_equal(made[..., 3], values[..., 3])
    np.testing.assert_allclose(made[..., :3], srgb_of_linear(values[..., :3]), atol=2)
    assert him.open_srgb(packed).mode == "RGB"
    assert him.open_srgb(packed, mode="RGBa").mode == "RGBa"


def test_images_are_converted_to_the_requested_mode(tmp_path):
    image, values = picture()
    path = tmp_path / "image.png"
    path.write_bytes(saved(image))
    np.testing.assert_array_equal(np.asarray(him.open_srgb(path)), values)
    assert him.open_srgb(path, mode="RGBA").getchannel("A").getextrema() == (255, 255)
    assert him.open_srgb(path, mode="RGBa").mode == "RGBa"
    grey = saved(image.convert("L"), icc_profile=linear_profile())
    assert him.open_srgb(grey).mode == "RGB"
    palette = saved(image.convert("P"), icc_profile=linear_profile())
    assert him.open_srgb(palette, mode="RGBA").mode == "RGBA"
    with pytest.raises(Image.UnidentifiedImageError):
        him.open_srgb(path, formats=["JPEG"])


def test_an_unsupported_intent_falls_back_to_the_profiles_default(monkeypatch):
    asked = []
    convert = ImageCms.profileToProfile

    def spy(*args, **more):
        asked.append((more["renderingIntent"], int(more["flags"]) & 0x2000))
        return convert(*args, **more)

    monkeypatch.setattr(ImageCms, "profileToProfile", spy)
    monkeypatch.setattr(ImageCms, "isIntentSupported", lambda *args: -1)
    image, _ = picture()
    him.open_srgb(saved(image, icc_profile=linear_profile()))
    assert asked == [(ImageCms.Intent.PERCEPTUAL, 0)]  # the profile's default


def test_max_image_pixels_can_be_set(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    packed = saved(picture(size=(20, 20))[0])
    him.set_max_image_pixels(300)
    with pytest.raises(Image.DecompressionBombError):
        him.open_srgb(packed)
    him.set_max_image_pixels(None)
    assert him.open_srgb(packed).size == (20, 20)
    him.set_max_image_pixels(800)
    assert him.open_srgb(packed).size == (20, 20)
