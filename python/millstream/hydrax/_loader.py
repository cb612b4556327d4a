"""The `Dataloader`: used in a with block, it iterates over batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, TypeVar

from millstream._core.arguments import whole
from millstream._workers.pools import seconds
from millstream.hydrax import _cache
from millstream.hydrax._batch import Batch
from millstream.hydrax._groups import DataGroup
from millstream.hydrax._place import PlacementFunc, canonical
from millstream.hydrax._run import BatchTimeoutError, Plan, Run
from millstream.hydrax._schedule import Schedule
from millstream.hydrax._work import LoaderFunc, is_worker

__all__ = ["BatchTimeoutError", "Dataloader"]

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
      cacher_count: The number of threads that write to caches.
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
        startup_func: Callable[[], None] | None = None,
        placement_func: PlacementFunc | None = None,
        on_error: str = "drop",
    ) -> None:
        if is_worker():
            raise RuntimeError(
                "a Dataloader cannot be created in a loader process. Guard the "
                "training code with if __name__ == '__main__': or "
                "if not hydrax.is_worker():"
            )
        if type(self) is not Dataloader:
            warnings.warn(
                f"{type(self).__name__} derives from hydrax.Dataloader, which is not "
                "supported. Use a Dataloader as an attribute instead.",
                SyntaxWarning,
                stacklevel=2,
            )
        for name, function in (
            ("startup_func", startup_func),
            ("placement_func", placement_func),
        ):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function; found {function!r}")
        if on_error not in ("drop", "raise"):
            raise ValueError(f"on_error must be 'drop' or 'raise'; found {on_error!r}")
        trained = _as_groups("training", training)
        mode, validated = _validation(validation)
        groups = (*trained, *validated)
        for group in groups:
            _warn_of_narrowing(group)
            _cache.prepare(group)
        per_epoch = sum(group.batch_count for group in trained)
        self._interrupted = False
        self._run: Run | None = None
        self._plan = Plan(
            function=loader_func,
            groups=groups,
            schedule=Schedule(
                training=tuple(group._order for group in trained),
                validating=tuple(group._order for group in validated),
                validation=mode,
                first=_first(start_at, per_epoch),
                last=_last(end_at, per_epoch),
                interleave=bool(interleave_groups),
            ),
            depth=whole("depth", depth, 1),
            loader_count=_loaders(loader_func, loader_count, groups),
            loader_nice=whole("loader_nice", loader_nice, 0),
            cacher_count=_cachers(cacher_count, groups),
            deterministic=bool(deterministic),
            timeout=seconds("timeout_sec", timeout_sec, forever=True),
            startup=startup_func,
            placement=placement_func,
            on_error=on_error,
        )

    def __enter__(self) -> Self:
        if self._run is not None:
            raise RuntimeError(
                "the dataloader is set up already. Leave its with block before you "
                "enter it again."
            )
        self._interrupted = False
        self._run = Run(self._plan)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        run = self._started()
        self._run = None
        try:
            run.close(failed=kind is not None)
        finally:
            self._interrupted = run.interrupts.stopped

    def __iter__(self) -> Self:
        self._started()
        return self

    def __next__(self) -> Batch[D]:
        """The next batch."""
        return self._started().next()

    @property
    def batches_per_epoch(self) -> int:
        """How many training batches an epoch has."""
        return self._plan.schedule.batches_per_epoch

    @property
    def batches_per_validation(self) -> int:
        """How many batches a validation has; 0 without ``validation``."""
        return self._plan.schedule.batches_per_validation

    @property
    def first_batch(self) -> int:
        """The number of the training batch to which ``start_at`` refers."""
        return self._plan.schedule.first

    @property
    def last_batch(self) -> int | None:
        """The number of the training batch before which the run ends, or None."""
        return self._plan.schedule.last

    @property
    def deterministic(self) -> bool:
        """Whether batches come in order."""
        return self._plan.deterministic

    @property
    def interrupted(self) -> bool:
        """Whether the current run, or else the last one, was interrupted."""
        if self._run is not None:
            return self._run.interrupts.stopped
        return self._interrupted

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
            raise RuntimeError("the dataloader is not running: use it in a with block.")
        return self._run


def _as_groups(name: str, groups: Any) -> tuple[DataGroup[Any], ...]:
    if isinstance(groups, DataGroup):
        return (groups,)
    if not isinstance(groups, Iterable):
        raise TypeError(
            f"{name} must be a DataGroup or a list of DataGroups; found {groups!r}"
        )
    found = tuple(groups)
    for group in found:
        if not isinstance(group, DataGroup):
            raise TypeError(
                f"{name} must contain only DataGroups; found {type(group).__name__}"
            )
    if not found:
        raise ValueError(f"{name} is empty. Pass at least one DataGroup.")
    return found


def _validation(
    validation: Any,
) -> tuple[tuple[str, int] | None, tuple[DataGroup[Any], ...]]:
    if validation is None:
        return None, ()
    if not isinstance(validation, tuple) or len(validation) != 3:
        raise ValueError(
            f"validation must be (mode, interval, groups); found {validation!r}"
        )
    mode, interval, groups = validation
    if mode not in ("epoch", "batch"):
        raise ValueError(
            f"validation's mode must be 'epoch' or 'batch'; found {mode!r}"
        )
    interval = whole("validation's interval", interval, 1)
    return (mode, interval), _as_groups("validation", groups)


def _first(start_at: Any, per_epoch: int) -> int:
    if not isinstance(start_at, tuple) or len(start_at) != 2:
        raise ValueError(f"start_at must be (epoch, batches); found {start_at!r}")
    epoch = whole("start_at's epoch", start_at[0], 0)
    return epoch * per_epoch + whole("start_at's batches", start_at[1], 0)


def _last(end_at: Any, per_epoch: int) -> int | None:
    if end_at is None:
        return None
    if not isinstance(end_at, tuple) or len(end_at) != 2:
        raise ValueError(f"end_at must be (mode, number); found {end_at!r}")
    mode, number = end_at
    if mode == "never":
        return None
    if mode not in ("epoch", "batch"):
        raise ValueError(
            f"end_at's mode must be 'epoch', 'batch' or 'never'; found {mode!r}"
        )
    number = whole("end_at's number", number, 0)
    return number * per_epoch if mode == "epoch" else number


def _loaders(function: Any, count: Any, groups: tuple[DataGroup[Any], ...]) -> int:
    """The number of loader processes; 0 if every group is read from its cache only."""
    if all(group._loader_layouts is None for group in groups):
        return 0
    if not callable(function):
        raise TypeError(f"loader_func must be a function; found {function!r}")
    return whole("loader_count", count, 1)


def _cachers(count: Any, groups: tuple[DataGroup[Any], ...]) -> int:
    writes = any(
        group._cache_location is not None and not group._cache_readonly
        for group in groups
    )
    return whole("cacher_count", count, 1) if writes else 0


def _warn_of_narrowing(group: DataGroup[Any]) -> None:
    for layouts in (group._loader_layouts, group._cache_layouts):
        for name, (_, _, dtype, _, _) in (layouts or {}).items():
            if canonical(dtype) != dtype:
                warnings.warn(
                    f"the array {name!r} has the JAX dtype {dtype}, but "
                    f"jax_enable_x64 is off, so JAX uses {canonical(dtype)}",
                    UserWarning,
                    stacklevel=4,
                )
