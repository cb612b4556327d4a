"""Processes that load one data set together make sure, once, that they do."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec

from millstream._resume import differences

PATIENCE = 120.0
"""Seconds that processes wait for each other to build the same loader."""

_numbers: dict[str, Iterator[int]] = {}
"""How many loaders each group of processes has built."""


def agree(mine: dict[str, Any], processes: list[int]) -> str:
    """Raises ``ValueError``, in every process, unless all describe the same loader.

    Loaders are matched by the order in which a process builds those that it shares.
    Returns the name that they have in common.
    """
    group = "-".join(map(str, processes))
    name = f"millstream/{group}/{next(_numbers.setdefault(group, itertools.count()))}"
    compare(name, mine, processes, "built")
    return name


def compare(name: str, mine: dict[str, Any], processes: list[int], deed: str) -> None:
    """Raises ``ValueError``, in every process, unless all bring the same.

    ``deed`` is what a process has not done that does not come.
    """
    client = _client()
    if client is None:
        raise RuntimeError(
            f"the mesh spans processes {processes}, but jax.distributed is not "
            "initialised in this one"
        )
    me, leader = jax.process_index(), processes[0]
    client.key_value_set(f"{name}/{me}", json.dumps(mine))
    deadline = time.monotonic() + PATIENCE
    if me == leader:
        verdict = _compared(client, name, mine, processes, deed, deadline)
        client.key_value_set(f"{name}/verdict", verdict)
    else:
        told = _get(client, f"{name}/verdict", deadline + 5)
        verdict = _absent(f"process {leader} has", deed) if told is None else told
    if verdict:
        raise ValueError(verdict)


def _compared(
    client: Any,
    name: str,
    mine: dict[str, Any],
    processes: list[int],
    deed: str,
    deadline: float,
) -> str:
    """What is wrong, or nothing."""
    wrong, missing = [], []
    for process in processes[1:]:
        text = _get(client, f"{name}/{process}", deadline)
        if text is None:
            missing.append(process)
            continue
        found = differences(json.loads(text), mine)
        found = [f"{what}: {theirs}, not {ours}" for what, theirs, ours in found]
        if found:
            wrong.append(f"process {process} has {'; '.join(found)}")
    if missing:
        return _absent(f"processes {missing} have", deed)
    if wrong:
        return (
            "the processes of a mesh load different data: "
            f"{'. '.join(wrong)} (as process {processes[0]} has)"
        )
    return ""


def _absent(who: str, deed: str) -> str:
    return (
        f"{who} not {deed} this loader within {PATIENCE:g} s: all processes of a mesh "
        "build and use the same loaders in the same order"
    )


def layout(mesh: Mesh, spec: PartitionSpec) -> str:
    """How batches are split over a mesh, in words."""
    sizes = ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
    return f"{spec} over mesh ({sizes})"


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
