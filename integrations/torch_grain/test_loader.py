"""`millstream.torch.DataLoader`, compared with PyTorch's and torchdata's loaders."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jax
import numpy as np
import pytest
import torch
from conftest import check_same
from documents import run_blocks
from millstream.torch import DataLoader
from reading import plain
from samples import Light, numpy_collate
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Subset, TensorDataset, default_collate
from torchdata.stateful_dataloader import StatefulDataLoader

N, BATCH = 10, 4


def tensors() -> TensorDataset:
    return TensorDataset(torch.arange(3.0 * N).reshape(N, 3), torch.arange(N))


def arrays(batches: Any) -> list[Any]:
    """Returns batches with arrays of JAX's dtypes, and lists as tuples."""
    return [jax.tree.map(plain, tuple(batch)) for batch in batches]


DATA_SETS = [tensors(), Light(N), Subset(tensors(), [7, 2, 5]), Subset(Light(N), [1])]


@pytest.mark.parametrize("dataset", DATA_SETS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("output", ["jax", "numpy"])
def test_batches_are_those_of_torch(dataset, output):
    for drop_last in [False, True] if len(dataset) >= BATCH else [False]:
        options: Any = {"batch_size": BATCH, "drop_last": drop_last}
        theirs = TorchLoader(dataset, **options)
        ours = DataLoader(dataset, output=output, **options)
        assert len(ours) == len(theirs)
        check_same(arrays(ours), arrays(theirs))


def test_single_samples():
    check_same(arrays(DataLoader(Light(3), None)), arrays(TorchLoader(Light(3), None)))


@pytest.mark.parametrize("dataset", DATA_SETS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("collate_fn", [default_collate, numpy_collate])
def test_collate_functions_of_torch(dataset, collate_fn):
    theirs = list(TorchLoader(dataset, BATCH, collate_fn=collate_fn))
    for output, kind in (("jax", jax.Array), ("numpy", np.ndarray)):
        ours = list(DataLoader(dataset, BATCH, collate_fn=collate_fn, output=output))
        check_same(arrays(ours), arrays(theirs))
        assert type(ours[0]) is type(theirs[0])
        assert all(isinstance(x, kind) for batch in ours for x in batch)


class NumpyLoader(DataLoader):
    """The class of JAX's tutorials, over the other loader."""

    def __init__(self, dataset: Any, batch_size: int = 1, **options: Any) -> None:
        options["collate_fn"] = numpy_collate
        super().__init__(dataset, batch_size, output="numpy", **options)


def test_the_subclass_of_the_tutorials():
    theirs = TorchLoader(tensors(), BATCH, collate_fn=numpy_collate)
    check_same(arrays(NumpyLoader(tensors(), BATCH)), arrays(theirs))
    shuffled = arrays(NumpyLoader(tensors(), BATCH, shuffle=True, seed=3))
    check_same(shuffled, arrays(DataLoader(tensors(), BATCH, shuffle=True, seed=3)))


def test_a_torch_generator_gives_the_seed():
    generator = torch.Generator().manual_seed(7)
    ours = DataLoader(Light(N), BATCH, shuffle=True, generator=generator)
    check_same(arrays(ours), arrays(DataLoader(Light(N), BATCH, shuffle=True, seed=7)))
    ids = sorted(int(i) for batch in ours for i in batch[2])
    assert ids == list(range(N))


@pytest.mark.parametrize("collate_fn", [None, default_collate])
def test_worker_processes(collate_fn):
    theirs = arrays(TorchLoader(Light(N), BATCH))
    ours = DataLoader(Light(N), BATCH, num_workers=1, collate_fn=collate_fn)
    check_same(arrays(ours), theirs)
    assert "1 worker process" in ours.explain()


@pytest.mark.parametrize("dataset", DATA_SETS[:2], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("collate_fn", [None, default_collate])
def test_states_are_as_exact_as_those_of_torchdata(dataset, collate_fn):
    """Both loaders give the same rest of an epoch, from a state at every step."""

    def make(kind: Any) -> Any:
        return kind(dataset, BATCH, collate_fn=collate_fn)

    whole = arrays(make(DataLoader))
    check_same(whole, arrays(make(StatefulDataLoader)))
    for step in range(1, len(whole)):
        rests = []
        for kind in (DataLoader, StatefulDataLoader):
            loader = make(kind)
            for _ in itertools.islice(iter(loader), step):
                pass
            state = loader.state_dict()
            if kind is DataLoader:
                state = json.loads(json.dumps(state))
            other = make(kind)
            other.load_state_dict(state)
            rests.append([arrays(other), arrays(other)])
        check_same(rests[0], rests[1])
        check_same(rests[0], [whole[step:], whole])


def test_a_sampler_of_torch_shows_what_to_write():
    sampler: Any = torch.utils.data.RandomSampler(tensors())
    with pytest.raises(TypeError, match="write shuffle=True"):
        DataLoader(tensors(), sampler=sampler)


def test_the_code_of_the_page():
    run_blocks("torch")
