"""Stages add themselves to a pipeline, including stages that only the engine runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worker_functions as fns
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    DevicePutTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
    PythonMapTransform,
    RenameTransform,
    Subset,
    _engine,
    concatenate,
)
from millstream._sources import arrays
from millstream._stages.stage import Stage
from walks import iterated, jitted, same_walk, scanned, specified, stepped

N, BATCH, STEPS = 11, 4, 6


@dataclass(frozen=True, eq=False)
class Scaled(Stage):
    """``NormalizeImageTransform`` without its ``trace``: only the engine runs it."""

    data_key: str = "image"

    def place(self, builder: Any) -> None:
        field = builder.field(self.data_key)
        builder.add_native([_engine.normalize(field, "float32", 1 / 255)])


def images() -> dict[str, np.ndarray]:
    values = (np.arange(N * 2 * 3) * 37 % 256).reshape(N, 2, 3)
    return {"image": values.astype(np.uint8), "label": np.arange(N, dtype=np.int32)}


def source() -> ArraySampleSource:
    return ArraySampleSource(images())


def plus_one(batch: Any, mask: Any) -> Any:
    return {**batch, "image": batch["image"] + 1}


def pipelines(scaled: Stage) -> list[list[Any]]:
    batch, rename = BatchTransform(BATCH), RenameTransform({"image": "x"})
    return [
        [scaled, batch],
        [batch, scaled],
        [batch, DevicePutTransform(), scaled, FlattenTransform("image")],
        [scaled, batch, MapTransform(plus_one)],
        [scaled, MapTransform(plus_one), batch],
        [scaled, rename, batch, HostCallbackTransform(lambda batch, mask: None)],
    ]


@pytest.mark.parametrize("number", range(len(pipelines(Scaled()))))
def test_a_native_only_stage_gives_the_same_batches_everywhere(number: int) -> None:
    expected = DataLoader([source(), *pipelines(NormalizeImageTransform())[number]])
    loader = DataLoader([source(), *pipelines(Scaled())[number]])
    assert loader._built.plan.digest == expected._built.plan.digest
    state = loader.init_state(5)
    walk = iterated(expected, state, STEPS)
    for found in (iterated, stepped, jitted, scanned):
        same_walk(found(loader, state, STEPS), walk)
    if not loader._built.later:
        same_walk(specified(loader, state, STEPS), walk)
    found, wanted = loader.element_spec(), expected.element_spec()
    assert jax.tree.leaves(found) == jax.tree.leaves(wanted)
    shown = expected.explain().replace("NormalizeImageTransform", "Scaled")
    assert _table(loader.explain()) == _table(shown)


def _table(text: str) -> list[list[str]]:
    """Returns the words of each line, without the line of dashes and the stats."""
    lines = [line for line in text.splitlines() if " delivered" not in line]
    return [line.split() for line in lines if not line.startswith("--")]


def test_explain_takes_the_schema_from_the_engine() -> None:
    stages = [Scaled(), BatchTransform(BATCH), FlattenTransform("image")]
    text = DataLoader([source(), *stages]).explain()
    rows = {words[0].split("(")[0]: words[1:] for words in _table(text)}
    gives = "image: float32[2, 3], label: int32[]"
    assert rows["Scaled"] == ["native", *gives.split()]
    assert rows["FlattenTransform"][:3] == ["native", "image:", "float32[4,"]


def test_traced_names_a_stage_that_only_the_engine_runs() -> None:
    stages = [BatchTransform(BATCH), Scaled()]
    with pytest.raises(ValueError, match=r"traced=True .* stage 2, Scaled, cannot run"):
        DataLoader([source(), *stages], traced=True)
    stage = PythonMapTransform(fns.doubled)
    with pytest.raises(ValueError, match=r"traced=True .* stage 1, PythonMapTransform"):
        DataLoader([source(), stage, BatchTransform(BATCH)], traced=True)


@pytest.mark.parametrize(
    "earlier", [MapTransform(plus_one), HostCallbackTransform(plus_one)]
)
def test_a_native_only_stage_cannot_follow_a_traced_stage(earlier: Any) -> None:
    who = type(earlier).__name__
    message = f"stage 3, Scaled, .* stage 2, {who}, .*Put stage 3 before stage 2"
    with pytest.raises(TypeError, match=message):
        DataLoader([source(), BatchTransform(BATCH), earlier, Scaled()])
    with pytest.raises(TypeError, match=message):
        Scaled()(earlier(BatchTransform(BATCH)(source())))


def doubled(sample: Any) -> Any:
    return {**sample, "image": sample["image"] * np.uint8(2)}


def test_a_native_only_stage_follows_workers() -> None:
    """Composing the pipeline starts no workers, but finds a second batch stage."""
    batch, stage = BatchTransform(BATCH), PythonMapTransform(doubled)
    pipeline = Scaled()(batch(stage(source())))
    with pytest.raises(ValueError, match="stages 2 and 4 are both BatchTransform"):
        BatchTransform(2)(pipeline)
    loader = DataLoader(pipeline)
    expected = DataLoader([source(), stage, batch, NormalizeImageTransform()])
    state = loader.init_state(1)
    same_walk(iterated(loader, state, STEPS), iterated(expected, state, STEPS))
    assert "Python, 1 worker thread" in loader.explain()


@pytest.mark.parametrize("kind", ["array", "subset", "concatenated"])
def test_the_engine_reads_arrays_on_an_accelerator(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(data: Any) -> Any:
        whole = ArraySampleSource(data)
        if kind == "subset":
            return Subset(whole, [3, 1, 4, 1, 5, 9, 2, 6])
        return whole if kind == "array" else concatenate([whole, whole])

    stages = [BatchTransform(BATCH), NormalizeImageTransform()]
    expected = DataLoader([made(images()), *stages])
    on_device = jax.tree.map(jnp.asarray, images())
    monkeypatch.setattr(arrays, "_on_cpu", lambda leaf: False)
    held = made(on_device)
    assert DataLoader([held, *stages])._built.traced
    loader = DataLoader([held, BatchTransform(BATCH), Scaled()])
    assert not loader._built.traced
    assert loader._built.device == held.device()
    state = expected.init_state(2)
    walk = iterated(expected, state, STEPS)
    for found in (iterated, jitted, scanned):
        same_walk(found(loader, state, STEPS), walk)


def test_errors_name_the_stage_by_its_number() -> None:
    with pytest.raises(KeyError, match=r"stage 2, Scaled: unknown key 'x'"):
        DataLoader([source(), BatchTransform(BATCH), Scaled("x")])

    class Nothing(Stage):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing does not implement place"):
        DataLoader([source(), Nothing()])


def test_user_defined_stages() -> None:
    """Users may subclass public stages, or pass functions from source to source."""

    class Fours(BatchTransform):
        pass

    class Plus(MapTransform):
        def trace(self, value: Any, mask: Any, batched: bool) -> Any:
            return plus_one(super().trace(value, mask, batched), mask)

    class Seen(HostCallbackTransform):
        pass

    seen: list[Any] = []
    loader = DataLoader(
        [
            source(),
            lambda inner: Scaled()(inner),
            Fours(BATCH),
            Plus(lambda batch, mask: batch),
            Seen(lambda batch, mask: seen.append(mask)),
        ]
    )
    plain = [Scaled(), BatchTransform(BATCH), MapTransform(plus_one)]
    expected = DataLoader([source(), *plain])
    state = loader.init_state(0)
    same_walk(iterated(loader, state, 3), iterated(expected, state, 3))
    assert len(seen) == 3
    assert [words[0] for words in _table(loader.explain())][3:7] == [
        "Scaled",
        "Fours(4,",
        "Plus",
        "Seen",
    ]


class Appended:
    """A stage of a user that can only be added to a source."""

    def __init__(self, result: Any = None) -> None:
        self.result = result

    def __radd__(self, inner: Any) -> Any:
        if self.result is not None:
            return self.result
        return MapTransform(plus_one)(BatchTransform(BATCH)(inner))


def test_a_stage_can_be_added_to_a_source() -> None:
    expected = DataLoader([source(), BatchTransform(BATCH), MapTransform(plus_one)])
    added = source() + BatchTransform(BATCH) + MapTransform(plus_one)
    for pipeline in (added, [source(), Appended()], source() + Appended()):
        found = DataLoader(pipeline)
        state = expected.init_state(1)
        same_walk(iterated(found, state, STEPS), iterated(expected, state, STEPS))


def test_what_cannot_be_added_is_named() -> None:
    with pytest.raises(TypeError, match="BatchTransform needs a source or a pipeline"):
        5 + BatchTransform(BATCH)
    with pytest.raises(TypeError, match="entry 1 of the pipeline must be a stage"):
        DataLoader([source(), 5])
    with pytest.raises(TypeError, match="entry 1 of the pipeline must be a stage"):
        DataLoader([source(), np.zeros(3)])
    with pytest.raises(TypeError, match="returned 'text' of type str; expected a"):
        DataLoader([source(), Appended("text")])


def test_an_expected_spec_is_compared_after_a_native_only_stage() -> None:
    spec = {
        "image": jax.ShapeDtypeStruct((BATCH, 2, 3), np.float32),
        "label": jax.ShapeDtypeStruct((BATCH,), np.int32),
    }
    DataLoader([source(), Scaled(), BatchTransform(BATCH, element_spec_override=spec)])
    with pytest.raises(ValueError, match=r"BatchTransform returned uint8\[4, 2, 3\]"):
        DataLoader([source(), BatchTransform(BATCH, element_spec_override=spec)])
