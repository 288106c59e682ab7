"""The headline of a report: how many labels are right, and how many predictions of new items.

Each figure comes with its interval and its source (`manyhands.metrics.levels`). Whatever else
speaks of right and wrong labels takes its figure from here: the other parts of the report, the
commands ``aggregate``, ``fit``, ``next`` and ``budget``, and the explorer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.groups import (
    ALONE,
    can_be_judged,
    in_families,
    in_one_family,
    undeclared_models,
    unit_of,
    units_per_instance,
)
from manyhands.decision.labels import is_scale_of_grades
from manyhands.inference.shared_mistakes import declaring, suspected
from manyhands.inference.votes import HARMLESS_CLASSES
from manyhands.metrics import Level
from manyhands.metrics.certainty import certainty_of, level_of_some
from manyhands.metrics.grades import within_one
from manyhands.metrics.inferred_labels import known_of, level_of_labels
from manyhands.metrics.sample_levels import VAGUE
from manyhands.report.filters import clipped, count, percent, percent_range
from manyhands.report.section import Findings
from manyhands.typing import BoolArray, FloatArray, IntArray
from manyhands.wording import DRAW_SAMPLE, N_RANDOM, SAMPLE_TELLS, percent_ends

Summary = Mapping[str, Any]


class Told(NamedTuple):
    """What a person is told of the labels.

    Attributes
    ----------
    level : Level or None
        None if nothing tells.
    headline : str
        The same in a sentence.
    """

    level: Level | None
    headline: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        level = None if self.level is None else self.level.to_dict()
        return {"level": level, "headline": self.headline}


SECOND_ANSWERS_TELL = (
    "Second annotations of some items would show it (`manyhands next ANNOTATIONS` lists the items)."
)
"""Advice where most items have one annotation."""


def tell_labels(
    table: AnnotationTable,
    model: Any,
    codes: IntArray,
    posterior: FloatArray | None = None,
    *,
    identified: BoolArray | None = None,
    **measured: Any,
) -> Told:
    """Tell how many of a table's labels are right, as `level_of_labels` finds it and in words.

    ``identified`` is that of a fitted aggregator unless it is given; ``measured`` are the other
    arguments of `level_of_labels`.
    """
    decided = getattr(model, "identified_", None) if identified is None else identified
    alike = suspected(table)
    measured = {"alike": alike} | measured
    level = level_of_labels(table, model, codes, posterior, identified=decided, **measured)
    fitted = measured.get("fitted") or model
    levels = _facts(table, level, fitted, decided, alike)
    n_open = int(((codes < 0) & (table.annotations_per_instance() > 0)).sum())
    levels["n"] -= n_open  # Without a label, nothing is right or wrong.
    if posterior is not None and is_scale_of_grades(table):
        known = known_of(table, fitted)
        certainty = certainty_of(table, level, posterior, codes, known)
        gold = measured.get("gold")
        near = within_one(table, level, certainty, posterior, codes, known=known, gold=gold)
        levels["within_one"] = None if near is None else near.to_dict()
    return Told(level, headline({"levels": levels, "data": {"n_classes": table.n_classes}}))


def tell_decided(
    table: AnnotationTable,
    level: Level | None,
    codes: IntArray,
    posterior: FloatArray,
    is_open: BoolArray,
    least: float,
    *,
    known: BoolArray | None = None,
    gold: IntArray | None = None,
) -> Told:
    """Tell how many labels are right of those that are not left open.

    Parameters
    ----------
    table : AnnotationTable
    level : Level or None
        Of all labels, as `tell_labels` returns it.
    codes : integer array of shape (n_instances,)
        Labels of all instances, the open ones included.
    posterior : array of shape (n_instances, n_classes)
    is_open : boolean array of shape (n_instances,)
        Instances whose label is left open.
    least : float
        Probability below which it is.
    known : boolean array of shape (n_instances,), optional
        Instances whose label was given.
    gold : integer array of shape (n_instances,), optional
        True classes, -1 where unknown.
    """
    annotated = table.annotations_per_instance() > 0
    own, n_open = annotated & ~is_open, int((annotated & is_open).sum())
    if not own.any():
        return Told(None, "Every label was left open.")
    rest = f"the other {n_open:,} {'was' if n_open == 1 else 'were'} left open."
    n = int((own if known is None else own & ~known).sum())
    labels = count(n, "label")
    if not n:
        return Told(None, f"Only known labels are that certain; {rest}")
    found = level_of_some(table, level, posterior, codes, own, known=known, gold=gold)
    sure = f"{'is' if n == 1 else 'are'} at least {100 * least:g}\u202f% certain"
    if found is None or level is None:
        asked = f"how many of the {labels} are right" if n > 1 else "whether it is right"
        return Told(None, f"It is not known {asked} that {sure}; {rest}")
    part, near = found.level, None
    if is_scale_of_grades(table):
        certainty = certainty_of(table, level, posterior, codes, known)
        more: dict[str, Any] = {"some": own, "known": known, "gold": gold}
        near = within_one(table, part, certainty, posterior, codes, **more)
    fact = _told_decided(part, labels, sure, found.is_measured)
    if gold is not None and level.source == "gold" and not found.is_measured:
        fact += _told_few(codes, gold, own if known is None else own & ~known, level.n)
    is_of_some = near is not None and near.n != part.n
    near_of = _told_near({"within_one": None if near is None else near.to_dict()}, of=is_of_some)
    return Told(part, f"{fact}{near_of} T{rest[1:]}")


def told_in(summary: Summary, n_known: int | None = None) -> Told | None:
    """Return the claim of a summary about its labels; about other known ones if ``n_known``."""
    found = summary.get("levels")
    if not found:
        return None
    level = None if found["labels"] is None else Level(**found["labels"])
    if n_known is not None:
        summary = dict(summary) | {"levels": found | {"n_known": n_known}}
    return Told(level, headline(summary))


def is_calibrated(summary: Summary) -> bool:
    """Return whether the model of a summary knows how often it is right."""
    return bool((summary.get("levels") or {}).get("is_calibrated"))


def _facts(
    table: AnnotationTable,
    level: Level | None,
    fitted: Any,
    identified: BoolArray | None,
    alike: BoolArray,
) -> dict[str, Any]:
    """Return what the headline says of a table's labels, or why it says nothing."""
    annotated = table.annotations_per_instance() > 0
    decided = identified is None or are_decided(identified, annotated)
    apart = in_one_family(table, alike) if alike.any() else table
    groups = np.full(table.n_annotators, ALONE) if table.groups is None else table.groups
    declared = np.unique(groups[in_families(groups, table.n_annotators)]).tolist()
    known = known_of(table, fitted)
    return {
        "n": int(annotated.sum()),
        "n_known": 0 if known is None else int((known & annotated).sum()),
        "labels": None if level is None else level.to_dict(),
        "identified": bool(decided),
        "anonymous": not getattr(table, "annotators_known", True),
        "alike": table.annotators[alike].tolist(),
        "declare": declaring(table.annotators[alike].tolist()) if alike.any() else None,
        "n_units": len(np.unique(unit_of(apart)[apart.annotator])),
        "single": bool(np.mean(units_per_instance(apart)[annotated] > 1) < 0.5),
        "families": bool(in_families(apart.groups, apart.n_annotators).any()),
        "declared": declared,
        "models": bool(alike.any() and undeclared_models(None, table.annotators[alike]).all()),
        "comparable": can_be_judged(apart, known),
    }


def are_decided(identified: BoolArray, annotated: BoolArray) -> bool:
    """Return whether the annotations decide most labels; both are masks of shape (n,)."""
    return not annotated.any() or bool(np.mean(identified[annotated]) > 0.5)


def find_levels(found: Findings) -> dict[str, Any] | None:
    """Levels of the inferred labels, and of predictions of new items; None without annotations.

    They stand under ``summary["levels"]``.
    """
    inputs, inferred, new_items = found.inputs, found.inputs.inferred, found.new_items
    if inferred is None:
        return None
    model, level = inputs.source, inputs.level
    alike = suspected(inputs.table)
    facts = _facts(inputs.table, level, inputs.aggregator or model, inputs.identified, alike)
    near = None
    if inferred.probable and is_scale_of_grades(inputs.table):
        near = within_one(
            inputs.table,
            level,
            inputs.certainty,
            inferred.posterior,
            inferred.codes,
            known=inputs.known,
            gold=inputs.level_gold,
        )
    return facts | {
        "within_one": None if near is None else near.to_dict(),
        "new_items": None if new_items is None else new_items.to_dict(),
        "has_classifier": inputs.classifier is not None,
        "is_calibrated": bool(getattr(model, "_knows_its_accuracy", False)),
    }


class Headline(NamedTuple):
    """How many labels are right: the fact and, where nothing tells, why not and what would."""

    fact: str
    why: str = ""


def headline(summary: Summary) -> str:
    """Say how many labels are right, with interval and source, in a sentence or two."""
    return "".join(headline_and_reason(summary))


def headline_and_reason(summary: Summary) -> Headline:
    """Say the same as `headline` in two parts: where nothing tells, the reasons are no headline."""
    found = summary.get("levels")
    if not found:
        return Headline("")
    n, level = found["n"], found["labels"]
    rest = n - found.get("n_known", 0)
    if n and not rest:
        return Headline(
            f"Every label was given: {count(n, 'known label')}, and nothing was inferred."
        )
    labels = count(rest, "label" if rest == n else "other label")
    if level is None:
        asked = f"how many of the {labels} are right" if rest > 1 else f"whether {labels} is right"
        return Headline(f"It is not known {asked}: ", _why_unknown(summary))
    fact = _told_level(found, level, rest, labels) + _told_near(found)
    if level["source"] in ("gold", "sample"):
        return Headline(fact, _told_other_part(level))
    why = [_told_alike(found)] if found.get("alike") else []
    why += [_told_unmeasured(n - rest)] if rest < n else []
    return Headline(fact, "".join(f" {text}" for text in why))


def _told_near(found: Mapping[str, Any], *, of: bool = False) -> str:
    """Say of grades how many are within one of the truth; ``of``: on how many gold labels."""
    near = found.get("within_one")
    if not near:
        return ""
    if near["source"] == "gold":
        on = f", measured on the {count(near['n'], 'gold label')}" if of else ""
        return f" {percent_range(near)} are within one grade of the truth{on}."
    least, _ = percent_ends(near["low"], 1.0)
    return f" At least {least}\u202f% are probably within one grade of the truth."


def _told_level(found: Mapping[str, Any], level: Mapping[str, Any], rest: int, labels: str) -> str:
    """Say a level that is known, of the ``rest`` that was not given as known."""
    n = found["n"]
    share = percent_range(level)
    certain = f"More than {share[1:]}" if share.startswith(">") else share
    which = "the labels" if rest == n else f"the {labels}"
    if level["source"] == "sample":
        which = which.replace("other ", "")
        return (
            f"{certain} of {which} that nobody reviewed are right, estimated from "
            f"{count(level['n'], 'randomly drawn label')} that people checked."
        )
    if level["source"] == "gold":
        if level["n"] >= rest:
            return f"{certain} of {which} are right, measured on gold labels for all of them."
        return f"{certain} of {which} are right, measured on {count(level['n'], 'gold label')}."
    about = certain if share.startswith(">") else f"About {share}"
    return f"{about} of the {labels} are right: estimated from how annotators agree, not measured."


def _told_decided(level: Level, labels: str, sure: str, is_measured: bool) -> str:
    """Say the level of the labels that are not left open."""
    share = percent_range(level.to_dict())
    share = f"More than {share[1:]}" if share.startswith(">") else share
    if level.source == "sample":
        by = count(level.n, "randomly drawn label")
        return (
            f"{share} of the {labels} that nobody reviewed and that {sure} are right, estimated "
            f"from {by} that people checked."
        )
    which = f"{share} of the {labels} that {sure} are right"
    if level.source == "gold":
        by = "measured on" if is_measured else "estimated from"
        return f"{which}, {by} {count(level.n, 'gold label')}."
    about = which if share.startswith("More") else f"About {which}"
    return f"{about}: estimated from how annotators agree, not measured."


def _told_few(codes: IntArray, gold: IntArray, some: BoolArray, n_gold: int) -> str:
    """Say why a share is not measured on the gold labels of some labels, and what these show."""
    judged = some & (gold >= 0)
    n, right = int(judged.sum()), int((codes == gold)[judged].sum())
    if not n or n == n_gold:
        return ""
    has = "has a gold label" if n == 1 else "have gold labels"
    return (
        f" Only {n:,} of these labels {has} ({right:,} {'is' if right == 1 else 'are'} "
        f"right), too few to measure the share, so it is estimated from all {n_gold:,}."
    )


APART = 0.02
"""Difference of two shares from which a reader may ask why they differ."""


def _told_other_part(level: Mapping[str, Any]) -> str:
    """Say of which labels a measured share is, if it is another one in the sample or outside."""
    other = level.get("other_part")
    if other is None or abs(other - level["value"]) < APART:
        return ""
    if level["source"] == "gold":
        lower = "lower" if other < level["value"] else "higher"
        return (
            " This is the share in the sample. To estimate the share of all other labels, give the "
            "same file as --known in place of --gold. That estimate also uses how certain the "
            f"labels are; it is probably {lower}."
        )
    return (
        f" Of the {count(level['n'], 'checked label')}, {percent(other)} were right before the "
        "check. The estimate also uses how certain the other labels are."
    )


def _told_alike(found: Mapping[str, Any]) -> str:
    """Say what the level depends on where some annotators may share mistakes, and what mends it."""
    return (
        f"{_named(found['alike'])} may share mistakes. If they do, the share of right labels is "
        f"in the lower part of this range; if not, in the upper part. {_counted_apart(found)}"
    )


def _told_unmeasured(n: int) -> str:
    """Say why known labels, such as a review's, may not make the range narrower.

    A queue holds the labels that a model doubts. What it is wrong about among the others, it cannot
    see, so its expectation is less exact there (`REVIEWED_ERROR`).
    """
    labels, they = ("The known label", "it was") if n == 1 else ("The known labels", "they were")
    return (
        f"{labels} may leave this range as wide as it was before, or wider: nothing says that "
        f"{they} drawn at random, and mistakes that the model did not doubt remain among the other "
        f"labels. Checking {N_RANDOM} random items would narrow the range (`{DRAW_SAMPLE}`)."
    )


def _named(alike: list[Any]) -> str:
    """Name the first annotators of several."""
    shown = [clipped(name) for name in alike[:3]]
    if more := len(alike) - len(shown):
        return f"{', '.join(shown)} and {more} more"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


def _counted_apart(found: Mapping[str, Any]) -> str:
    """Say that labels count annotators one by one who may share mistakes, and what mends it."""
    n = count(len(found["alike"]), "independent annotator")
    text = f"The labels count them as {n} so far"
    if option := found.get("declare"):
        return (
            f"{text}. Declare them as one family ({option}), and the labels are inferred again "
            "with the family as little more than one annotator."
        )
    return f"{text}."


def _families_of(found: Mapping[str, Any]) -> str:
    """Say which annotators count as one, and why."""
    if alike := found.get("alike"):
        why = (
            "are named like language models, which often make the same mistakes"
            if found.get("models")
            else "may share mistakes"
        )
        return f"{_named(alike)} count as one, because they {why}"
    if declared := found.get("declared"):
        family = "family" if len(declared) == 1 else "families"
        each = "counts" if len(declared) == 1 else "each count"
        names = _named([f"“{name}”" for name in declared])
        return f"the declared {family} {names} {each} as one"
    return "a family counts as one"


def _undo_family(found: Mapping[str, Any]) -> str:
    """Say how annotators no longer count as one; "" where no family is known by name."""
    if found.get("alike"):
        return "If they have no reason to share mistakes, add --groups none. "
    if found.get("declared"):
        return (
            "If they have no reason to share mistakes, leave out the option that declares them "
            "(--groups or --people). "
        )
    return ""


def _why_unknown(summary: Summary) -> str:
    """Why nothing is said of the labels, and what would tell."""
    found, n_classes = summary["levels"], summary["data"]["n_classes"]
    if n_classes < 2:
        return "there is one class only."
    if found.get("anonymous"):
        return (
            "the data do not say who gave which label, so no annotator can be compared with others."
        )
    if n_classes > HARMLESS_CLASSES:
        return f"{n_classes:,} classes are too many to compare annotators by."
    tell = SAMPLE_TELLS
    alike, n_units = found.get("alike"), found.get("n_units", 3)
    if n_units < 3 or not found.get("comparable", True):
        others = "a third annotator" if n_units == 2 else "more annotators"
        tell += f", and so would {others} with no reason to share mistakes."
        if alike:
            return (
                f"{_named(alike)} may share mistakes, so that their agreement proves little, and "
                f"what the others add does not show how good they are. {_counted_apart(found)} "
                f"{tell}"
            )
        if n_units == 1:
            return (
                "all annotations are by one annotator, or one family, and nobody else shows their "
                f"mistakes. {tell}"
            )
        if n_units == 2:
            return (
                f"there are two annotators ({_families_of(found)}), and how often they agree does "
                f"not show how good either of them is. {tell}"
            )
        if not found.get("single"):
            return (
                "the other annotators share items with one annotator (or one family) only, and how "
                f"often two annotators agree does not show how good either of them is. {tell}"
            )
    if not found.get("identified", True):
        return f"the annotations do not show who is right. {tell}."
    if found.get("single"):
        return (
            f"most items were labelled by one annotator only ({_families_of(found)}), so nothing "
            f"shows who is right. {_undo_family(found)}{SECOND_ANSWERS_TELL}"
            if found.get("families")
            else "most items have only one annotation, so no two answers can be "
            f"compared. {SECOND_ANSWERS_TELL}"
        )
    return f"there are too few labels for an estimate. {tell}."


def headline_of_new_items(summary: Summary) -> str:
    """Say how often the classifier is right on new items; empty without a classifier."""
    found = summary.get("levels")
    if not found or not found["has_classifier"]:
        return ""
    return told_of_new_items(found["new_items"])


def is_told(level: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a level of new items is known closely enough to be told."""
    return level is not None and level["high"] - level["low"] <= VAGUE


def told_of_new_items(level: Mapping[str, Any] | None) -> str:
    """Say how often a classifier is right on new items; ``level`` as of `Level.to_dict`."""
    if not is_told(level):
        return (
            "It was not estimated how often the classifier is right on new items. Its answers on "
            "items that it was trained on do not show this."
        )
    if level["source"] == "gold":
        how = f"measured on {count(level['n'], 'gold label')} that it was not trained on"
        return f"On new items, the classifier is right in {percent_range(level)} of cases, {how}."
    return (
        f"On new items, the classifier is right in {percent_range(level)} of cases, as "
        "estimated by cross-validation against the annotators’ labels."
    )


def n_wrong(summary: Summary) -> float | None:
    """Number of wrong labels that the headline implies; None if nothing tells."""
    found = summary.get("levels")
    if not found:
        return None
    rest = found["n"] - found.get("n_known", 0)
    if not rest:
        return 0.0
    return None if found["labels"] is None else float(rest * (1.0 - found["labels"]["value"]))


def share_of_wrong(found: Findings, share: float) -> float:
    """Wrong labels that a share of the wrong annotations is to blame for."""
    wrong = n_wrong({"levels": found.once(find_levels)})
    return share * (found.inputs.table.n_instances if wrong is None else wrong)


def number_of_wrong(value: float) -> str:
    """Write an expected number of wrong labels."""
    if value < 0.5:  # Not "none": that would be said of all labels with certainty.
        return "fewer than one"
    return "about one" if value < 1.5 else f"about {value:,.0f}"
