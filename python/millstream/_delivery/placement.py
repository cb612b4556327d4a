"""Checks the shardings of ``DevicePutTransform``, and finds the one of each array."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jax.tree_util import keystr, tree_flatten_with_path

from millstream._core.description import Tree


def placement_of(given: Any, name: str = "") -> NamedSharding | jax.Device:
    """Returns the sharding of batches, or the device of a ``SingleDeviceSharding``.

    Raises ``TypeError`` or ``ValueError`` for a sharding that is not supported. The
    message has the name of the field.
    """
    stage = f"DevicePutTransform: {name}: " if name else "DevicePutTransform: "
    if isinstance(given, PartitionSpec | Mesh):
        spec = given if isinstance(given, PartitionSpec) else "P('data')"
        raise TypeError(
            f"{stage}expected a sharding, found {given!r}. Pass a mesh and a "
            f"PartitionSpec: NamedSharding(mesh, {spec}), with mesh = "
            "jax.make_mesh((jax.device_count(),), ('data',), "
            "axis_types=(jax.sharding.AxisType.Auto,))"
        )
    if isinstance(given, SingleDeviceSharding) and not name:
        (device,) = given.device_set
        if has_other_memory(given):
            raise ValueError(
                f"{stage}memory_kind={given.memory_kind!r} is not supported for a "
                "single device. Use a NamedSharding over a mesh with one device."
            )
        return device
    if not isinstance(given, NamedSharding) or not isinstance(given.mesh, Mesh):
        expected = "" if name else "a device or "
        raise TypeError(
            f"{stage}expected {expected}a NamedSharding over a Mesh, found {given!r}. "
            "Pass NamedSharding(mesh, P('data')), for example."
        )
    for entry in given.spec:
        if entry is PartitionSpec.UNCONSTRAINED:
            raise ValueError(
                f"{stage}{given.spec} leaves an axis unconstrained. Name the mesh axes "
                "that split it, or use None."
            )
    if not given.addressable_devices:
        raise ValueError(
            f"{stage}process {jax.process_index()} has no device in the mesh "
            f"{dict(given.mesh.shape)}"
        )
    if has_other_memory(given) and given.memory_kind != "pinned_host":
        raise ValueError(
            f"{stage}jit does not preserve memory_kind={given.memory_kind!r}. Use "
            "'pinned_host' or the default memory."
        )
    return given


def placements_of(given: Tree) -> Tree:
    """Returns a copy of a pytree of shardings.

    Raises ``TypeError`` or ``ValueError`` unless all of them are supported, have the
    same mesh and split the rows alike.
    """
    leaves = tree_flatten_with_path(given)[0]
    if not leaves:
        raise ValueError(
            f"DevicePutTransform: {given!r} has no shardings. Pass one for each array "
            "of a batch."
        )
    shardings: list[Any] = [placement_of(leaf, keystr(path)) for path, leaf in leaves]
    names, first = [keystr(path) for path, _ in leaves], shardings[0]
    for name, sharding in zip(names, shardings, strict=True):
        if sharding.mesh != first.mesh:
            raise ValueError(
                f"DevicePutTransform: the shardings need the same mesh, but {names[0]} "
                f"has {first.mesh} and {name} has {sharding.mesh} with other devices "
                "or axes. Make one mesh and use it for all shardings."
            )
        if row_axes(sharding) != row_axes(first):
            raise ValueError(
                "DevicePutTransform: all fields must split the rows alike, but "
                f"{names[0]} has {first.spec} and {name} has {sharding.spec}. Use the "
                "same first entry in both, such as P('data', 'model') and P('data')."
            )
    return jax.tree.unflatten(jax.tree.structure(given), shardings)


def sharding_of_each(shardings: Tree, value: Tree) -> Tree:
    """Returns the sharding of each leaf of ``value``.

    ``shardings`` is one sharding, or a pytree of which ``jax.tree.broadcast`` makes the
    structure of ``value``. Raises ``ValueError`` if that is not possible.
    """
    try:
        return jax.tree.broadcast(shardings, value)
    except ValueError as error:
        raise ValueError(_mismatch(shardings, value)) from error


def _mismatch(shardings: Tree, value: Tree) -> str:
    """Says which arrays have no sharding, and which shardings have no array."""
    given = [path for path, _ in tree_flatten_with_path(shardings)[0]]
    arrays = [path for path, _ in tree_flatten_with_path(value)[0]]
    message = "DevicePutTransform: the shardings do not have the structure of the batch"
    if arrays == [()]:
        return f"{message}, which is one array. Pass one NamedSharding."

    def covers(prefix: tuple[Any, ...], path: tuple[Any, ...]) -> bool:
        return path[: len(prefix)] == prefix

    missing = [p for p in arrays if not any(covers(prefix, p) for prefix in given)]
    extra = [prefix for prefix in given if not any(covers(prefix, p) for p in arrays)]
    found = [f"{keystr(path)} has no sharding" for path in missing]
    found += [f"the batch has no array {keystr(path)}" for path in extra]
    if not found:
        found = [f"found {jax.tree.structure(shardings)}"]
    return (
        f"{message}: {'; '.join(found)}. Pass one sharding for each array of "
        f"{jax.tree.structure(value)}."
    )


def check_leaves(shardings: Tree, value: Tree) -> None:
    """Raises ``ValueError`` with the name of a leaf that its sharding cannot split."""
    each: list[NamedSharding] = jax.tree.leaves(sharding_of_each(shardings, value))
    leaves = tree_flatten_with_path(value)[0]
    for (path, leaf), sharding in zip(leaves, each, strict=True):
        name, spec = keystr(path) or "the batch", sharding.spec
        if len(spec) > len(leaf.shape):
            raise ValueError(
                f"DevicePutTransform: {spec} needs arrays with at least {len(spec)} "
                f"axes, but {name} has the shape {list(leaf.shape)}. Use a spec with "
                "fewer entries. A pytree of shardings can have another spec for each "
                "array."
            )
        for axis, (extent, entry) in enumerate(zip(leaf.shape, spec, strict=False)):
            sizes = [sharding.mesh.shape[each] for each in _mesh_axes(entry)]
            if extent % int(np.prod(sizes, dtype=np.int64)):
                raise ValueError(
                    f"DevicePutTransform: axis {axis} of {name} has length {extent}, "
                    f"which cannot be divided by the sizes {sizes} of the mesh axes "
                    f"{_mesh_axes(entry)}"
                )


def specs_text(shardings: Tree) -> str:
    """Returns the spec, or the name and the spec of each field, for messages."""
    texts = []
    for path, sharding in tree_flatten_with_path(shardings)[0]:
        name = keystr(path, simple=True, separator="/")
        texts.append(f"{name}: {sharding.spec}" if name else f"{sharding.spec}")
    return ", ".join(texts)


def row_axes(sharding: NamedSharding) -> tuple[str, ...]:
    """Returns the mesh axes that split the rows, the slowest-varying first."""
    return _mesh_axes(sharding.spec[0]) if len(sharding.spec) else ()


def has_other_memory(sharding: jax.sharding.Sharding) -> bool:
    """Whether a sharding uses a memory other than the devices' default memory."""
    device: Any = next(iter(sharding.addressable_devices), None)
    if device is None:
        return False
    return sharding.memory_kind not in (None, device.default_memory().kind)


def _mesh_axes(entry: Any) -> tuple[str, ...]:
    """Returns the mesh axes in an entry of a spec."""
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)
