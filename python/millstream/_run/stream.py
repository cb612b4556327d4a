"""A built pipeline whose source is a stream."""

from __future__ import annotations

import contextlib
import itertools
import weakref
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from millstream._core.description import Tree
from millstream._delivery.sharding import Split, constrained, replicated
from millstream._order.jnp_orders import next_words
from millstream._run.built import BuiltPipeline
from millstream._run.state import (
    CHECK,
    KEY_HIGH,
    KEY_LOW,
    LoaderState,
    check_x64,
    has_x64,
    is_traced,
    state_words,
    step_of,
    words_of,
)
from millstream._run.stream_builder import StreamBuilder
from millstream._run.stream_nodes import Head, NativeNode, check_same
from millstream._run.tracing import called
from millstream._sources.iterable import IterableSource
from millstream._sources.source import SampleSource
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._stages.map import HostCallbackTransform

_serials = itertools.count(1)


def is_streamed(head: Any, stages: tuple[Stage, ...]) -> bool:
    """Whether a pipeline needs a state beyond the eight words."""
    return not isinstance(head, SampleSource) or any(s.stateful for s in stages)


class StreamPipeline:
    """A validated pipeline over a stream. Creates states and traces batches.

    It has the interface of ``BuiltPipeline``. A position is a ``LoaderState``. If the
    source has samples, the engine runs the stages up to the first with a state.

    Args:
      options: The arguments of ``BuiltPipeline``, for a source of samples.
    """

    def __init__(self, head: Any, stages: tuple[Stage, ...], **options: Any) -> None:
        self.head = head
        self.x64 = has_x64()
        self.inner: BuiltPipeline | None = None
        """The pipeline of the engine before the first stage with a state."""
        self._failure: BaseException | None = None
        self.split: Split | None = None
        if isinstance(head, SampleSource):
            count = next(i for i, stage in enumerate(stages) if stage.stateful)
            self.inner = BuiltPipeline(head, stages[:count], **options)
            node: Any = NativeNode(self.inner)
            batched = self.inner.batched
        else:
            count, batched = 0, False
            check_options(type(head).__name__, options, _REASONS)
            node = Head(head)
        builder = StreamBuilder(node, self._called, first=count + 1, batched=batched)
        builder.place(stages[count:])
        self.placed = builder.placed
        self.source_element = node.element
        self._samples = node.steps_per_epoch
        self.node = builder.node
        self.batched, self.batch_size = builder.batched, builder.batch_size
        self.device, self.split = builder.device, builder.split
        self.steps = self.node.steps_per_epoch
        self.host_fields = ()
        self.depends_on_epoch = True
        self.serial = -next(_serials)
        self.samples_delivered = 0
        self.delivered = 0
        self.check_word = zlib.crc32(repr(self.described()).encode()) or 1
        self.has_callbacks = builder.has_callbacks
        self._init = jax.jit(self._init_arrays)

    def described(self) -> dict[str, Any]:
        """Returns the properties of the pipeline that its states depend on."""
        fields = {
            jax.tree_util.keystr(path) or "value": f"{x.dtype}{list(x.shape)}"
            for path, x in jax.tree_util.tree_flatten_with_path(self.source_element)[0]
        }
        labels = [stage.label for stage in self.placed if stage.stateful]
        order = ", ".join(["stream", *labels])
        inner = "" if self.inner is None else f"{self.inner.plan.digest:016x}"
        digest = zlib.crc32(f"{order} {inner}".encode())
        return {
            "samples": self._samples,
            "fields": fields,
            "order": {"is": order, "digest": f"{digest:08x}"},
            "epoch_length": self._samples,
            "batch_size": self.batch_size,
        }

    # Values and their specs.

    def element_spec(self) -> Tree:
        return self.node.element

    def valid_rows(self, words: Any) -> int:
        """Returns the number of rows of a batch, with padding."""
        return self.batch_size

    @property
    def sample_bytes(self) -> int:
        size = sum(
            x.size * x.dtype.itemsize for x in jax.tree.leaves(self.node.element)
        )
        return size // self.batch_size

    # Batches inside jit.

    def arrays(self) -> list[Any]:
        return []

    @property
    def in_jit(self) -> bool:
        """Whether the samples of the source are tracers."""
        return self.inner is not None and self.inner.in_jit

    def check_traceable(self) -> None:
        """A stream can always be traced."""

    def step(
        self, state: LoaderState, _: list[Any], consumed: bool = False
    ) -> tuple[Tree, Any, LoaderState]:
        """Traces one batch: ``(value, mask, state)``."""
        check_x64(self.x64)
        value, mask, stream = self.node.next(state.stream)
        if self.split is not None:
            mask = constrained(self.split.rows_sharding, mask)
        words = next_words(jnp.asarray(state.words), self.steps)
        return value, mask, LoaderState(words, stream)

    def _called(
        self, callback: HostCallbackTransform, batched: bool
    ) -> Callable[[Tree, Any], Tree]:
        """Returns a function that traces a callback. It does not keep ``self``."""
        owner = weakref.ref(self)

        def call(value: Tree, mask: Any) -> Tree:
            built = owner()
            assert built is not None  # it is being traced
            return called(built, callback, value, mask, batched)

        return call

    # States.

    def _init_arrays(self, words: Any) -> tuple[Any, Any]:
        key = jnp.stack([words[KEY_HIGH], words[KEY_LOW]])
        return jnp.asarray(words), self.node.init_state(key)

    def init_state(self, key: Any = None) -> LoaderState:
        """Returns the first state. Its arrays are not shared with any other state."""
        check_x64(self.x64)
        words = state_words(self.check_word, key)
        return LoaderState(*self._init(words))

    def start(self, state: Any) -> LoaderState:
        """Returns a state to start from.

        Raises ``ValueError`` or ``TypeError`` unless it belongs to this pipeline.
        """
        check_x64(self.x64)
        state = self._with_stream(state)
        words = words_of(state)
        if not is_traced(words):
            known = np.asarray(words)
            if int(known[CHECK]) != self.check_word or step_of(known) >= self.steps:
                raise ValueError(
                    "this state belongs to another pipeline. Restore it with the "
                    "pipeline that saved it, or start again with init_state(). "
                    "restore() lists the differences of a state from save()."
                )
        with contextlib.suppress(AttributeError):  # another structure, see below
            self.node.check_state(state.stream)
        if self.node.state is None:
            return state
        check_same(
            jax.tree.map(_spec_of, state.stream),
            self.node.state,
            "the state of the stream",
            "Pass a state of this loader.",
        )
        return state

    def _with_stream(self, state: Any) -> LoaderState:
        """Returns a state with its stream. Orbax restores both as nested dicts."""
        if isinstance(state, Mapping) and set(state) == {"words", "stream"}:
            found = {
                _name(path): leaf
                for path, leaf in jax.tree_util.tree_flatten_with_path(state["stream"])[
                    0
                ]
            }
            return LoaderState(state["words"], self.with_leaves(found))
        if not isinstance(state, LoaderState) or state.stream is None:
            raise TypeError(
                f"the state has no state of the stream {type(self.head).__name__}: "
                "expected the result of init_state() or a state from a run, found "
                f"{type(state).__name__}"
            )
        return state

    def with_leaves(self, found: Mapping[str, Any]) -> Any:
        """Returns a stream's state with the leaves of these paths."""
        if self.node.state is None:
            raise ValueError(
                f"the state of the stream {type(self.head).__name__} cannot be "
                "restored from its leaves, because init_state() leaves parts of it "
                "None. Add a method state_spec() that returns the spec of a whole "
                "state, or pickle the state."
            )
        leaves = jax.tree_util.tree_flatten_with_path(self.node.state)[0]
        names = [_name(path) for path, _ in leaves]
        missing = [name for name in names if name not in found]
        extra = [name for name in found if name not in names]
        if missing or extra:
            raise ValueError(
                "the saved state of the stream does not fit this pipeline: it lacks "
                f"{missing} and has {extra} in addition"
            )
        structure = jax.tree.structure(self.node.state)
        return jax.tree.unflatten(structure, [found[name] for name in names])

    def state(self, position: LoaderState) -> LoaderState:
        return position

    def on_device(self, position: LoaderState) -> LoaderState:
        """Returns a state as JAX arrays, on the devices of the mesh if there is one."""
        leaves, structure = jax.tree.flatten(position)
        with jax.ensure_compile_time_eval():
            if self.split is not None:
                leaves = replicated(self.split, leaves)
            else:
                leaves = [jnp.asarray(leaf) for leaf in leaves]
        moved: LoaderState = jax.tree.unflatten(structure, leaves)
        return moved

    def abandon(self, words: Any) -> None:
        """Does nothing, because nothing is prefetched."""

    # Errors.

    def interruptible(self, active: bool) -> Any:
        """Returns a guard as ``BuiltPipeline.interruptible`` does."""
        if self.inner is not None:
            return self.inner.interruptible(active)
        return no_guard()

    @property
    def last_error(self) -> BaseException | None:
        inner = None if self.inner is None else self.inner.last_error
        return inner or self._failure

    def keep_error(self, error: BaseException) -> None:
        """Makes an exception of a callback the ``last_error``."""
        self.forget_error()
        self._failure = error

    def forget_error(self) -> None:
        self._failure = None
        if self.inner is not None:
            self.inner.forget_error()

    def raise_original(self, error: Exception) -> NoReturn:
        original = self.last_error
        if original is None:
            raise error
        self.forget_error()
        raise original from error


class _NoGuard(contextlib.nullcontext[None]):
    interrupted = False


def no_guard() -> Any:
    """Returns a guard that leaves Ctrl-C to Python."""
    return _NoGuard()


_REASONS = {
    "threads": "JAX traces it",
    "prefetch": "each batch depends on the one before",
    "traced": "JAX always traces it",
    "skip": "it has no samples to skip",
}


def check_options(
    name: str, options: Mapping[str, Any], reasons: Mapping[str, str]
) -> None:
    """Raises ``ValueError`` for an argument of the loader that a stream cannot use."""
    for option, reason in reasons.items():
        value = options.get(option)
        if value is not None and value is not False:
            given = "on_error='skip'" if option == "skip" else f"{option}="
            raise ValueError(
                f"{given} has no meaning for the stream {name}, because {reason}. "
                "Remove the argument."
            )


def _spec_of(x: Any) -> jax.ShapeDtypeStruct:
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


Built = BuiltPipeline | StreamPipeline
"""A pipeline that a loader can run."""


def built_pipeline(head: Any, stages: tuple[Stage, ...], **options: Any) -> Built:
    """Builds a pipeline. ``options`` are those of ``BuiltPipeline``."""
    if isinstance(head, IterableSource):
        from millstream._run.iterable import IterablePipeline

        return IterablePipeline(head, stages, **options)
    kind = StreamPipeline if is_streamed(head, stages) else BuiltPipeline
    return kind(head, stages, **options)
