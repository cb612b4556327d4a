"""How Hydrax's Dataloader handles functions that fail, stall or kill their process."""

from __future__ import annotations

import hydrax_loaders as loaders
import jax.numpy as jnp
import numpy as np
import pytest
from hydrax_loaders import fill, gathered, group
from millstream._core.errors import WorkerError
from millstream.hydrax import BatchTimeoutError, DataGroup, Dataloader


def test_a_startup_that_fails_is_raised():
    loader = Dataloader(fill, group(), startup_func=loaders.fail_to_start)
    with pytest.raises(LookupError, match="no such device"), loader:
        next(loader)


def test_an_item_that_fails_drops_its_batch_with_a_warning():
    loader = Dataloader(loaders.fail_at_five, group(), end_at=("epoch", 1))
    with pytest.warns(RuntimeWarning, match="batch 1 .*was dropped") as warned:
        found = gathered(loader)
    assert [values[0] for _, values, _ in found] == [0, 8, 12]
    (warning,) = warned
    told = str(warning.message)
    assert "KeyError: 'number five'" in told
    assert "raised for item 5 of its group, 5" in told
    assert "in fail_at_five" in told  # the worker's own traceback


def test_an_item_that_fails_can_be_raised():
    loader = Dataloader(loaders.fail_at_five, group(), on_error="raise")
    with pytest.raises(KeyError, match="number five") as caught, loader:
        for _ in loader:
            pass
    notes = "\n".join(caught.value.__notes__)
    assert "item 5 of its group" in notes
    assert "batch 1 (epoch 0, number 1)" in notes


@pytest.mark.parametrize(
    "more", [{}, {"placement_func": loaders.stop}, {"startup_func": loaders.stop}]
)
def test_stop_iteration_of_a_function_is_an_error(more):
    function = fill if more else loaders.stop_at_five
    loader = Dataloader(function, group(), on_error="raise", **more)
    with pytest.raises(RuntimeError, match="raised StopIteration") as caught, loader:
        for _ in loader:
            pass
    assert isinstance(caught.value.__cause__, StopIteration)
    assert caught.value.__cause__.value == "of the function"


def test_a_loader_that_always_fails_does_not_run_forever():
    loader = Dataloader(loaders.fail_always, group())
    raised = pytest.raises(RuntimeError, match="4 batches in a row")
    with pytest.warns(RuntimeWarning, match="Unsendable: one and two"), loader, raised:
        next(loader)


def test_the_loader_function_must_return_a_dict():
    loader = Dataloader(loaders.return_a_list, group(), on_error="raise")
    with pytest.raises(TypeError, match="must return a dict or None"), loader:
        next(loader)


def test_arrays_in_additional_data_warn():
    loader = Dataloader(loaders.return_an_array, group(), end_at=("batch", 1))
    with loader, pytest.warns(RuntimeWarning, match="'array' has array type"):
        next(loader)


def test_arrays_that_the_loader_function_keeps_warn():
    loader = Dataloader(loaders.keep_the_array, group(), end_at=("batch", 1))
    with loader, pytest.warns(RuntimeWarning, match="dangling reference.*'value'"):
        next(loader)


def test_a_function_that_cannot_be_sent_is_refused():
    with open(__file__, "rb") as file:
        loader = Dataloader(lambda data, arrays, seed: file.read(), group())
        with pytest.raises(TypeError, match="cannot be sent"), loader:
            pass


@pytest.mark.parametrize(
    ("function", "how"),
    [(loaders.die_at_five, "signal 9|SIGKILL"), (loaders.exit_at_five, "status 7")],
)
def test_a_dead_worker_raises_worker_error(function, how):
    loader = Dataloader(function, group())
    with pytest.raises(WorkerError, match=how) as caught, loader:
        for _ in loader:
            pass
    assert "5" in str(caught.value)
    assert gathered(Dataloader(fill, group(), end_at=("batch", 1)))


def test_a_stalled_item_raises_a_timeout_with_its_location():
    loader = Dataloader(loaders.stall, group(), timeout_sec=1)
    with pytest.raises(BatchTimeoutError) as caught, loader:
        for _ in loader:
            pass
    assert isinstance(caught.value, TimeoutError)
    assert "stall" in str(caught.value)


def test_a_slow_batch_of_fast_items_raises_a_timeout():
    loader = Dataloader(loaders.slow_from_forty, group(80, 40), timeout_sec=1)
    with loader:
        next(loader)
        with pytest.raises(
            BatchTimeoutError, match="no batches have been produced in 1 seconds"
        ):
            next(loader)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda a: [a], TypeError, "non-dict type list"),
        (lambda a: {**a, "more": a["odd"]}, ValueError, "'more' has unexpected name"),
        (
            lambda a: {**a, "odd": np.zeros((4, 5))},
            TypeError,
            "'odd' of type ndarray is not a JAX array",
        ),
        (
            lambda a: {**a, "odd": a["odd"][1:]},
            ValueError,
            r"has shape \(3, 5\), not \(4, 5\)",
        ),
        (
            lambda a: {**a, "odd": a["odd"] * 1.0},
            ValueError,
            "has dtype float32, not uint8",
        ),
    ],
)
def test_wrong_placements_are_refused(change, error, text):
    def place(arrays, layouts, additional, data):
        return change({name: jnp.asarray(array) for name, array in arrays.items()})

    loader = Dataloader(fill, group(), placement_func=place, on_error="raise")
    with pytest.raises(error, match=text), loader:
        next(loader)


def test_integers_that_do_not_fit_are_refused():
    arrays = {"value": ((), np.int64, np.int64)}
    data = DataGroup(2, [7, 2**40 + 5], loader_arrays=arrays)
    with pytest.warns(UserWarning, match="int64"):
        loader = Dataloader(loaders.fill_value, data)
    with pytest.raises(OverflowError, match="1099511627781") as caught, loader:
        next(loader)
    assert "raised for batch 0" in "".join(caught.value.__notes__)


def test_additional_data_that_cannot_be_pickled_drop_their_batch():
    loader = Dataloader(loaders.return_a_lock_at_five, group(), end_at=("epoch", 1))
    with pytest.warns(RuntimeWarning, match="batch 1 .*was dropped") as warned:
        found = gathered(loader)
    assert [values[0] for _, values, _ in found] == [0, 8, 12]
    (warning,) = warned
    assert "cannot pickle" in str(warning.message)
    assert "raised for item 5 of its group, 5" in str(warning.message)


def test_bytes_that_the_loader_function_does_not_write_are_zero():
    loader = Dataloader(loaders.fill_one, group(items=20), end_at=("epoch", 3))
    with loader:
        for batch in loader:
            values = np.asarray(batch.arrays["value"])
            assert (values > 0).sum(axis=1).tolist() == [1] * 4
            assert not np.asarray(batch.arrays["odd"]).any()


@pytest.mark.parametrize("timeout", ["x", None, float("nan")])
def test_a_timeout_that_is_not_a_number_is_refused(timeout):
    with pytest.raises(ValueError, match="timeout_sec must be a number of seconds"):
        Dataloader(fill, group(), timeout_sec=timeout)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), 1e300])
def test_timeouts_that_wait_forever(timeout):
    loader = Dataloader(fill, group(), end_at=("batch", 1), timeout_sec=timeout)
    assert len(gathered(loader)) == 1
