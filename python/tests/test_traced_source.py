"""TracedSource: arrays that are tracers are sampled inside a jitted function."""

import gc

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest

N, SIZE = 300, 32
DATA = {
    "x": np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32),
    "y": np.arange(N, dtype=np.int32),
}


def stacked(carry, batch, mask):
    return carry + jnp.sum(batch["y"]), (batch, mask)


def expected(seed, stages, ordering="shuffle", epochs=1):
    loader = ms.DataLoader([ms.ArraySampleSource(DATA, ordering), *stages])
    batches = [(b, m) for b, m in loader.run(seed=seed, epochs=epochs)]
    return jax.tree.map(lambda *xs: np.stack(xs), *batches)


def sampled(data, key, stages, ordering="shuffle", epochs=1):
    """Builds a loader inside jit and scans over its epochs."""
    loader = ms.DataLoader([ms.TracedSource(data, ordering), *stages])
    state, carry, outputs = loader.init_state(key), 0, []
    for _ in range(epochs):
        state, carry, output = loader.scan_epoch(state, carry, stacked)
        outputs.append(output)
    joined = jax.tree.map(lambda *xs: jnp.concatenate(xs), *outputs)
    return state, joined


def check(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize(
    ("ordering", "remainder"),
    [("shuffle", "pad"), ("sequential", "pad"), ("shuffle", "drop")],
)
def test_the_batches_are_those_of_array_sample_source(ordering, remainder):
    stages = [ms.BatchTransform(SIZE, remainder=remainder)]
    run = jax.jit(lambda data, key: sampled(data, key, stages, ordering, epochs=2))
    state, found = run(DATA, jax.random.key(7))
    gc.collect()  # the loader is gone, and the program must not need it
    again, _ = run(DATA, jax.random.key(7))
    check(found, expected(7, stages, ordering, epochs=2))
    assert state == again
    assert (state.epoch, state.step) == (2, 0)


def test_few_samples_and_batches_that_divide_them():
    data = {"y": np.arange(64)}
    stages = [ms.BatchTransform(16, remainder="wrap")]
    _, (batch, mask) = jax.jit(lambda d: sampled(d, 3, stages))(data)
    loader = ms.DataLoader([ms.ArraySampleSource(data), *stages])
    wanted = [b["y"] for b, _ in loader.run(seed=3, epochs=1)]
    np.testing.assert_array_equal(batch["y"], np.stack(wanted))
    assert mask.all()


def test_stages_run_before_and_after_batching_with_the_same_keys():
    def noise(value, mask, key):
        return {**value, "x": value["x"] + jax.random.uniform(key)}

    stages = [
        ms.NormalizeImageTransform("x", mean=0.5, std=2.0),
        ms.MapTransform(noise),
        ms.BatchTransform(SIZE),
        ms.MapTransform(noise),
        ms.RenameTransform({"x": "z"}),
    ]
    _, found = jax.jit(lambda data: sampled(data, 5, stages))(DATA)
    wanted = expected(5, stages)
    np.testing.assert_array_equal(found[0]["y"], wanted[0]["y"])
    np.testing.assert_allclose(found[0]["z"], wanted[0]["z"], rtol=1e-6)


def test_next_batch_takes_traced_and_known_states():
    stages = [ms.BatchTransform(SIZE)]

    @jax.jit
    def both(data, seed):
        loader = ms.DataLoader([ms.TracedSource(data), *stages])
        traced = loader.next_batch(loader.init_state(seed))
        known = loader.next_batch(loader.init_state(7))
        return traced, known

    traced, known = both(DATA, np.uint32(7))
    check(traced, known)
    batches, masks = expected(7, stages)
    check((traced[0], traced[2]), jax.tree.map(lambda x: x[0], (batches, masks)))
    assert (traced[1].epoch, traced[1].step) == (0, 1)


def test_vmap_over_seeds_and_over_data():
    stages = [ms.BatchTransform(SIZE)]

    def first(data, seed):
        loader = ms.DataLoader([ms.TracedSource(data), *stages])
        return loader.next_batch(loader.init_state(seed))[0]["y"]

    seeds = jnp.arange(3, dtype=jnp.uint32)
    found = jax.jit(jax.vmap(first, in_axes=(None, 0)))(DATA, seeds)
    for seed in range(3):
        wanted = expected(seed, stages)[0]["y"][0]
        np.testing.assert_array_equal(found[seed], wanted)
    doubled = {k: np.stack([v, 2 * v]) for k, v in DATA.items()}
    found = jax.jit(jax.vmap(first, in_axes=(0, None)))(doubled, np.uint32(1))
    np.testing.assert_array_equal(2 * found[0], found[1])


def test_gradients_flow_through_the_batches():
    def loss(x):
        loader = ms.DataLoader([ms.TracedSource({"x": x}), ms.BatchTransform(SIZE)])
        state = loader.init_state(0)

        def body(carry, batch, mask):
            return carry + jnp.sum(batch["x"] ** 2), None

        return loader.scan_epoch(state, jnp.float32(0), body)[1]

    x = DATA["x"]
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), 2 * x, rtol=1e-6)


def test_a_split_and_a_buffer():
    def parts(data):
        found = []
        for part in ms.TracedSource(data).split(0.8, 0.2, seed=1):
            loader = ms.DataLoader([part, ms.BatchTransform(60)])
            found.append(loader.next_batch(loader.init_state(2))[0]["y"])
        buffered = ms.DataLoader(
            [ms.TracedSource(data), ms.BufferTransform(8, 4), ms.BatchTransform(10)]
        )
        _, _, out = buffered.scan_epoch(buffered.init_state(2), 0, stacked)
        return found, out[0]["y"]

    found, buffered = jax.jit(parts)(DATA)
    wanted = ms.ArraySampleSource(DATA).split(0.8, 0.2, seed=1)
    for mine, source in zip(found, wanted, strict=True):
        loader = ms.DataLoader([source, ms.BatchTransform(60)])
        batch = next(loader.run(seed=2))[0]
        np.testing.assert_array_equal(mine, batch["y"])
    source = ms.ArraySampleSource(DATA)
    loader = ms.DataLoader([source, ms.BufferTransform(8, 4), ms.BatchTransform(10)])
    batches = [batch["y"] for batch, _ in loader.run(seed=2, epochs=1)]
    np.testing.assert_array_equal(buffered, np.stack(batches))


def test_known_arrays_also_run_in_a_python_loop():
    stages = [ms.BatchTransform(SIZE)]
    loader = ms.DataLoader([ms.TracedSource(DATA), *stages])
    found = [(b, m) for b, m in loader.run(seed=7, epochs=1)]
    check(jax.tree.map(lambda *xs: np.stack(xs), *found), expected(7, stages))
    assert "TracedSource" in loader.explain()


def test_a_python_loop_over_tracers_is_refused():
    def loop(data):
        loader = ms.DataLoader([ms.TracedSource(data), ms.BatchTransform(SIZE)])
        return next(loader.run(seed=0))

    with pytest.raises(TypeError, match=r"run\(\) cannot be used inside jit"):
        jax.jit(loop)(DATA)


@pytest.mark.parametrize(
    "order",
    [ms.WithReplacement(), ms.Shuffle(window=2), ms.Weighted(np.ones(N))],
)
def test_orders_that_xla_cannot_compute_are_named(order):
    with pytest.raises(ValueError, match=f"the order {type(order).__name__}"):
        ms.TracedSource(DATA, order)


def test_bad_input():
    with pytest.raises(ValueError, match="unknown ordering 'random'"):
        ms.TracedSource(DATA, "random")
    with pytest.raises(ValueError, match="no arrays"):
        ms.TracedSource({})
    with pytest.raises(ValueError, match="'y' is a scalar"):
        ms.TracedSource({"y": 3})
    with pytest.raises(TypeError, match="'y' is not an array"):
        ms.TracedSource({"y": "text"})
    with pytest.raises(TypeError, match="'key' is an array of typed JAX keys"):
        ms.TracedSource({"key": jax.random.split(jax.random.key(0), 4)})
    with pytest.raises(ValueError, match="5"):
        ms.TracedSource({"a": np.zeros(5), "b": np.zeros(6)})
    with pytest.raises(ValueError, match="WithReplacement"):
        ms.TracedSource(DATA).split(0.5, 0.5, ordering=ms.WithReplacement())
    source = ms.TracedSource(DATA)
    with pytest.raises(TypeError, match="Index its arrays"):
        source[0]
    with pytest.raises(TypeError, match="cannot be combined"):
        ms.concatenate([source, source])
    with pytest.raises(ValueError, match="remainder='wrap' is not possible"):
        ms.DataLoader([source, ms.BatchTransform(SIZE, remainder="wrap")])
    with pytest.raises(TypeError, match="PythonMapTransform, cannot run in XLA"):
        ms.DataLoader([source, ms.PythonMapTransform(lambda x: x)])
    with pytest.raises(ValueError, match="fewer than 2"):
        jax.eval_shape(
            lambda x: ms.TracedSource(x).arrays(),
            jax.ShapeDtypeStruct((1 << 31,), np.uint8),
        )
