"""CrowdSMOTE: instances of rare classes between real ones, with annotations of their own.

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
.. [2] N. V. Chawla, K. W. Bowyer, L. O. Hall and W. P. Kegelmeyer. SMOTE: synthetic minority
   over-sampling technique. Journal of Artificial Intelligence Research 16, 2002.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple
from warnings import warn

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.annotations import AnnotationTable, as_table, label_certainty
from manyhands.annotations.encoding import encode
from manyhands.decision.labels import generator
from manyhands.exceptions import AnnotationError
from manyhands.inference.inputs import check_annotations
from manyhands.sampling.interpolation import Pairs, Rng, between, class_codes, nearest_rows, stacked
from manyhands.sampling.synthetic_annotations import annotate, with_rows
from manyhands.typing import FloatArray, IntArray


class FewCandidatesWarning(UserWarning):
    """A class has too few instances to interpolate between: they were repeated, or it has none."""


class Resampling(NamedTuple):
    """What was done for one class.

    Attributes
    ----------
    label
        The class.
    n_candidates : int
        Real instances that count as this class.
    n_neighbors : int
        Neighbours that an interpolation chooses from; 0 where there was nothing to choose from.
    n_synthetic : int
        Instances made.
    """

    label: Any
    n_candidates: int
    n_neighbors: int
    n_synthetic: int


class CrowdSMOTE(BaseEstimator):
    r"""Oversample rare classes of a crowdsourced set, annotations included [1]_.

    For a candidate :math:`x_i`, an instance that counts as a rare class, and a random one of its k
    nearest neighbours :math:`x_r` among the candidates, a synthetic instance is
    :math:`x' = x_i + \delta (x_r - x_i)` (Eq. 2.3), with :math:`\delta` by how certain the labels
    of the two are (Eq. 2.4, 2.5). Its annotations are drawn annotator by annotator from what the
    k nearest real instances, of all classes, were given.

    Parameters
    ----------
    k_neighbors : int, default=5
        k, for both purposes; of m candidates no more than m - 1. The paper names no value.
    sampling_strategy : "auto", float or dict, default="auto"
        How many instances a class is raised to. "auto": as many as the largest class has. A float
        in (0, 1] is a share of that. A dict {class: number} names them; other classes stay, and
        what has as many already.
    delta : {"intended", "printed", "random"}, default="intended"
        "intended": :math:`S_r / (S_i + S_r) + \eta`, which puts x' nearer to the more certain of
        the two, as the paper says it should be. "printed": its Eq. 2.5,
        :math:`S_i / (S_i + S_r) + \eta`, which puts it nearer to the less certain one. "random":
        uniform in [0, 1], as in SMOTE [2]_. All are clipped to [0, 1].
    epsilon : float, default=0.1
        Of `manyhands.annotations.label_certainty`: small ones make every unanimous instance
        infinitely more certain than others.
    jitter : float in [0, 0.5], default=0.1
        :math:`\eta` is uniform in [-jitter, jitter]; the paper names no range. With .5 and equal
        certainties :math:`\delta` is uniform in [0, 1], as in SMOTE.
    annotations : {"drawn", "majority"}, default="drawn"
        What an annotator gives a synthetic instance: what it gave a random one of the neighbours
        (by the annotations' weights), or what it gave most of them.
    gaps : {"kept", "filled"}, default="kept"
        Where an annotator has annotated only some of the neighbours: "kept" gives an annotation
        with the probability that a neighbour has one by this annotator, so that synthetic
        instances have as many annotations as real ones (one at the least; one an annotator, where
        real ones have repeated ones); "filled" always. Without missing annotations both are the
        paper's.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    sampling_strategy_ : dict {class: int}
        Instances made of every class.
    resampling_ : list of Resampling
        What was done, for every class that was to be raised.
    synthetic_labels_ : array of shape (n_synthetic,)
        The class that every synthetic instance was made for.
    parents_ : integer array of shape (n_synthetic, 2)
        Rows of :math:`x_i` and :math:`x_r`.
    delta_ : array of shape (n_synthetic,)

    Notes
    -----
    Cost: two searches of nearest neighbours, among the candidates and of every synthetic instance
    among all real ones, and the annotations of these neighbours.

    Candidates are taken in turn, in random order, so that each is used as often as any other but
    for one (the paper: each R times). The result does not depend on the order of the classes (but
    for ties with "majority", which are broken at random).

    Annotations of weight 0 are none; a synthetic one weighs what the one it was drawn from does
    ("majority": their mean). Abstentions and skips are taken for gaps.

    References
    ----------
    .. [1] ICED, SDM 2022, section 2.4.
    .. [2] SMOTE, Journal of Artificial Intelligence Research 16, 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import AnnotationTable
    >>> from manyhands.sampling import CrowdSMOTE
    >>> X = np.array([[0.0], [0.1], [0.2], [0.3], [1.0], [1.2]])
    >>> table = AnnotationTable.from_matrix([[0, 0], [0, 0], [0, 1], [0, 0], [1, 1], [1, 1]])
    >>> sampler = CrowdSMOTE(random_state=0)
    >>> X_more, more = sampler.fit_resample(X, table, labels=[0, 0, 0, 0, 1, 1])
    >>> X_more[6:].ravel().round(1).tolist(), more.source[12:].tolist()
    ([1.1, 1.1], ['synthetic', 'synthetic', 'synthetic', 'synthetic'])
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "k_neighbors": [Interval(Integral, 1, None, closed="left")],
        "sampling_strategy": [
            StrOptions({"auto"}),
            Interval(Real, 0, 1, closed="right"),
            Mapping,
        ],
        "delta": [StrOptions({"intended", "printed", "random"})],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "jitter": [Interval(Real, 0, 0.5, closed="both")],
        "annotations": [StrOptions({"drawn", "majority"})],
        "gaps": [StrOptions({"kept", "filled"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        k_neighbors: int = 5,
        sampling_strategy: Any = "auto",
        *,
        delta: str = "intended",
        epsilon: float = 0.1,
        jitter: float = 0.1,
        annotations: str = "drawn",
        gaps: str = "kept",
        random_state: Any = None,
    ) -> None:
        self.k_neighbors = k_neighbors
        self.sampling_strategy = sampling_strategy
        self.delta = delta
        self.epsilon = epsilon
        self.jitter = jitter
        self.annotations = annotations
        self.gaps = gaps
        self.random_state = random_state

    def fit_resample(
        self, X: Any, table: Any, *, labels: Any = None
    ) -> tuple[Any, AnnotationTable]:
        """Return the set with synthetic instances after the real ones.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_instances, ...)
            Features, or an embedding: the space that neighbours are sought in, and points made.
        table : AnnotationTable, or an (n_instances, n_annotators) matrix with -1/NaN missing
        labels : array-like of shape (n_instances,), or dict {instance id: class}, optional
            The class every instance counts as; None, NaN and -1 (unless it is a class) count as
            none. Default: majority vote, ties as none. Instances without annotations count as
            none, and are nobody's neighbours.

        Returns
        -------
        X_resampled : array or CSR matrix of shape (n_instances + n_synthetic, ...)
        table_resampled : AnnotationTable
            Over the same classes and annotators; annotations of synthetic instances are marked
            ``source="synthetic"``.

        Raises
        ------
        AnnotationError
            If X and the table do not belong together, a label or a class of
            ``sampling_strategy`` is unknown, or a number of instances is none.
        ValueError
            If X is not finite.

        Warns
        -----
        FewCandidatesWarning
            If a class that was to be raised has one instance, which is repeated, or none; or if
            no instance has a label.
        """
        self._validate_params()
        table = check_annotations(as_table(table, argument="table"), argument="table")
        X = check_array(
            X, accept_sparse="csr", dtype=[np.float64, np.float32], allow_nd=True, input_name="X"
        )
        if X.shape[0] != table.n_instances:
            raise AnnotationError(
                f"X has {X.shape[0]} rows but table has annotations for {table.n_instances} "
                "instances; give one row of X an instance, in the same order"
            )
        # What weighs nothing is no annotation, and yet it stays in the table.
        given = table if table.weights is None else table.take(table.weights > 0)
        annotated = given.annotations_per_instance() > 0
        codes = np.where(annotated, class_codes(given, labels), -1)
        if (codes < 0).all():
            warn(
                "labels name no class of any annotated instance, so nothing was made",
                FewCandidatesWarning,
                stacklevel=2,
            )
        wanted = self._wanted(codes, given)
        rng = generator(self.random_state)
        certainty = label_certainty(given, epsilon=self.epsilon)
        space = X if sparse.issparse(X) else X.reshape(len(X), -1)
        made = [self._pairs(space, codes, c, wanted[c], certainty, rng) for c in wanted]
        self._note(made, wanted, codes, table)
        points = between(space, self.parents_, self.delta_)
        if not len(self.delta_):
            return X, table
        neighbours = nearest_rows(space, np.flatnonzero(annotated), points, self.k_neighbors)
        annotations = annotate(
            neighbours,
            given,
            rng,
            by_majority=self.annotations == "majority",
            keep_gaps=self.gaps == "kept",
        )
        return stacked(X, points), with_rows(table, len(self.delta_), annotations)

    # -- how many ---------------------------------------------------------------------------------

    def _wanted(self, codes: IntArray, table: AnnotationTable) -> dict[int, int]:
        """Instances to be made of every class below its goal; the rarest class first."""
        counts = np.bincount(codes[codes >= 0], minlength=table.n_classes)
        goals = self._goals(counts, table)
        # In an order that does not depend on how classes are coded: by size, then by place.
        first = np.full(table.n_classes, len(codes))
        seen, where = np.unique(codes, return_index=True)
        first[seen[seen >= 0]] = where[seen >= 0]
        order = np.lexsort((first, counts))
        return {int(c): int(goals[c] - counts[c]) for c in order if goals[c] > counts[c]}

    def _goals(self, counts: IntArray, table: AnnotationTable) -> IntArray:
        strategy = self.sampling_strategy
        if isinstance(strategy, bool):
            raise AnnotationError(f"sampling_strategy={strategy} is no share; give 'auto' or 1.0")
        if not isinstance(strategy, Mapping):
            share = 1.0 if strategy == "auto" else float(strategy)
            # A class that nobody ever gave is none of this set's.
            seen = table.mask_of_classes_seen()
            return np.where(seen, np.maximum(counts, round(share * counts.max())), counts)
        named, _ = encode(
            list(strategy),
            table.classes,
            argument="sampling_strategy",
            vocabulary_name="the table's classes",
        )
        goals = counts.copy()
        for c, goal in zip(named, strategy.values(), strict=True):
            if not isinstance(goal, Integral) or isinstance(goal, bool) or goal < 0:
                raise AnnotationError(
                    f"sampling_strategy wants {goal!r} instances of class "
                    f"{table.classes[c].item()!r}; give a whole number, 0 or more"
                )
            goals[c] = max(int(goal), counts[c])  # Nothing is ever removed.
        return goals

    # -- where ------------------------------------------------------------------------------------

    def _pairs(
        self, space: Any, codes: IntArray, c: int, n: int, certainty: FloatArray, rng: Rng
    ) -> Pairs:
        """Choose n candidates of a class, a neighbour of each, and delta (Eq. 2.5)."""
        rows = np.flatnonzero(codes == c)
        m = len(rows)
        k = min(self.k_neighbors, m - 1)
        if m < 2:
            alone = np.repeat(rows[:, None], 2, axis=1).repeat(n, axis=0)
            return Pairs(c, m, 0, alone, np.zeros(len(alone)))
        neighbours = NearestNeighbors(n_neighbors=k).fit(space[rows]).kneighbors()[1]
        turns = np.concatenate([rng.permutation(m) for _ in range(-(-n // m))])[:n]
        chosen = neighbours[turns, rng.randint(k, size=n)]
        parents = rows[np.column_stack([turns, chosen])]
        return Pairs(c, m, k, parents, self._delta(certainty[parents], rng))

    def _delta(self, certainty: FloatArray, rng: Rng) -> FloatArray:
        """How far from the candidate towards its neighbour, from their certainties (n, 2)."""
        n = len(certainty)
        if self.delta == "random":
            return rng.uniform(size=n)
        nearer = certainty[:, 1 if self.delta == "intended" else 0]
        jitter = rng.uniform(-self.jitter, self.jitter, size=n)
        return np.clip(nearer / certainty.sum(axis=1) + jitter, 0.0, 1.0)

    def _note(
        self,
        made: list[Pairs],
        wanted: dict[int, int],
        codes: IntArray,
        table: AnnotationTable,
    ) -> None:
        """Set the fitted attributes, and warn of classes that could not be interpolated."""
        values = table.classes
        found = [
            Resampling(values[p.code].item(), p.n_candidates, p.n_neighbors, len(p.delta))
            for p in made
        ]
        self.resampling_ = found
        self.sampling_strategy_ = {each.label: each.n_synthetic for each in found}
        self.synthetic_labels_ = values[
            np.repeat([p.code for p in made], [len(p.delta) for p in made]).astype(np.int64)
        ]
        self.parents_: IntArray = np.concatenate(
            [np.zeros((0, 2), dtype=np.int64), *(p.parents for p in made)]
        )
        self.delta_: FloatArray = np.concatenate([np.zeros(0), *(p.delta for p in made)])
        for each in found:
            if each.n_candidates > 1:
                continue
            what = (
                f"one instance, which was repeated {each.n_synthetic} times"
                if each.n_candidates
                else "no instance, so none was made"
            )
            warn(
                f"class {each.label!r} has {what}; interpolation needs two",
                FewCandidatesWarning,
                stacklevel=3,
            )
