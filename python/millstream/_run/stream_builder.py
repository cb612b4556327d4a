"""Builds a pipeline whose source is a stream, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import jax

from millstream._core.description import Tree
from millstream._delivery.placement import specs_text
from millstream._delivery.sharding import Split
from millstream._run.keys import FIRST_STAGE, Origin
from millstream._run.stream_nodes import Batched, Called, Keyed, Mapped, Node
from millstream._stages.batch import BatchTransform
from millstream._stages.map import check_spec
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._stages.map import HostCallbackTransform
    from millstream._stages.python_map import PythonMapTransform

Call = Callable[["HostCallbackTransform", bool], Callable[[Tree, Any], Tree]]


@dataclass(frozen=True)
class StreamStage:
    """A stage of a stream, for the table of ``explain``."""

    label: str
    runs: str
    element: Tree
    stateful: bool
    """Whether the stage adds to the state of the stream."""


class StreamBuilder:
    """The counterpart of ``Builder`` for streams. JAX traces all stages.

    Args:
      node: The stream so far.
      call: Returns a function that traces a ``HostCallbackTransform``.
      first: The number of the first stage.
      batched: Whether the stream makes batches.
    """

    native = False
    streams = True

    def __init__(
        self, node: Node, call: Call, *, first: int = 1, batched: bool = False
    ) -> None:
        self.node = node
        self.placed: list[StreamStage] = []
        self.batched = batched
        self.batch_size = node.mask.shape[0] if batched else 1
        self.device: Any = None
        self.split: Split | None = None
        self.has_callbacks = False
        self._call = call
        self._first = first
        self._keyed = 0
        self._number = 0
        self._name = ""
        self._stage: Stage | None = None

    def place(self, stages: Iterable[Stage]) -> None:
        """Adds the stages."""
        for number, stage in enumerate(stages, start=self._first):
            self._number, self._name, self._stage = number, type(stage).__name__, stage
            stage.place(self)  # type: ignore[arg-type]

    @property
    def stage(self) -> str:
        """The number and class of the current stage, for messages."""
        return f"stage {self._number}, {self._name}"

    def __getattr__(self, name: str) -> NoReturn:
        # Stages that only the engine can run use attributes of Builder.
        if name.startswith("_"):
            raise AttributeError(name)
        raise TypeError(
            f"{self.stage}, cannot run in XLA, so it cannot follow a stream"
        )

    def add_node(self, node: Node, label: str = "", runs: str = "XLA") -> None:
        """Continues with ``node``, a stream around the stream so far."""
        stateful = not isinstance(node, Mapped | Called)
        self.node = node
        self.placed.append(
            StreamStage(label or self._name, runs, node.element, stateful)
        )

    def batch(self, size: int, remainder: str, *, expected: Tree = None) -> None:
        if self.batched:
            raise ValueError(
                f"{self.stage}: the stream already makes batches of {self.batch_size}. "
                "Remove one BatchTransform."
            )
        if remainder == "partial":
            raise ValueError(
                f"{self.stage}: remainder='partial' is not possible for a stream. Use "
                "'pad', 'drop' or 'wrap'."
            )
        one_mask = isinstance(self._stage, BatchTransform) and self._stage.one_mask
        node = Batched(self.node, size, remainder, one_mask=one_mask)
        self.batched, self.batch_size = True, size
        self._check(node, expected)
        self.add_node(node, f"{self._name}({size}, {remainder})")

    def add_traced(
        self,
        trace: Callable[..., Any],
        *,
        keyed: bool = False,
        expected: Tree = None,
        changes_mask: bool = False,
    ) -> None:
        batched, key_stage = self.batched, FIRST_STAGE + self._keyed

        def run(value: Tree, mask: Any, origin: Origin) -> tuple[Tree, Any]:
            keys = (origin.key(key_stage, batched),) if keyed else ()
            result = trace(value, mask, batched, *keys)
            return result if changes_mask else (result, mask)

        self._keyed += keyed
        node = Keyed(self.node, run, batched) if keyed else Mapped(self.node, run)
        self._check(node, expected)
        self.add_node(node)

    def add_host_callback(
        self, callback: HostCallbackTransform, *, expected: Tree = None
    ) -> None:
        self.has_callbacks = True
        node = Called(self.node, self._call(callback, self.batched))
        self._check(node, expected)
        self.add_node(node, runs="Python")

    def put_on(self, where: Any, trace: Callable[..., Tree]) -> None:
        self.device, self.split, label = None, None, self._name
        if isinstance(where, jax.Device):
            self.device = where
        elif not self.batched:
            raise ValueError(
                f"{self.stage}, splits batches. Put it after BatchTransform."
            )
        else:
            self.split = Split(where, self.batch_size)
            label = f"{self._name}({specs_text(where)})"
            if len(self.split.processes) > 1:
                raise ValueError(
                    f"{self.stage}: the batches of a stream cannot be split over "
                    f"several processes, here {self.split.processes}. Use a mesh of "
                    "the devices of one process."
                )
        self.add_traced(trace)
        self.placed[-1] = replace(self.placed[-1], label=label)

    def add_worker_stage(self, _: PythonMapTransform) -> NoReturn:
        raise TypeError(
            f"{self.stage}, runs in workers, so it cannot follow a stream. Use "
            "MapTransform for JAX code, or HostCallbackTransform to call Python."
        )

    def _check(self, node: Node, expected: Tree) -> None:
        if expected is not None:
            check_spec(node.element, expected, self.stage)
