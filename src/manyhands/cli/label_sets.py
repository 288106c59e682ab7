"""What the commands print of answers that are sets of labels (``--multilabel ';'``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from manyhands.cli.accounts import account_of, print_account
from manyhands.cli.inputs import in_title, one_or_all, open_store
from manyhands.cli.output import (
    print_columns,
    print_json,
    print_table,
    recommended,
    records_of,
    say,
    say_files,
    visible,
    write_columns,
)
from manyhands.cli.reading import (
    FamilyReading,
    Reading,
    as_arguments,
    command_of,
    run_files,
    words_of,
)
from manyhands.cli.settings import parse_settings
from manyhands.cli.translation import with_options
from manyhands.cli.values import TABLE, Duplicates, Rule, refuse_overwriting
from manyhands.exceptions import AnnotationError
from manyhands.wording import MEASURES, N_RANDOM, SHARED_LOOK_CERTAIN, counted, percent

SHOWN = 10
"""Instances, and options, that are shown."""

FLAGGED = 3
"""Annotators to look at who are named."""

TITLES = {
    "instances": "items",
    "annotators": "annotators",
    "answers": "answers",
    "options": "options",
    "ticks": "ticks",
    "ticks_per_answer": "ticks per answer",
    "answers_without_a_tick": "answers without a tick",
    "different_sets": "different sets",
    "answers_per_instance": "answers per item",
    "abstentions": "abstentions",
    "skips": "skips",
}
"""Counts of a table, for readers."""


class ReadSets(NamedTuple):
    """What a command reads.

    Attributes
    ----------
    table : LabelSetTable
    export : Export or None
        What the answers are an export of; of a table, what it shows of its items.
    shown : Shown or None
        What stands beside labels, so that a person knows the item.
    account : Export or None
        What was read and left out of an export; None of a table.
    """

    table: Any
    export: Any
    shown: Any
    account: Any


def read_sets(tables: list[Path], reading: Reading) -> ReadSets:
    """Read the answers as a `LabelSetTable`, with what is known of the items."""
    from manyhands.io.annotations import read_shown
    from manyhands.io.label_sets import items_shown, read_sets_with_account

    if open_store(tables) is not None:
        raise AnnotationError(
            f"{tables[0]} is a store, which holds single labels; give the files of the answers"
        )
    path, options = one_or_all(tables), reading.of_sets()
    table, export = read_sets_with_account(path, **options)
    shown = read_shown(path, export, **options)
    return ReadSets(table, export or items_shown(table, shown), shown, export)


def words_to_read(tables: list[Path], reading: Reading) -> dict[str, Any]:
    """Return what the commands in a report need to read the same answers, as jobs take it."""
    run = run_files.get() or {}
    given = [*run.get("options", ()), *run.get("known", ())]
    return {"files": words_of(tables), "reading": as_arguments(reading, {}), "given": given}


def reader_of_gold(reading: Reading) -> Callable[[Path, Any], Any]:
    """Return a function that reads known sets of a table's instances from a file."""
    from manyhands.io import read_gold_sets

    own: dict[str, Any] = {
        "multilabel": reading.multilabel,
        "none": reading.nothing,
        "encoding": reading.encoding,
        "separator": reading.separator,
    }
    return lambda path, table: read_gold_sets(path, table, **own)


def describe_sets(tables: list[Path], reading: Reading, json: bool) -> None:
    """Describe answers that are sets."""
    from manyhands.jobs import describe_label_sets

    read = read_sets(tables, reading)
    found, export = describe_label_sets(read.table), read.account
    named = {} if export is None else export.reading
    command = command_of("describe", tables, reading, found=named)
    if json:
        print_json(found if export is None else found | {"export": account_of(export, command)})
        return
    counts = [(TITLES[name], _shown(value)) for name, value in found["data"].items() if value]
    alphas = [
        (MEASURES[f"krippendorff_alpha_{name}"], _shown(value))
        for name, value in found["agreement"].items()
    ]
    print_table(", ".join(map(str, tables)), ["", ""], counts + alphas)
    if export is not None:
        print_account(export, command)
    _print_options(found["options"])
    for text in found["warnings"]:
        say(with_options(f"! {text}"))
    say(f"next: {command_of('aggregate', tables, reading, '--out', 'labels')}")


def agreement_of_sets(tables: list[Path], reading: Reading, json: bool) -> None:
    """Print alpha about sets by each distance, and about every option."""
    from manyhands.agreement import jackknife, krippendorff_alpha, option_agreement
    from manyhands.jobs import set_alphas

    table = read_sets(tables, reading).table
    distances = list(set_alphas(table))
    rows = {
        f"krippendorff_alpha_{name}": _bounds(
            jackknife(partial(krippendorff_alpha, distance=name), table)  # type: ignore[arg-type]
        )
        for name in distances
    }
    found = option_agreement(table)
    options = [
        {"option": option, "n_ticks": int(n), "share": float(share), **_bounds(interval)}
        for option, n, share, *interval in zip(
            *(found.options.tolist(), found.n_ticks.tolist(), found.share.tolist()),
            *(found.alpha.tolist(), found.low.tolist(), found.high.tolist()),
            strict=True,
        )
    ]
    if json:
        print_json(rows | {"options": options})
        return
    print_table(
        "Agreement, sets of labels",
        ["measure", "value", "from", "to"],
        [[MEASURES[name], *map(_shown, row.values())] for name, row in rows.items()],
    )
    _print_options([each | {"alpha": each["value"]} for each in options])
    if len(distances) == 1:
        say("distances of Jaccard and MASI compare up to 20,000 different sets, and here are more")
    if any(row["value"] is None for row in [*rows.values(), *options]):
        say("empty: undefined (no item has two answers, or there is nothing to disagree on)")


def aggregate_sets(
    tables: list[Path],
    how: Any,
    reading: FamilyReading,
    refused: dict[str, Any],
    keep_formulas: bool,
    json: bool,
) -> None:
    """Infer which options apply; ``refused`` are options that sets do not have."""
    from manyhands.jobs import aggregate_label_sets, continue_label_sets
    from manyhands.jobs.aggregation import check_output
    from manyhands.jobs.label_sets import join_cells

    given = [name for name, value in refused.items() if value]
    if given:
        raise AnnotationError(
            f"{given[0]} is for single labels, and --multilabel {reading.multilabel!r} reads sets; "
            f"leave {given[0]} out, or take one option (--multilabel split --option NAME)"
        )
    how.check_files(reading.of_sets(), {})
    rule = "f1" if how.rule == Rule.f1 else "probable"
    if how.threshold is not None and rule != "probable":
        raise AnnotationError(f"--rule {rule} and --threshold each decide by themselves; give one")
    kind = _find_method(how.method or "multi-label-dawid-skene", reading.multilabel)
    model = kind(**parse_settings(how.settings or [], kind))
    if how.out is not None:
        check_output(how.out, how.to)
    read, read_cells = read_sets(tables, reading), reader_of_gold(reading)
    shared: dict[str, Any] = {
        "rule": rule,
        "threshold": how.threshold,
        "separator": reading.multilabel,
        "none": reading.nothing,
        "to": how.to,
        "export": read.export,
        "shown": read.shown,
        "title": f"Labels of {in_title(tables)}",
        "keep_formulas": keep_formulas,
    }
    if how.continue_ is not None:
        policy = reading.duplicates
        policy = Duplicates.last if policy is Duplicates.auto else policy
        shared |= words_to_read(tables, replace(reading, duplicates=policy))
        shared["duplicates"] = policy.value
        shared |= {"known": how.known or (), "read_cells": read_cells}
        result = continue_label_sets(how.continue_, read.table, how.gold, how.out, **shared)
    else:
        shared |= words_to_read(tables, reading)
        gold = None if how.gold is None else read_cells(how.gold, read.table)
        cells = [read_cells(path, read.table) for path in how.known or ()]
        shared["known"] = join_cells(cells) if cells else None
        result = aggregate_label_sets(read.table, model, gold, how.out, **shared)
    if json:
        print_json(result)
        return
    print_sets(result, how.out, how.to)


def _find_method(name: str, multilabel: str) -> type[Any]:
    """Find a method for sets, also by the name of the one for single labels.

    Raises
    ------
    AnnotationError
        If it infers single labels, or there is no method of that name.
    """
    from manyhands.registry import (
        all_set_aggregators,
        find_averager,
        find_set_aggregator,
        short_name,
    )

    prefix = "" if name.replace("-", "").lower().startswith("multilabel") else "multi-label-"
    try:
        return find_set_aggregator(prefix + name)
    except AnnotationError as error:
        unknown = error
    try:
        single = short_name(find_averager(name))
    except AnnotationError:
        raise AnnotationError(str(unknown).replace(repr(prefix + name), repr(name))) from None
    methods = " or ".join(short_name(cls) for _, cls in all_set_aggregators())
    raise AnnotationError(
        f"--method {single} infers one label per item, and --multilabel {multilabel!r} reads sets; "
        f"give --method {methods}, or infer one option by --multilabel split --option NAME"
    )


def review_sets(
    tables: list[Path],
    n: int | None,
    random: int,
    known: list[Path] | None,
    out: Path | None,
    reading: FamilyReading,
    refused: dict[str, Any],
    *,
    seed: int,
    keep_formulas: bool,
    json: bool,
) -> None:
    """List the sets to check; ``refused`` are options that sets do not have."""
    from manyhands.io.shown import with_shown
    from manyhands.jobs import review_label_sets
    from manyhands.jobs.label_sets import join_cells

    for name, (is_given, why) in refused.items():
        if is_given:
            raise AnnotationError(f"{name}: {why}; leave {name} out")
    read, read_cells = read_sets(tables, reading), reader_of_gold(reading)
    cells = [read_cells(path, read.table) for path in known or ()]
    columns, _ = review_label_sets(
        read.table,
        known=join_cells(cells) if cells else None,
        n=n if n is not None else 0 if random else 100,
        n_random=random,
        separator=reading.multilabel,
        none=reading.nothing,
        seed=seed,
    )
    columns = with_shown(columns, read.shown)
    write_columns(out, columns, keep_formulas)
    if json:
        print_json({"by": "set", "queue": records_of(columns)})
        return
    aside = ("was", "reviewed", *(() if random else ("chosen",)))
    rows = {name: values for name, values in columns.items() if name not in aside}
    rows["labels"] = [names or "(none)" for names in rows["labels"]]
    rows["expected_errors"] = [round(value, 2) for value in rows["expected_errors"]]
    size = len(columns["task"])
    print_columns(f"{counted(size, 'set')} to check", rows)
    drawn = min(random, size)
    order = "those with the most wrong options to expect come first"
    if random:
        order = f"the first {drawn:,} are drawn at random" + ("" if drawn == size else f"; {order}")
    is_told = any(share is not None for share in columns["probability_wrong"])
    say(
        f"{order}; expected_errors: how many options of the set are expected to be wrong; "
        "least_sure: the least certain option"
        + ("" if is_told else " by the method itself, as nothing shows how many labels are right")
    )
    if out is not None:
        again = partial(command_of, "aggregate", tables, reading)
        given = [word for path in known or () for word in ("--known", str(path))]
        say(
            f"next: in {out}, correct the column 'labels', write your name into 'reviewed' of "
            f"every row that you looked at, and run: {again(*given, '--known', str(out))}"
        )
        if random:
            gold = again(*given, "--gold", str(out))
            say(f"or, to measure how many labels are right, run: {gold}")
    if not random:
        say(f"{SHARED_LOOK_CERTAIN} --random {N_RANDOM} draws them")


def report_sets(
    tables: list[Path], reading: Reading, out: Path | None, texts: Path | None, images: Path | None
) -> list[Path]:
    """Write a report on answers, and its summary beside it; return both."""
    from manyhands.jobs import report_label_sets
    from manyhands.jobs.outputs import contents_of
    from manyhands.report import read_contents

    out = Path(f"{tables[0].stem}-report.html") if out is None else out
    refuse_overwriting([out, out.with_suffix(".json")], [*tables, *reading.files, texts])
    read = read_sets(tables, reading)
    contents = contents_of(read.shown)
    if texts is not None or images is not None:
        contents = read_contents(texts, images)
    return report_label_sets(
        read.table,
        out,
        title=f"Labels of {in_title(tables)}",
        separator=reading.multilabel,
        contents=contents,
        **words_to_read(tables, reading),
    )


def convert_sets(
    tables: list[Path],
    out: Path,
    to: str,
    labels: Path | None,
    reading: FamilyReading,
    keep_formulas: bool,
) -> dict[str, int]:
    """Write answers as a table or for a tool; return how many there were."""
    from manyhands.io import write_annotations

    if labels is not None:
        tool = to if to != TABLE else "label-studio"
        better = command_of("aggregate", tables, reading, "--out", "labels", "--to", tool)
        raise AnnotationError(
            f"--labels {labels} writes labels that are classes; sets of labels are written for a "
            f"tool when they are inferred: {better}"
        )
    read = read_sets(tables, reading)
    table, export = read.table, read.export
    own: dict[str, Any] = {"separator": reading.multilabel, "keep_formulas": keep_formulas}
    write_annotations(out, table, to=to, export=export, **own)
    n_passes = len(table.abstentions) + len(table.skips)
    return {"answers": table.n_annotations, "passes": n_passes}


def print_sets(result: dict[str, Any], out: Path | None, to: str) -> None:
    """Print inferred sets: labels, options, what annotators do, scores, and what was written."""
    n = result["n_instances"]
    if "added" in result:
        counts = result["added"]
        say(
            f"added: {counts['new']:,} answers; of pairs that had answered before: "
            f"{counts['answered_before']:,}"
        )
    rows = [
        [row["task"], visible(row["labels"] or "(none)"), row["action"], visible(_doubt(row))]
        for row in result["labels"][:SHOWN]
    ]
    head = ["task", "labels", "action", "least certain option (how sure)"]
    print_table(f"{result['method']}: {n:,} items", head, rows)
    if (more := n - len(rows)) > 0:
        say(f"... and {more:,} more" + ("" if out else " (--out labels.csv writes all)"))
    say(result["headline"])
    options = [
        [
            visible(row["option"]),
            percent(row["share_of_answers"]),
            percent(row["n_instances"] / max(n, 1)),
            _shown(row["alpha"]),
            f"{row['threshold']:.2f}",
            percent(row["expected_f1"]),
        ]
        for row in result["options"][: 2 * SHOWN]
    ]
    head = [
        "option",
        "ticked in answers",
        "given to items",
        "alpha",
        "threshold",
        "expected F1",
    ]
    print_table("Options", head, options)
    if (more := len(result["options"]) - len(options)) > 0:
        say(f"... and {more:,} more options")
    say(result["decided"])
    if result["shared"] is not None:
        habits = (
            "similar habits for all options"
            if result["shared"]
            else "separate habits for each option"
        )
        say(f"The model assumes that an annotator has {habits}, because {result['why']}.")
    for row in result["flagged"][:FLAGGED]:
        say(f"Annotator {visible(row['told'])}.")
    for line in scores_of(result["gold"]):
        say(line)
    say(recommended(result["actions"], "set", "answers"))
    from manyhands.io.consensus_sets import RULE

    say(RULE)
    if out:
        say_files(result["files"])
    if out is not None and to == TABLE:
        say(
            f"in {out.name if out.suffix else 'labels.csv'}, 'least_sure' is the least "
            "certain option, 'probability' is the probability that it is right, and "
            "'expected_errors' counts the options that are expected to be wrong; p(...) are the "
            "method's own probabilities that an option applies"
        )


def scores_of(found: dict[str, Any] | None) -> list[str]:
    """Write scores on known cells as lines; none of None."""
    lines = []
    for name, value in (found or {}).items():
        is_share = isinstance(value, float) and name != "log loss"
        lines.append(f"{name}: {percent(value) if is_share else _shown(value)}")
    return lines


def _doubt(row: dict[str, Any]) -> str:
    """Name the least sure option of a set."""
    told = row["probability"]
    return str(row["least_sure"]) + ("" if told is None else f" ({percent(told)})")


def _print_options(options: list[dict[str, Any]]) -> None:
    shown = sorted(options, key=lambda row: -row["n_ticks"])[: 2 * SHOWN]
    print_table(
        "Options" if len(shown) == len(options) else "Most frequent options",
        ["option", "ticks", "share of answers", "alpha", "from", "to"],
        [
            [
                visible(row["option"]),
                f"{row['n_ticks']:,}",
                percent(row["share"]),
                *(_shown(row[name]) for name in ("alpha", "low", "high")),
            ]
            for row in shown
        ],
    )


def _bounds(interval: Any) -> dict[str, float | None]:
    value, low, high = (None if math.isnan(each) else float(each) for each in interval)
    return {"value": value, "low": low, "high": high}


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
