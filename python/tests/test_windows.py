"""Windows over the rows of a source match NumPy's sliding windows."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from conftest import Python, rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CsvSource,
    DataLoader,
    DiskSampleSource,
    IdxSource,
    Listed,
    NpySource,
    PackedSource,
    Sequential,
    Shuffle,
    Subset,
    Weighted,
    WindowSource,
    concatenate,
    mix,
    write_idx,
    write_packed,
    zip_sources,
)
from walks import check, iterated, resumes_everywhere, same_bytes, same_walk, taken

N = 61
DATA = rows_of(N)


def windows_of(data: Any, length: int, stride: int = 1) -> Any:
    def sliding(x: np.ndarray) -> np.ndarray:
        starts = range(0, len(x) - length + 1, stride)
        return np.stack([x[start : start + length] for start in starts])

    return jax.tree.map(sliding, data)


def in_memory(folder: Path) -> Any:
    return ArraySampleSource(DATA)


def with_gaps(folder: Path) -> Any:
    return ArraySampleSource({k: np.repeat(x, 2, 0)[::2] for k, x in DATA.items()})


def backwards(folder: Path) -> Any:
    return ArraySampleSource({k: x[::-1].copy()[::-1] for k, x in DATA.items()})


def memory_map(folder: Path) -> Any:
    for name, array in DATA.items():
        array.tofile(folder / name)
    return ArraySampleSource(
        {
            name: np.memmap(folder / name, x.dtype, "r", shape=x.shape)
            for name, x in DATA.items()
        }
    )


def npy(folder: Path) -> Any:
    for name, array in DATA.items():
        np.save(folder / f"{name}.npy", array)
    return NpySource({name: folder / f"{name}.npy" for name in DATA})


def shards(folder: Path) -> Any:
    for name, array in DATA.items():
        (folder / name).mkdir()
        for i, part in enumerate(np.split(array, [20, 22, 50])):
            np.save(folder / name / f"{i}.npy", part)
    return NpySource({name: folder / name for name in DATA})


def idx(folder: Path) -> Any:
    paths = {name: folder / f"{name}.idx" for name in DATA}
    write_idx(ArraySampleSource(DATA), paths)
    return IdxSource(paths)


def packed(folder: Path) -> Any:
    write_packed(ArraySampleSource(DATA), folder / "x.packed")
    return PackedSource(folder / "x.packed")


def combined(folder: Path) -> Any:
    source = npy(folder)
    return concatenate([source[:10], ArraySampleSource(taken(DATA, slice(10, None)))])


def function(folder: Path) -> Any:
    return DiskSampleSource(N, lambda i: taken(DATA, i), workers=2)


SOURCES = [
    in_memory,
    with_gaps,
    backwards,
    memory_map,
    npy,
    shards,
    idx,
    packed,
    combined,
    function,
]


@pytest.mark.parametrize("rows", SOURCES)
@pytest.mark.parametrize(("length", "stride"), [(5, 1), (7, 4), (N, 3)])
def test_windows(rows: Any, length: int, stride: int, tmp_path: Path) -> None:
    source = WindowSource(rows(tmp_path), length, stride)
    check(source, windows_of(DATA, length, stride))


def test_windows_of_a_csv_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i / 2}\n" for i in range(9)))
    sample = WindowSource(CsvSource(path), 3, ordering="sequential")[4]
    same_bytes(sample, {"a": np.arange(4, 7), "b": np.arange(4, 7) / 2})


def test_tokens(tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    np.save(tmp_path / "tokens.npy", tokens)
    source = WindowSource(NpySource(tmp_path / "tokens.npy"), 65, 64)
    assert len(source) == 15
    assert source[3].tolist() == list(range(192, 257))
    loader = DataLoader([source, BatchTransform(4)])
    for batch, _ in loader.iterate(loader.init_state(0)):
        assert batch.shape == (4, 65)
        assert batch.dtype == np.uint16
    resumes_everywhere(loader, loader.init_state(1), 6)


def test_a_state_moves_to_arrays_of_the_same_windows() -> None:
    windows = WindowSource(ArraySampleSource(DATA), 5, 2)
    arrays = ArraySampleSource(windows_of(DATA, 5, 2))
    first, second = (DataLoader([s, BatchTransform(4)]) for s in (windows, arrays))
    state = first.init_state(2)
    same_walk(iterated(first, state, 9), iterated(second, state, 9))


def test_windows_of_parts(tmp_path: Path) -> None:
    source = npy(tmp_path)
    check(
        WindowSource(source[10:40], 6, 5), windows_of(taken(DATA, slice(10, 40)), 6, 5)
    )
    check(
        WindowSource(source[::-2], 4), windows_of(taken(DATA, slice(None, None, -2)), 4)
    )
    listed = [5, 9, 2, 2, 60, 0]
    check(WindowSource(source[listed], 3), windows_of(taken(DATA, listed), 3))
    _, second = source.split(0.5, 0.5, shuffle=False)
    check(WindowSource(second, 3), windows_of(taken(DATA, slice(30, None)), 3))


def test_parts_and_combinations_of_windows() -> None:
    source = WindowSource(ArraySampleSource(DATA), 5, 2)
    data = windows_of(DATA, 5, 2)
    check(source[3:20], taken(data, slice(3, 20)))
    check(Subset(source, [7, 1], "shuffle"), taken(data, [7, 1]))
    train, test = source.split(0.7, 0.3, seed=1)
    assert (len(train), len(test)) == (20, 9)
    starts = sorted(int(s["x"][0, 0]) for part in (train, test) for s in part)
    assert starts == list(range(1, 58, 2))
    assert len(source.folds(3)) == 3
    both = jax.tree.map(lambda a: np.concatenate([a, a]), data)
    check(concatenate([source, source]), both)
    check(zip_sources((source, source)), (data, data))
    assert len(mix([source, source], [1, 2])) == 2 * len(source)
    nested = windows_of(data, 3)
    check(WindowSource(source, 3), nested)


def test_the_order_is_that_of_the_windows() -> None:
    rows = ArraySampleSource(DATA, "sequential")
    assert WindowSource(rows, 5).order == Shuffle()
    source = WindowSource(rows, 5, ordering="sequential")
    assert source.order == Sequential()
    batch, _, _ = source.next(source.init_state(0))
    same_bytes(batch, taken(windows_of(DATA, 5), 0))
    weights = Weighted(np.eye(57)[9])
    check(WindowSource(rows, 5, ordering=weights), windows_of(DATA, 5))
    with pytest.raises(ValueError, match="61 weights for 57 samples"):
        WindowSource(rows, 5, ordering=Weighted(np.ones(N)))


def test_windows_can_be_pickled_and_copied(tmp_path: Path) -> None:
    source = WindowSource(npy(tmp_path), 5, 2, "sequential")
    assert repr(source).endswith("length=5, stride=2, ordering='sequential')")
    for again in (pickle.loads(pickle.dumps(source)), copy.deepcopy(source)):
        check(again, windows_of(DATA, 5, 2))
        assert again.order == Sequential()
    part = source.split(0.5, 0.5)[1]
    same = pickle.loads(pickle.dumps(part))
    same_bytes([*same], [*part])


def test_wrong_windows(tmp_path: Path) -> None:
    rows = ArraySampleSource(DATA)
    for length, message in (
        (62, "a window of 62 rows does not fit into a source of 61 rows"),
        (0, "length must be a whole number of at least 1, not 0"),
        (2.5, "length must be a whole number of at least 1, not 2.5"),
    ):
        with pytest.raises(ValueError, match=message):
            WindowSource(rows, length)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stride must be a whole number of at least 1"):
        WindowSource(rows, 2, 0)
    with pytest.raises(TypeError, match=r"source to be .*, found Pipeline"):
        WindowSource(BatchTransform(2)(rows), 2)
    with pytest.raises(TypeError, match=r"source to be .*, found ndarray"):
        WindowSource(np.arange(5), 2)
    for order in (Listed([3, 4]), Weighted(np.ones(N))):
        listed = ArraySampleSource(DATA, order)
        with pytest.raises(ValueError, match=f"order {type(order).__name__}, which"):
            WindowSource(listed, 2)
        part = rows.split(N, ordering=order, shuffle=False)[0]
        with pytest.raises(ValueError, match=f"order {type(order).__name__}, which"):
            WindowSource(part, 2)
    with pytest.raises(ValueError, match="order MixtureOrder"):
        WindowSource(mix([rows, rows]), 2)
    for part in (rows.split(0.5, 0.5)[0], rows.folds(3, shuffle=False)[1][0]):
        with pytest.raises(ValueError, match=r"not all neighbours.*shuffle=False"):
            WindowSource(part, 2)
    texts = DiskSampleSource(9, lambda i: {"x": np.float32(i), "name": f"{i}"})
    with pytest.raises(ValueError, match=r"host fields \(name\)"):
        WindowSource(texts, 2)


def test_a_failing_row_skips_its_windows() -> None:
    def row(i: int) -> Any:
        if i == 10:
            raise ValueError("damaged")
        return {"x": np.int32(i)}

    rows = DiskSampleSource(20, row)
    source = WindowSource(rows, 3, ordering="sequential")
    loader = DataLoader([source, BatchTransform(6)], on_error="skip")
    kept = []
    for batch, mask in loader.iterate(loader.init_state(0)):
        kept += np.asarray(batch["x"])[np.asarray(mask), 0].tolist()
    assert kept == [i for i in range(18) if i not in (8, 9, 10)]


def test_windows_of_a_huge_source_take_no_memory(python: Python) -> None:
    python.run("""
        import resource
        import numpy as np
        from millstream import ArraySampleSource, WindowSource
        tokens = np.memmap("tokens", np.uint16, "w+", shape=(10**9,))
        tokens[-1] = 7
        rows = ArraySampleSource(tokens)
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        limit = now + 2**29
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        train, test = rows.split(0.5, 0.5, shuffle=False)
        source = WindowSource(test, 1025)
        assert len(source) == 5 * 10**8 - 1024
        assert source[-1][-1] == 7 and source[-2][-1] == 0
    """)
