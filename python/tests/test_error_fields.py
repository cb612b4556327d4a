"""Errors have attributes with the file, the position, expected and found."""

from __future__ import annotations

import copy
import gzip
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from idx_files import idx_bytes
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CifarSource,
    CsvSource,
    DataError,
    DataLoader,
    DiskSampleSource,
    IdxSource,
    NpySource,
    NpzSource,
    PackedSource,
    WorkerError,
    WorkerTimeout,
    write_packed,
)
from millstream._core.errors import FIELDS, data_error, error_fields
from millstream._core.jax_errors import DEADLINE_EXCEEDED, NO_MESH, jax_error_says
from millstream._delivery import jit

IMAGES = np.arange(60, dtype=np.uint8).reshape(5, 4, 3)
SPEC = {
    "x": jax.ShapeDtypeStruct((3,), np.int32),
    "y": jax.ShapeDtypeStruct((), np.int32),
    "z": jax.ShapeDtypeStruct((2, 2), np.float32),
}


def raised(kind: type[BaseException], run: Callable[[], Any]) -> Any:
    """Returns the error that ``run`` raises. Its message contains its attributes."""
    with pytest.raises(kind) as caught:
        run()
    error = caught.value
    assert all(hasattr(error, name) for name in FIELDS)
    message = str(error)
    for name in ("path", "expected", "found"):
        value = getattr(error, name)
        assert value is None or value in message, name
    for name in ("offset", "line", "sample"):
        value = getattr(error, name)
        assert value is None or f"{name} {value}" in message, name
    return error


def damaged(path: Path, good: bytes, *, at: int, byte: int) -> Path:
    path.write_bytes(good[:at] + bytes([byte]) + good[at + 1 :])
    return path


def first_batch(source: Any, rows: int = 5) -> Any:
    loader = DataLoader([source, BatchTransform(rows)])
    return loader.next_batch(loader.init_state(0))


def test_npy(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, IMAGES)
    damaged(path, path.read_bytes(), at=0, byte=0)
    error = raised(DataError, lambda: NpySource({"image": path}))
    assert (error.kind, error.path, error.offset) == ("data", str(path), 0)
    assert error.field == "image"
    assert error.expected.startswith("the .npy magic")
    assert error.found.startswith("'\\x00NUMPY")
    assert error.line is error.sample is error.text is error.pid is None


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, image=IMAGES, label=np.zeros(5))
    good = path.read_bytes()
    damaged(path, good, at=good.index(b"\x93NUMPY"), byte=0)
    error = raised(DataError, lambda: NpzSource(path))
    assert (error.path, error.field) == (str(path), "image")
    assert error.offset == good.index(b"\x93NUMPY")
    assert f"{path}[image]: offset" in str(error)
    path.write_bytes(good)
    error = raised(ValueError, lambda: NpzSource(path, names=["mask"]))
    assert (error.kind, error.path, error.field) == ("argument", str(path), "mask")


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path: Path, *, packed: bool) -> None:
    good = idx_bytes(IMAGES)
    path = damaged(tmp_path / "x", good, at=2, byte=99)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    cache = tmp_path / "cache"
    error = raised(DataError, lambda: IdxSource({"image": path}, cache_dir=cache))
    assert (error.path, error.offset, error.field) == (str(path), 2, "image")
    assert (error.expected, error.found) == (
        "an IDX type of 8, 9, 11, 12, 13 or 14",
        "99",
    )


def test_a_gzip_file_that_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    good = gzip.compress(idx_bytes(IMAGES))
    path.write_bytes(good[:-20])
    cache = tmp_path / "cache"
    error = raised(DataError, lambda: IdxSource({"image": path}, cache_dir=cache))
    assert (error.path, error.offset) == (str(path), len(good) - 20)
    assert (error.expected, error.found) == ("more deflated data", "the end")


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("age,height\n1,2\n3,tall\n")
    error = raised(DataError, lambda: CsvSource(path))
    assert (error.path, error.line, error.field) == (str(path), 3, "height")
    assert (error.expected, error.found) == ("a number", "'tall'")
    assert str(error) == (
        f"{path}: line 3, column 2 ('height'): expected a number, found 'tall'; read "
        "only other columns with columns=, or convert this one to numbers"
    )
    error = raised(ValueError, lambda: CsvSource(path, columns=["age", "weight"]))
    assert (error.path, error.field) == (str(path), "weight")


def test_a_number_of_a_table_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n1099511627776\n")
    error = raised(DataError, lambda: CsvSource(path))
    assert (error.path, error.sample, error.field) == (str(path), 1, "a")


def test_packed(tmp_path: Path) -> None:
    path = tmp_path / "x.packed"
    write_packed(ArraySampleSource({"image": IMAGES}), path)
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    error = raised(DataError, lambda: PackedSource(path))
    assert (error.path, error.offset) == (str(path), len(good) - 12)
    assert error.expected == "5 records of 12 bytes each"
    assert error.found == "4 and 11 bytes"


def test_a_label_of_cifar(tmp_path: Path) -> None:
    records = np.zeros((3, 3073), np.uint8)
    records[1, 0] = 200
    path = tmp_path / "test_batch.bin"
    path.write_bytes(records.tobytes())
    source = CifarSource([path], "sequential")
    error = raised(DataError, lambda: first_batch(source, 3))
    assert (error.path, error.offset) == (str(path), 3073)
    assert (error.sample, error.field) == (1, "label")
    assert (error.expected, error.found) == ("a value below 10", "200")


def test_fields_that_disagree(tmp_path: Path) -> None:
    paths = {"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}
    np.save(paths["x"], np.zeros(2))
    np.save(paths["y"], np.zeros(5))
    error = raised(DataError, lambda: NpySource(paths))
    assert (error.path, error.field, error.found) == (str(paths["y"]), "y", "5")


def test_a_value_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([1, 1 << 40]))
    loader = DataLoader([NpySource({"x": path}, "sequential"), BatchTransform(2)])
    error = raised(DataError, lambda: loader.next_batch(loader.init_state(0)))
    assert (error.path, error.sample, error.field) == (str(path), 1, "x")
    assert error.text == (
        "holds a value of dtype int64 that int32 cannot hold, 1099511627776; set "
        "jax_enable_x64 for 64-bit values, or store values that int32 can hold"
    )


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "gone.npy"
    error = raised(FileNotFoundError, lambda: NpySource(path))
    assert (error.kind, error.path, error.filename) == ("io", str(path), str(path))
    assert error.text == "cannot be opened: No such file or directory"


def test_a_file_that_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((8, 1 << 12)))
    loader = DataLoader([NpySource({"x": path}, "sequential"), BatchTransform(8)])
    os.truncate(path, 9000)
    error = raised(OSError, lambda: loader.next_batch(loader.init_state(0)))
    assert (error.kind, error.path, error.field) == ("io", str(path), "x")
    assert error.offset is not None
    assert error.offset >= 9000


@pytest.mark.parametrize(
    "error",
    [
        DataError("text"),
        DataError("text", kind="data", path="x", offset=1, line=2, sample=3),
        DataError("text", field="a", expected="b", found="c", text="d"),
        WorkerError("text", kind="worker_died", sample=3, pid=4),
        WorkerTimeout("text", kind="worker_stalled", sample=3, pid=4),
    ],
    ids=str,
)
def test_copies_and_pickles_keep_the_attributes(error: Any) -> None:
    error.add_note("a note")
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == "text"
        assert vars(again) == vars(error)


def test_errors_of_the_engine_can_be_pickled(tmp_path: Path) -> None:
    path = tmp_path / "gone.npy"
    error = raised(OSError, lambda: NpySource(path))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is FileNotFoundError
    assert error_fields(again) == error_fields(error) != {}


def test_users_may_raise_a_data_error_with_only_a_text() -> None:
    error = DataError("the text")
    assert str(error) == "the text"
    assert error.args == ("the text",)
    assert error_fields(error) == {}
    assert DataError().args == ()


def test_python_and_the_engine_compose_the_same_messages(tmp_path: Path) -> None:
    error = data_error("unpack it", path=tmp_path, line=3, expected="a", found="b")
    assert str(error) == f"{tmp_path}: line 3: expected a, found b; unpack it"
    assert (error.kind, error.path, error.line) == ("data", str(tmp_path), 3)
    assert (error.expected, error.found, error.text) == ("a", "b", "unpack it")
    odd = os.fsdecode(b"odd\xff")
    error = data_error(path=odd, expected="a", found=odd)
    assert str(error) == r"odd\xff: expected a, found odd\udcff"
    assert error.path == odd


def loader_of(fn: Any, kind: str, **more: Any) -> DataLoader:
    source = DiskSampleSource(12, fn, SPEC, "sequential", worker_kind=kind, **more)
    return DataLoader([source, BatchTransform(4)], prefetch=1)


def at_step(loader: DataLoader, step: int) -> Any:
    words = np.asarray(loader.init_state(0).words).copy()
    words[4] = step
    return words


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_an_error_of_a_worker_arrives_with_its_attributes(kind: str) -> None:
    loader = loader_of(fns.raising_data_error, kind)
    error = raised(DataError, lambda: loader.next_batch(at_step(loader, 1)))
    assert (error.path, error.line, error.field) == ("six.txt", 3, "y")
    assert (error.expected, error.found) == ("a number", "'six'")
    with pytest.raises(jit.FAILURES, match=r"six\.txt"):
        jax.block_until_ready(jax.jit(loader.next_batch)(at_step(loader, 1)))
    last = loader.last_error
    assert isinstance(last, DataError)
    assert error_fields(last) == error_fields(error)


def test_a_worker_that_dies() -> None:
    loader = loader_of(fns.Dying("kill"), "process")
    error = raised(WorkerError, lambda: loader.next_batch(at_step(loader, 1)))
    assert (error.kind, error.sample) == ("worker_died", 6)
    assert f"worker process {error.pid} was killed" in str(error)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_function_that_exits(kind: str) -> None:
    loader = loader_of(fns.exiting, kind)
    error = raised(WorkerError, lambda: loader.next_batch(at_step(loader, 1)))
    assert (error.kind, error.sample) == ("function", 6)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_worker_that_stalls(kind: str, tmp_path: Path) -> None:
    loader = loader_of(fns.Stalling(6, 20, tmp_path / "once"), kind, timeout=0.3)
    error = raised(WorkerTimeout, lambda: loader.next_batch(at_step(loader, 1)))
    assert (error.kind, error.sample) == ("worker_stalled", 6)
    assert (error.pid is None) == (kind == "thread")


def test_last_error_inside_jit(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([1, 2, 3, 1 << 40]))
    loader = DataLoader([NpySource({"x": path}, "sequential"), BatchTransform(2)])
    step = jax.jit(loader.next_batch)
    words = at_step(loader, 1)
    for _ in range(3):  # JAX raises in another way from the second call on
        with pytest.raises(jit.FAILURES, match="sample 3 holds a value of dtype int64"):
            jax.block_until_ready(step(words))
        error = raised(DataError, lambda: _raise(loader.last_error))
        assert (error.path, error.sample, error.field) == (str(path), 3, "x")


def _raise(error: BaseException | None) -> None:
    assert error is not None
    raise error


def test_an_earlier_error_is_not_raised_again(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([1, 2, 3, 1 << 40]))
    loader = DataLoader([NpySource({"x": path}, "sequential"), BatchTransform(2)])
    with pytest.raises(jit.FAILURES):
        jax.block_until_ready(jax.jit(loader.next_batch)(at_step(loader, 1)))
    assert isinstance(loader.last_error, DataError)

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        raise ValueError("INTERNAL: of the body")

    with pytest.raises(ValueError, match="of the body"):
        loader.scan_epoch(loader.init_state(0), 0, body)


def test_the_text_of_jax_for_a_missing_mesh() -> None:
    spec = jax.sharding.PartitionSpec("data")
    with pytest.raises(RuntimeError) as caught:
        jax.lax.with_sharding_constraint(np.zeros(4), spec)
    assert jax_error_says(caught.value, NO_MESH)
    assert not jax_error_says(caught.value, DEADLINE_EXCEEDED)


def test_the_text_of_jax_for_a_missing_key() -> None:
    from jax._src.lib import _jax

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    service = _jax.get_distributed_runtime_service(address, 1)
    client = _jax.get_distributed_runtime_client(address, 0)
    client.connect()
    try:
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            client.blocking_key_value_get("nobody sets this", 50)
    finally:
        client.shutdown()
        service.shutdown()
    assert jax_error_says(caught.value, DEADLINE_EXCEEDED)
    assert not jax_error_says(caught.value, NO_MESH)
