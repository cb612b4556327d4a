"""Hydrax's cache of batches on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import hydrax_loaders as loaders
import jax.numpy as jnp
import numpy as np
import pytest
from hydrax_loaders import ARRAYS
from millstream import DataError
from millstream._run import cache_files
from millstream.hydrax import DataGroup, Dataloader
from millstream.hydrax._run import open_cache

LATENT = {"latent": ((2,), np.float32, jnp.float32)}


def group(folder, items=8, batch_size=4, **more):
    more.setdefault("loader_arrays", ARRAYS)
    return DataGroup(batch_size, list(range(items)), cache_location=folder, **more)


def read_only(folder, **more):
    """A group without loader_arrays, which only reads the cache."""
    more.setdefault("cache_arrays", ARRAYS)
    return group(folder, loader_arrays=None, **more)


def gathered(data, *, function=loaders.fill_with_extras, end_at=("epoch", 1), **more):
    """(uncached, values, names) of every batch."""
    found = []
    with Dataloader(function, data, end_at=end_at, **more) as loader:
        for batch in loader:
            values = np.asarray(batch.arrays["value"])[:, 0].tolist()
            found.append((batch.uncached, values, batch.get_additional("name")))
    return found


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def names(values):
    return [f"item {int(value)}" for value in values]


EXPECTED = [(False, [i, i + 1, i + 2, i + 3], names(range(i, i + 4))) for i in (0, 4)]


def test_loaded_batches_are_cached_without_cache_arrays(tmp_path):
    folder = tmp_path / "deep" / "cache"
    assert gathered(group(folder)) == EXPECTED
    assert files(folder) == ["cache.json", "e0-b0.dat", "e0-b1.dat"]
    # A group without loader_arrays starts no process.
    data = read_only(folder)
    assert data.loader_layouts is None
    assert gathered(data, function=None, loader_count=0) == EXPECTED


def test_direct_caching_works_where_jax_copies(tmp_path):
    arrays = {"value": ((3,), np.uint8, jnp.float32)}
    given = {"function": loaders.fill_value, "end_at": ("epoch", 3), "depth": 1}
    data = group(tmp_path, 40, loader_arrays=arrays)
    first = [values for _, values, _ in gathered(data, **given)]
    assert first[:10] == [list(range(i, i + 4)) for i in range(0, 40, 4)]
    data = group(tmp_path, 40, loader_arrays=None, cache_arrays=arrays)
    assert [values for _, values, _ in gathered(data, **given)] == first


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ("repeat", {"e0-b0.dat", "e0-b1.dat"}),
        ("batchwise", {"e0-b0.dat", "e0-b1.dat"}),
        ("reseed", {f"e{e}-b{b}.dat" for e in range(2) for b in range(2)}),
        ("itemwise", {f"e{e}-b{b}.dat" for e in range(2) for b in range(2)}),
    ],
)
def test_every_shuffle_mode_reads_its_cached_batches(tmp_path, later, expected):
    def run(data, function):
        return gathered(data, function=function, end_at=("epoch", 2))

    data = group(tmp_path, shuffle_later=later)
    loaded = run(data, loaders.fill_with_extras)
    assert set(files(tmp_path)) == {"cache.json", *expected}
    assert run(read_only(tmp_path, shuffle_later=later), None) == loaded


def test_a_cache_is_batchwise_by_default(tmp_path):
    assert group(tmp_path)._order.shuffle_later == "batchwise"
    assert DataGroup(1, [0], loader_arrays=ARRAYS)._order.shuffle_later == "itemwise"


def test_every_array_of_a_cached_batch_can_be_aliased(tmp_path):
    gathered(group(tmp_path))
    data = group(tmp_path)
    path = tmp_path / "e0-b1.dat"
    made = cache_files.read_batch(path, open_cache(data)._layout)
    for array in made.arrays.values():
        assert array.ctypes.data % 64 == 0
    assert made.arrays["odd"][:, 0].tolist() == [4, 5, 6, 7]
    assert made.extra["name"] == names(range(4, 8))


def test_cache_arrays_may_differ_from_loader_arrays(tmp_path):
    def run(data, function, **given):
        found = []
        with Dataloader(function, data, end_at=("epoch", 2), **given) as loader:
            for batch in loader:
                found.append((batch.uncached, sorted(batch.layouts)))
                if batch.uncached:
                    value = batch.arrays["value"][:, :2] * 10
                    extra = {"twice": [2 * i for i in batch.data]}
                    batch.cache({"latent": value}, extra)
                    assert not batch.uncached
                    assert batch.layouts == data.cache_layouts
                    with pytest.raises(RuntimeError, match="already cached"):
                        batch.cache({"latent": value})
                assert batch.arrays["latent"][0, 0] == 10 * batch.get_data(0)
                assert batch.additional == {"twice": [2 * i for i in batch.data]}
        return found

    data = group(tmp_path, cache_arrays=LATENT, shuffle_later="repeat")
    first, second = (True, sorted(ARRAYS)), (False, ["latent"])
    # With a depth of 1 the second epoch starts after the first has been written.
    found = run(data, loaders.fill, depth=1)
    assert found[:2] == [first, first]
    assert files(tmp_path) == ["cache.json", "e0-b0.dat", "e0-b1.dat"]
    cached = read_only(tmp_path, cache_arrays=LATENT, shuffle_later="repeat")
    assert run(cached, None) == [second] * 4


def test_persist_false_does_not_write(tmp_path):
    data = group(tmp_path, cache_arrays=LATENT)
    with Dataloader(loaders.fill_with_extras, data, end_at=("epoch", 1)) as loader:
        for batch in loader:
            value = batch.arrays["value"][:, :2]
            batch.cache({"latent": value}, persist=False)
            assert batch.additional["name"] == names(batch.data)  # it stays
    assert files(tmp_path) == ["cache.json"]


@pytest.mark.parametrize(
    ("arrays", "additional", "error", "text"),
    [
        ({}, None, ValueError, "array 'latent' was not provided"),
        ({"latent": np.zeros((4, 2))}, None, TypeError, "is not a JAX array"),
        (
            {"latent": jnp.zeros((4, 3))},
            None,
            ValueError,
            r"has shape \(4, 3\), not \(4, 2\)",
        ),
        (
            {"latent": jnp.zeros((4, 2), int)},
            None,
            ValueError,
            "has dtype int32, not float32",
        ),
        ({"latent": jnp.zeros((4, 2))}, [1], TypeError, "non-dict type list"),
        (
            {"latent": jnp.zeros((4, 2))},
            {"k": (1,)},
            TypeError,
            "of type tuple is not a list",
        ),
        (
            {"latent": jnp.zeros((4, 2))},
            {"k": [1]},
            ValueError,
            "has length 1, expected 4",
        ),
    ],
)
def test_arrays_that_do_not_match_the_cache_layouts_are_refused(
    tmp_path, arrays, additional, error, text
):
    data = group(tmp_path, cache_arrays=LATENT)
    with Dataloader(loaders.fill, data, end_at=("batch", 1)) as loader:
        batch = next(loader)
        with pytest.raises(error, match=text):
            batch.cache(arrays, additional)
        assert batch.uncached


def test_a_batch_cannot_be_written_after_its_run(tmp_path):
    data = group(tmp_path, cache_arrays=LATENT)
    with Dataloader(loaders.fill, data, end_at=("batch", 1)) as loader:
        batch = next(loader)
    with pytest.raises(RuntimeError, match="is closed"):
        batch.cache({"latent": jnp.zeros((4, 2))})


def test_a_shorter_last_batch_is_cached_too(tmp_path):
    given = {"items": 10, "drop_last": False, "shuffle_later": "repeat"}
    loaded = gathered(group(tmp_path, **given))
    assert [len(values) for _, values, _ in loaded] == [4, 4, 2]
    assert gathered(read_only(tmp_path, **given), function=None) == loaded


def test_validation_is_cached_for_all_epochs(tmp_path):
    valid = group(tmp_path, shuffle_later="itemwise")
    train = DataGroup(4, list(range(8)), loader_arrays=ARRAYS)
    loader = Dataloader(
        loaders.fill, train, validation=("epoch", 1, valid), end_at=("epoch", 2)
    )
    with loader:
        assert len(list(loader)) == 8
    assert files(tmp_path) == ["cache.json", "e0-b0.dat", "e0-b1.dat"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seed": 1}, "seed is 0 in the cache and 1 now"),
        ({"items": 9}, "data_len is 8 in the cache and 9 now"),
        (
            {"batch_size": 2},
            "batch_size is 4 in the cache and 2 now.*array_layouts",
        ),
        (
            {"shuffle_first": True},
            "shuffle_first is False in the cache and True now",
        ),
        ({"shuffle_later": "repeat"}, "shuffle_later is 'batchwise' in the cache"),
        ({"drop_last": False}, "drop_last is True in the cache and False now"),
        ({"loader_arrays": LATENT}, "array_layouts is"),
    ],
)
def test_a_cache_of_another_group_is_refused_with_the_differences(
    tmp_path, changes, text
):
    Dataloader(loaders.fill, group(tmp_path))
    with pytest.raises(RuntimeError, match=text):
        Dataloader(loaders.fill, group(tmp_path, **changes))


def test_names_and_shapes_of_cached_arrays_may_change(tmp_path):
    gathered(group(tmp_path))
    renamed = {
        "value": ((1, 3), np.float32, jnp.float32),
        "other": ((1,), np.int32, jnp.int32),
        "odd": ((5,), np.uint8, jnp.float32),
    }
    with Dataloader(
        None, read_only(tmp_path, cache_arrays=renamed), end_at=("batch", 1)
    ) as loader:
        batch = next(loader)
    assert batch.arrays["value"].shape == (4, 1, 3)
    assert batch.arrays["odd"].dtype == jnp.float32


def two_arrays(*names):
    return dict.fromkeys(names, ((2,), np.int32, jnp.int32))


def two_values(data, function=None):
    with Dataloader(function, data, end_at=("epoch", 1)) as loader:
        return [[batch.arrays[n][:, 0].tolist() for n in "ab"] for batch in loader]


@pytest.mark.parametrize("named", [True, False])
def test_cached_arrays_are_found_by_name_in_any_order(tmp_path, named):
    expected = [[[0, 1], [0, -1]], [[2, 3], [-2, -3]]]
    some = {"items": 4, "batch_size": 2}
    first = group(tmp_path, loader_arrays=two_arrays("a", "b"), **some)
    assert two_values(first, loaders.fill_two) == expected
    descriptor = tmp_path / "cache.json"
    told = json.loads(descriptor.read_text())
    assert told["array_names"] == ["a", "b"]
    if not named:  # as it was before there were names in it: by position
        del told["array_names"]
        descriptor.write_text(json.dumps(told))
        expected = [batch[::-1] for batch in expected]
    swapped = read_only(tmp_path, cache_arrays=two_arrays("b", "a"), **some)
    assert two_values(swapped) == expected
    assert list(swapped.cache_layouts) == ["b", "a"]


def test_arrays_are_written_in_the_order_of_the_cache(tmp_path):
    some = {"items": 4, "batch_size": 2}
    for names in (("a", "b"), ("b", "a")):
        data = group(tmp_path, loader_arrays=two_arrays(*names), **some)
        expected = two_values(data, loaders.fill_two)
        (tmp_path / "e0-b0.dat").unlink()
    two_values(
        group(tmp_path, loader_arrays=two_arrays("b", "a"), **some), loaders.fill_two
    )
    same = read_only(tmp_path, cache_arrays=two_arrays("a", "b"), **some)
    assert two_values(same) == expected == [[[0, 1], [0, -1]], [[2, 3], [-2, -3]]]


def test_a_damaged_descriptor_is_refused(tmp_path):
    for text in ("", "[]", "{"):
        (tmp_path / "cache.json").write_text(text)
        with pytest.raises(RuntimeError, match="is not a cache descriptor"):
            Dataloader(loaders.fill, group(tmp_path))


def test_a_missing_cache_cannot_be_read_only(tmp_path):
    for data in (
        read_only(tmp_path / "none"),
        group(tmp_path / "none", cache_readonly=True),
    ):
        with pytest.raises(FileNotFoundError, match=r"cache\.json"):
            Dataloader(loaders.fill, data)
    assert not (tmp_path / "none").exists()


def test_a_read_only_cache_is_not_written(tmp_path):
    Dataloader(loaders.fill, group(tmp_path))
    assert gathered(group(tmp_path, cache_readonly=True)) == EXPECTED
    assert files(tmp_path) == ["cache.json"]


def test_missing_batches_without_loader_arrays_are_dropped_or_raised(tmp_path):
    gathered(group(tmp_path))
    (tmp_path / "e0-b0.dat").unlink()
    with pytest.warns(RuntimeWarning, match="e0-b0.dat: the batch is not in the cache"):
        found = gathered(read_only(tmp_path), function=None)
    assert found == EXPECTED[1:]
    with pytest.raises(FileNotFoundError, match=r"e0-b0\.dat"):
        gathered(read_only(tmp_path), function=None, on_error="raise")


def damage(path, how):
    whole = path.read_bytes()
    if how == "cut":
        path.write_bytes(whole[:100])
    elif how == "short":
        path.write_bytes(whole[:-10])
    else:
        path.write_bytes(whole[:9] + bytes([whole[9] ^ 1]) + whole[10:])


@pytest.mark.parametrize("how", ["cut", "short", "flipped"])
def test_a_damaged_batch_is_loaded_and_written_again(tmp_path, how):
    gathered(group(tmp_path))
    path = tmp_path / "e0-b0.dat"
    whole = path.read_bytes()
    damage(path, how)
    data = group(tmp_path)
    with pytest.raises(DataError, match=r"e0-b0\.dat"):
        cache_files.read_batch(path, open_cache(data)._layout)
    with pytest.warns(RuntimeWarning, match="a cached batch cannot be used"):
        assert gathered(data) == EXPECTED
    assert path.read_bytes() == whole


def test_a_failed_write_to_the_cache_warns(tmp_path, monkeypatch):
    def full(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_files.os, "replace", full)
    with pytest.warns(RuntimeWarning, match="was not cached: OSError.*No space left"):
        assert gathered(group(tmp_path)) == EXPECTED
    assert files(tmp_path) == ["cache.json"]  # and nothing half-written


def test_pending_writes_are_abandoned_when_the_run_is_over(tmp_path):
    data = group(tmp_path)
    arrays = {
        name: np.zeros(layout[0], layout[1])
        for name, layout in data.cache_layouts.items()
    }
    asked = iter([False, True])
    layout = open_cache(data)._layout
    with pytest.raises(cache_files.Abandoned):
        cache_files.write_batch(
            tmp_path / "x.dat", layout, arrays, {}, is_over=lambda: next(asked)
        )
    assert files(tmp_path) == ["cache.json"]


def test_an_interrupted_run_leaves_only_complete_files(tmp_path):
    with Dataloader(loaders.fill, group(tmp_path, 400)) as loader:
        for number, _ in enumerate(loader):
            if number == 5:
                loader.interrupt()
    assert loader.interrupted
    data = group(tmp_path, 400)
    for path in tmp_path.glob("*"):
        if path.name != "cache.json":
            cache_files.read_batch(path, open_cache(data)._layout)


def test_temporary_files_of_dead_processes_are_removed(tmp_path):
    Dataloader(loaders.fill, group(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = cache_files.temporary_name(tmp_path / "e0-b0.dat")
    dead = left.with_name(left.name.replace(str(os.getpid()), str(gone.pid)))
    alive = left.with_name(left.name.replace(str(os.getpid()), str(os.getppid())))
    other = tmp_path / f"e0-b0.dat.elsewhere.{gone.pid}.tmp"
    for path in (dead, alive, other):
        path.touch()
    Dataloader(loaders.fill, group(tmp_path))
    assert files(tmp_path) == sorted(["cache.json", alive.name, other.name])


def test_cacher_count_is_checked_only_if_a_cache_is_written(tmp_path):
    with pytest.raises(ValueError, match="cacher_count must be"):
        Dataloader(loaders.fill, group(tmp_path), cacher_count=0)
    gathered(group(tmp_path))
    assert gathered(read_only(tmp_path), function=None, cacher_count=0) == EXPECTED


def test_the_content_of_the_descriptor(tmp_path):
    Dataloader(loaders.fill, group(tmp_path))
    told = json.loads((tmp_path / "cache.json").read_text())
    assert told["_type"] == "millstream-hydrax-cache-v1"
    assert told["array_layouts"][1] == {"offset": 64, "dtype": "int32", "count": 4}
