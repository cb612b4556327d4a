"""``ArraySampleSource(pack=True)``: the same batches from columns packed as rows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    CsvSource,
    DataLoader,
    PythonMapTransform,
    Subset,
    WindowSource,
)
from walks import (
    check,
    iterated,
    jitted,
    resumes_everywhere,
    same_bytes,
    same_walk,
    scanned,
    specified,
)

N = 301


def table() -> dict[str, Any]:
    """Columns of several sizes, strides and dtypes, and rows too large to pack."""
    numbers = np.arange(8 * N, dtype=np.float32)
    return {
        "byte": np.arange(N).astype(np.uint8),
        "one": numbers[:N],
        "more": {"two": numbers.reshape(-1, 2)[: 2 * N : 2], "back": numbers[:N][::-1]},
        "same": np.broadcast_to(np.int16(3), (N,)),
        "flag": np.arange(N) % 3 == 0,
        "image": numbers[: 5 * N].astype(np.uint8).reshape(N, 5).repeat(20, axis=1),
    }


def loader_of(pack: bool, batch: int = 7, **more: Any) -> DataLoader:
    return DataLoader(
        [ArraySampleSource(table(), pack=pack), BatchTransform(batch)], **more
    )


@pytest.mark.parametrize("batch", [7, 200])  # fewer rows than the engine reads at once
def test_the_batches_are_the_same(batch: int) -> None:
    check(ArraySampleSource(table(), pack=True), table())
    plain, packed = loader_of(False, batch), loader_of(True, batch)
    state = plain.init_state(3)
    steps = plain.steps_per_epoch + 2
    walk = specified(plain, state, steps)
    for way in (specified, iterated, scanned, jitted):
        same_walk(way(packed, state, steps), walk)
    resumes_everywhere(packed, state, 3)
    restored = packed.restore(plain.save(state, format="bytes"))
    same_walk(iterated(packed, restored, steps), walk)


def test_stages_get_the_same_rows() -> None:
    """Native stages and workers read the rows where they are."""
    walks = []
    for pack in (False, True):
        source = ArraySampleSource(table(), pack=pack)
        stages = [
            CastTransform("one", np.float16),
            PythonMapTransform(lambda row: {**row, "sum": row["one"] + row["byte"]}),
        ]
        loader = DataLoader([source, *stages, BatchTransform(16)])
        walks.append(iterated(loader, loader.init_state(0), loader.steps_per_epoch))
    same_walk(walks[1], walks[0])


def test_parts_and_windows_are_the_same() -> None:
    def parts(pack: bool) -> list[Any]:
        source = ArraySampleSource(table(), "sequential", pack=pack)
        first, second = source.split(0.7, 0.3)
        return [
            first,
            second,
            source[3:250:2],
            Subset(source, [5, 3, 300, 5]),
            WindowSource(source, 6, 2),
            WindowSource(source[10:200], 4),
        ]

    for plain, packed in zip(parts(False), parts(True), strict=True):
        loaders = [DataLoader([x, BatchTransform(9)]) for x in (plain, packed)]
        steps = loaders[0].steps_per_epoch
        walks = [iterated(x, x.init_state(2), steps) for x in loaders]
        same_walk(walks[1], walks[0])


def test_the_copy_is_made_once() -> None:
    data = {"x": np.arange(N), "y": np.arange(N), "z": np.zeros((N, 100))}
    source = ArraySampleSource(data, pack=True)
    for array in data.values():
        array[5] = 7
    assert (source[5]["x"], source[5]["y"]) == (5, 5)
    assert (source[5]["z"] == 7).all()  # rows of 800 bytes are not copied


def test_a_packed_source_can_be_pickled() -> None:
    source = pickle.loads(pickle.dumps(ArraySampleSource(table(), pack=True)))
    assert source.pack
    assert source.native()[0].packable == (0, 0)
    check(source, table())


def test_integers_that_do_not_fit_are_skipped() -> None:
    data = {"x": np.arange(N), "y": np.arange(N, dtype=np.uint64)}
    data["y"][77] = 1 << 40
    loaders = [
        DataLoader(
            [ArraySampleSource(data, pack=pack), BatchTransform(100)], on_error="skip"
        )
        for pack in (False, True)
    ]
    walks = [iterated(x, x.init_state(0), 4) for x in loaders]
    same_walk(walks[1], walks[0])
    assert list(loaders[1].skipped) == [77]


def test_fields_of_a_structured_array_are_read_together() -> None:
    rows = np.zeros(N, [("a", "i1"), ("b", "f4"), ("c", "u2", (3,))])
    rows["a"], rows["b"] = np.arange(N) % 100, np.arange(N) / 3
    rows["c"] = np.arange(3 * N).reshape(N, 3)
    fields = {"a": rows["a"], "b": rows["b"][::-1], "c": rows["c"], "d": rows["b"]}
    check(ArraySampleSource(fields), {k: np.array(x) for k, x in fields.items()})


def test_a_mapped_table_can_be_packed(tmp_path: Path) -> None:
    saved = {}
    for name, dtype in [("x", np.float32), ("y", np.int16)]:
        np.save(tmp_path / name, np.arange(N).astype(dtype))
        saved[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    source = ArraySampleSource(saved, pack=True)
    (tmp_path / "x.npy").write_bytes(b"")  # the copy does not need the file
    same_bytes(source[300], {"x": np.float32(300), "y": np.int16(300)})


def test_a_csv_table_is_packed(tmp_path: Path) -> None:
    lines = [f"{i},{i / 2},{i % 2 == 0}" for i in range(N)]
    (tmp_path / "t.csv").write_text("a,b,c\n" + "\n".join(lines) + "\n")
    source = CsvSource(tmp_path / "t.csv")
    data = {"a": np.arange(N), "b": np.arange(N) / 2, "c": np.arange(N) % 2 == 0}
    plain = ArraySampleSource(data)
    walks = []
    for made in (source, plain, WindowSource(source, 5), WindowSource(plain, 5)):
        loader = DataLoader([made, BatchTransform(8)])
        walks.append(iterated(loader, loader.init_state(0), loader.steps_per_epoch))
    same_walk(walks[0], walks[1])
    same_walk(walks[2], walks[3])


def test_explain_says_what_packing_would_do() -> None:
    zeros = np.zeros(10**6, np.float32)
    names = [f"c{i}" for i in range(20)]

    def explained(count: int, **more: Any) -> str:
        data = {name: zeros.copy() for name in names[:count]}
        loader = DataLoader([ArraySampleSource(data, **more), BatchTransform(64)])
        return loader.explain()

    assert (
        "gathers 20 columns one by one; pack=True copies 80 MB once and is about "
    ) in explained(20)
    assert "pack" not in explained(20, pack=True)
    assert "pack" not in explained(4)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="pack must be True or False, not 1"):
        ArraySampleSource(np.arange(3), pack=1)  # type: ignore[arg-type]
