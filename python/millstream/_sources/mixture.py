"""A source that mixes other sources in exact proportions."""

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

MAX_TOTAL_WEIGHT = (1 << 31) - 1
"""The largest sum of weights that the engine accepts."""


@public
def mix(
    sources: Sequence[SampleSource],
    weights: Sequence[float] | None = None,
    *,
    num_samples: int | None = None,
) -> Mixture:
    """Returns a source that draws from ``sources`` in proportion to ``weights``.

    The proportions hold at every position, not only on average. Among the first L
    samples, a source with share w has L * w samples, to within 2 (to within 1/2 if
    there are two sources).

    Each source keeps its order and has its own epochs and its own seed. A small source
    starts its next epoch, with a new shuffle, while a large one is still in its first.
    The mixture is one endless sequence. An epoch of the mixture has the next
    ``num_samples`` samples of it. No source restarts when an epoch of the mixture
    begins. A saved state resumes exactly.

    Args:
      sources: Sources whose samples have the same structure, dtypes and shapes.
      weights: One number per source. Whole numbers, and fractions with a small common
        denominator such as 0.7 and 0.3, are exact. Other weights are rounded to 30
        bits. None uses the lengths of the sources' epochs. Then, if
        ``num_samples`` is None too, an epoch has every sample once. With 2^31 samples
        or more these weights may be rounded, and a few samples come twice or move to
        the next epoch.
      num_samples: The number of samples in an epoch. None takes the sum of the
        sources' epochs.
    """
    return Mixture(tuple(sources), weights, num_samples)


@dataclass(frozen=True, eq=False)
class MixtureOrder(Order):
    """An order that alternates between the orders of several components.

    ``components`` has (order, number of samples) of each component. The samples of all
    components are numbered consecutively.
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
            raise ValueError(
                f"MixtureOrder: the components have {total} samples, the source has {n}"
            )
        orders = [order.native(size) for order, size in self.components]
        pairs = list(zip(orders, self.weights, strict=True))
        return _engine.mixture(pairs, self.length(n))


@dataclass(frozen=True, eq=False)
class Mixture(Combined, OrderedSource):
    """The result of `mix`.

    ``len(mixture)`` is the sum of the sources' samples, and ``mixture[i]`` is sample i
    of the concatenated sources. The order decides how often each sample comes and how
    many samples an epoch has. A subset or a split of a mixture needs ``ordering=``.
    """

    sources: tuple[SampleSource, ...]
    weights: Sequence[float] | None = None
    epoch_samples: int | None = None
    ordering: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("mix: sources is empty. Pass at least one source.")
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
        order = MixtureOrder(components, whole_weights(weights, len(components)), count)
        self.__dict__.update(ordering=order, _components=self.sources)
        natives = [source.native()[0] for source in self.sources]
        self._open(_engine.concatenated(natives), self.sources[0].native()[1])


def whole_weights(weights: Sequence[float], count: int) -> tuple[int, ...]:
    """Returns whole numbers in the proportions of ``weights`` for the engine.

    Their sum is at most ``MAX_TOTAL_WEIGHT``. The proportions are exact if the weights
    have a common denominator up to that limit, or if they differ from fractions with
    small denominators only by floating-point error. Otherwise each weight's share of
    the sum is rounded to a multiple of 2^-30.
    """
    if len(weights) != count:
        raise ValueError(f"mix: found {len(weights)} weights for {count} sources")
    if isinstance(weights, Mapping | str):
        raise TypeError(f"mix: expected weights to be a list, found {weights!r}")
    for i, weight in enumerate(weights):
        exact = isinstance(weight, int)  # which may be too large for a float
        value = weight if exact else number(f"mix: weight {i}", weight)
        if value < 0 or not (exact or math.isfinite(value)):
            raise ValueError(
                f"mix: weight {i} is {weight}. Weights must be finite and not negative."
            )
    ratios = [Fraction(w if isinstance(w, int | float) else float(w)) for w in weights]
    total = sum(ratios)
    if not total:
        raise ValueError("mix: all weights are 0. At least one must be positive.")
    shares = [ratio / total for ratio in ratios]
    near = [share.limit_denominator(1 << 15) for share in shares]
    for fractions in (shares, near):
        common = math.lcm(*(f.denominator for f in fractions))
        close = all(
            abs(f - share) < Fraction(1, 10**12) and bool(f) == bool(share)
            for f, share in zip(fractions, shares, strict=True)
        )
        if close and sum(fractions) == 1 and common <= MAX_TOTAL_WEIGHT:
            return tuple(int(f * common) for f in fractions)
    return tuple(max(1, round(s * (1 << 30))) if s else 0 for s in shares)
