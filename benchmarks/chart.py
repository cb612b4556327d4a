"""Draws the results: `chart.py results.json chart.svg` also writes `chart.png`.

Needs matplotlib, which the environment `plot` has.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from catalogue import Kind
from report import kind, level, title
from results import Results

TITLES = {
    "host_loop": "Python loop, uint8",
    "host_loop_normalized": "Python loop, float32 / 255",
    "in_jit": "Epoch with a jitted sum",
    "in_jit_network": "Epoch of training a small network",
}
COLOURS = {
    Kind.OURS: "#c2410c",
    Kind.PEER: "#64748b",
    Kind.HAND: "#94a3b8",
    Kind.LIMIT: "#cbd5e1",
}
LEGEND = {
    Kind.OURS: "Millstream",
    Kind.PEER: "other loaders",
    Kind.HAND: "by hand",
    Kind.LIMIT: "limits: only a part of the work",
}


def draw(axes: Axes, results: Results, workload: str) -> None:
    """Draws one panel: a bar for each contender, with a line for its range."""
    timed = results.timed(workload)
    names = sorted(timed, key=lambda name: level(timed[name], workload), reverse=True)
    kinds = [kind(name) for name in names]
    rates = [1e-3 / level(timed[name], workload) for name in names]
    ranges = [[1e-3 / each for each in timed[name].times("wall")] for name in names]
    below = [rate - min(runs) for rate, runs in zip(rates, ranges, strict=True)]
    above = [max(runs) - rate for rate, runs in zip(rates, ranges, strict=True)]
    places = range(len(names))
    axes.barh(
        places,
        rates,
        xerr=(below, above),
        error_kw={"elinewidth": 0.8},
        color=[COLOURS[each] for each in kinds],
        height=0.72,
    )
    labels = [title(name).replace("*", "").replace("`", "") for name in names]
    axes.set_yticks(places, labels)
    for place, each in zip(places, kinds, strict=True):
        if each is Kind.OURS:
            axes.get_yticklabels()[place].set_fontweight("bold")
    axes.set_xlim(0, max(rates) * 1.2)
    for place, rate, more in zip(places, rates, above, strict=True):
        text = f"  {rate:,.0f}" if rate >= 10 else f"  {rate:.1f}"
        axes.text(rate + more, place, text, va="center", fontsize=7)
    axes.set_title(TITLES[workload], fontsize=9, loc="left", fontweight="bold")
    axes.set_xlabel("thousand samples a second", fontsize=7)
    axes.tick_params(labelsize=7, length=0)
    axes.margins(y=0.02)
    axes.spines[["top", "right", "left"]].set_visible(False)


def write_chart(results: Results, path: Path) -> None:
    """Writes the chart as SVG to `path` and as PNG next to it."""
    shown = [workload for workload in TITLES if results.timed(workload)]
    if not shown:
        raise SystemExit(
            f"nothing to draw: the results have none of {', '.join(TITLES)}. Run these "
            "workloads first."
        )
    rows = (len(shown) + 1) // 2
    most = max(len(results.outcomes[workload]) for workload in shown)
    size = (9.6, rows * (0.9 + 0.17 * most))
    figure, panels = plt.subplots(
        rows, min(2, len(shown)), figsize=size, squeeze=False, layout="constrained"
    )
    for axes in panels.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, workload in zip(panels.flat, shown, strict=False):
        draw(axes, results, workload)
    figure.legend(
        handles=[Patch(color=COLOURS[each], label=LEGEND[each]) for each in Kind],
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    plt.rcParams |= {"svg.hashsalt": "millstream", "svg.fonttype": "none"}
    plt.rcParams["figure.facecolor"] = "white"
    write_chart(Results.read(Path(sys.argv[1])), Path(sys.argv[2]))
