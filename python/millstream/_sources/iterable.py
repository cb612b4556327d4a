"""A source whose samples come from a Python iterable, for Python loops."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax

from millstream._core.arguments import whole
from millstream._core.description import Description, Tree
from millstream._core.errors import DataError
from millstream._core.public import public
from millstream._sources.ordered import name_of
from millstream._workers.first_sample import columns_of, warn_of_numbers
from millstream._workers.rows import FieldSpec, as_array

_NOTHING = object()


@public
@dataclass(frozen=True, eq=False)
class IterableSource(Description):
    """The samples of an iterable: a generator, a stream or a data set without indices.

    One iterator runs at a time, in one thread, ``prefetch`` batches ahead of the loop;
    ``prefetch=0`` runs it in the thread of the loop. Only Python loops (``run``,
    ``epochs`` and ``iterate``) can use it, because Python code makes the samples.

    A run resumes through ``state_dict`` and ``load_state_dict``, or ``get_state`` and
    ``set_state``, of the iterable or its iterator. An iterable without them starts
    again, and the samples before the state are skipped. The same state gives the same
    batch only if the iterable yields the same samples again.

    Args:
      make_iterator: A function that returns an iterable, such as a generator function.
        It is called at the start of each epoch, with ``epoch=`` if it has a parameter
        of that name. An object that can be iterated several times is also possible.
        Yield new arrays: a batch is copied only when all of its samples are there.
      element_spec: A pytree of ``jax.ShapeDtypeStruct`` that describes a sample. None
        makes one sample when the loader is built, and describes it.
      steps_per_epoch: The number of samples in an epoch. An iterable that ends before
        is an error, and what it has beyond is left. With None, an epoch ends when the
        iterator does.
    """

    make_iterator: Any
    element_spec: Tree = None
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        given = self.make_iterator
        if isinstance(given, type):
            raise TypeError(
                f"IterableSource: make_iterator is the class {given.__name__} (did you "
                "forget to call it?). Pass an object or a function that makes one: "
                f"lambda: {given.__name__}(...)"
            )
        if hasattr(given, "__next__"):
            raise TypeError(
                f"IterableSource: make_iterator is a {type(given).__name__}, which can "
                "be iterated only once. Pass the function that makes it: "
                "IterableSource(generate), not IterableSource(generate())"
            )
        if not callable(given) and not _is_iterable(given):
            raise TypeError(
                "IterableSource: make_iterator must be a function that returns an "
                f"iterable, or an iterable, not {type(given).__name__}"
            )
        if self.steps_per_epoch is not None:
            name = "IterableSource: steps_per_epoch"
            count = whole(name, self.steps_per_epoch, 1, 1 << 62)
            object.__setattr__(self, "steps_per_epoch", count)
        self._check_parameters()

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @functools.cached_property
    def takes_epoch(self) -> bool:
        """Whether ``make_iterator`` has a parameter ``epoch``."""
        signature = self._signature()
        return signature is not None and "epoch" in signature.parameters

    def _signature(self) -> inspect.Signature | None:
        if not callable(self.make_iterator):
            return None
        try:
            return inspect.signature(self.make_iterator)
        except (TypeError, ValueError):  # a built-in function without a signature
            return None

    def _check_parameters(self) -> None:
        signature = self._signature()
        if signature is None:
            return
        try:
            signature.bind(**({"epoch": 0} if self.takes_epoch else {}))
        except TypeError as error:
            raise TypeError(
                "IterableSource calls make_iterator(), or make_iterator(epoch=0) if it "
                f"has a parameter epoch, but its parameters are {signature}: {error}"
            ) from None

    def iterable(self, epoch: int) -> Any:
        """Returns the iterable of an epoch. Raises ``TypeError`` if it is not one."""
        make = self.make_iterator
        if not callable(make):
            return make
        try:
            made = make(epoch=epoch) if self.takes_epoch else make()
        except StopIteration as error:
            raise RuntimeError(
                "IterableSource: make_iterator raised StopIteration"
            ) from error
        if isinstance(made, type) or not _is_iterable(made):
            found = type(made).__name__
            if isinstance(made, type):
                found = f"the class {made.__name__} (did you forget to call it?)"
            raise TypeError(
                f"IterableSource: make_iterator returned {found}, which cannot be "
                "iterated. Return an iterable, or yield the samples."
            )
        return made

    @functools.cached_property
    def columns(self) -> tuple[tuple[FieldSpec, ...], Tree]:
        """The fields of a sample, and the pytree of their positions."""
        spec = self.element_spec
        if spec is None:
            iterator: Iterator[Any] = iter(self.iterable(0))
            spec = next(iterator, _NOTHING)
            if spec is _NOTHING:
                raise no_sample(0)
            warn_of_numbers("IterableSource", spec, 6)
        for path, leaf in jax.tree_util.tree_flatten_with_path(spec)[0]:
            if isinstance(leaf, jax.ShapeDtypeStruct):
                continue
            if as_array(leaf).dtype.kind in "OUSMm":
                raise TypeError(
                    f"IterableSource: '{name_of(path)}' of a sample is a "
                    f"{type(leaf).__name__}, which JAX arrays cannot hold. Convert it "
                    "to numbers in the iterable, or remove it."
                )
        return columns_of(spec, "IterableSource")


def no_sample(epoch: int) -> DataError:
    """Returns the error for an epoch without samples."""
    return DataError(
        f"IterableSource: the iterable of epoch {epoch} has no samples. make_iterator "
        "must return a new iterable for each epoch: an iterator that was used before "
        "is at its end."
    )


def _is_iterable(value: Any) -> bool:
    if isinstance(value, str | bytes | Mapping):
        return False
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")
