"""Random flips and crops: their draws, their bytes and their errors."""

from __future__ import annotations

import pickle
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from augmented import CROP, FLIP, cropped, flips, words
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataLoader,
    MapTransform,
    NormalizeImageTransform,
    PythonMapTransform,
    RandomCropTransform,
    RandomFlipTransform,
    RenameTransform,
)
from walks import (
    iterated,
    jitted,
    resumes_everywhere,
    same_bytes,
    same_walk,
    scanned,
    specified,
    stepped,
)

N, BATCH, STEPS, SEED = 37, 8, 5, 7
BOTH = ["image", "mask"]


def data() -> dict[str, np.ndarray]:
    """Returns images and masks without two equal pixels in a sample, and no zeros."""
    image = np.arange(N * 6 * 5 * 3).reshape(N, 6, 5, 3) % 251 + 1
    mask = np.arange(N * 30).reshape(N, 6, 5) + 1
    return {
        "image": image.astype(np.uint8),
        "mask": mask.astype(np.float32),
        "index": np.arange(N, dtype=np.int32),
    }


def loader_of(*stages: Any, **more: Any) -> DataLoader:
    return DataLoader([ArraySampleSource(data()), *stages], **more)


def check(walk: Any, expected: Any, keys: list[str]) -> list[int]:
    """Checks each sample against ``expected(x, epoch, sample)``, and the padding.

    Returns the samples of each epoch, which must be all of them.
    """
    batches, masks, _ = walk
    seen = []
    for step, (indices, mask) in enumerate(zip(batches["index"], masks, strict=True)):
        for row in np.flatnonzero(mask):
            sample = int(indices[row])
            seen.append(sample)
            for key in keys:
                wanted = expected(data()[key][sample], step // STEPS, sample)
                same_bytes(batches[key][step, row], wanted)
        for key in keys:
            assert not batches[key][step][~mask].any()
    assert sorted(seen) == sorted(2 * list(range(N)))
    return seen


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_flips_are_those_of_the_reference(axis: int) -> None:
    loader = loader_of(RandomFlipTransform("image", axis), BatchTransform(BATCH))

    def expected(x: np.ndarray, epoch: int, sample: int) -> np.ndarray:
        return np.flip(x, axis) if flips(SEED, epoch, sample) else x

    check(iterated(loader, loader.init_state(SEED), 2 * STEPS), expected, ["image"])


@pytest.mark.parametrize("probability", [0, 0.2, 1])
def test_a_probability_is_that_of_a_flip(probability: float) -> None:
    stage = RandomFlipTransform(BOTH, probability=probability)
    loader = loader_of(stage, BatchTransform(BATCH))
    count = 0

    def expected(x: np.ndarray, epoch: int, sample: int) -> np.ndarray:
        nonlocal count
        flipped = flips(SEED, epoch, sample, probability)
        count += flipped
        return x[:, ::-1] if flipped else x

    check(iterated(loader, loader.init_state(SEED), 2 * STEPS), expected, BOTH)
    assert count == {0: 0, 1: 4 * N}.get(probability, count)
    assert probability in (0, 1) or 0 < count < 2 * N


CROPS: list[tuple[Any, Any]] = [
    (3, 0),
    ((6, 5), 0),
    ((6, 5), 2),
    ((4, 5), (0, 1)),
    ((9, 3), (2, 0)),
    (1, 4),
]


@pytest.mark.parametrize(("size", "padding"), CROPS)
def test_crops_are_those_of_the_reference(size: Any, padding: Any) -> None:
    loader = loader_of(RandomCropTransform(BOTH, size, padding), BatchTransform(BATCH))
    sizes, paddings = np.broadcast_to(size, 2), np.broadcast_to(padding, 2)

    def expected(x: np.ndarray, epoch: int, sample: int) -> np.ndarray:
        return cropped(x, tuple(sizes), tuple(paddings), SEED, epoch, sample)

    check(iterated(loader, loader.init_state(SEED), 2 * STEPS), expected, BOTH)
    assert loader.element_spec()["image"].shape == (BATCH, *sizes, 3)
    assert loader.element_spec()["mask"].shape == (BATCH, *sizes)


def test_a_crop_of_the_whole_image_changes_nothing() -> None:
    loader = loader_of(RandomCropTransform("image", (6, 5)), BatchTransform(BATCH))
    check(
        iterated(loader, loader.init_state(SEED), 2 * STEPS), lambda x, *_: x, ["image"]
    )


def test_random_words_never_change() -> None:
    """These words are guaranteed. See the table of stages in docs/semantics.md."""
    seed = 11 << 32 | 7
    assert words(seed, 3, 12345, FLIP)[0] == 531197893
    assert words(seed, 3, 12345, CROP)[0] == 3048949843


DTYPES = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    given = data()["image"].astype(jnp.dtype(dtype))
    arrays = {"image": given, "index": np.arange(N)}
    stages = [RandomFlipTransform("image"), RandomCropTransform("image", 4, 1)]
    loader = DataLoader([ArraySampleSource(arrays), *stages, BatchTransform(N)])
    batch, _, _ = loader.next_batch(loader.init_state(SEED))
    for image, sample in zip(batch["image"], batch["index"].tolist(), strict=True):
        x = given[sample]
        x = x[:, ::-1] if flips(SEED, 0, sample) else x
        wanted = cropped(x, (4, 4), (1, 1), SEED, 0, sample)
        same_bytes(image, wanted.astype(image.dtype))


AUGMENT = [RandomCropTransform(BOTH, (6, 4), 1), RandomFlipTransform(BOTH)]


@pytest.fixture(scope="module")
def walk() -> Any:
    loader = loader_of(*AUGMENT, BatchTransform(BATCH))
    return specified(loader, loader.init_state(SEED), 2 * STEPS)


def test_the_same_bytes_everywhere(walk: Any) -> None:
    for more in ({}, {"threads": 3, "prefetch": 4}):
        loader = loader_of(*AUGMENT, BatchTransform(BATCH), **more)
        for found in (iterated, stepped, jitted, scanned):
            same_walk(found(loader, loader.init_state(SEED), 2 * STEPS), walk)
    resumes_everywhere(loader, loader.init_state(SEED), 2 * STEPS)
    copy = pickle.loads(pickle.dumps(loader))
    same_walk(iterated(copy, copy.init_state(SEED), 2 * STEPS), walk)


def test_after_batching_each_row_has_the_draw_of_its_sample(walk: Any) -> None:
    crop, flip = AUGMENT
    for stages in (
        [BatchTransform(BATCH), crop, flip],
        [crop, BatchTransform(BATCH), flip],
    ):
        loader = loader_of(*stages, threads=2)
        state = loader.init_state(SEED)
        same_walk(iterated(loader, state, 2 * STEPS), walk)
        same_walk(scanned(loader, state, 2 * STEPS), walk)


def test_an_epoch_that_begins_inside_a_batch() -> None:
    stage = RandomFlipTransform("image")
    for stages in (
        [stage, BatchTransform(BATCH, remainder="wrap")],
        [BatchTransform(BATCH, remainder="wrap"), stage],
    ):
        loader = loader_of(*stages)
        batches, masks, _ = iterated(loader, loader.init_state(SEED), 2 * STEPS - 1)
        assert masks.all()
        images = batches["image"].reshape(-1, 6, 5, 3)
        for row, sample in enumerate(batches["index"].reshape(-1).tolist()):
            x = data()["image"][sample]
            same_bytes(images[row], x[:, ::-1] if flips(SEED, row // N, sample) else x)


def test_stages_without_randomness_do_not_change_draws(walk: Any) -> None:
    rename = [RenameTransform({"index": "i"}), RenameTransform({"i": "index"})]
    noise = PythonMapTransform(lambda sample, seed: sample)
    for extra in (rename, [CastTransform("index", jnp.int32)], [noise]):
        loader = loader_of(*extra, *AUGMENT, BatchTransform(BATCH))
        same_walk(iterated(loader, loader.init_state(SEED), 2 * STEPS), walk)
    swapped = [RandomFlipTransform("mask", probability=0), *AUGMENT]
    loader = loader_of(*swapped, BatchTransform(BATCH))
    other = iterated(loader, loader.init_state(SEED), 2 * STEPS)
    assert not np.array_equal(other[0]["image"], walk[0]["image"])


def test_a_second_flip_draws_again() -> None:
    stages = [RandomFlipTransform("image", 1), RandomFlipTransform("image", 0)]
    loader = loader_of(*stages, BatchTransform(N))
    batch, _, _ = loader.next_batch(loader.init_state(SEED))
    both = set()
    for image, sample in zip(batch["image"], batch["index"].tolist(), strict=True):
        second = words(SEED, 0, sample, FLIP + 1)[0] < 1 << 31
        first = flips(SEED, 0, sample)
        both.add((first, second))
        x = data()["image"][sample][:: -1 if second else 1, :: -1 if first else 1]
        same_bytes(image, x)
    assert len(both) == 4


def test_augmenting_combines_with_other_stages() -> None:
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    normalize = NormalizeImageTransform("image", mean=mean, std=std)
    one = MapTransform(lambda batch, mask: {**batch, "one": batch["image"] + 1})
    stages = [*AUGMENT, normalize, BatchTransform(BATCH, remainder="drop"), one]
    loader = loader_of(*stages)
    other = loader_of(normalize, *AUGMENT, BatchTransform(BATCH, remainder="drop"))
    state = loader.init_state(SEED)
    batches, _, _ = iterated(loader, state, 2 * STEPS - 2)
    # Without the padding of the crop, the order of the stages does not matter.
    inside = batches["mask"] != 0
    late = iterated(other, other.init_state(SEED), 2 * STEPS - 2)[0]
    same_bytes(batches["image"][inside], late["image"][inside])
    assert not late["image"][~inside].any()
    same_bytes(batches["one"], batches["image"] + np.float32(1))


@pytest.mark.parametrize(
    "stage", [RandomFlipTransform("image"), RandomCropTransform("image", 3)]
)
def test_a_sequential_epoch_differs_from_the_next(stage: Any) -> None:
    source = ArraySampleSource(data(), "sequential")
    plain = DataLoader([source, BatchTransform(BATCH)])
    assert not plain._built.depends_on_epoch
    loader = DataLoader([source, stage, BatchTransform(BATCH)])
    assert loader._built.depends_on_epoch
    state = loader.init_state(0)
    for _ in loader.iterate(state):
        pass
    with pytest.warns(UserWarning, match="same"):
        list(loader.iterate(state))
    first, second = np.split(iterated(loader, state, 2 * STEPS)[0]["image"], 2)
    assert not np.array_equal(first, second)


def test_only_the_engine_runs_them() -> None:
    for stage in AUGMENT:
        name = type(stage).__name__
        with pytest.raises(ValueError, match=f"traced=True .*stage 1, {name}"):
            loader_of(stage, BatchTransform(BATCH), traced=True)
        same = MapTransform(lambda batch, mask: batch)
        with pytest.raises(TypeError, match=f"stage 2, {name}, cannot run in XLA"):
            loader_of(same, stage, BatchTransform(BATCH))
    assert "native" in loader_of(AUGMENT[0], BatchTransform(BATCH)).explain()


def test_wrong_keys() -> None:
    for make in (RandomFlipTransform, lambda keys: RandomCropTransform(keys, 2)):
        with pytest.raises(KeyError, match=r"stage 1, Random.*unknown key 'x'"):
            loader_of(make("x"))
        with pytest.raises(TypeError, match=r'keys must be a str .* "image" .*not 3.5'):
            make(3.5)
        with pytest.raises(TypeError, match="keys must be a str"):
            make(["image", 3.5])
        with pytest.raises(ValueError, match="at least one"):
            make([])
        with pytest.raises(ValueError, match="keys must be different"):
            make(["image", "image"])


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_wrong_probabilities(probability: float) -> None:
    with pytest.raises(ValueError, match="probability must be from 0 to 1"):
        RandomFlipTransform("image", probability=probability)


def test_wrong_axes() -> None:
    with pytest.raises(ValueError, match=r"random_flip\(index\): axis 1 is out of"):
        loader_of(RandomFlipTransform("index"))
    with pytest.raises(ValueError, match=r"axis -4 is out of range for image"):
        loader_of(BatchTransform(BATCH), RandomFlipTransform("image", -4))
    with pytest.raises(ValueError, match=r"axis -2 is axis 1 of image.* axis 0 of mas"):
        loader_of(RandomFlipTransform(BOTH, -2))
    with pytest.raises(ValueError, match="axis must be a whole number"):
        RandomFlipTransform("image", 0.5)  # type: ignore[arg-type]


def test_wrong_sizes() -> None:
    for size in (0, -1, 2.5, (1, 2, 3), (3,), "33", True):
        with pytest.raises(ValueError, match="RandomCropTransform: size must be"):
            RandomCropTransform("image", size)  # type: ignore[arg-type]
    for padding in (-1, (0, -1), (1,)):
        with pytest.raises(ValueError, match="RandomCropTransform: padding must be"):
            RandomCropTransform("image", 1, padding)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"crop of 9 x 8 does not fit .* 8 x 7 with"):
        loader_of(RandomCropTransform("image", (9, 8), 1))
    with pytest.raises(ValueError, match=r"index: int32\(\) has 0 axes"):
        loader_of(RandomCropTransform("index", 1))


def test_images_of_different_sizes() -> None:
    small = {"image": np.zeros((4, 6, 5, 3)), "mask": np.zeros((4, 3, 5))}
    with pytest.raises(ValueError, match=r"'image' is 6 x 5, but 'mask' is 3 x 5"):
        DataLoader([ArraySampleSource(small), RandomCropTransform(BOTH, 2)])
    DataLoader([ArraySampleSource(small), RandomFlipTransform(BOTH)])
