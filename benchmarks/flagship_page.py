"""The page of `flagship.py`: tables from its records, and from figures that are recorded elsewhere.

Nothing is measured here.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flagship_harder import (
    MANY,
    UNSURE,
    abstentions_part,
    few_labels_part,
    many_classes_part,
)
from flagship_robustness import robust, robustness_part, seeds_told
from pages import table_lines
from peers import PEERS

import manyhands
from evidence import load_rows
from evidence.records import LAST
from evidence.store import latest_records, open_packed

ROOT = Path(__file__).parents[1]
POSTERIOR = "posterior of "
"""Before the name of a set whose training instances a posterior is measured on."""

STACK, GOLD, REGRESSION = "stack", "stack, gold labels", "majority vote + LR"
SELECT = "select()"
SHARED = "majority vote, ties shared"
SETS = {
    "labelme": "LabelMe",
    "music": "Music",
    "reports": "Reports",
    "product": "Product",
    "colposcopy": "Colposcopy",
    "sentiment": "Sentiment",
    "cifar10n": "CIFAR-10N",
    "cifar10h, 2": "CIFAR-10H, 2 per image",
}
CONFIRMATION = {
    "hotel": "Hotel",
    "usps-Syn": "USPS-Syn",
    "gsad-Syn": "GSAD-Syn",
    "cifar10h": "CIFAR-10H, whole",
}
STUDY = {
    "labelme": (0.9234, 0.939),
    "music": (0.7644, 0.786),
    "reports": (0.5905, 0.576),
    "product": (0.9525, 0.960),
    "colposcopy": (0.7701, 0.770),
    "sentiment": (0.6845, 0.664),
    "cifar10n": (0.6475, 0.64),
    "cifar10h, 2": (0.6300, 0.61),
}
"""The study's own figures: accuracy of its recipe, and of its best classifier trained on gold.

Typed from its report, from which the classifier was built; no records of its runs are kept.
"""

LOOKS = {"labelme": 275, "music": 210, "reports": 80, "colposcopy": 70}
"""About how many configurations the study, with an earlier one, saw the test accuracy of: from its
report, too. Its constants were chosen on these sets."""

FEWER_LOOKS = ("sentiment", "product", "cifar10n", "cifar10h, 2")
"""Sets whose test parts the study saw less often; from Sentiment's it formed the rule for votes."""

WANTED = {"labelme": 0.92, "music": 0.75}
"""Test accuracy that the classifier was to reach."""

EM = "Cross-fitted EM"
FIELDS = {
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
}
BALANCED = ', decision="balanced"'
NETWORK_ON_GOLD, OWN = "trained on gold (ceiling)", "Crowd-calibrated stacking"
"""Rows of the table of all classifiers that are no rivals."""

CEILING = "network on gold labels (ceiling)"
NO_RIVALS = (STACK, GOLD, "select()", CEILING)
"""Methods of the grand table that are no others."""

TOO_COSTLY = {
    "Personal (CPC)": "Personal fits a classifier per annotator.",
    "CrowdInG on CIFAR-10H": "CrowdInG on CIFAR-10H, with its 2,567 annotators, was stopped after "
    "more than half an hour.",
}
"""Why some cells were not run."""

NETWORKS = ("Crowd Layer", "AggNet", "Max-MIG", "TraceReg", "CoNAL")
SYSTEMS = ("ICED", "NeuCrowd", "CrowdInG", "DASC")
PLAIN = (REGRESSION, *NETWORKS, *SYSTEMS, EM)
"""Other methods of the records, with their defaults."""

Found = list[dict[str, Any]]


# -- reading --------------------------------------------------------------------------------------


def cells(
    found: Found, name: str, method: str, change: str = "", nested: bool = False
) -> list[dict[str, Any]]:
    """Records of one method on one set."""
    return [
        each
        for each in found
        if (each["set"], each["method"], each["change"]) == (name, method, change)
        and (each["fold"] >= 0) == nested
    ]


def mean(records: Iterable[dict[str, Any]], field: str = "accuracy") -> float:
    """Mean of a field; NaN without records."""
    values = [each[field] for each in records]
    return float(np.mean(values)) if values else float("nan")


def percent(records: Sequence[dict[str, Any]], field: str = "accuracy") -> str:
    """Mean ± sd in percent, and the number of seeds if there are several."""
    values = [100 * each[field] for each in records]
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f} ({len(values)})"


def standard_error(records: Sequence[dict[str, Any]], field: str = "accuracy") -> float:
    """Binomial standard error of the test part, at the mean accuracy or within every class.

    The oldest records, of sets with two classes, do not hold the latter: the former stands in.
    """
    within = [each for each in records if "balanced_error" in each]
    if field == "balanced_accuracy" and within:
        return mean(within, "balanced_error")
    accuracy = mean(records)
    return float(np.sqrt(accuracy * (1 - accuracy) / records[0]["n_test"]))


@cache
def published() -> dict[str, dict[str, tuple[float, float]]]:
    """Set -> row -> accuracy and macro F1, from the table of all classifiers."""
    rows = [row for row in load_rows(ROOT / "experiments") if row.table == "crowd_models/table"]
    records = open_packed(ROOT / "results", "crowd_models").records()
    counted = latest_records(rows, records)
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        last = [run.metrics[LAST] for run in counted[row.id].values() if LAST in run.metrics]
        values = [(each["accuracy"], each["macro_f1"]) for each in last if "accuracy" in each]
        if values:
            accuracy, f1 = np.mean(values, axis=0).tolist()
            table.setdefault(str(row.column).lower(), {})[row.label] = (accuracy, f1)
    return table


@cache
def present() -> dict[str, dict[str, float]]:
    """Set -> method -> accuracy with the present defaults, from the page of the defaults."""
    table: dict[str, dict[str, float]] = {}
    names: list[str] = []
    for line in (ROOT / "docs" / "results" / "suiting_defaults.md").read_text().splitlines():
        row = [each.strip() for each in line.strip("|").split("|")]
        if row[:2] == ["method", "defaults"]:
            names = row[2:]
        elif len(row) > 2 and row[1] == "present":
            for name, value in zip(names, row[2:], strict=True):
                table.setdefault(name, {})[row[0]] = float(value.split()[0]) / 100
    return table


@cache
def grand() -> dict[str, dict[str, Found]]:
    """Set -> method -> records with its defaults, from the grand table."""
    table: dict[str, dict[str, Found]] = {}
    for line in (ROOT / "results" / "benchmarks" / "grand_table.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "accuracy" in record:
            of_set = table.setdefault(record["set"], {})
            of_set.setdefault(record["method"], []).append(record)
    return table


def repeated_otherwise(found: Found) -> set[str]:
    """Methods of which a run on a set as it is has another accuracy in the grand table."""
    now = {
        (name, method, each["seed"]): each["accuracy"]
        for name, methods in grand().items()
        for method, own in methods.items()
        for each in own
    }
    return {
        each["method"]
        for each in found
        if not each["change"] and each["fold"] < 0
        if each["accuracy"] != now.get(key_of(each), each["accuracy"])
    }


def key_of(each: dict[str, Any]) -> tuple[str, str, int]:
    """A record's cell: set, method and seed."""
    return each["set"], each["method"], each["seed"]


def of_others(found: Found, name: str) -> dict[str, Found]:
    """Method -> records with its defaults: those of the grand table, and of this page's seeds."""
    table = {method: list(own) for method, own in grand().get(name, {}).items()}
    changed = repeated_otherwise(found)
    for method in dict.fromkeys((*PLAIN, *table)):
        own = table.setdefault(method, [])
        seeds = {each["seed"] for each in own}
        if method not in changed:
            own += [each for each in cells(found, name, method) if each["seed"] not in seeds]
    return {m: own for m, own in table.items() if own and m not in NO_RIVALS}


def network_on_gold(name: str) -> float:
    """Accuracy of a network on gold labels: with a protocol, or else of the grand table."""
    known = published().get(name, {})
    if NETWORK_ON_GOLD in known:
        return known[NETWORK_ON_GOLD][0]
    return mean(grand().get(name, {}).get(CEILING, []))


def by_default(found: Found, name: str) -> dict[str, float]:
    """Accuracy of others by default: of three or more seeds, or as the page of the defaults has it.

    That page is older, and has fewer sets; a single seed is taken where it has none.
    """
    ours = {
        m: own for m, own in of_others(found, name).items() if m not in (REGRESSION, EM, *PEERS)
    }
    single = {m: mean(own) for m, own in ours.items()}
    several = {m: mean(own) for m, own in ours.items() if len(own) > 2}
    return {**single, **present().get(name, {}), **several}


def rivals(found: Found, name: str) -> dict[str, float]:
    """All known accuracies of others on a set."""
    known = {
        f"{row} (its protocol)": values[0]
        for row, values in published().get(name, {}).items()
        if row not in (NETWORK_ON_GOLD, OWN)
    }
    others = {m: mean(own) for m, own in of_others(found, name).items()}
    defaults = {**others, **by_default(found, name)}
    return known | {f"{row} (defaults)": value for row, value in defaults.items()}


# -- public sets ----------------------------------------------------------------------------------


class Standing(NamedTuple):
    """The stack beside the best other: its lead, and the standard error of the test part."""

    best: str
    top: float
    lead: float
    error: float
    shown: str = ""

    @property
    def level(self) -> bool:
        """Whether the lead, or the lack of one, is within a standard error."""
        return abs(self.lead) <= self.error

    @property
    def short(self) -> bool:
        """Whether the stack is below by more than a standard error, but not `behind`."""
        return self.lead < 0 and not (self.level or self.behind)

    @property
    def clear(self) -> bool:
        """Whether the lead is outside two standard errors."""
        return self.lead > 2 * self.error

    @property
    def behind(self) -> bool:
        """Whether the stack is more than a point below, and outside two standard errors."""
        return self.lead < min(-0.01, -2 * self.error)

    @property
    def verdict(self) -> str:
        """The lead in words."""
        if self.level:
            return "level"
        if self.lead >= 0:
            return "ahead, outside two standard errors" if self.clear else "ahead"
        if self.behind:
            return "**behind**"
        return "within a point" if self.lead >= -0.01 else "within two standard errors"


def standing(own: Found, known: dict[str, float], field: str = "accuracy") -> Standing:
    """Compare the stack's records on a set with the figures of others."""
    best = max(known, key=lambda method: known[method])
    lead = mean(own, field) - known[best]
    return Standing(best, known[best], lead, standard_error(own, field))


def in_accuracy(found: Found, name: str) -> Standing:
    """How the stack stands in accuracy, beside all known figures."""
    return standing(cells(found, name, STACK), rivals(found, name))


def in_balanced_accuracy(found: Found, name: str) -> tuple[Standing, Standing]:
    """How the stack stands beside other defaults, as it comes and with ``decision="balanced"``."""
    own, field = cells(found, name, STACK), "balanced_accuracy"
    others = of_others(found, name)
    known = {m: mean(each, field) for m, each in others.items()}
    weighted = [each["weighted"] for each in own]
    plain, balanced = standing(own, known, field), standing(weighted, known, field)
    shown = f"{plain.best}: {100 * plain.top:.1f} ({seeds(others[plain.best])})"
    return plain._replace(shown=shown), balanced._replace(shown=shown)


def in_confirmation(found: Found, name: str, field: str = "accuracy") -> Standing:
    """How the stack stands on a set of the confirmation.

    A seed draws a simulated set anew: there, each other is compared on its own seeds.
    """
    own, others = cells(found, name, STACK), of_others(found, name)

    def lead(records: Found) -> float:
        drawn = {each["seed"] for each in records} if name.endswith("-Syn") else ()
        beside = [each for each in own if each["seed"] in drawn] if drawn else own
        return mean(beside, field) - mean(records, field)

    best = min(others, key=lambda method: lead(others[method]))
    top, error = mean(others[best], field), standard_error(own, field)
    shown = f"{best}: {100 * top:.1f} ({seeds(others[best])})"
    return Standing(best, top, lead(others[best]), error, shown)


def in_macro_f1(found: Found, name: str) -> tuple[str, float]:
    """The best macro F1 of others, by default or with a protocol, and whose it is."""
    f1 = {
        f"{row} (its protocol)": values[1]
        for row, values in published().get(name, {}).items()
        if row not in (NETWORK_ON_GOLD, OWN)
    }
    for method, own in of_others(found, name).items():
        f1[f"{method} ({seeds(own)})"] = mean(own, "macro_f1")
    best = max(f1, key=lambda row: f1[row])
    return best, f1[best]


def seeds(records: Found) -> str:
    """How many seeds there are, in words."""
    return "1 seed" if len(records) == 1 else f"{len(records)} seeds"


def public_part(found: Found, names: list[str]) -> list[str]:
    """The stack on the public sets."""
    rows, beside = [], []
    for name in names:
        own = cells(found, name, STACK)
        place = in_accuracy(found, name)
        rows.append(
            [
                SETS[name],
                percent(own),
                f"{100 * place.error:.1f}",
                percent(own, "balanced_accuracy"),
                f"{mean(own, 'log_loss'):.2f}",
                f"{mean(own, 'seconds'):.1f}",
                percent(cells(found, name, REGRESSION)),
                f"{place.best}: {100 * place.top:.1f}",
                f"{100 * place.lead:+.1f}",
                place.verdict,
            ]
        )
        network = network_on_gold(name)
        beside.append(
            [
                SETS[name],
                f"{100 * mean(own):.1f}",
                f"{100 * STUDY[name][0]:.1f}",
                percent(cells(found, name, GOLD)),
                "–" if np.isnan(network) else f"{100 * network:.1f}",
                f"{100 * STUDY[name][1]:.1f}",
            ]
        )
    heading = ["set", "stack", "± test part", "balanced accuracy", "log loss", "CPU seconds"]
    heading += [REGRESSION, "best other", "lead", "verdict"]
    ceiling = ["set", "stack", "study", "stack on gold", "network on gold", "gold, study"]
    return [
        *table_lines(heading, rows),
        'Beside what gold labels give. "Stack on gold": the same classifier, fitted to the gold '
        "labels of the training part as one annotator who is always right (seed 1; it does not "
        'know that he is). "Network on gold": from the table of all classifiers, with its '
        "protocol; of CIFAR-10, from the [grand table](grand_table.md), with the defaults. "
        "The columns of the study are its own figures, which are not measured again here. "
        '"Study": its recipe, from which the classifier was built. "Gold, study": the best '
        "classifier on gold labels that it had.",
        "",
        *table_lines(ceiling, beside),
    ]


def everybody(found: Found, names: list[str]) -> list[str]:
    """Every classifier of the library on the sets with records."""
    shown = names
    rows = [[f"**{STACK}**", *(f"**{100 * mean(cells(found, n, STACK)):.1f}**" for n in shown)]]
    kinds: list[tuple[str, dict[str, dict[str, float]]]] = [
        ("defaults", {name: by_default(found, name) for name in shown}),
        (
            "protocol",
            {
                name: {row: v[0] for row, v in published().get(name, {}).items() if row != OWN}
                for name in shown
            },
        ),
    ]
    for kind, table in kinds:
        methods = dict.fromkeys(row for name in shown for row in table.get(name, {}))

        def height(method: str, table: dict[str, dict[str, float]] = table) -> float:
            own = [n for n in shown if method in table.get(n, {})]
            return float(np.mean([table[n][method] - mean(cells(found, n, STACK)) for n in own]))

        for method in sorted(methods, key=height, reverse=True):
            values = [table.get(name, {}).get(method, float("nan")) for name in shown]
            rows.append(
                [
                    f"{method}, {kind}",
                    *("–" if np.isnan(each) else f"{100 * each:.1f}" for each in values),
                ]
            )
    everywhere = dict.fromkeys(m for n in shown for m in by_default(found, n))
    missing = [
        f"{m} on {SETS[n]}" for m in everywhere for n in shown if m not in by_default(found, n)
    ]
    reasons = [why for what, why in TOO_COSTLY.items() if any(m.startswith(what) for m in missing)]
    words = [f"Not run with their defaults: {' '.join([listed(missing) + '.', *reasons])}", ""]
    return table_lines(["", *(SETS[name] for name in shown)], rows) + (words if missing else [])


def balanced_part(found: Found, names: list[str]) -> list[str]:
    """Balanced accuracy beside others, and macro F1 beside all rows of the table."""
    compared = [m for m in PLAIN if any(cells(found, name, m) for name in names)]
    rows, beside = [], []
    for name in names:
        own = cells(found, name, STACK)
        plain, weighted = in_balanced_accuracy(found, name)
        rows.append(
            [
                SETS[name],
                percent(own, "balanced_accuracy"),
                percent([each["weighted"] for each in own], "balanced_accuracy"),
                plain.shown,
                *(f"{100 * each.error:.1f}" for each in (plain, weighted)),
                *(f"{100 * each.lead:+.1f}" for each in (plain, weighted)),
                *(each.verdict for each in (plain, weighted)),
            ]
        )
        best, f1 = in_macro_f1(found, name)
        beside.append(
            [
                SETS[name],
                *(percent(cells(found, name, m), "balanced_accuracy") for m in compared),
                percent(own, "macro_f1"),
                f"{best}: {100 * f1:.1f}",
            ]
        )
    pairs = [
        f"{each}{way}" for each in ("± test part", "lead", "verdict") for way in ("", BALANCED)
    ]
    others = ["set", *compared, "macro F1 of the stack", "best macro F1 of others"]
    return [
        *table_lines(["set", STACK, STACK + BALANCED, "best other", *pairs], rows),
        "Balanced accuracy of others in the records of this page (the [grand table]"
        "(grand_table.md) has that of all), and macro F1. The best macro F1 is looked for among "
        "these, the grand table and [Every classifier on six sets](crowd_models.md), whose "
        "records, `crowd_models.jsonl`, hold macro F1 but no balanced accuracy:",
        "",
        *table_lines(others, beside),
    ]


# -- confirmation, ablation, robustness, tasks, additions -----------------------------------------


def confirmation_part(found: Found) -> list[str]:
    """Sets that played no part in the design."""
    compared = (STACK, REGRESSION, "Crowd Layer", "AggNet", "Max-MIG", "CoNAL", EM)
    lines = []
    for field, title in (("accuracy", "Accuracy"), ("balanced_accuracy", "Balanced accuracy")):
        rows = []
        for name, shown in CONFIRMATION.items():
            if own := cells(found, name, STACK):
                place = in_confirmation(found, name, field)
                ceiling = percent(grand().get(name, {}).get(CEILING, []), field)
                row = [shown, *(percent(cells(found, name, m), field) for m in compared)]
                error, lead = f"{100 * standard_error(own, field):.1f}", f"{100 * place.lead:+.1f}"
                rows.append([*row, ceiling, error, place.shown, lead, place.verdict])
        if rows:
            more = ("network on gold", "± test part", "best other", "lead", "verdict")
            lines += table_lines([title, *compared, *more], rows)
    rows = []
    for name, shown in CONFIRMATION.items():
        seconds = [mean(cells(found, name, m), "seconds") for m in compared]
        if cells(found, name, STACK):
            rows.append([shown, *("–" if np.isnan(each) else f"{each:.1f}" for each in seconds)])
    return lines + (table_lines(["CPU seconds", *compared], rows) if rows else [])


def first_seeds(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of the seeds 1 to 3."""
    return [each for each in records if each["seed"] in (1, 2, 3)]


def ablated(found: Found) -> list[str]:
    """Sets on which the stack has a nested figure."""
    return [name for name in SETS if not np.isnan(nested(cells(found, name, STACK, nested=True)))]


def nested(records: list[dict[str, Any]]) -> float:
    """Accuracy over the quarters that are there, each weighed by its size; NaN unless all are."""
    if len({each["fold"] for each in records}) < 4:
        return float("nan")
    sizes = [each["n_test"] for each in records]
    return float(np.average([each["accuracy"] for each in records], weights=sizes))


def fewest_seeds(found: Found) -> int:
    """Seeds on the test part that every change of the ablation has on every set."""
    changes = {each["method"] for each in found if each["fold"] >= 0}
    return min(len(cells(found, name, method)) for name in ablated(found) for method in changes)


def steps(found: Found) -> list[str]:
    """What one test instance is in points, by set."""
    sizes = {SETS[name]: cells(found, name, STACK)[0]["n_test"] for name in ablated(found)}
    return [f"{100 / size:.2g} ({name})" for name, size in sizes.items()]


def ablation_part(found: Found) -> list[str]:
    """Parameters of the recipe."""
    names = ablated(found)
    methods = dict.fromkeys(
        each["method"] for each in found if each["fold"] >= 0 and each["method"] != STACK
    )
    rows = []
    for method in (STACK, *methods):
        row = [f"**{method}**" if method == STACK else method]
        for name in names:
            test = cells(found, name, method)
            left_out = nested(cells(found, name, method, nested=True))
            row += [
                percent(test).split(" (")[0],
                "–" if np.isnan(left_out) else f"{100 * left_out:.1f}",
            ]
        rows.append(row)
    heading = ["", *(f"{SETS[n]}, {kind}" for n in names for kind in ("test", "nested"))]
    return table_lines(heading, rows)


def posterior_part(found: Found) -> list[str]:
    """Accuracy, log loss and calibration error of posteriors of the training instances."""
    simulated = [POSTERIOR + name for name in (*MANY, *UNSURE)]
    own = [e for e in found if e["set"].startswith(POSTERIOR) and e["set"] not in simulated]
    methods = list(dict.fromkeys(each["method"] for each in own))
    rows = []
    for name in dict.fromkeys(each["set"] for each in own):
        of = {each["method"]: each for each in own if each["set"] == name}
        rows.append([SETS.get(name.removeprefix(POSTERIOR), "Hotel")])
        for method in methods:
            accuracy, error = (
                f"{100 * of[method][field]:.1f}" for field in ("accuracy", "calibration_error")
            )
            rows[-1].append(f"{accuracy} / {of[method]['log_loss']:.2f} / {error}")
    return table_lines(["accuracy / log loss / calibration error", *methods], rows) if rows else []


def tasks(found: Found) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Task -> system -> records, of the tasks on which cross-fitted EM was developed."""
    names = [e["set"] for e in found if e["method"] == EM and e["set"] not in SETS | CONFIRMATION]
    each = {}
    for name in dict.fromkeys(names):
        own, em = cells(found, name, STACK), cells(found, name, EM)
        each[name] = {"balanced stack": [e["weighted"] for e in own], STACK: own, EM: em}
    return each


def tasks_part(found: Found) -> list[str]:
    """The tasks on which cross-fitted EM was developed."""
    lines = []
    for field, title in FIELDS.items():
        rows = []
        for name, systems in tasks(found).items():
            lead = mean(systems["balanced stack"], field) - mean(systems[EM], field)
            values = [percent(own, field).split(" (")[0] for own in systems.values()]
            rows.append([name, *values, f"{100 * lead:+.1f}"])
        if rows:
            lines += table_lines([title, "balanced stack", STACK, EM, "balanced less EM"], rows)
    return lines


ADDED = (
    "DASC around the stack",
    "a kernel on NeuCrowd's embedding",
    "a kernel on a triplet embedding",
    "AggNet as a member, out of fold",
    "CoNAL as a member, out of fold",
    "Max-MIG as a member, out of fold",
)
COSTS = "crowd-calibrated-stacking-by-number-of-instances"
ADDED_TO = ("labelme", "music", "reports", "product", "colposcopy")
WEIGHTED = 'class-weighted decision (`decision="balanced"`)'


def additions_part(found: Found, names: Sequence[str]) -> list[str]:
    """Strengths of other methods, added to the stack."""
    rows = []
    for method in (STACK, "weighted", *ADDED):
        row = [f"**{STACK}**" if method == STACK else method.replace("weighted", WEIGHTED)]
        for name in names:
            own = first_seeds(cells(found, name, STACK))
            if method == "weighted":
                used = [{**e["weighted"], "seconds": e["seconds"]} for e in own]
            else:
                used = first_seeds(cells(found, name, method))
            row += [percent(used), percent(used, "balanced_accuracy")]
            row.append(f"{mean(used, 'seconds'):.0f}" if used else "–")
        rows.append(row)
    fields = ("accuracy", "balanced", "CPU seconds")
    return table_lines(["", *(f"{SETS[n]}, {field}" for n in names for field in fields)], rows)


# -- the page -------------------------------------------------------------------------------------


def conclusions(found: Found, names: list[str]) -> list[str]:
    """What a reader should take home; every word that can turn out otherwise is computed."""
    places = {SETS[name]: in_accuracy(found, name) for name in names}
    clear = [name for name, place in places.items() if place.clear]
    reached = [
        f"{SETS[name]} {100 * mean(cells(found, name, STACK)):.1f} (wanted: {100 * wanted:.0f}, "
        f"{'reached' if mean(cells(found, name, STACK)) >= wanted else '**not reached**'})"
        for name, wanted in WANTED.items()
    ]
    lines = [
        f"- **Accuracy on {len(names)} public sets,** beside all other recorded classifiers: "
        f"the stack is {told(places)}. Level means within one standard error of the test part. "
        f"Its lead is outside two on {listed(clear)}. The best of many is partly "
        f"luck. {', '.join(reached)}.",
    ]
    lines += [what_balances(found, names), what_f1_says(found, names)]
    confirmed = [
        f"{shown} {100 * place.lead:+.1f} ({place.verdict}; {place.shown})"
        for name, shown in CONFIRMATION.items()
        if cells(found, name, STACK) and (place := in_confirmation(found, name))
    ]
    if confirmed:
        lines.append(
            "- **Confirmation**, on sets that played no part in the design (of CIFAR-10H, the "
            "whole crowd), lead in accuracy over the best other, in points: "
            f"{'; '.join(confirmed)}."
        )
    lines += robust(found)
    ahead, all_tasks, lost = em_score(found)
    if all_tasks:
        lines.append(
            '- **Cross-fitted EM:** with `decision="balanced"`, the stack is ahead or within a '
            f"point in balanced accuracy on {ahead} of the {all_tasks} tasks that EM was "
            "developed on" + (f"; it loses more on {listed(lost)}." if lost else ".")
        )
    lines += [*what_matters(found), *what_adds(found)]
    return [*lines, ""]


def told(places: dict[str, Standing]) -> str:
    """Sets by how the stack stands on them."""

    def figures(name: str) -> str:
        own = places[name].top + places[name].lead
        return f"{name} ({100 * own:.1f}; {places[name].best} {100 * places[name].top:.1f})"

    ahead = [n for n, each in places.items() if each.lead > 0 and not each.level]
    level = [n for n, each in places.items() if each.level]
    short = [figures(n) for n, each in places.items() if each.short]
    behind = [figures(n) for n, each in places.items() if each.behind]
    parts = {
        "ahead on": ahead,
        "level on": level,
        "below, by no more than a point or two standard errors of the test part, on": short,
        "**behind** on": behind,
    }
    words = "; ".join(f"{place} {listed(own)}" for place, own in parts.items() if own)
    return words if behind else f"{words}; nowhere further behind"


def what_balances(found: Found, names: list[str]) -> str:
    """How the stack stands in balanced accuracy, by default and with the other decision."""
    places = {SETS[name]: in_balanced_accuracy(found, name) for name in names}
    plain = {name: each[0] for name, each in places.items()}
    weighted = {name: each[1] for name, each in places.items()}
    return (
        "- **Balanced accuracy** beside other defaults. By default, the stack aims at accuracy. In "
        f"balanced accuracy it is {told(plain)}. "
        f'With `decision="balanced"`, it is {told(weighted)}.'
    )


def what_f1_says(found: Found, names: list[str]) -> str:
    """Where another is more than a point ahead in macro F1, by default or with a protocol."""
    below = []
    for name in names:
        (best, top), own = in_macro_f1(found, name), mean(cells(found, name, STACK), "macro_f1")
        if own < top - 0.01:
            below.append(f"{SETS[name]} ({100 * own:.1f}; {best} {100 * top:.1f})")
    return (
        "- **Macro F1:** as it comes, the stack is more than a point below the best recorded "
        f"figure of others (with defaults or a protocol) on {listed(below)}."
    )


def what_matters(found: Found) -> list[str]:
    """The parts of the recipe that cost most to leave out, and the best change, by nested means."""
    means = {}
    for method in dict.fromkeys(each["method"] for each in found if each["fold"] >= 0):
        each = [nested(cells(found, name, method, nested=True)) for name in ablated(found)]
        means[method] = 100 * float(np.mean(each))
    if np.isnan(means.get(STACK, np.nan)):
        return []
    gains = {m: mean - means[STACK] for m, mean in means.items() if m != STACK and mean == mean}
    order = sorted(gains, key=lambda method: gains[method])

    def worst_set(method: str) -> str:
        own = {SETS[name]: gain(found, name, method) for name in ablated(found)}
        lowest = min(own, key=lambda name: own[name])
        return f"{lowest} {own[lowest]:+.1f}"

    worst = listed([f"{m} ({gains[m]:+.1f}; {worst_set(m)})" for m in order[:4]])
    return [
        f"- **Ablation**, nested, mean of {len(ablated(found))} sets and the lowest of them, in "
        f"points: {worst} cost most. The best change is {order[-1]} ({gains[order[-1]]:+.1f}; one "
        "seed, so within noise).",
        *(
            f"- **{SETS[name]}**, where another is ahead: of the changes without gold labels, the "
            f"best by nested accuracy is {best_change(found, name)}."
            for name in ablated(found)
            if (place := in_accuracy(found, name)).short or place.behind
        ),
    ]


def gain(found: Found, name: str, method: str) -> float:
    """Nested accuracy of a change less that of the stack, in points."""
    own, plain = (nested(cells(found, name, m, nested=True)) for m in (method, STACK))
    return 100 * (own - plain)


def best_change(found: Found, name: str) -> str:
    """The change with the highest nested accuracy on a set, and what it does on the test part."""
    methods = {e["method"] for e in found if e["fold"] >= 0 and "oracle" not in e["method"]}
    own = {m: gain(found, name, m) for m in sorted(methods - {STACK})}
    best = max(own, key=lambda method: own[method])
    test = 100 * (mean(cells(found, name, best)) - mean(cells(found, name, STACK)))
    return f"{best} ({own[best]:+.1f} nested, {test:+.1f} on the test part)"


def what_adds(found: Found) -> list[str]:
    """Gains by other methods' strengths."""
    parts = []
    for method in ADDED:
        gains = []
        for name in ADDED_TO:
            if more := first_seeds(cells(found, name, method)):
                seeds = [each["seed"] for each in more]
                own = [e for e in cells(found, name, STACK) if e["seed"] in seeds]
                gains.append(f"{SETS[name]} {100 * (mean(more) - mean(own)):+.1f}")
        if gains:
            parts.append(f"{method}: {', '.join(gains)}")
    return [f"- **Added to the stack**, in points: {'; '.join(parts)}."] if parts else []


def listed(names: Sequence[str]) -> str:
    """Join names."""
    if len(names) < 2:
        return "".join(names) or "none"
    return ", ".join(names[:-1]) + " and " + names[-1]


def em_score(found: Found) -> tuple[int, int, list[str]]:
    """Tasks on which the stack is at most a point behind EM, all tasks, and the others."""
    behind = {
        name: mean(systems[EM], "balanced_accuracy")
        - mean(systems["balanced stack"], "balanced_accuracy")
        for name, systems in tasks(found).items()
    }
    lost = [f"{name} ({100 * loss:.1f})" for name, loss in behind.items() if loss > 0.01]
    return len(behind) - len(lost), len(behind), lost


def page(found: Found) -> list[str]:
    """Return the page's lines."""
    names = [name for name in SETS if cells(found, name, STACK)]
    return [
        "# Crowd-calibrated stacking beside everything else",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/flagship.py --records "
        "results/benchmarks/flagship.jsonl --out docs/results/flagship.md` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}; its records, from 2026-11-23 "
        "on, name no commit, and the [grand table](grand_table.md#what-was-run) tells which of "
        "them were repeated. Since 2026-11-28, the labels of the stack are read out anew, its "
        "probabilities of new items are tempered, and its balanced decision divides by their mean "
        "(accuracies on new items stay): with these were measured the stack's rows of the public "
        "sets, of confirmation but for CIFAR-10H as a whole, of cross-fitted EM's tasks but for "
        "those of documents, and the posteriors of the training instances. Log losses, balanced "
        "decisions and posteriors elsewhere (worse annotations, few labels, many classes, "
        "abstentions, ablation) are those of the code before. `CrowdStackingClassifier()` "
        'as it comes is "the stack". Gold labels measure; nothing in the recipe was chosen by '
        "a figure of this page. Figures are percentages of the test part, mean ± sd "
        "(seeds); a figure without ± is one seed. Seeds change folds and landmarks, not the data; "
        "the simulated sets are drawn anew. CPU seconds are those of a fit on one thread of a busy "
        "machine, and vary by a third.",
        "",
        *looks(),
        "## What to conclude",
        "",
        *conclusions(found, names),
        "## Public sets",
        "",
        '"Best other" is the highest of all recorded figures: the highest of some forty test '
        'figures is partly luck, so the comparison favours the others. A difference within "± test '
        'part", the binomial standard error, is none ("level"). A stack that is further below is '
        '"behind" if it is so by more than a point, and by more than two standard errors.',
        "",
        *public_part(found, names),
        "### Every classifier",
        "",
        '"Defaults": means of the seeds of the [grand table](grand_table.md) and of those that it '
        "lacks here, unless a repeated run shows that a method has changed. Where these have "
        "fewer than three, figures of [Defaults that suit the data](suiting_defaults.md) are "
        "shown, if there are any. These compare like "
        'with like: nothing is tuned on either side. "Protocol": five seeds with one protocol for '
        "each set, mostly a paper's, "
        "last epoch ([Every classifier on six sets](crowd_models.md)). "
        "Several of these protocols were chosen by their authors with gold labels, and none of "
        "them is what a method does by default. Each group is in the order of the mean distance "
        "from the stack, over the sets that a row has.",
        "",
        *everybody(found, names),
        "### Balanced accuracy",
        "",
        '"± test part" is the binomial standard error within every class of the test part, put '
        "together as balanced accuracy is. Verdicts follow the rules of accuracy. "
        '"Best other" is looked for among these; other libraries count, gold ceilings and `select` '
        "do not.",
        "",
        *balanced_part(found, names),
        *optional(
            "## Confirmation",
            "Looked at once as confirmation; Hotel was used again after that (few labels, "
            "posteriors). The study behind the recipe had none of these sets; it had looked at "
            "CIFAR-10H thinned, whose images and test part are those of the whole. All methods "
            'have their defaults; cross-fitted EM has one seed. "Network on gold" and methods '
            "without a column are those of the [grand table](grand_table.md); the best other is "
            "looked for among them, too. A seed draws USPS-Syn and GSAD-Syn anew, so each other is "
            "compared there on its own seeds. On the whole of CIFAR-10H, only methods with a "
            "figure here were run. Where the records hold no standard error of balanced accuracy, "
            "it is that of accuracy. Hotel's labels are votes of the "
            "same crowd. The crowds of USPS-Syn and GSAD-Syn are simulated, with a class ten times "
            "as rare as the other and a balanced test part, so balanced accuracy equals accuracy "
            "there.",
            confirmation_part(found),
        ),
        *optional(
            "## Ablation",
            'One thing changed at a time. "Test": accuracy on the test part, '
            f"{fewest_seeds(found)} seeds. "
            '"Nested": the whole fit without a quarter of the training instances, accuracy on that '
            "quarter, mean of four quarters (seed 1). Nested figures have less to train on. They "
            "share no row with the test part; the study behind the recipe looked at both kinds, of "
            f"other quarters. One test instance is {listed(steps(found))} points. x0, the entropy "
            "switch (equal class shares if the entropy of the votes' shares is above .95 of its "
            "maximum, else free ones) and the weight by parity (2 if the last round's parity was "
            "above 1, else 1) are no parameters; the rows replace a function of the recipe. One of "
            "the study's rows is not made: two types of annotators, each with a confusion matrix, "
            "were a model of their own.",
            ablation_part(found),
        ),
        *optional(
            "## Worse annotations",
            f"{seeds_told(found)} Methods have their defaults. The best of a row is bold, among "
            "those with all seeds. The conclusion above compares each method with the stack on the "
            "same seeds. "
            'Seeds draw the change and start the fit. "Removed": random annotations. "Spammers": a '
            'random share of the annotators answers at random. "Shared mistakes": a share of the '
            "annotations of two classes is turned into the next class, the same for all "
            'annotators. "Imbalance": every second class is thinned to one k-th of the largest '
            "other class in the training part; balanced accuracy on the whole test part.",
            robustness_part(found),
        ),
        *optional(
            "## Few labels",
            "Seeds 1 to 3, which draw the training instances; the others are gone, with their "
            "annotations and features. Accuracy on the whole test part.",
            few_labels_part(found, (STACK, REGRESSION, "Crowd Layer", "AggNet")),
        ),
        *optional(
            "## Many classes",
            "Simulated: Gaussian clusters in 20 dimensions, 15 training instances per class, 30 "
            'annotators who are wrong in 10 to 60 % of their annotations; seeds 1 to 3. "Labels": '
            'inferred classes of the training instances. "Test": new instances. Of classes with '
            "equally many votes, majority vote takes the first one, if ties are not shared (the "
            "expected accuracy); the regression is on the first, too.",
            many_classes_part(
                found,
                (STACK, REGRESSION, "Crowd Layer", "AggNet"),
                ("majority vote", SHARED, "Dawid-Skene", STACK),
            ),
        ),
        *optional(
            "## Abstentions",
            "Simulated: 4 classes in 5 dimensions, 800 instances. Half of the annotations of one "
            "class, or one in six of all, are abstentions; seeds 1 to 3.",
            abstentions_part(found, ("Dawid-Skene", STACK, 'stack, abstentions="ignore"')),
        ),
        *optional(
            "## Posteriors of the training instances",
            "Seed 1, against the gold labels of the training part; the log loss is in nats. "
            "`dependence=0` counts annotators and stack as independent witnesses; by default their "
            "mistakes correlate as the annotations show. Gold labels of Colposcopy, Reports and "
            "Hotel are votes of the same crowds, which favours whoever counts every vote in full.",
            posterior_part(found),
        ),
        *optional(
            "## What it replaced: cross-fitted EM",
            "The library's former recipe for rare classes, `CrossFittedEMClassifier` (removed "
            "after commit 53d0c948), on the tasks it was developed on, with unbalanced classes and "
            "simulated crowds, seeds 0 to 2, all with present defaults (figures of EM are not "
            "those of [its page](imbalanced_recipe.md), which is older). EM aims at balanced "
            'accuracy; the stack does so with `decision="balanced"` ("balanced stack"). EM takes '
            "the classes to be equally frequent, so the decision changes nothing there.",
            tasks_part(found),
        ),
        *optional(
            "## Do other methods' strengths add anything?",
            f"Seeds 1 to 3, on {len(ADDED_TO)} sets. DASC retrains the stack on annotations "
            "that it fills in. The embeddings are learnt from the same annotations, and join as "
            "one more kernel. They have seen every instance's own votes, so that member is not out "
            "of fold.",
            additions_part(found, ADDED_TO),
        ),
        *left_out(found),
    ]


def looks() -> list[str]:
    """Which test parts the study behind the recipe saw."""
    often = listed([f"{SETS[name]} (about {n} looks)" for name, n in LOOKS.items()])
    return [
        "Before that, the recipe's constants were chosen in a study that looked often at the test "
        f"parts of {often}, and less often at those of "
        f"{listed([SETS[name] for name in FEWER_LOOKS])}. So the stack's figures on these sets are "
        "probably somewhat too good. The sets of [Confirmation](#confirmation) played no part in "
        "the study, but for CIFAR-10H, which it saw thinned.",
        "",
    ]


def optional(heading: str, words: str, lines: list[str]) -> list[str]:
    """A section, if there is anything in it."""
    return [heading, "", words, "", *lines] if lines else []


def left_out(found: Found) -> list[str]:
    """What was not run, and where the rest stands."""
    return [
        "## Left out",
        "",
        "For want of computing time: more than one seed of the nested ablation; more than three "
        "seeds of additions, of few labels, many classes and abstentions, and of DASC and `select` "
        "under worse annotations; cross-fitted EM on CIFAR-10 and under worse "
        "annotations, as it takes a minute on LabelMe.",
        "",
        f"Elsewhere: [seconds and memory](costs.md#{COSTS}) at 1,000 to 1,000,000 instances. "
        "Limiting cases that must be equal are tests (`tests/classifiers/test_stacking.py`, "
        "`test_stacking_recipe.py`): one member with weight 1 and free class shares is EM with the "
        "member's out-of-fold predictions as its prior, perfect annotators give the members "
        "trained on gold, and one round is stacking on vote shares.",
    ]
