"""`explain`, `repr`, the HTML table of notebooks, and `stats`."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from conftest import rows_of


def plain(ordering: Any = "sequential", n: int = 10) -> ms.ArraySampleSource:
    return ms.ArraySampleSource(rows_of(n), ordering)


def load(i: int) -> dict[str, Any]:
    return {"x": np.float32(i)}


# explain


@pytest.mark.parametrize(
    ("workers", "kind", "text"),
    [
        (1, "thread", "Python, 1 worker thread"),
        (2, "thread", "Python, 2 worker threads"),
        (1, "process", "Python, 1 worker process"),
        (2, "process", "Python, 2 worker processes"),
    ],
)
def test_explain_names_the_workers_of_sources_and_stages(workers, kind, text):
    options: Any = {"workers": workers, "worker_kind": kind}
    source = ms.DiskSampleSource(8, load, **options)
    stage = ms.PythonMapTransform(lambda sample: sample, **options)
    spec = {"x": jax.ShapeDtypeStruct((), np.float32)}
    stage = ms.PythonMapTransform(load_map, spec, **options)
    lines = ms.DataLoader([source, stage, ms.BatchTransform(4)]).explain().splitlines()
    for name in ("DiskSampleSource", "PythonMapTransform"):
        line = next(line for line in lines if line.startswith(name))
        assert f"  {text}  " in line


def load_map(sample: Any) -> Any:
    return sample


def test_explain_names_the_workers_of_combined_sources():
    one = ms.DiskSampleSource(8, load, workers=2)
    for source in (one[2:6], ms.concatenate([one, one]), ms.mix([one, one])):
        assert "Python, 2 worker threads" in ms.DataLoader([source]).explain()


def test_explain_counts_the_samples_of_a_part():
    train, test = plain(n=10).split(0.8, 0.2)
    table = ms.DataLoader([train]).explain()
    assert "order: Sequential() of a part of 10 samples" in table
    assert "  8 samples\n" in table
    assert "  2 samples\n" in ms.DataLoader([test]).explain()
    fold, _ = plain(n=10).folds(5)[0]
    assert "  8 samples\n" in ms.DataLoader([fold]).explain()
    drawn = ms.DataLoader([plain(ms.WithReplacement(30))])
    assert "10 samples, 30 an epoch" in drawn.explain()


ORDERS = [
    ms.Weighted(np.arange(1.0, 2001.0)),
    ms.Listed(np.arange(2000)),
    ms.Listed(np.arange(4000).reshape(2, 2000) % 2000, shuffle=True),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_explain_and_repr_never_print_arrays(order):
    source = plain(order, n=2000)
    parts = [source, source.split(0.5, 0.5, ordering="shuffle")[0]]
    for part in [*parts, ms.mix([source, source])]:
        loader = ms.DataLoader([part, ms.BatchTransform(4)])
        for text in (loader.explain(), repr(loader), repr(part), loader._repr_html_()):
            assert "array(" not in text
            assert "0, 1, 2, 3" not in text
            assert "..." not in text.replace("[...]", "")


# repr


def all_sources(tmp_path: Any) -> list[Any]:
    np.save(tmp_path / "x.npy", np.zeros((20, 3)))
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    image = ms.ArraySampleSource({"image": np.zeros((60, 28, 28), np.uint8)})
    return [
        image,
        image.split(0.5, 0.5)[0],
        image[[1, 2, 5]],
        ms.concatenate([image, image]),
        ms.zip_sources({"a": image, "b": image}),
        ms.mix([image, image]),
        ms.NpySource(tmp_path / "x.npy"),
        ms.CsvSource(tmp_path / "x.csv"),
        ms.WindowSource(image, 4),
        ms.DiskSampleSource(8, load),
        ms.DatasetSource([{"x": np.zeros(1000)} for _ in range(100)]),
        ms.fill_source(
            lambda data, arrays, seed: None,
            list(range(100)),
            {"x": jax.ShapeDtypeStruct((3,), np.float32)},
        ),
    ]


def test_the_repr_of_sources_and_loaders_is_one_line(tmp_path):
    for source in all_sources(tmp_path):
        loader = ms.DataLoader([source, ms.BatchTransform(2)], threads=1)
        for text in (repr(source), repr(loader)):
            assert "\n" not in text
            assert len(text) < 700
            assert "array(" not in text
        assert type(source).__name__ in repr(loader)


def test_the_repr_of_a_loader_shows_the_pipeline_and_its_options():
    loader = ms.DataLoader(
        [
            ms.ArraySampleSource({"image": np.zeros((60, 28, 28), np.uint8)}),
            ms.MapTransform(load_map_batch),
            ms.BatchTransform(8),
        ],
        prefetch=3,
    )
    assert repr(loader) == (
        "DataLoader([ArraySampleSource(data={'image': uint8[60, 28, 28]}, "
        "ordering='shuffle', storage_device=None, pack=False), "
        "MapTransform(fn=load_map_batch, "
        f"element_spec_override=None), {ms.BatchTransform(8)!r}], prefetch=3)"
    )


def test_the_repr_of_a_tuple_with_one_entry():
    assert "keys=('image',)" in repr(ms.RandomFlipTransform("image"))


def load_map_batch(value: Any, mask: Any) -> Any:
    return value


# HTML


class Cells(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_the_table_of_notebooks_has_the_cells_of_explain():
    loader = ms.DataLoader(
        [plain(), ms.RenameTransform({"x": "<b>x&y</b>"}), ms.BatchTransform(4)]
    )
    next(loader.run())
    page = loader._repr_html_()
    rows = Cells(page).rows
    lines = loader.explain().splitlines()
    table = [lines[0], *lines[2 : len(rows) + 1]]
    for row, line in zip(rows, table, strict=True):
        assert len(row) == 3
        for cell in row:
            assert cell in line
    assert "&lt;b&gt;x&amp;y&lt;/b&gt;" in page
    assert "3 steps an epoch" in page


# stats


def test_stats_count_samples_and_bytes_in_loops_and_inside_jit():
    loader = ms.DataLoader([plain(), ms.BatchTransform(4)])
    batch, _ = next(loader.run())
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(batch)) // 4
    assert "samples" not in ms.DataLoader([plain()]).explain().splitlines()[-1]
    loader = ms.DataLoader([plain(), ms.BatchTransform(4)])
    assert (loader.stats().samples, loader.stats().bytes) == (0, 0)
    assert loader.stats().limit is None
    list(loader.run(epochs=2))
    stats = loader.stats()
    assert stats.limit is None  # six steps, of which none is measured
    assert stats.samples == 20
    assert stats.bytes == 20 * size
    jax.block_until_ready(jax.jit(loader.next_batch)(loader.init_state(0)))
    loader.scan_epoch(loader.init_state(0), 0, count)
    assert loader.stats().samples == 20 + 4 + 10
    assert loader.stats().bytes == 34 * size
    assert loader.explain().splitlines()[-1] == str(loader.stats())


def count(carry: Any, batch: Any, mask: Any) -> Any:
    return carry + mask.sum(), None


def slow(i: int) -> dict[str, Any]:
    time.sleep(0.02)
    return {"x": np.float32(i)}


def test_stats_say_that_data_limits_a_loop():
    spec = {"x": jax.ShapeDtypeStruct((), np.float32)}
    source = ms.DiskSampleSource(48, slow, spec)
    loader = ms.DataLoader([source, ms.BatchTransform(4)], prefetch=0)
    list(loader.run(epochs=1))
    stats = loader.stats()
    assert stats.limit == "data"
    assert stats.waited == 1.0
    assert stats.wait_per_step >= 0.02
    assert "100% of the steps waited for more than a tenth" in str(stats)
    assert "limited by the data" in str(stats)
    assert "limited by the data" in loader.explain()


def test_stats_say_that_the_step_limits_a_loop():
    loader = ms.DataLoader([plain(n=40), ms.BatchTransform(4)])
    for _ in loader.run(epochs=2):
        time.sleep(0.05)
    stats = loader.stats()
    assert stats.limit == "step"
    assert stats.measured_steps == 2
    assert "limited by the step" in str(stats)


def test_stats_keep_the_last_steps_only():
    loader = ms.DataLoader([plain(n=2), ms.BatchTransform(2)])
    list(loader.run(epochs=9000))
    stats = loader.stats()
    assert stats.measured_steps == 1024
    assert stats.samples == 18_000


def test_stats_do_not_mix_the_steps_of_two_loops():
    loader = ms.DataLoader([plain(), ms.BatchTransform(4)])
    one, other = loader.run(), loader.run(seed=1)
    for _ in range(16):
        next(one)
        next(other)
    assert loader.stats().measured_steps == 2
