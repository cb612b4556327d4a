"""Samples that the engine draws for many positions at once."""

from __future__ import annotations

import numpy as np
import pytest
from millstream import _engine
from millstream._order.drawn import drawn_samples

KEY = (0, 7)


@pytest.mark.parametrize("draws", [None, 300])
def test_many_positions_are_drawn_like_one(draws: int | None) -> None:
    order = _engine.shuffle(200) if draws is None else _engine.replacement(200, draws)
    rng = np.random.default_rng(0)
    for positions in (
        np.arange(200),
        np.arange(200)[::-1],
        rng.integers(0, 200, 500),
        np.array([5, 6, 7, 7, 8, 1, 2], np.int32),
        np.zeros(0, np.int64),
    ):
        before = positions.copy()
        drawn = drawn_samples(200, draws, KEY, 3, positions)
        expected = [order.sample_at(KEY, 3, int(position)) for position in positions]
        assert drawn.tolist() == expected
        np.testing.assert_array_equal(positions, before)


@pytest.mark.parametrize("position", [-1, 200])
def test_positions_outside_the_epoch(position: int) -> None:
    with pytest.raises(ValueError, match=f"position {position} is outside the epoch"):
        drawn_samples(200, None, KEY, 0, np.array([0, position]))
