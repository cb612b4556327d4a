"""Replay buffers inside jit: the transitions, the reference and the task.

Every transition contains its own number, so that the numbers drawn can be compared with
a reference that uses NumPy and `jax.random`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from harness import Task, WrongAnswer

DRAWN = 256
CHECKED = 200  # steps
SEED = 3


def transition(number: Any) -> dict[str, Any]:
    """The transition with a number: 41 bytes in five arrays. Exact below 2**22."""
    number = jnp.asarray(number, np.int32)
    state = number[..., None].astype(np.float32) + jnp.arange(4) / np.float32(4)
    return {
        "state": state,
        "action": number % 2,
        "reward": number.astype(np.float32),
        "next_state": state + 1,
        "done": number % 200 == 0,
    }


@dataclass(frozen=True)
class Transitions:
    """A source of transitions with rising numbers, in the protocol of both loaders."""

    steps_per_epoch: int = 1 << 20

    def init_state(self, key: Any) -> Any:
        """The first number."""
        return jnp.zeros((), np.int32)

    def next(self, state: Any) -> tuple[Any, Any, Any]:
        """A transition, its mask and the next number."""
        return transition(state), jnp.array(True), state + 1

    def element_spec(self) -> Any:
        """The spec of a transition."""
        return jax.eval_shape(transition, jnp.int32(0))


@dataclass(frozen=True)
class Replay:
    """What a contender builds: a state of an empty buffer, and a step.

    `step(state)` returns a batch, the state and a mask. `filled(state, change)` returns
    the state with `change(buffer_state)` in place of the buffer's own state.
    """

    state: Any
    step: Callable[[Any], tuple[Any, Any, Any]]
    filled: Callable[[Any, Callable[[Any], Any]], Any]


def start(replay: Replay, capacity: int) -> Any:
    """The state of a full buffer with the transitions 0 to capacity - 1."""

    def fill(state: Any) -> Any:
        full = jnp.int32(capacity)
        return replace(
            state,
            inner_state=full,
            buffer=jax.jit(transition)(jnp.arange(capacity)),
            count=full + 0,
            seen=full + 0,
        )

    return replay.filled(replay.state, fill)


def expected(capacity: int, write_mode: str) -> Iterator[np.ndarray]:
    """The numbers of the transitions that each step draws."""
    rows = np.arange(capacity)
    split = jax.jit(lambda key: jax.random.split(key, 3))
    draw = jax.jit(lambda key: jax.random.randint(key, (DRAWN,), 0, capacity))
    row = jax.jit(lambda key, seen: jax.random.randint(key, (), 0, seen))
    rng = jax.random.fold_in(jax.random.PRNGKey(SEED), 1)
    for step in range(CHECKED):
        rng, write_key, sample_key = split(rng)
        seen = capacity + step + 1
        fifo = write_mode == "fifo"
        target = step % capacity if fifo else int(row(write_key, seen))
        if target < capacity:
            rows[target] = capacity + step
        yield rows[np.asarray(draw(sample_key))]


def check(replay: Replay, capacity: int, write_mode: str) -> None:
    """Raises unless the first steps deliver the transitions of the reference."""

    @jax.jit
    def run(state: Any) -> Any:
        def body(state: Any, _: None) -> tuple[Any, Any]:
            batch, state, mask = replay.step(state)
            return state, (batch, mask)

        return jax.lax.scan(body, state, length=CHECKED)[1]

    batches, masks = run(start(replay, capacity))
    numbers = np.stack(list(expected(capacity, write_mode)))
    if not np.all(np.asarray(masks)):
        raise WrongAnswer("rows of a full buffer that do not count")
    wanted = transition(numbers)
    for name, found in batches.items():
        if found.dtype != wanted[name].dtype:
            raise WrongAnswer(f"{name} is {found.dtype}, not {wanted[name].dtype}")
        if not np.array_equal(found, wanted[name]):
            raise WrongAnswer(f"{name} differs from the reference")


def total(batch: Any) -> Any:
    """The sum of all arrays of a batch, so that XLA must make all of them."""
    return sum(jnp.sum(leaf, dtype=np.float32) for leaf in jax.tree.leaves(batch))


def prepare(contender: ModuleType, capacity: int, write_mode: str, steps: int) -> Task:
    """Checks the contender. A round is one scan, which owns the state of the buffer."""
    capacity = getattr(contender, "CAPACITY", capacity)
    replay: Replay = contender.build(capacity, write_mode)
    check(replay, capacity, write_mode)

    def run(state: Any) -> Any:
        def body(carry: Any, _: None) -> tuple[Any, None]:
            state, sums = carry
            batch, state, _ = replay.step(state)
            return (state, sums + total(batch)), None

        return jax.lax.scan(body, (state, jnp.float32(0)), length=steps)[0]

    jitted = jax.jit(run, donate_argnums=0)
    state = jax.tree.map(jnp.copy, start(replay, capacity))

    def round() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(jitted(state))

    return Task(steps, round)
