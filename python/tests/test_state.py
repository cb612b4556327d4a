"""A state is eight words, for any kind of key."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import rows_of
from millstream import ArraySampleSource, BatchTransform, DataLoader, LoaderState
from millstream._delivery.jit import FAILURES


@pytest.fixture(scope="module")
def loader() -> DataLoader:
    return DataLoader([ArraySampleSource(rows_of(10)), BatchTransform(4)])


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**32 - 1, -1, -7])
def test_an_int_a_raw_key_and_a_typed_key_give_one_state(
    loader: DataLoader, seed: int
) -> None:
    state = loader.init_state(seed)
    assert state == loader.init_state(jax.random.PRNGKey(seed))
    assert state == loader.init_state(jax.random.key(seed))
    assert state == loader.init_state(np.asarray(jax.random.PRNGKey(seed)))
    assert state == loader.init_state(np.int64(seed))


def test_seeds_that_differ_give_states_that_differ(loader: DataLoader) -> None:
    seeds = [0, 1, 7, -1, 2**31, 2**32, 2**32 + 7, 2**40, 2**64 - 1]
    states = {bytes(np.asarray(loader.init_state(seed).words)) for seed in seeds}
    # -1 and 2**64 - 1 have the same 64 bits, but JAX makes a 32-bit key for -1.
    assert len(states) == len(seeds)


def test_no_key_is_seed_zero(loader: DataLoader) -> None:
    assert loader.init_state() == loader.init_state(None) == loader.init_state(0)


def test_the_words_are_a_check_the_key_the_epoch_and_the_step(
    loader: DataLoader,
) -> None:
    words = loader.init_state(2**32 * 5 + 7).words
    assert isinstance(words, np.ndarray)
    assert words.dtype == np.uint32
    assert words.tolist() == [loader._built.plan.check_word, 5, 7, 0, 0, 0, 0, 0]
    split = jax.random.split(jax.random.PRNGKey(1))[0]
    assert np.array_equal(loader.init_state(split).words[1:3], split)


def test_it_has_the_names_of_nested_states(loader: DataLoader) -> None:
    run = loader.run(seed=1)
    for _ in range(loader.steps_per_epoch + 1):
        next(run)
    state = run.state
    assert state.inner_state.inner_state.epoch == state.epoch == 1
    assert state.inner_state.position_in_epoch == state.step == 1
    with pytest.raises(AttributeError):
        state.inner_state = state
    with pytest.raises(AttributeError):
        state.position_in_epoch = 0


def test_it_is_a_pytree_of_one_leaf(loader: DataLoader) -> None:
    state = loader.init_state(7)
    leaves, structure = jax.tree.flatten(state)
    assert len(leaves) == 1
    assert leaves[0].shape == (8,)
    assert leaves[0].dtype == np.uint32
    assert jax.tree.unflatten(structure, leaves) == state
    path, _ = jax.tree_util.tree_flatten_with_path(state)[0][0]
    assert jax.tree_util.keystr(path) == ".words"


def test_it_can_be_traced_and_vmapped(loader: DataLoader) -> None:
    expected = [loader.init_state(seed) for seed in range(5)]
    jitted = jax.jit(loader.init_state)
    assert [jitted(seed) for seed in range(5)] == expected
    assert [jitted(jax.random.key(seed)) for seed in range(5)] == expected
    assert [jitted(jax.random.PRNGKey(seed)) for seed in range(5)] == expected
    keys = jax.vmap(jax.random.key)(jnp.arange(5))
    for states in (
        jax.vmap(loader.init_state)(jnp.arange(5)),
        jax.vmap(loader.init_state)(keys),
        jax.jit(jax.vmap(loader.init_state))(jax.random.key_data(keys)),
    ):
        assert states.words.shape == (5, 8)
        rows = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(5)]
        assert rows == expected


def test_wide_keys_are_hashed_into_two_words(loader: DataLoader) -> None:
    keys = [jax.random.key(seed, impl="rbg") for seed in range(3)]
    assert jax.random.key_data(keys[0]).shape == (4,)
    # Each of the four words and its position matters.
    raw = [[1, 2, 3, 4], [1, 2, 4, 3], [2, 1, 3, 4], [1, 2, 3, 5], [1, 2, 0, 0]]
    raw += [[5, 2, 3, 4], [1, 6, 3, 4]]
    keys += [np.array(words, np.uint32) for words in raw]
    states = [loader.init_state(key) for key in keys]
    assert len({bytes(np.asarray(state.words)) for state in states}) == len(keys)
    jitted = jax.jit(loader.init_state)
    assert [jitted(key) for key in keys] == states
    _, after, _ = loader.next_batch(states[0])
    assert after.step == 1


def test_it_equals_copies_and_nothing_else(loader: DataLoader) -> None:
    state = loader.init_state(7)
    assert state == pickle.loads(pickle.dumps(state))
    assert state == copy.deepcopy(state)
    assert state == jax.device_put(state)
    assert state != loader.init_state(8)
    assert state != "a state"
    with pytest.raises(TypeError, match="unhashable"):
        hash(state)


def test_its_repr_shows_the_position(loader: DataLoader) -> None:
    state = loader.init_state(7)
    for _ in range(4):
        _, state, _ = loader.next_batch(state)
    assert (state.epoch, state.step) == (1, 1)
    assert repr(state) == "LoaderState(epoch=1, step=1)"
    states = jax.vmap(loader.init_state)(jnp.arange(3))
    assert repr(states) == "LoaderState(shape=(3, 8))"
    jax.jit(lambda s: repr(s) and s)(state)


def test_a_state_from_the_host_is_not_committed_to_a_device(
    loader: DataLoader,
) -> None:
    iterator = loader.iterate(loader.init_state(0), steps=6)
    for _ in iterator:
        words = iterator.state.words
        assert isinstance(words, np.ndarray) or not words.committed
    _, state, _ = loader.next_batch(loader.init_state(0))
    assert isinstance(state.words, np.ndarray) or not state.words.committed


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("7", TypeError, "a key is an int.*not str"),
        (7.0, TypeError, "not float"),
        (True, TypeError, "not bool"),
        (object(), TypeError, "not object"),
        (2**64, ValueError, f"64 bits, found {2**64}"),
        (-(2**63) - 1, ValueError, "at most 64 bits"),
        (np.zeros((2, 2), np.uint32), ValueError, r"found uint32\[2, 2\]"),
        (np.zeros(2, np.int32), ValueError, r"found int32\[2\]"),
        (np.zeros(0, np.uint32), ValueError, r"found uint32\[0\]"),
        (np.float32(1), ValueError, r"found float32\[\]"),
    ],
)
def test_a_bad_key_is_named(
    loader: DataLoader, key: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        loader.init_state(key)


def bad_states() -> list[tuple[Any, type[Exception], str]]:
    return [
        (7, TypeError, "found (int. Pass the result of init_state|7. To start)"),
        (None, TypeError, "found None|needs a state"),
        ({}, TypeError, "found dict"),
        ({"word": np.zeros(8, np.uint32)}, TypeError, "found dict"),
        ([0] * 8, TypeError, "found list"),
        (LoaderState(None), TypeError, "found LoaderState"),
        (np.zeros(8, np.int32), ValueError, r"uint32\[8\], found int32\[8\]"),
        (np.zeros(7, np.uint32), ValueError, r"uint32\[8\], found uint32\[7\]"),
        (LoaderState(np.zeros((3, 8), np.uint32)), ValueError, r"found uint32\[3, 8\]"),
    ]


@pytest.mark.parametrize(("state", "error", "message"), bad_states())
def test_other_objects_are_named(
    loader: DataLoader, state: Any, error: type[Exception], message: str
) -> None:
    for use in (
        loader.iterate,
        loader.next_batch,
        loader.which_samples,
        lambda s: loader.scan_epoch(s, 0, lambda c, b, m: (c, None)),
    ):
        with pytest.raises(error, match=message):
            use(state)


def test_words_and_a_dict_of_them_are_states(loader: DataLoader) -> None:
    state = loader.init_state(3)
    expected = loader.which_samples(state)
    assert np.array_equal(loader.which_samples(np.asarray(state.words)), expected)
    assert np.array_equal(loader.which_samples({"words": state.words}), expected)
    _, after, _ = jax.jit(loader.next_batch)({"words": jnp.asarray(state.words)})
    assert after == loader.next_batch(state)[1]


def test_a_step_beyond_the_epoch_is_an_error(loader: DataLoader) -> None:
    words = np.asarray(loader.init_state(0).words).copy()
    words[4] = loader.steps_per_epoch
    with pytest.raises(ValueError, match=r"names step 3, but an epoch has only 3"):
        loader.iterate(words)
    with pytest.raises(ValueError, match="step 3"):
        loader.next_batch(words)
    with pytest.raises(FAILURES, match="step 3"):
        jax.block_until_ready(jax.jit(loader.next_batch)(words))


def test_a_traced_state_cannot_be_iterated(loader: DataLoader) -> None:
    state = loader.init_state(0)
    with pytest.raises(TypeError, match="cannot be used inside jit"):
        jax.jit(loader.iterate)(state)
    with pytest.raises(TypeError, match="cannot be used inside jit"):
        jax.jit(loader.which_samples)(state)
