"""Runs one section of the tutorial in full: `run.py pytorch`.

Trains the network through each loader of the section, checks that the results are equal
to the bit, and measures loading without training. Adds the times and accuracies to
results.json, which `page.py` reads.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
from pathlib import Path

import data_sets
import jax
import network
import sections

CACHE = Path.home() / ".cache" / "millstream" / "tutorial"
RESULTS = Path(__file__).parent / "results.json"
LOADING_ROUNDS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", choices=["pytorch", "tfds", "grain", "hugging_face"])
    parser.add_argument("--epochs", type=int, default=network.num_epochs)
    parser.add_argument("--count", type=int, help="use only the first samples")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()

    module = importlib.import_module(f"section_{arguments.section}")
    name = f"{module.write.__name__}_{arguments.count or 'all'}"
    folder = data_sets.written_once(module.write, CACHE / name, arguments.count)
    section = module.section(folder)
    histories = sections.train(section, arguments.epochs)
    loading = sections.load(section, LOADING_ROUNDS)

    results = {"sections": {}}
    if arguments.results.exists():
        results = json.loads(arguments.results.read_text())
    results |= {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "jax": jax.__version__,
        "samples": len(section.evaluation[0]),
    }
    results["sections"][section.title] = {
        loader: {"epochs": histories[loader], "loading": loading[loader]}
        for loader in histories
    }
    arguments.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
