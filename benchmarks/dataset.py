"""The data of the workloads: Fashion-MNIST as arrays and as files."""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
CACHE = Path(__file__).resolve().parent / ".cache"
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
UNIT_AXIS = "train-images-idx4-ubyte"
BATCH = int(os.environ.get("BATCH", "128"))
SCALE = np.float32(1 / 255)


@dataclass(frozen=True)
class Arrays:
    """Images uint8[N, 28, 28] and labels int32[N]."""

    image: np.ndarray
    label: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

    def as_dict(self) -> dict[str, np.ndarray]:
        """The two arrays under the names `image` and `label`."""
        return {"image": self.image, "label": self.label}


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array of a gzipped IDX file."""
    with gzip.open(path) as file:
        content = file.read()
    ndim = content[3]
    shape = np.frombuffer(content, ">u4", count=ndim, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * ndim).reshape(shape)


def fashion_mnist() -> Arrays:
    """The 60,000 training samples."""
    image = read_idx(FOLDER / f"{IMAGES}.gz")
    label = read_idx(FOLDER / f"{LABELS}.gz")
    return Arrays(image.copy(), label.astype(np.int32))


def unit_axis_file() -> Path:
    """An IDX file of the training images as [60000, 28, 28, 1], written once."""
    path = unpacked() / UNIT_AXIS
    if not path.exists():
        plain = (unpacked() / IMAGES).read_bytes()
        temporary = path.with_suffix(f".{os.getpid()}")
        header = plain[:3] + b"\x04" + plain[4:16] + (1).to_bytes(4, "big")
        temporary.write_bytes(header + plain[16:])
        temporary.replace(path)
    return path


def unpacked() -> Path:
    """The folder with the training samples as IDX files, unpacked once."""
    folder = CACHE / "fashion-mnist"
    folder.mkdir(parents=True, exist_ok=True)
    for name in (IMAGES, LABELS):
        if not (folder / name).exists():
            temporary = folder / f"{name}.{os.getpid()}"
            with gzip.open(FOLDER / f"{name}.gz") as packed:
                temporary.write_bytes(packed.read())
            temporary.replace(folder / name)
    return folder


def normalized(image: np.ndarray) -> np.ndarray:
    """The pixels as float32 between 0 and 1."""
    return np.multiply(image, SCALE, dtype=np.float32)
