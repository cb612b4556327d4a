"""The order of Hydrax's batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from millstream.hydrax._schedule import SHUFFLES, GroupOrder, Schedule


def shuffled(seed, length):
    return np.random.Generator(np.random.PCG64(seed)).permutation(length).tolist()


def order(items=10, batch_size=3, *, seed=5, first=False, later="itemwise", **more):
    return GroupOrder(items, batch_size, seed, first, later, **more)


def epochs(schedule, count):
    """The steps of each of the first epochs."""
    steps = itertools.takewhile(lambda step: step.epoch < count, schedule.steps())
    return [list(run) for _, run in itertools.groupby(steps, lambda step: step.epoch)]


@pytest.mark.parametrize("later", SHUFFLES)
@pytest.mark.parametrize("first", [False, True])
def test_the_items_of_every_mode_are_those_of_pcg64(later, first):
    group = order(first=first, later=later)
    base = shuffled(5, 10) if first else list(range(10))
    for epoch, steps in enumerate(epochs(Schedule((group,)), 3)):
        items, batches = base, [0, 1, 2]
        if epoch > 0 and later == "itemwise":
            items = shuffled(5 + epoch, 10)
        if epoch > 0 and later == "batchwise":
            batches = shuffled(5 + epoch, 3)
        assert [step.index for step in steps] == batches
        for step in steps:
            start = step.index * 3
            assert list(step.indices) == items[start : start + 3]


@pytest.mark.parametrize("later", SHUFFLES)
def test_the_seeds_of_every_mode(later):
    group = order(later=later)
    for epoch, steps in enumerate(epochs(Schedule((group,)), 3)):
        for step in steps:
            reseeded = epoch * 3 * 3 if later in ("reseed", "itemwise") else 0
            assert step.seed == 5 + reseeded + step.index * 3


def test_numbers_count_epochs_and_batches():
    steps = list(Schedule((order(),), last=7).steps())
    assert [step.batch_num for step in steps] == list(range(7))
    assert [step.epoch for step in steps] == [0, 0, 0, 1, 1, 1, 2]
    assert [step.epoch_batch for step in steps] == [0, 1, 2, 0, 1, 2, 0]


def test_a_seed_may_be_any_integer():
    seed = 2**100
    step = next(Schedule((order(seed=seed),), first=3).steps())
    assert step.seed == seed + 9
    assert list(step.indices) == shuffled(seed + 1, 10)[:3]


def test_the_remainder_is_dropped_or_makes_a_shorter_batch():
    assert [len(s.indices) for s in Schedule((order(),), last=3).steps()] == [3, 3, 3]
    whole = order(drop_last=False)
    assert whole.batch_count == 4
    steps = list(Schedule((whole,), first=4, last=8).steps())
    assert [len(step.indices) for step in steps] == [3, 3, 3, 1]
    assert sorted(i for step in steps for i in step.indices) == list(range(10))


def least_fraction_first(counts):
    """The rule: the first group that has delivered the smallest fraction is next."""
    used = [0] * len(counts)
    found = []
    for _ in range(sum(counts)):
        group = min(range(len(counts)), key=lambda g: used[g] / counts[g])
        found.append((group, used[group]))
        used[group] += 1
    return found


@pytest.mark.parametrize("counts", [(4, 4), (3, 6), (1, 5, 2), (7, 3), (2, 2, 2), (1,)])
def test_groups_interleave_by_the_fraction_they_have_delivered(counts):
    groups = tuple(order(count * 2, 2, later="repeat") for count in counts)
    schedule = Schedule(groups, last=sum(counts))
    found = [(step.group, step.index) for step in schedule.steps()]
    assert found == least_fraction_first(counts)


def test_two_equal_groups_take_turns():
    group = order(4, 2, later="repeat")
    steps = Schedule((group, group), last=4).steps()
    assert [step.group for step in steps] == [0, 1, 0, 1]


def test_without_interleaving_groups_follow_one_another():
    group = order(4, 2, later="repeat")
    steps = Schedule((group, group), last=8, interleave=False).steps()
    assert [step.group for step in steps] == [0, 0, 1, 1, 0, 0, 1, 1]


def kinds(schedule, count=None):
    """T for training, V for validation."""
    steps = itertools.islice(schedule.steps(), count)
    return "".join("V" if step.seed is None else "T" for step in steps)


def validated(mode, interval, **more):
    valid = order(4, 2, later="repeat")
    return Schedule((order(),), (valid,), (mode, interval), **more)


def test_validation_comes_after_every_interval_of_epochs():
    assert kinds(validated("epoch", 1, last=9)) == "TTTVV" * 3
    assert kinds(validated("epoch", 2, last=12)) == "TTTTTTVV" * 2


def test_validation_comes_after_every_interval_of_batches():
    assert kinds(validated("batch", 2, last=5)) == "TTVVTTVVT"
    assert kinds(validated("batch", 4, last=9)) == "TTTTVVTTTTVVT"


def test_validation_counts_from_epoch_0_and_skips_what_came_before_the_start():
    assert kinds(validated("batch", 4, first=3, last=9)) == "TVVTTTTVVT"
    assert kinds(validated("batch", 4, first=4, last=9)) == "TTTTVVT"
    assert kinds(validated("epoch", 2, first=3, last=12)) == "TTTVV" + "TTTTTTVV"


def test_validation_counts_its_own_batches_from_the_start_of_the_run():
    steps = validated("epoch", 1, first=3, last=9).steps()
    found = [step for step in steps if step.seed is None]
    assert [step.epoch for step in found] == [0, 0, 1, 1]
    assert [step.epoch_batch for step in found] == [0, 1, 0, 1]
    assert [step.batch_num for step in found] == [0, 1, 2, 3]
    assert {step.group for step in found} == {1}


def test_validation_has_the_same_order_every_time():
    valid = order(6, 2, first=True, later="itemwise")
    schedule = Schedule((order(),), (valid,), ("epoch", 1), last=6)
    found = [list(step.indices) for step in schedule.steps() if step.seed is None]
    expected = shuffled(5, 6)
    assert found == [expected[0:2], expected[2:4], expected[4:6]] * 2


def test_the_groups_of_validation_follow_one_another():
    valid = order(4, 2, later="repeat")
    schedule = Schedule((order(),), (valid, valid), ("epoch", 1), last=3)
    found = [step for step in schedule.steps() if step.seed is None]
    assert [step.group for step in found] == [1, 1, 2, 2]
    assert [step.epoch_batch for step in found] == [0, 1, 2, 3]


def test_validation_is_due_at_the_end_too():
    by_batch = validated("epoch", 1, last=3)
    assert kinds(by_batch) == "TTTVV"


@pytest.mark.parametrize("first", [4, 5, 100])
def test_a_start_at_or_past_the_end_has_no_batches(first):
    assert kinds(validated("batch", 1, first=first, last=4)) == ""


def test_without_an_end_the_schedule_is_endless():
    assert kinds(validated("epoch", 1), 500) == "TTTVV" * 100


@pytest.mark.parametrize("later", SHUFFLES)
@pytest.mark.parametrize("first", [1, 3, 4, 8])
def test_starting_later_gives_the_rest_of_the_same_batches(later, first):
    groups = (order(later=later), order(8, 2, seed=9, later=later, first=True))
    whole = list(Schedule(groups, last=20).steps())
    assert list(Schedule(groups, first=first, last=20).steps()) == whole[first:]
