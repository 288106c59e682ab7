"""Parts of the benchmark of planning: features and other packages, simulations, many annotators.

`planning.py` runs them and explains the records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from pages import Record
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from manyhands import AnnotationPlanner, AnnotationTable, CrowdLab, DawidSkene, review_queue
from manyhands.datasets import (
    load_cifar10h,
    load_cifar10n,
    load_labelme,
    load_music,
    load_sentiment,
)
from manyhands.planning import replay
from manyhands.planning.beliefs import beliefs_of
from manyhands.planning.choosing import Suggestion
from manyhands.planning.pool import Pool, Recorded
from manyhands.planning.replay import _play, _policies

Job = tuple[str, str, int, Callable[[], Record]]
"""Set, policy, run, and what measures it."""

LOADERS = {
    "music": load_music,
    "labelme": load_labelme,
    "sentiment": load_sentiment,
    "cifar10n": load_cifar10n,
}


UNIFORM, ENTROPY = "fewest annotations first (uniform)", "entropy of the label"
EIG, ERE, LOAD = "**EIG of the pair** (default)", "ERE of the pair", "EIG, load 2"
Plan = AnnotationPlanner
POLICIES: dict[str, AnnotationPlanner | None] = {
    "random": None,
    UNIFORM: Plan(criterion="fewest", annotators="any"),
    ENTROPY: Plan(criterion="entropy", annotators="any"),
    "EIG, any annotator": Plan(annotators="any"),
    "EIG, annotators arrive": Plan(annotators="arriving"),
    "best annotator, fewest first": Plan(criterion="fewest"),
    "entropy, then its annotator by EIG": Plan(criterion="entropy"),
    EIG: Plan(),
    ERE: Plan(criterion="accuracy"),
    LOAD: Plan(load=2.0),
    "EIG, no warm-up": Plan(warm_up=0.0),
    "EIG, dependence=0": Plan(DawidSkene(dependence=0)),
}
FEW = (UNIFORM, ENTROPY, EIG, LOAD)


def curve(found: Any, **more: Any) -> Record:
    """Record of a single run; -1 is unknown."""
    (curves,) = found.curves.values()
    values = {
        name: np.nan_to_num(getattr(curves, name)[0], nan=-1.0).round(5).tolist()
        for name in curves._fields
    }
    return values | {"sizes": found.sizes.tolist(), **more}


@cache
def features_of(name: str) -> Any:
    """Features of training and test instances, the table, and gold of both."""
    data = LOADERS[name]()
    X, X_test = (
        np.asarray(part.todense() if hasattr(part, "todense") else part, dtype=np.float32)
        for part in (data.X_train, data.X_test)
    )
    X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    scaler = StandardScaler().fit(X)
    if X.shape[1] < 3000:
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    return X, X_test, data.annotations, data.y_train, data.y_test


def classifier(X: np.ndarray, labels: np.ndarray) -> LogisticRegression:
    return LogisticRegression(C=10.0 if X.shape[1] > 3000 else 0.01, max_iter=100).fit(X, labels)


def out_of_fold(name: str, table: AnnotationTable) -> np.ndarray:
    """Probabilities of a logistic regression trained on the Dawid-Skene labels of other folds."""
    X = features_of(name)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        codes = DawidSkene().fit(table).posterior_.argmax(axis=1)
    known = table.annotations_per_instance() > 0
    proba = np.full((len(X), table.n_classes), 1e-6)
    for train, left in KFold(5, shuffle=True, random_state=0).split(X):
        train = train[known[train]]
        model = classifier(X[train], codes[train])
        proba[np.ix_(left, model.classes_)] += model.predict_proba(X[left])
    return proba / proba.sum(axis=1, keepdims=True)


TEST: list[float] = []
"""Test accuracy after each fit of `Watched`."""


class Watched(AnnotationPlanner):
    """Trains a classifier on its labels, too."""

    name = "music"

    def fit(self, table: Any, proba: Any = None, gold: Any = None) -> Any:
        """Fit, and note the classifier's test accuracy."""
        super().fit(table, proba, gold)
        X, X_test, _, _, y_test = features_of(Watched.name)
        known = table.annotations_per_instance() > 0
        TEST.append(
            float((classifier(X[known], self.labels_[known]).predict(X_test) == y_test).mean())
        )
        self._proba = proba
        return self


class ActiveLab(Watched):
    """cleanlab's scores choose instances, as they come; annotators are random."""

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        from cleanlab.multiannotator import get_active_learning_scores

        wide = self.table_.to_matrix(codes=True).astype(float)
        wide[wide < 0] = np.nan
        wide = wide[:, ~np.isnan(wide).all(axis=0)]
        known = ~np.isnan(wide).all(axis=1)
        score = np.empty(len(wide))
        score[known], score[~known] = get_active_learning_scores(
            wide[known], self._proba[known], self._proba[~known]
        )
        return in_order(pool, n, -score, self.random_state)


class Activeml(Watched):
    """scikit-activeml: uncertainty sampling of instances; annotators are random.

    `IntervalEstimationThreshold` cannot be replayed: it takes instances only that every annotator
    may be asked about.
    """

    ranks_annotators = False

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        from skactiveml.classifier import SklearnClassifier
        from skactiveml.pool import UncertaintySampling
        from skactiveml.pool.multiannotator import (
            IntervalEstimationAnnotModel,
            SingleAnnotatorWrapper,
        )

        X = features_of(Watched.name)[0]
        wide = self.table_.to_matrix(codes=True).astype(float)
        wide[wide < 0] = np.nan
        classes = range(self.table_.n_classes)
        model = LogisticRegression(C=0.01, max_iter=100)
        may = np.zeros(wide.shape, dtype=bool)
        may[np.divmod(pool.listed, wide.shape[1])] = True
        rows = np.flatnonzero(may.any(axis=1))
        performance = None
        if self.ranks_annotators:
            annotators = IntervalEstimationAnnotModel(classes=classes)
            performance = annotators.fit(X, wide).predict_annotator_perf(X)[rows]
        inner = UncertaintySampling(method="entropy", random_state=self.random_state)
        pairs = SingleAnnotatorWrapper(inner, random_state=self.random_state).query(
            X,
            wide,
            clf=SklearnClassifier(model, classes=classes),
            candidates=rows,
            annotators=may[rows],
            batch_size=min(n, len(rows)),
            A_perf=performance,
        )
        i, r = np.asarray(pairs).T
        nothing = np.zeros(len(i))
        return Suggestion(pool.instances[i], pool.annotators[r], nothing, nothing)


class Ranked(Activeml):
    """Annotators by the upper bounds of `IntervalEstimationAnnotModel`."""

    ranks_annotators = True


def in_order(pool: Pool, n: int, score: np.ndarray, seed: int) -> Suggestion:
    """The instances with the greatest scores, each with a random annotator."""
    i, r = np.divmod(np.random.default_rng(seed).permutation(pool.listed), len(pool.annotators))
    first = np.unique(i, return_index=True)[1]
    best = first[np.argsort(-score[i[first]], kind="stable")][:n]
    nothing = np.zeros(len(best))
    return Suggestion(pool.instances[i[best]], pool.annotators[r[best]], nothing, nothing)


def features(n_runs: int) -> Iterator[Job]:
    """From .4 to 1.8 annotations per instance."""
    ways = {
        "uniform, without classifier": (Watched(criterion="fewest", annotators="any"), False),
        "EIG of the pair, without classifier": (Watched(), False),
        "uniform": (Watched(criterion="fewest", annotators="any"), True),
        "entropy of both": (Watched(criterion="entropy", annotators="any"), True),
        "ActiveLab (cleanlab)": (ActiveLab(), True),
        "uncertainty (scikit-activeml)": (Activeml(), True),
        "uncertainty, annotators by interval estimation (scikit-activeml)": (Ranked(), True),
        "**EIG of the pair** (default)": (Watched(), True),
        "ERE of the pair": (Watched(criterion="accuracy"), True),
    }
    for run in range(min(n_runs, 5)):
        for name in ("music", "labelme", "sentiment"):
            for policy, (planner, joined) in ways.items():
                if name == "sentiment" and (run > 1 or "scikit" in policy):
                    continue
                yield name, policy, run, partial(with_features, name, planner, joined, run)


def with_features(name: str, planner: AnnotationPlanner, joined: bool, run: int) -> Record:
    _, _, table, y, _ = features_of(name)
    Watched.name = name
    TEST.clear()
    proba = partial(out_of_fold, name) if joined else None
    found = replay(
        table,
        y,
        {"it": planner},
        start=0.4,
        batch=np.arange(0.6, 1.81, 0.2),
        proba=proba,
        n_runs=1,
        random_state=run,
    )
    return curve(found, test=list(TEST))


def review(n_runs: int) -> Iterator[Job]:
    """Wrong labels and wrong annotations, ranked."""
    for run in range(min(n_runs, 5)):
        for name in ("music", "labelme", "sentiment", "cifar10n"):
            for kept in ("all", "two") if run == 0 else ("two",):
                yield name, kept, run, partial(rankings, name, kept, run)


def rankings(name: str, kept: str, run: int) -> Record:
    """AP, and precision at 50 and 100, of each ranking; the labels are those of the posterior."""
    _, _, table, y, _ = features_of(name)
    if kept == "two":
        bought, _ = Recorded.of(table, y, 2).begin(np.random.RandomState(run))
        table = replace(
            table, instance=bought[0], annotator=bought[1], label=bought[2], weights=None
        )
    proba = out_of_fold(name, table)
    model = DawidSkene().fit(table)
    lab = CrowdLab().fit(table, proba=proba)
    gold = dict(zip(table.instances.tolist(), np.asarray(y).tolist(), strict=True))
    own = dict(zip(model.instances_.tolist(), model.labels_.tolist(), strict=True))
    queues: dict[str, Any] = {
        "posterior": (model, None),
        "classifier alone": (proba, None),
        "CROWDLAB": (lab, None),
        "**classifier^b × posterior**": (model, proba),
    }
    found: Record = {}
    for ranking, (belief, joined) in queues.items():
        for by in ("label", "annotation"):
            if by == "label":  # The labels in doubt are the same in all rankings.
                posterior = beliefs_of(belief, table, joined)[0].posterior
                rows = model.posterior_.argmax(axis=1)
                score = 1 - posterior[np.arange(len(rows)), rows]
                ids, labels = table.instances.tolist(), [own[i] for i in table.instances.tolist()]
            else:
                queue = review_queue(belief, table, joined, by=by)
                score, ids, labels = queue.scores, queue.instances.tolist(), queue.labels.tolist()
            wrong = np.array([gold[i] != label for i, label in zip(ids, labels, strict=True)])
            best = np.argsort(-score, kind="stable")
            ap = float(average_precision_score(wrong, score))
            found[f"{ranking}|{by}"] = [ap, *(float(wrong[best[:k]].mean()) for k in (50, 100))]
    return {"rankings": found}


# -- where choosing pairs may hurt -----------------------------------------------------------------


class Tiring(Recorded):
    """Annotators who guess after 60 annotations."""

    given: np.ndarray

    def begin(self, rng: np.random.RandomState) -> Any:
        """Begin a run."""
        bought, truth = super().begin(rng)
        given = np.bincount(bought[1], minlength=self.table.n_annotators)
        object.__setattr__(self, "given", given)
        return bought, truth

    def answer(self, i: Any, r: Any, truth: Any, rng: np.random.RandomState, seeds: Any) -> Any:
        """Guess if tired."""
        labels = super().answer(i, r, truth, rng, seeds).copy()
        tired = self.given[r] > 60
        self.given[:] += np.bincount(r, minlength=len(self.given))
        labels[tired] = rng.randint(self.table.n_classes, size=int(tired.sum()))
        return labels


class Newcomers(Recorded):
    """Only the first five annotators are there at the start."""

    def begin(self, rng: np.random.RandomState) -> Any:
        """Begin a run."""
        i, r = np.divmod(self.pairs, self.table.n_annotators)
        rows = np.flatnonzero(r == rng.randint(5, size=self.table.n_instances)[i])
        return np.stack([i[rows], r[rows], self.labels[rows]]), self.truth


KINDS: dict[str, tuple[type[Recorded], float]] = {
    "nothing special": (Recorded, 1.0),
    "annotators guess after 60 annotations": (Tiring, 1.0),
    "newcomers are better": (Newcomers, 1.0),
    "few seeds (.3 per instance)": (Recorded, 0.3),
}
HURT = ("random", *FEW, "EIG, annotators arrive", "EIG, no warm-up")


def hurts(n_runs: int) -> Iterator[Job]:
    """300 instances of 3 classes, all annotated by 30 annotators of accuracy Beta(6, 2.5)."""
    for run in range(n_runs):
        for kind in KINDS:
            for policy in HURT:
                yield kind, policy, run, partial(hurt, kind, POLICIES[policy], run)


def hurt(kind: str, planner: AnnotationPlanner | None, run: int) -> Record:
    """Simulate a crowd and replay a policy once."""
    rng = np.random.default_rng(run)
    y, accuracy = rng.integers(3, size=300), rng.beta(6, 2.5, 30)
    if kind == "newcomers are better":
        accuracy[:5] = 0.5
    wrong = (y[:, None] + rng.integers(1, 3, (300, 30))) % 3
    A = np.where(rng.random((300, 30)) < accuracy, y[:, None], wrong)
    source, start = KINDS[kind]
    crowd = source.of(AnnotationTable.from_matrix(A), y, start)
    sizes = np.array([start, *np.arange(1.25, 8.1, 0.25)])
    return curve(_play(_policies({"it": planner}), crowd, sizes, 1, None, None, run))


# -- scale -----------------------------------------------------------------------------------------


def scale(n_runs: int) -> Iterator[Job]:
    """CIFAR-10H: 10,000 images, 2,567 annotators."""
    for run in range(min(n_runs, 2)):
        for policy in FEW:
            yield "cifar10h", policy, run, partial(cifar, POLICIES[policy], run)


def cifar(planner: AnnotationPlanner | None, run: int) -> Record:
    """Replay a policy once."""
    data = load_cifar10h()
    table, sizes = data.annotations, np.arange(1.5, 4.1, 0.5)
    return curve(
        replay(table, data.y_train, {"it": planner}, batch=sizes, n_runs=1, random_state=run)
    )
