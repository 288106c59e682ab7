"""The guard of self-training: what it stops, what it lets pass, and what it costs.

Every run trains all five rounds with the guard's measures but no alarm, and records the test
accuracy of every round. (Where agreement falls below that of chance, the guard always steps in; the
rounds are then those of a fit without it.) Which round a margin would have kept follows from that,
so the runs serve every margin; as long as the guard is silent, a guarded fit is the unguarded one.

The margin is chosen on simulated crowds, whose truth is known, with one condition from the real
sets: LabelMe's gain must survive it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from scipy.stats import t
from sklearn.datasets import load_digits, make_classification

import manyhands as mh
from benchmarks.bars import Row, dots
from evidence import Data
from evidence.data import make_long_tailed_cifar10h, remove_annotations
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import Study
from evidence.tables import Record, days, groups, listing, spread, table, where
from manyhands import datasets
from manyhands.classifiers.self_training.guard import LEAST_Z, MARGIN
from manyhands.fitting import Watch, with_protocol
from manyhands.sampling import ConfidenceSelector
from manyhands.sampling.selectors import RandomSelector
from manyhands.typing import FloatArray, IntArray

SEEDS = range(3)
FRESH_SEEDS = range(3, 13)
NO_ALARM = 0.999
"""The largest margin: only agreement below that of chance is an alarm."""

MARGINS = (0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3)
LEAST_ZS = (1.0, 1.5, 2.0)


# -- data sets ------------------------------------------------------------------------------------


def real(
    load: Callable[..., Any], n: int | None = None, removed: float = 0.0, seeded: bool = False
) -> Callable[[int], Data]:
    """Return a maker of a real set, with some instances of it and some annotations removed."""

    def make(seed: int) -> Data:
        data = load(random_state=seed) if seeded else load()
        rng = np.random.default_rng(seed)
        rows = np.arange(data.annotations.n_instances)
        if n is not None:
            rows = np.sort(rng.choice(rows, n, replace=False))
        table = data.annotations[rows]
        table = table.select(annotators=table.annotations_per_annotator() > 0)
        found = Data(data.X_train[rows], table, X_test=data.X_test, y_test=data.y_test)
        return remove_annotations(found, removed, random_state=seed)

    return make


def six_classes(
    activity: str, separation: float = 1.5, votes: float = 10.0
) -> Callable[[int], Data]:
    """Return a maker of 268 instances of six classes, annotated by 82 annotators."""

    def make(seed: int) -> Data:
        n, n_annotators, rng = 268, 82, np.random.RandomState(seed)
        X, y = make_classification(
            n + 1000,
            64,
            n_informative=20,
            n_redundant=20,
            n_classes=6,
            class_sep=separation,
            random_state=seed,
        )
        confusion = np.zeros((n_annotators, 6, 6))
        for c in range(6):
            error = rng.uniform(0.2, 0.7, size=n_annotators)
            others = np.delete(np.arange(6), c)
            confusion[:, c, others] = error[:, None] * rng.dirichlet(np.full(5, 0.5))
            confusion[:, c, c] = 1 - error
        return _simulated(X, y, n, confusion, votes, activity, seed)

    return make


def digits(votes: float, error: float, n_annotators: int = 60) -> Callable[[int], Data]:
    """Return a maker of 600 digits."""

    def make(seed: int) -> Data:
        X, y = load_digits(return_X_y=True)
        order = np.random.RandomState(seed).permutation(len(y))
        noise = {"noise_strength": error, "n_annotators": n_annotators}
        return _simulated(X[order], y[order], 600, noise, votes, "skewed", seed)

    return make


def _simulated(
    X: FloatArray, y: IntArray, n: int, noise: Any, votes: float, activity: str, seed: int
) -> Data:
    given = {"noise": noise, "n_annotators": len(noise)} if isinstance(noise, np.ndarray) else noise
    table = datasets.make_crowd(
        y[:n],
        annotations_per_instance=votes,
        activity=activity,
        classes=np.unique(y),
        random_state=seed,
        **given,
    )
    X = X.astype(np.float32)
    return Data(X[:n], table, X_test=X[n:], y_test=y[n:])


AS_PUBLISHED = "LabelMe, DASC's protocol"
"""The set whose estimators are trained by the named protocol dasc_labelme."""

SETS: dict[str, Callable[[int], Data]] = {
    "LabelMe": real(datasets.load_labelme),
    AS_PUBLISHED: real(datasets.load_labelme),
    "Music": real(datasets.load_music),
    "Sentiment": real(datasets.load_sentiment, 250),
    "Product": real(datasets.load_product, 1500),
    "Colposcopy": real(datasets.load_colposcopy),
    "Colposcopy, half": real(datasets.load_colposcopy, None, 0.5),
    "Reports": real(datasets.load_reports),
    "Reports, half": real(datasets.load_reports, None, 0.5),
    "CIFAR-10N": real(datasets.load_cifar10n, 500),
    "CIFAR10-H, long tail": real(make_long_tailed_cifar10h, seeded=True),
}
LARGER = {
    "CIFAR-10N, 2,000": real(datasets.load_cifar10n, 2000),
    "Sentiment, 1,500": real(datasets.load_sentiment, 1500),
}


SIMULATED: dict[str, Callable[[int], Data]] = {
    "six classes, even workloads": six_classes("even"),
    "six classes, skewed workloads": six_classes("skewed"),
    "six classes, apart": six_classes("even", 2.5),
    "digits, 4 votes": digits(4.0, 0.5),
}
SPARSE: dict[str, Callable[[int], Data]] = {
    "six classes, 3 votes": six_classes("skewed", 2.5, 3.0),
    "digits, 2 votes": digits(2.0, 0.5),
    "digits, 4 votes of 8": digits(4.0, 0.5, 8),
}
"""Further simulated crowds, on which the default of ``n_select`` was decided."""

MAKERS = SIMULATED | SPARSE | SETS | LARGER
FEW_STEPS = "Crowd Layer, rms, 50 steps"

DEFAULT = float(mh.DASCClassifier().n_select)
CANDIDATES = (1.0, 4.0)
"""Values of ``n_select`` between which the default was chosen."""

BASES: dict[str, Callable[[], Any]] = {
    "AggNet": mh.AggNetClassifier,
    "CoNAL": mh.CoNALClassifier,
    "Crowd Layer": mh.CrowdLayerClassifier,
    "network on majority votes": mh.AggregatedClassifier,
    FEW_STEPS: partial(mh.CrowdLayerClassifier, scaling="rms", max_epochs=25, batch_size=512),
}

SIMULATED_BASES = ("AggNet", "Crowd Layer")
REAL_BASES = ("AggNet", "CoNAL", "Crowd Layer")


# -- runs -----------------------------------------------------------------------------------------


class OneClassSelector(RandomSelector):
    """Draw cells uniformly, and label a share of them with one and the same class: a collapse."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def _judge(
        self, distribution: FloatArray, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        spoilt, rank = rng.random((len(distribution), 2)).T
        label = distribution.argmax(axis=1)
        return np.where(spoilt < self.share, label.dtype.type(0), label), rank


def selecting(selector: Any) -> Callable[..., Any]:
    """Self-training with a selector."""
    return lambda base, **given: mh.SelfTrainingCrowdClassifier(base, selector(), **given)


METHODS: dict[str, Callable[..., Any]] = {
    "DASC": mh.DASCClassifier,
    "by confidence": selecting(ConfidenceSelector),
    "half of one class": selecting(partial(OneClassSelector, 0.5)),
    "all of one class": selecting(OneClassSelector),
}

COLLAPSING = list(METHODS)[1:]
"""Methods that annotate without regard to the classes' distribution."""

TRAININGS = [
    (name, "DASC", n_select, base)
    for name in ("LabelMe", "Music")
    for base in ("Crowd Layer", FEW_STEPS)
    for n_select in CANDIDATES
    if (base, n_select) != ("Crowd Layer", DEFAULT)
]
"""Sets, methods, ``n_select`` and bases that show what the training of the base is worth."""

CLOSE = (
    ("Music", "Crowd Layer"),
    ("Music", "CoNAL"),
    ("CIFAR-10N", "CoNAL"),
    ("LabelMe", "Crowd Layer"),
)
"""Sets and bases whose means over three seeds miss the target, by less than their spread."""

HARDER = ("Colposcopy, half", "Reports, half")
"""Sets that are harder than those of record: theirs are complete, so DASC adds nothing."""

PUBLISHED = 10_000
"""Annotations per round in DASC's protocol of LabelMe."""


Place = tuple[str, str, float, str]
"""Set, method, ``n_select`` and base."""


def around(names: Iterable[str], bases: Iterable[str], n_selects: Any = ()) -> list[Place]:
    """DASC on sets, around bases, with the default number of annotations or with others."""
    return [
        (name, "DASC", n, base) for n in n_selects or (DEFAULT,) for base in bases for name in names
    ]


def places(part: str) -> list[Place]:
    """Return what to run for a part of the page."""
    own = [name for name in SETS if name != AS_PUBLISHED]
    published = [(AS_PUBLISHED, m, PUBLISHED, "Crowd Layer") for m in ("DASC", COLLAPSING[0])]
    numbers = around((*SPARSE, *SIMULATED), ["Crowd Layer"], CANDIDATES)
    return {
        "simulated": around(SIMULATED, SIMULATED_BASES) + collapses(DEFAULT),
        "real": [*around(own, REAL_BASES), *published, *TRAININGS],
        "n_select": numbers + [place for n in CANDIDATES for place in collapses(n)],
        "larger": around(LARGER, REAL_BASES[1:]),
        "fresh": [(name, "DASC", DEFAULT, base) for name, base in CLOSE],
        "fallback": around(HARDER, REAL_BASES) + around(SIMULATED, SIMULATED_BASES),
    }[part]


def collapses(n_select: float) -> list[Place]:
    """Return simulated collapses, on which a guard has to step in."""
    return [
        (name, method, n_select, "network on majority votes")
        for name in ("six classes, apart", "digits, 4 votes")
        for method in COLLAPSING
    ]


def accuracies(model: Any, problem: Data) -> list[float]:
    """Fit, and return the test accuracy of every round."""
    watch = Watch(test=(problem.X_test, problem.y_test))
    model.fit(problem.X_train, problem.annotations, watch=watch)
    found: list[float] = model.history_.column("test_accuracy").round(4).tolist()
    return found


def chance(table: mh.AnnotationTable) -> float:
    """Return the agreement of naming the most frequent class always."""
    counts = table.vote_counts()
    counts = counts[counts.any(axis=1)]
    return float((counts / counts.sum(axis=1, keepdims=True)).mean(axis=0).max())


# -- what a margin does ---------------------------------------------------------------------------


def kept(record: dict[str, Any], margin: float = MARGIN, least_z: float = LEAST_Z) -> int:
    """Return the round that the guard keeps: the one before the first fall, if it ends badly."""
    certain = [z < -least_z for z in record["z"]]
    if certain and certain[-1] and change(record) < -margin:
        falls = [c or change(record, i) < -margin for i, c in enumerate(certain)]
        return falls.index(True) - 1
    return len(record["accuracy"]) - 1


def change(record: dict[str, Any], number: int = -1) -> float:
    """Return the change in agreement of a round, as a share of round 0's above chance."""
    first, now = record["agreement"][0], record["agreement"][number]
    above = max(first - record["chance"], 1e-9)
    return float((now - first) / above)


def gain(record: dict[str, Any], number: int) -> float:
    """Return the accuracy of a round less that of the base, in points."""
    return 100 * float(record["accuracy"][number] - record["accuracy"][0])


PLACE = ("set", "method", "n_select", "base")


def cells(part: str) -> Iterator[Record]:
    """Yield the cells of a part, seed by seed."""
    for seed in FRESH_SEEDS if part == "fresh" else SEEDS:
        for place in places(part):
            yield dict(zip(PLACE, place, strict=True)) | {"seed": seed}


def measure(set: str, method: str, n_select: float, base: str, seed: int) -> Record:
    """Train all rounds of one cell; return what the guard and the test part say of each."""
    problem, estimator = MAKERS[set](seed), BASES[base]()
    given = {"random_state": seed, "n_select": n_select}
    if set == AS_PUBLISHED:
        estimator = with_protocol(estimator, "dasc_labelme")
    started = perf_counter()
    model = METHODS[method](estimator, guard=NO_ALARM, **given)
    accuracy = accuracies(model, problem)
    seconds = perf_counter() - started
    if len(accuracy) < len(model.guard_history_):  # Agreement fell below chance: an alarm always.
        accuracy = accuracies(METHODS[method](estimator, guard=False, **given), problem)
    return {
        "accuracy": accuracy,
        "chance": round(chance(problem.annotations), 5),
        "agreement": model.guard_history_.column("agreement").round(5).tolist(),
        "z": model.guard_history_.column("z").round(3).tolist(),
        "rounds_seconds": round(float(model.history_.column("seconds").sum()), 1),
        "seconds": round(seconds, 1),
    }


# -- tables ---------------------------------------------------------------------------------------

Named = Callable[[Record], str]
Runs = list[Record]


def of_part(records: Runs, part: str, seeds: Iterable[int] = SEEDS) -> Runs:
    """Records of a part's places and seeds."""
    wanted = places(part)
    return [r for r in records if tuple(r[k] for k in PLACE) in wanted and r["seed"] in seeds]


def named(record: Record) -> str:
    """Return the name of a record's method, with the number it adds if that is not the default."""
    method, n_select = record["method"], record["n_select"]
    return method if n_select in (DEFAULT, PUBLISHED) else f"{method}, {n_select:g} times as many"


def numbered(record: Record) -> str:
    """Name of a record's method, with the number that it adds."""
    return f"{record['method']}, n_select={record['n_select']:g}"


ORDERS = {"set": list(MAKERS), "method": list(METHODS), "base": list(BASES)}


def by_place(records: Runs, name: Named = named) -> dict[tuple[str, str, str], Runs]:
    """Return the runs of each place, by set, method and base."""

    def place(r: Record) -> tuple[Any, ...]:
        return *(order.index(r[k]) for k, order in ORDERS.items()), r["n_select"], r["seed"]

    known = [{**r, "named": name(r)} for r in sorted(records, key=place)]
    return groups(known, "set", "named", "base")


def gains_of(runs: Runs) -> list[float]:
    """Gains of the rounds that the guard keeps, over the base."""
    return [gain(r, kept(r)) for r in runs]


def shown(records: Runs, name: Named = named) -> list[str]:
    """Write which round the guard keeps, run by run."""

    def percent(fall: float) -> str:
        return f"{100 * fall:+.0f}" if abs(fall) <= 1 else "< -100" if fall < 0 else "> +100"

    def accuracy(runs: Runs, ends: Iterable[int]) -> str:
        return spread([100 * r["accuracy"][k] for r, k in zip(runs, ends, strict=True)])

    def gains(runs: Runs) -> str:
        own = gains_of(runs)
        return f"{np.mean(own):+.1f} ({', '.join(f'{g:+.1f}' for g in own)})"

    found = by_place(records, name)
    return listing(found, {
        "set": lambda p: p[0],
        "self-training": lambda p: p[1],
        "around": lambda p: p[2],
        "seeds": lambda p: len(found[p]),
        "base": lambda p: accuracy(found[p], [0] * len(found[p])),
        "all rounds": lambda p: accuracy(found[p], [-1] * len(found[p])),
        "guarded": lambda p: accuracy(found[p], map(kept, found[p])),
        "guarded − base": lambda p: gains(found[p]),
        "rounds": lambda p: ", ".join(str(kept(r)) for r in found[p]),
        "change": lambda p: ", ".join(percent(change(r)) for r in found[p] if r["z"]) or "–",
        "z": lambda p: ", ".join(f"{r['z'][-1]:+.1f}" for r in found[p] if r["z"]) or "–",
    })  # fmt: skip


def trainings(records: Runs) -> list[str]:
    """Agreement and accuracy of the first round and the last."""
    found = by_place(records)

    def of(what: str, number: int) -> Callable[[Any], str]:
        return lambda p: spread([100 * r[what][number] for r in found[p]])

    return listing(found, [
        ("set", lambda p: p[0]),
        ("self-training", lambda p: p[1]),
        ("around", lambda p: p[2]),
        ("seeds", lambda p: len(found[p])),
        ("agreement, round 0", of("agreement", 0)),
        ("last round", of("agreement", -1)),
        ("accuracy, round 0", of("accuracy", 0)),
        ("last round", of("accuracy", -1)),
    ])  # fmt: skip


def judged(records: Runs, margin: float, least_z: float) -> list[str]:
    """Falls that are caught, gains that are lost, and the lowest mean, by a margin and a z."""
    falls = [r for r in records if gain(r, -1) <= -3]
    gains = [r for r in records if gain(r, -1) >= 1]
    caught = sum(gain(r, kept(r, margin, least_z)) > -3 for r in falls)
    lost = sum(gain(r, kept(r, margin, least_z)) < gain(r, -1) / 2 for r in gains)
    worst = min(
        np.mean([gain(r, kept(r, margin, least_z)) for r in runs])
        for runs in by_place(records).values()
    )
    return [f"{caught} of {len(falls)}", f"{lost} of {len(gains)}", f"{worst:+.1f}"]


def margins(simulated: Runs, others: Runs) -> list[str]:
    """Write the effect of every margin; the one in use is bold."""
    rows = []
    for margin in MARGINS:
        for z in LEAST_ZS:
            mark = "**" if (margin, z) == (MARGIN, LEAST_Z) else ""
            found = [cell for part in (simulated, others) for cell in judged(part, margin, z)]
            rows.append([f"{mark}{margin}{mark}", str(z), *found])
    heads = ["margin", "z", "simulated: caught", "lost", "worst", "real: caught", "lost", "worst"]
    return table(heads, rows)


def target(dasc: Runs) -> dict[str, Any]:
    """Whether the pairs of a set and a base reach the target."""
    gains = {
        (name, base): float(np.mean(gains_of(runs)))
        for (name, _, base), runs in by_place(dasc).items()
    }
    ours = {place: value for place, value in gains.items() if place[0] not in HARDER}
    hard = min(gains, key=lambda place: gains[place])
    below = sorted((value, place) for place, value in ours.items() if value < -1)
    told = ", ".join(f"{' around '.join(place)} ({value:+.1f})" for value, place in below)
    labelme = [r for r in dasc if (r["set"], r["base"]) == ("LabelMe", "Crowd Layer")]
    reached = float(np.mean([100 * r["accuracy"][kept(r)] for r in labelme]))
    return {
        "n_pairs": len(ours),
        "miss": f"{len(below)} {'misses' if len(below) == 1 else 'miss'}",
        "below": told or "none",
        "reached": f"{reached:.1f}{', which misses it, too' if reached < 90 else ''}",
        "hard": f"{' around '.join(hard)}, {gains[hard]:+.1f}",
    }


# -- how many annotations a round adds -------------------------------------------------------------


def paired(runs: Runs, n_select: float) -> Runs:
    """Return the runs with a number whose set, method and seed are run with all numbers."""
    done = groups(runs, "set", "method", "seed")
    numbers = {place: {r["n_select"] for r in own} for place, own in done.items()}
    return [
        r
        for r in where(runs, n_select=n_select)
        if numbers[r["set"], r["method"], r["seed"]] >= {*CANDIDATES}
    ]


def by_set(runs: Runs) -> dict[str, float]:
    """Set -> mean gain of guarded DASC over its base, in points."""
    own = groups(where(runs, method="DASC"), "set")
    return {name: float(np.mean(gains_of(each))) for name, each in own.items()}


def verdict(own: Runs, n_select: float) -> str:
    """Return the effect of a number on DASC, and what the guard catches."""
    gains = gains_of(where(own, method="DASC"))
    spoilt = [r for r in own if r["method"] != "DASC" and gain(r, -1) <= -3]
    caught, mean = sum(gain(r, kept(r)) > -3 for r in spoilt), by_set(own)
    worst = min(mean, key=lambda name: mean[name])
    return (
        f"- `n_select={n_select:g}`: guarded DASC less its base is "
        f"{np.mean(list(mean.values())):+.1f} points on average over {len(mean)} simulated "
        f"crowds ({len(gains)} runs), and lowest on {worst}, {mean[worst]:+.1f}; "
        f"{sum(gain <= -3 for gain in gains)} of the runs lose at least 3 points. The "
        f"guard catches {caught} of {len(spoilt)} simulated collapses."
    )


def numbers(runs: Runs) -> dict[str, Any]:
    """Write the effect of each number, on the cells that are run for all numbers."""
    own = {n: paired(runs, n) for n in CANDIDATES}
    fewer, more = (by_set(each) for each in own.values())
    behind = [f"{k} ({more[k] - fewer[k]:+.1f})" for k in more if more[k] < fewer[k]]
    return {
        "numbers_dates": days(runs),
        "verdicts": [verdict(each, n) for n, each in own.items()],
        "behind": "; ".join(behind),
        "numbers": shown(runs, numbered),
    }


# -- fresh seeds, and the round that is kept


def with_interval(place: tuple[str, str, str], runs: Runs) -> str:
    """Say what the guarded fit gains over the base, with the 95 % interval of the mean."""
    gains = np.array(gains_of(runs))
    reached = np.mean([100 * r["accuracy"][kept(r)] for r in runs])
    half = t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5
    return (
        f"- {place[0]} around {place[2]}: {gains.mean():+.1f} points, 95 % interval "
        f"{gains.mean() - half:+.1f} to {gains.mean() + half:+.1f} ({len(gains)} seeds); "
        f"{reached:.1f} % after it."
    )


def fallback(runs: Runs) -> dict[str, Any]:
    """Write which round is best kept after an alarm."""
    alarms = [r for r in runs if kept(r) < len(r["accuracy"]) - 1]
    rules = {
        "base": [0] * len(alarms),
        "before the first noticeable fall": [
            [z < -LEAST_Z for z in r["z"]].index(True) - 1 for r in alarms
        ],
        "before the first noticeable or large one": [kept(r) for r in alarms],
        "best (oracle)": [int(np.argmax(r["accuracy"])) for r in alarms],
    }
    rows = []
    for rule, ends in rules.items():
        own = np.array([gain(r, k) for r, k in zip(alarms, ends, strict=True)])
        rows.append([rule, f"{own.mean():+.1f}", f"{own.min():+.1f}"])
    return {
        "fallback_dates": days(runs),
        "n_fallback": len(runs),
        "n_alarms": len(alarms),
        "fallback": table(["round that is kept", "gain over the base, mean", "lowest"], rows),
    }


def page(records: Runs) -> dict[str, Any]:
    """Return the page's values."""
    first = [r for r in records if r["seed"] in SEEDS]  # The fresh ones have a part of their own.
    present = [r for r in first if r["n_select"] in (DEFAULT, PUBLISHED)]
    real_ones = [r for r in first if r["set"] in SETS]
    dasc = [r for r in present if r["set"] in SETS and r["method"] == "DASC"]
    dasc = [r for r in dasc if r["base"] in REAL_BASES]
    other = [r for r in real_ones if r["method"] in COLLAPSING]
    trained = [r for r in real_ones if r["set"] in ("LabelMe", "Music")]
    trained = [r for r in trained if r["base"] not in REAL_BASES or r["base"] == "Crowd Layer"]
    simulated = [r for r in present if r["set"] in SIMULATED]
    share = [r["seconds"] / max(r["rounds_seconds"], 0.1) for r in dasc if r["z"]]
    found = {
        "dates": days(records),
        **target(dasc),
        "dasc": shown(dasc),
        "longer": float(np.median(share)) - 1,
        "trainings": trainings(trained),
        "collapses": shown(other),
        "simulated": shown(simulated),
        "margins": margins(simulated, dasc + other),
        **fallback(of_part(records, "fallback")),
        **numbers(of_part(records, "n_select")),
    }
    if larger := [r for r in records if r["set"] in LARGER and r["n_select"] == DEFAULT]:
        found |= {"larger_dates": days(larger), "larger": shown(larger)}
    if fresh := of_part(records, "fresh", FRESH_SEEDS):
        each = [with_interval(place, runs) for place, runs in by_place(fresh).items()]
        found |= {"fresh_dates": days(fresh), "intervals": each, "fresh": shown(fresh)}
    return found


def drawing(page: str) -> str:
    """Draw what DASC gains or loses, where it adds annotations, with and without the guard."""
    kinds = {"with the guard": "guarded", "after all rounds": "all rounds"}
    rows = []
    for row in read_rows(page, "DASC around"):
        if row["z"] != "–":
            base = numbers_in(row["base"])[0]
            gains = {kind: numbers_in(row[column])[0] - base for kind, column in kinds.items()}
            rows.append(Row(f"{row['set']}, {row['around']}", gains))
    return dots("Change of the accuracy by DASC in points, mean over the seeds", rows, target=0)


STUDY = Study(
    __file__,
    {
        part: partial(cells, part)
        for part in ("simulated", "real", "n_select", "larger", "fresh", "fallback")
    },
    measure,
    page,
    page_drawings=lambda page: {"self_training_guard-accuracy.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
