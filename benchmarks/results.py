"""The results of a run: what was measured of each contender, kept as JSON."""

import json
import math
import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from catalogue import CONTENDERS, Kind
from processes import Round


@dataclass
class Timing:
    """Every repetition of one variant of a contender, over all rounds."""

    samples: int
    seconds: list[float] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """The seconds of the fastest repetition."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The seconds of the repetition in the middle."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Samples a second of the fastest repetition."""
        return self.samples / self.best

    def add(self, measurement: dict[str, Any]) -> None:
        """Takes in another round; of other numbers the smallest is kept."""
        self.seconds += measurement["seconds"]
        for name, value in measurement["extra"].items():
            self.extra[name] = min(value, self.extra.get(name, math.inf))


@dataclass
class Outcome:
    """What became of a contender in a workload."""

    status: str = "ok"
    detail: str = ""
    peak_mib: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)

    @property
    def judged(self) -> bool:
        """Whether the contender ran to its end: it was timed, or found wrong."""
        return self.status in ("ok", "wrong")

    def add(self, done: Round) -> None:
        """Takes in a round; one that is not ok makes the whole outcome so."""
        if done.status != "ok":
            self.status, self.detail = done.status, done.detail
            return
        self.peak_mib = max(self.peak_mib, done.peak_mib)
        self.versions |= done.versions
        for each in done.measurements:
            timing = self.timings.setdefault(each["variant"], Timing(each["samples"]))
            timing.add(each)


@dataclass
class Results:
    """The outcomes of a run by workload and contender, and the machine it ran on."""

    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_this_machine(cls) -> Self:
        """No outcomes yet."""
        return cls(
            machine={
                "system": platform.system(),
                "architecture": platform.machine(),
                "python": platform.python_version(),
                "cores": len(os.sched_getaffinity(0)),
            }
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """The results that `write` wrote."""
        content = json.loads(path.read_text())
        outcomes = {
            workload: {
                contender: Outcome(
                    **outcome
                    | {
                        "timings": {
                            variant: Timing(**timing)
                            for variant, timing in outcome["timings"].items()
                        }
                    }
                )
                for contender, outcome in contenders.items()
            }
            for workload, contenders in content["outcomes"].items()
        }
        return cls(outcomes, content["machine"])

    def write(self, path: Path) -> None:
        """Writes the results as JSON, making the folder if need be."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def timing(self, workload: str, contender: str, variant: str = "") -> Timing | None:
        """The timing of a contender, or None if it has none that counts."""
        outcome = self.outcomes.get(workload, {}).get(contender)
        if outcome is None or outcome.status != "ok":
            return None
        return outcome.timings.get(variant)

    def timings(
        self, workload: str, kind: Kind, variant: str = ""
    ) -> Iterator[tuple[str, Timing]]:
        """The contenders of a kind that have a timing, with it."""
        for contender in self.outcomes.get(workload, {}):
            timing = self.timing(workload, contender, variant)
            if timing is not None and CONTENDERS[contender].kind is kind:
                yield contender, timing

    def best_peer(self, workload: str, variant: str = "") -> Timing | None:
        """The timing of the fastest peer, or None without peers."""
        peers = self.timings(workload, Kind.PEER, variant)
        return max(
            (timing for _, timing in peers), key=lambda each: each.rate, default=None
        )
