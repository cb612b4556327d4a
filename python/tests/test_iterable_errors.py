"""IterableSource: bad input, errors of the iterable, threads and interrupts."""

import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import jax
import millstream as ms
import numpy as np
import pytest
from iterables import SIZE, Stateful, numbers, samples, ten

PREFETCHES = [0, 2]


def loader(make, steps=None, remainder="pad", prefetch=None, **options):
    source = ms.IterableSource(make, steps_per_epoch=steps)
    batch = ms.BatchTransform(SIZE, remainder=remainder)
    return ms.DataLoader([source, batch], prefetch=prefetch, **options)


def threads():
    return [t for t in threading.enumerate() if t.name == "millstream iterable"]


def wait_for_no_thread():
    deadline = time.monotonic() + 20
    while threads() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert threads() == []


def test_what_is_not_an_iterable():
    with pytest.raises(TypeError, match=r"the class Stateful \(did you forget"):
        ms.IterableSource(Stateful)
    with pytest.raises(TypeError, match="generator, which can be iterated only once"):
        ms.IterableSource(ten())
    with pytest.raises(TypeError, match="must be a function"):
        ms.IterableSource(3)
    with pytest.raises(TypeError, match="must be a function"):
        ms.IterableSource({"y": np.arange(3)})
    with pytest.raises(TypeError, match="parameters are"):
        ms.IterableSource(lambda path: ten())
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="steps_per_epoch"):
            ms.IterableSource(ten, steps_per_epoch=wrong)
    for made, message in (
        (3, "returned int, which cannot be iterated"),
        (Stateful, "returned the class Stateful"),
        (None, "returned NoneType"),
    ):
        with pytest.raises(TypeError, match=message):
            loader(lambda made=made: made)


def test_samples_that_jax_cannot_hold():
    with pytest.raises(TypeError, match="'text' of a sample is a str"):
        loader(lambda: iter([{"text": "hello"}]))


def test_what_needs_traced_samples_is_refused_by_name():
    made = loader(samples)
    state = made.init_state(0)
    body = lambda carry, batch, mask: (carry, None)  # noqa: E731
    for call, name in (
        (lambda: made.scan_epoch(state, 0, body), "scan_epoch"),
        (lambda: made.next_batch(state), "next_batch"),
        (lambda: jax.jit(made.next_batch)(state), "next_batch"),
    ):
        with pytest.raises(TypeError, match=rf"{name}\(\) cannot be used with Iter"):
            call()
    with pytest.raises(TypeError, match=r"which_samples.* IterableSource"):
        made.which_samples(state)
    for option, value in (("threads", 2), ("traced", True), ("on_error", "skip")):
        with pytest.raises(ValueError, match=f"{option}=.*IterableSource"):
            loader(samples, **{option: value})
    source = ms.IterableSource(samples)
    with pytest.raises(TypeError, match=r"RandomFlipTransform, .* IterableSource"):
        ms.DataLoader([source, ms.RandomFlipTransform("x")])
    with pytest.raises(TypeError, match="BufferTransform cannot follow Iterable"):
        ms.DataLoader([source, ms.BufferTransform(8, 4), ms.BatchTransform(2)])
    with pytest.raises(ValueError, match="drops every batch"):
        loader(samples, steps=3, remainder="drop")


@pytest.mark.parametrize("prefetch", PREFETCHES)
def test_an_iterable_that_ends_early(prefetch):
    run = loader(samples, steps=12, prefetch=prefetch).run(epochs=1)
    found = [next(run), next(run)]
    for _ in range(2):
        with pytest.raises(ms.DataError, match=r"ended after 10 samples.* is 12"):
            next(run)
    assert numbers(found) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (run.state.epoch, run.state.step) == (0, 2)


@pytest.mark.parametrize("prefetch", PREFETCHES)
@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
def test_an_epoch_without_a_sample(prefetch, remainder):
    once = ten()
    with pytest.raises(ms.DataError, match="epoch 0 has no samples"):
        loader(lambda: iter(()))
    spec = {
        "x": jax.ShapeDtypeStruct((3,), np.float32),
        "y": jax.ShapeDtypeStruct((), np.int32),
    }
    source = ms.IterableSource(lambda: once, spec)
    batch = ms.BatchTransform(5, remainder=remainder)
    made = ms.DataLoader([source, batch], prefetch=prefetch)
    with pytest.raises(ms.DataError, match="epoch 1 has no samples"):
        for _ in made.run():
            pass


def test_an_epoch_that_is_too_short_to_drop():
    made = loader(functools.partial(samples, count=3), remainder="drop")
    with pytest.raises(ms.DataError, match=r"drops every batch of epoch 0.* 3 samples"):
        next(made.run())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"x": np.zeros(4, np.float32), "y": 0}, r"sample 5 of epoch 0: x: .*\[4\]"),
        ({"x": np.zeros(3, np.float32), "y": 0.5}, "sample 5 of epoch 0: y: expected"),
        ({"x": np.zeros(3, np.float32)}, r"sample 5 .*expected keys \['x', 'y'\]"),
        ([1, 2], "sample 5 of epoch 0: .*found list"),
    ],
)
def test_samples_that_change(bad, message):
    def changing():
        for i, sample in enumerate(samples()):
            yield bad if i == 5 else sample

    run = loader(changing).run()
    next(run)
    with pytest.raises(ms.DataError, match=message) as caught:
        next(run)
    assert caught.value.sample == 5


class OwnError(Exception):
    pass


@pytest.mark.parametrize("prefetch", PREFETCHES)
@pytest.mark.parametrize("steps", [None, 10])
def test_errors_of_the_iterator_keep_type_and_traceback(prefetch, steps):
    def failing():
        for i, sample in enumerate(samples()):
            if i == 5:
                raise OwnError("broken")
            yield sample

    run = loader(failing, steps, prefetch=prefetch).run()
    assert numbers([next(run)]) == [[0, 1, 2, 3]]
    for _ in range(2):
        with pytest.raises(OwnError, match="broken") as caught:
            next(run)
        names = [
            frame.name for frame in traceback.extract_tb(caught.value.__traceback__)
        ]
        assert "failing" in names
    assert (run.state.epoch, run.state.step) == (0, 1)


@pytest.mark.parametrize("prefetch", PREFETCHES)
def test_stop_iteration_never_ends_a_loop_by_mistake(prefetch):
    def make(epoch):
        if epoch:
            next(iter(()))
        return samples()

    run = loader(make, prefetch=prefetch).run(epochs=2)
    for _ in range(3):
        next(run)
    with pytest.raises(RuntimeError, match="make_iterator raised StopIteration"):
        next(run)

    class Broken(Stateful):
        def state_dict(self):
            raise StopIteration

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        next(loader(lambda: Broken(), prefetch=prefetch).run())


def test_one_thread_calls_the_iterator():
    idents = set()

    def watched():
        for sample in samples():
            idents.add(threading.get_ident())
            yield sample

    made = loader(watched, prefetch=2)
    idents.clear()
    list(made.run(epochs=1))
    assert len(idents) == 1
    assert threading.get_ident() not in idents
    made = loader(watched, prefetch=0)
    idents.clear()
    list(made.run(epochs=1))
    assert idents == {threading.get_ident()}


def test_the_iterator_is_only_prefetch_batches_ahead():
    taken = []

    def watched():
        for i, sample in enumerate(samples(count=1000)):
            taken.append(i)
            yield sample

    made = loader(watched, steps=1000, prefetch=2)
    taken.clear()
    run = made.run()
    next(run)
    time.sleep(0.2)
    assert len(taken) <= 3 * SIZE


def test_no_thread_is_left_behind():
    closed = []

    def endless():
        try:
            while True:
                yield from samples()
        finally:
            closed.append(threading.current_thread().name)

    made = loader(endless)
    wait_for_no_thread()
    closed.clear()
    for _ in made.run():  # a loop that is left
        break
    wait_for_no_thread()
    assert closed == ["millstream iterable"]
    run = made.run()
    next(run)
    run.close()
    wait_for_no_thread()
    with pytest.raises(ValueError, match="closed"):
        next(run)
    list(loader(samples).run(epochs=2))  # a loop that ends
    wait_for_no_thread()
    run = made.run()
    next(run)
    del run, made  # the loader too
    wait_for_no_thread()


@pytest.mark.parametrize("prefetch", PREFETCHES)
def test_ctrl_c_keeps_the_position(prefetch):
    blocked = threading.Event()
    release = threading.Event()
    release.set()

    def slow():
        for i, sample in enumerate(samples()):
            if i == 5 and not release.is_set():
                blocked.set()
                release.wait(30)
            yield sample

    made = loader(slow, steps=10, prefetch=prefetch)
    run = made.run(epochs=1)
    found = [next(run)] if prefetch == 0 else []
    release.clear()
    if prefetch:
        run = made.run(epochs=1)
        found = [next(run)]

    def interrupt():
        blocked.wait(30)
        time.sleep(0.3)  # until the main thread waits in next()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next(run)
    thread.join()
    release.set()
    found += list(run)
    assert numbers(found) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("where", ["kept", "blocked"])
def test_the_interpreter_exits(where):
    code = f"""
import time
import numpy as np
import millstream as ms

def endless():
    i = 0
    while True:
        if {where == "blocked"} and i == 20:
            time.sleep(3600)
        yield {{"y": np.int32(i)}}
        i += 1

loader = ms.DataLoader([ms.IterableSource(endless), ms.BatchTransform(4)])
run = loader.run()
next(run)
print("done", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
