"""Host fields reach the functions of PythonMapTransform, which may return others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataLoader,
    DatasetSource,
    DiskSampleSource,
    FlattenTransform,
    MapTransform,
    PythonMapTransform,
    RenameTransform,
    concatenate,
)
from walks import (
    indexed,
    iterated,
    jitted,
    same_bytes,
    same_walk,
    scanned,
    specified,
    stepped,
)

N, BATCH, STEPS = 22, 5, 8
KINDS = ["thread", "process"]
TOKENS = {"tokens": np.stack([fns.tokens_of(fns.story(i)["text"]) for i in range(N)])}


def stories(kind: str = "thread", **more: Any) -> DiskSampleSource:
    return DiskSampleSource(N, fns.story, workers=2, worker_kind=kind, **more)


def tokenizer(kind: str = "thread", fn: Any = fns.tokenized) -> PythonMapTransform:
    return PythonMapTransform(fn, workers=3, worker_kind=kind)


def samples_of(loader: DataLoader, state: Any, steps: int) -> list[list[int]]:
    found, words = [], np.asarray(state.words)
    for _ in range(steps):
        found.append(loader.which_samples(words).tolist())
        words = loader._built.plan.next_state(words)
    return found


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("stage_kind", KINDS)
@pytest.mark.parametrize("source_kind", KINDS)
def test_a_tokenizer_is_a_stage(
    source_kind: str, stage_kind: str, batched: bool
) -> None:
    """A source without arrays, and all ways to iterate, also in the middle."""
    stages = [tokenizer(stage_kind), BatchTransform(BATCH)]
    loader = DataLoader([stories(source_kind), *stages[:: -1 if batched else 1]])
    state = loader.init_state(3)
    expected = indexed(loader, TOKENS, state, STEPS)
    for walk in (iterated, specified, stepped, jitted, scanned):
        same_walk(walk(loader, state, STEPS), expected)
    for step in (0, 4, STEPS - 2):
        found = iterated(loader, expected[2][step], 1)[:2]
        rest = jax.tree.map(lambda x, k=step: x[k + 1 : k + 2], expected[:2])
        same_bytes(found, rest)


@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, repeat=3)))
def test_several_stages_pass_host_fields_along(kinds: Any) -> None:
    """The middle stage returns no array, and the last one drops some host fields."""
    source, first, second = kinds
    loader = DataLoader(
        [
            stories(source),
            tokenizer(first, fns.split_words),
            tokenizer(second, fns.tokenized_words),
            RenameTransform({"tokens": "input"}),
            CastTransform("input", np.int16),
            BatchTransform(BATCH),
        ],
        prefetch=2,
    )
    assert sorted(loader.element_spec()) == ["count", "input"]
    state = loader.init_state(1)
    listed = samples_of(loader, state, STEPS)
    batches = [batch for batch, _ in loader.iterate(state, steps=STEPS)]
    for batch, samples in zip(batches, listed, strict=True):
        assert sorted(batch) == ["count", "id", "input"]
        assert batch["id"] == [None if i < 0 else f"s{i}" for i in samples]
        for i, tokens in zip(samples, np.asarray(batch["input"]), strict=True):
            assert i < 0 or tokens.tolist() == TOKENS["tokens"][i].tolist()
    assert {-1} < set(itertools.chain(*listed))  # there was padding

    @jax.jit
    def two(state: Any) -> Any:
        first, state, _ = loader.next_batch(state)
        return first, loader.next_batch(state)[0]

    for found, batch in zip(two(state), batches, strict=False):
        assert sorted(found) == ["count", "input"]
        same_bytes(found, {key: batch[key] for key in found})


@pytest.mark.parametrize("kind", KINDS)
def test_they_come_with_arrays_through_native_stages(kind: str) -> None:
    source = DiskSampleSource(N, fns.with_host_fields, worker_kind=kind)
    stages = [
        FlattenTransform("x"),
        RenameTransform({"x": "z"}),
        tokenizer(kind, fns.upper_case),
        CastTransform("z", np.float32),
    ]
    loader = DataLoader([source, *stages, BatchTransform(BATCH)])
    state = loader.init_state(0)
    listed = samples_of(loader, state, STEPS)
    for (batch, _), samples in zip(
        loader.iterate(state, steps=STEPS), listed, strict=True
    ):
        assert sorted(batch) == ["object", "path", "words", "y", "z"]
        assert batch["words"] == [None if i < 0 else f"SAMPLE {i}" for i in samples]
        assert batch["object"] == [
            None if i < 0 else {"id": i, "tags": ["a", None]} for i in samples
        ]
        assert np.asarray(batch["z"])[:, 1, 0].tolist() == [max(i, 0) for i in samples]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batched", [False, True])
def test_a_stage_may_make_the_first_host_field(kind: str, batched: bool) -> None:
    numbers = np.arange(2 * N, dtype=np.int32).reshape(N, 2)
    stages = [tokenizer(kind, fns.labelled), BatchTransform(BATCH, remainder="partial")]
    source = ArraySampleSource({"x": numbers}, "sequential")
    loader = DataLoader([source, *stages[:: -1 if batched else 1]])
    names = [batch["name"] for batch, _ in loader.iterate(loader.init_state(0))]
    assert [len(rows) for rows in names] == [5, 5, 5, 5, 2]
    assert list(itertools.chain(*names)) == [f"row {2 * i}" for i in range(N)]

    padded = DataLoader([source, BatchTransform(BATCH), tokenizer(kind, fns.labelled)])
    *_, (batch, _) = padded.iterate(padded.init_state(0))
    assert batch["name"] == ["row 40", "row 42", None, None, None]


def test_a_function_with_host_fields_is_not_called_for_padding() -> None:
    def shifted(sample: Any) -> Any:
        return {"x": sample["x"] + 1, "words": sample["words"]}

    source = DiskSampleSource(3, fns.with_host_fields, None, "sequential")
    loader = DataLoader([source, BatchTransform(4), PythonMapTransform(shifted)])
    batch, mask = next(loader.iterate(loader.init_state(0)))
    assert np.asarray(batch["x"])[:, 0].tolist() == [1, 2, 3, 0]
    assert batch["words"] == ["sample 0", "sample 1", "sample 2", None]
    assert mask.tolist() == [True] * 3 + [False]


def test_a_traced_stage_does_not_see_them() -> None:
    def counted(batch: Any, mask: Any) -> Any:
        assert sorted(batch) == ["count", "tokens"]
        return {"n": batch["count"]}

    maps = [tokenizer(fn=fns.split_words), tokenizer(fn=fns.tokenized_words)]
    stages = [*maps, BatchTransform(BATCH), MapTransform(counted)]
    loader = DataLoader([stories(ordering="sequential"), *stages])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert batch["id"] == ["s0", "s1", "s2", "s3", "s4"]
    counts = [len(fns.story(i)["text"].split()) for i in range(BATCH)]
    assert batch["n"].tolist() == counts


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_spec_host_fields_are_named(kind: str) -> None:
    def loader_of(**more: Any) -> DataLoader:
        spec = {
            "tokens": jax.ShapeDtypeStruct((fns.LENGTH,), np.int32),
            "count": jax.ShapeDtypeStruct((), np.int32),
        }
        stage = PythonMapTransform(fns.tokenized_words, spec, worker_kind=kind, **more)
        source = stories(ordering="sequential")
        words = tokenizer(fn=fns.split_words)
        return DataLoader([source, words, stage, BatchTransform(BATCH)])

    loader = loader_of(host_fields=("id",))
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert batch["id"] == ["s0", "s1", "s2", "s3", "s4"]
    same_bytes(batch["tokens"], TOKENS["tokens"][:BATCH])
    loader = loader_of()
    message = r"expected keys \['count', 'tokens'\], found .*keys of host fields in h"
    with pytest.raises(ValueError, match=message):
        next(loader.iterate(loader.init_state(0)))


def test_any_object_passes_between_threads() -> None:
    def counted(sample: Any) -> Any:
        assert sample["lock"].acquire(blocking=False)
        return {"x": sample["x"], "lock": sample["lock"]}

    source = DiskSampleSource(N, fns.with_a_lock, host_fields=("lock",))
    loader = DataLoader([source, PythonMapTransform(counted), BatchTransform(BATCH)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert all(lock.locked() for lock in batch["lock"])


@pytest.mark.parametrize("skip", [False, True])
def test_a_value_that_cannot_be_sent_to_a_process_is_named(skip: bool) -> None:
    source = DiskSampleSource(
        N, fns.with_one_lock, None, "sequential", host_fields=("lock",)
    )
    stages = [tokenizer("process", fns.only_numbers), BatchTransform(9)]
    if skip:
        loader = DataLoader([source, *stages], on_error="skip")
        _, mask = next(loader.iterate(loader.init_state(0)))
        assert np.flatnonzero(~np.asarray(mask)).tolist() == [6]
        assert "cannot be sent to worker processes" in loader.skipped[6]
        return
    loader = DataLoader([source, *stages])
    with pytest.raises(TypeError, match="cannot be sent to worker processes") as caught:
        next(loader.iterate(loader.init_state(0)))
    assert "raised for sample 6" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(("source_kind", "stage_kind"), [KINDS, KINDS[::-1]])
def test_a_value_that_cannot_be_unpickled_is_named(
    source_kind: str, stage_kind: str
) -> None:
    source = DiskSampleSource(
        N,
        fns.with_one_refusal,
        None,
        "sequential",
        host_fields=("object",),
        worker_kind=source_kind,
    )
    stages = [tokenizer(stage_kind, fns.only_numbers), BatchTransform(9)]
    loader = DataLoader([source, *stages])
    with pytest.raises(fns.OwnError, match="cannot be unpickled") as caught:
        next(loader.iterate(loader.init_state(0)))
    assert "raised for sample 3" in "".join(caught.value.__notes__)
    loader = DataLoader([source, *stages], on_error="skip")
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert batch["x"].tolist() == [1, 2, 3, 0, 5, 6, 7, 8, 9]


def test_objects_of_the_test_module_reach_processes_by_value() -> None:
    class Word(str):
        pass

    def named(i: int) -> Any:
        return {"word": Word(f"word {i}")}

    def length(sample: Any) -> Any:
        assert type(sample["word"]).__name__ == "Word"
        return {"n": len(sample["word"])}

    source = DiskSampleSource(12, named, None, "sequential")
    stage = PythonMapTransform(length, worker_kind="process")
    loader = DataLoader([source, stage, BatchTransform(12)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert batch["n"].tolist() == [6] * 10 + [7, 7]


def test_a_new_worker_gets_the_host_fields_of_a_dead_one(tmp_path: Path) -> None:
    stage = PythonMapTransform(
        fns.DyingTokenizer(tmp_path / "once"),
        {"tokens": jax.ShapeDtypeStruct((fns.LENGTH,), np.int32)},
        worker_kind="process",
        restart_workers=1,
    )
    loader = DataLoader([stories(), stage, BatchTransform(BATCH)])
    state = loader.init_state(2)
    same_walk(iterated(loader, state, STEPS), indexed(loader, TOKENS, state, STEPS))
    assert (tmp_path / "once").exists()


def test_samples_of_combined_sources_and_single_samples() -> None:
    class Stories:
        def __len__(self) -> int:
            return N

        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [fns.story(i) for i in indices]

        def __getitem__(self, i: int) -> Any:
            return fns.story(i)

    both = concatenate([stories("process")[3:8], DatasetSource(Stories())])
    assert both[0] == fns.story(3)
    assert both[-1] == fns.story(N - 1)
    assert stories()[2:4][1] == fns.story(3)
    samples = [*range(3, 8), *range(N)]
    loader = DataLoader([both, tokenizer(), BatchTransform(BATCH)])
    state = loader.init_state(5)
    data = {"tokens": TOKENS["tokens"][samples]}
    expected = indexed(loader, data, state, STEPS)
    same_walk(iterated(loader, state, STEPS), expected)
    same_walk(jitted(loader, state, STEPS), expected)

    arrays = DiskSampleSource(N, fns.with_host_fields)
    assert sorted(arrays[4]) == ["object", "path", "words", "x", "y"]
    assert arrays[4]["words"] == "sample 4"
    assert arrays[4]["x"].tolist() == [4, 4]


def test_pipelines_without_an_array_are_errors() -> None:
    message = r"at least one array, but .* only the host fields \['text', 'id'\]. Add a"
    with pytest.raises(ValueError, match=message):
        DataLoader([stories(), BatchTransform(BATCH)])
    with pytest.raises(ValueError, match=r"only the host fields .*'words'"):
        DataLoader([stories(), tokenizer(fn=fns.split_words)])
    with pytest.raises(ValueError, match=r"DiskSampleSource: .* at least one array"):
        DiskSampleSource(N, lambda i: {})
    with pytest.raises(ValueError, match=r"PythonMapTransform: .* at least one array"):
        DataLoader([stories(), PythonMapTransform(lambda sample: {})])


def test_an_array_and_a_host_field_of_one_name() -> None:
    """A function may replace a host field by an array. A rename may not hide it."""
    source = DiskSampleSource(N, fns.with_host_fields, None, "sequential")

    def replaced(sample: Any) -> Any:
        return {"path": sample["x"], "y": str(sample["path"])}

    stages = [PythonMapTransform(replaced), CastTransform("path", np.float32)]
    loader = DataLoader([source, *stages, BatchTransform(2)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert batch["path"].tolist() == [[0, 0], [1, 1]]
    assert batch["y"] == ["/data/0.png", "/data/1.png"]
    hidden = [source, RenameTransform({"x": "path"}), PythonMapTransform(replaced)]
    with pytest.raises(ValueError, match="a stage makes an array 'path'"):
        DataLoader(hidden)


def test_a_native_stage_cannot_take_a_host_field() -> None:
    message = r"stage 1, CastTransform: 'text' is a host field, .* PythonMapTransform"
    with pytest.raises(TypeError, match=message):
        DataLoader([stories(), CastTransform("text", np.int32), tokenizer()])


def test_explain_lists_them() -> None:
    maps = [tokenizer(fn=fns.split_words), tokenizer(fn=fns.tokenized_words)]
    table = DataLoader([stories(), *maps, BatchTransform(BATCH)]).explain()
    lines = [line.split("  ")[-1].strip() for line in table.splitlines()]
    assert "text: host field, id: host field, words: host field" in lines
    assert "count: int32[], tokens: int32[12], id: host field" in lines
