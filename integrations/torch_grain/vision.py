"""Imports torchvision and writes small data sets in the formats of its classes."""

from __future__ import annotations

import hashlib
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tutorial import FOLDER

sys.path.insert(0, str(FOLDER))
from torchvision_datasets import datasets

__all__ = ["datasets", "write_cifar", "write_mnist"]

_CODES = {"uint8": 8, "int32": 12}


def write_mnist(root: Path, kind: str, images: Any, labels: Any) -> None:
    """Writes images and labels as the files of a class of the MNIST family."""
    folder = root / kind / "raw"
    folder.mkdir(parents=True)
    names = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"]
    if kind == "EMNIST":
        names = [f"emnist-digits-{name}" for name in names]
    if kind == "QMNIST":
        names = ["qmnist-train-images-idx3-ubyte", "qmnist-train-labels-idx2-int"]
    for name, array in zip(names, (images, labels), strict=True):
        header = struct.pack(
            f">HBB{array.ndim}I", 0, _CODES[array.dtype.name], array.ndim, *array.shape
        )
        big_endian = array.astype(array.dtype.newbyteorder(">"))
        (folder / name).write_bytes(header + big_endian.tobytes())
    for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (folder / name).touch()  # the classes require these files


def write_cifar(root: Path, classes: int, monkeypatch: Any) -> type:
    """Writes batches of CIFAR and returns the class, with their checksums."""
    kind: Any = datasets.CIFAR10 if classes == 10 else datasets.CIFAR100
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    key = "labels" if classes == 10 else "fine_labels"
    random = np.random.default_rng(classes)

    def write(name: str, value: Any) -> str:
        content = pickle.dumps(value)
        (folder / name).write_bytes(content)
        return hashlib.md5(content).hexdigest()

    def batch() -> dict[str, Any]:
        pixels = random.integers(0, 256, (5, 3072), np.uint8)
        return {"data": pixels, key: random.integers(0, classes, 5).tolist()}

    for attribute in ("train_list", "test_list"):
        sums = [[name, write(name, batch())] for name, _ in getattr(kind, attribute)]
        monkeypatch.setattr(kind, attribute, sums)
    meta = dict(kind.meta)
    meta["md5"] = write(
        meta["filename"], {meta["key"]: [f"{i}" for i in range(classes)]}
    )
    monkeypatch.setattr(kind, "meta", meta)
    return kind
