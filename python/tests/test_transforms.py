"""The stages, before and after batching, in the engine and in XLA."""

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
    DevicePutTransform,
    FlattenImageTransform,
    FlattenTransform,
    MapTransform,
    NormalizeImageTransform,
    RenameTransform,
)
from walks import iterated, same_bytes, same_walk, scanned, specified

N, BATCH, STEPS = 11, 4, 3


def images(dtype: Any = np.uint8) -> dict[str, np.ndarray]:
    values = (np.arange(N * 2 * 3 * 2) * 37 % 256).reshape(N, 2, 3, 2)
    return {"image": values.astype(dtype), "label": np.arange(N, dtype=np.int32)}


def nothing(batch: Any, mask: Any) -> Any:
    return batch


def check(data: Any, *stages: Any) -> tuple[Any, Any]:
    """Checks that stages give the same bytes in the engine and in XLA.

    It puts them before and after batching. Returns the batches and masks of both.
    """
    batch, trace = BatchTransform(BATCH), MapTransform(nothing)
    before = check_one(data, [*stages, batch], [trace, *stages, batch])
    after = check_one(data, [batch, *stages], [batch, trace, *stages])
    return before, after


def check_one(data: Any, native: list[Any], traced: list[Any]) -> Any:
    source = ArraySampleSource(data, "sequential")
    loader = DataLoader([source, *native])
    assert not loader._built.later
    state, steps = loader.init_state(1), 2 * STEPS
    walk = specified(loader, state, steps)
    same_walk(iterated(loader, state, steps), walk)
    same_walk(scanned(loader, state, steps), walk)
    same_walk(scanned(DataLoader([source, *native], traced=True), state, steps), walk)
    behind = DataLoader([source, *traced])
    assert behind._built.later
    same_walk(scanned(behind, state, steps), walk)
    for spec in (loader.element_spec(), behind.element_spec()):
        wanted = jax.tree.map(lambda x: (x.shape, x.dtype), spec)
        assert jax.tree.map(lambda x: (x.shape[1:], x.dtype), walk[0]) == wanted
    return walk[:2]


def samples(walk: Any, key: str = "image") -> dict[int, np.ndarray]:
    """Returns the value of a field for each label, without padding."""
    batches, masks = walk
    labels = batches["label"][masks]
    return dict(zip(labels.tolist(), batches[key][masks], strict=True))


NORMALIZED = {
    f"{dtype} {scale:.3f} {offset}": (jnp.dtype(dtype), scale, offset)
    for dtype in ("float16", "bfloat16", "float32")
    for scale, offset in [(1 / 255, 0.0), (2 / 255, -1.0), (1.0, 0.5), (1.0, 0.0)]
}


@pytest.mark.parametrize("given", [np.uint8, np.float32, np.int64])
def test_normalize_is_the_same_in_the_engine_and_in_xla(given: Any) -> None:
    raw = images(given)["image"] * np.array(1 if given is np.uint8 else -3, given)
    data = {"label": np.arange(N), **dict.fromkeys(NORMALIZED, raw)}
    stages = [
        NormalizeImageTransform(name, dtype, scale, offset)
        for name, (dtype, scale, offset) in NORMALIZED.items()
    ]
    before, after = check(data, *stages)
    for name, (dtype, scale, offset) in NORMALIZED.items():
        for walk in (before, after):
            for label, image in samples(walk, name).items():
                wanted = raw[label].astype(dtype) * dtype.type(scale)
                wanted = (wanted + dtype.type(offset)).astype(dtype)
                assert image.dtype == dtype
                assert np.array_equal(image, wanted), name
        # BatchTransform makes padding zero. Later stages transform it.
        assert not before[0][name][~before[1]].any()
        assert (after[0][name][~after[1]] == dtype.type(offset)).all()


def test_a_product_is_rounded_before_a_sum_of_the_user() -> None:
    def plus(batch: Any, mask: Any) -> Any:
        return {**batch, "image": batch["image"] - 1}

    stages = [BatchTransform(BATCH), NormalizeImageTransform(), MapTransform(plus)]
    native = DataLoader([ArraySampleSource(images()), *stages])
    traced = DataLoader([ArraySampleSource(images()), *stages], traced=True)
    state = native.init_state(0)
    same_walk(scanned(traced, state, STEPS), scanned(native, state, STEPS))


CASTS = [
    (np.uint8, "float32"),
    (np.uint8, "bfloat16"),
    (np.float32, "float16"),
    (np.float32, "bfloat16"),
    (np.float32, "int32"),
    (np.int32, "uint8"),
    (np.int64, "int16"),
    (np.uint8, "bool"),
    (np.bool_, "float32"),
    (np.float16, "float32"),
    (np.int8, "int32"),
]


def test_cast_is_the_same_in_the_engine_and_in_xla() -> None:
    named = {f"{np.dtype(a)} {b}": (a, jnp.dtype(b)) for a, b in CASTS}
    data = {key: images(given)["image"] for key, (given, _) in named.items()}
    stages = [CastTransform(key, wanted) for key, (_, wanted) in named.items()]
    before, after = check({"label": np.arange(N), **data}, *stages)
    for key, (_, wanted) in named.items():
        for walk in (before, after):
            for label, image in samples(walk, key).items():
                assert image.dtype == wanted
                assert np.array_equal(image, data[key][label].astype(wanted)), key


def test_a_float_rounds_to_even_when_cast_down() -> None:
    exact = np.array([1 + 2**-9, 1 + 3 * 2**-9, 65519, 65520, np.inf, -np.inf, -0.0])
    exact = exact.astype(np.float32)
    rows = np.tile(exact, (N, 1))
    data = {"float16": rows, "bfloat16": rows, "label": np.arange(N)}
    stages = [CastTransform(key, jnp.dtype(key)) for key in ("float16", "bfloat16")]
    before, _ = check(data, *stages)
    for key in ("float16", "bfloat16"):
        with np.errstate(over="ignore"):
            wanted = exact.astype(jnp.dtype(key))
        for image in samples(before, key).values():
            assert image.tobytes() == wanted.tobytes()


def test_nan_stays_nan() -> None:
    data = {"image": np.full((N, 2), np.nan, np.float32)}
    for dtype in (jnp.float16, jnp.bfloat16, jnp.float32):
        for traced in (False, True):
            stages = [
                BatchTransform(N),
                NormalizeImageTransform("image", dtype, 0.5, 1),
            ]
            loader = DataLoader([ArraySampleSource(data), *stages], traced=traced)
            batch, _ = next(loader.iterate(loader.init_state(0)))
            assert np.isnan(np.asarray(batch["image"]).astype(np.float32)).all()


def test_flatten_before_and_after_batching() -> None:
    for walk in check(images(), FlattenImageTransform()):
        assert walk[0]["image"].shape[2:] == (12,)
        for label, image in samples(walk).items():
            assert np.array_equal(image, images()["image"][label].reshape(-1))


@pytest.mark.parametrize(
    ("start", "before", "after"),
    [
        (1, (2, 6), (12,)),
        (2, (2, 3, 2), (2, 6)),
        (3, (2, 3, 2, 1), (2, 3, 2)),
        (0, (12,), None),
    ],
)
def test_flatten_counts_axes_of_its_input(start: int, before: Any, after: Any) -> None:
    source, stage = ArraySampleSource(images()), FlattenTransform("image", start)
    early = DataLoader([source, stage, BatchTransform(BATCH)])
    assert early.element_spec()["image"].shape == (BATCH, *before)
    if after is None:
        with pytest.raises(ValueError, match=r"start_index 0.*axis of the batch"):
            DataLoader([source, BatchTransform(BATCH), stage])
    else:
        late = DataLoader([source, BatchTransform(BATCH), stage])
        assert late.element_spec()["image"].shape == (BATCH, *after)
        assert late.next_batch(late.init_state(0))[0]["image"].shape == (BATCH, *after)


def test_rename_moves_keys_and_their_values() -> None:
    data = {"a": {"b": np.arange(N), "c": np.ones((N, 2))}, "d": np.arange(N) * 2}
    loader = DataLoader(
        [
            ArraySampleSource(data),
            RenameTransform({"a": "image", "d": "a"}),
            BatchTransform(BATCH),
            CastTransform("a", jnp.float32),
        ]
    )
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert set(batch) == {"image", "a"}
    assert batch["a"].dtype == jnp.float32
    assert np.array_equal(batch["a"], 2 * batch["image"]["b"])
    assert loader.element_spec()["image"]["c"].shape == (BATCH, 2)
    before, after = check(images(), RenameTransform({"label": "y"}))
    same_bytes(before, after)
    assert set(before[0]) == {"image", "y"}


def test_several_stages() -> None:
    stages = (
        NormalizeImageTransform(scale=1 / 128, offset=-1.0),
        FlattenImageTransform(),
        RenameTransform({"image": "x", "label": "image"}),
        CastTransform("image", jnp.int8),
        RenameTransform({"image": "label", "x": "image"}),
    )
    before, _ = check(images(), *stages)
    for label, image in samples(before).items():
        wanted = images()["image"][label].reshape(-1).astype(np.float32) / 128 - 1
        assert np.array_equal(image, wanted)


def test_a_map_before_batching_is_vmapped() -> None:
    seen: list[Any] = []

    def double(sample: Any, mask: Any) -> Any:
        seen.append((sample["image"].shape, mask.shape))
        return {
            "twice": sample["image"].astype(jnp.int32) * 2,
            "label": sample["label"],
        }

    loader = DataLoader(
        [ArraySampleSource(images()), MapTransform(double), BatchTransform(BATCH)]
    )
    assert set(seen) == {((2, 3, 2), ())}
    assert loader.element_spec()["twice"].shape == (BATCH, 2, 3, 2)
    batches, masks, _ = iterated(loader, loader.init_state(0), STEPS)
    for label, image in zip(
        batches["label"][masks], batches["twice"][masks], strict=True
    ):
        assert np.array_equal(image, images()["image"][label].astype(np.int32) * 2)
    assert not batches["twice"][~masks].any()


def test_a_map_after_batching_sees_the_batch_and_its_mask() -> None:
    def count(batch: Any, mask: Any) -> Any:
        return {
            "rows": mask.sum(),
            "image": batch["image"] + (~mask)[:, None, None, None],
        }

    loader = DataLoader(
        [ArraySampleSource(images()), BatchTransform(BATCH), MapTransform(count)]
    )
    batches, masks, _ = iterated(loader, loader.init_state(0), STEPS)
    assert batches["rows"].tolist() == [4, 4, 3]
    assert (batches["image"][~masks] == 1).all()
    same_walk(
        scanned(loader, loader.init_state(0), STEPS),
        iterated(loader, loader.init_state(0), STEPS),
    )


def test_padding_after_a_traced_stage_before_batching_is_zero() -> None:
    def plus_one(sample: Any, mask: Any) -> Any:
        return {**sample, "image": sample["image"] + 1}

    stages = [MapTransform(plus_one), BatchTransform(BATCH), NormalizeImageTransform()]
    loader = DataLoader([ArraySampleSource(images()), *stages])
    batches, masks, _ = scanned(loader, loader.init_state(0), STEPS)
    assert masks.sum() == N
    assert not batches["image"][~masks].any()


def test_pipelines_are_sources() -> None:
    source = ArraySampleSource(images(), "sequential")
    pipeline = NormalizeImageTransform(scale=1.0)(BatchTransform(BATCH)(source))
    assert pipeline.steps_per_epoch == STEPS
    assert pipeline.element_spec()["image"].dtype == jnp.float32
    state = pipeline.init_state(jax.random.key(0))
    labels = []
    step = jax.jit(pipeline.next)
    for _ in range(STEPS):
        batch, mask, again = pipeline.next(state)
        value, valid, state = step(state)
        assert again == state
        same_bytes((value, valid), (batch, mask))
        labels += np.asarray(batch["label"])[np.asarray(mask)].tolist()
    assert labels == list(range(N))
    loader = DataLoader(pipeline)
    assert loader.init_state(0) == pipeline.init_state(0)
    assert loader.next is loader.next_batch
    assert "BatchTransform" in repr(pipeline)


def test_pipelines_without_batching_deliver_samples() -> None:
    source = ArraySampleSource(images())
    for pipeline in (
        source,
        NormalizeImageTransform()(source),
        MapTransform(nothing)(source),
    ):
        assert pipeline.steps_per_epoch == N
        assert pipeline.element_spec()["image"].shape == (2, 3, 2)
        state = pipeline.init_state(3)
        labels = []
        for _ in range(N):
            value, mask, state = pipeline.next(state)
            assert value["image"].shape == (2, 3, 2)
            assert mask.shape == ()
            assert bool(mask)
            labels.append(int(value["label"]))
        assert sorted(labels) == list(range(N))
        assert (state.epoch, state.step) == (1, 0)
        loader = DataLoader(pipeline)
        walk = iterated(loader, loader.init_state(3), 2 * N)
        assert walk[0]["label"][:N].tolist() == labels
        same_walk(scanned(loader, loader.init_state(3), 2 * N), walk)
        traced = DataLoader(pipeline, traced=True)
        same_walk(scanned(traced, loader.init_state(3), 2 * N), walk)


def test_explain_shows_where_each_stage_runs_and_its_fields() -> None:
    loader = DataLoader(
        [
            ArraySampleSource({**images(), "wide": np.arange(N)}),
            NormalizeImageTransform(),
            BatchTransform(BATCH, drop_last=True),
            FlattenImageTransform(),
            MapTransform(lambda b, m: {**b, "label": b["label"] + 1.0}),
            DevicePutTransform(),
        ],
        threads=2,
    )
    text = loader.explain()
    lines = {line.split()[0].split("(")[0]: line for line in text.splitlines()}
    assert "Shuffle" in lines["order:"]
    assert f"{N} samples" in lines["order:"]
    assert "native" in lines["ArraySampleSource"]
    assert "image: uint8[2, 3, 2]" in lines["ArraySampleSource"]
    assert "wide: int32[]" in lines["ArraySampleSource"]
    assert "native" in lines["NormalizeImageTransform"]
    assert "image: float32[2, 3, 2]" in lines["NormalizeImageTransform"]
    assert "BatchTransform(4, drop)" in text
    assert "image: float32[4, 12]" in lines["FlattenImageTransform"]
    assert "XLA" in lines["MapTransform"]
    assert "label: float32[4]" in lines["MapTransform"]
    assert "DevicePutTransform" in lines
    assert "2 steps an epoch" in text
    traced = DataLoader([ArraySampleSource(images()), BatchTransform(2)], traced=True)
    assert "native" not in traced.explain()
