"""The fit job: fit a method on a table with one or more seeds, save the model and evaluate it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import best_of, is_scale_of_grades
from manyhands.exceptions import AnnotationError, DivergenceError
from manyhands.fitting.folders import publish
from manyhands.fitting.reading import take_rows
from manyhands.io import Consensus
from manyhands.jobs.gold import (
    GoldRows,
    training_codes,
    training_part,
    warn_of_columns_of_gold,
    warn_of_unannotated_rows,
)
from manyhands.jobs.outputs import NewItems, job_folder, keep_model, labels_rest_on
from manyhands.metrics import accuracy, accuracy_on_new_items, macro_f1
from manyhands.metrics.certainty import label_probability
from manyhands.metrics.grades import score_grades
from manyhands.metrics.vote_shares import predicted_codes
from manyhands.report.headline import headline, headline_of_new_items
from manyhands.report.review import half_of_wrong
from manyhands.selection import cross_predict
from manyhands.training.seeding import (
    in_first_process,
    joined_if_any,
    made_by_first,
    working_alone,
)
from manyhands.typing import LARGEST_SEED, AnyArray

if TYPE_CHECKING:
    from manyhands.fitting.crowd_classifier import CrowdClassifier

QUICK, QUICK_FOLDS = 60.0, 3
"""A fit of up to 60 s is cross-validated by default, in 3 folds, which about triples its time."""


def run_job(
    estimator: CrowdClassifier,
    X: Any,
    table: AnnotationTable,
    folder: str | Path,
    *,
    gold: GoldRows | None = None,
    known: GoldRows | None = None,
    seeds: Iterable[int] = (0,),
    holdout: float | None = None,
    keep_formulas: bool = False,
    encoder: Any = None,
    export: Any = None,
    shown: Any = None,
    restart: bool = False,
    folds: int | None = None,
    files: Mapping[str, Any] | None = None,
    on_seed: Callable[[dict[str, Any]], None] = lambda record: None,
) -> dict[str, Any]:
    """Fit with every seed, evaluate each fit, and save the model of the first seed in a folder.

    Parameters
    ----------
    estimator : crowd classifier
        Cloned; its ``random_state`` is set to each seed.
    X : array of shape (n_instances, ...)
    table : AnnotationTable
    folder : str or Path
        Receives the model, ``labels.csv`` (the inferred label of each row), ``annotators.csv`` and
        ``summary.json`` (the content of the report) when the job is done; a job that fails leaves
        those of an earlier job. Until then, it holds a checkpoint per fit of a network; an
        interrupted job resumes from them when it is run again. Only one job at a time can write
        into a folder.
    gold : GoldRows, optional
        Used for evaluation, and to exclude the annotations of test rows from training.
    known : GoldRows, optional
        Certain labels to train on, for a classifier whose ``fit`` takes ``gold``; those of test
        rows are left out.
    seeds : iterable of int
    holdout : float, optional
        With every seed, fit a second time with this fraction of the instances (with
        ``monitor="likelihood"`` in its protocol, and in self-training: of the annotations) held
        out, and choose the epoch on them. Only for classifiers with epochs.
    keep_formulas : bool
        Whether ids such as ``=SUM(A1)`` are written as they are; see
        `manyhands.io.frames.write_table`.
    encoder : TextEncoder or ImageEncoder, optional
        X holds texts or images, which it encodes; it is fitted to the rows to train on, and saved
        in front of the model.
    export : Export, optional
        What the annotations were read from, for the times in the report.
    shown : Shown, optional
        What ``labels.csv`` says of the items.
    restart : bool
        Whether to start over: checkpoints of an interrupted job in the folder are deleted.
    folds : int, optional
        Folds of the cross-validation against the annotators, which estimates how often the
        classifier is right on new items unless gold labels of a test part show it; 0 for none.
        Default: 3, or 0 after a fit of more than a minute, or on several devices.
    files : dict, optional
        Names of files for the commands in the report; see `manyhands.report.commands`.
    on_seed : callable
        Called with the record of each seed.

    Returns
    -------
    dict
        ``levels`` (shares of right labels and of right predictions of new items, with intervals and
        sources), ``headline`` (the same in words), ``actions`` (number of labels per recommended
        action), ``half_of_wrong`` (how many of the most doubtful labels hold half of the wrong
        ones; these four in the first process only), ``method``, ``data`` (counts of the training
        data), ``labels_rest_on`` ("features", or "annotations and features"), ``seeds``,
        ``left_out`` (number of annotations of rows outside the train split),
        ``known`` (number of known labels, if there are some), ``records`` (one dict per seed:
        protocol -> split -> metrics) and ``table`` (protocol -> split -> mean and sd over seeds).

    Raises
    ------
    AnnotationError
        If ``seeds`` or ``holdout`` is invalid, the classifier takes no known labels, no annotation
        is left to train on, or the model could not be saved.
    ModelFolderError
        If a checkpoint in the folder belongs to another run, and ``restart`` is False.
    WriteError
        If the folder cannot be written, another job is writing into it, or it holds a
        ``labels.csv`` that is not from manyhands.
    """
    train = training_part(table, gold)
    warn_of_unannotated_rows(table, gold)
    if gold is not None:
        warn_of_columns_of_gold(X, table, gold)
    options: dict[str, Any] = {}
    is_known = None
    if known is not None:
        options["gold"] = _certain(estimator, train, known, gold)
        if known.random is not None:
            options["random_gold"] = known.random
        is_known = np.array([label is not None for label in options["gold"]], dtype=bool)
    seeds = _check_seeds(seeds)
    X = encode_rows(encoder, X, train)
    protocols = _protocols(estimator, holdout, train)
    records: list[dict[str, Any]] = []
    summary: Any = {}
    found: Consensus | None = None
    with joined_if_any(estimator), _own_folder(folder) as (place, is_first):
        if restart:
            made_by_first(lambda: _clear_checkpoints(place))
        for i, seed in enumerate(seeds):
            record: dict[str, Any] = {"seed": seed, "protocols": {}}
            for j, (protocol, validation) in enumerate(protocols.items()):
                model = _prepared(
                    estimator,
                    random_state=seed,
                    validation=validation,
                    checkpoint=_checkpoint(place, i * len(protocols) + j),
                )
                seconds = _fit(model, X, train, place, **options)
                record["protocols"][protocol] = {
                    "seconds": seconds,
                    "epoch": _kept_epoch(model),
                    "splits": measure_splits(model, X, table, gold, train),
                }
                if i == j == 0 and is_first:
                    with working_alone():
                        n_folds = QUICK_FOLDS if folds is None and seconds < QUICK else folds or 0
                        summary, found = keep_model(
                            *(model, X, train, place),
                            gold=gold,
                            known=is_known,
                            drawn=None if known is None else known.random,
                            keep_formulas=keep_formulas,
                            encoder=encoder,
                            export=export,
                            shown=shown,
                            files=files,
                            new_items=judge_new_items(model, X, table, train, gold, n_folds),
                        )
            records.append(record)
            on_seed(record)
        if is_first:
            publish(place)
            # Cleared only at the end, so that a job killed after some seeds resumes from them.
            _clear_checkpoints(place)
    lines = (headline(summary), headline_of_new_items(summary))
    more = {"levels": summary.get("levels"), "headline": [line for line in lines if line]}
    more["half_of_wrong"] = half_of_wrong(summary)
    more |= {} if is_known is None else {"known": int(is_known.sum())}
    return _result(model, table, train, records, found) | more


def judge_new_items(
    model: Any,
    X: Any,
    table: AnnotationTable,
    train: AnnotationTable,
    gold: GoldRows | None,
    folds: int,
) -> NewItems | None:
    """Return how often a classifier is right on items that it was not trained on.

    Measured on gold labels of rows without annotations in the training part; else, with ``folds``,
    out of fold against the annotators.
    """
    annotated = train.annotations_per_instance() > 0
    if gold is not None:
        rows = np.flatnonzero((gold.codes >= 0) & ~annotated)
        if len(rows):
            proba = model.predict_proba(take_rows(X, rows))
            codes = model._decide(proba)
            found = accuracy_on_new_items(
                gold=table.classes[gold.codes[rows]], predicted=model.classes_[codes]
            )
            if found is not None:
                return NewItems.of(found, label_probability(proba, codes), table.n_classes)
    if not folds or annotated.sum() < 10 * folds or _has_several_devices(model):
        return None
    fresh = clone(model)
    for name in ("checkpoint", "verbose"):
        if name in fresh.get_params(deep=False):
            fresh.set_params(**{name: None if name == "checkpoint" else 0})
    rows = np.flatnonzero(annotated)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They were shown when the model was fitted.
        try:
            out = cross_predict(fresh, take_rows(X, rows), train[rows], cv=folds)
        except (AnnotationError, DivergenceError):
            return None  # For example, because a class is missing in a fold.
    codes = best_of(out.proba, table)
    found = accuracy_on_new_items(train[rows], table.classes[codes])
    return NewItems.of(found, label_probability(out.proba, codes), table.n_classes)


def _has_several_devices(model: Any) -> bool:
    """Return whether several processes train one model, so that folds cannot share them."""
    return not isinstance(getattr(model, "device", None), str | None)


def continue_job(
    model: Any,
    X: Any,
    table: AnnotationTable,
    folder: str | Path,
    *,
    gold: GoldRows | None = None,
    keep_formulas: bool = False,
    export: Any = None,
    shown: Any = None,
    files: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Continue a saved model with all features and annotations, evaluate it, and save it.

    Parameters
    ----------
    model : fitted classifier, or pipeline of an encoder and one
        The loaded model. It is changed.
    X, table
        Features and annotations of all instances, those of the model's fit included.
    folder, gold, keep_formulas, export, shown, files
        See `run_job`.

    Returns
    -------
    dict
        As of `run_job`.

    Raises
    ------
    AnnotationError
        If the classifier cannot go on, or classes or features differ from those it knows.
    WriteError
        If the folder cannot be written.
    """
    train = training_part(table, gold)
    warn_of_unannotated_rows(table, gold)
    encoder = None
    if isinstance(model, Pipeline):
        encoder, model = model[0], model[-1]
        X = encoder.transform(X)
    if not hasattr(model, "partial_fit"):
        raise AnnotationError(
            f"{type(model).__name__} cannot be continued from a saved model; fit it again on all "
            "annotations, without --continue"
        )
    with job_folder(folder) as place:
        started = perf_counter()
        model.partial_fit(X, train)
        run = {
            "seconds": perf_counter() - started,
            "epoch": _kept_epoch(model),
            "splits": measure_splits(model, X, table, gold, train),
        }
        train = model.seen_.table  # With the annotators in the order of the model's.
        options: Any = {"gold": gold, "keep_formulas": keep_formulas, "encoder": encoder}
        options |= {"export": export, "shown": shown, "files": files}
        _, found = keep_model(model, X, train, place, **options)
        publish(place)
    records = [{"seed": None, "protocols": {"continued": run}}]
    return _result(model, table, train, records, found)


@contextmanager
def _own_folder(folder: str | Path) -> Iterator[tuple[Path, bool]]:
    """Yield the job's folder, and whether this process writes into it: the first does."""
    if not in_first_process():
        yield Path(folder), False
        return
    with job_folder(folder) as place:
        yield place, True


def _result(
    estimator: Any,
    table: AnnotationTable,
    train: AnnotationTable,
    records: list[dict[str, Any]],
    found: Consensus | None,
) -> dict[str, Any]:
    actions = (
        {}
        if found is None
        else {
            "actions": found.count_actions(),
            "rule": found.rule,
            "n_known": int(found.known.sum()),
            "labels_rest_on": labels_rest_on(estimator),
        }
    )
    return actions | {
        "method": type(estimator).__name__,
        "data": count_data(train),
        "seeds": [record["seed"] for record in records],
        "left_out": table.n_annotations - train.n_annotations,
        "records": records,
        "table": _mean_and_sd(records),
    }


def encode_rows(encoder: Any, X: Any, train: AnnotationTable) -> Any:
    """Fit an encoder, if there is one, to the annotated rows, and encode all rows of X."""
    if encoder is None:
        return X
    annotated = np.flatnonzero(train.annotations_per_instance() > 0)
    return encoder.fit(X[annotated]).transform(X)


def count_data(train: AnnotationTable) -> dict[str, int]:
    """Count what a job was trained on."""
    return {
        "instances": int((train.annotations_per_instance() > 0).sum()),
        "annotators": int((train.annotations_per_annotator() > 0).sum()),
        "annotations": train.n_annotations,
        "classes": train.n_classes,
    }


def _check_seeds(seeds: Iterable[int]) -> list[int]:
    seeds = list(seeds)
    wrong = [seed for seed in seeds if not 0 <= seed <= LARGEST_SEED]
    if wrong or not seeds:
        problem = f"seeds contains {wrong[0]}" if wrong else "seeds is empty"
        raise AnnotationError(f"{problem}; give integers from 0 to {LARGEST_SEED}")
    return seeds


def _prepared(estimator: CrowdClassifier, **parameters: Any) -> Any:
    """Return a copy of an estimator, with the given parameters; those it lacks are ignored."""
    own = estimator.get_params(deep=False)
    return clone(estimator).set_params(**{k: v for k, v in parameters.items() if k in own})


def _protocols(
    estimator: CrowdClassifier, holdout: float | None, train: AnnotationTable
) -> dict[str, Any]:
    """Map the name of each way to choose the epoch to its ``validation`` parameter."""
    parameters = estimator.get_params()
    if "validation" not in parameters:
        if holdout is not None:
            raise AnnotationError(
                f"holdout={holdout} chooses the number of epochs, but {type(estimator).__name__} "
                "has none; leave holdout out, or use a network, such as CoNALClassifier"
            )
        return {"all rounds": None}
    own = parameters["validation"]
    protocols = {"last epoch" if own is None else "chosen on validation": own}
    if holdout is not None:
        held = "instances" if parameters.get("protocol__monitor") == "agreement" else "annotations"
        given = train.observed.instance
        n = len(np.unique(given)) if held == "instances" else len(given)
        if not (0 < holdout < 1 and 1 < round(holdout * n) < n):
            raise AnnotationError(
                f"holdout={holdout} of {n} {held} leaves fewer than two to hold "
                "out, or nothing to train on; give a fraction such as 0.1"
            )
        protocols[f"chosen on held-out {held}"] = holdout
    return protocols


def _checkpoint(folder: Path, number: int) -> Path:
    return folder / ("checkpoint" + (f"-{number}" if number else "") + ".safetensors")


def _certain(
    estimator: Any, train: AnnotationTable, known: GoldRows, gold: GoldRows | None
) -> AnyArray:
    """Return the known labels of the training rows, as class values, None where unknown."""
    if "gold" not in signature(estimator.fit).parameters:
        raise AnnotationError(
            f"{type(estimator).__name__} cannot use known labels; CrowdStackingClassifier "
            "(--method crowd-stacking) can, and so can the methods of aggregate --known"
        )
    values = np.array([*train.classes.tolist(), None], dtype=object)
    return values[training_codes(known, gold)]


def _fit(
    model: CrowdClassifier, X: Any, train: AnnotationTable, folder: Path, **options: Any
) -> float:
    """Fit and return the seconds it took, including those before an interruption."""
    started = perf_counter()
    try:
        model.fit(X, train, **options)
    except DivergenceError:
        # A resumed run would diverge again, and one with other parameters would be refused.
        _clear_checkpoints(folder)
        raise
    return max(perf_counter() - started, sum(row["seconds"] for row in model.history_))


def _clear_checkpoints(folder: Path) -> None:
    """Remove checkpoints, including partial ones left by a killed process."""
    for path in [*folder.glob("checkpoint*.safetensors"), *folder.glob(".checkpoint*.part")]:
        path.unlink(missing_ok=True)


def _kept_epoch(model: CrowdClassifier) -> int | None:
    """Return the epoch (or round of self-training) of the kept weights; None if there is none."""
    last = model.history_[-1] if model.history_ else {}
    if last.get("stage") == "round":
        return None  # A mean over rounds.
    if "round" in last:
        return int(getattr(model, "best_round_", last["round"]))
    return getattr(model, "best_epoch_", last.get("epoch"))


def measure_splits(
    model: Any,
    X: Any,
    table: AnnotationTable,
    gold: GoldRows | None,
    train: AnnotationTable,
) -> dict[str, dict[str, float]]:
    """Return accuracy and macro-F1 on each split with gold, and the errors of grades."""
    if gold is None:
        return {}
    predicted = model.predict(X)
    result = {}
    for split, rows in gold.parts(train.annotations_per_instance() > 0).items():
        y = table.classes[gold.codes[rows]]
        result[split] = {
            "n": len(rows),
            "accuracy": accuracy(y, predicted[rows]),
            "macro_f1": macro_f1(y, predicted[rows]),
        }
        if is_scale_of_grades(table):
            codes = predicted_codes(predicted[rows], table.classes)
            grades = score_grades(gold.codes[rows], codes)
            result[split] |= {"within_one": grades.within_one, "mae": grades.mae}
    return result


def _mean_and_sd(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and sample sd over seeds, for each protocol, split and metric."""
    table: dict[str, Any] = {}
    for protocol, first in records[0]["protocols"].items():
        runs = [record["protocols"][protocol] for record in records]
        table[protocol] = {"seconds": _spread([run["seconds"] for run in runs]), "splits": {}}
        for split, metrics in first["splits"].items():
            table[protocol]["splits"][split] = {
                name: _spread([run["splits"][split][name] for run in runs]) for name in metrics
            }
    return table


def _spread(values: list[float]) -> dict[str, float | None]:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "sd": sd}
