"""The usage example of Hydrax's documentation, in a script and in a notebook.

The example's typing errors are corrected and its ellipses filled in. Apart from that
only the import is changed.
"""

from __future__ import annotations

import subprocess
import sys

from conftest import TESTS
from jupyter_client.manager import KernelManager

USAGE = (
    (TESTS / "seeds" / "004_usage.txt")
    .read_text()
    .replace("hydrax", "millstream.hydrax", 1)
)
USAGE = USAGE.replace("from hydrax.tqdm", "from millstream.hydrax.tqdm")

GIVEN = """
import numpy as np, jax, jax.numpy as jnp
batch_size, dim, numpy_dtype, jax_dtype = 100, 3, np.float32, jnp.float32
my_data = list(range(2000))
counts = {"training": 0, "validation": 0}
total = jax.jit(lambda x: x.sum())

def run_training_batch(batch):
    assert all(batch.additional["augmented"]) == batch.is_training
    assert total(batch.arrays["array_name"]) == 3 * sum(batch.data)
    counts["training"] += 1

def run_validation_batch(batch):
    assert not any(batch.additional["augmented"])
    counts["validation"] += 1
"""
# The numbers of training and validation batches.
EXPECTED = "{'training': 150, 'validation': 50}"


def test_usage_as_a_script(python, tmp_path):
    path = tmp_path / "train.py"
    # A worker process must not run this code.
    path.write_text(f"{GIVEN}\n{USAGE}\n    print(counts)\n")
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        env=python.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"{EXPECTED}\n"
    assert "100%" in finished.stderr  # the bar


def test_usage_in_a_script_without_a_guard(python, tmp_path):
    path = tmp_path / "train.py"
    unguarded = USAGE.replace('if __name__ == "__main__":', "if True:")
    path.write_text(f"{GIVEN}\nprint('once')\n{unguarded}\n    print(counts)\n")
    finished = subprocess.run(
        [sys.executable, str(path)],
        env=python.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"once\n{EXPECTED}\n"


def test_usage_in_a_notebook(python, tmp_path):
    manager = KernelManager()
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel(env=python.environment(), cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        printed = "".join(run(client, cell) for cell in (GIVEN, USAGE, "print(counts)"))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert EXPECTED in printed


def run(client, cell):
    """Runs a cell and returns what it printed."""
    printed = []

    def show(message):
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stdout":
            printed.append(content["text"])

    reply = client.execute_interactive(cell, timeout=120, output_hook=show)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)
