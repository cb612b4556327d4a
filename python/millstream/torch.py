"""A loader with the interface of PyTorch's ``DataLoader``. It does not need PyTorch.

from millstream.torch import DataLoader

loader = DataLoader(dataset, batch_size=128, shuffle=True)
for epoch in range(2):
    for images, labels in loader:
        params = train_step(params, images, labels)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from millstream._core.arguments import flag, whole
from millstream._delivery.plain import PlainDelivery
from millstream._order.orders import Listed, Order, order_of
from millstream._run.loader import DataLoader as _Loader
from millstream._run.run import Run
from millstream._run.state import EPOCH, words_at
from millstream._run.stats import Stats
from millstream._sources.as_source import check_random_access, source_of
from millstream._sources.collated import CollatedSource
from millstream._sources.functions import DatasetSource, is_dataset
from millstream._sources.ordered import resolve_split
from millstream._sources.recognise import kind_of
from millstream._sources.source import SampleSource, Source
from millstream._stages.batch import BatchTransform

__all__ = ["DataLoader"]

_OUTPUTS = ("jax", "numpy")

_REFUSED = {
    "batch_sampler": (
        None,
        "A batch depends only on the seed, the epoch and the step. Pass batch_size, "
        "shuffle, drop_last and sampler",
    ),
    "worker_init_fn": (
        None,
        "Workers have no numbers, and a sample must not depend on its worker. Put "
        "initialization at the top level of the module of your data set",
    ),
    "pin_memory": (False, "JAX copies from ordinary memory. Remove the argument"),
    "pin_memory_device": ("", "JAX copies from ordinary memory. Remove the argument"),
    "multiprocessing_context": (
        None,
        "Worker processes are never forked. Pass worker_kind='process' or 'thread'",
    ),
    "in_order": (True, "Batches always come in order. Remove the argument"),
}
"""Arguments of PyTorch's loader: the default, and what to do for another value."""


class DataLoader:
    """Iterates over batches of a data set. Each ``iter()`` begins the next epoch.

    Batches have the structure of a sample and no mask. The last batch of an epoch may
    be shorter. The order depends only on ``seed`` and the epoch, so it is the same for
    any number of workers. Several iterators may be open at once. Numbers of 64 bits
    become numbers of 32 bits, as in JAX, unless ``jax_enable_x64`` is on.

    Args:
      dataset: Anything that ``millstream.as_source`` takes, or a list of samples.
      batch_size: The number of samples in a batch. None delivers single samples.
      shuffle: Whether each epoch has a new random order.
      sampler: The indices of the samples of each epoch, in this order, or an order such
        as ``millstream.Weighted(weights)``. Samplers of torch are refused.
      batch_sampler: Not possible; it must be None.
      num_workers: 0 makes samples in one thread ahead of the loop, or in the thread
        of the loop, whichever is faster. n > 0 makes them in n worker processes, or in
        n threads with ``worker_kind="thread"``. Data sets that become arrays need no
        workers and ignore it.
      collate_fn: A function from the list of a batch's samples to a batch. It runs
        where the samples are made. Arrays and tensors of the result become arrays of
        the kind ``output``. Other objects stay as they are.
      pin_memory: Not possible; it must be False.
      drop_last: Whether to leave out a shorter last batch.
      timeout: The time limit in seconds for one sample, and not for a batch as in
        torch. 0 means no limit.
      worker_init_fn: Not possible; it must be None.
      multiprocessing_context: Not possible; it must be None.
      generator: A ``torch.Generator``. Its ``initial_seed()`` is the seed.
      prefetch_factor: How many batches to make ahead for each worker. None means the
        default of ``millstream.DataLoader``.
      persistent_workers: Accepted. Workers always live as long as the loader.
      pin_memory_device: Not possible; it must be "".
      in_order: Batches always come in order; it must be True.
      seed: The seed of the order: an int or a JAX key.
      output: "jax" for JAX arrays, or "numpy" for NumPy arrays.
      worker_kind: "process" or "thread". Ignored if ``num_workers`` is 0.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Sequence[int] | Order | None = None,
        batch_sampler: None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: None = None,
        multiprocessing_context: None = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: Any = 0,
        output: str = "jax",
        worker_kind: str = "process",
    ) -> None:
        _refuse(
            batch_sampler=batch_sampler,
            worker_init_fn=worker_init_fn,
            pin_memory=pin_memory,
            pin_memory_device=pin_memory_device,
            multiprocessing_context=multiprocessing_context,
            in_order=in_order,
        )
        shuffle = flag("DataLoader: shuffle", False if shuffle is None else shuffle)
        drop_last = flag("DataLoader: drop_last", drop_last)
        flag("DataLoader: persistent_workers", persistent_workers)
        num_workers = whole("DataLoader: num_workers", num_workers, 0)
        if batch_size is not None:
            batch_size = whole("DataLoader: batch_size", batch_size, 1)
        elif drop_last:
            raise ValueError("DataLoader: drop_last=True needs a batch_size, not None")
        elif collate_fn is not None:
            raise ValueError(
                "DataLoader: collate_fn needs a batch_size, not None. Apply the "
                "function to single samples in the data set."
            )
        if collate_fn is not None and not callable(collate_fn):
            raise TypeError(
                f"DataLoader: collate_fn must be a function, not {collate_fn!r}"
            )
        if prefetch_factor is not None:
            prefetch_factor = whole("DataLoader: prefetch_factor", prefetch_factor, 1)
        if output not in _OUTPUTS:
            raise ValueError(
                f"DataLoader: output must be one of {_OUTPUTS}, not {output!r}"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.generator = generator
        self.sampler = sampler
        options: dict[str, Any] = {
            "workers": max(num_workers, 1),
            "worker_kind": worker_kind if num_workers else "thread",
        }
        if timeout:
            options["timeout"] = timeout
        ordering = _ordering(shuffle, sampler)
        source = _source(dataset, collate_fn, batch_size, ordering, options)
        stages: list[Any] = [source]
        if batch_size is not None:
            remainder = "drop" if drop_last else "partial"
            stages.append(BatchTransform(batch_size, remainder=remainder))
        ahead = prefetch_factor
        if ahead is None and isinstance(source, CollatedSource):
            ahead = 2  # a worker makes one batch and has the next one queued
        self._loader = _Loader(
            stages, prefetch=None if ahead is None else ahead * options["workers"]
        )
        built = self._loader._built
        if output == "numpy" or isinstance(source, CollatedSource):
            assert built.inner is not None  # the source is not a stream
            self._loader._delivery = PlainDelivery(built.inner, output == "numpy")
        first = self._loader.init_state(_seed(seed, generator))
        self._next = np.array(built.start(first))
        self._begun: _Epoch | None = None

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or the rest of a loaded one."""
        epoch = int(self._next[EPOCH])
        begun = _Epoch(self._loader._delivery, self._next, epoch + 1)
        # One statement, because Ctrl-C may interrupt between any two.
        self._begun, self._next = begun, words_at(self._next, epoch + 1, 0)
        return begun

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self._loader.steps_per_epoch

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the iterator begun last, as a dict for JSON.

        It is exact for any number of workers, also in the middle of an epoch.
        """
        begun = self._begun
        state = self._next if begun is None else begun.state
        return self._loader.save(state)

    def load_state_dict(self, state_dict: Any) -> None:
        """Lets the next ``iter()`` continue at a result of ``state_dict``.

        It yields the rest of that epoch, or the whole next epoch if that one had
        ended. Iterators that are already open are not moved. If the data set, the order
        or the batch size differs, it raises ``ValueError`` and lists the differences.
        """
        state = self._loader.restore(state_dict)
        self._begun, self._next = None, np.array(state.words)

    def explain(self) -> str:
        """Returns a table that says what the data set was recognised as."""
        return self._loader.explain()

    def stats(self) -> Stats:
        """Returns what was delivered, how long loops waited, and what limits them."""
        return self._loader.stats()

    def __repr__(self) -> str:
        return f"millstream.torch.{type(self).__name__}({self._loader._pipeline!r})"


class _Epoch(Run):
    """An iterator over the batches of one epoch, without masks."""

    def __next__(self) -> Any:
        value, _ = super().__next__()
        return value


def _refuse(**arguments: Any) -> None:
    for name, value in arguments.items():
        default, advice = _REFUSED[name]
        if value is not default and value != default:
            raise ValueError(
                f"millstream.torch.DataLoader: {name} must be {default!r}, not "
                f"{value!r}. {advice}."
            )


def _ordering(shuffle: bool, sampler: Any) -> Any:
    """Returns the order of the samples."""
    if sampler is None:
        return "shuffle" if shuffle else "sequential"
    if shuffle:
        raise ValueError("DataLoader: pass shuffle=True or a sampler, not both")
    if isinstance(sampler, Order):
        return sampler
    if isinstance(sampler, Sequence | np.ndarray) and not isinstance(sampler, str):
        return Listed(np.asarray(sampler))
    raise TypeError(
        f"DataLoader: sampler must be a list of indices or a millstream.Order, not "
        f"{type(sampler).__name__}, because a batch depends only on the seed, the "
        "epoch and the step. Instead of a random sampler write shuffle=True; of a "
        "weighted one, sampler=millstream.Weighted(weights); of a subset, "
        "torch.utils.data.Subset(dataset, indices) as the data set."
    )


def _seed(seed: Any, generator: Any) -> Any:
    if generator is None:
        return seed
    if not isinstance(seed, int) or seed != 0:
        raise ValueError("DataLoader: pass a seed or a generator, not both")
    if not hasattr(generator, "initial_seed"):
        raise TypeError(
            "DataLoader: generator must be a torch.Generator, not "
            f"{type(generator).__name__}. Pass seed= instead."
        )
    return int(generator.initial_seed())


def _source(
    dataset: Any,
    collate_fn: Any,
    batch_size: int | None,
    ordering: Any,
    options: dict[str, Any],
) -> SampleSource:
    """Returns the source of the samples. ``options`` are those of ``DatasetSource``."""
    if isinstance(dataset, Source) and not isinstance(dataset, SampleSource):
        raise TypeError(
            "DataLoader: the data set is a pipeline with stages. Use "
            "millstream.DataLoader, or apply the stages in the data set."
        )
    is_samples = isinstance(dataset, list | SampleSource)
    if collate_fn is not None and batch_size is not None:
        if not is_samples and (isinstance(dataset, tuple) or not is_dataset(dataset)):
            dataset = source_of(dataset, "DataLoader", "sequential", {})
        elif not is_samples:
            check_random_access(dataset, "DataLoader")
        source = CollatedSource(dataset, collate_fn, batch_size, ordering, **options)
        return source.with_origin(f"{kind_of(dataset)}, in workers with collate_fn")
    if isinstance(dataset, SampleSource):
        return resolve_split(dataset)._with_order(order_of(ordering))
    if isinstance(dataset, list):
        return DatasetSource(dataset, ordering=ordering, **options)
    return source_of(dataset, "DataLoader", ordering, options)
