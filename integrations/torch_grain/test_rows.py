"""Tensors of PyTorch and images of Pillow, written to the rows of a batch."""

from __future__ import annotations

from typing import Any

import millstream as ms
import ml_dtypes
import numpy as np
import pytest
import torch
from millstream._engine import RowWriter
from millstream._workers.rows import FieldSpec, put_sample, writer
from PIL import Image

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
]


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def results(value: Any, dtype: str, shape: tuple[int, ...]) -> list[Any]:
    """What the writer and ``put_sample`` do: the bytes written, or the error."""
    column = FieldSpec("x", dtype, shape)
    found: list[Any] = []
    for in_python in (False, True):
        rows = [np.ones((2, *shape), numpy_dtype(dtype))]
        try:
            if in_python:
                put_sample(rows, 1, (value,), (column,), (0,))
            else:
                writer(rows, (column,), (0,)).put(1, (value,))
            found.append(rows[0].tobytes())
        except Exception as error:
            found.append((type(error), str(error)))
    return found


def put_natively(value: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Writes a value, and fails if Python code must convert it."""
    rows = np.zeros((2, *shape), numpy_dtype(dtype))
    RowWriter([rows], (0,), pytest.fail).put(1, (value,))
    return rows[1]


def layouts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """2 x 3 tensors with different strides and offsets."""
    repeated = tensor.repeat(2, 2)
    return [
        tensor,
        tensor.T.contiguous().T,
        repeated[::2, ::2],
        repeated[1:3, 2:5],
        tensor[:1].expand(2, 3),
        torch.nn.Parameter(tensor, requires_grad=False),
    ]


@pytest.mark.parametrize("to", [*DTYPES, "complex64"])
def test_tensors_of_every_dtype_and_layout(to: str) -> None:
    numbers = torch.tensor([[0, 1, 127], [128, 255, 300]])
    for name in DTYPES:
        for tensor in layouts(numbers.to(getattr(torch, name))):
            native, in_python = results(tensor, to, (2, 3))
            assert native == in_python, (name, tensor.stride())
        for scalar in (numbers[0, 1], numbers[1, 2]):
            native, in_python = results(scalar.to(getattr(torch, name)), to, ())
            assert native == in_python, name


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_need_no_python(name: str) -> None:
    numbers = torch.tensor([[0, 1, 7], [9, 100, 120]]).to(getattr(torch, name))
    for tensor in layouts(numbers):
        expected = tensor.to(torch.float64).numpy()
        assert np.array_equal(put_natively(tensor, name, (2, 3)), expected)
        assert np.array_equal(put_natively(tensor, "float32", (2, 3)), expected)


def test_tensors_that_require_gradients_and_parameters() -> None:
    tensor = torch.arange(3.0, requires_grad=True)
    for value in (tensor, tensor * 2, torch.nn.Parameter(tensor.detach())):
        expected = value.detach().numpy()
        assert np.array_equal(put_natively(value, "float32", (3,)), expected)


def test_tensors_whose_memory_is_not_their_value() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert put_of(z.conj().imag, "float32", (2,)).tolist() == [-2, 4]
    assert put_of(z.conj(), "complex64", (2,)).tolist() == [1 - 2j, 3 + 4j]
    assert put_of(torch.zeros(0, 3), "float32", (0, 3)).shape == (0, 3)


def put_of(value: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    native, in_python = results(value, dtype, shape)
    assert native == in_python
    assert isinstance(native, bytes)
    return np.frombuffer(native, dtype).reshape(2, *shape)[1]


def test_tensors_that_cannot_be_written() -> None:
    for tensor in (
        torch.eye(3).to_sparse(),
        torch.empty(3, 3, device="meta"),
        torch.zeros(3, 3, dtype=torch.float8_e4m3fn),
        torch.zeros(2, 3),
        torch.zeros(3),
        torch.tensor([[300] * 3] * 3),
    ):
        native, in_python = results(tensor, "uint8", (3, 3))
        assert native == in_python
        assert not isinstance(native, bytes)


@pytest.mark.parametrize("mode", ["1", "L", "P", "I", "F", "I;16", "LA", "RGB", "RGBA"])
def test_images(mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7), np.uint8)
    grey = Image.fromarray(pixels)
    image = grey.convert("L").convert(mode) if mode != "I;16" else grey.convert("I;16")
    expected = np.asarray(image)
    made = put_natively(image, expected.dtype.name, expected.shape)
    assert np.array_equal(made, expected)
    for dtype in ("uint8", "int32", "float32"):
        native, in_python = results(image, dtype, expected.shape)
        assert native == in_python


class Samples(torch.utils.data.Dataset):
    """Samples of all kinds in one tuple."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        image = Image.fromarray(np.full((4, 4), i, np.uint8))
        weight = torch.full((3,), i / 2, dtype=torch.bfloat16, requires_grad=True)
        return image, weight, i / 4, i, i % 2 == 0, torch.tensor(i)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_batches_of_all_kinds(kind: str) -> None:
    source = ms.DatasetSource(
        Samples(), ordering="sequential", workers=2, worker_kind=kind
    )
    loader = ms.DataLoader([source, ms.FlattenTransform(0, 1), ms.BatchTransform(5)])
    start = 0
    for batch, mask in loader.run(seed=0, epochs=1):
        index = np.arange(start, start + 5)
        image, weight, quarter, label, even, tensor = batch
        assert mask.all()
        assert np.array_equal(image, np.repeat(index, 16).reshape(5, 4, 4))
        assert weight.dtype == ml_dtypes.bfloat16
        assert np.array_equal(weight.astype(np.float32), index[:, None] / 2 + [0.0] * 3)
        assert np.array_equal(quarter, index / 4)
        assert np.array_equal(label, index)
        assert np.array_equal(even, index % 2 == 0)
        assert np.array_equal(tensor, index)
        start += 5
    assert start == 10
