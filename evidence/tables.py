"""Tables of records in Markdown: rows, columns, means with their spread, and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Record = dict[str, Any]
Cell = str | Callable[[Any], Any]
"""A format of a record's fields, such as "{cpu:.1f}", or a function of what the row is about."""


# -- records --------------------------------------------------------------------------------------


def where(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Return the records with these values."""
    return [r for r in records if all(r.get(name) == value for name, value in wanted.items())]


def groups(records: Iterable[Record], *fields: str) -> dict[Any, list[Record]]:
    """Group records by a field, or by the tuple of several, in the order of the first of each."""
    found: dict[Any, list[Record]] = {}
    for record in records:
        key = tuple(record[name] for name in fields)
        found.setdefault(key if len(fields) > 1 else key[0], []).append(record)
    return found


def mean(records: Iterable[Record], field: str) -> float:
    """Return the mean of a field; NaN without records."""
    values = [record[field] for record in records]
    return float(np.mean(values)) if values else float("nan")


def days(records: Iterable[Record]) -> str:
    """Name the first and the last day of records."""
    found = sorted({record["date"] for record in records})
    return " to ".join(dict.fromkeys((found[0], found[-1])))


# -- tables ---------------------------------------------------------------------------------------


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, and an empty one."""
    body = ["| " + " | ".join(row) + " |" for row in (heading, *rows)]
    return [body[0], "|" + "---|" * len(heading), *body[1:], ""]


def listing(
    things: Iterable[Any], cells: Mapping[str, Cell] | Sequence[tuple[str, Cell]]
) -> list[str]:
    """Return the lines of a table with a row for each thing.

    Parameters
    ----------
    things : iterable
        Records, where cells are formats.
    cells : dict {heading: cell}, or pairs
        "{cpu:.1f}" stands for the field of a record; a function takes the thing.
    """
    pairs = list(cells.items() if isinstance(cells, Mapping) else cells)

    def shown(cell: Cell, thing: Any) -> str:
        return cell.format_map(thing) if isinstance(cell, str) else str(cell(thing))

    rows = [[shown(cell, thing) for _, cell in pairs] for thing in things]
    return table([heading for heading, _ in pairs], rows)


def split(heading: Sequence[str], rows: Iterable[Sequence[str]], most: int) -> list[str]:
    """Return the lines of tables that have the first column and at most so many of the others."""
    body, n = list(rows), len(heading) - 1
    lines = []
    for part in np.array_split(np.arange(1, n + 1), max(-(-n // most), 1)):
        own = [0, *part.tolist()]
        lines += table([heading[k] for k in own], ([row[k] for k in own] for row in body))
    return lines


def crossed(
    corner: str,
    rows: Iterable[Any],
    columns: Iterable[Any],
    cell: Callable[[Any, Any], str],
    most: int = 99,
) -> list[str]:
    """Return the lines of a table with a cell for each row and column.

    Parameters
    ----------
    corner : str
        Heading of the first column.
    rows, columns : iterable
        What the cells are about; titles are their values, if these are texts, or else themselves.
    cell : callable
        From a row and a column to a text.
    most : int
        Columns of one table; further ones are in tables of their own.
    """
    down, across = ({each: _title(these, each) for each in these} for these in (rows, columns))
    body = [[title, *(cell(row, each) for each in across)] for row, title in down.items()]
    return split([corner, *across.values()], body, most)


def _title(these: Iterable[Any], one: Any) -> str:
    title = these[one] if isinstance(these, Mapping) else one
    return title if isinstance(title, str) else str(one)


def spread(
    values: Iterable[float],
    digits: int = 1,
    scale: float = 1.0,
    sign: bool = False,
    n: bool = False,
) -> str:
    """Return mean ± sample standard deviation, of several values; "–" without any.

    Parameters
    ----------
    values : iterable of float
    digits : int
    scale : float
        100 makes percentages of shares.
    sign : bool
        Whether a positive mean has its sign.
    n : bool
        Whether the number of several values follows in brackets.
    """
    each = scale * np.asarray(list(values), dtype=np.float64)
    if not len(each):
        return "–"
    mean = f"{each.mean():{'+' * sign}.{digits}f}"
    if len(each) == 1:
        return mean
    return f"{mean} ± {each.std(ddof=1):.{digits}f}" + f" ({len(each)})" * n


def standard_error(values: Any) -> float:
    """Return the standard error of the mean of several values."""
    each = np.asarray(values, dtype=np.float64)
    return float(each.std(ddof=1) / np.sqrt(len(each)))


def with_error(values: Any, digits: int = 1) -> str:
    """Return the mean with its sign, ± its standard error."""
    return f"{np.mean(values):+.{digits}f} ± {standard_error(values):.{digits}f}"


def mean_of(values: Mapping[str, float]) -> float:
    """Mean over the tables."""
    return float(np.mean(list(values.values())))


def chosen_without(
    values: Mapping[Any, Mapping[str, Any]],
    family_of: Callable[[str], str],
    score: Callable[[dict[str, Any], Any], Any],
) -> dict[str, Any]:
    """Choose a value of a constant for every table, without the tables of its family.

    Parameters
    ----------
    values : dict {value: {table: figures}}
    family_of : callable
        What a table is left out with.
    score : callable
        From the figures of the other tables, and the value, to what the choice makes least.

    Returns
    -------
    dict {table: value}
    """
    tables = list(next(iter(values.values())))

    def best(family: str) -> Any:
        others = [t for t in tables if family_of(t) != family]
        return min(values, key=lambda value: score({t: values[value][t] for t in others}, value))

    chosen = {family: best(family) for family in dict.fromkeys(map(family_of, tables))}
    return {table: chosen[family_of(table)] for table in tables}


def constant_cells(
    values: Mapping[str, Mapping[str, Sequence[float]]], family_of: Callable[[str], str]
) -> list[str]:
    """Return the cells of a constant's row: log loss / calibration error, means over the tables.

    Parameters
    ----------
    values : dict {step: {table: (accuracy, log loss, calibration error)}}
        Such as of the constant as it is, half and twice.
    family_of : callable
        What a table is left out with.

    Returns
    -------
    list of str
        A cell per step, one of the steps of least log loss on the other families, and how often
        each of them is chosen.
    """

    def loss(found: dict[str, Sequence[float]], step: str) -> float:
        return float(np.mean([figures[1] for figures in found.values()]))

    chosen = chosen_without(values, family_of, loss)
    left_out = {table: values[step][table] for table, step in chosen.items()}
    means = [np.mean(list(found.values()), axis=0) for found in (*values.values(), left_out)]
    return [*(f"{loss:.4f} / {ece:.4f}" for _, loss, ece in means), counted(chosen, values)]


def counted(chosen: Mapping[str, Any], steps: Iterable[Any]) -> str:
    """Tell how often each step is chosen."""
    found = list(chosen.values())
    return ", ".join(f"{step} {found.count(step)}" for step in steps if step in found)


def left_out_table(
    values: Mapping[float, Mapping[str, float]],
    ours: float,
    family_of: Callable[[str], str],
    score: Callable[[Mapping[str, float]], float] = mean_of,
) -> list[str]:
    """Return a table of what each value of a constant costs, and of the choice without each family.

    Parameters
    ----------
    values : dict {value: {table: cost}}
    ours : float
        The library's value, in bold; of equal ones the nearest to it is chosen.
    family_of : callable
        What a table is left out with.
    score : callable
        Cost of several tables, which the choice makes least.
    """
    chosen = chosen_without(
        values, family_of, lambda found, c: (round(score(found), 9), abs(np.log(c / ours)))
    )
    rows: list[list[str]] = []
    for family in dict.fromkeys(map(family_of, chosen)):
        own = [t for t in chosen if family_of(t) == family]
        costs = {c: mean_of({t: found[t] for t in own}) for c, found in values.items()}
        best = chosen[own[0]]
        lost = costs[best] - min(costs.values())
        rows.append([family, *(f"{x:.4f}" for x in costs.values()), f"{best:g}", f"{lost:.4f}"])
    scores = [score(found) for found in values.values()]
    lost = score({t: values[c][t] for t, c in chosen.items()}) - min(scores)
    rows.append(["**all**", *(f"{x:.4f}" for x in scores), "", f"{lost:.4f}"])
    heads = [f"**{c:g}**" if c == ours else f"{c:g}" for c in values]
    return table(["left out together", *heads, "chosen without it", "lost"], rows)


def listed(names: Sequence[str]) -> str:
    """Join names: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "none"
