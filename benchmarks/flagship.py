"""Measure `CrowdStackingClassifier`: public sets, confirmation, ablation, robustness, additions.

A cell is one fit: a set, a change to its annotations, a method, and a seed. "Nested" cells leave
out a quarter of the training instances (the fold), fit to the others, and are measured on that
quarter. The recipe was fixed before any of them was run; here, gold labels measure, and choose
nothing. The study behind the recipe chose its constants with looks at test parts of some of these
sets, though: see the head of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import sparse
from scipy.stats import entropy
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import manyhands as mh
from benchmarks import imbalanced_recipe
from benchmarks.flagship_harder import (
    FEW_LABELS,
    LABELLED,
    MANY,
    UNSURE,
    make_harder,
    only_labelled,
)
from benchmarks.flagship_page import (
    ADDED,
    EM,
    GOLD,
    POSTERIOR,
    REGRESSION,
    SELECT,
    SHARED,
    STACK,
    curves,
    page,
    standings,
)
from benchmarks.model_choice import thinned, thinned_cifar10h, with_common_mistake
from benchmarks.peers import ACTIVE_MIX, PEERS, Fit
from evidence import Data, load_data
from evidence.data import make_iced_synthetic, remove_annotations, thin_to_imbalance
from evidence.scores import codes_of, likelihood
from evidence.study import Record, Study
from manyhands.classifiers.stacking import crowd, rounds
from manyhands.classifiers.stacking.members import automatic_members
from manyhands.decision.rules import apply_rule
from manyhands.inference import GLAD, WorkerClustering
from manyhands.linear.kernels import ClippedScaler, KernelMap
from manyhands.linear.regression import SoftLogistic
from manyhands.linear.ridge import SoftRidge
from manyhands.metrics import expected_calibration_error
from manyhands.typing import AnyArray, FloatArray

HARD = mh.AggregatedProtocol(targets="hard")
SEEDS = range(1, 6)
FEW = range(1, 4)


# -- methods --------------------------------------------------------------------------------------


def stack(**parameters: Any) -> Fit:
    """The stack with some parameters."""
    return lambda data, seed: mh.CrowdStackingClassifier(**parameters, random_state=seed).fit(
        data.X_train, data.annotations
    )


def on_gold(data: Any, seed: int) -> Any:
    """The stack, fitted to the gold labels as if one annotator had given them."""
    return mh.CrowdStackingClassifier(random_state=seed).fit(data.X_train, data.y_train)


def vote_regression(data: Any, seed: int) -> Any:
    """Logistic regression on the majority vote; sparse text keeps its scale."""
    regression: Any = LogisticRegression(max_iter=1000)
    if not sparse.issparse(data.X_train):
        regression = make_pipeline(StandardScaler(), regression)
    model = mh.AggregatedClassifier(backbone=regression, protocol=HARD, random_state=seed)
    return model.fit(data.X_train, data.annotations)


def by_default(method: Callable[..., Any]) -> Fit:
    """A method of the library with its defaults."""

    def fitted(data: Any, seed: int) -> Any:
        return method(random_state=seed).fit(data.X_train, data.annotations)

    return fitted


CANDIDATES = ("crowd-stacking", "agg-net", "max-mig", "trace-reg", "crowd-layer")
"""Of `select`: five that are quick, with their defaults."""


def selected(data: Any, seed: int) -> Any:
    """Return predictions of the candidate, of five, that `select` chooses without gold labels."""
    found = mh.select(CANDIDATES, data.X_train, data.annotations, cv=3, random_state=seed)
    return found.estimator_


def aggregated(aggregator: Callable[[], Any]) -> Fit:
    """The default network on labels aggregated first."""
    return lambda data, seed: mh.AggregatedClassifier(aggregator(), random_state=seed).fit(
        data.X_train, data.annotations
    )


def cross_fitted_em(data: Any, seed: int) -> Any:
    """Cross-fitted EM, which the library no longer has: its records are of an earlier commit."""
    raise RuntimeError(
        "Cross-fitted EM was removed from the library: keep its records, and run what is missing "
        "of it at commit 53d0c948, or leave it out with --only"
    )


def own_members(data: Any, seed: int) -> dict[str, tuple[str, Any, Any]]:
    """The stack's members by name: name, estimator and view."""
    own = automatic_members(data.X_train, 1200, seed)
    return {each.name: (each.name, each.estimator, each.view) for each in own}


def with_members(*names: str) -> Fit:
    """The stack with some of its members."""

    def fitted(data: Any, seed: int) -> Any:
        found = own_members(data, seed)
        return stack(members=[found[name] for name in names])(data, seed)

    return fitted


def with_regression(data: Any, seed: int) -> Any:
    """The stack with logistic regression on soft labels in place of the discriminant analysis."""
    found = own_members(data, seed)
    *_, view = found.pop("discriminant")
    regression = ("logistic regression", SoftLogistic((1.0, 10.0)), view)
    return stack(members=[*found.values(), regression])(data, seed)


def with_wider_prior(data: Any, seed: int) -> Any:
    """The stack with twice the x0 of its class prior, which is a constant and no parameter."""
    with patch.object(crowd, "PRIOR_SCALE", 2 * crowd.PRIOR_SCALE):
        return stack()(data, seed)


def with_entropy_switch(data: Any, seed: int) -> Any:
    """The stack with equal class shares if those of the votes are nearly equal, else free ones."""

    def switch(shares: FloatArray, n_instances: int) -> float:
        return float(entropy(shares) > 0.95 * np.log(len(shares)))

    with patch.object(rounds, "prior_shrinkage", switch):
        return stack()(data, seed)


def with_weight_by_parity(data: Any, seed: int) -> Any:
    """Fit a stack that counts twice only if it is more informative than one more annotator."""
    told: list[float | None] = [np.inf]

    def informedness(*given: Any) -> float | None:
        told.append(crowd.relative_informedness(*given))
        return told[-1]

    def joint(votes: Any, log_proba: FloatArray, confusion: FloatArray, _: float) -> FloatArray:
        weight = 2.0 if (told[-1] or 0.0) > 1 else 1.0
        return crowd.joint_log_proba(votes, log_proba, confusion, weight)

    with patch.multiple(rounds, relative_informedness=informedness, joint_log_proba=joint):
        return stack(vote_share=0.0)(data, seed)


def with_posterior_shares(data: Any, seed: int) -> Any:
    """The stack with the class shares of Dawid-Skene's calibrated posterior as its prior."""
    posterior = mh.DawidSkene(random_state=seed).fit(data.annotations).posterior_
    return stack(class_prior=posterior.mean(axis=0))(data, seed)


def with_gold_shares(data: Any, seed: int) -> Any:
    """The stack with the true class shares of the training part: an oracle."""
    classes = list(data.annotations.classes)
    counts = np.bincount([classes.index(each) for each in data.y_train], minlength=len(classes))
    return stack(class_prior=counts / counts.sum())(data, seed)


def with_embedding(embedding: Callable[..., Any]) -> Fit:
    """The stack and one more kernel member, on an embedding learnt from the same annotations."""

    def fitted(data: Any, seed: int) -> Any:
        learnt = embedding(random_state=seed).fit(data.X_train, data.annotations)
        view = make_pipeline(
            FrozenEstimator(learnt), ClippedScaler(), KernelMap("rbf", random_state=seed)
        )
        members = [*own_members(data, seed).values(), ("embedding", SoftRidge(), view)]
        return stack(members=members)(data, seed)

    return fitted


class OutOfFold(BaseEstimator):
    """A member that a crowd model has made before: it learns nothing from the stack's targets.

    Parameters
    ----------
    log_proba : array of shape (n, n_classes)
        Of the training rows, out of fold.
    model : fitted classifier
        Predicts new rows; frozen.
    """

    def __init__(self, log_proba: FloatArray, model: Any) -> None:
        self.log_proba, self.model = log_proba, model

    def fit_predict_loo(self, X: Any, T: FloatArray) -> list[tuple[FloatArray, Any]]:
        """Return the predictions out of fold, whatever the targets."""
        return [(self.log_proba, self)]

    def fit(self, X: Any, T: FloatArray) -> OutOfFold:
        """Learn nothing."""
        return self

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log class probabilities of new rows, shape (m, n_classes)."""
        log_proba: FloatArray = np.log(self.model.predict_proba(X) + 1e-6)
        return log_proba


def with_crowd_model(method: Callable[..., Any]) -> Fit:
    """The stack and one more member: a crowd model with its defaults, out of fold."""

    def fitted(data: Any, seed: int) -> Any:
        X, table = data.X_train, data.annotations
        found = mh.cross_predict(method(random_state=seed), X, table, cv=5, random_state=seed)
        whole = FrozenEstimator(method(random_state=seed).fit(X, table))
        member = OutOfFold(np.log(found.proba + 1e-6), whole)
        members = [*own_members(data, seed).values(), ("crowd model", member)]
        return stack(members=members)(data, seed)

    return fitted


def self_trained(data: Any, seed: int) -> Any:
    """DASC around the stack."""
    return mh.DASCClassifier(mh.CrowdStackingClassifier(), random_state=seed).fit(
        data.X_train, data.annotations
    )


KERNELS = ("rbf standardised", "rbf directions", "rbf normal scores", "laplacian normal scores")

NETWORKS: dict[str, Fit] = {
    "Crowd Layer": by_default(mh.CrowdLayerClassifier),
    "AggNet": by_default(mh.AggNetClassifier),
    "Max-MIG": by_default(mh.MaxMIGClassifier),
    "TraceReg": by_default(mh.TraceRegClassifier),
    "CoNAL": by_default(mh.CoNALClassifier),
}
SYSTEMS: dict[str, Fit] = {
    "ICED": by_default(mh.ICEDClassifier),
    "NeuCrowd": by_default(mh.NeuCrowdClassifier),
    "CrowdInG": by_default(mh.CrowdInGClassifier),
    "DASC": by_default(mh.DASCClassifier),
}
WELL_RANKED: dict[str, Fit] = {
    "DL-DS": aggregated(mh.DawidSkene),
    "DL-WC": aggregated(WorkerClustering),
    "Co-teaching": by_default(mh.CoTeachingClassifier),
    "Doctor Net": by_default(mh.DoctorNetClassifier),
    "CoNAL by EM": by_default(mh.CommonNoiseEMClassifier),
    "DL-GLAD": aggregated(GLAD),
    ACTIVE_MIX: PEERS[ACTIVE_MIX],
}
"""Further methods of good average rank in the grand table, the best of another library too."""
DEAR: dict[str, Fit] = {SELECT: selected, "DASC": SYSTEMS["DASC"]}
"""Methods of good average rank that take half a minute or more."""
OTHERS: dict[str, Fit] = {REGRESSION: vote_regression, **NETWORKS, **SYSTEMS, EM: cross_fitted_em}
ABLATION: dict[str, Fit] = {
    "first round alone": stack(n_rounds=1),
    "3 rounds": stack(n_rounds=3),
    "11 rounds": stack(n_rounds=11),
    'class_prior="estimated"': stack(class_prior="estimated"),
    'class_prior="uniform"': stack(class_prior="uniform"),
    "class prior: shares of Dawid-Skene's posterior": with_posterior_shares,
    "class prior: shares of the gold labels (oracle)": with_gold_shares,
    "classifier_weight=1": stack(classifier_weight=1.0),
    "classifier_weight=3": stack(classifier_weight=3.0),
    "vote_share=0": stack(vote_share=0.0),
    "vote_share=.5": stack(vote_share=0.5),
    "standardised kernel alone": with_members(KERNELS[0]),
    "four kernels": with_members(*KERNELS),
    "four kernels, mixture": with_members(*KERNELS, "mixture"),
    "four kernels, discriminant": with_members(*KERNELS, "discriminant"),
    "two kernels, mixture, discriminant": with_members(
        "rbf directions", "laplacian normal scores", "mixture", "discriminant"
    ),
    "logistic regression for the discriminant": with_regression,
    "crowd_strength=2": stack(crowd_strength=2.0),
    "crowd_strength=10": stack(crowd_strength=10.0),
    "x0 = .022": with_wider_prior,
    "entropy switch at .95": with_entropy_switch,
    "classifier_weight by parity, vote_share=0": with_weight_by_parity,
}
ADDED_FITS = (
    self_trained,
    with_embedding(mh.NeuCrowdEmbedding),
    with_embedding(mh.MetricLearningEmbedding),
    with_crowd_model(mh.AggNetClassifier),
    with_crowd_model(mh.CoNALClassifier),
    with_crowd_model(mh.MaxMIGClassifier),
)
ADDITIONS: dict[str, Fit] = dict(zip(ADDED, ADDED_FITS, strict=True))
POSTERIORS: dict[str, Fit] = {
    "Dawid-Skene": lambda data, seed: mh.DawidSkene(random_state=seed).fit(data.annotations),
    "stack, dependence=0": stack(dependence=0.0),
    "majority vote": lambda data, seed: mh.MajorityVote(random_state=seed).fit(data.annotations),
    SHARED: lambda data, seed: mh.MajorityVote(soft=False, ties="distribute").fit(data.annotations),
    'stack, abstentions="ignore"': stack(abstentions="ignore"),
}
METHODS = {
    STACK: stack(),
    GOLD: on_gold,
    **OTHERS,
    **WELL_RANKED,
    **DEAR,
    **ABLATION,
    **ADDITIONS,
    **POSTERIORS,
}


# -- sets and changes -----------------------------------------------------------------------------


@cache
def data_of(name: str, change: str, seed: int) -> Any:
    """Load a set, with its annotations or classes changed; the seed draws what is random."""
    if name in imbalanced_recipe.TASKS:
        X, table, X_test, y_test = imbalanced_recipe.make(name, seed)
        return Data(X, table, X_test=X_test, y_test=y_test)
    if name in (*MANY, *UNSURE):
        return make_harder(name, seed)
    if name.endswith("-Syn"):
        return make_iced_synthetic(name.removesuffix("-Syn").lower(), random_state=seed)
    data = thinned_cifar10h() if name == "cifar10h, 2" else load_data({"name": name})
    return CHANGES[change](data, seed)


def with_spammers(data: Any, share: float, seed: int) -> Any:
    """Let a share of the annotators, drawn at random, answer at random."""
    table, rng = data.annotations, np.random.default_rng(seed)
    spammers = rng.permutation(table.n_annotators)[: round(share * table.n_annotators)]
    label = table.label.copy()
    own = np.isin(table.annotator, spammers)
    label[own] = rng.integers(0, table.n_classes, own.sum())
    return replace(data, annotations=replace(table, label=label))


def with_rare_classes(data: Any, ratio: float, seed: int) -> Any:
    """Thin every second class of the training part."""
    for rare in data.annotations.classes[1::2].tolist():
        data = thin_to_imbalance(data, ratio, rare=rare, random_state=seed)
    return data


def changes_of(
    name: str, values: Iterable[int], change: Callable[[Any, int, int], Any]
) -> dict[str, Callable[[Any, int], Any]]:
    """A change by several strengths, with the strength in its name."""
    return {
        name.format(value): lambda data, seed, value=value: change(data, value, seed)
        for value in values
    }


CHANGES: dict[str, Callable[[Any, int], Any]] = {
    "": lambda data, seed: data,
    **changes_of(
        "{} % removed",
        (20, 40, 60, 80),
        lambda data, percent, seed: remove_annotations(data, percent / 100, random_state=seed),
    ),
    "one per instance": lambda data, seed: thinned(data, 1, seed),
    **changes_of(
        "{} % spammers",
        (10, 30, 50),
        lambda data, percent, seed: with_spammers(data, percent / 100, seed),
    ),
    **changes_of(
        "{} % shared mistakes",
        (20, 40, 60),
        lambda data, percent, seed: with_common_mistake(data, percent / 100, seed),
    ),
    **changes_of("imbalance {}:1", (2, 5, 10, 20), with_rare_classes),
    **changes_of("{} labelled", FEW_LABELS, only_labelled),
}


# -- cells ----------------------------------------------------------------------------------------


def without_quarter(data: Any, fold: int) -> Any:
    """Test on a quarter of the training instances, and train on the others."""
    n = len(data.y_train)
    left_out = np.random.default_rng(0).permutation(n) % 4 == fold
    inside, outside = np.flatnonzero(~left_out), np.flatnonzero(left_out)
    y = np.asarray(data.y_train)
    part = data.X_train[inside], data.annotations[inside]
    return Data(*part, y_train=y[inside], X_test=data.X_train[outside], y_test=y[outside])


def balanced_error(y: AnyArray, found: AnyArray) -> float:
    """Standard error of balanced accuracy: binomial within every class of the test part."""
    right = [found[y == label] == label for label in np.unique(y)]
    return float(np.sqrt(sum(own.var() / len(own) for own in right))) / len(right)


def scores(y: AnyArray, found: AnyArray) -> dict[str, float]:
    """Return how far predictions agree with the gold labels."""
    return {
        "accuracy": round(float((found == y).mean()), 6),
        "balanced_accuracy": round(float(balanced_accuracy_score(y, found)), 6),
        "balanced_error": round(balanced_error(y, found), 6),
        "macro_f1": round(float(f1_score(y, found, average="macro")), 6),
    }


def log_loss(proba: FloatArray, y: AnyArray, classes: AnyArray) -> float:
    """Mean negative log probability of the true class; scikit-learn's needs sorted classes."""
    shares = proba / proba.sum(axis=1, keepdims=True)
    return round(float(-np.log(likelihood(shares, codes_of(y, classes))).mean()), 6)


def posterior(given: str, change: str, method: str, seed: int) -> Record:
    """Fit one method, and measure its posterior of the training instances."""
    data = data_of(given, change, seed)
    model = METHODS[method](data, seed)
    proba, y = model.posterior_, np.asarray(data.y_train)
    found = scores(y, model.classes_[proba.argmax(axis=1)])
    if method == SHARED:  # The argmax would name the first class.
        right = proba[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        found = {"accuracy": round(float(right.mean()), 6)}
    error = expected_calibration_error(proba, y, classes=model.classes_)
    more = {"calibration_error": round(error, 6), "n_test": len(y)}
    return {**found, "log_loss": log_loss(proba, y, model.classes_), **more}


def fitted(data: Any, method: str, seed: int) -> Record:
    """Fit one method, and measure it on the test part."""
    started = process_time()
    model = METHODS[method](data, seed)
    seconds = process_time() - started
    proba = np.asarray(model.predict_proba(data.X_test), dtype=np.float64)
    y, classes = np.asarray(data.y_test), np.asarray(model.classes_)
    found: Record = scores(y, classes[proba.argmax(axis=1)])
    found |= {
        "log_loss": log_loss(proba, y, classes),
        "n_test": len(y),
        "seconds": round(seconds, 2),
    }
    # What `decision="balanced"` divides by.
    prior = getattr(model, "prediction_prior_", getattr(model, "class_prior_", None))
    if prior is not None:  # The class-weighted last stage, of the same fit.
        found["weighted"] = scores(y, classes[apply_rule(proba, "balanced", prior)])
    recorded = {"relative_informedness_": "parity_"}  # Its name in the records.
    for name in ("relative_informedness_", "prior_shrinkage_", "vote_share_"):
        if getattr(model, name, None) is not None:
            found[recorded.get(name, name)] = round(float(getattr(model, name)), 4)
    return found


def measure(set: str, change: str, method: str, seed: int, fold: int) -> Record:
    """Measure a posterior of training instances, or predictions of a test part or a quarter."""
    if set.startswith(POSTERIOR):
        return posterior(set.removeprefix(POSTERIOR), change, method, seed)
    data = data_of(set, change, seed)
    return fitted(without_quarter(data, fold) if fold >= 0 else data, method, seed)


def cells(
    sets: Iterable[str],
    methods: Iterable[str],
    seeds: Iterable[int] = (1,),
    changes: Iterable[str] = ("",),
    folds: Iterable[int] = (-1,),
) -> Iterator[Record]:
    """Yield cells; ``fold`` is the quarter left out by a nested one, or -1."""
    for seed, name, change, method, fold in product(seeds, sets, changes, methods, folds):
        yield {"set": name, "change": change, "method": method, "seed": seed, "fold": fold}


PUBLIC = ("colposcopy", "reports", "music", "labelme", "product", "sentiment")
CIFAR = ("cifar10h, 2", "cifar10n")
STRESSED = ("music", "labelme")
WORSE = [change for change in CHANGES if not change.endswith("labelled")]
COMPARED = (STACK, REGRESSION, "Crowd Layer", "AggNet")
READ_OUT = (STACK, 'stack, abstentions="ignore"', "Dawid-Skene")


def part(*made: Callable[[], Iterator[Record]]) -> Callable[[], Iterator[Record]]:
    """A part of several grids."""
    return lambda: (cell for make in made for cell in make())


PARTS = {
    # The public sets but CIFAR-10; what others reach there with their defaults is recorded.
    "sets": part(lambda: cells(PUBLIC, (REGRESSION, GOLD)), lambda: cells(PUBLIC, (STACK,), SEEDS)),
    "tasks": part(lambda: cells(imbalanced_recipe.TASKS, (STACK,), range(3))),
    "ablation": part(
        lambda: cells(PUBLIC[:5], (STACK, *ABLATION), folds=range(-1, 4)),
        lambda: cells(PUBLIC[:5], (STACK, *ABLATION), SEEDS),
    ),
    # Worse annotations; the dear methods come last, with few seeds.
    "robustness": part(
        lambda: cells(STRESSED, (STACK, REGRESSION, *NETWORKS, *WELL_RANKED), SEEDS, WORSE),
        lambda: cells(STRESSED, DEAR, FEW, WORSE),
    ),
    "additions": part(lambda: cells(PUBLIC[:5], ADDITIONS, FEW)),
    # Few labels, many classes, abstentions.
    "harder": part(
        lambda: cells([POSTERIOR + name for name in UNSURE], READ_OUT, FEW),
        lambda: cells(LABELLED, COMPARED, FEW, [f"{n} labelled" for n in FEW_LABELS]),
        lambda: cells(
            [POSTERIOR + name for name in MANY],
            ("majority vote", SHARED, "Dawid-Skene", STACK),
            FEW,
        ),
        lambda: cells(MANY, COMPARED, FEW),
    ),
    "posteriors": part(
        lambda: cells(
            [POSTERIOR + name for name in (*PUBLIC[:5], "hotel")],
            ("Dawid-Skene", "stack, dependence=0", STACK),
        )
    ),
    # Others with their defaults, for what other records of them do not hold.
    "others": part(lambda: cells(PUBLIC, NETWORKS, SEEDS)),
    "systems": part(lambda: cells(("colposcopy", "product", "sentiment", *CIFAR), SYSTEMS, FEW)),
    "images": part(
        lambda: cells(CIFAR, (STACK, REGRESSION, GOLD)),
        lambda: cells(CIFAR, (STACK, *NETWORKS), SEEDS),
    ),
    "more": part(lambda: cells(imbalanced_recipe.TASKS, (EM,), range(3))),
    # Sets that played no part in the design.
    "confirmation": part(
        lambda: cells(CONFIRMING, (*COMPARED, "Max-MIG", "CoNAL"), SEEDS),
        lambda: cells(CONFIRMING, (EM,)),
    ),
    "whole": part(lambda: cells(("cifar10h",), COMPARED, SEEDS)),
}
CONFIRMING = ("gsad-Syn", "usps-Syn", "hotel")

STUDY = Study(
    __file__,
    PARTS,
    measure,
    page,
    drawings=lambda records: {
        "flagship-accuracy.svg": standings(records),
        "flagship-robustness.svg": curves(records).svg,
    },
)


if __name__ == "__main__":
    STUDY.main()
