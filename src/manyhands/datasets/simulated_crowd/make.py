"""Simulated annotators for any labelled data: the place where the truth is known.

References
----------
.. [1] Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021,
   "Experiments on Synthesized Datasets" and Eq. (3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode, make_vocabulary, missing_mask
from manyhands.datasets.simulated_crowd.annotators import (
    annotator_kinds,
    confusions,
    draw_labels,
    individual_confusions,
)
from manyhands.datasets.simulated_crowd.checks import check_share, whole_number
from manyhands.datasets.simulated_crowd.gate import Gate, features_of
from manyhands.datasets.simulated_crowd.workload import assign, mean_counts, progress, workloads
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class CrowdTruth:
    """The truth of a crowd simulated by `make_crowd`, which is unknown for a real crowd.

    Attributes
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
        Individual confusion matrices, indexed [annotator, true, given]; rows sum to 1.
    common_confusion : array of shape (n_classes, n_classes) or None
        Common confusion matrix, indexed [true, given]; None without common noise.
    gate : array of shape (n_annotations,)
        Probability that the annotation comes from the common confusion, in the table's order.
    from_common : bool array of shape (n_annotations,)
        Whether the annotation comes from the common confusion.
    guessed : bool array of shape (n_annotations,)
        Whether the annotator guessed blindly instead (``difficulty_drift``), in which case
        ``from_common`` is False.
    kind : array of str of shape (n_annotators,)
        "honest", "spammer" or "adversary".
    """

    confusion: FloatArray
    common_confusion: FloatArray | None
    gate: FloatArray
    from_common: BoolArray
    guessed: BoolArray
    kind: AnyArray

    def take(self, rows: Any) -> CrowdTruth:
        """Select annotations as ``AnnotationTable.take`` does."""
        return replace(
            self,
            gate=self.gate[rows],
            from_common=self.from_common[rows],
            guessed=self.guessed[rows],
        )


class _Parameters(TypedDict, total=False):
    X: Any
    n_annotators: int
    annotations_per_instance: Any
    noise: Any
    noise_strength: Any
    common_noise: Any
    common_strength: float
    common_proportion: float
    gate_temperature: float
    embedding_dim: int
    spammers: float
    adversaries: float
    activity: Any
    difficulty_drift: float
    classes: Any
    random_state: Any


@overload
def make_crowd(
    y: Any, *, return_truth: Literal[False] = ..., **parameters: Unpack[_Parameters]
) -> AnnotationTable: ...


@overload
def make_crowd(
    y: Any, *, return_truth: Literal[True], **parameters: Unpack[_Parameters]
) -> tuple[AnnotationTable, CrowdTruth]: ...


def make_crowd(
    y: Any,
    *,
    X: Any = None,
    n_annotators: int = 30,
    annotations_per_instance: Any = 3.0,
    noise: Any = "asymmetric",
    noise_strength: Any = 0.3,
    common_noise: Any = None,
    common_strength: float = 0.4,
    common_proportion: float = 0.5,
    gate_temperature: float = 10.0,
    embedding_dim: int = 20,
    spammers: float = 0.0,
    adversaries: float = 0.0,
    activity: Any = "even",
    difficulty_drift: float = 0.0,
    classes: Any = None,
    random_state: Any = None,
    return_truth: bool = False,
) -> AnnotationTable | tuple[AnnotationTable, CrowdTruth]:
    """Simulate a crowd that annotates labelled data.

    Parameters
    ----------
    y : array-like of shape (n_instances,)
        True classes; their imbalance is kept.
    X : array-like of shape (n_instances, ...), optional
        Features, on which the gate of the common confusion depends; default: random features.
    n_annotators : int
    annotations_per_instance : float, or one per class
        Mean number of annotations per instance. The number is 1 plus a binomial count, so every
        instance has at least one annotation; no annotator annotates an instance twice. One mean per
        class (in the order of ``classes``) makes the annotations imbalanced.
    noise : {"asymmetric", "symmetric", "uniform"} or array of shape (C, C) or (R, C, C)
        Individual confusion. "asymmetric": each annotator mistakes each class for one other class,
        chosen uniformly. "symmetric": classes are paired at random and mistaken for each other
        (with an odd number of classes, one remains that is never mistaken). "uniform": each class
        is mistaken for all others with equal probability. An array [annotator, true, given] is used
        as it is.
    noise_strength : float, (low, high) or array of shape (n_annotators,)
        Probability of a mistake: one for all annotators, a range from which each annotator's is
        drawn uniformly, or one per annotator.
    common_noise : {"asymmetric", "symmetric", "uniform"} or array of shape (C, C), optional
        Confusion that all honest annotators share, as in ``noise``; default: no common confusion.
    common_strength : float
        Probability of a mistake under the common confusion.
    common_proportion : float
        Mean, over the annotations of honest annotators, of the probability omega that an
        annotation comes from the common confusion.
    gate_temperature : float
        Spread of omega (see Notes); 0 makes omega constant.
    embedding_dim : int
        Dimension of the hidden embeddings of annotators and instances.
    spammers : float
        Share of annotators who answer independently of the truth. Half of them answer uniformly at
        random; each of the others always gives the same class.
    adversaries : float
        Share of annotators who perceive classes like honest annotators but then permute them, each
        by a permutation without fixed points.
    activity : {"even", "skewed"} or array of shape (n_annotators,)
        Relative workloads: equal, proportional to 1/rank (Zipf) in random order, or given.
    difficulty_drift : float
        Growth of noise while an annotator works through the instances in order: the probability of
        a blind guess rises linearly from 0 at the annotator's first annotation to
        ``difficulty_drift`` at the last.
    classes : sequence, optional
        All classes, in the desired order; default: the sorted values of ``y``.
    random_state : int, RandomState or None
    return_truth : bool
        Whether to also return the truth of the simulation.

    Returns
    -------
    table : AnnotationTable
        Rows sorted by instance.
    truth : CrowdTruth
        Only with ``return_truth=True``.

    Raises
    ------
    AnnotationError
        If a parameter is out of range.

    Notes
    -----
    For annotator r and instance n, omega = sigmoid(T u_r . v_n + b), Eq. (3) of [1]_. u_r and v_n
    are unit vectors: random affine maps of hidden features of the annotator and of the standardised
    X. The bias b makes the mean of omega equal to ``common_proportion``. In the paper T is 1, which
    keeps omega close to its mean; ``gate_temperature`` spreads it.

    References
    ----------
    .. [1] Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021.

    Examples
    --------
    >>> from manyhands.datasets import make_crowd
    >>> table, truth = make_crowd([0, 1, 2] * 100, random_state=0, return_truth=True)
    >>> table.n_instances, table.n_annotators, table.n_classes
    (300, 30, 3)
    >>> truth.confusion[0].sum(axis=1)
    array([1., 1., 1.])
    """
    rng = check_random_state(random_state)
    true, classes = _true_classes(y, classes)
    n, r, c = len(true), whole_number(n_annotators, "n_annotators"), len(classes)
    check_share(common_strength, "common_strength")
    check_share(difficulty_drift, "difficulty_drift")
    kind = annotator_kinds(r, spammers, adversaries, rng)
    confusion = individual_confusions(noise, noise_strength, kind, c, rng)
    common = None
    if common_noise is not None:
        common = confusions(common_noise, np.array([common_strength]), c, "common_noise", rng)[0]
    instance, annotator = assign(
        mean_counts(annotations_per_instance, true, c, r), workloads(activity, r, rng), rng
    )

    gate = Gate(common_proportion, gate_temperature, embedding_dim)
    omega = np.zeros(len(instance))
    if common is not None:
        honest = kind[annotator] == "honest"
        seen = features_of(X, n, rng)
        omega[honest] = gate.omega(seen, r, instance[honest], annotator[honest], rng)
    guessed = rng.random_sample(len(omega)) < difficulty_drift * progress(annotator, r)
    from_common = (rng.random_sample(len(omega)) < omega) & ~guessed
    tables = confusion if common is None else np.concatenate([confusion, common[None]])
    label = draw_labels(tables, np.where(from_common, r, annotator), true[instance], rng)
    label[guessed] = rng.randint(c, size=int(guessed.sum()))
    table = AnnotationTable(instance, annotator, label, np.arange(n), np.arange(r), classes)
    if not return_truth:
        return table
    return table, CrowdTruth(confusion, common, omega, from_common, guessed, kind)


def _true_classes(y: Any, classes: Any) -> tuple[IntArray, AnyArray]:
    y = np.asarray(y)
    if y.ndim != 1 or not len(y):
        raise AnnotationError(f"y must hold one true class per instance, got shape {y.shape}")
    if missing_mask(y).any():
        raise AnnotationError(
            f"y is missing for instance {int(np.argmax(missing_mask(y)))}; simulating annotations "
            "requires true classes. Leave such instances out"
        )
    known = None if classes is None else make_vocabulary(classes, "classes")
    true, vocabulary = encode(y, known, argument="y", vocabulary_name="classes")
    if len(vocabulary) < 2:
        raise AnnotationError(
            f"y holds only one class, {vocabulary[0].item()!r}; name all classes in classes="
        )
    return true, vocabulary
