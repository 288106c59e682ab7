"""The command `aggregate`: one method, or all of them side by side."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import (
    Faults,
    ask_how_gold_was_chosen,
    in_title,
    one_or_all,
    open_store,
    read_gold_option,
    read_known_option,
)
from manyhands.cli.label_sets import aggregate_sets
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import Excel, Gold, Json, KeepFormulas, Known, Settings, TablePaths
from manyhands.cli.output import (
    note,
    print_json,
    print_labels,
    print_table,
    say,
    say_actions,
    say_columns,
    say_files,
    say_severities,
)
from manyhands.cli.reading import FamilyReading, files_of
from manyhands.cli.settings import parse_settings
from manyhands.cli.translation import with_options
from manyhands.cli.values import TABLE, Duplicates, Rule, refuse_overwriting, some_path, some_target
from manyhands.exceptions import AnnotationError
from manyhands.wording import (
    GOLD_ONLY_MEASURES,
    SCORES,
    count_with_share,
    counted,
    percent,
    percent_interval,
    too_much,
)

LARGE = "Large tables"
"""Heading of options for what does not fit in memory, or takes long."""

Method = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help=(
            "Method, such as dawid-skene (the default) or majority-vote. Any wrong name prints the "
            "list."
        ),
    ),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        help="Compare all methods, instead of running one. The measure is accuracy on the --gold "
        "labels or, without --gold, how well a method predicts annotations that it has not seen.",
    ),
]
History = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Counts of earlier answers, from which the method learns how reliable each annotator "
        "is: a table with the columns annotator,true,given,count.",
    ),
]
Continue = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--continue",
        parser=some_path,
        metavar="DIR",
        help="Folder written by an earlier 'aggregate --out'. The new annotations are added to "
        "the earlier ones, and the labels are updated.",
    ),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE|DIR",
        help="Where to write the results. A name without a suffix is a folder for report.html, "
        "labels.csv, annotators.csv, summary.json and the model. A file (.csv, .tsv, .xlsx, "
        ".parquet, .json or .jsonl) gets only the labels.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--to",
        parser=some_target,
        metavar="TOOL",
        help=(
            "Also write the labels in a file that this labelling tool can import, such as "
            "label-studio or prodigy. Any wrong name prints the list of tools."
        ),
        show_default=False,
    ),
]
Checkpoint = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="DIR",
        rich_help_panel=LARGE,
        help="Folder in which every iteration is saved. If the command is killed, run it again: "
        "it resumes after the last saved iteration.",
    ),
]
Dask = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="ADDRESS",
        rich_help_panel=LARGE,
        help="Address of a dask.distributed scheduler, such as tcp://10.0.0.1:8786. The input "
        "must be a store made by 'manyhands ingest'; its annotations are then counted on the "
        "Dask workers.",
    ),
]
ONE_METHOD = (
    "--compare runs every method with its defaults; leave --method, --out, --known, --history, "
    "--rule, --threshold and --set out, or leave --compare out to run one method"
)
RuleOption = Annotated[
    Optional[Rule],  # noqa: UP045
    typer.Option(
        metavar="RULE",
        help="How a label is chosen from the probabilities of the classes. 'argmax': the most "
        "probable class. 'median': the median grade. 'balanced': each probability is divided by "
        "the frequency of its class, so that rare classes are not at a disadvantage. By default, "
        "'median' is used for three or more grades, else 'argmax'. For sets of labels, 'f1' "
        "decides each label separately: it chooses the items that get the label so that its "
        "expected F1 is highest.",
        show_default=False,
    ),
]
Threshold = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="Leave an item open if its label is less probable than this (column 'probability' of "
        "labels.csv). In files, its label is then empty. In the report, labels with at least this "
        "probability count as accepted. Default: no item is left open, and labels with at least "
        "0.95 count as accepted. For sets of labels: a set gets each label that has at least this "
        "probability.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Inference:
    """How labels are inferred, evaluated and decided."""

    rare_panel: ClassVar[str] = "How labels are inferred and decided"
    rare: ClassVar[tuple[str, ...]] = (
        *("continue_", "compare", "to", "history", "rule", "threshold", "settings"),
    )
    """Options that do not belong to a first use."""

    method: Method = None
    continue_: Continue = None
    compare: Compare = False
    out: Out = None
    to: Target = TABLE
    gold: Gold = None
    known: Known = None
    history: History = None
    rule: RuleOption = None
    threshold: Threshold = None
    settings: Settings = None

    @property
    def decision(self) -> dict[str, Any]:
        """How labels are decided."""
        rule = None if self.rule is None else self.rule.value
        return {"rule": rule, "threshold": self.threshold}

    def single(self) -> dict[str, Any]:
        """Return the given options that are for single labels only."""
        rules = (Rule.median, Rule.balanced)
        return {
            "--compare": self.compare,
            "--history": self.history,
            f"--rule {self.rule}": self.rule in rules,
        }

    def check(self, options: dict[str, Any], beside: dict[str, Any]) -> None:
        """Refuse options that do not go together.

        Parameters
        ----------
        options : dict
            Of reading.
        beside : dict
            Those of single fits.
        """
        chosen = self.method or self.out or self.known or self.history or self.settings
        is_decided = self.threshold is not None or self.rule is not None
        if self.compare and (chosen or is_decided):
            raise AnnotationError(ONE_METHOD)
        if self.rule == Rule.f1:
            raise AnnotationError(
                "--rule f1 ticks options, and each label is one class here; give --multilabel ';' "
                "if answers are sets of labels"
            )
        self.check_files(options, beside)

    def check_files(self, options: dict[str, Any], beside: dict[str, Any]) -> None:
        """Refuse options that do not go with what is read and written; see `check`."""
        if self.to != TABLE and self.out is None:
            raise AnnotationError(f"--to {self.to} writes a file; name it, or a folder, with --out")
        if self.continue_ is None:
            return
        own: dict[str, Any] = {"--method": self.method, "--set": self.settings}
        own["--history"] = self.history
        own |= {"--compare": self.compare, **beside}
        given = [name for name, value in own.items() if value]
        if given:
            raise AnnotationError(
                f"--continue keeps the aggregator's method and parameters; leave {given[0]} out"
            )
        if options.get("anonymise"):
            raise AnnotationError(
                "--read anonymise=true numbers annotators by their order in the files, so w001 may "
                "be another one than in the model; leave it out with --continue"
            )


@reported
@grouped
def aggregate(
    *,
    tables: TablePaths,
    how: Inference,
    reading: FamilyReading,
    checkpoint: Checkpoint = None,
    dask: Dask = None,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Infer the true label of each item from the annotations alone.

    In place of a table, you can give a store that 'manyhands ingest' made.

    Example: manyhands aggregate annotations.csv --method dawid-skene --out labels.csv
    Example: manyhands aggregate stars.xlsx --ordered --out labels
    Example: manyhands aggregate annotations.csv --compare --gold gold.csv
    Example: manyhands aggregate project-1.json --out labels --to label-studio
    Example: manyhands aggregate --continue labels project-2.json --out labels
    Example: manyhands aggregate answers.csv --multilabel ';' --rule f1 --out labels
    Example: manyhands aggregate store --out labels.parquet --checkpoint saved
    Example: manyhands aggregate store --out labels.parquet --dask tcp://10.0.0.1:8786
    """
    from manyhands.jobs import OUTPUTS
    from manyhands.jobs.aggregation import tool_file

    out = how.out
    within = [] if out is None else [out / name for name in (*OUTPUTS, tool_file(how.to))]
    read = [*tables, how.gold, *(how.known or ()), how.history, *reading.files]
    refuse_overwriting([out, *within], read)
    if reading.takes_sets:
        beside = {"--checkpoint": checkpoint, "--dask": dask}
        aggregate_sets(tables, how, reading, how.single() | beside, keep_formulas, json)
        return
    options = reading.arguments()
    how.check(options, {"--checkpoint": checkpoint, "--dask": dask})
    store = open_store(tables)
    if store is not None:
        result = _of_store(store, how, reading, options, checkpoint, dask)
    elif dask is not None:
        raise AnnotationError(
            f"--dask {dask} counts the shards of a store; make one with the command ingest, or "
            "leave --dask out"
        )
    else:
        result = _of_tables(tables, how, reading, options, checkpoint, keep_formulas)
    if how.compare:
        _print_comparison(result, json)
    elif json:
        print_json(result)
    elif "noise_sd" in result:
        _print_ratings(result, out)
    else:
        _print_result(result, out, how.to)


def _method(how: Inference) -> Any:
    """Make the aggregator."""
    from manyhands.inference.history import TakesHistory
    from manyhands.registry import all_aggregators, find_averager, short_name

    kind = find_averager(how.method or "dawid-skene")
    own = parse_settings(how.settings or [], kind)
    if how.history is not None and not issubclass(kind, TakesHistory):
        takers = [each for _, each in all_aggregators() if issubclass(each, TakesHistory)]
        *others, last = [short_name(each) for each in takers]
        raise AnnotationError(
            f"--history: {kind.__name__} takes no history; choose --method {', '.join(others)} or "
            f"{last}"
        )
    return kind(**own)


def _of_store(
    store: Any,
    how: Inference,
    reading: FamilyReading,
    options: dict[str, Any],
    checkpoint: Path | None,
    dask: str | None,
) -> dict[str, Any]:
    """Aggregate a store."""
    from manyhands.inference import RatingMean
    from manyhands.io import read_history
    from manyhands.jobs import aggregate_store
    from manyhands.registry import find_averager
    from manyhands.scale.clusters import dask_client

    if how.compare or how.to != TABLE or reading.groups or reading.people or how.continue_:
        raise AnnotationError(
            "of a store, leave --compare, --continue, --to, --groups and --people out; a table "
            "takes them"
        )
    averages = how.method is not None and issubclass(find_averager(how.method), RatingMean)
    if averages or (store.scale == "interval" and how.method is None):
        raise AnnotationError(
            "the labels are averaged as numbers, which needs a table in memory, and this is a "
            "store; give its files instead"
        )
    own = {name: options[name] for name in ("encoding", "separator")}
    with dask_client(dask) as engine:
        return aggregate_store(
            store,
            _method(how),
            read_gold_option(how.gold, options, table=store),
            how.out,
            known=read_known_option(how.known, options, store),
            history=None if how.history is None else read_history(how.history, store, **own),
            checkpoint=checkpoint,
            engine=engine,
            **how.decision,
        )


def _of_tables(
    tables: list[Path],
    how: Inference,
    reading: FamilyReading,
    options: dict[str, Any],
    checkpoint: Path | None,
    keep_formulas: bool,
) -> dict[str, Any]:
    """Aggregate tables or exports, compare methods on them, or add them to an aggregator."""
    from manyhands.annotations.scales import SKEWED_ARE_NAMES
    from manyhands.inference import MajorityVote
    from manyhands.io import read_history
    from manyhands.io.annotations import read_items, read_shown, read_with_account
    from manyhands.io.exports.reading import report_losses
    from manyhands.jobs import aggregate_table, compare_methods, continue_aggregation
    from manyhands.jobs.aggregation import check_output

    aggregator: Any = None
    if how.continue_ is None and (how.method is not None or not how.settings):
        aggregator = _method(how)  # Before anything is read, unless the table decides.
    if how.out is not None:
        check_output(how.out, how.to)
    path, faults, table, gold, known = one_or_all(tables), Faults(), None, None, None
    if how.continue_ is not None:
        _read_as_the_fit(how.continue_, options)
    with faults.noted(), warnings.catch_warnings():
        if how.continue_ is not None:  # A batch may well hold one grade, and the scale is settled.
            warnings.filterwarnings("ignore", f".*{SKEWED_ARE_NAMES}")
        table, export = read_with_account(path, **options)
    averages = table is not None and _averages(how, table, aggregator)
    like = table.with_scale("interval") if averages else table
    with faults.noted():
        gold = read_gold_option(how.gold, options, annotations=tables, table=like)
    with faults.noted():
        known = read_known_option(how.known, options, like)
    faults.tell()
    ask_how_gold_was_chosen(gold, how.gold, table)
    if export is not None:
        report_losses(export, path)
    elif how.to != TABLE:
        export = read_items(path, table, **options)
    if averages:
        more: dict[str, Any] = {"known": known, "keep_formulas": keep_formulas}
        more["title"] = f"Values of {in_title(tables)}"
        more["files"] = files_of("aggregate", tables, reading, how, leave=("continue_", "compare"))
        if how.out is not None:
            more["shown"] = read_shown(path, export, **options)
        return _of_ratings(table, aggregator, how, reading, gold, checkpoint, more)
    if how.continue_ is None and aggregator is None:
        aggregator = _method(how)
    if how.compare:
        return compare_methods(table, gold)
    if not table.annotators_known and how.method is None and how.continue_ is None:
        note("note: the votes do not say who gave them, so the labels are those of the majority")
        aggregator = MajorityVote()
    shared: dict[str, Any] = {**how.decision, "known": known, "to": how.to, "export": export}
    shared |= {"title": f"Labels of {in_title(tables)}", "keep_formulas": keep_formulas}
    if how.out is not None:
        shared["shown"] = read_shown(path, export, **options)
    leave = ("continue_", "compare")
    shared["files"] = files_of("aggregate", tables, reading, how, leave=leave)
    if how.continue_ is not None:
        policy = reading.duplicates
        shared["duplicates"] = "last" if policy is Duplicates.auto else policy.value
        return continue_aggregation(how.continue_, table, gold, how.out, **shared)
    own = {name: options[name] for name in ("encoding", "separator")}
    history = None if how.history is None else read_history(how.history, table, **own)
    shared |= {"history": history, "checkpoint": checkpoint}
    return aggregate_table(table, aggregator, gold, how.out, **shared)


def _read_as_the_fit(folder: Path, options: dict[str, Any]) -> None:
    """Have what is added to a fit read on its scale, and grades in its order."""
    from manyhands import AnnotationTable, load
    from manyhands.annotations.scales import MEANT

    before = getattr(load(folder), "table_", None)
    if not isinstance(before, AnnotationTable):
        return  # Refused later.
    if options["scale"] not in (None, before.scale):
        raise AnnotationError(
            f"--continue: the labels in {folder} are {MEANT[before.scale]} (--scale "
            f"{before.scale}), and what is added is read so, too; leave --scale {options['scale']} "
            "out, or aggregate all files anew with it"
        )
    options["scale"] = before.scale
    if before.ordered and options["classes"] is None:
        options["classes"] = before.classes.tolist()


def _averages(how: Inference, table: Any, aggregator: Any) -> bool:
    """Return whether the labels are numbers that are to be averaged."""
    from manyhands.fitting.saving import holds_means
    from manyhands.inference import RatingMean

    if how.continue_ is not None:
        return holds_means(how.continue_)
    if isinstance(aggregator, RatingMean):
        return True
    return bool(table.scale == "interval" and how.method is None)


def _of_ratings(
    table: Any,
    model: Any,
    how: Inference,
    reading: FamilyReading,
    gold: Any,
    checkpoint: Path | None,
    more: dict[str, Any],
) -> dict[str, Any]:
    """Average ratings; ``more`` are further options of `aggregate_ratings`."""
    from manyhands.annotations.groups import ALONE
    from manyhands.inference import RatingMean
    from manyhands.jobs import aggregate_ratings, continue_ratings

    own: dict[str, Any] = {"--compare": how.compare, "--history": how.history}
    own |= {"--rule": how.rule is not None, "--threshold": how.threshold is not None}
    own |= {"--to": how.to != TABLE, "--checkpoint": checkpoint}
    given = [name for name, value in own.items() if value]
    if given:
        raise AnnotationError(
            f"{given[0]} is for labels that are classes, and these are numbers, whose mean is "
            f"wanted; leave {given[0]} out, or read them as classes (--scale ordinal for grades)"
        )
    if how.continue_ is not None:
        policy = reading.duplicates
        more["duplicates"] = "last" if policy is Duplicates.auto else policy.value
        return continue_ratings(how.continue_, table, gold, how.out, **more)
    if not isinstance(model, RatingMean):
        model = RatingMean(**parse_settings(how.settings or [], RatingMean))
    if reading.people:  # They are in no family; see `manyhands.io.people`.
        more["reference"] = table.annotators[table.groups == ALONE].tolist()
    result = aggregate_ratings(table, model, gold, how.out, **more)
    if how.method is None:
        note("note: the labels are numbers, so they are averaged (--method rating-mean)")
    return result


def _print_ratings(result: dict[str, Any], out: Path | None) -> None:
    """Print the first values, who rates too high or too low, and errors if there is gold."""
    shown = [
        [row["task"], *(_rounded(row[name]) for name in ("label", "low_95", "high_95", "mean"))]
        for row in result["values"][:10]
    ]
    title = f"{result['method']}: {result['n_instances']:,} items"
    print_table(title, ["task", "value", "from", "to", "plain mean"], shown)
    if (more := result["n_instances"] - len(shown)) > 0:
        say(f"... and {more:,} more" + ("" if out else " (--out labels.csv writes all)"))
    say(result["headline"])
    say(result["scale"])
    alpha = result["agreement"]
    if alpha is not None:
        say(f"Krippendorff's alpha, interval: {alpha:.2f}")
    say(
        f"Items differ by {result['value_sd']:.2g} (standard deviation of their values). "
        f"Annotators differ by {result['severity_sd']:.2g} in how much they give on average. The "
        f"rest of a rating is chance: {result['noise_sd']:.2g}."
    )
    marked = [
        row for row in result["annotators"] if row["severity_low_95"] * row["severity_high_95"] > 0
    ]
    marked.sort(key=lambda row: -abs(row["severity"]))
    for row in marked[:5]:
        ends = (row["severity_low_95"], row["severity_high_95"])
        say(
            f"Annotator {row['annotator']} {too_much(row['severity'], *ends)}, in "
            f"{counted(row['n_annotations'], 'rating')}; this is subtracted."
        )
    if result["outside"]:
        say(result["outside"])
    for name, value in (result["gold"] or {}).items():
        text = percent(value) if "share" in name else _rounded(value)
        say(f"{name.replace('instances', 'items')}: {text}")
    if out:
        say_files(result["files"])
        say(
            f"in {out.name if out.suffix else 'labels.csv'}, 'label' is the mean of the ratings "
            "after each annotator's deviation is subtracted, and low_95 to high_95 hold the true "
            f"value with a probability of 95 %, {result['condition']}; 'mean' and 'median' are "
            "those of the unchanged ratings"
        )
    if out is not None and not out.suffix:
        say(
            "in annotators.csv, 'severity' is by how much an annotator rates too high (too low "
            "where "
            "it is negative), and 'sd' how far the ratings scatter around the values"
        )


def _rounded(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _print_result(result: dict[str, Any], out: Path | None, to: str) -> None:
    """Print the first labels, and their scores if there is gold."""
    if "added" in result:
        counts = result["added"]
        say(
            f"added: {counts['new']:,} annotations; changed: {counts['changed']:,}; known before: "
            f"{counts['repeated']:,}"
        )
    title = f"{result['method']}: {result['n_instances']:,} items"
    print_labels(title, result, out, "labels.csv")
    if "headline" in result:  # Not of a store.
        say(result["headline"])
    if result.get("decided"):
        say(result["decided"]["headline"])
    elif result["n_undecided"]:
        say(f"left open: {count_with_share(result['n_undecided'], result['n_instances'])}")
    if result.get("of_rule"):
        say(result["of_rule"])
    if result.get("level") is not None:  # Else nothing shows how good the annotators are.
        say_severities(result["annotators"], result.get("n_known", 0))
    for name in ("too_high", "settled"):
        if result.get(name):
            say(result[name])
    shares = {score.name for score in SCORES.values() if score.is_share}
    for name, value in (result["gold"] or {}).items():
        is_number = isinstance(value, int) or name not in shares
        text = _rounded(value) if is_number else percent(value)
        say(f"{name.replace('instances', 'items')}: {text}")
    if result["gold"] and result["gold"]["instances with gold"] < result["n_instances"]:
        say(GOLD_ONLY_MEASURES)
    say_actions(result, "aggregate")
    if out:
        say_files(result["files"])
        if pages := [name for name in result["files"] if Path(name).name == "report.html"]:
            say(f"next: open {pages[0]} in a browser; it says what to do first")
    if out is not None and to == TABLE:
        name = out.name if out.suffix else "labels.csv"
        say_columns(name)
        if result.get("threshold") is not None and result["n_undecided"]:
            say(
                f"{counted(result['n_undecided'], 'label')} in {name} "
                f"{'is' if result['n_undecided'] == 1 else 'are'} left empty. For a label of every "
                "item, repeat this command without --threshold, and keep as sure the labels whose "
                f"'probability' is at least {result['threshold']:g}"
            )
    if out is not None and out.suffix and "headline" in result:
        say(
            f"{out.name} holds the labels alone. For a report, annotators.csv and the model, which "
            "the commands report and explore read, name a folder, without a dot: "
            f"`manyhands aggregate ANNOTATIONS OPTIONS --out {shlex.quote(out.stem or 'labels')}`"
        )


def _score(name: str, scores: dict[str, Any]) -> str:
    """Return a score as text: most scores are shares, and accuracy has an interval."""
    value = scores[name]
    if value is None:
        return ""
    if name == "accuracy":
        return f"{percent(value)} ({percent_interval(scores['low'], scores['high'])})"
    return percent(value) if SCORES[name].is_share else f"{value:.3f}"


def _print_comparison(result: dict[str, Any], json: bool) -> None:
    """Print the methods, best first, without empty columns."""
    if json:
        print_json(result)
        return
    scores = [score for score in result["methods"] if score["error"] is None]
    graded = any(score["mae"] is not None for score in scores)
    of_grades = ("within_one", "mae", "qwk", "rps")
    of_names = ("accuracy_ties_shared", "macro_f1", "minority_recall")
    # Few and short, so that a terminal of 80 characters shows whole names.
    columns = ("accuracy", *(of_grades if graded else of_names))
    columns = columns if result["n_gold"] else ("held_out_log_likelihood", "seconds")
    shown = [key for key in columns if any(score[key] is not None for score in scores)]
    print_table(
        f"{len(scores)} methods on {result['n_instances']:,} items",
        ["method", *(SCORES[key].short.replace(" ", "\n") for key in shown)],
        [[score["method"], *(_score(key, score) for key in shown)] for score in scores],
    )
    if "accuracy" in shown:
        say(f"accuracy: on {counted(result['n_gold'], 'gold label')}, with its 95 % interval")
    if graded:
        say(
            "labels are medians, best first by MAE, the mean absolute error in grades; within 1: "
            "at most one grade off; QWK: Cohen's kappa with quadratic weights; RPS: ranked "
            "probability score, an MAE of the probabilities"
        )
    if "accuracy_ties_shared" in shown:
        say("ties shared: accuracy if classes that tie share the item; else the first is named")
    if "minority_recall" in shown:
        say("min. recall: of the rarer half of the classes")
    if "held_out_log_likelihood" in shown:
        say(
            "held-out LL: mean log probability of annotations held out; it ranks close methods "
            "poorly"
        )
    if result["n_gold"] and len(scores) > 1:
        say(_told_apart(scores, result["n_gold"]))
    for score in result["methods"]:
        if score["error"] is not None:
            say(with_options(f"! {score['method']}: {score['error']}"))


CLEAR = 0.05
"""p-value below which a method is said to be worse than the best."""


def _told_apart(scores: list[dict[str, Any]], n_gold: int) -> str:
    """Say which methods the best one beats by more than chance, and whether to leave the default.

    ``scores`` are at least two, the best first.
    """
    best, *others = [score["method"] for score in scores]
    worse = [score["method"] for score in scores[1:] if score["p_value"] < CLEAR]
    by = f"By {counted(n_gold, 'gold label')}"
    how = f"exact sign tests, corrected for {counted(len(scores) * len(others) // 2, 'pair')}"
    if not worse:
        text = (
            f"{by}, no method is clearly worse than {best}: the differences may be chance ({how})."
        )
    elif len(worse) == len(others):
        text = f"{by}, {best} is better than every other method ({how})."
    else:
        text = (
            f"{by}, {best} is better than {_and(worse)} ({how}). The others cannot be told apart "
            "from it."
        )
    if best == DEFAULT or DEFAULT not in others:
        return text
    if DEFAULT in worse:
        return f"{text} {DEFAULT}, the default, is among the worse ones; --method chooses another."
    return f"{text} So these labels are no reason to leave {DEFAULT}, the default."


DEFAULT = "DawidSkene"
"""Method of the command unless another one is chosen."""


def _and(names: list[str]) -> str:
    """List names in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
