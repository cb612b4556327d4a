"""Batches of Hydrax's Dataloader, made by real worker processes."""

from __future__ import annotations

import gc
import threading

import hydrax_loaders as loaders
import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from hydrax_loaders import ARRAYS, fill, gathered, group
from millstream.hydrax import (
    Batch,
    DataGroup,
    Dataloader,
    TrainingBatch,
    ValidationBatch,
    debug_batch_references,
    is_worker,
)
from millstream.hydrax._place import placed


def test_training_and_validation_follow_the_schedule():
    loader = Dataloader(
        fill,
        group(18, seed=3),
        validation=("epoch", 1, group(5, 2, start=100)),
        end_at=("epoch", 2),
        loader_count=2,
    )
    shuffled = np.random.Generator(np.random.PCG64(4)).permutation(18)
    expected = []
    for epoch, items in enumerate([np.arange(18), shuffled]):
        for i in range(4):
            seed = 3 + epoch * 16 + i * 4
            values = items[i * 4 : i * 4 + 4].tolist()
            expected.append(("T", values, list(range(seed, seed + 4))))
        expected += [("V", [100, 101], [-1, -1]), ("V", [102, 103], [-1, -1])]
    assert gathered(loader) == expected
    assert gathered(loader) == expected  # the loader can be entered again
    assert not loader.interrupted


@pytest.mark.parametrize("workers", [1, 3])
def test_groups_interleave_and_may_differ_in_layout(workers):
    other = {"value": ((2, 2), np.int16, np.float32)}
    narrow = DataGroup(2, [50, 60, 70, 80], loader_arrays=other, shuffle_later="repeat")
    wide = group(8, 4, shuffle_later="repeat")
    loader = Dataloader(
        loaders.fill_value, [wide, narrow], end_at=("epoch", 2), loader_count=workers
    )
    with loader:
        found = [
            (batch.group is narrow, batch.arrays["value"].ravel()[0].item())
            for batch in loader
        ]
    assert found == [(False, 0), (True, 50), (False, 4), (True, 70)] * 2


def test_attributes_of_a_training_batch():
    train = group(8, 4, start=10, seed=2)
    with Dataloader(
        loaders.fill_with_extras, train, start_at=(0, 3), end_at=("epoch", 2)
    ) as loader:
        assert iter(loader) is loader
        (batch,) = loader
    assert isinstance(batch, TrainingBatch)
    assert isinstance(batch, Batch)
    assert (batch.is_training, batch.is_validation) == (True, False)
    assert (batch.epoch, batch.epoch_batch, batch.batch_num) == (1, 1, 3)
    assert batch.seed == 2 + 8 + 4
    assert list(batch.seeds) == [14, 15, 16, 17]
    assert (batch.group, batch.group_index, len(batch)) == (train, 1, 4)
    indices = np.random.Generator(np.random.PCG64(3)).permutation(8)[4:].tolist()
    assert list(batch.indices) == indices
    data = [10 + i for i in indices]
    assert list(batch.data) == data
    assert batch.get_data(2) == batch.data[2] == data[2]
    assert list(batch.data[1:3]) == data[1:3]
    assert len(batch.data) == 4
    assert batch.get_array("value") is batch.arrays["value"]
    assert batch.arrays.keys() == ARRAYS.keys()
    assert batch.layouts == train.loader_layouts
    assert batch.uncached
    assert batch.additional["name"] == [f"item {i}" for i in data]
    assert batch.additional["odd"] == [i if i % 2 else None for i in data]
    assert batch.get_additional("odd", default=0) == [i if i % 2 else 0 for i in data]
    assert batch.get_additional("name", -1) == f"item {data[-1]}"
    assert batch.get_additional("none", 1, default="x") == "x"
    assert batch.get_additional("none") == [None] * 4
    with pytest.raises(
        IndexError, match="index 4 is invalid for batch size 4: it is out of range"
    ):
        batch.get_additional("none", 4)
    with pytest.raises(TypeError):
        batch.arrays["value"] = 0
    with pytest.raises(RuntimeError, match="no cache_arrays"):
        batch.cache({})
    assert repr(batch) == "<TrainingBatch 3: 4 items>"


def test_attributes_of_a_validation_batch():
    valid = group(6, 2, start=50)
    loader = Dataloader(
        fill, group(4, 4), validation=("batch", 1, valid), end_at=("batch", 2)
    )
    with loader:
        found = [batch for batch in loader if isinstance(batch, ValidationBatch)]
    batch = found[4]
    assert (batch.is_training, batch.is_validation) == (False, True)
    numbers = (
        batch.validation_epoch,
        batch.validation_epoch_batch,
        batch.validation_batch_num,
    )
    assert numbers == (1, 1, 4)
    assert list(batch.data) == [52, 53]
    assert batch.group is valid
    assert repr(batch) == "<ValidationBatch 4: 2 items>"


def test_every_array_is_aliased():
    with Dataloader(fill, group(), end_at=("batch", 1)) as loader:
        made = loader._run._load(next(loader._run._steps)).wait().arrays
    arrays = placed(None, made, group().loader_layouts, {}, group())
    for name, array in made.items():
        assert arrays[name].unsafe_buffer_pointer() == array.ctypes.data, name


def test_arrays_are_uncommitted_and_have_the_requested_dtype():
    arrays = {"value": ((3,), np.uint8, jnp.float32)}
    data = DataGroup(4, list(range(8)), loader_arrays=arrays)
    with Dataloader(loaders.fill_value, data, end_at=("epoch", 1)) as loader:
        for batch in loader:
            assert batch.arrays["value"].dtype == jnp.float32
            assert not batch.arrays["value"].committed
            assert (batch.arrays["value"][:, 0] == jnp.array(batch.indices)).all()


def test_a_last_batch_may_be_shorter():
    loader = Dataloader(
        fill, group(10, 4, drop_last=False, shuffle_later="repeat"), end_at=("epoch", 2)
    )
    values = [found[1] for found in gathered(loader)]
    assert values == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] * 2


def test_batches_that_are_kept_cost_memory_and_one_warning():
    loader = Dataloader(fill, group(200, 4), end_at=("epoch", 1), depth=2)
    held = pytest.warns(RuntimeWarning, match="batches are still held")
    with loader, held as warned:
        kept = list(loader)
    assert len(warned) == 1
    assert len(kept) == 50
    for number, batch in enumerate(kept):
        values = np.asarray(batch.arrays["value"])[:, 0]
        assert values.tolist() == list(range(number * 4, number * 4 + 4))


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_any_depth_gives_the_same_batches(depth):
    loader = Dataloader(fill, group(), end_at=("epoch", 2), depth=depth)
    found = gathered(loader)
    assert [values for _, values, _ in found[:4]] == [
        list(range(i, i + 4)) for i in range(0, 16, 4)
    ]
    assert len(found) == 8


def test_batches_come_as_soon_as_they_are_ready_if_not_deterministic():
    given = {"end_at": ("epoch", 1), "loader_count": 2, "depth": 4}
    ordered = Dataloader(loaders.first_is_slow, group(8, 1), **given)
    values = [found[1][0] for found in gathered(ordered)]
    assert values == list(range(8))
    ready = Dataloader(loaders.first_is_slow, group(8, 1), deterministic=False, **given)
    values = [found[1][0] for found in gathered(ready)]
    assert sorted(values) == list(range(8))
    assert values[0] != 0


def test_a_start_past_the_end_has_no_batches():
    for start_at, end_at in [((0, 2), ("batch", 2)), ((3, 0), ("epoch", 1))]:
        assert (
            gathered(Dataloader(fill, group(), start_at=start_at, end_at=end_at)) == []
        )


def test_the_loader_runs_only_in_a_with_block():
    loader = Dataloader(fill, group(), end_at=("batch", 1))
    for act in (lambda: iter(loader), lambda: next(loader), loader.interrupt):
        with pytest.raises(RuntimeError, match="Use it in a with block"):
            act()
    with loader:
        with pytest.raises(RuntimeError, match="already set up"):
            loader.__enter__()
        assert len(list(loader)) == 1
        with pytest.raises(StopIteration):
            next(loader)
    assert loader.idle_usec() == 0


def test_settings_of_a_worker_process():
    loader = Dataloader(
        loaders.tell_about_the_process,
        group(8, 8),
        end_at=("batch", 1),
        startup_func=loaders.start,
        loader_nice=3,
    )
    assert not is_worker()
    with loader:
        batch = next(loader)
        assert set(batch.additional["pid"]) <= set(loader._run.loaders.pids)
    assert batch.additional["worker"] == [True] * 8
    assert batch.additional["jax"] == [False] * 8
    assert "cannot be created in a loader process" in batch.additional["refused"][0]
    assert batch.additional["started"] == ["yes"] * 8
    assert min(batch.additional["nice"]) >= 3


def test_data_that_cannot_be_pickled_is_pickled_by_item(tmp_path):
    (tmp_path / "numbers").write_bytes(bytes(range(10, 18)))
    with open(tmp_path / "numbers", "rb") as file:
        data = DataGroup(4, loaders.InFile(file), loader_arrays=ARRAYS)
        found = gathered(Dataloader(fill, data, end_at=("epoch", 1)))
    assert [values for _, values, _ in found] == [[10, 11, 12, 13], [14, 15, 16, 17]]


def test_idle_time_counts_from_the_second_batch():
    with Dataloader(loaders.slow, group(12, 4), end_at=("epoch", 1)) as loader:
        next(loader)
        assert loader.idle_usec() == 0
        next(loader)
        assert loader.idle_usec() > 0
        assert loader.idle_usec() == 0


def test_interrupt_ends_the_loop():
    loader = Dataloader(loaders.stall, group(), timeout_sec=120)
    with loader:
        first = next(loader)
        timer = threading.Timer(0.2, loader.interrupt)
        timer.start()
        assert list(loader) == []  # the wait for the stalled batch ends
        timer.join()
    assert loader.interrupted
    assert len(first) == 4
    with loader:
        assert not loader.interrupted


def test_a_loader_runs_on_any_thread():
    found = []
    loader = Dataloader(fill, group(), end_at=("epoch", 1))
    thread = threading.Thread(target=lambda: found.extend(gathered(loader)))
    thread.start()
    thread.join(60)
    assert len(found) == 4


def test_a_placement_function_is_called_and_checked():
    seen = []

    def place(arrays, layouts, additional, data):
        seen.append((list(arrays), layouts["value"][0], dict(additional), data))
        return {name: jax.device_put(a, jax.devices()[0]) for name, a in arrays.items()}

    train = group()
    loader = Dataloader(
        loaders.fill_with_extras, train, end_at=("batch", 1), placement_func=place
    )
    with loader:
        batch = next(loader)
    assert batch.arrays["value"].committed
    (names, shape, additional, data) = seen[0]
    assert (names, shape, data) == (list(ARRAYS), (4, 3), train)
    assert additional["name"] == ["item 0", "item 1", "item 2", "item 3"]


def test_debug_batch_references_prints_what_holds_a_batch(capsys):
    gc.collect()
    with Dataloader(fill, group(), end_at=("batch", 1)) as loader:
        batch = next(loader)
    holder = {"somewhere": [batch]}
    debug_batch_references()
    told = capsys.readouterr().out
    assert "[hydrax] batch" in told
    assert "TrainingBatch" in told
    assert "['value']: a jaxlib" in told
    assert "builtins.list of 1" in told
    assert "builtins.dict with 1 keys" in told
    del batch, holder
    gc.collect()
    debug_batch_references()
    assert capsys.readouterr().out == ""


@pytest.mark.soak
def test_ten_thousand_epochs_leak_nothing():
    process = psutil.Process()

    def used():
        gc.collect()
        memory = process.memory_info().rss
        return memory, process.num_threads(), process.num_fds()

    arrays = {"value": ARRAYS["value"]}
    data = DataGroup(4, [1, 2, 3, 4], loader_arrays=arrays)
    loader = Dataloader(loaders.fill_value, data, end_at=("epoch", 10_000), depth=8)
    with loader:
        for batch in loader:
            if batch.epoch in (2_000, 9_999):
                memory, threads, files = used()
                if batch.epoch == 2_000:
                    before = memory, threads, files
            del batch
    assert threads <= before[1]
    assert files <= before[2]
    assert memory - before[0] < 8 << 20
