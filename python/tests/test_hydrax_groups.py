"""Hydrax's data groups: layouts and wrong arguments."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hydrax_loaders import ARRAYS, fill
from millstream.hydrax import DataGroup, Dataloader

GROUP = DataGroup(4, range(18), loader_arrays=ARRAYS)


def test_a_group_is_a_sequence_of_its_descriptors():
    group = DataGroup(2, ["a", "b", "c"], loader_arrays=ARRAYS)
    assert (len(group), group[0], list(group[1:])) == (3, "a", ["b", "c"])
    assert list(group) == ["a", "b", "c"]
    assert "3 items in 1 batches of 2" in repr(group)


def test_iterables_become_lists_and_arrays_stay():
    drawn = DataGroup(2, (i * i for i in range(5)), loader_arrays=ARRAYS)
    assert list(drawn) == [0, 1, 4, 9, 16]
    array = np.arange(4)
    assert DataGroup(2, array, loader_arrays=ARRAYS)._data is array


def test_layout_offsets_are_aligned_for_aliasing():
    layouts = GROUP.loader_layouts
    assert layouts["value"] == ((4, 3), np.float32, np.float32, 0, 12)
    assert layouts["seed"] == ((4,), np.int32, np.int32, 64, 4)
    assert layouts["odd"] == ((4, 5), np.uint8, np.uint8, 128, 20)
    assert GROUP.loader_size == 148
    assert (GROUP.batch_size, GROUP.batch_count) == (4, 4)
    assert GROUP.cache_layouts is GROUP.cache_size is None


def test_layouts_accept_jax_dtypes():
    arrays = {"x": ((2,), "bfloat16", jnp.bfloat16), "y": ((), np.uint8, jnp.float32)}
    layouts = DataGroup(2, [1, 2], loader_arrays=arrays).loader_layouts
    assert layouts["x"][1:3] == (jnp.bfloat16, jnp.bfloat16)
    assert layouts["y"][1:3] == (np.uint8, np.float32)


def test_a_batch_size_larger_than_the_data_is_reduced_with_a_warning():
    with pytest.warns(UserWarning, match="batch_size 9 is more than the 3 items"):
        group = DataGroup(9, range(3), loader_arrays=ARRAYS)
    assert (group.batch_size, group.batch_count) == (3, 1)


def test_a_group_with_a_short_last_batch():
    group = DataGroup(4, range(18), loader_arrays=ARRAYS, drop_last=False)
    assert group.batch_count == 5


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be a whole number of at"),
        ({"batch_size": 2.5}, ValueError, "not 2.5"),
        ({"data": []}, ValueError, "data is empty"),
        ({"data": 7}, TypeError, "int is not a sequence or iterable"),
        ({"seed": -1}, ValueError, "seed must be a whole number of at least 0"),
        (
            {"shuffle_later": "often"},
            ValueError,
            "'itemwise', or 'batchwise'; found 'often'",
        ),
        ({"loader_arrays": None}, ValueError, "Pass loader_arrays= or cache_arrays="),
        ({"loader_arrays": {}}, ValueError, "at least one array"),
        ({"loader_arrays": [1]}, TypeError, "must map names to"),
        (
            {"loader_arrays": {3: ((), "f4", "f4")}},
            TypeError,
            "strings as names; found 3",
        ),
        ({"loader_arrays": {"x": ((), "f4")}}, ValueError, r"\['x'\] must be \(shape"),
        (
            {"loader_arrays": {"x": (3, "f4", "f4")}},
            ValueError,
            "invalid shape for array 'x': .* a tuple of integers .* found 3",
        ),
        ({"loader_arrays": {"x": ((0,), "f4", "f4")}}, ValueError, "at least 1"),
        (
            {"loader_arrays": {"x": ((), "f5", "f4")}},
            ValueError,
            "'f5' is not a NumPy dtype",
        ),
        (
            {"loader_arrays": {"x": ((), "f4", "no")}},
            ValueError,
            "'no' is not a JAX dtype",
        ),
        ({"loader_arrays": {"x": ((), object, "f4")}}, ValueError, "object"),
        ({"cache_arrays": ARRAYS}, ValueError, "cache_location is required"),
    ],
)
def test_wrong_groups_are_refused(changes, error, text):
    given = {"batch_size": 2, "data": range(8), "loader_arrays": ARRAYS, **changes}
    with pytest.raises(error, match=text):
        DataGroup(given.pop("batch_size"), given.pop("data"), **given)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"training": []}, ValueError, "training is empty"),
        (
            {"training": [3]},
            TypeError,
            "data of type int is not in a hydrax.DataGroup",
        ),
        (
            {"training": 3},
            TypeError,
            "training must be a DataGroup or a list of DataGroups",
        ),
        ({"loader_func": "fill"}, TypeError, "loader_func must be a function"),
        ({"validation": ("epoch", 1)}, ValueError, "validation must be"),
        (
            {"validation": ("hour", 1, GROUP)},
            ValueError,
            "validation mode must be 'epoch' or 'batch'; found 'hour'",
        ),
        ({"validation": ("epoch", 0, GROUP)}, ValueError, "interval must be"),
        ({"depth": 0}, ValueError, "depth must be"),
        ({"loader_count": 0}, ValueError, "loader_count must be"),
        ({"loader_nice": "a lot"}, ValueError, "loader_nice must be"),
        (
            {"start_at": (0, -1)},
            ValueError,
            "start_at must not be negative: its batches must be",
        ),
        (
            {"start_at": (-1, 0)},
            ValueError,
            "start_at must not be negative: its epoch must be",
        ),
        ({"start_at": 3}, ValueError, "start_at must be"),
        ({"end_at": ("batch", -1)}, ValueError, "end_at's number must be"),
        (
            {"end_at": ("hour", 1)},
            ValueError,
            "end_at endpoint must be .* found 'hour'",
        ),
        ({"end_at": 3}, ValueError, "end_at must be"),
        ({"startup_func": 3}, TypeError, "startup_func must be a function"),
        ({"placement_func": 3}, TypeError, "placement_func must be a function"),
        ({"on_error": "ignore"}, ValueError, "'drop' or 'raise'; found 'ignore'"),
    ],
)
def test_wrong_loaders_are_refused(changes, error, text):
    given = {"loader_func": fill, "training": GROUP, **changes}
    with pytest.raises(error, match=text):
        Dataloader(given.pop("loader_func"), given.pop("training"), **given)


def test_numbers_of_the_first_and_last_batch():
    def at(**given):
        return Dataloader(fill, GROUP, **given)

    assert at().batches_per_epoch == 4
    assert at(start_at=(1, 6)).first_batch == 10
    assert at(end_at=("epoch", 3)).last_batch == 12
    assert at(end_at=("batch", 3)).last_batch == 3
    assert at().last_batch is at(end_at=("never", 0)).last_batch is None
    assert at().batches_per_validation == 0
    assert at(validation=("epoch", 1, [GROUP, GROUP])).batches_per_validation == 8
    assert at().deterministic
    assert not at(deterministic=False).deterministic


def test_a_subclass_warns():
    class Mine(DataGroup):
        pass

    class MyLoader(Dataloader):
        pass

    with pytest.warns(SyntaxWarning, match="Mine derives"):
        Mine(2, range(4), loader_arrays=ARRAYS)
    with pytest.warns(SyntaxWarning, match="MyLoader derives"):
        MyLoader(fill, GROUP)


def test_a_64_bit_dtype_without_x64_warns():
    group = DataGroup(2, range(4), loader_arrays={"x": ((), np.int64, np.int64)})
    with pytest.warns(
        UserWarning, match="'x' has the JAX dtype int64, .* JAX uses int32"
    ):
        Dataloader(fill, group)
