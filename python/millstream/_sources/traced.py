"""A source of samples over arrays that may be tracers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._order.jnp_orders import MOST_SAMPLES
from millstream._order.orders import Order, order_of
from millstream._sources.advice import advice_for
from millstream._sources.arrays import DTYPES
from millstream._sources.ordered import OrderedSource, name_of


@public
@dataclass(frozen=True, eq=False)
class TracedSource(OrderedSource):
    """A pytree of arrays that may be tracers. Their rows are samples.

    Build the loader inside your jitted function, for example to draw minibatches from
    a rollout. XLA gathers the rows and runs all stages. The batches are those of
    ``ArraySampleSource`` for the same data, order and seed.

    A loader over tracers is valid only inside the function that made them. Keep the
    state, the carry and the outputs, but not the loader.

    Args:
      data: A pytree of arrays that share their leading dimension, which is less than
        2^31.
      ordering: "shuffle", "sequential", or an order that XLA can compute. Building the
        source raises ``ValueError`` for other orders.
    """

    data: Tree
    ordering: Any = "shuffle"
    _leaves: list[Any] = field(init=False, repr=False, compare=False)

    needs_tracing = True

    def __post_init__(self) -> None:
        paths, structure = jax.tree_util.tree_flatten_with_path(self.data)
        if not paths:
            raise ValueError(
                "TracedSource: data contains no arrays. Pass at least one array."
            )
        leaves = [_leaf(name_of(path), x) for path, x in paths]
        n = leaves[0].shape[0]
        if n >= MOST_SAMPLES:
            raise ValueError(
                f"TracedSource needs fewer than 2^31 samples, not {n}. Use "
                "ArraySampleSource."
            )
        _check_order(order_of(self.ordering), n)
        # The engine only checks these fields. It never reads them.
        specs: Any = [
            (name_of(path), x.dtype.name, list(x.shape), 0, 0, None, None)
            for (path, _), x in zip(paths, leaves, strict=True)
        ]
        self.__dict__["_leaves"] = leaves
        tree = jax.tree.unflatten(structure, range(len(leaves)))
        self._open(_engine.arrays(specs), tree)

    def arrays(self) -> list[Any]:
        return list(self._leaves)

    def _with_order(self, order: Order) -> Self:
        _check_order(order, self.num_samples)
        return super()._with_order(order)

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(
            "a TracedSource has no samples in host memory. Index its arrays instead: "
            "jax.tree.map(lambda x: x[index], data)"
        )


def _check_order(order: Order, n: int) -> None:
    if n and order.traced(n) is None:
        raise ValueError(
            f"TracedSource: XLA cannot compute the order {order!r}. Use 'shuffle' or "
            "'sequential', or ArraySampleSource outside jit."
        )


def _leaf(name: str, value: Any) -> Any:
    """Returns ``value`` as a JAX array with at least one axis."""
    if isinstance(value, jax.Array) and jnp.issubdtype(
        value.dtype, jax.dtypes.prng_key
    ):
        raise TypeError(
            f"'{name}' is an array of typed JAX keys. Pass its jax.random.key_data."
        )
    try:
        array = jnp.asarray(value)
    except TypeError as error:
        raise TypeError(f"'{name}' is not an array. {advice_for(value)}.") from error
    if array.dtype.name not in DTYPES:
        raise TypeError(
            f"'{name}' is an array of {array.dtype}, which batches cannot hold"
        )
    if array.ndim == 0:
        raise ValueError(
            f"'{name}' is a scalar. Pass an array with one row per sample."
        )
    return array
