"""States that are kept: what goes into them, and whether they fit a pipeline."""

from __future__ import annotations

import json
import operator
import reprlib
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream._run.state import (
    CHECK,
    EPOCH,
    WORDS,
    LoaderState,
    is_traced,
    moved,
    step_of,
)

if TYPE_CHECKING:
    from millstream._run.built import Program

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
        if isinstance(kept, Mapping) and not hasattr(kept.get("words"), "dtype"):
            raise _damaged(f"it has the keys {reprlib.repr(sorted(map(str, kept)))}")
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
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"these {len(text)} bytes cannot be read: {error}") from None
    if not isinstance(found, Mapping) or "millstream" not in found:
        raise _damaged(f"it is {reprlib.repr(found)}, without 'millstream'")
    return found


def _damaged(why: str) -> ValueError:
    return ValueError(
        f"this is not what save() returned, or it was damaged since: {why}; restore an "
        "earlier save, or begin anew with init_state()"
    )


def _check(name: str, value: Any, fits: Callable[[Any], Any], expected: str) -> None:
    try:
        good = fits(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        good = False
    if not good:
        found = reprlib.repr(value)
        raise _damaged(f"it has the {name} {found}, expected {expected}")


def _checked(kept: Mapping[str, Any]) -> tuple[list[int], Mapping[str, Any]]:
    if kept["millstream"] != VERSION:
        raise ValueError(
            f"this state is of version {reprlib.repr(kept['millstream'])}; this "
            f"Millstream restores states of version {VERSION} only"
        )
    # Checkpoints may bring lists back as arrays and numbers as arrays of no axis.
    words: Any = kept.get("words")
    _check(
        "words",
        words,
        lambda found: (
            [0 <= operator.index(word) < 1 << 32 for word in found] == [True] * WORDS
        ),
        f"{WORDS} whole numbers below 2^32",
    )
    pipeline: Any = kept.get("pipeline")
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
    left = kept.get("left")
    _check(
        "left",
        left,
        lambda found: found is None or operator.index(found) is not None,
        "a whole number or None",
    )
    return [int(word) for word in words], pipeline


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
    if epoch >= 1 << 32:
        raise _damaged(f"it names epoch {epoch}, expected one below 2^32")
    after = moved(words, epoch, step)
    after[CHECK] = program.plan.check_word
    return after
