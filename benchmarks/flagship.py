"""Measure `CrowdStackingClassifier`: public sets, confirmation, ablation, robustness, additions.

A cell is one fit: a set, a change to its annotations, a method, and a seed. "Nested" cells leave
out a quarter of the training instances, fit to the others, and are measured on that quarter. The
recipe was fixed before any of them was run; here, gold labels measure, and choose nothing. The
study behind the recipe chose its constants with looks at test parts of some of these sets, though:
see the head of the page.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/flagship.py --records results/benchmarks/flagship.jsonl --out
docs/results/flagship.md``. What is in the records is not repeated; ``--only`` names some parts.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple
from unittest.mock import patch

import imbalanced_recipe
import numpy as np
from flagship_harder import FEW_LABELS, LABELLED, MANY, UNSURE, make_harder, only_labelled
from flagship_page import EM, GOLD, POSTERIOR, REGRESSION, SELECT, SHARED, STACK, page
from flagship_robustness import curves
from model_choice import thinned, thinned_cifar10h, with_common_mistake
from pages import run_missing
from peers import ACTIVE_MIX, PEERS, Fit
from scipy import sparse
from scipy.stats import entropy
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evidence import Data, load_data
from evidence.data import make_iced_synthetic, remove_annotations, thin_to_imbalance
from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    CommonNoiseEMClassifier,
    CoNALClassifier,
    CoTeachingClassifier,
    CrowdInGClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    DoctorNetClassifier,
    ICEDClassifier,
    MajorityVote,
    MaxMIGClassifier,
    MetricLearningEmbedding,
    NeuCrowdClassifier,
    NeuCrowdEmbedding,
    TraceRegClassifier,
    cross_predict,
    select,
)
from manyhands.classifiers.stacking import crowd, rounds
from manyhands.classifiers.stacking.automatic import automatic_members
from manyhands.decision.rules import apply_rule
from manyhands.inference import GLAD, WorkerClustering
from manyhands.io import write_atomically
from manyhands.linear.kernels import ClippedScaler, KernelMap
from manyhands.linear.regression import SoftLogistic
from manyhands.linear.ridge import SoftRidge
from manyhands.metrics import expected_calibration_error
from manyhands.typing import AnyArray, FloatArray

SEEDS = range(1, 6)
FEW = range(1, 4)


# -- methods --------------------------------------------------------------------------------------


def stack(**parameters: Any) -> Fit:
    """The stack with some parameters."""
    return lambda data, seed: CrowdStackingClassifier(**parameters, random_state=seed).fit(
        data.X_train, data.annotations
    )


def on_gold(data: Any, seed: int) -> Any:
    """The stack, fitted to the gold labels as if one annotator had given them."""
    return CrowdStackingClassifier(random_state=seed).fit(data.X_train, data.y_train)


def vote_regression(data: Any, seed: int) -> Any:
    """Logistic regression on the majority vote; sparse text keeps its scale."""
    regression: Any = LogisticRegression(max_iter=1000)
    if not sparse.issparse(data.X_train):
        regression = make_pipeline(StandardScaler(), regression)
    model = AggregatedClassifier(backbone=regression, targets="hard", random_state=seed)
    return model.fit(data.X_train, data.annotations)


def by_default(method: Callable[..., Any]) -> Fit:
    """A method of the library with its defaults."""

    def fitted(data: Any, seed: int) -> Any:
        return method(random_state=seed).fit(data.X_train, data.annotations)

    return fitted


CANDIDATES = ("crowd-stacking", "agg-net", "max-mig", "trace-reg", "crowd-layer")
"""Of `select`: five that are quick, with their defaults."""


def selected(data: Any, seed: int) -> Any:
    """What `select` chooses among five candidates without gold labels, out of three folds."""
    found = select(CANDIDATES, data.X_train, data.annotations, cv=3, random_state=seed)
    return found.estimator_


def aggregated(aggregator: Callable[[], Any]) -> Fit:
    """The default network on labels aggregated first."""
    return lambda data, seed: AggregatedClassifier(aggregator(), random_state=seed).fit(
        data.X_train, data.annotations
    )


def cross_fitted_em(data: Any, seed: int) -> Any:
    """Cross-fitted EM, which the library no longer has: its records are of an earlier commit."""
    raise RuntimeError(
        "Cross-fitted EM was removed from the library: keep its records, and run what is missing "
        "of it at commit 53d0c948, or leave it out with --only"
    )


def with_members(*names: str) -> Fit:
    """The stack with some of its members."""

    def fitted(data: Any, seed: int) -> Any:
        found = {each.name: each for each in automatic_members(data.X_train, 1200, seed)}
        members = [(name, found[name].estimator, found[name].view) for name in names]
        return stack(members=members)(data, seed)

    return fitted


def with_regression(data: Any, seed: int) -> Any:
    """The stack with logistic regression on soft labels in place of the discriminant analysis."""
    found = {each.name: each for each in automatic_members(data.X_train, 1200, seed)}
    view = found.pop("discriminant").view
    members = [(each.name, each.estimator, each.view) for each in found.values()]
    regression = ("logistic regression", SoftLogistic((1.0, 10.0)), view)
    return stack(members=[*members, regression])(data, seed)


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
    """The stack counting twice only while it tells more than one more annotator; no vote shares."""
    told: list[float | None] = [np.inf]

    def parity(*given: Any) -> float | None:
        told.append(crowd.parity(*given))
        return told[-1]

    def joint(votes: Any, log_proba: FloatArray, confusion: FloatArray, _: float) -> FloatArray:
        weight = 2.0 if (told[-1] or 0.0) > 1 else 1.0
        return crowd.joint_log_proba(votes, log_proba, confusion, weight)

    with patch.multiple(rounds, parity=parity, joint_log_proba=joint):
        return stack(vote_share=0.0)(data, seed)


def with_posterior_shares(data: Any, seed: int) -> Any:
    """The stack with the class shares of Dawid-Skene's calibrated posterior as its prior."""
    posterior = DawidSkene(random_state=seed).fit(data.annotations).posterior_
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
        own = automatic_members(data.X_train, 1200, seed)
        members = [*((each.name, each.estimator, each.view) for each in own)]
        return stack(members=[*members, ("embedding", SoftRidge(), view)])(data, seed)

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
        """What was found out of fold, whatever the targets."""
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
        found = cross_predict(method(random_state=seed), X, table, cv=5, random_state=seed)
        whole = FrozenEstimator(method(random_state=seed).fit(X, table))
        own = automatic_members(X, 1200, seed)
        members: list[Any] = [*((each.name, each.estimator, each.view) for each in own)]
        member = OutOfFold(np.log(found.proba + 1e-6), whole)
        return stack(members=[*members, ("crowd model", member)])(data, seed)

    return fitted


def self_trained(data: Any, seed: int) -> Any:
    """DASC around the stack."""
    return DASCClassifier(CrowdStackingClassifier(), random_state=seed).fit(
        data.X_train, data.annotations
    )


KERNELS = ("rbf standardised", "rbf directions", "rbf normal scores", "laplacian normal scores")

NETWORKS: dict[str, Fit] = {
    "Crowd Layer": by_default(CrowdLayerClassifier),
    "AggNet": by_default(AggNetClassifier),
    "Max-MIG": by_default(MaxMIGClassifier),
    "TraceReg": by_default(TraceRegClassifier),
    "CoNAL": by_default(CoNALClassifier),
}
SYSTEMS: dict[str, Fit] = {
    "ICED": by_default(ICEDClassifier),
    "NeuCrowd": by_default(NeuCrowdClassifier),
    "CrowdInG": by_default(CrowdInGClassifier),
    "DASC": by_default(DASCClassifier),
}
WELL_RANKED: dict[str, Fit] = {
    "DL-DS": aggregated(DawidSkene),
    "DL-WC": aggregated(WorkerClustering),
    "Co-teaching": by_default(CoTeachingClassifier),
    "Doctor Net": by_default(DoctorNetClassifier),
    "CoNAL by EM": by_default(CommonNoiseEMClassifier),
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
ADDITIONS: dict[str, Fit] = {
    "DASC around the stack": self_trained,
    "a kernel on NeuCrowd's embedding": with_embedding(NeuCrowdEmbedding),
    "a kernel on a triplet embedding": with_embedding(MetricLearningEmbedding),
    "AggNet as a member, out of fold": with_crowd_model(AggNetClassifier),
    "CoNAL as a member, out of fold": with_crowd_model(CoNALClassifier),
    "Max-MIG as a member, out of fold": with_crowd_model(MaxMIGClassifier),
}
POSTERIORS: dict[str, Fit] = {
    "Dawid-Skene": lambda data, seed: DawidSkene(random_state=seed).fit(data.annotations),
    "stack, dependence=0": stack(dependence=0.0),
    "majority vote": lambda data, seed: MajorityVote(random_state=seed).fit(data.annotations),
    SHARED: lambda data, seed: MajorityVote(soft=False, ties="distribute").fit(data.annotations),
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


CHANGES: dict[str, Callable[[Any, int], Any]] = {
    "": lambda data, seed: data,
    **{
        f"{percent} % removed": lambda data, seed, percent=percent: remove_annotations(
            data, percent / 100, random_state=seed
        )
        for percent in (20, 40, 60, 80)
    },
    "one per instance": lambda data, seed: thinned(data, 1, seed),
    **{
        f"{percent} % spammers": lambda data, seed, percent=percent: with_spammers(
            data, percent / 100, seed
        )
        for percent in (10, 30, 50)
    },
    **{
        f"{percent} % shared mistakes": lambda data, seed, percent=percent: with_common_mistake(
            data, percent / 100, seed
        )
        for percent in (20, 40, 60)
    },
    **{
        f"imbalance {ratio}:1": lambda data, seed, ratio=ratio: with_rare_classes(data, ratio, seed)
        for ratio in (2, 5, 10, 20)
    },
    **{f"{n} labelled": lambda data, seed, n=n: only_labelled(data, n, seed) for n in FEW_LABELS},
}


WORSE = [change for change in CHANGES if not change.endswith("labelled")]


# -- cells ----------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """What identifies a fit; ``fold`` is the quarter left out by a nested one, or -1."""

    set: str
    change: str
    method: str
    seed: int
    fold: int = -1


def without_quarter(data: Any, fold: int) -> Any:
    """Test on a quarter of the training instances, and train on the others."""
    n = len(data.y_train)
    left_out = np.random.default_rng(0).permutation(n) % 4 == fold
    inside, outside = np.flatnonzero(~left_out), np.flatnonzero(left_out)
    y = np.asarray(data.y_train)
    return Data(
        data.X_train[inside],
        data.annotations[inside],
        y_train=y[inside],
        X_test=data.X_train[outside],
        y_test=y[outside],
    )


def balanced_error(y: AnyArray, found: AnyArray) -> float:
    """Standard error of balanced accuracy: binomial within every class of the test part."""
    right = [found[y == label] == label for label in np.unique(y)]
    return float(np.sqrt(sum(own.var() / len(own) for own in right))) / len(right)


def scores(y: AnyArray, found: AnyArray) -> dict[str, float]:
    """How far predictions agree with the gold labels."""
    return {
        "accuracy": round(float((found == y).mean()), 6),
        "balanced_accuracy": round(float(balanced_accuracy_score(y, found)), 6),
        "balanced_error": round(balanced_error(y, found), 6),
        "macro_f1": round(float(f1_score(y, found, average="macro")), 6),
    }


def log_loss(proba: FloatArray, y: AnyArray, classes: AnyArray) -> float:
    """Mean negative log probability of the true class; scikit-learn's needs sorted classes."""
    codes = {label: code for code, label in enumerate(classes.tolist())}
    own = proba[np.arange(len(y)), [codes[label] for label in y.tolist()]]
    return round(float(-np.log(np.maximum(own / proba.sum(axis=1), 1e-12)).mean()), 6)


def measure_posterior(cell: Cell) -> dict[str, Any]:
    """Fit one method, and measure its posterior of the training instances."""
    data = data_of(cell.set.removeprefix(POSTERIOR), cell.change, cell.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[cell.method](data, cell.seed)
    proba, y = model.posterior_, np.asarray(data.y_train)
    error = expected_calibration_error(proba, y, classes=model.classes_)
    found = scores(y, model.classes_[proba.argmax(axis=1)])
    if cell.method == SHARED:  # The argmax would name the first class.
        right = proba[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        found = {"accuracy": round(float(right.mean()), 6)}
    return {
        **cell._asdict(),
        **found,
        "log_loss": log_loss(proba, y, model.classes_),
        "calibration_error": round(error, 6),
        "n_test": len(y),
    }


def measure(cell: Cell) -> dict[str, Any]:
    """Fit one method, and measure it on the test part."""
    if cell.set.startswith(POSTERIOR):
        return measure_posterior(cell)
    data = data_of(cell.set, cell.change, cell.seed)
    if cell.fold >= 0:
        data = without_quarter(data, cell.fold)
    started = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[cell.method](data, cell.seed)
        seconds = process_time() - started
        proba = np.asarray(model.predict_proba(data.X_test), dtype=np.float64)
    y, classes = np.asarray(data.y_test), np.asarray(model.classes_)
    found = classes[proba.argmax(axis=1)]
    # What `decision="balanced"` divides by.
    prior = getattr(model, "prediction_prior_", getattr(model, "class_prior_", None))
    record = {
        **cell._asdict(),
        **scores(y, found),
        "log_loss": log_loss(proba, y, classes),
        "n_test": len(y),
        "seconds": round(seconds, 2),
    }
    if prior is not None:  # The class-weighted last stage, of the same fit.
        found = classes[apply_rule(proba, "balanced", prior)]
        record["weighted"] = scores(y, found)
    for name in ("parity_", "prior_shrinkage_", "vote_share_"):
        if getattr(model, name, None) is not None:
            record[name] = round(float(getattr(model, name)), 4)
    return record


def sets() -> Iterator[Cell]:
    """The public sets but CIFAR-10; what others reach there with their defaults is recorded."""
    for name in ("colposcopy", "reports", "music", "labelme", "product", "sentiment"):
        yield Cell(name, "", REGRESSION, 1)
        yield Cell(name, "", GOLD, 1)
        yield from (Cell(name, "", STACK, seed) for seed in SEEDS)


def others() -> Iterator[Cell]:
    """Others with their defaults, for what other records of them do not hold."""
    for seed in SEEDS:
        for name in ("product", "reports", "colposcopy", "sentiment", "music", "labelme"):
            yield from (Cell(name, "", method, seed) for method in NETWORKS)


def systems() -> Iterator[Cell]:
    """Methods of which other records hold LabelMe, Music and Reports alone."""
    for seed in FEW:
        for name in ("colposcopy", "product", "sentiment", "cifar10h, 2", "cifar10n"):
            yield from (Cell(name, "", method, seed) for method in SYSTEMS)


def images() -> Iterator[Cell]:
    """The sets of CIFAR-10, of which no figures of others are recorded."""
    names = ("cifar10h, 2", "cifar10n")
    for name in names:
        yield from (Cell(name, "", method, 1) for method in (STACK, REGRESSION, GOLD))
    for seed in SEEDS:
        for name in names:
            yield from (Cell(name, "", method, seed) for method in (STACK, *NETWORKS))


def confirmation() -> Iterator[Cell]:
    """Sets that played no part in the design."""
    compared = (STACK, REGRESSION, "Crowd Layer", "AggNet", "Max-MIG", "CoNAL")
    for name in ("gsad-Syn", "usps-Syn", "hotel"):
        yield from (Cell(name, "", method, seed) for seed in SEEDS for method in compared)
        yield Cell(name, "", EM, 1)


def whole() -> Iterator[Cell]:
    """CIFAR-10H with all of its 500,000 annotations."""
    methods = (REGRESSION, STACK, "AggNet", "Crowd Layer")
    yield from (Cell("cifar10h", "", method, seed) for seed in SEEDS for method in methods)


def ablation() -> Iterator[Cell]:
    """Parameters of the recipe, on the test part (five seeds) and nested (one seed)."""
    for name in ("colposcopy", "reports", "music", "labelme", "product"):
        for method in (STACK, *ABLATION):
            yield from (Cell(name, "", method, 1, fold) for fold in range(-1, 4))
            yield from (Cell(name, "", method, seed) for seed in SEEDS)


def robustness() -> Iterator[Cell]:
    """Worse annotations; the dear methods come last, with few seeds."""
    for seed in SEEDS:
        for name in ("music", "labelme"):
            for change in WORSE:
                for method in (STACK, REGRESSION, *NETWORKS, *WELL_RANKED):
                    yield Cell(name, change, method, seed)
    for seed in FEW:
        for method in DEAR:
            for name in ("music", "labelme"):
                yield from (Cell(name, change, method, seed) for change in WORSE)


def tasks() -> Iterator[Cell]:
    """The tasks on which cross-fitted EM was developed."""
    for name in imbalanced_recipe.TASKS:
        yield from (Cell(name, "", STACK, seed) for seed in range(3))


def additions() -> Iterator[Cell]:
    """Strengths of other methods, added to the stack."""
    for seed in FEW:
        for name in ("music", "labelme", "colposcopy", "reports", "product"):
            yield from (Cell(name, "", method, seed) for method in ADDITIONS)


def posteriors() -> Iterator[Cell]:
    """Posteriors of the training instances; one seed."""
    for name in ("labelme", "music", "product", "colposcopy", "reports", "hotel"):
        for method in ("Dawid-Skene", "stack, dependence=0", STACK):
            yield Cell(POSTERIOR + name, "", method, 1)


def harder() -> Iterator[Cell]:
    """Few labels, many classes, abstentions."""
    compared = (STACK, REGRESSION, "Crowd Layer", "AggNet")
    for seed in FEW:
        for name in UNSURE:
            for method in (STACK, 'stack, abstentions="ignore"', "Dawid-Skene"):
                yield Cell(POSTERIOR + name, "", method, seed)
        for name in LABELLED:
            for n in FEW_LABELS:
                yield from (Cell(name, f"{n} labelled", method, seed) for method in compared)
        for name in MANY:
            for method in ("majority vote", SHARED, "Dawid-Skene", STACK):
                yield Cell(POSTERIOR + name, "", method, seed)
            yield from (Cell(name, "", method, seed) for method in compared)


def more() -> Iterator[Cell]:
    """Cross-fitted EM with its present defaults on the tasks that it was developed on."""
    for seed in range(3):
        for name in imbalanced_recipe.TASKS:
            yield Cell(name, "", EM, seed)


PARTS = {
    part.__name__: part
    for part in (
        sets,
        tasks,
        ablation,
        robustness,
        additions,
        harder,
        posteriors,
        others,
        systems,
        images,
        more,
        confirmation,
        whole,
    )
}


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, required=True, help="one line of JSON per cell")
    parser.add_argument("--out", type=Path, help="Markdown file")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no cell later")
    arguments = parser.parse_args()
    planned = dict.fromkeys(cell for part in arguments.only for cell in PARTS[part]())
    found = run_missing(
        arguments.records,
        ((cell, lambda cell=cell: measure(cell)) for cell in planned),
        lambda record: Cell(*(record[name] for name in Cell._fields)),
        arguments.minutes,
    )
    if arguments.out is not None:
        write_atomically(arguments.out, "\n".join(page(found)) + "\n")
        write_atomically(arguments.out.with_name("flagship-robustness.svg"), curves(found).svg)


if __name__ == "__main__":
    main()
