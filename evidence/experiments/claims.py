"""Claims of a paper as its file states them; `evidence.pages.verdicts` judges them.

::

    claims:
      - id: decomposing-helps
        text: Decomposing noise helps where common noise exists.
        test: {kind: paired, better: conal/a, than: crowd_layer/a, by: 0.0}
      - id: recovers
        text: The learnt common matrix recovers the true one.
        test: {kind: at_most, row: conal/a, metric: common_error, value: 0.1}
      - id: grows
        text: Imbalance grows from the first round to the last.
        test: {kind: paired, better: dasc/a, at: last, than: dasc/a, than_at: first,
               metric: imbalance}
      - id: chosen
        text: The epoch chosen without gold labels is better than the last one.
        test: {kind: paired, better: conal/a, selection: chosen on held-out annotations,
               than: conal/a, than_selection: last epoch}

Kinds of tests: ``paired`` (``better``, ``than``: a row each, or lists of equally many rows whose
means are compared; ``by``, default 0), ``best`` (compares one row with the row of the list ``than``
that has the highest mean), ``at_most`` and ``at_least`` (``row``, ``value``), ``near`` (``row``,
``value``, ``within``), and ``untestable`` (``why``). All but the last take ``metric`` (default:
accuracy) and ``selection`` (default: last epoch). Tests of one row take ``exact: true`` if nothing
in the figure is random, such as a fact of the data.

With ``at``, the metric is a column of the history: ``last`` or ``first`` is the last or first row
that has a value, ``{round: 3}`` the row where the column ``round`` is 3. ``stage`` restricts this
to the rows of one stage. ``paired`` takes ``than_selection`` and ``than_at`` if they differ for
``than``, so a row can be compared with itself at another point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evidence.experiments.document import Document, Where
from evidence.experiments.papers import ENDS, SIDES, Claim, row_ids
from evidence.experiments.plans import check_row_id, check_selection, check_texts
from evidence.records.records import LAST, ORACLE, SELECTIONS, SHARES

_MEASURE = {"metric": "accuracy", "selection": LAST}
_POINT = {**_MEASURE, "at": None, "stage": None}
_BOUND = {**_POINT, "exact": False}

KINDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "paired": (
        ["better", "than"],
        {**_POINT, "than_selection": None, "than_at": None, "by": 0.0},
    ),
    "best": (["better", "than"], {**_MEASURE, "by": 0.0}),
    "at_most": (["row", "value"], _BOUND),
    "at_least": (["row", "value"], _BOUND),
    "near": (["row", "value", "within"], _BOUND),
    "untestable": (["why"], {}),
}
"""Kind of test -> its required fields, and its optional fields with their defaults."""


def read_claim(document: Document, where: Where, rows: Sequence[str]) -> Claim:
    """Read and check a claim; ``rows`` are the ids that it may name."""
    fields = document.mapping(where, required=["id", "text", "test"], optional={})
    check_texts(document, where, fields, ("id", "text"), ())
    inside = (*where, "test")
    given = document.at(inside)
    kind = given.get("kind") if isinstance(given, dict) else None
    if kind not in KINDS:
        document.fail(
            (*inside, "kind"), f"test is of kind {kind!r}; write one of {', '.join(KINDS)}"
        )
    required, optional = KINDS[kind]
    test = document.mapping(inside, required=["kind", *required], optional=optional)
    for name in ("by", "value", "within"):
        if name in test and name in given:
            document.number((*inside, name), 0.0 if name == "within" else -1e300)
    if "exact" in given and not isinstance(given["exact"], bool):
        document.fail((*inside, "exact"), f"exact is {given['exact']!r}; write true or false")
    for name in SIDES:
        _check_side(document, (*inside, name), test.get(name), rows)
    if kind == "paired" and len(row_ids(test["better"])) != len(row_ids(test["than"])):
        document.fail(inside, "better and than name different numbers of rows; name equally many")
    if kind == "best" and not isinstance(test["better"], str):
        document.fail((*inside, "better"), "better names several rows; name one")
    if kind == "best" and test["better"] in row_ids(test["than"]):
        document.fail((*inside, "than"), "than contains the row of better; leave it out")
    if "metric" in test:
        _check_measure(document, inside, test)
    return Claim(fields["id"], fields["text"], test)


def _check_measure(document: Document, where: Where, test: Mapping[str, Any]) -> None:
    """Check what a test measures on its sides, and at which point."""
    given = document.at(where)
    check_texts(document, where, test, ("metric",), ())
    if test.get("at") is not None:
        _check_noted(document, where, test)
    elif given.get("than_at") is not None:
        document.fail(
            (*where, "than_at"), "than_at without at; add at, the row of better's history"
        )
    elif test.get("stage") is not None:
        document.fail((*where, "stage"), "stage without at; add at, a row of the history")
    else:
        document.check_metric((*where, "metric"), test["metric"])
    # A claim that only an oracle supports is not supported.
    known = [name for name in SELECTIONS if name != ORACLE]
    check_selection(document, (*where, "selection"), test["selection"], known)
    if test.get("than_selection") is not None:
        check_selection(document, (*where, "than_selection"), test["than_selection"], known)
        if test["metric"] not in SHARES:
            document.fail(
                (*where, "than_selection"),
                f"metric is {test['metric']!r}, which exists for the last epoch only; leave "
                f"than_selection out, or measure {' or '.join(SHARES)}",
            )
    first, than = (
        [test.get(f"{side}{name}") or test.get(name) for name in ("selection", "at")]
        for side in ("", "than_")
    )
    if "than" in test and row_ids(test["better"]) == row_ids(test["than"]) and first == than:
        document.fail(
            (*where, "than"),
            "better and than are the same; name another row, or another than_at or than_selection",
        )


def _check_noted(document: Document, where: Where, test: Mapping[str, Any]) -> None:
    """Check a test of a column of the history."""
    given = document.at(where)
    if "metric" not in given:
        document.fail((*where, "at"), "at without metric; add metric, a column of the history")
    for name in ("selection", "than_selection"):
        if name in given:
            document.fail(
                (*where, name), f"{name} beside at: a history has every epoch; leave one out"
            )
    for name in ("at", "than_at"):
        at = given.get(name)
        value = next(iter(at.values())) if isinstance(at, dict) and len(at) == 1 else None
        a_number = isinstance(value, int | float) and not isinstance(value, bool)
        if at not in (None, *ENDS) and not a_number:
            document.fail(
                (*where, name),
                f"{name} is {at!r}; write {', '.join(ENDS)}, or another column and its number: "
                "{round: 3}",
            )
    if test["stage"] is not None:
        check_texts(document, where, test, ("stage",), ())


def _check_side(document: Document, where: Where, side: Any, rows: Sequence[str]) -> None:
    if isinstance(side, list):
        if not side:
            document.fail(where, f"{where[-1]} is empty; name a row")
        for i, name in enumerate(side):
            check_row_id(document, (*where, i), name, rows)
    elif side is not None:
        check_row_id(document, where, side, rows)
