"""The commands `describe`, `agreement` and `doctor`: what a table holds, and what is installed."""

from __future__ import annotations

import math
import os
import platform
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands._version import __version__
from manyhands.cli.accounts import LONGEST_LINE, SAME_WAY, account_of, print_account
from manyhands.cli.errors import reported
from manyhands.cli.inputs import one_or_all, open_store
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import Json, TablePaths
from manyhands.cli.output import note, print_json, print_table, say, visible
from manyhands.cli.reading import Reading, command_of
from manyhands.cli.translation import with_options
from manyhands.exceptions import DataNotFoundError
from manyhands.wording import MEASURES, percent

REQUIREMENT = re.compile(
    r"^(?P<name>[\w.-]+)(\[(?P<extras>[^]]*)\])?[^;]*(;.*extra == .(?P<of>\w+).)?"
)
"""A requirement in a package's metadata: name, the extras asked for, and the extra that asks."""

ORDERS = {
    "given": "as they are named",
    "numbers": "by their numbers",
    "known": "a known scale",
    "sorted": "sorted as text, which need not be their order",
}
"""What the order of the classes rests on, for readers."""

OF_GRADES = {
    "mean_cohen_kappa": "quadratic weights",
    "fleiss_kappa": "which ignores the order",
    "gwet_ac2": "quadratic weights",
}
"""What measures make of the order of classes, if these have one."""

SHARES = ("percent_agreement", "within_one_grade")
"""Measures that are shares, which are written in percent."""

WHAT = {
    "nominal": "nominal classes",
    "ordinal": "ordinal classes",
    "interval": "numbers (interval scale)",
}
"""What annotators agree on, by scale."""

MOST_NUMBERS = 10
"""Numbers that are printed, of which a slider has a hundred."""


@reported
@grouped
def describe(
    *,
    tables: TablePaths,
    reading: Reading,
    json: Json = False,
) -> None:
    """Describe what is in a file: counts, classes, agreement, and what looks wrong.

    Example: manyhands describe annotations.csv --worker annotator
    """
    if reading.takes_sets:
        from manyhands.cli.label_sets import describe_sets

        describe_sets(tables, reading, json)
        return
    from manyhands.io.annotations import read_with_account, reading_of
    from manyhands.report import SECTIONS, summarize
    from manyhands.report.counts import class_rows, data_rows
    from manyhands.report.summary import has_many_classes, overview

    options, path = reading.arguments(), one_or_all(tables)
    store = open_store(tables)
    read, export = (store, None) if store else read_with_account(path, **options)
    # What to do next takes a plan of many rounds; this command shows none of it.
    counted = [section for section in SECTIONS if section.key in ("data", "classes")]
    summary = overview(read) if has_many_classes(read) else summarize(read, sections=counted)
    found = {} if store else reading_of(path, export, options)
    command = command_of("describe", tables, reading, found=found)
    if json:
        shown = {name: summary[name] for name in ("data", "classes", "warnings")}
        print_json(shown if export is None else shown | {"export": account_of(export, command)})
        return
    print_table(", ".join(map(str, tables)), ["", ""], data_rows(summary["data"]))
    are_numbers = summary["data"]["agreement"]["scale"] == "interval"
    order = summary["data"]["agreement"]["order"]
    if order and not are_numbers:
        say(f"order of the classes: {order}")
    if export is not None:
        print_account(export, command)
    elif found and any(
        found.get(name, name) != options[name] for name in ("task", "worker", "label")
    ):
        note(f"{SAME_WAY}{command}")
    classes = summary["classes"]
    title = "Classes" if classes["shown"] == classes["total"] else "Most frequent classes"
    columns = ["class", "annotations", "share", "items by majority vote"]
    rows: list[tuple[Any, ...]] = [*class_rows(classes)]
    if are_numbers:  # Of which nobody wants the most frequent one.
        title = title.replace("Classes", "Numbers").replace("classes", "numbers")
        columns, rows = ["number", *columns[1:3]], [row[:3] for row in rows]
    hidden = max(len(rows) - MOST_NUMBERS, 0) if are_numbers else 0
    print_table(title, columns, rows[: len(rows) - hidden])
    if hidden:
        say(f"... and {hidden:,} more (--json has {classes['shown']:,})")
    for warning in summary["warnings"]:
        say(with_options(f"! {warning['text']}"))
    if not store:
        # A report, which is in a folder, takes known annotators and not too many classes.
        is_plain = getattr(read, "annotators_known", True) and not has_many_classes(read)
        out = "labels" if is_plain else "labels.csv"
        say(f"next: {command_of('aggregate', tables, reading, '--out', out)}")


@reported
@grouped
def agreement(
    *,
    tables: TablePaths,
    resamples: Annotated[int | None, typer.Option(hidden=True)] = None,
    reading: Reading,
    json: Json = False,
) -> None:
    """Measure how well annotators agree, with 95 % intervals.

    Example: manyhands agreement annotations.csv --scale ordinal
    """
    from manyhands.agreement import summary
    from manyhands.annotations.class_order import order_of, shown_order
    from manyhands.annotations.scales import check_scale
    from manyhands.io import read_annotations

    if reading.takes_sets:
        from manyhands.cli.label_sets import agreement_of_sets

        agreement_of_sets(tables, reading, json)
        return
    options = reading.arguments()
    store = open_store(tables)
    read = store or read_annotations(one_or_all(tables), **options)
    scale: Any = options["scale"] or read.scale
    check_scale(read.classes, read.class_order, scale)
    if resamples is not None:
        note("--resamples has no effect any more: no items are resampled for the intervals")
    found = summary(read, scale=scale)
    rows = {
        name: {
            bound: None if math.isnan(value := getattr(interval, bound)) else value
            for bound in ("value", "low", "high")
        }
        for name, interval in found.items()
    }
    order = [] if scale == "nominal" else [str(value) for value in read.classes.tolist()]
    if json:
        print_json(rows if not order else rows | {"order": order})
        return
    weights = {} if scale == "nominal" or read.n_classes < 3 else OF_GRADES
    print_table(
        f"Agreement, {WHAT[scale]}",
        ["measure", "value", "from", "to"],
        [
            [
                ", ".join(filter(None, (MEASURES[name], weights.get(name)))),
                *(map(percent, row.values()) if name in SHARES else row.values()),
            ]
            for name, row in rows.items()
        ],
    )
    if order and scale != "interval":
        stored = store is not None and store.scale == "nominal"
        basis = ORDERS[order_of(read.classes) if stored else read.class_order]
        say(f"order of the classes: {shown_order(read.classes)} ({basis})")
    if any(row["value"] is None for row in rows.values()):
        say(
            "empty: undefined (no item has two annotations, there is nothing to disagree on, "
            "the votes do not say who gave them, or a store has too many pairs of annotators)"
        )
    if any(row["value"] is not None and row["low"] is None for row in rows.values()):
        say(
            "no interval: the items do not tell how far the measure may vary (they all agree "
            "alike, are fewer than two, or pairs of annotators share fewer than ten on average)"
        )


@reported
def doctor(json: Json = False) -> None:
    """Show what is installed here: versions, extras, devices, threads, data sets.

    Example: manyhands doctor --json
    """
    found = _examine()
    if json:
        print_json(found)
        return
    versions = {"manyhands": found["manyhands"], "python": found["python"], **found["packages"]}
    print_table(found["platform"], ["", ""], [(k, v or "-") for k, v in versions.items()])
    extras = [
        (name, "installed" if not extra["missing"] else extra["command"])
        for name, extra in found["extras"].items()
    ]
    if extras:
        print_table("Extras, as the installation lists them", ["", ""], extras)
    threads = ", ".join(f"{k} {v}" for k, v in found["threads"].items() if v is not None)
    say(f"devices: {', '.join(found['devices'])}; threads: {threads}")
    folders = {"cache": found["cache"], "data home": found["data"]}
    if folders["cache"]["folder"] == folders["data home"]["folder"]:
        folders = {"data home and cache": found["data"]}
    for name, folder in reversed(folders.items()):
        sets = ", ".join(folder["sets"]) or "no data sets"
        state = sets if folder["exists"] else "does not exist yet"
        say(visible(f"{name}: {folder['folder']} ({state})"))
    for problem in found["problems"]:
        say(visible(f"! {problem}", LONGEST_LINE))


def _examine() -> dict[str, Any]:
    """Return what `doctor` shows; a missing or broken part never makes it fail."""
    from manyhands.datasets.base import data_home, user_cache

    problems: list[str] = []
    extras = _extras(problems)
    names = {name for extra in extras.values() for name in extra}
    packages = {name: _version_of(name) for name in sorted(names)}
    devices, torch_threads = _devices(problems)
    try:
        home = data_home()
    except DataNotFoundError as error:
        problems.append(str(error))
        home = Path(os.environ["MANYHANDS_DATA"])
    return {
        "manyhands": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "extras": {
            extra: {
                "missing": sorted(name for name in needed if packages[name] is None),
                "command": _installing(needed, packages),
            }
            for extra, needed in extras.items()
            if extra
        },
        "devices": devices,
        "threads": {
            "cores": os.cpu_count(),
            "torch": torch_threads,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        },
        "data": _folder_of_sets(home),
        "cache": _folder_of_sets(user_cache()),
        "problems": problems,
    }


def _installing(needed: dict[str, str], versions: dict[str, str | None]) -> str:
    """Return the command that installs the packages that an extra lacks."""
    missing = [shlex.quote(needed[name]) for name in sorted(needed) if versions[name] is None]
    return " ".join(["pip install", *missing]) if missing else ""


def _extras(problems: list[str]) -> dict[str, dict[str, str]]:
    """Return the packages of every extra, those of included extras as well; "" is the core.

    Each is a dict {name: requirement}, such as {"pandas": "pandas>=2.2"}.
    """
    from importlib import metadata

    try:
        required = metadata.requires("manyhands") or []
    except metadata.PackageNotFoundError:
        problems.append("manyhands is imported from its sources; its extras are not known")
        core = ("numpy", "scipy", "scikit-learn", "narwhals", "safetensors", "torch")
        return {"": {name: name for name in core}}
    installed = _version_of("manyhands")
    if installed not in (None, __version__):
        problems.append(
            f"the extras are those of manyhands {installed}, as it was installed; {__version__} is "
            "imported: install it again"
        )
    packages: dict[str, dict[str, str]] = {}
    nested: dict[str, set[str]] = {}
    for text in required:
        found = REQUIREMENT.match(text)
        if found is None:
            continue
        extra = found["of"] or ""
        packages.setdefault(extra, {})
        if found["name"] == "manyhands":
            parts = {part.strip() for part in (found["extras"] or "").split(",")}
            nested.setdefault(extra, set()).update(parts)
        else:
            packages[extra][found["name"].lower()] = text.partition(";")[0].replace(" ", "")
    for _ in nested:  # As deep as extras can be nested.
        for extra, others in nested.items():
            for other in others:
                packages[extra].update(packages.get(other, {}))
    return packages


def _version_of(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices(problems: list[str]) -> tuple[list[str], int | None]:
    """Return the names of the devices for networks, and torch's number of threads."""
    try:
        import torch
    except ModuleNotFoundError:
        return ["cpu (no torch)"], None
    except Exception as error:  # A broken installation raises what it likes.
        problems.append(f"torch is installed, but cannot be imported: {error}")
        return ["cpu (torch is broken)"], None
    devices = ["cpu"]
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        gib = properties.total_memory / 2**30
        devices.append(f"cuda:{number} ({properties.name}, {gib:.0f} GiB)")
    return devices, int(torch.get_num_threads())


def _folder_of_sets(folder: Path) -> dict[str, Any]:
    """Return a folder of data sets (which may be nested once), and the sets found in it."""
    found = [*folder.glob("*/labels.csv"), *folder.glob("*/*/labels.csv")]
    sets = sorted(path.parent.relative_to(folder).as_posix() for path in found)
    return {"folder": str(folder), "exists": folder.is_dir(), "sets": sets}
