"""Checks that all processes of a mesh build the same loader."""

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

TIMEOUT_SECONDS = 120.0
"""How long processes wait for each other to build or first use a loader."""

_counters: dict[str, Iterator[int]] = {}
"""For each group of processes, a counter of the loaders that it has built."""


class AbsentError(ValueError):
    """A process did not take part in a comparison before the timeout."""


def agree(mine: dict[str, Any], processes: list[int]) -> str:
    """Compares a new loader with those of the other processes.

    Raises ``ValueError`` in every process unless all descriptions are equal. The first
    loader of each process is compared with the first of the others, and so on. Returns
    a name for the loader, for later calls of ``compare``.
    """
    group = "-".join(map(str, processes))
    name = f"millstream/{group}/{next(_counters.setdefault(group, itertools.count()))}"
    compare(name, mine, processes, "built")
    return name


def compare(name: str, mine: dict[str, Any], processes: list[int], verb: str) -> None:
    """Raises ``ValueError`` in every process unless ``mine`` is equal in all of them.

    Raises ``AbsentError`` if a process does not call it in time. ``verb``, "built" or
    "used", is for the message of this error.
    """
    client = _client()
    if client is None:
        raise RuntimeError(
            f"the mesh spans the processes {processes}, but jax.distributed is not "
            "initialized in this one. Call jax.distributed.initialize() first."
        )
    me, leader = jax.process_index(), processes[0]
    client.key_value_set(f"{name}/{me}", json.dumps(mine))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    if me == leader:
        missing, wrong = _collect(client, name, mine, processes, deadline)
        client.key_value_set(f"{name}/verdict", json.dumps([missing, wrong]))
    else:
        verdict = _get(client, f"{name}/verdict", deadline + 5)
        missing, wrong = ([leader], []) if verdict is None else json.loads(verdict)
    if missing:
        raise AbsentError(
            f"processes {missing} have not {verb} this loader within "
            f"{TIMEOUT_SECONDS:g} s. All processes of a mesh must build and use the "
            "same loaders in the same order."
        )
    if wrong:
        raise ValueError(
            "the processes of a mesh load different data: "
            f"{'. '.join(wrong)} (as in process {leader}). Build the same pipeline in "
            "every process."
        )


def _collect(
    client: Any, name: str, mine: Any, processes: list[int], deadline: float
) -> tuple[list[int], list[str]]:
    """Returns the missing processes, and a text for each one that differs."""
    missing, wrong = [], []
    for process in processes[1:]:
        text = _get(client, f"{name}/{process}", deadline)
        if text is None:
            missing.append(process)
            continue
        found = differences(json.loads(text), mine)
        found = [f"{what} is {theirs}, not {ours}" for what, theirs, ours in found]
        if found:
            wrong.append(f"in process {process} {'; '.join(found)}")
    return missing, wrong


def layout(mesh: Mesh, specs: PartitionSpec | str) -> str:
    """Describes how batches are split over a mesh."""
    sizes = ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
    return f"{specs} over mesh ({sizes})"


def _get(client: Any, key: str, deadline: float) -> str | None:
    """Returns the value of a key, or None if no process sets it in time."""
    while (left := deadline - time.monotonic()) > 0:
        try:  # at most a second at a time, so that Ctrl-C works
            return str(client.blocking_key_value_get(key, int(min(left, 1) * 1000) + 1))
        except jax.errors.JaxRuntimeError as error:
            if not jax_error_says(error, DEADLINE_EXCEEDED):
                raise
    return None


def _client() -> Any:
    """Returns the key-value store of `jax.distributed`, which has no public name."""
    from jax._src import distributed

    return distributed.global_state.client
