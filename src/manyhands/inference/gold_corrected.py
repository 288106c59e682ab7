"""Dawid-Skene corrected by a few gold labels: logistic regressions averaged by their evidence.

.. [1] D. J. C. MacKay. The evidence framework applied to classification networks. Neural
   Computation 4(5), 1992 (the evidence by Laplace's method).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from scipy.special import log_softmax, softmax

from manyhands.annotations.groups import RHO, in_families
from manyhands.annotations.target import is_sharded
from manyhands.exceptions import NotIdentifiableWarning, warn_caller
from manyhands.inference.base import AggregatorTraits, BaseAggregator, Execution, known_prior
from manyhands.inference.confusion_em import Fits, OwnRemoved
from manyhands.inference.confusions import ConfusionParams
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.dependence import DEFAULT_EM, DEPENDENCE, exponents
from manyhands.inference.families import family_codes, member_weights
from manyhands.inference.gold_samples import GOLD_SAMPLE, least_gold
from manyhands.inference.identifiability import isolated_families
from manyhands.inference.probability import LOG_FLOOR
from manyhands.inference.shared_mistakes import (
    DENSE,
    GROUPS,
    MOST_CUT,
    partitions,
    warn_of_shared_mistakes,
)
from manyhands.inference.votes import (
    SHARD,
    Votes,
    clamp_to_gold,
    concatenate_rows,
    weighted_votes,
    zip_shards,
)
from manyhands.records import record
from manyhands.typing import FloatArray, IntArray

SCALES = ((0.1, 0.15), (0.3, 0.3), (0.8, 0.4))
"""Prior standard deviations of an annotator's deviation, and of the common terms (slope, class
intercepts)."""

FAMILIES_PRIOR = 0.2
"""Prior probability that annotators who agree form families."""

TEMPERED_RHO = 0.3
"""Correlation of mistakes in the tempered base, larger than that of most real tables."""


class GoldCorrected(BaseAggregator):
    """Correct Dawid-Skene by 10 or more gold labels, which also detect families of annotators.

    If annotators share mistakes, the posterior of `DawidSkene` is overconfident and may follow the
    largest family; gold given to it directly has little weight among all the annotations. Here
    logistic regressions with strong priors are fitted to the gold labels, on several bases: the
    posterior of `DawidSkene`, the same posterior tempered, and the plain votes. If there are at
    most 15 annotators, and each annotates at least 30 % of the instances, further bases treat
    annotators who agree as families (``groups={}`` suppresses warnings but not these bases). The
    result is the mean of the regressions, weighted by evidence.

    Give gold for instances drawn at random, not for those on which annotators differ. Gold that was
    chosen by doubt is not used for the correction, and a warning says so.

    Parameters
    ----------
    dependence : float in [0, 1] or "auto", default="auto"
        As in `DawidSkene`, for tables with too little gold for a correction.
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with gold were chosen; as in `DawidSkene`. With chosen gold there is no
        correction: the result is that of `DawidSkene` with the gold, and a warning says so.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    corrected_ : bool
        Whether there was enough gold: 10 annotated instances and 5 per class, or 50 if families
        are declared. If not, the result is that of `DawidSkene` with the gold. Families are
        ignored, with a warning, if most instances were annotated by one of them only.
    base_weights_ : dict {str: float}
        Weight of each base in the mean ("Dawid-Skene", "tempered", "votes", and
        "families: 0+1, 2+3+4" by annotator ids); empty unless corrected.
    log_likelihood_ : array of shape (n_iter_,)
        The attribute of the fit by `DawidSkene`.

    Notes
    -----
    With the log posterior j of a base, its own annotations of the instance removed,

        score[i, c] = a j[i, c] + b[c] + sum_{r: l_ir = c} (v + d[r])
            + sum_g e[g] n_igc / sqrt(n_ig)

    where n_igc members of the declared family g gave class c. Priors are normal: a ~ N(1, t),
    b ~ N(0, t), d ~ N(0, s), v ~ N(0, .2) or, for the votes, N(.5, .3), e ~ N(0, 1.5 s), with
    (s, t) = (.1, .15), (.3, .3), (.8, .4): three regressions per base, fitted by Newton's method.
    The log evidence of each is ``log lik - |z|^2 / 2 - log det(I + S X' W X S) / 2`` [1]_.
    Abstentions are ignored.

    References
    ----------
    .. [1] D. J. C. MacKay. The evidence framework applied to classification networks. Neural
       Computation 4(5), 1992.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import GoldCorrected
    >>> rng = np.random.default_rng(0)
    >>> truth, copied = rng.integers(0, 2, (2, 300))
    >>> judge = [np.where(rng.random(300) < 0.85, truth, 1 - truth) for _ in range(2)]
    >>> machines = [np.where(rng.random(300) < 0.7, copied, truth) for _ in range(4)]
    >>> A = np.stack([*judge, *machines], axis=1)
    >>> gold = dict(enumerate(truth[:50].tolist()))
    >>> model = GoldCorrected().fit(A, gold=gold)
    >>> model.corrected_, bool((model.labels_ == truth).mean() > 0.8)
    (True, True)
    """

    _knows_its_accuracy = True
    _is_isolated = False
    """Whether most instances were annotated by one family only."""

    _ignores_families = False
    """Whether families are ignored, because most instances have only one and gold is better."""

    traits = AggregatorTraits(needs_gold=True, warns_of_shared_mistakes=False)

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
    }

    def __init__(
        self,
        *,
        dependence: float | str = "auto",
        gold_sample: str = "auto",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.ties = ties
        self.random_state = random_state

    def _refit(
        self, table: Any, gold: IntArray | None, start: FloatArray | None, execution: Execution
    ) -> None:
        self._is_isolated = self._ignores_families = False
        if gold is not None and not is_sharded(table):
            votes = super()._votes(table)
            n_known = int(np.count_nonzero((np.diff(votes.start) > 0) & (gold >= 0)))
            is_enough = n_known >= least_gold(table.n_classes)
            self._is_isolated = isolated_families(votes, table.groups).are_most
            self._ignores_families = is_enough and self._is_isolated
        super()._refit(table, gold, start, execution)
        if self._ignores_families and not self.corrected_:  # Gold chosen by doubt corrects nothing.
            self._ignores_families = False
            super()._refit(table, gold, start, execution)

    def _votes(self, table: Any, gold: IntArray | None = None) -> Any:
        if self._ignores_families:
            table = table.with_groups(None)
        return super()._votes(table, gold)

    def _without_gold(self, votes: Votes) -> FloatArray | None:
        # The regressions are fitted to this gold, so they cannot predict without it.
        return None if self.corrected_ else self._plain._without_gold(votes)

    def _unidentified(self, votes: Any) -> str | None:
        return None if self.corrected_ else super()._unidentified(votes)

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        # The gold of the votes includes labels of isolated annotators, which are only assumed.
        gold = np.full(votes.n_instances, -1) if self._gold is None else self._gold
        known = np.flatnonzero((np.diff(votes.start) > 0) & (gold >= 0))
        families = None if self._ignores_families else self.table_.groups
        has_families = bool(in_families(families, self.table_.n_annotators).any())
        least = least_gold(votes.n_classes, families=has_families and not self._is_isolated)
        self._plain = DawidSkene(
            dependence=self.dependence, gold_sample=self.gold_sample, abstentions="ignore"
        )
        unchanged = start if callable(start) else start.copy()
        self._plain._fit_votes(votes, unchanged, self._known_labels())
        self.log_likelihood_, self.n_iter_ = self._plain.log_likelihood_, self._plain.n_iter_
        self.dependence_, self.dependence_se_ = self._plain.dependence_, self._plain.dependence_se_
        self.gold_sample_ = self._plain.gold_sample_
        self.gold_p_value_ = self._plain.gold_p_value_
        self.base_weights_: dict[str, float] = {}
        is_chosen = self.gold_sample_ == "chosen"
        if self.gold_sample == "auto" and self._random_gold is not None and not is_chosen:
            known = known[self._random_gold[known]]
        self.corrected_ = len(known) >= least and not is_chosen
        if not self.corrected_:
            self.posterior_, self.class_prior_ = self._plain.posterior_, self._plain.class_prior_
            if is_chosen and len(known) >= least:
                self._warn_of_chosen_gold(len(known))
            else:
                self._warn_of_too_little_gold(len(known), least, has_families)
            return
        if self._ignores_families:
            warn_caller(
                "most instances were annotated by only one declared family, so the families are "
                f"ignored: the {len(known)} gold labels show which annotators are right",
                NotIdentifiableWarning,
            )
        self._families = None if families is None or not has_families else family_codes(families)
        self._annotators = np.unique(votes.annotator[np.isin(votes.instance, known)])
        self._regressions = self._fit_regressions(votes, start, gold, known)
        for one in self._regressions:
            self.base_weights_.setdefault(one.base.name, 0.0)
            self.base_weights_[one.base.name] += one.weight
        self.posterior_ = self._mean(votes, [one.base.joint for one in self._regressions])
        clamp_to_gold(votes, self.posterior_)
        self.class_prior_ = known_prior(votes, self.posterior_)
        self.posterior_[~votes.voted] = self.class_prior_
        for one in self._regressions:
            one.base.joint = np.zeros((0, votes.n_classes))  # Prediction does not need it.

    def _posterior(self, votes: Votes) -> FloatArray:
        if not self.corrected_:
            return self._plain._posterior(votes)
        posterior = self._mean(votes, [one.base.joint_of(votes) for one in self._regressions])
        posterior[~votes.voted] = self.class_prior_
        return posterior

    def _mean(self, votes: Votes, joints: list[FloatArray]) -> FloatArray:
        """Return the mean of the regressions' probabilities, shape (n, C)."""
        out = np.empty((votes.n_instances, votes.n_classes))
        for shard, rows, *parts in zip_shards(votes.runs(SHARD), out, *joints):
            rows[:] = 0.0
            features = features_of(shard, self._annotators, self._families)
            for one, joint in zip(self._regressions, parts, strict=True):
                scores = (features @ one.coefficients[1:]).reshape(joint.shape)
                rows += one.weight * softmax(one.coefficients[0] * joint + scores, axis=1)
        return out

    def _warn_of_too_little_gold(self, n_gold: int, least: int, has_families: bool) -> None:
        declared = " with the families" if has_families else ""
        of_families = has_families and not self._is_isolated
        where = "; where families are declared, " if of_families else ", and "
        warn_caller(
            f"{n_gold} annotated {'instance has' if n_gold == 1 else 'instances have'} gold labels"
            f"{where}{least} are needed to correct Dawid-Skene, so the result is that of "
            f"DawidSkene{declared}. Give "
            f"{'more ' if n_gold else ''}gold (gold=)",
            NotIdentifiableWarning,
        )
        warn_of_shared_mistakes(self.table_, n_gold=n_gold)

    def _warn_of_chosen_gold(self, n_gold: int) -> None:
        test = self.gold_p_value_
        how = "were chosen" if test is None else f"were chosen by doubt (rank test, p = {test:.2g})"
        warn_caller(
            f"the {n_gold} gold labels {how}, which would mislead the correction, so the result is "
            "that of DawidSkene with the gold. Give gold for instances drawn at random; if these "
            "were, say gold_sample='random'",
            NotIdentifiableWarning,
        )

    def _warn_of_no_choice(self, n_gold: int) -> None:
        """Warn that gold cannot detect families, unless the user declares that there are none."""
        n = np.count_nonzero(self.table_.annotations_per_annotator())
        if self.table_.groups is None and n > 2:
            warn_caller(
                f"gold cannot detect families among these {n} annotators: this needs at most "
                f"{MOST_CUT} annotators, each with annotations of at least {100 * DENSE:.0f} % of "
                f"the instances. If some share mistakes, declare them ({GROUPS} if nobody does)",
                NotIdentifiableWarning,
            )
            warn_of_shared_mistakes(self.table_, n_gold=n_gold)

    def _fit_regressions(
        self, votes: Votes, start: FloatArray, gold: IntArray, known: IntArray
    ) -> list[GoldRegression]:
        bases = _bases(votes, start)
        masses = [1.0 / len(bases)] * len(bases)
        if self._families is None:
            cuts = [
                _weighted_base(votes, start, family, self.annotators_)
                for family in partitions(self.table_)
            ]
            if not cuts:
                self._warn_of_no_choice(len(known))
            else:
                masses = [(1 - FAMILIES_PRIOR) / len(bases)] * len(bases)
                masses += [FAMILIES_PRIOR / len(cuts)] * len(cuts)
            bases += cuts
        design = Design.of(votes, gold, known, self._annotators, self._families)
        fitted = [
            fit_regression(design, base, scale, np.log(mass))
            for base, mass in zip(bases, masses, strict=True)
            for scale in SCALES
        ]
        weights = softmax([one.weight for one in fitted])
        kept = weights > 1e-6 * weights.max()
        total = weights[kept].sum()
        return [
            replace(one, weight=float(w / total))
            for one, w, keep in zip(fitted, weights, kept, strict=True)
            if keep
        ]


# -- bases ----------------------------------------------------------------------------------------


@record("Base")
@dataclass
class Base:
    """A log posterior that the regressions use as a feature.

    Attributes
    ----------
    name : str
    joint : array of shape (n, C)
        Log posterior of the fitted instances up to a constant, without their own annotations'
        effect on the parameters and without their gold.
    parameters : ConfusionParams or None
        Parameters of Dawid-Skene; None for the votes.
    rho : float
        Correlation by which the joint is tempered.
    family : integer array of shape (R,) or None
        Families for the weights of annotations.
    """

    name: str
    joint: FloatArray
    parameters: ConfusionParams | None = None
    rho: float = 0.0
    family: IntArray | None = None

    def joint_of(self, votes: Votes) -> FloatArray:
        """Return the log posterior of new instances up to a constant, shape (n, C)."""
        if self.parameters is None:
            return np.zeros((votes.n_instances, votes.n_classes))
        votes = votes if self.family is None else with_families(votes, self.family)
        joint = concatenate_rows(
            self.parameters.log_joint(shard, np.ones(shard.n_instances)) for shard in votes.shards()
        )
        return tempered(votes, _floored(joint), self.rho) if self.rho else _floored(joint)


def _bases(votes: Votes, start: FloatArray) -> list[Base]:
    """Return the bases without families: Dawid-Skene, the same tempered, and the votes."""
    plain = _dawid_skene_base("Dawid-Skene", votes, start)
    weak = replace(
        plain,
        name="tempered",
        joint=tempered(votes, plain.joint, TEMPERED_RHO),
        rho=TEMPERED_RHO,
    )
    return [plain, weak, Base("votes", np.zeros((votes.n_instances, votes.n_classes)))]


def _weighted_base(
    votes: Votes, start: FloatArray, family: IntArray, annotators: FloatArray
) -> Base:
    """Return the base of Dawid-Skene with families found in the annotations."""
    members = [annotators[family == f] for f in np.unique(family)]
    listed = ", ".join("+".join(map(str, group)) for group in members if len(group) > 1)
    base = _dawid_skene_base(f"families: {listed}", with_families(votes, family), start)
    return replace(base, family=family)


def _dawid_skene_base(name: str, votes: Votes, start: FloatArray) -> Base:
    """Return the base of the default Dawid-Skene, with subtypes if their evidence is greater."""
    shards = votes.shards()
    fits = Fits(DEFAULT_EM, votes, shards, start)
    run = max(map(fits.run, (1, 2)), key=lambda run: run.evidence)
    joint = concatenate_rows(map(OwnRemoved(run), shards))
    return Base(name, _floored(joint), run.parameters)


def _floored(joint: FloatArray) -> FloatArray:
    """Replace the infinite logarithms of absent classes by finite ones, for the regressions."""
    return np.maximum(joint, joint.max(axis=1, keepdims=True) + LOG_FLOOR)


def tempered(votes: Votes, joint: FloatArray, rho: float) -> FloatArray:
    """Temper a log posterior to allow for mistakes that are correlated by rho."""
    return joint * exponents(votes, rho)[:, None]


def with_families(votes: Votes, family: IntArray) -> Votes:
    """Return votes with weights multiplied by those of the families."""
    weight = member_weights(votes.instance, votes.annotator, family, RHO)
    return replace(votes, weight=weight if votes.weight is None else weight * votes.weight)


# -- regressions -----------------------------------------------------------------------------------


@record("Regression")
@dataclass(frozen=True)
class GoldRegression:
    """A fitted regression.

    Attributes
    ----------
    base : Base
    coefficients : array of shape (D,)
        Coefficients of the base's log posterior, then of the features.
    weight : float
        Log evidence plus log prior; after all fits, the weight in the mean.
    """

    base: Base
    coefficients: FloatArray
    weight: float


def fit_regression(
    design: Design, base: Base, scale: tuple[float, float], log_mass: float
) -> GoldRegression:
    """Fit a regression for one base and one scale of the priors, with its evidence."""
    joint = log_softmax(base.joint[design.known], axis=1)
    features = hstack([csr_matrix(joint.reshape(-1, 1)), design.features], format="csr")
    votes_only = base.parameters is None
    mean, sd = priors(design, scale, joint.shape[1], features.shape[1], votes_only=votes_only)
    coefficients, evidence = maximum_a_posteriori(features, design.gold, mean, sd)
    return GoldRegression(base, coefficients, evidence + log_mass)


@dataclass(frozen=True)
class Design:
    """Gold instances, and all features of each (instance, class) except the base's log posterior.

    Attributes
    ----------
    known : integer array of shape (G,)
    gold : integer array of shape (G,)
    features : sparse matrix of shape (G * C, D - 1)
        Intercepts of the classes, votes of all annotators, of each one, of each family.
    n_annotators : int
        Number A of the annotators of gold instances.
    """

    known: IntArray
    gold: IntArray
    features: Any
    n_annotators: int

    @classmethod
    def of(
        cls,
        votes: Votes,
        gold: IntArray,
        known: IntArray,
        annotators: IntArray,
        family: IntArray | None,
    ) -> Design:
        """Return the features of the known instances."""
        part = features_of(votes, annotators, family)
        cells = (known[:, None] * votes.n_classes + np.arange(votes.n_classes)).ravel()
        return cls(known, gold[known], part[cells], len(annotators))


def features_of(votes: Votes, annotators: IntArray, family: IntArray | None) -> Any:
    """Return the sparse features of each (instance, class), shape (n * C, C + 1 + A + F)."""
    n, c = votes.n_instances, votes.n_classes
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    cell = votes.instance * np.int64(c) + votes.response
    intercepts = csr_matrix((np.ones(n * c), (np.arange(n * c), np.tile(np.arange(c), n))))
    common = csr_matrix(weighted_votes(votes).reshape(-1, 1))
    column = np.full(votes.n_annotators, -1)
    column[annotators] = np.arange(len(annotators))
    seen = column[votes.annotator] >= 0
    own = csr_matrix(
        (weight[seen], (cell[seen], column[votes.annotator[seen]])), shape=(n * c, len(annotators))
    )
    parts = [intercepts, common, own]
    if family is not None:
        parts.append(_family_features(votes, family, weight, cell))
    return hstack(parts, format="csr")


def _family_features(votes: Votes, family: IntArray, weight: FloatArray, cell: IntArray) -> Any:
    """Return n_igc / sqrt(n_ig) for each (instance, class) and each family of two or more."""
    codes = np.unique(family, return_inverse=True)[1]
    shared = np.flatnonzero(np.bincount(codes) > 1)
    code = np.full(codes.max() + 1, -1)
    code[shared] = np.arange(len(shared))
    mine = code[codes[votes.annotator]]
    rows = np.flatnonzero(mine >= 0)
    pair = votes.instance[rows] * np.int64(max(len(shared), 1)) + mine[rows]
    _, where = np.unique(pair, return_inverse=True)
    total = np.bincount(where, weight[rows])[where]
    shape = votes.n_instances * votes.n_classes, len(shared)
    return csr_matrix((weight[rows] / np.sqrt(total), (cell[rows], mine[rows])), shape=shape)


def priors(
    design: Design, scale: tuple[float, float], c: int, size: int, *, votes_only: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the means and standard deviations of the coefficients, shape (D,)."""
    own, common = scale
    mean, sd = np.zeros(size), np.full(size, 1.5 * own)
    mean[0], sd[: c + 1] = 1.0, common
    mean[c + 1], sd[c + 1] = (0.5, 0.3) if votes_only else (0.0, 0.2)
    sd[c + 2 : c + 2 + design.n_annotators] = own
    return mean, sd


def maximum_a_posteriori(
    features: Any, gold: IntArray, mean: FloatArray, sd: FloatArray
) -> tuple[FloatArray, float]:
    """Fit a logistic regression with normal priors by damped Newton, with its Laplace evidence.

    Parameters
    ----------
    features : sparse matrix of shape (G * C, D)
    gold : integer array of shape (G,)
    mean, sd : arrays of shape (D,)
        Means and standard deviations of the priors.

    Returns
    -------
    coefficients : array of shape (D,)
    log_evidence : float
        log lik - |z|^2 / 2 - log det(I + S X' W X S) / 2, with standardised coefficients z.
    """
    n, size = len(gold), len(mean)
    scaled = features.multiply(sd).tocsr()
    offset = (features @ mean).reshape(n, -1)
    chosen = np.arange(n), gold

    def fit_at(z: FloatArray) -> tuple[float, FloatArray]:
        log_p = log_softmax(offset + (scaled @ z).reshape(n, -1), axis=1)
        return float(log_p[chosen].sum() - z @ z / 2), log_p

    z = np.zeros(size)
    value, log_p = fit_at(z)
    for _ in range(50):
        gradient, curvature = _derivatives(scaled, log_p, gold, z)
        step = np.linalg.solve(curvature, gradient)
        length = 1.0
        while (new := fit_at(z + length * step))[0] < value and length > 1e-6:
            length /= 2
        gain, z = new[0] - value, z + length * step
        value, log_p = new
        if gain < 1e-9:
            break
    curvature = _derivatives(scaled, log_p, gold, z)[1]
    return mean + sd * z, value - float(np.linalg.slogdet(curvature)[1]) / 2


def _derivatives(
    scaled: Any, log_p: FloatArray, gold: IntArray, z: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the gradient (D,) and negative Hessian (D, D) in the standardised coefficients."""
    p = np.exp(log_p)
    n, c = p.shape
    residual = -p
    residual[np.arange(n), gold] += 1.0
    gradient = scaled.T @ residual.ravel() - z
    spread = csr_matrix((p.ravel(), np.arange(n * c), np.arange(n + 1) * c), shape=(n, n * c))
    means = spread @ scaled
    curvature = scaled.T @ scaled.multiply(p.reshape(-1, 1)) - means.T @ means
    return gradient, np.asarray(curvature.todense()) + np.eye(len(z))
