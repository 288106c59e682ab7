"""The command `rank`: which is better, from comparisons of two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import open_store
from manyhands.cli.options import Excel, Json, KeepFormulas, Settings
from manyhands.cli.output import print_json, print_table, say
from manyhands.cli.settings import parse_settings
from manyhands.cli.translation import with_options
from manyhands.cli.values import refuse_overwriting, some_path
from manyhands.exceptions import AnnotationError

Tables = Annotated[
    list[Path],
    typer.Argument(
        parser=some_path,
        metavar="COMPARISONS...",
        help="Comparisons, one per row: CSV, Excel, JSON, JSON Lines or Parquet. Several files "
        "are read as one; if they have no column of annotators, each file counts as one "
        "annotator.",
    ),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this at run time
    typer.Option(
        "--out",
        parser=some_path,
        metavar="DIR|FILE",
        help="Folder for ranking.csv, annotators.csv, better.csv, next.csv, report.html and the "
        "model. If you give a file name, such as ranking.csv, only the ranking is written to it.",
    ),
]
Left = Annotated[str, typer.Option(metavar="COLUMN", help="Column with the item on the left.")]
Right = Annotated[str, typer.Option(metavar="COLUMN", help="Column with the item on the right.")]
Winner = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help=(
            "Column with the winner. Its values may have one of five forms: the id of the item "
            "that won; left, right or tie; model_a, model_b, tie or bothbad; A, B or C (C is a "
            "tie); or a verdict such as A>B or [[A]]. Three columns of 0s and 1s, named "
            "winner_model_a, winner_model_b and winner_tie, are also understood."
        ),
    ),
]
Worker = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help=("Column with the annotator's id, or 'none' if the table names no annotators."),
    ),
]
Question = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="COLUMN",
        help="Column with the question on which the items were compared, such as a prompt. "
        "Comparisons on the same question depend on each other, and the intervals allow for "
        "that.",
    ),
]
Weight = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="COLUMN", help=("Column with the number of comparisons that a row stands for.")
    ),
]
Abstain = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="VALUE,VALUE",
        help="Values in the column of winners that mean 'no answer'.",
    ),
]
Models = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME,NAME",
        help="Annotators that are language models. Default: recognised from their names.",
    ),
]
Next = Annotated[
    int,
    typer.Option(
        "--next",
        min=0,
        metavar="N",
        help="List the N further comparisons that would make the ranking most certain. A pair "
        "of items may be listed several times.",
    ),
]
Each = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        min=1,
        metavar="N",
        help="How often --next may list the same pair. With 1, no pair is repeated. Default: a "
        "fifth of --next.",
    ),
]
Title = Annotated[str, typer.Option(metavar="TEXT", help="Title of the report.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.html.")]


@reported
def rank(
    *,
    comparisons: Tables,
    out: Out = None,
    left: Left = "left",
    right: Right = "right",
    winner: Winner = "winner",
    worker: Worker = "worker",
    question: Question = None,
    weight: Weight = None,
    abstain: Abstain = None,
    models: Models = None,
    next_: Next = 0,
    each: Each = None,
    settings: Settings = None,
    title: Title = "Ranking",
    no_report: NoReport = False,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Rank items from pairwise comparisons, give intervals, and describe the annotators.

    The columns of Arena logs and of crowd-kit are recognised. Annotators may err, prefer a side, or
    call ties more easily than others; the ranking allows for that.

    Example: manyhands rank comparisons.csv --out ranking
    Example: manyhands rank arena.jsonl --question question_id --next 50 --out ranking
    Example: manyhands rank gpt-4o.jsonl claude.jsonl people.csv --out ranking.xlsx
    """
    from manyhands.io.comparisons import read_comparisons
    from manyhands.io.frames import WRITTEN
    from manyhands.jobs import ranking as job
    from manyhands.ranking import BradleyTerry

    refuse_overwriting([out, None if out is None else out / job.NEXT], comparisons)
    if open_store(comparisons) is not None:
        raise AnnotationError(
            f"{comparisons[0]} is a store of annotations, and a ranking is of comparisons; give "
            "their file: it is read row by row, so that millions of rows need little memory"
        )
    if out is not None and out.suffix and out.suffix.lower() not in WRITTEN:
        raise AnnotationError(
            f"--out {out}: {out.suffix!r} is not a format of tables; give a folder, or a name that "
            f"ends in {', '.join(WRITTEN)}"
        )
    if each is not None and not next_:
        raise AnnotationError(
            f"--each {each} says how often --next may ask about a pair; add --next 50"
        )
    method = BradleyTerry(**parse_settings(settings or [], BradleyTerry))
    table = read_comparisons(
        comparisons,
        left,
        right,
        winner,
        None if worker == "none" else worker,
        question,
        weight=weight,
        abstain=None if abstain is None else [value.strip() for value in abstain.split(",")],
    )
    result = job.rank(
        table,
        out,
        model=method,
        models=None if models is None else [name.strip() for name in models.split(",")],
        n_next=next_,
        each=each,
        title=title,
        keep_formulas=keep_formulas,
        report=not no_report,
        wording=with_options,
    )
    if json:
        print_json(result)
        return
    _print(result, out, has_report=not no_report)


def _print(result: dict[str, Any], out: Path | None, *, has_report: bool) -> None:
    say(result["headline"])
    for text in result["facts"]:
        say(text)
    ranking = result["ranking"]
    shown = min(len(ranking["item"]), 20)
    groups = ranking.get("component", [])
    rows = [
        [
            *(groups[i : i + 1]),
            ranking["item"][i],
            "-" if ranking["rank"][i] is None else ranking["rank"][i],
            _ends(ranking["rank_low"][i], ranking["rank_high"][i], 0),
            "-" if ranking["strength"][i] is None else f"{ranking['strength'][i]:.2f}",
            _ends(ranking["low"][i], ranking["high"][i], 2),
            f"{ranking['n_comparisons'][i]:,}",
        ]
        for i in range(shown)
    ]
    print_table(
        "Ranking" if shown == len(ranking["item"]) else f"Ranking, the first {shown}",
        [
            *["group"][: len(groups)],
            "item",
            "rank",
            "95 % interval",
            "strength",
            "95 % interval",
            "comparisons",
        ],
        rows,
    )
    if pairs := result["next"]:
        print_table(
            "Compare next",
            ["left", "right", "times", "chance of left", "of a tie", "of right"],
            [
                [pairs["left"][i], pairs["right"][i], pairs["times"][i]]
                + [f"{100 * pairs[name][i]:.0f} %" for name in ("p_left", "p_tie", "p_right")]
                for i in range(min(len(pairs["left"]), 10))
            ],
        )
    if out is not None:
        say(f"written: {out}")
        if has_report and not out.suffix:
            say(f"next: open {out / 'report.html'} in a browser")


def _ends(low: float | None, high: float | None, digits: int) -> str:
    if low is None or high is None:
        return "-"
    return f"{low:.{digits}f} to {high:.{digits}f}"
