"""The base classes of sources and pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public

if TYPE_CHECKING:
    from millstream._order.orders import Order
    from millstream._run.stream import Built
    from millstream._stages.stage import Stage


@public
class Source:
    """A pipeline: a source of samples followed by any number of stages.

    A source of samples is a pipeline without stages. Calling a stage with a source
    returns a pipeline that ends with this stage. Every pipeline can be stepped on its
    own: it has an initial state, and ``next`` maps a state to a value and a new state.
    """

    @property
    def head(self) -> SampleSource:
        """The source of the samples, before any stage."""
        raise TypeError(_not_implemented(self, "head"))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in the order in which they run."""
        return ()

    @property
    def built(self) -> Built:
        """The built pipeline. The first access builds it."""
        from millstream._run.stream import built_pipeline

        built: Built | None = self.__dict__.get("_built")
        if built is None:
            built = built_pipeline(self.head, self.stages)
            self.__dict__["_built"] = built
        return built

    @property
    def steps_per_epoch(self) -> int:
        """The number of values in an epoch."""
        return self.built.steps

    def init_state(self, key: Any = None) -> Any:
        """Returns the first state. ``key`` is an int, a raw key or a typed key."""
        return self.built.init_state(key)

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        """Returns ``(value, mask, next_state)`` for a state."""
        from millstream._run.loader import delivery_of

        step = self.__dict__.get("_step")
        if step is None:
            _, step = delivery_of(self.built)
            self.__dict__["_step"] = step
        value, state, mask = step(state)
        return value, mask, state

    def element_spec(self) -> Tree:
        """Returns a ``jax.ShapeDtypeStruct`` for each leaf of a value."""
        return self.built.element_spec()

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a pickle or a copy contains: all but the built pipeline."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_built", "_step")}


class SampleSource(Source):
    """A source of samples: the engine's source to read from, and the order."""

    @property
    def display_name(self) -> str:
        """The name of the source in messages."""
        return type(self).__name__

    needs_tracing: ClassVar[bool] = False
    """Whether only XLA can gather the samples, as for arrays that are tracers."""

    @property
    def head(self) -> SampleSource:
        return self

    @property
    def num_samples(self) -> int:
        """The number of samples."""
        raise TypeError(_not_implemented(self, "num_samples"))

    @property
    def order(self) -> Order:
        """The order in which the samples are read."""
        raise TypeError(_not_implemented(self, "order"))

    def native(self) -> tuple[_engine.Source, Tree, list[str]]:
        """Returns the engine's source, the pytree of its fields, and their names.

        The leaves of the pytree are positions in the list of names.
        """
        raise TypeError(_not_implemented(self, "native"))

    def arrays(self) -> list[Any] | None:
        """Returns one JAX array per field, or None if samples are not in memory."""
        return None

    def device(self) -> Any:
        """Returns the accelerator that holds the samples, or None for host memory."""
        return None

    @property
    def host_field_names(self) -> tuple[str, ...]:
        """The keys of host fields, whose values are not arrays."""
        return ()

    @property
    def origin(self) -> str | None:
        """What ``as_source`` recognised, such as "torch TensorDataset", or None."""
        return self.__dict__.get("_origin")

    def with_origin(self, origin: str) -> Self:
        """Sets ``origin`` and returns this source."""
        self.__dict__["_origin"] = origin
        return self

    @property
    def prefetch_samples(self) -> int | None:
        """How many samples to prefetch if the loader's ``prefetch`` is None."""
        return None


def _not_implemented(source: Source, name: str) -> str:
    kind = type(source).__name__
    return f"{kind} does not implement {name!r}. Subclasses of Source must define it."
