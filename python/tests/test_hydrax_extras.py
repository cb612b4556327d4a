"""Hydrax's tqdm bars and pandas rows."""

from __future__ import annotations

import io

import hydrax_loaders as loaders
import numpy as np
import pandas
import pytest
from hydrax_loaders import fill, group
from millstream.hydrax import DataGroup, Dataloader, ValidationBatch
from millstream.hydrax.pandas import RowData
from millstream.hydrax.tqdm import ProgressMonitor, tbatches


def bars(stream):
    """The last state of each bar."""
    last = {}
    for piece in stream.getvalue().replace("\n", "\r").split("\r"):
        label, _, rest = piece.partition(":")
        if rest.strip():
            last[label.strip()] = rest
    return last


def test_bars_count_training_and_validation():
    stream = io.StringIO()
    loader = Dataloader(
        fill, group(), validation=("epoch", 1, group(4, 2)), end_at=("epoch", 2)
    )
    kinds = []
    for batch in tbatches(loader, file=stream, mininterval=0):
        kinds.append("V" if isinstance(batch, ValidationBatch) else "T")
        del batch
    assert "".join(kinds) == "TTTTVV" * 2
    last = bars(stream)
    assert "8/8" in last["train"]
    assert "2/2" in last["validation"]


def test_a_resumed_bar_starts_at_the_first_batch():
    stream = io.StringIO()
    loader = Dataloader(fill, group(), start_at=(1, 1), end_at=("epoch", 3))
    count = sum(1 for _ in tbatches(loader, description="again", file=stream))
    assert count == 7
    assert "5/12" in stream.getvalue()
    assert "12/12" in bars(stream)["again"]


def test_a_bar_without_an_end_counts_up():
    stream = io.StringIO()
    loader = Dataloader(fill, group())
    batches = tbatches(loader, file=stream, mininterval=0)
    for batch in batches:
        if batch.batch_num == 5:
            loader.interrupt()
    assert loader.interrupted
    assert "6batch" in bars(stream)["train"]


def test_reports_contain_waiting_and_dropped_batches(capsys):
    loader = Dataloader(loaders.fail_at_five, group(), end_at=("epoch", 1), depth=1)
    with pytest.warns(RuntimeWarning, match="was dropped"):
        assert len(list(tbatches(loader, report_interval=3, file=io.StringIO()))) == 3
    assert "[hydrax] dropped 1 batches (25%)" in capsys.readouterr().out
    loader = Dataloader(loaders.slow, group(12), end_at=("epoch", 1))
    assert len(list(tbatches(loader, report_interval=3, file=io.StringIO()))) == 3
    assert "[hydrax] running behind by " in capsys.readouterr().out


def test_break_ends_the_run():
    loader = Dataloader(fill, group(), end_at=("epoch", 1))
    batches = tbatches(loader, file=io.StringIO())
    next(batches)
    batches.close()
    with pytest.raises(RuntimeError, match="not running"):
        next(loader)
    assert len(list(tbatches(loader, file=io.StringIO()))) == 4


def test_a_monitor_can_be_used_by_hand():
    stream = io.StringIO()
    loader = Dataloader(fill, group(), end_at=("epoch", 1))
    with ProgressMonitor(loader, file=stream, mininterval=0) as monitor, loader:
        for batch in loader:
            monitor.begin_batch(batch)
            monitor.end_batch(batch)
        with pytest.raises(TypeError, match="expected a batch"):
            monitor.end_batch(None)
    assert "4/4" in bars(stream)["train"]
    monitor.close()  # once more does nothing


def test_batches_out_of_order_cannot_be_counted():
    loader = Dataloader(fill, group(), deterministic=False)
    with pytest.raises(ValueError, match="is not deterministic"):
        ProgressMonitor(loader)


FRAME = pandas.DataFrame(
    {"path": [f"{i}.png" for i in range(6)], "label": np.arange(6) * 10},
    index=[f"row {i}" for i in range(6)],
)


def test_rows_are_found_by_position():
    rows = RowData(FRAME)
    assert len(rows) == 6
    assert rows.dataframe is FRAME
    assert rows[2]["label"] == 20
    assert rows[-1].path == "5.png"
    assert rows[np.int64(3)].label == 30
    assert [row.label for row in rows] == [0, 10, 20, 30, 40, 50]
    part = rows[2:4]
    assert isinstance(part, RowData)
    assert [row.path for row in part] == ["2.png", "3.png"]
    with pytest.raises(IndexError):
        rows[6]
    with pytest.raises(TypeError, match="found 'label'"):
        rows["label"]
    with pytest.raises(TypeError, match="found list"):
        RowData([1, 2])


def test_rows_are_loaded():
    data = DataGroup(3, RowData(FRAME), loader_arrays={"x": ((), np.int32, np.int32)})
    with Dataloader(loaders.fill_label, data, end_at=("epoch", 1)) as loader:
        found = [
            (batch.arrays["x"].tolist(), batch.additional["path"], batch.data[0].label)
            for batch in loader
        ]
    assert found == [
        ([0, 10, 20], ["0.png", "1.png", "2.png"], 0),
        ([30, 40, 50], ["3.png", "4.png", "5.png"], 30),
    ]
