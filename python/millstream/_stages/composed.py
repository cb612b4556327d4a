"""What is checked when a stage is called with a source."""

from __future__ import annotations

from millstream import _engine
from millstream._run.pipeline import SampleSource, Stage
from millstream._stages.transforms import BatchTransform


def check(head: SampleSource, stages: tuple[Stage, ...]) -> None:
    """Raises what building the pipeline would, as far as that is cheap to know.

    It is what the engine is asked for up to the first function, and the schedule.
    """
    batch = batch_stage(stages)
    source, tree, names = head.native()
    before: list[_engine.Transform] = []
    after: list[_engine.Transform] = []
    batched = False
    for stage in stages:
        if isinstance(stage, BatchTransform):
            batched = True
            continue
        made = stage.native(tree, names, batched)
        if made is None:
            break
        transforms, tree, names = made
        (after if batched else before).extend(transforms)
    n = head.num_samples
    order = _engine.replacement(n, head.order.length(n))  # of the length, and no table
    size, policy = (batch.batch_size, batch.remainder) if batch else (1, "pad")
    policy = "pad" if policy == "partial" else policy
    _engine.plan(source, order, size, policy, before, after)


def batch_stage(stages: tuple[Stage, ...]) -> BatchTransform | None:
    """The stage that batches, if any; ``ValueError`` where there are two."""
    found = [(i, s) for i, s in enumerate(stages, 1) if isinstance(s, BatchTransform)]
    if len(found) > 1:
        raise ValueError(
            f"stages {found[0][0]} and {found[1][0]} are both BatchTransform "
            f"({found[0][1].batch_size} and {found[1][1].batch_size}): batch once"
        )
    return found[0][1] if found else None
