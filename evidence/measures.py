"""Measures that rows ask for: functions of a fitted model and its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import entropy, spearmanr
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from evidence.data.sets import Data
from manyhands.agreement import common_confusions
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.exceptions import AnnotationError
from manyhands.inference import MajorityVote
from manyhands.inference.inputs import gold_codes
from manyhands.metrics import accuracy, minority_recall, vote_agreement
from manyhands.metrics.gold import rarer_half
from manyhands.selection import cross_predict
from manyhands.typing import AnyArray, BoolArray, FloatArray

__all__ = [
    "accuracy_by_entropy",
    "auc",
    "by_class",
    "class_imbalance",
    "common_confusion_error",
    "common_confusion_matrices",
    "common_mistakes",
    "cross_validated",
    "crowd_statistics",
    "individual_confusion_error",
    "individual_confusion_matrices",
    "inference",
    "recall_by_class",
    "start_accuracy",
    "stopping_rule",
    "warm_up",
    "watchdog",
]


def class_imbalance(model: Any, data: Data) -> dict[str, float]:
    """Measure imbalance: the largest class over the smallest, in annotations and in instances.

    Returns
    -------
    dict of str to float
        ``annotation_imbalance`` (R) and ``gold_imbalance`` (R_g) of the training part. Empty
        classes and instances without a label do not count.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    DASC (Machine Learning 2023), Tables 1 and 3, Fig. 4.
    """
    if data.y_train is None:
        raise AnnotationError(
            "y_train is None, so the imbalance of true classes is unknown; leave this measure out "
            "of its row"
        )
    values = as_values(data.y_train)
    gold = np.unique(values[~missing_mask(values)], return_counts=True)[1]
    given = np.unique(data.annotations.label, return_counts=True)[1]
    return {
        "annotation_imbalance": float(given.max() / given.min()),
        "gold_imbalance": float(gold.max() / gold.min()),
    }


def by_class(model: Any, data: Data) -> dict[str, float]:
    """Measure test figures with equal weights of classes, and with their weights in training.

    Both come from one confusion matrix with weighted rows; no second test part is drawn. The
    accuracies are the expected ones of test parts drawn with these shares of classes, with less
    variance. The macro-F1 is that of the expected confusion matrix.

    Parameters
    ----------
    model : classifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``balanced_accuracy`` (mean recall) and ``balanced_macro_f1``: every class of the test part
        has the same weight. ``natural_accuracy`` and ``natural_macro_f1``: classes have their
        shares in the gold labels of the training part (of the test part if those are unknown).
        ``minority_recall``: recall of the rarer half of the classes in the gold labels of the
        training part (in the annotations if those are unknown).

    Raises
    ------
    AnnotationError
        If the data have no test part, or if it lacks a minority class or all classes of training.

    Notes
    -----
    As in `manyhands.metrics.macro_f1`, the classes that occur in truth or prediction count.
    """
    if data.y_test is None:
        raise AnnotationError("y_test is None, so recall is unknown; use data with a test part")
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
        raise AnnotationError(
            "y_test has no class of y_train, so recall is unknown; use a test part with its classes"
        )
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
    """Measure how often inferred labels of training instances are right, over training.

    Parameters
    ----------
    model : ICEDClassifier
    data : Data
        With true classes of training instances.

    Returns
    -------
    dict of str to float
        ``<when>_accuracy`` and ``<when>_minority_recall`` (of the rarer half of the classes).
        <when> is "majority" (majority vote), "before" (labels inferred from the annotations
        alone), "first" (after the first round with synthetic instances) or "final" (after the
        last). Only real instances whose class is known count.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown, or if the model infers no labels
        or its history has no accuracy for the first round.

    References
    ----------
    ICED (SDM 2022), Fig. 2: MV, D&S-orig, D&S-first and D&S-final.
    """
    if _known_gold(data) is None:
        raise AnnotationError(
            "y_train has no true class to compare inferred labels with; leave this measure out of "
            "its row"
        )
    before, final = (attribute(model, name) for name in ("observed_posterior_", "posterior_"))
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
    """Measure a classifier right after its warm-up, and the share of instances in the warm-up.

    Parameters
    ----------
    model : ICEDClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``warm_up_accuracy`` and ``warm_up_macro_f1`` on the test part; ``warm_up_share``, the share
        of training instances that the warm-up learns from.

    Raises
    ------
    AnnotationError
        If the history has no test accuracy in a stage "warm_up".

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
    """Return accuracy and macro-F1 of a confusion matrix with rows summing to 1, rows weighted."""
    shares = weight / weight.sum()
    matrix = shares[:, None] * rates
    # 2 tp / (2 tp + fn + fp), over the classes that occur.
    sums = shares + matrix.sum(axis=0)
    f1 = 2 * np.diag(matrix)[sums > 0] / sums[sums > 0]
    return float(np.trace(matrix)), float(f1.mean())


def _known_gold(data: Data) -> AnyArray | None:
    """Return the known true classes of training instances, None if all are unknown."""
    if data.y_train is None:
        return None
    gold = as_values(data.y_train)
    known = gold[~missing_mask(gold)]
    return known if len(known) else None


def _rows_of(model: Any, stage: str) -> list[dict[str, Any]]:
    return [row for row in getattr(model, "history_", []) if row.get("stage") == stage]


def _warmed_up(model: Any, data: Data) -> BoolArray:
    """Return the training instances that a warm-up learns from."""
    from manyhands.classifiers.iced.warm_up import group_by_certainty, warm_up_phases

    warmed = np.zeros(data.annotations.n_instances, dtype=bool)
    groups = group_by_certainty(data.annotations, model._protocol.warm_up_groups)
    for rows in warm_up_phases(data.annotations, groups, model._protocol.warm_up):
        warmed[rows] = True
    return warmed


def cross_validated(model: Any, data: Data) -> dict[str, float]:
    """Measure how well three folds of the training part predict each other's annotations.

    Neither gold labels nor the test part are used, so a search may choose by it.

    Parameters
    ----------
    model : classifier
        Fitted again on two thirds of the instances at a time.
    data : Data

    Returns
    -------
    dict of str to float
        ``cross_validated_accuracy``: the mean share of a left-out instance's annotations that name
        its predicted class (`vote_agreement`).
    """
    found = cross_predict(clone(model), data.X_train, data.annotations, cv=3, random_state=0)
    return {"cross_validated_accuracy": float(vote_agreement(found.proba, data.annotations))}


def recall_by_class(model: Any, data: Data) -> dict[str, float]:
    """Measure test accuracy within each true class.

    Parameters
    ----------
    model : classifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``recall_of_<class>`` for every class of the test part: the share of its instances that the
        model finds.

    Raises
    ------
    AnnotationError
        If the data have no test part.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), page 8, and Chu & Wang (KDD 2021), section 5: open country on
    LabelMe.
    """
    if data.y_test is None:
        raise AnnotationError(
            "y_test is None, so the recall of a class is unknown; leave this measure out of its row"
        )
    gold, predicted = as_values(data.y_test), as_values(model.predict(data.X_test))
    return {
        f"recall_of_{name}": float((predicted[gold == name] == name).mean())
        for name in np.unique(gold)
    }


# -- predicted probabilities -----------------------------------------------------------------------


TENTHS = np.arange(1, 11) / 10
"""Shares of the instances at which `accuracy_by_entropy` is measured."""


def accuracy_by_entropy(model: Any, data: Data) -> dict[str, Any]:
    """Measure accuracy on the training instances with the lowest predictive entropy.

    Parameters
    ----------
    model : classifier with ``predict_proba``
    data : Data

    Returns
    -------
    dict
        ``accumulated_accuracy`` on the first ``accumulated_share`` (a tenth to all) of the training
        instances with a true class, in ascending order of predictive entropy; and
        ``certain_half_gain``, the accuracy on their first half less that on all.

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
            "y_train has no true class, so training accuracy is unknown; leave this measure out of "
            "its row"
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


def auc(model: Any, data: Data) -> dict[str, float]:
    """Measure the area under the ROC curve on the test part: how well probabilities rank instances.

    Parameters
    ----------
    model : classifier with ``predict_proba`` and ``classes_``
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``auc``; for more than two classes, the mean of one class against the rest, over the classes
        in the test part.

    Raises
    ------
    AnnotationError
        If the data have no test part, or if it has one class only.
    """
    if data.y_test is None:
        raise AnnotationError("y_test is None, so there is no ROC curve; use data with a test part")
    gold, proba = np.asarray(data.y_test), model.predict_proba(data.X_test)
    present = [k for k, name in enumerate(model.classes_) if (gold == name).any()]
    if len(np.unique(gold)) < 2:
        raise AnnotationError(
            f"y_test has one class only, {gold[0].item()!r}, but a ROC curve needs two; leave this "
            "measure out of its row"
        )
    areas = [roc_auc_score(gold == model.classes_[k], proba[:, k]) for k in present]
    return {"auc": float(np.mean(areas))}


# -- the crowd alone -------------------------------------------------------------------------------


QUANTILES = np.linspace(0, 1, 21)
"""Shares of the annotators at which their numbers and accuracies are read, as a box plot does."""


def crowd_statistics(model: Any, data: Data) -> dict[str, Any]:
    """Count what the annotators of the training part gave, and how much of it is right.

    Returns
    -------
    dict
        ``training_instances``, ``test_instances``, ``annotators``; ``annotations_per_annotator``
        (mean); ``annotator_accuracy`` and ``annotator_accuracy_sd`` (mean and standard deviation
        over annotators, each with the same weight). At every ``quantile`` of the annotators:
        ``annotations_at_quantile``, ``share_annotated_at_quantile`` (of all training instances) and
        ``accuracy_at_quantile``. For the classes in the order of their gold shares, ``class_rank``
        with ``gold_class_share`` and ``annotation_class_share``. Only instances with a gold label
        count.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    DASC (Machine Learning 2023), Fig. 1, Tables 1 and 3. Chu & Wang (KDD 2021), Fig. 4.
    """
    if data.y_train is None:
        raise AnnotationError(
            "y_train is None, but the accuracy of annotators needs true classes; leave this "
            "measure out of its row"
        )
    table = data.annotations
    gold = gold_codes(data.y_train, table)
    known = gold[table.instance] >= 0
    annotator, given = table.annotator[known], table.label[known]
    right = given == gold[table.instance[known]]
    number = np.bincount(annotator, minlength=table.n_annotators)
    active = number > 0
    accuracy = np.bincount(annotator, right, table.n_annotators)[active] / number[active]
    known_instances = int((gold >= 0).sum())
    truth = np.bincount(gold[gold >= 0], minlength=table.n_classes)
    votes = np.bincount(given, minlength=table.n_classes)
    order = np.argsort(-truth, kind="stable")
    return {
        "training_instances": float(known_instances),
        "test_instances": float(0 if data.y_test is None else len(data.y_test)),
        "annotators": float(active.sum()),
        "annotations_per_annotator": float(number[active].mean()),
        "annotator_accuracy": float(accuracy.mean()),
        "annotator_accuracy_sd": float(accuracy.std()),
        "quantile": QUANTILES,
        "annotations_at_quantile": np.quantile(number[active], QUANTILES),
        "share_annotated_at_quantile": np.quantile(number[active], QUANTILES) / known_instances,
        "accuracy_at_quantile": np.quantile(accuracy, QUANTILES),
        "class_rank": np.arange(1.0, table.n_classes + 1),
        "gold_class_share": truth[order] / truth.sum(),
        "annotation_class_share": votes[order] / votes.sum(),
    }


# -- confusions ------------------------------------------------------------------------------------


SHOWN = 3
"""Number of annotators whose matrices are kept, as in CoNAL's Fig. 5."""

COMMON = 1 / 3
"""Smallest share of annotators for which a mistake gets a figure of its own."""


def common_confusion_error(model: Any, data: Data) -> dict[str, float]:
    """Measure how far the common confusion a model learnt is from that of its crowd.

    Parameters
    ----------
    model : estimator with ``common_confusion_``
    data : Data
        From a simulated crowd with common noise.

    Returns
    -------
    dict of str to float
        ``common_mean_absolute_error`` (over the entries), ``common_frobenius_error``, and
        ``common_start_error``: the mean absolute error of the identity matrix, which means no
        common noise.

    Raises
    ------
    AnnotationError
        If the model has no such matrix, or the crowd's truth is unknown or has no common noise.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 5, as numbers.
    """
    learnt, true = attribute(model, "common_confusion_"), _true_common(data)
    return {
        "common_mean_absolute_error": float(np.abs(learnt - true).mean()),
        "common_frobenius_error": float(np.linalg.norm(learnt - true)),
        "common_start_error": float(np.abs(np.eye(len(true)) - true).mean()),
    }


def individual_confusion_error(model: Any, data: Data) -> dict[str, float]:
    """Measure how far the individual confusions a model learnt are from the annotators' own.

    Parameters
    ----------
    model : estimator with ``individual_confusion_``, else ``confusion_``
        The latter mixes all noise of an annotator, and shows the error of not separating it.
    data : Data
        From a simulated crowd.

    Returns
    -------
    dict of str to float
        ``individual_mean_absolute_error`` (over entries and annotators),
        ``individual_frobenius_error`` (per matrix, mean over annotators) and
        ``individual_start_error``, the mean absolute error of identity matrices.

    Raises
    ------
    AnnotationError
        If the model has no confusion matrices, or the crowd's truth is unknown.
    """
    name = "individual_confusion_" if hasattr(model, "individual_confusion_") else "confusion_"
    learnt, true = attribute(model, name), _truth(data).confusion
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
        "common_learnt": attribute(model, "common_confusion_"),
    }


def individual_confusion_matrices(model: Any, data: Data) -> dict[str, Any]:
    """Return ``annotator_<k>_true`` and ``annotator_<k>_learnt`` of the first three annotators.

    See `individual_confusion_error`.
    """
    true, learnt = _truth(data).confusion, attribute(model, "individual_confusion_")
    found: dict[str, Any] = {}
    for k in range(min(SHOWN, len(true))):
        found[f"annotator_{k + 1}_true"] = true[k]
        found[f"annotator_{k + 1}_learnt"] = learnt[k]
    return found


def common_mistakes(model: Any, data: Data) -> dict[str, Any]:
    """Measure the share of annotators who made each confusion at least once.

    The model plays no part.

    Returns
    -------
    dict
        ``common_mistakes``, of shape (n_classes, n_classes), [true, given]; and, for each mistake
        that at least a third of the annotators made, its share as ``<true> as <given>``.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 1.
    """
    if data.y_train is None:
        raise AnnotationError(
            "y_train is None, but common mistakes need true classes; leave this measure out of its "
            "row"
        )
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


def _truth(data: Data) -> Any:
    if data.truth is None:
        raise AnnotationError(
            "truth is None: the annotators' confusion matrices are unknown; use a simulated crowd, "
            "such as make_conal_synthetic"
        )
    return data.truth


def _true_common(data: Data) -> FloatArray:
    truth = _truth(data)
    if truth.common_confusion is None or not np.any(truth.from_common):
        raise AnnotationError(
            "truth has no annotation from a common confusion, so there is none to recover; leave "
            "this measure out of its row"
        )
    return np.asarray(truth.common_confusion, dtype=np.float64)


def attribute(model: Any, name: str) -> FloatArray:
    """Return an attribute as an array of floats.

    Raises
    ------
    AnnotationError
        If the model has no such attribute.
    """
    if not hasattr(model, name):
        raise AnnotationError(
            f"{type(model).__name__} has no {name}; leave this measure out of its row"
        )
    return np.asarray(getattr(model, name), dtype=np.float64)


# -- training --------------------------------------------------------------------------------------


HOLDOUT = 0.1
"""Fraction of the annotations that `stopping_rule` and `watchdog` hold out."""


def held_out_likelihood(model: Any, fraction: float) -> Any:
    """Let the likelihood of held-out annotations choose a model's epoch or round, in place.

    Parameters
    ----------
    model : classifier with ``validation``
    fraction : float
        Of the annotations.

    Returns
    -------
    The model
    """
    monitor = {"protocol__monitor": "likelihood"}
    own = model.get_params()
    return model.set_params(validation=fraction, **{k: v for k, v in monitor.items() if k in own})


def stopping_rule(model: Any, data: Data) -> dict[str, float]:
    """Measure how well the likelihood of held-out annotations chooses a round of self-training.

    The model is fitted again, with a tenth of the annotations held out.

    Parameters
    ----------
    model : SelfTrainingCrowdClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``stopping_rank_correlation``: Spearman's correlation, over the rounds, of the likelihood
        with test accuracy (0 if either never changes). Test accuracies of that fit:
        ``stopping_accuracy`` (chosen round), ``stopping_last_accuracy`` (last round) and
        ``stopping_oracle_accuracy`` (best round on test). ``stopping_round``: the chosen round.

    Raises
    ------
    AnnotationError
        If the data have no test part.
    """
    from manyhands.fitting import Watch

    if data.y_test is None:
        raise AnnotationError(
            "y_test is None, so rounds cannot be compared; use data with a test part"
        )
    again = held_out_likelihood(clone(model), HOLDOUT)
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


def start_accuracy(model: Any, data: Data) -> dict[str, float]:
    """Measure the classifier that another one starts from, and the gain over it.

    Parameters
    ----------
    model : classifier with ``pretrainer_``
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``start_accuracy``, the test accuracy of the start; ``gain_on_start``, the model's test
        accuracy less that of the start.

    Raises
    ------
    AnnotationError
        If the model has no start, or the data have no test part.
    """
    start, own = _start_and_own(model, data)
    return {"start_accuracy": start, "gain_on_start": own - start}


def watchdog(model: Any, data: Data) -> dict[str, float]:
    """Compare the model that held-out annotations choose with the start of the same fit.

    The model is fitted again, with a tenth of the annotations held out.

    Parameters
    ----------
    model : CrowdInGClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        Test accuracies of that fit: ``watchdog_accuracy`` (chosen model),
        ``watchdog_start_accuracy``, ``watchdog_last_accuracy`` (last epoch) and
        ``watchdog_oracle_accuracy`` (the start or an adversarial epoch, whichever is best on test).
        ``watchdog_gain``: ``watchdog_accuracy`` less ``watchdog_start_accuracy``.

    Raises
    ------
    AnnotationError
        If the model has no start, or the data have no test part.
    """
    from manyhands.fitting import Watch

    # Refuse what cannot be measured before paying for a fit.
    _start_and_own(model, data)
    again = held_out_likelihood(clone(model), HOLDOUT)
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


def _start_and_own(model: Any, data: Data) -> tuple[float, float]:
    """Return the test accuracy of a model's start, and of the model itself."""
    if data.y_test is None:
        raise AnnotationError("y_test is None, so accuracy is unknown; use data with a test part")
    if not hasattr(model, "pretrainer_"):
        raise AnnotationError(
            f"{type(model).__name__} has no pretrainer_; leave this measure out of its row"
        )
    start, own = (
        accuracy(data.y_test, each.predict(data.X_test)) for each in (model.pretrainer_, model)
    )
    return start, own
