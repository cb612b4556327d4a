"""The results of a run: the measurements of each contender, stored as JSON."""

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self


@dataclass
class Run:
    """The rounds of one process: wall time and CPU time in seconds."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak_mib: int = 0

    def add(self, times: dict[str, Any]) -> None:
        """Adds the times of a round."""
        self.seconds.append(times["seconds"])
        self.cpu.append(times["cpu"])
        self.peak_mib = times["peak_mib"]

    @property
    def median(self) -> float:
        """The median wall time of a round in seconds."""
        return statistics.median(self.seconds)

    @property
    def median_cpu(self) -> float:
        """The median CPU time of a round in seconds."""
        return statistics.median(self.cpu)


@dataclass
class Outcome:
    """The result of a contender.

    `status` is `ok`, `wrong`, `failed`, `missing` or `late`.
    """

    status: str = "ok"
    detail: str = ""
    samples: int = 0
    extra: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether its times are valid."""
        return self.status == "ok"

    def fail(self, status: str, detail: str) -> None:
        """Marks the times as invalid, and stores why."""
        self.status, self.detail = status, detail

    def describe(self, ready: dict[str, Any]) -> None:
        """Stores what the contender reports when it is ready."""
        self.samples, self.versions = ready["samples"], ready["versions"]
        self.extra = ready["extra"]

    def times(self, measure: str) -> list[float]:
        """The median seconds per sample of each run, of `wall` or `cpu` time."""
        medians = [
            run.median if measure == "wall" else run.median_cpu for run in self.runs
        ]
        return [each / self.samples for each in medians]


@dataclass
class Results:
    """The outcomes by workload and contender, with the machine, date and commit."""

    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    date: str = ""
    commit: str = ""
    minutes: float = 0

    @classmethod
    def of_this_machine(cls, commit: str) -> Self:
        """Results without outcomes, which describe this machine."""
        return cls(
            machine={
                "system": f"{platform.system()} {platform.machine()}",
                "processor": processor(),
                "cores": len(os.sched_getaffinity(0)),
                "memory_gib": round(memory_bytes() / 2**30),
                "python": platform.python_version(),
            },
            date=datetime.now(UTC).date().isoformat(),
            commit=commit,
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """The results that `write` wrote."""
        content = json.loads(path.read_text())
        for contenders in content["outcomes"].values():
            for name, outcome in contenders.items():
                runs = [Run(**run) for run in outcome.pop("runs")]
                contenders[name] = Outcome(**outcome, runs=runs)
        return cls(**content)

    def write(self, path: Path) -> None:
        """Writes the results as JSON. Creates the folder if it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rounded = json.loads(
            json.dumps(asdict(self)),
            parse_float=lambda text: float(f"{float(text):.5g}"),
        )
        path.write_text(json.dumps(rounded, indent=1) + "\n")

    def timed(self, workload: str) -> dict[str, Outcome]:
        """The outcomes of a workload whose times are valid."""
        outcomes = self.outcomes.get(workload, {})
        return {name: each for name, each in outcomes.items() if each.ok}

    def versions(self) -> dict[str, str]:
        """The versions of all packages that the run used."""
        seen: dict[str, set[str]] = {}
        for outcomes in self.outcomes.values():
            for outcome in outcomes.values():
                for package, version in outcome.versions.items():
                    seen.setdefault(package, set()).add(version)
        return {name: " and ".join(sorted(seen[name])) for name in sorted(seen)}


@dataclass(frozen=True)
class Ratio:
    """How many times faster one contender is than another, in each run."""

    runs: list[float]

    @classmethod
    def of(cls, fast: Outcome, slow: Outcome, measure: str) -> Self:
        """The ratio of the medians, run by run."""
        pairs = zip(fast.times(measure), slow.times(measure), strict=True)
        return cls([theirs / max(ours, 1e-12) for ours, theirs in pairs])

    @property
    def median(self) -> float:
        """The median of the runs, which the pages quote."""
        return statistics.median(self.runs)

    @property
    def tie(self) -> bool:
        """Whether neither is faster.

        The median is within 5% of 1, or within 25% with runs on both sides of 1. The
        range is rounded as it is printed.
        """
        low, high = round(min(self.runs), 2), round(max(self.runs), 2)
        close = 0.8 < self.median < 1.25
        return abs(self.median - 1) < 0.05 or (close and low <= 1 <= high)


def processor() -> str:
    """The name of the processor from /proc/cpuinfo."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
    return next(names, "unknown")


def memory_bytes() -> int:
    """The size of the physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
