"""A shuffled epoch of a file that is not in the page cache, with an expensive step.

The file has 1 GiB, in rows of 16 KiB. Every timed epoch is checked: each batch returns
the numbers and the fingerprints of its rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cold import drop, release
from files import FACTOR, INVERSE, STEP, rows_file
from harness import Task, WrongAnswer

ROWS, WORDS = 2**16, 2**12
BATCH = 64
HIDDEN = 128
COLUMNS = np.arange(WORDS, dtype=np.uint32) * STEP
WEIGHTS = COLUMNS * FACTOR | np.uint32(1)

Body = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Epoch:
    """What a contender builds: `run()` runs an epoch, `prepare()` compiles it.

    `run` returns the carry, so that XLA computes all of it, and the outputs of the
    body, stacked or as a list. `keeps` keeps objects alive that a compiled program
    needs. An epoch that only computes does not read the file (`reads=False`).
    """

    run: Callable[[], Any]
    prepare: Callable[[], object] = lambda: None
    keeps: Any = None
    reads: bool = True


def recognised(batch: Any) -> tuple[Any, Any]:
    """The numbers of the rows of a batch, and a fingerprint of all their words."""
    return batch[:, 0] * INVERSE, (batch * WEIGHTS).sum(axis=1, dtype=jnp.uint32)


def initial() -> Any:
    """The first carry of `compute`: the weights and the hidden state."""
    weights = jax.random.normal(jax.random.PRNGKey(0), (WORDS, HIDDEN)) / WORDS**0.5
    return weights, jnp.zeros(HIDDEN)


def compute(carry: Any, batch: Any) -> tuple[Any, Any]:
    """The body: a recurrent layer that processes one row after another.

    XLA runs it on one core. The other core is free to read, as it would be if an
    accelerator computed.
    """
    weights, hidden = carry
    values = batch.astype(jnp.float32) * np.float32(2**-32)

    def step(hidden: Any, row: Any) -> tuple[Any, None]:
        return jnp.tanh(row @ weights + hidden), None

    hidden, _ = jax.lax.scan(step, hidden, values)
    return (weights, hidden), recognised(batch)


def glance(carry: Any, batch: Any) -> tuple[Any, Any]:
    """The body of `read_alone`: it uses only the first and the last word of a row."""
    return carry, (batch[:, 0] * INVERSE, batch[:, -1])


def scan_of(loader: Any, carry: Any, body: Body, *, reads: bool = True) -> Epoch:
    """The epoch of a Millstream loader inside jit."""
    state = loader.init_state(0)

    def step(carry: Any, batch: Any, mask: Any) -> tuple[Any, Any]:
        return body(carry, batch)

    def epoch(state: Any, carry: Any) -> Any:
        return loader.scan_epoch(state, carry, step)[1:]

    compiled = jax.jit(epoch).lower(state, carry).compile()
    return Epoch(lambda: compiled(state, carry), keeps=loader, reads=reads)


def loop_of(batches: Callable[[], Iterable[Any]]) -> Epoch:
    """The epoch of a Python loop that calls a jitted step with each batch."""
    jitted = jax.jit(compute)

    def run() -> Any:
        carry, outputs = initial(), []
        for batch in batches():
            carry, output = jitted(carry, batch)
            outputs.append(output)
        return carry, outputs

    def prepare() -> object:
        return jitted(initial(), np.zeros((BATCH, WORDS), np.uint32))

    return Epoch(run, prepare)


def check(outputs: Any, expected: np.ndarray) -> None:
    """Raises unless the outputs of an epoch have every row once, shuffled."""
    each = outputs if isinstance(outputs, list) else [outputs]
    numbers, prints = (
        np.concatenate([np.asarray(output[position]).ravel() for output in each])
        for position in (0, 1)
    )
    if numbers.size != ROWS or not np.array_equal(np.sort(numbers), np.arange(ROWS)):
        found = len(np.unique(numbers))
        raise WrongAnswer(f"{numbers.size} rows, {found} different, of {ROWS}")
    if not np.array_equal(prints, expected[numbers]):
        raise WrongAnswer("rows with words that are not in the file")
    if np.array_equal(numbers[:BATCH], np.arange(BATCH)):
        raise WrongAnswer("rows in the order of the file instead of shuffled")


def fingerprints(body: Body) -> np.ndarray:
    """The output that the body must return for each row, computed directly."""
    numbers = np.arange(ROWS, dtype=np.uint32)
    if body is glance:
        return numbers * FACTOR + COLUMNS[-1]
    offset = (COLUMNS * WEIGHTS).sum(dtype=np.uint32)
    return numbers * (FACTOR * WEIGHTS.sum(dtype=np.uint32)) + offset


def prepare(contender: ModuleType) -> Task:
    """Compiles the step. Each round starts with a cold file and is checked after it."""
    path = rows_file(ROWS, WORDS)
    epoch: Epoch = contender.build(path)
    epoch.prepare()
    expected = fingerprints(getattr(contender, "BODY", compute))

    def after(outputs: Any) -> None:
        if epoch.reads:
            check(outputs[1], expected)
        release(path)

    def run() -> Any:
        return jax.block_until_ready(epoch.run())

    return Task(ROWS, run, before=lambda: drop(path), after=after)
