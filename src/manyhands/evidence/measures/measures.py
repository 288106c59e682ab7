"""Measures that a row asks for in ``extra``: functions of the fitted model and its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import entropy, spearmanr
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from manyhands.agreement import common_confusions
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.evidence.data.sets import Data
from manyhands.exceptions import AnnotationError
from manyhands.inference import MajorityVote
from manyhands.metrics import accuracy, minority_recall
from manyhands.metrics.gold import rarer_half
from manyhands.typing import AnyArray, BoolArray, FloatArray

__all__ = [
    "accuracy_by_entropy",
    "auc",
    "by_class",
    "class_imbalance",
    "common_confusion_error",
    "common_confusion_matrices",
    "common_mistakes",
    "individual_confusion_error",
    "individual_confusion_matrices",
    "inference",
    "start_accuracy",
    "stopping_rule",
    "warm_up",
    "watchdog",
]

HOLDOUT = 0.1
"""Fraction of the annotations that `stopping_rule` and `watchdog` hold out."""

TENTHS = np.arange(1, 11) / 10
"""Shares of the instances at which `accuracy_by_entropy` is measured."""

SHOWN = 3
"""Annotators whose matrices are kept, as in CoNAL's Fig. 5."""

COMMON = 1 / 3
"""Share of annotators from which on a mistake is named."""


def common_confusion_error(model: Any, data: Data) -> dict[str, float]:
    """How far the common confusion a model learnt is from the one its crowd had.

    Parameters
    ----------
    model : estimator with ``common_confusion_``
    data : Data
        Of a simulated crowd with common noise.

    Returns
    -------
    dict of str to float
        ``common_mean_absolute_error`` (over the entries), ``common_frobenius_error``, and
        ``common_start_error``: the mean absolute error of the identity, which is what no common
        noise would be.

    Raises
    ------
    AnnotationError
        If the model has no such matrix, or the truth of the crowd is unknown or without common
        noise.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 5, as numbers.
    """
    learnt, true = _learnt(model, "common_confusion_"), _true_common(data)
    return {
        "common_mean_absolute_error": float(np.abs(learnt - true).mean()),
        "common_frobenius_error": float(np.linalg.norm(learnt - true)),
        "common_start_error": float(np.abs(np.eye(len(true)) - true).mean()),
    }


def individual_confusion_error(model: Any, data: Data) -> dict[str, float]:
    """How far individual confusions are from those that annotators had, in the mean.

    Parameters
    ----------
    model : estimator with ``individual_confusion_``, else ``confusion_``
        The latter mixes all of an annotator's noise: the error of not telling them apart.
    data : Data
        Of a simulated crowd.

    Returns
    -------
    dict of str to float
        ``individual_mean_absolute_error`` (over entries and annotators),
        ``individual_frobenius_error`` (of a matrix, mean over annotators) and
        ``individual_start_error``, the mean absolute error of identities.

    Raises
    ------
    AnnotationError
        If the model has no confusion matrices, or the truth of the crowd is unknown.
    """
    name = "individual_confusion_" if hasattr(model, "individual_confusion_") else "confusion_"
    learnt, true = _learnt(model, name), _truth(data).confusion
    return {
        "individual_mean_absolute_error": float(np.abs(learnt - true).mean()),
        "individual_frobenius_error": float(np.linalg.norm(learnt - true, axis=(1, 2)).mean()),
        "individual_start_error": float(np.abs(np.eye(true.shape[1]) - true).mean()),
    }


def common_confusion_matrices(model: Any, data: Data) -> dict[str, Any]:
    """Return ``common_true`` and ``common_learnt``, arrays of shape (n_classes, n_classes).

    See `common_confusion_error`.
    """
    return {
        "common_true": _true_common(data),
        "common_learnt": _learnt(model, "common_confusion_"),
    }


def individual_confusion_matrices(model: Any, data: Data) -> dict[str, Any]:
    """Return ``annotator_<k>_true`` and ``annotator_<k>_learnt`` of the first three annotators.

    See `individual_confusion_error`.
    """
    true, learnt = _truth(data).confusion, _learnt(model, "individual_confusion_")
    found: dict[str, Any] = {}
    for k in range(min(SHOWN, len(true))):
        found[f"annotator_{k + 1}_true"] = true[k]
        found[f"annotator_{k + 1}_learnt"] = learnt[k]
    return found


def common_mistakes(model: Any, data: Data) -> dict[str, Any]:
    """Share of annotators who made each confusion at least once, whatever the model.

    Returns
    -------
    dict
        ``common_mistakes``, of shape (n_classes, n_classes), [true, given]; and the shares of the
        mistakes that a third of the annotators made, as ``<true> as <given>``.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 1.
    """
    if data.y_train is None:
        raise AnnotationError("y_train is None; common mistakes are counted against true classes")
    table = data.annotations
    codes, _ = encode(
        data.y_train, table.classes, argument="y_train", vocabulary_name="annotations.classes"
    )
    shares = common_confusions(table, codes)
    names = table.classes.tolist()
    wrong = ~np.eye(len(names), dtype=bool)
    found: dict[str, Any] = {"common_mistakes": shares}
    for true, given in np.argwhere(wrong & (shares >= COMMON)).tolist():
        found[f"{names[true]} as {names[given]}"] = float(shares[true, given])
    return found


def class_imbalance(model: Any, data: Data) -> dict[str, float]:
    """Largest over smallest number of a class's annotations, and of its instances.

    Returns
    -------
    dict of str to float
        ``annotation_imbalance`` (R), ``gold_imbalance`` (R_g), of the training part; classes
        without any do not count, nor do instances without a label.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    DASC (Machine Learning 2023), Tables 1 and 3, Fig. 4.
    """
    if data.y_train is None:
        raise AnnotationError("y_train is None; the imbalance of true classes is unknown")
    values = as_values(data.y_train)
    gold = np.unique(values[~missing_mask(values)], return_counts=True)[1]
    given = np.unique(data.annotations.label, return_counts=True)[1]
    return {
        "annotation_imbalance": float(given.max() / given.min()),
        "gold_imbalance": float(gold.max() / gold.min()),
    }


def stopping_rule(model: Any, data: Data) -> dict[str, float]:
    """How well the likelihood of held-out annotations chooses a round of self-training.

    The model is fitted once more, with a tenth of the annotations held out.

    Parameters
    ----------
    model : SelfTrainingCrowdClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``stopping_rank_correlation``: Spearman's, over the rounds, of the likelihood with test
        accuracy (0 where one of them never changes). Test accuracies of that fit:
        ``stopping_accuracy`` (of the round chosen), ``stopping_last_accuracy`` (of the last) and
        ``stopping_oracle_accuracy`` (of the best on test). ``stopping_round``: the one chosen.

    Raises
    ------
    AnnotationError
        If the data have no test part.
    """
    from manyhands.fitting import Watch

    if data.y_test is None:
        raise AnnotationError("y_test is None; how good a round is cannot be measured")
    again = clone(model).set_params(validation=HOLDOUT)
    watch = Watch(test=(data.X_test, data.y_test))
    again.fit(data.X_train, data.annotations, watch=watch)
    found = again.history_.column("test_accuracy")
    likelihood = -again.history_.column("validation_nll")
    moves = len(set(found)) > 1 and len(set(likelihood)) > 1
    return {
        "stopping_rank_correlation": float(spearmanr(likelihood, found)[0]) if moves else 0.0,
        "stopping_accuracy": float(found[again.best_round_]),
        "stopping_last_accuracy": float(found[-1]),
        "stopping_oracle_accuracy": float(found.max()),
        "stopping_round": float(again.best_round_),
    }


def accuracy_by_entropy(model: Any, data: Data) -> dict[str, Any]:
    """Accuracy on the training instances of least entropy, by how many of them are taken.

    Parameters
    ----------
    model : classifier with ``predict_proba``
    data : Data

    Returns
    -------
    dict
        ``accumulated_accuracy`` at every ``accumulated_share``, a tenth to all of the training
        instances with a true class, in ascending order of the entropy of what is predicted; and
        ``certain_half_gain``, how much more accurate their first half is than all.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    Chu & Wang (KDD 2021), Fig. 2a.
    """
    gold = None if data.y_train is None else as_values(data.y_train)
    if gold is None or missing_mask(gold).all():
        raise AnnotationError(
            "y_train has no true class; nothing tells accuracy on the training part"
        )
    known = ~missing_mask(gold)
    proba = np.asarray(model.predict_proba(data.X_train), dtype=np.float64)[known]
    right = np.asarray(model.classes_)[proba.argmax(axis=1)] == gold[known]
    in_order = right[np.argsort(entropy(proba, axis=1), kind="stable")]
    taken = np.maximum(1, np.round(TENTHS * len(right)).astype(int))
    accumulated = np.cumsum(in_order)[taken - 1] / taken
    return {
        "accumulated_share": TENTHS,
        "accumulated_accuracy": accumulated,
        "certain_half_gain": accumulated[4] - accumulated[-1],
    }


def start_accuracy(model: Any, data: Data) -> dict[str, float]:
    """How accurate a classifier is that another one starts from, and what is gained on it.

    Parameters
    ----------
    model : classifier with ``pretrainer_``
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``start_accuracy``, of the start on the test part; ``gain_on_start``, by how much the
        model's is higher.

    Raises
    ------
    AnnotationError
        If the model has no such start, or the data no test part.
    """
    start, own = _start_and_own(model, data)
    return {"start_accuracy": start, "gain_on_start": own - start}


def watchdog(model: Any, data: Data) -> dict[str, float]:
    """What is handed back where held-out annotations choose, against the start of the same fit.

    The model is fitted once more, with a tenth of the annotations held out.

    Parameters
    ----------
    model : CrowdInGClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        Test accuracies of that fit: ``watchdog_accuracy`` (of what is handed back),
        ``watchdog_start_accuracy``, ``watchdog_last_accuracy`` (of the last epoch) and
        ``watchdog_oracle_accuracy`` (of the start or an adversarial epoch, whichever is best on
        test). ``watchdog_gain``: by how much the first is higher than the start's.

    Raises
    ------
    AnnotationError
        If the model has no start, or the data have no test part.
    """
    from manyhands.fitting import Watch

    # What cannot be measured is refused before it costs a fit.
    _start_and_own(model, data)
    again = clone(model).set_params(validation=HOLDOUT)
    watch = Watch(test=(data.X_test, data.y_test))
    again.fit(data.X_train, data.annotations, watch=watch)
    start, own = _start_and_own(again, data)
    epochs = again.history_.column("test_accuracy", "adversarial")
    return {
        "watchdog_accuracy": own,
        "watchdog_start_accuracy": start,
        "watchdog_last_accuracy": float(epochs[-1]),
        "watchdog_oracle_accuracy": float(max(start, epochs.max())),
        "watchdog_gain": own - start,
    }


def auc(model: Any, data: Data) -> dict[str, float]:
    """Area under the ROC curve on the test part: how well probabilities rank instances.

    Parameters
    ----------
    model : classifier with ``predict_proba`` and ``classes_``
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``auc``; of more than two classes the mean over those in the test part of every class
        against the rest.

    Raises
    ------
    AnnotationError
        If the data have no test part, or it has one class only.
    """
    if data.y_test is None:
        raise AnnotationError("y_test is None; nothing tells the area under the curve")
    gold, proba = np.asarray(data.y_test), model.predict_proba(data.X_test)
    present = [k for k, name in enumerate(model.classes_) if (gold == name).any()]
    if len(np.unique(gold)) < 2:
        raise AnnotationError(
            f"y_test has one class only, {gold[0].item()!r}; there is no curve of one class"
        )
    areas = [roc_auc_score(gold == model.classes_[k], proba[:, k]) for k in present]
    return {"auc": float(np.mean(areas))}


def by_class(model: Any, data: Data) -> dict[str, float]:
    """Test figures where all classes weigh the same, and where they weigh as in training.

    Both come from one confusion matrix, its rows weighted, so that no second test part is drawn:
    the accuracies are those expected of test parts drawn with such shares of classes, with less
    variance, and the macro-F1 that of the matrix expected of them.

    Parameters
    ----------
    model : classifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``balanced_accuracy`` (mean recall) and ``balanced_macro_f1``: every class of the test part
        weighs the same. ``natural_accuracy`` and ``natural_macro_f1``: as in the gold of the
        training part (in the test part where that is unknown). ``minority_recall``: of the rarer
        half of the classes of that gold (of the annotations where it is unknown).

    Raises
    ------
    AnnotationError
        If the data have no test part, or it lacks a minority class, or all classes of training.

    Notes
    -----
    As in `manyhands.metrics.macro_f1`, classes count that occur in truth or prediction.
    """
    if data.y_test is None:
        raise AnnotationError("y_test is None; nothing tells recall")
    gold, predicted = np.asarray(data.y_test), np.asarray(model.predict(data.X_test))
    classes = np.unique(np.concatenate([gold, predicted]))
    counts = np.zeros((len(classes), len(classes)))
    np.add.at(counts, (np.searchsorted(classes, gold), np.searchsorted(classes, predicted)), 1)
    size = counts.sum(axis=1)
    rates = counts / np.maximum(size, 1)[:, None]
    known = _known_gold(data)
    trained = gold if known is None else known
    natural = (trained == classes[:, None]).sum(axis=1) * (size > 0)
    if not natural.any():
        raise AnnotationError("y_test has no class of y_train; nothing tells recall")
    balanced, usual = (_accuracy_and_f1(rates, weight) for weight in (size > 0, natural))
    given = data.annotations.classes[data.annotations.label] if known is None else known
    return {
        "balanced_accuracy": balanced[0],
        "balanced_macro_f1": balanced[1],
        "natural_accuracy": usual[0],
        "natural_macro_f1": usual[1],
        "minority_recall": minority_recall(gold, predicted, minority=rarer_half(given)),
    }


def inference(model: Any, data: Data) -> dict[str, float]:
    """How right inferred labels of training instances are: before, early in and after training.

    Parameters
    ----------
    model : ICEDClassifier
    data : Data
        With true classes of training instances.

    Returns
    -------
    dict of str to float
        ``<when>_accuracy`` and ``<when>_minority_recall`` (of the rarer half of the classes), with
        <when> "majority": of majority vote; "before": of what the annotations alone give; "first":
        after the first round with synthetic instances; "final": after the last. Of instances whose
        class is known, synthetic ones left out.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown, or the model infers no labels
        or noted no accuracy of the first round.

    References
    ----------
    ICED (SDM 2022), Fig. 2: MV, D&S-orig, D&S-first and D&S-final.
    """
    if _known_gold(data) is None:
        raise AnnotationError("y_train has no true class; nothing tells which inferred are right")
    before, final = (_learnt(model, name) for name in ("observed_posterior_", "posterior_"))
    gold = as_values(data.y_train)
    known = ~missing_mask(gold)
    first = next(
        (row for row in _rows_of(model, "train") if "inference_accuracy" in row),
        None,
    )
    if first is None:
        raise AnnotationError(
            f"history_ of {type(model).__name__} has no inference_accuracy in stage train; fit it "
            "in a row, or with watch=Watch(y_train=...)"
        )
    classes = np.asarray(model.classes_)
    labels = {
        "majority": MajorityVote().fit_predict(data.annotations),
        "before": classes[before.argmax(axis=1)],
        "final": classes[final.argmax(axis=1)],
    }
    found = {
        "first_accuracy": float(first["inference_accuracy"]),
        "first_minority_recall": float(first["inference_minority_recall"]),
    }
    for when, inferred in labels.items():
        found[f"{when}_accuracy"] = accuracy(gold[known], inferred[known])
        found[f"{when}_minority_recall"] = minority_recall(gold[known], inferred[known])
    return found


def warm_up(model: Any, data: Data) -> dict[str, float]:
    """How good a classifier is right after its warm-up, and of how many instances it learnt.

    Parameters
    ----------
    model : ICEDClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``warm_up_accuracy`` and ``warm_up_macro_f1`` on the test part; ``warm_up_share``, of the
        training instances.

    Raises
    ------
    AnnotationError
        If no test accuracy was noted in a stage "warm_up".

    References
    ----------
    ICED (SDM 2022), Table 3.
    """
    rows = [row for row in _rows_of(model, "warm_up") if "test_accuracy" in row]
    if not rows:
        raise AnnotationError(
            f"history_ of {type(model).__name__} has no test_accuracy in stage warm_up; leave this "
            "measure out of its row"
        )
    return {
        "warm_up_accuracy": float(rows[-1]["test_accuracy"]),
        "warm_up_macro_f1": float(rows[-1]["test_macro_f1"]),
        "warm_up_share": float(_warmed_up(model, data).mean()),
    }


def _accuracy_and_f1(rates: FloatArray, weight: AnyArray) -> tuple[float, float]:
    """Accuracy and macro-F1 of rows of a confusion matrix that sum to 1, with classes' weights."""
    shares = weight / weight.sum()
    matrix = shares[:, None] * rates
    # 2 tp / (2 tp + fn + fp), of the classes that occur.
    sums = shares + matrix.sum(axis=0)
    f1 = 2 * np.diag(matrix)[sums > 0] / sums[sums > 0]
    return float(np.trace(matrix)), float(f1.mean())


def _known_gold(data: Data) -> AnyArray | None:
    """Return true classes of the training instances that have one, None if none has."""
    if data.y_train is None:
        return None
    gold = as_values(data.y_train)
    known = gold[~missing_mask(gold)]
    return known if len(known) else None


def _rows_of(model: Any, stage: str) -> list[dict[str, Any]]:
    return [row for row in getattr(model, "history_", []) if row.get("stage") == stage]


def _warmed_up(model: Any, data: Data) -> BoolArray:
    """Return the training instances that a warm-up learns from."""
    warmed = np.zeros(data.annotations.n_instances, dtype=bool)
    for rows in model._warm_up_rows(data.annotations):
        warmed[rows] = True
    return warmed


def _start_and_own(model: Any, data: Data) -> tuple[float, float]:
    """Test accuracy of what a model started from, and its own."""
    if data.y_test is None:
        raise AnnotationError("y_test is None; accuracy cannot be measured")
    if not hasattr(model, "pretrainer_"):
        raise AnnotationError(
            f"{type(model).__name__} has no pretrainer_; leave this measure out of its row"
        )
    start, own = (
        accuracy(data.y_test, each.predict(data.X_test)) for each in (model.pretrainer_, model)
    )
    return start, own


def _learnt(model: Any, name: str) -> FloatArray:
    if not hasattr(model, name):
        raise AnnotationError(
            f"{type(model).__name__} has no {name}; leave this measure out of its row"
        )
    return np.asarray(getattr(model, name), dtype=np.float64)


def _truth(data: Data) -> Any:
    if data.truth is None:
        raise AnnotationError(
            "the truth of these annotators is unknown; only a simulated crowd (such as "
            "make_conal_synthetic) has confusion matrices to compare with"
        )
    return data.truth


def _true_common(data: Data) -> FloatArray:
    truth = _truth(data)
    if truth.common_confusion is None or not np.any(truth.from_common):
        raise AnnotationError(
            "no annotation comes from a common confusion, so there is none to recover; leave this "
            "measure out of its row"
        )
    return np.asarray(truth.common_confusion, dtype=np.float64)
