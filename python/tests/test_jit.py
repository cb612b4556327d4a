"""Batches inside JAX's transformations, and how often programs are compiled."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import rows_of
from jax import lax
from millstream import ArraySampleSource, BatchTransform, DataLoader, MapTransform
from walks import same_bytes, same_walk, specified, stepped

N, BATCH, STEPS = 23, 5, 5


def made(**knobs: Any) -> DataLoader:
    return DataLoader([ArraySampleSource(rows_of(N)), BatchTransform(BATCH)], **knobs)


@pytest.fixture
def loader() -> DataLoader:
    return made()


@pytest.fixture(scope="module")
def walk() -> Any:
    loader = made()
    return specified(loader, loader.init_state(7), 3 * STEPS)


def sums(walk: Any, steps: int) -> np.ndarray:
    return walk[0]["x"][:steps].sum(axis=(1, 2))


def summed(batch: Any) -> Any:
    return batch["x"].sum()


def test_scan_of_next_batch(loader: DataLoader, walk: Any) -> None:
    def step(state: Any, _: None) -> Any:
        batch, state, mask = loader.next_batch(state)
        return state, (batch, mask)

    def run(state: Any) -> Any:
        return lax.scan(step, state, None, length=12)

    state, found = jax.jit(run)(loader.init_state(7))
    same_bytes(found, jax.tree.map(lambda x: x[:12], walk[:2]))
    same_bytes(state.words, walk[2][11])


@pytest.mark.parametrize("unroll", [False, 2, 5, 7, True])
def test_an_unrolled_scan(loader: DataLoader, walk: Any, unroll: bool | int) -> None:
    _, _, found = loader.scan_epoch(
        loader.init_state(7), 0, lambda c, b, m: (c, summed(b)), unroll=unroll
    )
    assert np.array_equal(found, sums(walk, STEPS))


def test_true_unrolls_all_steps(loader: DataLoader) -> None:
    traces = []

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        traces.append(1)
        return carry, summed(batch)

    def run(state: Any, unroll: bool | int) -> Any:
        return loader.scan_epoch(state, 0, body, unroll=unroll)[2]

    state = loader.init_state(7)
    for unroll, loops in ((1, True), (False, True), (True, False)):
        program = jax.jit(functools.partial(run, unroll=unroll)).lower(state)
        assert ("while" in program.as_text()) == loops
    # 1 and True are equal as keys of a dict, but they are different programs.
    del traces[:]
    assert np.array_equal(run(state, 1), run(state, True))
    assert len(traces) == 2


@pytest.mark.parametrize("unroll", [0, -1, 1.5, "all"])
def test_a_bad_unroll_is_named(loader: DataLoader, unroll: Any) -> None:
    with pytest.raises(ValueError, match="unroll must be a whole number of at least 1"):
        loader.scan_epoch(
            loader.init_state(7), 0, lambda c, b, m: (c, None), unroll=unroll
        )


def test_while_and_fori_loops(loader: DataLoader, walk: Any) -> None:
    def step(carried: Any) -> Any:
        state, total = carried
        batch, state, _ = loader.next_batch(state)
        return state, total + summed(batch)

    start = (loader.init_state(7), jnp.int32(0))
    run_while = jax.jit(lambda c: lax.while_loop(lambda c: c[0].words[3] < 2, step, c))
    run_fori = jax.jit(lambda c: lax.fori_loop(0, 10, lambda _, c: step(c), c))
    for run in (run_while, run_fori):
        state, total = run(start)
        assert int(total) == sums(walk, 10).sum()
        assert (state.epoch, state.step) == (2, 0)


def test_cond_and_switch(loader: DataLoader, walk: Any) -> None:
    @jax.jit
    def maybe(state: Any, wanted: Any) -> Any:
        def take(state: Any) -> Any:
            batch, state, _ = loader.next_batch(state)
            return state, summed(batch)

        return lax.cond(wanted, take, lambda state: (state, jnp.int32(0)), state)

    state = loader.init_state(7)
    state, none = maybe(state, False)
    assert (state.step, int(none)) == (0, 0)
    state, total = maybe(state, True)
    assert (state.step, int(total)) == (1, sums(walk, 1)[0])


def test_vmap_over_states_at_different_steps(loader: DataLoader, walk: Any) -> None:
    words = np.stack([loader.init_state(7).words, *walk[2][:11]])
    states = jax.tree.map(lambda _: jnp.asarray(words), loader.init_state(7))
    for run in (jax.vmap(loader.next_batch), jax.jit(jax.vmap(loader.next_batch))):
        batch, after, mask = run(states)
        same_bytes((batch, mask), jax.tree.map(lambda x: x[:12], walk[:2]))
        same_bytes(after.words, walk[2][:12])
    twice = jax.vmap(jax.vmap(loader.next_batch))(
        jax.tree.map(lambda x: x.reshape(3, 4, 8), states)
    )
    same_bytes(
        jax.tree.map(lambda x: x.reshape(12, *x.shape[2:]), twice[0]),
        jax.tree.map(lambda x: x[:12], walk[0]),
    )


def loss_of(loader: DataLoader) -> Any:
    def loss(weight: Any, state: Any) -> Any:
        batch, state, mask = loader.next_batch(state)
        row = batch["x"].astype(jnp.float32) @ weight
        return jnp.sum(jnp.where(mask, row, 0) ** 2), state

    return loss


def expected_gradient(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    x = x.reshape(-1, 3).astype(np.float64)
    return 2 * x.T @ (x @ weight)


def test_gradients_of_a_loss_around_next_batch(loader: DataLoader, walk: Any) -> None:
    loss, weight = loss_of(loader), jnp.array([1.0, 0.5, -0.25])
    state = loader.init_state(7)
    wanted = expected_gradient(walk[0]["x"][0], np.asarray(weight))
    for transform in (lambda f: f, jax.jit, jax.checkpoint):
        run = jax.grad(transform(loss), has_aux=True)
        gradient, after = jax.jit(run)(weight, state)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5)
        same_bytes(after.words, walk[2][0])
    (value, _), gradient = jax.value_and_grad(loss, has_aux=True)(weight, state)
    x = walk[0]["x"][0].astype(np.float64)
    np.testing.assert_allclose(value, ((x @ np.asarray(weight)) ** 2).sum(), rtol=1e-5)
    hessian = jax.jit(jax.hessian(lambda w: loss(w, state)[0]))(weight)
    np.testing.assert_allclose(hessian, 2 * x.T @ x, rtol=1e-5)


def test_gradients_through_a_whole_epoch(loader: DataLoader, walk: Any) -> None:
    weight = jnp.array([1.0, 0.5, -0.25])
    state = loader.init_state(7)
    wanted = expected_gradient(walk[0]["x"][:STEPS], np.asarray(weight))

    def total(weight: Any, remat: bool) -> Any:
        def body(carry: Any, batch: Any, mask: Any) -> Any:
            row = batch["x"].astype(jnp.float32) @ weight
            return carry + jnp.sum(row**2), None

        # The reverse pass requests the batches backwards.
        step = jax.checkpoint(body) if remat else body
        return loader.scan_epoch(state, jnp.float32(0), step)[1]

    for remat in (False, True):
        run = functools.partial(total, remat=remat)
        np.testing.assert_allclose(jax.grad(run)(weight), wanted, rtol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.grad(run))(weight), wanted, rtol=1e-5)


def test_remat_around_next_batch_itself(loader: DataLoader, walk: Any) -> None:
    weight = jnp.array([1.0, 0.5, -0.25])
    loss = loss_of(loader)

    def total(weight: Any, state: Any) -> Any:
        @jax.checkpoint
        def step(carried: Any, _: None) -> Any:
            total, state = carried
            value, state = loss(weight, state)
            return (total + value, state), None

        return lax.scan(step, (jnp.float32(0), state), None, length=STEPS)[0][0]

    state = jax.tree.map(jnp.asarray, loader.init_state(7))
    gradient = jax.jit(jax.grad(total))(weight, state)
    wanted = expected_gradient(walk[0]["x"][:STEPS], np.asarray(weight))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5)


def test_disable_jit(loader: DataLoader, walk: Any) -> None:
    with jax.disable_jit():
        same_walk(
            stepped(loader, loader.init_state(7), 6, jax.jit(loader.next_batch)),
            jax.tree.map(lambda x: x[:6], walk),
        )
        _, count, found = loader.scan_epoch(
            loader.init_state(7), 0, lambda c, b, m: (c + 1, summed(b))
        )
    assert (int(count), list(found)) == (STEPS, list(sums(walk, STEPS)))


def test_several_threads_at_once(walk: Any) -> None:
    loader = made(threads=2)
    jitted = jax.jit(loader.next_batch)
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry, (batch, mask)

    def run(kind: int) -> None:
        try:
            start.wait()
            for _ in range(10):
                state = loader.init_state(7)
                if kind == 0:
                    found = stepped(loader, state, 15, jitted)
                elif kind == 1:
                    found = stepped(loader, state, 15)
                elif kind == 2:
                    _, _, pair = loader.scan_epoch(state, 0, body, steps=15)
                    found = (*pair, walk[2])
                else:
                    pairs = list(loader.iterate(state, steps=15))
                    stack = jax.tree.map(lambda *x: np.stack(x), *pairs)
                    found = (*stack, walk[2])
                same_walk(jax.tree.map(np.asarray, found), walk)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(kind,)) for kind in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


class Traces:
    """A stage that counts how often it is traced."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, batch: Any, mask: Any) -> Any:
        self.count += 1
        return batch


def counted() -> tuple[DataLoader, Traces]:
    traces = Traces()
    stages = [
        ArraySampleSource(rows_of(N)),
        BatchTransform(BATCH),
        MapTransform(traces),
    ]
    loader = DataLoader(stages)
    traces.count = 0
    return loader, traces


def test_jit_of_next_batch_traces_once() -> None:
    loader, traces = counted()
    for _ in range(3):
        state = loader.init_state(0)
        for _ in range(3):
            _, state, _ = jax.jit(loader.next_batch)(state)
    # States from the host (NumPy) and from a program (JAX) share one trace.
    assert traces.count == 1
    assert loader.next_batch is loader.next_batch


class Model:
    def __init__(self) -> None:
        self.traces = 0

    def body(self, carry: Any, batch: Any, mask: Any) -> Any:
        self.traces += 1
        return carry + summed(batch), None

    def add(self, scale: int, carry: Any, batch: Any, mask: Any) -> Any:
        self.traces += 1
        return carry + scale * summed(batch), None

    __call__ = body


@pytest.mark.parametrize("kind", ["function", "method", "partial", "object"])
def test_scan_epoch_compiles_once_for_one_body(
    loader: DataLoader, walk: Any, kind: str
) -> None:
    model = Model()

    def function(carry: Any, batch: Any, mask: Any) -> Any:
        return model.body(carry, batch, mask)

    held = functools.partial(model.add, 1)
    total, state = jnp.int32(0), loader.init_state(7)
    for epoch in range(3):
        body = {
            "function": function,
            "method": model.body,  # a new object each time
            "partial": held,
            "object": model,
        }[kind]
        state, total, _ = loader.scan_epoch(state, total, body)
        if epoch == 0:
            first = model.traces
    assert model.traces == first
    assert int(total) == sums(walk, 15).sum()
    loader.scan_epoch(state, total, body, steps=2)
    assert model.traces > first


def test_two_methods_of_one_object_are_two_bodies(
    loader: DataLoader, walk: Any
) -> None:
    model = Model()
    other = Model()
    state = loader.init_state(7)
    _, one, _ = loader.scan_epoch(state, jnp.int32(0), model.body)
    _, two, _ = loader.scan_epoch(state, jnp.int32(0), functools.partial(model.add, 2))
    _, three, _ = loader.scan_epoch(state, jnp.int32(0), other.body)
    total = sums(walk, STEPS).sum()
    assert [int(one), int(two), int(three)] == [total, 2 * total, total]


class Scaled:
    """An object that equals all others of its class and has no hash."""

    def __init__(self, scale: int) -> None:
        self.scale, self.traces = scale, 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaled)

    def body(self, carry: Any, batch: Any, mask: Any) -> Any:
        self.traces += 1
        return carry + self.scale * summed(batch), None

    __call__ = body


class Hashed(Scaled):
    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize("kind", [Scaled, Hashed])
@pytest.mark.parametrize("method", [False, True])
def test_bodies_whose_owners_are_equal(
    loader: DataLoader, walk: Any, kind: type[Scaled], method: bool
) -> None:
    state, total = loader.init_state(7), sums(walk, STEPS).sum()
    owners = [kind(1), kind(3)]
    for _ in range(2):
        for owner in owners:
            body = owner.body if method else owner
            _, found, _ = loader.scan_epoch(state, jnp.int32(0), body)
            assert int(found) == owner.scale * total
    assert [owner.traces for owner in owners] == [1, 1]


def run_once(loader: DataLoader, kind: str) -> list[weakref.ref[Any]]:
    """Runs a body, deletes it, and returns weak references to it and its model."""
    model = Model()

    def function(carry: Any, batch: Any, mask: Any) -> Any:
        return model.body(carry, batch, mask)

    if kind == "method":
        loader.scan_epoch(loader.init_state(0), jnp.int32(0), model.body)
        return [weakref.ref(model)]
    body = function if kind == "function" else functools.partial(model.add, 1)
    loader.scan_epoch(loader.init_state(0), jnp.int32(0), body)
    references = [weakref.ref(body), weakref.ref(model)]
    assert references[0]() is body
    return references


@pytest.mark.parametrize("kind", ["function", "method", "partial"])
def test_bodies_are_held_weakly(loader: DataLoader, kind: str) -> None:
    before = len(loader._scans)
    references = run_once(loader, kind)
    gc.collect()
    assert len(loader._scans) <= before
    assert [reference() for reference in references] == [None] * len(references)


def run_closure() -> weakref.ref[DataLoader]:
    loader = made()

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + loader.steps_per_epoch, None

    loader.scan_epoch(loader.init_state(0), jnp.int32(0), body)
    return weakref.ref(loader)


def test_a_body_that_closes_over_its_loader_does_not_keep_it_alive() -> None:
    reference = run_closure()
    gc.collect()
    assert reference() is None


def test_an_exception_of_a_body_is_raised_unchanged(loader: DataLoader) -> None:
    class Sentinel(Exception):
        pass

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        raise Sentinel

    with pytest.raises(Sentinel):
        loader.scan_epoch(loader.init_state(0), 0, body)
    with pytest.raises(TypeError, match="body_fn must be a function, not 7"):
        loader.scan_epoch(loader.init_state(0), 0, 7)  # type: ignore[arg-type]
