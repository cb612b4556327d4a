"""The loader, which delivers the batches of a pipeline."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, Never, NoReturn, Self, overload

import jax
import numpy as np

from millstream._core.arguments import whole
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._delivery.host import HostDelivery, stepper
from millstream._delivery.iterable import IterableDelivery
from millstream._delivery.iterable import stepper as iterable_stepper
from millstream._delivery.stream import StreamDelivery
from millstream._delivery.stream import stepper as stream_stepper
from millstream._run import resume
from millstream._run.arguments import unknown_arguments
from millstream._run.built import BuiltPipeline
from millstream._run.iterable import IterablePipeline
from millstream._run.iterator import BatchIterator, Delivery
from millstream._run.pickling import check_picklable, pickles_by_value
from millstream._run.pipeline import assembled
from millstream._run.run import Epochs, Run
from millstream._run.scan import Body, CompiledScans, check_body, run_program, scan
from millstream._run.state import LoaderState, is_traced
from millstream._run.stats import Stats, stats_of
from millstream._run.stream import Built, StreamPipeline, built_pipeline
from millstream._sources.source import Source

_MAX_COUNT = (1 << 31) - 1

Step = Callable[[Any], tuple[Tree, LoaderState, Any]]


@public
class DataLoader:
    """Delivers batches of a pipeline to a Python loop and to code inside ``jax.jit``.

    A batch is a pure function of the state. Both ways deliver the same bytes, and a
    resumed run continues exactly.

    Args:
      pipeline: A source, or a list of a source and stages.
      threads: The largest number of threads to use. All loaders share one thread pool.
      prefetch: How many batches to make ahead.
      traced: True gathers samples with XLA, as on an accelerator, even if the engine
        could read them.
      on_error: "raise", or "skip" to skip samples that fail every time, because their
        bytes are corrupt or a function raises. The rows of skipped samples are zero and
        their mask is False. Errors that may go away (a worker that died or timed out,
        EIO) are retried and then raised.
      error_budget: How many samples may be skipped in the delivered batches. None means
        no limit.
    """

    next_batch: Callable[[Any], tuple[Tree, LoaderState, Any]]
    """``next_batch(state) -> (batch, state, mask)``, eagerly or inside ``jax.jit``.

    It is always the same object, so ``jax.jit(loader.next_batch)`` traces it only once.
    """

    # Compatibility packages set it to False.
    _warns_of_repeats: bool = True

    def __init__(
        self,
        pipeline: Sequence[Any] | Source | None = None,
        *stages: Never,
        threads: int | None = None,
        prefetch: int | None = None,
        traced: bool = False,
        on_error: str = "raise",
        error_budget: int | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise unknown_arguments(unknown)
        if stages:
            raise TypeError(
                "DataLoader takes one list: DataLoader([source, BatchTransform(128)])"
            )
        if threads is not None:
            threads = whole("threads", threads, 1, _MAX_COUNT)
        if prefetch is not None:
            prefetch = whole("prefetch", prefetch, 0, _MAX_COUNT)
        if error_budget is not None:
            error_budget = whole("error_budget", error_budget, 0)
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", not {on_error!r}')
        if error_budget is not None and on_error == "raise":
            raise ValueError(
                'error_budget cannot be combined with on_error="raise". Use '
                'on_error="skip".'
            )
        source = assembled(pipeline)
        self._pipeline = [source.head, *source.stages]
        self._arguments: dict[str, Any] = {
            "threads": threads,
            "prefetch": prefetch,
            "traced": traced,
            "on_error": on_error,
            "error_budget": error_budget,
        }
        options = {
            "threads": threads,
            "prefetch": prefetch,
            "traced": traced,
            "skip": on_error == "skip",
            "error_budget": error_budget,
        }
        self._built = built_pipeline(source.head, source.stages, **options)
        self._native = self._built.inner
        if on_error == "skip" and self._native is not None:
            self._native.check_masked()
        self._scans = CompiledScans(self._built)
        self._delivery, self.next_batch = delivery_of(self._built)

    def __reduce__(self) -> Any:
        """Pickles the pipeline and the keyword arguments. Unpickling builds a loader.

        Raises ``TypeError`` if a source or a stage cannot be pickled, and names it.
        """
        if not pickles_by_value(sys._getframe(1)):
            check_picklable(self._pipeline)
        return functools.partial(type(self), **self._arguments), (self._pipeline,)

    def __copy__(self) -> Self:
        """Builds a loader with the same source, stages and keyword arguments."""
        return type(self)(self._pipeline, **self._arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Builds a loader with a deep copy of the source.

        It shares the stages, which are immutable, and the devices.
        """
        memo.update((id(device), device) for device in jax.devices())
        head, *stages = self._pipeline
        return type(self)([copy.deepcopy(head, memo), *stages], **self._arguments)

    @property
    def next(self) -> Callable[[Any], tuple[Tree, LoaderState, Any]]:
        """The same as ``next_batch``."""
        return self.next_batch

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self.steps_per_epoch

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a DataLoader has no position of its own. Iterate a run: "
            "for batch, mask in loader.run(seed=0, epochs=1): ..."
        )

    def __next__(self) -> NoReturn:
        raise TypeError(
            "a DataLoader has no position of its own. Make a run and take its next "
            "batch: run = loader.run(seed=0), then batch, mask = next(run)"
        )

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch.

        Raises ``TypeError`` if only the iterator of an ``IterableSource`` knows it.
        """
        if not self._built.steps:
            raise TypeError(
                "the number of batches is not known, because an epoch ends when the "
                "iterator does. Pass steps_per_epoch= to IterableSource."
            )
        return self._built.steps

    @property
    def last_error(self) -> BaseException | None:
        """The last error inside jit as its original exception, or None."""
        return self._built.last_error

    @property
    def skipped(self) -> dict[int, str]:
        """The skipped samples of the batches delivered so far: {index: reason}."""
        if self._native is None:
            return {}
        skipped = self._native.engine.skipped
        indices = self._native.source_indices(np.array(list(skipped), np.int64))
        return dict(zip(indices.tolist(), skipped.values(), strict=True))

    @property
    def delivered(self) -> int:
        """The number of batches delivered so far, including those inside jit."""
        return self._built.delivered

    @property
    def bytes_read(self) -> int:
        """The number of bytes that this process has requested from the source."""
        return 0 if self._native is None else self._native.engine.bytes_read

    def element_spec(self) -> Tree:
        """Returns a ``jax.ShapeDtypeStruct`` for each leaf of a batch."""
        return self._built.element_spec()

    def init_state(self, key: Any = None) -> LoaderState:
        """Returns the first state. ``key`` is an int, a raw key or a typed key."""
        return self._built.init_state(key)

    @overload
    def save(self, state: Any, *, format: Literal["dict"] = ...) -> dict[str, Any]: ...
    @overload
    def save(self, state: Any, *, format: Literal["bytes"]) -> bytes: ...
    def save(self, state: Any, *, format: str = "dict") -> dict[str, Any] | bytes:
        """Returns a state as a dict that JSON can hold, or as bytes.

        It also describes the pipeline, so that ``restore`` can list differences.
        """
        if format not in ("dict", "bytes"):
            raise ValueError(f"format must be 'dict' or 'bytes', not {format!r}")
        if format == "bytes":
            return resume.save_bytes(self._built, state)
        return resume.save_state(self._built, state)

    def restore(self, saved: Any, *, by: str = "step") -> LoaderState:
        """Returns the state in a result of ``save``. A bare state is only checked.

        The number of processes, devices and threads may have changed since. If the
        pipeline has changed, it raises ``ValueError`` and lists the differences. With
        ``by="sample"`` the batch size may change too. The state is then that of the
        batch with the next sample. If this batch starts with samples that were already
        delivered, it warns.
        """
        return resume.restore_state(self._built, saved, by)

    def which_samples(self, state: Any) -> np.ndarray:
        """Returns the sample indices (int64) of the batch at ``state``, -1 for padding.

        It reads no data.
        """
        if not isinstance(self._built, BuiltPipeline) or self._native is None:
            raise TypeError(
                "which_samples() has no meaning for a stream, because the values of "
                f"{type(self._pipeline[0]).__name__} depend on its state and have no "
                "indices"
            )
        words = self._built.words(state)
        if is_traced(words):
            raise TypeError(
                "which_samples() cannot be used inside jit. Call it outside."
            )
        samples = np.asarray(self._built.plan.indices(np.asarray(words)))
        return self._built.source_indices(samples)

    def stats(self) -> Stats:
        """Returns what was delivered, how long loops waited, and what limits them."""
        return stats_of(self._built, self._delivery.steps)

    def explain(self) -> str:
        """Returns a table of all stages: where each runs, its shapes and dtypes.

        After batches were delivered, it also has the text of ``stats()``.
        """
        from millstream._run.explain import explained

        return explained(self._built, self.stats())

    def __repr__(self) -> str:
        defaults = inspect.signature(DataLoader).parameters
        options = [
            f", {name}={value!r}"
            for name, value in self._arguments.items()
            if value != defaults[name].default
        ]
        return f"{type(self).__name__}({self._pipeline!r}{''.join(options)})"

    def _repr_html_(self) -> str:
        """Returns the table of ``explain`` as HTML, for notebooks."""
        from millstream._run.explain import explained_in_html

        return explained_in_html(self._built, self.stats())

    def run(
        self,
        state: Any = None,
        *,
        seed: Any = None,
        epochs: int | None = None,
        steps: int | None = None,
        progress: bool = False,
    ) -> Run:
        """Returns an iterator over ``(batch, mask)`` across epochs.

        The same call starts and resumes a training: ``epochs`` and ``steps`` set where
        the training ends, counted from epoch 0. A state at the end or later yields
        nothing. ``run.state`` identifies the next batch, so you can save it at any
        moment. ``run.epoch`` and ``run.epoch_ended`` describe the batch delivered last,
        and ``run.step`` counts the batches since epoch 0.

        Args:
          state: Where to start or resume. None starts at epoch 0.
          seed: The seed to start with, or a key; 0 by default. Only without ``state``.
          epochs: The number of epochs in the training. None sets no limit.
          steps: The number of batches in the training. None sets no limit. With
            ``epochs`` and ``steps``, the earlier end counts.
          progress: Whether to show a progress bar on standard error, as ``iterate``
            does.
        """
        call = f"run(seed={state!r}, epochs=1)"
        position = self._first_position("run", state, seed, call)
        if epochs is not None:
            epochs = whole("epochs", epochs, 0)
        if steps is not None:
            steps = whole("steps", steps, 0)
        kind: type[Run] = Run
        if progress:
            from millstream._run.progress_loop import WatchedRun

            kind = WatchedRun
        kind = self._delivery.iterator_class(kind)
        return kind(self._delivery, position, epochs, steps)

    def epochs(self, epochs: int, state: Any = None, *, seed: Any = None) -> Epochs:
        """Returns an iterator over epochs, for nested loops.

        Each epoch is an iterator over ``(batch, mask)`` with ``epoch`` and ``state``.
        If you leave an epoch with ``break``, the next one starts at its beginning. A
        state in the middle of an epoch yields the rest of that epoch first.

        Args:
          epochs: The number of epochs in the training, counted from epoch 0.
          state: Where to start or resume. None starts at epoch 0.
          seed: The seed to start with, or a key; 0 by default. Only without ``state``.
        """
        count = whole("epochs", epochs, 0)
        call = f"epochs({count}, seed={state!r})"
        position = self._first_position("epochs", state, seed, call)
        return Epochs(self._delivery, position, count)

    def _first_position(self, method: str, state: Any, seed: Any, call: str) -> Any:
        """Returns the position at which ``run`` or ``epochs`` starts."""
        if state is not None and seed is not None:
            raise TypeError(
                f"{method}() takes a state or a seed, not both, because a state "
                f"contains its seed. Use {method}(state) to resume."
            )
        if state is None:
            state = self.init_state(seed)
        _check_state(method, state, call)
        return self._untraced(method, state)

    def _untraced(self, method: str, state: Any) -> Any:
        """Returns the position of a state. Raises ``TypeError`` inside jit."""
        position = self._built.start(state)
        if self._built.in_jit or any(map(is_traced, jax.tree.leaves(position))):
            raise TypeError(f"{method}() cannot be used inside jit. Use scan_epoch().")
        return position

    def iterate(
        self, state: Any = None, *, steps: int | None = None, progress: bool = False
    ) -> BatchIterator:
        """Returns an iterator over ``(batch, mask)`` to the end of the state's epoch.

        With ``steps``, it yields this number of batches, also across epochs. The
        iterator's ``state`` identifies the batch after the last one delivered.
        ``progress`` shows a progress bar on standard error. It has the samples per
        second, the time that a step waits for data, and what limits the loop.
        """
        _check_state("iterate", state, f"run(seed={state!r}, epochs=1)")
        position = self._untraced("iterate", state)
        if steps is not None:
            steps = whole("steps", steps, 0)
        kind: type[BatchIterator] = BatchIterator
        if progress:
            from millstream._run.progress_loop import WatchedIterator

            kind = WatchedIterator
        kind = self._delivery.iterator_class(kind)
        return kind(self._delivery, position, steps, self._watch_repeats(state, steps))

    def _watch_repeats(
        self, state: Any, steps: int | None
    ) -> Callable[[], None] | None:
        """Warns once if this loader has iterated from ``state`` to the end before.

        Returns a function to call at the end of the iteration. Only a whole epoch from
        the same object counts: an equal state may have been made to repeat an epoch.
        """
        if not isinstance(state, LoaderState) or state.step or steps is not None:
            return None
        serial = self._built.serial
        repeats = state.finished_by == serial and self._built.depends_on_epoch
        if repeats and self._warns_of_repeats:
            self._warns_of_repeats = False
            warnings.warn(
                f"iterate() was called again with the same state, {state!r}, so it "
                "repeats that epoch: the same batches with the same random numbers. "
                "For several epochs use: for batch, mask in loader.run(epochs=...). "
                "To repeat an epoch on purpose, call init_state() or restore() again.",
                UserWarning,
                stacklevel=3,
            )
        return functools.partial(setattr, state, "finished_by", serial)

    def scan_epoch(
        self,
        state: Any,
        carry: Any,
        body_fn: Body,
        *,
        steps: int | None = None,
        unroll: bool | int = 1,
        progress: bool = False,
    ) -> tuple[LoaderState, Any, Any]:
        """Runs ``body_fn(carry, batch, mask) -> (carry, output)`` for an epoch.

        Returns ``(state, carry, outputs)`` with stacked outputs, like ``lax.scan``. It
        starts at ``state``. ``steps`` sets another number of steps, such as the rest
        of an epoch. ``unroll`` is the number of steps that XLA unrolls into one pass of
        the loop; True unrolls all of them, and False none. Outside jit it compiles once
        for each ``body_fn`` and waits for the result. So define the function once,
        outside the loop over epochs. A function that is defined again for each call is
        compiled each time, and the third time warns. ``progress`` shows a progress bar
        on standard error while the program runs. It is not possible inside jit. If XLA
        gathers the samples, as on an accelerator, the bar shows only the start and the
        end.
        """
        self._built.check_traceable()
        position = self._built.start(state)
        length = self.steps_per_epoch if steps is None else whole("steps", steps, 0)
        check_body(body_fn)
        unroll = _unrolled(unroll, length)
        leaves = jax.tree.leaves((position, carry))
        traced = self._built.in_jit or any(map(is_traced, leaves))
        arrays = self._built.arrays()
        if progress and (traced or is_traced(jax.numpy.zeros(()))):
            raise ValueError(
                "scan_epoch(progress=True) cannot be used inside jit. Call scan_epoch "
                "outside jit, or use run(progress=True)."
            )
        if traced:
            result = scan(self._built, body_fn, length, unroll, position, carry, arrays)
        else:
            program = self._scans.program(body_fn, length, unroll)
            position = self._built.on_device(position)
            arguments = (self._built, program, position, carry, arrays)
            if progress:
                from millstream._run.progress_loop import run_with_bar

                result = run_with_bar(length, *arguments)
            else:
                result = run_program(*arguments)
        position, carry, outputs = result
        return self._built.state(position), carry, outputs


def delivery_of(built: Built) -> tuple[Delivery, Step]:
    """Returns how a Python loop gets batches, and ``next_batch``."""
    if isinstance(built, IterablePipeline):
        iterable = IterableDelivery(built)
        return iterable, iterable_stepper(iterable)
    if isinstance(built, StreamPipeline):
        streamed = StreamDelivery(built)
        return streamed, stream_stepper(streamed)
    host = HostDelivery(built)
    return host, stepper(host)


def _unrolled(unroll: Any, length: int) -> int:
    """Returns the number of steps in one pass of the loop. True means all of them."""
    if isinstance(unroll, bool | np.bool_):
        return max(length, 1) if unroll else 1
    return whole("unroll", unroll, 1)


def _check_state(method: str, state: Any, call: str) -> None:
    """Raises ``TypeError`` if a method was called with a seed, or without a state."""
    is_scalar = hasattr(state, "dtype") and np.ndim(state) == 0
    if not (state is None or isinstance(state, int) or is_scalar):
        return
    if state is None:
        raise TypeError(
            f"{method}() needs a state: loader.{method}(loader.init_state(0)). To "
            "start from a seed, use loader.run(seed=0, epochs=1)."
        )
    raise TypeError(
        f"{method}() needs a state, found {state!r}. To start from a seed, pass it by "
        f"name: loader.{call}"
    )
