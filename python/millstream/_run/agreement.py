"""Processes that load one data set together make sure, once, that they do."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec

from millstream._core.jax_errors import DEADLINE_EXCEEDED, jax_error_says
from millstream._run.resume import differences

PATIENCE = 120.0
"""Seconds that processes wait for each other to build or first use a loader."""

_numbers: dict[str, Iterator[int]] = {}
"""How many loaders each group of processes has built."""


class AbsentError(ValueError):
    """A process has not come to compare anything."""


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

    It is an ``AbsentError`` where one has not come; ``deed`` is what it has not done.
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
        missing, wrong = _compared(client, name, mine, processes, deadline)
        client.key_value_set(f"{name}/verdict", json.dumps([missing, wrong]))
    else:
        told = _get(client, f"{name}/verdict", deadline + 5)
        missing, wrong = ([leader], []) if told is None else json.loads(told)
    if missing:
        raise AbsentError(
            f"processes {missing} have not {deed} this loader within {PATIENCE:g} s: "
            "all processes of a mesh build and use the same loaders in the same order"
        )
    if wrong:
        raise ValueError(
            "the processes of a mesh load different data: "
            f"{'. '.join(wrong)} (as process {leader} has)"
        )


def _compared(
    client: Any, name: str, mine: Any, processes: list[int], deadline: float
) -> tuple[list[int], list[str]]:
    """The processes that have not come, and what is wrong with others."""
    missing, wrong = [], []
    for process in processes[1:]:
        text = _get(client, f"{name}/{process}", deadline)
        if text is None:
            missing.append(process)
            continue
        found = differences(json.loads(text), mine)
        found = [f"{what}: {theirs}, not {ours}" for what, theirs, ours in found]
        if found:
            wrong.append(f"process {process} has {'; '.join(found)}")
    return missing, wrong


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
            if not jax_error_says(error, DEADLINE_EXCEEDED):
                raise
    return None


def _client() -> Any:
    """The key-value store of `jax.distributed`, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client
