"""Truth inference on real tables: accuracy and calibration of every method, ours and crowd-kit's.

Majority vote has two rows: ties to the first class, and ties shared equally by the tied classes
(expected accuracy, and macro-F1 of the expected counts). Every other method is compared with both.
Every method runs with its own defaults; no parameter is chosen by set. Methods whose posterior
allows for dependence between annotators have a second row, with ``dependence=0``. The sets are the
17 aggregation sets, LabelMe, Music, Sentiment and Product. Below them are further sets with real
annotators, which nobody looked at while the defaults were made. Colposcopy and Reports Compendium
are not among them: their reference label is the majority vote, with one tie rule or another.

crowd-kit is optional (``pip install --group bench``). A cell that takes more than 1,200 CPU seconds
says so.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import accuracy_score, f1_score

from benchmarks.bars import Row, dots
from benchmarks.real_tables import LAST, TABLES, Task, load
from evidence.study import Study
from evidence.tables import Record, crossed, groups
from evidence.tables import table as lines_of
from manyhands import AnnotationTable, MajorityVote
from manyhands.metrics import calibration
from manyhands.registry import all_aggregators

AS_PUBLISHED = ", dependence=0"
REPEATED = (f"zencrowd_us{LAST}",)
MAJORITIES = ("MajorityVote", "MajorityVote, ties shared")
FURTHER = ("cifar10n", "cifar10h, 3 an image", "cifar10h")
CALIBRATION = ("confidence", "log_loss", "ece", "brier", "coverage")
CROWD_KIT = (
    *("MajorityVote", "Wawa", "ZeroBasedSkill", "DawidSkene", "OneCoinDawidSkene"),
    *("GLAD", "MACE", "KOS", "MMSR"),
)
BINARY = ("crowd-kit KOS",)
LIMIT = 1200.0
"""CPU seconds of a cell."""
OLDER = "the run ended, but is older than the calibration on this page, and was not repeated"


class Found(NamedTuple):
    """Inferred labels (n,) or shares of the classes (n, C), and posterior (n, C), if any."""

    labels: np.ndarray
    posterior: np.ndarray | None
    facts: dict[str, float] = {}


def fitted(model: Any, table: AnnotationTable) -> Found:
    """Fit one of our methods."""
    model.fit(table)
    facts = {k: getattr(model, k, None) for k in ("dependence_", "dependence_se_", "n_subtypes_")}
    known = {name.strip("_"): float(value) for name, value in facts.items() if value is not None}
    return Found(model.labels_, model.posterior_, known)


def shared_ties(table: AnnotationTable) -> Found:
    """Majority vote whose ties are shared."""
    shares = MajorityVote(soft=False, ties="distribute").fit_predict_proba(table)
    return Found(shares, shares)


@cache
def systems() -> dict[str, Callable[[AnnotationTable], Found]]:
    """Methods by the name of their row."""
    ours = {}
    for name, cls in all_aggregators():
        if cls.traits.needs_gold:
            continue
        ours[name] = lambda t, cls=cls: fitted(cls(), t)
        if "dependence" in cls().get_params():
            ours[f"{name}{AS_PUBLISHED}"] = lambda t, cls=cls: fitted(cls(dependence=0), t)
    ours[MAJORITIES[1]] = shared_ties
    try:
        import crowdkit.aggregation as peer
    except ImportError:
        return ours
    mend_crowd_kit()
    theirs = {
        f"crowd-kit {name}": lambda t, name=name: of_crowd_kit(getattr(peer, name), name, t)
        for name in CROWD_KIT
    }
    return ours | theirs


def mend_crowd_kit() -> None:
    """Let Wawa and ZeroBasedSkill run: scikit-learn 1.9 refuses their unmodified base class."""
    from crowdkit.aggregation.base import BaseClassificationAggregator
    from sklearn.utils import Tags, TargetTags

    BaseClassificationAggregator.__sklearn_tags__ = lambda _: Tags(
        estimator_type=None, target_tags=TargetTags(required=False)
    )


def of_crowd_kit(cls: type, name: str, table: AnnotationTable) -> Found:
    """Return crowd-kit's answer; an instance without annotations gets the first class."""
    import pandas

    frame = pandas.DataFrame(
        {"task": table.instance, "worker": table.annotator, "label": table.label.astype(int)}
    )
    options = {"random_state": 0} if name in ("MACE", "KOS", "MMSR") else {}
    model = cls(**options)
    found = model.fit_predict(frame)
    labels = np.zeros(table.n_instances, dtype=int)
    labels[found.index.to_numpy()] = found.to_numpy()
    posterior = None
    shares = getattr(model, "probas_", None)
    if shares is None and hasattr(model, "predict_proba"):  # Wawa and ZeroBasedSkill.
        shares = model.predict_proba(frame)
    if shares is not None:
        posterior = np.zeros((table.n_instances, table.n_classes))
        posterior[:, 0] = 1.0
        places = np.ix_(shares.index.to_numpy(), shares.columns.to_numpy())
        posterior[shares.index.to_numpy()] = 0.0
        posterior[places] = shares.fillna(0.0).to_numpy()
    return Found(table.classes[labels], posterior)


def score(found: np.ndarray, task: Task) -> dict[str, float]:
    """Score labels (n,), or shares of the classes (n, C), of the instances with gold."""
    if found.ndim == 1:
        gold, named, share = task.gold, found, None
    else:  # One row for each class that has a share.
        row, column = np.nonzero(found)
        gold, named, share = task.gold[row], task.table.classes[column], found[row, column]
    return {
        "accuracy": float(accuracy_score(gold, named, sample_weight=share)),
        "macro_f1": float(f1_score(gold, named, sample_weight=share, average="macro")),
    }


def calibrated(posterior: np.ndarray, task: Task) -> dict[str, Any]:
    """Return how well the probabilities of the instances with gold are calibrated."""
    mass = posterior.sum(axis=1, keepdims=True)
    found = calibration(posterior / mass, task.gold, classes=task.table.classes)
    figures = {name: getattr(found, name) for name in CALIBRATION}
    ece = {"ece_lower": found.ece.lower, "ece_upper": found.ece.upper}
    return {name: figure.value for name, figure in figures.items()} | ece


def mean_of(cells: dict[str, Any], key: str) -> str:
    """Return the mean over the sets, or a dash if some set lacks the figure."""
    values = [cell.get(key) for cell in cells.values()]
    return "-" if None in values else f"{np.mean(values):.3f}"


def still_off(records: dict[str, Any], shown: list[str]) -> list[str]:
    """Name the sets whose posterior by DawidSkene is far from calibrated, or got worse."""
    after = {name: records[name]["DawidSkene"] for name in shown}
    before = {name: records[name][f"DawidSkene{AS_PUBLISHED}"] for name in shown}
    mean = np.mean([cell["ece"] for cell in after.values()])
    off = sorted((n for n in shown if after[n]["ece"] > mean), key=lambda n: -after[n]["ece"])
    listed = ", ".join(f"{n} ({after[n]['ece']:.3f})" for n in off)

    def worse(key: str) -> str:
        pairs = {n: (before[n][key], after[n][key]) for n in shown}
        rose = [f"{n} ({a:.3f} → {b:.3f})" for n, (a, b) in pairs.items() if b > a]
        return ", ".join(rose) or "none"

    return [
        f"These sets stay off, with a calibration error above the mean of {mean:.3f}: {listed}. "
        f"Allowing for dependence raises the log loss of {worse('log_loss')}, and the calibration "
        f"error of {worse('ece')}.",
        "",
    ]


def uncalibrated(records: dict[str, Any], names: list[str]) -> list[str]:
    """Name the cells without log loss, which the summary's means then lack."""
    never, some = [], []
    for system in names:
        cells = {n: cells[system] for n, cells in records.items() if system in cells}
        done = {n: cell for n, cell in cells.items() if "accuracy" in cell}
        lacking = [n for n, cell in done.items() if "log_loss" not in cell]
        if done and len(lacking) == len(done):
            never.append(system)
        some += [
            f"- {system} on {n}: {done[n].get('uncalibrated', OLDER)}."
            for n in lacking
            if len(lacking) < len(done)
        ]
    lines = [f"No probabilities at all: {', '.join(never) or 'none'}."]
    if some:
        lines += [
            "",
            "These methods give probabilities, but not on all sets that they were run on, so the "
            'means of their row above are "-":',
            "",
            *some,
        ]
    return lines


def worst_gap(records: dict[str, Any], cells: dict[str, Any], majority: str) -> str:
    """Return the lowest accuracy relative to a majority vote, in points, and its set."""
    gaps = {n: c["accuracy"] - records[n][majority]["accuracy"] for n, c in cells.items()}
    worst = min(gaps, key=lambda n: gaps[n])
    return f"{100 * gaps[worst]:+.1f} ({worst})"


def repeated(records: dict[str, Any]) -> list[str]:
    """Return what changes where only the last annotation of a repeated pair is kept."""
    lines = []
    for name in REPEATED:
        first, shared = (records[name][majority]["accuracy"] for majority in MAJORITIES)
        ours = records[name]["DawidSkene"]["accuracy"]
        lines += [
            f'On {name.removesuffix(LAST)} with `duplicates="last"`, DawidSkene is at {ours:.3f}, '
            f"{100 * (ours - first):+.1f} points against majority vote ({first:.3f}) and "
            f"{100 * (ours - shared):+.1f} against majority vote with ties shared ({shared:.3f}).",
            "",
        ]
    return lines


Cells = dict[str, dict[str, Record]]
"""Set -> method -> record."""

SUMMARY = ("log_loss", "ece", "brier", "coverage")


def measure(set: str, method: str) -> Record:
    """Score one system on one set, or say why there is no score."""

    def give_up(*_: Any) -> None:
        raise TimeoutError

    task = load(set)
    about = {"crowd_kit": metadata.version("crowd-kit")} if "crowd-kit" in method else {}
    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    started = time.process_time()
    try:
        found = systems()[method](task.table)
    except TimeoutError:
        return about | {"failed": f"more than {LIMIT:.0f} CPU seconds"}
    except Exception as error:
        return about | {"failed": f"{type(error).__name__}: {error}"[:200]}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.process_time() - started
    cell = {**score(found.labels[task.known], task), "seconds": round(seconds, 3)}
    if found.posterior is not None:
        try:
            cell |= calibrated(found.posterior[task.known], task)
        except ValueError as error:
            cell["uncalibrated"] = f"{type(error).__name__}: {error}"[:200]
    return about | cell | found.facts


def summary(records: Cells, shown: list[str], names: list[str]) -> list[str]:
    """Means over the sets; a method without some sets is compared on the others."""
    rows = []
    for system in names:
        cells = {n: records[n][system] for n in shown if "accuracy" in records[n].get(system, {})}
        if cells:
            means = [np.mean([c[k] for c in cells.values()]) for k in ("accuracy", "macro_f1")]
            row = [system, str(len(cells)), *(f"{mean:.4f}" for mean in means)]
            row += [mean_of(cells, key) for key in SUMMARY]
            row += [worst_gap(records, cells, majority) for majority in MAJORITIES]
            row.append(f"{sum(c['seconds'] for c in cells.values()):.1f}")
            rows.append((len(cells), means[0], row))
    heads = ["method", "sets", "accuracy", "macro-F1", "log loss", "ECE", "Brier"]
    heads += ["coverage of 90 %-sets", "worst set against majority vote"]
    ordered = [row for *_, row in sorted(rows, key=lambda r: (-r[0], -r[1]))]
    for k, of in BEST.items():
        known = [row[k] for row in ordered if row[1] == ordered[0][1] and row[k] != "-"]
        top = of(known, key=float)
        for row in ordered:
            row[k] = f"**{row[k]}**" if row[k] == top and row[1] == ordered[0][1] else row[k]
    return lines_of([*heads, "worst set against it, ties shared", "CPU s"], ordered)


BEST: dict[int, Callable[..., str]] = {2: max, 3: max, 4: min, 5: min, 6: min}
"""Columns of the summary whose best figure is bold, of the methods that have all sets."""


def conclusion(records: Cells, shown: list[str], names: list[str]) -> dict[str, Any]:
    """Name the method that is right most often, and the one with the best probabilities."""
    means: dict[str, dict[str, float]] = {"accuracy": {}, "log_loss": {}}
    for system in names:
        for key, found in means.items():
            values = [records[name].get(system, {}).get(key) for name in shown]
            if all(value is not None for value in values):
                found[system] = float(np.mean(values))
    accuracy, loss = means["accuracy"], means["log_loss"]
    first, least = max(accuracy, key=accuracy.__getitem__), min(loss, key=loss.__getitem__)
    votes, shared = MAJORITIES
    return {
        "n_tables": len(shown),
        "n_methods": len(accuracy),
        "first": first,
        "first_accuracy": 100 * accuracy[first],
        "votes": 100 * accuracy[votes],
        "shared": 100 * accuracy[shared],
        "least": least,
        "least_loss": loss[least],
    }


def drawing(found: list[Record]) -> str:
    """Draw the mean accuracy of every method; what dependence changes are probabilities only."""
    records = by_table(found)
    shown = [name for name in TABLES if name in records]
    means = {}
    for system in dict.fromkeys(s for name in shown for s in records[name]):
        values = [records[name].get(system, {}).get("accuracy") for name in shown]
        if None not in values and AS_PUBLISHED not in system:
            means[system] = 100 * float(np.mean(values))
    order = sorted(means, key=lambda system: -means[system])
    rows = [
        Row(system, {"accuracy": means[system]}, ours=not system.startswith("crowd-kit"))
        for system in order
    ]
    title = f"Right labels in percent, mean of {len(shown)} tables (bold: manyhands)"
    return dots(title, rows, digits=1)


def by_table(found: list[Record]) -> Cells:
    """Records by table and method."""
    return {
        name: {record["method"]: record for record in own}
        for name, own in groups(found, "set").items()
    }


def set_by_set(records: Cells, shown: list[str]) -> list[str]:
    """DawidSkene's calibration on every set, before and after."""
    rows = []
    for name in shown:
        after, before = (records[name].get(f"DawidSkene{k}", {}) for k in ("", AS_PUBLISHED))
        if "log_loss" in after and "log_loss" in before:
            keys = ("accuracy", *CALIBRATION)
            change = {key: f"{before[key]:.3f} → {after[key]:.3f}" for key in keys}
            change["ece"] += f" ({after['ece_lower']:.3f} to {after['ece_upper']:.3f})"
            rho = f"{after['dependence']:.2f} ± {after['dependence_se']:.2f}"
            rows.append([name, rho, f"{after['n_subtypes']:.0f}", *change.values()])
    heads = ["set", "rho", "subtypes", "accuracy", "mean confidence", "log loss"]
    return lines_of([*heads, "ECE (95 % interval after)", "Brier", "coverage of 90 %-sets"], rows)


def by_set(
    records: Cells, shown: list[str], names: list[str], metric: str, corner: str = "method"
) -> list[str]:
    """One row per method and one column per set."""
    best = min if metric in ("log_loss", "ece") else max
    top = {
        name: best(f"{cell[metric]:.3f}" for cell in records[name].values() if metric in cell)
        for name in shown
    }

    def cell(system: str, name: str) -> str:
        value = records[name].get(system, {}).get(metric)
        text = "-" if value is None else f"{value:.3f}"
        return f"**{text}**" if text == top[name] else text

    known = [s for s in names if any(cell(s, name) != "-" for name in shown)]
    return crossed(corner, known, shown, cell)


def by_kind(records: Cells, shown: list[str], names: list[str], metric: str) -> list[str]:
    """One table for the sets of two classes, and one for the others."""
    two = [name for name in shown if records[name].keys() & set(BINARY)]
    more = [name for name in shown if name not in two]
    return [
        *by_set(records, two, names, metric, "two classes"),
        *by_set(records, more, names, metric, "more classes"),
    ]


def further(records: Cells, names: list[str]) -> Iterator[str]:
    """Yield the tables of the further sets: a row per method, a column per measure."""
    keys = {"accuracy": "accuracy", "macro_f1": "macro-F1", "log_loss": "log loss", "ece": "ECE"}
    keys |= {"brier": "Brier", "coverage": "coverage of 90 %-sets", "seconds": "CPU s"}
    for name in (name for name in FURTHER if name in records):
        cells = records[name]

        def shown(system: str, key: str, cells: dict[str, Record] = cells) -> str:
            digits = 1 if key == "seconds" else 3
            return f"{cells[system][key]:.{digits}f}" if key in cells[system] else "-"

        done = [system for system in names if "accuracy" in cells.get(system, {})]
        yield from (f"### {name}", "", *crossed("method", done, keys, shown))


def measured_on(records: list[Record]) -> str:
    """Say when the cells were measured; those of before 2026-11-26 do not say it."""
    known = sorted(r["date"] for r in records if r.get("date"))
    n_old = len(records) - len(known)
    days = " to ".join(sorted({known[0], known[-1]}))
    parts = [f"{len(known)} cell{'s were' if len(known) > 1 else ' was'} measured on {days}"]
    if n_old:
        parts.append(
            f"{n_old} cells are of earlier days, so their CPU seconds are those of earlier code "
            "and machines"
        )
    return "; ".join(parts)


def unfinished(records: Cells, names: list[str]) -> Iterator[str]:
    """Yield what failed, and what was not run."""
    for name, cells in records.items():
        yield from (f"- {s} on {name}: {c['failed']}" for s, c in cells.items() if "failed" in c)
    for name in (name for name in FURTHER if name in records):
        for system in names:
            if system not in records[name] and system not in BINARY:
                yield f"- {system} on {name}: not run."


def page(found: list[Record]) -> dict[str, Any]:
    """Return the values of the page."""
    records = by_table(found)
    shown = [name for name in TABLES if name in records]
    names = list(dict.fromkeys(s for name in shown for s in records[name]))
    return {
        "crowd_kit": max(r["crowd_kit"] for r in found if "crowd_kit" in r),
        "measured": measured_on(found),
        **conclusion(records, shown, names),
        "summary": summary(records, shown, names),
        "set_by_set": set_by_set(records, [*shown, *(n for n in FURTHER if n in records)]),
        "still_off": still_off(records, shown),
        "repeated": repeated(records),
        **{
            key: by_kind(records, shown, names, key)
            for key in ("accuracy", "macro_f1", "log_loss", "ece")
        },
        "last": by_set(records, [n for n in REPEATED if n in records], names, "accuracy"),
        "further": further(records, names),
        "uncalibrated": uncalibrated(records, names),
        "unfinished": unfinished(records, names),
    }


def cells() -> Iterator[Record]:
    """Yield every system on every set."""
    for name in (*TABLES, *FURTHER, *REPEATED):
        for system in systems():
            if system not in BINARY or load(name).table.n_classes <= 2:
                yield {"set": name, "method": system}


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"aggregation-accuracy.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
