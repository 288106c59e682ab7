"""The job of `manyhands rank`: read comparisons, rank, and write what was found."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyhands.comparisons import ComparisonTable
from manyhands.exceptions import AnnotationError, WriteError
from manyhands.files import write_atomically
from manyhands.fitting.folders import STAGING, publish
from manyhands.fitting.saving import holds_ranking
from manyhands.io.frames import WRITTEN, write_table
from manyhands.jobs.outputs import SUMMARY, job_folder
from manyhands.models import save
from manyhands.ranking.bradley_terry import BradleyTerry
from manyhands.ranking.findings import better_columns, next_columns
from manyhands.report.ranking import summarize_ranking, write_ranking_report

RANKING, NEXT, BETTER = "ranking.csv", "next.csv", "better.csv"
REPORT = "report.html"


def rank(
    table: ComparisonTable,
    out: Path | None = None,
    *,
    model: BradleyTerry | None = None,
    models: Any = None,
    n_next: int = 0,
    each: int | None = None,
    title: str = "Ranking",
    keep_formulas: bool = False,
    report: bool = True,
    wording: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Rank the items of a table, and write tables, model and report.

    Parameters
    ----------
    table : ComparisonTable
    out : Path, optional
        A table, by its suffix, or a folder.
    model : BradleyTerry, optional
        The method; default: `BradleyTerry` with its default parameters.
    models : sequence of ids, optional
        Ids of the annotators that are language models.
    n_next : int
        Answers to ask for next.
    each : int, optional
        How often a pair may be asked about, as in `BradleyTerry.next_pairs`.
    title : str
        Of the report.
    keep_formulas : bool
        As in `manyhands.io.frames.write_table`.
    report : bool
        Whether a folder gets ``report.html``.
    wording : callable
        As in `summarize_ranking`.

    Returns
    -------
    dict
        For JSON.

    Raises
    ------
    AnnotationError
        If ``models`` names an annotator without comparisons.
    WriteError
        If the folder holds another model, or a file cannot be written.
    """
    _refuse_strangers(models, table)
    fitted = (model or BradleyTerry()).fit(table)
    pairs = fitted.next_pairs(n_next, each=each) if n_next else None
    result = summarize_ranking(fitted, title=title, pairs=pairs, models=models, wording=wording)
    if out is None:
        return result
    if out.suffix.lower() in WRITTEN:
        write_table(out, result["ranking"], keep_formulas=keep_formulas)
        return result | {"written": [str(out)]}
    tables = {
        RANKING: result["ranking"],
        "annotators.csv": result["annotators"],
        BETTER: better_columns(fitted),
        NEXT: {} if pairs is None else next_columns(pairs),
    }
    with job_folder(out) as folder:
        if (folder / "model.json").exists() and not holds_ranking(folder):
            raise WriteError(
                errno.EEXIST,
                f"cannot write {str(out)!r}: its model is not a ranking; choose another folder",
            )
        staged = folder / STAGING
        save(fitted, staged)
        for name, columns in tables.items():
            if columns:
                write_table(staged / name, columns, keep_formulas=keep_formulas)
        write_atomically(staged / SUMMARY, json.dumps(result, indent=1, allow_nan=False))
        if report:
            write_ranking_report(result, staged / REPORT)
        left_out = [name for name, columns in tables.items() if not columns]
        publish(folder, replaced=left_out if report else [*left_out, REPORT])
    return result | {"written": [str(out)]}


def _refuse_strangers(models: Any, table: ComparisonTable) -> None:
    """Refuse models that are not among the annotators, before a fit that may take long."""
    people = table.annotators.tolist()
    strangers = sorted({str(name) for name in models or ()} - set(map(str, people)))
    if strangers:
        raise AnnotationError(
            f"models holds {strangers[0]!r}, which made no comparisons; the annotators are "
            f"{', '.join(map(repr, people[:6]))}{' ...' if len(people) > 6 else ''}"
        )
