"""Python loops over small batches, of which one compiled call makes several."""

import json

import jax
import millstream as ms
import numpy as np
import pytest
from millstream._delivery import host
from walks import iterated, resumes_everywhere, same_bytes, same_walk, specified

N, BATCH = 61, 4
STEPS = 16  # of an epoch; the last batch has one sample
DATA = {
    "x": np.arange(3 * N, dtype=np.float32).reshape(N, 3),
    "y": np.arange(N, dtype=np.int32),
}
SAMPLE_BYTES = 16


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(host, "CALLS_BEFORE_GROUPS", 1)


def loader_of(**options):
    remainder = options.pop("remainder", "pad")
    stages = [ms.ArraySampleSource(DATA), ms.BatchTransform(BATCH, remainder=remainder)]
    return ms.DataLoader(stages, **options)


def warm(loader):
    """Lets the next loop take groups. Returns how many batches this took."""
    count = host.BATCHES_BEFORE_COMPILING + 1
    list(loader.iterate(loader.init_state(9), steps=count))
    assert loader._delivery._group is not None
    return count


@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
def test_groups_have_the_specified_batches(remainder):
    loader = loader_of(remainder=remainder)
    warm(loader)
    state = loader.init_state(3)
    steps = 2 * loader.steps_per_epoch + 3
    same_walk(iterated(loader, state, steps), specified(loader, state, steps))
    resumes_everywhere(loader, state, 2 * host.GROUP + 3)


def test_the_first_batch_of_a_loop_comes_alone_and_then_groups():
    loader = loader_of()
    warm(loader)
    run = loader.run(seed=0)
    next(run)
    assert not isinstance(run._place(), host.Ahead)
    next(run)
    assert run._place().taken == 1
    assert len(run._place().batches) == host.GROUP


def test_counters_follow_what_the_loop_took():
    loader = loader_of(prefetch=0)
    before = warm(loader)
    run = loader.run(seed=0)
    samples = before * BATCH
    for taken in range(1, 2 * STEPS + 3):
        _, mask = next(run)
        samples += int(mask.sum())
        assert loader.delivered == before + taken
        assert loader.stats().samples == samples
        assert loader.bytes_read == samples * SAMPLE_BYTES
    assert 0 < run._place().taken < host.GROUP
    del run
    assert loader.delivered == before + taken  # the rest of the group is not counted
    assert loader.bytes_read == samples * SAMPLE_BYTES


def test_a_loop_never_makes_batches_after_its_end():
    loader = loader_of(remainder="drop", prefetch=0)
    warm(loader)
    for steps in range(1, 2 * host.GROUP + 2):
        list(loader.iterate(loader.init_state(1), steps=steps))
        # What was made and not taken would be missing here.
        assert loader.bytes_read == loader.delivered * BATCH * SAMPLE_BYTES
        assert loader._built.engine.held_back == 0


@pytest.mark.parametrize("steps", range(1, 2 * host.GROUP + 3))
def test_a_break_anywhere_loses_nothing(steps):
    loader = loader_of()
    warm(loader)
    expected = specified(loader, loader.init_state(5), steps + STEPS)
    run = loader.run(seed=5, epochs=3)
    for taken, _ in enumerate(run, 1):
        if taken == steps:
            break
    saved = json.loads(json.dumps(loader.save(run.state)))
    assert (run.step, len(run)) == (steps, 3 * STEPS - steps)
    rest = jax.tree.map(lambda x: x[steps:], expected)
    other = loader_of()
    same_walk(iterated(other, other.restore(saved), STEPS), rest)
    same_walk(iterated(loader, run.state, STEPS), rest)
    batch, mask = next(run)  # the interrupted loop itself continues too
    same_bytes(
        jax.tree.map(np.asarray, (batch, mask)), jax.tree.map(lambda x: x[0], rest[:2])
    )


def test_partial_batches_and_several_loops_at_once():
    loader = loader_of(remainder="partial")
    warm(loader)
    plain = loader_of(remainder="partial", prefetch=0)
    first, second = loader.run(seed=1, epochs=3), loader.run(seed=2, epochs=3)
    sizes = []
    for (a, _), (b, _) in zip(first, second, strict=True):
        sizes.append((len(a["y"]), len(b["y"])))
    assert sizes == ([(BATCH, BATCH)] * (STEPS - 1) + [(1, 1)]) * 3
    for seed in (1, 2):
        found = [batch["y"] for batch, _ in loader.run(seed=seed, epochs=2)]
        wanted = [batch["y"] for batch, _ in plain.run(seed=seed, epochs=2)]
        same_bytes(found, wanted)


def test_batches_of_a_group_stay_valid():
    loader = loader_of()
    warm(loader)
    kept = list(loader.run(seed=0, epochs=2))
    list(loader.run(seed=1, epochs=2))
    expected = specified(loader, loader.init_state(0), 2 * STEPS)
    same_bytes(
        [b for b, _ in kept],
        [jax.tree.map(lambda x, k=k: x[k], expected[0]) for k in range(2 * STEPS)],
    )


def test_plans_that_may_fail_or_wait_have_no_groups(tmp_path):
    ms.write_packed(ms.ArraySampleSource(DATA), tmp_path / "x.packed")
    wide = {"y": np.arange(N, dtype=np.int64)}  # may not fit into int32
    for source in (ms.PackedSource(tmp_path / "x.packed"), ms.ArraySampleSource(wide)):
        loader = ms.DataLoader([source, ms.BatchTransform(BATCH)])
        list(loader.run(seed=0, epochs=3))
        assert loader._delivery._call is not None
        assert loader._delivery._group is None


def test_a_setting_for_debugging_in_the_middle_of_a_group():
    data = {"x": np.full((64, 2), np.nan, np.float32)}
    loader = ms.DataLoader([ms.ArraySampleSource(data), ms.BatchTransform(2)])
    warm(loader)
    run = loader.run(seed=0)
    for _ in range(4):
        next(run)
    with jax.debug_nans(True):
        for _ in range(2 * host.GROUP):
            batch, _ = next(run)
    assert np.isnan(batch["x"]).all()
