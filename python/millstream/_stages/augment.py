"""Stages that augment images with random flips and crops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from millstream import _engine
from millstream._core.arguments import number, whole
from millstream._core.public import public
from millstream._stages.stage import Key, Stage

if TYPE_CHECKING:
    from millstream._run.builder import Builder

_MOST = (1 << 31) - 1


@public
@dataclass(frozen=True, eq=False)
class RandomFlipTransform(Stage):
    """Flips each sample along an axis, with a probability.

    The draw depends only on the seed, the epoch and the sample. It is the same for all
    keys, for example for an image and its mask.

    Args:
      keys: The key of the arrays to flip, or several keys. The keys of a tuple are its
        positions.
      axis: An axis of one sample, also after ``BatchTransform``. Axis 1 of an image
        of shape [height, width, channels] is its width.
      probability: How likely a sample is flipped, from 0 to 1.
    """

    keys: Key | Sequence[Key]
    axis: int = 1
    probability: float = 0.5

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "keys", _keys(name, self.keys))
        axis = whole(f"{name}: axis", self.axis, -_MOST, _MOST)
        object.__setattr__(self, "axis", axis)
        if not 0 <= number(f"{name}: probability", self.probability) <= 1:
            raise ValueError(
                f"{name}: probability must be from 0 to 1, not {self.probability}"
            )

    def place(self, builder: Builder) -> None:
        fields = [builder.field(key) for key in cast(tuple[Key, ...], self.keys)]
        flip = _engine.random_flip(fields, self.axis, float(self.probability))
        builder.add_native([flip])


@public
@dataclass(frozen=True, eq=False)
class RandomCropTransform(Stage):
    """Crops each image at a random position.

    The position depends only on the seed, the epoch and the sample. It is the same for
    all keys, for example for an image and its mask. Their images must have the same
    height and width, which are the first two axes.

    Args:
      keys: The key of the images to crop, or several keys. The keys of a tuple are its
        positions.
      size: The height and width of the result, or one number for both.
      padding: How many zeros to add on each side before the crop: one number, or one
        for the top and bottom and one for the left and right.
    """

    keys: Key | Sequence[Key]
    size: int | tuple[int, int]
    padding: int | tuple[int, int] = 0

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "keys", _keys(name, self.keys))
        size = _pair(f"{name}: size", self.size, 1, "(height, width)")
        object.__setattr__(self, "size", size)
        padding = _pair(f"{name}: padding", self.padding, 0, "(vertical, horizontal)")
        object.__setattr__(self, "padding", padding)

    def place(self, builder: Builder) -> None:
        fields = [builder.field(key) for key in cast(tuple[Key, ...], self.keys)]
        size = cast(tuple[int, int], self.size)
        padding = cast(tuple[int, int], self.padding)
        builder.add_native([_engine.random_crop(fields, size, padding)])


def _keys(name: str, keys: Any) -> tuple[Key, ...]:
    """Returns one key or several as a tuple."""
    if _is_key(keys):
        return (keys,)
    if not isinstance(keys, Sequence) or not all(map(_is_key, keys)):
        raise TypeError(
            f'{name}: keys must be a str or a list of them, such as "image" or '
            '["image", "mask"], or positions such as 0 if samples are tuples, '
            f"not {keys!r}"
        )
    if not keys or len(set(keys)) != len(keys):
        raise ValueError(f"{name}: keys must be different and at least one, not {keys}")
    return tuple(keys)


def _is_key(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _pair(name: str, value: Any, least: int, meaning: str) -> tuple[int, int]:
    """Returns a pair of whole numbers, or one whole number twice."""
    pair = value if isinstance(value, Sequence) else (value, value)
    if isinstance(value, str) or len(pair) != 2:
        raise ValueError(f"{name} must be an int or {meaning}, not {value!r}")
    first, second = (whole(name, part, least, _MOST) for part in pair)
    return first, second
