"""The examples of reinforcement learning and forecasting learn, in short form."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import file_server
import jax
import millstream as ms
import numpy as np
import pytest
from file_server import FileServer

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def example(name: str) -> Any:
    return importlib.import_module(name)


def test_cartpole_learns_in_one_jitted_loop() -> None:
    cartpole = example("cartpole")
    _, returns = cartpole.train(steps=3000, evaluations=1)
    # An untrained policy keeps the pole upright for about 10 steps.
    assert returns[-1] > 60


def test_offline_learning_reads_the_transitions_that_were_collected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offline = example("offline_rl")
    path = tmp_path / "transitions.packed"
    behaved = offline.collect(path, 20_000)
    assert 20 < behaved < 100
    source = ms.PackedSource(path, ordering="sequential")
    loader = ms.DataLoader([source, ms.BatchTransform(20_000)])
    ((data, _),) = loader.run(seed=0, epochs=1)
    assert {name: x.shape[1:] for name, x in data.items()} == {
        "action": (),
        "done": (),
        "next_state": (4,),
        "reward": (),
        "state": (4,),
    }
    # Within an episode, each transition begins where the one before ended.
    state, done = np.asarray(data["state"]), np.asarray(data["done"])
    same = np.all(state[1:] == np.asarray(data["next_state"])[:-1], axis=1)
    assert np.all(same[~done[:-1]])
    returns = offline.train(path, epochs=20)
    assert returns[-1] > 1.5 * behaved
    assert "epoch 19: loss" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["temperatures", "sunspots"])
def test_forecasts_of_a_downloaded_series_beat_repetition(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FileServer
) -> None:
    forecasting = example("forecasting")
    forecasting.generate(name, tmp_path / "series.csv")
    place = {
        "temperatures": "/daily-min-temperatures/daily-min-temperatures.csv",
        "sunspots": "/sunspots/monthly-sunspots.csv",
    }[name]
    server.offer(place, file_server.whole((tmp_path / "series.csv").read_bytes()))
    monkeypatch.setenv("MILLSTREAM_MIRROR", server.url)
    errors = forecasting.train(name, epochs=3, cache_dir=tmp_path / "cache")
    assert errors[-1] < 0.95
    assert [asked for asked, _ in server.requests] == [place]


def test_a_forecast_without_a_network_repeats_the_last_value() -> None:
    forecasting = example("forecasting")
    params = forecasting.init_params(jax.random.key(0), 5, 2)
    params[1] = jax.tree.map(np.zeros_like, params[1])
    context = np.arange(10, dtype=np.float32).reshape(2, 5)
    found = forecasting.forecast(params, context)
    np.testing.assert_array_equal(found, [[4, 4], [9, 9]])
    batch = {"context": context, "target": np.array([[4, 6], [0, 0]], np.float32)}
    assert math.isclose(forecasting.loss(params, batch, np.array([True, False])), 2)


def test_forecasting_is_a_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forecasting = example("forecasting")
    command = ["forecasting.py", "--epochs", "1", "--generated", *forecasting.SERIES]
    monkeypatch.setattr(sys, "argv", command)
    forecasting.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == list(forecasting.SERIES)
