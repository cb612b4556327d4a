"""Recognises data sets, arrays and files, and makes sources of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from millstream._core.public import public
from millstream._sources.advice import advice_for, is_table, iterable_advice
from millstream._sources.arrays import ArraySampleSource
from millstream._sources.disk import path_of
from millstream._sources.functions import DatasetSource, is_dataset
from millstream._sources.grain import check_grain
from millstream._sources.recognise import is_a, kind_of
from millstream._sources.source import SampleSource, Source
from millstream._sources.streams import is_stream
from millstream._sources.torch_datasets import as_array, is_tensor, torch_source
from millstream._workers.pools import checked_workers

_HUGGING_FACE = (
    "datasets.arrow_dataset.Dataset",
    "datasets.dataset_dict.DatasetDict",
    "datasets.dataset_dict.IterableDatasetDict",
    "datasets.iterable_dataset.IterableDataset",
)
_TABLE_LIBRARIES = ("pandas", "polars", "pyarrow")
_ITERABLE_ONLY = (
    "torch.utils.data.dataset.IterableDataset",
    "torch.utils.data.dataloader.DataLoader",
    "grain._src.python.dataset.dataset.IterDataset",
    "grain._src.python.data_loader.DataLoader",
    "tensorflow.python.data.ops.dataset_ops.DatasetV2",
)
_ARRAYS_IN_FILES = ("h5py", "zarr")


@public
def as_source(
    x: Any,
    *,
    ordering: Any = "shuffle",
    workers: int = 1,
    worker_kind: str = "thread",
) -> Source:
    """Returns a source of the samples of ``x``. Its repr says what ``x`` is.

    ``x`` may be:

    - a dict or a tuple of arrays, or one array. Tensors of PyTorch are arrays, too.
    - a data set of PyTorch. A ``TensorDataset``, the MNIST and CIFAR classes of
      torchvision without a transform, and each ``Subset`` of these become arrays,
      without a copy if possible. The samples of others are made in workers.
    - a ``Dataset`` of Hugging Face, or a frame of pandas or Polars.
    - a random-access source or a ``MapDataset`` of Grain, or a ``tfds.data_source``.
    - any other object with ``__len__`` and ``__getitem__``, except a list, which may
      mean samples or arrays.
    - the path of a file or a folder of any format that Millstream reads.
    - a source, which is returned as it is, with its own order.

    Args:
      x: The data set.
      ordering: "shuffle", "sequential", or an Order. A source keeps its own.
      workers: The number of threads or processes that make samples in Python. Arrays
        and files need none.
      worker_kind: "thread", or "process" for data sets that hold the GIL.
    """
    if isinstance(x, Source):
        return x
    options = {"workers": workers, "worker_kind": worker_kind}
    return source_of(x, "as_source", ordering, options)


def source_of(
    x: Any, caller: str, ordering: Any, options: dict[str, Any]
) -> SampleSource:
    """Returns the source for ``as_source``, whose errors begin with ``caller``.

    ``options`` are arguments of ``DatasetSource``.
    """
    checked_workers(options.get("workers", 1), options.get("worker_kind", "thread"), 0)
    if isinstance(x, str | os.PathLike):
        return _file_source(path_of(x), caller, ordering)
    if is_a(x, *_HUGGING_FACE):
        from millstream._sources.hugging_face import hugging_face_source

        return hugging_face_source(x, ordering=ordering, **options)
    # The library first, because a LazyFrame warns if it is asked for its columns.
    if type(x).__module__.partition(".")[0] in _TABLE_LIBRARIES or is_table(x):
        from millstream._sources.tables import table_source

        return table_source(x, ordering=ordering)
    if isinstance(x, Mapping | tuple) or _is_array(x):
        return _array_source(x, caller, ordering)
    check_random_access(x, caller)
    if len(x) == 0:
        raise ValueError(f"{caller}: the {type(x).__name__} has no samples")
    source = torch_source(x, ordering, options)
    if source is None:
        source = DatasetSource(x, ordering=ordering, **options)
        source.with_origin(f"{kind_of(x)}, in workers")
    return source


def check_random_access(x: Any, caller: str) -> None:
    """Raises an error unless ``x`` returns samples by index."""
    if isinstance(x, list):
        raise TypeError(
            f"{caller}: a list may mean samples or arrays. For a list of samples write "
            "DatasetSource(samples), for a list of arrays ArraySampleSource(tuple("
            "arrays))."
        )
    if isinstance(x, type):
        raise TypeError(
            f"{caller}: found the class {x.__name__} (did you forget to call it?). "
            f"Write {x.__name__}(...)."
        )
    if is_a(x, *_ITERABLE_ONLY):
        raise TypeError(f"{caller}: {iterable_advice(x)}.")
    if is_stream(x):
        raise TypeError(
            f"{caller}: {type(x).__name__} is a stream, whose samples have no indices. "
            "Use it as the first entry of a pipeline: DataLoader([stream, ...])."
        )
    if not is_dataset(x):
        raise TypeError(
            f"{caller}: expected a data set, arrays or a path, found "
            f"{type(x).__name__}. {advice_for(x, '{}')}."
        )
    check_grain(x, caller)


def _is_array(x: Any) -> bool:
    """Whether ``x`` is an array in memory. Arrays in files are read by row."""
    library = type(x).__module__.partition(".")[0]
    return _has_shape(x) and library not in _ARRAYS_IN_FILES


def _has_shape(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _array_source(x: Any, caller: str, ordering: Any) -> SampleSource:
    kind = type(x).__name__
    if isinstance(x, Mapping):
        x = x if isinstance(x, dict) else dict(x)  # np.load returns such a mapping
        splits = [name for name, part in x.items() if _is_split(part)]
        if splits:
            raise TypeError(
                f"{caller}: the dict holds data sets. Choose a split: {splits}"
            )
    arrays = jax.tree.map(lambda leaf: as_array(leaf) if is_tensor(leaf) else leaf, x)
    source = ArraySampleSource(arrays, ordering)
    return source.with_origin(kind if _is_array(x) else f"{kind} of arrays")


def _is_split(part: Any) -> bool:
    is_iterable = is_dataset(part) or is_a(part, *_ITERABLE_ONLY)
    return is_iterable and not isinstance(part, list | tuple) and not _has_shape(part)


def _file_source(path: Path, caller: str, ordering: Any) -> SampleSource:
    from millstream._formats.detect import Options, find

    hint = f"write PackedSource({str(path)!r}, {{'x': np.float32}}) with your schema,"
    found = find(path, Options(), hint)
    if len(found) > 1:
        names = ", ".join(data.name for data in found)
        remedy = "Pass the path of one of them"
        if found[0].split:
            remedy = f"Write {found[0].source}"
        raise ValueError(f"{path}: holds several data sets ({names}). {remedy}.")
    (data,) = found
    assert data.source is not None  # only the command line joins data sets
    source: SampleSource = data.source.make(ordering)
    return source.with_origin(data.title)
