"""Fields with an axis of length 1 inside `scan_epoch`, where they arrive flat."""

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from millstream._delivery import jit
from walks import (
    resumes_everywhere,
    same_bytes,
    same_walk,
    scanned,
    scans_over_seeds,
    specified,
)

N, BATCH, STEPS = 23, 5, 9

DATA = {
    "image": np.arange(N * 12, dtype=np.uint8).reshape(N, 4, 3, 1),
    "row": np.arange(N * 6, dtype=np.float32).reshape(N, 1, 6) / 7,
    "one": np.arange(N, dtype=np.int32).reshape(N, 1),
    "ones": np.arange(N, dtype=np.int16).reshape(N, 1, 1),
    "matrix": np.arange(N * 6, dtype=np.float32).reshape(N, 2, 3),
    "scalar": np.arange(N, dtype=np.int32),
}


@pytest.fixture(params=["memory", "disk", "normalized"])
def loader(request, tmp_path):
    source = ms.ArraySampleSource(DATA)
    if request.param == "disk":
        ms.write_packed(source, tmp_path / "data.packed")
        source = ms.PackedSource(tmp_path / "data.packed")
    stages = [source]
    if request.param == "normalized":
        stages.append(ms.NormalizeImageTransform("image"))
    return ms.DataLoader([*stages, ms.BatchTransform(BATCH)])


def shapes_from_engine(program, *arguments):
    """Returns the shapes of the results of the engine's call in a jitted program."""
    lines = jax.jit(program).lower(*arguments).as_text().splitlines()
    (call,) = [line for line in lines if "@millstream_" in line]
    types = call.rpartition("->")[2]
    return [part.split(">")[0] for part in types.split("tensor<")[1:]]


def total(carry, batch, mask):
    return carry + jnp.sum(batch["image"] * 1.0) + jnp.sum(batch["row"]), None


def test_only_a_scan_gets_flat_fields_and_only_with_a_unit_axis(loader):
    state = loader.init_state(0)
    flat = shapes_from_engine(lambda s: loader.scan_epoch(s, 0.0, total)[1], state)
    (image, matrix, one, ones, row, scalar) = flat[:6]
    assert image.startswith("5x12x")
    assert row == "5x6xf32"
    assert one == "5xi32"
    assert ones == "5xi16"
    assert matrix == "5x2x3xf32"
    assert scalar == "5xi32"
    whole = shapes_from_engine(loader.next_batch, state)
    assert whole[0].startswith("5x4x3x1x")
    assert whole[2:5] == ["5x1xi32", "5x1x1xi16", "5x1x6xf32"]


def test_scans_give_the_specified_batches_from_every_step(loader):
    state = loader.init_state(3)
    expected = specified(loader, state, STEPS)
    same_walk(scanned(loader, state, STEPS), expected)
    same_walk(scanned(loader, state, STEPS, unroll=4), expected)
    for step in range(STEPS):
        rest = jax.tree.map(lambda x, step=step: x[step:], expected)
        same_walk(scanned(loader, state, STEPS - step), rest)
        _, state, _ = loader.next_batch(state)
    resumes_everywhere(loader, loader.init_state(3), STEPS)


def test_scans_over_seeds(loader):
    scans_over_seeds(loader, 3, STEPS)


def test_scans_inside_cond_remat_and_grad(loader):
    state = loader.init_state(1)
    batches, masks, _ = specified(loader, state, STEPS)

    def mean(scale, state):
        def body(carry, batch, mask):
            each = jnp.mean(scale * batch["image"], axis=(1, 2, 3))
            return carry + jnp.sum(each, where=mask), None

        return loader.scan_epoch(state, 0.0, body, steps=STEPS)[1]

    means = batches["image"].astype(np.float64).mean(axis=(2, 3, 4))
    expected = means.sum(where=masks)
    for program in (mean, jax.checkpoint(mean)):
        value, slope = jax.jit(jax.value_and_grad(program))(1.0, state)
        np.testing.assert_allclose([value, slope], expected, rtol=1e-5)

    @jax.jit
    def chosen(yes, state):
        return jax.lax.cond(yes, lambda s: mean(1.0, s), lambda s: 0.0, state)

    np.testing.assert_allclose(chosen(True, state), expected, rtol=1e-5)
    assert chosen(False, state) == 0


def test_a_host_callback_gives_flat_fields_too(loader, monkeypatch):
    state = loader.init_state(2)
    expected = scanned(loader, state, STEPS)
    monkeypatch.setattr(jit, "_only_cpu", lambda: False)
    monkeypatch.setattr(
        jax.lax,
        "platform_dependent",
        lambda *operands, cpu, default: default(*operands),
    )
    again = ms.DataLoader(loader._pipeline)
    found = scanned(again, state, STEPS)
    same_bytes(found[:2], expected[:2])


def test_single_samples_keep_their_axes():
    loader = ms.DataLoader([ms.ArraySampleSource(DATA, "sequential")])

    def body(carry, sample, mask):
        return carry, sample

    _, _, samples = loader.scan_epoch(loader.init_state(0), None, body)
    same_bytes(jax.tree.map(np.asarray, samples), DATA)
