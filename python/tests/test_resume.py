"""Any state, also after a round trip, continues the sequence."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import Python, rows_of
from millstream import ArraySampleSource, BatchTransform, DataLoader, LoaderState
from millstream._delivery.jit import FAILURES
from walks import iterated, same_bytes, same_walk, scanned, specified, stacked, stepped

N, BATCH = 23, 5
STEPS = 5
"""Steps of an epoch."""


@pytest.fixture(scope="module")
def loader() -> DataLoader:
    loader = DataLoader([ArraySampleSource(rows_of(N)), BatchTransform(BATCH)])
    assert loader.steps_per_epoch == STEPS
    return loader


@pytest.fixture(scope="module")
def walk(loader: DataLoader) -> Any:
    """Returns three epochs with seed 7."""
    return specified(loader, loader.init_state(7), 3 * STEPS)


def rest(walk: Any, step: int, end: int | None = None) -> Any:
    return jax.tree.map(lambda x: x[step:end], tuple(walk))


def states(loader: DataLoader) -> list[LoaderState]:
    """Returns the states before each step of three epochs."""
    found = [loader.init_state(7)]
    iterator = loader.iterate(found[0], steps=3 * STEPS)
    found += [iterator.state for _ in iterator]
    return found[:-1]


def orbax_round_trip(folder: Path, target: bool) -> Callable[[Any], Any]:
    checkpoint = pytest.importorskip("orbax.checkpoint")
    saver = checkpoint.StandardCheckpointer()
    count = iter(range(1000))

    def there_and_back(state: LoaderState) -> Any:
        place = folder / f"at{next(count)}"
        saver.save(place, jax.tree.map(jnp.asarray, state))
        saver.wait_until_finished()
        like = jax.tree.map(jnp.asarray, state)
        return saver.restore(place, like) if target else saver.restore(place)

    return there_and_back


TRIPS: dict[str, Callable[[LoaderState], Any]] = {
    "as it is": lambda state: state,
    "pickled": lambda state: pickle.loads(pickle.dumps(state)),
    "pickled from a device": lambda s: pickle.loads(pickle.dumps(jax.device_put(s))),
    "mapped": lambda state: jax.tree.map(lambda x: x + 0, state),
    "put on a device": jax.device_put,
    "put on that device": lambda s: jax.device_put(s, jax.devices()[0]),
    "as numpy words": lambda state: np.array(state.words),
    "as a dict": lambda state: {"words": np.array(state.words)},
    "as bytes": lambda s: LoaderState(np.frombuffer(bytes(np.asarray(s.words)), "u4")),
}


@pytest.mark.parametrize("trip", TRIPS)
def test_every_state_gives_the_rest_of_the_sequence(
    loader: DataLoader, walk: Any, trip: str
) -> None:
    for step, state in enumerate(states(loader)):
        restored = TRIPS[trip](state)
        left = 3 * STEPS - step
        same_walk(iterated(loader, restored, left), rest(walk, step))
        batch, after, mask = loader.next_batch(restored)
        same_walk(stacked([(batch, mask, after.words)]), rest(walk, step, step + 1))
        batch, after, mask = _jitted(loader)(restored)
        same_walk(stacked([(batch, mask, after.words)]), rest(walk, step, step + 1))


def _jitted(loader: DataLoader) -> Any:
    return jax.jit(loader.next_batch)


@pytest.mark.parametrize("target", [True, False])
@pytest.mark.filterwarnings("ignore")  # of Orbax, about itself
def test_orbax_restores_a_state(
    loader: DataLoader, walk: Any, target: bool, tmp_path: Path
) -> None:
    trip = orbax_round_trip(tmp_path, target)
    for step in (0, 1, STEPS - 1, STEPS, 2 * STEPS):
        restored = trip(states(loader)[step])
        assert isinstance(restored, LoaderState if target else dict)
        same_walk(iterated(loader, restored, STEPS), rest(walk, step, step + STEPS))
        after, _, _ = loader.scan_epoch(restored, 0, lambda c, b, m: (c, None))
        same_bytes(after.words, walk[2][step + STEPS - 1])


def test_the_iterators_state_follows_the_last_delivered_batch(
    loader: DataLoader, walk: Any
) -> None:
    start = loader.init_state(7)
    iterator = loader.iterate(start, steps=2 * STEPS)
    assert iterator.state == start
    for step, _ in enumerate(iterator):
        same_bytes(np.asarray(iterator.state.words), walk[2][step])
        assert len(iterator) == 2 * STEPS - step - 1
    same_bytes(np.asarray(iterator.state.words), walk[2][2 * STEPS - 1])
    assert start == loader.init_state(7)


def test_a_stopped_loop_resumes_after_its_last_batch(
    loader: DataLoader, walk: Any
) -> None:
    for stop in range(2 * STEPS):
        iterator = loader.iterate(loader.init_state(7), steps=2 * STEPS)
        for step, _ in enumerate(iterator):
            if step == stop:
                break
        left = 2 * STEPS - stop - 1
        if left:
            found = iterated(loader, iterator.state, left)
            same_walk(found, rest(walk, stop + 1, 2 * STEPS))


def test_the_state_after_an_epoch_is_the_start_of_the_next(loader: DataLoader) -> None:
    state = loader.init_state(7)
    after, _, _ = loader.scan_epoch(state, 0, lambda c, b, m: (c, None))
    iterator = loader.iterate(state)
    list(iterator)
    for _ in range(STEPS):
        _, state, _ = loader.next_batch(state)
    for found in (after, iterator.state, state):
        assert (found.epoch, found.step) == (1, 0)
        assert found == state


def test_iterate_ends_with_the_epoch_of_its_state(loader: DataLoader) -> None:
    for step, state in enumerate(states(loader)):
        iterator = loader.iterate(state)
        assert len(list(iterator)) == STEPS - step % STEPS
        assert (iterator.state.epoch, iterator.state.step) == (step // STEPS + 1, 0)


def test_iterating_twice_gives_the_same_twice(loader: DataLoader, walk: Any) -> None:
    state = states(loader)[3]
    for _ in range(2):
        same_walk(iterated(loader, state, STEPS), rest(walk, 3, 3 + STEPS))
        same_walk(stepped(loader, state, STEPS), rest(walk, 3, 3 + STEPS))


def test_two_iterators_do_not_disturb_each_other(loader: DataLoader, walk: Any) -> None:
    one = loader.iterate(loader.init_state(7), steps=STEPS)
    other = loader.iterate(states(loader)[4], steps=STEPS)
    pairs = list(zip(one, other, strict=True))
    same_bytes(stacked((*a, 0) for a, _ in pairs)[:2], rest(walk, 0, STEPS)[:2])
    same_bytes(stacked((*b, 0) for _, b in pairs)[:2], rest(walk, 4, 4 + STEPS)[:2])


def test_steps_cross_epochs_and_may_be_zero(loader: DataLoader, walk: Any) -> None:
    same_walk(iterated(loader, states(loader)[3], 9), rest(walk, 3, 12))
    state = loader.init_state(7)
    none = loader.iterate(state, steps=0)
    assert list(none) == []
    assert none.state == state
    for steps in (-1, 1.5, True, "1"):
        with pytest.raises(ValueError, match="steps must be a whole number"):
            loader.iterate(state, steps=steps)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="steps must be a whole number"):
            loader.scan_epoch(state, 0, lambda c, b, m: (c, None), steps=steps)  # type: ignore[arg-type]


def test_scan_takes_the_rest_of_an_epoch(loader: DataLoader, walk: Any) -> None:
    for step in (1, 3):
        state = states(loader)[step]
        same_walk(scanned(loader, state, STEPS - step), rest(walk, step, STEPS))
    same_walk(scanned(loader, states(loader)[3], STEPS), rest(walk, 3, 3 + STEPS))
    same_walk(scanned(loader, states(loader)[3], 8, unroll=3), rest(walk, 3, 11))
    after, carry, outputs = loader.scan_epoch(
        states(loader)[3], 5, lambda c, b, m: (c + 1, None), steps=0
    )
    assert (after.epoch, after.step, int(carry), outputs) == (0, 3, 5, None)


def test_a_state_of_another_process_resumes_exactly(
    loader: DataLoader, walk: Any, python: Python
) -> None:
    code = f"""
        import pickle, sys
        from conftest import rows_of
        from millstream import ArraySampleSource, BatchTransform, DataLoader

        # Other threads, another prefetch and another loader before it in the process.
        DataLoader([ArraySampleSource(rows_of(3)), BatchTransform(2)])
        loader = DataLoader(
            [ArraySampleSource(rows_of({N})), BatchTransform({BATCH})],
            threads=1, prefetch=3,
        )
        found = []
        iterator = loader.iterate(loader.init_state(7), steps={3 * STEPS})
        for _ in iterator:
            found.append(pickle.dumps(iterator.state))
        print(pickle.dumps(found).hex())
    """
    found = [pickle.loads(x) for x in pickle.loads(bytes.fromhex(python.run(code)))]
    assert len(found) == 3 * STEPS
    for step, state in enumerate(found[:-1], start=1):
        same_walk(iterated(loader, state, 3 * STEPS - step), rest(walk, step))


def others() -> dict[str, DataLoader]:
    """Returns pipelines with another size, batch, order, structure or dtype."""
    data = rows_of(N)
    return {
        "size": DataLoader([ArraySampleSource(rows_of(N + 1)), BatchTransform(BATCH)]),
        "batch": DataLoader([ArraySampleSource(data), BatchTransform(BATCH + 1)]),
        "order": DataLoader(
            [ArraySampleSource(data, "sequential"), BatchTransform(BATCH)]
        ),
        "remainder": DataLoader(
            [ArraySampleSource(data), BatchTransform(BATCH, remainder="wrap")]
        ),
        "structure": DataLoader([ArraySampleSource(data["x"]), BatchTransform(BATCH)]),
        "dtype": DataLoader(
            [
                ArraySampleSource({**data, "y": data["y"].astype(np.int16)}),
                BatchTransform(BATCH),
            ]
        ),
    }


@pytest.mark.parametrize("difference", others())
def test_a_state_of_another_pipeline_is_an_error(
    loader: DataLoader, difference: str
) -> None:
    state = others()[difference].init_state(7)
    message = "state.*another pipeline"
    with pytest.raises(ValueError, match=message):
        loader.iterate(state)
    with pytest.raises(ValueError, match=message):
        loader.next_batch(state)
    with pytest.raises(ValueError, match=message):
        loader.scan_epoch(state, 0, lambda c, b, m: (c, None))
    with pytest.raises(ValueError, match=message):
        loader.which_samples(state)


def test_a_state_of_another_pipeline_is_an_error_inside_jit(loader: DataLoader) -> None:
    state = others()["size"].init_state(7)
    message = "state.*another pipeline"
    # JAX raises JaxRuntimeError, or ValueError from calls on the calling thread.
    for run in (
        jax.jit(loader.next_batch),
        jax.jit(lambda s: loader.scan_epoch(s, 0, lambda c, b, m: (c, m))),
    ):
        with pytest.raises(FAILURES, match=message):
            jax.block_until_ready(run(state))
        error = loader.last_error
        assert type(error) is ValueError
        assert "another pipeline" in str(error)
    # A state of this pipeline still works.
    jax.block_until_ready(jax.jit(loader.next_batch)(loader.init_state(7)))


def test_a_state_of_another_pipeline_is_an_error_with_a_traced_gather() -> None:
    loader = DataLoader(
        [ArraySampleSource(rows_of(N)), BatchTransform(BATCH)], traced=True
    )
    state = others()["size"].init_state(7)
    with pytest.raises(ValueError, match="another pipeline"):
        loader.next_batch(state)
    with pytest.raises(ValueError, match="another pipeline"):
        loader.scan_epoch(state, 0, lambda c, b, m: (c, None))


def test_a_state_fits_other_data_of_the_same_shape(
    loader: DataLoader, walk: Any
) -> None:
    data = jax.tree.map(lambda x: x[::-1].copy(), rows_of(N))
    other = DataLoader([ArraySampleSource(data), BatchTransform(BATCH)])
    state = states(loader)[4]
    assert np.array_equal(other.which_samples(state), loader.which_samples(state))
    found = iterated(other, state, 3)
    assert not np.array_equal(found[0]["x"], walk[0]["x"][4:7])
