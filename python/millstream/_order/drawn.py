"""Draws samples in the orders of the engine, without JAX."""

from __future__ import annotations

import functools

import numpy as np

from millstream import _engine


@functools.lru_cache(64)
def _order(samples: int, draws: int | None) -> _engine.Order:
    if draws is None:
        return _engine.shuffle(samples)
    return _engine.replacement(samples, draws)


def drawn_samples(
    samples: int,
    draws: int | None,
    key: tuple[int, int],
    epoch: int,
    positions: np.ndarray,
) -> np.ndarray:
    """Returns the samples at some positions of an epoch.

    An epoch is a shuffle of all samples or, if ``draws`` is not None, that many draws
    with replacement. It depends on the words of ``key`` and on ``epoch``.
    """
    drawn = np.array(positions, np.int64)
    _order(samples, draws).samples_at(key, epoch, drawn)
    return drawn
