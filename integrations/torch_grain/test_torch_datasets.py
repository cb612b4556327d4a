"""Data sets of PyTorch and torchvision, compared with their own `__getitem__`."""

from __future__ import annotations

import pickle
from typing import Any

import millstream as ms
import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import check_same
from reading import check_reading, check_shuffled
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from vision import datasets, write_cifar, write_mnist

N = 10
generator = torch.Generator().manual_seed(0)
FLOATS = torch.randn(N, 3, generator=generator)
INTS = torch.arange(N) * 3 - 7


def read(dataset: Any) -> list[Any]:
    return [dataset[i] for i in range(len(dataset))]


def check_arrays(dataset: Any) -> Any:
    """Checks a data set that becomes arrays."""
    source = check_reading(dataset, read(dataset))
    assert source.origin.endswith(", as arrays")
    loader = ms.DataLoader([dataset, ms.BatchTransform(2)])
    assert f"the data set is {source.origin}" in loader.explain()
    assert "worker" not in loader.explain()
    check_shuffled(dataset, read(dataset))
    check_same(pickle.loads(pickle.dumps(source))[1], source[1])
    return source


def check_workers(dataset: Any, reason: str) -> None:
    """Checks a data set that runs in workers for a reason."""
    source = check_reading(dataset, read(dataset), workers=2)
    assert isinstance(source, ms.DatasetSource)
    assert source.origin.endswith(f", in workers{reason}"), source.origin
    assert source.origin in ms.DataLoader([source]).explain()
    check_shuffled(dataset, read(dataset))


# TensorDataset


def test_tensors():
    tensors = [
        FLOATS,
        FLOATS.double(),
        FLOATS.half(),
        INTS,
        INTS.to(torch.uint8),
        INTS.to(torch.int16),
        INTS > 0,
        FLOATS.clone().requires_grad_(),
        torch.nn.Parameter(FLOATS.clone()),
        torch.randn(3, N, 2).transpose(0, 1),
        torch.randn(N, 4, 6)[:, ::2, 1:4],
        torch.randn(2 * N, 3)[::2],
        torch.zeros(1, 3).expand(N, 3),
        torch.complex(FLOATS, -FLOATS).conj(),
    ]
    check_arrays(TensorDataset(*tensors))


def test_bfloat16_tensors():
    dataset = TensorDataset(FLOATS.bfloat16(), INTS)
    source = ms.as_source(dataset, ordering="sequential")
    assert source.origin == "torch TensorDataset, as arrays"
    found = np.stack([source[i][0] for i in range(N)])
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.astype(np.float32), FLOATS.bfloat16().float())


def test_tensors_are_not_copied():
    tensor = FLOATS.clone()
    source = ms.as_source(TensorDataset(tensor), ordering="sequential")
    assert source.data[0].__array_interface__["data"][0] == tensor.data_ptr()


def test_a_subclass_without_changes_becomes_arrays():
    class Named(TensorDataset):
        name = "named"

    source = check_arrays(Named(FLOATS, INTS))
    assert source.origin == "Named, a torch TensorDataset, as arrays"


class Doubled(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0] * 2


class Shorter(TensorDataset):
    def __len__(self) -> int:
        return 6


class Several(TensorDataset):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[i] for i in indices]


class LooksLikeMnist(Dataset[Any]):
    """Has the attributes of MNIST, which say nothing about its samples."""

    data, targets = FLOATS, INTS
    transform = target_transform = None

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return {"x": self.data[index] + 1, "y": float(self.targets[index])}


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (Doubled(FLOATS), " because Doubled overrides __getitem__"),
        (Shorter(FLOATS), " because Shorter overrides __len__"),
        (Several(FLOATS), " because Several overrides __getitems__"),
        (LooksLikeMnist(), ""),
        (Subset(LooksLikeMnist(), [4, 2, 2]), ""),
        (ConcatDataset([TensorDataset(FLOATS), TensorDataset(FLOATS)]), ""),
        (StackDataset(a=FLOATS, b=INTS), ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_data_sets_run_in_workers(dataset, reason):
    check_workers(dataset, reason)


def test_a_sample_that_differs_from_the_arrays_is_found():
    class Tensors(TensorDataset):
        pass

    dataset = Tensors(FLOATS)
    real = TensorDataset.__getitem__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TensorDataset, "__getitem__", lambda self, i: real(self, i)[0])
        check_workers(dataset, " because sample 0 differs from its arrays")


def test_changed_tensors_are_checked():
    dataset = TensorDataset(FLOATS, INTS)
    dataset.tensors = (FLOATS, INTS[:7])
    with pytest.raises(ValueError, match="tensor 0 has 10 rows, tensor 1 has 7"):
        ms.as_source(dataset)
    with pytest.raises(ValueError, match="TensorDataset has no samples"):
        ms.as_source(TensorDataset(FLOATS[:0]))
    wide = TensorDataset(torch.tensor([1, 2**32]))
    with pytest.raises(ms.DataError, match="4294967296"):
        next(ms.DataLoader([wide, ms.BatchTransform(2)]).run(seed=0))


# Subset


@pytest.mark.parametrize(
    "indices",
    [
        [3, 1, 1, 7],
        range(2, 9, 3),
        np.array([0, 9, 4]),
        torch.tensor([5, 2, 8]),
        [-1, -10, 3],
    ],
    ids=str,
)
def test_subsets(indices):
    dataset = Subset(TensorDataset(FLOATS, INTS), indices)
    source = check_reading(dataset, read(dataset))
    assert source.origin == "torch Subset of torch TensorDataset, as arrays"


def test_nested_subsets():
    inner = Subset(TensorDataset(FLOATS, INTS), [9, 7, 5, 3, 1])
    check_arrays(Subset(inner, [4, 0, 2]))
    check_arrays(Subset(Subset(inner, range(4)), [-1, 0, 1]))
    for part in random_split(TensorDataset(FLOATS, INTS), [7, 3], generator):
        check_arrays(part)


class Moved(Subset[Any]):
    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index]][0] + 1

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[i] for i in indices]


def test_a_subset_that_overrides_getitem_runs_in_workers():
    check_workers(Moved(TensorDataset(FLOATS), [1, 2, 3]), "")


def test_wrong_subsets():
    whole = TensorDataset(FLOATS, INTS)
    with pytest.raises(ValueError, match="Subset has no samples"):
        ms.as_source(Subset(whole, []))
    with pytest.raises(IndexError, match="index 10 at position 1 is out of range"):
        ms.as_source(Subset(whole, [1, 10]))
    with pytest.raises(IndexError, match="index -11 at position 0 is out of range"):
        ms.as_source(Subset(Subset(whole, range(10)), [-11]))


# torchvision


def mnist_arrays(seed: int, kind: str) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (N, 28, 28), np.uint8)
    if kind == "QMNIST":
        return images, random.integers(0, 10, (N, 8), np.int32)
    return images, random.integers(0, 10, N, np.uint8)


MNISTS = ["MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST"]


def make_mnist(root: Any, kind: str, **options: Any) -> Any:
    write_mnist(root, kind, *mnist_arrays(1, kind))
    if kind == "EMNIST":
        options["split"] = "digits"
    return getattr(datasets, kind)(root, **options)


@pytest.mark.parametrize("kind", MNISTS)
def test_mnist(tmp_path, kind):
    dataset = make_mnist(tmp_path, kind)
    source = check_arrays(dataset)
    assert source.origin == f"torchvision {kind}, as arrays"
    assert source[0][0].dtype == np.uint8
    check_arrays(Subset(Subset(dataset, range(2, 9)), [5, 1, 3]))
    dataset.data = dataset.data[:6]  # a common way to shorten it
    check_arrays(dataset)


def test_qmnist_with_all_targets(tmp_path):
    source = check_arrays(make_mnist(tmp_path, "QMNIST", compat=False))
    assert source[0][1].shape == (8,)


def to_floats(image: Any) -> np.ndarray:
    return np.asarray(image, np.float32) / 255


def plus_one(label: int) -> int:
    return label + 1


@pytest.mark.parametrize("kind", ["EMNIST", "QMNIST"])
def test_mnist_with_a_transform(tmp_path, kind):
    dataset = make_mnist(tmp_path, kind, transform=to_floats)
    check_workers(Subset(dataset, [3, 1]), " because it has a transform")
    dataset.transform, dataset.target_transform = None, plus_one
    check_workers(dataset, " because it has a target_transform")


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(tmp_path, monkeypatch, classes):
    kind = write_cifar(tmp_path, classes, monkeypatch)
    dataset = kind(tmp_path)
    source = check_arrays(dataset)
    assert source.origin == f"torchvision CIFAR{classes}, as arrays"
    assert source[0][0].shape == (32, 32, 3)
    check_arrays(Subset(kind(tmp_path, train=False), [4, 0]))
    check_workers(kind(tmp_path, transform=to_floats), " because it has a transform")


# What cannot be read by index


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(FLOATS)

    def __len__(self) -> int:
        return N


@pytest.mark.parametrize("value", [Stream(), DataLoader(TensorDataset(FLOATS))])
def test_iterables_name_iterable_source(value):
    for make in (ms.as_source, lambda value: ms.DataLoader([value])):
        with pytest.raises(TypeError, match=r"can only be iterated.*IterableSource"):
            make(value)


def test_tensors_without_a_data_set():
    for data in ((FLOATS, INTS), {"x": FLOATS.clone().requires_grad_()}, FLOATS):
        source = ms.as_source(data)
        assert isinstance(source, ms.ArraySampleSource)
        np.testing.assert_array_equal(source._leaves[0], FLOATS)
