"""Sources of functions: all ways of delivery agree, and errors are clear."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import worker_functions as fns
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    DatasetSource,
    DiskSampleSource,
    MapTransform,
    PythonMapTransform,
    Shuffle,
    Subset,
    concatenate,
    zip_sources,
)
from walks import (
    indexed,
    iterated,
    jitted,
    same_bytes,
    same_walk,
    scanned,
    specified,
    stepped,
)

N, BATCH = 37, 8
KINDS = ["thread", "process"]


def arrays_of(fn: Any, n: int) -> Any:
    """Returns all samples as arrays in memory, in JAX's dtypes."""

    def stacked(*leaves: Any) -> np.ndarray:
        whole = np.stack([np.asarray(leaf) for leaf in leaves])
        return whole.astype(jax.dtypes.canonicalize_dtype(whole.dtype))

    return jax.tree.map(stacked, *[fn(i) for i in range(n)])


@functools.cache
def made(kind: str, workers: int) -> DataLoader:
    """Returns a loader that several tests share, because workers start slowly."""
    source = DiskSampleSource(N, fns.plain, workers=workers, worker_kind=kind)
    return DataLoader([source, BatchTransform(BATCH)])


@pytest.fixture(scope="module", autouse=True)
def _workers_end_with_the_module() -> Iterator[None]:
    yield
    made.cache_clear()


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_every_delivery_gives_the_bytes_of_the_plan(kind: str, workers: int) -> None:
    loader = made(kind, workers)
    state = loader.init_state(3)
    steps = 2 * loader.steps_per_epoch + 2
    expected = indexed(loader, arrays_of(fns.plain, N), state, steps)
    memory = DataLoader(
        [ArraySampleSource(arrays_of(fns.plain, N)), BatchTransform(BATCH)]
    )
    same_walk(iterated(memory, memory.init_state(3), steps), expected)
    same_walk(specified(loader, state, steps), expected)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(stepped(loader, state, steps), expected)
    same_walk(jitted(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_any_step_resumes(kind: str) -> None:
    loader = made(kind, 2)
    state = loader.init_state(5)
    steps = 2 * loader.steps_per_epoch
    batches, masks, words = specified(loader, state, steps)
    jit = jax.jit(loader.next_batch)
    for step in reversed(range(steps - 1)):
        rest = jax.tree.map(lambda x, k=step: x[k + 1 : k + 3], (batches, masks))
        count = len(rest[1])
        same_bytes(iterated(loader, words[step], count)[:2], rest)
        batch, _, mask = jit(words[step])
        same_bytes((batch, mask), jax.tree.map(lambda x: x[0], rest))
    after, _, _ = loader.scan_epoch(words[2], 0, lambda c, b, m: (c, None), steps=1)
    same_bytes(np.asarray(after.words), words[3])


@pytest.mark.parametrize("prefetch", [0, 1, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_prefetch_changes_nothing(kind: str, prefetch: int) -> None:
    source = made(kind, 2)._built.head
    loader = DataLoader([source, BatchTransform(BATCH)], prefetch=prefetch)
    state = loader.init_state(1)
    expected = specified(loader, state, 12)
    same_walk(iterated(loader, state, 12), expected)
    same_walk(jitted(loader, state, 6), jax.tree.map(lambda x: x[:6], expected))


def test_batches_from_slots() -> None:
    for kind in KINDS:
        source = DiskSampleSource(900, fns.wide, workers=2, worker_kind=kind)
        loader = DataLoader([source, BatchTransform(300)])
        assert loader._built.engine.batch_bytes > 1 << 20
        state = loader.init_state(0)
        expected = indexed(loader, arrays_of(fns.wide, 900), state, 4)
        same_walk(specified(loader, state, 4), expected)
        same_walk(iterated(loader, state, 4), expected)
        same_walk(scanned(loader, state, 4), expected)


# The fields of samples.

TREES = [
    fns.as_pair,
    fns.as_tuple,
    fns.as_nested,
    fns.as_scalar,
    fns.as_int,
]


@pytest.mark.parametrize("fn", TREES)
def test_samples_are_trees_of_any_kind(fn: Any) -> None:
    data = arrays_of(fn, 11)
    for spec in (None, spec_of(fn)):
        source = DiskSampleSource(11, fn, spec, workers=2)
        loader = DataLoader([source, BatchTransform(4)])
        state = loader.init_state(0)
        expected = indexed(loader, data, state, 4)
        same_walk(iterated(loader, state, 4), expected)
        same_walk(jitted(loader, state, 4), expected)
        same_bytes(source[-1], jax.tree.map(lambda x: x[10], data))


def test_processes_preserve_the_structure() -> None:
    source = DiskSampleSource(11, fns.every_tree, worker_kind="process")
    loader = DataLoader([source, BatchTransform(4)])
    state = loader.init_state(0)
    expected = indexed(loader, arrays_of(fns.every_tree, 11), state, 4)
    same_walk(iterated(loader, state, 4), expected)


def spec_of(fn: Any) -> Any:
    def spec(x: Any) -> jax.ShapeDtypeStruct:
        value = np.asarray(x)
        return jax.ShapeDtypeStruct(value.shape, value.dtype)

    return jax.tree.map(spec, fn(0))


def test_dtypes_follow_jax() -> None:
    source = DiskSampleSource(9, fns.all_dtypes, None, "sequential")
    loader = DataLoader([source, BatchTransform(9)])
    found = {k: v.dtype.name for k, v in loader.element_spec().items()}
    assert found == {
        "int": "int32",
        "float": "float32",
        "bool": "bool",
        "int64": "int32",
        "uint64": "uint32",
        "float64": "float32",
        "float16": "float16",
        "bfloat16": "bfloat16",
        "int8": "int8",
        "empty": "float32",
        "complex": "complex64",
    }
    state = loader.init_state(0)
    expected = indexed(loader, arrays_of(fns.all_dtypes, 9), state, 2)
    same_walk(iterated(loader, state, 2), expected)
    same_walk(scanned(loader, state, 2), expected)


def test_a_spec_narrows_and_widens() -> None:
    def fn(i: int) -> dict[str, Any]:
        return {"a": np.int64(i), "b": i, "c": np.float64(i / 3), "d": i % 2 == 1}

    shape = jax.ShapeDtypeStruct
    spec = {
        "a": shape((), np.uint8),
        "b": shape((), np.float32),
        "c": shape((), ml_dtypes.bfloat16),
        "d": shape((), np.int32),
    }
    source = DiskSampleSource(300, fn, spec, "sequential")
    loader = DataLoader([source, BatchTransform(256)])
    state = loader.init_state(0)
    batch, state, _ = loader.next_batch(state)
    assert np.array_equal(batch["a"], np.arange(256))
    assert np.array_equal(batch["b"], np.arange(256, dtype=np.float32))
    thirds = (np.arange(256) / 3).astype(ml_dtypes.bfloat16)
    assert batch["c"].tobytes() == thirds.tobytes()
    assert batch["d"].dtype == np.int32
    with pytest.raises(ValueError, match=r"^a: .*uint8 cannot hold") as caught:
        loader.next_batch(state)
    assert "sample 256" in notes(caught.value)


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


WRONG = {
    "shape": (fns.wrong_shape, r"^x: expected float32\[3\], found float32\[4\]"),
    "dtype": (fns.wrong_dtype, r"^x: expected int32\[3\], found float32\[3\]"),
    "keys": (fns.wrong_keys, r"expected keys \['x', 'y'\], found \['w', 'x'\]"),
    "kind": (fns.wrong_kind, r"the sample: expected keys \['x', 'y'\], found list"),
    "count": (fns.wrong_count, r"the sample: expected 2 values, found 3"),
    "string": (fns.wrong_string, r"^x: expected int32\[\], found <U5\[\]"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_sample_with_another_spec_is_named(wrong: str) -> None:
    fn, message = WRONG[wrong]
    loader = DataLoader([DiskSampleSource(5, fn, None, "sequential")])
    state = loader.init_state(0)
    iterator = loader.iterate(state)
    for _ in range(3):
        next(iterator)
    with pytest.raises(ValueError, match=message) as caught:
        next(iterator)
    assert "raised for sample 3" in notes(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_do_not_fit_are_errors(kind: str) -> None:
    source = DiskSampleSource(9, fns.too_wide, None, "sequential", worker_kind=kind)
    loader = DataLoader([source, BatchTransform(3)])
    iterator = loader.iterate(loader.init_state(0))
    assert np.asarray(next(iterator)[0]["n"]).tolist() == [[0, 0], [1, 0], [2, 0]]
    with pytest.raises(
        ValueError, match="n: found a value of dtype int64 that int32 cannot hold"
    ) as caught:
        next(iterator)
    assert "raised for sample 5" in notes(caught.value)


# Data sets.


def lots(i: int) -> dict[str, Any]:
    return {**fns.plain(i), "lot": True}


@pytest.mark.parametrize("data", [fns.Data(), fns.DataInLots()])
def test_data_sets_with_a_length_and_items(data: Any) -> None:
    fn = lots if isinstance(data, fns.DataInLots) else fns.plain
    loaders = [
        DataLoader([data, BatchTransform(BATCH)]),
        DataLoader([DatasetSource(data, workers=2), BatchTransform(BATCH)]),
    ]
    for loader in loaders:
        state = loader.init_state(0)
        expected = indexed(loader, arrays_of(fn, 23), state, 5)
        same_walk(specified(loader, state, 5), expected)
        same_walk(iterated(loader, state, 5), expected)
        same_walk(jitted(loader, state, 5), expected)


def test_data_sets_in_processes() -> None:
    source = DatasetSource(fns.DataInLots(), workers=2, worker_kind="process")
    loader = DataLoader([source, BatchTransform(BATCH)])
    state = loader.init_state(0)
    same_walk(
        iterated(loader, state, 5), indexed(loader, arrays_of(lots, 23), state, 5)
    )


def test_a_data_set_that_returns_too_few_samples_is_an_error() -> None:
    loader = DataLoader([fns.TooFew(), BatchTransform(BATCH)])
    with pytest.raises(ValueError, match="returned 7 samples for 8 indices"):
        next(loader.iterate(loader.init_state(0)))


def test_other_objects_are_errors() -> None:
    with pytest.raises(TypeError, match="with __len__ and __getitem__, found int"):
        DatasetSource(7)
    with pytest.raises(TypeError, match=r"entry 0: expected .*, found object"):
        DataLoader([object(), BatchTransform(2)])
    with pytest.raises(
        TypeError, match=r"entry 0: a list.*DatasetSource\(samples\)"
    ) as long:
        DataLoader([list(range(100_000)), BatchTransform(2)])
    assert len(str(long.value)) < 300
    with pytest.raises(ValueError, match="length must be at least 1, not 0"):
        DatasetSource(fns.Data(0), spec_of(fns.plain))


BAD = {
    "length": ({"length": 0}, "length must be at least 1, not 0"),
    "length kind": ({"length": 2.5}, r"length must be a whole number, not 2\.5"),
    "function": ({"sample_fn": 7}, "sample_fn must be a function, not 7"),
    "workers": ({"workers": 0}, "workers must be a whole number of at least 1, not 0"),
    "kind": ({"worker_kind": "fork"}, "worker_kind must be one of .*, not 'fork'"),
    "timeout": ({"timeout": 0}, "timeout must be a number of seconds above 0, not 0"),
    "timeout text": ({"timeout": "5"}, "timeout must be .* seconds above 0, not '5'"),
    "timeout nan": ({"timeout": float("nan")}, "timeout must be .* above 0, not nan"),
    "timeout flag": ({"timeout": True}, "timeout must be .* above 0, not True"),
    "restarts": (
        {"restart_workers": -1, "worker_kind": "process"},
        "restart_workers must be a whole number of at least 0, not -1",
    ),
    "restarts of threads": (
        {"restart_workers": 1},
        "Use worker_kind='process'",
    ),
    "prefetch": ({"prefetch_size": 0}, "prefetch_size must be .* at least 1, not 0"),
    "no arrays": ({"sample_fn": lambda i: {}}, "at least one array, found none"),
    "strings": (
        {"sample_fn": lambda i: "text"},
        "'value' has the dtype <U4",
    ),
    "host fields": (
        {"sample_fn": lambda i: (i, "text"), "host_fields": ("a",)},
        "needs samples that are dicts, found tuple",
    ),
    "ordering": ({"ordering": "sideways"}, "sideways"),
}


@pytest.mark.parametrize("bad", BAD)
def test_wrong_arguments_are_errors_when_it_is_built(bad: str) -> None:
    change, message = BAD[bad]
    arguments: dict[str, Any] = {"length": 5, "sample_fn": fns.plain, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        DiskSampleSource(**arguments)


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**30, np.float32(9)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_may_be_any_number(kind: str, timeout: Any) -> None:
    source = DiskSampleSource(4, fns.plain, worker_kind=kind, timeout=timeout)
    loader = DataLoader([source, BatchTransform(4)])
    _, mask = next(loader.iterate(loader.init_state(0)))
    assert bool(mask.all())


# With other sources and stages.


@pytest.mark.parametrize("ordering", ["sequential", "shuffle", Shuffle(window=4)])
@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
def test_orders_and_remainders(ordering: Any, remainder: str) -> None:
    batch = BatchTransform(BATCH, remainder=remainder)
    loader = DataLoader([DiskSampleSource(N, fns.plain, None, ordering), batch])
    memory = DataLoader(
        [ArraySampleSource(arrays_of(fns.plain, N), ordering), batch], prefetch=0
    )
    state = loader.init_state(9)
    same_bytes(np.asarray(state.words), np.asarray(memory.init_state(9).words))
    steps = 2 * loader.steps_per_epoch + 1
    expected = iterated(memory, state, steps)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(jitted(loader, state, steps), expected)


def test_the_last_batch_is_shorter_on_the_host() -> None:
    batch = BatchTransform(BATCH, remainder="partial")
    loader = DataLoader([DiskSampleSource(N, fns.plain), batch])
    lengths = [len(m) for _, m in loader.iterate(loader.init_state(0))]
    assert lengths == [8, 8, 8, 8, 5]


def test_splits_folds_and_items() -> None:
    source = DiskSampleSource(N, fns.plain, workers=2)
    data = arrays_of(fns.plain, N)
    training, rest = source.split(0.75, 0.25)
    assert (len(training), len(rest)) == (28, 9)
    seen = []
    for part in (training, rest):
        loader = DataLoader([part, BatchTransform(4)])
        state = loader.init_state(0)
        steps = loader.steps_per_epoch
        expected = indexed(loader, data, state, steps)
        same_walk(iterated(loader, state, steps), expected)
        seen += [i for i in expected[0]["x"][..., 0].ravel().tolist() if i]
    assert sorted(seen) == list(range(1, N + 1))
    for train, valid in source.folds(3):
        assert len(train) + len(valid) == N
    same_bytes(source[5], jax.tree.map(lambda x: x[5], data))
    with pytest.raises(IndexError, match="sample 37 of 37"):
        source[37]


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_with_native_sources(kind: str) -> None:
    data = arrays_of(fns.plain, N)
    python = DiskSampleSource(N, fns.plain, worker_kind=kind)
    native = ArraySampleSource(data)

    both = concatenate([native, python, native])
    loader = DataLoader([both, BatchTransform(BATCH)])
    state = loader.init_state(0)
    steps = loader.steps_per_epoch
    thrice = jax.tree.map(lambda x: np.concatenate([x, x, x]), data)
    expected = indexed(loader, thrice, state, steps)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)

    some = [30, 2, 2, 17, 5]
    loader = DataLoader([Subset(python, some, "shuffle"), BatchTransform(2)])
    state = loader.init_state(0)
    chosen = jax.tree.map(lambda x: x[some], data)
    same_walk(iterated(loader, state, 3), indexed(loader, chosen, state, 3))

    pairs = zip_sources({"a": python, "b": native})
    loader = DataLoader([pairs, BatchTransform(BATCH)])
    state = loader.init_state(0)
    wanted = indexed(loader, {"a": data, "b": data}, state, 5)
    same_walk(iterated(loader, state, 5), wanted)
    same_walk(jitted(loader, state, 5), wanted)


def test_a_traced_stage_follows() -> None:
    def negated(batch: Any, mask: Any) -> Any:
        return {"x": -batch["x"], "ok": mask}

    source = made("process", 2)._built.head
    loader = DataLoader([source, BatchTransform(BATCH), MapTransform(negated)])
    state = loader.init_state(0)
    batches, masks, words = indexed(loader, arrays_of(fns.plain, N), state, 6)
    expected = ({"x": -batches["x"], "ok": masks}, masks, words)
    same_walk(iterated(loader, state, 6), expected)
    same_walk(stepped(loader, state, 6), expected)
    same_walk(jitted(loader, state, 6), expected)
    same_walk(scanned(loader, state, 6), expected)


def test_traced_gathers_are_errors() -> None:
    source = DiskSampleSource(N, fns.plain)
    with pytest.raises(ValueError, match=r"traced=True .* Remove traced=True"):
        DataLoader([source, BatchTransform(4)], traced=True)


def test_explain() -> None:
    text = made("thread", 1).explain()
    assert "DiskSampleSource" in text
    assert "37 samples" in text


def test_seeds_under_vmap() -> None:
    loader = made("process", 2)
    states = [loader.init_state(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *states)
    batch, _after, mask = jax.jit(jax.vmap(loader.next_batch))(stacked)
    for k, state in enumerate(states):
        expected = specified(loader, state, 1)
        found = jax.tree.map(lambda x, k=k: x[k : k + 1], (batch, mask))
        same_bytes(found, expected[:2])


# Warnings about the first sample.


class Augmented:
    """A data set that is not pure: it draws from its own generator."""

    def __init__(self, field: str | None = "x") -> None:
        self.generator = np.random.default_rng(0)
        self.field = field
        self.calls = 0

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        drawn = np.float32(index) + self.generator.random(4, np.float32)
        return drawn if self.field is None else {"y": np.int32(index), "x": drawn}


@pytest.mark.parametrize(
    "make",
    [
        DatasetSource,
        lambda dataset: DiskSampleSource(N, dataset.__getitem__),
        lambda dataset: DataLoader([dataset, BatchTransform(BATCH)]),
    ],
)
def test_a_data_set_that_is_not_pure_warns(make: Any) -> None:
    with pytest.warns(UserWarning, match="two calls for sample 0 .* of 'x'") as told:
        make(Augmented())
    (only,) = told
    assert (
        "give the function of DiskSampleSource or PythonMapTransform an argument rng "
        "(a NumPy Generator) or seed." in str(only.message)
    )
    with pytest.warns(UserWarning, match=r"returned different values\. A sample"):
        make(Augmented(None))


def test_the_warning_points_at_the_line_that_made_the_source() -> None:
    with pytest.warns(UserWarning, match="two calls for sample 0") as told:
        DatasetSource(Augmented())
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="two calls for sample 0") as told:
        DataLoader([*plain(), PythonMapTransform(shaken), BatchTransform(BATCH)])
    assert told[0].filename == __file__


def plain() -> list[Any]:
    return [ArraySampleSource({"x": np.zeros((N, 4), np.float32)})]


SHAKEN = np.random.default_rng(0)


def shaken(sample: Any) -> Any:
    sample["x"] += SHAKEN.random(4, np.float32)
    return sample


def test_a_stage_that_is_not_pure_warns() -> None:
    match = "PythonMapTransform: two calls for sample 0 .* different values of 'x'"
    with pytest.warns(UserWarning, match=match):
        DataLoader([*plain(), PythonMapTransform(shaken), BatchTransform(BATCH)])


def in_place(sample: Any) -> Any:
    sample["x"] += 1  # the second call must not see this change
    return {**sample, "nan": np.array([np.nan, -0.0]), "text": "a"}


def test_pure_functions_and_known_shapes_do_not_warn() -> None:
    stage = PythonMapTransform(lambda sample: {"x": in_place(sample)["x"]})
    DataLoader([*plain(), stage, BatchTransform(BATCH)])
    DiskSampleSource(N, lambda index: in_place({"x": np.zeros(3)}))
    dataset = Augmented()
    spec = {
        "y": jax.ShapeDtypeStruct((), "int32"),
        "x": jax.ShapeDtypeStruct((4,), "f4"),
    }
    DatasetSource(dataset, spec)
    assert dataset.calls == 0


@pytest.mark.parametrize(
    ("sample", "where"),
    [
        (list(range(256)), "a sample is a list of 256 numbers"),
        ({"y": 1, "x": [0.5] * 256}, "'x' of a sample is a list of 256 numbers"),
        ((np.zeros(2), [1, np.int64(2)]), "'1' of a sample is a list of 2 numbers"),
    ],
)
def test_a_list_of_numbers_warns(sample: Any, where: str) -> None:
    message = rf"{where}, which becomes .* fields .* return np\.asarray\(\.\.\.\)"
    with pytest.warns(UserWarning, match=f"DatasetSource: {message}"):
        DatasetSource([sample] * 3)
    with pytest.warns(UserWarning, match=f"PythonMapTransform: {message}"):
        DataLoader([*plain(), PythonMapTransform(lambda _: sample), BatchTransform(2)])


def test_lists_of_arrays_and_tuples_do_not_warn() -> None:
    for sample in ([np.zeros(2)] * 3, (1, 2.0, 3), {"x": [1]}, [np.zeros(2), 1]):
        DatasetSource([sample] * 3)
    source = DatasetSource([np.asarray(range(256))] * 3)
    assert source[0].shape == (256,)


def test_loadax_does_not_call_twice_and_does_not_warn() -> None:
    from millstream.loadax import Dataloader, InMemoryDataset

    calls = []

    def item(value: Any) -> Any:
        calls.append(value)
        return [value] * 256 + [float(np.random.default_rng().random())]

    dataset = InMemoryDataset(list(range(8))).map(item)
    assert [np.shape(batch) for batch in Dataloader(dataset, 4)] == [(4, 257)] * 2
    assert sorted(calls) == list(range(8))
