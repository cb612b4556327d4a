"""Shards: the items of a data set that one of several processes loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

from millstream.loadax._arguments import ArgumentError, shard_of, whole
from millstream.loadax._dataset import Indexed, View

T = TypeVar("T")


def compute_shard_boundaries(
    num_shards: int, shard_id: int, dataset_size: int, *, drop_remainder: bool = True
) -> tuple[int, int]:
    """The start and the end of a contiguous shard.

    With ``drop_remainder`` all shards have the same size, and the last items of the
    data set belong to none. Otherwise the first shards have one item more.
    """
    shards, shard = shard_of(num_shards, shard_id)
    size, remainder = divmod(whole("dataset_size", dataset_size, 0), shards)
    if drop_remainder:
        return shard * size, (shard + 1) * size
    first = shard * size + min(shard, remainder)
    return first, first + size + (shard < remainder)


class ShardedDataset(View[T]):
    """The items of the contiguous shard ``shard_id`` of ``num_shards``."""

    def __init__(
        self,
        dataset: Indexed[T],
        num_shards: int,
        shard_id: int,
        *,
        drop_remainder: bool = True,
    ) -> None:
        super().__init__(dataset)
        self._bounds = compute_shard_boundaries(
            num_shards, shard_id, len(self._inner), drop_remainder=drop_remainder
        )

    def shard_boundaries(self) -> tuple[int, int]:
        """The start and the end of the shard in the data set."""
        return self._bounds

    def __len__(self) -> int:
        return self._bounds[1] - self._bounds[0]

    def _item(self, index: int) -> T:
        item: T = self._inner[self._bounds[0] + index]
        return item


class Positions(Sequence[int]):
    """The ``length`` indices that a shard loads.

    They are the first ``length`` indices of ``own``. If ``own`` has fewer, the indices
    after its end follow. After the end of the data set they start again from 0.
    """

    def __init__(self, own: range, length: int, size: int) -> None:
        self._own, self._length, self._size = own, length, size

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        if index >= self._length:
            raise IndexError(index)
        if index < len(self._own):
            return self._own[index]
        return (self._own.stop + index - len(self._own)) % self._size


def equal_positions(
    own: range, num_shards: int, size: int, *, remainder: str
) -> Positions:
    """The indices of a shard, cut or padded to the length that all shards have."""
    length = size // num_shards if remainder == "drop" else -(-size // num_shards)
    if len(own) < length and remainder == "drop":
        raise ArgumentError(
            f"the sharding strategy gives this shard {len(own)} of {size} items; each "
            f"of {num_shards} equal shards needs at least {length}"
        )
    return Positions(own, length, size)
