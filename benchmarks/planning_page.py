"""The page of the benchmark of planning: tables of its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

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
from evidence.study import Record, spread, where
from evidence.study import table as table_lines

Chosen = dict[tuple[str, str], list[Record]]
"""Records by set and policy."""


def chosen(records: list[Record], part: str) -> Chosen:
    """Group the records of a part."""
    found: Chosen = {}
    for record in where(records, part=part):
        found.setdefault((record["set"], record["policy"]), []).append(record)
    return found


def areas(records: list[Record], name: str = "accuracy", low: float = 2.0) -> np.ndarray:
    """Area under each curve from a size on, by the range of sizes, times 100."""
    values = []
    for record in records:
        sizes, curve = np.array(record["sizes"]), np.array(record[name])
        kept = sizes >= low - 1e-9
        values.append(np.trapezoid(curve[kept], sizes[kept]) / np.ptp(sizes[kept]))
    return 100 * np.array(values)


def area_table(found: Chosen, low: float, name: str = "accuracy") -> Iterator[str]:
    """Yield a table of areas, policies by sets."""
    sets, policies = (list(dict.fromkeys(key[k] for key in found)) for k in (0, 1))
    rows = []
    for policy in policies:
        cells = [areas(found[s, policy], name, low) if (s, policy) in found else None for s in sets]
        known = [each.mean() for each in cells if each is not None]
        mean = f"{np.mean(known):.1f}" if len(known) == len(sets) else ""
        rows.append([policy, *("" if each is None else spread(each) for each in cells), mean])
    yield from table_lines(["policy", *sets, "mean"], rows)


def reached(records: list[Record], share: float = 0.99) -> str:
    """Size from which on the mean curve keeps a share of what all annotations give."""
    mean = np.mean([record["accuracy"] for record in records], axis=0)
    below = np.flatnonzero(mean < share * records[0]["all"] - 1e-9)
    first = below[-1] + 1 if len(below) else 0
    sizes = records[0]["sizes"]
    return f"{sizes[first]:g}" if first < len(sizes) else f"not by {sizes[-1]:g}"


def saved(found: Chosen) -> Iterator[str]:
    """Yield the table of annotations needed."""
    policies = (UNIFORM, ENTROPY, EIG, ERE)
    rows = []
    for name in dict.fromkeys(key[0] for key in found):
        table = table_of(name)[0]
        per_instance = f"{table.n_annotations / table.n_instances:.1f}"
        all_of_them = f"{100 * everything(name):.1f}"
        cells = [reached(found[name, p]) if (name, p) in found else "" for p in policies]
        needed = cells[policies.index(EIG)]
        share = (
            1 - float(needed) * table.n_instances / table.n_annotations
            if needed[:1].isdigit()
            else 0
        )
        rows.append([name, per_instance, all_of_them, *cells, f"{share:.0%}" if share else "–"])
    header = ["set", "recorded", "accuracy with all", *policies, "saved by EIG"]
    yield from table_lines(header, rows)


def stop_rows(name: str, records: list[Record]) -> list[str]:
    """Gain expected and true, where the rule stops, and how honest the level is."""
    sizes = np.array(records[0]["sizes"])
    between = (sizes > 2) & (sizes <= 6)
    step = np.diff(sizes, prepend=sizes[0])
    expected, true, size, there, last, level = [], [], [], [], [], []
    for record in records:
        accuracy, gain = np.array(record["accuracy"]), np.array(record["gain"])
        expected.append((gain * step)[between].sum())
        true.append(accuracy[between][-1] - accuracy[np.flatnonzero(between)[0] - 1])
        later = np.flatnonzero((sizes[:-1] >= 1.75) & (gain[1:] < 0.02))
        stop = later[0] if len(later) else len(sizes) - 1
        size.append(sizes[stop])
        there.append(accuracy[stop])
        last.append(accuracy[-1])
        at = int(np.argmin(abs(sizes - 5)))
        level.append(record["expected"][at] - accuracy[at])
    return [
        name, f"{100 * np.mean(expected):.1f}", f"{100 * np.mean(true):.1f}",
        f"{np.mean(size):.1f}", f"{np.mean(there):.3f} of {np.mean(last):.3f}",
        f"{100 * np.mean(level):+.1f}",
    ]  # fmt: skip


def stops(records: list[Record]) -> Iterator[str]:
    """Yield the table of stopping."""
    found = chosen(records, "stopping")
    tempered = {(s, "auto"): each for (s, p), each in chosen(records, "tables").items() if p == ERE}
    heading = ["set", "expected gain 2 to 6", "true gain", "stops at", "accuracy there, and at 8",
               "level minus accuracy at 5"]  # fmt: skip
    for policy, cells in (("auto", tempered), *((name, found) for name in STOPPING)):
        rows = [stop_rows(s, each) for (s, p), each in cells.items() if p == policy]
        if rows:
            yield f"**{policy}**"
            yield ""
            yield from table_lines(heading, rows)


def review_lines(records: list[Record]) -> Iterator[str]:
    """Yield the tables of review queues: means over sets of the means over runs."""
    found = chosen(records, "review")
    for by in ("label", "annotation"):
        rows = []
        keys = [key for each in found.values() for key in each[0]["rankings"]]
        names = dict.fromkeys(key.split("|")[0] for key in keys)
        for ranking in names:
            cells = [ranking]
            for kept in ("all", "two"):
                values = [
                    np.mean([record["rankings"][f"{ranking}|{by}"] for record in each], axis=0)
                    for (_, k), each in found.items()
                    if k == kept
                ]
                cells.append(" / ".join(f"{v:.2f}" for v in np.mean(values, axis=0)))
            rows.append(cells)
        yield f"Wrong {by}s: AP / precision at 50 / at 100."
        yield ""
        yield from table_lines(["ranking", "all annotations", "two per instance"], rows)


def each_lines(records: list[Record]) -> Iterator[str]:
    """Yield the table of instances that stop one by one, beside buying evenly."""
    found = chosen(records, "each")
    rows = []
    for name in dict.fromkeys(key[0] for key in found):
        row = [name]
        for level in ("0.95", "0.99"):
            runs = found.get((name, level), [])
            uniform = found.get((name, UNIFORM), [])
            if not runs or not uniform:
                row += ["", ""]
                continue
            size = float(np.mean([each["size"] for each in runs]))
            accuracy = float(np.mean([each["accuracy"] for each in runs]))
            mean = np.mean([each["accuracy"] for each in uniform], axis=0)
            gained = 100 * (accuracy - float(np.interp(size, uniform[0]["sizes"], mean)))
            row += [f"{accuracy:.3f} at {size:.1f}", f"{gained:+.1f}"]
        rows.append(row)
    heading = ["set", "until > .95", "gained", "until > .99", "gained"]
    yield from table_lines(heading, rows)


def audit_lines(records: list[Record]) -> Iterator[str]:
    """Yield the table of audits."""
    rows = []
    for (name, _), runs in chosen(records, "audit").items():
        mean = {k: float(np.mean([r[k] for r in runs])) for k in runs[0] if k in AUDITED}
        rows.append([
            name, f"{100 * mean['accuracy']:.1f}",
            f"{100 * (mean['level'] - mean['accuracy']):+.1f}",
            f"{100 * mean['error']:.1f}", f"{100 * mean['covers']:.0f} %",
            f"{100 * mean['wrong_and_sure']:.0f} %",
        ])  # fmt: skip
    heading = ["set", "accuracy", "level minus accuracy", "mean error of the audit",
               "intervals that hold the accuracy", "wrong labels in the surer half"]  # fmt: skip
    yield from table_lines(heading, rows)


AUDITED = ("accuracy", "level", "error", "covers", "wrong_and_sure")


def screening_lines(records: list[Record]) -> Iterator[str]:
    """Yield the tables of screening."""
    found = chosen(records, "screening")
    rows = []
    for kept in ("5", "10", "20", "all"):
        sets = {name: runs for (name, k), runs in found.items() if k == kept}
        if not sets:
            continue
        every = [record for runs in sets.values() for record in runs]
        total = {k: sum(r[k] for r in every) for k in ("flagged", "flagged_below", "flagged_worst",
                                                       "worst", "below")}  # fmt: skip
        mean = {
            k: np.mean([np.mean([r[k] for r in runs]) for runs in sets.values()])
            for k in ("by_model", "by_majority", "covers")
        }
        low, high = (
            f(np.mean([r["covers"] for r in runs]) for runs in sets.values()) for f in (min, max)
        )
        flagged = max(total["flagged"], 1)
        rows.append([
            kept, f"{mean['by_model']:.2f}", f"{mean['by_majority']:.2f}",
            f"{100 * total['flagged_below'] / flagged:.0f} %",
            f"{100 * total['flagged_below'] / max(total['below'], 1):.0f} %",
            f"{100 * total['flagged_worst'] / flagged:.0f} %",
            f"{100 * total['flagged_worst'] / max(total['worst'], 1):.0f} %",
            f"{mean['covers']:.2f} ({low:.2f} to {high:.2f})",
        ])  # fmt: skip
    yield from table_lines(
        ["annotations", "worst tenth found", "by agreement with the majority",
         "flagged: below the median", "recall of these", "flagged: in the worst tenth",
         "recall of these", "intervals that hold the accuracy"],
        rows,
    )  # fmt: skip
    rows = []
    whole = [r for (_, kept), runs in found.items() if kept == "all" for r in runs]
    for flag in whole[0]["flags"] if whole else ():
        above = np.array([v for r in whole for v in r["flags"][flag]])
        if len(above):
            least, most = above.min(), above.max()
            rows.append([
                flag, f"{len(above)}", f"{100 * np.median(above):+.0f}",
                f"{100 * least:+.0f} to {100 * most:+.0f}", f"{100 * (above < 0).mean():.0f} %",
            ])  # fmt: skip
        else:
            rows.append([flag, "0", "", "", ""])
    n = sum(r["n"] for r in whole)
    yield f"With all annotations, of {n:,} annotators; points above the crowd's median accuracy:"
    yield ""
    yield from table_lines(["flag", "annotators", "median", "range", "below the median"], rows)


def teaching_lines(records: list[Record]) -> Iterator[str]:
    """Yield the tables of teaching."""
    found = chosen(records, "teaching")
    names = ("own", "common", "random", "oracle")
    spans = ("< 3", "3 to 8", "8 to 20", "20 to 50", "> 50")
    for title, few in (("Sets of up to five classes", True), ("Sets of eight or ten", False)):
        kept = [r for runs in found.values() for r in runs if (r["classes"] <= 5) == few]
        rows = []
        for group, span in enumerate(spans):
            parts = [r["groups"][str(group)] for r in kept if str(group) in r["groups"]]
            if parts:
                n = np.array([p[0] for p in parts])
                means = np.average(np.array([p[1:] for p in parts]), axis=0, weights=n)
                rows.append([span, f"{n.sum():,}", *(f"{v:.2f}" for v in means)])
        yield f"{title}:"
        yield ""
        yield from table_lines(["expected errors in the past", "annotators", *names], rows)
    shares = {
        name: [r["examples"] for r in runs if r["examples"] is not None]
        for (name, _), runs in found.items()
    }
    listed = ", ".join(f"{name} {np.mean(v):.2f}" for name, v in shares.items() if v)
    yield f"Examples whose label is right: {listed}."
    yield ""


def speed_lines(records: list[Record]) -> Iterator[str]:
    """Yield the table of speed."""
    rows = [
        [key[0], f"{int(key[1]):,}", f"{each[0]['cpu']:.1f}", f"{each[0]['wall']:.1f}",
         f"{each[0]['gigabytes']:.2f}", f"{each[0]['load']:.0f} on {each[0]['cores']}"]
        for key, each in chosen(records, "speed").items()
    ]  # fmt: skip
    yield from table_lines(
        ["criterion, annotators", "pairs", "CPU seconds", "wall seconds", "peak GB",
         "load of the machine on cores"],
        rows,
    )  # fmt: skip


def paired(found: Chosen) -> Chosen:
    """Keep the runs that all policies of a set have, and the sets that have such runs."""
    policies = {policy for _, policy in found}
    runs: dict[str, set[int]] = {}
    for name in {s for s, _ in found}:
        each = [{r["run"] for r in found.get((name, policy), [])} for policy in policies]
        runs[name] = set.intersection(*each)
    kept = {key: [r for r in each if r["run"] in runs[key[0]]] for key, each in found.items()}
    return {key: each for key, each in kept.items() if each}


def safeguard_lines(records: list[Record]) -> Iterator[str]:
    """Yield the tables of safeguards: where they were chosen, other tables, simulations."""
    found = paired(chosen(records, "safeguards"))
    for title, sets, low in (
        ("Where they were chosen, 1.5 to 5 annotations per instance:", SEEN, 1.5),
        ("Other tables:", CHECKED, 1.5),
        ("Simulations with other seeds, 2 to 8 annotations per instance:", tuple(KINDS), 2.0),
    ):
        part = {(s, p): runs for (s, p), runs in found.items() if s in sets}
        yield title
        yield ""
        yield from area_table(part, low)


def runs_of(found: Chosen) -> str:
    """Say how many runs there are, and where there are fewer."""
    most = max(len(runs) for runs in found.values())
    fewer = []
    for k in (0, 1):
        for name in dict.fromkeys(key[k] for key in found):
            n = max(len(runs) for key, runs in found.items() if key[k] == name)
            fewer += [f"{name}: {n}"] if n < most else []
    return f"{most} run{'s' * (most > 1)}" + (f" ({'; '.join(fewer)})" if fewer else "")


def page(records: list[Record]) -> dict[str, Any]:
    """The sections whose parts have records: their lines, and how many runs there are."""
    of = {part: chosen(records, part) for part in dict.fromkeys(r["part"] for r in records)}
    of["safeguards"] = paired(of.get("safeguards", {}))
    sections = {
        "tables": ("tables", lambda found: area_table(found, 2.0)),
        "saved": ("tables", saved),
        "stopping": ("stopping", lambda found: stops(records)),
        "each": ("each", lambda found: each_lines(records)),
        "audit": ("audit", lambda found: audit_lines(records)),
        "confirmation": ("confirmation", lambda found: area_table(found, 1.5)),
        "features": ("features", lambda found: area_table(found, 0.4)),
        "test": ("features", lambda found: area_table(found, 0.4, "test")),
        "packages": ("packages", lambda found: area_table(found, 0.4)),
        "dense": ("dense", lambda found: area_table(found, 0.4)),
        "hurts": ("hurts", lambda found: area_table(found, 2.0)),
        "safeguards": ("safeguards", lambda found: safeguard_lines(records)),
        "scale": ("scale", lambda found: area_table(found, 1.5)),
        "review": ("review", lambda found: review_lines(records)),
        "screening": ("screening", lambda found: screening_lines(records)),
        "teaching": ("teaching", lambda found: teaching_lines(records)),
        "speed": ("speed", lambda found: speed_lines(records)),
    }
    values: dict[str, Any] = {}
    for name, (part, lines) in sections.items():
        if of.get(part):
            values |= {name: lines(of[part]), f"{name}_runs": runs_of(of[part])}
    return values
