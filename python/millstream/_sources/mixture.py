"""Several sources as one, in exact proportions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from millstream import _engine
from millstream._core.arguments import number, whole
from millstream._core.public import public
from millstream._order.orders import Order
from millstream._sources.combine import Combined
from millstream._sources.ordered import OrderedSource, check_alike, checked_source
from millstream._sources.source import SampleSource

MOST_WEIGHT = (1 << 31) - 1
"""What the engine's weights add up to at most."""


@public
def mix(
    sources: Sequence[SampleSource],
    weights: Sequence[float] | None = None,
    *,
    num_samples: int | None = None,
) -> Mixture:
    """One source that takes from each of ``sources`` as often as its weight says.

    The proportions hold in every stretch of samples, not on average: of the first L, a
    source of share w has L * w to within 2, or to within 1/2 where there are two
    sources. Each source keeps its ordering and goes through epochs of its own, with a
    seed of its own: a small one begins again, shuffled anew, while a large one goes on.
    Epochs of the mixture are stretches of that one endless sequence; nothing restarts
    with them. All of it is arithmetic, so a state resumes exactly.

    Args:
      sources: Sources whose samples have the same structure, dtypes and shapes.
      weights: A number for each. Whole numbers, and fractions with a small common
        denominator such as 0.7 and 0.3, are exact; others are rounded to 30 bits.
        None weighs sources by their epochs, so that with ``num_samples=None`` an epoch
        has every sample once; from 2^31 samples on these weights may be rounded too,
        and a few samples come twice or in the next epoch.
      num_samples: The samples of an epoch; None for as many as the epochs of all
        sources have together.
    """
    return Mixture(tuple(sources), weights, num_samples)


@dataclass(frozen=True, eq=False)
class MixtureOrder(Order):
    """Several orders in turn: of samples that stand one component after the other.

    ``components`` are orders with the number of samples that each has.
    """

    names_samples = True

    components: tuple[tuple[Order, int], ...] = field(repr=False)
    weights: tuple[int, ...]
    num_samples: int | None = None

    def length(self, n: int) -> int:
        if self.num_samples is not None:
            return self.num_samples
        return sum(order.length(size) for order, size in self.components)

    def native(self, n: int) -> _engine.Order:
        total = sum(size for _, size in self.components)
        if total != n:
            raise ValueError(f"a mixture of {total} samples is no order of {n}")
        orders = [order.native(size) for order, size in self.components]
        pairs = list(zip(orders, self.weights, strict=True))
        return _engine.mixture(pairs, self.length(n))


@dataclass(frozen=True, eq=False)
class Mixture(Combined, OrderedSource):
    """What `mix` makes.

    Its samples are those of its sources, numbered one source after the other: so many
    are ``len``, and ``mixture[i]`` is one of them. How often each comes, and how many
    an epoch has, is up to its order, so a part of it needs an ordering of its own.
    """

    sources: tuple[SampleSource, ...]
    weights: Sequence[float] | None = None
    epoch_samples: int | None = None
    ordering: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("mix: there are no sources to mix")
        for i, source in enumerate(self.sources):
            checked_source("mix", f"component {i}", source)
        check_alike("mix", "component", self.sources)
        count = self.epoch_samples
        if count is not None:
            count = whole("mix: num_samples", count, 1, 1 << 62)
        components = tuple((s.order, s.num_samples) for s in self.sources)
        weights = self.weights
        if weights is None:
            weights = [order.length(size) for order, size in components]
        parts = whole_weights(weights, len(components))
        order = MixtureOrder(components, parts, count)
        self.__dict__.update(ordering=order, _parts=self.sources)
        natives = [source.native()[0] for source in self.sources]
        self._open(_engine.concatenated(natives), self.sources[0].native()[1])


def whole_weights(weights: Sequence[float], count: int) -> tuple[int, ...]:
    """Whole numbers in the proportions of ``weights``, of a sum that the engine takes.

    They are the smallest where the proportions are exact, or are those of fractions
    with small denominators but for rounding; else each is rounded to 2^-30.
    """
    if len(weights) != count:
        raise ValueError(f"mix: there are {len(weights)} weights for {count} sources")
    if isinstance(weights, Mapping | str):
        raise TypeError(f"mix: weights are a list of numbers, not {weights!r}")
    for i, weight in enumerate(weights):
        exact = isinstance(weight, int)  # of any size
        value = weight if exact else number(f"mix: weight {i}", weight)
        if value < 0 or not (exact or math.isfinite(value)):
            raise ValueError(
                f"mix: weight {i} is {weight}; weights are finite and not negative"
            )
    ratios = [Fraction(w if isinstance(w, int | float) else float(w)) for w in weights]
    total = sum(ratios)
    if not total:
        raise ValueError("mix: the weights add up to 0; one must be positive")
    shares = [ratio / total for ratio in ratios]
    near = [share.limit_denominator(1 << 15) for share in shares]
    for fractions in (shares, near):
        common = math.lcm(*(f.denominator for f in fractions))
        close = all(
            abs(f - share) < Fraction(1, 10**12) and bool(f) == bool(share)
            for f, share in zip(fractions, shares, strict=True)
        )
        if close and sum(fractions) == 1 and common <= MOST_WEIGHT:
            return tuple(int(f * common) for f in fractions)
    return tuple(max(1, round(s * (1 << 30))) if s else 0 for s in shares)
