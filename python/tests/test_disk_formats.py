"""Each format on disk reads the values that NumPy wrote, and round-trips."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from idx_files import write_idx
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CifarSource,
    CsvSource,
    DataError,
    DataLoader,
    IdxSource,
    NpySource,
    NpzSource,
    PackedSource,
    Sequential,
    write_csv,
    write_packed,
)
from millstream import write_idx as save_idx
from millstream import write_npy as save_npy
from millstream._formats.detect import Options, find
from walks import same_bytes

N = 103
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


def image_and_label(n: int = N, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (n, 9, 7), np.uint8)
    return {"image": image, "label": np.arange(n, dtype=np.int32) * 3 - 5}


def saved(folder: Path, data: dict[str, np.ndarray]) -> dict[str, Path]:
    paths = {name: folder / f"{name}.npy" for name in data}
    for name, path in paths.items():
        np.save(path, data[name])
    return paths


def all_values(source: Any) -> Any:
    """Returns the samples in sequential order, read one by one."""
    samples = [source[i] for i in range(len(source))]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *samples)


def all_of(source: Any) -> Any:
    """Returns the samples, read one by one, and checks them against a loader."""
    stacked = all_values(source)
    loader = DataLoader([source._with_order(Sequential()), BatchTransform(len(source))])
    (batch, mask), *_ = loader.iterate(loader.init_state(0))
    assert mask.all()
    same_bytes(jax.tree.map(np.asarray, batch), jax.tree.map(jax_values, stacked))
    return stacked


def jax_values(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.astype(jax.dtypes.canonicalize_dtype(x.dtype)))


def values_of(dtype: str) -> np.ndarray:
    random = np.random.default_rng(1)
    return (
        random.integers(0, 100, (N, 3, 2)) - (0 if dtype[0] in "bu" else 50)
    ).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_of_every_dtype(tmp_path: Path, dtype: str) -> None:
    x = values_of(dtype)
    np.save(tmp_path / "x.npy", x)
    same_bytes(all_of(NpySource(tmp_path / "x.npy")), x)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_every_dtype(tmp_path: Path, save: Callable[..., None]) -> None:
    arrays = {dtype: values_of(dtype) for dtype in DTYPES}
    save(tmp_path / "x.npz", **arrays)
    same_bytes(all_of(NpzSource(tmp_path / "x.npz", cache_dir=tmp_path)), arrays)


def test_packed_records_of_every_dtype(tmp_path: Path) -> None:
    record = np.dtype([(dtype, dtype, (3, 2)) for dtype in DTYPES])
    rows = np.zeros(N, record)
    for dtype in DTYPES:
        rows[dtype] = values_of(dtype)
    rows.tofile(tmp_path / "rows")
    expected = {dtype: np.ascontiguousarray(rows[dtype]) for dtype in DTYPES}
    same_bytes(all_of(PackedSource(tmp_path / "rows", record)), expected)
    write_packed(ArraySampleSource(expected), tmp_path / "described")
    described = all_of(PackedSource(tmp_path / "described"))
    same_bytes(described, expected)


def test_npy_shards_in_lists_and_folders(tmp_path: Path) -> None:
    data = image_and_label()
    parts = np.split(data["image"], [10, 11, 60])
    folder = tmp_path / "shards"
    folder.mkdir()
    shards = [folder / f"part{i}.npy" for i in range(4)]
    for path, part in zip(shards, parts, strict=True):
        np.save(path, part)
    (folder / "notes.txt").write_text("not an array")
    np.save(tmp_path / "y.npy", data["label"])
    for image in (folder, str(folder), shards, [str(path) for path in shards]):
        source = NpySource({"image": image, "label": tmp_path / "y.npy"}, "sequential")
        assert len(source) == source.num_samples == N
        same_bytes(all_of(source), data)


def test_trees_of_files(tmp_path: Path) -> None:
    data = image_and_label()
    paths = saved(tmp_path, data)
    source = NpySource((paths["image"], {"y": paths["label"]}))
    same_bytes(all_of(source), (data["image"], {"y": data["label"]}))
    assert NpySource(paths["label"])[4] == data["label"][4]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, save: Callable[..., None]) -> None:
    data = image_and_label()
    path = tmp_path / "both.npz"
    save(path, **data, other=np.arange(4))
    names = {"image": "image", "label": "label"}
    for _ in range(2):  # the second time from the cache
        source = NpzSource(path, names=names, cache_dir=tmp_path / "cache")
        same_bytes(all_of(source), data)
    renamed = NpzSource(path, names=("label",), cache_dir=tmp_path / "cache")
    same_bytes(all_of(renamed), (data["label"],))
    with pytest.raises(ValueError, match=r"both.npz: there is no array 'lable', only"):
        NpzSource(path, names="lable", cache_dir=tmp_path)
    with pytest.raises(DataError, match=r"expected .*'other'.*103, found 4"):
        NpzSource(path, cache_dir=tmp_path / "cache")
    save(path, **data)
    same_bytes(all_of(NpzSource(path, cache_dir=tmp_path / "cache")), data)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_idx_raw_and_gzipped(tmp_path: Path, suffix: str, dtype: str) -> None:
    data = image_and_label()
    image = (data["image"].astype("f8") - 20).astype(dtype)
    paths = {
        "image": write_idx(tmp_path / f"x{suffix}", image),
        "label": write_idx(tmp_path / f"y{suffix}", data["label"]),
    }
    for _ in range(2):
        source = IdxSource(paths, cache_dir=tmp_path / "cache")
        same_bytes(all_of(source), {"image": image, "label": data["label"]})


def test_gzipped_files_are_unpacked_into_the_default_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "here"))
    first, second = np.arange(5, dtype=np.int32), np.arange(7, dtype=np.int32)
    path = write_idx(tmp_path / "x.gz", first)
    same_bytes(all_of(IdxSource(path)), first)
    assert list((tmp_path / "here").iterdir())
    write_idx(path, second)  # a file that has changed is unpacked again
    same_bytes(all_of(IdxSource(path)), second)
    monkeypatch.delenv("MILLSTREAM_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    IdxSource(path)
    assert list((tmp_path / "home/.cache/millstream").iterdir())


def cifar_batch(seed: int, n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, n).astype(np.uint8)
    return random.integers(0, 256, (n, 3, 32, 32), np.uint8), labels


@pytest.mark.parametrize("form", ["binary", "pickled", "archive"])
def test_cifar(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "cifar-10-batches"
    folder.mkdir()
    images, labels = [], []
    for i in range(1, 6):
        planes, classes = cifar_batch(i)
        images.append(planes.transpose(0, 2, 3, 1))
        labels.append(classes)
        if form == "pickled":
            batch = {"data": planes.reshape(-1, 3072), "labels": classes.tolist()}
            protocol = (2, 3, 4, 5)[i % 4]
            (folder / f"data_batch_{i}").write_bytes(pickle.dumps(batch, protocol))
        else:
            rows = np.concatenate([classes[:, None], planes.reshape(-1, 3072)], axis=1)
            (folder / f"data_batch_{i}.bin").write_bytes(rows.tobytes())
    path = folder
    if form == "archive":
        path = tmp_path / "cifar.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, "cifar-10-batches")
    source = CifarSource(path, cache_dir=tmp_path / "cache")
    same_bytes(
        all_of(source),
        {
            "image": np.concatenate(images),
            "label": np.concatenate(labels).astype(np.int32),
        },
    )


@pytest.mark.parametrize("protocol", [None, 2, 3, 4, 5])
def test_cifar100(tmp_path: Path, protocol: int | None) -> None:
    planes, fine = cifar_batch(3, 20)
    fine, coarse = fine * 9, np.arange(20, dtype=np.uint8)
    path = tmp_path / "train"
    if protocol is None:
        labels = np.stack([coarse, fine], axis=1)
        rows = np.concatenate([labels, planes.reshape(-1, 3072)], axis=1)
        path.write_bytes(rows.tobytes())
    else:  # keys pickled by Python 2 are bytes in Python 3
        batch: dict[Any, Any] = {
            b"fine_labels": fine.tolist(),
            b"coarse_labels": coarse.tolist(),
            b"data": planes.reshape(-1, 3072),
        }
        path.write_bytes(pickle.dumps(batch, protocol))
    expected = {
        "image": np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
        "label": fine.astype(np.int32),
        "coarse_label": coarse.astype(np.int32),
    }
    same_bytes(all_of(CifarSource([path], classes=100)), expected)


def test_packed_records_with_a_schema(tmp_path: Path) -> None:
    record = np.dtype([("label", "u1"), ("image", "<f4", (3, 2)), ("id", "<i8")])
    rows = np.zeros(N, record)
    rows["label"] = np.arange(N)
    rows["image"] = np.random.default_rng(0).normal(size=(N, 3, 2))
    rows["id"] = np.arange(N) * -7
    path = tmp_path / "rows.bin"
    path.write_bytes(b"head" + rows.tobytes())
    expected = {name: rows[name] for name in record.names or ()}
    as_dict = {
        "label": np.uint8,
        "image": jax.ShapeDtypeStruct((3, 2), jnp.float32),
        "id": ("int64", ()),
    }
    for schema in (record, as_dict):
        same_bytes(all_of(PackedSource(path, schema, offset=4)), expected)
    with pytest.raises(DataError, match=r"rows\.bin.*33"):
        PackedSource(path, record)
    with pytest.raises(ValueError, match="no padding"):
        PackedSource(path, np.dtype([("a", "u1"), ("b", "<i4")], align=True))
    with pytest.raises(ValueError, match="'a' is big-endian"):
        PackedSource(path, np.dtype([("a", ">i4")]))


def test_csv_and_tsv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,name\n1,0.5,x\n-2,3,y\n40,1e-3,z\n")
    expected = {"a": np.array([1, -2, 40]), "b": np.array([0.5, 3, 1e-3])}
    same_bytes(all_of(CsvSource(path, columns=["a", "b"])), expected)
    with pytest.raises(DataError, match=r"t\.csv.*line 2.*name.*x"):
        CsvSource(path)
    (tmp_path / "t.tsv").write_text("1\t2\n3\t4\n")
    source = CsvSource(tmp_path / "t.tsv", header=False)
    same_bytes(
        all_of(source), {"column0": np.array([1, 3]), "column1": np.array([2, 4])}
    )


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_tables_match_numpy(tmp_path: Path, delimiter: str) -> None:
    random = np.random.default_rng(0)
    whole = random.integers(-(2**31), 2**31, N)
    real = random.normal(size=N) * 10.0 ** random.integers(-300, 300, N)
    path = tmp_path / "t.txt"
    rows = zip(real.tolist(), whole.tolist(), strict=True)
    path.write_text("".join(f"{x!r}{delimiter}{y}\n" for x, y in rows))
    found = all_values(CsvSource(path, header=False, delimiter=delimiter))
    numpy = np.loadtxt(path, delimiter=delimiter)
    same_bytes(found, {"column0": numpy[:, 0], "column1": numpy[:, 1].astype("i8")})


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2.5\n3,4\n", ["column0", "column1"], 2),
        ("1,2", ["column0", "column1"], 1),
        ("\n\r\n7,8\n9,10\n", ["column0", "column1"], 2),
        ("\ufeff7,8\r\n9,10\r\n", ["column0", "column1"], 2),
        ('"1","2"\n"3","4"\n', ["column0", "column1"], 2),
        ("nan,inf\n1,2\n", ["column0", "column1"], 2),
        ("a,b\n1,2\n", ["a", "b"], 1),
        ('"2019","2020"\n1,2\n', ["2019", "2020"], 1),
        (",b\n1,2\n", ["", "b"], 1),
    ],
)
def test_a_header_is_detected_as_on_the_command_line(
    tmp_path, text: str, names: list[str], rows: int
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    source = CsvSource(path)
    assert len(source) == rows
    assert list(source[0]) == names
    (data,) = find(path, Options())
    assert data.title.endswith(
        "without a header" if names[0] == "column0" else "with a header"
    )


def test_a_header_can_be_declared(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,4\n")
    assert list(CsvSource(path, header=True)[0]) == ["1", "2"]
    assert len(CsvSource(path, header=False)) == 2
    path.write_text("id,2020\n1,2\n")
    with pytest.raises(DataError, match="line 1") as caught:
        CsvSource(path)
    assert "header=True" in caught.value.__notes__[0]
    assert set(CsvSource(path, header=True)[0]) == {"id", "2020"}
    for delimiter in ("", "ab"):
        with pytest.raises(ValueError, match="delimiter"):
            CsvSource(path, delimiter=delimiter)


def test_written_files_read_back(tmp_path: Path) -> None:
    data = image_and_label()
    source = ArraySampleSource(data)
    told: list[int] = []
    write_packed(source, tmp_path / "p", progress=told.append)
    assert told[-1] == N
    same_bytes(all_of(PackedSource(tmp_path / "p")), data)
    paths = {name: tmp_path / f"{name}.npy" for name in data}
    save_npy(source, paths)
    same_bytes(np.load(paths["image"]), data["image"])
    same_bytes(all_of(NpySource(paths)), data)
    save_idx(source, paths)
    same_bytes(all_of(IdxSource(paths)), data)
    write_csv(ArraySampleSource({"a": data["label"]}), tmp_path / "a.csv")
    same_bytes(
        all_of(CsvSource(tmp_path / "a.csv")), {"a": data["label"].astype(np.int64)}
    )
    part = source.split(10, 93)[0]
    write_packed(part, tmp_path / "p")
    assert len(PackedSource(tmp_path / "p")) == 10
    with pytest.raises(ValueError, match=r"fields \['image', 'label'\].*\['image'\]"):
        save_npy(source, {"image": paths["image"]})

    def stop(samples: int) -> None:
        raise RuntimeError(f"stopped at {samples}")

    with pytest.raises(RuntimeError, match="stopped at 103"):
        write_packed(source, tmp_path / "q", progress=stop)
    assert not (tmp_path / "q").exists()


def test_unusual_names(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6).reshape(3, 2))
    (tmp_path / "a").write_bytes(buffer.getvalue())
    same_bytes(all_of(NpySource(tmp_path / "a")), np.arange(6).reshape(3, 2))
