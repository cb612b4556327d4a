"""An epoch with a jitted body: inside one jit, or as a Python loop around a step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dataset import BATCH, Arrays, fashion_mnist
from harness import Task, WrongAnswer, check_once, fingerprints
from workloads.host_loop.workload import Loop

EPOCHS = 2  # per round

Body = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


@dataclass
class Epoch:
    """What a contender builds: `step(state, carry)` runs an epoch of the body.

    It returns the next state, the carry and the outputs of the body, stacked or in a
    list. The body gets a carry, images, labels and a mask or None. A jitted `step` must
    not return arrays that it only reads, because XLA would copy them.
    """

    step: Callable[[Any, Any], tuple[Any, Any, Any]]
    state: Any = None
    shuffled: bool = True

    def run(self, carry: Any) -> tuple[Any, Any]:
        """Runs the next epoch, waits for it, and returns its carry and outputs."""
        self.state, carry, outputs = self.step(self.state, carry)
        return jax.block_until_ready((carry, outputs))


def scan_of(loader: Any, key: Any, body: Body) -> Epoch:
    """The epoch of a loader with `scan_epoch`, inside jit."""

    def step(carry: Any, batch: Any, mask: Any) -> tuple[Any, Any]:
        return body(carry, batch["image"], batch["label"], mask)

    @jax.jit
    def epoch(state: Any, carry: Any) -> tuple[Any, Any, Any]:
        return loader.scan_epoch(state, carry, step)

    return Epoch(epoch, loader.init_state(key))


def host_loop_of(build: Callable[[Arrays], Loop]) -> Callable[[Arrays, Body], Epoch]:
    """Makes a builder of epochs that pass each item of a Python loop to a step."""

    def built(data: Arrays, body: Body) -> Epoch:
        loop = build(data)
        jitted = jax.jit(body)

        def epoch(state: Any, carry: Any) -> tuple[Any, Any, list[Any]]:
            outputs = []
            for item in loop.epoch():
                carry, output = jitted(carry, *loop.unpack(item))
                if output is not None:
                    outputs.append(output)
            return state, carry, outputs

        return Epoch(epoch)

    return built


def recognise(carry: Any, image: Any, label: Any, mask: Any) -> tuple[Any, Any]:
    """The body of the check: fingerprints and the mask of every row."""
    valid = jnp.ones(label.shape, bool) if mask is None else mask
    return carry, (fingerprints(image, label), valid)


def total(carry: Any, image: Any, label: Any, mask: Any) -> tuple[Any, None]:
    """The timed body: the sum of images and labels. Padding is zero.

    A batch of 128 images of Fashion-MNIST sums to less than 2**24, so float32 is exact.
    """
    pixels = jnp.sum(image, dtype=jnp.float32).astype(jnp.uint32)
    return carry + pixels + jnp.sum(label).astype(jnp.uint32), None


def rows_of(outputs: Any) -> np.ndarray:
    """The fingerprints of the valid rows of an epoch of `recognise`, in order."""
    batches = outputs if isinstance(outputs, list) else [outputs]
    seen = [np.asarray(found)[np.asarray(valid)] for found, valid in batches]
    return np.concatenate(seen)


def check(contender: ModuleType, data: Arrays) -> int:
    """Checks an epoch of the contender and returns its number of samples."""
    epoch = contender.build(data, recognise)
    _, outputs = epoch.run(jnp.uint32(0))
    seen = rows_of(outputs)
    check_once(seen, data, shuffled=epoch.shuffled)
    return len(seen)


def prepare(contender: ModuleType, *, unit_axis: bool = False) -> Task:
    """Checks the rows of one epoch of the contender, and the sum of another."""
    data = fashion_mnist()
    if unit_axis:
        data = replace(data, image=data.image[..., None])
    samples = check(contender, data)
    epoch = contender.build(data, total)
    got, _ = epoch.run(jnp.uint32(0))
    wanted = (data.image.sum(dtype=np.uint64) + data.label.sum()) % 2**32
    rounding = 0 if BATCH <= 128 else int(wanted) // 10**5
    if samples == len(data) and abs(int(got) - int(wanted)) > rounding:
        raise WrongAnswer(f"the sum of the epoch is {int(got)}, not {int(wanted)}")

    def run() -> None:
        for _ in range(EPOCHS):
            epoch.run(jnp.uint32(0))

    return Task(samples * EPOCHS, run)
