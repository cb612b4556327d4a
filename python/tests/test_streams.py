"""Pipelines over streams: values, states, loops and wrong input."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import fails
from stream_sources import Count, CountMany
from walks import iterated, jitted, same_walk, scanned

BATCHES = {
    "pad": [[0, 1], [2, 3], [4, 0], [5, 6], [7, 8], [9, 0]],
    "drop": [[0, 1], [2, 3], [5, 6], [7, 8]],
    "wrap": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]],
}


def doubled(value: Any, mask: Any) -> Any:
    return {**value, "y": 2 * value["n"]}


def loader_of(stream: Any, remainder: str = "pad", **more: Any) -> ms.DataLoader:
    batch = ms.BatchTransform(2, remainder=remainder)
    return ms.DataLoader([stream, ms.MapTransform(doubled), batch], **more)


@pytest.mark.parametrize("remainder", BATCHES)
def test_batches_are_the_same_in_every_loop(remainder: str) -> None:
    loader = loader_of(Count(), remainder)
    expected = BATCHES[remainder]
    start = loader.init_state(7)
    found = list(loader.run(seed=7, epochs=2))
    assert [np.asarray(batch["n"]).tolist() for batch, _ in found] == expected
    assert [np.asarray(batch["y"]).tolist() for batch, _ in found] == [
        [2 * n for n in row] for row in expected
    ]
    padded = remainder == "pad"
    masks = [mask.tolist() for _, mask in found]
    assert masks == ([[True, True], [True, True], [True, not padded]] * 2)[
        : len(expected)
    ] or (remainder == "drop" and np.all(masks))
    walk = iterated(loader, start, len(expected))
    same_walk(jitted(loader, start, len(expected)), walk)
    same_walk(scanned(loader, start, len(expected)), walk)
    many = loader_of(CountMany(), remainder)
    same_walk(jitted(many, many.init_state(7), len(expected)), walk)


def test_next_many_is_used() -> None:
    class OnlyMany(CountMany):
        def next(self, state: Any) -> Any:
            if getattr(self, "built", False):
                raise AssertionError("next was called")
            return super().next(state)

    stream = OnlyMany(4)
    loader = ms.DataLoader([stream, ms.BatchTransform(2)])
    stream.built = True  # type: ignore[attr-defined]
    batches = [np.asarray(b["n"]).tolist() for b, _ in loader.run(epochs=1)]
    assert batches == [[0, 1], [2, 3]]


def test_samples_without_batches() -> None:
    loader = ms.DataLoader([Count(3, holes=True)])
    found = [(int(v["n"]), bool(m)) for v, m in loader.run(epochs=1)]
    assert found == [(0, True), (1, False), (2, True)]


def test_seeds_and_vmap() -> None:
    loader = loader_of(Count())
    for key in (jax.random.PRNGKey(7), jax.random.key(7)):
        assert loader.init_state(key) == loader.init_state(7)
    states = jax.vmap(loader.init_state)(jnp.arange(3))

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry, batch["x"]

    def epoch(state: Any) -> Any:
        return loader.scan_epoch(state, 0, body)[2]

    many = jax.jit(jax.vmap(epoch))(states)
    for seed in range(3):
        one = epoch(loader.init_state(seed))
        assert np.array_equal(many[seed], one)


def test_a_state_without_a_stream_has_one_leaf() -> None:
    native = ms.DataLoader([ms.ArraySampleSource({"x": np.arange(4)})])
    assert len(jax.tree.leaves(native.init_state(0))) == 1
    assert len(jax.tree.leaves(loader_of(Count()).init_state(0))) == 4


def test_states_can_be_read_and_kept_at_every_step() -> None:
    loader = loader_of(Count())
    start = loader.init_state(3)
    run = loader.run(start, epochs=3)
    kept, batches = [], []
    for step, (batch, _) in enumerate(run):
        batches.append(np.asarray(batch["x"]))
        if step % 2:  # so that some steps donate their state
            kept.append((step, run.state))
    again = [np.asarray(b["x"]) for b, _ in loader.run(start, epochs=3)]
    assert np.array_equal(batches, again)  # the first state was not donated
    for step, state in kept:
        rest = [np.asarray(b["x"]) for b, _ in loader.run(state, epochs=3)]
        assert np.array_equal(rest, batches[step + 1 :]) or not rest


def test_run_counts_epochs_and_steps() -> None:
    loader = loader_of(Count())
    run = loader.run(seed=0, epochs=2)
    assert len(run) == 6
    ends = [(run.epoch, run.step, run.epoch_ended) for _ in run]
    assert ends[2] == (0, 3, True)
    assert ends[5] == (1, 6, True)
    assert (run.state.epoch, run.state.step) == (2, 0)
    assert list(loader.run(run.state, epochs=2)) == []


def test_epochs_run_the_rest_of_an_epoch_after_break() -> None:
    loader = loader_of(Count())
    first = []
    epochs = loader.epochs(3, seed=0)
    for epoch in epochs:
        for batch, _ in epoch:
            first.append((epoch.epoch, np.asarray(batch["n"]).tolist()))
            break
    assert first == [(0, [0, 1]), (1, [5, 6]), (2, [10, 11])]
    assert (epochs.state.epoch, epochs.state.step) == (3, 0)


def test_a_stream_trains_inside_one_jitted_scan() -> None:
    loader = loader_of(Count())

    @jax.jit
    def train(state: Any, total: Any) -> Any:
        def body(total: Any, batch: Any, mask: Any) -> Any:
            return total + jnp.sum(batch["n"] * mask), None

        return loader.scan_epoch(state, total, body)

    state, total, _ = train(loader.init_state(0), 0)
    assert int(total) == sum(range(5))
    _, total, _ = train(state, total)
    assert int(total) == sum(range(10))


def test_keys_of_map_transforms_can_be_rebuilt() -> None:
    def drawn(value: Any, key: Any) -> Any:
        return {**value, "drawn": jax.random.bits(key)}

    def drawn_for_batch(value: Any, mask: Any, key: Any) -> Any:
        return {**value, "both": jax.random.bits(key)}

    stages = [
        ms.MapTransform(drawn),
        ms.BatchTransform(2, remainder="wrap"),
        ms.MapTransform(drawn_for_batch),
    ]
    loader = ms.DataLoader([Count(4), *stages])
    batches = [batch for batch, _ in loader.run(seed=7, epochs=2)]

    def key(epoch: int, stage: int, position: int) -> Any:
        made = jax.random.wrap_key_data(np.array([0, 7], np.uint32))
        for part in (epoch, (4 << 16) + stage, position):
            made = jax.random.fold_in(made, part)
        return jax.random.bits(made)

    for step, batch in enumerate(batches):
        epoch, within = divmod(step, 2)
        rows = [key(epoch, 0, 2 * within + k) for k in range(2)]
        assert np.array_equal(batch["drawn"], rows)
        assert batch["both"] == key(epoch, 1, within)


def test_programs_are_traced_once() -> None:
    traced = []

    class Traced(Count):
        def next(self, state: Any) -> Any:
            traced.append(1)
            return super().next(state)

    loader = ms.DataLoader([Traced(100)])
    step = jax.jit(loader.next_batch)
    _, state, _ = step(loader.init_state(0))
    before = len(traced)
    for _ in range(3):
        _, state, _ = step(state)
    assert len(traced) == before
    for _ in zip(loader.run(steps=9), range(3), strict=False):
        pass
    before = len(traced)
    list(loader.run(steps=9))
    assert len(traced) == before


def test_callbacks_are_called_for_each_batch() -> None:
    seen: list[list[int]] = []

    def remember(batch: Any, mask: Any) -> None:
        seen.append(batch["n"].tolist())

    def fail(batch: Any, mask: Any) -> None:
        raise LookupError("of the callback")

    stages = [Count(), ms.BatchTransform(2)]
    loader = ms.DataLoader([*stages, ms.HostCallbackTransform(remember)])
    list(loader.run(epochs=1))
    assert seen == BATCHES["pad"][:3]
    failing = ms.DataLoader([*stages, ms.HostCallbackTransform(fail)])
    fails(lambda: next(failing.run()), "of the callback", kind=LookupError)
    assert isinstance(failing.last_error, LookupError | None)


def test_ctrl_c_loses_no_batch() -> None:
    def interrupt(batch: Any, mask: Any) -> None:
        if batch["n"][0] in (2, 7):
            os.kill(os.getpid(), signal.SIGINT)

    stages = [Count(), ms.BatchTransform(2, remainder="wrap")]
    loader = ms.DataLoader([*stages, ms.HostCallbackTransform(interrupt)])
    expected = [np.asarray(b["x"]) for b, _ in ms.DataLoader(stages).run(epochs=3)]
    for progress in (False, True):
        run = loader.run(epochs=3, progress=progress)
        found: list[Any] = []
        interrupts = 0
        while run:
            before = run.state
            try:
                batch, _ = next(run)
            except KeyboardInterrupt:
                interrupts += 1
                assert run.state == before
                continue
            found.append(np.asarray(batch["x"]))
        assert interrupts >= 1
        assert np.array_equal(found, expected)


def test_looking_at_a_stream() -> None:
    loader = loader_of(Count())
    list(loader.run(epochs=1, progress=True))
    text = loader.explain()
    assert "Count, a stream" in text
    assert "bytes a state" in text
    assert loader.stats().samples == 6
    assert "BatchTransform(2, pad)" in loader._repr_html_()
    assert loader.delivered == 3
    copy = pickle.loads(pickle.dumps(ms.DataLoader([Count(), ms.BatchTransform(2)])))
    assert len(copy) == 3


# Wrong input.


def test_arguments_without_a_meaning_are_rejected_by_name() -> None:
    for name, value in (
        ("threads", 2),
        ("prefetch", 0),
        ("prefetch", 2),
        ("traced", True),
        ("on_error", "skip"),
    ):
        more: Any = {name: value}
        texts = (name, "no meaning for the stream Count")
        fails(lambda more=more: loader_of(Count(), **more), *texts, kind=ValueError)
    loader = loader_of(Count())
    fails(lambda: loader.which_samples(loader.init_state(0)), "which_samples", "Count")
    fails(
        lambda: loader.restore(loader.save(loader.init_state(0)), by="sample"),
        "by='sample' has no meaning for a stream",
        kind=ValueError,
    )
    fails(lambda: loader_of(Count(), "partial"), "partial", kind=ValueError)


def test_a_class_is_not_a_stream() -> None:
    fails(lambda: ms.DataLoader([Count]), "Count", "did you forget to call it")


def test_stages_that_cannot_follow_a_stream() -> None:
    flip = ms.RandomFlipTransform("x", axis=0)
    fails(lambda: ms.DataLoader([Count(), flip]), "stage 1, RandomFlip", "XLA")
    python = ms.PythonMapTransform(lambda v: v)
    fails(lambda: ms.DataLoader([Count(), python]), "stage 1", "MapTransform")
    twice = [ms.BatchTransform(2), ms.BatchTransform(2)]
    fails(lambda: ms.DataLoader([Count(), *twice]), "stage 2", kind=ValueError)
    too_large = ms.BatchTransform(9, drop_last=True)
    fails(lambda: ms.DataLoader([Count(), too_large]), "every batch", kind=ValueError)


def with_next(change: Any) -> Any:
    class Changed(Count):
        def next(self, state: Any) -> Any:
            return change(*super().next(state))

    return Changed()


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (lambda v, m, s: (v, m), ["(value, mask, state)"]),
        (lambda v, m, s: (v, m, {**s, "n": 1.0}), ["state", "['n']", "float32"]),
        (lambda v, m, s: (v, m, {"n": s["n"]}), ["state", "['key'] is missing"]),
        (lambda v, m, s: ({**v, "z": 1}, m, s), ["value", "['z'] is new"]),
        (lambda v, m, s: ({**v, "n": v["x"]}, m, s), ["value", "['n']", "float32[3]"]),
    ],
)
def test_streams_that_return_something_else(change: Any, texts: list[str]) -> None:
    fails(lambda: ms.DataLoader([with_next(change)]), "Changed", *texts)


def test_masks_must_be_booleans() -> None:
    for wrong in (lambda v, m, s: (v, 0.3, s), lambda v, m, s: (v, s, m)):
        fails(lambda wrong=wrong: ms.DataLoader([with_next(wrong)]), "boolean", "mask")


def test_next_many_is_checked() -> None:
    class Few(CountMany):
        def next_many(self, state: Any, count: int) -> Any:
            return super().next_many(state, 2)

    class Pair(CountMany):
        def next_many(self, state: Any, count: int) -> Any:
            return super().next_many(state, count)[:2]

    fails(lambda: ms.DataLoader([Few()]), "Few.next_many(state, 3)", "['n']")
    fails(lambda: ms.DataLoader([Pair()]), "Pair.next_many", "a tuple of 2 values")


def test_typed_keys_are_rejected() -> None:
    class Typed(Count):
        def init_state(self, key: Any) -> Any:
            state = super().init_state(key)
            return {**state, "key": jax.random.wrap_key_data(key)}

    fails(lambda: ms.DataLoader([Typed()]), "typed key at ['key']", "key_data")


def test_objects_that_are_almost_streams() -> None:
    class Unsized(Count):
        steps_per_epoch = property()  # type: ignore[assignment]

        def __init__(self) -> None:
            pass

    fails(lambda: ms.DataLoader([Unsized()]), "not a stream", "steps_per_epoch")
    fails(lambda: ms.DataLoader([Count]), "Write Count(...)")


def test_filters_over_a_stream() -> None:
    def is_even(sample: Any) -> Any:
        return sample["n"] % 2 == 0

    expected = [True, False, True, False, True, False]
    for stages in (
        [ms.FilterTransform(is_even), ms.BatchTransform(3)],
        [ms.BatchTransform(3), ms.FilterTransform(is_even)],
    ):
        loader = ms.DataLoader([Count(6), *stages])
        masks = [mask for _, mask in loader.run(epochs=1)]
        assert np.concatenate(masks).tolist() == expected
    cached = ms.FilterTransform(is_even, cache="kept.npz")
    fails(lambda: ms.DataLoader([Count(6), cached]), "cache=", kind=ValueError)
    flags = ms.FilterTransform(np.ones(6, bool))
    fails(lambda: ms.DataLoader([Count(6), flags]), "Pass a function")


def test_several_processes_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax.sharding import NamedSharding, PartitionSpec
    from millstream._delivery.sharding import Split

    monkeypatch.setattr(Split, "processes", [0, 1])
    sharding = NamedSharding(jax.make_mesh((1,), ("data",)), PartitionSpec("data"))
    stages = [Count(), ms.BatchTransform(2), ms.DevicePutTransform(sharding)]
    fails(lambda: ms.DataLoader(stages), "several processes", kind=ValueError)


def test_wrong_numbers_of_steps() -> None:
    fails(lambda: ms.DataLoader([Count(0)]), "must be positive", kind=ValueError)
    stream = Count()
    stream.steps_per_epoch = 2.5  # type: ignore[assignment]
    fails(lambda: ms.DataLoader([stream]), "must be an int, not 2.5")


def test_states_of_other_pipelines() -> None:
    loader, other = loader_of(Count()), loader_of(Count(6))
    kind = ValueError
    fails(lambda: loader.run(other.init_state(0)), "another pipeline", kind=kind)
    words = loader.init_state(0).words
    fails(lambda: next(loader.run(ms.LoaderState(words))), "stream", "Count")
    damaged = ms.LoaderState(words, {"inner": 1})
    fails(lambda: loader.next_batch(damaged))
    native = ms.DataLoader([ms.ArraySampleSource({"x": np.arange(4)})])
    saved = loader.save(loader.init_state(0))
    fails(lambda: native.restore(saved), "another pipeline", kind=kind)
