"""What a source is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public

if TYPE_CHECKING:
    from millstream._order.orders import Order
    from millstream._run.built import Program
    from millstream._stages.stage import Stage


@public
class Source:
    """What a pipeline is: something with steps, a state and a next value.

    Sources of samples are pipelines of no stages, and a stage called with a source
    gives a longer one, so every pipeline can be stepped by itself.
    """

    @property
    def head(self) -> SampleSource:
        """Where the samples come from."""
        raise TypeError(f"{type(self).__name__} is not a source of its own")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What is done to them, in order."""
        return ()

    @property
    def program(self) -> Program:
        """The pipeline at work; made when first asked for."""
        from millstream._run.built import Program

        made = self.__dict__.get("_program")
        if made is None:
            made = Program(self.head, self.stages)
            self.__dict__["_program"] = made
        return made

    @property
    def steps_per_epoch(self) -> int:
        """How many values an epoch has."""
        return self.program.steps

    def init_state(self, key: Any = None) -> Any:
        """The state at the first step: from an int, a raw key or a typed key."""
        return self.program.init_state(key)

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        """``(value, mask, state)``: the value that ``state`` names and what follows."""
        from millstream._delivery.host import HostDoor, stepper

        step = self.__dict__.get("_step")
        if step is None:
            step = self.__dict__["_step"] = stepper(HostDoor(self.program))
        value, state, mask = step(state)
        return value, mask, state

    def element_spec(self) -> Tree:
        """A ``jax.ShapeDtypeStruct`` for each leaf of a value."""
        return self.program.element_spec()


class SampleSource(Source):
    """Where samples live. Says what the engine is to read, and in which order."""

    @property
    def head(self) -> SampleSource:
        return self

    @property
    def num_samples(self) -> int:
        """How many samples there are."""
        raise TypeError(f"{type(self).__name__} does not say how many samples it has")

    @property
    def order(self) -> Order:
        """Which sample comes when."""
        raise TypeError(f"{type(self).__name__} does not say its order")

    def native(self) -> tuple[_engine.Source, Tree, list[str]]:
        """The engine's source, the tree of its fields, and their names."""
        raise TypeError(f"{type(self).__name__} has no source in the engine")

    def arrays(self) -> list[Any] | None:
        """The samples as JAX arrays, one a field, where they can be had at once."""
        return None

    def device(self) -> Any:
        """The accelerator that holds the samples, or None for the host."""
        return None

    @property
    def beside(self) -> tuple[str, ...]:
        """Keys of samples whose values are no arrays and travel beside a batch."""
        return ()

    @property
    def prefetch_samples(self) -> int | None:
        """How many samples to make ahead where the loader does not say."""
        return None
