"""Saves and restores states of streams at every step."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from conftest import fails
from stream_sources import Count


@pytest.fixture(scope="module")
def loader() -> ms.DataLoader:
    buffer = ms.BufferTransform(4, 2, 2, "shuffled", "reservoir")
    return ms.DataLoader([Count(7, holes=True), buffer, ms.BatchTransform(2)])


@pytest.fixture(scope="module")
def walk(loader: ms.DataLoader) -> list[Any]:
    """Returns (state, batch) of each step of two epochs."""
    run = loader.run(seed=3, epochs=2)
    found = []
    state = run.state
    for batch, _ in run:
        found.append((state, jax.tree.map(np.asarray, batch)))
        state = run.state
    return found


def through_json(loader: ms.DataLoader, state: Any) -> Any:
    return loader.restore(json.loads(json.dumps(loader.save(state))))


def through_text(loader: ms.DataLoader, state: Any) -> Any:
    return loader.restore(json.dumps(loader.save(state)))


def through_bytes(loader: ms.DataLoader, state: Any) -> Any:
    return loader.restore(loader.save(state, format="bytes"))


def through_pickle(loader: ms.DataLoader, state: Any) -> Any:
    return pickle.loads(pickle.dumps(state))


@pytest.mark.parametrize(
    "trip", [through_json, through_text, through_bytes, through_pickle]
)
def test_resume_at_every_step(trip: Any, loader: Any, walk: list[Any]) -> None:
    for step, (state, _) in enumerate(walk):
        restored = trip(loader, state)
        assert restored == state
        batch, _ = next(loader.run(restored))
        assert jax.tree.all(jax.tree.map(np.array_equal, batch, walk[step][1]))


def test_get_state_and_set_state(loader: Any, walk: list[Any]) -> None:
    iterator = loader.iterate(loader.init_state(3))
    next(iterator)
    saved = json.loads(json.dumps(iterator.get_state()))
    other = loader.iterate(loader.init_state(9))
    other.set_state(saved)
    batch, _ = next(other)
    assert jax.tree.all(jax.tree.map(np.array_equal, batch, walk[1][1]))
    assert len(other) == len(iterator) - 1


@pytest.mark.parametrize("template", [True, False])
def test_orbax(template: bool, loader: Any, walk: list[Any], tmp_path: Path) -> None:
    ocp = pytest.importorskip("orbax.checkpoint")
    state, batch = walk[4]
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", {"loader": state})
        checkpointer.wait_until_finished()
        target = {"loader": loader.init_state(0)} if template else None
        restored = checkpointer.restore(tmp_path / "state", target)["loader"]
    found, _ = next(loader.run(restored))
    assert jax.tree.all(jax.tree.map(np.array_equal, found, batch))
    assert loader.restore(restored) == state


def test_orbax_handlers(loader: Any, walk: list[Any], tmp_path: Path) -> None:
    ocp = pytest.importorskip("orbax.checkpoint")
    from millstream.orbax import LoaderRestore, LoaderSave

    state, _ = walk[5]
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(0, args=ocp.args.Composite(data=LoaderSave(loader, state)))
        manager.wait_until_finished()
        args = ocp.args.Composite(data=LoaderRestore(loader))
        assert manager.restore(0, args=args).data == state


def test_a_large_state_needs_bytes() -> None:
    large = ms.DataLoader([Count(), ms.BufferTransform(100_000, 1)])
    state = large.init_state(0)
    fails(lambda: large.save(state), "format='bytes'", kind=ValueError)
    assert large.restore(large.save(state, format="bytes")) == state


def test_damaged_saves_are_rejected(loader: Any, walk: list[Any]) -> None:
    state, _ = walk[2]
    saved = loader.save(state, format="bytes")
    damaged = [saved[:-1], saved + b"\0", saved[:20], saved[:9] + b"\xff" * 8]
    damaged.append(saved.replace(b'"path"', b'"Path"', 1))
    for data in damaged:
        fails(lambda data=data: loader.restore(data), "damaged", kind=ValueError)
    text = loader.save(state)
    for change in ({"data": "AAAA"}, {"data": 7}, {"shape": [3]}, {"dtype": "nine"}):
        stream = [{**text["stream"][0], **change}, *text["stream"][1:]]
        changed = {**text, "stream": stream}
        with pytest.raises((ValueError, TypeError)):
            loader.restore(changed)
    without = {**text, "stream": text["stream"][1:]}
    first = text["stream"][0]["path"]
    fails(lambda: loader.restore(without), "lacks", first, kind=ValueError)


def test_another_buffer_is_another_pipeline(loader: Any, walk: list[Any]) -> None:
    buffer = ms.BufferTransform(5, 2, 2, "shuffled", "reservoir")
    other = ms.DataLoader([Count(7, holes=True), buffer, ms.BatchTransform(2)])
    saved = loader.save(walk[1][0])
    texts = ("another pipeline", "BufferTransform(4", "BufferTransform(5")
    fails(lambda: other.restore(saved), *texts, kind=ValueError)
