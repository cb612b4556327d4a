"""IterableSource in Python loops: batches, epochs, stages and their ends."""

import functools
import itertools
import pickle

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from iterables import SIZE, Stateful, numbers, samples, ten

BY_EPOCH = {
    "pad": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
    "partial": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
    "drop": [[0, 1, 2, 3], [4, 5, 6, 7]],
}


def loader(make=samples, steps=None, remainder="pad", prefetch=None, stages=()):
    source = ms.IterableSource(make, steps_per_epoch=steps)
    batch = ms.BatchTransform(SIZE, remainder=remainder)
    return ms.DataLoader([source, batch, *stages], prefetch=prefetch)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("steps", [None, 10])
@pytest.mark.parametrize("remainder", list(BY_EPOCH))
def test_two_epochs(remainder, steps, prefetch):
    first = BY_EPOCH[remainder]
    wanted = first + [[100 + i for i in batch] for batch in first]
    made = loader(steps=steps, remainder=remainder, prefetch=prefetch)
    run = made.run(seed=0, epochs=2)
    found = []
    for batch, mask in run:
        found.append((batch, mask))
        at = (len(found) - 1) % len(first)
        epoch = (len(found) - 1) // len(first)
        assert (run.epoch, run.step) == (epoch, len(found))
        assert run.epoch_ended == (at == len(first) - 1)
        after = (epoch + 1, 0) if run.epoch_ended else (epoch, at + 1)
        assert (run.state.epoch, run.state.step) == after
        assert bool(run) == (len(found) < len(wanted))
    assert numbers(found) == wanted
    assert all(isinstance(b["x"], jax.Array) for b, _ in found)
    last = found[-1][0]["x"]
    assert last.shape == ((2 if remainder == "partial" else SIZE), 3)
    if remainder == "pad":
        assert not np.any(last[2:])
    assert made.stats().samples == sum(map(len, wanted))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_wrap_takes_samples_of_the_next_epoch(prefetch):
    counted = loader(steps=10, remainder="wrap", prefetch=prefetch)
    assert numbers(counted.run(epochs=2))[2:] == [
        [8, 9, 100, 101],
        [102, 103, 104, 105],
        [106, 107, 108, 109],
        [200, 201, 202, 203],
    ]
    run = loader(remainder="wrap", prefetch=prefetch).run(epochs=2)
    ends = [run.epoch_ended for _ in run]
    assert ends == [False, False, True, False, True]
    few = loader(functools.partial(samples, count=3), remainder="wrap")
    assert numbers(few.run(steps=2)) == [[0, 1, 2, 100], [101, 102, 200, 201]]


def test_an_epoch_whose_samples_fill_its_batches():
    for remainder in ("pad", "drop", "wrap"):
        made = loader(functools.partial(samples, count=8), remainder=remainder)
        run = made.run(epochs=1)
        assert [run.epoch_ended for _ in run] == [False, True]
        assert (run.state.epoch, run.state.step) == (1, 0)


def test_epochs_of_different_length():
    def growing(epoch):
        return samples(epoch, count=3 + 4 * epoch)

    run = loader(growing).run(epochs=3)
    assert [run.epoch for _ in run] == [0, 1, 1, 2, 2, 2]


def test_make_iterator_is_called_once_at_the_start_of_each_epoch():
    calls = []

    def make(*, epoch):
        calls.append(epoch)
        return samples(epoch)

    spec = {
        "x": jax.ShapeDtypeStruct((3,), np.float32),
        "y": jax.ShapeDtypeStruct((), np.int32),
    }
    for prefetch in (0, 4):
        for steps in (None, 10):
            calls.clear()
            source = ms.IterableSource(make, spec, steps)
            made = ms.DataLoader([source, ms.BatchTransform(SIZE)], prefetch=prefetch)
            assert calls == []
            list(made.run(epochs=2))
            assert calls == [0, 1]
            list(made.iterate(made.init_state(0)))
            assert calls == [0, 1, 0]
            for _ in made.epochs(1):
                pass
            assert calls == [0, 1, 0]  # the epoch was not iterated


def test_samples_beyond_steps_per_epoch_are_left():
    made = loader(steps=6)
    assert numbers(made.run(epochs=2)) == [
        [0, 1, 2, 3],
        [4, 5],
        [100, 101, 102, 103],
        [104, 105],
    ]
    assert len(made) == 2
    assert len(made.run(epochs=3)) == 6


def test_steps_count_from_epoch_0_and_the_earlier_end_counts():
    made = loader()
    run = made.run(steps=4)
    assert len(run) == 4
    assert len(list(run)) == 4
    assert (run.state.epoch, run.state.step) == (1, 1)
    again = made.run(run.state, steps=7)
    assert again.step == 4
    assert len(list(again)) == 3
    assert len(list(made.run(epochs=1, steps=5))) == 3
    assert len(list(made.run(epochs=5, steps=4))) == 4
    assert list(made.run(run.state, epochs=1)) == []
    assert "epoch 1, step 4" in repr(made.run(run.state))
    endless = made.run()
    assert [next(endless) and endless.epoch for _ in range(7)] == [0, 0, 0, 1, 1, 1, 2]


def test_the_length_is_unknown_without_steps_per_epoch():
    made = loader()
    for get in (
        lambda: len(made),
        lambda: made.steps_per_epoch,
        lambda: len(made.run(epochs=1)),
        lambda: len(made.iterate(made.init_state())),
    ):
        with pytest.raises(TypeError, match="number of batches is not known"):
            get()


@pytest.mark.parametrize("steps", [None, 10])
def test_iterate(steps):
    made = loader(steps=steps)
    state = made.init_state(0)
    it = made.iterate(state)
    assert numbers(it) == BY_EPOCH["pad"]
    assert (it.state.epoch, it.state.step) == (1, 0)
    assert len(list(made.iterate(state, steps=5))) == 5
    it = made.iterate(made.init_state(0))
    next(it)
    saved = it.get_state()
    rest = numbers(it)
    other = made.iterate(made.init_state(0))
    other.set_state(saved)
    assert numbers(other) == rest == BY_EPOCH["pad"][1:]
    assert it.get_state()["left"] == 0
    it.close()


@pytest.mark.parametrize("steps", [None, 10])
def test_an_epoch_that_is_left_starts_anew(steps):
    made = loader(steps=steps)
    found = []
    for epoch in made.epochs(3):
        for batch, mask in epoch:
            found += numbers([(batch, mask)])
            if epoch.epoch == 1:
                break
    hundreds = [[100, 101, 102, 103]]
    assert found[:4] == BY_EPOCH["pad"] + hundreds
    assert found[4] == [200, 201, 202, 203]
    assert len(found) == 7
    wrapped = loader(steps=steps, remainder="wrap")
    first, second = (next(epoch) for epoch in wrapped.epochs(2))
    assert numbers([first, second]) == [[0, 1, 2, 3], [102, 103, 104, 105]]


def test_stages_before_and_after_batching():
    def add(value, mask, key):
        return {**value, "x": value["x"] + jax.random.uniform(key)}

    def double(value, mask):
        return {**value, "y": 2 * value["y"]}

    seen = []
    stages = [
        ms.NormalizeImageTransform("x", mean=1.0, std=2.0),
        ms.MapTransform(add),
        ms.BatchTransform(SIZE),
        ms.MapTransform(double),
        ms.HostCallbackTransform(lambda batch, mask: seen.append(batch["y"])),
    ]
    made = ms.DataLoader([ms.IterableSource(samples), *stages])
    arrays = {
        "x": np.stack([s["x"] for s in samples()]),
        "y": np.arange(10, dtype=np.int32),
    }
    same = ms.DataLoader([ms.ArraySampleSource(arrays, "sequential"), *stages])
    for (batch, mask), (wanted, its_mask) in zip(
        made.run(seed=3, epochs=1), same.run(seed=3, epochs=1), strict=True
    ):
        np.testing.assert_array_equal(mask, its_mask)
        np.testing.assert_array_equal(batch["y"], wanted["y"])
        np.testing.assert_allclose(batch["x"], wanted["x"], rtol=1e-6)
    assert len(seen) == 6
    assert made.element_spec()["x"].shape == (SIZE, 3)
    assert "HostCallbackTransform" in made.explain()


def test_values_without_batching_and_other_structures():
    made = ms.DataLoader(ms.IterableSource(ten))
    values = [(int(v["y"]), bool(m)) for v, m in made.run(epochs=1)]
    assert values == [(i, True) for i in range(10)]

    def pairs():
        for i in range(5):
            yield np.float64(i), [i, 2.5 * i]

    with pytest.warns(UserWarning, match="list of 2 numbers"):
        made = ms.DataLoader([ms.IterableSource(pairs), ms.BatchTransform(5)])
    assert made.element_spec()[0].dtype == np.float32
    ((x, (a, b)), _) = next(made.run())
    assert x.tolist() == a.tolist() == [0, 1, 2, 3, 4]
    assert b.tolist() == [0, 2.5, 5, 7.5, 10]


class Tensor:
    """An array of another library, whose dtype is not NumPy's."""

    dtype = "float of another library"

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, np.float32)


def test_arrays_of_other_libraries():
    made = loader(lambda: ({"y": Tensor([i, 2 * i])} for i in range(4)))
    batch, _ = next(made.run())
    assert batch["y"].tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]


def test_a_pipeline_of_called_stages_and_partial_batches_with_stages():
    pipeline = ms.BatchTransform(SIZE, remainder="partial")(ms.IterableSource(ten))
    made = ms.DataLoader(ms.MapTransform(lambda v, m: {**v, "n": jnp.sum(m)})(pipeline))
    assert [int(b["n"]) for b, _ in made.run(epochs=1)] == [4, 4, 2]


def test_devices_and_meshes():
    mesh = jax.make_mesh((1,), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    put = [ms.DevicePutTransform(sharding)]
    batch, mask = next(loader(stages=put).run())
    assert batch["x"].sharding.is_equivalent_to(sharding, 2)
    assert mask.shape == (SIZE,)
    put = [ms.DevicePutTransform("cpu")]
    assert numbers(loader(stages=put).run(epochs=1)) == BY_EPOCH["pad"]
    with pytest.raises(ValueError, match="partial"):
        loader(remainder="partial", stages=[ms.DevicePutTransform(sharding)])


def test_a_donated_mask_does_not_break_later_batches():
    run = loader(steps=10).run(epochs=1)
    _, mask = next(run)
    mask.delete()
    assert next(run)[1].tolist() == [True] * SIZE


def test_progress_and_explain():
    for steps in (None, 10):
        made = loader(steps=steps)
        assert numbers(made.run(epochs=1, progress=True)) == BY_EPOCH["pad"]
        it = made.iterate(made.init_state(), progress=True)
        assert numbers(it) == BY_EPOCH["pad"]
    text = loader().explain()
    assert "an epoch ends when the iterator does" in text
    assert "known after the first batch" in text
    assert "only if the iterable yields the same samples again" in text
    assert "resumes by skipping samples" in made.explain()
    made = loader(lambda: Stateful())
    next(made.run())
    assert "resumes through state_dict() of Stateful" in made.explain()
    assert "the thread of the loop" in loader(prefetch=0).explain()


def test_loaders_and_sources_can_be_pickled():
    made = pickle.loads(pickle.dumps(loader(steps=10, prefetch=1)))
    assert numbers(made.run(epochs=1)) == BY_EPOCH["pad"]


def test_hugging_face_streams():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"y": list(range(50))})
    stream = data.to_iterable_dataset(num_shards=3).with_format("numpy")
    made = ms.DataLoader([ms.IterableSource(stream), ms.BatchTransform(8)])
    wanted = numbers(made.run(epochs=2))
    assert sorted(itertools.chain(*wanted[:7])) == list(range(50))
    assert "through state_dict() of IterableDataset" in made.explain()
    run = made.run(epochs=2)
    states = [made.save(run.state) for _ in run]
    for step, saved in enumerate(states, start=1):
        state = made.restore(saved)
        assert numbers(made.run(state, epochs=2)) == wanted[step:]


def test_filters_and_callbacks_before_batching():
    seen = []

    def seven():
        for i in range(7):
            yield {"x": np.int32(i)}

    def remember(sample, mask):
        seen.append(int(sample["x"]))

    stages = [
        ms.IterableSource(seven),
        ms.FilterTransform(lambda sample: sample["x"] % 2 == 0),
        ms.HostCallbackTransform(remember),
        ms.BatchTransform(3),
    ]
    loader = ms.DataLoader(stages)
    found = [(b["x"].tolist(), m.tolist()) for b, m in loader.run(epochs=1)]
    assert found == [
        ([0, 0, 2], [True, False, True]),
        ([0, 4, 0], [False, True, False]),
        ([6, 0, 0], [True, False, False]),
    ]
    assert sorted(seen) == [0, 2, 4, 6]
