"""Trains on image files with Hydrax's interface, is interrupted, and continues exactly.

Fashion-MNIST is written to a temporary folder as PNG files. Loader processes open,
flip and normalise the images. Validation follows every epoch. A second training gets
Ctrl-C in the middle of an epoch, saves a checkpoint and restarts with ``start_at``. The
program fails unless its losses, accuracies and parameters are those of the first one.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
from millstream.hydrax import DataGroup, Dataloader, TrainingBatch
from millstream.hydrax.image import Coefs, open_srgb, write_hwc
from PIL import Image

BATCH = 64
EPOCHS = 3
STEP_SIZE = 0.02
ARRAYS = {
    "image": ((28, 28, 3), np.float32, jnp.float32),
    "label": ((), np.int32, jnp.int32),
}


def write_images(folder, count):
    """Writes ``count`` images as PNG files. Returns pairs of path and label."""
    data = ms.FashionMNISTDataset(split="train").as_array_dict()
    items = []
    for number in range(count):
        path = folder / f"{number:05}.png"
        Image.fromarray(data["image"][number, :, :, 0]).save(path)
        items.append((str(path), int(data["label"][number])))
    return items


def load(item, arrays, seed):
    """Runs in the loader processes. ``seed`` is None for validation."""
    path, label = item
    image = np.asarray(open_srgb(path))
    if seed is not None and np.random.default_rng(seed).random() < 0.5:
        image = image[:, ::-1]
    write_hwc(image, arrays["image"], Coefs.IMAGENET_SRGB)
    arrays["label"][...] = label
    return {"path": path}


def init_params():
    """The weights and the bias of two layers."""
    first, second = jax.random.split(jax.random.key(0))
    inputs = 28 * 28 * 3
    return {
        "hidden": jax.random.normal(first, (inputs, 128)) * (2 / inputs) ** 0.5,
        "output": jax.random.normal(second, (128, 10)) * (1 / 128) ** 0.5,
        "bias": jnp.zeros(10),
    }


def predict(params, images):
    """Log-probabilities of the ten classes."""
    hidden = jax.nn.relu(images.reshape(len(images), -1) @ params["hidden"])
    return jax.nn.log_softmax(hidden @ params["output"] + params["bias"])


@jax.jit
def update(params, images, labels):
    """One step of gradient descent, and the loss before it."""

    def loss(params):
        scores = predict(params, images)
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - STEP_SIZE * g, params, grads), value


@jax.jit
def correct(params, images, labels):
    """How many images are classified correctly."""
    return jnp.sum(jnp.argmax(predict(params, images), axis=1) == labels)


def train(items, params, start_at=(0, 0), interrupt_at=None):
    """Trains until epoch ``EPOCHS``, or until Ctrl-C.

    With ``interrupt_at``, this batch sends the signal of Ctrl-C to the program. Returns
    the parameters, where to restart, and a list with the loss of each training batch
    and the number of correct images of each validation batch.
    """
    held_out = len(items) // 5
    training = DataGroup(BATCH, items[held_out:], loader_arrays=ARRAYS, seed=1)
    validation = DataGroup(BATCH, items[:held_out], loader_arrays=ARRAYS)
    dataloader = Dataloader(
        load,
        training,
        validation=("epoch", 1, validation),
        start_at=start_at,
        end_at=("epoch", EPOCHS),
        loader_count=2,
    )
    log = []
    with dataloader:
        for batch in dataloader:
            images, labels = batch.arrays["image"], batch.arrays["label"]
            if isinstance(batch, TrainingBatch):
                params, loss = update(params, images, labels)
                log.append((f"batch {batch.batch_num}", float(loss)))
                start_at = (batch.epoch, batch.epoch_batch + 1)
                if batch.batch_num == interrupt_at:
                    os.kill(os.getpid(), signal.SIGINT)
            else:
                number = int(correct(params, images, labels))
                log.append((f"validation {batch.validation_epoch_batch}", number))
            del batch, images, labels
    if dataloader.interrupted:
        print(f"interrupted after {log[-1][0]}")
    else:
        last = log[-dataloader.batches_per_validation :]
        accuracy = sum(number for _, number in last) / (len(last) * BATCH)
        print(f"{len(log)} batches, accuracy {accuracy:.3f}")
    return params, start_at, log


def main(count):
    """Trains twice and compares the two trainings."""
    with tempfile.TemporaryDirectory() as folder:
        items = write_images(Path(folder), count)
        whole, _, expected = train(items, init_params())
        middle = len(expected) // 2
        params, start_at, log = train(items, init_params(), interrupt_at=middle)
        params, _, rest = train(items, params, start_at)
    if log + rest != expected:
        raise SystemExit("the restarted training differs from the uninterrupted one")
    for name, value in params.items():
        np.testing.assert_array_equal(value, whole[name])
    print(f"restarted at {start_at}: all {len(expected)} batches are the same")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=4000, help="at least 320")
    main(parser.parse_args().images)
