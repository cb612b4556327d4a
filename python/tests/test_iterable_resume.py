"""Runs over an IterableSource resume at every step."""

import functools
import json
import pickle

import jax
import millstream as ms
import numpy as np
import orbax.checkpoint as ocp
import pytest
from iterables import SIZE, BytesIterator, Stateful, numbers, samples
from millstream._run.iterable import Place


def loader(make, steps=None, remainder="pad", prefetch=None):
    source = ms.IterableSource(make, steps_per_epoch=steps)
    batch = ms.BatchTransform(SIZE, remainder=remainder)
    return ms.DataLoader([source, batch], prefetch=prefetch)


def new_stateful(epoch):
    return Stateful(10, epoch)


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("steps", [None, 10])
@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap", "partial"])
@pytest.mark.parametrize(
    "make",
    [samples, new_stateful, Stateful(10), functools.partial(BytesIterator, 10)],
    ids=["skips", "state_dict", "one object", "get_state"],
)
def test_every_step(make, remainder, steps, prefetch):
    made = loader(make, steps, remainder, prefetch)
    run = made.run(seed=0, epochs=3)
    batches, states = [], [run.state]
    for batch, mask in run:
        batches.append((batch, mask))
        states.append(run.state)
    wanted = numbers(batches)
    for step, state in enumerate(states):
        restored = made.restore(json.loads(json.dumps(made.save(state))))
        assert restored == state
        run = made.run(restored, epochs=3)
        assert run.step == step
        assert numbers(run) == wanted[step:]


@pytest.mark.parametrize("keep", [pickle, None])
def test_states_survive_pickles_and_bytes(keep):
    made = loader(new_stateful)
    run = made.run()
    for _ in range(2):
        next(run)
    state = run.state
    copied = (
        pickle.loads(pickle.dumps(state))
        if keep
        else made.restore(made.save(state, format="bytes"))
    )
    assert copied == state
    assert numbers([next(made.run(copied))]) == [[8, 9]]
    words, leaf = jax.tree.leaves(state)
    assert words.shape == (8,)
    assert leaf.dtype == np.uint8
    later = made.run(state)
    next(later)
    assert len(later.state.stream["iterable"]) < len(
        leaf
    )  # the epoch ended: no state is needed


def test_orbax_without_a_template(tmp_path):
    made = loader(new_stateful)
    run = made.run()
    next(run)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", {"loader": run.state})
        checkpointer.wait_until_finished()
        found = checkpointer.restore(tmp_path / "state")["loader"]
    state = made.restore(found)
    assert state == run.state
    assert numbers([next(made.run(state))]) == [[4, 5, 6, 7]]


def test_a_state_of_the_iterable_makes_skipping_unnecessary():
    taken = []

    class Watched(Stateful):
        def __iter__(self):
            for sample in super().__iter__():
                taken.append(sample["y"])
                yield sample

    made = loader(lambda: Watched(1000), prefetch=0)
    run = made.run()
    for _ in range(100):
        next(run)
    state = run.state
    assert json.loads(Place.of(state.stream).saved[1:])["at"] == 400
    taken.clear()
    next(made.run(state))
    assert taken[0] == 400


def test_a_state_that_json_cannot_hold_is_replaced_by_skipping():
    class Keyed(Stateful):
        def state_dict(self):
            return {0: self.at}

    made = loader(lambda: Keyed(10), prefetch=0)
    run = made.run(epochs=1)
    with pytest.warns(UserWarning, match="resume by skipping samples instead"):
        next(run)
    assert "resumes by skipping samples" in made.explain()
    assert numbers(made.run(run.state, epochs=1)) == [[4, 5, 6, 7], [8, 9]]


def test_states_of_other_pipelines_and_damaged_states():
    made = loader(samples)
    run = made.run()
    next(run)
    with pytest.raises(ValueError, match="the remainder was pad and is drop"):
        loader(samples, remainder="drop").restore(made.save(run.state))
    with pytest.raises(ValueError, match="epochs end with the iterator and is"):
        loader(samples, steps=10).restore(made.save(run.state))
    with pytest.raises(ValueError, match="another pipeline"):
        loader(samples, steps=10).run(run.state)
    with pytest.raises(ValueError, match="has no meaning for a stream"):
        made.restore(made.save(run.state), by="sample")
    with pytest.raises(TypeError, match="no state of an iterable"):
        made.run(ms.LoaderState(run.state.words))

    def with_leaf(leaf):
        return ms.LoaderState(run.state.words, {"iterable": leaf})

    with pytest.raises(ValueError, match="damaged"):
        made.run(with_leaf(np.zeros(3, np.uint8)))
    with pytest.raises(ValueError, match="uint8"):
        made.run(with_leaf(np.zeros(24, np.int32)))
    arrays = ms.DataLoader([ms.ArraySampleSource({"y": np.arange(4)})])
    with pytest.raises(TypeError):
        made.run(arrays.init_state(0))


def test_less_data_than_when_the_state_was_saved():
    made = loader(samples)
    run = made.run()
    for _ in range(2):
        next(run)
    fewer = loader(functools.partial(samples, count=5))
    with pytest.raises(ms.DataError, match="only 5 samples"):
        next(fewer.run(run.state))


def test_the_seed_is_part_of_the_state():
    made = loader(samples)
    assert made.init_state(7) == made.init_state(jax.random.key(7))
    assert made.init_state(7) != made.init_state(8)
