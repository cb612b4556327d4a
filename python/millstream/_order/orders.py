"""The orders that ``ordering=`` accepts."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from millstream import _engine
from millstream._core.arguments import number, whole
from millstream._core.description import Description
from millstream._core.public import public
from millstream._order import jnp_orders

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@public
class Order(Description):
    """Which sample comes at a position: a pure function of (seed, epoch, position)."""

    names_samples: ClassVar[bool] = False
    """Whether it refers to samples by index, so that it cannot apply to a subset."""

    def native(self, n: int) -> _engine.Order:
        """The engine's order of ``n`` samples."""
        raise TypeError(
            f"{type(self).__name__} is not a complete order. Use Shuffle, Sequential, "
            "WithReplacement, Weighted or Listed."
        )

    def traced(self, n: int) -> jnp_orders.Order | None:
        """The same order in `jnp`, or None if only the engine implements it."""
        return None

    def length(self, n: int) -> int:
        """The number of positions in one epoch."""
        return n

    @property
    def depends_on_epoch(self) -> bool:
        """Whether two epochs may have different orders."""
        return True


@public
@dataclass(frozen=True, eq=False)
class Sequential(Order):
    """0, 1, 2, ... in every epoch."""

    depends_on_epoch = False

    def native(self, n: int) -> _engine.Order:
        return _engine.sequential(n)

    def traced(self, n: int) -> jnp_orders.Order:
        return jnp_orders.sequential(n)


@public
@dataclass(frozen=True, eq=False)
class Shuffle(Order):
    """Every sample once per epoch, in a different random order in each epoch.

    Use ``window`` for disks and networks with slow random access. Then blocks of
    ``block_size`` samples (1024 by default) are shuffled first, and then the samples
    within each group of ``window`` shuffled blocks. An epoch reads all blocks of one
    group before the next group. There is no shuffle buffer.
    """

    window: int | None = field(default=None, kw_only=True)
    block_size: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("window", "block_size"):
            _set_whole(self, name, math.inf)
        if self.window is None and self.block_size is not None:
            raise ValueError(
                f"Shuffle: block_size={self.block_size} needs a window. Pass window=, "
                "the number of blocks to shuffle together."
            )

    def __repr__(self) -> str:
        if self.window is None:
            return "Shuffle()"
        return f"Shuffle(window={self.window}, block_size={self.block_size})"

    def native(self, n: int) -> _engine.Order:
        if self.window is None:
            return _engine.shuffle(n)
        # The engine takes 64-bit integers. Any larger value means all samples.
        most = (1 << 63) - 1
        block = min(self.block_size or 1024, most)
        return _engine.windowed_shuffle(n, block, min(self.window, most))

    def traced(self, n: int) -> jnp_orders.Order | None:
        return jnp_orders.shuffle(n) if self.window is None else None


@public
@dataclass(frozen=True, eq=False)
class WithReplacement(Order):
    """Random draws with replacement: ``num_samples`` per epoch.

    By default an epoch has as many draws as there are samples.
    """

    num_samples: int | None = None

    def __post_init__(self) -> None:
        _set_whole(self, "num_samples")

    def length(self, n: int) -> int:
        return n if self.num_samples is None else self.num_samples

    def native(self, n: int) -> _engine.Order:
        return _engine.replacement(n, self.length(n))


@public
@dataclass(frozen=True, eq=False)
class Weighted(Order):
    """Random draws with replacement, with probabilities proportional to ``weights``.

    ``weights`` has one number per sample. An epoch has ``num_samples`` draws, by
    default as many as there are samples.
    """

    names_samples = True

    weights: ArrayLike
    num_samples: int | None = None

    def __post_init__(self) -> None:
        weights = np.ascontiguousarray(self.weights, np.float64)
        if weights.ndim != 1:
            raise ValueError(
                f"Weighted: weights must be a vector; found shape {weights.shape}"
            )
        object.__setattr__(self, "weights", weights)
        _set_whole(self, "num_samples")

    def length(self, n: int) -> int:
        return n if self.num_samples is None else self.num_samples

    def native(self, n: int) -> _engine.Order:
        weights = np.asarray(self.weights)
        if len(weights) != n:
            raise ValueError(
                f"Weighted: expected one weight per sample, found {len(weights)} "
                f"weights for {n} samples"
            )
        return _engine.weighted(weights, self.length(n))


@public
@dataclass(frozen=True, eq=False)
class Listed(Order):
    """The samples with the given ``indices``, in that order or shuffled in each epoch.

    Each row of a matrix is a list of its own: epoch e uses row e modulo the number of
    rows.
    """

    names_samples = True

    indices: ArrayLike
    shuffle: bool = False

    def __post_init__(self) -> None:
        given = np.asarray(self.indices)
        if given.dtype.kind not in "iu" or given.ndim not in (1, 2) or given.size == 0:
            raise ValueError(
                "Listed: indices must be a vector or a matrix of at least one integer; "
                f"found {given.dtype}{list(given.shape)}"
            )
        lists = np.ascontiguousarray(np.atleast_2d(given), np.int64)
        object.__setattr__(self, "indices", lists)

    def length(self, n: int) -> int:
        return int(np.asarray(self.indices).shape[1])

    @property
    def depends_on_epoch(self) -> bool:
        return self.shuffle or len(np.asarray(self.indices)) > 1

    def native(self, n: int) -> _engine.Order:
        inner = Shuffle() if self.shuffle else Sequential()
        order = inner.native(self.length(n))
        return _engine.listed(order, np.asarray(self.indices).reshape(-1), n)


@dataclass(frozen=True, eq=False)
class SplitRange(Order):
    """The samples of one split, in the order ``inner``.

    They are the ``count`` positions from ``first`` on, skipping ``gap`` (start,
    length). With ``seed`` these are positions in a fixed permutation of all samples.
    Without it they are sample indices.
    """

    inner: Order
    first: int
    count: int
    gap: tuple[int, int] = (0, 0)
    seed: tuple[int, int] | None = None

    def length(self, n: int) -> int:
        return self.inner.length(self.count)

    @property
    def depends_on_epoch(self) -> bool:
        return self.inner.depends_on_epoch

    def native(self, n: int) -> _engine.Order:
        inner = self.inner.native(self.count)
        return _engine.split_order(
            inner, n, self.first, self.count, self.gap, self.seed
        )

    def traced(self, n: int) -> jnp_orders.Order | None:
        inner = self.inner.traced(self.count)
        if inner is None:
            return None
        return jnp_orders.split_order(
            inner, n, first=self.first, gap=self.gap, seed=self.seed
        )


def _set_whole(order: Order, name: str, most: float = 1 << 62) -> None:
    """Stores the field ``name`` as an int of at least 1, unless it is None."""
    value = getattr(order, name)
    if value is not None:
        count = whole(f"{type(order).__name__}: {name}", value, 1, most)
        object.__setattr__(order, name, count)


_NAMED: dict[str, Order] = {"shuffle": Shuffle(), "sequential": Sequential()}


def order_of(ordering: Any) -> Order:
    """The `Order` for the argument ``ordering``. Raises ``ValueError`` if unknown."""
    if isinstance(ordering, Order):
        return ordering
    if isinstance(ordering, str) and ordering in _NAMED:
        return _NAMED[ordering]
    if isinstance(ordering, type) and issubclass(ordering, Order):
        name = ordering.__name__
        raise ValueError(
            f"ordering: expected an order, found the class {name}. Call it: {name}()"
        )
    raise ValueError(
        f"unknown ordering {ordering!r}: expected 'shuffle', 'sequential' or an Order "
        "(Shuffle, Sequential, WithReplacement, Weighted, Listed)"
    )


def split_sizes(n: int, parts: tuple[float, ...]) -> list[int]:
    """How many of ``n`` samples go to each part of a split.

    ``parts`` are counts of samples, or fractions, which are rounded. Fractions that add
    up to 1 use every sample.
    """
    if not parts:
        raise ValueError("a split needs at least one part. Pass counts or fractions.")
    for part in parts:
        if isinstance(part, bool):
            raise TypeError(
                f"a part must be a fraction or a number of samples, not {part}"
            )
        number("a part", part)
    try:
        sizes = [operator.index(part) for part in parts]  # type: ignore[arg-type]
    except TypeError:
        if any(not 0 < part <= 1 for part in parts) or sum(parts) > 1 + 1e-9:
            raise ValueError(
                "the fractions of a split must be in (0, 1] and add up to at most 1; "
                f"found {parts}"
            ) from None
        edges = np.rint(np.cumsum((0.0, *parts)) * n).astype(int)
        sizes = [int(size) for size in np.diff(edges)]
    if any(size < 1 for size in sizes) or sum(sizes) > n:
        raise ValueError(
            f"{n} samples cannot be split into parts of {sizes}: every part needs at "
            f"least 1 sample, and together they may have at most {n}"
        )
    return sizes
