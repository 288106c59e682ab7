"""CrowdSMOTE: synthetic instances of rare classes between real ones, and their annotations.

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
.. [2] N. V. Chawla, K. W. Bowyer, L. O. Hall and W. P. Kegelmeyer. SMOTE: synthetic minority
   over-sampling technique. Journal of Artificial Intelligence Research 16, 2002.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.annotations import AnnotationTable, as_table, label_certainty
from manyhands.annotations.columns import SOURCES
from manyhands.annotations.encoding import encode
from manyhands.annotations.ids import as_frame, id_column_of
from manyhands.annotations.target import check_annotations, matched
from manyhands.decision.labels import generator
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.inputs import gold_codes
from manyhands.typing import AnyArray, FloatArray, IntArray


class FewCandidatesWarning(UserWarning):
    """A class has too few instances for interpolation: one, which was repeated, or none."""


class Resampling(NamedTuple):
    """Result of resampling one class.

    Attributes
    ----------
    label
        The class.
    n_candidates : int
        Number of real instances of this class.
    n_neighbors : int
        Number of neighbours among which an interpolation chooses; 0 if there were none.
    n_synthetic : int
        Number of synthetic instances.
    """

    label: Any
    n_candidates: int
    n_neighbors: int
    n_synthetic: int


class CrowdSMOTE(BaseEstimator):
    r"""Oversample rare classes of a crowdsourced data set, including annotations [1]_.

    A candidate :math:`x_i` is an instance labelled with a rare class, and :math:`x_r` is a random
    one of its k nearest neighbours among the candidates. A synthetic instance is :math:`x' = x_i +
    \delta (x_r - x_i)` (Eq. 2.3), where :math:`\delta` depends on how certain the labels of the two
    are (Eq. 2.4, 2.5). Each annotator's annotation of x' is drawn from the annotator's annotations
    of the k nearest real instances of any class.

    Parameters
    ----------
    k_neighbors : int, default=5
        Number k of neighbours, for interpolation and for annotations; at most m - 1 with m
        candidates. The paper gives no value.
    sampling_strategy : "auto", float or dict, default="auto"
        Number of instances to which classes are raised. "auto": the size of the largest class. A
        float in (0, 1]: that share of it. A dict {class: number}: these numbers; other classes, and
        those that are already as large, do not change.
    delta : {"intended", "printed", "random"}, default="intended"
        "intended": :math:`S_r / (S_i + S_r) + \eta`, which puts x' nearer to the more certain of
        the two, as the paper says it should be. "printed": the paper's Eq. 2.5, :math:`S_i / (S_i +
        S_r) + \eta`, which puts x' nearer to the less certain one. "random": uniform in [0, 1], as
        in SMOTE [2]_. All are clipped to [0, 1].
    epsilon : float, default=0.1
        As in `manyhands.annotations.label_certainty`. The smaller it is, the more certain unanimous
        instances are than others, without limit.
    jitter : float in [0, 0.5], default=0.1
        :math:`\eta` is uniform in [-jitter, jitter]; the paper gives no range. With .5 and equal
        certainties :math:`\delta` is uniform in [0, 1], as in SMOTE.
    annotations : {"drawn", "majority"}, default="drawn"
        An annotator's annotation of a synthetic instance is the one it gave to a random neighbour
        (drawn by the annotations' weights), or the one it gave to most neighbours.
    gaps : {"kept", "filled"}, default="kept"
        Behaviour if an annotator has annotated only some of the neighbours. "kept": give an
        annotation with the share of neighbours that the annotator has annotated as its probability.
        Synthetic instances then have as many annotations as real ones (but at least one, and one
        per annotator even if real instances have repeated ones). "filled": always give one. Without
        missing annotations, both are the same as in the paper.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    sampling_strategy_ : dict {class: int}
        Number of synthetic instances of each class.
    resampling_ : list of Resampling
        One entry per class that was to be raised.
    synthetic_labels_ : array of shape (n_synthetic,)
        Class that each synthetic instance was made for.
    parents_ : integer array of shape (n_synthetic, 2)
        Rows of :math:`x_i` and :math:`x_r`.
    delta_ : array of shape (n_synthetic,)

    Notes
    -----
    Cost: two searches for nearest neighbours (among the candidates, and for each synthetic instance
    among all real ones), plus the annotations of these neighbours.

    Candidates are taken in turn, in random order, so the numbers of times they are used differ by
    at most one (in the paper, each is used R times). The result does not depend on the order of the
    classes (except for ties with "majority", which are broken at random).

    Annotations of weight 0 are ignored. A synthetic annotation has the weight of the one it was
    drawn from ("majority": the mean weight). Abstentions and skips count as gaps.

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
        """Return the data set with the synthetic instances after the real ones.

        Parameters
        ----------
        X : array-like, sparse matrix or frame of shape (n_instances, ...)
            Features or an embedding: the space of the neighbours and of the synthetic points. A
            frame is matched with the table's instances by id, and a column of ids is no feature.
        table : AnnotationTable, or an (n_instances, n_annotators) matrix with -1/NaN missing
        labels : array-like of shape (n_instances,), or dict {instance id: class}, optional
            Class of each row of X; None, NaN and -1 (unless it is a class) mean no class. Default:
            majority vote; tied instances have no class. Instances without annotations have no class
            and are not used as neighbours.

        Returns
        -------
        X_resampled : array or CSR matrix of shape (n_instances + n_synthetic, ...)
        table_resampled : AnnotationTable
            Over the same classes and annotators, its instances in the order of X; annotations of
            synthetic instances are marked ``source="synthetic"``.

        Raises
        ------
        AnnotationError
            If the ids or lengths of X and the table differ, a label or a class of
            ``sampling_strategy`` is unknown, or a number of instances is not a whole number of 0
            or more.
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
        given_X, table = X, matched(table, X, argument="table")
        X = check_array(
            _without_ids(X),
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            allow_nd=True,
            input_name="X",
        )
        if X.shape[0] != table.n_instances:
            raise AnnotationError(
                f"X has {X.shape[0]} rows but table has annotations for {table.n_instances} "
                "instances; give one row of X per instance, in the same order"
            )
        # Annotations of weight 0 are ignored, but stay in the returned table.
        given = table if table.weights is None else table.take(table.weights > 0)
        annotated = given.annotations_per_instance() > 0
        codes = np.where(annotated, class_codes(given, labels, given_X), -1)
        if (codes < 0).all():
            warn_caller(
                "labels has no class for any annotated instance, so no instance was synthesised; "
                "give labels of annotated instances",
                FewCandidatesWarning,
            )
        wanted = self._wanted(codes, given)
        rng = generator(self.random_state)
        certainty = label_certainty(given, epsilon=self.epsilon)
        space = X if sparse.issparse(X) else X.reshape(len(X), -1)
        made = [self._pairs(space, codes, c, wanted[c], certainty, rng) for c in wanted]
        self._set_attributes(made, wanted, codes, table)
        points = interpolate(space, self.parents_, self.delta_)
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
        return append_points(X, points), with_rows(table, len(self.delta_), annotations)

    # -- how many ---------------------------------------------------------------------------------

    def _wanted(self, codes: IntArray, table: AnnotationTable) -> dict[int, int]:
        """Return the number of instances to add to each class, the rarest class first."""
        counts = np.bincount(codes[codes >= 0], minlength=table.n_classes)
        goals = self._goals(counts, table)
        # Order by size, then by first instance, so that class codes have no influence.
        first = np.full(table.n_classes, len(codes))
        seen, where = np.unique(codes, return_index=True)
        first[seen[seen >= 0]] = where[seen >= 0]
        order = np.lexsort((first, counts))
        return {int(c): int(goals[c] - counts[c]) for c in order if goals[c] > counts[c]}

    def _goals(self, counts: IntArray, table: AnnotationTable) -> IntArray:
        strategy = self.sampling_strategy
        if isinstance(strategy, bool):
            raise AnnotationError(
                f"sampling_strategy={strategy} is not a share of the largest class; give a number "
                "such as 1.0, or 'auto'"
            )
        if not isinstance(strategy, Mapping):
            share = 1.0 if strategy == "auto" else float(strategy)
            # Classes that nobody gave are not part of this data set.
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
    ) -> NeighbourPairs:
        """Choose n candidates of a class, a neighbour for each, and delta (Eq. 2.5)."""
        from sklearn.neighbors import NearestNeighbors

        rows = np.flatnonzero(codes == c)
        m = len(rows)
        k = min(self.k_neighbors, m - 1)
        if m < 2:
            alone = np.repeat(rows[:, None], 2, axis=1).repeat(n, axis=0)
            return NeighbourPairs(c, m, 0, alone, np.zeros(len(alone)))
        neighbours = NearestNeighbors(n_neighbors=k).fit(space[rows]).kneighbors()[1]
        turns = np.concatenate([rng.permutation(m) for _ in range(-(-n // m))])[:n]
        chosen = neighbours[turns, rng.randint(k, size=n)]
        parents = rows[np.column_stack([turns, chosen])]
        return NeighbourPairs(c, m, k, parents, self._delta(certainty[parents], rng))

    def _delta(self, certainty: FloatArray, rng: Rng) -> FloatArray:
        """Return delta, the fraction of the way to the neighbour, from certainties (n, 2)."""
        n = len(certainty)
        if self.delta == "random":
            return rng.uniform(size=n)
        nearer = certainty[:, 1 if self.delta == "intended" else 0]
        jitter = rng.uniform(-self.jitter, self.jitter, size=n)
        return np.clip(nearer / certainty.sum(axis=1) + jitter, 0.0, 1.0)

    def _set_attributes(
        self,
        made: list[NeighbourPairs],
        wanted: dict[int, int],
        codes: IntArray,
        table: AnnotationTable,
    ) -> None:
        """Set the fitted attributes, and warn about classes that could not be interpolated."""
        values = table.classes
        resampling = [
            Resampling(values[p.code].item(), p.n_candidates, p.n_neighbors, len(p.delta))
            for p in made
        ]
        self.resampling_ = resampling
        self.sampling_strategy_ = {each.label: each.n_synthetic for each in resampling}
        self.synthetic_labels_ = values[
            np.repeat([p.code for p in made], [len(p.delta) for p in made]).astype(np.int64)
        ]
        self.parents_: IntArray = np.concatenate(
            [np.zeros((0, 2), dtype=np.int64), *(p.parents for p in made)]
        )
        self.delta_: FloatArray = np.concatenate([np.zeros(0), *(p.delta for p in made)])
        for each in resampling:
            if each.n_candidates > 1:
                continue
            what = (
                f"one instance, which was repeated {each.n_synthetic} times"
                if each.n_candidates
                else "no instance, so none was synthesised"
            )
            warn_caller(
                f"class {each.label!r} has {what}; interpolation needs two instances",
                FewCandidatesWarning,
            )


def _without_ids(X: Any) -> Any:
    """Return the values of a polars or pyarrow frame without its column of ids, or X itself."""
    name, frame = id_column_of(X), as_frame(X)
    return X if name is None or frame is None else frame.drop(name).to_numpy()


# -- between instances of a class: candidates, neighbours, and the points between -----------------


Rng: TypeAlias = np.random.RandomState


@dataclass(frozen=True, eq=False)
class NeighbourPairs:
    """Candidates of a class, each with a neighbour."""

    code: int
    n_candidates: int
    n_neighbors: int
    parents: IntArray
    delta: FloatArray


def class_codes(table: AnnotationTable, labels: Any, X: Any) -> IntArray:
    """Return the class code of each instance, whose features are the rows of X; -1 for none.

    Raises
    ------
    AnnotationError
        If the labels do not match X, or are not among the table's classes.
    """
    if labels is None:
        counts = table.vote_counts()
        top = counts >= counts.max(axis=1, keepdims=True) * (1 - 1e-9)
        return np.where(top.sum(axis=1) == 1, top.argmax(axis=1), -1)
    try:
        return gold_codes(labels, table, X, name="labels")
    except AnnotationError as error:
        raise AnnotationError(str(error).replace("gold", "labels", 1)) from error


def interpolate(space: Any, parents: IntArray, delta: FloatArray) -> Any:
    """Return points between pairs of rows (Eq. 2.3), shape (n, d), with the type of the rows."""
    candidate, neighbour = space[parents[:, 0]], space[parents[:, 1]]
    delta = delta.astype(space.dtype)
    if sparse.issparse(space):
        return sparse.csr_matrix(
            sparse.diags_array(1 - delta) @ candidate + sparse.diags_array(delta) @ neighbour
        )
    return candidate + delta[:, None] * (neighbour - candidate)


def nearest_rows(space: Any, rows: IntArray, points: Any, k: int) -> IntArray:
    """Return the k rows nearest to each point (or all, if there are fewer), shape (n, k)."""
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=min(k, len(rows))).fit(space[rows])
    return np.asarray(rows[search.kneighbors(points, return_distance=False)])


def append_points(X: Any, points: Any) -> Any:
    """Append the points to X, in the shape and format of its rows."""
    if sparse.issparse(X):
        both: Any = [X, points]
        return sparse.vstack(both, format="csr")
    return np.concatenate([X, points.reshape(-1, *X.shape[1:])])


# -- annotations of synthetic instances, from those of their neighbours ---------------------------


class SyntheticAnnotations(NamedTuple):
    """Annotations of synthetic instances; these are numbered from 0."""

    instance: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray


def annotate(
    neighbours: IntArray,
    table: AnnotationTable,
    rng: Rng,
    *,
    by_majority: bool,
    keep_gaps: bool,
) -> SyntheticAnnotations:
    """Annotate each synthetic instance as the annotators of its neighbours did.

    Parameters
    ----------
    neighbours : integer array of shape (n, k)
        Rows of the real instances nearest to each synthetic one.
    table : AnnotationTable
        Annotations of the real instances.
    rng : RandomState
    by_majority, keep_gaps : bool
        ``annotations="majority"`` and ``gaps="kept"`` of `CrowdSMOTE`.

    Returns
    -------
    SyntheticAnnotations
    """
    k = neighbours.shape[1]
    rows, owner = _annotations_of(neighbours, table)
    pair: IntArray
    label: IntArray
    pair = owner * table.n_annotators + table.annotator[rows]
    label, weight = table.label[rows].astype(np.int64), table.weight[rows].astype(np.float64)
    times = np.ones(len(rows))
    if by_majority:
        pair, label, weight, times = _tallied(pair, label, weight, table.n_classes)
        rank = -weight
    else:
        # The smallest of exponentials with these rates is drawn in proportion to the weights.
        rank = rng.exponential(size=len(rows)) / np.maximum(weight, np.finfo(float).tiny)
    order = np.lexsort((rng.uniform(size=len(rank)), rank, pair))
    first = order[np.flatnonzero(np.diff(pair[order], prepend=-1))]
    # Share of the neighbours that the annotator has annotated.
    _, group = np.unique(pair, return_inverse=True)
    share = np.bincount(group, weights=times) / k
    kept = np.ones(len(first), dtype=bool)
    if keep_gaps:
        kept = _below_zero_or_lowest(
            rng.uniform(size=len(first)) - share, pair[first] // table.n_annotators
        )
    taken = first[kept]
    instance, annotator = np.divmod(pair[taken], table.n_annotators)
    return SyntheticAnnotations(instance, annotator, label[taken], weight[taken] / times[taken])


def _annotations_of(neighbours: IntArray, table: AnnotationTable) -> tuple[IntArray, IntArray]:
    """Return the annotations of all neighbours (n, k), and the synthetic instance of each."""
    order, start = table.by_instance()
    flat = neighbours.ravel()
    counts = start[flat + 1] - start[flat]
    ends = np.cumsum(counts)
    position = np.arange(ends[-1]) + np.repeat(start[flat] - ends + counts, counts)
    owner = np.repeat(np.arange(len(flat)) // neighbours.shape[1], counts)
    return position if order is None else order[position], owner


def _tallied(
    pair: IntArray, label: IntArray, weight: FloatArray, n_classes: int
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Sum the weights of equal labels of a pair; also return how many labels were summed."""
    cell, position, times = np.unique(
        pair * n_classes + label, return_inverse=True, return_counts=True
    )
    summed: Any = np.bincount(position, weights=weight)
    return cell // n_classes, cell % n_classes, summed, times.astype(np.float64)


def _below_zero_or_lowest(chance: FloatArray, owner: IntArray) -> AnyArray:
    """Mark values below 0, and the lowest value of each (sorted) owner, so that none has none."""
    start = np.flatnonzero(np.diff(owner, prepend=-1))
    lowest = np.repeat(np.minimum.reduceat(chance, start), np.diff(np.append(start, len(owner))))
    return np.asarray((chance < 0) | (chance == lowest))


def with_rows(table: AnnotationTable, n: int, given: SyntheticAnnotations) -> AnnotationTable:
    """Append n instances and their annotations."""
    synthetic = np.full(len(given.label), SOURCES.index("synthetic"), dtype=np.int8)
    sources = np.zeros(table.n_annotations, np.int8) if table.sources is None else table.sources
    return AnnotationTable(
        np.concatenate([table.instance, given.instance + table.n_instances]),
        np.concatenate([table.annotator, given.annotator]),
        np.concatenate([table.label, given.label]),
        _with_new_ids(table.instances, n),
        table.annotators,
        table.classes,
        None if table.weights is None else np.concatenate([table.weights, given.weight]),
        np.concatenate([sources, synthetic]),
        table.passes,
        scale=table.scale,
    )


def _with_new_ids(ids: AnyArray, n: int) -> AnyArray:
    """Append unused ids: the next numbers, or "synthetic-1", ..."""
    if ids.dtype.kind in "iu":
        first, most = int(ids.max(initial=0)) + 1, int(np.iinfo(ids.dtype).max)
        if first + n - 1 <= most:
            return np.concatenate([ids, np.arange(first, first + n, dtype=ids.dtype)])
        unused = np.setdiff1d(np.arange(len(ids) + n), ids)[:n]
        return np.concatenate([ids, unused.astype(ids.dtype) if unused[-1] <= most else unused])
    used = set(ids.tolist())
    names = (f"synthetic-{i}" for i in range(1, n + len(used) + 1))
    new = [name for name in names if name not in used][:n]
    if ids.dtype.kind in "UT":
        return np.concatenate([ids, np.array(new)])
    together = np.empty(len(ids) + n, dtype=object)
    together[: len(ids)], together[len(ids) :] = ids, new
    return together
