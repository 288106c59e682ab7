"""What benchmarks share: cells that are measured once and kept in a file, and Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from manyhands.io import write_atomically

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """Return the records of a file, one line of JSON each; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run_missing(
    path: Path,
    cells: Iterable[tuple[Hashable, Callable[[], Record]]],
    key_of: Callable[[Record], Hashable],
    minutes: float = float("inf"),
) -> list[Record]:
    """Measure the cells that a file does not hold yet, and add each to it when it is done.

    Parameters
    ----------
    path : Path
        One line of JSON per cell. A killed run goes on where it stopped.
    cells : iterable of (key, measure)
        ``measure()`` returns the cell's record.
    key_of : callable
        From a record, as read from the file, to the key of its cell.
    minutes : float
        No cell is started later.

    Returns
    -------
    list of dict
        All records of the file.
    """
    records = read(path)
    done, started = {key_of(record) for record in records}, perf_counter()
    for key, measure in cells:
        if key in done or perf_counter() - started > 60 * minutes:
            continue
        records.append(measure())
        with path.open("a") as file:
            file.write(json.dumps(records[-1]) + "\n")
        print(key, {k: v for k, v in records[-1].items() if isinstance(v, float)}, flush=True)
    return records


def table_lines(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, and an empty one."""
    body = ["| " + " | ".join(row) + " |" for row in (heading, *rows)]
    return [body[0], "|" + "---|" * len(heading), *body[1:], ""]


def mean_of(values: Mapping[str, float]) -> float:
    """Mean over the tables."""
    return float(np.mean(list(values.values())))


def left_out_lines(
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
    tables = list(next(iter(values.values())))
    rows, left_out = [], {}
    for family in dict.fromkeys(map(family_of, tables)):
        costs = {
            c: mean_of({t: found[t] for t in tables if family_of(t) == family})
            for c, found in values.items()
        }
        others = [t for t in tables if family_of(t) != family]
        best = min(
            values,
            key=lambda c: (
                round(score({t: values[c][t] for t in others}), 9),
                abs(np.log(c / ours)),
            ),
        )
        left_out |= {t: values[best][t] for t in tables if family_of(t) == family}
        lost = costs[best] - min(costs.values())
        rows.append([family, *(f"{x:.4f}" for x in costs.values()), f"{best:g}", f"{lost:.4f}"])
    scores = [score(found) for found in values.values()]
    lost = score(left_out) - min(scores)
    rows.append(["**all**", *(f"{x:.4f}" for x in scores), "", f"{lost:.4f}"])
    heads = [f"**{c:g}**" if c == ours else f"{c:g}" for c in values]
    return table_lines(["left out together", *heads, "chosen without it", "lost"], rows)


def part_of(text: str, heading: str) -> list[str]:
    """Return the lines of a page's part under a heading of level 2."""
    _, _, rest = text.partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0].strip("\n").split("\n") if rest else []


def write_part(page: Path, title: str, heading: str, lines: Sequence[str]) -> None:
    """Replace the part of a page under a heading of level 2, or add it at the end."""
    text = page.read_text(encoding="utf-8") if page.exists() else f"# {title}\n"
    start = f"\n## {heading}\n"
    before, _, old = text.partition(start)
    _, mark, after = old.partition("\n## ")
    write_atomically(
        page, before + start + "\n" + "\n".join(lines).strip("\n") + "\n" + mark + after
    )
