"""The loader of `millstream.torch`, with data sets that need no torch."""

import collections
import itertools
import json

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from collate_functions import Numbered, numbered_lists, padded, stacked
from millstream.torch import DataLoader

ARRAYS = {"x": np.arange(21, dtype=np.float32).reshape(7, 3), "y": np.arange(7)}


def ids(loader):
    """Returns the second entry of each batch of one epoch, as lists."""
    return [np.asarray(batch[1]).tolist() for batch in loader]


def test_batches_have_the_structure_of_samples_and_no_mask():
    batches = list(DataLoader(Numbered(7), batch_size=3))
    assert [type(batch) for batch in batches] == [tuple] * 3
    assert all(isinstance(x, jax.Array) for batch in batches for x in batch)
    assert [batch[0].shape for batch in batches] == [(3, 2), (3, 2), (1, 2)]
    assert ids(DataLoader(Numbered(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    batch = next(iter(DataLoader(ARRAYS, 4, output="numpy")))
    assert {key: type(x) for key, x in batch.items()} == dict.fromkeys("xy", np.ndarray)
    np.testing.assert_array_equal(batch["x"], ARRAYS["x"][:4])
    assert DataLoader((ARRAYS["x"],), 4).dataset[0] is ARRAYS["x"]


@pytest.mark.parametrize("output", ["jax", "numpy"])
@pytest.mark.parametrize("collate_fn", [None, stacked])
def test_drop_last_and_len(output, collate_fn):
    options = {"output": output, "collate_fn": collate_fn}
    loader = DataLoader(Numbered(7), 3, drop_last=True, **options)
    assert len(loader) == 2
    assert ids(loader) == [[0, 1, 2], [3, 4, 5]]
    assert len(DataLoader(Numbered(7), 3, **options)) == 3


def test_each_iter_begins_the_next_epoch():
    loader = DataLoader(Numbered(20), 4, shuffle=True, seed=5)
    epochs = [ids(loader) for _ in range(4)]
    assert len({str(epoch) for epoch in epochs}) == 4
    other = DataLoader(Numbered(20), 4, shuffle=True, seed=5)
    next(iter(other))  # uses up epoch 0
    assert ids(other) == epochs[1]
    for _ in other:
        break
    first, second = iter(other), None
    assert len(first) == 5
    second = iter(other)
    assert len({id(first), id(second)}) == 2
    assert ids(other) != epochs[3]  # epoch 5


def test_several_iterators_can_be_open():
    loader = DataLoader(Numbered(20), 4, shuffle=True)
    later = DataLoader(Numbered(20), 4, shuffle=True)
    expected = [ids(later), ids(later)]
    pairs = [
        (np.asarray(a[1]).tolist(), np.asarray(b[1]).tolist())
        for a, b in zip(iter(loader), iter(loader), strict=True)
    ]
    assert [a for a, _ in pairs] == expected[0]
    assert [b for _, b in pairs] == expected[1]


def test_the_order_depends_on_the_seed_alone():
    class Generator:
        def initial_seed(self):
            return 11

    def order(**options):
        return ids(DataLoader(Numbered(20), 4, shuffle=True, **options))

    one = order(seed=11)
    assert one == order(generator=Generator()) == order(seed=jax.random.key(11))
    for options in (
        {"num_workers": 2, "worker_kind": "thread"},
        {"num_workers": 1},
        {"collate_fn": stacked},
        {"collate_fn": stacked, "num_workers": 2},
        {"output": "numpy", "prefetch_factor": 3},
    ):
        assert order(seed=11, **options) == one
    assert order(seed=12) != one
    plain = ms.DataLoader([ms.DatasetSource(Numbered(20)), ms.BatchTransform(4)])
    assert one == [
        np.asarray(batch[1]).tolist() for batch, _ in plain.run(seed=11, epochs=1)
    ]


@pytest.mark.parametrize("collate_fn", [None, stacked, numbered_lists])
@pytest.mark.parametrize("output", ["jax", "numpy"])
def test_resumes_at_every_step_with_other_workers(collate_fn, output):
    def make(**options):
        return DataLoader(
            Numbered(10), 3, True, collate_fn=collate_fn, output=output, **options
        )

    whole = make()
    steps = [ids(whole), ids(whole), ids(whole)]
    several = make(num_workers=2, worker_kind="thread")
    for taken in range(9):
        loader = make()
        epoch, step = divmod(taken, 4)
        for _ in range(epoch):
            list(loader)
        for _ in itertools.islice(loader, step) if step else ():
            pass
        saved = json.loads(json.dumps(loader.state_dict()))
        several.load_state_dict(saved)
        assert ids(several) == steps[epoch][step:], taken
        assert ids(several) == [*steps, None][epoch + 1] or epoch == 2


def test_an_ended_epoch_is_followed_by_the_whole_next_one():
    loader = DataLoader(Numbered(10), 3, shuffle=True)
    first, second = ids(loader), ids(loader)
    other = DataLoader(Numbered(10), 3, shuffle=True)
    assert ids(other) == first
    saved = other.state_dict()
    other.load_state_dict(saved)
    assert other.state_dict() == saved
    assert ids(other) == second


def test_loading_a_state_does_not_move_open_iterators():
    loader = DataLoader(Numbered(9), 3)
    open_one = iter(loader)
    next(open_one)
    saved = loader.state_dict()
    later = iter(loader)
    next(later)
    next(later)
    loader.load_state_dict(saved)
    assert [np.asarray(b[1]).tolist() for b in open_one] == [[3, 4, 5], [6, 7, 8]]
    assert [np.asarray(b[1]).tolist() for b in later] == [[6, 7, 8]]
    assert ids(loader) == [[3, 4, 5], [6, 7, 8]]


def test_a_state_of_another_loader_is_refused_with_the_difference():
    saved = DataLoader(Numbered(9), 3).state_dict()
    with pytest.raises(ValueError, match="the number of samples was 9 and is 10"):
        DataLoader(Numbered(10), 3).load_state_dict(saved)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("output", ["jax", "numpy"])
def test_collate_fn_may_return_another_size_each_time(num_workers, output):
    loader = DataLoader(
        Numbered(11), 4, collate_fn=padded, num_workers=num_workers, output=output
    )
    kind = jax.Array if output == "jax" else np.ndarray
    for _ in range(2):
        for step, batch in enumerate(loader):
            samples = list(range(4 * step, min(4 * step + 4, 11)))
            assert isinstance(batch["rows"], kind)
            assert batch["rows"].shape == (len(samples), samples[-1] + 1)
            assert batch["rows"].dtype == np.int32
            assert batch["names"] == [f"sample {i}" for i in samples]
            assert batch["count"] == len(samples)
            assert isinstance(batch["nested"], collections.OrderedDict)
            np.testing.assert_array_equal(batch["nested"]["id"], samples)
            assert isinstance(batch["nested"]["id"], kind)
            assert isinstance(batch["scalar"], kind)
            assert float(batch["scalar"]) == len(samples) / 2


def test_collate_fn_gets_all_samples_of_a_batch_at_once():
    sizes = []

    def collate(samples):
        sizes.append(len(samples))
        assert all(isinstance(sample, tuple) for sample in samples)
        return stacked(samples)

    assert len(ids(DataLoader(Numbered(300), 100, collate_fn=collate))) == 3
    assert sizes[0] == 2  # two samples show the shapes
    assert set(sizes[1:]) == {100}
    threads = {"num_workers": 3, "worker_kind": "thread"}
    slow = Numbered(300, seconds=0.0005)
    sizes.clear()
    assert len(ids(DataLoader(slow, 100, collate_fn=collate, **threads))) == 3
    assert set(sizes[1:]) == {100}


def test_collate_fn_over_arrays_and_sources():
    def total(samples):
        return sum(sample["x"].sum() for sample in samples), len(samples)

    for data in (ARRAYS, ms.ArraySampleSource(ARRAYS)):
        totals = [float(x) for x, _ in DataLoader(data, 4, collate_fn=total)]
        assert totals == [66.0, 144.0]


def test_a_collated_number_that_jax_cannot_hold_is_an_error():
    def large(samples):
        return {"n": np.full(len(samples), 1 << 40)}

    loader = DataLoader(Numbered(4), 2, collate_fn=large)
    with pytest.raises(ValueError, match="'n' of the batch that collate_fn returned"):
        next(iter(loader))


def test_a_collate_fn_that_needs_whole_batches():
    def strict(samples):
        if len(samples) != 4:
            raise ValueError(f"expected 4 samples, found {len(samples)}")
        return stacked(samples)

    loader = DataLoader(Numbered(9), 4, collate_fn=strict, drop_last=True)
    assert ids(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ValueError, match="expected 4 samples, found 1"):
        list(DataLoader(Numbered(9), 4, collate_fn=strict))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_errors_of_collate_fn_name_the_samples(num_workers):
    loader = DataLoader(
        Numbered(6, broken=4), 3, collate_fn=stacked, num_workers=num_workers
    )
    batches = iter(loader)
    next(batches)
    with pytest.raises(RuntimeError, match="sample 4 is damaged") as caught:
        next(batches)
    assert "for sample 4" in "".join(caught.value.__notes__)


def test_single_samples_without_a_batch_size():
    samples = list(DataLoader(Numbered(3), batch_size=None))
    assert [(x.shape, int(i)) for x, i in samples] == [((2,), i) for i in range(3)]
    for options in ({"drop_last": True}, {"collate_fn": stacked}):
        with pytest.raises(ValueError, match="needs a batch_size, not None"):
            DataLoader(Numbered(3), batch_size=None, **options)


def test_a_list_is_a_data_set_of_samples():
    samples = [(np.float32(i), i) for i in range(5)]
    assert ids(DataLoader(samples, 2)) == [[0, 1], [2, 3], [4]]
    assert ids(DataLoader(samples, 2, collate_fn=stacked)) == [[0, 1], [2, 3], [4]]


def test_sources_keep_their_samples_and_get_the_order_of_the_loader():
    source = ms.ArraySampleSource((ARRAYS["x"], ARRAYS["y"]))
    assert ids(DataLoader(source, 7)) == [[0, 1, 2, 3, 4, 5, 6]]
    part, _ = source.split(4, 3, shuffle=False)
    assert ids(DataLoader(part, 4)) == [[0, 1, 2, 3]]


def test_samplers():
    assert ids(DataLoader(Numbered(9), 2, sampler=[5, 1, 1])) == [[5, 1], [1]]
    assert ids(DataLoader(Numbered(9), 2, sampler=range(4))) == [[0, 1], [2, 3]]
    weights = ms.Weighted([0.0] * 8 + [1.0])
    assert ids(DataLoader(Numbered(9), 9, sampler=weights)) == [[8] * 9]
    with pytest.raises(TypeError, match="not set, because a batch depends only on"):
        DataLoader(Numbered(9), 2, sampler={1, 2})
    with pytest.raises(ValueError, match="shuffle=True or a sampler, not both"):
        DataLoader(Numbered(9), 2, shuffle=True, sampler=[1])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("batch_sampler", [[1, 2]]),
        ("worker_init_fn", print),
        ("pin_memory", True),
        ("pin_memory_device", "cuda"),
        ("multiprocessing_context", "fork"),
        ("in_order", False),
    ],
)
def test_arguments_that_are_refused_by_name(argument, value):
    with pytest.raises(ValueError, match=f"DataLoader: {argument} must be "):
        DataLoader(Numbered(9), 2, **{argument: value})


def test_arguments_that_change_nothing_or_are_checked():
    DataLoader(Numbered(9), persistent_workers=True, pin_memory=False, timeout=5)
    with pytest.raises(TypeError, match="shuffle must be True or False, not 'no'"):
        DataLoader(Numbered(9), shuffle="no")
    DataLoader(Numbered(9), shuffle=None)
    with pytest.raises(ValueError, match="output must be one of"):
        DataLoader(Numbered(9), output="torch")
    with pytest.raises(TypeError, match="collate_fn must be a function, not 3"):
        DataLoader(Numbered(9), collate_fn=3)
    with pytest.raises(ValueError, match="a seed or a generator, not both"):
        DataLoader(Numbered(9), seed=1, generator=object())
    with pytest.raises(TypeError, match=r"must be a torch\.Generator, not object"):
        DataLoader(Numbered(9), generator=object())
    with pytest.raises(ValueError, match="prefetch_factor"):
        DataLoader(Numbered(9), prefetch_factor=0)


def test_a_subclass_can_set_arguments_as_with_torch():
    class NumpyLoader(DataLoader):
        def __init__(self, dataset, batch_size=1, shuffle=False, **options):
            super().__init__(
                dataset, batch_size, shuffle, collate_fn=stacked, **options
            )

    loader = NumpyLoader(Numbered(5), batch_size=2, num_workers=0)
    assert (loader.batch_size, loader.num_workers, len(loader.dataset)) == (2, 0, 5)
    assert ids(loader) == [[0, 1], [2, 3], [4]]


def test_numpy_batches_stay_valid_after_later_ones():
    loader = DataLoader(Numbered(40), 2, output="numpy")
    kept = list(loader)
    list(loader)
    assert [batch[1].tolist() for batch in kept] == ids(loader)
    kept[0][0][...] = -1  # a batch belongs to the caller
    assert ids(loader)[0] == [0, 1]


def test_float64_is_narrowed_as_in_jax():
    def doubles(samples):
        return np.array([1e300, *[0.5] * (len(samples) - 1)])

    (batch,) = DataLoader(Numbered(2), 2, collate_fn=doubles)
    np.testing.assert_array_equal(batch, jnp.array([np.inf, 0.5], jnp.float32))
    assert batch.dtype == jnp.float32


def test_explain_and_repr_name_the_source():
    loader = DataLoader(Numbered(45), 3, collate_fn=stacked)
    assert "1 worker thread" in loader.explain()
    assert "Numbered" in repr(loader)
    list(loader)
    assert loader.stats().samples == 45
    assert loader.stats().measured_steps > 0
