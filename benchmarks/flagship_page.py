"""The page of `flagship.py`: tables from its records, and from figures that are recorded elsewhere.

Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bars import Row, dots
from benchmarks.flagship_harder import FEW_LABELS, LABELLED, MANY, UNSURE
from benchmarks.peers import ACTIVE_MIX, PEERS
from evidence import load_rows
from evidence.pages.drawings import Drawing, Lines, Point, draw_lines, gather
from evidence.records import LAST
from evidence.store import latest_records, open_packed
from evidence.study import ROOT, read
from evidence.tables import (
    Record,
    crossed,
    groups,
    listed,
    listing,
    mean,
    split,
    spread,
    table,
    where,
)

Found = list[Record]
NETWORKS = ("Crowd Layer", "AggNet", "Max-MIG", "TraceReg", "CoNAL")
SYSTEMS = ("ICED", "NeuCrowd", "CrowdInG", "DASC")
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
OF_STUDY = {
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


WANTED = {"labelme": 0.92, "music": 0.75}
"""Test accuracy that the classifier was to reach."""

EM = "Cross-fitted EM"
PLAIN = (REGRESSION, *NETWORKS, *SYSTEMS, EM)
"""Other methods of the records, with their defaults."""
FIELDS = {"balanced_accuracy": "Balanced accuracy", "accuracy": "Accuracy", "macro_f1": "Macro F1"}
NETWORK_ON_GOLD, OWN = "trained on gold (ceiling)", "Crowd-calibrated stacking"
"""Rows of the table of all classifiers that are no rivals."""

CEILING = "network on gold labels (ceiling)"
NO_RIVALS = (STACK, GOLD, "select()", CEILING)
"""Methods of the grand table that are no others."""


# -- reading --------------------------------------------------------------------------------------


def cells(found: Found, name: str, method: str, change: str = "", nested: bool = False) -> Found:
    """Records of one method on one set."""
    own = where(found, set=name, method=method, change=change)
    return [each for each in own if (each["fold"] >= 0) == nested]


def first_seeds(records: Found) -> Found:
    """Records of the seeds 1 to 3."""
    return [each for each in records if each["seed"] in (1, 2, 3)]


def of(found: Found, name: str, method: str = STACK) -> float:
    """Mean accuracy of a method on a set."""
    return mean(cells(found, name, method), "accuracy")


def percent(records: Found, field: str = "accuracy", n: bool = True) -> str:
    """Mean ± sd in percent, and the number of seeds if there are several."""
    return spread([each[field] for each in records], scale=100, n=n)


def dash(value: float) -> str:
    """A figure, or a dash where it is NaN."""
    return "–" if np.isnan(value) else f"{value:.1f}"


def seeds(records: Found) -> str:
    """Return the number of seeds in words."""
    return "1 seed" if len(records) == 1 else f"{len(records)} seeds"


def standard_error(records: Found, field: str = "accuracy") -> float:
    """Binomial standard error of the test part, at the mean accuracy or within every class.

    The oldest records, of sets with two classes, do not hold the latter: the former stands in.
    """
    within = [each for each in records if "balanced_error" in each]
    if field == "balanced_accuracy" and within:
        return mean(within, "balanced_error")
    accuracy = mean(records, "accuracy")
    return float(np.sqrt(accuracy * (1 - accuracy) / records[0]["n_test"]))


@cache
def present() -> dict[str, dict[str, float]]:
    """Set -> method -> accuracy with the present defaults, from the page of the defaults."""
    found: dict[str, dict[str, float]] = {}
    names: list[str] = []
    for line in (ROOT / "docs" / "results" / "suiting_defaults.md").read_text().splitlines():
        row = [each.strip() for each in line.strip("|").split("|")]
        if row[:2] == ["method", "defaults"]:
            names = row[2:]
        elif len(row) > 2 and row[1] == "present":
            for name, value in zip(names, row[2:], strict=True):
                found.setdefault(name, {})[row[0]] = float(value.split()[0]) / 100
    return found


@cache
def grand() -> dict[str, dict[str, Found]]:
    """Set -> method -> records with its defaults, from the grand table."""
    known = [
        r for r in read(ROOT / "results" / "benchmarks" / "grand_table.jsonl") if "accuracy" in r
    ]
    return {name: groups(own, "method") for name, own in groups(known, "set").items()}


def key_of(each: Record) -> tuple[str, str, int]:
    """A record's cell in the grand table: set, method and seed."""
    return each["set"], each["method"], each["seed"]


@cache
def published() -> dict[str, dict[str, tuple[float, float]]]:
    """Set -> row -> accuracy and macro F1, from the table of all classifiers."""
    rows = [row for row in load_rows(ROOT / "experiments") if row.table == "crowd_models/table"]
    records = open_packed(ROOT / "results", "crowd_models").records()
    counted = latest_records(rows, records)
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        last = [run.metrics[LAST] for run in counted[row.id].values() if LAST in run.metrics]
        values = [(each["accuracy"], each["macro_f1"]) for each in last if "accuracy" in each]
        if values:
            accuracy, f1 = np.mean(values, axis=0).tolist()
            found.setdefault(str(row.column).lower(), {})[row.label] = (accuracy, f1)
    return found


def repeated_otherwise(found: Found) -> set[str]:
    """Methods of which a run on a set as it is has another accuracy in the grand table."""
    runs = (each for methods in grand().values() for own in methods.values() for each in own)
    now = {key_of(each): each["accuracy"] for each in runs}
    return {
        each["method"]
        for each in found
        if not each["change"] and each["fold"] < 0
        if each["accuracy"] != now.get(key_of(each), each["accuracy"])
    }


def of_others(found: Found, name: str) -> dict[str, Found]:
    """Method -> records with its defaults: those of the grand table, and of this page's seeds."""
    known = {method: list(own) for method, own in grand().get(name, {}).items()}
    changed = repeated_otherwise(found)
    for method in dict.fromkeys((*PLAIN, *known)):
        own = known.setdefault(method, [])
        held = {each["seed"] for each in own}
        if method not in changed:
            own += [each for each in cells(found, name, method) if each["seed"] not in held]
    return {m: own for m, own in known.items() if own and m not in NO_RIVALS}


def network_on_gold(name: str) -> float:
    """Accuracy of a network on gold labels: with a protocol, or else of the grand table."""
    known = published().get(name, {})
    if NETWORK_ON_GOLD in known:
        return known[NETWORK_ON_GOLD][0]
    return mean(grand().get(name, {}).get(CEILING, []), "accuracy")


def by_default(found: Found, name: str) -> dict[str, float]:
    """Accuracy of others by default: of three or more seeds, or as the page of the defaults has it.

    That page is older, and has fewer sets; a single seed is taken where it has none.
    """
    ours = {
        m: own for m, own in of_others(found, name).items() if m not in (REGRESSION, EM, *PEERS)
    }
    single = {m: mean(own, "accuracy") for m, own in ours.items()}
    several = {m: single[m] for m, own in ours.items() if len(own) > 2}
    return {**single, **present().get(name, {}), **several}


def with_protocol(name: str, place: int) -> dict[str, float]:
    """Accuracy (place 0) or macro F1 (1) of others with a protocol, from the table of them all."""
    known = published().get(name, {})
    rows = {row: v[place] for row, v in known.items() if row not in (NETWORK_ON_GOLD, OWN)}
    return {f"{row} (its protocol)": value for row, value in rows.items()}


def rivals(found: Found, name: str) -> dict[str, float]:
    """All known accuracies of others on a set."""
    others = {m: mean(own, "accuracy") for m, own in of_others(found, name).items()}
    defaults = {**others, **by_default(found, name)}
    return with_protocol(name, 0) | {f"{row} (defaults)": v for row, v in defaults.items()}


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
            return "clearly ahead" if self.clear else "ahead"
        if self.behind:
            return "**behind**"
        return "within a point" if self.lead >= -0.01 else "within two standard errors"


def standing(own: Found, known: dict[str, float], field: str = "accuracy") -> Standing:
    """Compare the stack's records on a set with the figures of others."""
    best = max(known, key=lambda method: known[method])
    lead = mean(own, field) - known[best]
    return Standing(best, known[best], lead, standard_error(own, field))


def in_accuracy(found: Found, name: str) -> Standing:
    """Write how the stack's accuracy compares with all known figures."""
    return standing(cells(found, name, STACK), rivals(found, name))


def in_balanced_accuracy(found: Found, name: str) -> tuple[Standing, Standing]:
    """Write how the stack compares with other defaults, also with ``decision="balanced"``."""
    own, field = cells(found, name, STACK), "balanced_accuracy"
    others = of_others(found, name)
    known = {m: mean(each, field) for m, each in others.items()}
    weighted = [each["weighted"] for each in own]
    plain, balanced = standing(own, known, field), standing(weighted, known, field)
    shown = f"{plain.best}: {100 * plain.top:.1f} ({seeds(others[plain.best])})"
    return plain._replace(shown=shown), balanced._replace(shown=shown)


def in_confirmation(found: Found, name: str, field: str = "accuracy") -> Standing:
    """Write how the stack does on a set of the confirmation.

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
    f1 = with_protocol(name, 1)
    for method, own in of_others(found, name).items():
        f1[f"{method} ({seeds(own)})"] = mean(own, "macro_f1")
    best = max(f1, key=lambda row: f1[row])
    return best, f1[best]


def standings(found: Found) -> str:
    """Draw the stack's accuracy on the public sets, beside the best other and a simple one."""
    rows = [
        Row(
            words,
            {
                "stack": 100 * of(found, name),
                "best of all others": 100 * in_accuracy(found, name).top,
                "majority vote + logistic regression": 100 * of(found, name, REGRESSION),
            },
        )
        for name, words in SETS.items()
        if cells(found, name, STACK)
    ]
    return dots("Accuracy on the test part, in percent", rows)


# -- confirmation, ablation, tasks, additions -----------------------------------------------------


def confirmation_part(found: Found) -> list[str]:
    """Sets that played no part in the design."""
    compared = (STACK, REGRESSION, "Crowd Layer", "AggNet", "Max-MIG", "CoNAL", EM)
    names = {n: words for n, words in CONFIRMATION.items() if cells(found, n, STACK)}
    lines = []
    for field, title in (("accuracy", "Accuracy"), ("balanced_accuracy", "Balanced accuracy")):
        methods, places = [], []
        for name, words in names.items():
            place = in_confirmation(found, name, field)
            ceiling = percent(grand().get(name, {}).get(CEILING, []), field)
            own = (percent(cells(found, name, m), field) for m in compared)
            methods.append([words, *own, ceiling])
            error, lead = f"{100 * place.error:.1f}", f"{100 * place.lead:+.1f}"
            places.append([words, place.shown, lead, error, place.verdict])
        lines += table([title, *compared, "network on gold"], methods)
        lines += table([title, "best other", "lead", "± test part", "verdict"], places)

    def seconds(name: str, method: str) -> str:
        return dash(mean(cells(found, name, method), "seconds"))

    return lines + crossed("CPU seconds", names, compared, seconds)


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


def ablation_part(found: Found) -> list[str]:
    """Parameters of the recipe."""
    methods = dict.fromkeys(each["method"] for each in found if each["fold"] >= 0)
    columns = {(n, k): f"{SETS[n]}, {k}" for k in ("test", "nested") for n in ablated(found)}

    def shown(method: str, column: tuple[str, str]) -> str:
        if column[1] == "test":
            return percent(cells(found, column[0], method), n=False)
        return dash(100 * nested(cells(found, column[0], method, nested=True)))

    rows = {STACK: f"**{STACK}**"} | {method: method for method in methods if method != STACK}
    return crossed("", rows, columns, shown, most=len(ablated(found)))


def posterior_part(found: Found) -> list[str]:
    """Accuracy, log loss and calibration error of posteriors of the training instances."""
    simulated = [POSTERIOR + name for name in (*MANY, *UNSURE)]
    own = [e for e in found if e["set"].startswith(POSTERIOR) and e["set"] not in simulated]
    last = {(each["set"], each["method"]): each for each in own}
    names = {name: SETS.get(name.removeprefix(POSTERIOR), "Hotel") for name, _ in last}

    def shown(name: str, method: str) -> str:
        each = last[name, method]
        right, error = (f"{100 * each[field]:.1f}" for field in ("accuracy", "calibration_error"))
        return f"{right} / {each['log_loss']:.2f} / {error}"

    methods = list(dict.fromkeys(method for _, method in last))
    return crossed("accuracy / log loss / calibration error", names, methods, shown)


def tasks(found: Found) -> dict[str, dict[str, Found]]:
    """Task -> system -> records, of the tasks on which cross-fitted EM was developed."""
    names = [e["set"] for e in found if e["method"] == EM and e["set"] not in SETS | CONFIRMATION]
    each = {}
    for name in dict.fromkeys(names):
        own, em = cells(found, name, STACK), cells(found, name, EM)
        each[name] = {"balanced stack": [e["weighted"] for e in own], STACK: own, EM: em}
    return each


def lead_over_em(systems: dict[str, Found], field: str) -> float:
    """Lead of the balanced stack, in points."""
    return 100 * (mean(systems["balanced stack"], field) - mean(systems[EM], field))


def tasks_part(found: Found) -> list[str]:
    """The tasks on which cross-fitted EM was developed."""
    lines = []
    for field, title in FIELDS.items():
        rows = [
            [name, *(percent(own, field, n=False) for own in systems.values()),
             f"{lead_over_em(systems, field):+.1f}"]
            for name, systems in tasks(found).items()
        ]  # fmt: skip
        lines += table([title, "balanced stack", STACK, EM, "balanced less EM"], rows)
    return lines


ADDED = (
    *("DASC around the stack", "a kernel on NeuCrowd's embedding"),
    *("a kernel on a triplet embedding", "AggNet as a member, out of fold"),
    *("CoNAL as a member, out of fold", "Max-MIG as a member, out of fold"),
)
ADDED_TO = ("labelme", "music", "reports", "product", "colposcopy")
WEIGHTED = 'class-weighted decision (`decision="balanced"`)'


def additions_part(found: Found) -> list[str]:
    """Strengths of other methods, added to the stack."""
    columns = {
        (name, field): f"{SETS[name]}, {words}"
        for field, words in ADDED_FIELDS.items()
        for name in ADDED_TO
    }

    def shown(method: str, column: tuple[str, str]) -> str:
        own = first_seeds(cells(found, column[0], STACK if method == "weighted" else method))
        if method == "weighted":
            own = [{**each["weighted"], "seconds": each["seconds"]} for each in own]
        if column[1] == "seconds":
            return f"{mean(own, 'seconds'):.0f}" if own else "–"
        return percent(own, column[1])

    rows = {STACK: f"**{STACK}**", "weighted": WEIGHTED, **{m: m for m in ADDED}}
    return crossed("", rows, columns, shown, most=len(ADDED_TO))


ADDED_FIELDS = {"accuracy": "accuracy", "balanced_accuracy": "balanced", "seconds": "CPU seconds"}


# -- the page -------------------------------------------------------------------------------------


def told(places: dict[str, Standing]) -> str:
    """Sets by how the stack stands on them."""

    def figures(name: str) -> str:
        own = places[name].top + places[name].lead
        return f"{name} ({100 * own:.1f}; {places[name].best} {100 * places[name].top:.1f})"

    behind = [figures(n) for n, each in places.items() if each.behind]
    parts = {
        "ahead on": [n for n, each in places.items() if each.lead > 0 and not each.level],
        "level on": [n for n, each in places.items() if each.level],
        "below, but by at most a point or two standard errors of the test part, on": [
            figures(n) for n, each in places.items() if each.short
        ],
        "**behind** on": behind,
    }
    words = "; ".join(f"{place} {listed(own)}" for place, own in parts.items() if own)
    return words if behind else f"{words}; further behind on none"


def public(found: Found, names: list[str]) -> list[str]:
    """The stack's row on each public set."""
    own = {name: cells(found, name, STACK) for name in names}
    place = {name: in_accuracy(found, name) for name in names}
    return listing(names, {
        "set": SETS.get,
        "stack": lambda n: percent(own[n]),
        "± test part": lambda n: f"{100 * place[n].error:.1f}",
        "balanced accuracy": lambda n: percent(own[n], "balanced_accuracy"),
        "log loss": lambda n: f"{mean(own[n], 'log_loss'):.2f}",
        "CPU seconds": lambda n: f"{mean(own[n], 'seconds'):.1f}",
        REGRESSION: lambda n: percent(cells(found, n, REGRESSION)),
        "best other": lambda n: f"{place[n].best}: {100 * place[n].top:.1f}",
        "lead": lambda n: f"{100 * place[n].lead:+.1f}",
        "verdict": lambda n: place[n].verdict,
    })  # fmt: skip


def ceilings(found: Found, names: list[str]) -> list[str]:
    """Write what gold labels give on each public set, beside the study's figures."""
    return listing(names, {
        "set": SETS.get,
        "stack": lambda n: f"{100 * of(found, n):.1f}",
        "study": lambda n: f"{100 * OF_STUDY[n][0]:.1f}",
        "stack on gold": lambda n: percent(cells(found, n, GOLD)),
        "network on gold": lambda n: dash(100 * network_on_gold(n)),
        "gold, study": lambda n: f"{100 * OF_STUDY[n][1]:.1f}",
    })  # fmt: skip


def everybody(found: Found, names: list[str]) -> Iterator[list[str]]:
    """Yield every classifier of the library on the sets with records."""
    own = {name: of(found, name) for name in names}
    yield [f"**{STACK}**", *(f"**{100 * value:.1f}**" for value in own.values())]
    protocols = {
        name: {row: v[0] for row, v in published().get(name, {}).items() if row != OWN}
        for name in names
    }
    defaults = {name: by_default(found, name) for name in names}
    for kind, known in (("defaults", defaults), ("protocol", protocols)):

        def height(method: str, known: dict[str, dict[str, float]] = known) -> float:
            apart = [known[n][method] - own[n] for n in names if method in known[n]]
            return float(np.mean(apart))

        methods = dict.fromkeys(row for name in names for row in known[name])
        for method in sorted(methods, key=height, reverse=True):
            values = [100 * known[name].get(method, np.nan) for name in names]
            yield [f"{method}, {kind}", *map(dash, values)]


def balanced(found: Found, names: list[str]) -> list[str]:
    """The stack's balanced accuracy, as it comes and with the other decision."""
    field, ways = "balanced_accuracy", ("", ", balanced")
    rows = []
    for name in names:
        own, places = cells(found, name, STACK), in_balanced_accuracy(found, name)
        rows.append([
            SETS[name], percent(own, field), percent([e["weighted"] for e in own], field),
            places[0].shown, *(f"{100 * each.error:.1f}" for each in places),
            *(f"{100 * each.lead:+.1f}" for each in places), *(each.verdict for each in places),
        ])  # fmt: skip
    pairs = [f"{each}{way}" for each in ("± test part", "lead", "verdict") for way in ways]
    return table(["set", STACK, BALANCED_STACK, "best other", *pairs], rows)


def balanced_others(found: Found, names: list[str]) -> list[str]:
    """The balanced accuracy of others, and macro F1 beside all rows of the table."""
    compared = [m for m in PLAIN if any(cells(found, name, m) for name in names)]
    rows = []
    for name in names:
        best, f1 = in_macro_f1(found, name)
        values = [percent(cells(found, name, m), "balanced_accuracy") for m in compared]
        own = percent(cells(found, name, STACK), "macro_f1")
        rows.append([SETS[name], *values, own, f"{best}: {100 * f1:.1f}"])
    return split(["set", *compared, "macro F1 of the stack", "best macro F1 of others"], rows, 6)


# -- worse annotations ----------------------------------------------------------------------------

BALANCED_STACK = 'stack, decision="balanced"'
SHORT = {
    BALANCED_STACK: "stack, balanced",
    REGRESSION: "vote + LR",
    ACTIVE_MIX: "AnnotMix",
}
"""Names in tables of many columns."""

WORSE_ON = {"labelme": "LabelMe", "music": "Music"}
AXES = {
    " % removed": ("annotations removed", "% of annotations", 0),
    " % spammers": ("spammers", "% of annotators", 0),
    " % shared mistakes": ("shared mistakes", "% of annotations of two classes", 0),
    "imbalance ": ("imbalance", "largest class : rare class", 1),
}
"""Part of a change's name -> its title, the label of its axis, and where nothing is changed."""


def stressed(found: Found) -> list[str]:
    """Methods that were fitted to worse annotations, the stack first."""
    methods = dict.fromkeys(each["method"] for each in found if each["change"])
    return sorted(methods, key=lambda method: method != STACK)


def seeds_told(found: Found) -> str:
    """Seeds of the stack under changes, and the methods that have fewer, or lack some cases."""
    n = {
        method: min(
            len(values(found, name, change, method))
            for name in WORSE_ON
            for change in filter(None, changes(found, name))
        )
        for method in stressed(found)
    }
    fewer = [f"of {method} {own}" for method, own in n.items() if own < n[STACK]]
    return f"Seeds: {n[STACK]}" + f"; {', '.join(fewer)}" * bool(fewer) + "."


def changes(found: Found, name: str) -> list[str]:
    """Changes to a set's annotations or classes, in the order of the first records."""
    each = dict.fromkeys(each["change"] for each in found if each["set"] == name)
    return [change for change in each if not change.endswith("labelled")]


def field_of(change: str) -> str:
    """Balanced accuracy where classes are thinned, accuracy elsewhere."""
    return "balanced_accuracy" if change.startswith("imbalance") else "accuracy"


def robustness_part(found: Found) -> list[str]:
    """Accuracy, or balanced accuracy where classes are thinned, as annotations get worse."""
    methods = [*stressed(found), BALANCED_STACK]
    lines = ["![Accuracy as annotations get worse](flagship-robustness.svg)", ""]
    for name in WORSE_ON:
        rows = []
        for change in changes(found, name):
            thinned = change.startswith("imbalance")
            each = {method: values(found, name, change, method) for method in methods}
            each[BALANCED_STACK] = each[BALANCED_STACK] if thinned else []
            # Other seeds draw other changes.
            whole = {m: own for m, own in each.items() if len(own) == len(each[STACK])}
            means = {m: round(float(np.mean(own)), 1) for m, own in whole.items()}
            top = max(means.values())
            shown = (bold(own, means.get(method) == top) for method, own in each.items())
            rows.append([(change or "as it is") + " (balanced)" * thinned, *shown])
        lines += split([WORSE_ON[name], *(SHORT.get(m, m) for m in methods)], rows, 9)
    return lines


def curves(found: Found) -> Drawing:
    """Draw a pair of panels for each kind of change, LabelMe and Music."""
    sheet = {}
    for part, (title, x_label, start) in AXES.items():
        measure = "balanced accuracy, %" if part == "imbalance " else "accuracy, %"
        panels = []
        for name, set_title in WORSE_ON.items():
            series = {m: list(_points(found, name, part, start, m)) for m in stressed(found)}
            panels.append(Lines(set_title, x_label, measure, series))
        description = f"{measure} of every method on LabelMe and Music against {title}"
        sheet[title.capitalize()] = draw_lines(panels, description, top=100)
    return gather(sheet)


def _points(found: Found, name: str, part: str, start: int, method: str) -> Iterable[Point]:
    """Means of a method over the strengths of one kind of change."""
    field = field_of(part)
    for change in changes(found, name):
        if change and part not in change:
            continue
        x = int(change.replace(part, "").split(":")[0]) if change else start
        if each := values(found, name, change, method, field):
            sd = float(np.std(each, ddof=1)) if len(each) > 1 else None
            yield Point(x, float(np.mean(each)), sd, len(each))


def by_seed(
    found: Found, name: str, change: str, method: str, field: str | None = None
) -> dict[int, float]:
    """Percentage of a method under a change, for each seed."""
    own, field = cells(found, name, method, change), field or field_of(change)
    if method == BALANCED_STACK:
        own = [{**e, **e["weighted"]} for e in cells(found, name, STACK, change)]
    return {each["seed"]: 100 * each[field] for each in own}


def values(found: Found, name: str, change: str, method: str, field: str = "") -> list[float]:
    """Percentages of a method under a change, one for each seed."""
    return list(by_seed(found, name, change, method, field).values())


def bold(each: Sequence[float], best: bool) -> str:
    """Mean, of which the picture shows the deviations; the best is bold."""
    shown = f"{np.mean(each):.1f}" if len(each) else "–"
    return f"**{shown}**" if best and len(each) else shown


def robust(found: Found) -> dict[str, Any]:
    """Cases in which the stack is best, and its largest loss, for the conclusions.

    Each other method is compared on its own seeds, as the seed draws the change.
    """
    losses = []
    for name in WORSE_ON:
        for change in filter(None, changes(found, name)):
            each = {m: by_seed(found, name, change, m) for m in stressed(found)}
            own = each.pop(STACK)
            lead, who = max(
                (float(np.mean([value - own[seed] for seed, value in other.items()])), who)
                for who, other in each.items()
                if other
            )
            theirs = np.mean([*each[who].values()])
            ours = np.mean([own[seed] for seed in each[who]])
            told = f"{ours:.1f} against {theirs:.1f} of {who}, seeds: {len(each[who])}"
            losses.append((lead, name, change, told))
    worst, name, change, told = max(losses)
    best = sum(loss <= 0 for loss, *_ in losses)
    where = f"{WORSE_ON[name]}, {change}: {told}"
    sizes = {"cases": len(losses), "methods": len(stressed(found))}
    return {"best": best, "worst": worst, "where": where, **sizes}


# -- few labels, many classes, abstentions --------------------------------------------------------

COMPARED = (STACK, REGRESSION, "Crowd Layer", "AggNet")
AGGREGATORS = ("majority vote", SHARED, "Dawid-Skene", STACK)
SILENT = ("Dawid-Skene", STACK, 'stack, abstentions="ignore"')


def harder(found: Found) -> dict[str, Any]:
    """Few labels, many classes, abstentions."""

    def shown(name: str, methods: Sequence[str], change: str = "") -> list[str]:
        return [percent(cells(found, name, m, change), n=False) for m in methods]

    few = [
        [f"{title}, {n}", *shown(name, COMPARED, f"{n} labelled")]
        for name, title in LABELLED.items()
        for n in FEW_LABELS
    ]
    many = [[n, *shown(POSTERIOR + n, AGGREGATORS), *shown(n, COMPARED)] for n in MANY]
    heads = [*(f"labels, {each}" for each in AGGREGATORS), *(f"test, {each}" for each in COMPARED)]
    worse = []
    for name in MANY:
        *others, own = (of(found, POSTERIOR + name, each) for each in AGGREGATORS)
        worse += [name] if own < max(others) else []
    return {
        "few_labels": table(["instances", *COMPARED], few),
        "many_classes": table(["", *heads], many),
        "worse": f"Its labels are behind those of annotations alone on: {'; '.join(worse)}. Where "
        "features tell little of so many classes, infer labels with `DawidSkene`."
        if worse
        else "Its labels are nowhere behind those of annotations alone.",
        "abstentions": table(
            ["labels", *SILENT], ([n, *shown(POSTERIOR + n, SILENT)] for n in UNSURE)
        ),
    }


# -- conclusions ----------------------------------------------------------------------------------


def what_matters(found: Found) -> Iterator[str]:
    """Yield the parts of the recipe that cost most to leave out, and the best change, by sets."""
    names = ablated(found)
    methods = dict.fromkeys(each["method"] for each in found if each["fold"] >= 0)
    gains = {m: {SETS[n]: gain(found, n, m) for n in names} for m in methods if m != STACK}
    means = {m: float(np.mean(list(own.values()))) for m, own in gains.items()}
    means = {m: value for m, value in means.items() if value == value}
    order = sorted(means, key=lambda method: means[method])
    worst = []
    for method in order[:4]:
        lowest = min(gains[method], key=lambda name: gains[method][name])
        worst.append(f"{method} ({means[method]:+.1f}; {lowest} {gains[method][lowest]:+.1f})")
    yield (
        "- **Ablation.** These changes cost most, in points of nested accuracy (mean of "
        f"{len(names)} sets; then the set that loses most): {listed(worst)}. The best change is "
        f"{order[-1]} ({means[order[-1]]:+.1f}; one seed, so within noise)."
    )
    for name in names:
        if (place := in_accuracy(found, name)).short or place.behind:
            own = {m: gain(found, name, m) for m in sorted(methods) if "oracle" not in m}
            del own[STACK]
            best = max(own, key=lambda method: own[method])
            test = 100 * np.subtract(*(of(found, name, m) for m in (best, STACK)))
            yield (
                f"- **{SETS[name]}.** Another method is ahead there. Of the changes that need no "
                f"gold labels, {best} has the best nested accuracy ({own[best]:+.1f} nested, "
                f"{test:+.1f} on the test part)."
            )


def gain(found: Found, name: str, method: str) -> float:
    """Nested accuracy of a change less that of the stack, in points."""
    own, plain = (nested(cells(found, name, m, nested=True)) for m in (method, STACK))
    return 100 * (own - plain)


def what_adds(found: Found) -> str:
    """Say what other methods' strengths add to the stack, on average over the sets."""

    def gained(name: str, method: str) -> float:
        more = first_seeds(cells(found, name, method))
        held = {each["seed"] for each in more}
        own = [e for e in cells(found, name, STACK) if e["seed"] in held]
        return 100 * (mean(more, "accuracy") - mean(own, "accuracy"))

    names = {m: [n for n in ADDED_TO if first_seeds(cells(found, n, m))] for m in ADDED}
    gains = {m: float(np.mean([gained(n, m) for n in own])) for m, own in names.items() if own}
    told = listed(
        [
            f"{method} ({gains[method]:+.1f})"
            for method in sorted(gains, key=gains.__getitem__, reverse=True)
        ]
    )
    return f"Added to the stack, they change its accuracy by these points on average: {told}."


def conclusions(found: Found, names: list[str]) -> dict[str, Any]:
    """Write the conclusions of the page; every word that could turn out otherwise is computed."""
    places = {SETS[name]: in_accuracy(found, name) for name in names}
    both = {SETS[name]: in_balanced_accuracy(found, name) for name in names}
    reached = [
        f"{SETS[name]} {100 * of(found, name):.1f} (wanted: {100 * wanted:.0f}, "
        f"{'reached' if of(found, name) >= wanted else '**not reached**'})"
        for name, wanted in WANTED.items()
    ]
    below = []
    for name in names:
        (best, top), own = in_macro_f1(found, name), mean(cells(found, name, STACK), "macro_f1")
        if own < top - 0.01:
            below.append(f"{SETS[name]} ({100 * own:.1f}; {best} {100 * top:.1f})")
    confirmed = [
        f"{shown} {100 * place.lead:+.1f} ({place.verdict}; {place.shown})"
        for name, shown in CONFIRMATION.items()
        if cells(found, name, STACK) and (place := in_confirmation(found, name))
    ]
    behind = {name: -lead_over_em(own, "balanced_accuracy") for name, own in tasks(found).items()}
    lost = [f"{name} ({loss:.1f})" for name, loss in behind.items() if loss > 1]
    return {
        "n_sets": len(names),
        "told": told(places),
        "clear": listed([name for name, place in places.items() if place.clear]),
        "reached": ", ".join(reached),
        "balanced_told": told({name: each[0] for name, each in both.items()}),
        "weighted_told": told({name: each[1] for name, each in both.items()}),
        "below": listed(below),
        "confirmed": "; ".join(confirmed),
        "robust": robust(found),
        "em": f"{len(behind) - len(lost)} of the {len(behind)}",
        "em_lost": listed(lost),
        "matters": what_matters(found),
        "adds": what_adds(found),
    }


def page(found: Found) -> dict[str, Any]:
    """Return the values of the page."""
    names = [name for name in SETS if cells(found, name, STACK)]
    defaults = {name: by_default(found, name) for name in names}
    methods = dict.fromkeys(m for own in defaults.values() for m in own)
    missing = [f"{m} on {SETS[n]}" for m in methods for n in names if m not in defaults[n]]
    sizes = {SETS[n]: cells(found, n, STACK)[0]["n_test"] for n in ablated(found)}
    return {
        **conclusions(found, names),
        "public": public(found, names),
        "ceilings": ceilings(found, names),
        "everybody": table(["", *(SETS[name] for name in names)], everybody(found, names)),
        "not_run": listed(missing),
        "balanced": balanced(found, names),
        "balanced_others": balanced_others(found, names),
        "confirmation": confirmation_part(found),
        "ablation": ablation_part(found),
        "ablation_seeds": fewest_seeds(found),
        "step": listed([f"{100 / size:.2g} ({name})" for name, size in sizes.items()]),
        "worse_seeds": seeds_told(found),
        "robustness": robustness_part(found),
        **harder(found),
        "posteriors": posterior_part(found),
        "tasks": tasks_part(found),
        "additions": additions_part(found),
    }
