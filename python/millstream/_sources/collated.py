"""A source whose workers make whole batches with a function of the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream._run.state import has_x64
from millstream._sources.functions import FunctionSource
from millstream._workers.collate import (
    NO_ARRAYS,
    CollateTask,
    Field,
    Path,
    Samples,
    mapped,
)
from millstream._workers.rows import FieldSpec


@dataclass(frozen=True, eq=False)
class CollatedSource(FunctionSource):
    """Batches that ``collate_fn`` makes of lists of samples.

    The fields of the engine are the arrays of a batch that have one row per sample. A
    batch that differs from the first one arrives as a host value. Only
    ``PlainDelivery`` can deliver such batches.

    Args:
      dataset: An object with ``__len__`` and ``__getitem__``.
      collate_fn: A function of a list of samples. Workers call it.
      batch_size: The number of samples in a batch.
    """

    dataset: Any
    collate_fn: Callable[[list[Any]], Any]
    batch_size: int
    ordering: Any = "shuffle"
    skeleton: Any = field(init=False, repr=False, compare=False)
    """The structure of a batch whose arrays are all fields."""

    prefetch_size = 1

    def __post_init__(self) -> None:
        self._check()
        length = len(self.dataset)
        if length < 1:
            raise ValueError("the data set has no samples")
        narrow = not has_x64()
        read = Samples(self.dataset)
        specs, paths, skeleton = self._fields(read, min(length, self.batch_size, 2))
        task = CollateTask(
            read, self.collate_fn, paths, skeleton, narrow, outputs=specs
        )
        self.__dict__["skeleton"] = skeleton
        tree = {spec.name: i for i, spec in enumerate(specs)}
        self._start_task(length, task, tree, (), None)

    def _fields(
        self, read: Samples, count: int
    ) -> tuple[tuple[FieldSpec, ...], dict[Path, int], Any]:
        """Collates ``count`` samples to find the arrays with one row per sample.

        If that raises an error, there are none. A function that needs a whole batch
        raises it, and so does a damaged sample, which may never be read.
        """
        specs: list[FieldSpec] = []
        paths: dict[Path, int] = {}

        def put(path: Path, array: np.ndarray) -> Any:
            if array.ndim == 0 or len(array) != count:
                return array
            name = f"{len(specs)}"
            specs.append(FieldSpec(name, array.dtype.name, array.shape[1:]))
            paths[path] = len(specs) - 1
            return Field(len(specs) - 1)

        skeleton = None
        try:
            batch = self.collate_fn(read(list(range(count)), np.zeros(1, np.int64)))
            skeleton = mapped(batch, put, lambda value: value, not has_x64())
        except Exception:
            specs.clear()
            paths.clear()
        if not specs:
            specs.append(FieldSpec(NO_ARRAYS, "bool", ()))
        return tuple(specs), paths, skeleton
