"""Delivers JAX or NumPy arrays, and batches that a function collated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream._core.description import Tree
from millstream._delivery.host import HostDelivery
from millstream._run.built import BuiltPipeline
from millstream._sources.collated import CollatedSource
from millstream._workers.collate import Field, rebuilt
from millstream._workers.host_values import host_value_rows


class PlainDelivery(HostDelivery):
    """Delivers the batches of `millstream.torch.DataLoader`.

    Args:
      built: The pipeline. Its source may be a ``CollatedSource``.
      numpy: Whether to deliver NumPy arrays. They alias memory of the engine, which is
        not reused as long as they exist.
    """

    def __init__(self, built: BuiltPipeline, numpy: bool) -> None:
        super().__init__(built)
        self._numpy = numpy
        head = built.head
        self._collated = head if isinstance(head, CollatedSource) else None
        if numpy or self._collated is not None:
            self._may_compile = False

    def _from_slot(self, words: np.ndarray) -> tuple[Tree, Any, dict[str, list[Any]]]:
        if self._collated is None:
            return super()._from_slot(words)
        self._wait_for_slot()
        fields, listed = self.built.engine.take_with_host_values(words)
        leaves, mask = self._leaves(fields)
        leaves, mask = self._without_padding(leaves, mask, words)
        skeleton = self._collated.skeleton
        if listed:
            (skeleton,) = host_value_rows(listed, self.built.batch_size)[0]
        return self._filled(skeleton, leaves), mask, {}

    def _filled(self, skeleton: Any, leaves: list[Any]) -> Any:
        """Returns a collated batch with arrays in place of each ``Field``."""

        def fill(leaf: Any) -> Any:
            if isinstance(leaf, Field):
                return leaves[leaf.number]
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "OUSMm":
                # A copy, because the function may use the memory again.
                return leaf if self._numpy else jnp.array(leaf)
            if isinstance(leaf, Mapping):  # a type that is not a pytree
                entries = {key: jax.tree.map(fill, x) for key, x in leaf.items()}
                return rebuilt(leaf, entries)
            return leaf

        return jax.tree.map(fill, skeleton)

    def _leaves(self, fields: list[Any]) -> tuple[list[Any], Any]:
        if not self._numpy:
            return super()._leaves(fields)
        *leaves, mask = self.built.rows_of(fields)
        return leaves, mask

    def _without_padding(
        self, value: Tree, mask: Any, words: np.ndarray
    ) -> tuple[Tree, Any]:
        if not self._numpy:
            return super()._without_padding(value, mask, words)
        valid = self.built.plan.valid_rows(words) if self._partial else None
        if valid is None or valid == self.built.batch_size:
            return value, mask
        return jax.tree.map(lambda x: x[:valid], (value, mask))

    def _on_target(self, value: Tree, mask: Any) -> tuple[Tree, Any]:
        if not self._numpy:
            return super()._on_target(value, mask)
        if self.built.traced:  # XLA gathered the samples
            return jax.tree.map(np.asarray, (value, mask))
        return value, mask
