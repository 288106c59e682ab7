r"""Truth inference on real tables: accuracy and calibration of every method, ours and crowd-kit's.

Majority vote has two rows: ties to the first class, and ties shared equally by the tied classes
(expected accuracy, and macro-F1 of the expected counts). Every other method is compared with both.
Every method runs with its own defaults; no parameter is chosen by set. Methods whose posterior
allows for dependence between annotators have a second row, with ``dependence=0``. The sets are the
17 aggregation sets, LabelMe, Music, Sentiment and Product. Below them are further sets with real
annotators, which nobody looked at while the defaults were made. Colposcopy and Reports Compendium
are not among them: their reference label is the majority vote, with one tie rule or another.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/aggregation.py \
        --json results/benchmarks/aggregation.json --out docs/results/aggregation.md

Cells already in the JSON are kept (``--again`` repeats the chosen ones). Sets may be run at the
same time into files of their own (``--sets``, ``--json``); ``--add`` takes their cells over.
crowd-kit is optional (``pip install --group bench``); a cell that exceeds ``--limit`` CPU
seconds says so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import accuracy_score, f1_score

import manyhands
from manyhands import AnnotationTable, MajorityVote
from manyhands.datasets import (
    AGGREGATION_SETS,
    load_aggregation,
    load_labelme,
    load_music,
    load_product,
    load_sentiment,
)
from manyhands.datasets.base import data_home
from manyhands.io import read_annotations, read_gold, write_atomically
from manyhands.metrics import calibration
from manyhands.registry import all_aggregators

LOADERS = {
    "labelme": load_labelme,
    "music": load_music,
    "sentiment": load_sentiment,
    "product": load_product,
}
AS_PUBLISHED = ", dependence=0"
LAST = ", last annotation of a pair"
REPEATED = (f"zencrowd_us{LAST}",)
MAJORITIES = ("MajorityVote", "MajorityVote, ties shared")
FURTHER = ("cifar10n", "cifar10h, 3 an image", "cifar10h")
CALIBRATION = ("confidence", "log_loss", "ece", "brier", "coverage")
CROWD_KIT = (
    *("MajorityVote", "Wawa", "ZeroBasedSkill", "DawidSkene", "OneCoinDawidSkene"),
    *("GLAD", "MACE", "KOS", "MMSR"),
)
BINARY = ("crowd-kit KOS",)
OLDER = "the run ended, but is older than the calibration on this page, and was not repeated"


class Task(NamedTuple):
    """A table and the known classes of its instances."""

    table: AnnotationTable
    known: np.ndarray
    gold: np.ndarray


def load(name: str) -> Task:
    """Load a set; ``known`` holds the positions of the instances with gold labels."""
    source = name.removesuffix(LAST)
    if source in AGGREGATION_SETS:
        data = load_aggregation(source, duplicates="keep" if source == name else "last")
        known = np.flatnonzero(data.y_train >= 0)
        return Task(data.annotations, known, data.y_train[known])
    if name in LOADERS:
        data = LOADERS[name]()
        return Task(data.annotations, np.arange(len(data.y_train)), data.y_train)
    folder = data_home() / name.split(",")[0]
    table = read_annotations(folder / "annotations.csv", duplicates="keep")
    if "3 an image" in name:
        table = some_of(table, 3)
    gold = read_gold(folder / "labels.csv")
    at = {instance: row for row, instance in enumerate(table.instances.tolist())}
    kept = [
        (at[t], y)
        for t, y in zip(gold.tasks, gold.labels, strict=True)
        if t in at and y is not None
    ]
    rows, labels = zip(*kept, strict=True)
    return Task(table, np.array(rows), np.array(labels))


def some_of(table: AnnotationTable, n: int) -> AnnotationTable:
    """Keep ``n`` random annotations of every instance (seed 0)."""
    order = np.random.default_rng(0).permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    instance = table.instance[order]
    rank = np.arange(len(order)) - np.searchsorted(instance, instance)
    return table.take(np.sort(order[rank < n]))


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


def run(system: Callable[[AnnotationTable], Found], task: Task, limit: float) -> dict[str, Any]:
    """Score one system on one set, or say why there is no score."""

    def give_up(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    started = time.process_time()
    try:
        found = system(task.table)
    except TimeoutError:
        return {"failed": f"more than {limit:.0f} CPU seconds"}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.process_time() - started
    cell = {**score(found.labels[task.known], task), "seconds": round(seconds, 3)}
    if found.posterior is not None:
        try:
            cell |= calibrated(found.posterior[task.known], task)
        except ValueError as error:
            cell["uncalibrated"] = f"{type(error).__name__}: {error}"[:200]
    return cell | found.facts


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


def page(records: dict[str, dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    shown = [name for name in (*AGGREGATION_SETS, *LOADERS) if name in records]
    names = list(dict.fromkeys(s for name in shown for s in records[name]))
    lines = [
        "# Truth inference on real tables",
        "",
        f"{datetime.date.today()}; manyhands {manyhands.__version__}, crowd-kit "
        f"{version('crowd-kit')}. {measured_on(records)} "
        "Made by `benchmarks/aggregation.py`; every method as it comes, "
        "one run each (random ones with seed 0). Of equal maxima ours name the first class, "
        "crowd-kit's whichever its tables yield. The first class is often the most common, which "
        "flatters majority vote: its second row shares ties (expected accuracy). Sets "
        "without gold for some instances are scored on the others. Log loss (nats, probabilities "
        "of at least 1e-12), calibration error (ECE, 15 bins), Brier score and the coverage of "
        "90 %-sets are those of `manyhands.metrics.calibration`. Rows with `dependence=0` are the "
        "published models, in which annotators err independently.",
        "",
        *summary(records, shown, names),
        "",
        "## Calibration of DawidSkene, set by set",
        "",
        *set_by_set(records, [*shown, *(n for n in FURTHER if n in records)]),
        "",
        *still_off(records, shown),
        *repeated(records),
        "## Accuracy, set by set",
        "",
        *by_set(records, shown, names, "accuracy"),
        "",
        "## Macro-F1, set by set",
        "",
        *by_set(records, shown, names, "macro_f1"),
        "",
        "## Log loss, set by set",
        "",
        *by_set(records, shown, names, "log_loss"),
        "",
        "## Calibration error, set by set",
        "",
        *by_set(records, shown, names, "ece"),
        "",
        "## Repeated pairs: last annotation only",
        "",
        *by_set(records, [n for n in REPEATED if n in records], names, "accuracy"),
        "",
        "## Further sets",
        "",
        "Nobody looked at these while the defaults were made. The gold labels of CIFAR-10 are "
        "independent of the annotators.",
        "",
        *(line for n in FURTHER if n in records for line in all_columns(n, records[n], names)),
        "## Without probabilities",
        "",
        *uncalibrated(records, names),
        "",
        "## Not finished",
        "",
        *(
            f"- {system} on {name}: {cell['failed']}"
            for name in records
            for system, cell in records[name].items()
            if "failed" in cell
        ),
        *(
            f"- {system} on {name}: not run."
            for name in FURTHER
            for system in names
            if name in records and system not in records[name] and system not in BINARY
        ),
        "",
    ]
    return "\n".join(lines)


def summary(records: dict[str, Any], shown: list[str], names: list[str]) -> list[str]:
    """Return rows of means over the sets; a method without some sets is compared on the others."""
    lines = [
        "| method | sets | accuracy | macro-F1 | log loss | ECE | Brier | coverage of 90 %-sets "
        "| worst set against majority vote | worst set against it, ties shared | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for system in names:
        cells = {n: records[n][system] for n in shown if "accuracy" in records[n].get(system, {})}
        if not cells:
            continue
        worst = " | ".join(worst_gap(records, cells, majority) for majority in MAJORITIES)
        means = [np.mean([c[k] for c in cells.values()]) for k in ("accuracy", "macro_f1")]
        seconds = sum(c["seconds"] for c in cells.values())
        row = f"{' | '.join(mean_of(cells, key) for key in CALIBRATION[1:])} | {worst}"
        rows.append(
            (
                len(cells),
                means[0],
                f"| {system} | {len(cells)} | {means[0]:.4f} | {means[1]:.4f} | {row} "
                f"| {seconds:.1f} |",
            )
        )
    return lines + [text for *_, text in sorted(rows, key=lambda r: (-r[0], -r[1]))]


def mean_of(cells: dict[str, Any], key: str) -> str:
    """Return the mean over the sets, or a dash if some set lacks the figure."""
    values = [cell.get(key) for cell in cells.values()]
    return "-" if None in values else f"{np.mean(values):.3f}"


def set_by_set(records: dict[str, Any], shown: list[str]) -> list[str]:
    """Return DawidSkene's calibration on every set, before and after."""
    lines = [
        "Before → after allowing for dependence; rho is its estimate ± standard error.",
        "",
        "| set | rho | subtypes | accuracy | mean confidence | log loss "
        "| ECE (95 % interval after) | Brier | coverage of 90 %-sets |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in shown:
        after = records[name].get("DawidSkene", {})
        before = records[name].get(f"DawidSkene{AS_PUBLISHED}", {})
        if "log_loss" not in after or "log_loss" not in before:
            continue
        change = {
            key: f"{before[key]:.3f} → {after[key]:.3f}" for key in ("accuracy", *CALIBRATION)
        }
        change["ece"] += f" ({after['ece_lower']:.3f} to {after['ece_upper']:.3f})"
        rho = f"{after['dependence']:.2f} ± {after['dependence_se']:.2f}"
        figures = " | ".join(change.values())
        lines.append(f"| {name} | {rho} | {after['n_subtypes']:.0f} | {figures} |")
    return lines


def still_off(records: dict[str, Any], shown: list[str]) -> list[str]:
    """Name the sets whose posterior by DawidSkene is far from calibrated, or got worse."""
    after = {name: records[name]["DawidSkene"] for name in shown}
    before = {name: records[name][f"DawidSkene{AS_PUBLISHED}"] for name in shown}
    mean = np.mean([cell["ece"] for cell in after.values()])
    off = sorted((n for n in shown if after[n]["ece"] > mean), key=lambda n: -after[n]["ece"])
    listed = ", ".join(f"{n} ({after[n]['ece']:.3f})" for n in off)

    def worse(key: str) -> str:
        rose = [n for n in shown if after[n][key] > before[n][key]]
        return (
            ", ".join(f"{n} ({before[n][key]:.3f} → {after[n][key]:.3f})" for n in rose) or "none"
        )

    return [
        f"These sets stay off, with a calibration error above the mean of {mean:.3f}: {listed}. "
        f"Allowing for dependence raises the log loss of {worse('log_loss')}, and the calibration "
        f"error of {worse('ece')}.",
        "",
    ]


def measured_on(records: dict[str, Any]) -> str:
    """Say when the cells were measured; those of before 2026-11-26 do not say it."""
    dates = [cell.get("date", "") for cells in records.values() for cell in cells.values()]
    known = sorted({date for date in dates if date})
    parts = []
    if known:
        days = " to ".join(sorted({known[0], known[-1]}))
        n_known = len(dates) - dates.count("")
        parts.append(f"{n_known} cell{'s were' if n_known > 1 else ' was'} measured on {days}")
    if "" in dates:
        parts.append(
            f"{dates.count('')} cells are of earlier days, so their CPU seconds are those of "
            "earlier code and machines"
        )
    return f"{'; '.join(parts)}."


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


def by_set(records: dict[str, Any], shown: list[str], names: list[str], metric: str) -> list[str]:
    """Return a table with one row per method and one column per set."""
    lines = ["| method | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for system in names:
        cells = [records[name].get(system, {}).get(metric) for name in shown]
        if any(cell is not None for cell in cells):
            text = " | ".join("-" if cell is None else f"{cell:.3f}" for cell in cells)
            lines.append(f"| {system} | {text} |")
    return lines


def all_columns(name: str, cells: dict[str, Any], names: list[str]) -> list[str]:
    """Return a further set's table: one row per method and one column per measure."""
    keys = ("accuracy", "macro_f1", *CALIBRATION[1:])
    lines = [
        f"### {name}",
        "",
        "| method | accuracy | macro-F1 | log loss | ECE | Brier | coverage of 90 %-sets | CPU s |",
        "|---" * 8 + "|",
    ]
    for system in names:
        cell = cells.get(system, {})
        if "accuracy" in cell:
            values = " | ".join(f"{cell[k]:.3f}" if k in cell else "-" for k in keys)
            lines.append(f"| {system} | {values} | {cell['seconds']:.1f} |")
    return [*lines, ""]


def version(package: str) -> str:
    """Return the installed version, if any."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="systems whose names contain this")
    parser.add_argument("--sets", default="", help="separated by semicolons; default: all")
    parser.add_argument("--again", action="store_true", help="run the chosen cells anew")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="run nothing: take cells")
    parser.add_argument("--limit", type=float, default=1200.0, help="CPU seconds per cell")
    arguments = parser.parse_args()
    records = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    chosen = [s for s in arguments.sets.split(";") if s] or [
        *(*AGGREGATION_SETS, *LOADERS, *FURTHER, *REPEATED)
    ]
    for path in arguments.add:
        for name, cells in json.loads(path.read_text()).items():
            records.setdefault(name, {}).update(cells)
    if arguments.add:
        write_atomically(arguments.json, json.dumps(records, indent=1) + "\n")
        chosen = []
    for name in chosen:
        task = load(name)
        for system, function in systems().items():
            done = system in records.setdefault(name, {}) and not arguments.again
            needless = system in BINARY and task.table.n_classes > 2
            if done or needless or arguments.only not in system:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cell = run(function, task, arguments.limit)
            cell["date"] = datetime.date.today().isoformat()
            records[name][system] = cell
            print(name, system, cell, flush=True)
            latest = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
            latest.setdefault(name, {})[system] = cell
            write_atomically(arguments.json, json.dumps(latest, indent=1) + "\n")
    if arguments.out:
        write_atomically(arguments.out, page(records))


if __name__ == "__main__":
    main()
