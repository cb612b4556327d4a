"""The stage that makes batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from millstream._core.arguments import flag, whole
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._run.builder import Builder

_REMAINDERS = ("pad", "drop", "wrap", "partial")


@public
@dataclass(frozen=True, eq=False)
class BatchTransform(Stage):
    """Makes batches of ``batch_size`` samples.

    ``remainder`` says what happens to the last batch of an epoch if it is not full:
    "pad" fills it with zeros, whose mask is False. "drop" leaves it out. "wrap" fills
    it with samples of the next epoch. "partial" delivers it as it is, in a Python loop
    only. The default is "pad", or "drop" with ``drop_last``.

    Building the pipeline raises ``ValueError`` if a batch does not match
    ``element_spec_override``.
    """

    one_mask: ClassVar[bool] = False
    """Whether each value of a stream has one mask in a batch, also if it has several.

    False keeps the masks of a value, as of a buffer that delivers several samples.
    """

    batch_size: int
    drop_last: bool = False
    pad_last_batch: bool = False
    element_spec_override: Tree = None
    remainder: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        given: Any = self.batch_size
        if isinstance(given, float | np.floating) and given.is_integer():
            given = int(given)
        size = whole("BatchTransform: batch_size", given, 1, 1 << 31)
        flag("BatchTransform: drop_last", self.drop_last)
        flag("BatchTransform: pad_last_batch", self.pad_last_batch)
        chosen = self.remainder or ("drop" if self.drop_last else "pad")
        if chosen not in _REMAINDERS:
            raise ValueError(
                f"BatchTransform: remainder must be one of {_REMAINDERS}, "
                f"not {chosen!r}"
            )
        if self.remainder and self.drop_last and chosen != "drop":
            raise ValueError(
                f"BatchTransform: drop_last contradicts remainder={chosen!r}. "
                "Pass only remainder."
            )
        if self.pad_last_batch and not self.drop_last and chosen != "pad":
            raise ValueError(
                f"BatchTransform: pad_last_batch contradicts remainder={chosen!r}. "
                "Pass only remainder."
            )
        object.__setattr__(self, "remainder", chosen)
        object.__setattr__(self, "batch_size", size)

    def place(self, builder: Builder) -> None:
        builder.batch(
            self.batch_size, self.remainder, expected=self.element_spec_override
        )
