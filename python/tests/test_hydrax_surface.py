"""The public names, signatures and words of Hydrax 0.2.2."""

from __future__ import annotations

import importlib
import inspect
import typing
import warnings

import hydrax_loaders as loaders
import jax.numpy as jnp
import numpy as np
import pytest
from hydrax_loaders import ARRAYS, fill, group
from millstream import hydrax
from millstream.hydrax import DataGroup, Dataloader, image, tqdm
from millstream.hydrax.pandas import RowData
from PIL import ImageCms

REQUIRED = inspect.Parameter.empty

GROUP = {
    "batch_size": REQUIRED,
    "data": REQUIRED,
    "loader_arrays": None,
    "cache_arrays": None,
    "cache_location": None,
    "cache_readonly": False,
    "seed": 0,
    "shuffle_first": False,
    "shuffle_later": "default",
}
LOADER = {
    "loader_func": REQUIRED,
    "training": REQUIRED,
    "validation": None,
    "depth": 3,
    "loader_count": 1,
    "loader_nice": 0,
    "cacher_count": 1,
    "start_at": (0, 0),
    "end_at": None,
    "interleave_groups": True,
    "deterministic": True,
    "timeout_sec": 60,
    "startup_func": None,
    "placement_func": None,
}
MONITOR = {"dataloader": REQUIRED, "report_interval": 0, "description": "train"}
IMAGE = {"image": REQUIRED}
SCALED = {"image": REQUIRED, "scale": 1.0}
WRITE = {"image": REQUIRED, "array": REQUIRED, "coefs": None}
SIGNATURES = {
    DataGroup: GROUP,
    Dataloader: LOADER,
    hydrax.Batch.get_additional: {
        "self": REQUIRED,
        "key": REQUIRED,
        "index": None,
        "default": None,
    },
    hydrax.Batch.cache: {
        "self": REQUIRED,
        "arrays": REQUIRED,
        "additional": None,
        "persist": True,
    },
    hydrax.Batch.get_array: {"self": REQUIRED, "name": REQUIRED},
    hydrax.Batch.get_data: {"self": REQUIRED, "index": REQUIRED},
    hydrax.is_worker: {},
    hydrax.debug_batch_references: {},
    tqdm.tbatches: MONITOR,
    tqdm.ProgressMonitor: MONITOR,
    tqdm.ProgressMonitor.begin_batch: {"self": REQUIRED, "batch": REQUIRED},
    tqdm.ProgressMonitor.end_batch: {"self": REQUIRED, "batch": REQUIRED},
    tqdm.ProgressMonitor.close: {"self": REQUIRED},
    image.open_srgb: {
        "fp": REQUIRED,
        "mode": "RGB",
        "convert": image.CONVERT_RELATIVE,
        "formats": None,
    },
    image.set_max_image_pixels: {"threshold": REQUIRED},
    image.Coefs: {"coefs": REQUIRED},
    image.Coefs.balanced: {"scale": 1.0, "alpha": False},
    image.write_hwc: WRITE,
    image.write_chw: WRITE,
    image.from_srgb_hwc: {
        "image": REQUIRED,
        "coefs": REQUIRED,
        "mode": None,
        "copy": False,
    },
    image.convert_srgb_to_oklab_frac_hwc: IMAGE,
    image.convert_srgb_to_oklab_frac_chw: IMAGE,
    image.convert_oklab_to_srgb_frac_hwc: IMAGE,
    image.convert_oklab_to_srgb_frac_chw: IMAGE,
    image.convert_frac_to_balanced_hwc: SCALED,
    image.convert_frac_to_balanced_chw: SCALED,
    image.convert_balanced_to_frac_hwc: SCALED,
    image.convert_balanced_to_frac_chw: SCALED,
    RowData: {"dataframe": REQUIRED},
}
# What Millstream adds.
ADDED = {"drop_last": True, "on_error": "drop"}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__qualname__)
def test_arguments_have_the_names_and_defaults_of_hydrax(function):
    found = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    added = {name: ADDED[name] for name in found.keys() & ADDED.keys()}
    assert found == SIGNATURES[function] | added
    assert list(found)[: len(SIGNATURES[function])] == list(SIGNATURES[function])


@pytest.mark.parametrize("name", ["tqdm", "image", "pandas"])
def test_module_paths(name):
    module = importlib.import_module(f"millstream.hydrax.{name}")
    assert all(hasattr(module, public) for public in module.__all__)


def test_names_of_the_package():
    assert {
        *("ArrayLayout", "ArraySpec", "Batch", "BatchTimeoutError", "DataGroup"),
        *("Dataloader", "LoaderFunc", "PlacementFunc", "StartupFunc", "TrainingBatch"),
        *("ValidationBatch", "debug_batch_references", "is_worker"),
    } == set(hydrax.__all__)
    assert issubclass(hydrax.BatchTimeoutError, TimeoutError)
    for name in ("LoaderFunc", "PlacementFunc", "StartupFunc"):
        assert typing.get_origin(getattr(hydrax, name)) is not None
    assert len(typing.get_args(hydrax.ArraySpec)) == 3
    assert len(typing.get_args(hydrax.ArrayLayout)) == 5


def test_constants_of_image():
    assert image.CONVERT_PERCEPTUAL == (ImageCms.Intent.PERCEPTUAL, 0x0400)
    assert image.CONVERT_RELATIVE == (ImageCms.Intent.RELATIVE_COLORIMETRIC, 0x2400)
    np.testing.assert_allclose(image.Coefs.FRACTIONAL["float64"], [[255], [0]])
    standardised = image.Coefs.IMAGENET_SRGB["float64"]
    np.testing.assert_allclose(standardised[0], [58.395, 57.12, 57.375])
    np.testing.assert_allclose(
        standardised[0] * standardised[1], [123.675, 116.28, 103.53]
    )
    alpha = image.Coefs.IMAGENET_SRGB_ALPHA["float64"]
    np.testing.assert_allclose(alpha[:, :3], standardised)
    assert alpha[:, 3].tolist() == [255, 0]
    assert image.Coefs.balanced(2.0)["float32"].tolist() == [[63.75] * 3, [2] * 3]
    assert image.Coefs.balanced(alpha=True)["float32"][:, 3].tolist() == [255, 0]


@pytest.fixture(scope="module")
def batches():
    valid = group(4, 2)
    loader = Dataloader(
        loaders.tell_about_the_arrays,
        group(8, 4, seed=5),
        validation=("epoch", 1, [valid]),
        end_at=("epoch", 1),
        loader_count=3,
        depth=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # more loaders than depth are allowed
        with loader:
            found = list(loader)
            assert len(loader._run.loaders.pids) == 3
    return found


def test_what_the_loader_function_gets(batches):
    training, validation = batches[0], batches[2]
    assert set(training.additional["type"]) == {"mappingproxy"}
    shapes = {name: shape for name, (shape, _, _) in ARRAYS.items()}
    assert training.additional["shapes"] == [shapes] * 4
    assert training.additional["dtypes"][0]["odd"] == "uint8"
    assert "does not support item assignment" in training.additional["refused"][0]
    assert training.additional["seed"] == ["int"] * 4
    assert validation.additional["seed"] == [None] * 2


def test_attributes_of_batches_cannot_be_assigned(batches):
    common = "arrays", "additional", "data", "indices", "group", "group_index"
    common += "layouts", "uncached", "is_training", "is_validation"
    training = "epoch", "epoch_batch", "batch_num", "seed", "seeds"
    validation = (
        *("validation_epoch", "validation_epoch_batch"),
        "validation_batch_num",
    )
    for batch, names in ((batches[0], training), (batches[-1], validation)):
        for name in (*common, *names):
            getattr(batch, name)
            with pytest.raises(AttributeError):
                setattr(batch, name, None)
    assert (len(batches[0]), len(batches[0].seeds)) == (4, 4)
    assert not hasattr(batches[0], "validation_epoch")
    assert not hasattr(batches[-1], "seed")


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_count", "loader_layouts", "loader_size"]
)
def test_attributes_of_groups_cannot_be_assigned(name):
    with pytest.raises(AttributeError):
        setattr(group(), name, None)


def test_attributes_of_loaders_cannot_be_assigned():
    loader = Dataloader(fill, group())
    for name in (
        *("batches_per_epoch", "batches_per_validation", "first_batch"),
        *("last_batch", "deterministic", "interrupted"),
    ):
        getattr(loader, name)
        with pytest.raises(AttributeError):
            setattr(loader, name, None)


def test_all_loaders_load_the_items_of_one_batch(tmp_path):
    data = DataGroup(3, [(str(tmp_path), i) for i in range(3)], loader_arrays=ARRAYS)
    loader = Dataloader(
        loaders.wait_for_another_process,
        data,
        end_at=("batch", 1),
        loader_count=3,
        depth=1,
    )
    with loader:
        next(loader)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_group_without_loader_arrays_is_read_only(tmp_path):
    with pytest.raises(FileNotFoundError):
        Dataloader(
            None, DataGroup(2, [1, 2], cache_arrays=ARRAYS, cache_location=tmp_path)
        )
    assert list(tmp_path.iterdir()) == []


def a_batch(folder):
    data = group(cache_arrays={"x": ((), "f4", "f4")}, cache_location=folder)
    with Dataloader(fill, data, end_at=("batch", 1)) as loader:
        return next(loader)


def entered(loader):
    with loader:
        loader.__enter__()


ZEROS = jnp.zeros(4)
WORDS = {
    "int is not a sequence or iterable": lambda _: DataGroup(
        1, 3, loader_arrays=ARRAYS
    ),
    "batch size must be at least 1": lambda _: group(4, 0),
    "either loader_arrays or cache_arrays must be specified": lambda _: DataGroup(
        1, [1]
    ),
    "cache_location is required": lambda _: group(cache_arrays=ARRAYS),
    "invalid shape for array 'x'": lambda _: DataGroup(
        1, [1], loader_arrays={"x": ((-1,), "f4", "f4")}
    ),
    "shuffle_later must be 'default', 'repeat', 'reseed', 'itemwise', or 'batchwise'": (
        lambda _: group(shuffle_later="x")
    ),
    "data of type list is not in a hydrax.DataGroup": lambda _: Dataloader(
        fill, [[1, 2]]
    ),
    "validation mode must be 'epoch' or 'batch'": lambda _: Dataloader(
        fill, group(), validation=("x", 1, group())
    ),
    "end_at endpoint must be 'never', 'epoch', or 'batch'": lambda _: Dataloader(
        fill, group(), end_at=("x", 1)
    ),
    "start_at must not be negative": lambda _: Dataloader(
        fill, group(), start_at=(0, -1)
    ),
    "loaders are required, cannot provision none": lambda _: Dataloader(
        fill, group(), loader_count=0
    ),
    "cachers are required, cannot provision none": lambda path: Dataloader(
        fill, group(cache_location=path), cacher_count=0
    ),
    "dataloader is already set up": lambda _: entered(Dataloader(fill, group())),
    "dataloader is not running": lambda _: next(Dataloader(fill, group())),
    "dataloader is not set up": lambda _: Dataloader(fill, group()).interrupt(),
    "dataloader is not deterministic": lambda _: tqdm.ProgressMonitor(
        Dataloader(fill, group(), deterministic=False)
    ),
    "cache layouts undefined": lambda _: next_batch(group()).cache({}),
    "arrays has non-dict type list": lambda path: a_batch(path).cache([]),
    "array 'y' has unexpected name": lambda path: a_batch(path).cache(
        {"x": ZEROS, "y": ZEROS}
    ),
    "array 'x' was not provided": lambda path: a_batch(path).cache({}),
    "array 'x' of type ndarray is not a JAX array": lambda path: a_batch(path).cache(
        {"x": np.zeros(4)}
    ),
    "array 'x' has shape (3,), not (4,)": lambda path: a_batch(path).cache(
        {"x": ZEROS[:3]}
    ),
    "array 'x' has dtype int32, not float32": lambda path: a_batch(path).cache(
        {"x": ZEROS.astype(int)}
    ),
    "additional data has non-dict type list": lambda path: a_batch(path).cache(
        {"x": ZEROS}, []
    ),
    "additional data 'k' of type tuple is not a list": lambda path: a_batch(path).cache(
        {"x": ZEROS}, {"k": ()}
    ),
    "additional data 'k' has length 0, expected 4": lambda path: a_batch(path).cache(
        {"x": ZEROS}, {"k": []}
    ),
    "index 9 is invalid for batch size 4": lambda path: a_batch(path).get_additional(
        "k", 9
    ),
}


def next_batch(data):
    with Dataloader(fill, data, end_at=("batch", 1)) as loader:
        return next(loader)


@pytest.mark.parametrize("words", WORDS)
def test_errors_contain_the_words_of_hydrax(words, tmp_path):
    with pytest.raises((TypeError, ValueError, RuntimeError, IndexError)) as caught:
        WORDS[words](tmp_path)
    assert words in str(caught.value)
