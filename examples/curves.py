"""Draws learning curves for the examples. Needs matplotlib."""

from __future__ import annotations


def draw(path, curves, *, title, x, y, lines=None):
    """Writes a picture of curves, ``{name: (xs, ys)}``, and of horizontal lines."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "millstream"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, (xs, ys) in curves.items():
        axes.plot(xs, ys, marker="o", markersize=3, label=name)
    for (name, value), style in zip(
        (lines or {}).items(), ("--", ":", "-."), strict=False
    ):
        axes.axhline(value, color="gray", linestyle=style, label=name)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None} if str(path).endswith("svg") else None)
    pyplot.close(figure)
