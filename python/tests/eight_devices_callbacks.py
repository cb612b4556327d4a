"""Callbacks on eight devices. test_sharding.py runs it in a process."""

from __future__ import annotations

from typing import Any

import millstream as ms
import numpy as np
import pytest
from meshes import BATCH, STEPS, data, sharding_of
from walks import iterated, same_walk, scanned, stepped


@pytest.mark.parametrize("traced", [False, True])
def test_a_callback_before_batching_sees_each_row_once(traced: bool) -> None:
    seen: list[int] = []

    def doubled(sample: Any, mask: Any) -> Any:
        assert mask.shape == ()
        seen.append(int(sample["index"]))
        return {"index": 2 * sample["index"]}

    arrays = {"index": np.arange(len(next(iter(data().values()))), dtype=np.int32)}
    stages = [ms.HostCallbackTransform(doubled), ms.BatchTransform(BATCH)]
    pipeline = [ms.ArraySampleSource(arrays), *stages]
    plain = ms.DataLoader(pipeline)
    state = plain.init_state(7)
    expected = iterated(plain, state, 2 * STEPS)
    rows = list(seen)
    put = ms.DevicePutTransform(sharding_of("one axis"))
    loader = ms.DataLoader([*pipeline, put], traced=traced)
    for way in (iterated, stepped, scanned):
        seen.clear()
        same_walk(way(loader, state, 2 * STEPS), expected)
        assert seen == rows


def test_ordered_callbacks_need_one_device() -> None:
    source = ms.ArraySampleSource(data())
    note = ms.HostCallbackTransform(lambda b, m: None, ordered=True)
    put = ms.DevicePutTransform(sharding_of("one axis"))
    message = r"stage 2, HostCallbackTransform: ordered=True needs .* 8 devices"
    with pytest.raises(ValueError, match=message):
        ms.DataLoader([source, ms.BatchTransform(BATCH), note, put])
