"""Random keys of `MapTransform`: which parameters get them, and their values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from keyed_stages import (
    BATCH,
    REMAINDERS,
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
from millstream._run.state import words_at
from test_documents import ROOT, blocks

# Parameters.


def seen(value: Any, mask: Any = None, key: Any = None) -> dict[str, Any]:
    """Returns which of the three a function got. A missing one is -1."""
    words = jnp.full(2, -1, jnp.int32) if key is None else jax.random.key_data(key)
    flags = -1 if mask is None else mask
    return {
        "value": value["index"],
        "mask": jnp.asarray(flags, jnp.int32),
        "key": words.astype(jnp.uint32),
    }


class Method:
    def __call__(self, value: Any, key: Any) -> Any:
        return seen(value, None, key)

    def method(self, v: Any, m: Any, key: Any) -> Any:
        return seen(v, m, key)


def three(value: Any, mask: Any, key: Any) -> Any:
    return seen(value, mask, key)


def scaled(value: Any, mask: Any, key: Any, scale: Any) -> Any:
    assert scale == 3
    return seen(value, mask, key)


def key_by_keyword(value: Any, mask: Any = None, *, key: Any, scale: int = 1) -> Any:
    assert mask is None
    assert scale == 1
    return seen(value, mask, key)


def only_positional(key: Any, value: Any, /) -> Any:
    return seen(value, None, key)


def only_by_keyword(*, value: Any, mask: Any, key: Any) -> Any:
    return seen(value, mask, key)


def mask_by_keyword(value: Any, *, mask: Any) -> Any:
    return seen(value, mask)


def chosen(value: Any, mask: Any, key: str) -> Any:
    assert key == "index"
    return seen(value, mask)


@functools.wraps(three)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return three(*args, **kwargs)


class Unknown:
    """A callable whose signature nobody knows, like some built-in functions."""

    __signature__ = "unknown"

    def __call__(self, *args: Any) -> Any:
        return seen(*args)


FORMS: dict[str, tuple[Callable[..., Any], str]] = {
    "value, mask": (lambda value, mask: seen(value, mask), "mask"),
    "mask, value": (lambda mask, value: seen(value, mask), "mask"),
    "any names": (lambda v, m: seen(v, m), "mask"),
    "the mask has a default": (lambda v, m=None: seen(v, m), "mask"),
    "the mask by keyword": (mask_by_keyword, "mask"),
    "key has a default": (lambda b, m, key="index": seen(b, m), "mask"),
    "key is bound": (functools.partial(chosen, key="index"), "mask"),
    "variadic": (lambda *args: seen(*args), "mask"),
    "variadic keywords": (lambda v, m, **key: seen(v, m), "mask"),
    "without a signature": (Unknown(), "mask"),
    "value, mask, key": (three, "mask key"),
    "v, m, key": (lambda v, m, key: seen(v, m, key), "mask key"),
    "key first": (lambda key, v, m: seen(v, m, key), "mask key"),
    "key in the middle": (lambda v, key, m: seen(v, m, key), "mask key"),
    "mask first": (lambda mask, v, key: seen(v, mask, key), "mask key"),
    "mask last": (lambda key, v, mask: seen(v, mask, key), "mask key"),
    "a method": (Method().method, "mask key"),
    "wrapped": (wrapped, "mask key"),
    "jitted": (jax.jit(three), "mask key"),
    "others are bound": (functools.partial(scaled, scale=3), "mask key"),
    "all by keyword": (only_by_keyword, "mask key"),
    "value, key": (lambda value, key: seen(value, None, key), "key"),
    "key, value": (lambda key, value: seen(value, None, key), "key"),
    "only positional": (only_positional, "key"),
    "the mask keeps its default": (key_by_keyword, "key"),
    "the mask is bound": (functools.partial(three, mask=None), "key"),
    "a callable": (Method(), "key"),
}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_parameters_get_what_their_names_say(form: str, batched: bool) -> None:
    fn, given = FORMS[form]
    stages = [ms.BatchTransform(BATCH), ms.MapTransform(fn)]
    loader = ms.DataLoader([source(), *(stages if batched else reversed(stages))])
    start = loader.init_state(SEED)
    got, _ = next(loader.iterate(start))
    np.testing.assert_array_equal(got["value"], loader.which_samples(start))
    assert np.all(np.asarray(got["mask"]) == (1 if "mask" in given else -1))
    if "key" not in given:
        assert np.all(got["key"] == np.uint32(0xFFFFFFFF))
    elif batched:
        np.testing.assert_array_equal(got["key"], by_hand(0, STAGE, 0))
    else:
        keys = [by_hand(0, STAGE, int(i)) for i in got["value"]]
        np.testing.assert_array_equal(got["key"], keys)


def value_only(value: Any) -> Any:
    return value


def one_too_many(value: Any, mask: Any, other: Any) -> Any:
    return value


def four(a: Any, b: Any, c: Any, key: Any) -> Any:
    return a


def two_with_mask(a: Any, b: Any, mask: Any, key: Any) -> Any:
    return a


def key_only(key: Any) -> Any:
    return key


def no_value(mask: Any, key: Any) -> Any:
    return mask


@pytest.mark.parametrize(
    "fn", [value_only, one_too_many, four, two_with_mask, key_only, no_value]
)
def test_other_parameters_are_an_error_that_names_the_stage(fn: Any) -> None:
    found = rf"found {fn.__name__}\(.*Any.*\)"
    message = rf"stage 2, MapTransform: .*fn\(value, mask, key\).*{found}.*default"
    with pytest.raises(TypeError, match=message):
        ms.DataLoader([source(), ms.BatchTransform(BATCH), ms.MapTransform(fn)])
    with pytest.raises(TypeError, match=message):
        ms.MapTransform(fn)(ms.BatchTransform(BATCH)(source()))


# Values.


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("remainder", REMAINDERS)
def test_keys_can_be_rebuilt_by_hand(remainder: str, traced: bool) -> None:
    loader = ms.DataLoader([source(), *stages(remainder)], traced=traced)
    check_keys(loader, remainder, 4)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("epoch", [0, 3, 1 << 31, (1 << 32) - 2])
@pytest.mark.parametrize("remainder", ["pad", "wrap"])
def test_keys_of_late_epochs(remainder: str, epoch: int, traced: bool) -> None:
    """Epochs above 2^31 are one word. The epoch of a wrapped row has its own."""
    loader = ms.DataLoader([source(), *stages(remainder)], traced=traced)
    words = words_at(loader.init_state(SEED).words, epoch, 2)
    batch, mask = next(loader.iterate(ms.LoaderState(words)))
    samples = loader.which_samples(words)
    at = (epoch * STEPS + 2) * BATCH
    for row in np.flatnonzero(mask):
        own = (at + int(row)) // N % (1 << 32) if remainder == "wrap" else epoch
        expected = by_hand(own, STAGE, int(samples[row]))
        np.testing.assert_array_equal(batch["sample_key"][row], expected)
    np.testing.assert_array_equal(batch["batch_key"], by_hand(epoch, STAGE + 2, 2))


def test_a_fixed_key_never_changes() -> None:
    """The value in docs/semantics.md."""
    data = jax.random.wrap_key_data(np.array([7, 11], np.uint32), impl="threefry2x32")
    loader = ms.DataLoader(
        [
            ms.ArraySampleSource(np.zeros(12346, np.uint8), ordering="sequential"),
            ms.MapTransform(lambda value, key: jax.random.key_data(key)),
        ]
    )
    words = words_at(loader.init_state(data).words, 3, 12345)
    key, _ = next(loader.iterate(ms.LoaderState(words)))
    assert int(key[0]) == 4202132358


def test_the_guarantees_show_how_to_rebuild_a_key() -> None:
    namespace: dict[str, Any] = {}
    (block,) = blocks(ROOT / "docs" / "semantics.md")
    exec(block, namespace)
    loader = ms.DataLoader([source(), *stages()])
    start = loader.init_state(SEED)
    for place in (0, 5):
        found = namespace["rebuilt_key"](start, 2, STAGE, place)
        np.testing.assert_array_equal(
            jax.random.key_data(found), by_hand(2, STAGE, place)
        )


def test_keys_are_typed_and_do_not_depend_on_the_default_generator() -> None:
    kinds = []

    def kind(value: Any, key: Any) -> Any:
        kinds.append(str(jax.random.key_impl(key)))
        assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        return key_of_sample(value, key)

    with jax.default_prng_impl("rbg"):
        loader = ms.DataLoader(
            [source(), ms.MapTransform(kind), ms.BatchTransform(BATCH)]
        )
        start = loader.init_state(np.array([0, SEED], np.uint32))
        batch, _ = next(loader.iterate(start))
    assert set(kinds) == {"threefry2x32"}
    expected = [by_hand(0, STAGE, int(i)) for i in batch["index"]]
    np.testing.assert_array_equal(batch["sample_key"], expected)


def test_stages_have_different_keys_and_others_do_not_count() -> None:
    twice = ms.MapTransform(lambda v, key: {**v, "second": jax.random.key_data(key)})
    plain = ms.MapTransform(lambda v, m: v)
    name = ms.RenameTransform({"x": "z"})
    first = ms.MapTransform(key_of_sample)
    batch = ms.BatchTransform(BATCH)
    loader = ms.DataLoader([source(), first, twice, batch])
    start = loader.init_state(SEED)
    found, _ = next(loader.iterate(start))
    assert not np.any(np.asarray(found["sample_key"]) == np.asarray(found["second"]))
    for row, index in enumerate(found["index"]):
        expected = by_hand(0, STAGE + 1, int(index))
        np.testing.assert_array_equal(found["second"][row], expected)
    for others in ([name, first, plain, twice], [first, name, plain, twice]):
        same, _ = next(ms.DataLoader([source(), *others, batch]).iterate(start))
        for field in ("sample_key", "second"):
            np.testing.assert_array_equal(same[field], found[field])


@pytest.mark.parametrize("where", ["samples", "batches"])
def test_two_epochs_differ(where: str) -> None:
    """So iterating from the same state twice is probably a mistake."""
    keyed = {
        "samples": [ms.MapTransform(noise), ms.BatchTransform(BATCH)],
        "batches": [ms.BatchTransform(BATCH), ms.MapTransform(noise)],
    }[where]
    head = ms.ArraySampleSource(data(), ordering="sequential")
    loader = ms.DataLoader([head, *keyed])
    first, second = (
        np.stack([batch["x"] for batch, _ in epoch])
        for epoch in loader.epochs(2, seed=SEED)
    )
    assert not np.any(first[:2] == second[:2])
    assert loader._built.depends_on_epoch
    start = loader.init_state(SEED)
    assert len(list(loader.iterate(start))) == STEPS
    with pytest.warns(UserWarning, match="the same"):
        next(loader.iterate(start))
    plain = ms.DataLoader([head, ms.MapTransform(lambda v, m: v)])
    assert not plain._built.depends_on_epoch
