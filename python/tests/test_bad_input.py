"""Wrong input is an error when the pipeline is built."""

from __future__ import annotations

import functools
import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataLoader,
    DevicePutTransform,
    FlattenImageTransform,
    FlattenTransform,
    Listed,
    MapTransform,
    NormalizeImageTransform,
    RenameTransform,
    Weighted,
    WithReplacement,
)

N = 11


def source(data: Any = None, **more: Any) -> ArraySampleSource:
    return ArraySampleSource(rows_of(N) if data is None else data, **more)


BAD_DATA = [
    (
        {"image": np.zeros((3, 2)), "label": np.zeros(4)},
        ValueError,
        "share the leading dimension: 'image' has 3 rows, 'label' has 4",
    ),
    ((np.zeros(3), {"a": np.zeros(5)}), ValueError, "'0' has 3 rows, '1/a' has 5"),
    ({}, ValueError, "ArraySampleSource: data contains no arrays"),
    (None, ValueError, "no arrays"),
    ([], ValueError, "no arrays"),
    ({"x": np.zeros((0, 3))}, ValueError, "'x' is empty: it has 0 rows"),
    (np.zeros(0), ValueError, "'value' is empty: it has 0 rows"),
    ({"x": np.array([1, None])}, TypeError, "'x' is an array of object"),
    ({"x": np.array(["a", "b"])}, TypeError, "'x' is an array of <U1"),
    ({"x": np.array([b"a"])}, TypeError, r"'x' is an array of \|S1"),
    ({"x": np.array(["2020-01-01"], "M8[D]")}, TypeError, "datetime64"),
    ({"x": np.array([1], "m8[s]")}, TypeError, "timedelta64"),
    ({"x": np.zeros(3, [("a", "i4")])}, TypeError, "'x' is an array of"),
    ({"x": "text"}, TypeError, "'x' is an array of <U4"),
    ({"x": np.float32(1)}, ValueError, "'x' is a scalar"),
    ({"x": 7}, ValueError, "'x' is a scalar"),
    ({"x": {1, 2}}, TypeError, "'x' is an array of object"),
    (
        {"k": functools.partial(jax.random.split, num=3)},
        TypeError,
        "'k' is an array of object",
    ),
]


@pytest.mark.parametrize(("data", "error", "message"), BAD_DATA)
def test_bad_data(data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ArraySampleSource(data)


def test_typed_keys_are_an_error() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    with pytest.raises(TypeError, match=r"'keys' is .* typed JAX keys.*key_data"):
        ArraySampleSource({"keys": keys})


def test_longdouble_is_named() -> None:
    with pytest.raises(TypeError, match=r"'x' is an array of (longdouble|float128)"):
        ArraySampleSource({"x": np.zeros(3, np.longdouble)})
    with pytest.raises(TypeError, match="'x' is an array of float8_e5m2"):
        ArraySampleSource({"x": jnp.zeros(3, jnp.float8_e5m2)})


@pytest.mark.parametrize("ordering", ["shuffel", "", "random", None, 7, [1, 2]])
def test_unknown_ordering(ordering: Any) -> None:
    with pytest.raises(
        ValueError, match=r"unknown ordering .*'shuffle', 'sequential'"
    ) as e:
        source(ordering=ordering)
    assert repr(ordering) in str(e.value)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "4", None])
def test_bad_batch_size(size: Any) -> None:
    with pytest.raises(
        ValueError, match=r"BatchTransform: batch_size.*at least 1"
    ) as e:
        BatchTransform(size)
    assert repr(size) in str(e.value)


def test_a_numpy_batch_size_is_accepted() -> None:
    assert BatchTransform(np.int64(4)).batch_size == 4  # type: ignore[arg-type]


def test_drop_last_with_too_few_samples() -> None:
    with pytest.raises(ValueError, match=r"11.*12|12.*11"):
        DataLoader([source(), BatchTransform(12, drop_last=True)])
    assert (
        DataLoader([source(), BatchTransform(11, drop_last=True)]).steps_per_epoch == 1
    )


def test_bad_remainder() -> None:
    with pytest.raises(
        ValueError, match=r"remainder must be one of .*'wrap'.*not 'rest'"
    ):
        BatchTransform(4, remainder="rest")
    with pytest.raises(ValueError, match="drop_last contradicts remainder='wrap'"):
        BatchTransform(4, drop_last=True, remainder="wrap")


KEYED = [
    (NormalizeImageTransform(), "NormalizeImageTransform.*'image'"),
    (NormalizeImageTransform("z"), "NormalizeImageTransform.*'z'"),
    (FlattenImageTransform(), "FlattenImageTransform.*'image'"),
    (FlattenTransform("w"), "FlattenTransform.*'w'"),
    (CastTransform("v", jnp.float32), "CastTransform.*'v'"),
    (RenameTransform({"u": "x"}), "RenameTransform.*'u'"),
]


@pytest.mark.parametrize(("stage", "message"), KEYED)
@pytest.mark.parametrize("traced", [False, True])
def test_a_missing_key(stage: Any, message: str, traced: bool) -> None:
    before = [MapTransform(lambda b, m: b)] if traced else []
    for stages in ([stage, BatchTransform(4)], [BatchTransform(4), stage]):
        with pytest.raises(KeyError, match=rf"{message}.*\['x', 'y'\]"):
            DataLoader([source(), *before, *stages])


@pytest.mark.parametrize(("stage", "message"), KEYED)
def test_samples_that_are_not_dicts(stage: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"{type(stage).__name__}: samples are tuples"):
        DataLoader([source((np.arange(3), np.arange(3))), stage])


def test_a_key_with_several_arrays_under_it() -> None:
    data = {"image": {"left": np.zeros(3), "right": np.zeros(3)}}
    with pytest.raises(TypeError, match="NormalizeImageTransform: 'image' is a dict"):
        DataLoader([source(data), NormalizeImageTransform()])


def test_renames_that_collide() -> None:
    with pytest.raises(ValueError, match=r"RenameTransform: .*'x': 'y'.* same name"):
        DataLoader([source(), RenameTransform({"x": "y"})])


def test_flatten_out_of_rank() -> None:
    with pytest.raises(ValueError, match=r"3"):
        DataLoader([source(), FlattenTransform("x", 3), BatchTransform(4)])
    with pytest.raises(ValueError, match=r"FlattenTransform\('x'\).*3.*\(4, 3\)"):
        DataLoader(
            [
                source(),
                BatchTransform(4),
                MapTransform(lambda b, m: b),
                FlattenTransform("x", 3),
            ]
        )


def test_a_scale_needs_a_floating_dtype() -> None:
    with pytest.raises(ValueError, match=r"scale of 0.5.*offset of 0.*not int32"):
        NormalizeImageTransform("x", jnp.int32, 0.5)


BAD_PIPELINES = [
    ([], ValueError, "at least a source, but this list is empty"),
    ({}, TypeError, "a list of a source and stages, not dict"),
    ("source", TypeError, "not str"),
    (7, TypeError, "not int"),
    (None, TypeError, "not NoneType"),
    ([BatchTransform(4)], TypeError, "begin with a source.*entry 0 is BatchTransform"),
    ([{"x": np.zeros(3)}, {}], TypeError, "entry 0 is a dict"),
    ([ArraySampleSource], TypeError, "the class ArraySampleSource .did you forget"),
]


@pytest.mark.parametrize(("pipeline", "error", "message"), BAD_PIPELINES)
def test_a_bad_pipeline(pipeline: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DataLoader(pipeline)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (7, "entry 2 of the pipeline must be a stage.* 7 of type int"),
        (None, "entry 2 .*None of type NoneType"),
        ("batch", "entry 2 .*'batch' of type str"),
        (BatchTransform, "entry 2 .*class BatchTransform .did you forget to call it"),
        (lambda source: 7, "entry 2 .* returned 7 of type int"),
        (ArraySampleSource(np.arange(3)), "entry 2 of the pipeline must be a stage"),
    ],
)
def test_a_stage_that_is_not_a_stage(stage: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DataLoader([source(), MapTransform(lambda b, m: b), stage])


def test_a_user_defined_stage_makes_a_source() -> None:
    loader = DataLoader([source(), lambda inner: BatchTransform(2)(inner)])
    assert loader.element_spec()["x"].shape == (2, 3)
    with pytest.raises(TypeError, match=r"BatchTransform needs a source .*, not dict"):
        BatchTransform(4)({"x": 1})  # type: ignore[arg-type]


def test_batching_twice() -> None:
    stages = [BatchTransform(4), MapTransform(lambda b, m: b), BatchTransform(2)]
    with pytest.raises(ValueError, match=r"stages 1 and 3 .*BatchTransform.*4 and 2"):
        DataLoader([source(), *stages])


def test_arguments_that_are_not_functions() -> None:
    with pytest.raises(TypeError, match="MapTransform needs a function, not 7"):
        MapTransform(7)  # type: ignore[arg-type]


def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="no platform 'tpux'"):
        DevicePutTransform("tpux")
    with pytest.raises(ValueError, match="index 99 is out of range"):
        source(storage_device="cpu:99")


@pytest.mark.parametrize("name", ["threads", "prefetch"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2"])
def test_bad_loader_options(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number") as caught:
        DataLoader([source(), BatchTransform(4)], **{name: value})
    assert repr(value) in str(caught.value)


def test_no_threads_at_all() -> None:
    with pytest.raises(ValueError, match=r"threads .* at least 1, not 0"):
        DataLoader([source(), BatchTransform(4)], threads=0)


BAD_ORDERS = [
    (lambda: Weighted(np.ones(5)), "5 weights for 11 samples"),
    (lambda: Weighted(np.ones((2, 2))), r"a vector; found shape \(2, 2\)"),
    (lambda: Weighted(np.zeros(N)), "weight"),
    (lambda: Weighted(-np.ones(N)), "weight.*-1"),
    (lambda: Weighted([np.nan] * N), "weight.*nan"),
    (lambda: Weighted(np.ones(N), 0), "0"),
    (lambda: WithReplacement(0), "0"),
    (lambda: WithReplacement(-3), "-3"),
    (lambda: Listed([]), r"at least one integer; found float64\[0\]"),
    (lambda: Listed([0.5]), "found float64"),
    (lambda: Listed([[[1]]]), r"found int64\[1, 1, 1\]"),
    (lambda: Listed([0, N]), "11"),
    (lambda: Listed([-1]), "-1"),
]


@pytest.mark.parametrize(("make", "message"), BAD_ORDERS)
def test_bad_orders(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source(ordering=make())


@pytest.mark.parametrize(
    "parts", [(), (0.5, 0.6), (-0.1, 0.5), (5, 7), (0, 3), (0.01, 0.5)]
)
def test_bad_splits(parts: Any) -> None:
    with pytest.raises(ValueError, match=r"part|fraction"):
        source().split(*parts)


@pytest.mark.parametrize("count", [0, 1, N + 1])
def test_bad_folds(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} folds .* {N} samples"):
        source().folds(count)


def test_a_closed_iterator() -> None:
    loader = DataLoader([source(), BatchTransform(4)])
    iterator = loader.iterate(loader.init_state(0))
    next(iterator)
    iterator.close()
    iterator.close()
    assert iterator.state.step == 1
    with pytest.raises(ValueError, match="iterator is closed"):
        next(iterator)


def test_a_finished_iterator_stays_finished() -> None:
    loader = DataLoader([source(), BatchTransform(4)])
    iterator = loader.iterate(loader.init_state(0))
    assert len(list(iterator)) == 3
    assert list(iterator) == []
    iterator.close()
    assert list(iterator) == []


def left_behind() -> tuple[Any, Any]:
    """Returns a compiled step whose loader is deleted, and a state for it."""
    loader = DataLoader([source(), BatchTransform(4)])
    state = loader.init_state(0)
    compiled = jax.jit(loader.next_batch).lower(state).compile()
    jax.block_until_ready(compiled(state))
    return compiled, state


def test_a_program_whose_loader_is_deleted() -> None:
    compiled, state = left_behind()
    gc.collect()
    jax.clear_caches()
    gc.collect()
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"DataLoader .* is gone: keep"
    ):
        jax.block_until_ready(compiled(state))


def test_an_iterator_keeps_its_loader_alive() -> None:
    loader = DataLoader([source(), BatchTransform(4)])
    iterator = loader.iterate(loader.init_state(0), steps=9)
    step = jax.jit(loader.next_batch)
    state = loader.init_state(0)
    del loader
    gc.collect()
    assert len(list(iterator)) == 9
    jax.block_until_ready(step(state))


@pytest.mark.parametrize("kind", ["batch", "map"])
def test_a_wrong_spec_is_an_error_when_the_pipeline_is_built(kind):
    data = {"x": np.zeros((10, 3), np.float32)}
    right = {"x": jax.ShapeDtypeStruct((4, 3), np.float32)}
    wrong = {"x": jax.ShapeDtypeStruct((4, 5), np.float32)}

    def build(spec):
        if kind == "batch":
            stages = [BatchTransform(4, element_spec_override=spec)]
        else:
            same = MapTransform(lambda b, m: b, element_spec_override=spec)
            stages = [BatchTransform(4), same]
        return DataLoader([ArraySampleSource(data), *stages])

    assert build(right).element_spec() == right
    with pytest.raises(
        ValueError, match=r"float32\[4, 3\] for .*; expected float32\[4, 5\]"
    ):
        build(wrong)
