"""The code blocks of Cyreal's (000) and Cereal's (001) documentation.

Only the import line is changed. `test_datasets_disk.py` tests streaming from disk.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TESTS, Python
from idx_files import images_and_labels, write_idx
from millstream import cereal
from millstream._datasets import download

N = 300
IMAGES, LABELS = images_and_labels(N)


def write_mnist(home: Path) -> None:
    """Writes a small MNIST to the default cache of the data sets."""
    folder = home / ".cache" / "jax_mnist"
    for split in ("train", "test"):
        write_idx(folder / f"{split}_images.gz", IMAGES)
        write_idx(folder / f"{split}_labels.gz", LABELS)


@pytest.fixture(autouse=True)
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MILLSTREAM_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setattr(download, "_PAUSE", 0.01)
    write_mnist(tmp_path)
    return tmp_path


def seed(name: str) -> str:
    """A code block that imports Millstream instead of the original package."""
    code = (TESTS / "seeds" / f"{name}.txt").read_text()
    return code.replace("from cyreal import", "from millstream.cyreal import").replace(
        "from cereal import", "from millstream.cereal import"
    )


def run(name: str, **given: Any) -> dict[str, Any]:
    """Runs a code block with the names that it expects; returns its names."""
    names = dict(given)
    exec(compile(seed(name), name, "exec"), names)
    return names


def count_rows(state: Any, batch: Any, mask: Any) -> Any:
    """A model that adds up the labels and counts the rows."""
    total, rows = state
    labels = jnp.where(mask, batch["label"], 0)
    return total + labels.sum(), rows + mask.sum()


def model_init() -> Any:
    return jnp.int32(0), jnp.int32(0)


def check_model(state: Any) -> None:
    assert [int(x) for x in state] == [LABELS.astype(int).sum(), N]


def check_batch(batch: Any, mask: Any) -> None:
    assert batch["image"].shape == (128, 28, 28, 1)
    assert batch["image"].dtype == jnp.uint8
    assert batch["label"].dtype == jnp.int32
    assert mask.shape == (128,)
    images = {
        bytes(image): int(label) for image, label in zip(IMAGES, LABELS, strict=True)
    }
    valid = np.asarray(mask)
    rows = zip(
        np.asarray(batch["image"])[valid],
        np.asarray(batch["label"])[valid],
        strict=True,
    )
    assert all(images[bytes(image)] == label for image, label in rows)


def test_000_quick_start() -> None:
    names = run("000_quick_start")
    check_batch(names["batch"], names["mask"])
    loader = names["loader"]
    assert loader.steps_per_epoch == 3
    batches = list(loader.iterate(names["state"]))
    assert sum(int(mask.sum()) for _, mask in batches) == N
    for batch, mask in batches:
        check_batch(batch, mask)


def test_000_scan_epoch() -> None:
    first = run("000_quick_start")
    names = run(
        "000_scan_epoch",
        loader=first["loader"],
        loader_state=first["state"],
        model_state=model_init(),
        update_model=count_rows,
    )
    check_model(names["model_state"])
    assert (names["loader_state"].epoch, names["loader_state"].step) == (1, 0)


def test_000_jit_epoch() -> None:
    names = run("000_jit_epoch", model_init=model_init, model_update=count_rows)
    check_model(names["model_state"])
    assert names["loader_state"].epoch == 1


def test_000_host_callback(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("000_host_callback")
    loader = names["loader"]
    assert capsys.readouterr().out == ""
    for batch, mask in loader.iterate(loader.init_state(jax.random.PRNGKey(0))):
        check_batch(batch, mask)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("loss: ") for line in lines)


def test_000_host_callback_inside_jit(python: Python, mnist: Path) -> None:
    code = seed("000_host_callback") + (
        "\nimport jax"
        "\nstate = loader.init_state(jax.random.PRNGKey(0))"
        "\nstep = jax.jit(loader.next_batch)"
        "\nfor _ in range(3):"
        "\n  batch, state, mask = jax.block_until_ready(step(state))"
    )
    out = python.run(code, HOME=str(mnist), MILLSTREAM_MIRROR="http://127.0.0.1:9")
    assert [line[:6] for line in out.splitlines()] == ["loss: "] * 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    """The names that 001 expects: parameters, a model and an optimiser."""

    params: Any
    steps: Any

    def apply_fn(self, params: Any, images: Any) -> Any:
        del images  # the block unpacks a dict, which gives its keys
        return jnp.zeros((128, 10)) + params

    def apply_gradients(self, grads: Any) -> TrainState:
        return TrainState(self.params - grads, self.steps + 1)


def train_state() -> TrainState:
    return TrainState(jnp.float32(1), jnp.int32(0))


def test_001_quick_start() -> None:
    names = run(
        "001_quick_start",
        train_state=train_state(),
        cross_entropy=lambda logits, labels: logits,
    )
    assert int(names["train_state"].steps) == 1
    loader, state = names["loader"], names["loader_state"]
    assert (state.epoch, state.step) == (0, 1)
    assert all(isinstance(x, jax.Array) for x in names["train_arrays"].values())
    batch, _, mask = loader.next_batch(loader.init_state(jax.random.PRNGKey(0)))
    check_batch(batch, mask)


@pytest.fixture
def loader_of_001() -> dict[str, Any]:
    data = {"image": IMAGES[..., None], "label": LABELS.astype(np.int32)}
    return run("001_custom_pipeline", data=data)


def test_001_custom_pipeline(loader_of_001: dict[str, Any]) -> None:
    names = loader_of_001
    check_batch(names["batch"], names["mask"])
    assert names["batch"]["label"].tolist() == LABELS[:128].tolist()
    assert (names["state"].step, names["loader_state"].step) == (1, 1)
    assert names["state"] == names["loader_state"]


def test_001_train_step(loader_of_001: dict[str, Any]) -> None:
    names = run(
        "001_train_step",
        jax=jax,
        jnp=jnp,
        loader=loader_of_001["loader"],
        loader_state=loader_of_001["loader_state"],
        train_state=train_state(),
        model_apply=lambda params, batch, rng: batch["image"].mean((1, 2, 3)) * params,
        loss_fn=lambda logits, labels: (logits - labels)[:, None] ** 2,
    )
    assert int(names["train_state"].steps) == 1
    assert names["loader_state"].step == 2


def test_001_host_callbacks(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"image": IMAGES[..., None], "label": LABELS.astype(np.int32)}
    names = run(
        "001_host_callbacks",
        jnp=jnp,
        train_data=data,
        model=lambda images: images.astype(jnp.float32).mean((1, 2, 3)) / 255,
        cross_entropy=lambda logits, labels: (logits - labels)[:, None] ** 2,
    )
    loader = names["loader"]
    means = [float(b["loss"]) for b, _ in loader.iterate(loader.init_state(0))]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"loss: {mean}" for mean in means]
    assert loader.element_spec()["loss"].shape == ()


def test_001_scan_epoch(loader_of_001: dict[str, Any]) -> None:
    loader, state = loader_of_001["loader"], loader_of_001["loader_state"]
    for first, end in ((loader.init_state(0), (1, 0)), (state, (1, 1))):
        names = run(
            "001_scan_epoch",
            loader=loader,
            loader_state=first,
            opt_state=model_init(),
            optimizer_update=count_rows,
        )
        assert (names["loader_state"].epoch, names["loader_state"].step) == end
        if first.step == 0:
            check_model(names["opt_state"])


# The names and arguments in the list "API reference" of 001, without annotations.
API_OF_001 = {
    "dataset_to_jax": ["dataset", "storage_device"],
    "MNISTDataset": ["split", "cache_dir"],
    "CIFAR10Dataset": ["split", "cache_dir"],
    "NormalizeImageTransform": ["inner", "image_key", "dtype"],
    "FlattenImageTransform": ["inner", "image_key"],
    "HostCallbackTransform": ["inner", "fn", "element_spec_override"],
    "DiskSampleSource": ["length", "sample_fn", "sample_spec"],
    "MNISTDiskSource": ["split"],
    "GymnaxSource": [
        "env",
        "env_params",
        "policy_fn",
        "policy_params",
        "steps_per_epoch",
    ],
}


@pytest.mark.parametrize("name", API_OF_001)
def test_the_api_of_001(name: str) -> None:
    found = list(inspect.signature(getattr(cereal, name)).parameters)
    assert found[: len(API_OF_001[name])] == API_OF_001[name]
    if name.endswith("DiskSource"):
        assert {"prefetch_size", "cache_dir"} <= set(found)
