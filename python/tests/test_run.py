"""`DataLoader.run` and `epochs` iterate over several epochs, stop and resume."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any

import jax
import numpy as np
import pytest
from conftest import rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    Listed,
    PythonMapTransform,
    cereal,
    cyreal,
)

STEPS = 3  # of an epoch: 10 samples in batches of 4


def make(ordering: Any = "shuffle", remainder: str = "pad", **options: Any) -> Any:
    batches = BatchTransform(4, remainder=remainder)
    return DataLoader([ArraySampleSource(rows_of(10), ordering), batches], **options)


def read(batches: Any) -> list[tuple[Any, Any]]:
    return [jax.tree.map(np.asarray, pair) for pair in batches]


def check_same(found: Any, expected: Any) -> None:
    found, expected = read(found), read(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap", "partial"])
def test_run_delivers_what_iterate_delivers_across_epochs(remainder):
    loader = make(remainder=remainder)
    count = 3 * loader.steps_per_epoch
    expected = loader.iterate(loader.init_state(5), steps=count)
    check_same(loader.run(seed=5, epochs=3), expected)


def test_two_epochs_differ_and_have_all_samples():
    loader = make()
    run = loader.run(epochs=2)
    rows = [batch["x"][mask] for batch, mask in run]
    first, second = np.concatenate(rows[:STEPS]), np.concatenate(rows[STEPS:])
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first, axis=0), np.sort(second, axis=0))


def test_the_default_seed_is_0_and_keys_are_seeds():
    loader = make()
    check_same(loader.run(epochs=1), loader.run(seed=0, epochs=1))
    check_same(loader.run(seed=jax.random.key(7), steps=4), loader.run(seed=7, steps=4))


@pytest.mark.parametrize(
    ("end", "count"),
    [
        ({"epochs": 2}, 6),
        ({"steps": 4}, 4),
        ({"epochs": 1, "steps": 4}, 3),
        ({"epochs": 2, "steps": 4}, 4),
        ({"epochs": 0}, 0),
        ({"steps": 0}, 0),
    ],
)
def test_the_end_is_counted_from_epoch_0_before_and_after_a_resume(end, count):
    loader = make()
    whole = read(loader.run(seed=3, **end))
    assert len(whole) == count
    for stop in range(count + 1):
        run = loader.run(seed=3, **end)
        assert len(run) == count
        first = list(itertools.islice(run, stop))
        assert len(run) == count - stop
        rest = loader.run(run.state, **end)
        assert len(rest) == count - stop
        check_same([*first, *rest], whole)


def test_a_state_past_the_end_yields_nothing():
    loader = make()
    run = loader.run(seed=1, steps=5)
    list(run)
    later = loader.run(run.state, epochs=1)
    assert len(later) == 0
    assert list(later) == []
    assert (later.epoch, later.step, later.epoch_ended) == (1, 5, False)
    assert later.state == run.state
    assert list(loader.run(run.state, steps=5)) == []


def test_a_run_without_an_end_never_ends_and_has_no_length():
    loader = make()
    run = loader.run()
    assert bool(run)
    with pytest.raises(TypeError, match="this run has no end"):
        len(run)
    check_same(itertools.islice(run, 8), loader.run(steps=8))
    assert run.step == 8


def test_epoch_step_and_epoch_ended_describe_the_batch_delivered_last():
    loader = make()
    run = loader.run(epochs=2)
    assert (run.epoch, run.step, run.epoch_ended) == (0, 0, False)
    seen = [(run.epoch, run.step, run.epoch_ended) for _ in run]
    assert seen == [
        (0, 1, False),
        (0, 2, False),
        (0, 3, True),
        (1, 4, False),
        (1, 5, False),
        (1, 6, True),
    ]
    assert (run.state.epoch, run.state.step) == (2, 0)


def test_a_resumed_run_counts_the_batches_before_it():
    loader = make()
    run = loader.run(epochs=3)
    for _ in range(STEPS):
        next(run)
    assert run.epoch_ended
    resumed = loader.run(run.state, epochs=3)
    assert (resumed.epoch, resumed.step, resumed.epoch_ended) == (1, 3, False)
    next(resumed)
    assert (resumed.epoch, resumed.step, resumed.epoch_ended) == (1, 4, False)


def test_the_repr_of_a_run_is_its_position():
    loader = make()
    run = loader.run(epochs=2)
    assert repr(run) == "<Run: epoch 0, step 0, 6 batches left>"
    for _ in range(4):
        next(run)
    assert repr(run) == "<Run: epoch 1, step 4, 2 batches left>"
    assert repr(loader.run()) == "<Run: epoch 0, step 0, no end>"


def test_a_run_of_one_step_per_epoch():
    loader = DataLoader([ArraySampleSource(rows_of(4)), BatchTransform(4)])
    run = loader.run(epochs=3)
    assert [(run.epoch, run.epoch_ended) for _ in run] == [
        (0, True),
        (1, True),
        (2, True),
    ]


def test_a_run_continues_after_break():
    loader = make()
    whole = read(loader.run(seed=2, epochs=2))
    run = loader.run(seed=2, epochs=2)
    assert iter(run) is run
    for _ in run:
        break
    assert run.step == 1
    check_same(run, whole[1:])


def test_two_runs_have_their_own_positions():
    loader = make()
    one, other = loader.run(seed=1, epochs=1), loader.run(seed=1, epochs=1)
    first = next(one)
    check_same([first], [next(other)])
    list(one)
    assert other.step == 1


def test_a_saved_state_resumes_a_run():
    loader = make()
    run = loader.run(seed=4, epochs=2)
    for _ in range(4):
        next(run)
    saved = json.loads(json.dumps(loader.save(run.state)))
    check_same(
        make().run(loader.restore(saved), epochs=2), loader.run(run.state, epochs=2)
    )


def test_get_state_and_set_state_keep_the_end():
    loader = make()
    run = loader.run(seed=4, epochs=2)
    for _ in range(4):
        next(run)
    saved = json.loads(json.dumps(run.get_state()))
    rest = read(run)
    other = make().run(epochs=2)
    other.set_state(saved)
    assert (len(other), other.step, other.epoch) == (2, 4, 1)
    check_same(other, rest)
    endless = make().run()
    endless.set_state(endless.get_state())
    assert bool(endless)


def test_a_run_with_progress_is_the_same_run(capsys):
    loader = make()
    run = loader.run(seed=4, epochs=2, progress=True)
    check_same(run, loader.run(seed=4, epochs=2))
    assert run.step == 6
    endless = loader.run(progress=True)
    next(endless)
    endless.close()


def test_state_and_seed_together_are_an_error():
    loader = make()
    state = loader.init_state(0)
    for call in (
        lambda: loader.run(state, seed=0),
        lambda: loader.epochs(1, state, seed=0),
    ):
        with pytest.raises(TypeError, match="takes a state or a seed, not both"):
            call()


@pytest.mark.parametrize("end", [{"epochs": -1}, {"steps": -1}])
def test_a_negative_end_is_an_error(end):
    with pytest.raises(ValueError, match="at least 0"):
        make().run(**end)


def test_run_inside_jit_is_an_error():
    loader = make()
    for call in (loader.run, lambda state: loader.epochs(1, state)):
        with pytest.raises(TypeError, match="cannot be used inside jit"):
            jax.jit(lambda state, call=call: call(state) and 0)(loader.init_state(0))


# epochs


def test_epochs_deliver_what_run_delivers():
    loader = make()
    epochs = loader.epochs(3, seed=5)
    assert len(epochs) == 3
    numbers, batches = [], []
    for epoch in epochs:
        assert len(epoch) == STEPS
        for pair in epoch:
            numbers.append(epoch.epoch)
            batches.append(pair)
    assert numbers == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    check_same(batches, loader.run(seed=5, epochs=3))
    assert list(epochs) == []
    assert len(epochs) == 0


@pytest.mark.parametrize("stop", range(2 * STEPS + 1))
def test_epochs_continue_with_the_rest_of_an_epoch(stop):
    loader = make()
    whole = read(loader.run(seed=5, epochs=2))
    run = loader.run(seed=5)
    for _ in range(stop):
        next(run)
    lengths, batches = [], []
    for epoch in loader.epochs(2, run.state):
        batches.append(list(epoch))
        lengths.append(len(batches[-1]))
        assert (epoch.state.epoch, epoch.state.step) == (epoch.epoch + 1, 0)
    expected = [[3, 3], [2, 3], [1, 3], [3], [2], [1], []]
    assert lengths == expected[stop]
    check_same(itertools.chain(*batches), whole[stop:])


def test_break_starts_the_next_epoch_at_its_beginning():
    loader = make()
    whole = read(loader.run(epochs=3))
    first = []
    for epoch in loader.epochs(3):
        for pair in epoch:
            first.append(pair)
            break
        assert (epoch.state.epoch, epoch.state.step) == (epoch.epoch, 1)
    check_same(first, whole[::STEPS])


def test_an_epoch_that_was_left_resumes_from_its_state():
    loader = make()
    whole = read(loader.run(epochs=2))
    for epoch in loader.epochs(2):
        next(epoch)
        break
    rest = [pair for epoch in loader.epochs(2, epoch.state) for pair in epoch]
    check_same(rest, whole[1:])


# The warning of iterate


def warned(loader: Any, states: Any) -> int:
    """Iterates from each state to the end. Returns the number of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for state in states:
            list(loader.iterate(state))
    return sum("repeats that epoch" in str(w.message) for w in caught)


def test_iterate_warns_once_if_the_same_state_is_iterated_again():
    loader = make()
    state = loader.init_state(0)
    assert warned(loader, [state]) == 0
    assert warned(loader, [state]) == 1
    assert warned(loader, [state, state]) == 0
    assert warned(make(), [state]) == 0


def test_the_warning_points_at_the_line_of_the_caller():
    loader = make()
    state = loader.init_state(0)
    list(loader.iterate(state))
    with pytest.warns(UserWarning, match=r"loader\.run\(epochs=") as caught:
        loader.iterate(state)
    assert caught[0].filename == __file__


def test_iterate_warns_after_another_state_and_with_progress():
    loader = make()
    one, other = loader.init_state(0), loader.init_state(1)
    assert warned(loader, [one, other, one]) == 1
    loader = make()
    state = loader.init_state(0)
    list(loader.iterate(state, progress=True))
    assert warned(loader, [state]) == 1


@pytest.mark.parametrize("ordering", ["sequential", Listed([3, 1, 2, 0, 4])])
def test_iterate_does_not_warn_if_all_epochs_are_the_same(ordering):
    loader = make(ordering)
    state = loader.init_state(0)
    assert warned(loader, [state, state]) == 0
    part = DataLoader(
        [ArraySampleSource(rows_of(10), ordering="sequential").split(0.5, 0.5)[0]]
    )
    state = part.init_state(0)
    assert warned(part, [state, state]) == 0


@pytest.mark.parametrize(
    "stages",
    [
        [BatchTransform(4, remainder="wrap")],
        [PythonMapTransform(lambda sample, seed: sample), BatchTransform(4)],
    ],
)
def test_iterate_warns_if_stages_depend_on_the_epoch(stages):
    source = ArraySampleSource(rows_of(10), ordering="sequential")
    loader = DataLoader([source, *stages])
    state = loader.init_state(0)
    assert warned(loader, [state, state]) == 1


def test_iterate_warns_for_lists_of_several_epochs():
    loader = make(Listed([[0, 1, 2], [2, 1, 0]]))
    state = loader.init_state(0)
    assert warned(loader, [state, state]) == 1


def test_iterate_does_not_warn_for_a_new_state():
    loader = make()
    assert warned(loader, [loader.init_state(0), loader.init_state(0)]) == 0
    state = loader.init_state(0)
    saved = loader.save(state)
    assert warned(loader, [state, loader.restore(saved), loader.restore(state)]) == 0


def test_iterate_does_not_warn_after_a_break():
    loader = make()
    state = loader.init_state(0)
    for _ in range(3):
        for _ in loader.iterate(state):
            break
    assert warned(loader, [state]) == 0


def test_iterate_does_not_warn_in_the_middle_of_an_epoch():
    loader = make()
    run = loader.run()
    next(run)
    state = run.state
    assert warned(loader, [state, state]) == 0


@pytest.mark.parametrize("package", [cyreal, cereal])
def test_iterate_of_compatibility_packages_does_not_warn(package):
    source = package.ArraySampleSource(rows_of(10), ordering="shuffle")
    loader = package.DataLoader([source, package.BatchTransform(4)])
    state = loader.init_state(0)
    assert warned(loader, [state, state]) == 0
