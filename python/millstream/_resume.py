"""States that are kept: what goes into them, and whether they fit a pipeline."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from millstream._state import (
    CHECK,
    EPOCH,
    WORDS,
    LoaderState,
    is_traced,
    moved,
    step_of,
)

if TYPE_CHECKING:
    from millstream._program import Program

VERSION = 1

_NAMES = {
    "samples": "the number of samples",
    "fields": "the fields of a sample",
    "order": "the order",
    "epoch_length": "the samples of an epoch",
    "batch_size": "the batch size",
    "remainder": "the remainder",
    "drop_last": "drop_last",
    "shards": "the number of shards",
    "sharding": "the sharding",
    "key": "the state's key",
    "epoch": "the state's epoch",
    "step": "the state's step",
}
_LONGEST = 200


def described(program: Program) -> dict[str, Any]:
    """All that the resume digest is made of, in words, and the digest."""
    plan = program.plan
    order = repr(program.head.order)
    if len(order) > _LONGEST:
        order = f"{order[:_LONGEST]}..."
    return {
        "samples": program.head.num_samples,
        "fields": {
            name: f"{dtype}{list(shape)}" for name, dtype, shape in plan.source_schema
        },
        "order": {"is": order, "digest": f"{plan.order_digest:016x}"},
        "epoch_length": plan.epoch_length,
        "batch_size": program.batch_size,
        "remainder": program.policy,
        "digest": f"{plan.digest:016x}",
    }


def differences(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> list[Any]:
    """(what differs, their value, mine) of two descriptions."""
    found = []
    follows = theirs.get("samples") != mine.get("samples")  # from another size
    for key, name in _NAMES.items():
        a, b = theirs.get(key), mine.get(key)
        if key == "order" and a is not None and b is not None:
            same = a["is"] == b["is"]
            if a["digest"] != b["digest"] and not (same and follows):
                found.append((name, *((str(x) if same else x["is"]) for x in (a, b))))
        elif a != b and not (key == "epoch_length" and follows):
            found.append((name, a, b))
    if not found and theirs.get("digest") != mine.get("digest"):
        found.append(("the resume digest", theirs.get("digest"), mine.get("digest")))
    return found


def saved(program: Program, words: Any) -> dict[str, Any]:
    """A state as plain numbers and texts, with the pipeline that it belongs to."""
    if is_traced(words):
        raise TypeError("a state is saved where it is known, not inside of jit")
    return {
        "millstream": VERSION,
        "words": [int(word) for word in np.asarray(words)],
        "pipeline": described(program),
    }


def as_bytes(state: Mapping[str, Any]) -> bytes:
    """The same in one piece."""
    return json.dumps(state).encode()


def restored(program: Program, kept: Any, by: str) -> LoaderState:
    """The state that was kept, checked against the pipeline.

    Raises ``ValueError`` naming what differs.
    """
    if by not in ("step", "sample"):
        raise ValueError(f"by is 'step' or 'sample', not {by!r}")
    kept = parsed(kept)
    if not isinstance(kept, Mapping) or "millstream" not in kept:
        if by == "sample":
            raise ValueError(
                "by='sample' needs what save() returned: a bare state does not say "
                "which batch size its steps were counted in"
            )
        words = program.words(kept)
        return LoaderState(words if is_traced(words) else np.array(words))
    checked, pipeline = _checked(kept)
    words = np.array(checked, np.uint32)
    mine = described(program)
    found = differences(pipeline, mine)
    if by == "sample":
        found = [entry for entry in found if entry[0] != _NAMES["batch_size"]]
    elif [name for name, _, _ in found] == [_NAMES["batch_size"]]:
        raise ValueError(
            f"this state was saved with batches of {pipeline['batch_size']} samples, "
            f"and this pipeline has batches of {program.batch_size}: its step does not "
            "carry over; restore(..., by='sample') goes on at the same sample instead"
        )
    if found and not (by == "sample" and found[0][0] == "the resume digest"):
        listed = "; ".join(f"{name} was {a} and is {b}" for name, a, b in found)
        raise ValueError(f"this state belongs to another pipeline: {listed}")
    if by == "sample":
        words = _at_sample(program, words, pipeline)
    state = LoaderState(words)
    program.words(state)
    return state


def parsed(kept: Any) -> Any:
    """What text or bytes hold; anything else is as it is."""
    if not isinstance(kept, bytes | bytearray | memoryview | str):
        return kept
    text = kept if isinstance(kept, str) else bytes(kept)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"these {len(text)} bytes are not what save() returned: {error}"
        ) from None


def _checked(kept: Mapping[str, Any]) -> tuple[list[int], Mapping[str, Any]]:
    if kept["millstream"] != VERSION:
        raise ValueError(
            f"this state is of version {kept['millstream']!r}; version {VERSION} is "
            "what can be restored"
        )
    words, pipeline = kept.get("words"), kept.get("pipeline")
    # Checkpoints may bring lists back as arrays and numbers as arrays of no axis.
    words = jax.tree.map(int, list(words)) if words is not None else []
    fits = len(words) == WORDS and all(0 <= word < 1 << 32 for word in words)
    if not fits or not isinstance(pipeline, Mapping):
        raise ValueError(
            f"this is not what save() returned: it has the words {words} and the "
            f"pipeline {pipeline!r}"
        )
    return words, pipeline


def _at_sample(
    program: Program, words: np.ndarray, pipeline: Mapping[str, Any]
) -> np.ndarray:
    """The words at the same sample, counted in this pipeline's batches."""
    size, before = program.batch_size, int(pipeline["batch_size"])
    epoch, step = int(words[EPOCH]), step_of(words)
    if program.policy == "wrap":  # positions go on through the epochs
        steps_before = -(-int(pipeline["epoch_length"]) // before)
        position = (epoch * steps_before + step) * before
        epoch, step = divmod(position // size, program.steps)
    else:
        position = step * before
        step = position // size
        if step >= program.steps:  # what is left is less than a batch, and dropped
            epoch, step = epoch + 1, 0
            position = 0
    if again := position % size:
        warnings.warn(
            f"sample {position} does not begin a batch of {size}: the batch that it "
            f"is in begins with {again} samples that came before",
            UserWarning,
            stacklevel=4,
        )
    after = moved(words, epoch, step)
    after[CHECK] = program.plan.check_word
    return after
