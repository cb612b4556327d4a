"""The batches that a `Dataloader` yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.hydrax._layout import ArrayLayout
from millstream.hydrax._place import check_additional, check_arrays

if TYPE_CHECKING:
    import jax

    from millstream.hydrax._groups import DataGroup
    from millstream.hydrax._schedule import Step

D = TypeVar("D")


class BatchData(Sequence[D]):
    """The descriptors of a batch's items. Each access reads one from the group."""

    __slots__ = ("_group", "_indices")

    def __init__(self, group: DataGroup[D], indices: Sequence[int]) -> None:
        self._group = group
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return BatchData(self._group, self._indices[key])
        return self._group[self._indices[key]]

    def __repr__(self) -> str:
        return f"<data of {len(self)} items>"


class Batch(Generic[D]):
    """A `TrainingBatch` or a `ValidationBatch`, as a `Dataloader` yields them.

    The loader reuses a batch's memory once nothing refers to its arrays any more.
    Keeping a batch costs its memory, but never blocks the loader.
    """

    __slots__ = (
        "__weakref__",
        "_additional",
        "_arrays",
        "_group",
        "_save",
        "_step",
        "_uncached",
    )

    def __init__(self, group: DataGroup[D], step: Step) -> None:
        self._group = group
        self._step = step
        self._arrays: dict[str, jax.Array] = {}
        self._additional: dict[str, list[Any]] = {}
        self._uncached = True
        self._save: Callable[[Step, Mapping[str, Any], Any], None] | None = None

    def __len__(self) -> int:
        return len(self._step.indices)

    @property
    def is_training(self) -> bool:
        """Whether this is a `TrainingBatch`."""
        return self._step.seed is not None

    @property
    def is_validation(self) -> bool:
        """Whether this is a `ValidationBatch`."""
        return self._step.seed is None

    @property
    def group(self) -> DataGroup[D]:
        """The group that the batch belongs to."""
        return self._group

    @property
    def group_index(self) -> int:
        """The batch's number within its group, from 0."""
        return self._step.index

    @property
    def indices(self) -> Sequence[int]:
        """The indices of the items within the group."""
        return self._step.indices

    @property
    def data(self) -> Sequence[D]:
        """The descriptors of the items."""
        return BatchData(self._group, self._step.indices)

    def get_data(self, index: int) -> D:
        """The descriptor of one item."""
        item: D = self._group[self._step.indices[index]]
        return item

    @property
    def layouts(self) -> MappingProxyType[str, ArrayLayout]:
        """The layouts of ``arrays``: the loader's if ``uncached``, else the cache's.

        A short last batch has fewer rows than its layouts.
        """
        group = self._group
        layouts = group._loader_layouts if self._uncached else group._cache_layouts
        return MappingProxyType(layouts or {})

    @property
    def arrays(self) -> MappingProxyType[str, jax.Array]:
        """The arrays by name. The first axis counts items."""
        return MappingProxyType(self._arrays)

    def get_array(self, name: str) -> jax.Array:
        """The array called ``name``."""
        return self._arrays[name]

    @property
    def additional(self) -> MappingProxyType[str, Sequence[Any]]:
        """The additional data of the loader function: a list per key, a value per item.

        The value is None for an item whose dict does not have the key.
        """
        return MappingProxyType(self._additional)

    def get_additional(
        self, key: str, index: int | None = None, *, default: Any = None
    ) -> Any:
        """All values of ``key``, or that of one item. ``default`` replaces None."""
        values = self._additional.get(key, [None] * len(self))
        if index is None:
            return [default if value is None else value for value in values]
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"index {index} is out of range for a batch of {len(self)} items"
            )
        value = values[index]
        return default if value is None else value

    @property
    def uncached(self) -> bool:
        """Whether the arrays come from the loader function, not from the cache."""
        return self._uncached

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
        if not self._uncached:
            raise RuntimeError(
                "the batch is cached already. Call Batch.cache() only if "
                "batch.uncached is True."
            )
        layouts = self._group._cache_layouts
        if layouts is None:
            raise RuntimeError(
                "the batch's group has no cache_arrays. Pass cache_arrays= and "
                "cache_location= to DataGroup."
            )
        check_arrays(arrays, layouts, len(self), "Batch.cache was given")
        if additional is not None:
            check_additional(additional, len(self))
            self._additional = {key: list(values) for key, values in additional.items()}
        self._arrays = dict(arrays)
        self._uncached = False
        if persist and self._save is not None:
            self._save(self._step, self._arrays, self._additional)

    def _fill(
        self,
        arrays: dict[str, jax.Array],
        additional: dict[str, list[Any]],
        *,
        uncached: bool,
    ) -> None:
        self._arrays = arrays
        self._additional = additional
        self._uncached = uncached


class TrainingBatch(Batch[D]):
    """A training batch."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<TrainingBatch {self.batch_num}: {len(self)} items>"

    @property
    def epoch(self) -> int:
        """The epoch's number, from 0."""
        return self._step.epoch

    @property
    def epoch_batch(self) -> int:
        """The batch's number within its epoch, from 0."""
        return self._step.epoch_batch

    @property
    def batch_num(self) -> int:
        """The batch's number, counted from the first batch of epoch 0."""
        return self._step.batch_num

    @property
    def seed(self) -> int:
        """The seed of the batch's first item."""
        return self._step.seed or 0

    @property
    def seeds(self) -> Sequence[int]:
        """The seed that the loader function got for each item."""
        return range(self.seed, self.seed + len(self))


class ValidationBatch(Batch[D]):
    """A validation batch. Its numbers count from the run's first validation."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<ValidationBatch {self.validation_batch_num}: {len(self)} items>"

    @property
    def validation_epoch(self) -> int:
        """The validation's number within the run, from 0."""
        return self._step.epoch

    @property
    def validation_epoch_batch(self) -> int:
        """The batch's number within its validation, from 0."""
        return self._step.epoch_batch

    @property
    def validation_batch_num(self) -> int:
        """The batch's number among all validation batches of the run."""
        return self._step.batch_num
