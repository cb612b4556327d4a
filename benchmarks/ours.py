"""Millstream's loop over whole batches, for its contenders that build a `Stream`."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import millstream as ms


def epochs(source: Any, batch: int, *stages: Any) -> Callable[[], Iterable[Any]]:
    """Epochs of whole batches of a source, with another seed for each epoch.

    The incomplete last batch is dropped, so all masks are True.
    """
    pipeline = [source, ms.BatchTransform(batch, drop_last=True), *stages]
    loader = ms.DataLoader(pipeline)
    seeds = count()
    return lambda: (
        batch for batch, _ in loader.iterate(loader.init_state(next(seeds)))
    )
