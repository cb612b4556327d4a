"""Random keys of `MapTransform` in every way of delivery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from keyed_stages import (
    BATCH,
    SEED,
    STAGE,
    STEPS,
    N,
    by_hand,
    check_keys,
    data,
    key_of_sample,
    noise,
    source,
    stages,
)
from walks import iterated, jitted, same_bytes, same_walk, scanned, stepped


@pytest.mark.parametrize(
    ("remainder", "traced"),
    [("pad", False), ("pad", True), ("drop", False), ("wrap", False), ("wrap", True)],
)
def test_every_delivery_gives_the_same_keys(remainder: str, traced: bool) -> None:
    plain = ms.DataLoader([source(), *stages(remainder)], threads=1, prefetch=0)
    steps = 2 * plain.steps_per_epoch + 1
    start = plain.init_state(SEED)
    expected = iterated(plain, start, steps)
    loader = ms.DataLoader([source(), *stages(remainder)], threads=3, traced=traced)
    for walk in (iterated, stepped, jitted, scanned):
        same_walk(walk(loader, start, steps), expected)
    state = start
    for step in range(steps):
        rest = jax.tree.map(lambda x, step=step: x[step:], expected)
        restored = loader.restore(loader.save(state))
        same_walk(iterated(loader, restored, steps - step), rest)
        _, state, _ = loader.next_batch(state)


@pytest.mark.parametrize(("remainder", "traced"), [("pad", True), ("wrap", False)])
def test_vmap_over_seeds(remainder: str, traced: bool) -> None:
    loader = ms.DataLoader([source(), *stages(remainder)], traced=traced)
    states = jax.vmap(loader.init_state)(np.arange(3))
    several = stepped(loader, states, STEPS, jax.jit(jax.vmap(loader.next_batch)))
    for seed in range(3):
        expected = iterated(loader, loader.init_state(seed), STEPS)
        same_walk(jax.tree.map(lambda x, seed=seed: x[:, seed], several), expected)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    "order", ["sequential", ms.WithReplacement(), ms.Listed([3, 3, 9, 0, 1, 3])]
)
def test_every_order(order: Any, traced: bool) -> None:
    head = ms.ArraySampleSource(data(), ordering=order)
    check_order(ms.DataLoader([head, *stages()], traced=traced))


def test_mixtures() -> None:
    head = ms.mix([source(), source()], weights=[2, 1], num_samples=N)
    check_order(ms.DataLoader([head, *stages()]))


def check_order(loader: ms.DataLoader) -> None:
    start = loader.init_state(SEED)
    samples = loader.which_samples(start)
    expected = [by_hand(0, STAGE, int(sample)) for sample in samples]
    for walk in (iterated, jitted):
        batches, _, _ = walk(loader, start, 1)
        np.testing.assert_array_equal(batches["sample_key"][0], expected)


@pytest.mark.parametrize("traced", [False, True])
def test_without_batching_the_key_is_that_of_the_sample(traced: bool) -> None:
    calls: list[int] = []
    stages = [
        ms.MapTransform(key_of_sample),
        ms.HostCallbackTransform(lambda v, m: calls.append(int(v["index"]))),
        ms.MapTransform(noise),
    ]
    loader = ms.DataLoader([source(), *stages], traced=traced)
    start = loader.init_state(SEED)
    expected = iterated(loader, start, N + 2)
    assert len(calls) == N + 2
    for k, (found, index) in enumerate(
        zip(expected[0]["sample_key"], expected[0]["index"], strict=True)
    ):
        np.testing.assert_array_equal(found, by_hand(k // N, STAGE, int(index)))
    for walk in (stepped, jitted, scanned):
        same_walk(walk(loader, start, N + 2), expected)


def added(sample: Any) -> Any:
    return {**sample, "x": sample["x"] + 1}


def read(index: int) -> Any:
    return {"index": np.int32(index), "x": np.ones(3, np.float32)}


def read_some(index: int) -> Any:
    if index in (2, 5):
        raise ValueError(f"sample {index} is bad")
    return read(index)


@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize("where", ["source", "stage"])
def test_after_python_functions(where: str, kind: str) -> None:
    before: list[Any] = [ms.DiskSampleSource(N, read, workers=2, worker_kind=kind)]
    if where == "stage":
        before = [source(), ms.PythonMapTransform(added, workers=2, worker_kind=kind)]
    loader = ms.DataLoader([*before, *stages("wrap")])
    check_keys(loader, "wrap", 2)
    start = loader.init_state(SEED)
    expected = iterated(loader, start, 5)
    for walk in (stepped, jitted, scanned):
        same_walk(walk(loader, start, 5), expected)


def test_partial_batches_of_workers() -> None:
    head = ms.DiskSampleSource(N, read, workers=2)
    check_keys(ms.DataLoader([head, *stages("partial")]), "partial", 2)


def test_host_fields_and_keys() -> None:
    def named(index: int) -> Any:
        return {**read(index), "name": f"sample {index}"}

    head = ms.DiskSampleSource(N, named, workers=2)
    loader = ms.DataLoader([head, *stages()])
    batch, _ = next(loader.run(seed=SEED, epochs=1))
    for name, index, key in zip(
        batch["name"], batch["index"], batch["sample_key"], strict=True
    ):
        assert name == f"sample {index}"
        np.testing.assert_array_equal(key, by_hand(0, STAGE, int(index)))


def test_skipped_samples_are_zero_and_others_keep_their_keys() -> None:
    head = ms.DiskSampleSource(N, read_some, workers=2)
    loader = ms.DataLoader([head, *stages()], on_error="skip")
    skipped = 0
    for batch, mask in loader.run(seed=SEED, epochs=1):
        for row, ok in enumerate(mask):
            key = np.asarray(batch["sample_key"])[row]
            index = int(batch["index"][row])
            np.testing.assert_array_equal(key, ok * by_hand(0, STAGE, index))
            assert not (ok and index in (2, 5))
        skipped += int(np.sum(~np.asarray(mask)))
    assert skipped == 2 + STEPS * BATCH - N
    assert sorted(loader.skipped) == [2, 5]
    start = loader.init_state(SEED)
    same_walk(jitted(loader, start, STEPS), iterated(loader, start, STEPS))


def test_from_files(tmp_path: Path) -> None:
    path = tmp_path / "samples.packed"
    ms.write_packed(ms.ArraySampleSource(data()), path)
    loader = ms.DataLoader([ms.PackedSource(path, ordering="shuffle"), *stages("wrap")])
    memory = ms.DataLoader([source(), *stages("wrap")])
    start = memory.init_state(SEED)
    words = loader.init_state(SEED)
    for walk in (iterated, jitted, scanned):
        found = walk(loader, words, 5)
        same_bytes(found[:2], iterated(memory, start, 5)[:2])


def test_with_transfer_guard_and_debug_settings() -> None:
    head = ms.DiskSampleSource(N, read, workers=2)
    for loader in (
        ms.DataLoader([source(), *stages()]),
        ms.DataLoader([head, *stages()]),
    ):
        iterator = loader.run(seed=SEED, epochs=2)
        next(iterator)
        with jax.transfer_guard("disallow"), jax.debug_nans(True):
            for _ in iterator:
                pass


# What must not change.


def test_states_and_specs_do_not_show_the_fields_for_keys() -> None:
    plain = ms.DataLoader(
        [source(), ms.BatchTransform(BATCH), ms.MapTransform(lambda b, m: b)]
    )
    keyed = ms.DataLoader(
        [source(), ms.MapTransform(lambda v, key: v), ms.BatchTransform(BATCH)]
    )
    start = plain.init_state(SEED)
    assert keyed.init_state(SEED) == start
    assert keyed._built.plan.digest == plain._built.plan.digest
    np.testing.assert_array_equal(
        keyed.which_samples(start), plain.which_samples(start)
    )
    assert keyed.element_spec() == plain.element_spec()
    same_walk(iterated(keyed, start, 5), iterated(plain, start, 5))
    assert "#" not in keyed.explain()
    assert keyed.bytes_read == plain.bytes_read


@pytest.mark.parametrize("keyed", ["no stage", "a stage for batches", "samples"])
def test_only_stages_before_batching_need_fields_of_the_engine(keyed: str) -> None:
    kinds: dict[str, list[Any]] = {
        "no stage": [ms.MapTransform(lambda v, m: v), ms.BatchTransform(BATCH)],
        "a stage for batches": [
            ms.BatchTransform(BATCH),
            ms.MapTransform(lambda v, key: v),
        ],
        "samples": [ms.MapTransform(lambda v, key: v), ms.BatchTransform(BATCH)],
    }
    loader = ms.DataLoader([source(), *kinds[keyed]])
    names = [name for name, _, _ in loader._built.plan.schema]
    assert names[:2] == ["index", "x"]
    assert len(names) == (4 if keyed == "samples" else 2)


def test_fields_of_users_with_the_same_names() -> None:
    fields = ms.DataLoader([source(), *stages()])._built.plan.schema
    *_, (epoch, _, _), (sample, _, _) = fields
    rows = {epoch: np.arange(N, dtype=np.int8), sample: np.ones((N, 2), np.float32)}
    loader = ms.DataLoader([ms.ArraySampleSource({**data(), **rows}), *stages()])
    assert len({name for name, _, _ in loader._built.plan.schema}) == 6
    batch, _ = next(loader.run(seed=SEED, epochs=1))
    np.testing.assert_array_equal(batch[epoch], batch["index"])
    keys = [by_hand(0, STAGE, int(i)) for i in batch["index"]]
    np.testing.assert_array_equal(batch["sample_key"], keys)
