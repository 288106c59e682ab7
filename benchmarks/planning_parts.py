"""Parts of the benchmark of planning: policies, real tables, simulations, many annotators.

`planning.py` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
from scipy.special import betainc

from evidence.study import Part, Record, grid
from manyhands import AnnotationPlanner, AnnotationTable, DawidSkene, OneCoinDawidSkene
from manyhands.datasets import load_aggregation, load_cifar10h, load_cifar10n
from manyhands.planning import replay
from manyhands.planning.beliefs import entropy
from manyhands.planning.beliefs import replace as changed
from manyhands.planning.choosing import Suggestion
from manyhands.planning.pool import Pool, Recorded, generator_of
from manyhands.planning.replay import _fit, _play, _policies

TABLES = ("duck", "d_sentiment", "sp_amt", "cf_amt", "dog", "rte", "temp", "face_sentiment")
OTHERS = ("adult_content", "relevance", "trec", "web", "zencrowd_us", "zencrowd_in", "cf", "sp")
SIZES = (*np.arange(1, 3, 0.25), *np.arange(3, 8.1, 0.5))
FEW_SIZES = np.arange(1, 5.1, 0.5)


def in_order(pool: Pool, n: int, score: np.ndarray, seed: Any) -> Suggestion:
    """The instances with the greatest scores, each with a random annotator."""
    i, r = np.divmod(np.random.default_rng(seed).permutation(pool.listed), len(pool.annotators))
    first = np.unique(i, return_index=True)[1]
    first = np.random.default_rng(seed).permutation(first)
    best = first[np.argsort(-score[i[first]], kind="stable")][:n]
    nothing = np.zeros(len(best))
    return Suggestion(pool.instances[i[best]], pool.annotators[r[best]], nothing, nothing)


class ByScore(AnnotationPlanner):
    """Chooses instances by a score of their own, and annotators at random."""

    def score(self) -> np.ndarray:
        """Score of each instance; the greatest is asked first."""
        raise NotImplementedError

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        return in_order(pool, n, self.score(), self.random_state)


class LabelUncertainty(ByScore):
    """Sheng, Provost & Ipeirotis (2008): the chance that the majority's share is below a half."""

    def score(self) -> np.ndarray:
        """Tail of the Beta distribution of the share of the leading class."""
        counts = self.table_.vote_counts()
        top = counts.max(axis=1)
        return np.asarray(betainc(top + 1, counts.sum(axis=1) - top + 1, 0.5))


class OneCoinEntropy(ByScore):
    """Entropy of the one-coin model's posterior; labels are those of `DawidSkene`."""

    def score(self) -> np.ndarray:
        """Entropy, in nats."""
        return entropy(OneCoinDawidSkene().fit(self.table_).posterior_)


class MinorityBoost(ByScore):
    """Entropy, times how much rarer the label's class is than the average class."""

    def score(self) -> np.ndarray:
        """Entropy over the share of labels that are of the same class."""
        codes = self.posterior_.argmax(axis=1)
        share = np.bincount(codes, minlength=self.table_.n_classes) / len(codes)
        return np.asarray(entropy(self.posterior_) / share[codes])


class LabelQuality(ByScore):
    """ActiveLab (Goh & Mueller 2022) without its classifier, which knows nothing here.

    The labels are those of `DawidSkene` instead of the majority's.
    """

    def score(self) -> np.ndarray:
        """How little the annotations support the label, by each annotator's weight."""
        table, c = self.table_.observed, self.table_.n_classes
        label = self.posterior_.argmax(axis=1)
        agrees = table.label == label[table.instance]
        n = table.annotations_per_annotator()
        right = (np.bincount(table.annotator, agrees, table.n_annotators) + 1) / (n + 2)
        chance = np.bincount(label).max() / len(label)
        weight = np.maximum(1 - (1 - right) / max(1 - chance, 1e-6), 1e-6)
        usual, mean = agrees.mean(), np.average(weight, weights=n)
        vote = np.where(agrees, usual, (1 - usual) / (c - 1)) * weight[table.annotator]
        support, total = (
            np.bincount(table.instance, each, table.n_instances)
            for each in (vote, weight[table.annotator])
        )
        return -(support + mean / c) / (total + mean)


UNIFORM, ENTROPY = "fewest annotations first (uniform)", "entropy of the label"
EIG, ERE = "**EIG of the pair** (default)", "ERE of the pair"
LOAD, EVEN = "EIG, load 2", "EIG, load 1"
Plan = AnnotationPlanner
POLICIES: dict[str, AnnotationPlanner | None] = {
    "random": None,
    UNIFORM: Plan(criterion="fewest", annotators="any"),
    ENTROPY: Plan(criterion="entropy", annotators="any"),
    "label uncertainty (Sheng et al. 2008)": LabelUncertainty(),
    "entropy, one-coin": OneCoinEntropy(),
    "minority boost": MinorityBoost(),
    "ActiveLab (own form)": LabelQuality(),
    "EIG, any annotator": Plan(annotators="any"),
    "EIG, annotators arrive": Plan(annotators="arriving"),
    "best annotator, fewest first": Plan(criterion="fewest"),
    "entropy, then its annotator by EIG": Plan(criterion="entropy"),
    EIG: Plan(),
    ERE: Plan(criterion="accuracy"),
    LOAD: Plan(load=2.0),
    EVEN: Plan(load=1.0),
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
def table_of(name: str) -> tuple[AnnotationTable, np.ndarray]:
    """Annotations without repeated pairs, and gold."""
    data = load_aggregation(name, duplicates="last")
    return data.annotations, data.y_train


@cache
def everything(name: str) -> float:
    """Accuracy with all annotations."""
    table, y = table_of(name)
    return float((DawidSkene().fit(table).labels_ == y)[y >= 0].mean())


def one(name: str, planner: AnnotationPlanner | None, sizes: Any, run: int) -> Record:
    """Replay a policy once."""
    table, y = table_of(name)
    found = replay(table, y, {"it": planner}, batch=sizes, n_runs=1, random_state=run)
    return curve(found, all=everything(name))


def replays(
    sets: Iterable[str], policies: dict[str, Any], sizes: Callable[[str], Any] = lambda _: SIZES
) -> Part:
    """A part that replays policies on tables, up to the sizes of each."""

    def measure(set: str, policy: str, run: int) -> Record:
        return one(set, policies[policy], sizes(set), run)

    return Part(measure, cells=lambda runs: grid(run=runs, set=sets, policy=policies))


def up_to(name: str) -> Any:
    """From 1 to 8 annotations per instance (duck 12)."""
    return (*SIZES, *np.arange(8.5, 12.1, 0.5)) if name == "duck" else SIZES


class Untempered(AnnotationPlanner):
    """Takes a new annotation for independent evidence."""

    def fit(self, table: Any, proba: Any = None, gold: Any = None) -> Any:
        """Fit, and forget the dependence."""
        super().fit(table, proba, gold)
        self._beliefs = changed(self._beliefs, rho=0.0)
        return self


STOPPING = {
    "dependence=0": Plan(DawidSkene(dependence=0), criterion="accuracy"),
    "auto, new annotations in full": Untempered(criterion="accuracy"),
}


def each(set: str, policy: str, run: int) -> Record:
    """Instances stop one by one, when their labels are sure; or annotations are spread evenly."""
    if policy != UNIFORM:
        return until_sure(set, float(policy), run)
    table = table_of(set)[0]
    sizes = np.arange(1, table.n_annotations / table.n_instances + 1)
    return one(set, POLICIES[UNIFORM], sizes, run)


def until_sure(name: str, level: float, run: int) -> Record:
    """From two annotations each, ask about every instance that is not sure, until none is left."""
    table, y = table_of(name)
    source, rng = Recorded.of(table, y, 2), generator_of(0, run)
    bought, _ = source.begin(rng)
    while True:
        fitted = _fit(Plan(), table, bought, {}, (0, run, bought.shape[1]))
        listed = source.pool(bought).listed
        unsure = fitted.posterior_.max(axis=1) <= level
        left = rng.permutation(listed[unsure[listed // table.n_annotators]])
        if not len(left):
            break
        first = np.unique(left // table.n_annotators, return_index=True)[1]
        i, r = np.divmod(left[first], table.n_annotators)
        labels = source.answer(i, r, y, bought, rng)
        bought = np.concatenate([bought, np.stack([i, r, labels])], axis=1)
    size = bought.shape[1] / table.n_instances
    return {"size": size, "accuracy": float((fitted.labels_ == y)[y >= 0].mean())}


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

    def answer(self, i: Any, r: Any, truth: Any, bought: Any, rng: np.random.RandomState) -> Any:
        """Guess if tired."""
        labels = super().answer(i, r, truth, bought, rng).copy()
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


def hurt(kind: str, planner: AnnotationPlanner | None, run: int) -> Record:
    """Replay a policy once on 300 instances of 3 classes.

    All are annotated by 30 annotators of accuracy Beta(6, 2.5).
    """
    rng = np.random.default_rng(run)
    y, accuracy = rng.integers(3, size=300), rng.beta(6, 2.5, 30)
    if kind == "newcomers are better":
        accuracy[:5] = 0.5
    wrong = (y[:, None] + rng.integers(1, 3, (300, 30))) % 3
    A = np.where(rng.random((300, 30)) < accuracy, y[:, None], wrong)
    source, start = KINDS[kind]
    crowd = source.of(AnnotationTable.from_matrix(A), y, start)
    sizes = np.array([start, *np.arange(1.25, 8.1, 0.25)])
    return curve(_play(_policies({"it": planner}), crowd, sizes, 1, {}, None, run))


SAFEGUARDS: dict[str, AnnotationPlanner] = {
    "EIG, warm-up 2": Plan(warm_up=2.0),
    "EIG, explore": Plan(explore=True),
    "EIG, warm-up 2, explore": Plan(warm_up=2.0, explore=True),
}
CHECKED = (
    "duck",
    "sp_amt",
    "temp",
    "adult_content",
    "trec",
    "zencrowd_us",
    "zencrowd_in",
    "cf",
    "sp",
)
"""Tables on which no safeguard was looked at."""
SEEN = ("web", "d_sentiment", "cf_amt", "dog", "rte", "face_sentiment")
"""Tables on which they were chosen."""


def safeguard(set: str, policy: str, run: int) -> Record:
    """Replay a policy that was tried because choosing pairs hurts in places."""
    planner = (POLICIES | SAFEGUARDS)[policy]
    return hurt(set, planner, run) if set in KINDS else one(set, planner, FEW_SIZES, run)


def of_safeguards(runs: range) -> Iterable[Record]:
    """Tables, and simulations with seeds of their own."""
    policies = (ENTROPY, EIG, *SAFEGUARDS)
    yield from grid(run=runs, policy=policies, set=(*CHECKED, *SEEN))
    yield from grid(run=[1000 + run for run in runs], policy=policies, set=KINDS)


# -- scale -----------------------------------------------------------------------------------------


LARGE: dict[str, tuple[Callable[[], Any], float]] = {
    "cifar10h": (load_cifar10h, 4.1),
    "cifar10n": (load_cifar10n, 2.6),
}


def cifar(set: str, policy: str, run: int) -> Record:
    """Replay a policy once."""
    data, sizes = LARGE[set][0](), np.arange(1.5, LARGE[set][1], 0.5)
    options = {"batch": sizes, "n_runs": 1, "random_state": run}
    return curve(replay(data.annotations, data.y_train, {"it": POLICIES[policy]}, **options))


PARTS = {
    "tables": replays(TABLES, POLICIES, up_to),
    "stopping": replays(TABLES, STOPPING),
    "each": Part(
        each, cells=lambda runs: grid(run=runs, set=TABLES, policy=("0.95", "0.99", UNIFORM))
    ),
    "confirmation": replays(
        OTHERS, {p: POLICIES[p] for p in ("random", *FEW, EVEN)}, lambda _: FEW_SIZES
    ),
    "hurts": Part(
        lambda set, policy, run: hurt(set, POLICIES[policy], run),
        cells=lambda runs: grid(run=runs, set=KINDS, policy=HURT),
    ),
    "safeguards": Part(safeguard, cells=of_safeguards),
    "scale": Part(cifar, cells=lambda runs: grid(run=runs, policy=FEW, set=LARGE)),
}
