"""Functions that raise what would end a loop or the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    DatasetSource,
    DiskSampleSource,
    HostCallbackTransform,
    PythonMapTransform,
    fill_source,
)

N, BATCH = 20, 2
KINDS = ["thread", "process"]
SPEC = {"y": jax.ShapeDtypeStruct((), np.int32)}


def sources(raising: Callable[..., Any], kind: str) -> dict[str, list[Any]]:
    """Every way to put a function of a sample's index into a pipeline."""
    numbers = {"y": np.arange(N, dtype=np.int32)}
    more: Any = {"worker_kind": kind}
    return {
        "sample": [DiskSampleSource(N, raising, SPEC, "sequential", **more)],
        "several": [DatasetSource(fns.Lots(N, raising), SPEC, "sequential", **more)],
        "map": [
            ArraySampleSource(numbers, "sequential"),
            PythonMapTransform(fns.OfSample(raising), SPEC, **more),
        ],
        "fill": [
            fill_source(
                fns.OfItem(raising), range(N), SPEC, ordering="sequential", **more
            )
        ],
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["sample", "several", "map", "fill"])
def test_stop_iteration_of_a_function_is_an_error(kind: str, how: str) -> None:
    stages = sources(fns.stopping, kind)[how]
    loader = DataLoader([*stages, BatchTransform(BATCH)])
    with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
        list(loader.iterate(loader.init_state(0)))
    cause = caught.value.__cause__
    assert isinstance(cause, StopIteration)
    assert cause.value == "of the function"
    assert any("10" in note for note in caught.value.__notes__)


def test_stop_iteration_of_a_callback_is_an_error() -> None:
    def stop(batch: Any, mask: Any) -> None:
        if batch["y"][0] == 10:
            next(iter([]))

    numbers = {"y": np.arange(N, dtype=np.int32)}
    loader = DataLoader(
        [
            ArraySampleSource(numbers, "sequential"),
            BatchTransform(BATCH),
            HostCallbackTransform(stop),
        ]
    )
    with pytest.raises(RuntimeError, match="fn raised StopIteration") as caught:
        list(loader.iterate(loader.init_state(0)))
    assert isinstance(caught.value.__cause__, StopIteration)
    with pytest.raises(RuntimeError, match="fn raised StopIteration"):
        loader.scan_epoch(loader.init_state(0), 0, lambda c, b, m: (c, None))
