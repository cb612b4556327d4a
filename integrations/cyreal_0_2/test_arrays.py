"""Pipelines over arrays and functions, compared with cyreal 0.2.1."""

from __future__ import annotations

from typing import Any

import cyreal.loader
import cyreal.sources
import cyreal.transforms
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import check_same, check_walks, scanned
from millstream.cyreal import v02

N, BATCH = 10, 4
REMAINDERS = [
    pytest.param({}, id="wrap"),
    pytest.param({"drop_last": True}, id="drop"),
    pytest.param({"pad_last_batch": True}, id="pad"),
]


class Theirs:
    """The names of cyreal 0.2.1 in one place, as in ``millstream.cyreal.v02``."""

    def __getattr__(self, name: str) -> Any:
        for module in (cyreal.sources, cyreal.transforms, cyreal.loader):
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


THEIRS = Theirs()


def data() -> dict[str, Any]:
    images = (np.arange(N * 6) * 37 % 256).astype(np.uint8).reshape(N, 2, 3)
    return {
        "image": jnp.asarray(images),
        "label": jnp.arange(N, dtype=jnp.int32),
        "nested": (jnp.linspace(-1, 1, N, dtype=jnp.float32),),
    }


def both(build: Any) -> tuple[Any, Any]:
    """Builds the same loader with Millstream and with Cyreal."""
    return build(v02), build(THEIRS)


def batches(package: Any, ordering: str = "sequential", **remainder: bool) -> Any:
    return package.DataLoader(
        [
            package.ArraySource(data(), ordering=ordering),
            package.BatchTransform(BATCH, **remainder),
        ]
    )


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_sequential_batches(remainder: dict[str, bool]) -> None:
    ours, theirs = both(lambda package: batches(package, **remainder))
    assert ours.steps_per_epoch == theirs.steps_per_epoch
    check_walks(ours, theirs, 3 * ours.steps_per_epoch)


@pytest.mark.parametrize("remainder", REMAINDERS[1:])
def test_every_epoch_of_a_shuffle_has_the_same_samples(
    remainder: dict[str, bool],
) -> None:
    """The orders differ. The number of samples and what an epoch contains do not."""
    ours, theirs = both(lambda package: batches(package, "shuffle", **remainder))
    epochs, steps = 4, ours.steps_per_epoch
    orders = []
    for loader in (ours, theirs):
        (batch, mask), _ = scanned(
            loader, loader.init_state(jax.random.PRNGKey(3)), epochs * steps
        )
        labels = np.asarray(batch["label"]).reshape(epochs, -1)
        kept = np.asarray(mask).reshape(epochs, -1)
        rows = [labels[epoch][kept[epoch]].tolist() for epoch in range(epochs)]
        assert all(len(set(row)) == len(row) for row in rows)
        assert len({tuple(row) for row in rows}) == epochs
        orders.append([len(row) for row in rows])
        if not remainder.get("drop_last"):
            assert all(sorted(row) == list(range(N)) for row in rows)
    assert orders[0] == orders[1]


def test_a_wrapped_shuffle_has_each_sample_once_per_epoch() -> None:
    ours, theirs = both(lambda package: batches(package, "shuffle"))
    for loader in (ours, theirs):
        (batch, _), _ = scanned(loader, loader.init_state(jax.random.PRNGKey(3)), 5)
        labels = np.asarray(batch["label"]).ravel()
        assert sorted(labels[:N]) == sorted(labels[N:]) == list(range(N))


def test_the_epoch_and_the_position_in_the_state() -> None:
    ours, theirs = both(lambda package: batches(package, pad_last_batch=True))
    state, expected = (x.init_state(jax.random.PRNGKey(0)) for x in (ours, theirs))
    their_next = jax.jit(theirs.next)
    for _ in range(7):
        _, state, _ = ours.next(state)
        _, expected, _ = their_next(expected)
        their_epoch = int(expected.inner_state.inner_state.epoch)
        their_position = int(expected.inner_state.position_in_epoch)
        assert int(state.inner_state.inner_state.epoch) == their_epoch
        assert state.inner_state.position_in_epoch * BATCH == their_position


def test_iterate_from_the_middle_of_an_epoch() -> None:
    ours, theirs = both(lambda package: batches(package, pad_last_batch=True))
    theirs.next = jax.jit(theirs.next)  # iterate calls it
    found = []
    for loader in (ours, theirs):
        _, state, _ = loader.next(loader.init_state(jax.random.PRNGKey(0)))
        iterator = loader.iterate(state)
        found.append([*iterator, loader.next(iterator.state)[0]])
    check_same(*found)


@pytest.mark.parametrize("unroll", [False, True])
def test_scan_epoch(unroll: bool | int) -> None:
    def body(total: Any, batch: Any, mask: Any) -> Any:
        return total + jnp.where(mask, batch["label"], 0).sum(), batch["nested"][0]

    found = []
    for loader in both(lambda package: batches(package, pad_last_batch=True)):
        state = loader.init_state(jax.random.PRNGKey(0))
        _, total, outputs = loader.scan_epoch(state, jnp.int32(0), body, unroll)
        found.append((total, outputs))
    check_same(*found)


def stages(package: Any, offset: float) -> Any:
    def scaled(batch: Any, mask: Any) -> Any:
        return {**batch, "label": jnp.where(mask, batch["label"] * 2, -1)}

    source = package.ArraySource(data(), "sequential")
    source = package.NormalizeImageTransform("image", jnp.float32, 1 / 255, offset)(
        source
    )
    source = package.FlattenTransform(data_key="image", start_index=0)(source)
    return package.DataLoader(
        [
            source,
            package.RenameTransform({"nested": "inner"}),
            package.BatchTransform(
                BATCH, pad_last_batch=True, element_spec_override=None
            ),
            package.MapTransform(fn=scaled),
            package.DevicePutTransform(),
        ]
    )


def test_transforms() -> None:
    ours, theirs = both(lambda package: stages(package, 0.0))
    check_walks(ours, theirs, 4)


def test_an_offset_is_rounded_once_more() -> None:
    """XLA may fuse Cyreal's product and sum. Millstream rounds after each of them."""
    ours, theirs = both(lambda package: stages(package, 0.3))
    found, expected = (
        scanned(loader, loader.init_state(jax.random.PRNGKey(0)), 4)[0][0]["image"]
        for loader in (ours, theirs)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-7)


def test_functions_as_sources_and_callbacks() -> None:
    calls: list[list[int]] = []

    def build(package: Any) -> Any:
        seen: list[int] = []
        calls.append(seen)

        def sample(index: int) -> Any:
            return {"value": np.int32(3 * index)}

        def note(batch: Any, mask: Any) -> Any:
            seen.append(int(np.sum(batch["value"][mask])))
            return {"value": batch["value"] + np.int32(1)}

        source = package.DiskSource(N, sample, ordering="sequential", prefetch_size=3)
        spec = source.element_spec()
        batch = package.BatchTransform(
            BATCH, pad_last_batch=True, element_spec_override=spec
        )
        callback = package.HostCallbackTransform(fn=note)
        return package.DataLoader([source, batch, callback])

    ours, theirs = both(build)
    check_walks(ours, theirs, 5)
    assert calls[0] == calls[1] * 2  # check_walks runs it twice


def bad_pipelines() -> list[Any]:
    values = {"x": jnp.arange(N)}
    uneven = {"x": jnp.arange(N), "y": jnp.arange(N + 1)}

    def array(package: Any, value: Any = values, ordering: str = "sequential") -> Any:
        return package.ArraySource(value, ordering)

    return [
        pytest.param(lambda p: array(p, {}), id="no-arrays"),
        pytest.param(lambda p: array(p, {"x": jnp.zeros((0, 2))}), id="no-samples"),
        pytest.param(lambda p: array(p, uneven), id="uneven"),
        pytest.param(
            lambda p: p.DataLoader(
                [array(p, ordering="random"), p.BatchTransform(2)]
            ).init_state(jax.random.PRNGKey(0)),
            id="ordering",
        ),
        pytest.param(
            lambda p: p.DataLoader([array(p), p.BatchTransform(0)]), id="batch-size"
        ),
        pytest.param(
            lambda p: p.DataLoader([array(p), p.BatchTransform(99, drop_last=True)]),
            id="all-dropped",
        ),
        pytest.param(lambda p: p.DataLoader([]), id="empty"),
        pytest.param(lambda p: p.DataLoader(5), id="no-pipeline"),
        pytest.param(lambda p: p.DataLoader([p.BatchTransform(2)]), id="no-source"),
        pytest.param(lambda p: p.DataLoader([array(p), 5]), id="no-stage"),
        pytest.param(
            lambda p: batches(p).iterate(
                batches(p).init_state(jax.random.PRNGKey(0)), steps=-1
            ),
            id="steps",
        ),
        pytest.param(
            lambda p: p.DataLoader([array(p), p.RenameTransform({"z": "y"})]),
            id="rename",
        ),
        pytest.param(lambda p: p.FlattenTransform("z")(array(p)), id="flatten"),
        pytest.param(lambda p: p.DiskSource(0, lambda i: values), id="length"),
        pytest.param(
            lambda p: p.DiskSource(3, lambda i: {"x": np.zeros(2)}, prefetch_size=0),
            id="prefetch",
        ),
    ]


@pytest.mark.parametrize("build", bad_pipelines())
def test_errors_have_the_same_type(build: Any) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        build(THEIRS)
    with pytest.raises(expected.type):
        build(v02)
