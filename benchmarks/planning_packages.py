"""Parts of the benchmark of planning that join a classifier, beside other packages' strategies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from benchmarks.planning_parts import EIG, curve, in_order
from benchmarks.planning_people import with_rows
from evidence.study import Part, Record, grid
from manyhands import AnnotationPlanner, AnnotationTable, CrowdLab, DawidSkene, review_queue
from manyhands.datasets import load_cifar10n, load_labelme, load_music, load_sentiment
from manyhands.planning import replay
from manyhands.planning.beliefs import beliefs_of, entropy
from manyhands.planning.choosing import Suggestion
from manyhands.planning.pool import Pool, Recorded, generator_of

LOADERS = {
    "music": load_music,
    "labelme": load_labelme,
    "sentiment": load_sentiment,
    "cifar10n": load_cifar10n,
}


@cache
def features_of(name: str) -> Any:
    """Features of training and test instances, the table, and gold of both."""
    data = simulated(int(name.split()[1])) if name.startswith("sim") else LOADERS[name]()
    X, X_test = (
        np.asarray(part.todense() if hasattr(part, "todense") else part, dtype=np.float32)
        for part in (data.X_train, data.X_test)
    )
    X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    scaler = StandardScaler().fit(X)
    if X.shape[1] < 3000:
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    return X, X_test, data.annotations, data.y_train, data.y_test


def unfitted(X: np.ndarray) -> LogisticRegression:
    return LogisticRegression(C=10.0 if X.shape[1] > 3000 else 0.01, max_iter=100)


def classifier(X: np.ndarray, labels: np.ndarray) -> LogisticRegression:
    return unfitted(X).fit(X, labels)


def out_of_fold(name: str, table: AnnotationTable) -> np.ndarray:
    """Probabilities of a logistic regression trained on the Dawid-Skene labels of other folds."""
    X = features_of(name)[0]
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


class NextWhenThree(Watched):
    """Annotates an instance three times, then the next one."""

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        counts = self.table_.annotations_per_instance()
        score = np.where((counts > 0) & (counts < 3), 2.0, counts == 0)
        return in_order(pool, n, score, self.random_state)


class ClassifierEntropy(Watched):
    """The entropy of the classifier alone chooses instances; annotators are random."""

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        return in_order(pool, n, entropy(self._proba), self.random_state)


class Activeml(Watched):
    """A strategy of scikit-activeml, as it comes.

    Parameters are those of `AnnotationPlanner`; subclasses say the rest.
    """

    inner: Any = None
    """Name of a strategy for one annotator, and its parameters; None: `IEThresh`."""

    ranks_annotators = False
    """Whether annotators go by `IntervalEstimationAnnotModel`; else they are random."""

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        from skactiveml.classifier import SklearnClassifier

        X = features_of(Watched.name)[0]
        wide = self.table_.to_matrix(codes=True).astype(float)
        wide[wide < 0] = np.nan
        may = np.zeros(wide.shape, dtype=bool)
        may[np.divmod(pool.listed, wide.shape[1])] = True
        classes = range(self.table_.n_classes)
        model = SklearnClassifier(unfitted(X), classes=classes)
        ask = self._threshold if self.inner is None else self._wrapped
        pairs = ask(X, wide, may, model, n)
        i, r = np.asarray(pairs).T
        nothing = np.zeros(len(i))
        return Suggestion(pool.instances[i], pool.annotators[r], nothing, nothing)

    def _wrapped(self, X: Any, wide: Any, may: Any, model: Any, n: int) -> Any:
        """`SingleAnnotatorWrapper` around a strategy."""
        from skactiveml import pool as strategies
        from skactiveml.pool.multiannotator import (
            IntervalEstimationAnnotModel,
            SingleAnnotatorWrapper,
        )

        rows = np.flatnonzero(may.any(axis=1))
        name, options = self.inner
        inner = getattr(strategies, name)(random_state=self.random_state, **options)
        more: dict[str, Any] = {}
        if name == "UncertaintySampling":
            more["clf"] = model
        elif name == "QueryByCommittee":
            bag = BaggingClassifier(unfitted(X), n_estimators=5, random_state=0)
            more["ensemble"] = type(model)(bag, classes=model.classes)
        performance = None
        if self.ranks_annotators:
            annotators = IntervalEstimationAnnotModel(classes=list(model.classes))
            performance = annotators.fit(X, wide).predict_annotator_perf(X)[rows]
        return SingleAnnotatorWrapper(inner, random_state=self.random_state).query(
            X,
            wide,
            candidates=rows,
            annotators=may[rows],
            batch_size=min(n, len(rows)),
            A_perf=performance,
            **more,
        )

    def _threshold(self, X: Any, wide: Any, may: Any, model: Any, n: int) -> Any:
        """`IntervalEstimationThreshold`, asked again until the batch is full."""
        from skactiveml.pool.multiannotator import IntervalEstimationThreshold
        from skactiveml.utils import majority_vote

        strategy = IntervalEstimationThreshold(random_state=self.random_state)
        model = model.fit(X, majority_vote(wide, classes=list(model.classes), random_state=0))
        pairs: list[Any] = []
        while len(pairs) < n and may.all(axis=1).any():
            rows = np.flatnonzero(may.all(axis=1))
            found = strategy.query(
                X, wide, model, fit_clf=False, candidates=rows, annotators=may[rows]
            )
            may[found[:, 0]] = False
            pairs.extend(found.tolist())
        return pairs[:n]


def activeml(inner: Any = None, ranked: bool = False) -> AnnotationPlanner:
    """A planner of its own class for a strategy, because options of planners are parameters."""
    return type("Strategy", (Activeml,), {"inner": inner, "ranks_annotators": ranked})()


RANDOM, BY_ENTROPY = ("RandomSampling", {}), ("UncertaintySampling", {"method": "entropy"})
OURS: dict[str, AnnotationPlanner] = {
    "uniform": Watched(criterion="fewest", annotators="any"),
    "entropy of both": Watched(criterion="entropy", annotators="any"),
    EIG: Watched(),
    "ERE of the pair": Watched(criterion="accuracy"),
}
CLEANLAB: dict[str, AnnotationPlanner] = {"cleanlab: ActiveLab": ActiveLab()}
BY_INTERVAL = "annotators by interval estimation"
PACKAGES = CLEANLAB | {
    f"scikit-activeml: {name}": planner
    for name, planner in {
        "random": activeml(RANDOM),
        "entropy": activeml(BY_ENTROPY),
        "margin": activeml(("UncertaintySampling", {"method": "margin_sampling"})),
        "least confident": activeml(("UncertaintySampling", {"method": "least_confident"})),
        "committee": activeml(("QueryByCommittee", {})),
        f"random, {BY_INTERVAL}": activeml(RANDOM, ranked=True),
        f"entropy, {BY_INTERVAL}": activeml(BY_ENTROPY, ranked=True),
    }.items()
}
ALONE: dict[str, AnnotationPlanner] = {
    "uniform, without classifier": Watched(criterion="fewest", annotators="any"),
    "EIG of the pair, without classifier": Watched(),
    "three each, then the next": NextWhenThree(),
    "entropy of the classifier": ClassifierEntropy(),
}
DENSE = OURS | PACKAGES | {"scikit-activeml: IntervalEstimationThreshold": activeml()}


def beside(sets: Any, planners: dict[str, AnnotationPlanner]) -> Part:
    """A part that buys from .4 to 1.8 annotations per instance, beside a classifier."""

    def measure(set: str, policy: str, run: int) -> Record:
        joined = not policy.endswith("without classifier")
        return with_features(set, planners[policy], joined, run)

    return Part(measure, cells=lambda runs: grid(run=runs, set=sets, policy=planners))


def with_features(
    name: str, planner: AnnotationPlanner, joined: bool, run: int, most: float = 1.81
) -> Record:
    _, _, table, y, _ = features_of(name)
    Watched.name = name
    TEST.clear()
    proba = partial(out_of_fold, name) if joined else None
    sizes = np.arange(0.6, most, 0.2)
    found = replay(
        table, y, {"it": planner}, start=0.4, batch=sizes, proba=proba, n_runs=1, random_state=run
    )
    return curve(found, test=list(TEST))


def dense(set: str, policy: str, run: int) -> Record:
    """Simulated crowds in which anybody may be asked anything, as IEThresh needs it."""
    return with_features(f"simulated {run}", DENSE[policy], True, run, 2.01)


def simulated(seed: int) -> Any:
    """300 instances of 3 classes, all annotated by 20 annotators of accuracy Beta(6, 2.5)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=600)
    X = rng.normal(size=(600, 10)) + 0.7 * rng.normal(size=(3, 10))[y]
    accuracy = rng.beta(6, 2.5, 20)
    wrong = (y[:300, None] + rng.integers(1, 3, (300, 20))) % 3
    A = np.where(rng.random((300, 20)) < accuracy, y[:300, None], wrong)
    table = AnnotationTable.from_matrix(A)
    return SimpleNamespace(X_train=X[:300], X_test=X[300:], annotations=table,
                           y_train=y[:300], y_test=y[300:])  # fmt: skip


def of_review(runs: range) -> Iterator[Record]:
    """All annotations once."""
    for run in runs:
        yield from grid(run=[run], set=LOADERS, policy=("two",) if run else ("all", "two"))


def rankings(set: str, policy: str, run: int) -> Record:
    """AP, and precision at 50 and 100, of each ranking; the labels are those of the posterior."""
    _, _, table, y, _ = features_of(set)
    if policy == "two":
        bought, _ = Recorded.of(table, y, 2).begin(generator_of(0, run))
        table = with_rows(table, *bought[:3])
    proba = out_of_fold(set, table)
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


PARTS = {
    "features": beside(LOADERS, ALONE | OURS | CLEANLAB),
    "packages": beside(("music", "labelme"), ALONE | OURS | PACKAGES),
    "dense": Part(dense, cells=lambda runs: grid(run=runs, set=["simulated"], policy=DENSE)),
    "review": Part(rankings, cells=of_review),
}
