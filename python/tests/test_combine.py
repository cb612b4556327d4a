"""Slices, subsets, concatenated and zipped sources match NumPy's results."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from conftest import Python, rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    Listed,
    NpySource,
    Sequential,
    Shuffle,
    Subset,
    Weighted,
    concatenate,
    mix,
    zip_sources,
)
from walks import check, iterated, same_walk, taken

N = 61


@pytest.fixture(params=["memory", "disk"])
def source(request: Any, tmp_path: Path) -> Any:
    data = rows_of(N)
    if request.param == "memory":
        return ArraySampleSource(data)
    for name, array in data.items():
        np.save(tmp_path / f"{name}.npy", array)
    return NpySource({name: tmp_path / f"{name}.npy" for name in data})


SHUFFLED = "ordering=Shuffle()"


def rolled(data: Any) -> Any:
    return jax.tree.map(lambda x: np.roll(x, -1, axis=0), data)


SLICES = [
    slice(10, 20),
    slice(None),
    slice(None, None, -1),
    slice(-5, None),
    slice(50, 3, -7),
    slice(0, 1),
]


@pytest.mark.parametrize("which", SLICES, ids=str)
def test_slices(source: Any, which: slice) -> None:
    check(source[which], taken(rows_of(N), which))


def test_subsets(source: Any) -> None:
    data = rows_of(N)
    for which in ([5, 0, 60, 5], np.array([-1, 3], np.int8), np.arange(N) % 3 == 0):
        check(source[which], taken(data, which))
    check(Subset(source, range(2, 40, 5)), taken(data, slice(2, 40, 5)))
    check(source[10:50][5:20][[1, 0]], taken(data, [16, 15]))


@pytest.mark.parametrize(
    ("which", "error", "message"),
    [
        (slice(5, 5), ValueError, r"range\(5, 5\) selects none of 61 samples"),
        (range(50, 70), IndexError, r"range\(50, 70\) is out of range for 61 samples"),
        ([0, 61], IndexError, "index 61 at position 1 is out of range for 61 samples"),
        ([-62], IndexError, "index -62 at position 0"),
        ([0.5], ValueError, r"found float64\[1\]"),
        (np.zeros(60, bool), ValueError, r"a mask of 61 booleans, found bool\[60\]"),
        (np.zeros(N, bool), ValueError, "at least one"),
        ([[1]], ValueError, r"found int64\[1, 1\]"),
    ],
)
def test_wrong_subsets(
    source: Any, which: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Subset(source, which)


def test_concatenated(source: Any) -> None:
    data = rows_of(N)
    other = ArraySampleSource(rows_of(40))
    both = jax.tree.map(lambda *x: np.concatenate(x), data, rows_of(40), data)
    check(concatenate([source, other, source]), both)
    three = concatenate([source[:3], source[-1:], concatenate([source[1:2]])])
    check(three, taken(data, [0, 1, 2, -1, 1]))


def test_zipped(source: Any) -> None:
    data = rows_of(N)
    extra = np.arange(N, dtype=np.float32)
    zipped = zip_sources({"rows": source, "more": (ArraySampleSource(extra), source)})
    check(zipped, {"rows": data, "more": (extra, data)})


def test_parts_of_splits_can_be_combined(source: Any) -> None:
    train, test = source.split(0.7, 0.3, seed=1)
    assert (len(train), len(test)) == (43, 18)
    ids = sorted(int(s["x"][0]) for part in (train, test) for s in part)
    assert ids == list(range(1, N + 1))
    whole = concatenate([train, test])
    assert sorted(int(s["x"][0]) for s in whole) == ids
    first = [int(train[i]["x"][0]) for i in range(10)]
    assert [int(s["x"][0]) for s in train[:10]] == first
    inner, _ = train.split(0.5, 0.5)
    assert {int(s["x"][0]) for s in inner} < {int(s["x"][0]) for s in train}
    loader = DataLoader([inner, BatchTransform(4)])
    batches = iterated(loader, loader.init_state(0), loader.steps_per_epoch)
    seen = batches[0]["x"][..., 0][batches[1]]
    assert sorted(seen) == sorted(int(s["x"][0]) for s in inner)


def test_reading_one_sample_of_a_part_needs_no_list_of_indices(python: Python) -> None:
    python.run("""
        import resource
        import numpy as np
        from millstream import ArraySampleSource
        numbers = np.broadcast_to(np.zeros((), np.uint8), (2 * 10**9,))
        source = ArraySampleSource(numbers)
        parts = [source.split(0.5, 0.5, shuffle=x)[0] for x in (True, False)]
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        limit = now + 2**31  # a list would take 8 GB
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for part in parts:
            assert part[7] == part[-1] == 0
            for outside in (10**9, -(10**9) - 1):
                try:
                    part[outside]
                except IndexError as error:
                    assert f"sample {outside} of 1000000000" in str(error)
                else:
                    raise AssertionError
    """)


def test_single_samples_of_folds_match_the_subset(source: Any) -> None:
    for parts in source.folds(3, seed=5):
        for part in parts:
            listed = [int(s["x"][0]) for s in part[:]]
            assert [int(part[i]["x"][0]) for i in range(len(part))] == listed
            assert int(part[-1]["x"][0]) == listed[-1]


def test_orders_of_combinations(source: Any) -> None:
    plain = source._with_order(Sequential())
    assert source[3:9].order == Shuffle()
    assert plain[3:9].order == Sequential()
    assert concatenate([plain, plain]).order == Sequential()
    assert concatenate([plain, source], ordering="shuffle").order == Shuffle()
    with pytest.raises(ValueError, match=r"source 0 .*Sequential\(\), source 1 .*Pass"):
        concatenate([plain, source])
    with pytest.raises(ValueError, match=r"'a' has the order Sequential.*'b'"):
        zip_sources({"a": plain, "b": source})
    check(Subset(source, slice(5), Weighted(np.ones(5))), taken(rows_of(N), slice(5)))


def test_orders_that_refer_to_indices_do_not_apply_to_parts(source: Any) -> None:
    mixture = mix([source, source], [1, 2])
    for whole in (
        source._with_order(Weighted(np.eye(N)[0])),
        source._with_order(Listed([1, 3])),
        mixture,
    ):
        for part in (
            lambda whole=whole: whole[10:20],
            lambda whole=whole: whole[::-1],
            lambda whole=whole: Subset(whole, [5, 4]),
            lambda whole=whole: whole.split(0.5, 0.5),
            lambda whole=whole: whole.split(1.0),
            lambda whole=whole: whole.folds(2),
            lambda whole=whole: concatenate([whole, whole]),
        ):
            kind = type(whole.order).__name__
            with pytest.raises(ValueError, match=f"{kind} refers .* Pass ordering="):
                part()
        assert len(Subset(whole, slice(10, 20), "shuffle")) == 10
        assert len(whole.split(0.5, 0.5, ordering="sequential")[0]) == len(whole) // 2
        assert whole.folds(2, ordering="shuffle")[0][0].order.inner == Shuffle()
        # Sources whose indices do not change keep their order.
        assert zip_sources({"a": whole, "b": whole}).order == whole.order
        assert concatenate([whole]).order == whole.order
    with pytest.raises(ValueError, match="122 samples, the source has 5"):
        Subset(mixture, slice(5), mixture.order)


def test_nested_combinations_are_flattened(source: Any) -> None:
    part, both = source, source[:1]
    for _ in range(2000):
        part = part[:]
        both = concatenate([both, source[:1]])
    check(part, rows_of(N))
    assert len(both) == 2001
    assert both[2000]["x"].tolist() == source[0]["x"].tolist()
    assert repr(part) == f"Subset(source={source!r}, indices=range(0, 61), {SHUFFLED})"
    data = rows_of(N)
    check(source[50:10:-3][1:9:2], taken(data, slice(47, 23, -6)))
    check(source[::-1][::-1], data)
    check(source[[7, 3, 9, 1]][2::-1], taken(data, [9, 3, 7]))
    check(source[10:][[3, 0]][[1, 1, 0]], taken(data, [10, 10, 13]))


def test_combinations_can_be_pickled_and_copied(source: Any) -> None:
    data = rows_of(N)
    zipped = zip_sources(
        {"a": source[::-1], "b": concatenate([source[1:], source[:1]])}
    )
    for again in (pickle.loads(pickle.dumps(zipped)), copy.deepcopy(zipped)):
        assert again is not zipped
        check(again, {"a": taken(data, slice(None, None, -1)), "b": rolled(data)})
    part = source.split(0.5, 0.5, seed=3)[1]
    same = pickle.loads(pickle.dumps(part))
    assert same.order == part.order
    assert [s["x"].tolist() for s in same] == [s["x"].tolist() for s in part]
    mixture = mix([source[:9], source[20:]], [1, 3], num_samples=40)
    for one in (mixture, mixture.split(0.5, ordering="shuffle")[0], copy.copy(mixture)):
        loaders = [
            DataLoader([s, BatchTransform(7)])
            for s in (one, pickle.loads(pickle.dumps(one)))
        ]
        first, second = (iterated(at, at.init_state(1), 6) for at in loaders)
        same_walk(first, second)


def test_wrong_combinations(source: Any) -> None:
    narrow = ArraySampleSource({"x": rows_of(N)["x"]})
    floats = ArraySampleSource({**rows_of(N), "y": np.zeros(N, np.float32)})
    with pytest.raises(ValueError, match=r"source 0 have .*'y'.*those of source 1"):
        concatenate([source, narrow])
    with pytest.raises(
        ValueError, match=r"'y' is uint8\[\] in source 0 and float32\[\] in source 2"
    ):
        concatenate([source, source, floats])
    with pytest.raises(ValueError, match="'a' has 61 samples, 'b' has 60"):
        zip_sources({"a": source, "b": narrow[:60]})
    with pytest.raises(TypeError, match=r"source 1 to be .*, found Pipeline"):
        concatenate([source, BatchTransform(2)(source)])
    with pytest.raises(TypeError, match=r"'b' to be .*, found ndarray"):
        zip_sources({"a": source, "b": np.zeros(3)})
    for empty in (lambda: concatenate([]), lambda: zip_sources({})):
        with pytest.raises(ValueError, match="sources is empty"):
            empty()


def test_combinations_can_be_mixed(source: Any) -> None:
    loader = DataLoader([mix([source[:10], source[10:]], [1, 1]), BatchTransform(8)])
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert int((np.asarray(batch["x"])[:, 0] <= 10).sum()) == 4


def test_a_slice_of_a_huge_source_takes_no_memory() -> None:
    data = np.broadcast_to(np.float32(1), (10**9,))
    source = ArraySampleSource(data)[5:-5][::2]
    assert len(source) == (10**9 - 10) // 2
    assert source[-1] == 1
