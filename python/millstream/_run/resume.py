"""Saves and restores states, and checks that they belong to a pipeline."""

from __future__ import annotations

import json
import operator
import reprlib
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from millstream._run import saved_stream
from millstream._run.saved_stream import damaged
from millstream._run.state import (
    CHECK,
    EPOCH,
    WORDS,
    LoaderState,
    is_traced,
    step_of,
    words_at,
)
from millstream._stages.filter import hash_of

if TYPE_CHECKING:
    from millstream._run.built import BuiltPipeline
    from millstream._run.stream import Built

VERSION = 1

_NAMES = {
    "samples": "the number of samples",
    "filter": "the result of the filter",
    "fields": "the set of fields",
    "order": "the order",
    "epoch_length": "the length of an epoch",
    "batch_size": "the batch size",
    "remainder": "the remainder",
    "drop_last": "drop_last",
    "shards": "the number of shards",
    "sharding": "the sharding",
    "key": "the state's key",
    "epoch": "the state's epoch",
    "step": "the state's step",
}
_MAX_ORDER_TEXT = 200


def described(built: BuiltPipeline) -> dict[str, Any]:
    """Returns the properties of a pipeline that its states depend on, and a digest."""
    plan = built.plan
    order = repr(built.head.order)
    if len(order) > _MAX_ORDER_TEXT:
        order = f"{order[:_MAX_ORDER_TEXT]}..."
    kept = built.kept
    return {
        "samples": built.head.num_samples,
        "filter": None
        if kept is None
        else f"{len(kept)} samples with the hash {hash_of(kept)}",
        "fields": {
            name: f"{dtype}{list(shape)}" for name, dtype, shape in plan.source_schema
        },
        "order": {"is": order, "digest": f"{plan.order_digest:016x}"},
        "epoch_length": plan.epoch_length,
        "batch_size": built.batch_size,
        "remainder": built.policy,
        "digest": f"{plan.digest:016x}",
    }


def differences(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> list[Any]:
    """Returns (property, their value, my value) for each difference."""
    found = []
    # Another number of samples also changes the order's digest and the epoch's length.
    # Those are then not reported.
    resized = theirs.get("samples") != mine.get("samples")
    for key, name in _NAMES.items():
        a, b = theirs.get(key), mine.get(key)
        if key == "order" and a is not None and b is not None:
            same = a["is"] == b["is"]
            if a["digest"] != b["digest"] and not (same and resized):
                found.append((name, *((str(x) if same else x["is"]) for x in (a, b))))
        elif a != b and not (key == "epoch_length" and resized):
            found.append((name, a, b))
    if not found and theirs.get("digest") != mine.get("digest"):
        found.append(
            ("the digest of the pipeline", theirs.get("digest"), mine.get("digest"))
        )
    return found


def save_state(built: Built, state: Any) -> dict[str, Any]:
    """Returns a dict of numbers and texts with the state and its pipeline."""
    saved, leaves = _parts(built, state)
    return saved if leaves is None else {**saved, "stream": saved_stream.texts(leaves)}


def save_bytes(built: Built, state: Any) -> bytes:
    """Returns the same as bytes. The leaves of a stream are binary."""
    saved, leaves = _parts(built, state)
    if leaves is None:
        return json.dumps(saved).encode()
    return saved_stream.packed(saved, leaves)


def _parts(built: Built, state: Any) -> tuple[dict[str, Any], Any]:
    """Returns the dict of a state without its stream, and the stream's leaves."""
    position = built.start(state)
    if any(map(is_traced, jax.tree.leaves(position))):
        raise TypeError(
            "save() cannot be used inside jit. Return the state and save it outside."
        )
    state = built.state(position)
    saved = {
        "millstream": VERSION,
        "words": [int(word) for word in np.asarray(state.words)],
        "pipeline": built.described(),
    }
    return saved, None if state.stream is None else saved_stream.leaves(state.stream)


def restore_state(built: Built, saved: Any, by: str) -> LoaderState:
    """Returns the state in a result of ``save_state``, or checks a bare state.

    If it belongs to another pipeline, it raises ``ValueError`` with the differences.
    """
    if by not in ("step", "sample"):
        raise ValueError(f"by must be 'step' or 'sample', not {by!r}")
    saved = parse(saved)
    if not isinstance(saved, Mapping) or "millstream" not in saved:
        if by == "sample":
            raise ValueError(
                "by='sample' needs the result of save(), because a bare state does not "
                "hold the batch size. Pass the result of save()."
            )
        if isinstance(saved, Mapping) and not hasattr(saved.get("words"), "dtype"):
            raise damaged(f"it has the keys {reprlib.repr(sorted(map(str, saved)))}")
        position = built.start(saved)
        if isinstance(position, LoaderState) or is_traced(position):
            return built.state(position)
        return LoaderState(np.array(position))
    checked, pipeline = _checked(saved)
    words = np.array(checked, np.uint32)
    mine = built.described()
    found = differences(pipeline, mine)
    if by == "sample":
        found = [entry for entry in found if entry[0] != _NAMES["batch_size"]]
    elif [name for name, _, _ in found] == [_NAMES["batch_size"]]:
        raise ValueError(
            f"this state was saved with batches of {pipeline['batch_size']} samples, "
            f"but this pipeline has batches of {built.batch_size}. Use "
            "restore(..., by='sample') to continue at the same sample."
        )
    if found and not (by == "sample" and found[0][0] == "the digest of the pipeline"):
        listed = "; ".join(f"{name} was {a} and is {b}" for name, a, b in found)
        raise ValueError(
            f"this state belongs to another pipeline: {listed}. Restore it with the "
            "pipeline that saved it, or start again with init_state()."
        )
    if by == "sample":
        words = _at_sample(built, words, pipeline)
    state = LoaderState(words)
    if "stream" in saved:
        state.stream = saved_stream.restored(built, saved["stream"])
    return built.state(built.start(state))


def parse(saved: Any) -> Any:
    """Parses a saved state from text or bytes. Returns other objects unchanged."""
    if not isinstance(saved, bytes | bytearray | memoryview | str):
        return saved
    text = saved if isinstance(saved, str) else bytes(saved)
    if isinstance(text, bytes) and text.startswith(saved_stream.MAGIC):
        return saved_stream.unpacked(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(f"its {len(text)} bytes are not JSON: {error}") from None
    if not isinstance(found, Mapping) or "millstream" not in found:
        raise damaged(f"it is {reprlib.repr(found)}, without the key 'millstream'")
    return found


def _check(name: str, value: Any, fits: Callable[[Any], Any], expected: str) -> None:
    try:
        is_valid = fits(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        is_valid = False
    if not is_valid:
        found = reprlib.repr(value)
        raise damaged(f"expected {name} to be {expected}, found {found}")


def _checked(saved: Mapping[str, Any]) -> tuple[list[int], Mapping[str, Any]]:
    """Returns the words and the pipeline of a saved state after checking them."""
    if saved["millstream"] != VERSION:
        raise ValueError(
            f"this state has the version {reprlib.repr(saved['millstream'])}, but this "
            f"Millstream only restores version {VERSION}"
        )
    # Checkpoint libraries may restore lists as arrays and numbers as scalar arrays.
    words: Any = saved.get("words")
    _check(
        "words",
        words,
        lambda found: (
            [0 <= operator.index(word) < 1 << 32 for word in found] == [True] * WORDS
        ),
        f"{WORDS} whole numbers below 2^32",
    )
    pipeline: Any = saved.get("pipeline")
    _check("pipeline", pipeline, lambda found: isinstance(found, Mapping), "a dict")
    for name in ("samples", "epoch_length", "batch_size"):
        _check(
            f"{name} of the pipeline",
            pipeline.get(name),
            lambda found: operator.index(found) > 0,
            "a positive whole number",
        )
    order, texts = pipeline.get("order"), ("is", "digest")
    _check(
        "order of the pipeline",
        order,
        lambda found: all(isinstance(found[name], str) for name in texts),
        f"a dict of the texts {texts}",
    )
    _check(
        "fields of the pipeline",
        pipeline.get("fields"),
        lambda found: all(isinstance(field, str) for field in found.values()),
        "a text for each field",
    )
    left = saved.get("left")
    _check(
        "left",
        left,
        lambda found: found is None or operator.index(found) is not None,
        "a whole number or None",
    )
    return [int(word) for word in words], pipeline


def _at_sample(
    built: Built, words: np.ndarray, pipeline: Mapping[str, Any]
) -> np.ndarray:
    """Returns the words of this pipeline's batch that holds the next sample."""
    if built.inner is not built:
        raise ValueError(
            "by='sample' has no meaning for a stream, whose values have no indices. "
            "Use by='step'."
        )
    size, before = built.batch_size, int(pipeline["batch_size"])
    epoch, step = int(words[EPOCH]), step_of(words)
    if built.policy == "wrap":  # positions count across epochs
        steps_before = -(-int(pipeline["epoch_length"]) // before)
        position = (epoch * steps_before + step) * before
        epoch, step = divmod(position // size, built.steps)
    else:
        position = step * before
        step = position // size
        if step >= built.steps:  # the rest is less than a batch and dropped
            epoch, step = epoch + 1, 0
            position = 0
    if repeated := position % size:
        warnings.warn(
            f"the saved state is at position {position}, which is not a multiple of "
            f"the batch size {size}. The next batch repeats {repeated} samples that "
            "were already delivered.",
            UserWarning,
            stacklevel=4,
        )
    if epoch >= 1 << 32:
        raise damaged(f"it names epoch {epoch}, expected one below 2^32")
    after = words_at(words, epoch, step)
    after[CHECK] = built.check_word
    return after
