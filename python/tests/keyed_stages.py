"""Stages with random keys, and the keys that they must get."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
from millstream._run.state import words_at

N, BATCH, SEED = 10, 4, 7
STEPS = 3
STAGE = 4 << 16
REMAINDERS = ["pad", "drop", "wrap", "partial"]


def data() -> dict[str, np.ndarray]:
    return {"index": np.arange(N, dtype=np.int32), "x": np.ones((N, 3), np.float32)}


def source(**more: Any) -> ms.ArraySampleSource:
    return ms.ArraySampleSource(data(), ordering="shuffle", **more)


def key_of_sample(sample: Any, key: Any) -> Any:
    return {**sample, "sample_key": jax.random.key_data(key)}


def key_of_batch(batch: Any, mask: Any, key: Any) -> Any:
    return {**batch, "batch_key": jax.random.key_data(key)}


def noise(sample: Any, key: Any) -> Any:
    drawn = jax.random.normal(key, sample["x"].shape)
    return {**sample, "x": sample["x"] + drawn}


def stages(remainder: str = "pad") -> list[Any]:
    return [
        ms.MapTransform(key_of_sample),
        ms.MapTransform(noise),
        ms.BatchTransform(BATCH, remainder=remainder),
        ms.MapTransform(key_of_batch),
    ]


def by_hand(epoch: int, stage: int, place: int, seed: int = SEED) -> np.ndarray:
    """Returns the key as docs/semantics.md describes it."""
    key = jax.random.key(seed, impl="threefry2x32")
    for part in (epoch, stage, place):
        key = jax.random.fold_in(key, part)
    return np.asarray(jax.random.key_data(key))


def check_keys(loader: ms.DataLoader, remainder: str, epochs: int) -> None:
    """Compares the keys of a loop with those computed by hand, row by row."""
    iterator = loader.epochs(epochs, seed=SEED)
    words = np.asarray(loader.init_state(SEED).words)
    count = 0
    for batch, mask in (pair for epoch in iterator for pair in epoch):
        epoch, step = divmod(count, loader.steps_per_epoch)
        samples = loader.which_samples(words_at(words, epoch, step))
        first = count * BATCH if remainder == "wrap" else step * BATCH
        rows = len(mask)
        assert rows == (2 if remainder == "partial" and step == 2 else BATCH)
        for row in range(rows):
            found = np.asarray(batch["sample_key"])[row]
            if samples[row] < 0:
                assert not found.any()
                continue
            own = (first + row) // N if remainder == "wrap" else epoch
            expected = by_hand(own, STAGE, int(samples[row]))
            np.testing.assert_array_equal(found, expected)
            assert batch["index"][row] == samples[row]
        expected = by_hand(epoch, STAGE + 2, step)
        np.testing.assert_array_equal(batch["batch_key"], expected)
        count += 1
    assert count == epochs * loader.steps_per_epoch
