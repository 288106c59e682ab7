"""Messages of the library, which speak Python, in the words of the command line."""

from __future__ import annotations

import re
import shlex
from ast import literal_eval
from collections.abc import Callable
from typing import Final

from manyhands.wording import for_commands

QUOTES: Final = "'\""

OPTIONS: Final = {
    **{
        name: f"--{name}"
        for name in (
            *("task", "worker", "label", "annotators", "duplicates", "scale", "classes"),
            *("abstain", "skip", "format", "question", "multilabel", "option", "encoding"),
            *("separator", "sheet", "groups", "pairs", "load", "cost", "holdout", "seeds"),
            *(
                "cv",
                "method",
                "rule",
                "protocol",
                "criterion",
                "threshold",
                "by",
                "people",
                "cluster",
                "margin",
                "left",
                "right",
                "winner",
                "weight",
                "out",
                "random",
                "to",
                "texts",
                "images",
            ),
        )
    },
    "annotator_from": "--annotator-from",
    "group": "--groups",
    "none": "--none",
    "gold": "--known",
    "audited": "--audit",
    "mapping": "--map",
    "annotator_mapping": "--map-annotators",
}
"""Arguments, and the options that stand for them."""

OF_READING: Final = (
    *("anonymise", "drop_rejected", "fields", "items", "label_config"),
    "predictions_as_annotators",
)
"""Arguments that --read takes."""

OF_METHODS: Final = (
    *("abstentions", "backbone", "device", "batch_size", "class_balance", "decision", "dependence"),
    *("em", "targets"),
    *("guard", "imbalance", "lr", "max_epochs", "max_iter", "monitor", "n_restarts", "n_rounds"),
    *("patience", "prior", "random_state", "ties", "tol", "validation", "warm_start", "decision"),
    *("position", "reliability", "scaling", "strength_variance"),
    *("class_prior", "connection", "cover_classes", "generator", "init_scale", "low_rank"),
    *(
        "n_select",
        "n_neighbors",
        "regression",
        "synthesis",
        "synthetic_labels",
        "warm_up_batch_size",
    ),
)
"""Parameters of methods, which --set takes."""

VALUES: Final = {
    **dict.fromkeys(("mapping", "annotator_mapping", "gold", "audited", "pairs"), "FILE"),
    **dict.fromkeys(("left", "right", "winner"), "COLUMN"),
}
"""What an option takes where a message names none."""

LIST: Final = r"\[(?:'[^']*'|\"[^\"]*\"|[^\[\]'\"])*\]"
VALUE: Final = rf"('[^']*'|\"[^\"]*\"|\{{[^{{}}]*\}}|{LIST}|<[^>]*>|-?\w[\w.-]*)?"

PHRASES: Final[list[tuple[str, str]]] = [
    (r"manyhands\.io\.read_label_sets \(multilabel='(.)'\)", r"--multilabel '\1'"),
    (
        r"\b(task|worker|label|left|right|winner|question|weight)=('[^']*'|\"[^\"]*\")"
        r" is not a column",
        r"there is no column \2 (--\1)",
    ),
    (r"\bgroup=('[^']*') is not a column", r"there is no column \1 (--groups)"),
    (r"\bmodel\.next_pairs\((\d+)\)", r"--next \1"),
    (r"\bnext_pairs\(\)", "--next"),
    (r" \(table\.select\(items=\.\.\.\)\)", " (keep the rows of these alone)"),
    (r": fit\(table\.select\(items=\.\.\.\)\)", ", by keeping the rows of these alone"),
    (r"\bprotocol=\w+\((\w+='?\w+'?)\)", r"\1"),
    (r", fields of the protocol\b", ""),
    (r"\b(\w+) and (\w+) of the protocol\b", r"\1= and \2="),
    (r"\blowercase=True\b", "--lowercase"),
    (r"\bordered=True\b", "--ordered"),
    (r"\(gold=, on the command line --known\)", "(--known FILE)"),
    (r"\bnext_for\(\) lists", "`manyhands next ANNOTATIONS` lists"),
    (r"\banother checkpoint=", "--restart, or another --out"),
    (r"\bnamed in methods=", "named by --method instead of --compare"),
    (r"\bclasses=, abstain= or skip=", "--classes, --abstain or --skip"),
    (r"manyhands\.io\.read_export\(\.\.\.\)\.left_out", "`manyhands describe ANNOTATIONS`"),
    (r"read_export\(\.\.\.\)\.gold holds them", "give the file as --gold beside annotations"),
    (r"read_export\(\.\.\.\)\.tables holds them", "--option names one of them"),
    (
        r"read_export\(\.\.\.\)\.gold has them",
        "to measure against them, give the file as --gold, too",
    ),
    (r"read_gold\(\) reads it", "to measure against it, give the file as --gold, too"),
    (r"\bwith_groups\(\) changes it", "--groups changes it"),
    (r"declare families with AnnotationTable\.with_groups", "give a table of families as --groups"),
    (r"\b(groups|models) holds\b", r"--\1 holds"),
    (
        r"one column per annotator is what AnnotationTable\.from_matrix\(frame\) reads",
        "--format wide reads one column per annotator",
    ),
    (r" \((?:relative_informedness|parity|prior_shrinkage)_(?: is|:)? [-\d.]+\)", ""),
    (r"\. In a pipeline, scikit-learn's transformers drop .* keeps it$", ""),
    (r"\bset_params\(protocol__(\w+=\S+?)\)", r"--set \1"),
    (r"\. The column inferred_\S+ of history_ has the number of every round; ", ". "),
    (r"\(np\.savez\(file, X=X, task=ids\)", "(in an .npz file with the arrays X and task"),
    (r"(--set (\w+)=\S+): \2='[^']*' is unknown", r"\1 is unknown"),
    (
        r"The '(\w+)' parameter of (\w+) must be (.*)\. Got (.*) instead\.",
        r"--set \1=\4: it must be \3 in \2",
    ),
    (r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", r"\1 has no parameter \2"),
    (
        r"\baggregator=(\w+) infers single labels, and y is a LabelSetTable; give "
        r"aggregator=(\w+)\(\) or \w+\(\), or take one option, y\.option\(name\)",
        r"--set aggregator=\1 infers single labels, and the answers are sets; leave it out (\2 "
        r"infers them), or take one option (--multilabel split --option NAME)",
    ),
    (r"\breliability_ below 0", "the reliability below 0"),
    (r"\b(abstain|skip) (holds|and in skip|names)\b", r"--\1 \2"),
    (r"\band in skip; name it", "and in --skip; name it"),
    (r"\bhistory holds\b", "--history holds"),
    (r"\bseeds contains\b", "--seeds contains"),
    (
        r"\bnot among classes: (.*)\. Add it to classes\b",
        r"not among the classes: \1. Add it to --classes",
    ),
    (r"^(.*: )?(?:table|y) holds one class only", r"\1the annotations hold one class only"),
    (r"\bA holds\b", "the matrix holds"),
    (
        r"make the ids the index of a pandas frame \(in other frames, call their column 'task'\)",
        "call the column of the ids 'task'",
    ),
]
"""Whole phrases, as regular expressions."""

OF_GOLD: Final = re.compile(r"^--(gold|known|audit)\b")
"""Beginnings of messages about tables whose columns have fixed names."""


READ_AGAIN: Final = re.compile(
    r"read_annotations\((?P<path>'[^']*'|\"[^\"]*\"), scale='(?P<scale>\w+)'"
    r"(?:, classes=(?P<classes>\[.*\]))?\)"
)
"""How a file is read that does not hold the scale of its labels."""


def _aggregated(found: re.Match[str]) -> str:
    """Write how a file is read as a command that can be pasted."""
    words = ["manyhands", "aggregate", literal_eval(found["path"]), "--scale", found["scale"]]
    command = shlex.join(words)
    if found["classes"] is None:
        return command
    names = [str(name) for name in literal_eval(found["classes"])]
    if any("," in name for name in names):
        return f"{command} --classes FILE, a file with a class per line"
    return f"{command} --classes {shlex.quote(','.join(names))}"


def _columns(found: re.Match[str]) -> str:
    """Write a list of columns of options as the command line takes it."""
    return f"--label {shlex.quote(','.join(map(str, literal_eval(found[1]))))}"


def with_options(text: str) -> str:
    """Write a message of the library with the options that stand for its arguments.

    Examples
    --------
    >>> with_options("say so by multilabel='split', option='a b'")
    "say so by --multilabel split --option 'a b'"
    >>> with_options("name all classes in classes=")
    'name all classes in --classes'
    >>> with_options("if it means that nobody could tell, pass abstain='not sure'")
    "if it means that nobody could tell, pass --abstain 'not sure'"
    >>> with_options("declare them (groups=; groups={} if nobody shares mistakes)")
    'declare them (--groups COLUMN or FILE; --groups none if nobody shares mistakes)'
    >>> with_options("name it in abstain=['z'], or say that there is none by worker=None")
    'name it in --abstain z, or say that there is none by --worker none'
    >>> with_options("read it again by read_annotations('a.csv', scale='ordinal', classes=[1, 2])")
    'read it again by manyhands aggregate a.csv --scale ordinal --classes 1,2'
    >>> with_options("no column 'instance': 3 of the 9 instances have no instance.csv")
    "no column 'instance': 3 of the 9 items have no instance.csv"
    """
    text = READ_AGAIN.sub(_aggregated, for_commands(text))
    for pattern, phrase in PHRASES:
        text = re.sub(pattern, phrase, text)
    if OF_GOLD.match(text):
        text = re.sub(r"(there is no column '[^']*') \(--\w+\)", r"\1", text)
        return re.sub(r"\. Pass \w+=<name of the column>", "", text)
    text = re.sub(r"(multilabel='\w+'), (option=)", r"\1 \2", text)
    text = re.sub(r"(?<![\w.])label=(\[(?:'[^'\\]*'(?:, )?)+\])", _columns, text)
    for names, write in ((OPTIONS, _option), (OF_READING, _reading), (OF_METHODS, _setting)):
        text = re.sub(rf"(?<![\w.=-])({'|'.join(names)})={VALUE}", _unless_typed(write), text)
    return text


def _unless_typed(write: Callable[[str, str | None], str]) -> Callable[[re.Match[str]], str]:
    """Leave alone what stands behind --set or --read already."""

    def replaced(found: re.Match[str]) -> str:
        before = found.string[: found.start()]
        if before.endswith(("--set ", "--read ", "--set '", "--read '")):
            return found[0]
        return write(found[1], found[2])

    return replaced


def _option(name: str, value: str | None) -> str:
    option = OPTIONS[name]
    if value in ("{}", "None"):
        value = "none"
    elif value is None and option == "--groups":
        value = "COLUMN or FILE"
    elif value is None:
        value = VALUES.get(name)
    elif value.startswith("<"):
        value = "COLUMN"
    else:
        bare = _listed(value) if value.startswith("[") else value.strip(QUOTES)
        value = bare if re.fullmatch(r"[\w.,-]+", bare) else f"'{bare}'"
    return option if value is None else f"{option} {value}"


def _listed(value: str) -> str:
    """Write a list as an option takes it: values with commas between them."""
    try:
        return ",".join(map(str, literal_eval(value)))
    except (ValueError, SyntaxError):  # Such as [...], which stands for the reader's own values.
        return "VALUE,VALUE"


def _reading(name: str, value: str | None) -> str:
    shown = {None: "VALUE", "True": "true", "False": "false"}.get(value, value or "")
    return f"--read {name}={shown.strip(QUOTES)}"


def _setting(name: str, value: str | None) -> str:
    return f"--set {name}={'VALUE' if value is None else value.strip(QUOTES)}"
