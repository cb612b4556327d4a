"""Millstream's engine."""

from collections.abc import Callable, Mapping, Sequence
import os
from typing import Annotated

import numpy
import numpy.typing
from numpy.typing import NDArray


class Order:
    """Which sample comes when."""

    @property
    def length(self) -> int: ...

    @property
    def samples(self) -> int: ...

    def sample_at(self, key: tuple[int, int], epoch: int, position: int) -> int:
        """
        The sample at one position of an epoch; `key` is its (high, low) words.
        """

def sequential(n: int) -> Order:
    """0, 1, 2, ... in every epoch."""

def shuffle(n: int) -> Order:
    """Every sample once an epoch, in an order of the epoch's own."""

def windowed_shuffle(n: int, block_size: int, window: int) -> Order:
    """
    Every sample once an epoch: blocks permuted, and samples within windows.
    """

def replacement(n: int, length: int) -> Order:
    """`length` draws an epoch, each of any sample."""

def weighted(weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], length: int) -> Order:
    """`length` draws an epoch, each sample as often as its weight says."""

def weighted_table(order: Order) -> tuple:
    """The thresholds and the alternatives of a weighted order's columns."""

def listed(inner: Order, list: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], n: int) -> Order:
    """Listed samples, in the order in which `inner` visits the list."""

def mixture(components: Sequence[tuple[Order, int]], length: int) -> Order:
    """Several orders in turn, each (order, weight) as often as it weighs."""

def mixture_nodes(order: Order) -> list:
    """Left weight, weight, left and right of each node of a mixture's tree."""

def parted(inner: Order, n: int, first: int, length: int, gap: tuple[int, int], seed: tuple[int, int] | None) -> Order:
    """One part of a split or a fold."""

class Source:
    """Where samples live."""

    def __len__(self) -> int: ...

    @property
    def schema(self) -> list:
        """(name, dtype, shape) of each field of a sample."""

    @property
    def resident(self) -> bool: ...

    def read(self, indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> list:
        """The bytes of each field of these samples."""

def arrays(specs: Sequence[tuple[str, str, Sequence[int], int, int, object, tuple[str | os.PathLike, int, int, int] | None]], narrow: bool) -> Source:
    """
    Arrays in memory, read where they are.

    Args:
      specs: A (name, dtype, shape, address, row stride, owner, map) for each array; where
        it lies in a mapped file map is (path, address, bytes, offset), else None.
      narrow: Whether 64-bit integers will be given as 32-bit ones; those that do not fit
        are an error here.
    """

def concatenated(sources: Sequence[Source]) -> Source:
    """The samples of several sources, one source after the other."""

def sliced(source: Source, start: int, size: int, step: int) -> Source:
    """`size` samples of a source from `start`, every `step`th."""

def subset(source: Source, indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Source:
    """The samples of a source that a list names, in its order."""

def zipped(sources: Sequence[Source]) -> Source:
    """Samples with the fields of several sources side by side."""

def recast(source: Source, fields: Sequence[tuple[str, str, Sequence[int], bool]], order: Sequence[int] | None = None) -> Source:
    """
    The same samples with other fields.

    Args:
      source: The source.
      fields: A (name, dtype, shape, transposed) for each field.
      order: Which of the source's fields each of them is; None for the same order.
    """

def npy(fields: Sequence[tuple[str, Sequence[str | os.PathLike]]]) -> Source:
    """
    Arrays in .npy files, mapped where they are.

    Args:
      fields: A (name, paths) for each array: its files, or folders of them.
    """

def npz(path: str | os.PathLike, names: Sequence[str], cache: str | os.PathLike) -> Source:
    """The arrays of an .npz file: those named, or all of them."""

def idx(fields: Sequence[tuple[str, Sequence[str | os.PathLike]]], cache: str | os.PathLike) -> Source:
    """Arrays in IDX files; gzipped ones are unpacked once into `cache`."""

def cifar(path: str | os.PathLike, classes: int, split: str, cache: str | os.PathLike) -> Source:
    """A split of CIFAR-10 or CIFAR-100 in a folder or an archive."""

def cifar_batches(paths: Sequence[str | os.PathLike], classes: int) -> Source:
    """Batches of CIFAR-10 or CIFAR-100, one after the other."""

def packed(path: str | os.PathLike, schema: Sequence[tuple[str, str, Sequence[int]]] | None, offset: int) -> Source:
    """
    Records of one size, back to back.

    Args:
      path: The file.
      schema: A (name, dtype, shape) for each field, or None: the file describes itself.
      offset: Of the first record, where there is a schema.
    """

def csv(path: str | os.PathLike, delimiter: str, header: bool, columns: Sequence[str], narrow: bool) -> Source:
    """
    The lines of a table of numbers, parsed once.

    Args:
      path: The file.
      delimiter: Between cells.
      header: Whether the first line names the columns.
      columns: Those to take, or none for all.
      narrow: Whether integers will be given as 32-bit ones; those that do not fit are an
        error here.
    """

def write_npy(source: Source, paths: Sequence[str | os.PathLike], progress: Callable[[int], None] | None = None) -> None:
    """An .npy file for each field."""

def write_idx(source: Source, paths: Sequence[str | os.PathLike], progress: Callable[[int], None] | None = None) -> None:
    """A raw IDX file for each field."""

def write_packed(source: Source, path: str | os.PathLike, progress: Callable[[int], None] | None = None) -> None:
    """One file of packed records that describes itself."""

def write_csv(source: Source, path: str | os.PathLike, delimiter: str = ',', progress: Callable[[int], None] | None = None) -> None:
    """A table with a header."""

class Transform:
    """A pure function from a sample to a sample."""

    def __str__(self) -> str: ...

def normalize(field: str, dtype: str, scale: float = 1.0, offset: float = 0.0) -> Transform:
    """A field as another dtype, times `scale`, plus `offset`."""

def flatten(field: str, first_axis: int = 0) -> Transform:
    """Joins the axes of a field into one."""

def rename(names: Mapping[str, str]) -> Transform:
    """Gives fields other names."""

class Plan:
    """A pipeline, assembled and validated."""

    @property
    def schema(self) -> list:
        """(name, dtype, shape) of each field of a row."""

    @property
    def steps(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def resident(self) -> bool:
        """Whether making a batch costs no more than a copy."""

    @property
    def waits(self) -> bool:
        """Whether making a batch is waiting for workers."""

    @property
    def digest(self) -> int: ...

    @property
    def source_schema(self) -> list:
        """(name, dtype, shape) of each field of a sample."""

    @property
    def order_digest(self) -> int:
        """A fingerprint of all that decides which sample comes when."""

    @property
    def epoch_length(self) -> int:
        """How many samples an epoch visits."""

    @property
    def check_word(self) -> int: ...

    def indices(self, state: numpy.typing.NDArray[numpy.uint32]) -> object:
        """The samples of that batch; -1 in padding."""

    def next_state(self, state: NDArray[numpy.uint32]) -> NDArray[numpy.uint32]:
        """That of the batch after it."""

    def valid_rows(self, state: numpy.typing.NDArray[numpy.uint32]) -> int:
        """How many rows of that batch hold samples."""

def plan(source: Source, order: Order, batch_size: int, remainder: str, before: Sequence[Transform], after: Sequence[Transform], skip: bool = False) -> Plan:
    """Assembles and validates a pipeline."""

class Loader:
    """A plan at work."""

    @property
    def serial(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def prefetch(self) -> int: ...

    @property
    def batch_bytes(self) -> int: ...

    @property
    def live(self) -> int:
        """Batches given by `take` that someone still holds."""

    @property
    def delivered(self) -> int:
        """Batches handed out so far."""

    @property
    def bytes_read(self) -> int:
        """Bytes of samples asked of the source so far."""

    @property
    def last_error(self) -> object:
        """What last failed inside of jit, or None."""

    def forget_error(self) -> None:
        """Sets `last_error` to None."""

    def take(self, state: numpy.typing.NDArray[numpy.uint32]) -> list:
        """
        The rows of each field, and the mask, made ahead where possible; part after part where there are several.
        """

    def await_batch(self, state: numpy.typing.NDArray[numpy.uint32]) -> None:
        """Returns when that batch has been made, where batches are made ahead."""

    def take_with_beside(self, state: numpy.typing.NDArray[numpy.uint32]) -> tuple:
        """The same, and the parts of what travels beside the batch."""

    @property
    def skipped(self) -> dict[int, str]:
        """The samples that batches handed out so far have left out, and why."""

    def take_if_ready(self, state: numpy.typing.NDArray[numpy.uint32]) -> object:
        """The same if it is made already, else None."""

    def abandon(self, state: numpy.typing.NDArray[numpy.uint32]) -> None:
        """Nobody goes on there: what was made ahead may be dropped."""

    def take_shard(self, state: numpy.typing.NDArray[numpy.uint32], first: int, count: int) -> list:
        """Those rows, from one batch for all shards that ask."""

    def batch(self, state: numpy.typing.NDArray[numpy.uint32]) -> list:
        """The same from one thread, with no cache."""

def loader(plan: Plan, dtypes: Sequence[str], threads: int, prefetch: int, budget: int = -1, parts: Sequence[tuple[int, int]] = [], shards: int = 1) -> Loader:
    """
    Puts a plan to work; `dtypes` are those of its batches, `parts` the (first, count) of the rows to make, all of them if there are none.
    """

class Maker:
    """Threads or processes that make samples."""

    @property
    def workers(self) -> int: ...

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""

    @property
    def running(self) -> int:
        """The threads that have not ended."""

    def close(self) -> None:
        """Ends them."""

def thread_crew(function: Callable, whereabouts: Callable, workers: int, timeout: int) -> Maker:
    """
    Threads that call a function for parts of batches.

    Args:
      function: Called with (indices, seeds, inputs, outputs, row); returns what travels
        beside the rows, a value a row, or None.
      whereabouts: Called with a thread's id; returns where it is, for people to read.
      workers: How many threads.
      timeout: Milliseconds that a row may take; 0 for any time.
    """

def process_crew(command: Sequence[str], environment: Sequence[str], setup: bytes, workers: int, timeout: int, restarts: int) -> Maker:
    """
    Processes that make rows in memory that is shared with them.

    Args:
      command: What to run; it uses `Worker`.
      environment: Its environment, "NAME=value".
      setup: What each of them is told first.
      workers: How many processes.
      timeout: Milliseconds that a row may take; 0 for any time.
      restarts: How many may be replaced, their rows tried again.
    """

def made_source(size: int, fields: Sequence[tuple[str, str, Sequence[int]]], maker: Maker) -> Source:
    """Samples that a maker makes."""

def made_transform(name: str, inputs: Sequence[tuple[str, str, Sequence[int]]], fields: Sequence[tuple[str, str, Sequence[int]]], maker: Maker) -> Transform:
    """Samples that a maker makes of samples."""

class Ticket:
    """A batch that was begun."""

    @property
    def done(self) -> bool: ...

    def wait(self, seconds: float) -> object:
        """(the rows of each field, and the mask; parts beside), or None."""

class Workshop:
    """Batches of samples named one by one."""

    def begin(self, indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], seeds: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> Ticket:
        """Queues a batch."""

    @property
    def live(self) -> int:
        """Batches that someone still holds."""

    def close(self) -> None:
        """Ends the maker."""

def workshop(maker: Maker, fields: Sequence[tuple[str, str, Sequence[int]]], rows: int, at_once: int) -> Workshop:
    """Batches of samples named one by one, made by a maker."""

class Worker:
    """The inside of a worker process."""

    def __init__(self, parent: int) -> None: ...

    @property
    def setup(self) -> bytes: ...

    @property
    def row(self) -> object:
        """Where it notes the row that it is at."""

    def ready(self, inputs: Sequence[tuple[str, str, Sequence[int]]], outputs: Sequence[tuple[str, str, Sequence[int]]]) -> None:
        """
        Says that it can take tasks; (name, dtype, shape) of each of their fields.
        """

    def next(self) -> object:
        """The next task's (indices, seeds, inputs, outputs), or None at the end."""

    def done(self, beside: bytes) -> None: ...

    def failed(self, row: int, message: str, bytes: bytes, transient: bool) -> None: ...

WORDS_DESCRIPTOR: int = 5

WHEREABOUTS_SIGNAL: int = 12

def handlers() -> dict:
    """XLA's handlers by their names."""

class RowWriter:
    """
    Writes samples to the rows of arrays.

    Args:
      rows: An array a field, the rows first.
      tree: A sample with the numbers of its fields for leaves.
      slowly: Called with (k, sample) where a sample needs more than to be copied.
    """

    def __init__(self, rows: Sequence[object], tree: object | None, slowly: object) -> None: ...

    def put(self, k: int, sample: object | None) -> None:
        """Writes a sample to row k."""

    def put_all(self, function: object, indices: object, row: object) -> None:
        """Writes function(index) of each index to its row, noting it in row[0]."""

class Interruptible:
    """While entered, Ctrl-C ends the loader's next batch."""

    def __init__(self, loader: Loader, active: bool) -> None: ...

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came since it was entered."""

    def __enter__(self) -> None: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> None: ...
