"""Selects the samples of a pipeline that a filter keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from millstream import _engine
from millstream._core.description import Tree
from millstream._order.orders import Sequential
from millstream._run.state import state_words
from millstream._sources.arrays import host_copy
from millstream._sources.combine import Subset
from millstream._sources.ordered import resolve_split
from millstream._stages.filter import Samples
from millstream._workers.host_values import host_value_rows

if TYPE_CHECKING:
    from millstream._run.builder import Builder

_ROWS = 64
"""How many samples are read at once."""


@dataclass(frozen=True)
class Filtering:
    """A source whose samples a filter selects. A part of a split becomes a subset."""

    stage: str
    source: Any
    indices: np.ndarray
    """The index of each sample in the source that ``which_samples`` refers to."""

    @classmethod
    def of(cls, builder: Builder, number: int) -> Self:
        """Returns the source of ``builder`` for a filter, which is stage ``number``.

        Raises ``ValueError`` if the filter cannot stand here.
        """
        stage = builder.stage
        if builder.batched:
            raise ValueError(f"{stage}, keeps samples. Put it before BatchTransform.")
        for earlier in builder.placed:
            if any(transform.draws for transform in earlier.transforms):
                raise ValueError(
                    f"{stage}, cannot follow {earlier}, which draws random numbers. "
                    f"Put stage {number} before stage {earlier.number}."
                )
        source: Any = resolve_split(builder.head)
        if source.order.names_samples:
            raise ValueError(
                f"{stage}: the order {type(source.order).__name__} refers to samples "
                "by their indices in the whole source. Use a Subset of the source with "
                "ordering=, or mix subsets of the sources."
            )
        kept = builder.kept
        if kept is None:
            is_part = source is not builder.head
            kept = np.asarray(source.selected if is_part else range(source.num_samples))
        return cls(stage, source, kept)

    def subset(
        self,
        choose: Callable[[Samples], np.ndarray],
        transforms: list[_engine.Transform],
        tree: Tree,
        skip: bool,
    ) -> tuple[Subset, np.ndarray]:
        """Returns the samples for which ``choose`` returns True, and their indices.

        ``choose`` sees the samples after ``transforms``, with the structure ``tree``.
        With ``skip`` it does not see samples that always fail.
        """

        def read() -> Iterator[tuple[int, Tree]]:
            plan = self._plan(transforms, skip)
            if plan.traits.draws:
                raise ValueError(
                    f"{self.stage}, calls its predicate once for every sample, but the "
                    f"samples of {type(self.source).__name__} depend on the seed and "
                    "the epoch. Use a source whose samples are always the same."
                )
            return _samples(plan, tree)

        kept = choose(Samples(self.indices, read))
        if not kept.any():
            raise ValueError(
                f"{self.stage}, keeps none of {len(kept)} samples. Change the "
                "predicate."
            )
        return Subset(self.source, kept), self.indices[kept]

    def _plan(self, transforms: list[_engine.Transform], skip: bool) -> _engine.Plan:
        """Returns a plan that reads all samples in sequential order."""
        native, _, _ = self.source.native()
        if self.source.device() is not None:
            native = host_copy(self.source)
        order = Sequential().native(len(native))
        return _engine.plan(native, order, _ROWS, "pad", transforms, [], skip)


def _samples(plan: _engine.Plan, tree: Tree) -> Iterator[tuple[int, Tree]]:
    """Yields ``(i, sample)`` with NumPy arrays and host fields.

    The plan must read the samples in sequential order. Skipped samples are left out.
    """
    loader = _engine.loader(plan, [dtype for _, dtype, _ in plan.schema], 0, -1)
    words: Any = state_words(plan.check_word, 0)
    for step in range(plan.steps):
        (*fields, mask), host_values = loader.take_with_host_values(words)
        values = host_value_rows(host_values, len(mask))
        for k in np.flatnonzero(mask):
            sample = jax.tree.map(lambda at, f=fields, k=k: f[at][k, ...], tree)
            if values[k] is not None:
                sample = {**sample, **values[k]}
            yield step * len(mask) + int(k), sample
        words = plan.next_state(words)
