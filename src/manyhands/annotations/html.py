"""Display of tables in notebooks: small, self-contained HTML for light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from manyhands.annotations.columns import SOURCES, Columns
from manyhands.typing import AnyArray, IntArray

MOST_CLASSES = 8
MOST_ROWS = 5
LONGEST_NAME = 60

# Counts that are shown even if they are 0.
_ALWAYS = ("annotations", "instances", "annotators", "classes")

# Colours are inherited from the notebook; grey lines and bars are visible on white and black.
_STYLE = """<style>
.manyhands { color: inherit; font: 13px/1.5 system-ui, sans-serif; max-width: 64em; }
.manyhands .title { font-weight: 600; margin: 0 0 .4em; }
.manyhands .side-by-side { display: flex; flex-wrap: wrap; gap: .8em 2.4em; align-items: start; }
.manyhands table { border-collapse: collapse; margin: 0 0 .6em; background: none; color: inherit;
  font-size: inherit; }
.manyhands caption { caption-side: top; text-align: left; font-weight: 600; padding: .2em 0;
  color: inherit; }
.manyhands th, .manyhands td { text-align: left; padding: .15em 1em .15em 0; border: 0;
  border-bottom: 1px solid rgba(128, 128, 128, .35); background: none; color: inherit; }
.manyhands bdi { display: inline-block; max-width: 18em; overflow-wrap: break-word; }
.manyhands th { font-weight: 600; opacity: .75; }
.manyhands .number { text-align: right; font-variant-numeric: tabular-nums; }
.manyhands .bar { display: inline-block; height: .7em; background: rgba(128, 128, 128, .6); }
.manyhands .note { opacity: .75; margin: .3em 0 0; }
</style>
"""


class Markup(str):
    """HTML that `html_table` does not escape."""

    __slots__ = ()


def block(title: str, *parts: str) -> str:
    """Wrap parts of HTML into one block with its style and a title."""
    return (
        f'{_STYLE}<div class="manyhands"><p class="title">{name(title)}</p>{"".join(parts)}</div>'
    )


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Make a table of cells that are text (escaped), numbers (aligned) or `Markup`."""
    shown = [[_cell(value) for value in row] for row in rows]
    head = "".join(f'<th scope="col">{name(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in shown)
    header = f"<thead><tr>{head}</tr></thead>" if any(columns) else ""
    title = f"<caption>{name(caption)}</caption>" if caption else ""
    return f"<table>{title}{header}<tbody>{body}</tbody></table>"


def name(value: Any) -> str:
    """Escape and shorten text from outside; isolate right-to-left names from their surroundings."""
    text = str(value).encode("utf-8", "replace").decode("utf-8")
    if len(text) > LONGEST_NAME:
        text = text[: LONGEST_NAME - 1] + "…"
    return f"<bdi>{escape(text)}</bdi>"


def _cell(value: Any) -> str:
    if isinstance(value, Markup):
        return f"<td>{value}</td>"
    if isinstance(value, int | np.integer):
        return f'<td class="number">{value:,}</td>'
    if isinstance(value, float | np.floating):
        return f'<td class="number">{value:.3f}</td>'
    return f"<td>{name('' if value is None else value)}</td>"


def summary(columns: Columns) -> str:
    """Summarise a table: counts, classes with their shares, and the first annotations."""
    side_by_side = _counts(columns) + _classes(columns)
    return block(
        "AnnotationTable",
        f'<div class="side-by-side">{side_by_side}</div>',
        _first_rows(columns),
    )


def summary_of_sets(
    columns: Columns, options: AnyArray, n_ticks: IntArray, sets: Sequence[Sequence[str]]
) -> str:
    """Summarise answers that are sets of labels: counts, options, and the first answers.

    Parameters
    ----------
    columns : Columns
        The answers; their classes are the numbers of the sets.
    options : array of shape (n_options,)
    n_ticks : integer array of shape (n_options,)
    sets : sequence of sequences of str
        Names of the options in the set of each of the first answers.
    """
    n = len(columns.instance)
    counts = [
        ("answers", n),
        ("ticks", int(n_ticks.sum())),
        ("instances", len(columns.instances)),
        ("annotators", len(columns.annotators)),
        ("options", len(options)),
    ]
    counts += [
        (plural, int((columns.pass_rows[:, 2] == kind).sum()))
        for kind, plural in enumerate(("abstentions", "skips"))
        if (columns.pass_rows[:, 2] == kind).any()
    ]
    rows = [(key, f"{count:,}") for key, count in counts]
    rows += [
        ("per instance", _spread(columns.instance, len(columns.instances))),
        ("per annotator", _spread(columns.annotator, len(columns.annotators))),
    ]
    first = [
        [str(value) for value in row] + [", ".join(names) or "none"]
        for *row, names in zip(
            columns.instances[columns.instance[:MOST_ROWS]].tolist(),
            columns.annotators[columns.annotator[:MOST_ROWS]].tolist(),
            sets,
            strict=True,
        )
    ]
    side_by_side = html_table("", ("", ""), rows) + _shares("option", options, n_ticks, n)
    shown = html_table("First answers", ("instance", "annotator", "labels"), first)
    return block(
        "LabelSetTable",
        f'<div class="side-by-side">{side_by_side}</div>',
        shown if first else _note("no answers"),
    )


def _counts(columns: Columns) -> str:
    counts = {"annotations": len(columns.instance)}
    for code, source in enumerate(SOURCES[1:], start=1):
        counts[f"of these {source}"] = int((columns.source_codes == code).sum())
    for kind, plural in enumerate(("abstentions", "skips")):
        counts[plural] = int((columns.pass_rows[:, 2] == kind).sum())
    for axis in ("instances", "annotators", "classes"):
        counts[axis] = len(getattr(columns, axis))
    rows = [(key, f"{n:,}") for key, n in counts.items() if n or key in _ALWAYS]
    rows += [
        ("per instance", _spread(columns.instance, len(columns.instances))),
        ("per annotator", _spread(columns.annotator, len(columns.annotators))),
    ]
    return html_table("", ("", ""), rows)


def _spread(codes: IntArray, n: int) -> str:
    """Return the mean, minimum and maximum number of annotations, and how many have none."""
    if not n:
        return "–"
    counts = np.bincount(codes, minlength=n)
    none = int((counts == 0).sum())
    without = f"; {none:,} without any" if none else ""
    return f"{counts.mean():.1f} ({counts.min():,} to {counts.max():,}{without})"


def _classes(columns: Columns) -> str:
    counts = np.bincount(columns.label, minlength=len(columns.classes))
    return _shares("class", columns.classes, counts, int(counts.sum()))


def _shares(what: str, names: AnyArray, counts: IntArray, total: int) -> str:
    """Return a table of how often each class or option is given, the most frequent first."""
    shares = counts / max(1, total)
    most = shares.max(initial=0.0) or 1.0
    order = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    rows = [
        (
            str(names[c]),
            int(counts[c]),
            Markup(
                f'<span class="bar" style="width:{6 * shares[c] / most:.2f}em"></span> '
                f"{100 * shares[c]:.1f} %"
            ),
        )
        for c in order
    ]
    given, plural = ("ticks", "options") if what == "option" else ("annotations", "classes")
    table = html_table("", (what, given, "share"), rows)
    rest = len(counts) - len(rows)
    return f"<div>{table}{_note(f'and {rest:,} more {plural}') if rest else ''}</div>"


def _first_rows(columns: Columns) -> str:
    shown: dict[str, AnyArray] = {
        "instance": columns.instances[columns.instance[:MOST_ROWS]],
        "annotator": columns.annotators[columns.annotator[:MOST_ROWS]],
        "label": columns.classes[columns.label[:MOST_ROWS]],
    }
    if columns.weights is not None:
        shown["weight"] = columns.weights[:MOST_ROWS]
    if columns.sources is not None:
        shown["source"] = np.array(SOURCES)[columns.sources[:MOST_ROWS]]
    # Ids are names even if they are numbers: 2026 is not written 2,026.
    rows = [
        [value if key == "weight" else str(value) for key, value in zip(shown, row, strict=True)]
        for row in zip(*(values.tolist() for values in shown.values()), strict=True)
    ]
    return html_table("First annotations", list(shown), rows) if rows else _note("no annotations")


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
