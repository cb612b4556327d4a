"""Progress bars and reports of a loop's speed."""

from __future__ import annotations

import io
import sys

import jax.numpy as jnp
import millstream
import numpy as np
import pytest
from millstream import progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def watched(clock, stream=None, **more):
    stream = io.StringIO() if stream is None else stream
    return progress.StepProgress("train", stream=stream, clock=clock, **more)


def steps(bar, clock, count, *, wait, work, samples=10):
    for _ in range(count):
        bar.wait()
        clock.now += wait
        bar.got(samples)
        clock.now += work


def test_a_loop_that_computes_is_limited_by_the_step():
    clock = Clock()
    bar = watched(clock)
    steps(bar, clock, 20, wait=0.001, work=0.099)
    report = bar.report()
    assert report.steps == 20
    assert report.samples_per_second == pytest.approx(100, rel=0.01)
    assert report.wait_per_step == pytest.approx(0.001)
    assert report.wait_share == pytest.approx(0.01, rel=0.05)
    assert report.limit == "step"
    assert str(report) == (
        "100 samples/s, waited 1.00 ms per step (1%), limited by the step"
    )


def test_a_loop_that_waits_is_limited_by_data():
    clock = Clock()
    bar = watched(clock)
    steps(bar, clock, 20, wait=0.05, work=0.05)
    assert bar.report().wait_share == pytest.approx(0.5, rel=0.05)
    assert bar.report().limit == "data"


def test_only_the_last_seconds_count():
    clock = Clock()
    bar = watched(clock)
    steps(bar, clock, 100, wait=0.09, work=0.01)
    assert bar.report().limit == "data"
    steps(bar, clock, 100, wait=0.0001, work=0.0999)
    assert bar.report().limit == "step"
    assert bar.report().wait_per_step == pytest.approx(0.0001)


def test_warmup_steps_do_not_count():
    clock = Clock()
    bar = watched(clock)
    assert bar.report() == progress.Report(0, 0.0, 0.0, 0.0)
    steps(bar, clock, 3, wait=1.0, work=0.1)
    assert bar.report().limit == "data"
    steps(bar, clock, 5, wait=0.0, work=0.1)
    assert bar.report().limit == "step"


def test_a_stream_that_is_not_a_terminal_gets_occasional_lines(monkeypatch):
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    clock, stream = Clock(), io.StringIO()
    bar = watched(clock, stream, total=600)
    steps(bar, clock, 95, wait=0.01, work=0.09)
    assert stream.getvalue() == ""
    steps(bar, clock, 505, wait=0.01, work=0.09)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2  # after 10 s and 20 s more
    assert "101 of 600 steps" in lines[0]
    assert "limited by" in lines[0]
    bar.close()
    bar.close()
    assert "600 of 600 steps" in stream.getvalue().splitlines()[-1]
    assert len(stream.getvalue().splitlines()) == 3


def test_a_short_loop_without_a_terminal_is_quiet(monkeypatch):
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    stream = io.StringIO()
    assert list(progress.track([1, 2, 3], stream=stream)) == [1, 2, 3]
    assert stream.getvalue() == ""


def test_the_environment_can_silence_and_show(monkeypatch):
    for said, shown in (("0", False), ("1", True)):
        monkeypatch.setenv("MILLSTREAM_PROGRESS", said)
        clock, stream = Clock(), io.StringIO()
        bar = watched(clock, stream)
        steps(bar, clock, 300, wait=0.05, work=0.05)
        bar.close()
        assert bool(stream.getvalue()) == shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("total", [3, None])
def test_a_narrow_terminal_shows_what_limits(monkeypatch, total):
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    monkeypatch.setenv("COLUMNS", "70" if total else "55")
    clock, stream = Clock(), Terminal()
    bar = watched(clock, stream, total=total)
    steps(bar, clock, 3, wait=0.001, work=0.099)
    bar.close()
    last = stream.getvalue().split("\r")[-1]
    assert "3/3 steps, " in last or not total
    assert last.rstrip().endswith(" samples/s, limited by the step")


def test_without_tqdm_a_line_is_rewritten(monkeypatch):
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    monkeypatch.setenv("COLUMNS", "51")
    monkeypatch.setitem(sys.modules, "tqdm", None)
    clock, stream = Clock(), Terminal()
    bar = watched(clock, stream, total=30)
    steps(bar, clock, 12, wait=0.001, work=0.099)
    bar.say("a message")
    steps(bar, clock, 18, wait=0.001, work=0.099)
    bar.close()
    above, below = stream.getvalue().removesuffix("\n").split("a message\n")
    texts = [text.rstrip() for text in (above + below).split("\r") if text.strip()]
    assert texts[0] == "train: 0 of 30 steps"
    assert len(texts) == 7  # every 0.5 of 3 seconds, and at the end
    assert texts[-1] == "train: 30 of 30 steps, 100 samples/s, limited by t"


def test_without_tqdm_a_file_gets_occasional_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    clock, stream = Clock(), io.StringIO()
    bar = watched(clock, stream, total=300, shown=True)
    steps(bar, clock, 300, wait=0.01, work=0.09)
    bar.close()
    lines = stream.getvalue().splitlines()
    assert [line.partition(" steps, ")[0] for line in lines] == [
        "train: 101 of 300",
        "train: 300 of 300",
    ]
    assert lines[-1].endswith("limited by the step")


def test_a_terminal_gets_a_bar_that_ends_its_line(monkeypatch):
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    tracked = progress.track([np.zeros(7)] * 3, stream=stream, label="epoch")
    assert len(list(tracked)) == 3
    last = stream.getvalue().split("\r")[-1]
    assert last.startswith("epoch: 100%|")
    assert "| 3/3 steps, " in last
    assert "samples/s" in last
    assert last.endswith("\n")
    assert tracked.report().steps == 3


def test_a_loop_that_breaks_ends_its_line():
    stream = Terminal()
    for _ in progress.track(iter(range(10)), shown=True, stream=stream):
        break
    assert "1 steps" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_an_error_ends_the_bar_and_is_raised():
    def broken():
        yield 1
        raise OSError("gone")

    stream = Terminal()
    tracked = progress.track(broken(), stream=stream)
    next(tracked)
    with pytest.raises(OSError, match="gone"):
        next(tracked)
    assert stream.getvalue().endswith("\n")
    tracked.close()


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (np.zeros((7, 2)), 7),
        ({"x": jnp.zeros((5, 2)), "y": jnp.zeros(5)}, 5),
        (({"x": np.zeros((4, 2))}, np.ones(4)), 4),
        (np.float32(1), 1),
        ((), 1),
        ("text", 1),
    ],
)
def test_samples_are_counted_by_the_first_array(batch, samples):
    assert progress.samples_in(batch) == samples


def test_batch_size_sets_the_number_of_samples():
    tracked = progress.track([0] * 3, batch_size=32, shown=False)
    list(tracked)
    assert tracked._progress._samples == 96


def loader():
    rows = {"x": np.arange(20, dtype=np.float32)}
    return millstream.DataLoader(
        [
            millstream.ArraySampleSource(rows, ordering="sequential"),
            millstream.BatchTransform(8),
        ]
    )


def test_iterate_gives_the_same_batches_and_a_bar(monkeypatch, capsys):
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    data = loader()
    state = data.init_state(0)
    plain = data.iterate(state)
    shown = data.iterate(state, progress=True)
    assert len(shown) == len(plain) == 3
    for (batch, mask), (other, other_mask) in zip(plain, shown, strict=True):
        np.testing.assert_array_equal(batch["x"], other["x"])
        np.testing.assert_array_equal(mask, other_mask)
    np.testing.assert_array_equal(plain.state.words, shown.state.words)
    assert shown.report().steps == 3
    assert shown._progress._samples == 20  # padding does not count
    told = capsys.readouterr().err
    assert "3/3 steps" in told
    assert told.endswith("\n")


def test_iterate_without_a_terminal_is_quiet(monkeypatch, capsys):
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    data = loader()
    shown = data.iterate(data.init_state(0), progress=True)
    next(shown)
    shown.close()
    with pytest.raises(ValueError, match="closed"):
        next(shown)
    assert capsys.readouterr().err == ""


def bars(capsys):
    """Returns the last text of each bar that was drawn on standard error."""
    lines = capsys.readouterr().err.split("\n")
    assert lines.pop() == ""
    return [line.split("\r")[-1] for line in lines]


def test_a_run_shows_its_epoch_and_all_steps(monkeypatch, capsys):
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    run = loader().run(epochs=4, progress=True)
    for _ in run:
        if run.step == 5:
            break
    state = run.state
    for _ in run:
        pass
    assert list(run) == []
    broken, rest = bars(capsys)
    assert broken.startswith("epoch 1:  42%|")
    assert "| 5/12 steps, " in broken
    assert rest.startswith("epoch 3: 100%|")
    assert "| 12/12 steps, " in rest
    assert run.report().steps == 12

    resumed = loader().run(state, epochs=4, progress=True)
    next(resumed)
    resumed.set_state(resumed.get_state())
    next(resumed)
    resumed.close()
    first, second = bars(capsys)
    assert "| 6/12 steps, " in first
    assert "| 7/12 steps, " in second


def test_a_run_without_an_end_shows_no_total(monkeypatch, capsys):
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    run = loader().run(progress=True)
    for _ in range(4):
        next(run)
    run.close()
    assert [bar.partition(",")[0] for bar in bars(capsys)] == ["epoch 1: 4 steps"]


def test_time_between_two_loops_does_not_count():
    clock = Clock()
    bar = watched(clock)
    steps(bar, clock, 20, wait=0.001, work=0.099)
    bar.close()
    clock.now += 1000
    bar.wait()
    assert bar.report().samples_per_second == 0
    steps(bar, clock, 20, wait=0.001, work=0.099)
    assert bar.report().samples_per_second == pytest.approx(100, rel=0.1)
