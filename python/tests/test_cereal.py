"""Cereal's stages with the source first, and without it."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from millstream import cereal

N = 10
DATA = {"x": np.arange(N * 4, dtype=np.uint8).reshape(N, 2, 2)}


def source() -> Any:
    return cereal.ArraySampleSource(DATA, ordering="sequential")


def first(call: Any) -> Any:
    batches = cereal.BatchTransform(4)(source())
    scaled = cereal.NormalizeImageTransform(batches, image_key="x", scale=2.0)
    flat = cereal.FlattenImageTransform(scaled, image_key="x")
    return cereal.HostCallbackTransform(flat, call)


def without(call: Any) -> Any:
    pipeline = source()
    for stage in (
        cereal.BatchTransform(4),
        cereal.NormalizeImageTransform(image_key="x", scale=2.0),
        cereal.FlattenImageTransform(image_key="x"),
        cereal.HostCallbackTransform(fn=call),
    ):
        pipeline = stage(pipeline)
    return pipeline


def short(call: Any) -> Any:
    return [
        source(),
        cereal.BatchTransform(4),
        cereal.NormalizeImageTransform("x", scale=2.0),
        cereal.FlattenImageTransform("x"),
        cereal.HostCallbackTransform(call),
    ]


@pytest.mark.parametrize("form", [first, without, short])
def test_the_forms_of_a_pipeline(form: Any) -> None:
    seen: list[int] = []

    def call(batch: Any, mask: Any) -> None:
        seen.append(int(mask.sum()))

    loader = cereal.DataLoader(form(call))
    state = loader.init_state(jax.random.PRNGKey(0))
    batches = list(loader.iterate(state))
    assert seen == [4, 4, 2]
    found = np.concatenate([np.asarray(batch["x"])[mask] for batch, mask in batches])
    assert found.dtype == np.float32
    assert np.array_equal(found, DATA["x"].reshape(N, 4) * 2.0)


@pytest.mark.parametrize(
    ("drop_last", "pad_last_batch", "remainder"),
    [(False, True, "pad"), (True, True, "drop"), (True, False, "drop")],
)
def test_padded_or_dropped(
    drop_last: bool, pad_last_batch: bool, remainder: str
) -> None:
    stage = cereal.BatchTransform(4, drop_last, pad_last_batch)
    assert isinstance(stage, ms.BatchTransform)
    assert stage.remainder == remainder


def test_neither_padded_nor_dropped() -> None:
    with pytest.raises(ValueError, match="Enable pad_last_batch or drop_last"):
        cereal.BatchTransform(4, pad_last_batch=False)


def test_wrong_first_arguments() -> None:
    with pytest.raises(TypeError, match="FlattenImageTransform needs a source"):
        cereal.FlattenImageTransform(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="HostCallbackTransform needs a function, fn="):
        cereal.HostCallbackTransform(source())


def test_a_function_that_is_mapped() -> None:
    def halved(batch: Any, mask: Any) -> Any:
        return {"x": batch["x"] // 2}

    batches = cereal.BatchTransform(4)(source())
    spec = batches.element_spec()
    for pipeline in (
        cereal.MapTransform(batches, halved),
        cereal.MapTransform(batches, fn=halved, element_spec_override=spec),
        [batches, cereal.MapTransform(halved)],
        [batches, cereal.MapTransform(fn=halved)],
        [batches, cereal.MapTransform(halved, spec)],
    ):
        entries = pipeline if isinstance(pipeline, list) else [pipeline]
        batch, _, _ = (loader := cereal.DataLoader(entries)).next(loader.init_state(0))
        assert np.array_equal(batch["x"], DATA["x"][:4] // 2)
    with pytest.raises(TypeError, match="MapTransform needs a function, fn="):
        cereal.MapTransform(batches)


def test_a_scan_that_takes_its_own_batches() -> None:
    loader = cereal.DataLoader([source(), cereal.BatchTransform(4)])

    def body(carry: Any, nothing: None) -> Any:
        batch, state, mask = loader.next_batch(carry["state"])
        return {"state": state, "rows": carry["rows"] + mask.sum()}, batch["x"][0, 0, 0]

    carry = {"state": loader.init_state(0), "rows": 0}
    for unroll in (False, True):
        end, outputs = loader.scan_epoch(carry, None, body, unroll)
        assert (int(end["rows"]), end["state"].epoch) == (N, 1)
        assert outputs.tolist() == [0, 16, 32]
    end, outputs = loader.scan_epoch(carry, None, body, steps=2)
    assert (end["state"].step, outputs.tolist()) == (2, [0, 16])
    with pytest.raises(TypeError, match="takes None as its second argument, not int"):
        loader.scan_epoch(carry, 5, body)
    with pytest.raises(ValueError, match="needs the loader state as its first"):
        loader.scan_epoch(carry, None, body, progress=True)
    # A state in the first place is the documented form.
    with pytest.raises(TypeError, match=r"scan_epoch calls body_fn\(carry, batch, ma"):
        loader.scan_epoch(carry["state"], None, body)
