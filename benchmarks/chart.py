"""Draws the results: `chart.py results.json chart.svg` also writes `chart.png`.

Needs matplotlib: the environment `plot` has it.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from catalogue import CONTENDERS, Kind
from results import Results

TITLES = {
    "host_loop": "Host loop, uint8",
    "host_loop_normalized": "Host loop, float32 / 255",
    "in_jit": "Epoch with a jitted sum",
    "in_jit_network": "Epoch of training a small network",
}
COLOURS = {Kind.OURS: "#c2410c", Kind.PEER: "#64748b", Kind.LIMIT: "#cbd5e1"}
LEGEND = {Kind.OURS: "Millstream", Kind.PEER: "peers", Kind.LIMIT: "by hand, limits"}
HUGE = 20


def draw(axes: Axes, results: Results, workload: str) -> None:
    """One panel: a bar a contender, the fastest on top."""
    bars = sorted(
        (timing.rate / 1e3, CONTENDERS[contender].title.replace("*", ""), kind)
        for kind in Kind
        for contender, timing in results.timings(workload, kind)
    )
    rates = [rate for rate, _, _ in bars]
    places = range(len(bars))
    axes.barh(places, rates, color=[COLOURS[kind] for *_, kind in bars], height=0.72)
    axes.set_yticks(places, [title for _, title, _ in bars])
    for place, (_, _, kind) in zip(places, bars, strict=True):
        if kind is Kind.OURS:
            axes.get_yticklabels()[place].set_fontweight("bold")
    if rates[-1] > HUGE * rates[0]:
        axes.set_xscale("log")
        axes.set_xlim(rates[0] / 2, rates[-1] * 4)
    else:
        axes.set_xlim(0, rates[-1] * 1.18)
    for place, rate in zip(places, rates, strict=True):
        text = f" {rate:,.0f}" if rate >= 10 else f" {rate:.1f}"
        axes.text(rate, place, text, va="center", fontsize=7)
    axes.set_title(TITLES[workload], fontsize=9, loc="left", fontweight="bold")
    axes.set_xlabel("thousand samples a second", fontsize=7)
    axes.tick_params(labelsize=7, length=0)
    axes.margins(y=0.02)
    axes.spines[["top", "right", "left"]].set_visible(False)


def drawn(results: Results, path: Path) -> None:
    """Writes the chart as SVG to `path` and as PNG beside it."""
    shown = [
        workload
        for workload in TITLES
        if any(any(results.timings(workload, kind)) for kind in Kind)
    ]
    if not shown:
        raise SystemExit("nothing to draw: no workload of the chart was timed")
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
        handles=[Patch(color=COLOURS[kind], label=LEGEND[kind]) for kind in Kind],
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    plt.rcParams |= {"svg.hashsalt": "millstream", "svg.fonttype": "none"}
    plt.rcParams["figure.facecolor"] = "white"
    drawn(Results.read(Path(sys.argv[1])), Path(sys.argv[2]))
