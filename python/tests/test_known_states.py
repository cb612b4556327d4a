"""Concrete states inside a traced program give the same batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import rows_of
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from millstream._delivery.jit import FAILURES

N, BATCH, STEPS = 11, 4, 7


def same(batch: Any, mask: Any) -> Any:
    return batch


def picky(sample: Any) -> Any:
    if sample["y"] == 3:
        raise ValueError("the third")
    return sample


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "rows.packed"
    ms.write_packed(ms.ArraySampleSource(rows_of(N)), path)
    return path


def wide() -> ms.ArraySampleSource:
    """Returns data whose batches are too large for the jitted call of a Python loop."""
    return ms.ArraySampleSource({**rows_of(N), "w": np.ones((N, 1 << 18), np.int16)})


def over_a_mesh() -> ms.DevicePutTransform:
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    return ms.DevicePutTransform(NamedSharding(mesh, PartitionSpec("data")))


BATCHES = ms.BatchTransform(BATCH)
CALL = ms.HostCallbackTransform(lambda batch, mask: None)
MAP = ms.MapTransform(same)
PIPELINES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "small": ([BATCHES], {}),
    "large": ([BATCHES], {}),
    "traced": ([BATCHES], {"traced": True}),
    "mesh": ([BATCHES, over_a_mesh()], {}),
    "mesh, traced": ([BATCHES, over_a_mesh()], {"traced": True}),
    "mapped": ([BATCHES, MAP], {}),
    "disk, mapped": ([BATCHES, MAP], {}),
    "called": ([BATCHES, CALL], {}),
    "called between": ([BATCHES, MAP, CALL, MAP], {}),
    "disk, called": ([BATCHES, CALL], {}),
    "Python, called": ([ms.PythonMapTransform(picky), BATCHES, CALL], {}),
    "Python": ([ms.PythonMapTransform(picky), BATCHES], {}),
}


@pytest.fixture(params=PIPELINES)
def loader(request: pytest.FixtureRequest, packed: Path) -> ms.DataLoader:
    stages, knobs = PIPELINES[request.param]
    if "Python" in request.param:
        knobs = {"on_error": "skip"}
    source: Any = ms.ArraySampleSource(rows_of(N))
    if "disk" in request.param:
        source = ms.PackedSource(packed)
    if request.param == "large":
        source = wide()
    return ms.DataLoader([source, *stages], **knobs)


def stepped(loader: Any) -> Any:
    state, found = loader.init_state(7), []
    for _ in range(STEPS):
        batch, state, mask = loader.next_batch(state)
        found.append((batch["x"], mask))
    return found


def looped(loader: Any) -> Any:
    iterator = loader.iterate(loader.init_state(7), steps=STEPS)
    return [(batch["x"], mask) for batch, mask in iterator]


def expected(loader: Any) -> Any:
    state = loader.init_state(7)
    _, _, found = loader.scan_epoch(
        state, 0, lambda c, b, m: (c, (b["x"], m)), steps=STEPS
    )
    return [(found[0][i], found[1][i]) for i in range(STEPS)]


@pytest.mark.parametrize("way", [stepped, looped])
def test_inside_jit_and_afterwards(
    loader: ms.DataLoader, way: Callable[[Any], Any]
) -> None:
    inside = jax.jit(lambda: way(loader))()
    wanted = expected(loader)
    for found in (inside, looped(loader), stepped(loader)):
        for one, other in zip(found, wanted, strict=True):
            assert np.array_equal(one[0], other[0])
            assert np.array_equal(one[1], other[1])


def test_a_pipeline_by_itself() -> None:
    pipeline = ms.BatchTransform(BATCH)(ms.ArraySampleSource(rows_of(N)))

    def first() -> Any:
        value, mask, _ = pipeline.next(pipeline.init_state(7))
        return value["y"], mask

    inside = jax.jit(first)()
    value, mask = first()
    assert np.array_equal(inside[0], value)
    assert int(mask.sum()) == BATCH


def test_a_callback_runs_with_the_program_and_not_while_it_is_traced() -> None:
    seen: list[int] = []

    def note(batch: Any, mask: Any) -> None:
        seen.append(int(mask.sum()))

    stages = [ms.BatchTransform(BATCH), ms.HostCallbackTransform(note)]
    loader = ms.DataLoader([ms.ArraySampleSource(rows_of(N)), *stages])

    @jax.jit
    def run(scale: Any) -> Any:
        batch, _, _ = loader.next_batch(loader.init_state(7))
        return batch["x"].sum() * scale

    compiled = run.lower(jnp.int32(2)).compile()
    assert seen == []
    for count in (1, 2):
        jax.block_until_ready(compiled(jnp.int32(2)))
        assert seen == [BATCH] * count


@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
@pytest.mark.parametrize("word", [0, 4, 5])
def test_a_traced_state_of_another_pipeline_gives_padding(
    remainder: str, word: int
) -> None:
    batches = ms.BatchTransform(BATCH, remainder=remainder)
    loader = ms.DataLoader([ms.ArraySampleSource(rows_of(N)), batches], traced=True)
    step = jax.jit(loader.next_batch)
    words = np.array(loader.init_state(7).words)
    batch, _, mask = step(ms.LoaderState(words))
    assert int(mask.sum()) == BATCH
    assert np.asarray(batch["y"]).all()
    words[word] += 99  # another check word, or a step after the last
    with pytest.raises(ValueError, match=r"another pipeline|step"):
        loader.next_batch(ms.LoaderState(words))
    if remainder == "wrap":  # the program calls the engine, which raises the error
        with pytest.raises(FAILURES, match=r"another pipeline|step"):
            jax.block_until_ready(step(ms.LoaderState(words)))
        return
    batch, _, mask = step(ms.LoaderState(words))
    assert not np.asarray(mask).any()
    assert not any(np.asarray(leaf).any() for leaf in batch.values())
