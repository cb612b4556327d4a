"""The batches that a `Dataloader` yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.hydrax._layout import Layouts
from millstream.hydrax._place import check_additional, check_arrays

if TYPE_CHECKING:
    import jax

    from millstream.hydrax._groups import DataGroup

D = TypeVar("D")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class BatchData(Sequence[D]):
    """The descriptors of a batch's items. Each access reads one from the group."""

    group: DataGroup[D]
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return BatchData(self.group, self.indices[key])
        return self.group[self.indices[key]]

    def __repr__(self) -> str:
        return f"<data of {len(self)} items>"


@dataclass
class Content:
    """The values of a batch, which ``Batch.cache`` replaces.

    ``save`` writes arrays and additional data to the cache; None if that is impossible.
    """

    arrays: dict[str, jax.Array]
    additional: dict[str, list[Any]]
    uncached: bool
    save: Callable[[Mapping[str, Any], Any], None] | None


@dataclass(frozen=True, eq=False, repr=False)
class Batch(Generic[D]):
    """A `TrainingBatch` or a `ValidationBatch`, as a `Dataloader` yields them.

    The loader reuses a batch's memory once nothing refers to its arrays any more.
    Keeping a batch costs its memory, but never blocks the loader.

    Attributes:
      group: The group that the batch belongs to.
      group_index: The batch's number within its group, from 0.
      indices: The indices of the items within the group.
    """

    _content: Content
    group: DataGroup[D]
    group_index: int
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def is_training(self) -> bool:
        """Whether this is a `TrainingBatch`."""
        return isinstance(self, TrainingBatch)

    @property
    def is_validation(self) -> bool:
        """Whether this is a `ValidationBatch`."""
        return isinstance(self, ValidationBatch)

    @property
    def data(self) -> Sequence[D]:
        """The descriptors of the items."""
        return BatchData(self.group, self.indices)

    def get_data(self, index: int) -> D:
        """The descriptor of one item."""
        item: D = self.group[self.indices[index]]
        return item

    @property
    def layouts(self) -> Layouts:
        """The layouts of ``arrays``: the loader's if ``uncached``, else the cache's.

        A short last batch has fewer rows than its layouts.
        """
        group = self.group
        layouts = group.loader_layouts if self.uncached else group.cache_layouts
        return layouts or MappingProxyType({})

    @property
    def arrays(self) -> MappingProxyType[str, jax.Array]:
        """The arrays by name. The first axis counts items."""
        return MappingProxyType(self._content.arrays)

    def get_array(self, name: str) -> jax.Array:
        """The array called ``name``."""
        return self._content.arrays[name]

    @property
    def additional(self) -> MappingProxyType[str, Sequence[Any]]:
        """The additional data of the loader function: a list per key, a value per item.

        The value is None for an item whose dict does not have the key.
        """
        return MappingProxyType(self._content.additional)

    def get_additional(
        self, key: str, index: int | None = None, *, default: Any = None
    ) -> Any:
        """All values of ``key``, or that of one item. ``default`` replaces None."""
        values = self._content.additional.get(key, [None] * len(self))
        if index is None:
            return [default if value is None else value for value in values]
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"index {index} is invalid for batch size {len(self)}: it is out of "
                "range"
            )
        value = values[index]
        return default if value is None else value

    @property
    def uncached(self) -> bool:
        """Whether the arrays come from the loader function, not from the cache."""
        return self._content.uncached

    def cache(
        self,
        arrays: Mapping[str, jax.Array],
        additional: Mapping[str, list[Any]] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Replaces the batch's arrays and writes them to the cache.

        The arrays must match the group's ``cache_layouts``. ``additional``, if given,
        replaces the additional data. Nothing is written with ``persist=False`` or with
        a read-only cache.
        """
        content, layouts = self._content, self.group.cache_layouts
        if not content.uncached:
            raise RuntimeError(
                "the batch is already cached. Call Batch.cache() only if "
                "batch.uncached is True."
            )
        if layouts is None:
            raise RuntimeError(
                "cache layouts undefined: the batch's group has no cache_arrays. Pass "
                "cache_arrays= and cache_location= to DataGroup."
            )
        check_arrays(arrays, layouts, len(self), "Batch.cache")
        if additional is not None:
            check_additional(additional, len(self))
            content.additional = {key: list(x) for key, x in additional.items()}
        content.arrays = dict(arrays)
        content.uncached = False
        if persist and content.save is not None:
            content.save(content.arrays, content.additional)


@dataclass(frozen=True, eq=False, repr=False)
class TrainingBatch(Batch[D]):
    """A training batch.

    Attributes:
      epoch: The epoch's number, from 0.
      epoch_batch: The batch's number within its epoch, from 0.
      batch_num: The batch's number, counted from the first batch of epoch 0.
      seed: The seed of the batch's first item.
    """

    epoch: int
    epoch_batch: int
    batch_num: int
    seed: int

    def __repr__(self) -> str:
        return f"<TrainingBatch {self.batch_num}: {len(self)} items>"

    @property
    def seeds(self) -> Sequence[int]:
        """The seed that the loader function got for each item."""
        return range(self.seed, self.seed + len(self))


@dataclass(frozen=True, eq=False, repr=False)
class ValidationBatch(Batch[D]):
    """A validation batch. Its numbers count from the run's first validation.

    Attributes:
      validation_epoch: The validation's number within the run, from 0.
      validation_epoch_batch: The batch's number within its validation, from 0.
      validation_batch_num: The batch's number among all validation batches of the run.
    """

    validation_epoch: int
    validation_epoch_batch: int
    validation_batch_num: int

    def __repr__(self) -> str:
        return f"<ValidationBatch {self.validation_batch_num}: {len(self)} items>"
