"""Iterables for the tests of IterableSource."""

import json

import numpy as np

SIZE = 4


def samples(epoch=0, count=10):
    """Yields samples that name their epoch and number."""
    for i in range(count):
        yield {"x": np.full(3, i, np.float32), "y": 100 * epoch + i}


def ten():
    return samples()


class Stateful:
    """An iterable like a Hugging Face stream: its state is a dict on the iterable."""

    def __init__(self, count=10, epoch=0):
        self.count, self.epoch, self.at, self.skipped = count, epoch, 0, 0
        self.loaded = 0

    def __iter__(self):
        self.at = self.loaded
        while self.at < self.count:
            self.at += 1
            yield {"x": np.zeros(3, np.float32), "y": 100 * self.epoch + self.at - 1}

    def state_dict(self):
        return {"at": self.at, "note": "x" * self.at}

    def load_state_dict(self, state):
        self.loaded = state["at"]


class BytesIterator:
    """An iterator like Grain's: its state is bytes on the iterator."""

    opened = 0

    def __init__(self, count=10):
        self.count, self.at = count, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.count:
            raise StopIteration
        self.at += 1
        return {"x": np.zeros(3, np.float32), "y": self.at - 1}

    def get_state(self):
        return json.dumps(self.at).encode()

    def set_state(self, state):
        assert isinstance(state, bytes)
        self.at = json.loads(state)


def numbers(batches):
    """Returns the numbers of the real samples of each batch."""
    return [np.asarray(b["y"])[np.asarray(m)].tolist() for b, m in batches]
