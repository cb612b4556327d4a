"""Loaders that are pickled, sent to another process and copied."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import jax
import jax.numpy as jnp
import millstream
import numpy as np
import pytest
import worker_functions as fns
from conftest import Python
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataLoader,
    DatasetSource,
    DevicePutTransform,
    DiskSampleSource,
    FlattenImageTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
    NpySource,
    PythonMapTransform,
    RenameTransform,
    Shuffle,
    cyreal,
    fill_source,
    mix,
)
from walks import same_bytes

STEPS = 7


def images(n: int = 23) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (n, 4, 3, 1), np.uint8)
    return {"image": pixels, "label": np.arange(n, dtype=np.int32)}


def halved(batch: Any, mask: Any) -> Any:
    return {**batch, "image": batch["image"] / 2}


def plus(amount: int, batch: Any, mask: Any) -> Any:
    return {**batch, "label": batch["label"] + amount}


def jittered(sample: Any, seed: int) -> Any:
    noise = np.random.default_rng(seed).normal(size=sample["image"].shape)
    return {**sample, "image": (sample["image"] + noise).astype(np.float32)}


@jax.jit
def jitted(batch: Any, mask: Any) -> Any:
    return batch


def fails_at_five(i: int) -> Any:
    if i == 5:
        raise ValueError("sample 5 is bad")
    return {"x": np.full(3, i, np.int32)}


class Scaled:
    """A callable object."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, batch: Any, mask: Any) -> Any:
        return {**batch, "image": batch["image"] * self.scale}

    def method(self, batch: Any, mask: Any) -> Any:
        return self(batch, mask)


class Guarded(Scaled):
    """A callable object that holds a lock, which cannot be pickled."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.lock = threading.Lock()


class Opened(fns.Data):
    """A data set that holds a lock, which cannot be pickled."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.lock = threading.Lock()


SPEC = {
    "image": jax.ShapeDtypeStruct((5, 4, 3, 1), np.float32),
    "label": jax.ShapeDtypeStruct((5,), np.int32),
}

STAGES: dict[str, list[Any]] = {
    "batch": [BatchTransform(5, remainder="wrap")],
    "native": [
        NormalizeImageTransform("image", jnp.bfloat16, 1 / 255, -0.5),
        CastTransform("label", np.float32),
        FlattenTransform("image", 1),
        RenameTransform({"image": "pixels"}),
        BatchTransform(5),
    ],
    "flat images": [FlattenImageTransform(), BatchTransform(5, drop_last=True)],
    "traced": [
        NormalizeImageTransform(),
        BatchTransform(5),
        MapTransform(halved, SPEC),
        MapTransform(functools.partial(plus, 3)),
        MapTransform(Scaled(3.0)),
        MapTransform(Scaled(0.25).method),
    ],
    "callback": [
        NormalizeImageTransform(),
        BatchTransform(5),
        HostCallbackTransform(halved, SPEC),
    ],
    "threads": [PythonMapTransform(jittered, workers=2), BatchTransform(5)],
    "processes": [
        PythonMapTransform(jittered, worker_kind="process", timeout=60),
        BatchTransform(5),
    ],
}


def sourced(folder: Path) -> dict[str, DataLoader]:
    np.save(folder / "x.npy", np.arange(46, dtype=np.int32).reshape(23, 2))
    arrays = ArraySampleSource({"x": np.arange(23, dtype=np.int32)}, Shuffle())
    other = ArraySampleSource({"x": np.arange(100, 107, dtype=np.int32)})
    fill = {"x": jax.ShapeDtypeStruct((8,), np.uint8)}
    batch = BatchTransform(5)
    sources: dict[str, Any] = {
        "file": NpySource({"x": folder / "x.npy"}),
        "split": arrays.split(0.6, 0.4)[1],
        "mixture": mix([arrays, other], [3, 1]),
        "function": DiskSampleSource(23, fns.plain, workers=2),
        "data set": DatasetSource(fns.Data(23), worker_kind="process"),
        "fill": fill_source(fns.fill_one, range(23), fill),
        "pipeline": RenameTransform({"x": "y"})(other),
    }
    loaders = {name: DataLoader([s, batch]) for name, s in sources.items()}
    bad = DiskSampleSource(23, fails_at_five)
    loaders["skipping"] = DataLoader([bad, batch], on_error="skip", error_budget=9)
    settings = {"threads": 1, "prefetch": 3, "traced": True}
    loaders["traced source"] = DataLoader([arrays, batch], **settings)  # type: ignore[arg-type]
    loaders["cyreal"] = cyreal.DataLoader([arrays, batch])
    return loaders


def every_loader(folder: Path) -> dict[str, DataLoader]:
    staged = {
        name: DataLoader([ArraySampleSource(images()), *stages])
        for name, stages in STAGES.items()
    }
    return staged | sourced(folder)


def first_batches(loader: DataLoader, state: Any) -> tuple[list[Any], Any]:
    """Returns batches as NumPy arrays, and the saved state after them."""
    iterator = loader.iterate(state, steps=STEPS)
    found = [jax.tree.map(np.asarray, pair) for pair in iterator]
    return found, loader.save(iterator.state)


def in_the_other_process(folder: Path) -> None:
    """Unpickles loaders and states, and writes the batches."""
    answers = {}
    for name, (loader, saved) in pickle.loads((folder / "in").read_bytes()).items():
        found, after = first_batches(loader, loader.init_state(7))
        resumed, _ = first_batches(loader, loader.restore(saved))
        answers[name] = (type(loader), found, resumed, after)
    (folder / "out").write_bytes(pickle.dumps(answers))


def test_another_process_delivers_the_same_bytes(
    python: Python, tmp_path: Path
) -> None:
    loaders = every_loader(tmp_path)
    # The loaders have been iterated, so their threads and workers run.
    first = {k: first_batches(x, x.init_state(7)) for k, x in loaders.items()}
    assert STAGES["processes"][0].pids
    sent = {name: (loader, first[name][1]) for name, loader in loaders.items()}
    (tmp_path / "in").write_bytes(pickle.dumps(sent))
    python.run(
        """
        from pathlib import Path
        import test_pickled_loaders
        test_pickled_loaders.in_the_other_process(Path("."))
        """
    )
    answers = pickle.loads((tmp_path / "out").read_bytes())
    assert answers.keys() == loaders.keys()
    for name, (kind, found, resumed, after) in answers.items():
        loader = loaders[name]
        assert kind is type(loader), name
        same_bytes(found, first[name][0])
        assert after == first[name][1], name
        # A state that was saved in one process continues in the other.
        later, _ = first_batches(loader, loader.restore(after))
        same_bytes(resumed, later)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(protocol: int) -> None:
    for stages in (STAGES["traced"], STAGES["threads"]):
        loader = DataLoader([ArraySampleSource(images()), *stages])
        again = pickle.loads(pickle.dumps(loader, protocol))
        expected = first_batches(loader, loader.init_state(1))
        same_bytes(first_batches(again, again.init_state(1))[0], expected[0])


def test_an_unpickled_loader_has_the_arguments_and_starts_anew() -> None:
    bad = DiskSampleSource(23, fails_at_five, None, "sequential")
    loader = DataLoader([bad, BatchTransform(5)], on_error="skip", error_budget=0)
    again = pickle.loads(pickle.dumps(loader))
    with pytest.raises(millstream.DataError, match="allowed 0 samples"):
        first_batches(again, again.init_state(0))
    assert again.delivered == 1
    third = pickle.loads(pickle.dumps(again))
    assert (third.delivered, third.skipped, third.last_error) == (0, {}, None)


def test_pickles_name_only_public_loaders() -> None:
    loader = cyreal.DataLoader([ArraySampleSource(images()), BatchTransform(5)])
    pickled = pickle.dumps(loader)
    assert b"millstream.cyreal" in pickled
    assert b"_run" not in pickled


def test_a_pipeline_drops_what_it_built() -> None:
    pipeline = BatchTransform(5)(ArraySampleSource(images()))
    expected = pipeline.next(pipeline.init_state(3))
    for again in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        assert "_built" not in vars(again)
        same_bytes(again.next(again.init_state(3))[:2], expected[:2])


def test_a_copied_stage_has_no_workers() -> None:
    stage = PythonMapTransform(jittered, worker_kind="process")
    loader = DataLoader([ArraySampleSource(images()), stage, BatchTransform(5)])
    first_batches(loader, loader.init_state(0))
    assert stage.pids
    assert copy.copy(stage).pids == []
    assert copy.copy(stage) == stage


# Copies.


def test_copies_share_or_copy_the_data() -> None:
    data = images()
    scale = 3
    stages = [
        BatchTransform(5),
        MapTransform(lambda batch, mask: {**batch, "label": batch["label"] * scale}),
        DevicePutTransform(),
    ]
    source = ArraySampleSource(data, "sequential", storage_device=jax.devices()[0])
    loader = DataLoader([source, *stages], prefetch=0)
    before, _ = first_batches(loader, loader.init_state(0))
    shallow, deep = copy.copy(loader), copy.deepcopy(loader)
    data["label"][:] = -1
    same_bytes(first_batches(deep, deep.init_state(0))[0], before)
    found, _ = first_batches(shallow, shallow.init_state(0))
    assert np.asarray(found[0][0]["label"]).tolist() == [-3] * 5
    assert type(copy.copy(cyreal.DataLoader(source))) is cyreal.DataLoader


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_are_independent_loaders(copied: Callable[[Any], Any]) -> None:
    loader = DataLoader([ArraySampleSource(images()), *STAGES["processes"]])
    expected, saved = first_batches(loader, loader.init_state(7))
    again = copied(loader)
    assert again.delivered == 0
    del loader
    same_bytes(first_batches(again, again.init_state(7))[0], expected)
    assert again.save(again.restore(saved)) == saved


# What cannot be pickled.


def local_function() -> Callable[..., Any]:
    def inner(batch: Any, mask: Any) -> Any:
        return batch

    return inner


def sharding() -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices()[:1]), ("d",)), PartitionSpec("d"))


DEFINE = r" cannot be pickled\. Define it at the top level of a module\."
ELSEWHERE = r" cannot be pickled\. Build the loader in the other process, or add the"

UNPICKLABLE: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "device": (
        lambda: [NormalizeImageTransform(), BatchTransform(5), DevicePutTransform()],
        r"^stage 3, DevicePutTransform: \S+" + ELSEWHERE,
    ),
    "named device": (
        lambda: [BatchTransform(5), DevicePutTransform("cpu:0")],
        r"^stage 2, DevicePutTransform: \S+" + ELSEWHERE,
    ),
    "sharding": (
        lambda: [BatchTransform(5), DevicePutTransform(sharding())],
        r"^stage 2, DevicePutTransform: NamedSharding\(.*" + ELSEWHERE,
    ),
    "pytree of shardings": (
        lambda: [
            BatchTransform(5),
            DevicePutTransform({"image": sharding(), "label": sharding()}),
        ],
        r"^stage 2, DevicePutTransform: NamedSharding\(.*" + ELSEWHERE,
    ),
    "lambda": (
        lambda: [MapTransform(lambda batch, mask: batch), BatchTransform(5)],
        "^stage 1, MapTransform: its function <lambda>" + DEFINE,
    ),
    "local function": (
        lambda: [BatchTransform(5), HostCallbackTransform(local_function())],
        "^stage 2, HostCallbackTransform: its function inner" + DEFINE,
    ),
    "partial": (
        lambda: [PythonMapTransform(functools.partial(lambda s: s)), BatchTransform(5)],
        "^stage 1, PythonMapTransform: its function <lambda>" + DEFINE,
    ),
    "method": (
        lambda: [BatchTransform(5), MapTransform(Guarded(2.0).method)],
        "^stage 2, MapTransform: Guarded cannot be pickled: .*lock.* Build the loader",
    ),
    "jitted function": (
        lambda: [BatchTransform(5), MapTransform(jitted)],
        r"^stage 2, MapTransform: its jitted function jitted cannot be pickled\. "
        r"Pass the function without jax\.jit\.",
    ),
}


@pytest.mark.parametrize("kind", UNPICKLABLE)
@pytest.mark.parametrize("in_python", [False, True])
def test_an_error_names_the_stage(kind: str, in_python: bool) -> None:
    stages, message = UNPICKLABLE[kind]
    loader = DataLoader([ArraySampleSource(images()), *stages()])
    pickler = pickle._Pickler if in_python else pickle.Pickler  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=message) as caught:
        pickler(io.BytesIO()).dump({"loader": loader})
    assert caught.value.__cause__ is not None


def test_an_error_names_the_source() -> None:
    device = jax.devices()[0]
    arrays = ArraySampleSource({"x": np.arange(8)}, storage_device=device)
    part = DiskSampleSource(8, lambda i: {"x": np.full(2, i)})
    for source, message in (
        (part, "^the source, DiskSampleSource: its function <lambda>" + DEFINE),
        (mix([part, part]), "^the source, Mixture: its function <lambda>" + DEFINE),
        (part[2:6], "^the source, Subset: its function <lambda>" + DEFINE),
        (
            DatasetSource(Opened(8)),
            "^the source, DatasetSource: Opened cannot be pickled: .*lock.* Build",
        ),
        (arrays, "^the source, ArraySampleSource: .*Pass the name of the device"),
    ):
        loader = DataLoader([source, BatchTransform(2)])
        with pytest.raises(TypeError, match=message):
            pickle.dumps(loader)
    named = ArraySampleSource({"x": np.arange(8)}, storage_device="cpu")
    pickle.loads(pickle.dumps(DataLoader(named)))


def test_cloudpickle_sends_functions_by_value(python: Python, tmp_path: Path) -> None:
    scale = 3
    stages = [
        BatchTransform(5),
        MapTransform(lambda batch, mask: {**batch, "label": batch["label"] * scale}),
    ]
    loader = DataLoader([ArraySampleSource(images()), *stages])
    (tmp_path / "in").write_bytes(cloudpickle.dumps([loader]))
    python.run(
        """
        import pickle
        import numpy as np
        [loader] = pickle.load(open("in", "rb"))
        batch, _ = next(loader.run(seed=7))
        np.save("out.npy", batch["label"])
        """
    )
    batch, _ = next(loader.run(seed=7))
    assert np.array_equal(np.load(tmp_path / "out.npy"), batch["label"])
