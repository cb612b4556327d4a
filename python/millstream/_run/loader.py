"""The loader, which delivers the batches of a pipeline."""

from __future__ import annotations

import functools
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import jax
import numpy as np
from jax import lax

from millstream import _engine
from millstream._core.arguments import whole
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._delivery import jit
from millstream._delivery.host import HostDelivery, stepper
from millstream._run import resume
from millstream._run.built import BuiltPipeline
from millstream._run.iterator import BatchIterator
from millstream._run.pipeline import assembled
from millstream._run.state import LoaderState, is_traced
from millstream._sources.source import Source

Body = Callable[[Any, Tree, Any], tuple[Any, Any]]

_MAX_COUNT = (1 << 31) - 1


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

    def __init__(
        self,
        pipeline: Sequence[Any] | Source,
        *,
        threads: int | None = None,
        prefetch: int | None = None,
        traced: bool = False,
        on_error: str = "raise",
        error_budget: int | None = None,
    ) -> None:
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
        self._built = BuiltPipeline(
            source.head,
            source.stages,
            threads=threads,
            prefetch=prefetch,
            traced=traced,
            skip=on_error == "skip",
            error_budget=error_budget,
        )
        if on_error == "skip":
            self._built.check_masked()
        self._scans: dict[int, tuple[weakref.ref[Any], dict[Any, Any]]] = {}
        self._delivery = HostDelivery(self._built)
        self.next_batch = stepper(self._delivery)

    @property
    def next(self) -> Callable[[Any], tuple[Tree, LoaderState, Any]]:
        """The same as ``next_batch``."""
        return self.next_batch

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return self._built.steps

    @property
    def last_error(self) -> BaseException | None:
        """The last error inside jit as its original exception, or None."""
        return self._built.last_error

    @property
    def skipped(self) -> dict[int, str]:
        """The skipped samples of the batches delivered so far: {index: reason}."""
        return dict(self._built.engine.skipped)

    @property
    def delivered(self) -> int:
        """The number of batches delivered so far, including those inside jit."""
        return self._built.engine.delivered

    @property
    def bytes_read(self) -> int:
        """The number of bytes that this process has requested from the source."""
        return self._built.engine.bytes_read

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
        saved = resume.save_state(self._built, self._built.words(state))
        return saved if format == "dict" else resume.as_bytes(saved)

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
        words = self._built.words(state)
        if is_traced(words):
            raise TypeError(
                "which_samples() cannot be used inside jit. Call it outside."
            )
        return np.asarray(self._built.plan.indices(np.asarray(words)))

    def explain(self) -> str:
        """Returns a table of all stages: where each runs, its shapes and dtypes."""
        from millstream._run.explain import explained

        return explained(self._built)

    def iterate(
        self, state: Any, *, steps: int | None = None, progress: bool = False
    ) -> BatchIterator:
        """Returns an iterator over ``(batch, mask)`` to the end of the state's epoch.

        With ``steps``, it yields this number of batches, also across epochs. The
        iterator's ``state`` identifies the batch after the last one delivered.
        ``progress`` shows a progress bar on standard error. It has the samples per
        second, the time that a step waits for data, and what limits the loop.
        """
        words = self._built.start(state)
        if is_traced(words):
            raise TypeError("iterate() cannot be used inside jit. Use scan_epoch().")
        if steps is not None:
            steps = whole("steps", steps, 0)
        if progress:
            from millstream._run.progress_loop import WatchedIterator

            return WatchedIterator(self._delivery, words, steps)
        return BatchIterator(self._delivery, words, steps)

    def scan_epoch(
        self,
        state: Any,
        carry: Any,
        body_fn: Body,
        *,
        steps: int | None = None,
        unroll: int = 1,
    ) -> tuple[LoaderState, Any, Any]:
        """Runs ``body_fn(carry, batch, mask) -> (carry, output)`` for an epoch.

        Returns ``(state, carry, outputs)`` with stacked outputs, like ``lax.scan``. It
        starts at ``state``. ``steps`` sets another number of steps, such as the rest
        of an epoch. Outside jit it compiles once for each ``body_fn`` and waits for the
        result.
        """
        self._built.check_traceable()
        words = self._built.start(state)
        length = self.steps_per_epoch if steps is None else whole("steps", steps, 0)
        if not callable(body_fn):
            raise TypeError(f"body_fn must be a function, not {body_fn!r}")
        traced = any(is_traced(leaf) for leaf in jax.tree.leaves((words, carry)))
        arrays = self._built.arrays()
        if traced:
            result = _scan(self._built, body_fn, length, unroll, words, carry, arrays)
        else:
            run = self._jitted_scan(body_fn, length, unroll)
            result = self._run(run, self._built.on_device(words), carry, arrays)
        words, carry, outputs = result
        return LoaderState(words), carry, outputs

    def _jitted_scan(self, body_fn: Body, length: int, unroll: int) -> Any:
        """Returns the jitted scan of ``body_fn``.

        The cache holds ``body_fn``, or the object of a bound method, weakly.
        """
        method = getattr(body_fn, "__func__", None)
        owner = body_fn.__self__ if method is not None else body_fn  # type: ignore[attr-defined]
        # Keyed by identity: equal owners may behave differently, or have no hash.
        number, scans, built = id(owner), self._scans, self._built
        if number not in scans:
            try:
                reference = weakref.ref(owner, lambda _: scans.pop(number, None))
            except TypeError:
                return jax.jit(functools.partial(_scan, built, body_fn, length, unroll))
            scans[number] = reference, {}
        reference, cached = scans[number]
        key = (method, length, unroll)
        if key not in cached:

            def run(words: Any, carry: Any, arrays: Any) -> Any:
                alive: Any = reference()
                body = alive if method is None else functools.partial(method, alive)
                return _scan(built, body, length, unroll, words, carry, arrays)

            cached[key] = jax.jit(run)
        return cached[key]

    def _run(self, run: Any, words: Any, carry: Any, arrays: Any) -> Any:
        """Runs a program to its end. Raises the original exception of a failure."""
        self._built.forget_error()
        guard = _engine.Interruptible(self._built.engine, _raises_on_interrupt())
        with guard:
            try:
                result = run(words, carry, arrays)
                if not any(is_traced(leaf) for leaf in jax.tree.leaves(result)):
                    jax.block_until_ready(result)
                return result
            except jit.FAILURES as error:
                if guard.interrupted:
                    raise KeyboardInterrupt from None
                self._built.raise_original(error)


def _scan(
    built: BuiltPipeline,
    body: Body,
    length: int,
    unroll: int,
    words: Any,
    carry: Any,
    arrays: list[Any],
) -> tuple[Any, Any, Any]:
    def step(carried: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
        words, carry = carried
        batch, mask, words = built.step(words, arrays)
        carry, output = body(carry, batch, mask)
        return (words, carry), output

    (words, carry), outputs = lax.scan(
        step, (words, carry), None, length=length, unroll=unroll
    )
    return words, carry, outputs


def _raises_on_interrupt() -> bool:
    """Whether Ctrl-C must end a program that runs in this thread.

    The handler of ``asyncio.run`` only cancels a task. It has no effect while this
    thread waits for a program, so Ctrl-C must end the program then too.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    asyncio = sys.modules.get("asyncio")
    by_asyncio = asyncio is not None and isinstance(runner, asyncio.Runner)
    return by_asyncio or handler is signal.default_int_handler
