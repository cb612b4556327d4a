"""`BatchCache`: batches on disk that take long to make."""

from __future__ import annotations

import json
import threading

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from millstream._run import batch_cache, cache_files

SPEC = {
    "x": jax.ShapeDtypeStruct((4, 3), jnp.float32),
    "label": jax.ShapeDtypeStruct((4,), jnp.int8),
}


def batch(rows=4, start=0):
    return {
        "x": jnp.arange(start, start + rows * 3, dtype=jnp.float32).reshape(rows, 3),
        "label": np.arange(rows, dtype=np.int64),
    }


def same(cached, expected):
    assert cached.arrays.keys() == expected.keys()
    for name, array in cached.arrays.items():
        assert array.dtype == SPEC[name].dtype
        np.testing.assert_array_equal(array, expected[name])


def test_batches_come_back_with_their_extra_value(tmp_path):
    folder = tmp_path / "deep" / "cache"
    with ms.BatchCache(folder, SPEC, {"seed": 3}) as cache:
        assert cache.get("first") is None
        assert "first" not in cache
        cache.put("first", batch(), {"names": ["a", "b", "c", "d"]})
        cache.put("last", batch(2, start=7))
    assert sorted(path.name for path in folder.iterdir()) == [
        "cache.json",
        "first.dat",
        "last.dat",
    ]
    with ms.BatchCache(folder, SPEC, {"seed": 3}, readonly=True) as cache:
        assert "first" in cache
        same(cache.get("first"), batch())
        assert cache.get("first").extra == {"names": ["a", "b", "c", "d"]}
        same(cache.get("last"), batch(2, start=7))  # it has fewer samples
        same(cache.read_ahead("last").wait(), batch(2, start=7))
        for array in cache.get("last").arrays.values():
            assert jax.device_put(array).unsafe_buffer_pointer() == array.ctypes.data


def test_the_outputs_of_a_loader_are_cached_for_a_second_run(tmp_path):
    source = ms.ArraySampleSource({"x": np.arange(10.0)}, ordering="sequential")
    loader = ms.DataLoader([source, ms.BatchTransform(4, remainder="partial")])
    spec = {"x": loader.element_spec()["x"]}
    made = []

    def epoch():
        with ms.BatchCache(tmp_path, spec) as cache:
            for step, (values, _) in enumerate(loader.run(epochs=1)):
                cached = cache.get(f"{step}")
                if cached is None:
                    made.append(step)
                    cache.put(f"{step}", values)
                else:
                    np.testing.assert_array_equal(cached.arrays["x"], values["x"])

    epoch()
    epoch()
    assert made == [0, 1, 2]


@pytest.mark.parametrize(
    ("spec", "description", "text"),
    [
        (SPEC, {"seed": 4}, "seed is 3 in the cache and 4 now"),
        (SPEC, {"seed": 3, "model": "b"}, "model is None in the cache and 'b' now"),
        (SPEC, {}, "seed is 3 in the cache and None now"),
        ({"x": SPEC["x"]}, {"seed": 3}, "array_layouts is"),
    ],
)
def test_a_folder_of_other_batches_is_refused(tmp_path, spec, description, text):
    ms.BatchCache(tmp_path, SPEC, {"seed": 3, "shape": (1, 2)}).close()
    ms.BatchCache(tmp_path, SPEC, {"seed": 3, "shape": (1, 2)}).close()
    with pytest.raises(RuntimeError, match="does not match configuration") as caught:
        ms.BatchCache(tmp_path, spec, {**description, "shape": (1, 2)})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": batch()["x"]}, r"expected the arrays \['label', 'x'\], found \['x'\]"),
        (batch() | {"x": jnp.zeros((4, 2))}, r"'x': expected shape \(4, 3\)"),
        (batch() | {"x": jnp.zeros((2, 3))}, "as many as in the other arrays"),
        (batch(5), r"found \(5, 3\)"),
        (batch() | {"label": np.int8(3)}, "'label'|'x'"),
    ],
)
def test_arrays_that_do_not_match_are_refused(tmp_path, arrays, text):
    with (
        ms.BatchCache(tmp_path, SPEC) as cache,
        pytest.raises(ValueError, match=text),
    ):
        cache.put("x", arrays)


@pytest.mark.parametrize("spec", [{}, {"x": jax.ShapeDtypeStruct((), jnp.float32)}])
def test_a_spec_needs_arrays_with_samples(tmp_path, spec):
    with pytest.raises(ValueError, match="at least one"):
        ms.BatchCache(tmp_path, spec)


@pytest.mark.parametrize("argument", ["threads", "pending"])
def test_numbers_are_checked(tmp_path, argument):
    with pytest.raises(ValueError, match=f"{argument} must be"):
        ms.BatchCache(tmp_path, SPEC, **{argument: 0})


@pytest.mark.parametrize("name", ["", "a/b", "../a", "/a"])
def test_names_have_no_folder(tmp_path, name):
    with ms.BatchCache(tmp_path, SPEC) as cache:
        for act in (cache.get, cache.read_ahead, lambda name: cache.put(name, batch())):
            with pytest.raises(ValueError, match="without a folder"):
                act(name)


def test_a_closed_or_read_only_cache_is_not_written(tmp_path):
    cache = ms.BatchCache(tmp_path, SPEC)
    cache.close()
    with pytest.raises(RuntimeError, match="is closed"):
        cache.put("x", batch())
    cache = ms.BatchCache(tmp_path, SPEC, readonly=True)
    with pytest.raises(RuntimeError, match="is read-only"):
        cache.put("x", batch())
    with pytest.raises(FileNotFoundError, match=r"cache\.json"):
        ms.BatchCache(tmp_path / "none", SPEC, readonly=True)


def test_a_damaged_file_warns_and_is_made_again(tmp_path):
    with ms.BatchCache(tmp_path, SPEC) as cache:
        cache.put("x", batch())
    path = tmp_path / "x.dat"
    path.write_bytes(path.read_bytes()[:-5])
    with ms.BatchCache(tmp_path, SPEC) as cache:
        with pytest.warns(RuntimeWarning, match=r"x\.dat.*"):
            assert cache.get("x") is None
        with pytest.raises(ms.DataError, match=r"x\.dat"):
            cache.read_ahead("x").wait()
        with pytest.raises(FileNotFoundError, match="not in the cache"):
            cache.read_ahead("none").wait()
        cache.put("x", batch(start=1))
    with ms.BatchCache(tmp_path, SPEC) as cache:
        same(cache.get("x"), batch(start=1))


def test_put_waits_while_many_batches_are_being_written(tmp_path, monkeypatch):
    started, go_on = threading.Event(), threading.Event()
    write = batch_cache.write_batch

    def slow(*arguments):
        started.set()
        assert go_on.wait(60)
        write(*arguments)

    monkeypatch.setattr(batch_cache, "write_batch", slow)
    with ms.BatchCache(tmp_path, SPEC, pending=1) as cache:
        cache.put("a", batch())
        assert started.wait(60)
        cache.put("a", batch())  # it is being written
        waiting = threading.Thread(target=cache.put, args=("b", batch()))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        go_on.set()
        waiting.join(60)
        assert not waiting.is_alive()
    assert {"a.dat", "b.dat"} < {path.name for path in tmp_path.iterdir()}


def test_an_exception_abandons_what_is_not_written(tmp_path, monkeypatch):
    go_on = threading.Event()
    pieces = cache_files._pieces

    def blocked(*arguments):
        assert go_on.wait(60)
        return pieces(*arguments)

    monkeypatch.setattr(cache_files, "_pieces", blocked)

    def fail():
        with ms.BatchCache(tmp_path, SPEC) as cache:
            cache.put("x", batch())
            threading.Timer(0.2, go_on.set).start()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["cache.json"]
    assert not [t for t in threading.enumerate() if "millstream-cache" in t.name]


def test_the_descriptor_is_plain_json(tmp_path):
    ms.BatchCache(tmp_path, SPEC, {"seed": 3}).close()
    told = json.loads((tmp_path / "cache.json").read_text())
    assert told["seed"] == 3
    assert told["array_names"] == ["x", "label"]
    assert told["array_layouts"][1] == {"offset": 64, "dtype": "int8", "count": 4}
