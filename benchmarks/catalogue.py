"""The workloads, the contenders, and the environment in which each contender runs.

A contender takes part in a workload when `workloads/<folder>/<contender>.py` exists.
This module needs only the standard library.
"""

import ast
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).resolve().parent
OWN = "own"


class Kind(StrEnum):
    """What a contender is.

    A `HAND` contender is code that a user could write instead of using a loader; its
    file says what it does not do. A `LIMIT` does only a part of the work.
    """

    OURS = "ours"
    PEER = "peer"
    HAND = "by hand"
    LIMIT = "limit"


@dataclass(frozen=True)
class Contender:
    """A system under test: its name in tables and the environment it runs in."""

    title: str
    kind: Kind = Kind.PEER
    environment: str = OWN


@dataclass(frozen=True)
class Workload:
    """A task that every contender does.

    `rounds` are timed in each run, after one that is thrown away. `measure` is what
    contenders are ranked by, `wall` or `cpu`. `folder` names the workload whose
    contenders take part, if it is another one; `without` leaves some of them out.
    `batch` is the batch size of workloads over Fashion-MNIST.
    """

    title: str
    unit: str = "k samples/s"
    rounds: int = 4
    measure: str = "wall"
    folder: str = ""
    without: tuple[str, ...] = ()
    batch: int = 128


WORKLOADS = {
    "host_loop": Workload(
        "Fashion-MNIST in memory, uint8, shuffled, batch 128: a Python loop that "
        "passes each batch to a jitted step"
    ),
    "host_loop_normalized": Workload(
        "`host_loop` with images converted to float32 and divided by 255",
        folder="host_loop",
    ),
    "host_loop_32": Workload(
        "`host_loop` with batches of 32", folder="host_loop", batch=32
    ),
    "host_loop_1024": Workload(
        "`host_loop` with batches of 1,024", folder="host_loop", batch=1024
    ),
    "in_jit": Workload(
        "Fashion-MNIST in memory, shuffled, batch 128: an epoch in which a jitted step "
        "sums each batch"
    ),
    "in_jit_1024": Workload(
        "`in_jit` with batches of 1,024", folder="in_jit", batch=1024
    ),
    "in_jit_unit_axis": Workload(
        "`in_jit` with images of 28 x 28 x 1", folder="in_jit"
    ),
    "in_jit_network": Workload(
        "One epoch of training a 784-512-512-10 network, batch 128",
        rounds=2,
        folder="in_jit",
        without=("scan_take_made",),
    ),
    "disk_jit": Workload("`in_jit`, read from IDX files in the page cache"),
    "disk_jit_unit_axis": Workload(
        "`in_jit_unit_axis`, read from IDX files in the page cache", folder="disk_jit"
    ),
    "disk_loop": Workload("`host_loop`, read from IDX files in the page cache"),
    "disk_large": Workload(
        "A `.npy` file of 6 GiB in the page cache, rows of 16 KiB, shuffled, batch 64: "
        "a Python loop with a jitted step",
        rounds=3,
    ),
    "disk_cold": Workload(
        "A `.npy` file of 1 GiB that is not in the page cache, rows of 16 KiB, "
        "shuffled, batch 64, with a step that keeps one core busy",
        rounds=1,
    ),
    "token_windows": Workload(
        "Non-overlapping windows of 2,048 tokens from a memory-mapped uint16 file, "
        "shuffled, batch 16: a Python loop with a jitted step",
        unit="M tokens/s",
    ),
    "table": Workload(
        "A dict of 20 float32 columns with 10 M rows, shuffled, batch 4,096: a Python "
        "loop with a jitted step",
        rounds=3,
    ),
    "normalize_channels": Workload(
        "uint8 images of 224 x 224 x 3, normalised with a mean and a standard "
        "deviation per channel, shuffled, batch 64",
        rounds=3,
    ),
    "torch_dataset": Workload(
        "A torch data set whose samples are a tensor image, a float and an int label, "
        "batch 128: a Python loop with a jitted step"
    ),
    "tensor_dataset": Workload(
        "The same samples in a torch `TensorDataset`, batch 128: a Python loop with a "
        "jitted step"
    ),
    "grain_source": Workload(
        "A Grain source whose samples are float32[784] and an int label, batch 128: a "
        "Python loop with a jitted step"
    ),
    "hugging_face": Workload(
        "Rows of 64 float32 numbers and a label in a Hugging Face data set, shuffled, "
        "batch 128: a Python loop with a jitted step"
    ),
    "hugging_face_images": Workload(
        "PNG images of 28 x 28 in a Hugging Face data set, decoded by one thread, "
        "shuffled, batch 128: a Python loop with a jitted step"
    ),
    "sharded_loop": Workload(
        "Batches of 8 MiB in a Python loop, split over eight CPU devices"
    ),
    "python_gil": Workload(
        "A Python function that holds the GIL for 1 ms per sample, 2 workers, "
        "batch 128",
        rounds=2,
    ),
    "python_gil_short": Workload(
        "A Python function that holds the GIL for 20 us per sample, 2 workers, "
        "batch 128",
        folder="python_gil",
    ),
    "python_trivial": Workload(
        "A Python function that returns 784 bytes without computing, 2 workers, "
        "batch 128",
        folder="python_gil",
    ),
    "python_large": Workload(
        "A Python function that fills 4 MiB in place, 2 worker processes, batch 8",
        unit="us per batch",
    ),
    "python_idle": Workload(
        "CPU time of two idle workers: nobody requests batches",
        unit="CPU us per second",
        measure="cpu",
        rounds=2,
        folder="python_gil",
        without=(
            "bare_processes",
            "loadax",
            "millstream_hydrax",
            "millstream_thread",
            "millstream_threads",
        ),
    ),
    "scaling": Workload(
        "One step inside jit, with 1e4, 1e6 and 1e9 samples", unit="us per batch"
    ),
    "replay_fifo": Workload(
        "A full replay buffer of 1e6 transitions (41 bytes each) inside `lax.scan`: a "
        "step stores one and draws 256",
        unit="us per batch",
    ),
    "replay_fifo_small": Workload(
        "`replay_fifo` with a buffer of 1e3 transitions",
        unit="us per batch",
        folder="replay_fifo",
        without=("small_buffer",),
    ),
    "replay_reservoir": Workload(
        '`replay_fifo` with `write_mode="reservoir"`',
        unit="us per batch",
        rounds=3,
        folder="replay_fifo",
    ),
    "replay_reservoir_small": Workload(
        "`replay_reservoir` with a buffer of 1e3 transitions",
        unit="us per batch",
        folder="replay_fifo",
        without=("small_buffer",),
    ),
    "replay_loop": Workload(
        "`replay_fifo` in a Python loop: `run` updates the buffer in place",
        unit="us per batch",
    ),
    "rollout": Workload(
        "CartPole inside `lax.scan`: one environment, a policy that draws actions, "
        "batches of 128 transitions"
    ),
    "rollout_many": Workload("`rollout` with 64 environments", folder="rollout"),
    "ppo_minibatches": Workload(
        "Minibatches of 256 from a rollout of 8,192 transitions inside jit, 4 shuffled "
        "epochs"
    ),
    "iterable": Workload(
        "A generator of dicts with 16 floats and an int, batch 128: a Python loop with "
        "a jitted step"
    ),
    "resume": Workload(
        "A loader of 1e9 samples: time to build it, restore a state and get a batch",
        unit="time, us",
        rounds=10,
    ),
    "disk_open": Workload(
        "Time to open a source of 1e8 rows", unit="time, us", rounds=10
    ),
    "open_int64": Workload(
        "int64 labels of 1e8 rows: time to build a loader and get the first batch",
        unit="time, ms",
        rounds=3,
    ),
    "start_import": Workload(
        "Time of a process that only imports its packages", unit="time, ms", rounds=6
    ),
    "start_batch": Workload(
        "Time of a process that gets one batch of 128 from 1e8 shuffled records",
        unit="time, ms",
        rounds=2,
    ),
    "start_workers": Workload(
        "Time from building a loader with 2 worker processes to its first batch of 128",
        unit="time, ms",
        rounds=3,
    ),
}

CONTENDERS = {
    "millstream": Contender("**Millstream**", Kind.OURS),
    "millstream_hydrax": Contender("**Millstream**, Hydrax interface", Kind.OURS),
    "millstream_threads": Contender("**Millstream**, threads", Kind.OURS),
    "millstream_thread": Contender("**Millstream**, one thread", Kind.OURS),
    "millstream_jax_module": Contender(
        "**Millstream**, a module that imports jax", Kind.OURS
    ),
    "millstream_loop": Contender("**Millstream**, Python loop", Kind.OURS),
    "millstream_int32": Contender("**Millstream**, int32 labels", Kind.OURS),
    "millstream_packed": Contender("**Millstream**, `pack=True`", Kind.OURS),
    "millstream_scalar": Contender("**Millstream**, one mean", Kind.OURS),
    "millstream_1e4": Contender("**Millstream**, 1e4 samples", Kind.OURS),
    "millstream_1e6": Contender("**Millstream**, 1e6 samples", Kind.OURS),
    "millstream_1e9": Contender("**Millstream**, 1e9 samples", Kind.OURS),
    "millstream_0_workers": Contender(
        "**Millstream**, 1 worker thread", Kind.OURS, "torch"
    ),
    "millstream_2_workers": Contender(
        "**Millstream**, 2 worker processes", Kind.OURS, "torch"
    ),
    "millstream_torch": Contender(
        "**Millstream**, `millstream.torch.DataLoader`", Kind.OURS, "torch"
    ),
    "loadax": Contender("**Millstream**, `loadax`", Kind.OURS),
    "loadax_1_worker": Contender(
        "**Millstream**, `loadax`, 1 worker thread", Kind.OURS, "torch"
    ),
    "torch_batched": Contender("torch, batched indexing", environment="torch"),
    "torch_memmap": Contender("torch, batches of a memmap", environment="torch"),
    "torch_workers": Contender("torch, 2 workers", environment="torch"),
    "torch_0_workers": Contender("torch, main process", environment="torch"),
    "torch_spawned": Contender("torch, 2 spawned workers", environment="torch"),
    "torch_numpy": Contender("torch, NumPy collate", environment="torch"),
    "torch_2_workers": Contender("torch, 2 workers", environment="torch"),
    "jax_dataloader": Contender("jax-dataloader", environment="jax"),
    "mlx_data": Contender("mlx-data", environment="mlx"),
    "tfdata_gather": Contender("tf.data, batched gather", environment="tensorflow"),
    "tfdata_memmap": Contender(
        "tf.data, batches of a memmap", environment="tensorflow"
    ),
    "grain_batched": Contender("Grain, batched source", environment="grain"),
    "grain_map": Contender("Grain, MapDataset", environment="grain"),
    "grain_no_threads": Contender(
        "Grain, DataLoader without threads", environment="grain"
    ),
    "grain_1_thread": Contender("Grain, DataLoader, 1 thread", environment="grain"),
    "grain_memmap": Contender("Grain, batches of a memmap", environment="grain"),
    "grain_processes": Contender("Grain, mp_prefetch", environment="grain"),
    "spdl_pipeline": Contender("SPDL, Pipeline", environment="spdl"),
    "spdl_processes": Contender("SPDL, process pool", environment="spdl"),
    "hydrax": Contender("Hydrax", environment="hydrax"),
    "hugging_face": Contender(
        "Hugging Face, batched indexing", environment="hugging_face"
    ),
    "hugging_face_numpy": Contender(
        "Hugging Face, format numpy", environment="hugging_face"
    ),
    "hugging_face_torch": Contender(
        "Hugging Face in torch's DataLoader", environment="hugging_face"
    ),
    "cyreal": Contender("Cyreal", environment="gymnax"),
    "cyreal_next": Contender("Cyreal, jitted next", environment="jax"),
    "cyreal_scan": Contender("Cyreal, scan_epoch", environment="jax"),
    "cyreal_disk": Contender("Cyreal, DiskSource", environment="jax"),
    "cyreal_1e4": Contender("Cyreal, 1e4 samples", environment="jax"),
    "cyreal_1e6": Contender("Cyreal, 1e6 samples", environment="jax"),
    "numpy_take": Contender("`np.take`", Kind.HAND),
    "numpy_windows": Contender("NumPy, a loop of slices", Kind.HAND),
    "scan_take_given": Contender("scan + `jnp.take`, fixed permutation", Kind.HAND),
    "scan_take_made": Contender("scan + `jnp.take`, new permutation", Kind.HAND),
    "scan_step": Contender("scan + `env.step`", Kind.HAND),
    "take_1e4": Contender("`jnp.take`, 1e4 samples", Kind.HAND),
    "take_1e6": Contender("`jnp.take`, 1e6 samples", Kind.HAND),
    "step_normalizes": Contender("`np.take`, the step normalises", Kind.HAND),
    "by_hand": Contender("NumPy, 128 random rows", Kind.LIMIT),
    "scan_slice": Contender("scan + slices, not shuffled", Kind.LIMIT),
    "memcpy": Contender("memcpy", Kind.LIMIT),
    "take_alone": Contender("`np.take`, without JAX", Kind.LIMIT),
    "in_memory": Contender("Millstream from memory", Kind.LIMIT),
    "small_buffer": Contender("Millstream, a buffer of 1e3", Kind.LIMIT),
    "one_device": Contender("Millstream, one device", Kind.LIMIT),
    "from_start": Contender("Millstream, from step 0", Kind.LIMIT),
    "read_alone": Contender("Millstream, reading only", Kind.LIMIT),
    "compute_alone": Contender("the step only", Kind.LIMIT),
    "numpy_memmap": Contender("`np.load`, memory map", Kind.LIMIT),
    "bare_processes": Contender("two processes without a loader", Kind.LIMIT),
    "function_alone": Contender("the function only", Kind.LIMIT),
    "jax_alone": Contender("import jax", Kind.LIMIT),
}


def folder_of(workload: str) -> Path:
    """The folder that holds the contenders of a workload."""
    return HERE / "workloads" / (WORKLOADS[workload].folder or workload)


def contenders_of(workload: str) -> list[str]:
    """The contenders of a workload: ours first, then peers, by hand and limits."""
    names = {path.stem for path in folder_of(workload).glob("*.py")}
    names -= {"workload", *WORKLOADS[workload].without}
    if unknown := names - CONTENDERS.keys():
        raise ValueError(f"not in the catalogue: {sorted(unknown)} of {workload}")
    return [name for name in CONTENDERS if name in names]


def note(workload: str, contender: str) -> str:
    """The docstring of a contender's file, which says what it does."""
    tree = ast.parse((folder_of(workload) / f"{contender}.py").read_text())
    return " ".join((ast.get_docstring(tree) or "").split())


def interpreter(environment: str) -> Path:
    """The Python of an environment; the path need not exist."""
    if environment == OWN:
        own = HERE.parent / ".venv" / "bin" / "python"
        return own if own.exists() else Path(sys.executable)
    return HERE / ".venvs" / environment / "bin" / "python"
