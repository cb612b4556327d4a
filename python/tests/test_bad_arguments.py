"""Wrong arguments: errors name the stage, the argument, expected and found."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import rows_of

N = 11


def source(**more: Any) -> ms.ArraySampleSource:
    return ms.ArraySampleSource(rows_of(N), **more)


def wide() -> ms.ArraySampleSource:
    """Returns samples of a megabyte each that share the same memory."""
    return ms.ArraySampleSource(np.broadcast_to(np.zeros(2**20, np.uint8), (10, 2**20)))


def masked() -> Any:
    return np.ma.masked_array(np.arange(6.0), [0, 1, 0, 0, 1, 0])


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "draws": (
        lambda: ms.WithReplacement(2.5),  # type: ignore[arg-type]
        ValueError,
        "WithReplacement: num_samples must be a whole number of at least 1, not 2.5",
    ),
    "a draw": (
        lambda: ms.WithReplacement(True),
        ValueError,
        "WithReplacement: num_samples .* not True",
    ),
    "many draws": (
        lambda: ms.WithReplacement(1 << 70),
        ValueError,
        f"WithReplacement: num_samples must be at most {1 << 62}, not {1 << 70}",
    ),
    "weighted draws": (
        lambda: ms.Weighted(np.ones(N), 2.5),  # type: ignore[arg-type]
        ValueError,
        "Weighted: num_samples .* not 2.5",
    ),
    "scale": (
        lambda: ms.NormalizeImageTransform("x", scale="1"),  # type: ignore[arg-type]
        TypeError,
        "NormalizeImageTransform: scale must be a number, not '1'",
    ),
    "offset": (
        lambda: ms.NormalizeImageTransform("x", offset=np.zeros(3)),  # type: ignore[arg-type]
        TypeError,
        r"NormalizeImageTransform: offset must be a number, not array\(\[0",
    ),
    "axis": (
        lambda: ms.FlattenTransform("x", 1.5),  # type: ignore[arg-type]
        ValueError,
        "FlattenTransform: start_index must be a whole number .* not 1.5",
    ),
    "renames": (
        lambda: ms.RenameTransform("x"),  # type: ignore[arg-type]
        TypeError,
        "RenameTransform: renames must be a dict, .* not 'x'",
    ),
    "a new name": (
        lambda: ms.RenameTransform({"x": 3}),  # type: ignore[dict-item]
        TypeError,
        "RenameTransform: the new name of 'x' must be a str, not 3",
    ),
    "threads": (
        lambda: ms.DataLoader([source()], threads=10**12),
        ValueError,
        "threads must be at most 2147483647, not 1000000000000",
    ),
    "prefetch": (
        lambda: ms.DataLoader([source()], prefetch=10**12),
        ValueError,
        "prefetch must be at most 2147483647, not 1000000000000",
    ),
    "padded and dropped": (
        lambda: ms.BatchTransform(4, pad_last_batch=True, remainder="drop"),
        ValueError,
        "BatchTransform: pad_last_batch contradicts remainder='drop'",
    ),
    "padded and wrapped": (
        lambda: ms.BatchTransform(4, pad_last_batch=True, remainder="wrap"),
        ValueError,
        "BatchTransform: pad_last_batch contradicts remainder='wrap'",
    ),
    "parts that are flags": (
        lambda: source().split(True, True),
        TypeError,
        "a part must be a fraction or a number of samples, not True",
    ),
    "a part that is a name": (
        lambda: source().split("half"),  # type: ignore[arg-type]
        TypeError,
        "a part must be a number, not 'half'",
    ),
    "folds": (
        lambda: source().folds(2.5),  # type: ignore[arg-type]
        ValueError,
        "folds: count must be a whole number of at least 0, not 2.5",
    ),
    "drop_last": (
        lambda: ms.BatchTransform(4, drop_last="no"),  # type: ignore[arg-type]
        TypeError,
        "BatchTransform: drop_last must be True or False, not 'no'",
    ),
    "a number for pad_last_batch": (
        lambda: ms.BatchTransform(4, pad_last_batch=0),  # type: ignore[arg-type]
        TypeError,
        "BatchTransform: pad_last_batch must be True or False, not 0",
    ),
    "a shuffled split": (
        lambda: source().split(0.5, 0.5, shuffle="no"),  # type: ignore[arg-type]
        TypeError,
        "split: shuffle must be True or False, not 'no'",
    ),
    "batches beyond the memory": (
        lambda: ms.DataLoader([wide(), ms.BatchTransform(2**31)]),
        ValueError,
        "batches of 2147483648 samples take .* GB each, and 4 of them .* do not fit "
        "in the .* of memory of this machine: use smaller batches or a smaller",
    ),
    "batches to make ahead beyond the memory": (
        lambda: ms.DataLoader([wide(), ms.BatchTransform(2**14)], prefetch=2**16),
        ValueError,
        "65538 of them",
    ),
    "a batch beyond the memory": (
        lambda: ms.DataLoader([wide(), ms.BatchTransform(2**31)], prefetch=0),
        ValueError,
        "2 of them .* use smaller batches$",
    ),
    "masked data": (
        lambda: ms.ArraySampleSource({"x": masked()}),
        ValueError,
        r"'x' is a masked array that hides 2 of its 6 elements, .*filled\(0\), and "
        r"np.ma.getmaskarray\(array\) as another field",
    ),
    "a masked sample": (
        lambda: ms.DatasetSource([{"x": masked()}]),
        ValueError,
        "'x' is a masked array that hides 2",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument(what: str) -> None:
    make, error, message = WRONG[what]
    with pytest.raises(error, match=message):
        make()


def test_a_later_masked_sample_is_an_error() -> None:
    plain, hides = np.zeros(6), masked()
    nothing = np.ma.masked_array(np.arange(6.0), False)
    dataset = ms.DatasetSource([plain, nothing, hides], ordering="sequential")
    loader = ms.DataLoader([dataset, ms.BatchTransform(1)])
    iterator = loader.iterate(loader.init_state(0))
    next(iterator)
    np.testing.assert_array_equal(next(iterator)[0][0], np.arange(6.0))
    with pytest.raises(ValueError, match="masked array that hides 2"):
        next(iterator)
    with pytest.raises(ValueError, match="masked array that hides 2"):
        ms.dataset_to_jax([plain, hides])


def test_a_mask_that_hides_nothing_is_accepted() -> None:
    given = np.ma.masked_array(np.arange(6.0), False)
    np.testing.assert_array_equal(ms.ArraySampleSource(given)[4], 4)


def test_drop_last_applies_without_a_remainder() -> None:
    assert ms.BatchTransform(4, True, True).remainder == "drop"
    assert ms.BatchTransform(4, pad_last_batch=True, remainder="pad").remainder == "pad"


class Ragged:
    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array([[1, 2], [3]])


def test_a_ragged_leaf_is_named() -> None:
    with pytest.raises(ValueError, match=r"'b' cannot be converted .*inhomogen"):
        ms.ArraySampleSource({"a": np.zeros(2), "b": Ragged()})


def two_of_one_name() -> dict[str, Any]:
    return {"a/b": np.arange(4), "a": {"b": np.arange(4)}}


ONE_NAME = r"{}: \['a'\]\['b'\] and \['a/b'\] are both named 'a/b'"


def test_leaves_with_the_same_name_are_an_error() -> None:
    with pytest.raises(ValueError, match=ONE_NAME.format("ArraySampleSource")):
        ms.ArraySampleSource(two_of_one_name())
    with pytest.raises(ValueError, match=ONE_NAME.format("DiskSampleSource")):
        ms.DiskSampleSource(
            length=4, sample_fn=lambda i: two_of_one_name(), ordering="sequential"
        )
    with pytest.raises(ValueError, match=ONE_NAME.format("PythonMapTransform")):
        ms.DataLoader([source(), ms.PythonMapTransform(lambda s: two_of_one_name())])
    apart = {"a/b": np.arange(4), "c": {"b": np.arange(4)}}
    with pytest.raises(ValueError, match=ONE_NAME.format("RenameTransform")):
        ms.DataLoader([ms.ArraySampleSource(apart), ms.RenameTransform({"c": "a"})])


def test_keys_that_are_numbers_can_be_renamed() -> None:
    data = {10: np.arange(4), 7: {"b": np.arange(4, 8)}}
    loader = ms.DataLoader(
        [
            ms.ArraySampleSource(data, "sequential"),
            ms.RenameTransform({10: "x", 7: "y"}),  # type: ignore[dict-item]
            ms.CastTransform("x", jnp.float32),
            ms.BatchTransform(4),
        ]
    )
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert batch["x"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert batch["y"]["b"].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("size", [144.0, np.float32(144), np.int16(144), 144])
def test_a_batch_size_that_is_whole(size: Any) -> None:
    batch = ms.BatchTransform(size)
    assert (batch.batch_size, type(batch.batch_size)) == (144, int)


@pytest.mark.parametrize("size", [144.5, True, 0.0, np.nan, np.inf, "144", None])
def test_a_batch_size_that_is_not_whole(size: Any) -> None:
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        ms.BatchTransform(size)


def test_numpy_integers() -> None:
    two: Any = np.int64(2)
    loader = ms.DataLoader(
        [source(), ms.BatchTransform(two)], threads=two, prefetch=two
    )
    state = loader.init_state(0)
    assert len(list(loader.iterate(state, steps=two))) == 2
    after, count, _ = loader.scan_epoch(
        state, 0, lambda c, b, m: (c + 1, None), steps=two
    )
    assert (after.step, int(count)) == (2, 2)
    assert [len(part) for part in source().split(two, np.uint8(5))] == [2, 5]
    assert len(source().folds(two)) == 2
    for order in (ms.WithReplacement(two), ms.Weighted(np.ones(N), two)):
        assert ms.DataLoader([source(ordering=order)]).steps_per_epoch == 2
    assert ms.Shuffle(window=two, block_size=two).window == 2
    mixture = ms.mix([source(), source()], num_samples=two)
    assert ms.DataLoader([mixture]).steps_per_epoch == 2


@pytest.mark.parametrize("seed", [7, -1, -5, (1 << 33) + 1])
def test_a_traced_seed_of_64_bits_keeps_its_high_word(seed: int) -> None:
    loader = ms.DataLoader([source(), ms.BatchTransform(4)])
    with jax.enable_x64(True):
        known = loader.init_state(seed)
        assert jax.jit(loader.init_state)(jnp.asarray(seed)) == known
        assert loader.init_state(jax.random.PRNGKey(seed)) == known


COMPOSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no batch": (
        lambda: ms.BatchTransform(20, drop_last=True)(source()),
        ValueError,
        "drop_last leaves no batch: batch_size is 20, but there are only 11 samples",
    ),
    "no batch of a part": (
        lambda: ms.BatchTransform(9, drop_last=True)(source().split(8, 3)[0]),
        ValueError,
        "drop_last leaves no batch: batch_size is 9, but there are only 8 samples",
    ),
    "no such key": (
        lambda: ms.NormalizeImageTransform("nope")(source()),
        KeyError,
        "NormalizeImageTransform: unknown key 'nope'",
    ),
    "no such axis": (
        lambda: ms.FlattenTransform("x", 5)(ms.BatchTransform(4)(source())),
        ValueError,
        "axis 4 is out of range",
    ),
    "two batches": (
        lambda: ms.BatchTransform(2)(ms.BatchTransform(4)(source())),
        ValueError,
        "stages 1 and 2 are both BatchTransform",
    ),
}


@pytest.mark.parametrize("what", COMPOSED)
def test_a_composed_pipeline_is_checked_as_it_is_built(what: str) -> None:
    make, error, message = COMPOSED[what]
    with pytest.raises(error, match=message):
        make()


def test_a_composed_pipeline_that_is_right() -> None:
    calls: list[int] = []

    def noted(batch: Any, mask: Any) -> Any:
        calls.append(1)
        return {**batch, "z": batch["x"]}

    weights = ms.Weighted(np.ones(N), 30)
    samples = ms.RenameTransform({"x": "v"})(source(ordering=weights))
    batches = ms.BatchTransform(20, drop_last=True)(samples)
    mapped = ms.MapTransform(noted)(ms.RenameTransform({"v": "x"})(batches))
    pipeline = ms.FlattenTransform("z")(mapped)
    assert calls == []  # the pipeline is traced only when it is used
    assert pipeline.steps_per_epoch == 1
    assert calls != []
