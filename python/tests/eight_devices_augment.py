"""Random flips and crops on eight devices. test_sharding.py runs it in a process."""

from __future__ import annotations

import millstream as ms
import numpy as np
import pytest
from meshes import BATCH, STEPS, N, sharding_of
from walks import iterated, same_walk, scanned


@pytest.mark.parametrize("late", [False, True])
def test_batches_are_those_of_one_device(late: bool) -> None:
    image = (np.arange(N * 7 * 6 * 3) % 251).astype(np.uint8).reshape(N, 7, 6, 3)
    augment = [
        ms.RandomCropTransform("image", 5, 2),
        ms.RandomFlipTransform("image"),
        ms.NormalizeImageTransform("image", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
    ]
    batch = ms.BatchTransform(BATCH)
    stages = [batch, *augment] if late else [*augment, batch]
    pipeline = [ms.ArraySampleSource({"image": image}), *stages]
    plain = ms.DataLoader(pipeline)
    expected = iterated(plain, plain.init_state(7), 2 * STEPS)
    for layout in ("one axis", "replicas across a model axis"):
        put = ms.DevicePutTransform(sharding_of(layout))
        loader = ms.DataLoader([*pipeline, put])
        state = loader.init_state(7)
        same_walk(iterated(loader, state, 2 * STEPS), expected)
        same_walk(scanned(loader, state, 2 * STEPS), expected)
