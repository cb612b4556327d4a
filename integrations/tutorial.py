"""Runs a section of examples/tutorial with few samples."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "examples" / "tutorial"
SAMPLES = 300  # two batches of 128, and a short one


def check_section(name, folder):
    """Trains two epochs through each loader, and compares all batches of a third.

    `sections.train` raises an error unless the accuracies and parameters are equal.
    """
    sys.path.insert(0, str(FOLDER))
    sections = importlib.import_module("sections")
    module = importlib.import_module(f"section_{name}")
    module.write(folder, SAMPLES)
    section = module.section(folder)
    histories = sections.train(section, 2)
    assert all(len(history) == 2 for history in histories.values())
    first, *others = (list(sections.batches(x)) for x in section.loaders)
    assert [len(images) for images, _ in first] == [128, 128, 44]
    for other in others:
        for (x, y), (images, labels) in zip(first, other, strict=True):
            assert x.dtype == images.dtype
            assert x.shape == images.shape
            assert (x == images).all()
            assert (y == labels).all()
