"""Sets of labels: what sharing behaviour across options gains, and where it harms.

Real sets of the data home's siblings ``multilabel`` and ``judges/framing``, with some annotators
per item drawn at random, and simulated crowds whose behaviour is shared across options or not.
Micro-F1 and log loss per cell (instance, option), against experts, or against a person left out.
What is not built (a class per set, one matrix for all options, profiles of labels; priors between
those that are shared and each option's own) is measured beside it, and so are classifiers.

The parts take some minutes each, cost one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.special import expit, logit, logsumexp
from typer.testing import CliRunner

from benchmarks.bars import Row, dots
from evidence.study import Part, grid, of_parts, peak_mb
from evidence.tables import Record, table, where, with_error
from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CrowdStackingClassifier,
    DawidSkene,
    LabelSetTable,
    MultiLabelDawidSkene,
    MultiLabelMajorityVote,
    decide_sets,
)
from manyhands.cli.app import app
from manyhands.datasets.base import data_home
from manyhands.inference import multi_label_dawid_skene
from manyhands.inference.shared_behaviour import _crowd_rates, shared_rates
from manyhands.io import read_label_sets
from manyhands.linear import TunedLogisticRegression
from manyhands.report.filters import percent_range

SETS = {"snow": (2, 3, 5, 0), "relex": (2, 3, 5, 0), "varierr": (2, 0)}
"""Annotators per item that are drawn; 0: all."""

MOST_CLASSES = 200
"""A class per set is not fitted to more sets: that takes minutes and gains nothing."""

DRAWS = range(5)
SEEDS = range(10)
PER_ITEM = (2, 3, 5)
ANNOTATORS, ITEMS, OPTIONS = 40, 400, 8

HABITS = {
    "under, over": "a third tick too little everywhere, a third too much",
    "skill": "some are better at all options",
    "own habits": "too little or too much, drawn anew for every option",
    "turning habits": "too little of every second option, too much of the others",
    "own skill": "better or worse, drawn anew for every option",
    "specialists": "good at two options, poor at the other six",
    "mixed": "a fifth each: good, hasty, too little, too much, and own habits by option",
}
"""Simulated crowds: what annotators do. In the first two it is the same under all options, and in
the last for four fifths."""

LAYOUTS = ("cells with a separator", "row per tick")
"""Layouts of the files that are read."""

METHODS = {
    "majority": lambda: MultiLabelMajorityVote(),
    "own": lambda: MultiLabelDawidSkene(share=False),
    "shared": lambda: MultiLabelDawidSkene(share=True),
    "auto": lambda: MultiLabelDawidSkene(),
}


def f1(ticks: Any, truth: Any) -> float:
    """Micro-F1 over known cells; ``truth`` is -1 where unknown."""
    known = truth >= 0
    hits = (ticks & (truth == 1))[known].sum()
    return float(2 * hits / max(ticks[known].sum() + (truth == 1).sum(), 1))


def macro_f1(ticks: Any, truth: Any) -> float:
    """Mean F1 of the options of which some known cell applies."""
    has = ((truth == 1).sum(axis=0) > 0).nonzero()[0]
    return float(np.mean([f1(ticks[:, [m]], truth[:, [m]]) for m in has]))


def log_loss(proba: Any, truth: Any) -> float:
    """Log loss per known cell."""
    p = np.clip(proba, 1e-6, 1 - 1e-6)[truth >= 0]
    return float(-np.where(truth[truth >= 0] == 1, np.log(p), np.log(1 - p)).mean())


def score_all(answers: LabelSetTable, truth: Any) -> Record:
    """Score every method on one table."""
    found: Record = {}
    for name, make in METHODS.items():
        model: Any = make().fit(answers)
        found[f"{name}_f1"] = f1(model.labels_, truth)
        found[f"{name}_macro"] = macro_f1(model.labels_, truth)
        found[f"{name}_loss"] = log_loss(model.posterior_, truth)
        if name != "majority":
            found[f"{name}_f1_rule"] = f1(decide_sets(model.posterior_, "f1").ticks, truth)
        if name == "shared":
            found["gain"] = model.evidence_["shared"] - model.evidence_["own"]
        if name == "auto":
            found["shares"] = bool(model.shared_)
    return found


# -- real sets ------------------------------------------------------------------------------------


def folder() -> Path:
    """Return the folder of the sets."""
    return data_home() / "multilabel"


def load_set(name: str) -> tuple[LabelSetTable, Any]:
    """Load a set: its answers, and experts' labels, -1 where there are none."""
    place = folder() / name
    answers = LabelSetTable.from_frame(pd.read_csv(place / "annotations.csv.gz"), none="empty")
    gold = pd.read_csv(place / "gold.csv.gz")
    rows = {task: i for i, task in enumerate(answers.instances.tolist())}
    columns = {option: i for i, option in enumerate(answers.options.tolist())}
    truth = np.full((answers.n_instances, answers.n_options), -1)
    for task, option, value in gold.itertuples(index=False):
        if task in rows and option in columns:
            truth[rows[task], columns[option]] = value
    return answers, truth


def drawn(answers: LabelSetTable, k: int, seed: int) -> LabelSetTable:
    """Keep k random answers about each instance; all, if k is 0."""
    if not k:
        return answers
    key = np.random.default_rng(seed).random(answers.n_annotations)
    order = np.lexsort((key, answers.instance))
    instance = answers.instance[order]
    place = np.arange(len(order)) - np.searchsorted(instance, instance)
    return answers.take(np.sort(order[place < k]))


def of_set(name: str, k: int, seed: int) -> Record:
    """Score the methods on a set."""
    answers, truth = load_set(name)
    return score_all(drawn(answers, k, seed), truth)


def set_cells() -> Iterator[Record]:
    """Yield the sets; of all annotators there is one draw."""
    for name, sizes in SETS.items():
        for k in sizes:
            yield from ({"name": name, "k": k, "seed": seed} for seed in (DRAWS if k else (0,)))


def of_framing(person: int) -> Record:
    """Score the methods on three people's answers, against those of a fourth."""
    rows = pd.read_csv(data_home() / "judges" / "framing" / "annotations.csv")
    rows = rows[rows["worker"].str.startswith("person") & rows["label"].isin(["yes", "no"])]
    cells = rows.pivot_table(
        index=["cluster", "worker"], columns="question", values="label", aggfunc="first"
    )
    whole = cells.dropna()  # Answers about all questions.
    options = whole.columns.tolist()
    left_out = f"person{person}"
    other = whole[whole.index.get_level_values("worker") != left_out]
    answers = LabelSetTable.from_arrays(
        other.index.get_level_values("cluster").astype(str),
        other.index.get_level_values("worker"),
        (other == "yes").to_numpy(),
        options=options,
    )
    truth = np.full((answers.n_instances, answers.n_options), -1)
    own = whole.xs(left_out, level="worker") == "yes"
    rows_of = {task: i for i, task in enumerate(answers.instances.tolist())}
    for task, ticks in own.iterrows():
        if str(task) in rows_of:
            truth[rows_of[str(task)]] = ticks.to_numpy()
    return score_all(answers, truth)


# -- simulated crowds -----------------------------------------------------------------------------


def simulate(crowd: str, k: int, seed: int) -> tuple[LabelSetTable, Any, Any]:
    """Draw a crowd: answers, truth, and the true sensitivity of each annotator and option."""
    rng = np.random.default_rng([seed, k, list(HABITS).index(crowd)])
    truth = rng.random((ITEMS, OPTIONS)) < rng.uniform(0.05, 0.4, OPTIONS)
    seen, false = rng.normal(1.0, 0.5, OPTIONS), rng.normal(-2.2, 0.5, OPTIONS)
    shape = (ANNOTATORS, OPTIONS)
    habit = np.resize([-1.5, 0.0, 1.5], ANNOTATORS)[:, None]
    ticks, skill = np.zeros(shape), np.zeros(shape)
    if crowd == "under, over":
        ticks += habit
    elif crowd == "skill":
        skill += rng.normal(0, 1, (ANNOTATORS, 1))
    elif crowd == "own habits":
        ticks += rng.choice([-1.5, 0.0, 1.5], shape)
    elif crowd == "turning habits":
        ticks += habit * np.resize([1.0, -1.0], OPTIONS)
    elif crowd == "own skill":
        skill += rng.normal(0, 1, shape)
    elif crowd == "mixed":
        fifth = np.arange(ANNOTATORS)[:, None] % 5
        skill += np.select([fifth == 0, fifth == 1], [1.0, -1.0], 0.0)
        ticks += np.select([fifth == 2, fifth == 3], [-1.5, 1.5], 0.0)
        ticks += np.where(fifth == 4, rng.choice([-1.5, 0.0, 1.5], shape), 0.0)
    else:
        skill += np.where(rng.random(shape).argsort(axis=1) < 2, 2.0, -1.0)
    sensitivity, false_ticks = expit(seen + ticks + skill), expit(false + ticks - skill)
    instance = np.repeat(np.arange(ITEMS), k)
    annotator = rng.random((ITEMS, ANNOTATORS)).argsort(axis=1)[:, :k].ravel()
    rate = np.where(truth[instance], sensitivity[annotator], false_ticks[annotator])
    answers = LabelSetTable.from_arrays(
        instance, annotator, rng.random(rate.shape) < rate, n_annotators=ANNOTATORS
    )
    return answers, truth, sensitivity


def of_crowd(crowd: str, k: int, seed: int) -> Record:
    """Score both kinds of fit on a simulated crowd, and the intervals of the default."""
    answers, truth, sensitivity = simulate(crowd, k, seed)
    found: Record = {}
    for name in ("own", "shared"):
        model: Any = METHODS[name]().fit(answers)
        found[f"{name}_f1"] = f1(model.labels_, truth.astype(int))
        found[f"{name}_loss"] = log_loss(model.posterior_, truth.astype(int))
        rule = decide_sets(model.posterior_, "f1").ticks
        found[f"{name}_f1_rule"] = f1(rule, truth.astype(int))
        found[f"{name}_r"] = float(
            np.corrcoef(model.sensitivity_.ravel(), sensitivity.ravel())[0, 1]
        )
        if name == "shared":
            found["gain"] = model.evidence_["shared"] - model.evidence_["own"]
    intervals = METHODS["auto"]().fit(answers).intervals()
    # Of all options, weighted by how often the annotator saw one that applies.
    seen = np.zeros(sensitivity.shape)
    np.add.at(seen, answers.annotator, truth[answers.instance].astype(float))
    overall = (seen * sensitivity).sum(axis=1) / seen.sum(axis=1)
    for name, bounds, true in (
        ("covered_overall", intervals.annotator_sensitivity, overall),
        ("covered", intervals.sensitivity, sensitivity),
    ):
        found[name] = float(((bounds[..., 0] <= true) & (true <= bounds[..., 1])).mean())
    return found


# -- what is not built ----------------------------------------------------------------------------


def answers_of(kind: str, name: str, k: int, seed: int) -> tuple[LabelSetTable, Any]:
    """Return answers and truth of a real set, or of a simulated crowd."""
    if kind == "crowd":
        answers, truth, _ = simulate(name, k, seed)
        return answers, truth.astype(int)
    answers, truth = load_set(name)
    return drawn(answers, k, seed), truth


def of_powerset(answers: LabelSetTable) -> Any:
    """Posterior of the options if each set is one class."""
    model = DawidSkene().fit(answers.joined())
    names = [str(each).split(" + ") for each in model.classes_]
    holds = np.array([[option in set(each) for option in answers.options] for each in names])
    return np.asarray(model.posterior_ @ holds)


def of_one_matrix(answers: LabelSetTable) -> Any:
    """Posterior of the options if each annotator has one confusion matrix for all of them."""
    m, ticks = answers.n_options, answers.ticks.toarray()
    instance = (answers.instance[:, None] * m + np.arange(m)).ravel()
    table = AnnotationTable.from_arrays(
        instance,
        np.repeat(answers.annotator, m),
        ticks.ravel().astype(int),
        n_instances=answers.n_instances * m,
        n_annotators=answers.n_annotators,
        classes=[0, 1],
    )
    return DawidSkene().fit(table).posterior_[:, 1].reshape(-1, m)


def of_profiles(answers: LabelSetTable, n_profiles: int = 4, seed: int = 0) -> Any:
    """Posterior of the options if labels come in profiles, a mixture of which is their prior."""
    model = METHODS["shared"]().fit(answers)
    share = np.clip(model.prevalence_, 1e-3, 1 - 1e-3)
    p = np.clip(model.posterior_, 1e-6, 1 - 1e-6)
    ratio = logit(p) - logit(share)  # What the answers say beyond the prior.
    rng = np.random.default_rng(seed)
    profiles = np.clip(share * rng.uniform(0.5, 1.5, (n_profiles, len(share))), 0.01, 0.99)
    weights = np.full(n_profiles, 1 / n_profiles)
    for _ in range(200):
        told = np.log1p(-profiles)[None] + np.logaddexp(0, ratio[:, None] + logit(profiles)[None])
        log_weight = np.log(weights) + told.sum(axis=2)
        member = np.exp(log_weight - logsumexp(log_weight, axis=1, keepdims=True))
        each = expit(ratio[:, None] + logit(profiles)[None])
        counts = member.sum(axis=0)
        weights = (counts + 1) / (counts + 1).sum()
        joint = (member[:, :, None] * each).sum(axis=0)
        profiles = np.clip((joint + 2 * share) / (counts[:, None] + 2), 1e-3, 1 - 1e-3)
    return (member[:, :, None] * each).sum(axis=1)


NOT_BUILT = {
    "a class per set": of_powerset,
    "one matrix": of_one_matrix,
    "label profiles": of_profiles,
}


def of_not_built(name: str, k: int, seed: int) -> Record:
    """Score what was left out, beside the fit that shares."""
    answers, truth = answers_of("set", name, k, seed)
    model: Any = METHODS["shared"]().fit(answers)
    found = {
        "shared_f1": f1(model.labels_, truth),
        "shared_loss": log_loss(model.posterior_, truth),
    }
    for method, posterior in NOT_BUILT.items():
        if method == "a class per set" and answers.joined().n_classes > MOST_CLASSES:
            continue
        proba = posterior(answers)
        found |= {f"{method}_f1": f1(proba > 0.5, truth), f"{method}_loss": log_loss(proba, truth)}
    return found


def not_built_page(records: list[Record]) -> dict[str, Any]:
    """Return the table of what was left out."""
    rows = []
    for name, k in dict.fromkeys((r["name"], r["k"]) for r in records):
        found = where(records, name=name, k=k)
        cells = [
            " / ".join(f"{np.mean([r[f'{m}_{s}'] for r in found]):.3f}" for s in ("f1", "loss"))
            if all(f"{m}_f1" in r for r in found)
            else ""
            for m in ("shared", *NOT_BUILT)
        ]
        rows.append([name, str(k or "all"), *cells])
    return {"not_built": table(["set", "k", "shared", *NOT_BUILT], rows), "most": MOST_CLASSES}


def not_built_cells() -> Iterator[Record]:
    """Yield the sets on which what was left out is scored."""
    for name, sizes in (("snow", (2, 3, 5)), ("varierr", (2, 0)), ("relex", (3,))):
        for k in sizes:
            yield from ({"name": name, "k": k, "seed": seed} for seed in (range(3) if k else (0,)))


BETWEEN = {"habit of half": (0.5, None), "no habit": (0.0, None), "habit by option": (1.0, 20.0)}
"""Priors between the shared one and each option's own: the share of an annotator's habit over all
options, and the answers by which it shrinks the habit under one option."""


@contextmanager
def with_habit(share: float, strength: float | None) -> Iterator[None]:
    """Place the shared prior otherwise, while the context lasts."""

    def rates(counts: Any, by_others: Any) -> Any:
        found = shared_rates(counts, by_others)
        base = logit(_crowd_rates(counts))
        found = expit(base + share * (logit(found) - base))
        if strength is None:
            return found
        seen, ticked = by_others.sum(axis=3), by_others[..., 1]
        return np.clip((ticked + strength * found) / (seen + strength), 0.005, 0.995)

    with patch.object(multi_label_dawid_skene, "shared_rates", rates):
        yield


def of_between(kind: str, name: str, k: int, seed: int) -> Record:
    """Score fits with priors between the shared one and the options' own."""
    answers, truth = answers_of(kind, name, k, seed)
    own: Any = METHODS["own"]().fit(answers)
    found: Record = {"own_f1": f1(own.labels_, truth)}
    for method, how in ({"shared": (1.0, None)} | BETWEEN).items():
        with with_habit(*how):
            model: Any = METHODS["shared"]().fit(answers)
        found[f"{method}_f1"] = f1(model.labels_, truth)
        found[f"{method}_gain"] = model.evidence_["shared"] - model.evidence_["own"]
    return found


def between_cells() -> Iterator[Record]:
    """Yield the crowds and sets in which sharing gains or harms with few annotators."""
    for name in [crowd for crowd in HABITS if crowd != "mixed"]:
        for k in (2, 3):
            yield from ({"kind": "crowd", "name": name, "k": k, "seed": s} for s in range(3))
    for name, sizes in (("snow", (2, 3)), ("relex", (2, 3)), ("varierr", (2,))):
        for k in sizes:
            yield from ({"kind": "set", "name": name, "k": k, "seed": s} for s in range(2))


def between_page(records: list[Record]) -> dict[str, Any]:
    """Return the table of priors in between: F1 and evidence."""
    rows = []
    for name, k in dict.fromkeys((r["name"], r["k"]) for r in records):
        found = where(records, name=name, k=k)
        cells = [
            f"{np.mean([r[f'{m}_f1'] for r in found]):.3f} "
            f"({np.mean([r[f'{m}_gain'] for r in found]):+,.0f})"
            for m in ("shared", *BETWEEN)
        ]
        rows.append([name, str(k), f"{np.mean([r['own_f1'] for r in found]):.3f}", *cells])
    return {"between": table(["crowd or set", "k", "own", "shared", *BETWEEN], rows)}


# -- classifiers ----------------------------------------------------------------------------------


def of_classifiers(crowd: str, k: int, seed: int, noise: float = 1.5) -> Record:
    """Score classifiers of simulated features: shared posterior, own posteriors, a stack each."""
    answers, truth, _ = simulate(crowd, k, seed)
    rng = np.random.default_rng([seed, k])
    shown = truth @ rng.normal(size=(OPTIONS, 20)) + rng.normal(scale=noise, size=(ITEMS, 20))
    train = np.arange(ITEMS) < 0.7 * ITEMS
    answers, X, new = answers[train], shown[train], shown[~train]
    found: Record = {}
    for name in ("shared", "own"):
        model = AggregatedClassifier(METHODS[name](), TunedLogisticRegression(random_state=0))
        started = process_time()
        proba = model.fit(X, answers).predict_proba(new)
        found[f"{name}_seconds"] = process_time() - started
        found |= _scored(name, proba, truth[~train])
    started = process_time()
    columns = []
    for each in answers.tables.values():
        stack = CrowdStackingClassifier(random_state=0).fit(X, each)
        columns.append(stack.predict_proba(new)[:, stack.classes_.tolist().index("yes")])
    found["stack_seconds"] = process_time() - started
    return found | _scored("stack", np.column_stack(columns), truth[~train])


def classifier_cells() -> Iterator[Record]:
    """Yield the crowds of which classifiers are scored, and with two annotators weaker features."""
    crowds = ["under, over", "own skill"]
    yield from grid(crowd=crowds, k=(2, 3), seed=range(3))
    yield from grid(crowd=crowds, k=(2,), seed=range(3), noise=(6.0,))


def _scored(name: str, proba: Any, truth: Any) -> Record:
    truth = truth.astype(int)
    return {f"{name}_f1": f1(proba > 0.5, truth), f"{name}_loss": log_loss(proba, truth)}


def classifier_page(records: list[Record]) -> dict[str, Any]:
    """Return the table of classifiers: F1, log loss and seconds on unseen items."""
    rows = []
    kinds = [(r["crowd"], r["k"], r.get("noise", 1.5)) for r in records]
    for kind in dict.fromkeys(kinds):
        found = [r for r, own in zip(records, kinds, strict=True) if own == kind]
        crowd, k, noise = kind
        cells = [
            f"{np.mean([r[f'{m}_f1'] for r in found]):.3f} / "
            f"{np.mean([r[f'{m}_loss'] for r in found]):.3f} / "
            f"{np.mean([r[f'{m}_seconds'] for r in found]):.0f} s"
            for m in ("shared", "own", "stack")
        ]
        rows.append([crowd, str(k), f"{noise:g}", *cells])
    heading = ["crowd", "k", "noise", "shared posterior", "own posteriors", "a stack per option"]
    return {"classifiers": table(heading, rows)}


# -- cost -----------------------------------------------------------------------------------------


def of_cost() -> Record:
    """Fit a million answers about twenty options."""
    rng = np.random.default_rng(0)
    n, k, n_options = 200_000, 5, 20
    instance = np.repeat(np.arange(n), k)
    annotator = (rng.integers(0, 400, (n, k)) + 400 * np.arange(k)).ravel()
    skill = rng.normal(0, 0.7, 2_000)
    rows, columns = [], []
    for option in range(n_options):
        truth = rng.random(n) < 0.08
        rate = expit(np.where(truth[instance], 1.0, -3.0) + skill[annotator])
        rows.append(np.flatnonzero(rng.random(n * k) < rate))
        columns.append(np.full(len(rows[-1]), option))
    from scipy.sparse import csr_array

    ticks = csr_array(
        (np.ones(sum(map(len, rows)), dtype=bool), (np.concatenate(rows), np.concatenate(columns))),
        shape=(n * k, n_options),
    )
    started = process_time()
    answers = LabelSetTable.from_arrays(instance, annotator, ticks)
    made = process_time()
    model = MultiLabelDawidSkene().fit(answers)
    return {
        "reading": made - started,
        "fit": process_time() - made,
        "mb": peak_mb(),
        "mb_table": answers.nbytes / 1e6,
        "shares": bool(model.shared_),
    }


def of_reading(layout: str) -> Record:
    """Read a million answers about twenty options from a CSV file."""
    rng = np.random.default_rng(0)
    n, k, n_options = 200_000, 5, 20
    with TemporaryDirectory() as folder:
        path = Path(folder, "answers.csv")
        with path.open("w") as file:
            file.write("task,worker,labels\n")
            for first in range(0, n, 2_000):  # In pieces, so that writing needs little memory.
                own = rng.random((2_000, k, n_options)) < 0.08
                workers = rng.integers(0, 400, (2_000, k)) + 400 * np.arange(k)
                for i, j in product(range(2_000), range(k)):
                    names = [f"label{m}" for m in np.flatnonzero(own[i, j])] or ["NONE"]
                    cells = names if layout == "row per tick" else [";".join(names)]
                    file.writelines(f"t{first + i},w{workers[i, j]},{cell}\n" for cell in cells)
        started = process_time()
        answers = read_label_sets(path, none="NONE")
        return {
            "reading": process_time() - started,
            "mb": peak_mb(),
            "answers": answers.n_annotations,
            "mb_file": path.stat().st_size / 1e6,
        }


# -- a trial --------------------------------------------------------------------------------------


def of_trial() -> Record:
    """Go from an export with check boxes of Label Studio to labels in the tool and a report."""
    rng = np.random.default_rng(0)
    n, people, options = 300, 8, ["bill", "bug", "crash", "praise", "privacy", "speed"]
    truth = rng.random((n, len(options))) < 0.2
    seen, false = np.full(people, 0.92), np.full(people, 0.01)
    seen[6], false[7] = 0.5, 0.2  # The last but one overlooks much, the last ticks too much.
    tasks, blank = [], 0
    for i in range(n):
        answers: list[Record] = []
        for r in rng.choice(people, 4 if i % 5 == 0 else 3, replace=False).tolist():
            ticks = rng.random(len(options)) < np.where(truth[i], seen[r], false[r])
            choices = [name for name, ticked in zip(options, ticks, strict=True) if ticked]
            item = {"from_name": "topics", "to_name": "text", "type": "choices"}
            made = [item | {"value": {"choices": choices}}] if choices else []
            blank += not choices
            answers.append({"id": len(answers) + 10 * i, "completed_by": r, "result": made})
        tasks.append({"id": i, "data": {"text": f"Message {i}"}, "annotations": answers})
    with TemporaryDirectory() as folder:
        export, gold, out = (Path(folder, name) for name in ("p.json", "gold.csv", "labels"))
        export.write_text(json.dumps(tasks))
        known = [";".join(np.array(options)[row]) for row in truth]
        pd.DataFrame({"task": range(n), "labels": known}).to_csv(gold, index=False)
        reading = ["--multilabel", ";", "--none", "empty"]
        call = ["aggregate", str(export), *reading, "--gold", str(gold), "--out", str(out)]
        ended = CliRunner().invoke(app, [*call, "--to", "label-studio", "--json"])
        page = CliRunner().invoke(app, ["report", str(out)])
        if ended.exit_code or page.exit_code:
            raise RuntimeError(ended.output + page.output)
        found = json.loads(ended.stdout)
        back = json.loads((out / "label-studio.json").read_text())
    return {
        "answers": found["n_annotations"],
        "blank": blank,
        "items": len(back),
        "given": found["levels"]["given"],
        "found": found["levels"]["found"],
        "flagged": [row["annotator"] for row in found["flagged"]],
    }


# -- the page -------------------------------------------------------------------------------------


def pair(found: list[Record], score: str) -> str:
    """Write the means of own and shared, and their difference with its standard error."""
    own, shared = (np.array([r[f"{name}_{score}"] for r in found]) for name in ("own", "shared"))
    error = f" ({with_error(shared - own, 3)})" if len(found) > 1 else ""
    return f"{own.mean():.3f} → {shared.mean():.3f}{error}"


def set_page(records: list[Record]) -> dict[str, Any]:
    """Return the table of the real sets."""
    rows, losses = [], []
    for name, sizes in SETS.items():
        for k in sizes:
            if found := where(records, name=name, k=k):
                gain = f"{np.mean([r['gain'] for r in found]):+,.0f}"
                own = [mean(found, "majority_f1"), pair(found, "f1"), mean(found, "auto_f1")]
                rows.append([name, str(k or "all"), *own, pair(found, "macro"), gain])
                loss = [mean(found, "majority_loss"), pair(found, "loss"), mean(found, "auto_loss")]
                losses.append([name, str(k or "all"), *loss, of_rule(found, "auto")])
    return {
        "sets": table(["set", "k", "majority", "F1", "auto", "macro-F1", "evidence"], rows),
        "losses": table(
            ["set", "k", "majority", "log loss", "auto", "F1 of auto, with rule f1"], losses
        ),
        "draws": len(DRAWS),
        "varierr_macro": pair(where(records, name="varierr", k=2), "macro"),
    }


def drawing(records: list[Record]) -> str:
    """Draw the F1 against experts: shared priors, own priors, and the majority."""
    kinds = {"shared_f1": "shared", "own_f1": "each option alone", "majority_f1": "majority vote"}
    rows = []
    for name, k in ((name, k) for name, sizes in SETS.items() for k in sizes):
        if found := where(records, part="sets", name=name, k=k):
            means = {w: float(np.mean([r[key] for r in found])) for key, w in kinds.items()}
            rows.append(Row(f"{name}, {k or 'all'} annotators per item", means))
    return dots("Micro-F1 against experts' labels", rows)


def mean(found: list[Record], name: str) -> str:
    """Write the mean of a figure."""
    return f"{np.mean([r[name] for r in found]):.3f}"


def of_rule(found: list[Record], name: str) -> str:
    """Write the F1 of a method's ticks and of those of the rule f1, and the difference."""
    more = np.array([r[f"{name}_f1_rule"] - r[f"{name}_f1"] for r in found])
    told = with_error(more, 3) if len(found) > 1 else f"{more[0]:+.3f}"
    return f"{mean(found, f'{name}_f1')} → {mean(found, f'{name}_f1_rule')} ({told})"


def framing_page(records: list[Record]) -> dict[str, Any]:
    """Return the figures of the framing set."""
    return {
        "framing_majority": f"{np.mean([r['majority_f1'] for r in records]):.3f}",
        "framing_f1": pair(records, "f1"),
        "framing_loss": pair(records, "loss"),
        "framing_auto": f"{mean(records, 'auto_f1')} / {mean(records, 'auto_loss')}",
        "framing_macro": pair(records, "macro"),
        "framing_rule": of_rule(records, "shared"),
    }


def crowd_page(records: list[Record]) -> dict[str, Any]:
    """Return the table of the simulated crowds."""
    rows = []
    for crowd, k in product(HABITS, PER_ITEM):
        if found := where(records, crowd=crowd, k=k):
            correlation = (np.mean([r[f"{name}_r"] for r in found]) for name in ("own", "shared"))
            rows.append(
                [
                    crowd,
                    str(k),
                    pair(found, "f1"),
                    pair(found, "loss"),
                    of_rule(found, "shared"),
                    " → ".join(f"{r:.2f}" for r in correlation),
                    f"{np.mean([r['gain'] > 0 for r in found]):.0%}",
                    f"{np.mean([r['covered_overall'] for r in found]):.0%}",
                    f"{np.mean([r['covered'] for r in found]):.0%}",
                ]
            )
    heading = ["crowd", "k", "F1", "log loss", "F1, rule f1", "r", "shares", "covers", "by option"]
    under = where(records, crowd="under, over", k=5)
    covers = {
        f"{crowd} with {k} annotators": float(np.mean([r["covered_overall"] for r in found]))
        for crowd, k in product(HABITS, PER_ITEM)
        if (found := where(records, crowd=crowd, k=k))
    }
    least = min(covers, key=lambda name: covers[name])
    return {
        "covers_least": least,
        "covers": f"{covers[least]:.0%}",
        "under_shares": f"{np.mean([r['gain'] > 0 for r in under]):.0%}",
        "under_loss": pair(under, "loss"),
        "crowds": table(heading, rows),
        "seeds": len(SEEDS),
        "kinds": [f"- **{name}**: {what}." for name, what in HABITS.items()],
    }


def cost_page(records: list[Record]) -> dict[str, Any]:
    """Return the figures of cost."""
    last = records[-1]
    return {name: last[name] for name in ("reading", "fit", "mb", "mb_table")}


def reading_page(records: list[Record]) -> dict[str, Any]:
    """Return the table of what reading costs."""
    rows = [
        [r["layout"], f"{r['mb_file']:.0f} MB", f"{r['reading']:.1f}", f"{r['mb']:,.0f} MB"]
        for r in records
    ]
    return {"reading_files": table(["layout", "file", "CPU seconds", "peak memory"], rows)}


def trial_page(records: list[Record]) -> dict[str, Any]:
    """Return the figures of the trial."""
    last = records[-1]
    return {
        **{name: last[name] for name in ("answers", "blank", "items")},
        **{f"trial_{name}": percent_range(last[name]) for name in ("given", "found")},
        "flagged": ", ".join(str(each) for each in last["flagged"]),
    }


def data_of(cell: Any) -> list[str]:
    """Folders of the data home that a cell reads."""
    if cell["part"] in ("sets", "not-built") or cell.get("kind") == "set":
        return ["multilabel"]
    return ["judges"] if cell["part"] == "framing" else []


STUDY = of_parts(
    __file__,
    {
        "sets": Part(of_set, set_page, set_cells),
        "framing": Part(of_framing, framing_page, lambda: grid(person=range(1, 5))),
        "crowds": Part(of_crowd, crowd_page, lambda: grid(crowd=HABITS, k=PER_ITEM, seed=SEEDS)),
        "not-built": Part(of_not_built, not_built_page, not_built_cells),
        "between": Part(of_between, between_page, between_cells),
        "classifiers": Part(of_classifiers, classifier_page, classifier_cells),
        "cost": Part(of_cost, cost_page),
        "reading": Part(of_reading, reading_page, lambda: grid(layout=LAYOUTS)),
        "trial": Part(of_trial, trial_page),
    },
    data=data_of,
    drawings=lambda records: {"multilabel-f1.svg": drawing(records)},
)

if __name__ == "__main__":
    STUDY.main()
