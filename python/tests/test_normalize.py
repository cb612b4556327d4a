"""``NormalizeImageTransform`` with a mean and a standard deviation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataLoader,
    FlattenImageTransform,
    MapTransform,
    NormalizeImageTransform,
)
from walks import iterated, same_bytes, same_walk, scanned, specified

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def every_byte() -> dict[str, np.ndarray]:
    """Returns three images. Each contains every byte in each of its three channels."""
    one = np.repeat(np.arange(256), 3).reshape(16, 16, 3)
    return {"image": np.stack([one, one[::-1], one[:, ::-1]]).astype(np.uint8)}


def expected(
    x: np.ndarray, dtype: Any, scale: Any, offset: Any, mean: Any, std: Any
) -> Any:
    """Returns the values with NumPy, rounded to ``dtype`` after each operation."""
    x = x.astype(dtype)
    if scale != 1 or offset != 0:
        x = (x * np.asarray(scale, dtype)).astype(dtype)
    if offset != 0:
        x = (x + np.asarray(offset, dtype)).astype(dtype)
    x = (x - np.asarray(mean, dtype)).astype(dtype)
    return (x / np.asarray(std, dtype)).astype(dtype)


def nothing(batch: Any, mask: Any) -> Any:
    return batch


Case = tuple[Any, float, float, Any, Any]
"""The arguments after the key: dtype, scale, offset, mean and std."""


def check(image: np.ndarray, cases: list[Case]) -> None:
    """Compares the engine and XLA with NumPy, before and after batching.

    There is one field per case. The last batch has one sample and one row of padding.
    """
    named = {f"{number}": case for number, case in enumerate(cases)}
    source = ArraySampleSource(dict.fromkeys(named, image), "sequential")
    stages = [NormalizeImageTransform(key, *case) for key, case in named.items()]
    batch, trace = BatchTransform(2), MapTransform(nothing)
    zeros = np.zeros_like(image[:1])
    for late in (False, True):
        native = [batch, *stages] if late else [*stages, batch]
        loader = DataLoader([source, *native])
        assert not loader._built.later
        state = loader.init_state(0)
        walk = iterated(loader, state, 2)
        for key, (dtype, *numbers) in named.items():
            wanted = expected(image, dtype, *numbers)
            rest = expected(zeros, dtype, *numbers) if late else zeros.astype(dtype)
            whole = np.concatenate([wanted, rest]).reshape(2, 2, *wanted.shape[1:])
            same_bytes(walk[0][key], whole)
        behind = [batch, trace, *stages] if late else [trace, *stages, batch]
        same_walk(scanned(DataLoader([source, *behind]), state, 2), walk)
        traced = DataLoader([source, *native], traced=True)
        same_walk(scanned(traced, state, 2), walk)


CHANNELS: list[tuple[Any, ...]] = [
    (1 / 255, 0.0, MEAN, STD),
    (2 / 255, -1.0, MEAN, STD),
    (1.0, 0.0, (127, 100, 3), (64, 3, 7)),
    (1.0, 0.3, MEAN, 1.0),
    (1 / 255, 0.0, 0.1307, 0.3081),
    (1 / 255, 0.1, 0.0, (0.1, 3, 1)),
    (1 / 255, 0.3, 0.7, 0.3081),
    (1 / 3, 0.0, (0, 0, 0), (1, 1, 1)),
]


def random_numbers() -> tuple[Any, ...]:
    random = np.random.default_rng(3)
    mean = random.normal(size=(8, 3)) * 10 ** random.uniform(-3, 1, (8, 1))
    std = np.exp(random.normal(size=(8, 3)))
    scale, offset = random.uniform(0.001, 2, 8), random.normal(size=8)
    return tuple(zip(scale, offset, mean.tolist(), std.tolist(), strict=True))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_all_bytes_are_the_same_in_the_engine_in_xla_and_in_numpy(dtype: str) -> None:
    numbers = [*CHANNELS, *random_numbers()]
    check(every_byte()["image"], [(jnp.dtype(dtype), *each) for each in numbers])


@pytest.mark.parametrize("given", [np.bool_, np.int8, np.int64, np.float16, np.float32])
def test_other_inputs_are_the_same_everywhere(given: Any) -> None:
    image = every_byte()["image"].astype(given)
    check(image, [(np.dtype(np.float32), *CHANNELS[1])])


def test_float64() -> None:
    with jax.enable_x64(True):
        cases = [(np.dtype(np.float64), *numbers) for numbers in CHANNELS]
        check(every_byte()["image"], cases)


def test_a_mean_is_rounded_once() -> None:
    """Rounding it first to float32 and then to float16 would give 1.0."""
    mean = 1 + 2**-11 + 2**-30
    check(every_byte()["image"], [(np.dtype(np.float16), 1.0, 0.0, mean, 1.0)])
    assert float(np.float16(mean)) == 1 + 2**-10


USERS: dict[str, Any] = {
    "minus": lambda image, mask: image - 1,
    "times": lambda image, mask: image * 3,
    "over": lambda image, mask: image / 3,
    "under": lambda image, mask: 1.7 / image,
}


@pytest.mark.parametrize("operation", USERS)
def test_a_quotient_is_rounded_before_an_operation_of_the_user(operation: str) -> None:
    def user(batch: Any, mask: Any) -> Any:
        return {"image": USERS[operation](batch["image"], mask)}

    stage = NormalizeImageTransform(mean=MEAN, std=STD)
    stages = [BatchTransform(3), stage, MapTransform(user)]
    native = DataLoader([ArraySampleSource(every_byte()), *stages])
    traced = DataLoader([ArraySampleSource(every_byte()), *stages], traced=True)
    state = native.init_state(0)
    same_walk(scanned(traced, state, 1), scanned(native, state, 1))


def test_the_defaults_change_nothing() -> None:
    source, batch = ArraySampleSource(every_byte()), BatchTransform(3)
    for dtype in (jnp.float32, jnp.bfloat16):
        walks = []
        for more in ({}, {"mean": 0, "std": 1}, {"mean": [0] * 3, "std": np.ones(3)}):
            stage = NormalizeImageTransform("image", dtype, 1 / 127, -1.0, **more)
            loader = DataLoader([source, stage, batch])
            walks.append(iterated(loader, loader.init_state(0), 1))
        same_walk(walks[1], walks[0])
        same_walk(walks[2], walks[0])


def test_it_equals_normalize_of_torchvision() -> None:
    """ToTensor divides by 255, and Normalize subtracts the mean and divides."""
    loader = DataLoader(
        [
            ArraySampleSource(every_byte(), "sequential"),
            NormalizeImageTransform("image", mean=MEAN, std=STD),
            BatchTransform(3),
        ]
    )
    batch, _, _ = loader.next_batch(loader.init_state(0))
    wanted = (every_byte()["image"] / 255 - np.array(MEAN)) / np.array(STD)
    np.testing.assert_allclose(batch["image"], wanted, atol=1e-6)


def test_one_mean_takes_images_without_channels() -> None:
    data = {"image": every_byte()["image"][..., 0], "scalar": np.arange(3)}
    for key in data:
        for traced in (False, True):
            stage = NormalizeImageTransform(key, scale=1, mean=1.5, std=2)
            stages = [ArraySampleSource(data, "sequential"), stage, BatchTransform(3)]
            loader = DataLoader(stages, traced=traced)
            batch, _, _ = loader.next_batch(loader.init_state(0))
            same_bytes(batch[key], ((data[key] - 1.5) / 2).astype(np.float32))


def test_equal_stages_are_equal() -> None:
    arrays = {"mean": np.array(MEAN), "std": list(STD)}
    stage = NormalizeImageTransform(**arrays)
    assert stage == NormalizeImageTransform(mean=MEAN, std=STD)
    assert stage.mean == MEAN
    assert stage != NormalizeImageTransform(mean=MEAN)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_the_error_names_the_field_and_both_counts(traced: bool, late: bool) -> None:
    def build(stage: Any, *earlier: Any) -> None:
        batch = BatchTransform(3)
        stages = [batch, *earlier, stage] if late else [*earlier, stage, batch]
        data = {**every_byte(), "scalar": np.arange(3)}
        loader = DataLoader([ArraySampleSource(data), *stages], traced=traced)
        loader.element_spec()

    message = r"{} has {} entries, but the last axis of .*{}.* has {} channels"
    with pytest.raises(ValueError, match=message.format("mean", 2, "image", 3)):
        build(NormalizeImageTransform(mean=[1, 2]))
    with pytest.raises(ValueError, match=message.format("std", 1, "image", 3)):
        build(NormalizeImageTransform(std=[1]))
    with pytest.raises(ValueError, match=message.format("mean", 3, "image", 768)):
        build(NormalizeImageTransform(mean=MEAN), FlattenImageTransform())
    with pytest.raises(ValueError, match=message.format("mean", 3, "scalar", 0)):
        build(NormalizeImageTransform("scalar", mean=MEAN))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"mean has 3 entries, but std has 2"):
        NormalizeImageTransform(mean=MEAN, std=(1, 2))
    for std in (0, -1.0, (1, 0, 1)):
        with pytest.raises(ValueError, match="std must be greater than 0"):
            NormalizeImageTransform(std=std)
    with pytest.raises(ValueError, match="mean must be finite, not nan"):
        NormalizeImageTransform(mean=(0.1, float("nan"), 1))
    with pytest.raises(ValueError, match=r"one number per channel.* shape \(3, 1, 1\)"):
        NormalizeImageTransform(mean=np.ones((3, 1, 1)))
    with pytest.raises(ValueError, match=r"one number per channel.* shape \(0,\)"):
        NormalizeImageTransform(std=())
    with pytest.raises(TypeError, match="mean must be a number"):
        NormalizeImageTransform(mean="0.5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="std must be a number"):
        NormalizeImageTransform(std=("a", "b"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a mean and a std need a floating dtype"):
        NormalizeImageTransform("image", jnp.uint8, 1, 0, mean=3)


@pytest.mark.parametrize("side", [64, 63])  # rows of whole cache lines, and others
@pytest.mark.parametrize("stage", ["cast", "one", "channels"])
def test_a_batch_that_exceeds_the_caches_has_the_same_bytes(
    stage: str, side: int
) -> None:
    """The engine writes batches of at least 8 MiB around the CPU's caches."""
    images = np.random.default_rng(0).integers(256, size=(200, side, side, 3))
    data = {"image": images.astype(np.uint8), "label": np.arange(200)}
    stages: dict[str, Any] = {
        "cast": CastTransform("image", np.float32),
        "one": NormalizeImageTransform("image", mean=0.45, std=0.22),
        "channels": NormalizeImageTransform("image", mean=MEAN, std=STD),
    }
    for place in ("before", "after"):
        line = [stages[stage], BatchTransform(180)]
        line = line if place == "before" else line[::-1]
        loader = DataLoader([ArraySampleSource(data), *line])
        assert loader._built.engine.batch_bytes >= 8 << 20
        state = loader.init_state(0)
        traced = DataLoader([ArraySampleSource(data), *line], traced=True)
        walk = specified(loader, state, 2)
        same_walk(scanned(traced, state, 2), walk)
        same_walk(iterated(loader, state, 2), walk)
        same_walk(scanned(loader, state, 2), walk)
        same_walk(iterated(loader, state, 2), walk)
