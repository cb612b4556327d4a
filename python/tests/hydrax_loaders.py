"""Loader functions that worker processes import, and what tests need around them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from millstream.hydrax import DataGroup

ARRAYS = {
    "value": ((3,), np.float32, np.float32),
    "seed": ((), np.int32, np.int32),
    "odd": ((5,), np.uint8, np.uint8),
}
KEPT = []


def group(items=16, batch_size=4, *, start=0, **more):
    """Whole numbers from ``start`` on, for arrays that `fill` writes."""
    data = list(range(start, start + items))
    return DataGroup(batch_size, data, loader_arrays=ARRAYS, **more)


def gathered(loader):
    """What each batch of a run has: its type's initial, its values and its seeds."""
    found = []
    with loader:
        for batch in loader:
            values = np.asarray(batch.arrays["value"])
            assert (values == values[:, :1]).all()
            assert (np.asarray(batch.arrays["odd"]) == values[:, :1] % 256).all()
            seeds = np.asarray(batch.arrays["seed"]).tolist()
            found.append((type(batch).__name__[0], values[:, 0].tolist(), seeds))
            del batch
    return found


class Unsendable(Exception):
    """An exception that cannot be unpickled: it needs two arguments."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class InFile(Sequence):
    """The bytes of an open file, which cannot be pickled."""

    def __init__(self, file):
        self._file = file

    def __len__(self):
        return os.fstat(self._file.fileno()).st_size

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(index)
        self._file.seek(index)
        return self._file.read(1)[0]


def fill(data, arrays, seed):
    arrays["value"][...] = data
    arrays["seed"][...] = -1 if seed is None else seed
    arrays["odd"][...] = data % 256


def fill_value(data, arrays, seed):
    arrays["value"][...] = data


def fill_two(data, arrays, seed):
    arrays["a"][...] = data
    arrays["b"][...] = -data


def fill_one(data, arrays, seed):
    arrays["value"][data % 3] = data + 1


def return_a_lock_at_five(data, arrays, seed):
    fill(data, arrays, seed)
    return {"lock": threading.Lock() if data == 5 else None}


def fill_with_extras(data, arrays, seed):
    fill(data, arrays, seed)
    extras = {"name": f"item {data}"}
    if data % 2:
        extras["odd"] = data
    return extras


def fail_at_five(data, arrays, seed):
    if data == 5:
        raise KeyError("number five")
    fill(data, arrays, seed)


def fail_always(data, arrays, seed):
    raise Unsendable("one", "two")


def return_a_list(data, arrays, seed):
    fill(data, arrays, seed)
    return [data]


def return_an_array(data, arrays, seed):
    fill(data, arrays, seed)
    return {"array": np.zeros(2)}


def keep_the_array(data, arrays, seed):
    fill(data, arrays, seed)
    KEPT.append(arrays["value"][:1])


def first_is_slow(data, arrays, seed):
    """Item 0 takes until another has been made; it never is with one worker."""
    if data == 0:
        time.sleep(1.0)
    fill(data, arrays, seed)


def stall(data, arrays, seed):
    if data >= 4:
        time.sleep(3600)
    fill(data, arrays, seed)


def slow(data, arrays, seed):
    time.sleep(0.05)
    fill(data, arrays, seed)


def slow_from_forty(data, arrays, seed):
    if data >= 40:
        time.sleep(0.08)
    fill(data, arrays, seed)


def die_at_five(data, arrays, seed):
    if data == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    fill(data, arrays, seed)


def exit_at_five(data, arrays, seed):
    if data == 5:
        os._exit(7)
    fill(data, arrays, seed)


def tell_about_the_process(data, arrays, seed):
    from millstream.hydrax import Dataloader, is_worker

    fill(data, arrays, seed)
    try:
        Dataloader(fill, DataGroup(1, [0], loader_arrays=ARRAYS))
    except RuntimeError as error:
        refused = str(error)
    return {
        "pid": os.getpid(),
        "worker": is_worker(),
        "jax": "jax" in sys.modules,
        "refused": refused,
        "nice": os.nice(0),
        "started": os.environ.get("HYDRAX_TEST_STARTED"),
    }


def start():
    os.environ["HYDRAX_TEST_STARTED"] = "yes"


def fail_to_start():
    raise LookupError("no such device")


def fill_label(row, arrays, seed):
    arrays["x"][...] = row.label
    return {"path": row["path"]}


def stop(*_):
    raise StopIteration("of the function")


def stop_at_five(data, arrays, seed):
    fill(data, arrays, seed)
    if data == 5:
        stop()


class Fault:
    """Does what its name says: "die", "hang" or "interrupt"."""

    def __init__(self, kind):
        self.kind = kind

    def happen(self):
        if self.kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "hang":
            time.sleep(3600)
        else:
            raise KeyboardInterrupt("of the worker")

    def __reduce__(self):
        self.happen()
        return Fault, (self.kind,)


class FaultAtStartup(Fault):
    """A startup function."""

    def __reduce__(self):
        return FaultAtStartup, (self.kind,)

    def __call__(self):
        self.happen()


class FaultWhileLoading(FaultAtStartup):
    """A loader function with a fault for item 5."""

    def __reduce__(self):
        return FaultWhileLoading, (self.kind,)

    def __call__(self, data, arrays, seed):
        if data == 5:
            self.happen()
        fill(data, arrays, seed)


class FaultWhileReturning(FaultWhileLoading):
    """A loader function that returns a value that is faulty when it is pickled."""

    def __reduce__(self):
        return FaultWhileReturning, (self.kind,)

    def __call__(self, data, arrays, seed):
        fill(data, arrays, seed)
        return {"fault": Fault(self.kind)} if data == 5 else None


def tell_about_the_arrays(data, arrays, seed):
    fill(data, arrays, seed)
    try:
        arrays["value"] = np.zeros(3)
    except TypeError as error:
        refused = str(error)
    return {
        "type": type(arrays).__name__,
        "shapes": {name: array.shape for name, array in arrays.items()},
        "dtypes": {name: str(array.dtype) for name, array in arrays.items()},
        "refused": refused,
        "seed": None if seed is None else type(seed).__name__,
        "pid": os.getpid(),
    }


def wait_for_another_process(data, arrays, seed):
    """Ends only if three processes load the items of a batch at the same time."""
    folder = Path(data[0])
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 3:
        time.sleep(0.01)
