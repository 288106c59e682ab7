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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import manyhands as mh
from benchmarks.bars import Row, dots
from evidence.data import make_low_quality_cifar10h
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import Part, grid, of_parts
from evidence.tables import Record, groups, listing, mean, spread, table, where, with_error
from manyhands.datasets import load_colposcopy, load_hotel, load_labelme, load_music, load_reports
from manyhands.fitting import Watch
from manyhands.fitting.method_protocol import from_flat
from manyhands.inference import MajorityVote
from manyhands.linear import TunedLogisticRegression
from manyhands.metrics import accuracy, vote_agreement
from manyhands.metrics.votes import paired_z

HELD_OUT = 0.2
METRIC = "validation_classifier_nll"

CROWDING_SETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LabelMe": (
        load_labelme,
        {"max_epochs": 25, "batch_size": 512, "scaling": None, "noise_lr": None},
    ),
    "Music": (
        load_music,
        {"max_epochs": 100, "scaling": "standard", "noise_lr": None,
         "backbone": {"name": "mlp", "batch_norm": True}},
    ),
    "CIFAR-10H": (
        make_low_quality_cifar10h,
        {"max_epochs": 25, "scaling": "standard", "batch_size": 512,
         "annotators_per_instance": 16, "adversarial_epochs": 10},
    ),
}  # fmt: skip
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


@cache
def load_set(name: str) -> Any:
    """Load a set, once per process."""
    return CROWDING_SETS[name][0]()


def describe(setting: dict[str, Any]) -> str:
    """Name the constants in which a setting differs from the defaults."""
    is_gan = setting.items() >= GAN.items()
    own = {key: value for key, value in setting.items() if not (is_gan and key in GAN)}
    names = ["DL-CL+GAN"] * is_gan + [f"`{key}={value!r}`" for key, value in own.items()]
    return ", ".join(names) or "defaults"


# -- rounds of ICED -------------------------------------------------------------------------------


class ICEDByAgreement(mh.ICEDClassifier):
    """ICED whose number of rounds is chosen by agreement, as that of a network's epochs is."""

    @property
    def _traits(self) -> Any:
        return replace(super()._traits, epochs_are_rounds=False)


RULES: dict[str, Callable[[int], Any]] = {
    "last round": lambda seed: mh.ICEDClassifier(random_state=seed),
    "likelihood": lambda seed: mh.ICEDClassifier(validation=HELD_OUT, random_state=seed),
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


@cache
def load_part(name: str) -> tuple[Any, mh.AnnotationTable]:
    """Load the annotated instances of a set's training part, or a fixed sample of them."""
    make, n = NEUCROWD_SETS[name]
    data = make()
    rows = np.flatnonzero(data.annotations.annotations_per_instance())
    if n is not None and n < len(rows):
        rows = np.sort(np.random.default_rng(0).choice(rows, n, replace=False))
    return data.X_train[rows], data.annotations[rows]


def folds(table: mh.AnnotationTable) -> np.ndarray[Any, Any]:
    """Assign instances to folds, stratified by majority class."""
    order = np.random.default_rng(1).permutation(len(table))
    labels = MajorityVote().fit(table).posterior_.argmax(axis=1)
    order = order[np.argsort(labels[order], kind="stable")]
    found = np.empty(len(table), dtype=int)
    found[order] = np.arange(len(table)) % N_FOLDS
    return found


# -- what is measured -----------------------------------------------------------------------------


def named(setting: dict[str, Any] | str) -> str:
    """Name a setting, or the start alone."""
    return setting if isinstance(setting, str) else describe(setting)


MOVED = {describe(setting): setting for setting in CROWDING_SETTINGS}
BY_AGREEMENT = {named(setting): setting for setting in AGREED}


def likelihood(set: str, setting: str, seed: int) -> Record:
    """Change of the measure and of accuracy from the start to the best and to the last epoch."""
    data, params = load_set(set), CROWDING_SETS[set][1]
    more = {"validation": HELD_OUT, "random_state": seed, "monitor": "likelihood"}
    given = {**params, **MOVED[setting], **more}
    model = mh.CrowdInGClassifier(**from_flat(mh.CrowdInGClassifier, given))
    watch = Watch(test=(data.X_test, data.y_test))
    history = model.fit(data.X_train, data.annotations, watch=watch).history_
    start = [row for row in history if row["stage"] == "discriminator"][-1]
    rows = [start, *(row for row in history if row["stage"] == "adversarial")]
    nll = np.array([row[METRIC] for row in rows])
    right = np.array([row["test_accuracy"] for row in rows])
    ends = [int(nll.argmin()), -1]
    return {
        "nll": [1e3 * float(nll[k] - nll[0]) for k in ends],
        "generator": start["validation_nll"],
        "accuracy": [100 * float(right[k] - right[0]) for k in ends],
    }


def agreement(set: str, setting: str, seed: int) -> Record:
    """Predict every training instance out of fold by a model with the library's defaults."""
    data, given = load_set(set), BY_AGREEMENT[setting]
    model: Any = mh.CrowdLayerClassifier()  # The start, whose defaults are those of CrowdInG's.
    if not isinstance(given, str):
        model = mh.CrowdInGClassifier(**from_flat(mh.CrowdInGClassifier, given))
    options = {"cv": FOLDS, "random_state": seed, "return_estimators": True}
    found = mh.cross_predict(model, data.X_train, data.annotations, **options)
    averaged = mh.AveragedCrowdClassifier.of_fitted(found.estimators or [])
    test = accuracy(data.y_test, averaged.predict(data.X_test))
    return {"codes": found.proba.argmax(axis=1).tolist(), "test": test}


def neucrowd(set: str, setting: str) -> Record:
    """Negative log likelihood of left-out annotations, and the share predicted: fold means."""
    X, given = load_part(set)
    place = folds(given)
    found = []
    for k in range(N_FOLDS):
        kept, left = np.flatnonzero(place != k), np.flatnonzero(place == k)
        if setting == REGRESSION:
            model: Any = mh.SoftProbClassifier(TunedLogisticRegression(random_state=0))
        elif setting in LOSSES:
            model = mh.MetricLearningClassifier(
                **from_flat(mh.MetricLearningClassifier, LOSSES[setting]), random_state=k
            )
        else:
            model = mh.NeuCrowdClassifier(
                **from_flat(mh.NeuCrowdClassifier, NEUCROWD_SETTINGS[setting]), random_state=k
            )
        proba = model.fit(X[kept], given[kept]).predict_proba(X[left])
        counts = given[left].vote_counts()
        log_proba = np.log(np.maximum(proba, 1e-6))
        right = counts[np.arange(len(left)), proba.argmax(axis=1)].sum()
        found.append((-(counts * log_proba).sum() / counts.sum(), right / counts.sum()))
    nll, share = np.mean(found, axis=0)
    return {"nll": float(nll), "named": float(share)}


def iced(set: str, rule: str, seed: int) -> Record:
    """Predict both halves of a training part, each by a model of the other half."""
    data = ROUNDS_SETS[set]()
    half = np.random.default_rng(seed).permutation(len(data.X_train)) % 2
    predicted = np.empty(len(half), dtype=object)
    rounds = []
    for k in range(2):
        train, left = np.flatnonzero(half != k), np.flatnonzero(half == k)
        model = RULES[rule](seed).fit(data.X_train[train], data.annotations[train])
        predicted[left] = model.predict(data.X_train[left])
        rounds.append(int(getattr(model, "best_epoch_", model.n_epochs_)))
    right = accuracy(data.y_train, predicted.astype(np.asarray(data.y_train).dtype))
    return {"accuracy": float(right), "rounds": rounds}


def of_likelihood() -> Iterator[Record]:
    """Yield the cells by likelihood: dear sets have few settings."""
    for name in CROWDING_SETS:
        kept = [k for k, setting in MOVED.items() if {*setting} <= DEAR.get(name, {*setting})]
        yield from grid(set=[name], setting=kept, seed=range(3))


# -- the page -------------------------------------------------------------------------------------


def likelihood_page(records: list[Record]) -> dict[str, Any]:
    """A table for each set."""

    def moved(runs: list[Record], key: str, k: int) -> str:
        return spread([r[key][k] for r in runs], sign=True)

    found = {}
    for name, own in groups(records, "set").items():
        found[f"likelihood_{name.split('-')[0].lower()}"] = listing(
            groups(own, "setting").values(),
            {
                "setting": lambda runs: runs[0]["setting"],
                "nll, best epoch": lambda runs: moved(runs, "nll", 0),
                "nll, last epoch": lambda runs: moved(runs, "nll", 1),
                "generator": lambda runs: f"{mean(runs, 'generator'):.3f}",
                "accuracy, best epoch by nll": lambda runs: moved(runs, "accuracy", 0),
                "accuracy, last epoch": lambda runs: moved(runs, "accuracy", 1),
            },
        )
    return found


def agreement_page(records: list[Record]) -> dict[str, Any]:
    """A table for each set, and what it took."""
    found: dict[str, Any] = {"agreement_minutes": sum(r["seconds"] for r in records) / 60}
    for name in AGREED_SETS:
        given, rows = load_set(name).annotations, []
        for setting in BY_AGREEMENT:
            runs = where(records, set=name, setting=setting)
            labels = [given.classes[np.array(r["codes"])] for r in runs]
            values = np.mean([vote_agreement(own, given, average=False) for own in labels], axis=0)
            if not rows:
                first, moved = values, ["–", "–"]
            else:
                gap = values - first
                gap = 100 * gap[~np.isnan(gap)]
                moved = [with_error(gap, 2), f"{paired_z(gap):+.1f}"]
            test = f"{np.mean([100 * r['test'] for r in runs]):.1f}"
            rows.append([setting, f"{100 * np.nanmean(values):.2f}", *moved, test])
        heads = ["setting", "agreement", "difference", "z", "test"]
        found[f"agreement_{name.lower()}"] = table(heads, rows)
    return found


def neucrowd_page(records: list[Record]) -> dict[str, Any]:
    """Likelihood and share of NeuCrowd, and of metric learning by loss."""
    found = {}
    for field, scale in (("nll", 1000), ("named", 100)):
        cells = {(r["set"], r["setting"]): scale * r[field] for r in records}

        def row(setting: str, base: str, cells: Any = cells) -> list[str]:
            own = [cells[n, setting] - (cells[n, base] if base else 0) for n in NEUCROWD_SETS]
            return [setting, *(f"{v:{'+' * bool(base)}.1f}" for v in (*own, np.mean(own)))]

        others = [REGRESSION, *(each for each in NEUCROWD_SETTINGS if each != "defaults")]
        rows = [row("defaults", ""), *(row(each, "defaults") for each in others)]
        losses = []
        for loss in NAMES:
            own = [each for each in LOSSES if LOSSES[each]["loss"] == loss]
            losses += [row(own[0], ""), *(row(each, own[0]) for each in own[1:])]
        heads = ["setting", *NEUCROWD_SETS, "mean"]
        found |= {f"neucrowd_{field}": table(heads, rows), f"metric_{field}": table(heads, losses)}
    return found


def iced_page(records: list[Record]) -> dict[str, Any]:
    """Accuracy and the round that is kept, by rule."""
    rows = []
    for rule in RULES:
        sets = groups(where(records, rule=rule), "set")
        means = [np.mean([100 * r["accuracy"] for r in sets[name]]) for name in ROUNDS_SETS]
        rounds = [np.mean([r["rounds"] for r in sets[name]]) for name in ROUNDS_SETS]
        cells = [f"{right:.1f} ({kept:.0f})" for right, kept in zip(means, rounds, strict=True)]
        rows.append([rule, *cells, f"{np.mean(means):.1f}"])
    return {"iced": table(["rule", *ROUNDS_SETS, "mean"], rows)}


def drawing(page: str) -> str:
    """Draw the change of the likelihood by the learning rate of CrowdInG's classifier."""
    settings = {
        "defaults": "5e-6",
        "`classifier_lr=1e-05`": "1e-5",
        "`classifier_lr=0.0001`": "1e-4",
    }
    rows = []
    for name in ("LabelMe", "Music", "CIFAR-10H"):
        found = {row["setting"]: row["nll, last epoch"] for row in read_rows(page, f"{name}")}
        for setting, rate in settings.items():
            value, sd = numbers_in(found[setting.strip("`")])
            start = setting == "defaults"
            label = f"{name}, rate {rate}" + " (default)" * start
            rows.append(Row(label, {"change": value}, (value - sd, value + sd), start))
    return dots("Change of the held-out loss, 1/1000 nat; below 0 is better", rows, target=0)


STUDY = of_parts(
    __file__,
    {
        "likelihood": Part(likelihood, likelihood_page, of_likelihood),
        "agreement": Part(
            agreement,
            agreement_page,
            lambda: grid(seed=range(3), setting=BY_AGREEMENT, set=AGREED_SETS),
        ),
        "neucrowd": Part(
            neucrowd,
            neucrowd_page,
            lambda: grid(set=NEUCROWD_SETS, setting=[REGRESSION, *NEUCROWD_SETTINGS, *LOSSES]),
        ),
        "iced": Part(iced, iced_page, lambda: grid(seed=ROUNDS_SEEDS, set=ROUNDS_SETS, rule=RULES)),
    },
    page_drawings=lambda page: {"constants-likelihood.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
