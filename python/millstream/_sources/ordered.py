"""What sources of samples share: an order, parts of them, and single samples."""

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
from millstream._order.orders import Order, Part, Sequential, order_of, split_sizes
from millstream._run.state import key_words, state_words
from millstream._sources.source import SampleSource

Spec = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of a field."""


class OrderedSource(Description, SampleSource):
    """A source of the engine's, an order, and the tree of the source's fields.

    Subclasses are dataclasses with a field ``ordering`` that call ``_open``.
    """

    ordering: Any
    _native: _engine.Source
    _tree: Tree
    _names: list[str]
    _order: Order

    def _open(self, native: _engine.Source, tree: Tree = None) -> None:
        """``tree`` has the positions of the source's fields for leaves.

        Without it, samples are dicts of the fields. Raises ``ValueError`` where the
        order does not fit the samples.
        """
        order = order_of(self.ordering)
        if tree is None:
            tree = {name: i for i, (name, _, _) in enumerate(native.schema)}
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        names = names_of(type(self).__name__, tree)
        positions = [position for _, position in leaves]
        if names != [name for name, _, _ in native.schema]:
            # Named and ordered as arrays in memory are, to resume from their states.
            changes = {i: (n,) for i, n in zip(positions, names, strict=True)}
            native = recast(native, changes, positions)
        tree = jax.tree.unflatten(structure, range(len(names)))
        self.__dict__.update(_native=native, _tree=tree, _names=names, _order=order)
        order.native(len(native))

    @property
    def num_samples(self) -> int:
        """How many samples the order draws from."""
        return len(self._native)

    def __len__(self) -> int:
        """How many samples there are, of a part of a split its own."""
        order = self._order
        return order.count if isinstance(order, Part) else self.num_samples

    @property
    def order(self) -> Order:
        return self._order

    def native(self) -> tuple[_engine.Source, Tree, list[str]]:
        return self._native, self._tree, list(self._names)

    def __getitem__(self, index: Any) -> Any:
        """One sample as NumPy arrays, or for several of them a source.

        Several are a slice, a vector of indices or a mask; see ``Subset``.
        """
        from millstream._sources.combine import Subset

        if isinstance(index, slice | range) or np.ndim(index) > 0:
            return Subset(self, index)
        position = operator.index(index)
        part = self._order
        if not isinstance(part, Part):
            return sample_at(self, position)
        if not -part.count <= position < part.count:
            raise IndexError(f"sample {position} of {part.count}")
        order = replace(part, inner=Sequential()).native(self.num_samples)
        return sample_at(self, order.sample_at((0, 0), 0, position % part.count))

    def __reduce__(self) -> Any:
        """Pickled is what the source was made of, which is opened anew."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        return _opened_anew, (type(self), given, self._order)

    def split(
        self, *parts: float, seed: Any = 0, shuffle: bool = True, ordering: Any = None
    ) -> list[OrderedSource]:
        """One source for each part: fractions, or counts of samples.

        Which samples go where is drawn once, by ``seed``; without ``shuffle`` the parts
        are consecutive. Each keeps this source's ordering unless it is told another.
        """
        whole = own(self)
        inner = order_of_part("split", whole.order, ordering)
        sizes = split_sizes(whole.num_samples, parts)
        words = _fixed_words(seed) if flag("split: shuffle", shuffle) else None
        starts = np.cumsum([0, *sizes])
        return [
            whole._with(Part(inner, int(first), size, (0, 0), words))
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
        """``count`` pairs (training, validation): each sample validates once."""
        whole = own(self)
        n = whole.num_samples
        order = order_of_part("folds", whole.order, ordering)
        count = whole_number("folds: count", count, 0)
        if not 2 <= count <= n:
            raise ValueError(f"{count} folds cannot be made of {n} samples")
        words = _fixed_words(seed) if flag("folds: shuffle", shuffle) else None
        edges = [n * i // count for i in range(count + 1)]
        pairs = []
        for first, end in itertools.pairwise(edges):
            size = end - first
            training = Part(order, 0, n - size, (first, size), words)
            validation = Part(order, first, size, (0, 0), words)
            pairs.append((whole._with(training), whole._with(validation)))
        return pairs

    def _with(self, order: Order) -> Self:
        """The same samples in another order."""
        order.native(self.num_samples)
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, ordering=order, _order=order)
        for made in ("_program", "_step"):
            twin.__dict__.pop(made, None)
        return twin


def _opened_anew(kind: Any, given: dict[str, Any], order: Order) -> OrderedSource:
    source: OrderedSource = object.__new__(kind)
    source.__dict__.update(given)
    source.__post_init__()  # type: ignore[attr-defined]
    return source if source.order == order else source._with(order)


def order_of_part(who: str, order: Order, ordering: Any) -> Order:
    """What orders a part: ``ordering``, or where that is None what orders the whole.

    Raises ``ValueError`` where the latter speaks of samples that a part does not have,
    or has under other numbers.
    """
    if ordering is not None:
        return order_of(ordering)
    if order.names_samples:
        raise ValueError(
            f"{who}: {type(order).__name__} orders samples by their numbers in the "
            "whole source, which are others in a part: say ordering="
        )
    return order


def own(source: Any) -> Any:
    """The source, or of a part of a split a source with none but its samples.

    The latter lists them, so it takes 8 bytes a sample.
    """
    order = source.order
    if not isinstance(order, Part):
        return source
    from millstream._sources.combine import Subset

    native, _, _ = source.native()
    listed = replace(order, inner=Sequential())
    n = source.num_samples
    plan = _engine.plan(native, listed.native(n), order.count, "drop", [], [])
    words = np.asarray(state_words(plan.check_word, 0))
    return Subset(source._with(Sequential()), plan.indices(words), order.inner)


def sample_at(source: SampleSource, index: int) -> Tree:
    """Sample ``index``, counted from the end when negative, as NumPy arrays."""
    count = source.num_samples
    if not -count <= index < count:
        raise IndexError(f"sample {index} of {count}")
    arrays = source.arrays() if source.device() is not None else None
    native, tree, _ = source.native()
    if arrays is not None:
        values = [np.asarray(array[index]) for array in arrays]
    else:
        values = [field[0, ...] for field in native.read(np.array([index % count]))]
    return jax.tree.map(lambda position: values[position], tree)


def name_of(path: Any) -> str:
    """The path of a leaf, such as "image" or "views/0"."""
    return jax.tree_util.keystr(path, simple=True, separator="/") or "value"


def names_of(who: str, tree: Tree) -> list[str]:
    """The names of the leaves; ``ValueError`` where two of them have one name."""
    paths: dict[str, Any] = {}
    for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = name_of(path)
        if name in paths:
            one, other = map(jax.tree_util.keystr, (paths[name], path))
            raise ValueError(f"{who}: {one} and {other} are both named '{name}'")
        paths[name] = path
    return list(paths)


def recast(
    native: _engine.Source,
    changes: dict[int, tuple[Any, ...]],
    order: list[int] | None = None,
) -> _engine.Source:
    """The source with some fields changed: (name, dtype, shape, transposed).

    What is left off at the end stays as it is; ``order`` lists the fields anew.
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


def check_alike(who: str, what: str, sources: Sequence[Any]) -> None:
    """Raises ``ValueError`` unless all are of one kind of samples, on one device.

    Messages begin with ``who`` and call the sources ``what`` with their numbers.
    """
    first, tree, _ = sources[0].native()
    structure = jax.tree.structure(tree)
    for i, source in enumerate(sources[1:], start=1):
        other, other_tree, _ = source.native()
        its: Any = jax.tree.structure(other_tree)
        if its != structure:
            raise ValueError(
                f"{who}: samples of {what} 0 are {structure}, "
                f"those of {what} {i} are {its}"
            )
        if source.beside != sources[0].beside:
            raise ValueError(
                f"{who}: what is no array in samples of {what} 0 is "
                f"{list(sources[0].beside)}, in those of {what} {i} "
                f"{list(source.beside)}"
            )
        for a, b in zip(first.schema, other.schema, strict=True):
            if a != b:
                raise ValueError(
                    f"{who}: '{a[0]}' is {described(a)} in {what} 0 "
                    f"and {described(b)} in {what} {i}"
                )
    check_device(who, [f"{what} {i}" for i in range(len(sources))], sources)


def check_device(who: str, names: Sequence[str], sources: Sequence[Any]) -> None:
    """Raises ``ValueError`` unless all samples are held by one device, or the host."""
    for name, source in zip(names, sources, strict=True):
        if source.device() != sources[0].device():
            raise ValueError(
                f"{who}: {names[0]} is held by {sources[0].device() or 'the host'}, "
                f"{name} by {source.device() or 'the host'}"
            )


def checked_source(who: str, what: str, source: Any) -> SampleSource:
    """Returns ``source``; raises ``TypeError`` unless it is a source of samples."""
    if not isinstance(source, SampleSource):
        raise TypeError(
            f"{who}: {what} is of type {type(source).__name__}, not a source of "
            "samples; stages go after it"
        )
    return source


def described(spec: Spec) -> str:
    """A field's dtype and shape, as "uint8[28, 28]"."""
    _, dtype, shape = spec
    return f"{dtype}{list(shape)}"


def _fixed_words(seed: Any) -> tuple[int, int]:
    high, low = key_words(seed)
    return int(high), int(low)
