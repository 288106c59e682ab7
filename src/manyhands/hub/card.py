"""The model card of a shared classifier: method, training data and accuracy."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from manyhands._version import __version__
from manyhands.agreement import krippendorff_alpha, percent_agreement
from manyhands.annotations import LabelSetTable, as_table
from manyhands.fitting.parameters import describe_parameter

MARK = "library_name: manyhands"
FRONT = f"""---
{MARK}
tags: [crowdsourcing, learning-from-crowds, noisy-labels]
---"""


def card(model: Any, include_annotators: bool, anonymise: bool, annotations: Any) -> str:
    """Return the text of a card: the classifier, its training data, and its annotators."""
    while hasattr(vars(model).get("estimator_"), "annotators_"):
        model = model.estimator_
    summary, papers = _method(type(model))
    classes = ", ".join(_code(value) for value in model.classes_[:50].tolist())
    more = f", ... ({len(model.classes_)})" if len(model.classes_) > 50 else ""
    if include_annotators:
        names = "numbers in place of their ids" if anonymise else "their ids"
        n = len(model.annotators_)
        profiles = f"The profiles of the {n} annotators are included, under {names}."
    else:
        profiles = (
            "Ids and profiles of annotators are left out. `predict_annotation_proba` works for new "
            "annotators only, and predicts for them what the crowd as a whole would answer."
        )
    return "\n".join(
        [
            FRONT,
            f"# {type(model).__name__}",
            "",
            f"{summary} Trained with manyhands {__version__} on the annotations of fallible people "
            "rather than on gold labels.",
            "",
            *(f"Method: {paper}" for paper in papers),
            "",
            "```python",
            "from manyhands.hub import from_pretrained",
            "",
            f'model = from_pretrained("<repository or folder>"{_own_network(model)})',
            "model.predict_proba(X)",
            "```",
            "",
            "## Data",
            "",
            f"- {_kind_of_classes(model)}: {classes}{more}",
            *_counts(model, annotations),
            "",
            "## Annotators",
            "",
            profiles,
            "",
            "## Accuracy",
            "",
            "",
        ]
    )


def _kind_of_classes(model: Any) -> str:
    return "Options, of which several may apply" if hasattr(model, "options_") else "Classes"


def _own_network(model: Any) -> str:
    """Return the code of the argument ``backbone``, if the user's own network is not saved."""
    described = describe_parameter(getattr(model, "backbone", None))
    is_own = isinstance(described, dict) and "__object__" in described
    return f", backbone={described['__object__']}(...)" if is_own else ""


def _method(cls: type) -> tuple[str, list[str]]:
    """Return the first sentence of a class's documentation, and its references."""
    text = inspect.getdoc(cls) or ""
    module = inspect.getdoc(sys.modules[cls.__module__]) or ""
    pattern = r"^\.\. \[(\d+)\] ((?:.+\n?)(?:[ ]{3}.+\n?)*)"
    found = re.findall(pattern, module, re.M) or re.findall(pattern, text, re.M)
    summary = re.sub(r"\s*\[\d+\]_|`", "", " ".join(text.split("\n\n")[0].split()))
    return summary, [" ".join(paper.split()) for _, paper in found]


def _counts(model: Any, annotations: Any) -> list[str]:
    if annotations is None:
        return [f"- Annotators: {len(model.annotators_)}"]
    holds_sets = isinstance(annotations, LabelSetTable)
    table = annotations if holds_sets else as_table(annotations).observed
    n, annotated = table.n_annotations, int((table.annotations_per_instance() > 0).sum())
    if holds_sets:
        alpha = krippendorff_alpha(table, distance="jaccard")
        agreement = f"Krippendorff's alpha {alpha:.2f} (Jaccard distance between sets)"
    else:
        alpha = krippendorff_alpha(table)
        agreement = (
            f"{100 * percent_agreement(table):.0f} % of pairs; Krippendorff's alpha {alpha:.2f}"
        )
    return [
        f"- Annotators: {int((table.annotations_per_annotator() > 0).sum())}",
        f"- Annotated instances: {annotated:,}",
        f"- Annotations: {n:,} ({n / annotated:.1f} per instance)",
        f"- Agreement: {agreement}",
    ]


def accuracy_on_card(model: Any, gold: tuple[Any, Any] | None, estimate: Any) -> str:
    """Return lines on the accuracy of a model, by gold labels and by annotations alone."""
    lines = []
    if gold is not None:
        n = len(np.asarray(gold[1]))
        score, last = model.score(*gold), model[-1] if isinstance(model, Pipeline) else model
        if hasattr(last, "options_"):
            lines.append(f"- With gold labels: micro-F1 {100 * score:.1f} % on {n:,} instances.")
        else:
            lines.append(f"- With gold labels: {100 * score:.1f} % of {n:,} instances.")
    if estimate is not None:
        interval = f"(interval {100 * estimate.low:.1f} % to {100 * estimate.high:.1f} %)"
        lines.append(
            f"- Estimated from annotations alone: {100 * estimate.value:.1f} % {interval}."
        )
    return "\n".join(lines or ["Not measured."]) + "\n"


def _code(value: Any) -> str:
    """Write a class as code, so that none of its characters acts as Markdown."""
    return "`" + " ".join(str(value).replace("`", "'").split()) + "`"
