"""Errors for arguments that other loaders have and `DataLoader` does not."""

from __future__ import annotations

from collections.abc import Iterable

_BATCH = "Add a stage to the pipeline: BatchTransform(batch_size)"
_ORDER = (
    "Pass ordering= to the source, such as ordering=Weighted(weights) or "
    "ordering=Listed(indices)"
)
_WORKERS = (
    "Sources of arrays and files use C++ threads. Pass workers= to DiskSampleSource, "
    "DatasetSource or PythonMapTransform, which call Python functions"
)

_INSTEAD = {
    "batch_sampler": _ORDER,
    "batch_size": _BATCH,
    "collate_fn": "BatchTransform stacks the arrays of samples. To change samples "
    "before that, add the stage PythonMapTransform(fn); to change batches, add "
    "MapTransform(fn) after BatchTransform",
    "dataset": "Make the data set the first entry of the list: "
    "DataLoader([dataset, BatchTransform(batch_size)])",
    "drop_last": "Write BatchTransform(batch_size, remainder='drop')",
    "epochs": "Pass it to the loop: loader.run(epochs=2)",
    "generator": "Pass a seed to the loop: loader.run(seed=0)",
    "multiprocessing_context": "Pass worker_kind='process' to the source. Worker "
    "processes are never forked",
    "num_epochs": "Pass it to the loop: loader.run(epochs=2)",
    "num_workers": _WORKERS,
    "persistent_workers": "Worker processes always live as long as the loader. Remove "
    "the argument",
    "pin_memory": "Remove the argument. To put batches on a device, add the stage "
    "DevicePutTransform()",
    "prefetch_factor": "Pass prefetch=, the number of batches to make ahead",
    "sampler": _ORDER,
    "seed": "Pass it to the loop: loader.run(seed=0)",
    "shuffle": "Pass ordering='shuffle' or ordering='sequential' to the source",
    "timeout": "Pass timeout= to the source, or to PythonMapTransform",
    "worker_init_fn": "Initialize at the top level of the module that defines your "
    "function. Worker processes import it",
    "workers": _WORKERS,
}


_KNOWN = "Its arguments are pipeline, threads, prefetch, traced, on_error, error_budget"


def unknown_arguments(names: Iterable[str]) -> TypeError:
    """Returns the error for arguments that ``DataLoader`` does not have."""
    parts = [
        f"DataLoader has no argument {name}. {_INSTEAD.get(name, _KNOWN)}."
        for name in names
    ]
    return TypeError(" ".join(parts))
