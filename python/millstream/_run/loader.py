"""The loader: a pipeline with the doors out of it."""

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
from millstream._delivery.host import HostDoor, stepper
from millstream._run import resume
from millstream._run.built import Program
from millstream._run.iterator import BatchIterator
from millstream._run.pipeline import assembled
from millstream._run.state import LoaderState, is_traced
from millstream._sources.source import Source

Body = Callable[[Any, Tree, Any], tuple[Any, Any]]

_MOST = (1 << 31) - 1  # threads, and batches made ahead


@public
class DataLoader:
    """Batches of a pipeline, for a Python loop and for code inside of ``jax.jit``.

    A batch is a pure function of the state, so every way of getting at it gives the
    same bytes, and a state resumes exactly.

    Args:
      pipeline: A source and stages, or a source.
      threads: How many threads of the process's one pool to use at most.
      prefetch: How many batches to make ahead.
      traced: Gather with XLA even where the engine could, as on an accelerator.
      on_error: "raise", or "skip" for samples that fail the same way every time (bytes
        that are corrupt, a function that raises): their rows are zero and their mask is
        False. What may go better another time (a worker that died or stalls, EIO) is
        tried again and then raised.
      error_budget: How many samples the delivered batches may lack; None for any
        number.
    """

    next_batch: Callable[[Any], tuple[Tree, LoaderState, Any]]
    """``next_batch(state) -> (batch, state, mask)``, eagerly or inside of ``jax.jit``.

    It is one function for the life of the loader: ``jax.jit(loader.next_batch)`` does
    not trace again.
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
            threads = whole("threads", threads, 1, _MOST)
        if prefetch is not None:
            prefetch = whole("prefetch", prefetch, 0, _MOST)
        if error_budget is not None:
            error_budget = whole("error_budget", error_budget, 0)
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error is "raise" or "skip", not {on_error!r}')
        if error_budget is not None and on_error == "raise":
            raise ValueError('error_budget is for on_error="skip"')
        source = assembled(pipeline)
        self._program = Program(
            source.head,
            source.stages,
            threads=threads,
            prefetch=prefetch,
            traced=traced,
            skip=on_error == "skip",
            error_budget=error_budget,
        )
        if on_error == "skip":
            self._program.check_masked()
        self._scans: dict[int, tuple[weakref.ref[Any], dict[Any, Any]]] = {}
        self._door = HostDoor(self._program)
        self.next_batch = stepper(self._door)

    @property
    def next(self) -> Callable[[Any], tuple[Tree, LoaderState, Any]]:
        """The same as ``next_batch``."""
        return self.next_batch

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has."""
        return self._program.steps

    @property
    def last_error(self) -> BaseException | None:
        """What last went wrong inside of jit, in its own type; None if nothing did."""
        return self._program.last_error

    @property
    def skipped(self) -> dict[int, str]:
        """The samples that the batches delivered so far lack, and why."""
        return dict(self._program.engine.skipped)

    @property
    def delivered(self) -> int:
        """How many batches the engine has handed out, also inside of a running jit."""
        return self._program.engine.delivered

    @property
    def bytes_read(self) -> int:
        """How many bytes of samples this process has asked of the source so far."""
        return self._program.engine.bytes_read

    def element_spec(self) -> Tree:
        """A ``jax.ShapeDtypeStruct`` for each leaf of a batch."""
        return self._program.element_spec()

    def init_state(self, key: Any = None) -> LoaderState:
        """The state at the first batch: from an int, a raw key or a typed key."""
        return self._program.init_state(key)

    @overload
    def save(self, state: Any, *, format: Literal["dict"] = ...) -> dict[str, Any]: ...
    @overload
    def save(self, state: Any, *, format: Literal["bytes"]) -> bytes: ...
    def save(self, state: Any, *, format: str = "dict") -> dict[str, Any] | bytes:
        """A state as what JSON can hold, or with ``format="bytes"`` as bytes.

        It says which pipeline it belongs to, so that ``restore`` can name what differs.
        """
        if format not in ("dict", "bytes"):
            raise ValueError(f"format is 'dict' or 'bytes', not {format!r}")
        kept = resume.saved(self._program, self._program.words(state))
        return kept if format == "dict" else resume.as_bytes(kept)

    def restore(self, saved: Any, *, by: str = "step") -> LoaderState:
        """The state that ``save`` was given; a bare state is checked and returned.

        It may come from another number of processes, devices or threads. Raises
        ``ValueError`` naming what differs where it belongs to another pipeline. With
        ``by="sample"`` the batch size may differ: the state is that of the batch that
        holds the next sample, with a warning where that batch begins before it.
        """
        return resume.restored(self._program, saved, by)

    def which_samples(self, state: Any) -> np.ndarray:
        """The sample indices (int64) of the batch that ``state`` names; -1 in padding.

        It is arithmetic: nothing is read.
        """
        words = self._program.words(state)
        if is_traced(words):
            raise TypeError("which_samples() needs a state that is known, not traced")
        return np.asarray(self._program.plan.indices(np.asarray(words)))

    def explain(self) -> str:
        """The plan as a table: each stage, where it runs, its shapes and dtypes."""
        from millstream._run.explain import explained

        return explained(self._program)

    def iterate(
        self, state: Any, *, steps: int | None = None, progress: bool = False
    ) -> BatchIterator:
        """Yields ``(batch, mask)`` to the end of the state's epoch.

        With ``steps`` it yields that many, across epochs. The iterator's ``state`` is
        that after the last batch delivered. ``progress`` shows a bar on standard error
        with samples a second, the wait for data a step, and what limits the loop.
        """
        words = self._program.start(state)
        if is_traced(words):
            raise TypeError(
                "iterate() is a Python loop; inside of jit use scan_epoch()"
            )
        if steps is not None:
            steps = whole("steps", steps, 0)
        if progress:
            from millstream._run.progress_loop import WatchedIterator

            return WatchedIterator(self._door, words, steps)
        return BatchIterator(self._door, words, steps)

    def scan_epoch(
        self,
        state: Any,
        carry: Any,
        body_fn: Body,
        *,
        steps: int | None = None,
        unroll: int = 1,
    ) -> tuple[LoaderState, Any, Any]:
        """Runs ``body_fn(carry, batch, mask) -> (carry, output)`` an epoch of times.

        Returns ``(state, carry, outputs)``, the outputs stacked. It starts wherever
        ``state`` is; ``steps`` takes another number of steps, such as the rest of an
        epoch. Called outside of jit it compiles once for each ``body_fn`` and waits for
        the result.
        """
        self._program.check_traceable()
        words = self._program.start(state)
        length = self.steps_per_epoch if steps is None else whole("steps", steps, 0)
        if not callable(body_fn):
            raise TypeError(f"body_fn must be a function, not {body_fn!r}")
        traced = any(is_traced(leaf) for leaf in jax.tree.leaves((words, carry)))
        arrays = self._program.arrays()
        if traced:
            result = _scan(self._program, body_fn, length, unroll, words, carry, arrays)
        else:
            run = self._compiled(body_fn, length, unroll)
            result = self._run(run, self._program.on_device(words), carry, arrays)
        words, carry, outputs = result
        return LoaderState(words), carry, outputs

    def _compiled(self, body_fn: Body, length: int, unroll: int) -> Any:
        """The jitted scan of this body, which is held weakly."""
        method = getattr(body_fn, "__func__", None)
        owner = body_fn.__self__ if method is not None else body_fn  # type: ignore[attr-defined]
        # By identity: owners may compare equal, or have no hash, and do other things.
        number, scans, program = id(owner), self._scans, self._program
        if number not in scans:
            try:
                reference = weakref.ref(owner, lambda _: scans.pop(number, None))
            except TypeError:
                return jax.jit(
                    functools.partial(_scan, program, body_fn, length, unroll)
                )
            scans[number] = reference, {}
        reference, cached = scans[number]
        key = (method, length, unroll)
        if key not in cached:

            def run(words: Any, carry: Any, arrays: Any) -> Any:
                alive: Any = reference()
                body = alive if method is None else functools.partial(method, alive)
                return _scan(program, body, length, unroll, words, carry, arrays)

            cached[key] = jax.jit(run)
        return cached[key]

    def _run(self, run: Any, words: Any, carry: Any, arrays: Any) -> Any:
        """Runs to the end; raises what went wrong in its own type."""
        self._program.forget_error()
        guard = _engine.Interruptible(self._program.engine, _raises_on_interrupt())
        with guard:
            try:
                result = run(words, carry, arrays)
                if not any(is_traced(leaf) for leaf in jax.tree.leaves(result)):
                    jax.block_until_ready(result)
                return result
            except jit.FAILURES as error:
                if guard.interrupted:
                    raise KeyboardInterrupt from None
                self._program.raise_original(error)


def _scan(
    program: Program,
    body: Body,
    length: int,
    unroll: int,
    words: Any,
    carry: Any,
    arrays: list[Any],
) -> tuple[Any, Any, Any]:
    def step(carried: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
        words, carry = carried
        batch, mask, words = program.step(words, arrays)
        carry, output = body(carry, batch, mask)
        return (words, carry), output

    (words, carry), outputs = lax.scan(
        step, (words, carry), None, length=length, unroll=unroll
    )
    return words, carry, outputs


def _raises_on_interrupt() -> bool:
    """Whether Ctrl-C is to end what runs in this thread.

    The handler of ``asyncio.run`` only cancels a task, which is this thread's own.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    asyncio = sys.modules.get("asyncio")
    by_asyncio = asyncio is not None and isinstance(runner, asyncio.Runner)
    return by_asyncio or handler is signal.default_int_handler
