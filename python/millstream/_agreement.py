"""Processes that load one data set together make sure, once, that they do."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from millstream._resume import described, differences

if TYPE_CHECKING:
    from millstream._program import Program
    from millstream._sharding import Split

PATIENCE = 120.0
"""Seconds that processes wait for each other to build the same loader."""

_numbers: dict[str, Iterator[int]] = {}
"""How many loaders each group of processes has built."""


def agree(program: Program) -> None:
    """Raises ``ValueError``, in every process, unless all build the same pipeline.

    Loaders are matched by the order in which a process builds those that it shares.
    """
    split = program.split
    if split is None or len(split.processes) < 2:
        return
    client = _client()
    if client is None:
        raise RuntimeError(
            f"the mesh spans processes {split.processes}, but jax.distributed is not "
            "initialised in this one"
        )
    group = "-".join(map(str, split.processes))
    number = next(_numbers.setdefault(group, itertools.count()))
    prefix = f"millstream/{group}/{number}"
    mine = {**described(program), "sharding": _layout(split)}
    me = jax.process_index()
    client.key_value_set(f"{prefix}/{me}", json.dumps(mine))
    deadline = time.monotonic() + PATIENCE
    leader = split.processes[0]
    if me == leader:
        verdict = _compared(client, prefix, split.processes, mine, deadline)
        client.key_value_set(f"{prefix}/verdict", verdict)
    else:
        told = _get(client, f"{prefix}/verdict", deadline + 5)
        verdict = (
            told
            if told is not None
            else (
                f"process {leader} has not built this loader within {PATIENCE:g} s: "
                "all processes of a mesh build the same loaders in the same order"
            )
        )
    if verdict:
        raise ValueError(verdict)


def _compared(
    client: Any, prefix: str, processes: list[int], mine: Any, deadline: float
) -> str:
    """What is wrong, or nothing."""
    wrong, missing = [], []
    for process in processes[1:]:
        text = _get(client, f"{prefix}/{process}", deadline)
        if text is None:
            missing.append(process)
            continue
        found = differences(json.loads(text), mine)
        found = [f"{name}: {theirs}, not {ours}" for name, theirs, ours in found]
        if found:
            wrong.append(f"process {process} has {'; '.join(found)}")
    if missing:
        return (
            f"processes {missing} have not built this loader within {PATIENCE:g} s: "
            "all processes of a mesh build the same loaders in the same order"
        )
    if wrong:
        return (
            "the processes of a mesh load different data: "
            f"{'. '.join(wrong)} (as process {processes[0]} has)"
        )
    return ""


def _layout(split: Split) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in split.mesh.shape.items())
    return f"{split.sharding.spec} over mesh ({sizes})"


def _get(client: Any, key: str, deadline: float) -> str | None:
    """The value of a key, or None if nobody sets it in time."""
    while (left := deadline - time.monotonic()) > 0:
        try:  # a second at a time, so that Ctrl-C is heard
            return str(client.blocking_key_value_get(key, int(min(left, 1) * 1000) + 1))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
    return None


def _client() -> Any:
    """The key-value store of `jax.distributed`, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client
