"""Who takes part: the workloads, the contenders, and where each one runs.

A contender takes part in a workload when `workloads/<workload>/<contender>.py`
exists. This module needs the standard library alone.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).resolve().parent
OWN = "own"
BEYOND = "beyond the function"  # a variant of `python_large`
ALONE = "computing alone"  # of `disk_cold`


class Kind(StrEnum):
    """Whose number it is: ours, a peer's, or what can be had by hand."""

    OURS = "ours"
    PEER = "peer"
    LIMIT = "limit"


@dataclass(frozen=True)
class Contender:
    """A system under test: its name in tables and the environment it runs in."""

    title: str
    kind: Kind = Kind.PEER
    environment: str = OWN


@dataclass(frozen=True)
class Workload:
    """A question asked of every contender.

    `limit` names the contender that stands for the physical limit, if any. `launched`
    workloads time a whole process, `repeats` times a round for ours and the limits.
    """

    title: str
    limit: str
    launched: bool = False
    repeats: int = 1
    unit: str = "samples/s"


WORKLOADS = {
    "host_loop": Workload(
        "Fashion-MNIST, shuffled, batch 128, uint8, into a Python loop", "memcpy"
    ),
    "host_loop_normalized": Workload(
        "The same, cast to float32 and multiplied by 1/255", "memcpy"
    ),
    "in_jit": Workload(
        "A whole shuffled epoch with a jitted step: the sum of the batch", "scan_slice"
    ),
    "in_jit_network": Workload(
        "The same with the SGD step of a 784-512-512-10 network", "scan_slice"
    ),
    "scaling": Workload(
        "A step inside jit as the dataset grows", "scan_take_given", unit="us a batch"
    ),
    "disk_jit": Workload(
        "Fashion-MNIST off warm IDX files: the epoch of in_jit", "millstream_memory"
    ),
    "disk_loop": Workload(
        "Fashion-MNIST off warm IDX files: the loop of host_loop", "millstream_memory"
    ),
    "disk_cold": Workload(
        "2 GiB of shuffled rows of 16 KiB, not in memory, with a step that computes",
        "read_alone",
    ),
    "disk_open": Workload("Opening a source of 1e8 rows", "numpy_memmap", unit="us"),
    "sharded_loop": Workload(
        "Batches of 8 MiB into a Python loop, eight CPU devices", "millstream_whole"
    ),
    "resume": Workload(
        "A loader of 1e9 samples: to its first batch, from the middle of an epoch",
        "millstream_start",
        unit="us a batch",
    ),
    "start_import": Workload(
        "Whole process: the imports", "jax_alone", True, 4, "seconds"
    ),
    "start_batch": Workload(
        "Whole process: to the first batch of 128 of 1e8 shuffled records",
        "by_hand",
        True,
        4,
        "seconds",
    ),
    "python_gil": Workload(
        "A Python function that holds the GIL for 1 ms a sample, 2 workers, batch 128",
        "bare_processes",
    ),
    "python_trivial": Workload(
        "A Python function that returns 784 bytes at once, 2 workers, batch 128",
        "bare_processes",
    ),
    "python_large": Workload(
        "A Python function that fills 4 MiB, 2 workers, batch 8",
        "memcpy",
        unit="us a batch",
    ),
    "python_idle": Workload(
        "What two workers use of the CPU while nobody asks for batches",
        "",
        unit="CPU us a second",
    ),
}

CONTENDERS = {
    "millstream": Contender("**millstream**", Kind.OURS),
    "millstream_threads": Contender("**millstream**, threads", Kind.OURS),
    "millstream_loop": Contender("**millstream**, host loop", Kind.OURS),
    "millstream_memory": Contender("**millstream**, in memory", Kind.OURS),
    "millstream_whole": Contender("millstream, one device", Kind.LIMIT),
    "millstream_start": Contender("millstream, from step 0", Kind.LIMIT),
    "cyreal_iterate": Contender("cyreal, iterate", environment="jax"),
    "cyreal_next": Contender("cyreal, jitted next", environment="jax"),
    "cyreal_scan": Contender("cyreal, scan_epoch", environment="jax"),
    "cyreal_disk": Contender("cyreal, DiskSource, prefetch 1024", environment="jax"),
    "jax_dataloader": Contender("jax-dataloader", environment="jax"),
    "torch_batched": Contender("torch, batched indexing", environment="torch"),
    "torch_numpy_loader": Contender("torch, NumpyLoader", environment="torch"),
    "torch_memmap": Contender("torch, batches of a memmap", environment="torch"),
    "tfdata_gather": Contender("tf.data, range + gather", environment="tensorflow"),
    "tfdata_slices": Contender("tf.data, slices + shuffle", environment="tensorflow"),
    "tfdata_memmap": Contender(
        "tf.data, batches of a memmap", environment="tensorflow"
    ),
    "grain_batched": Contender("grain, batched source", environment="grain"),
    "grain_map": Contender("grain, MapDataset", environment="grain"),
    "grain_loader": Contender("grain, DataLoader", environment="grain"),
    "grain_memmap": Contender("grain, batches of a memmap", environment="grain"),
    "torch_workers": Contender("torch, 2 workers", environment="torch"),
    "grain_processes": Contender("grain, mp_prefetch", environment="grain"),
    "mlx_data": Contender("mlx-data", environment="mlx"),
    "spdl_pipeline": Contender("SPDL, Pipeline", environment="spdl"),
    "spdl_processes": Contender("SPDL, process pool", environment="spdl"),
    "hydrax": Contender("hydrax", environment="hydrax"),
    "memcpy": Contender("memcpy of the same bytes", Kind.LIMIT),
    "numpy_take": Contender("np.take, no hand-over", Kind.LIMIT),
    "numpy_take_jit": Contender("np.take + jitted identity", Kind.LIMIT),
    "numpy_take_put": Contender("np.take(out=) + device_put", Kind.LIMIT),
    "scan_slice": Contender("scan + dynamic_slice, no shuffle", Kind.LIMIT),
    "scan_take_given": Contender("scan + take, permutation given", Kind.LIMIT),
    "scan_take_made": Contender("scan + take, permutation made", Kind.LIMIT),
    "read_alone": Contender("millstream, reading alone", Kind.LIMIT),
    "numpy_memmap": Contender("np.load, mmap_mode", Kind.LIMIT),
    "bare_processes": Contender("two bare processes, a message a batch", Kind.LIMIT),
    "function_alone": Contender("the function alone, no messages", Kind.LIMIT),
    "jax_alone": Contender("import jax", Kind.LIMIT),
    "by_hand": Contender("import jax, gather, device_put", Kind.LIMIT),
}


def contenders_of(workload: str) -> list[str]:
    """The contenders of a workload: ours first, then peers, then limits."""
    folder = HERE / "workloads" / workload
    names = {path.stem for path in folder.glob("*.py")} - {"workload"}
    if unknown := names - CONTENDERS.keys():
        raise ValueError(f"not in the catalogue: {sorted(unknown)} of {workload}")
    return [name for name in CONTENDERS if name in names]


def interpreter(environment: str) -> Path:
    """The Python of an environment; the path need not exist."""
    if environment == OWN:
        own = HERE.parent / ".venv" / "bin" / "python"
        return own if own.exists() else Path(sys.executable)
    return HERE / ".venvs" / environment / "bin" / "python"
