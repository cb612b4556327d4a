"""Millstream's loop over whole batches: what its contenders with streams share."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import millstream as ms


def epochs(source: Any, batch: int, *stages: Any) -> Callable[[], Iterable[Any]]:
    """Epochs of a source in whole batches, each with another seed.

    All masks are True because the last incomplete batch is dropped.
    """
    pipeline = [source, ms.BatchTransform(batch, drop_last=True), *stages]
    loader = ms.DataLoader(pipeline)
    seeds = count()
    return lambda: (
        batch for batch, _ in loader.iterate(loader.init_state(next(seeds)))
    )
