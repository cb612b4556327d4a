"""Batches on eight devices. JAX sets the number of devices when a process starts."""

from __future__ import annotations

import subprocess
import sys

from conftest import TESTS, Python

FILES = [
    "eight_devices.py",
    "eight_devices_augment.py",
    "eight_devices_callbacks.py",
    "eight_devices_errors.py",
    "eight_devices_pytrees.py",
    "eight_devices_pytrees_errors.py",
    "eight_devices_filter.py",
    "eight_devices_keys.py",
    "eight_devices_streams.py",
    "eight_devices_time_series.py",
    "eight_devices_workers.py",
    "sharded_examples.py",
]


def test_eight_devices(python: Python) -> None:
    """Runs all files in one process, to import JAX and compile only once."""
    flags = "--xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--durations=5", *(TESTS / file for file in FILES)],
        env=python.environment(XLA_FLAGS=flags),
        cwd=TESTS.parent.parent,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    summary = done.stdout.splitlines()[-1]
    assert " passed" in summary
    assert "skipped" not in summary
