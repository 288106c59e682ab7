"""The command `judges`: whether models can stand in for people."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import (
    header_of,
    may_be_questions,
    one_or_all,
    one_path,
    open_store,
    read_item_columns,
)
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import Excel, Json, KeepFormulas, OutFile, TablePaths
from manyhands.cli.output import check_out, print_json, say, write_columns
from manyhands.cli.reading import FamilyReading, OptionalText
from manyhands.cli.translation import with_options
from manyhands.cli.values import Source, refuse_overwriting
from manyhands.exceptions import AnnotationError
from manyhands.wording import listed


@dataclass(frozen=True, kw_only=True)
class JudgesReading(FamilyReading):
    """How labels of people and models are read."""

    question: Annotated[
        OptionalText,
        typer.Option(
            metavar="COLUMN",
            help="Column with the question that each item answers. Agreement is then measured "
            "within each question, and each question of 50 items or more gets verdicts of its "
            "own. For an export that holds several questions, give the name of one question "
            "instead of a column.",
        ),
    ] = None


SEVERAL_QUESTIONS = "name the column of the questions (question=)"


Cluster = Annotated[
    OptionalText,
    typer.Option(
        metavar="COLUMN",
        help="Column that says which items belong together, such as the sentences of one "
        "document. All intervals then allow for this dependence. Without the option, the items "
        "are treated as independent of each other.",
    ),
]
By = Annotated[
    OptionalText,
    typer.Option(
        metavar="COLUMN",
        help=(
            "Column that describes the items, such as the author of a text. For each "
            "value of this column, the output also shows which labels a judge (a model) gives more "
            "or less often than people do."
        ),
    ),
]
Margin = Annotated[
    float,
    typer.Option(
        help="By what fraction a judge's agreement with people may be lower than a person's "
        "agreement with other people. With 0.2, a judge can stand in for a person if its "
        "agreement is clearly more than 80 % of a person's: the 95 % interval of this ratio must "
        "lie above 80 %."
    ),
]
IsRandom = Annotated[
    bool,
    typer.Option(
        "--random",
        help=(
            "Declare that people labelled a random sample of the items. Only such a sample "
            "makes the estimates for all items valid."
        ),
    ),
]


@reported
@grouped
def judges(
    *,
    tables: TablePaths,
    cluster: Cluster = None,
    by: By = None,
    margin: Margin = 0.2,
    random: IsRandom = False,
    out: OutFile = None,
    reading: JudgesReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Check whether models can stand in for people, and estimate how people would label each item.

    Example: manyhands judges annotations.csv --groups family --question question
    Example: manyhands judges gpt-4o.jsonl claude.jsonl --people people.xlsx --task item
    """
    from manyhands.io.annotations import read_with_account
    from manyhands.io.exports.reading import report_losses
    from manyhands.io.people import refuse_queue
    from manyhands.report.judges import lines_of, share_lines, summarize_judges, with_judges

    refuse_overwriting([out], [*tables, *reading.files])
    check_out(out)
    if open_store(tables) is not None:
        raise AnnotationError(
            f"{tables[0]} is a store, which names no people; give the table that it was made from"
        )
    path = one_or_all(tables)
    if reading.annotator_from is None and _are_annotators(tables, reading):
        reading = replace(reading, annotator_from=Source.file)
    options = reading.arguments()
    question = options["question"]
    asked = {"question": question, "cluster": cluster, "by": by}
    if question is not None and _is_column(path, question, options):
        options["question"] = None
    else:
        asked["question"] = None
    for each in tables:
        if each.is_file():
            refuse_queue(each, options, str(each))
    table, export = read_with_account(path, **options)
    if export is not None:
        report_losses(export, path)
    table, by_name = with_judges(table)
    names = {name: column for name, column in asked.items() if column is not None}
    found = read_item_columns(path, table, names, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They are among the notes.
        result = summarize_judges(table, margin=margin, is_random=random, **found)
    if question is None:
        result["notes"] = _with_questions(result["notes"], path, {cluster, by}, options)
    result["taken_as_models"] = [str(name) for name in by_name]
    columns = {
        name: [judge[name] for judge in result["judges"]]
        for name in result["judges"][0]
        if name not in ("classes", "questions")
    }
    write_columns(out, columns, keep_formulas)
    if json:
        print_json(result)
        return
    for line in lines_of(result):
        say(line)
    if result["shares"] is not None:
        for line in share_lines(result["shares"], cluster):
            say(line)
    say("")
    if by_name:
        say(
            f"These annotators count as models because of their names: "
            f"{', '.join(map(str, by_name))}. To change this, use --people or --groups."
        )
    for text in result["notes"]:
        say(with_options(text if text.endswith(".") else f"{text}."))


def _are_annotators(tables: list[Path], reading: FamilyReading) -> bool:
    """Return whether each file holds the labels of the annotator after whom it is named.

    So it is where the first names no annotators, and is no export. One file alone must also have a
    column of labels, and the people's labels must have another.
    """
    from manyhands.io.annotations import is_export
    from manyhands.io.columns import find_name

    is_alone = len(tables) == 1
    if is_alone and (reading.people is None or not Path(reading.people).is_file()):
        return False
    if reading.format != "auto" or reading.annotators is not None or is_export(tables[0]):
        return False
    header = header_of(tables, reading.arguments())
    try:
        has_labels = not is_alone or find_name(header, "label", reading.label) in header
        return (
            bool(header)
            and has_labels
            and find_name(header, "worker", reading.worker) not in header
        )
    except AnnotationError:
        return False  # Several could be; the reader says so.


def _with_questions(
    notes: list[str],
    path: Path | list[Path],
    without: set[str | None],
    options: dict[str, Any],
) -> list[str]:
    """Name the columns that may hold the questions, or leave out the note if there are none."""
    group = options.get("group")  # A column, or the names of each family.
    known = without | ({group} if isinstance(group, str) else set())
    try:
        columns = may_be_questions(path, known, options)
    except AnnotationError:  # Such as several columns that may hold the labels.
        columns = None
    if columns is None:
        return notes
    if not columns:
        return [note for note in notes if SEVERAL_QUESTIONS not in note]
    shown = listed(columns, len(columns))
    return [
        note.replace(SEVERAL_QUESTIONS, f"{SEVERAL_QUESTIONS}, such as {shown}") for note in notes
    ]


def _is_column(path: Path | list[Path], name: str, options: dict[str, Any]) -> bool:
    """Return whether a name is that of a column, rather than of a question of an export."""
    from manyhands.io.annotations import is_export

    if is_export(one_path(path)):
        return False
    header = header_of(path, options)
    if name not in header:
        raise AnnotationError(
            f"--question {shlex.quote(name)}: there is no such column; the columns are "
            f"{', '.join(map(repr, header))}"
        )
    return True
