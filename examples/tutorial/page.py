"""Writes the tables of docs/tutorial.md and its chart from results.json.

Needs matplotlib, which the environment `plot` of the benchmarks has.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from report import replaced, row  # noqa: E402

PAGE = ROOT / "docs" / "tutorial.md"
CHART = ROOT / "docs" / "images" / "tutorial.svg"
SECTIONS = ("PyTorch", "TFDS", "Grain", "Hugging Face")


def training(loader):
    """The median time of an epoch of training. The first epoch includes compilation."""
    times = [seconds for seconds, _, _ in loader["epochs"]]
    return statistics.median(times[1:] or times)


def loading(loader):
    """The median time of an epoch of loading."""
    return statistics.median(loader["loading"])


def rival(loaders, name):
    """The loader to compare `name` with, or None if it is not Millstream.

    It is the library's loader with the same number of workers, or its fastest.
    """
    if not name.startswith("Millstream"):
        return None
    others = [other for other in loaders if not other.startswith("Millstream")]
    same = [other for other in others if other.endswith(name.partition(", ")[2])]
    return min(same or others, key=lambda other: training(loaders[other]))


def times(results):
    """The table of times, as lines of Markdown."""
    heads = ["section", "loader", "first epoch, s", "epoch, s", "loading only, s"]
    heads += ["speedup, training", "speedup, loading"]
    lines = [row(heads), row(["---", "---", *["---:"] * 5])]
    for section, loaders in results.items():
        for name, loader in loaders.items():
            first = loader["epochs"][0][0]
            cells = [f"{x:.3g}" for x in (first, training(loader), loading(loader))]
            other = loaders.get(rival(loaders, name))
            cells += [
                f"{of(other) / of(loader):.2f}" if other else ""
                for of in (training, loading)
            ]
            lines.append(row([section, name, *cells]))
    return lines


def accuracies(results):
    """The table of accuracies, which are the same for all loaders of a section."""
    firsts = {
        section: next(iter(loaders.values()))["epochs"]
        for section, loaders in results.items()
    }
    lines = [row(["epoch", *firsts]), row(["---:"] * (len(firsts) + 1))]
    for epoch in range(min(map(len, firsts.values()))):
        cells = [
            f"{epochs[epoch][1]:.4f} / {epochs[epoch][2]:.4f}"
            for epochs in firsts.values()
        ]
        lines.append(row([str(epoch + 1), *cells]))
    return lines


def draw(results, path):
    """Draws the times of an epoch: a bar for training and a line for loading."""
    import matplotlib.pyplot as plt
    from chart import COLOURS, Kind

    plt.rcParams |= {"svg.hashsalt": "millstream", "svg.fonttype": "none"}
    plt.rcParams["figure.facecolor"] = "white"
    counts = [len(loaders) for loaders in results.values()]
    figure, panels = plt.subplots(
        len(results),
        figsize=(7.2, 0.6 * len(results) + 0.27 * sum(counts)),
        height_ratios=[count + 0.6 for count in counts],
        layout="constrained",
        squeeze=False,
    )
    for axes, (section, loaders) in zip(panels.flat, results.items(), strict=True):
        names = list(loaders)[::-1]
        values = [training(loaders[name]) for name in names]
        places = range(len(names))
        ours = [name.startswith("Millstream") for name in names]
        colours = [COLOURS[Kind.OURS if each else Kind.PEER] for each in ours]
        axes.barh(places, values, color=colours, height=0.72)
        alone = [loading(loaders[name]) for name in names]
        axes.scatter(
            alone,
            places,
            marker="|",
            s=90,
            color="black",
            zorder=3,
        )
        axes.set_yticks(places, names)
        for place, value in zip(places, values, strict=True):
            axes.text(value, place, f"  {value:.2f}", va="center", fontsize=7)
        axes.set_xlim(0, max(*values, *alone) * 1.12)
        axes.set_title(section, fontsize=9, loc="left", fontweight="bold")
        axes.tick_params(labelsize=7, length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels.flat[-1].set_xlabel(
        "seconds per epoch; the black line is loading without training", fontsize=7
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main():
    content = json.loads((HERE / "results.json").read_text())
    found = content["sections"]
    results = {section: found[section] for section in SECTIONS if section in found}
    setting = (
        f"Measured on {content['date']} on {content['cores']} cores, with jax "
        f"{content['jax']} and {content['samples']} samples per epoch."
    )
    lines = [setting, "", *times(results), "", "### Accuracy"]
    lines += ["Training set / test set, after each epoch.", "", *accuracies(results)]
    PAGE.write_text(replaced(PAGE, "\n".join(lines)))
    draw(results, CHART)


if __name__ == "__main__":
    main()
