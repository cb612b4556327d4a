"""The examples run and train like a plain loop over NumPy arrays."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FASHION = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture(scope="module")
def fashion():
    spec = importlib.util.spec_from_file_location(
        "fashion_mnist", EXAMPLES / "fashion_mnist.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 1000).astype(np.int32)
    images = rng.integers(0, 60, (1000, 28, 28, 1), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] += 150
    return {"image": images, "label": labels}


def test_one_scan_per_epoch_trains_like_indexing_the_same_samples(fashion, data):
    loader = fashion.pipeline(data, batch_size=64)
    start = fashion.init_params(jax.random.key(1))
    state, scanned, _ = loader.scan_epoch(loader.init_state(3), start, fashion.update)

    params, step, at = start, jax.jit(fashion.update), loader.init_state(3)
    for _ in range(loader.steps_per_epoch):
        rows = loader.which_samples(at)
        mask = rows >= 0
        chosen = np.where(mask, rows, 0)
        images = data["image"][chosen] * np.float32(1 / 255)
        images[~mask] = 0
        batch = {"image": images, "label": np.where(mask, data["label"][chosen], 0)}
        params, _ = step(params, batch, mask)
        _, at, _ = loader.next_batch(at)

    assert at == state
    for a, b in zip(jax.tree.leaves(scanned), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_training_learns(fashion, data, capsys):
    test = {"image": data["image"] / np.float32(255), "label": data["label"]}
    ours = fashion.train(data, test, epochs=5)
    plain = fashion.train_numpy(data, test, epochs=5)
    assert ours[-1] > 0.9
    assert abs(ours[-1] - plain[-1]) < 0.05
    printed = capsys.readouterr().out
    assert "accuracy" in printed
    assert "samples/s" in printed


def test_the_demo_is_a_script():
    command = [sys.executable, str(EXAMPLES / "fashion_mnist.py"), "--help"]
    assert (
        "jitted"
        in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.skipif(not FASHION.is_dir(), reason="needs Debian's dataset-fashion-mnist")
def test_a_hydrax_training_continues_exactly_after_an_interrupt():
    command = [sys.executable, str(EXAMPLES / "hydrax_images.py"), "--images", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, interrupted, rest, last = done.stdout.splitlines()
    # An epoch has 12 batches and 3 of validation. Batch 22 is in the second epoch.
    assert first.startswith("45 batches, accuracy 0.")
    assert interrupted == "interrupted after batch 22"
    assert rest.startswith("19 batches, accuracy 0.")
    assert last == "restarted at (1, 11): all 45 batches are the same"
    assert float(first.split()[-1]) > 0.5
    assert first.split()[-1] == rest.split()[-1]
    assert "[hydrax] interrupted: no more batches" in done.stderr


def test_fully_sharded_training_with_loadax_reaches_its_loss():
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "loadax_fsdp.py")],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr  # it checks the loss
    assert "a device holds 2,656 of 21,248 bytes of weights" in done.stdout
    assert done.stdout.count("epoch ") == 20
