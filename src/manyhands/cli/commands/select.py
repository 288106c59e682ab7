"""The command `select`: choose among methods without gold labels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import Files, TrainingInputs
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import Annotations, Excel, Gold, Json, KeepFormulas, OutFolder, Seed
from manyhands.cli.output import (
    OF_FILES,
    headings_of_splits,
    print_json,
    print_table,
    say,
    say_actions,
    say_columns,
    say_files,
    show,
    show_score,
    visible,
)
from manyhands.cli.reading import FamilyReading, files_of
from manyhands.cli.values import refuse_overwriting
from manyhands.wording import counted, percent, percent_interval


class SelectionCriterion(StrEnum):
    """What the choice is made by; see `manyhands.select`."""

    agreement = "agreement"
    balanced = "balanced"
    information = "information"


BEHIND = "z behind: by how many standard errors a method is below the best"
SCORES = {
    "agreement": "score: mean of the share of the annotations that its predictions agree with, and "
    f"of this share corrected for how annotators confuse classes; {BEHIND}",
    "balanced": f"score: recall of the majority votes, averaged over the classes; {BEHIND}",
    "information": "score: information of its predictions about the annotations; more is better; "
    f"{BEHIND}",
}
"""Explanations of the columns in the table of candidates."""

Methods = Annotated[
    Optional[str],  # noqa: UP045 - typer reads this at run time
    typer.Option(
        metavar="NAME,NAME,...",
        help="Methods to compare, such as conal,agg-net,max-mig. Default: eight "
        "methods, the quickest first.",
    ),
]
Folds = Annotated[
    int, typer.Option("--cv", min=2, help="Number of folds into which the items are split.")
]
By = Annotated[
    SelectionCriterion,
    typer.Option(
        help="How methods are compared. 'agreement': by how often predictions agree with the "
        "annotations. 'balanced': the same, but every class counts equally. 'information': by how "
        "much information predictions carry about the annotations. Mistakes that most annotators "
        "share do not mislead this criterion."
    ),
]
Average = Annotated[
    int,
    typer.Option(
        min=1,
        help=("Keep the average of this many of the best methods, instead of only the best."),
    ),
]
Refit = Annotated[
    bool,
    typer.Option(
        "--refit",
        help="Train the best method again on all items. By default, the models of its folds are "
        "averaged.",
    ),
]
Jobs = Annotated[
    int, typer.Option(help="Number of folds to train at the same time; -1 uses all cores.")
]


@dataclass(frozen=True, kw_only=True)
class Selecting:
    """How methods are compared, and what is kept."""

    methods: Methods = None
    cv: Folds = 5
    criterion: By = SelectionCriterion.agreement
    average: Average = 1
    refit: Refit = False
    gold: Gold = None
    seed: Seed = 0
    jobs: Jobs = 1


@reported
@grouped
def select(
    *,
    annotations: Annotations,
    out: OutFolder,
    inputs: TrainingInputs,
    how: Selecting,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Choose the best method for your annotations, without gold labels.

    Each method predicts each item with a model that was trained without this item. The method that
    agrees best with the annotations is kept, and its accuracy is estimated. If the --gold file has
    a column 'split', only the annotations of items in the split 'train' are used. If the command is
    interrupted, run it again to resume.

    Example: manyhands select --features X.npy --annotations A.csv --out model
    Example: manyhands select --texts reviews.csv --annotations A.csv --out model
    Example: ... --methods conal,agg-net,trace-reg --cv 3 --jobs 2
    """
    refuse_overwriting(_outputs(out), [*inputs.files, *annotations, how.gold, *reading.files])
    named = files_of("select", annotations, reading, inputs, how)
    choose(
        None if how.methods is None else [name.strip() for name in how.methods.split(",")],
        Files(inputs, annotations, how.gold, out, reading.arguments(), keep_formulas, named),
        json=json,
        cv=how.cv,
        criterion=how.criterion.value,
        average=how.average,
        refit=how.refit,
        random_state=how.seed,
        n_jobs=how.jobs,
    )


def _outputs(out: Path) -> list[Path]:
    from manyhands.jobs import OUTPUTS

    return [out / name for name in OUTPUTS]


def choose(methods: list[str] | None, files: Files, *, json: bool, **options: Any) -> None:
    """Run the selection job, and print its result."""
    from manyhands.jobs import report_folder, run_selection

    rows, table, gold, _ = files.read()
    encoder = files.inputs.encoder(options["random_state"])
    export = files.export()
    if encoder is not None and not json:
        say(files.inputs.why(encoder))
    try:
        result = run_selection(
            methods,
            rows.frame,
            table,
            files.out,
            gold=gold,
            keep_formulas=files.keep_formulas,
            encoder=encoder,
            export=export,
            shown=files.shown(rows, table, export),
            files=files.named,
            verbose=0 if json else 1,
            **options,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on after the last finished fold") from None
    report = report_folder(files.out)
    if json:
        print_json(result)
        return
    _print_selection(result, refit=bool(options.get("refit")))
    say_actions(result, "select")
    say_written(files.out, report)


def say_data(name: str, result: dict[str, Any]) -> None:
    """Print what a job was trained on."""
    words = {"annotations": "annotation", "instances": "item", "annotators": "annotator"}
    given, of, by = (counted(result["data"][key], word) for key, word in words.items())
    say(f"{name}: {given} of {of} by {by}")
    if result["left_out"]:
        say(f"left out: {result['left_out']:,} annotations of rows outside the train split")
    if "known" in result:
        say(f"known: {counted(result['known'], 'label')}")


def say_written(out: Path, report: Path) -> None:
    """Print a job's files, and what to do with them."""
    say_files([report, *(out / name for name in OF_FILES if name != report.name)])
    say(f"next: open {report} in a browser; it says what to do first")
    say_columns("labels.csv")


OF_FOLDS = (
    "The folder holds the average of the models of the folds, each trained on a part of the items. "
    "So its share of right labels may differ from that of `fit` with the same --method, which "
    "trains on all items."
)
"""What the chosen model is, unless it is trained again."""


def _print_selection(result: dict[str, Any], *, refit: bool) -> None:
    from manyhands.selection.result import ABOUT_ACCURACY

    chosen = result["selection"]
    say_data("select", result)
    print_table(
        f"by {chosen['criterion']} with the annotations, out of fold",
        ["method", "score", "z behind", "accuracy (estimated)", "epochs", "seconds"],
        [_cells(row) for row in chosen["candidates"]],
    )
    say(SCORES[chosen["criterion"]])
    say(f"chosen: {visible(chosen['best'])}")
    if chosen["reason"] is not None:
        say(visible(chosen["reason"]))
    if len(chosen["tied"]) > 1:
        say(f"tied with it (z at most 1): {visible(', '.join(chosen['tied'][1:]))}")
    say(f"{ABOUT_ACCURACY}; mistakes that most annotators share are not seen")
    headings = headings_of_splits(list(result["splits"].values()))
    rows = [
        [f"{visible(split)} ({scores['n']:,})", *(show_score(k, scores[k]) for k in headings)]
        for split, scores in result["splits"].items()
    ]
    if rows:
        print_table("against gold", ["split (items)", *headings.values()], rows)
    if not refit:
        say(OF_FOLDS)
    for line in result["headline"]:
        say(line)


def _cells(row: dict[str, Any]) -> list[Any]:
    if row["error"] is not None:
        return [row["candidate"], "failed", "", "", "", ""]
    return [
        row["candidate"],
        f"{row['score']:.3f}",
        f"{row['z']:.1f}",
        f"{percent(row['estimate'])} ({percent_interval(row['low'], row['high'])})",
        "all" if row["epoch"] is None else show(row["epoch"]),
        f"{row['seconds']:.1f}",
    ]
