"""The page of the benchmark of planning: tables of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.bars import Row, dots
from benchmarks.planning_parts import (
    CHECKED,
    EIG,
    ENTROPY,
    ERE,
    KINDS,
    SEEN,
    STOPPING,
    UNIFORM,
    everything,
    table_of,
)
from evidence.tables import Record, crossed, days, groups, listing, mean, spread, table, where

Chosen = dict[tuple[str, str], list[Record]]
"""Records by set and policy."""


def chosen(records: list[Record], part: str) -> Chosen:
    """Group the records of a part."""
    return groups(where(records, part=part), "set", "policy")


def sets_of(found: Chosen, place: int = 0) -> list[str]:
    """Sets of some records; with place 1, their policies."""
    return list(dict.fromkeys(key[place] for key in found))


def titled(title: str, lines: Iterable[str]) -> list[str]:
    """A table below its title."""
    return [title, "", *lines]


def areas(records: list[Record], name: str, low: float) -> np.ndarray:
    """Area under each curve from a size on, by the range of sizes, times 100."""
    values = []
    for record in records:
        sizes, curve = np.array(record["sizes"]), np.array(record[name])
        kept = sizes >= low - 1e-9
        values.append(np.trapezoid(curve[kept], sizes[kept]) / np.ptp(sizes[kept]))
    return 100 * np.array(values)


def area_table(found: Chosen, low: float, name: str = "accuracy") -> list[str]:
    """A table of areas, policies by sets."""
    cells = {key: areas(runs, name, low) for key, runs in found.items()}
    sets = sets_of(found)

    def shown(policy: str, column: str) -> str:
        own = [cells[s, policy] for s in sets if (s, policy) in cells]
        if column == "mean":
            return f"{np.mean([v.mean() for v in own]):.1f}" if len(own) == len(sets) else ""
        return spread(cells[column, policy]) if (column, policy) in cells else ""

    return crossed("policy", sets_of(found, 1), [*sets, "mean"], shown)


def reached(records: list[Record], share: float = 0.99) -> str:
    """Size from which on the mean curve keeps a share of what all annotations give."""
    curve = np.mean([record["accuracy"] for record in records], axis=0)
    below = np.flatnonzero(curve < share * records[0]["all"] - 1e-9)
    first = below[-1] + 1 if len(below) else 0
    sizes = records[0]["sizes"]
    return f"{sizes[first]:g}" if first < len(sizes) else f"not by {sizes[-1]:g}"


def falls(found: Chosen) -> str:
    """Say in how many runs on cifar10n the default's accuracy falls with more annotations."""
    runs = found["cifar10n", EIG]
    fell = sum(bool((np.diff(record["accuracy"]) < -0.01).any()) for record in runs)
    return f"{fell} of {len(runs)} runs"


def saved(found: Chosen) -> list[str]:
    """Write how many annotations are needed."""

    def needed(name: str, policy: str) -> str:
        return reached(found[name, policy]) if (name, policy) in found else ""

    def recorded(name: str) -> float:
        return float(table_of(name)[0].n_annotations / table_of(name)[0].n_instances)

    def share(name: str) -> str:
        size = needed(name, EIG)
        return f"{1 - float(size) / recorded(name):.0%}" if size[:1].isdigit() else "–"

    columns: dict[str, Callable[[str], str]] = {
        "set": str,
        "recorded": lambda name: f"{recorded(name):.1f}",
        "accuracy with all": lambda name: f"{100 * everything(name):.1f}",
        **{p: partial(needed, policy=p) for p in (UNIFORM, ENTROPY, EIG, ERE)},
        "saved by EIG": share,
    }
    return listing(sets_of(found), columns)


def drawing(records: list[Record]) -> str:
    """Draw how many annotations an instance needs with the default, evenly, and as recorded."""
    found = chosen(records, "tables")
    rows = []
    for name in sets_of(found):
        given = table_of(name)[0]
        needed = {"chosen pairs": EIG, "evenly": UNIFORM}
        sizes = {words: reached(found[name, policy]) for words, policy in needed.items()}
        known = {words: float(size) for words, size in sizes.items() if size[:1].isdigit()}
        if "chosen pairs" in known:
            rows.append(Row(name, known | {"recorded": given.n_annotations / given.n_instances}))
    title = "Annotations per instance that keep 99 % of the accuracy that all of them give"
    return dots(title, rows)


def stop_rows(name: str, records: list[Record]) -> list[str]:
    """Gain expected and true, where the rule stops, and how honest the level is."""
    sizes = np.array(records[0]["sizes"])
    between = (sizes > 2) & (sizes <= 6)
    step, at = np.diff(sizes, prepend=sizes[0]), int(np.argmin(abs(sizes - 5)))
    values = []
    for record in records:
        accuracy, gain = np.array(record["accuracy"]), np.array(record["gain"])
        true = accuracy[between][-1] - accuracy[np.flatnonzero(between)[0] - 1]
        later = np.flatnonzero((sizes[:-1] >= 1.75) & (gain[1:] < 0.02))
        stop = later[0] if len(later) else len(sizes) - 1
        level = record["expected"][at] - accuracy[at]
        expected = (gain * step)[between].sum()
        values.append([expected, true, sizes[stop], accuracy[stop], accuracy[-1], level])
    expected, true, size, there, last, level = np.mean(values, axis=0)
    return [
        name, f"{100 * expected:.1f}", f"{100 * true:.1f}", f"{size:.1f}",
        f"{there:.3f} of {last:.3f}", f"{100 * level:+.1f}",
    ]  # fmt: skip


def stops(found: Chosen) -> Iterator[str]:
    """Yield the tables of stopping."""
    heads = ["set", "expected gain 2 to 6", "true gain", "stops at", "accuracy there, and at 8",
             "level minus accuracy at 5"]  # fmt: skip
    for policy in ("auto", *STOPPING):
        if rows := [stop_rows(s, each) for (s, p), each in found.items() if p == policy]:
            yield from titled(f"**{policy}**", table(heads, rows))


def review_lines(found: Chosen) -> Iterator[str]:
    """Yield the tables of review queues: means over sets of the means over runs."""
    keys = [key for each in found.values() for key in each[0]["rankings"]]
    for by in ("label", "annotation"):

        def shown(ranking: str, kept: str, by: str = by) -> str:
            values = [
                np.mean([r["rankings"][f"{ranking}|{by}"] for r in each], axis=0)
                for (_, k), each in found.items()
                if k == kept
            ]
            return " / ".join(f"{v:.2f}" for v in np.mean(values, axis=0))

        names = list(dict.fromkeys(key.split("|")[0] for key in keys))
        columns = {"all": "all annotations", "two": "two per instance"}
        yield from titled(
            f"Wrong {by}s: AP / precision at 50 / at 100.",
            crossed("ranking", names, columns, shown),
        )


def each_lines(found: Chosen) -> list[str]:
    """Instances that stop one by one, beside buying evenly."""

    def at(name: str, level: str) -> list[str]:
        runs, uniform = (found.get((name, policy), []) for policy in (level, UNIFORM))
        if not runs or not uniform:
            return ["", ""]
        size, accuracy = mean(runs, "size"), mean(runs, "accuracy")
        curve = np.mean([each["accuracy"] for each in uniform], axis=0)
        gained = 100 * (accuracy - float(np.interp(size, uniform[0]["sizes"], curve)))
        return [f"{accuracy:.3f} at {size:.1f}", f"{gained:+.1f}"]

    rows = [[name, *at(name, "0.95"), *at(name, "0.99")] for name in sets_of(found)]
    return table(["set", "until > .95", "gained", "until > .99", "gained"], rows)


def audit_lines(found: Chosen) -> list[str]:
    """Write the results of audits."""
    names = ("accuracy", "level", "error", "covers", "wrong_and_sure")
    means = [
        {"set": name, **{key: 100 * mean(runs, key) for key in names}}
        for (name, _), runs in found.items()
    ]
    return listing(means, {
        "set": "{set}",
        "accuracy": "{accuracy:.1f}",
        "level minus accuracy": lambda m: f"{m['level'] - m['accuracy']:+.1f}",
        "mean error of the audit": "{error:.1f}",
        "intervals that hold the accuracy": "{covers:.0f} %",
        "wrong labels in the surer half": "{wrong_and_sure:.0f} %",
    })  # fmt: skip


def screening_lines(found: Chosen) -> Iterator[str]:
    """Yield the tables of screening."""
    counts = ("flagged", "flagged_below", "flagged_worst", "worst", "below")

    def shares(kept: str) -> Record:
        sets = [runs for (_, k), runs in found.items() if k == kept]
        n = {name: sum(r[name] for runs in sets for r in runs) for name in counts}
        flagged, covers = max(n["flagged"], 1), [mean(runs, "covers") for runs in sets]
        return {
            "kept": kept, "model": np.mean([mean(runs, "by_model") for runs in sets]),
            "majority": np.mean([mean(runs, "by_majority") for runs in sets]),
            "below": 100 * n["flagged_below"] / flagged,
            "found_below": 100 * n["flagged_below"] / max(n["below"], 1),
            "worst": 100 * n["flagged_worst"] / flagged,
            "found_worst": 100 * n["flagged_worst"] / max(n["worst"], 1),
            "covers": np.mean(covers), "low": min(covers), "high": max(covers),
        }  # fmt: skip

    known = {kept for _, kept in found}
    yield from listing([shares(kept) for kept in ("5", "10", "20", "all") if kept in known], [
        ("annotations", "{kept}"),
        ("worst tenth found", "{model:.2f}"),
        ("by agreement with the majority", "{majority:.2f}"),
        ("flagged: below the median", "{below:.0f} %"),
        ("recall of these", "{found_below:.0f} %"),
        ("flagged: in the worst tenth", "{worst:.0f} %"),
        ("recall of these", "{found_worst:.0f} %"),
        ("intervals that hold the accuracy", "{covers:.2f} ({low:.2f} to {high:.2f})"),
    ])  # fmt: skip
    whole = [r for (_, kept), runs in found.items() if kept == "all" for r in runs]
    rows = []
    for flag in whole[0]["flags"] if whole else ():
        above = 100 * np.array([v for r in whole for v in r["flags"][flag]])
        rows.append([flag, str(len(above)), "", "", ""])
        if len(above):
            rows[-1][2:] = [f"{np.median(above):+.0f}", f"{above.min():+.0f} to {above.max():+.0f}",
                            f"{100 * (above < 0).mean():.0f} %"]  # fmt: skip
    n = sum(r["n"] for r in whole)
    yield from titled(
        f"With all annotations, of {n:,} annotators; points above the crowd's median accuracy:",
        table(["flag", "annotators", "median", "range", "below the median"], rows),
    )


def few_lines(found: Chosen) -> list[str]:
    """Write what is expected of annotators with few annotations, beside the truth."""

    def shown(runs: list[Record], who: str, source: str) -> str:
        said, true = 100 * np.mean([r[who][source] for r in runs], axis=0)
        return f"{said:.0f} / {true:.0f}"

    rows = [(name, runs) for (name, _), runs in found.items()]
    rows.append(("mean", [record for _, runs in rows for record in runs]))
    parts = [(who, source) for who in ("all", "best") for source in ("profile", "plan")]
    heads = ("all: profile / true", "all: plan / true", "best tenth: profile / true",
             "best tenth: plan / true")  # fmt: skip
    return table(
        ["set", "annotators per run", *heads, "intervals that hold the accuracy"],
        [
            [name, f"{mean(runs, 'n'):.0f}", *(shown(runs, *part) for part in parts),
             f"{mean(runs, 'covers'):.2f}"]
            for name, runs in rows
        ],
    )  # fmt: skip


def teaching_lines(found: Chosen) -> Iterator[str]:
    """Yield the tables of teaching."""
    spans = ("< 3", "3 to 8", "8 to 20", "20 to 50", "> 50")
    heads = ["expected errors in the past", "annotators", "own", "common", "random", "oracle"]
    for title, few in (("Sets of up to five classes", True), ("Sets of eight or ten", False)):
        kept = [r for runs in found.values() for r in runs if (r["classes"] <= 5) == few]
        rows = []
        for group, span in enumerate(spans):
            if parts := [r["groups"][str(group)] for r in kept if str(group) in r["groups"]]:
                n = np.array([p[0] for p in parts])
                means = np.average(np.array([p[1:] for p in parts]), axis=0, weights=n)
                rows.append([span, f"{n.sum():,}", *(f"{v:.2f}" for v in means)])
        yield from titled(f"{title}:", table(heads, rows))
    shares = {
        name: [r["examples"] for r in runs if r["examples"] is not None]
        for (name, _), runs in found.items()
    }
    told = ", ".join(f"{name} {np.mean(v):.2f}" for name, v in shares.items() if v)
    yield from (f"Examples whose label is right: {told}.", "")


def speed_lines(found: Chosen) -> list[str]:
    """Seconds and memory."""
    return listing([{**each[0], "n": int(each[0]["policy"])} for each in found.values()], {
        "criterion, annotators": "{set}",
        "pairs": "{n:,}",
        "CPU seconds": "{cpu:.1f}",
        "wall seconds": "{wall:.1f}",
        "peak GB": "{gigabytes:.2f}",
        "load of the machine on cores": "{load:.0f} on {cores}",
    })  # fmt: skip


def paired(found: Chosen) -> Chosen:
    """Keep the runs that all policies of a set have, and the sets that have such runs."""
    policies = sets_of(found, 1)
    runs = {
        name: set.intersection(*({r["run"] for r in found.get((name, p), [])} for p in policies))
        for name in sets_of(found)
    }
    kept = {key: [r for r in each if r["run"] in runs[key[0]]] for key, each in found.items()}
    return {key: each for key, each in kept.items() if each}


def safeguard_lines(found: Chosen) -> Iterator[str]:
    """Yield the tables of safeguards: where they were chosen, other tables, simulations."""
    for title, sets, low in (
        ("Where they were chosen, 1.5 to 5 annotations per instance:", SEEN, 1.5),
        ("Other tables:", CHECKED, 1.5),
        ("Simulations with other seeds, 2 to 8 annotations per instance:", tuple(KINDS), 2.0),
    ):
        part = {(s, p): runs for (s, p), runs in found.items() if s in sets}
        yield from titled(title, area_table(part, low))


def runs_of(found: Chosen) -> str:
    """Say how many runs there are, and where there are fewer."""
    most = max(len(runs) for runs in found.values())
    fewer = []
    for k in (0, 1):
        for name in sets_of(found, k):
            n = max(len(runs) for key, runs in found.items() if key[k] == name)
            fewer += [f"{name}: {n}"] if n < most else []
    return f"{most} run{'s' * (most > 1)}" + (f" ({'; '.join(fewer)})" if fewer else "")


SECTIONS: dict[str, tuple[str, Callable[[Chosen], str | Iterable[str]]]] = {
    "tables": ("tables", partial(area_table, low=2.0)),
    "saved": ("tables", saved),
    "stopping": ("stopping", stops),
    "each": ("each", each_lines),
    "audit": ("audit", audit_lines),
    "confirmation": ("confirmation", partial(area_table, low=1.5)),
    "features": ("features", partial(area_table, low=0.4)),
    "features_fell": ("features", falls),
    "test": ("features", partial(area_table, low=0.4, name="test")),
    "packages": ("packages", partial(area_table, low=0.4)),
    "dense": ("dense", partial(area_table, low=0.4)),
    "hurts": ("hurts", partial(area_table, low=2.0)),
    "safeguards": ("safeguards", safeguard_lines),
    "scale": ("scale", partial(area_table, low=1.5)),
    "review": ("review", review_lines),
    "screening": ("screening", screening_lines),
    "few": ("few", few_lines),
    "teaching": ("teaching", teaching_lines),
    "speed": ("speed", speed_lines),
}
"""Value of the page -> the part whose records it shows, and its lines."""


def page(records: list[Record]) -> dict[str, Any]:
    """The sections whose parts have records: their lines, the number of runs, and the days."""
    of = {part: chosen(records, part) for part in dict.fromkeys(r["part"] for r in records)}
    of["safeguards"] = paired(of.get("safeguards", {}))
    # The default way to stop was run with all other policies.
    auto = {(s, "auto"): runs for (s, p), runs in of.get("tables", {}).items() if p == ERE}
    of["stopping"] = of.get("stopping", {}) | auto
    values: dict[str, Any] = {}
    for name, (part, lines) in SECTIONS.items():
        if of.get(part):
            own = [record for runs in of[part].values() for record in runs]
            about = {f"{name}_runs": runs_of(of[part]), f"{name}_date": days(own)}
            values |= {name: lines(of[part]), **about}
    return values
