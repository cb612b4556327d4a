"""What Millstream is to reach, as ratios within one run."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from catalogue import ALONE, BEYOND, CONTENDERS, Kind, contenders_of
from results import Outcome, Results, Timing

OURS = "millstream"


@dataclass(frozen=True)
class Target:
    """A number to reach: `measured` gives it, or None if the run cannot tell."""

    workload: str
    text: str
    measured: Callable[[Results], float | None]
    bound: float
    at_least: bool = True
    unit: str = "x"

    def met(self, value: float) -> bool:
        """Whether a measured value reaches the target."""
        return value >= self.bound if self.at_least else value <= self.bound


def over(workload: str, rival: str) -> Callable[[Results], float | None]:
    """How many times as fast as a rival we are; `""` is the best peer."""

    def measured(results: Results) -> float | None:
        ours = results.timing(workload, OURS)
        if rival:
            theirs = results.timing(workload, rival)
        else:
            theirs = best_of_all_peers(results, workload)
        return ours.rate / theirs.rate if ours and theirs else None

    return measured


def best_of_all_peers(results: Results, workload: str) -> Timing | None:
    """The fastest peer, or None if any was left out or could not be run."""
    outcomes = results.outcomes.get(workload, {})
    peers = (each for each in contenders_of(workload) if is_peer(each))
    judged = all(each in outcomes and outcomes[each].judged for each in peers)
    return results.best_peer(workload) if judged else None


def is_peer(contender: str) -> bool:
    """Whether a contender is another project's loader."""
    return CONTENDERS[contender].kind is Kind.PEER


def ours_scaled(results: Results) -> Outcome | None:
    """Our outcome of `scaling`, or None if it has no timings that count."""
    outcome = results.outcomes.get("scaling", {}).get(OURS)
    return outcome if outcome and outcome.status == "ok" and outcome.timings else None


def growth(results: Results) -> float | None:
    """The time of a step at the largest N as a multiple of that at the smallest."""
    if (outcome := ours_scaled(results)) is None:
        return None
    times = [timing.best for timing in outcome.timings.values()]
    return times[-1] / times[0]


def state_bytes(results: Results) -> float | None:
    """The bytes of the largest state of any N."""
    if (outcome := ours_scaled(results)) is None:
        return None
    return max(timing.extra["state_bytes"] for timing in outcome.timings.values())


def hidden(contender: str) -> Callable[[Results], float | None]:
    """A contender's time of `disk_cold` over the larger of reading and computing.

    The median of the epochs, each over the one of computing before it.
    """

    def measured(results: Results) -> float | None:
        both = results.timing("disk_cold", contender)
        computing = results.timing("disk_cold", contender, ALONE)
        reading = results.timing("disk_cold", "read_alone")
        if not (both and computing and reading):
            return None
        limits = [max(each, reading.median) for each in computing.seconds]
        pairs = zip(both.seconds, limits, strict=True)
        return median(epoch / limit for epoch, limit in pairs)

    return measured


def opened(results: Results) -> Timing | None:
    """Our timing of `disk_open`."""
    return results.timing("disk_open", OURS)


def open_time(results: Results) -> float | None:
    """The milliseconds of opening a source of 1e8 rows."""
    timing = opened(results)
    return timing.best * 1e3 if timing else None


def open_memory(results: Results) -> float | None:
    """The megabytes that a source of 1e8 rows holds once it is open."""
    timing = opened(results)
    return timing.extra["memory_bytes"] / 1e6 if timing else None


def import_added(results: Results) -> float | None:
    """The milliseconds that our import adds to that of JAX."""
    ours = results.timing("start_import", OURS)
    alone = results.timing("start_import", "jax_alone")
    return (ours.best - alone.best) * 1e3 if ours and alone else None


def hand_over(results: Results) -> float | None:
    """What a batch of blocks takes beyond the function, in percent of a memcpy.

    By medians: of differences the smallest means nothing.
    """
    beyond = results.timing("python_large", OURS, BEYOND)
    copy = results.timing("python_large", "memcpy")
    return beyond.median / copy.median * 100 if beyond and copy else None


def idle_cpu(results: Results) -> float | None:
    """The CPU milliseconds a second that our idle workers use."""
    workers = results.timing("python_idle", OURS, "workers")
    return workers.best * 1e3 if workers else None


TARGETS = (
    Target("host_loop", "over the best peer", over("host_loop", ""), 5),
    Target(
        "host_loop",
        "over np.take(out=) + device_put",
        over("host_loop", "numpy_take_put"),
        1,
    ),
    Target(
        "host_loop_normalized",
        "over the best peer",
        over("host_loop_normalized", ""),
        3,
    ),
    Target(
        "in_jit",
        "over scan + take, permutation given",
        over("in_jit", "scan_take_given"),
        1.3,
    ),
    Target(
        "in_jit",
        "over scan + dynamic_slice, no shuffle",
        over("in_jit", "scan_slice"),
        1,
    ),
    Target("in_jit", "over cyreal's scan_epoch", over("in_jit", "cyreal_scan"), 40),
    Target(
        "in_jit_network",
        "over scan + dynamic_slice, no shuffle",
        over("in_jit_network", "scan_slice"),
        0.98,
    ),
    Target("scaling", "a step at 1e9 over one at 1e4", growth, 1.5, at_least=False),
    Target("scaling", "the state at any N", state_bytes, 64, False, "B"),
    Target(
        "disk_jit",
        "over the same in memory",
        over("disk_jit", "millstream_memory"),
        0.95,
    ),
    Target("disk_jit", "over cyreal's DiskSource", over("disk_jit", "cyreal_disk"), 40),
    Target(
        "disk_loop",
        "over the same in memory",
        over("disk_loop", "millstream_memory"),
        0.9,
    ),
    Target(
        "disk_cold",
        "in scan_epoch, of the larger of reading and computing",
        hidden(OURS),
        1.15,
        at_least=False,
    ),
    Target(
        "disk_cold",
        "in a loop, of the larger of reading and computing",
        hidden("millstream_loop"),
        1.15,
        at_least=False,
    ),
    Target("disk_open", "time", open_time, 1, False, "ms"),
    Target("disk_open", "memory", open_memory, 1, False, "MB"),
    Target(
        "sharded_loop",
        "over one device",
        over("sharded_loop", "millstream_whole"),
        0.9,
    ),
    Target("resume", "over step 0", over("resume", "millstream_start"), 1 / 1.2),
    Target("start_import", "added to import jax", import_added, 20, False, "ms"),
    Target("start_batch", "over by hand", over("start_batch", "by_hand"), 1 / 1.05),
    Target(
        "python_gil",
        "over two bare processes",
        over("python_gil", "bare_processes"),
        0.97,
    ),
    Target("python_gil", "over the best peer", over("python_gil", ""), 1),
    Target("python_trivial", "over torch", over("python_trivial", "torch_workers"), 5),
    Target("python_trivial", "over hydrax", over("python_trivial", "hydrax"), 5),
    Target("python_large", "hand-over of a memcpy", hand_over, 5, False, "%"),
    Target("python_idle", "used by our workers", idle_cpu, 1, False, "ms/s"),
)
