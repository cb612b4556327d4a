"""save and restore: a state fits its pipeline, or an error lists the differences."""

from __future__ import annotations

import contextlib
import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from conftest import rows_of
from walks import iterated, same_bytes, same_walk

N, BATCH, STEPS = 23, 5, 5


def loader_of(batch: int = BATCH, n: int = N, **more: Any) -> ms.DataLoader:
    ordering = more.pop("ordering", "shuffle")
    source = ms.ArraySampleSource(more.pop("data", rows_of(n)), ordering)
    return ms.DataLoader([source, ms.BatchTransform(batch, **more)])


def after(loader: ms.DataLoader, steps: int) -> ms.LoaderState:
    iterator = loader.iterate(loader.init_state(7), steps=steps)
    list(iterator)
    return iterator.state


TRIPS = {
    "dict": lambda loader, state: loader.save(state),
    "json": lambda loader, state: json.loads(json.dumps(loader.save(state))),
    "bytes": lambda loader, state: loader.save(state, format="bytes"),
    "text": lambda loader, state: loader.save(state, format="bytes").decode(),
    "pickled": lambda loader, state: pickle.loads(pickle.dumps(loader.save(state))),
    "bare": lambda loader, state: state,
    "words": lambda loader, state: {"words": np.asarray(state.words)},
}


@pytest.mark.parametrize("trip", TRIPS)
def test_a_saved_state_continues_from_any_step(trip: str) -> None:
    loader = loader_of()
    walk = iterated(loader, loader.init_state(7), 3 * STEPS)
    for step in range(0, 2 * STEPS + 1):
        kept = TRIPS[trip](loader, after(loader, step))
        other = ms.DataLoader(
            [ms.ArraySampleSource(rows_of(N)), ms.BatchTransform(BATCH)],
            threads=1,
            prefetch=0,
        )
        state = other.restore(kept)
        # Saving twice in a row works too.
        state = loader.restore(TRIPS[trip](other, state))
        rest = jax.tree.map(lambda x, at=step: x[at:], walk)
        same_walk(iterated(other, state, 3 * STEPS - step), rest)


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "samples": ({"n": 24}, "the number of samples was 23 and is 24\\."),
    "order": ({"ordering": "sequential"}, r"the order was Shuffle\(\) and is Seq"),
    "remainder": ({"remainder": "wrap"}, "the remainder was pad and is wrap"),
    "fields": (
        {"data": rows_of(N)["x"]},
        r"the set of fields .*'x': 'int32\[3\]'.* and is",
    ),
    "dtype": (
        {"data": {**rows_of(N), "y": np.zeros(N, np.int16)}},
        r"'y': 'uint8\[\]'.* and is .*'y': 'int16\[\]'",
    ),
    "list": (
        {"ordering": ms.Listed(np.arange(N)[::-1].copy())},
        r"the order was Shuffle\(\) and is Listed",
    ),
}


@pytest.mark.parametrize("difference", DIFFERENT)
def test_a_difference_is_named(difference: str) -> None:
    changes, message = DIFFERENT[difference]
    kept = loader_of().save(after(loader_of(), 2))
    with pytest.raises(ValueError, match=message) as caught:
        loader_of(**changes).restore(kept)
    assert "another pipeline" in str(caught.value)
    with pytest.raises(ValueError, match=message):
        loader_of(**changes).restore(kept, by="sample")


def test_two_differences_are_both_named() -> None:
    kept = loader_of().save(after(loader_of(), 2))
    message = "samples was 23 and is 40; the batch size was 5 and is 4"
    with pytest.raises(ValueError, match=message):
        loader_of(4, n=40).restore(kept)


def test_different_lists_are_a_difference() -> None:
    one = loader_of(ordering=ms.Listed(np.arange(4000) % N))
    other = loader_of(ordering=ms.Listed((np.arange(4000) + 1) % N))
    with pytest.raises(ValueError, match="the order was"):
        other.restore(one.save(one.init_state(7)))


def test_another_batch_size_is_an_error_that_suggests_by_sample() -> None:
    kept = loader_of().save(after(loader_of(), 2))
    message = r"batches of 5 samples.*batches of 10.*by='sample'"
    with pytest.raises(ValueError, match=message):
        loader_of(10).restore(kept)
    loader = loader_of(10)
    state = loader.restore(kept, by="sample")
    assert (state.epoch, state.step) == (0, 1)
    wanted = after(loader, 1)
    assert state == wanted
    with pytest.raises(ValueError, match="does not hold the batch size"):
        loader.restore(after(loader_of(), 2), by="sample")
    with pytest.raises(ValueError, match="by must be 'step' or 'sample'"):
        loader.restore(kept, by="row")


def samples(loader: ms.DataLoader, state: Any, steps: int) -> np.ndarray:
    found = []
    for _ in range(steps):
        found.append(loader.which_samples(state))
        _, state, _ = loader.next_batch(state)
    flat = np.concatenate(found)
    return flat[flat >= 0]


def test_by_sample_warns_about_repeated_samples() -> None:
    before, loader = loader_of(5), loader_of(4)
    order = samples(before, before.init_state(7), STEPS)
    for step in range(STEPS):
        kept = before.save(after(before, step))
        again = step * 5 % 4
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            state = loader.restore(kept, by="sample")
        assert len(caught) == (again > 0)
        if again:
            assert f"repeats {again} samples" in str(caught[0].message)
        left = loader.steps_per_epoch - state.step
        assert state.epoch == 0
        same_bytes(samples(loader, state, left), order[step * 5 - again :])


@pytest.mark.filterwarnings("ignore:the saved state is at position")
def test_by_sample_where_the_remainder_wraps_or_is_dropped() -> None:
    before, loader = (loader_of(b, remainder="wrap") for b in (5, 4))
    order = samples(before, before.init_state(7), 3 * STEPS)
    for step in range(2 * STEPS):
        state = loader.restore(before.save(after(before, step)), by="sample")
        first = step * 5 // 4 * 4
        same_bytes(samples(loader, state, 5), order[first : first + 20])
    before, loader = (loader_of(b, remainder="drop") for b in (2, 10))
    state = loader.restore(before.save(after(before, 10)), by="sample")
    assert (state.epoch, state.step) == (1, 0)  # sample 20: less than a batch is left


def test_an_iterator_is_saved_and_set() -> None:
    loader = loader_of()
    walk = iterated(loader, loader.init_state(7), 2 * STEPS)
    for step in range(2 * STEPS):
        iterator = loader.iterate(loader.init_state(7), steps=2 * STEPS)
        for _ in range(step):
            next(iterator)
        kept = pickle.loads(pickle.dumps(iterator.get_state()))
        assert json.loads(json.dumps(kept)) == kept
        next(iterator)
        other = loader_of().iterate(loader.init_state(0))
        for restored in (iterator, other):
            restored.set_state(kept)
            assert len(restored) == 2 * STEPS - step
            found = list(restored)
            assert len(found) == 2 * STEPS - step
            same_bytes(found[0][0], jax.tree.map(lambda x, at=step: x[at], walk[0]))
        for text in (json.dumps(kept), json.dumps(kept).encode()):
            iterator.set_state(text)
            assert len(iterator) == 2 * STEPS - step
    iterator.set_state(loader.save(after(loader, 3)))
    assert len(iterator) == STEPS - 3  # to the end of its epoch
    with pytest.raises(ValueError, match="number of samples"):
        loader_of(n=40).iterate(loader_of(n=40).init_state(0)).set_state(kept)
    with pytest.raises(ValueError, match="found -1"):
        iterator.set_state({**kept, "left": -1})


def test_other_objects_are_errors() -> None:
    loader = loader_of()
    kept = loader.save(loader.init_state(7))
    for wrong, message in (
        (b"\x00\x01", "not a saved state"),
        ("{", "not a saved state"),
        ({**kept, "millstream": 99}, "version 99"),
        ({**kept, "words": [1, 2]}, r"found \[1, 2\]"),
        ({**kept, "words": [1 << 40] * 8}, "not a saved state"),
        ({**kept, "pipeline": None}, "pipeline to be a dict, found None"),
    ):
        with pytest.raises(ValueError, match=message):
            loader.restore(wrong)
    with pytest.raises(TypeError, match="init_state"):
        loader.restore(3)
    with pytest.raises(ValueError, match="format must be 'dict' or 'bytes'"):
        loader.save(loader.init_state(7), format="xml")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="cannot be used inside jit"):
        jax.jit(lambda state: loader.save(state) and 0)(loader.init_state(7))


@pytest.mark.filterwarnings("ignore")  # of Orbax, about itself
def damaged_saves() -> Iterator[Any]:
    """Yields saved states with missing or replaced values, as objects and as JSON."""
    loader = loader_of()
    kept = loader.save(loader.init_state(7))
    strange: list[Any] = [None, [], {}, "text", -1, 1.5, [[1]] * 8, {"is": 1}, 1 << 70]
    for changed in (kept, kept["pipeline"], kept["pipeline"]["order"]):
        for key in list(changed):
            value = changed.pop(key)
            for other in (..., *strange):
                if other is not ...:
                    changed[key] = other
                yield json.loads(json.dumps(kept))
                yield json.dumps(kept).encode()
            changed[key] = value
    yield from ("[" * 100_000, "3", "null", "[]", "{}", b"", b"\xff" * 100, {})
    yield from ({"words": None}, {"words": [1] * 8})
    whole = json.dumps(kept)
    yield from (whole[:length] for length in range(0, len(whole), 17))


def test_damaged_saves_raise_only_value_errors() -> None:
    loader = loader_of()
    messages = []
    for kept in damaged_saves():
        for by in ("step", "sample"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    loader.restore(kept, by=by)
            except ValueError as error:
                messages.append(str(error))
        with contextlib.suppress(ValueError):
            loader.iterate(loader.init_state(0)).set_state(kept)
    assert max(map(len, messages)) < 1500


def test_the_error_for_a_damaged_save_says_what_to_do() -> None:
    loader = loader_of()
    kept = loader.save(loader.init_state(7))
    del kept["pipeline"]["batch_size"]
    message = r"batch_size of the pipeline .*, found None.* start again with init_state"
    with pytest.raises(ValueError, match=message):
        loader.restore(kept)


def test_orbax_saves_it_with_a_model(tmp_path: Path) -> None:
    ocp = pytest.importorskip("orbax.checkpoint")
    from millstream.orbax import LoaderRestore, LoaderSave

    loader = loader_of()
    params = {"w": np.arange(6, dtype=np.float32)}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (2, STEPS, 7):
            state = after(loader, step)
            items = {
                "model": ocp.args.StandardSave(params),
                "data": LoaderSave(loader, state),
            }
            manager.save(step, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
        for step in (2, STEPS, 7):
            asked = {
                "model": ocp.args.StandardRestore(params),
                "data": LoaderRestore(loader_of()),
            }
            kept = manager.restore(step, args=ocp.args.Composite(**asked))
            assert kept.data == after(loader, step)
            same_bytes(kept.model, params)
        (file,) = (tmp_path / "run" / "7").rglob("millstream.json")
        file.write_bytes(file.read_bytes()[:50])
        asked = {"data": LoaderRestore(loader)}
        with pytest.raises(ValueError, match=r"/millstream.json: this is not a saved"):
            manager.restore(7, args=ocp.args.Composite(**asked))
        wider = LoaderRestore(loader_of(10), by="sample")
        kept = manager.restore(2, args=ocp.args.Composite(data=wider))
        assert kept.data == after(loader_of(10), 1)
        other = LoaderRestore(loader_of(n=24))
        with pytest.raises(ValueError, match="number of samples was 23 and is 24"):
            manager.restore(2, args=ocp.args.Composite(data=other))
