"""The common part of all sources of samples: orders, splits and single samples."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Self

import jax
import numpy as np

from millstream import _engine
from millstream._core.arguments import flag
from millstream._core.arguments import whole as whole_number
from millstream._core.description import Description, Tree
from millstream._order.orders import (
    Order,
    Sequential,
    SplitRange,
    order_of,
    split_sizes,
)
from millstream._run.state import key_words, state_words, words_at
from millstream._sources.advice import advice_for
from millstream._sources.source import SampleSource, Source
from millstream._workers.host_values import host_value_rows

Spec = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of a field."""


class OrderedSource(Description, SampleSource):
    """A source of the engine with an order and a pytree of its fields.

    A subclass is a dataclass with a field ``ordering``. Its ``__post_init__`` calls
    ``_open``.
    """

    ordering: Any
    _native: _engine.Source
    _tree: Tree
    _names: list[str]
    _order: Order

    def _open(self, native: _engine.Source, tree: Tree = None) -> None:
        """Sets the engine's source and the structure of a sample.

        The leaves of ``tree`` are positions in ``native.schema``. Without ``tree``, a
        sample is a dict of the fields. Raises ``ValueError`` if the order does not fit
        the number of samples.
        """
        order = order_of(self.ordering)
        if tree is None:
            tree = {name: i for i, (name, _, _) in enumerate(native.schema)}
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        names = names_of(type(self).__name__, tree)
        positions = [position for _, position in leaves]
        if names != [name for name, _, _ in native.schema]:
            # Fields get the names and the order that ArraySampleSource would use, so
            # that states can be moved between the two.
            changes = {i: (n,) for i, n in zip(positions, names, strict=True)}
            native = recast(native, changes, positions)
        tree = jax.tree.unflatten(structure, range(len(names)))
        self.__dict__.update(_native=native, _tree=tree, _names=names, _order=order)
        order.native(len(native))

    @property
    def num_samples(self) -> int:
        """The number of samples that the order draws from."""
        return len(self._native)

    def __len__(self) -> int:
        """The number of samples. A part of a split counts only its own samples."""
        order = self._order
        return order.count if isinstance(order, SplitRange) else self.num_samples

    @property
    def order(self) -> Order:
        return self._order

    def native(self) -> tuple[_engine.Source, Tree, list[str]]:
        return self._native, self._tree, list(self._names)

    def __getitem__(self, index: Any) -> Any:
        """Returns one sample as NumPy arrays, or a ``Subset`` of several samples.

        The sample includes host fields. A slice, a vector of indices or a mask selects
        several samples.
        """
        from millstream._sources.combine import Subset

        if isinstance(index, slice | range) or np.ndim(index) > 0:
            return Subset(self, index)
        position = operator.index(index)
        part = self._order
        if not isinstance(part, SplitRange):
            return sample_at(self, position)
        if not -part.count <= position < part.count:
            raise IndexError(_no_such_sample(position, part.count))
        order = replace(part, inner=Sequential()).native(self.num_samples)
        return sample_at(self, order.sample_at((0, 0), 0, position % part.count))

    def __reduce__(self) -> Any:
        """Pickles the arguments of the source. Unpickling opens the source again."""
        arguments = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        return _reopen, (type(self), arguments, self._order, self.origin)

    def split(
        self, *parts: float, seed: Any = 0, shuffle: bool = True, ordering: Any = None
    ) -> list[OrderedSource]:
        """Splits the samples and returns one source per part.

        Args:
          *parts: The size of each part, as fractions or as numbers of samples.
          seed: Decides which samples each part gets.
          shuffle: False makes the parts consecutive ranges of samples.
          ordering: The order of each part. None takes the order of this source.
        """
        whole = resolve_split(self)
        inner = order_of_part("split", whole.order, ordering)
        sizes = split_sizes(whole.num_samples, parts)
        words = _fixed_words(seed) if flag("split: shuffle", shuffle) else None
        starts = np.cumsum([0, *sizes])
        return [
            whole._with_order(SplitRange(inner, int(first), size, (0, 0), words))
            for first, size in zip(starts, sizes, strict=False)
        ]

    def folds(
        self,
        count: int,
        *,
        seed: Any = 0,
        shuffle: bool = True,
        ordering: Any = None,
    ) -> list[tuple[OrderedSource, OrderedSource]]:
        """Returns ``count`` pairs of sources (training, validation).

        Each sample is in exactly one of the validation sources. The arguments are those
        of ``split``.
        """
        whole = resolve_split(self)
        n = whole.num_samples
        order = order_of_part("folds", whole.order, ordering)
        count = whole_number("folds: count", count, 0)
        if not 2 <= count <= n:
            raise ValueError(
                f"{count} folds cannot be made from {n} samples. Pass a count from 2 "
                f"to {n}."
            )
        words = _fixed_words(seed) if flag("folds: shuffle", shuffle) else None
        edges = [n * i // count for i in range(count + 1)]
        pairs = []
        for first, end in itertools.pairwise(edges):
            size = end - first
            training = SplitRange(order, 0, n - size, (first, size), words)
            validation = SplitRange(order, first, size, (0, 0), words)
            pairs.append((whole._with_order(training), whole._with_order(validation)))
        return pairs

    def _with_order(self, order: Order) -> Self:
        """Returns a copy of the source with another order."""
        order.native(self.num_samples)
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, ordering=order, _order=order)
        for cached in ("_built", "_step"):
            copy.__dict__.pop(cached, None)
        return copy


def _reopen(
    kind: Any, arguments: dict[str, Any], order: Order, origin: str | None = None
) -> OrderedSource:
    source: OrderedSource = object.__new__(kind)
    source.__dict__.update(arguments)
    source.__post_init__()  # type: ignore[attr-defined]
    if origin is not None:
        source.with_origin(origin)
    return source if source.order == order else source._with_order(order)


def order_of_part(caller: str, order: Order, ordering: Any) -> Order:
    """Returns the order of a part of a source: ``ordering``, or ``order`` for None.

    ``order`` is that of the whole source. Raises ``ValueError`` if it refers to samples
    by their indices in the whole source.
    """
    if ordering is not None:
        return order_of(ordering)
    if order.names_samples:
        raise ValueError(
            f"{caller}: the order {type(order).__name__} refers to samples by their "
            "indices in the whole source. Pass ordering=."
        )
    return order


def resolve_split(source: Any) -> Any:
    """Returns ``source``, or a ``Subset`` if it is a part of a split.

    The subset has the samples of this part. It holds 8 bytes per sample, unless the
    samples are neighbours.
    """
    order = source.order
    if not isinstance(order, SplitRange):
        return source
    from millstream._sources.combine import Subset

    if order.seed is None and not order.gap[1]:
        samples = range(order.first, order.first + order.count)
        return Subset(source._with_order(Sequential()), samples, order.inner)
    native, _, _ = source.native()
    in_order = replace(order, inner=Sequential())
    n = source.num_samples
    plan = _engine.plan(native, in_order.native(n), order.count, "drop", [], [])
    words = np.asarray(state_words(plan.check_word, 0))
    return Subset(source._with_order(Sequential()), plan.indices(words), order.inner)


def sample_at(source: SampleSource, index: int) -> Tree:
    """Returns sample ``index`` as NumPy arrays, and its host fields.

    Negative indices count from the end.
    """
    count = source.num_samples
    if not -count <= index < count:
        raise IndexError(_no_such_sample(index, count))
    arrays = source.arrays() if source.device() is not None else None
    native, tree, _ = source.native()
    if source.host_field_names:
        plan = _engine.plan(native, Sequential().native(count), 1, "drop", [], [])
        return sample_of_plan(plan, tree, index % count)
    if arrays is not None:
        values = [np.asarray(array[index]) for array in arrays]
    else:
        values = [field[0, ...] for field in native.read(np.array([index % count]))]
    return jax.tree.map(lambda position: values[position], tree)


def sample_of_plan(plan: _engine.Plan, tree: Tree, index: int) -> Tree:
    """Returns sample ``index`` as NumPy arrays, and its host fields.

    The plan must have batches of one sample in sequential order.
    """
    loader = _engine.loader(plan, [dtype for _, dtype, _ in plan.schema], 1, 0)
    words = words_at(state_words(plan.check_word, 0), 0, index)
    (*fields, _), host_values = loader.take_with_host_values(words)
    sample = jax.tree.map(lambda position: np.array(fields[position][0]), tree)
    (value,) = host_value_rows(host_values, 1)
    return sample if value is None else {**sample, **value}


def _no_such_sample(index: int, count: int) -> str:
    return f"sample {index} of {count} does not exist"


def name_of(path: Any) -> str:
    """Returns the path of a leaf as text, such as "image" or "views/0"."""
    return jax.tree_util.keystr(path, simple=True, separator="/") or "value"


def names_of(caller: str, tree: Tree) -> list[str]:
    """Returns the names of the leaves. Raises ``ValueError`` if two are the same."""
    paths: dict[str, Any] = {}
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = name_of(path)
        if name in paths:
            one, other = map(jax.tree_util.keystr, (paths[name], path))
            raise ValueError(
                f"{caller}: {one} and {other} are both named '{name}'. Rename one."
            )
        paths[name] = path
    return list(paths)


def recast(
    native: _engine.Source,
    changes: dict[int, tuple[Any, ...]],
    order: list[int] | None = None,
) -> _engine.Source:
    """Returns the source with changed fields.

    ``changes`` maps the position of a field to its new (name, dtype, shape,
    transposed). A shorter tuple leaves the rest as it is. ``order`` lists the positions
    of the fields to take, in their new order. None takes all fields.
    """
    schema = native.schema
    order = list(range(len(schema))) if order is None else order
    changed = []
    for position in order:
        change = changes.get(position, ())
        rest = (*schema[position], False)[len(change) :]
        name, dtype, shape, transposed = (*change, *rest)
        changed.append((name, dtype, list(shape), transposed))
    return _engine.recast(native, changed, order)


def check_alike(caller: str, what: str, sources: Sequence[Any]) -> None:
    """Raises ``ValueError`` unless samples of all sources have the same fields.

    The sources must also be on the same device. Messages begin with ``caller`` and name
    the sources ``what`` 0, ``what`` 1, ...
    """
    first, tree, _ = sources[0].native()
    structure = jax.tree.structure(tree)
    for i, source in enumerate(sources[1:], start=1):
        other, other_tree, _ = source.native()
        other_structure: Any = jax.tree.structure(other_tree)
        if other_structure != structure:
            raise ValueError(
                f"{caller}: samples of {what} 0 have the structure {structure}, "
                f"those of {what} {i} have {other_structure}"
            )
        if source.host_field_names != sources[0].host_field_names:
            raise ValueError(
                f"{caller}: samples of {what} 0 have the host fields "
                f"{list(sources[0].host_field_names)}, those of {what} {i} have "
                f"{list(source.host_field_names)}"
            )
        for a, b in zip(first.schema, other.schema, strict=True):
            if a != b:
                raise ValueError(
                    f"{caller}: '{a[0]}' is {described(a)} in {what} 0 "
                    f"and {described(b)} in {what} {i}"
                )
    check_device(caller, [f"{what} {i}" for i in range(len(sources))], sources)


def check_device(caller: str, names: Sequence[str], sources: Sequence[Any]) -> None:
    """Raises ``ValueError`` unless all sources are on one device or in host memory."""
    for name, source in zip(names, sources, strict=True):
        if source.device() != sources[0].device():
            raise ValueError(
                f"{caller}: {names[0]} is on {sources[0].device() or 'the host'}, "
                f"{name} is on {source.device() or 'the host'}. "
                "Move them to the same device."
            )


def checked_source(caller: str, what: str, source: Any) -> SampleSource:
    """Returns ``source``. Raises ``TypeError`` unless it is a source of samples."""
    if not isinstance(source, SampleSource):
        advice = f"Add stages to the result of {caller}"
        if not isinstance(source, Source | Description):
            advice = advice_for(source, "{}")
        raise TypeError(
            f"{caller}: expected {what} to be a source of samples, found "
            f"{type(source).__name__}. {advice}."
        )
    if source.needs_tracing:
        raise TypeError(
            f"{caller}: {type(source).__name__} cannot be combined with other sources. "
            "Combine its arrays before you make the source."
        )
    return source


def described(spec: Spec) -> str:
    """Returns a field's dtype and shape as text, such as "uint8[28, 28]"."""
    _, dtype, shape = spec
    return f"{dtype}{list(shape)}"


def _fixed_words(seed: Any) -> tuple[int, int]:
    high, low = key_words(seed)
    return int(high), int(low)
