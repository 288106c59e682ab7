"""Where the time of `inference_speed.py` goes, and the least that bare numpy needs for it."""

from __future__ import annotations

import cProfile
import pstats
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

BLOCK = 25_000
"""Annotations that GLAD's arrays hold at a time, so that they stay in the cache."""


def alpha_floor(crowd: dict[str, Any], n_classes: int, _: int) -> Callable[[], Any]:
    """Count the classes of every instance in one array, and list what was counted."""
    import numpy as np

    instance, label = crowd["instance"], crowd["label"]
    size = (int(instance.max()) + 1) * n_classes

    def run() -> Any:
        counts = np.bincount(instance * np.int32(n_classes) + label, minlength=size)
        return counts[np.flatnonzero(counts)]

    return run


def glad_floor(crowd: dict[str, Any], n_classes: int, n_evaluations: int) -> Callable[[], Any]:
    """As many times as the optimiser evaluates: look up, multiply, exp, tanh, sum up twice."""
    import numpy as np

    annotator, instance = crowd["annotator"], crowd["instance"]
    rng = np.random.default_rng(0)
    ability, beta = rng.random(int(annotator.max()) + 1), rng.random(int(instance.max()) + 1)
    blocks = []
    for first in range(0, len(annotator), BLOCK):
        own, start = np.unique(instance[first : first + BLOCK], return_index=True)
        size = np.diff(start, append=len(instance[first : first + BLOCK]))
        blocks.append((annotator[first : first + BLOCK], beta[own], size, start))

    def run() -> None:
        for _ in range(n_evaluations):
            for who, difficulty, size, start in blocks:
                beta = np.repeat(difficulty, size)
                x = ability[who] * beta
                tail, p = np.exp(-np.abs(x)), np.tanh(x)
                tail.sum()
                np.bincount(who, p * beta, len(ability))
                np.add.reduceat(p * x, start)

    return run


FLOORS = {"alpha": alpha_floor, "glad": glad_floor}


def first_and_again(call: Callable[[], Any], times: int = 10) -> dict[str, float]:
    """CPU seconds of the first call and of the best of some more."""
    seconds = []
    for _ in range(times + 1):
        started = time.process_time()
        call()
        seconds.append(time.process_time() - started)
    return {"first": seconds[0], "again": min(seconds[1:])}


def calls_of(call: Callable[[], Any], times: int) -> dict[Any, Any]:
    """Profile some calls: (file, line, function) -> (calls, .., own time, ..)."""
    watch = cProfile.Profile(time.process_time)
    watch.runcall(lambda: [call() for _ in range(times)])
    return pstats.Stats(watch).stats


def profile(call: Callable[[], Any]) -> dict[str, Any]:
    """Seconds, and the six functions with the largest own time in ten profiled calls."""
    found: dict[str, Any] = first_and_again(call)
    functions = calls_of(call, 10)
    total = sum(own for _, _, own, *_ in functions.values())
    parts = sorted(((own / total, name) for (*_, name), (_, _, own, *_) in functions.items()))
    found["parts"] = [[name.strip("<>"), share] for share, name in reversed(parts[-6:])]
    return found


def beside_floor(call: Callable[[], Any]) -> dict[str, Any]:
    """Seconds, and how often an optimiser evaluates its objective in a call (0 without one)."""
    found: dict[str, Any] = first_and_again(call, 3)
    calls = {name: n for (*_, name), (n, *_) in calls_of(call, 1).items()}
    return found | {"evaluations": calls.get("expected", 0)}


# -- page -----------------------------------------------------------------------------------------


def short(value: float | None) -> str:
    """Format with three digits; a dash stands for a missing or zero value."""
    if not value:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def profile_lines(
    profiles: dict[str, Any], labels: dict[str, str], found: dict[str, Any]
) -> Iterator[str]:
    """Yield where our time goes; ``found`` has the figures of all cells."""
    if not profiles:
        return
    yield "\n## Where the time goes\n"
    yield (
        "The tables above time the first call of a process on the annotations. Repeated in the "
        "same process, a call does not wait for memory that the system hands out page by page. "
        "CPU seconds of the first call and of the best of ten more; how often the latter goes "
        "into crowd-kit's time; the functions with the largest own time. Alpha is one pass: it "
        "counts classes in one array (`_counted`) and lists its cells (`nonzero`). On first use, "
        "the system hands out that array and the results, so only first calls miss the target. In "
        "GLAD no function stands out: every step of the optimiser looks up two parameters per "
        "annotation, and takes an exponential, a hyperbolic tangent and sums.\n"
    )
    yield "| annotations | classes | system | first call | again | × ours, again | own time |"
    yield "|---" * 7 + "|"
    for problem, figures in profiles.items():
        key, n, c = re.split("[@x]", problem)
        peer = found.get(f"ck_{problem}", {}).get("cpu")
        ratio = short(peer / figures["again"]) if peer else "–"
        parts = ", ".join(f"`{name}` {share:.0%}" for name, share in figures["parts"])
        yield (
            f"| {int(n):,} | {c} | {labels[key]} | {short(figures['first'])} "
            f"| {short(figures['again'])} | {ratio} | {parts} |"
        )


def floor_lines(
    floors: dict[str, Any], labels: dict[str, str], found: dict[str, Any], targets: dict[str, Any]
) -> Iterator[str]:
    """Yield how near the floor we are; ``targets`` are times crowd-kit's speed, by our key."""
    if not floors:
        return
    yield "\n## How much faster it could be\n"
    yield (
        "The floor is what bare numpy takes for operations that no implementation on numpy can "
        "leave out. For alpha they are one count of (instance, class), and one list of what was "
        "counted. For GLAD they are, in every evaluation by its optimiser, two parameters looked "
        "up per annotation, a product, an exponential, a hyperbolic tangent and sums by annotator "
        "and by instance; the E-steps and the optimiser itself come on top. The floor as a share "
        "of our time is the median of pairs of processes, one after the other, so the load of the "
        "machine hardly matters. *At the floor*: how many times as fast as crowd-kit we would be.\n"
    )
    heads = (
        *("annotations", "classes", "system", "target", "measured", "fastest process"),
        *(
            "floor, first call",
            "floor, again",
            "evaluations",
            "at the floor",
            "share that the target needs",
        ),
    )
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for problem, pairs in floors.items():
        key, n, c = re.split("[@x]", problem)
        first, again = (
            statistics.median(pair["floor"][k] / pair["ours"][k] for pair in pairs)
            for k in ("first", "again")
        )
        peer, ours = found.get(f"ck_{problem}", {}), found.get(problem, {})
        ratio = peer.get("ratio")
        fastest = peer["cpu"] / float(ours["spread"].split("–")[0]) if ratio else None
        needed = targets[key] / (ratio / first) if ratio else None
        cells = (
            *(f"{targets[key]:g} ×", short(ratio), short(fastest), f"{first:.0%}", f"{again:.0%}"),
            short(pairs[0]["ours"]["evaluations"]),
            short(ratio / first) if ratio else "–",
            f"{needed:.0%}" if needed else "–",
        )
        yield f"| {int(n):,} | {c} | {labels[key]} | {' | '.join(cells)} |"
    yield ""
    yield (
        "The last column is how much of our first call the floor would have to be. Alpha with ten "
        "classes would have to do hardly more than count and list, so its target is given up for "
        "first calls; repeated calls meet it (above). GLAD with two classes is so near its target "
        "that processes differ by more, and repeated calls meet it, too."
    )
