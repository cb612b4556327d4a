"""`HeldBatches`: which batches are alive, and what refers to them."""

from __future__ import annotations

import gc
import warnings

import millstream as ms
import numpy as np
import pytest


def batches(steps, held, kept):
    source = ms.ArraySampleSource({"x": {"y": np.arange(80.0)}, "z": np.arange(80)})
    loader = ms.DataLoader([source, ms.BatchTransform(4)])
    for batch, _ in loader.run(seed=0, steps=steps):
        held.add(batch)
        kept.append(batch["x"]["y"])


def test_a_report_names_the_arrays_and_what_refers_to_them():
    held, kept = ms.HeldBatches(), []
    assert held.report() == ""
    batches(3, held, kept)
    holder = {"losses": kept}
    gc.collect()
    assert len(held) == 3
    told = held.report()
    assert "batch 0['x']['y']: a jaxlib" in told
    assert "batch 2['x']['y']: a jaxlib" in told
    assert "['z']" not in told  # nothing refers to it
    assert "held by a builtins.list of 3" in told
    assert "held by a builtins.dict with 1 keys" in told
    del kept[1]
    gc.collect()
    assert len(held) == 2
    assert "batch 1" not in held.report()
    del holder
    kept.clear()
    gc.collect()
    assert (len(held), held.report()) == (0, "")


def test_many_held_batches_warn_once():
    held, kept = ms.HeldBatches(warn_above=5), []
    with pytest.warns(RuntimeWarning, match="6 batches are still held") as warned:
        batches(12, held, kept)
    assert len(warned) == 1
    assert str(warned[0].message).endswith("Print report() to see what holds them.")


def test_released_batches_do_not_warn():
    held = ms.HeldBatches(warn_above=15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            batches(10, held, [])
            gc.collect()
