"""A filter on eight devices. test_sharding.py runs it in a process."""

from __future__ import annotations

import millstream as ms
import numpy as np
import pytest
from meshes import BATCH, N, data, sharding_of
from walks import iterated, same_walk, scanned


@pytest.mark.parametrize("traced", [False, True])
def test_batches_are_those_of_one_device(traced: bool) -> None:
    keep = ms.FilterTransform(lambda sample: sample["y"] % 3 != 0)
    pipeline = [ms.ArraySampleSource(data()), keep, ms.BatchTransform(BATCH)]
    plain = ms.DataLoader(pipeline)
    state = plain.init_state(7)
    expected = iterated(plain, state, 5)
    put = ms.DevicePutTransform(sharding_of("two axes"))
    loader = ms.DataLoader([*pipeline, put], traced=traced)
    same_walk(iterated(loader, state, 5), expected)
    same_walk(scanned(loader, state, 5), expected)
    kept = np.flatnonzero(data()["y"] % 3 != 0)
    assert set(loader.which_samples(state)) <= set(kept.tolist())
    assert loader.steps_per_epoch == -(-len(kept) // BATCH) < -(-N // BATCH)
