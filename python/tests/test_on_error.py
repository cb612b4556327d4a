"""on_error="skip" masks samples that fail every time and raises other errors."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataError,
    DataLoader,
    DatasetSource,
    DiskSampleSource,
    HostCallbackTransform,
    MapTransform,
    NpySource,
    PythonMapTransform,
    WorkerError,
    WorkerTimeout,
)
from millstream._delivery import jit
from test_functions import arrays_of
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

N, BATCH, STEPS = 29, 8, 9
BAD = (6, 13, 14, 28)
KINDS = ["thread", "process"]


def source_of(fn: Any = fns.often_raising, **more: Any) -> DiskSampleSource:
    return DiskSampleSource(N, fn, **more)


def masked(loader: DataLoader, state: Any, steps: int, bad: Any = BAD) -> Any:
    """Returns the expected batches, with zeros and mask False in bad rows."""
    batches, masks, words = indexed(loader, arrays_of(fns.plain, N), state, steps)
    known = np.asarray(state.words)
    for step in range(steps):
        lost = np.isin(loader.which_samples(known), bad)
        masks[step][lost] = False
        for leaf in jax.tree.leaves(batches):
            leaf[step][lost] = 0
        known = words[step]
    return batches, masks, words


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_that_end_the_program_are_not_skipped(kind: str) -> None:
    for fn, left in ((fns.exiting, SystemExit), (fns.interrupting, KeyboardInterrupt)):
        source = source_of(fn, worker_kind=kind)
        loader = DataLoader([source, BatchTransform(N)], on_error="skip")
        with pytest.raises(WorkerError) as caught:
            loader.next_batch(loader.init_state(0))
        assert isinstance(caught.value.__cause__, left)
        assert any("raised for sample 6" in note for note in caught.value.__notes__)
        assert loader.skipped == {}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_are_masked_by_every_delivery(kind: str, workers: int) -> None:
    source = source_of(workers=workers, worker_kind=kind)
    loader = DataLoader([source, BatchTransform(BATCH)], on_error="skip")
    state = loader.init_state(2)
    expected = masked(loader, state, STEPS)
    assert loader.skipped == {}
    same_walk(iterated(loader, state, STEPS), expected)
    assert sorted(loader.skipped) == list(BAD)
    assert "sample six is bad" in loader.skipped[6]
    assert "OwnError" in loader.skipped[13]
    same_walk(specified(loader, state, STEPS), expected)
    same_walk(stepped(loader, state, STEPS), expected)
    same_walk(jitted(loader, state, STEPS), expected)
    same_walk(scanned(loader, state, STEPS), expected)
    assert sorted(loader.skipped) == list(BAD)
    for step in range(STEPS - 1):
        found = iterated(loader, expected[2][step], 1)[:2]
        rest = jax.tree.map(lambda x, k=step: x[k + 1 : k + 2], expected[:2])
        same_bytes(found, rest)


@pytest.mark.parametrize("remainder", ["drop", "wrap"])
def test_other_remainders(remainder: str) -> None:
    batch = BatchTransform(BATCH, remainder=remainder)
    loader = DataLoader([source_of(), batch], on_error="skip", prefetch=0)
    state = loader.init_state(2)
    expected = masked(loader, state, STEPS)
    same_walk(iterated(loader, state, STEPS), expected)
    same_walk(jitted(loader, state, STEPS), expected)


def test_samples_without_a_batch() -> None:
    loader = DataLoader([source_of(ordering="sequential")], on_error="skip")
    masks = [bool(mask) for _, mask in loader.iterate(loader.init_state(0))]
    assert [i for i, good in enumerate(masks) if not good] == list(BAD)


def test_stages_after_it_see_the_mask() -> None:
    seen: list[int] = []

    def note(batch: Any, mask: Any) -> None:
        seen.extend(batch["y"][mask].tolist())

    def moved(batch: Any, mask: Any) -> Any:
        return {"y": batch["y"] + 1, "good": mask}

    stages = [BatchTransform(BATCH), HostCallbackTransform(note), MapTransform(moved)]
    loader = DataLoader([source_of(), *stages], on_error="skip")
    state = loader.init_state(0)
    steps = loader.steps_per_epoch
    batches, masks, _ = iterated(loader, state, steps)
    expected = masked(loader, state, steps)
    same_bytes(masks, expected[1])
    same_bytes(batches["good"], expected[1])
    same_bytes(batches["y"], expected[0]["y"] + 1)
    assert sorted(seen) == [i + 1 for i in range(N) if i not in BAD]


@pytest.mark.parametrize("after", [False, True])
def test_maps_that_fail(after: bool) -> None:
    source = DiskSampleSource(N, fns.plain, ordering="sequential")
    stage = PythonMapTransform(fns.failing_map, workers=2)
    batch = BatchTransform(BATCH)
    stages = [batch, stage] if after else [stage, batch]
    loader = DataLoader([source, *stages], on_error="skip")
    state = loader.init_state(0)
    expected = masked(loader, state, 4, (6,))
    same_walk(iterated(loader, state, 4), expected)
    same_walk(scanned(loader, state, 4), expected)
    assert list(loader.skipped) == [6]


def test_host_fields_of_skipped_samples_are_none() -> None:
    for kind in KINDS:
        source = DiskSampleSource(
            9, fns.raising_with_host_fields, None, "sequential", worker_kind=kind
        )
        loader = DataLoader([source, BatchTransform(9)], on_error="skip")
        batch, mask = next(loader.iterate(loader.init_state(0)))
        assert batch["path"] == [None if i == 6 else f"{i}.png" for i in range(9)]
        assert np.flatnonzero(~np.asarray(mask)).tolist() == [6]


@pytest.mark.parametrize("stage_kind", KINDS)
@pytest.mark.parametrize("source_kind", KINDS)
def test_sample_0_is_skipped_too(source_kind: str, stage_kind: str) -> None:
    """The fields are found from a later sample, in the source and in the stage."""
    source = DiskSampleSource(
        12, fns.bad_story, None, "sequential", worker_kind=source_kind
    )
    stage = PythonMapTransform(fns.picky_tokenizer, worker_kind=stage_kind, workers=2)
    loader = DataLoader([source, stage, BatchTransform(12)], on_error="skip")
    state = loader.init_state(0)
    batch, mask = next(loader.iterate(state))
    good = [i not in (0, 1, 5, 6) for i in range(12)]
    assert mask.tolist() == good
    assert batch["id"] == [f"s{i}" if good[i] else None for i in range(12)]
    tokens = np.stack([fns.tokens_of(fns.story(i)["text"]) for i in range(12)])
    tokens[~np.array(good)] = 0
    same_bytes(batch["tokens"], tokens)
    assert sorted(loader.skipped) == [0, 1, 5, 6]
    again, _, _ = jax.jit(loader.next_batch)(state)
    same_bytes(again, {"tokens": tokens})

    strict = DataLoader([source, stage, BatchTransform(12)])
    with pytest.raises(fns.OwnError, match="no story") as caught:
        next(strict.iterate(strict.init_state(0)))
    assert "raised for sample 0" in "".join(caught.value.__notes__)


def test_a_stage_that_fails_at_sample_0() -> None:
    for batched in (False, True):
        source = DiskSampleSource(7, fns.story, None, "sequential")
        stages = [PythonMapTransform(fns.picky_tokenizer), BatchTransform(7)]
        stages = stages[::-1] if batched else stages
        loader = DataLoader([source, *stages], on_error="skip")
        batch, mask = next(loader.iterate(loader.init_state(0)))
        assert np.flatnonzero(~np.asarray(mask)).tolist() == [0, 5]
        assert batch["id"] == [None, "s1", "s2", "s3", "s4", None, "s6"]
        strict = DataLoader([source, *stages])
        with pytest.raises(fns.OwnError, match="without tokens"):
            next(strict.iterate(strict.init_state(0)))


def test_if_the_first_samples_all_fail_the_first_error_is_raised() -> None:
    tried: list[int] = []

    def failing(i: int) -> Any:
        tried.append(i)
        raise fns.OwnError(f"no sample {i}", i)

    with pytest.raises(fns.OwnError, match="no sample 0"):
        source_of(failing)
    assert tried == list(range(10))
    tried.clear()
    with pytest.raises(fns.OwnError, match="no sample 0"):
        DiskSampleSource(3, failing)
    assert tried == [0, 1, 2]

    def failing_stage(sample: Any) -> Any:
        return failing(int(sample["y"]) - 1)

    with pytest.raises(fns.OwnError, match="no sample 0"):
        DataLoader([source_of(fns.plain), PythonMapTransform(failing_stage)])


def test_a_dead_worker_is_reported_when_the_fields_are_found() -> None:
    """The loader would not skip sample 0, so no other sample is tried."""
    shape = jax.ShapeDtypeStruct
    spec = {"x": shape((3,), np.int32), "y": shape((), np.int32)}
    spec["z"] = shape((2, 2), np.float32)
    dying = fns.Dying("exit", at=0)
    source = source_of(dying, sample_spec=spec, worker_kind="process")
    with pytest.raises(WorkerError, match="sample 0"):
        DataLoader([source, PythonMapTransform(lambda sample: sample)])


def test_files_with_a_bad_sample(tmp_path: Path) -> None:
    """Errors of the engine's own sources are skipped in the same way."""
    numbers = np.arange(40).reshape(20, 2)
    numbers[7, 1] = 2**40
    np.save(tmp_path / "numbers.npy", numbers)
    source = NpySource({"n": tmp_path / "numbers.npy"}, "sequential")
    strict = DataLoader([source, BatchTransform(5)])
    with pytest.raises(DataError, match=r"sample 7 holds a .* int64 .* that int32"):
        list(strict.iterate(strict.init_state(0)))
    loader = DataLoader([source, BatchTransform(5)], on_error="skip")
    state = loader.init_state(0)
    expected = iterated(loader, state, 4)
    batches, masks, _ = expected
    assert np.flatnonzero(~masks.ravel()).tolist() == [7]
    numbers[7] = 0
    assert np.array_equal(batches["n"].reshape(20, 2), numbers)
    same_walk(specified(loader, state, 4), expected)
    same_walk(jitted(loader, state, 4), expected)
    same_walk(scanned(loader, state, 4), expected)
    assert list(loader.skipped) == [7]
    assert "cannot hold" in loader.skipped[7]


# The budget.


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_the_budget_is_an_error(kind: str) -> None:
    source = source_of(ordering="sequential", worker_kind=kind)
    loader = DataLoader(
        [source, BatchTransform(BATCH)], on_error="skip", error_budget=2, prefetch=0
    )
    iterator = loader.iterate(loader.init_state(0))
    _, mask = next(iterator)
    assert np.flatnonzero(~np.asarray(mask)).tolist() == [6]
    with pytest.raises(DataError, match=r"sample 14 failed, .* allowed 2") as one:
        next(iterator)
    assert "OwnError" in str(one.value)
    with pytest.raises(DataError, match="more than the allowed 2 samples have failed"):
        loader.scan_epoch(loader.init_state(0), 0, lambda c, b, m: (c, None))


def test_a_budget_counts_samples_and_not_epochs() -> None:
    loader = DataLoader(
        [source_of(), BatchTransform(BATCH)], on_error="skip", error_budget=len(BAD)
    )
    state = loader.init_state(0)
    same_walk(iterated(loader, state, 20), masked(loader, state, 20))
    nothing = DataLoader(
        [source_of(ordering="sequential"), BatchTransform(BATCH)],
        on_error="skip",
        error_budget=0,
    )
    with pytest.raises(DataError, match=r"sample 6 failed, .* allowed 0 samples"):
        next(nothing.iterate(nothing.init_state(0)))


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_the_same_batch_exceeds_the_budget_with_any_prefetch(
    prefetch: int, workers: int
) -> None:
    loader = DataLoader(
        [source_of(ordering="sequential", workers=workers), BatchTransform(4)],
        on_error="skip",
        error_budget=2,
        prefetch=prefetch,
    )
    iterator = loader.iterate(loader.init_state(0))
    for listed in ([], [6], [6]):
        next(iterator)
        time.sleep(0.1)  # time for batches to be prefetched
        assert list(loader.skipped) == listed
    for _ in range(2):
        with pytest.raises(DataError, match=r"sample 14 failed, .* allowed 2 samples"):
            next(iterator)


def test_inside_jit_only_delivered_batches_count() -> None:
    loader = DataLoader(
        [source_of(ordering="sequential", workers=4), BatchTransform(4)],
        on_error="skip",
        error_budget=1,
        prefetch=6,
    )

    def body(carry: Any, batch: Any, mask: Any) -> tuple[Any, Any]:
        jax.debug.callback(lambda: time.sleep(0.1), ordered=True)
        return carry, None

    state, _, _ = loader.scan_epoch(loader.init_state(0), 0, body, steps=3)
    assert list(loader.skipped) == [6]
    with pytest.raises(DataError, match="sample 14 failed"):
        loader.scan_epoch(state, 0, body, steps=1)


# Errors that are not skipped.


def test_arguments_are_checked() -> None:
    source = source_of()
    partial = BatchTransform(BATCH, remainder="partial")
    with pytest.raises(ValueError, match="cannot be combined with remainder="):
        DataLoader([source, partial], on_error="skip")
    memory = arrays_of(fns.plain, N)
    with pytest.raises(ValueError, match="cannot be combined with traced=True"):
        DataLoader(
            [ArraySampleSource(memory), BatchTransform(BATCH)],
            on_error="skip",
            traced=True,
        )
    with pytest.raises(ValueError, match=r'on_error must be .* "skip", not .ignore.'):
        DataLoader([source, BatchTransform(BATCH)], on_error="ignore")
    with pytest.raises(ValueError, match=r'error_budget .* Use on_error="skip"'):
        DataLoader([source, BatchTransform(BATCH)], error_budget=3)
    with pytest.raises(ValueError, match="error_budget must be a whole number"):
        DataLoader([source, BatchTransform(BATCH)], on_error="skip", error_budget=-1)


def test_worker_deaths_are_retried_and_then_raised(tmp_path: Path) -> None:
    fn = fns.Dying("kill", tmp_path / "died")
    spec = arrays_spec()
    source = DiskSampleSource(N, fn, spec, "sequential", worker_kind="process")
    loader = DataLoader([source, BatchTransform(BATCH)], on_error="skip")
    state = loader.init_state(0)
    same_walk(iterated(loader, state, 4), masked(loader, state, 4, ()))
    assert (tmp_path / "died").exists()
    assert loader.skipped == {}

    source = DiskSampleSource(
        N, fns.Dying("exit"), spec, "sequential", worker_kind="process"
    )
    loader = DataLoader([source, BatchTransform(BATCH)], on_error="skip")
    with pytest.raises(WorkerError, match="status 3 while it made sample 6"):
        next(loader.iterate(loader.init_state(0)))
    with pytest.raises(jit.FAILURES, match="status 3 while it made sample 6"):
        jax.block_until_ready(jax.jit(loader.next_batch)(loader.init_state(0)))
    assert loader.skipped == {}


@pytest.mark.parametrize("kind", KINDS)
def test_eio_of_a_function_is_retried_and_then_raised(
    kind: str, tmp_path: Path
) -> None:
    def loader_with(fn: Any) -> DataLoader:
        source = DiskSampleSource(
            N, fn, arrays_spec(), "sequential", worker_kind=kind, workers=2
        )
        return DataLoader([source, BatchTransform(BATCH)], on_error="skip", prefetch=0)

    loader = loader_with(fns.Unreadable(errno.EIO, tmp_path / "read"))
    state = loader.init_state(0)
    same_walk(iterated(loader, state, 4), masked(loader, state, 4, ()))
    assert (tmp_path / "read").exists()
    assert loader.skipped == {}

    loader = loader_with(fns.Unreadable(errno.EIO))
    with pytest.raises(OSError, match="cannot be read") as caught:
        next(loader.iterate(loader.init_state(0)))
    assert caught.value.errno == errno.EIO
    assert "raised for sample 6" in "".join(caught.value.__notes__)
    assert loader.skipped == {}

    loader = loader_with(fns.Unreadable(errno.ENOENT))
    same_walk(iterated(loader, state, 4), masked(loader, state, 4, (6,)))
    assert list(loader.skipped) == [6]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_bad_sample_of_getitems_is_skipped(kind: str) -> None:
    source = DatasetSource(
        fns.LotsThatRaise(N), arrays_spec(), "sequential", worker_kind=kind
    )
    loader = DataLoader([source, BatchTransform(BATCH)], on_error="skip")
    state = loader.init_state(0)
    same_walk(iterated(loader, state, 4), masked(loader, state, 4, (6,)))
    assert list(loader.skipped) == [6]


@pytest.mark.parametrize("kind", KINDS)
def test_timeouts_are_retried_and_then_raised(kind: str, tmp_path: Path) -> None:
    def loader_with(fn: Any, timeout: float) -> DataLoader:
        source = DiskSampleSource(
            N, fn, arrays_spec(), "sequential", worker_kind=kind, timeout=timeout
        )
        return DataLoader([source, BatchTransform(BATCH)], on_error="skip", prefetch=0)

    if kind == "process":  # a thread cannot be stopped, so there is no retry
        loader = loader_with(fns.Stalling(6, 5, tmp_path / "stalled"), 0.5)
        batch, mask = next(loader.iterate(loader.init_state(0)))
        assert bool(mask.all())
        assert np.asarray(batch["y"]).tolist() == list(range(1, 9))
        assert (tmp_path / "stalled").exists()

    loader = loader_with(fns.Stalling(6, 5), 0.3)
    with pytest.raises(WorkerTimeout, match="sample 6 has taken more than 300 ms"):
        next(loader.iterate(loader.init_state(0)))
    assert loader.skipped == {}


def test_a_worker_that_cannot_start_is_not_skipped() -> None:
    source = DiskSampleSource(
        N, fns.DeadOnArrival("raise"), arrays_spec(), worker_kind="process"
    )
    loader = DataLoader([source, BatchTransform(BATCH)], on_error="skip")
    with pytest.raises(ImportError, match="this worker lacks"):
        next(loader.iterate(loader.init_state(0)))
    assert loader.skipped == {}


def arrays_spec() -> Any:
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), arrays_of(fns.plain, 2)
    )
