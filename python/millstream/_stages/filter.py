"""The stage that keeps some samples of a source and leaves out the others."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from millstream._core.description import Tree
from millstream._core.progress_bar import ProgressBar
from millstream._core.public import public
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._run.builder import Builder

_NAME = "FilterTransform"


@public
@dataclass(frozen=True, eq=False)
class FilterTransform(Stage):
    """Keeps the samples for which ``predicate`` is True.

    ``predicate`` is a boolean array with one element per sample, or a function of one
    sample. Building a loader calls the function once for every sample, with NumPy
    arrays, after the stages before this one. A progress bar on standard error shows how
    far it is. The pipeline then continues with a ``Subset`` of the samples kept, and an
    epoch has only those. ``which_samples`` returns the
    indices in the source itself. A state is valid only for the same samples.

    The stage must stand before BatchTransform, before stages that draw random numbers
    and before stages that run in XLA or Python. With ``on_error="skip"``, a sample that
    fails is kept, so that the loader reports it when it skips it.

    In a pipeline over a stream, JAX traces the function. The values keep their shapes,
    and the mask becomes False where the function returns False.

    Args:
      predicate: A boolean array, or a function that returns True or False.
      cache: A file for the result of the function. If it exists, the function is not
        called. Building raises ``ValueError`` if it belongs to another number of
        samples or is damaged. The file does not record the function and the data:
        delete it if you change them.
    """

    changes_mask: ClassVar[bool] = True

    predicate: Any
    cache: str | os.PathLike[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if callable(self.predicate):
            return
        flags = np.asarray(self.predicate)
        if flags.dtype != np.bool_ or flags.ndim != 1:
            raise TypeError(
                f"{_NAME} needs a function or a vector of booleans, found "
                f"{flags.dtype}{list(flags.shape)}. To select samples by index, use "
                "Subset."
            )
        if self.cache is not None:
            raise ValueError(
                f"{_NAME}: cache= stores the result of a function, but predicate is an "
                "array. Remove cache=."
            )
        object.__setattr__(self, "predicate", flags)

    def place(self, builder: Builder) -> None:
        if builder.streams:
            if self.cache is not None:
                raise ValueError(
                    f"{builder.stage}: cache= has no meaning for a stream, because the "
                    "predicate is traced with each sample. Remove cache=."
                )
            builder.add_traced(self.trace, changes_mask=True)
        else:
            builder.filter(self._kept)

    def _kept(self, samples: Samples) -> np.ndarray:
        """Returns a boolean for each sample."""
        count = len(samples.indices)
        if not callable(self.predicate):
            if len(self.predicate) != count:
                raise ValueError(
                    f"{_NAME}: predicate has {len(self.predicate)} elements, but the "
                    f"source has {count} samples"
                )
            return np.asarray(self.predicate)
        path = None if self.cache is None else Path(self.cache)
        if path is not None:
            if path.exists():
                return _read(path, samples.indices)
            if not path.parent.is_dir():
                raise FileNotFoundError(
                    f"{_NAME}: the folder of cache={os.fspath(path)!r} does not exist"
                )
        kept = np.ones(count, np.bool_)
        with _SampleBar("filter", count) as bar:
            for i, sample in samples.read():
                kept[i] = self._answer(sample, int(samples.indices[i]))
                bar.update(i + 1)
        if path is not None:
            _write(path, samples.indices[kept], count)
        return kept

    def _answer(self, sample: Tree, index: int) -> bool:
        try:
            answer = self.predicate(sample)
        except Exception as error:
            error.add_note(f"millstream: {_NAME} called predicate with sample {index}")
            raise
        if np.ndim(answer) or np.asarray(answer).dtype != np.bool_:
            raise TypeError(
                f"{_NAME}: predicate returned {answer!r} for sample {index}; expected "
                "True or False"
            )
        return bool(answer)

    def trace(self, value: Tree, mask: Any, batched: bool) -> tuple[Tree, Any]:
        """Returns ``(value, mask)``, for a stream.

        ``value`` has the leading axes of ``mask``. The predicate gets one element.
        """
        if not callable(self.predicate):
            raise TypeError(
                f"{_NAME}: predicate is an array with one element per sample, but the "
                "values of a stream have no indices. Pass a function."
            )

        def keep(value: Tree) -> Any:
            answer = jnp.asarray(self.predicate(value))
            if answer.shape or answer.dtype != np.bool_:
                raise TypeError(
                    f"{_NAME}: predicate returned {answer.dtype}{list(answer.shape)}; "
                    "expected a boolean scalar, such as the result of a comparison"
                )
            return answer

        for _ in range(mask.ndim):
            keep = jax.vmap(keep)
        return value, mask & keep(value)


@dataclass(frozen=True)
class Samples:
    """The samples to filter."""

    indices: np.ndarray
    """The index of each sample in the source itself."""
    read: Callable[[], Any]
    """Yields ``(i, sample)`` for each sample that can be read, in order."""


def hash_of(indices: np.ndarray) -> str:
    """Returns 16 hexadecimal digits that depend on indices and their order."""
    data = np.ascontiguousarray(indices, "<i8").tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _write(path: Path, kept: np.ndarray, count: int) -> None:
    """Writes a cache file, which gets its name when it is complete."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, samples=count, hash=hash_of(kept), kept=kept)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path, indices: np.ndarray) -> np.ndarray:
    """Returns the booleans of a cache file for the samples with these indices.

    Raises ``ValueError`` if the file belongs to other samples or is damaged.
    """
    remedy = "Delete the file to call the predicate again."
    where = f"{_NAME}: cache={os.fspath(path)!r}"
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            count, stored = int(file["samples"]), str(file["hash"])
            listed = file["kept"].astype(np.int64, casting="safe")
    except (ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{where} is damaged or is not a cache of a filter: {error}. {remedy}"
        ) from error
    if count != len(indices):
        raise ValueError(
            f"{where} is for {count} samples, but the source has {len(indices)}. "
            f"{remedy}"
        )
    kept = np.isin(indices, listed)
    found = hash_of(indices[kept])
    if found != stored:
        raise ValueError(
            f"{where} is damaged or belongs to other samples: the hash of its indices "
            f"is {found}; expected {stored}. {remedy}"
        )
    return kept


class _SampleBar(ProgressBar):
    """A progress bar that counts samples."""

    def _format(self) -> dict[str, Any]:
        return {"unit": " samples"}

    def _line(self) -> str:
        return f"{self.label}: {self._done or 0} of {self._total} samples"
