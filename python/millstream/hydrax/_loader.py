"""The `Dataloader`: used in a with block, it iterates over batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar

from millstream._core.arguments import choice, whole
from millstream._core.interrupts import StopOnInterrupt
from millstream._workers.pools import seconds
from millstream.hydrax._batch import Batch
from millstream.hydrax._groups import DataGroup, warn_of_subclass
from millstream.hydrax._place import PlacementFunc, canonical
from millstream.hydrax._run import Run, open_cache
from millstream.hydrax._schedule import Schedule
from millstream.hydrax._work import LoaderFunc, StartupFunc, is_worker

D = TypeVar("D")
Groups = Iterable[DataGroup[D]] | DataGroup[D]


class Dataloader(Generic[D]):
    """Yields training and validation batches that loader processes fill.

    ``with dataloader:`` starts the processes and ends them. ``for batch in dataloader``
    inside it runs from ``start_at`` to ``end_at``. You can enter it again afterwards.

    Args:
      loader_func: ``(descriptor, arrays, seed)``, called in the loader processes. It
        writes one item's values into ``arrays`` and may return a dict of additional
        data. ``seed`` is None for validation. It must not keep the arrays.
      training: A group or a list of groups. An epoch has the batches of all of them.
      validation: ``("epoch" or "batch", interval, group or groups)``. Validation runs
        after every ``interval`` epochs or batches, counted from epoch 0.
      depth: How many batches exist at once, including the one in use.
      loader_count: The number of loader processes. Groups with different arrays have
        this many processes each.
      loader_nice: The niceness of the loader processes.
      cacher_count: The number of threads that write to each group's cache.
      start_at: ``(epoch, batches)``: the run starts this many batches after the
        start of this epoch. ``batches`` may exceed an epoch.
      end_at: ``("epoch" or "batch", number)``: the run ends before this epoch or batch,
        counted from epoch 0. With ``("never", 0)`` or None it runs until interrupted.
      interleave_groups: Whether the batches of several groups are mixed evenly over the
        epoch. With False one group follows another.
      deterministic: Whether batches come in order. With False they come as soon as they
        are ready.
      timeout_sec: After this many seconds without a batch the loop raises
        `BatchTimeoutError`. With 0 or less, or infinity, it waits forever.
      startup_func: Called once in each loader process, before anything else.
      placement_func: ``(arrays, layouts, additional, group) -> {name: jax.Array}``.
        Without it, arrays go to JAX's default device.
      on_error: What happens when ``loader_func`` or ``placement_func`` raises.
        ``"drop"`` leaves the batch out and warns with the traceback. ``"raise"`` raises
        the exception from the loop.
    """

    def __init__(
        self,
        loader_func: LoaderFunc,
        training: Groups[D],
        *,
        validation: tuple[str, int, Groups[D]] | None = None,
        depth: int = 3,
        loader_count: int = 1,
        loader_nice: int = 0,
        cacher_count: int = 1,
        start_at: tuple[int, int] = (0, 0),
        end_at: tuple[str, int] | None = None,
        interleave_groups: bool = True,
        deterministic: bool = True,
        timeout_sec: float = 60,
        startup_func: StartupFunc | None = None,
        placement_func: PlacementFunc | None = None,
        on_error: str = "drop",
    ) -> None:
        if is_worker():
            raise RuntimeError(
                "a Dataloader cannot run in a worker process, so it cannot be created "
                "in a loader process. Guard the training code with "
                "if __name__ == '__main__': or if not hydrax.is_worker():"
            )
        warn_of_subclass(self, Dataloader)
        for name, function in (
            ("startup_func", startup_func),
            ("placement_func", placement_func),
        ):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function; found {function!r}")
        trained = _as_groups("training", training)
        mode, validated = _validation(validation)
        groups = (*trained, *validated)
        for group in groups:
            _warn_of_narrowing(group)
            if group._cache_location is not None:
                open_cache(group)  # raises if the cache does not match
        per_epoch = sum(group.batch_count for group in trained)
        self._run: Run | None = None
        self._interrupts: StopOnInterrupt | None = None
        self._function = loader_func
        self._groups = groups
        self._schedule = Schedule(
            training=tuple(group._order for group in trained),
            validating=tuple(group._order for group in validated),
            validation=mode,
            first=_first(start_at, per_epoch),
            last=_last(end_at, per_epoch),
            interleave=bool(interleave_groups),
        )
        self._depth = whole("depth", depth, 1)
        self._loader_count = _loaders(loader_func, loader_count, groups)
        self._loader_nice = whole("loader_nice", loader_nice, 0)
        self._cacher_count = _cachers(cacher_count, groups)
        self._deterministic = bool(deterministic)
        self._timeout = seconds("timeout_sec", timeout_sec, forever=True)
        self._startup = startup_func
        self._placement = placement_func
        self._on_error = choice("on_error", on_error, "drop", "raise")

    def __enter__(self) -> Self:
        if self._run is not None:
            raise RuntimeError(
                "the dataloader is already set up. Leave its with block before you "
                "enter it again."
            )
        self._run = Run(self)
        self._interrupts = self._run.interrupts
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        run, self._run = self._started(), None
        run.close(kind)

    def __iter__(self) -> Self:
        self._started()
        return self

    def __next__(self) -> Batch[D]:
        """The next batch."""
        return self._started().next()

    @property
    def batches_per_epoch(self) -> int:
        """How many training batches an epoch has."""
        return self._schedule.batches_per_epoch

    @property
    def batches_per_validation(self) -> int:
        """How many batches a validation has; 0 without ``validation``."""
        return self._schedule.batches_per_validation

    @property
    def first_batch(self) -> int:
        """The number of the training batch to which ``start_at`` refers."""
        return self._schedule.first

    @property
    def last_batch(self) -> int | None:
        """The number of the training batch before which the run ends, or None."""
        return self._schedule.last

    @property
    def deterministic(self) -> bool:
        """Whether batches come in order."""
        return self._deterministic

    @property
    def interrupted(self) -> bool:
        """Whether the current run, or else the last one, was interrupted."""
        return self._interrupts is not None and self._interrupts.stopped

    def interrupt(self) -> None:
        """Ends the run: the loop gets no more batches. Any thread may call this."""
        self._started().interrupts.stop()

    def idle_usec(self) -> int:
        """How many microseconds the loop has waited for batches since the last call.

        The wait for a run's first batch does not count.
        """
        if self._run is None:
            return 0
        idle, self._run.idle = self._run.idle, 0.0
        return int(idle * 1e6)

    def _started(self) -> Run:
        if self._run is None:
            raise RuntimeError(
                "the dataloader is not running: the dataloader is not set up. Use it "
                "in a with block."
            )
        return self._run


def _as_groups(name: str, groups: Any) -> tuple[DataGroup[Any], ...]:
    is_list = isinstance(groups, Iterable) and not isinstance(groups, DataGroup)
    found = tuple(groups) if is_list else (groups,)
    for group in found:
        if not isinstance(group, DataGroup):
            raise TypeError(
                f"{name} must be a DataGroup or a list of DataGroups: data of type "
                f"{type(group).__name__} is not in a hydrax.DataGroup"
            )
    if not found:
        raise ValueError(f"{name} is empty. Pass at least one DataGroup.")
    return found


def _parts(name: str, value: Any, *parts: str) -> tuple[Any, ...]:
    """Returns ``value``. Raises ``ValueError`` unless it is a tuple of ``parts``."""
    if not isinstance(value, tuple) or len(value) != len(parts):
        raise ValueError(f"{name} must be ({', '.join(parts)}); found {value!r}")
    return value


def _validation(
    validation: Any,
) -> tuple[tuple[str, int] | None, tuple[DataGroup[Any], ...]]:
    if validation is None:
        return None, ()
    mode, interval, groups = _parts(
        "validation", validation, "mode", "interval", "groups"
    )
    mode = choice("validation mode", mode, "epoch", "batch")
    interval = whole("validation's interval", interval, 1)
    return (mode, interval), _as_groups("validation", groups)


def _first(start_at: Any, per_epoch: int) -> int:
    epoch, batches = _parts("start_at", start_at, "epoch", "batches")
    epoch = whole("start_at must not be negative: its epoch", epoch, 0)
    batches = whole("start_at must not be negative: its batches", batches, 0)
    return int(epoch * per_epoch + batches)


def _last(end_at: Any, per_epoch: int) -> int | None:
    if end_at is None:
        return None
    mode, number = _parts("end_at", end_at, "mode", "number")
    if choice("end_at endpoint", mode, "never", "epoch", "batch") == "never":
        return None
    number = whole("end_at's number", number, 0)
    return int(number * per_epoch if mode == "epoch" else number)


def _loaders(function: Any, count: Any, groups: tuple[DataGroup[Any], ...]) -> int:
    """The number of loader processes; 0 if every group is read from its cache only."""
    if all(group.loader_layouts is None for group in groups):
        return 0
    if not callable(function):
        raise TypeError(f"loader_func must be a function; found {function!r}")
    return whole("loaders are required, cannot provision none: loader_count", count, 1)


def _cachers(count: Any, groups: tuple[DataGroup[Any], ...]) -> int:
    """The number of threads for each cache; 1 if no cache is written."""
    if all(group._cache_readonly or group.cache_layouts is None for group in groups):
        return 1
    return whole("cachers are required, cannot provision none: cacher_count", count, 1)


def _warn_of_narrowing(group: DataGroup[Any]) -> None:
    for layouts in (group.loader_layouts, group.cache_layouts):
        for name, (_, _, dtype, _, _) in (layouts or {}).items():
            if canonical(dtype) != dtype:
                warnings.warn(
                    f"the array {name!r} has the JAX dtype {dtype}, but "
                    f"jax_enable_x64 is off, so JAX uses {canonical(dtype)}",
                    UserWarning,
                    stacklevel=4,
                )
