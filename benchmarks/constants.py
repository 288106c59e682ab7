"""Open constants of CrowdInG and NeuCrowd: what held-out annotations say of each.

CrowdInG: the paper and its code leave most constants of the adversarial phase open. Here each is
varied alone from the defaults; for lambda, t, and the forms of paper and code see the paper's page.

By likelihood: a fifth of the annotations is held out of everything. A setting is judged by how much
better the *classifier* explains these annotations than the start it came from, at the epoch that is
best by that measure and at the last one. The measure is that of the watchdog,
``validation_classifier_nll``, in thousandths of a nat; negative is better. No gold label chooses
anything; the change of accuracy on the test part is shown beside it, as a check on the measure.

By agreement: every instance is predicted by a model trained on the other folds of instances, and
compared with its annotations (`vote_agreement`).

NeuCrowd: the paper finds layer sizes and the strength of the penalty by a grid. It gives no margin,
size of the candidate pool or similarity constants. Here each constant is varied alone from the
defaults. Thirds of the instances in the *training part* of every set are left out in turn, with all
their annotations. A setting is judged by the probability that the classifier gives to these
annotations (mean negative log likelihood, in thousandths of a nat), and by the share of them it
predicts. Neither gold labels nor test parts are used. For comparison, the page also shows logistic
regression on the features, with every annotation as an example and C chosen in the same way.

ICED: its epochs are rounds of EM. A number of them is chosen on a held-out fraction, by likelihood
as the library does, or by agreement; or the last is kept. Halves of the training part are predicted
by models of the other half, and compared with their gold labels, which chose nothing.

Run: ``OMP_NUM_THREADS=1 python benchmarks/constants.py likelihood --jobs 2``, ``... agreement
--records results/benchmarks/constants.jsonl``, ``... iced --records
results/benchmarks/constants_iced.jsonl`` and ``... neucrowd --jobs 1``. Each writes its part of the
page. What is in the records is not repeated.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from pages import run_missing, table_lines, write_part

import manyhands
from evidence.data import make_low_quality_cifar10h
from manyhands import (
    AnnotationTable,
    AveragedCrowdClassifier,
    CrowdInGClassifier,
    CrowdLayerClassifier,
    ICEDClassifier,
    MetricLearningClassifier,
    NeuCrowdClassifier,
    SoftProbClassifier,
    cross_predict,
)
from manyhands.datasets import load_colposcopy, load_hotel, load_labelme, load_music, load_reports
from manyhands.fitting import Watch
from manyhands.inference import MajorityVote
from manyhands.linear import TunedLogisticRegression
from manyhands.metrics import accuracy, vote_agreement
from manyhands.metrics.votes import paired_z
from manyhands.typing import FloatArray

OUT = Path("docs/results/constants.md")
TITLE = "What held-out annotations say of the constants of CrowdInG, NeuCrowd and ICED"
BY_LIKELIHOOD = "CrowdInG: by likelihood"
BY_AGREEMENT = "CrowdInG: by agreement out of fold"
OF_NEUCROWD = "NeuCrowd and metric learning"
OF_ICED = "Rounds of ICED"
HELD_OUT = 0.2
METRIC = "validation_classifier_nll"

CROWDING_SETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LabelMe": (
        load_labelme,
        {"max_epochs": 25, "batch_size": 512, "scaling": None, "noise_lr": None},
    ),
    "Music": (
        load_music,
        {
            "max_epochs": 100,
            "scaling": "standard",
            "backbone": {"name": "mlp", "batch_norm": True},
            "noise_lr": None,
        },
    ),
    "CIFAR-10H": (
        make_low_quality_cifar10h,
        {
            "max_epochs": 25,
            "scaling": "standard",
            "batch_size": 512,
            "annotators_per_instance": 16,
            "adversarial_epochs": 10,
        },
    ),
}
"""Loaders and training parameters, as in ``experiments/crowding2021.yaml``."""

DEAR = {"CIFAR-10H": {"classifier_lr"}}
"""Constants that are varied on a set where a fit takes most of a minute; default: all."""

GAN: dict[str, Any] = {
    "generator": "crowd_layer",
    "information_weight": 0,
    "selection": "random",
    "two_steps": False,
    "generative_steps": 1,
    "mu": "mean",
    "lca": False,
}
"""The paper's baseline DL-CL+GAN, whose constants the paper does not give either."""

CROWDING_SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"classifier_lr": 1e-5},
    {"classifier_lr": 1e-4},
    {"generator_lr": 1e-3},
    {"discriminator_lr": 1e-4},
    {"discriminator_lr": 3e-4},
    {"mu": "mean"},
    {"contrast": "observed"},
    {"adversarial_epochs": 40},
    GAN,
    {**GAN, "generator_lr": 1e-3, "classifier_lr": 1e-3},
)

START = "the start alone"
AGREED: tuple[dict[str, Any] | str, ...] = (
    {},
    START,
    {"classifier_lr": 1e-5},
    {"classifier_lr": 3e-5},
    {"discriminator_lr": 1e-4},
    {"mu": "mean"},
    {"contrast": "observed"},
)
"""Settings compared by agreement."""

AGREED_SETS = ("LabelMe", "Music")
FOLDS = 3
COLUMNS = ("setting", "agreement", "difference", "z", "test")


class Moved(NamedTuple):
    """Change of the measure and of accuracy from the start to the best and to the last epoch."""

    best: float
    last: float
    accuracy_best: float
    accuracy_last: float
    generator: float
    """Negative log likelihood of the held-out annotations under the trained generator."""


def moved_on(name: str) -> list[int]:
    """Return the positions of the settings that are tried on a set."""
    return [
        k
        for k, setting in enumerate(CROWDING_SETTINGS)
        if set(setting) <= DEAR.get(name, set(setting))
    ]


@cache
def load_set(name: str) -> Any:
    """Load a set, once per process."""
    return CROWDING_SETS[name][0]()


def measure_epochs(name: str, setting: dict[str, Any], seed: int) -> Moved:
    """Fit once and compare the epochs of the adversarial phase with the state before it."""
    data, params = load_set(name), CROWDING_SETS[name][1]
    model = CrowdInGClassifier(
        **{
            **params,
            **setting,
            "validation": HELD_OUT,
            "random_state": seed,
            "monitor": "likelihood",
        }
    )
    watch = Watch(test=(data.X_test, data.y_test))
    history = model.fit(data.X_train, data.annotations, watch=watch).history_
    start = [row for row in history if row["stage"] == "discriminator"][-1]
    rows = [start, *(row for row in history if row["stage"] == "adversarial")]
    nll = np.array([row[METRIC] for row in rows])
    accuracy = np.array([row["test_accuracy"] for row in rows])
    best = int(nll.argmin())
    return Moved(
        1e3 * (nll[best] - nll[0]),
        1e3 * (nll[-1] - nll[0]),
        100 * (accuracy[best] - accuracy[0]),
        100 * (accuracy[-1] - accuracy[0]),
        start["validation_nll"],
    )


def spread(values: list[float], digits: int = 1) -> str:
    """Return mean ± sample sd."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else float("nan")
    return f"{np.mean(values):+.{digits}f} ± {deviation:.{digits}f}"


def describe(setting: dict[str, Any]) -> str:
    """Name the constants in which a setting differs from the defaults."""
    is_gan = setting.items() >= GAN.items()
    own = {key: value for key, value in setting.items() if not (is_gan and key in GAN)}
    names = ["DL-CL+GAN"] * is_gan + [f"`{key}={value!r}`" for key, value in own.items()]
    return ", ".join(names) or "defaults"


# -- by agreement ---------------------------------------------------------------------------------


def cross_predicted(name: str, place: int, seed: int) -> dict[str, Any]:
    """Predict every training instance out of fold by a model with the library's defaults."""
    data, setting, started = load_set(name), AGREED[place], process_time()
    if isinstance(setting, str):
        init_scale = CrowdInGClassifier().init_scale
        model: Any = CrowdLayerClassifier(init_scale=init_scale)
    else:
        model = CrowdInGClassifier(**setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_predict(
            model,
            data.X_train,
            data.annotations,
            cv=FOLDS,
            random_state=seed,
            return_estimators=True,
        )
    averaged = AveragedCrowdClassifier.of_fitted(found.estimators or [])
    return {
        "cell": [name, place, seed],
        "codes": found.proba.argmax(axis=1).tolist(),
        "test": accuracy(data.y_test, averaged.predict(data.X_test)),
        "seconds": process_time() - started,
    }


def agreement_part(records: list[dict[str, Any]], seeds: int) -> list[str]:
    """Return the lines of the part about agreement, in Markdown."""
    cells = {tuple(record["cell"]): record for record in records if record["cell"][2] < seeds}
    minutes = sum(record["seconds"] for record in cells.values()) / 60
    lines = [
        "Made by `OMP_NUM_THREADS=1 python benchmarks/constants.py agreement --seeds "
        f"{seeds} --records crowding.jsonl` on {datetime.date.today()}, manyhands "
        f"{manyhands.__version__}; {seeds} seed{'s' * (seeds > 1)}, {FOLDS} folds of the training "
        f"instances, all other parameters at the library's defaults, {minutes:.0f} CPU minutes. "
        "*Agreement* is `vote_agreement` "
        "out of fold, in percent. *Difference* is that to the defaults, paired by instance, ± its "
        "standard error; *z* is their quotient. *Test* is the accuracy "
        "of the averaged fold models on the test part: it chose nothing.",
    ]
    for name in AGREED_SETS:
        values = {
            place: np.mean([_values(cells[name, place, seed]) for seed in range(seeds)], axis=0)
            for place in range(len(AGREED))
        }
        rows = []
        for place, setting in enumerate(AGREED):
            gap = values[place] - values[0]
            gap = 100 * gap[~np.isnan(gap)]
            error = gap.std(ddof=1) / np.sqrt(len(gap))
            moved = [f"{gap.mean():+.2f} ± {error:.2f}", f"{paired_z(gap):+.1f}"]
            test = [100 * cells[name, place, seed]["test"] for seed in range(seeds)]
            label = setting if isinstance(setting, str) else describe(setting)
            rows.append(
                [
                    label,
                    f"{100 * np.nanmean(values[place]):.2f}",
                    *(moved if place else ["–", "–"]),
                    f"{np.mean(test):.1f}",
                ]
            )
        lines += ["", f"### {name}", "", *table_lines(COLUMNS, rows)[:-1]]
    return lines


def _values(record: dict[str, Any]) -> FloatArray:
    """Agreement on every instance; NaN where there are no annotations."""
    table = load_set(record["cell"][0]).annotations
    return vote_agreement(table.classes[np.array(record["codes"])], table, average=False)


def by_agreement(path: Path, out: Path, seeds: int) -> None:
    """Run the missing cells, and replace the part of the page."""
    planned = (
        ((name, place, seed), partial(cross_predicted, name, place, seed))
        for seed, place, name in product(range(seeds), range(len(AGREED)), AGREED_SETS)
    )
    records = run_missing(path, planned, lambda record: tuple(record["cell"]))
    write_part(out, TITLE, BY_AGREEMENT, agreement_part(records, seeds))


# -- rounds of ICED -------------------------------------------------------------------------------


class ICEDByAgreement(ICEDClassifier):
    """ICED whose number of rounds is chosen by agreement, as that of a network's epochs is."""

    _epochs_are_rounds = False


RULES: dict[str, Callable[[int], Any]] = {
    "last round": lambda seed: ICEDClassifier(random_state=seed),
    "likelihood": lambda seed: ICEDClassifier(validation=HELD_OUT, random_state=seed),
    "agreement": lambda seed: ICEDByAgreement(validation=HELD_OUT, random_state=seed),
}
ROUNDS_SETS = {
    "LabelMe": load_labelme,
    "Music": load_music,
    "Reports": load_reports,
    "Colposcopy": load_colposcopy,
    "Hotel": load_hotel,
}
ROUNDS_SEEDS = range(2)


def rounds_of(name: str, rule: str, seed: int) -> dict[str, Any]:
    """Predict both halves of a training part, each by a model of the other half."""
    data = ROUNDS_SETS[name]()
    half = np.random.default_rng(seed).permutation(len(data.X_train)) % 2
    predicted = np.empty(len(half), dtype=object)
    rounds = []
    for k in range(2):
        train, left = np.flatnonzero(half != k), np.flatnonzero(half == k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = RULES[rule](seed).fit(data.X_train[train], data.annotations[train])
        predicted[left] = model.predict(data.X_train[left])
        rounds.append(int(getattr(model, "best_epoch_", model.n_epochs_)))
    right = accuracy(data.y_train, predicted.astype(np.asarray(data.y_train).dtype))
    return {"cell": [name, rule, seed], "accuracy": float(right), "rounds": rounds}


def rounds_part(records: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the part about ICED's rounds, in Markdown."""
    rows = []
    for rule in RULES:
        row, means = [rule], []
        for name in ROUNDS_SETS:
            own = [r for r in records if r["cell"][:2] == [name, rule]]
            values = [100 * r["accuracy"] for r in own]
            means.append(float(np.mean(values)))
            row.append(f"{means[-1]:.1f} ({np.mean([r['rounds'] for r in own]):.0f})")
        rows.append([*row, f"{np.mean(means):.1f}"])
    return [
        "Made by `OMP_NUM_THREADS=1 python benchmarks/constants.py iced --records "
        f"results/benchmarks/constants_iced.jsonl` on {datetime.date.today()}, manyhands "
        f"{manyhands.__version__}; {len(ROUNDS_SEEDS)} seeds. Halves of the training part are "
        "predicted by models of the other half: accuracy, %, and in parentheses the round that is "
        f"kept, of 30. {HELD_OUT:.0%} of a half are held out for the choice: of its annotations by "
        "likelihood, of its instances by agreement. Agreement rewards early rounds, which repeat "
        "the crowd's shared mistakes; so the library goes by the likelihood, and keeps the last "
        "round where nothing is held out.",
        "",
        *table_lines(["rule", *ROUNDS_SETS, "mean"], rows)[:-1],
    ]


def by_rounds(path: Path, out: Path) -> None:
    """Run the missing cells, and replace the part of the page."""
    planned = (
        ((name, rule, seed), partial(rounds_of, name, rule, seed))
        for seed, name, rule in product(ROUNDS_SEEDS, ROUNDS_SETS, RULES)
    )
    records = run_missing(path, planned, lambda record: tuple(record["cell"]))
    write_part(out, TITLE, OF_ICED, rounds_part(records))


# -- by likelihood --------------------------------------------------------------------------------


def likelihood_part(found: dict[tuple[int, str], list[Moved]], seeds: int) -> list[str]:
    """Return the lines of the part about the likelihood, in Markdown."""
    default = CrowdInGClassifier().get_params(deep=False)
    alone = [setting for setting in CROWDING_SETTINGS if not setting.items() >= GAN.items()]
    moved = sorted({key for setting in alone for key in setting})
    lines = [
        "Made by `OMP_NUM_THREADS=1 python benchmarks/constants.py likelihood` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}; seeds 0 to {seeds - 1}, "
        "mean ± sd. Each setting moves one constant from the defaults ("
        + ", ".join(f"`{key}={default[key]!r}`" for key in moved)
        + f"). {HELD_OUT:.0%} of the annotations are held out of everything; *nll* is the change, "
        "in thousandths of a nat, of how the classifier explains them, from the start to the "
        "epoch of the adversarial phase that is best by it and to the last one: negative is "
        "better. *Generator* is the negative log likelihood of the held-out annotations by the "
        "generator before that phase. *Accuracy* is the change on the test part, in points: it "
        "chose nothing.",
    ]
    for name in CROWDING_SETS:
        lines += [
            "",
            f"### {name}",
            "",
            "| setting | nll, best epoch | nll, last epoch | generator | accuracy, best epoch by "
            "nll | accuracy, last epoch |",
            "|---|---|---|---|---|---|",
        ]
        for place in moved_on(name):
            runs, setting = found[place, name], CROWDING_SETTINGS[place]
            label = describe(setting)
            lines.append(
                f"| {label} | {spread([r.best for r in runs])} | {spread([r.last for r in runs])} "
                f"| {np.mean([r.generator for r in runs]):.3f} "
                f"| {spread([r.accuracy_best for r in runs])} "
                f"| {spread([r.accuracy_last for r in runs])} |"
            )
    return lines


def by_likelihood(out: Path, seeds: int, jobs: int) -> None:
    """Run all settings, and replace the part of the page."""
    found: dict[tuple[int, str], list[Moved]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        waiting: dict[tuple[int, str], list[Future[Moved]]] = {
            (place, name): [
                pool.submit(measure_epochs, name, CROWDING_SETTINGS[place], seed)
                for seed in range(seeds)
            ]
            for name in CROWDING_SETS
            for place in moved_on(name)
        }
        for (place, name), futures in waiting.items():
            runs = found[place, name] = [future.result() for future in futures]
            print(
                name, describe(CROWDING_SETTINGS[place]), "nll", spread([r.best for r in runs]),
                spread([r.last for r in runs]), "generator",
                round(float(np.mean([r.generator for r in runs])), 4), "accuracy",
                spread([r.accuracy_best for r in runs]),
                spread([r.accuracy_last for r in runs]), flush=True,
            )  # fmt: skip
    write_part(out, TITLE, BY_LIKELIHOOD, likelihood_part(found, seeds))


# -- NeuCrowd -------------------------------------------------------------------------------------


N_FOLDS = 3

NEUCROWD_SETS: dict[str, tuple[Callable[[], Any], int | None]] = {
    "Hotel": (load_hotel, None),
    "Hotel, 150": (load_hotel, 150),
    "Colposcopy": (load_colposcopy, None),
    "Reports": (load_reports, 300),
    "Music": (load_music, 300),
    "LabelMe": (load_labelme, 300),
}
"""Loaders, and the number of annotated training instances drawn from each set (None: all)."""

REGRESSION = "logistic regression on the features"
PAPERS_NETWORK = {
    "name": "embedding",
    "hidden": [128],
    "activation": "sigmoid",
    "input_dropout": 0.0,
    "dropout": 0.2,
    "bounded": True,
}
PROTOTYPE = {**PAPERS_NETWORK, "activation": "tanh", "dropout": 0.5}


def _network(**arguments: Any) -> dict[str, Any]:
    return {"backbone": {"name": "embedding", **arguments}}


NEUCROWD_SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "the features beside the embedding": {"regression": "both"},
    "the code's network (sigmoid, dropout .2 of the embedding)": {"backbone": PAPERS_NETWORK},
    "tanh, dropout .5 of the embedding, weight decay .03": {
        "backbone": PROTOTYPE,
        "weight_decay": 0.03,
    },
    "no dropout": _network(input_dropout=0.0),
    "dropout .3 of the features": _network(input_dropout=0.3),
    "ReLU": _network(activation="relu"),
    "256 hidden units": _network(hidden=[256]),
    "linear embedding": _network(hidden=[]),
    "10 epochs": {"max_epochs": 10},
    "40 epochs": {"max_epochs": 40},
    "learning rate 1e-3": {"lr": 1e-3},
    "weight decay .1": {"weight_decay": 0.1},
    "η = 1": {"eta": 1.0},
    "η = 10": {"eta": 10.0},
    "the code's softmax": {"softmax": "code"},
    "pool of 8": {"n_candidates": 8},
    "unsafe instances .02 as often (the code)": {"unsafe_weight": 0.02},
    "anchor as printed (a sum)": {"normalize_anchor": False},
}

NAMES = ("contrastive", "triplet", "triplet_semihard", "lifted", "center")
LOSSES: dict[str, dict[str, Any]] = {
    f"{loss}{words}": {"loss": loss, **more}
    for loss in NAMES
    for words, more in (
        ("", {}),
        (", learning rate 1e-3", {"lr": 1e-3}),
        (", 40 epochs", {"max_epochs": 40}),
    )
}
"""The metric-learning baselines: each loss with its defaults, then with one constant varied."""


class Explained(NamedTuple):
    """Negative log likelihood of the left-out annotations, and the share that is predicted."""

    nll: float
    named: float


@cache
def load_part(name: str) -> tuple[Any, AnnotationTable]:
    """Load the annotated instances of a set's training part, or a fixed sample of them."""
    make, n = NEUCROWD_SETS[name]
    data = make()
    rows = np.flatnonzero(data.annotations.annotations_per_instance())
    if n is not None and n < len(rows):
        rows = np.sort(np.random.default_rng(0).choice(rows, n, replace=False))
    return data.X_train[rows], data.annotations[rows]


def folds(table: AnnotationTable) -> np.ndarray[Any, Any]:
    """Assign instances to folds, stratified by majority class."""
    order = np.random.default_rng(1).permutation(len(table))
    labels = MajorityVote().fit(table).posterior_.argmax(axis=1)
    order = order[np.argsort(labels[order], kind="stable")]
    found = np.empty(len(table), dtype=int)
    found[order] = np.arange(len(table)) % N_FOLDS
    return found


def measure_folds(name: str, setting: str) -> Explained:
    """Return the mean over the folds."""
    X, table = load_part(name)
    place = folds(table)
    found = []
    for k in range(N_FOLDS):
        kept, left = np.flatnonzero(place != k), np.flatnonzero(place == k)
        if setting == REGRESSION:
            model: Any = SoftProbClassifier(TunedLogisticRegression(random_state=0))
        elif setting in LOSSES:
            model = MetricLearningClassifier(**LOSSES[setting], random_state=k)
        else:
            model = NeuCrowdClassifier(**NEUCROWD_SETTINGS[setting], random_state=k)
        proba = model.fit(X[kept], table[kept]).predict_proba(X[left])
        counts = table[left].vote_counts()
        log_proba = np.log(np.maximum(proba, 1e-6))
        named = counts[np.arange(len(left)), proba.argmax(axis=1)].sum()
        found.append((-(counts * log_proba).sum() / counts.sum(), named / counts.sum()))
    nll, share = np.mean(found, axis=0)
    return Explained(float(nll), float(share))


def neucrowd_part(found: dict[tuple[str, str], Explained]) -> list[str]:
    """Return the lines of the part about NeuCrowd, in Markdown."""
    names = list(NEUCROWD_SETS)
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        f"Made by `OMP_NUM_THREADS=1 python benchmarks/constants.py neucrowd --jobs 1` on "
        f"{today}, manyhands {manyhands.__version__}. {N_FOLDS}-fold "
        "cross-validation over the instances of the training parts (of Reports, Music and "
        "LabelMe 300 of them, of Hotel also 150): a fold is left out with all its annotations. "
        "*nll*: mean negative log likelihood of these by the classifier, in thousandths of a nat; "
        "*named*: share of them that it names, %. Each row but the first moves one constant from "
        "the defaults, and shows the difference from these (of the nll negative is better); of "
        "metric learning from those of the same loss. *Mean*: over the sets. No gold label and "
        "no test part is looked at.",
        "",
    ]
    for field, scale, words in (("nll", 1000, "nll"), ("named", 100, "named, %")):
        cells = {key: scale * getattr(value, field) for key, value in found.items()}
        head = [f"| setting | {' | '.join(names)} | mean |", "|---" * (len(names) + 2) + "|"]
        lines += [f"### NeuCrowd: {words}", "", *head, _absolute("defaults", cells)]
        lines += [
            _moved(s, "defaults", cells)
            for s in [REGRESSION, *NEUCROWD_SETTINGS]
            if s != "defaults"
        ]
        lines += ["", f"### Metric learning: {words}", "", *head]
        for loss in NAMES:
            own = [s for s in LOSSES if LOSSES[s]["loss"] == loss]
            lines += [_absolute(own[0], cells), *(_moved(s, own[0], cells) for s in own[1:])]
        lines.append("")
    return lines


def _absolute(setting: str, cells: dict[tuple[str, str], float]) -> str:
    """Return a row of absolute figures."""
    own = [cells[name, setting] for name in NEUCROWD_SETS]
    return f"| {setting} | {' | '.join(f'{v:.1f}' for v in own)} | {np.mean(own):.1f} |"


def _moved(setting: str, base: str, cells: dict[tuple[str, str], float]) -> str:
    """Return a row of differences from ``base``."""
    moved = [cells[name, setting] - cells[name, base] for name in NEUCROWD_SETS]
    return f"| {setting} | {' | '.join(f'{v:+.1f}' for v in moved)} | {np.mean(moved):+.1f} |"


def _measure_folds(task: tuple[str, str]) -> Explained:
    return measure_folds(*task)


def of_neucrowd(out: Path, jobs: int) -> None:
    """Measure everything, and replace the part of the page."""
    tasks = list(product(NEUCROWD_SETS, [REGRESSION, *NEUCROWD_SETTINGS, *LOSSES]))
    with ProcessPoolExecutor(jobs) as pool:
        found = dict(zip(tasks, pool.map(_measure_folds, tasks), strict=True))
    write_part(out, TITLE, OF_NEUCROWD, neucrowd_part(found))


def main() -> None:
    """Run one part and write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("part", choices=["likelihood", "agreement", "neucrowd", "iced"])
    parser.add_argument("--seeds", type=int, help="default: 3 by likelihood, 2 by agreement")
    parser.add_argument("--jobs", type=int, default=1, help="processes; one by agreement")
    parser.add_argument(
        "--records", type=Path, help="agreement and iced: one line of JSON per cell"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if arguments.part == "neucrowd":
        of_neucrowd(arguments.out, arguments.jobs)
    elif arguments.part == "likelihood":
        by_likelihood(arguments.out, arguments.seeds or 3, arguments.jobs)
    elif arguments.records is None:
        parser.error(f"{arguments.part} needs --records")
    elif arguments.part == "iced":
        by_rounds(arguments.records, arguments.out)
    else:
        by_agreement(arguments.records, arguments.out, arguments.seeds or 2)


if __name__ == "__main__":
    main()
