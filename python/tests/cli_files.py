"""Small data sets in every format of the command line, and functions to run it."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from idx_files import write_idx
from millstream._cli import main

N = 12
SCHEMA = "image:uint8(4,3),label:int32"

_random = np.random.default_rng(5)
IMAGES = _random.integers(0, 256, (N, 4, 3), np.uint8)
LABELS = np.arange(N, dtype=np.int32) % 5
PIXELS = _random.integers(0, 256, (N, 3 * 32 * 32), np.uint8)


class Run(NamedTuple):
    """The result of a command."""

    status: int
    out: str
    err: str


Command = Callable[..., Run]


def run_with(capsys: pytest.CaptureFixture[str]) -> Command:
    """Returns a function that runs a command and returns its result."""

    def run(*arguments: object) -> Run:
        status = main([str(argument) for argument in arguments])
        return Run(status, *capsys.readouterr())

    return run


def fails(result: Run, *words: str, status: int = 1) -> None:
    """Checks that a command failed with one line of text and an exit status."""
    assert result.status == status
    assert "Traceback" not in result.err
    assert result.err.count("\n") == 1, result.err
    for word in words:
        assert word in result.err


def records() -> bytes:
    """Returns records of SCHEMA, without a header."""
    dtype = np.dtype([("image", np.uint8, (4, 3)), ("label", "<i4")])
    packed = np.zeros(N, dtype)
    packed["image"], packed["label"] = IMAGES, LABELS
    return packed.tobytes()


def cifar_binary(classes: int) -> bytes:
    labels = LABELS.astype(np.uint8)[:, None]
    lead = [labels] if classes == 10 else [labels % 2, labels]
    return np.concatenate([*lead, PIXELS], axis=1).tobytes()


def cifar_pickled(classes: int) -> bytes:
    labels = LABELS.tolist()
    batch: dict[str, Any] = {"data": PIXELS}
    if classes == 10:
        batch["labels"] = labels
    else:
        batch.update(fine_labels=labels, coarse_labels=[k % 2 for k in labels])
    return pickle.dumps(batch, protocol=3)


def cifar_batches(classes: int, content: bytes, suffix: str) -> dict[str, bytes]:
    """Returns the files of both splits."""
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    if classes == 100:
        names = ["train", "test"]
    return {f"{name}{suffix}": content for name in names}


def write_archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def write_all(folder: Path) -> dict[str, Path]:
    """Writes a data set of each format to ``folder``. Returns paths by format."""
    paths = {
        "npy": folder / "image.npy",
        "npz": folder / "stored.npz",
        "deflated": folder / "deflated.npz",
        "shards": folder / "shards",
        "fields": folder / "fields",
        "records": folder / "records.dat",
        "csv": folder / "table.csv",
        "tsv": folder / "table.tsv",
    }
    np.save(paths["npy"], IMAGES)
    np.savez(paths["npz"], image=IMAGES, label=LABELS)
    np.savez_compressed(paths["deflated"], image=IMAGES, label=LABELS)
    paths["shards"].mkdir()
    for i in range(3):
        np.save(paths["shards"] / f"part-{i:03}.npy", IMAGES[4 * i : 4 * i + 4])
    paths["fields"].mkdir()
    np.save(paths["fields"] / "image.npy", IMAGES)
    np.save(paths["fields"] / "label.npy", LABELS)
    paths["records"].write_bytes(records())
    schema = {"image": "uint8(4,3)", "label": "int32"}
    (folder / "records.dat.json").write_text(json.dumps(schema))
    rows = [f"{k},{k / 4 - 1}" for k in range(N)]
    paths["csv"].write_text("\n".join(["count,value", *rows]) + "\n")
    paths["tsv"].write_text("\n".join(rows).replace(",", "\t") + "\n")
    paths["idx"] = write_idx(folder / "images-idx3-ubyte", IMAGES)
    paths["idx.gz"] = write_idx(folder / "labels.idx.gz", LABELS)
    for classes in (10, 100):
        binary = cifar_batches(classes, cifar_binary(classes), ".bin")
        pickled = cifar_batches(classes, cifar_pickled(classes), "")
        kind = f"cifar{classes}"
        paths[f"{kind} folder"] = write_folder(folder / f"{kind}-bin", binary)
        paths[f"{kind} pickled"] = write_folder(folder / f"{kind}-py", pickled)
        paths[f"{kind} tar"] = write_archive(folder / f"{kind}-bin.tar", binary)
        paths[f"{kind} tar.gz"] = write_archive(folder / f"{kind}-py.tar.gz", pickled)
        first = next(iter(binary))
        paths[f"{kind} batch"] = paths[f"{kind} folder"] / first
        paths[f"{kind} pickle"] = paths[f"{kind} pickled"] / first.removesuffix(".bin")
    return paths
