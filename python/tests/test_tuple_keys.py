"""Positions as the keys of samples that are tuples, in every stage with keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import millstream as ms
import numpy as np
import pytest

N, BATCH = 10, 4
NAMES = ["x", "y"]


class Pair(NamedTuple):
    image: Any
    label: Any


def arrays() -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (N, 4, 6, 3), np.uint8)
    return images, np.arange(N, dtype=np.int32)


def samples(kind: str) -> Any:
    images, labels = arrays()
    if kind == "dict":
        return {"x": images, "y": labels}
    return {"list": [images, labels], "named": Pair(images, labels)}.get(
        kind, (images, labels)
    )


def same(value: Any, mask: Any) -> Any:
    return value


def batches(stage: Any, kind: str, traced: bool, after: bool) -> list[Any]:
    """The batches with a stage before or after BatchTransform, in the engine or XLA."""
    stages: list[Any] = [ms.BatchTransform(BATCH)]
    stages.insert(1 if after else 0, stage)
    if traced:
        stages.insert(0, ms.MapTransform(same))
    loader = ms.DataLoader([ms.ArraySampleSource(samples(kind)), *stages])
    return [batch for batch, _ in loader.run(seed=3, epochs=1)]


def as_dict(batch: Any) -> dict[str, Any]:
    return batch if isinstance(batch, dict) else dict(zip(NAMES, batch, strict=True))


STAGES = {
    "flatten": lambda x, y: ms.FlattenTransform(x, 1),
    "flatten_image": lambda x, y: ms.FlattenImageTransform(x),
    "normalize": lambda x, y: ms.NormalizeImageTransform(x, mean=0.5, std=[1, 2, 3]),
    "cast": lambda x, y: ms.CastTransform(y, np.float32),
}
AUGMENTED = {
    "flip": lambda x, y: ms.RandomFlipTransform(x),
    "crop": lambda x, y: ms.RandomCropTransform(x, 3, padding=1),
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("kind", ["tuple", "list", "named"])
@pytest.mark.parametrize("name", STAGES)
def test_positions_are_keys(name: str, kind: str, traced: bool, after: bool) -> None:
    found = batches(STAGES[name](0, 1), kind, traced, after)
    expected = batches(STAGES[name]("x", "y"), "dict", traced, after)
    assert len(found) == len(expected) == 3
    for batch, other in zip(found, expected, strict=True):
        assert type(batch) is type(samples(kind))
        jax.tree.map(np.testing.assert_array_equal, as_dict(batch), other)
        assert [leaf.dtype for leaf in batch] == [other[k].dtype for k in NAMES]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", AUGMENTED)
def test_positions_are_keys_of_augmentations(name: str, after: bool) -> None:
    found = batches(AUGMENTED[name](0, 1), "tuple", False, after)
    expected = batches(AUGMENTED[name]("x", "y"), "dict", False, after)
    for batch, other in zip(found, expected, strict=True):
        jax.tree.map(np.testing.assert_array_equal, as_dict(batch), other)


def test_several_positions_get_the_same_draw() -> None:
    images, _ = arrays()
    stage = ms.RandomFlipTransform([0, 1])
    source = ms.ArraySampleSource((images, images))
    loader = ms.DataLoader([source, stage, ms.BatchTransform(BATCH)])
    flipped = False
    for (one, other), _ in loader.run(seed=0, epochs=1):
        np.testing.assert_array_equal(one, other)
        flipped |= not all((images == row).all((1, 2, 3)).any() for row in one)
    assert flipped


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("kind", ["tuple", "list", "named"])
def test_renaming_all_positions_makes_dicts(
    kind: str, traced: bool, after: bool
) -> None:
    # The keys of the dicts are in another order than the positions.
    stage = ms.RenameTransform({0: "y", 1: "x"})
    found = batches(stage, kind, traced, after)
    plain = batches(ms.FlattenTransform("x", 4 if after else 3), "dict", False, after)
    for batch, other in zip(found, plain, strict=True):
        assert isinstance(batch, dict)
        np.testing.assert_array_equal(batch["x"], other["y"])
        np.testing.assert_array_equal(np.ravel(batch["y"]), np.ravel(other["x"]))


def test_a_renamed_tuple_has_keys_for_later_stages() -> None:
    images, labels = arrays()
    loader = ms.DataLoader(
        [
            ms.ArraySampleSource(((images, labels), labels), ordering="sequential"),
            ms.RenameTransform({0: "pair", 1: "z"}),
            ms.CastTransform("z", np.float32),
            ms.BatchTransform(N),
        ]
    )
    ((batch, _),) = loader.run(seed=0, epochs=1)
    np.testing.assert_array_equal(batch["pair"][0], images)
    assert batch["z"].dtype == np.float32


def test_time_series_in_tuples() -> None:
    series = np.arange(N * 5, dtype=np.float32).reshape(N, 5)
    labels = np.arange(N, dtype=np.int32)

    def only(value: Any, **options: Any) -> Any:
        key = "context" if isinstance(value, dict) else 0
        stage = ms.TimeSeriesBatchTransform(key, **options)
        source = ms.ArraySampleSource(value, ordering="sequential")
        loader = ms.DataLoader([source, ms.BatchTransform(N), stage])
        ((batch, mask),) = loader.run(seed=0, epochs=1)
        return batch, mask

    dicts = {"context": series, "label": labels}
    batch, _ = only((series, labels))
    np.testing.assert_array_equal(batch[0], only(dicts)[0]["context"])
    np.testing.assert_array_equal(batch[1], labels)

    expected, _ = only(dicts, mode="packed")
    batch, mask = only((series, labels), mode="packed", sequence_start_key=2)
    assert mask.shape == (N * 5,)
    np.testing.assert_array_equal(batch[0], expected["context"])
    np.testing.assert_array_equal(batch[2], expected["sequence_start"])
    with pytest.raises(TypeError, match=r"sequence_start_key: .* 0 to 2, not 'seq"):
        only((series, labels), mode="packed")
    with pytest.raises(KeyError, match=r"position 2 is out of range: expected 0 to 1"):
        only(Pair(series, labels), mode="packed", sequence_start_key=2)


@pytest.mark.parametrize(
    ("name", "traced"),
    [(name, False) for name in (*STAGES, *AUGMENTED)]
    + [(name, True) for name in STAGES],
)
def test_wrong_positions_and_keys(name: str, traced: bool) -> None:
    stages = {**STAGES, **AUGMENTED}
    for position in (2, -1):
        stage = stages[name](position, position)
        words = rf"Transform: position {position} is out of range: expected 0 to 1"
        with pytest.raises(KeyError, match=words):
            batches(stage, "tuple", traced, False)
    words = r"samples are tuples, whose keys are the positions 0 to 1, not 'x'"
    with pytest.raises(TypeError, match=words):
        batches(stages[name]("x", "x"), "tuple", traced, False)
    with pytest.raises(KeyError, match=r"unknown key 0: expected one of \['x', 'y'\]"):
        batches(stages[name](0, 0), "dict", traced, False)


@pytest.mark.parametrize("traced", [False, True])
def test_wrong_renames(traced: bool) -> None:
    for renames, words in (
        ({0: "x"}, r"does not name all 2 values of a tuple"),
        ({0: "x", 1: "x"}, r"the same name"),
    ):
        with pytest.raises(ValueError, match=words):
            batches(ms.RenameTransform(renames), "tuple", traced, False)
    with pytest.raises(KeyError, match=r"position 2 is out of range"):
        batches(ms.RenameTransform({0: "x", 2: "y"}), "tuple", traced, False)


@pytest.mark.parametrize("key", [True, 1.5, None, [True], [None]])
def test_augmentations_refuse_other_kinds_of_keys(key: Any) -> None:
    with pytest.raises(TypeError, match="positions such as 0"):
        ms.RandomFlipTransform(key)
    with pytest.raises(TypeError, match="positions such as 0"):
        ms.RandomCropTransform(key, 2)


def test_a_value_that_is_not_one_array() -> None:
    images, labels = arrays()
    source = ms.ArraySampleSource((images, {"a": labels}))
    with pytest.raises(TypeError, match=r"1 is a dict, not one array"):
        ms.DataLoader([source, ms.FlattenTransform(1, 0), ms.BatchTransform(2)])
