"""Writes the tables of docs/performance.md and README.md from the results of a run.

`report.py results.json` writes both files. `--check` only checks that they match the
results. `--compare other.json` checks that two runs agree on who is first. This module
needs only the standard library.
"""

import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from catalogue import CONTENDERS, HERE, WORKLOADS, Kind, note
from results import Outcome, Ratio, Results

PAGE = HERE.parent / "docs" / "performance.md"
README = HERE.parent / "README.md"
BEGIN, END = "<!-- benchmarks -->\n", "<!-- /benchmarks -->\n"
SHOWN = ("host_loop", "host_loop_normalized", "in_jit")  # the columns of the README


@dataclass(frozen=True)
class Unit:
    """How a table shows the wall time and the CPU time of one sample."""

    scale: float
    rate: bool
    cpu: str
    cpu_scale: float

    def value(self, seconds: float) -> float:
        """The seconds of a sample in this unit."""
        return 1 / (seconds * self.scale) if self.rate else seconds * self.scale


UNITS = {
    "k samples/s": Unit(1e3, True, "CPU us per sample", 1e6),
    "M tokens/s": Unit(1e6, True, "CPU ns per token", 1e9),
    "us per batch": Unit(1e6, False, "CPU us per batch", 1e6),
    "time, us": Unit(1e6, False, "CPU time, us", 1e6),
    "time, ms": Unit(1e3, False, "CPU time, ms", 1e3),
    "CPU us per second": Unit(1e6, False, "", 0),
}


def digits(value: float) -> str:
    """A number with three digits, and commas where it is large."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values: list[float]) -> str:
    """The smallest and the largest of the values."""
    return f"{digits(min(values))} to {digits(max(values))}"


def shown(ratio: Ratio) -> str:
    """The median of a ratio, and the range of the runs."""
    return f"{digits(ratio.median)} ({spread(ratio.runs)})"


def row(cells: list[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def title(contender: str) -> str:
    """The name of a contender in tables."""
    return CONTENDERS[contender].title


def kind(contender: str) -> Kind:
    """The kind of a contender."""
    return CONTENDERS[contender].kind


def level(outcome: Outcome, workload: str) -> float:
    """The seconds per sample by which contenders are ranked."""
    return statistics.median(outcome.times(WORKLOADS[workload].measure))


def fastest(results: Results, workload: str, *kinds: Kind) -> str | None:
    """The fastest contender of some kinds; None if none was timed."""
    timed = results.timed(workload)
    names = [name for name in timed if kind(name) in kinds]
    return min(names, key=lambda name: level(timed[name], workload), default=None)


def ratio(results: Results, workload: str, contender: str) -> Ratio | None:
    """The speed of the fastest Millstream row divided by that of a contender."""
    own = fastest(results, workload, Kind.OURS)
    timed = results.timed(workload)
    if own is None or contender not in timed or own == contender:
        return None
    return Ratio.of(timed[own], timed[contender], WORKLOADS[workload].measure)


def leaders(results: Results, workload: str) -> list[str]:
    """The fastest of Millstream, peers and code by hand, and those that tie with it.

    The list is empty if no other contender takes part.
    """
    timed = results.timed(workload)
    measure = WORKLOADS[workload].measure
    names = [name for name in timed if kind(name) in (Kind.PEER, Kind.HAND)]
    own = fastest(results, workload, Kind.OURS)
    if own is None or not names:
        return []
    names = sorted([own, *names], key=lambda name: level(timed[name], workload))
    best = timed[names[0]]
    tied = [each for each in names[1:] if Ratio.of(best, timed[each], measure).tie]
    return [names[0], *tied]


def verdict(results: Results, workload: str) -> str:
    """Who is first, and how Millstream compares with the best other contender."""
    ahead = leaders(results, workload)
    if not ahead:
        return "No other loader takes part."
    own = fastest(results, workload, Kind.OURS)
    others = [name for name in ahead if name != own]
    rival = others[0] if others else fastest(results, workload, Kind.PEER, Kind.HAND)
    assert rival is not None
    found = ratio(results, workload, rival)
    assert found is not None
    if own not in ahead:
        first = " and ".join(title(name) for name in others)
        percent = f"{found.median:.0%} ({min(found.runs):.0%} to {max(found.runs):.0%})"
        text = "tie for first place" if len(others) > 1 else "is first"
        reached = f"Millstream reaches {percent} of the speed of {title(rival)}"
        return f"**{first}** {text}. {reached}."
    if not others:
        text = f"{shown(found)} times as fast as {title(rival)}"
        return f"**Millstream is first**, {text}."
    ratios = {name: ratio(results, workload, name) for name in others}
    tied = [f"{title(x)}: speedup {shown(y)}" for x, y in ratios.items() if y and y.tie]
    return f"**Millstream ties** with {' and '.join(tied)}."


def link(workload: str, contender: str) -> str:
    """The name of a contender, with a link to its file."""
    folder = WORKLOADS[workload].folder or workload
    file = f"../benchmarks/workloads/{folder}/{contender}.py"
    return f"[{title(contender)}]({file})"


def cells(results: Results, workload: str, name: str, extra: list[str]) -> list[str]:
    """The row of a contender."""
    outcome = results.outcomes[workload][name]
    unit = UNITS[WORKLOADS[workload].unit]
    values = [unit.value(each) for each in outcome.times(WORKLOADS[workload].measure)]
    found = ratio(results, workload, name)
    cpu = statistics.median(outcome.times("cpu")) * unit.cpu_scale
    more = (outcome.extra.get(each) for each in extra)
    return [
        link(workload, name),
        str(kind(name)),
        digits(statistics.median(values)),
        spread(values),
        shown(found) if found else "",
        *([digits(cpu)] if unit.cpu else []),
        f"{max(run.peak_mib for run in outcome.runs):,}",
        *("" if value is None else f"{value:,.0f}" for value in more),
    ]


def table(results: Results, workload: str) -> list[str]:
    """The section of a workload: its table, sorted by speed, and who is first."""
    timed = results.timed(workload)
    extra = sorted({name for outcome in timed.values() for name in outcome.extra})
    unit = UNITS[WORKLOADS[workload].unit]
    heads = ["contender", "kind", WORKLOADS[workload].unit, "range"]
    heads += ["Millstream's speedup", *([unit.cpu] if unit.cpu else [])]
    heads += ["peak RSS, MiB", *extra]
    ranked = sorted(timed, key=lambda name: level(timed[name], workload))
    lines = [f"### {workload}", f"{WORKLOADS[workload].title}.", ""]
    if ranked:
        lines += [row(heads), row(["---", "---", *["---:"] * (len(heads) - 2)])]
        lines += [row(cells(results, workload, name, extra)) for name in ranked]
        lines += ["", verdict(results, workload), ""]
    for name in ranked:
        if kind(name) is Kind.LIMIT:
            lines.append(f"- {title(name)} (limit): {note(workload, name)}")
    for name, outcome in results.outcomes[workload].items():
        if not outcome.ok:
            reason = f"{outcome.status}: {outcome.detail}"
            lines.append(f"- {title(name)} (not timed): {reason}")
    return [*lines, ""] if lines[-1] else lines


def setting(results: Results) -> str:
    """The date, the machine and the versions of a run."""
    machine = results.machine
    versions = ", ".join(f"{name} {each}" for name, each in results.versions().items())
    return (
        f"Measured on {results.date} at commit {results.commit}, in "
        f"{results.minutes:.0f} minutes, on {machine['cores']} cores "
        f"({machine['processor']}) with {machine['memory_gib']} GiB of memory, "
        f"{machine['system']} and Python {machine['python']}. Versions: {versions}."
    )


def tables(results: Results) -> str:
    """The sections of all workloads of a run."""
    lines = [setting(results), ""]
    for workload in WORKLOADS:
        if results.outcomes.get(workload):
            lines += table(results, workload)
    return "\n".join(lines)


def readme(results: Results) -> str:
    """The tables of the README: rates of a few workloads, and who is first in each."""
    names = {name: None for each in SHOWN for name in results.timed(each)}
    heads = [
        "k samples/s",
        *(f"[{each}](docs/performance.md#{each})" for each in SHOWN),
    ]
    lines = [row(heads), row(["---", *["---:"] * len(SHOWN)])]
    for name in sorted(names, key=lambda name: list(CONTENDERS).index(name)):
        values = [results.timed(each).get(name) for each in SHOWN]
        rates = [
            digits(UNITS["k samples/s"].value(level(value, workload))) if value else ""
            for value, workload in zip(values, SHOWN, strict=True)
        ]
        suffix = f" ({kind(name)})" if kind(name) in (Kind.HAND, Kind.LIMIT) else ""
        lines.append(row([title(name) + suffix, *rates]))
    lines += ["", row(["workload", "who is first"]), row(["---", "---"])]
    for workload in WORKLOADS:
        if leaders(results, workload):
            name = f"[{workload}](docs/performance.md#{workload})"
            lines.append(row([name, verdict(results, workload)]))
    return "\n".join(lines)


def replaced(path: Path, text: str) -> str:
    """The content of a file with the text between its two markers replaced."""
    content = path.read_text()
    head, _, rest = content.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{text.rstrip()}\n{END}{tail}"


def disagreements(one: Results, other: Results) -> list[str]:
    """The workloads in which two runs name different leaders."""
    return [
        f"{workload}: {leaders(one, workload)} and {leaders(other, workload)}"
        for workload in one.outcomes.keys() & other.outcomes.keys()
        if leaders(one, workload)
        and not set(leaders(one, workload)) & set(leaders(other, workload))
    ]


def main() -> int:
    """Writes or checks the two files, or compares two runs. Returns the exit status."""
    results = Results.read(Path(sys.argv[1]))
    if "--compare" in sys.argv:
        found = disagreements(results, Results.read(Path(sys.argv[-1])))
        print("\n".join(found) or "the two runs agree on who is first")
        return 1 if found else 0
    pages = {PAGE: tables(results), README: readme(results)}
    stale = [path for path in pages if path.read_text() != replaced(path, pages[path])]
    if "--check" not in sys.argv:
        for path in stale:
            path.write_text(replaced(path, pages[path]))
        return 0
    for path in stale:
        print(f"{path.name} does not match {sys.argv[1]}: run benchmarks/report.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
