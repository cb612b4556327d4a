"""What to write instead of a value that is not a source of samples."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

_SOURCES = {
    ".csv": "CsvSource",
    ".tsv": "CsvSource",
    ".npy": "NpySource",
    ".npz": "NpzSource",
}

_OTHER_FORMATS = {
    ".parquet": "as_source(pandas.read_parquet({path!r})), which needs pip install "
    "'millstream[pandas]'",
    ".feather": "as_source(pandas.read_feather({path!r})), which needs pip install "
    "'millstream[pandas]'",
    ".arrow": "as_source(datasets.Dataset.from_file({path!r})), which needs pip "
    "install 'millstream[huggingface]'",
    ".h5": "file = h5py.File({path!r}), then ArraySampleSource({{'x': file['x'][:]}})",
    ".tfrecord": "samples = list(tensorflow.data.TFRecordDataset({path!r})"
    ".map(parse).as_numpy_iterator()), where parse calls "
    "tf.io.parse_single_example, then DatasetSource(samples)",
}
_ALIASES = {".hdf5": ".h5", ".tfrecords": ".tfrecord", ".pq": ".parquet"}


def other_format(path: PurePath) -> str | None:
    """Returns how to read a file whose format Millstream does not read, or None."""
    for suffix in reversed(path.suffixes):  # x.tfrecord-00000-of-00010 has one too
        suffix = suffix.lower().partition("-")[0]
        code = _OTHER_FORMATS.get(_ALIASES.get(suffix, suffix))
        if code is not None:
            return (
                f"Millstream does not read {suffix} files. Read the file with another "
                f"library: {code.format(path=str(path))}"
            )
    return None


def is_table(value: Any) -> bool:
    """Whether ``value`` is a DataFrame of pandas, Polars or a similar library."""
    return all(hasattr(value, name) for name in ("columns", "dtypes", "shape"))


def advice_for(value: Any, form: str = "DataLoader([{}, BatchTransform(128)])") -> str:
    """Returns what to write instead of ``value``, which is not a source.

    ``form`` is the code around the source, which replaces its braces.
    """
    name = type(value).__name__
    if is_table(value):
        return (
            f"A {name} is not a source. Pass its columns as arrays: ArraySampleSource("
            "{name: table[name].to_numpy() for name in table})"
        )
    if isinstance(value, str | os.PathLike):
        path = PurePath(os.fspath(value))
        source = _SOURCES.get(path.suffix.lower())
        if source is not None:
            return f"A path is not a source. Write {source}({str(path)!r})"
        return other_format(path) or (
            "A path is not a source. Use NpySource, NpzSource, IdxSource, CifarSource, "
            "PackedSource or CsvSource"
        )
    if hasattr(value, "__next__"):
        return (
            f"A {name} has no random access, so it cannot be shuffled or resumed. Use "
            "DatasetSource(list(samples)) if the samples fit in memory, "
            "DiskSampleSource(length, fn) with a function of an index, or "
            "IterableSource(function) with the function that makes the iterator"
        )
    if isinstance(value, list | tuple) and value and not all(map(_is_array, value)):
        return (
            "A list of samples is not a source. Write "
            f"{form.format('DatasetSource(samples)')}"
        )
    if callable(value):
        return (
            "A function is not a source. Write DiskSampleSource(length, fn), where fn "
            "returns the sample with a given index"
        )
    if isinstance(value, list | tuple | Mapping) or hasattr(value, "__array__"):
        return (
            f"Arrays are not a source. Write {form.format('ArraySampleSource(data)')}"
        )
    if hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        return f"Write {form.format('DatasetSource(dataset)')}"
    if hasattr(value, "__iter__"):
        return iterable_advice(value)
    return f"Write {form.format('ArraySampleSource(data)')}"


def iterable_advice(value: Any) -> str:
    """Returns what to write instead of an object that has no random access."""
    return (
        f"{with_article(type(value).__name__)} can only be iterated, so it cannot be "
        "shuffled. Use DatasetSource of an object with __len__ and __getitem__, "
        "DiskSampleSource(length, fn) with a function of an index, or "
        "IterableSource(iterable) in a Python loop"
    )


def with_article(name: str) -> str:
    """Returns a name with its article, at the beginning of a sentence."""
    return f"{'An' if name[:1] in 'AEIOaeio' else 'A'} {name}"


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and value.shape != ()
