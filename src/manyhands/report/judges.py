"""People and models who label the same items: who can stand in, and what is true of all items.

The section of the report takes annotators in families for judges, and those in none for people. The
command `judges` prints the same, with what it knows of questions and clusters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from manyhands.agreement import JudgeComparison, compare_judges
from manyhands.agreement.judges import (
    CAN,
    CANNOT,
    FEW_ITEMS,
    LEAST_OF_JUDGE,
    OPEN,
    values_of_classes,
)
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values
from manyhands.annotations.groups import ALONE, in_families, undeclared_models
from manyhands.exceptions import AnnotationError, silenced
from manyhands.io.people import MODELS
from manyhands.metrics.mean_estimate import (
    MeanEstimate,
    drawn_for_half,
    mean_estimate,
    share_estimate,
)
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.typing import AnyArray, FloatArray, IntArray
from manyhands.wording import counted, listed, percent, percent_ends, percent_interval

LEAST_LABELLED = 25
"""Items with labels of people from which on shares of all items are estimated."""

LEAST_CLUSTERS = 5
"""Clusters with labels of people from which on shares of all items are estimated."""

FEW_CLUSTERS = (
    f"The items that people labelled have fewer than {LEAST_CLUSTERS} different values of "
    "cluster=, so nothing is estimated for all items."
)

LEAST_ITEMS = 10
"""Items of two people from which on a report compares judges with them."""

MOST_SHOWN = 12
"""Classes of which a share is listed."""

MOST_QUESTIONS, MOST_CHARACTERS = 30, 110
"""Rows of the table of questions, and the width of its lines."""

LEAST_DIFFERENCE = 0.005
"""Difference in the use of a class, all of whose interval must lie beyond it to be listed."""

MOST_DIFFERENCES = 8
"""Differences in the use of classes that are listed; --json has all."""


def with_judges(table: AnnotationTable) -> tuple[AnnotationTable, list[Any]]:
    """Return a table that says who is a judge, and who was taken for one by the name.

    Raises
    ------
    AnnotationError
        If nobody is declared, and no names look like those of language models.
    """
    if table.groups is not None and (table.groups != ALONE).any():
        return table, []
    found = undeclared_models(table.groups, table.annotators)
    if not found.any():
        raise AnnotationError(
            "nobody says who of the annotators is a model: name the people (people=), or the "
            "models as a family (groups=)"
        )
    names = table.annotators[found].tolist()
    return table.with_groups(dict.fromkeys(names, MODELS)), names


def summarize_judges(
    table: AnnotationTable, *, is_random: bool = False, **options: Any
) -> dict[str, Any]:
    """Compare judges with people and estimate people's labels of all items, as a dict.

    Parameters
    ----------
    table : AnnotationTable
        Judges are in families, and people in none.
    is_random : bool
        Whether the items that people labelled are known to be drawn at random. Only such items
        make the estimates valid.
    **options
        Of `manyhands.agreement.compare_judges`.

    Returns
    -------
    dict
        As `manyhands judges --json`. ``"shares"`` has the share of each class (``"classes"``) and
        the mean of grades (``"mean"``, ``"means"`` of questions) among all items, by
        `manyhands.metrics.mean_estimate`; the prediction for an item is the plain average of what
        all judges say. It is None if people labelled fewer than 25 items, or items
        of fewer than five clusters, or all.

    Raises
    ------
    AnnotationError
        As in `manyhands.agreement.compare_judges`.
    """
    found = compare_judges(table, **options)
    about = {name: options.get(name) for name in ("cluster", "question")}
    about["values"] = options.get("values")
    shares = shares_of(table, found, is_random=is_random, **about)
    told = as_dict(found) | {
        "n_items_of_all": int((table.observed.annotations_per_instance() > 0).sum()),
        "compared_as": compared_as(table, options.get("values")),
    }
    if shares is None and shares_of(table, found) is not None:
        told["notes"].insert(0, FEW_CLUSTERS)
    return told | {"shares": shares}


def compared_as(table: AnnotationTable, values: Any = None) -> dict[str, Any]:
    """Return whether labels agree by name, as grades or as numbers, and their order and unit."""
    numbers = values_of_classes(table, values)
    if numbers is None:
        return {"kind": "names", "order": None, "unit": None}
    order = np.argsort(numbers, kind="stable")
    is_interval = table.scale == "interval"
    in_steps = not is_interval and (np.diff(numbers[order]) == 1).all()
    return {
        "kind": "numbers" if is_interval else "grades",
        "order": [_plain(value) for value in table.classes[order].tolist()],
        "unit": "grades" if in_steps else "points",
    }


def as_dict(found: JudgeComparison) -> dict[str, Any]:
    """A comparison as a dict for JSON, which has no infinite numbers."""
    columns = found.to_columns()
    judges = [
        {name: _plain(values[i]) for name, values in columns.items()}
        | {
            name: [
                {k: _plain(v) for k, v in each._asdict().items()} for each in getattr(judge, name)
            ]
            for name in ("classes", "questions")
        }
        for i, judge in enumerate(found.judges)
    ]
    return {
        "judges": judges,
        "people": [str(name) for name in found.people.tolist()],
        "left_out": [{k: _plain(v) for k, v in p._asdict().items()} for p in found.left_out],
        "kappa": {name: _plain(getattr(found, name)) for name in ("kappa", "low", "high")},
        "n_items": found.n_items,
        "n_questions": found.n_questions,
        "n_clusters": found.n_clusters,
        "margin": found.margin,
        "notes": list(found.notes),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int | bool | str) or value is None else str(value)


def judges_section(found: Findings) -> Content | None:
    """Judges beside people; None if nobody, or everybody, is in a family of two or more.

    There must be ten items with labels of two people.
    """
    table = found.inputs.table
    judges = in_families(table.groups, table.n_annotators)
    if table.groups is None or not judges.any():
        return None
    people = (table.groups == ALONE)[table.annotator]
    pairs = np.unique(np.column_stack([table.instance, table.annotator])[people], axis=0)
    several = np.bincount(pairs[:, 0], minlength=table.n_instances) > 1
    if several.sum() < LEAST_ITEMS:
        return None
    with silenced():
        try:
            content = summarize_judges(table)
        except AnnotationError:  # Such as grades whose order nothing tells.
            return None
    return content | {
        "open": list(open_lines(content)),
        "uses": uses_of(content),
        "notes": [note for note in content["notes"] if "question=" not in note],
    }


# -- shares of all items --------------------------------------------------------------------------


def shares_of(
    table: AnnotationTable,
    found: JudgeComparison,
    *,
    is_random: bool = False,
    cluster: Any = None,
    question: Any = None,
    values: Any = None,
) -> dict[str, Any] | None:
    """Estimate the share of each class among all items, and the mean of grades, of questions, too.

    The prediction for an item is the plain average of what all judges say. None if people labelled
    fewer than 25 items, or items of fewer than five clusters, or all.
    """
    table = table.observed
    people = np.isin(table.annotators.astype(str), found.people.astype(str))
    names = [str(judge.name) for judge in found.judges]
    judges = np.isin(table.annotators.astype(str), names)
    theirs, n_people = _shares(table, people)
    models, n_models = _shares(table, judges)
    items = np.flatnonzero(n_models > 0)
    labelled = np.flatnonzero((n_models > 0) & (n_people > 0))
    if len(labelled) < LEAST_LABELLED or len(labelled) == len(items):
        return None
    group, clusters = None, None
    if cluster is not None:
        among, group = np.unique(as_values(cluster)[labelled], return_inverse=True)
        if len(among) < LEAST_CLUSTERS:
            return None
        all_of = as_values(cluster)[items]
        clusters = {
            "labelled": len(among),
            "all": len(np.unique(all_of)),
            "whole": int(np.isin(all_of, among).sum()) == len(labelled),
        }
    means = np.asarray(models[items].mean(axis=0)).ravel()
    asked = np.asarray(theirs[labelled].mean(axis=0)).ravel()
    given = np.maximum(means, asked)
    if table.scale == "interval":  # Single numbers are no classes.
        given = np.zeros_like(given)
    shown = np.argsort(-given, kind="stable")[:MOST_SHOWN]
    shown = shown[given[shown] > 0]
    rows = []
    for c in np.sort(shown):
        y, f = _column(theirs, labelled, c), _column(models, labelled, c)
        F = _column(models, items, c)
        with_models = share_estimate(y, f, F, cluster=group)
        alone = share_estimate(y, np.zeros_like(y), np.zeros_like(F), cluster=group)
        rows.append({"label": _plain(table.classes[c].item())} | _told(with_models, alone))
    values = values_of_classes(table, values)
    mean: dict[str, Any] | None = None
    by_question: list[dict[str, Any]] = []
    if values is not None:
        y, f, F = theirs[labelled] @ values, models[labelled] @ values, models[items] @ values
        mean = _mean(y, f, F, group)
        if question is not None:
            by_question = list(_means(y, f, F, group, as_values(question), labelled, items))
    return {
        "n_labelled": len(labelled),
        "n_items": len(items),
        "clusters": clusters,
        "random": is_random,
        "classes": rows,
        "not_listed": int((given > 0).sum()) - len(rows),
        "mean": mean,
        "means": by_question,
        "for_half": None if mean is None else _for_half(len(labelled), len(items), clusters),
    }


def _for_half(n: int, n_all: int, clusters: dict[str, Any] | None) -> dict[str, int] | None:
    """How many items, or whole clusters, make the interval of the mean half as wide."""
    if clusters is not None:
        if not clusters["whole"]:
            return None
        n, n_all = clusters["labelled"], clusters["all"]
    drawn = drawn_for_half(n, n_all)
    return {"drawn": drawn, "more": drawn - n, "of": n_all}


def _means(
    y: FloatArray,
    f: FloatArray,
    F: FloatArray,
    group: IntArray | None,
    question: AnyArray,
    labelled: IntArray,
    items: IntArray,
) -> Iterator[dict[str, Any]]:
    """Estimate the mean of each question of which people labelled enough items."""
    asked = np.unique(question[items])
    for value in asked.tolist() if len(asked) > 1 else ():
        some, among = question[labelled] == value, question[items] == value
        own = None if group is None else group[some]
        if some.sum() < LEAST_LABELLED or (
            own is not None and len(np.unique(own)) < LEAST_CLUSTERS
        ):
            continue
        yield {"question": _plain(value)} | _mean(y[some], f[some], F[among], own)


def _mean(y: FloatArray, f: FloatArray, F: FloatArray, cluster: IntArray | None) -> dict[str, Any]:
    alone = mean_estimate(y, np.zeros_like(y), np.zeros_like(F), cluster=cluster)
    return _told(mean_estimate(y, f, F, cluster=cluster), alone)


def _column(shares: csr_matrix, rows: IntArray, c: int) -> FloatArray:
    return np.asarray(shares[rows][:, [c]].todense(), dtype=np.float64).ravel()


def _told(found: MeanEstimate, alone: MeanEstimate) -> dict[str, Any]:
    return {
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "people_alone": alone.estimate,
        "people_low": alone.low,
        "people_high": alone.high,
    }


def _shares(table: AnnotationTable, who: Any) -> tuple[csr_matrix, IntArray]:
    """Share of each class among the labels of some annotators, (n, C), and how many there are."""
    kept = who[table.annotator]
    instance, label = table.instance[kept], table.label[kept]
    n = np.bincount(instance, minlength=table.n_instances)
    counts = (1.0 / n[instance], (instance, label))
    return csr_matrix(counts, shape=(table.n_instances, table.n_classes)), n


# -- words ----------------------------------------------------------------------------------------


def lines_of(found: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines that a person reads about a comparison."""
    kappa = found["kappa"]
    people = found["people"]
    who = ", ".join(people[:8]) + (f" and {len(people) - 8} more" if len(people) > 8 else "")
    yield (
        f"{len(people)} people ({who}) labelled the same {found['n_items']:,} items. Their "
        f"agreement with one another is a kappa of {_number(kappa['kappa'])} "
        f"({_number(kappa['low'])} to {_number(kappa['high'])}; 1 is full agreement, and 0 is "
        "chance)."
    )
    yield compared_line(found["compared_as"])
    yield ""
    yield (
        "How well each judge agrees with people (1: as well as a person does), with its interval, "
        "and whether it can stand in for a person:"
    )
    names = [str(judge["name"]) for judge in found["judges"]]
    width = max(map(len, names))
    for name, judge in zip(names, found["judges"], strict=True):
        yield f"  {name:<{width}}  {line_of(judge)}"
    yield "  * means that no other judge is clearly better"
    if lines := list(open_lines(found)):
        yield from ("", *lines)
    if lines := list(question_lines(found)):
        yield from ("", *lines)
    if biased := [judge for judge in found["judges"] if judge["bias"] is not None]:
        yield ""
        yield (
            "How much higher or lower than people each judge grades the same items, with its "
            "interval:"
        )
        unit = found["compared_as"]["unit"]
        for judge in biased:
            yield f"  {judge['name']!s:<{width}}  {bias_of(judge, unit)}"
    yield from class_lines(found)


def compared_line(compared: Mapping[str, Any]) -> str:
    """Return how labels were compared, and what compares them otherwise."""
    if compared["order"] is None:
        return (
            "Labels are compared as names, which are equal or not. If they are grades, add "
            "--ordered "
            "to compare them by their distance."
        )
    order = list(map(str, compared["order"]))
    if compared["kind"] == "numbers":
        return (
            f"Labels are compared as numbers, from {order[0]} to {order[-1]}: the smaller the "
            "square of the difference, the more they agree. --ordered compares numbers in the same "
            "way, and also says how often each of them is given."
        )
    shown = order if len(order) <= MOST_SHOWN else [*order[:5], "...", *order[-5:]]
    return (
        f"Labels are compared as grades, in the order {', '.join(shown)}: the smaller the square "
        "of the difference, the more they agree. Add --scale nominal to compare them as names."
    )


def line_of(judge: Mapping[str, Any]) -> str:
    """One judge: r, its interval and the verdict."""
    if judge["r"] is None:
        return "not known  open" + (" *" if judge["may_be_best"] else "")
    ends = "no bounds"
    if judge["low"] is not None and judge["high"] is not None:
        ends = f"{judge['low']:.2f}, {judge['high']:.2f}"
    best = "  *" if judge["may_be_best"] else ""
    return f"{judge['r']:.2f} [{ends}]  {judge['verdict']}{best}"


def question_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Return a table of questions by judges, and where a judge's verdict is the opposite."""
    judges = found["judges"]
    asked = list(dict.fromkeys(q["question"] for judge in judges for q in judge["questions"]))
    if not asked:
        return
    yield (
        f"The same within each question that has {FEW_ITEMS} items or more (yes: can stand in, no: "
        "cannot):"
    )
    rows = asked[:MOST_QUESTIONS]
    lines = _padded(["", *map(str, rows)])
    n_shown = 0
    for judge in judges:
        cells = {q["question"]: _cell(q) for q in judge["questions"]}
        column = _padded([str(judge["name"]), *(cells.get(question, "") for question in rows)])
        if n_shown and 4 + len(lines[0]) + len(column[0]) > MOST_CHARACTERS:
            break
        lines = [f"{line}  {cell}" for line, cell in zip(lines, column, strict=True)]
        n_shown += 1
    yield from (f"  {line}".rstrip() for line in lines)
    left = {"question": len(asked) - len(rows), "judge": len(judges) - n_shown}
    if more := [counted(n, what) for what, n in left.items() if n]:
        yield f"  and {' and '.join(more)} more, which --json lists"
    for judge in judges:
        other = {CAN: CANNOT, CANNOT: CAN}.get(judge["verdict"])
        names = [str(q["question"]) for q in judge["questions"] if q["verdict"] == other]
        if names:
            but = "but not in" if other == CANNOT else "but it can in"
            yield (
                f"{judge['name']} {judge['verdict']} over all questions, {but} "
                f"{listed(names, len(names), MOST_SHOWN)}."
            )


def _padded(cells: list[str]) -> list[str]:
    width = max(map(len, cells))
    return [f"{cell:<{width}}" for cell in cells]


def _cell(each: Mapping[str, Any]) -> str:
    """A verdict with r, in a table; without it where people do not surely agree."""
    if each["low"] is None or each["high"] is None:
        return "open"
    verdict = {CAN: "yes", CANNOT: "no"}.get(each["verdict"], "open")
    return f"{verdict} {each['r'] + 0.0:.2f}".replace("-0.00", "0.00")


def bias_of(judge: Mapping[str, Any], unit: str) -> str:
    """By how many grades a judge grades higher or lower than people, in words."""

    def way(value: float) -> str:
        return "lower" if value < 0 else "higher"

    bias, low, high = judge["bias"], judge["bias_low"], judge["bias_high"]
    if low is None or high is None:
        ends = "no bounds"
    elif way(low) == way(high):
        ends = " to ".join(f"{end:.2f}" for end in sorted((abs(low), abs(high))))
    else:
        ends = f"{-low:.2f} lower to {high:.2f} higher"
    return f"{abs(bias):.2f} {unit} {way(bias)} ({ends})"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def open_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Return what would decide the open cases."""
    limit = 1 - found["margin"]
    for judge in found["judges"]:
        if judge["verdict"] != OPEN:
            continue
        more, n_items = judge["more_items"], judge["n_items"]
        if n_items < LEAST_OF_JUDGE:
            shared = "item" if n_items == 1 else "items"
            yield (
                f"It is open whether {judge['name']} can stand in for a person: it labelled "
                f"{n_items or 'no'} {shared} that people labelled together, which is too few. Have "
                "it label the others, too."
            )
        elif more is None or more > 100:
            yield (
                f"It is open whether {judge['name']} can stand in for a person. Its agreement is "
                "so "
                f"near {limit:.2g} of a person's, or people agree so little, that more items of "
                "this kind would hardly decide it."
            )
        else:
            n, n_all = math.ceil(more * n_items), found["n_items_of_all"]
            yield (
                f"It is open whether {judge['name']} can stand in for a person. About "
                f"{max(more, 1.1):.1f} times as many items ({n:,} in all) would decide whether it "
                f"reaches {limit:.2g} of a person's agreement"
                + (
                    f". There are only {n_all:,}, so these items cannot decide it."
                    if n > n_all
                    else ", if people label them."
                )
            )
    best = found["judges"][0]
    if best["low"] is not None and best["r"] is not None and best["low"] >= 1 - 1e-9:
        yield (
            f"{best['name']} agrees with people better than people agree with one another. A check "
            "by one person therefore does not improve its labels; have doubtful labels checked by "
            "several people."
        )


def uses_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Classes that judges give surely more, or less, often than people do, the most so first."""
    uses = [
        {"name": judge["name"], **use}
        for judge in found["judges"]
        for use in judge["classes"]
        if use["low"] is not None
        and (use["low"] >= LEAST_DIFFERENCE or use["high"] <= -LEAST_DIFFERENCE)
    ]
    return sorted(uses, key=lambda use: -abs(use["difference"]))


def class_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Say which classes judges give too often or too rarely, beside people."""
    uses = uses_of(found)
    if uses:
        yield ""
        yield "Labels that a judge gives clearly more or less often than people, on the same items:"
    for use in uses[:MOST_DIFFERENCES]:
        where = "" if use["by"] is None else f" where {use['by']!s}"
        yield (
            f"  {use['name']} says {use['label']!r} for {percent(use['judge'])} of the items"
            f"{where}, and people for {percent(use['people'])}: {difference_of(use)}"
        )
    if len(uses) > MOST_DIFFERENCES:
        yield f"  and {len(uses) - MOST_DIFFERENCES} more, which --json lists"


def difference_of(use: Mapping[str, Any]) -> str:
    """Difference in the use of a class and its interval, in words."""
    # Of the shares as they are written, so that the difference is theirs.
    points = abs(round(100 * use["judge"], 1) - round(100 * use["people"], 1))
    low, high = percent_ends(*sorted((abs(use["low"]), abs(use["high"]))))
    less = "less" if use["difference"] < 0 else "more"
    return f"{round(points, 1):g} percentage points {less} ({low} to {high})"


def share_lines(shares: Mapping[str, Any], cluster: str | None = None) -> Iterator[str]:
    """Return how often each label is right among all items; ``cluster`` is the column's name."""
    given = "drawn at random" if shares["random"] else "if these were drawn at random"
    clusters = shares["clusters"]
    if clusters is not None:
        of = f"{clusters['labelled']:,} of {clusters['all']:,}"
        given += f" by {cluster}: {of}" if clusters["whole"] else f", in {of} values of {cluster}"
    yield ""
    yield (
        f"How people would label all {shares['n_items']:,} items, from their labels of "
        f"{shares['n_labelled']:,} ({given}) and the judges' labels of all:"
    )
    names = [str(row["label"]) for row in shares["classes"]]
    width = max(map(len, names), default=0)
    for name, row in zip(names, shares["classes"], strict=True):
        yield (
            f"  {name:<{width}}  {percent(row['estimate'])} "
            f"({percent_interval(row['low'], row['high'])}; people alone "
            f"{percent_interval(row['people_low'], row['people_high'])})"
        )
    if shares["not_listed"] > 0:
        yield f"  and {shares['not_listed']} rarer labels"
    if shares["mean"] is not None:
        yield f"  mean: {_mean_of(shares['mean'])}"
    for mean in shares["means"][:MOST_QUESTIONS]:
        yield f"  mean of {mean['question']}: {_mean_of(mean)}"
    if len(shares["means"]) > MOST_QUESTIONS:
        yield f"  and {len(shares['means']) - MOST_QUESTIONS} more questions, which --json lists"
    if not shares["random"]:
        yield "  If they were, add --random; if they were not, do not use these figures."
    if shares["for_half"] is not None:
        half = shares["for_half"]
        unit = "items" if clusters is None else f"values of {cluster}"
        yield (
            "  For half as wide an interval of the mean, people must label about "
            f"{half['drawn']:,} of the {half['of']:,} {unit}: {half['more']:,} more, "
            "drawn at random."
        )
    if clusters is None:
        yield (
            "  The intervals are for items that were drawn one by one. If whole documents were "
            "drawn, name their column (--cluster); without it, the intervals are too narrow."
        )
    elif not clusters["whole"]:
        yield (
            f"  People labelled only a part of some values of {cluster}. If the items were drawn "
            "one by one, these intervals are rather too wide."
        )


def _mean_of(mean: Mapping[str, Any]) -> str:
    return (
        f"{mean['estimate']:.2f} ({mean['low']:.2f} to {mean['high']:.2f}; people alone "
        f"{mean['people_low']:.2f} to {mean['people_high']:.2f})"
    )


def answer_judges(s: Mapping[str, Any]) -> Answer:
    """Answer which models can stand in for a person; nothing is asked where nobody is a judge."""
    judges = s.get("judges", {}).get("judges")
    if not judges:
        return "judges", ""
    able = [row["name"] for row in judges if row["verdict"] == CAN]
    undecided = sum(row["verdict"] == OPEN for row in judges)
    of = counted(len(judges), "model")
    text = f"{len(able) or 'None'} of {of} can stand in for a person"
    text += f": {listed(able, len(able), 3)}" if able else ""
    return "judges", f"{text}; {undecided:,} undecided." if undecided else f"{text}."


JUDGES = Section(
    "judges",
    "Can the models stand in for people?",
    "judges.html",
    judges_section,
    words={
        "bias_of": bias_of,
        "difference_of": difference_of,
        "most_differences": MOST_DIFFERENCES,
    },
    answer=answer_judges,
)
