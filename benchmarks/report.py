"""Tables of the results in Markdown: `report.py results.json [table.md]`.

Needs the standard library alone.
"""

import sys
from pathlib import Path

from catalogue import CONTENDERS, WORKLOADS
from results import Results, Timing
from targets import TARGETS

RULES = """Best of several rounds in one run; only ratios carry to another machine.
A contender is timed if it first yields every record exactly once."""

EXTRAS = {
    "init_seconds": "init us",
    "state_bytes": "state bytes",
    "memory_bytes": "memory bytes",
}


def times(value: float) -> str:
    """A ratio with three digits, such as `0.0123x`, `1.23x` or `123x`."""
    digits = f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{digits}x"


def quantity(workload: str, timing: Timing, seconds: float) -> str:
    """A time in the unit of the workload."""
    unit = WORKLOADS[workload].unit
    if unit == "samples/s":
        rate = timing.samples / seconds / 1e3
        return f"{rate:,.1f} k" if rate >= 100 else f"{rate:.3f} k"
    return f"{seconds * 1e6:,.2f}" if unit.startswith("us") else f"{seconds:.3f}"


def columns(results: Results, workload: str, contender: str, variant: str) -> list[str]:
    """The cells of a contender's row after its name."""
    outcome = results.outcomes[workload][contender]
    timing = outcome.timings[variant]
    limit = results.timing(workload, WORKLOADS[workload].limit, variant)
    peer = results.best_peer(workload, variant)
    return [
        quantity(workload, timing, timing.best),
        quantity(workload, timing, timing.median),
        times(timing.rate / peer.rate) if peer else "",
        times(timing.rate / limit.rate) if limit else "",
        *([f"{outcome.peak_mib:,}"] if WORKLOADS[workload].launched else []),
    ]


def extra_columns(timing: Timing, names: list[str]) -> list[str]:
    """The cells of the other numbers a workload measures."""
    cells = []
    for name in names:
        value = timing.extra[name]
        cells.append(f"{value * 1e6:,.1f}" if name == "init_seconds" else f"{value:,}")
    return cells


def row(cells: list[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def table(results: Results, workload: str) -> list[str]:
    """The lines of a workload's table, the fastest first, and of those not timed."""
    lines: list[tuple[str, float, list[str]]] = []
    excluded = []
    extras: list[str] = []
    for contender, outcome in results.outcomes[workload].items():
        title = CONTENDERS[contender].title
        if outcome.status != "ok":
            excluded.append(f"- {title}: {outcome.status}: {outcome.detail}")
            continue
        for variant, timing in outcome.timings.items():
            extras = list(timing.extra)
            name = f"{title}, {variant}" if variant else title
            cells = columns(results, workload, contender, variant)
            cells += extra_columns(timing, extras)
            lines.append((variant, -timing.rate, [name, *cells]))
    unit = WORKLOADS[workload].unit
    heads = ["contender", unit, "median", "to best peer", "to limit"]
    heads += ["peak MiB"] if WORKLOADS[workload].launched else []
    heads += [EXTRAS[name] for name in extras]
    lines.sort(key=lambda line: line[:2])
    out = [f"### {workload}", "", WORKLOADS[workload].title + ".", ""]
    if lines:
        out += [row(heads), row(["---", *["---:"] * (len(heads) - 1)])]
        out += [row(cells) for _, _, cells in lines]
    if excluded:
        out += ["", "Not timed:", *excluded]
    return [*out, "", *target_lines(results, workload)]


def target_lines(results: Results, workload: str) -> list[str]:
    """The targets of a workload and whether this run meets them."""
    parts = []
    for target in TARGETS:
        if target.workload != workload:
            continue
        sign = ">=" if target.at_least else "<="
        wanted = f"{target.text} {sign} {target.bound:.3g} {target.unit}"
        value = target.measured(results)
        if value is None:
            parts.append(f"{wanted}: not measured")
        else:
            verdict = "met" if target.met(value) else "**missed**"
            parts.append(f"{wanted}: {value:.3g} {target.unit}, {verdict}")
    return [f"Targets: {'; '.join(parts)}.", ""] if parts else []


def setting(results: Results) -> str:
    """The machine, and every version of the packages that was seen in the run."""
    seen: dict[str, set[str]] = {}
    for outcomes in results.outcomes.values():
        for outcome in outcomes.values():
            for package, version in outcome.versions.items():
                seen.setdefault(package, set()).add(version)
    versions = [f"{name} {' and '.join(sorted(seen[name]))}" for name in sorted(seen)]
    machine = results.machine
    parts = [
        f"{machine['cores']} cores",
        f"{machine['system']} {machine['architecture']}",
        f"Python {machine['python']}",
        *versions,
    ]
    return ", ".join(parts) + "."


def markdown(results: Results) -> str:
    """The tables of every workload of a run."""
    lines = ["## Benchmarks", "", RULES, setting(results), ""]
    for workload in WORKLOADS:
        if workload in results.outcomes:
            lines += table(results, workload)
    return "\n".join(lines)


def missed(results: Results) -> list[str]:
    """The targets that this run measured and missed."""
    found = []
    for target in TARGETS:
        value = target.measured(results)
        if value is not None and not target.met(value):
            found.append(f"{target.workload}: {target.text}: {value:.3g} {target.unit}")
    return found


if __name__ == "__main__":
    written = markdown(Results.read(Path(sys.argv[1])))
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(written)
    else:
        print(written)
