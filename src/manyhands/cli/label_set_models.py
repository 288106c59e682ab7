"""Classifiers of sets of labels on the command line: ``fit --multilabel ';'`` and ``predict``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from manyhands.cli.inputs import TrainingInputs, one_or_all, open_store
from manyhands.cli.label_sets import print_sets, reader_of_gold, scores_of, words_to_read
from manyhands.cli.output import print_json, print_table, say, visible
from manyhands.cli.processes import DeviceOptions
from manyhands.cli.reading import Reading
from manyhands.cli.settings import merge_settings, parse_settings
from manyhands.cli.values import TABLE, Multilabel
from manyhands.exceptions import AnnotationError
from manyhands.wording import percent

SHOWN = 10
"""Instances that are shown."""

RESERVED = {
    "random_state": "give the seed with --seed",
    "checkpoint": "a fit of every option keeps no checkpoint",
}
"""Parameters that --set refuses, and what to do instead."""

STACK = (
    "One crowd-stacking per option is better where features tell much, and its probabilities are "
    "further off where they tell little (docs/label_sets.md); it takes one option (--multilabel "
    "split)."
)


def fit_sets(
    inputs: TrainingInputs,
    annotations: list[Path],
    out: Path,
    how: Any,
    reading: Reading,
    on: DeviceOptions,
    *,
    keep_formulas: bool,
    json: bool,
) -> None:
    """Train a classifier per option, and write the sets of all instances."""
    from manyhands.jobs import fit_label_sets, report_folder
    from manyhands.jobs.label_sets import join_cells

    refused = {
        "--continue": how.continue_,
        "--protocol": how.protocol != "default",
        "--seeds": how.seeds > 1,
        "--holdout": how.holdout,
        "--restart": how.restart,
        **on.given,
    }
    for option, value in refused.items():
        if value not in (None, False, []):
            raise AnnotationError(
                f"{option} is for single labels, and --multilabel {reading.multilabel!r} reads "
                f"sets, of which each option is fitted once; leave {option} out, or take one "
                "option (--multilabel split --option NAME)"
            )
    if open_store(annotations) is not None:
        raise AnnotationError(
            f"{annotations[0]} is a store, which holds single labels; give the files of the answers"
        )
    estimator = _estimator(how, quiet=json)
    rows, table = inputs.read_sets(one_or_all(annotations), reading.of_sets())
    read_cells = reader_of_gold(reading)
    gold = None if how.gold is None else read_cells(how.gold, table)
    cells = [read_cells(path, table) for path in how.known or ()]
    encoder = inputs.encoder(how.seed)
    if encoder is not None and not json:
        say(inputs.why(encoder))
    result = fit_label_sets(
        estimator,
        rows.X if encoder is not None else rows.frame,
        table,
        out,
        gold=gold,
        known=join_cells(cells) if cells else None,
        encoder=encoder,
        shown=inputs.shown(rows, table),
        folds=how.folds,
        seed=how.seed,
        separator=reading.multilabel,
        none=reading.nothing,
        keep_formulas=keep_formulas,
        **words_to_read(annotations, reading),
    )
    result["files"] += [str(report_folder(out))]
    if json:
        print_json(result)
        return
    print_sets(result, out, TABLE)
    say(_told_of_new_items(result["new_items"]))


def _told_of_new_items(found: dict[str, Any] | None) -> str:
    """Say how a classifier does on items that it was not trained on."""
    if found is None or not found["cells with gold"]:
        return (
            "How well new items are predicted was not measured; give --gold for items without "
            "answers, or --folds 3."
        )
    return (
        f"On new items, {percent(found['precision'])} of the predicted labels are right, and "
        f"{percent(found['recall'])} of those that apply are predicted (micro-F1 "
        f"{percent(found['micro-F1'])}), measured against {found['source']}."
    )


def _estimator(how: Any, *, quiet: bool) -> Any:
    """Make the classifier that the options describe."""
    from manyhands import AggregatedClassifier, MultiLabelDawidSkene
    from manyhands.linear import TunedLogisticRegression
    from manyhands.registry import find_classifier

    if how.method is not None:
        if how.method == "auto":
            raise AnnotationError(
                "--method auto chooses among methods for single labels, and sets are learnt by "
                "aggregated alone; leave --method out"
            )
        kind = find_classifier(how.method)
        if kind is not AggregatedClassifier:
            raise AnnotationError(
                f"--method {how.method}: {kind.__name__} learns one label per item, and the "
                f"answers are sets; leave --method out, which takes aggregated. {STACK}"
            )
    own = parse_settings(how.settings or [], AggregatedClassifier, reserved=RESERVED)
    if isinstance(own.get("validation"), list | dict | str):
        raise AnnotationError("--set validation=... is a fraction, such as 0.1")
    estimator = AggregatedClassifier(
        MultiLabelDawidSkene(), TunedLogisticRegression(), verbose=0 if quiet else 1
    )
    given = estimator.get_params(deep=False)
    return estimator.set_params(**merge_settings(own, given))


def predict_sets(
    folder: Path,
    features: Path | None,
    out: Path | None,
    *,
    reading: Reading,
    gold: Path | None,
    json: bool,
    **others: Any,
) -> None:
    """Predict the sets of new instances."""
    from manyhands.jobs import predict_label_sets
    from manyhands.jobs.fit_label_sets import read_as

    if not reading.takes_sets and reading.multilabel != Multilabel.error.value:
        raise AnnotationError(
            f"--multilabel {reading.multilabel}: the model in {folder} predicts sets of labels; "
            "leave it out"
        )
    before = read_as(folder)
    if not reading.takes_sets:
        reading = replace(reading, multilabel=before["multilabel"])
    if reading.nothing is None:
        reading = replace(reading, nothing=before["none"])
    own = reading.of_sets()
    result = predict_label_sets(folder, features, out, reading=own, gold=gold, **others)
    if json:
        print_json(result)
        return
    n = result["n_instances"]
    rows = [
        [row["task"], visible(row["labels"] or "(none)"), visible(row["least_sure"])]
        for row in result["labels"][:SHOWN]
    ]
    print_table(f"{n:,} items", ["task", "labels", "least certain option (how sure)"], rows)
    if (more := n - len(rows)) > 0:
        say(f"... and {more:,} more" + ("" if out else " (--out predictions.csv writes all)"))
    for line in scores_of(result.get("gold")):
        say(line)
    if out:
        say(f"written: {out}")
