"""The examples for many devices. test_sharding.py runs it in a process."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def example(name: str) -> Any:
    return importlib.import_module(name)


def test_data_parallel_trains_as_one_device_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel, fashion = example("data_parallel"), example("fashion_mnist")
    data = parallel.generated(700)
    loader = parallel.pipeline(data, parallel.mesh_of_all_devices())
    plain = fashion.pipeline(data, batch_size=parallel.BATCH)
    start = fashion.init_params(jax.random.key(3))
    _, _, ours = loader.scan_epoch(loader.init_state(3), start, fashion.update)
    _, _, theirs = plain.scan_epoch(plain.init_state(3), start, fashion.update)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    monkeypatch.setattr(sys, "argv", ["data_parallel.py", "--generated", "2500"])
    parallel.main()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[-1].endswith("on 8 devices")
    assert float(printed[-1].split("accuracy ")[1].split()[0]) > 0.9


def test_fsdp_resumes_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fsdp, parallel = example("fsdp"), example("data_parallel")
    data, test = parallel.generated(1000), parallel.generated(500, seed=1)
    test["image"] = test["image"] / np.float32(255)
    unbroken, _ = fsdp.train(data, test, steps=10)
    broken, _ = fsdp.train(data, test, steps=10, folder=tmp_path)
    assert broken == unbroken
    assert broken[-1] < broken[0] / 2
    printed = capsys.readouterr().out
    assert "resumed at LoaderState(epoch=1, step=1)" in printed
    held, whole = printed.splitlines()[-1].split("holds ")[1].split(" of ")[:2]
    assert int(held.replace(",", "")) < int(whole.split()[0].replace(",", "")) / 6


def test_a_checkpoint_of_fsdp_is_complete_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsdp, fashion = example("fsdp"), example("fashion_mnist")
    parallel = example("data_parallel")
    mesh = parallel.mesh_of_all_devices()
    loader = parallel.pipeline(parallel.generated(600), mesh)
    first = fashion.init_params(jax.random.key(0))
    _, state, _ = loader.next_batch(loader.init_state(0))
    fsdp.save(tmp_path, loader, state, first)

    def broken(path: Path, *arrays: Any, **more: Any) -> None:
        path.write_bytes(b"half of it")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="no space"):
        fsdp.save(tmp_path, loader, loader.init_state(1), first)
    kept, params = fsdp.restored(tmp_path, loader, first, mesh)
    assert kept == state
    for found, wanted in zip(*map(jax.tree.leaves, (params, first)), strict=True):
        assert np.array_equal(found, wanted)
