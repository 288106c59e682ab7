"""The commands `next`, `review`, `annotators` and `budget`: what to ask, check and teach."""

from __future__ import annotations

import json as json_format
import shlex
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import (
    Checked,
    TrainingInputs,
    one_or_all,
    read_checked,
    read_columns,
    read_gold_of_fit,
    read_gold_option,
    read_known_option,
    read_planned,
)
from manyhands.cli.label_sets import review_sets
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import (
    FEATURES,
    OTHER_NAME,
    Excel,
    Json,
    KeepFormulas,
    Known,
    OutFile,
    Seed,
    TablePaths,
)
from manyhands.cli.output import (
    check_out,
    filled,
    print_columns,
    print_json,
    print_table,
    records_of,
    say,
    say_severities,
    telling,
    time_of,
    write_columns,
)
from manyhands.cli.reading import FamilyReading, command_of
from manyhands.cli.values import TABLE, refuse_overwriting, some_path, some_target
from manyhands.codes import TELL_NOTHING, graver, reason
from manyhands.exceptions import AnnotationError
from manyhands.files import as_word
from manyhands.wording import (
    A_FLAG,
    ALL_TO_REVIEW,
    DRAW_SAMPLE,
    NOT_ASKED,
    SAMPLE_TELLS,
    SEVERITY,
    SHARED_LOOK_CERTAIN,
    counted,
    listed,
    percent,
    percent_interval,
    told_of_rule,
)


class PairCriterion(StrEnum):
    """What pairs are chosen by; see `manyhands.AnnotationPlanner`."""

    information = "information"
    accuracy = "accuracy"
    entropy = "entropy"
    fewest = "fewest"


SCORE_OF_PAIRS = {
    PairCriterion.information: "what an answer tells about the labels",
    PairCriterion.accuracy: "how many more right labels an answer is expected to give",
    PairCriterion.entropy: "how uncertain the label is (entropy)",
    PairCriterion.fewest: "how few annotations an item has (their number, negative)",
}
"""What the score of a pair measures, by criterion."""


Who = StrEnum("Who", ["choose", "arriving", "any"])
"""Whether annotators are chosen, too; see `manyhands.AnnotationPlanner`."""

By = StrEnum("By", ["label", "annotation"])
"""What is reviewed."""


LISTS = ("flags", "evidence")
"""Columns of annotators that are lists in JSON."""


def _file(text: str, panel: str | None = None) -> Any:
    return typer.Option(parser=some_path, metavar="FILE", help=text, rich_help_panel=panel)


WHOM = "Which annotator to ask about which item"
"""Heading of options that a first plan does without."""

ByCriterion = Annotated[
    PairCriterion,
    typer.Option(
        metavar="NAME",
        rich_help_panel=WHOM,
        help="Which annotations to ask for first. information: those that are expected to make "
        "the labels most certain. accuracy: those that are expected to correct the most "
        "labels. entropy: annotations of the items with the least certain labels. fewest: "
        "annotations of the items with the fewest annotations so far.",
    ),
]
AskWhom = Annotated[
    Who,
    typer.Option(
        metavar="WHO",
        rich_help_panel=WHOM,
        help="Who will answer. choose: the best annotator for each item. arriving: annotators "
        "turn up on their own, each as often as before. any: anyone, at random.",
    ),
]
WarmUp = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="N",
        rich_help_panel=WHOM,
        min=0.0,
        help="Draw annotators at random until items have this many annotations on average; then "
        "choose annotators. Default: 1.5, or 0 with a classifier (--features, or --model with a "
        "folder of 'manyhands fit').",
    ),
]
Explore = Annotated[
    bool,
    typer.Option(
        "--explore", rich_help_panel=WHOM, help="Also try annotators about whom little is known."
    ),
]
Load = Annotated[
    float,
    typer.Option(
        metavar="N",
        rich_help_panel=WHOM,
        help="Upper limit on the annotations that one annotator gets in a batch, as a multiple of "
        "an equal share. A large number, such as 1000, means no limit.",
    ),
]
OptionalPath = Optional[Path]  # noqa: UP045
PlannedWith = Annotated[
    OptionalPath,
    typer.Option(
        "--model",
        parser=some_path,
        metavar="DIR",
        help="Base the plan on the labels in this folder, which 'manyhands fit' or 'manyhands "
        "aggregate' wrote. Default: labels inferred with Dawid and Skene's method.",
    ),
]
ReviewedOf = Annotated[
    OptionalPath,
    typer.Option(
        "--model",
        parser=some_path,
        metavar="DIR",
        help="Use the labels in this folder, which 'manyhands fit' or 'manyhands aggregate' wrote. "
        "Default: labels inferred with Dawid and Skene's method.",
    ),
]
JudgedBy = Annotated[
    OptionalPath,
    typer.Option(
        "--model",
        parser=some_path,
        metavar="DIR",
        help="Judge the annotators by the labels in this folder, which 'manyhands fit' or "
        "'manyhands aggregate' wrote. Default: labels inferred with Dawid and Skene's method.",
    ),
]
GoldOfFolder = Annotated[
    OptionalPath,
    _file("With --model: the gold labels with which the folder was made, if any."),
]
Cost = Annotated[
    OptionalPath,
    _file(
        "Price of one annotation by each annotator: a table with the columns worker,price. "
        "The expected gains are divided by the prices.",
        WHOM,
    ),
]
Pairs = Annotated[
    OptionalPath,
    _file(
        "Which annotators you may ask about which items: a table with the columns task,worker.",
        WHOM,
    ),
]
PilotGold = Annotated[
    OptionalPath,
    _file(
        "Gold labels: a table with the columns task,label. The command then replays the recorded "
        "annotations as if they were bought step by step, and compares the labels of each step "
        "with the gold labels."
    ),
]
Truth = Annotated[
    OptionalPath,
    _file(
        "A person's labels, to measure how often annotators are right: a table with the columns "
        "task,label."
    ),
]
Audit = Annotated[
    OptionalPath,
    _file(
        "A person's labels of randomly drawn items, to measure how many labels are right: a table "
        "with the columns task,label. To make them the final labels of their items, give "
        "the file as --known instead."
    ),
]
Rows = Annotated[
    OptionalPath,
    _file(
        FEATURES
        + OTHER_NAME
        + " A classifier is trained on the features and counts as one more annotator."
    ),
]
QueueSize = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "-n",
        "--n",
        min=0,
        help="How many of the most doubtful labels to list. Default: 100, or 0 with --random.",
    ),
]
RandomSize = Annotated[
    int,
    typer.Option(
        "--random", min=0, help="How many labels to draw at random; they are listed first."
    ),
]
Size = Annotated[
    Optional[int],  # noqa: UP045 - typer reads this at run time
    typer.Option(
        "-n",
        "--n",
        metavar="N",
        min=1,
        help="Number of annotations to ask for. Default: a tenth of the items.",
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        parser=some_target,
        metavar="table|TOOL",
        help="Format of --out: table, or label-studio, whose tasks name the annotator to ask.",
    ),
]
MinGain = Annotated[
    float,
    typer.Option(
        metavar="N",
        rich_help_panel=WHOM,
        help="Advise stopping if a further annotation is expected to correct fewer than N labels.",
    ),
]
ByOption = Annotated[By, typer.Option(help="Whether to review labels, or single annotations.")]
Teach = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="ANNOTATOR",
        help="Instead of the list, print which classes this annotator confuses, with examples to "
        "show to the annotator. Give the name as it is spelled in the annotations.",
    ),
]
Budget = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        help="Look ahead up to this many annotations per item in total. Default: 3 more than now; "
        "with --gold, all that were recorded."
    ),
]
Runs = Annotated[int, typer.Option(min=1, help="Number of runs to average.")]
Step = Annotated[float, typer.Option(help="How many annotations per item to buy at a time.")]
Folder = Annotated[
    OptionalPath,
    typer.Option(
        parser=some_path,
        metavar="DIR",
        help="Folder in which finished steps are saved, so that an interrupted command can resume.",
    ),
]


OF_NUMBERS = {
    "annotators": (
        "says how often each annotator is right",
        "annotators.csv says by how much each annotator rates too high (severity) and how far "
        "their ratings scatter (sd)",
    ),
    "review": (
        "lists labels that are probably wrong",
        "labels.csv has each value with its 95 % interval, and report.html lists the least certain "
        "values first",
    ),
    "next": (
        "chooses what makes most labels right",
        "report.html names the items to have rated again first, those whose values are the least "
        "sure",
    ),
    "budget": (
        "forecasts how many labels are right",
        "the report says how far ratings scatter, and a mean of n ratings is unsure by about that, "
        "divided by the square root of n",
    ),
}
"""By command: what it does with labels that are classes, and what answers it of numbers."""


OF_SETS_ALONE = "the queue of sets rests on the answers alone"

OF_SETS = {
    "next": (
        "chooses whom to ask about which item, for labels that are one class each",
        "'collect more' in the column 'action' names the items that need further answers",
        "aggregate",
    ),
    "annotators": (
        "says how often each annotator gives the right class",
        "annotators.csv says which share of the labels that apply each annotator ticks, and which "
        "share of the others",
        "aggregate",
    ),
    "budget": (
        "forecasts how many labels that are one class each are right",
        "the report says how many labels of sets are right, and which items need further answers",
        "aggregate",
    ),
}
"""By command: what it does with labels that are classes, and what answers it of sets."""


def _refuse_sets(command: str, tables: list[Path], reading: FamilyReading) -> None:
    """Refuse sets of labels, and name the command that answers the question."""
    if not reading.takes_sets:
        return
    what, instead, other = OF_SETS[command]
    better = command_of(other, tables, reading, "--out", "labels")
    raise AnnotationError(
        f"the command {command} {what}, and --multilabel {reading.multilabel!r} reads answers as "
        f"sets. Run `{better}` instead: {instead}. Or take one option (--multilabel split "
        "--option NAME)"
    )


def _read(
    command: str,
    tables: list[Path],
    reading: FamilyReading,
    inputs: TrainingInputs | None = None,
    seed: int = 0,
) -> tuple[Any, dict[str, Any]]:
    """Read what one of these commands takes, and the options of the reading; refuse numbers."""
    _refuse_sets(command, tables, reading)
    _refuse_model(command, tables)

    def check(table: Any) -> None:
        if table.scale != "interval":
            return
        what, instead = OF_NUMBERS[command]
        better = command_of("aggregate", tables, reading, "--out", "values")
        raise AnnotationError(
            f"the command {command} {what}, and these labels are numbers, which are more or less "
            f"far from the truth. Run `{better}` instead: {instead}. A few grades are "
            "read as such by --scale ordinal, names of classes by --scale nominal"
        )

    options = reading.arguments()
    return read_planned(tables, options, inputs, seed, check), options


def _refuse_model(command: str, tables: list[Path]) -> None:
    """Refuse the folder of a model, which holds no annotations, and say where its queue is."""
    from manyhands.fitting.saving import holds_means
    from manyhands.jobs.fit_label_sets import words_of_sets
    from manyhands.report.commands import files_in, fill_command

    for path in tables:
        if not (path / "model.json").is_file():
            continue
        words = words_of_sets(path)
        worst = "the lowest 'probability'" if words is None else "the greatest 'expected_errors'"
        method = "DawidSkene" if words is None else "MultiLabelDawidSkene"
        try:
            summary = json_format.loads((path / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # Of a model that Python saved.
            summary = {}
        if holds_means(path):
            what, instead = OF_NUMBERS[command]
            raise AnnotationError(
                f"{path} is the folder of a model whose values are numbers. The command {command} "
                f"{what}, and numbers are more or less far from the truth. The folder answers "
                f"instead: {instead}"
            )
        files = files_in(summary) | {"folder": as_word(path)}
        explore = fill_command("manyhands explore FOLDER --annotations ANNOTATIONS", files)
        if words is not None and command != "review":
            files["reading"] = _of_one_option(files.get("reading", ()))
        again = f"run {command} on the annotations that it was made from: "
        again += f"`{fill_command(f'manyhands {command} ANNOTATIONS', files)}`"
        again += ", with an option in place of NAME" if "NAME" in files.get("reading", ()) else ""
        queue = (
            f"{path / 'labels.csv'} says how sure its labels are: look first at {worst} "
            f"of those that nobody reviewed. To see these one by one, run `{explore}`"
        )
        more = f"{queue}. For the queue of {method}, {again}"
        raise AnnotationError(
            f"{path} is the folder of a model, and holds no annotations. "
            + (more if command == "review" else again[:1].upper() + again[1:])
        )


def _of_one_option(words: Sequence[str]) -> list[str]:
    """Return options that read sets, with which one option is read instead."""
    pairs = zip(words[::2], words[1::2], strict=False)
    kept = [word for pair in pairs if pair[0] not in ("--multilabel", "--none") for word in pair]
    return [*kept, "--multilabel", "split", "--option", "NAME"]


@dataclass(frozen=True)
class Joining(TrainingInputs):
    """What a classifier is trained on that joins the annotators; nothing, and none does."""

    least: ClassVar[int] = 0
    features: Rows = None


@reported
@grouped
def next_(
    *,
    tables: TablePaths,
    n: Size = None,
    out: OutFile = None,
    to: To = TABLE,
    criterion: ByCriterion = PairCriterion.information,
    who: AskWhom = Who.choose,
    warm_up: WarmUp = None,
    explore: Explore = False,
    load: Load = 2.0,
    cost: Cost = None,
    pairs: Pairs = None,
    known: Known = None,
    model: PlannedWith = None,
    gold: Truth = None,
    audit: Audit = None,
    min_gain: MinGain = 0.02,
    inputs: Joining,
    seed: Seed = 0,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Choose the next annotations to buy, and say whether they are worth it.

    Example: manyhands next annotations.csv -n 200 --out batch.csv
    Example: manyhands next project-1.json --pairs open.csv --out batch.json --to label-studio
    Example: manyhands next annotations.csv --model model --out batch.csv
    """
    from dataclasses import asdict

    from manyhands import AnnotationPlanner
    from manyhands.explore.inputs import figures_in
    from manyhands.inference.shared_mistakes import annotators_are_judged
    from manyhands.metrics import accuracy_on_new_items
    from manyhands.report.headline import told_of_new_items
    from manyhands.report.planning import (
        RANGE_OF_GAIN,
        WARM_UP,
        candidates_of,
        enough,
        gain_words,
        is_judged,
        limit,
        next_size,
        priced,
        screening_of,
        told_gains,
        told_of,
        warm_up_of,
    )

    refuse_overwriting([out], [*tables, cost, pairs, *(known or ()), gold, audit, *inputs.files])
    check_out(out)
    _check_tasks(to, out)
    if reading.annotators in list(Who):  # What --who was called before wide tables were read.
        who, reading = Who(reading.annotators), replace(reading, annotators=None)
    if model is not None and inputs:
        raise AnnotationError(
            "--model has labels that are inferred already, and --features, --texts or --images "
            "infer them anew; give one of them"
        )
    read, options = _read("next", tables, reading, inputs, seed)
    found = None
    if model is None:
        known_labels = read_gold_of_fit(known, read.table, options)
    else:
        given = read_known_option(known, options, read.table)
        own = read_gold_option(gold, options, table=read.table)
        table, found = figures_in(model, read.table, given, own)
        if found.basis is None:
            raise AnnotationError(f"{model} holds labels of one class, so there is nothing to ask")
        read, known_labels = read._replace(table=table), {"model": found.basis.model}
        if found.gold:
            known_labels["gold"] = [found.gold.get(each) for each in table.instances.tolist()]
    checked = read_checked(audit, read.table, options, "--audit")
    _refuse_both(read.table, known_labels, checked)
    if warm_up is None:
        warm_up = WARM_UP if found is None else warm_up_of(found.inputs)
    planner = AnnotationPlanner(
        criterion=criterion.value,
        annotators=who.value,
        warm_up=warm_up,
        explore=explore,
        load=load,
        cost=None if cost is None else _prices(cost, options),
        random_state=seed,
    ).fit(read.table, proba=read.proba, **known_labels)
    _refuse_all_known(planner)
    asks_newcomer, whom = False, ""
    if pairs is not None:
        may = list(zip(*read_columns(pairs, "task", "worker", options=options), strict=True))
    else:
        screening = (
            _screened(planner, read.export)
            if found is None or found.basis is None
            else screening_of(found.inputs, found.basis)
        )
        asked = candidates_of(planner, screening)
        may, asks_newcomer, whom = asked.pairs, asked.newcomer is not None, asked.told
    with warnings.catch_warnings():
        if n is None:  # Nobody asked for as many.
            n = next_size(read.table)
            warnings.filterwarnings("ignore", r"only [\d,]+ of [\d,]+ pairs? can be asked")
        batch = planner.suggest(n, may)
    measured = {} if checked is None else {"audit": checked.values, "random_audit": checked.random}
    stopping = planner.stopping(min_gain, **measured, n=n, pairs=may)
    truth = read_checked(gold, read.table, options, "--gold")
    told = _told(planner, found, gold=truth, audit=checked)
    new_items = None
    if read.proba is not None:
        level = accuracy_on_new_items(read.table, read.proba)
        new_items = None if level is None else level.to_dict()
    if found is not None and found.basis is not None:
        source, judged = found.basis.name, is_judged(found.inputs)
    else:
        source = type(planner.aggregator_).__name__
        source += "" if read.proba is None else " and the stack"
        judged = annotators_are_judged(read.table, planner.is_known_) and _are_decided(planner)
    known_level = told_of(told.to_dict()["level"])
    plan = priced(
        stopping, source, newcomer=asks_newcomer, min_gain=min_gain, judged=judged, **known_level
    )
    answer = enough(plan)
    gains = told_gains(plan, batch)
    columns = batch.to_columns()
    if asks_newcomer:  # Whose name is not known yet.
        columns["worker"] = [None] * len(batch)
    if gains is None:  # The column is blank.
        columns["expected_gain"] = [None] * len(batch)
    replaced = time_of(out)
    if out is not None and to != TABLE:
        _write_tasks(out, to, columns, read.export)
    else:
        write_columns(out, columns, keep_formulas)
    unjudged, n_accepted = _unjudged(planner, batch), _n_accepted(planner, batch, told.level)
    no_limit = None if gains is None else _without_limit(planner, batch, n, may)
    how_many = None
    if told.level is not None and not asks_newcomer:
        how_many = filled("`manyhands budget ANNOTATIONS`").strip("`")
    if json:
        more = {**told.to_dict(), "new_items": new_items, "enough": answer}
        more |= {"newcomer": asks_newcomer, "whom": whom}
        more |= {"n_accepted": n_accepted, "n_unjudged": len(unjudged)}
        more |= {"unjudged": list(dict.fromkeys(unjudged)), "how_many": how_many}
        more |= {"no_limit": no_limit}
        more |= {"expected_right": planner._expected_right(batch) if gains else None}
        more |= {"out": out and str(out), "replaced": replaced and replaced.isoformat()}
        stops = asdict(stopping) | {"marginal_gain": plan["gain"]}
        if not judged:
            stops |= {"stop": None, "reason": answer}
        if told.level is None:
            stops["expected_accuracy"] = None
        print_json({"pairs": records_of(columns), "stopping": stops, **more})
        return
    if gains is None:  # The column of the file is blank.
        del columns["expected_gain"]
    if asks_newcomer:
        del columns["worker"]
        say(f"{whom} These items are for them (--pairs names one).")
    print_columns(
        f"Next {'annotation' if len(batch) == 1 else f'{len(batch):,} annotations'}", columns
    )
    if whom and not asks_newcomer:
        say(f"{whom} --pairs names whom to ask.")
    for line in [*_told_unjudged(unjudged, len(batch)), *_told_accepted(n_accepted, len(batch))]:
        say(line)
    say(f"The list is in the order of {SCORE_OF_PAIRS[criterion]} (score).")
    if gains is not None:
        say(f"expected_gain: {gain_words(plan).told}")
    say(told.headline)
    if told.level is not None and told.level.source == "sample" and audit is not None:
        say(f"{_OF_AUDITS}{_corrected_by(audit, model)}")
    if new_items is not None:
        say(told_of_new_items(new_items))
    say(answer)
    if no_limit is not None:
        say(_told_no_limit(no_limit, load, stopping.unit))
    if gains:
        say(RANGE_OF_GAIN)
        inferred = None if found is None else found.inputs.inferred
        of_classifier = inferred is not None and inferred.kind == "classifier"
        say(_of_answers(planner, batch, has_features=of_classifier or read.proba is not None))
        if so_far := _right_so_far(planner, truth, checked):
            say(so_far)
    if how_many is not None:
        alone = (
            " (It forecasts the labels that Dawid and Skene's method infers from the annotations "
            "alone, so it begins at another share of right labels.)"
        )
        differs = source != "DawidSkene"
        say(
            f"How many annotations per item are worth buying: `{how_many}`"
            f"{alone if differs else ''}"
        )
    if judged:
        least = limit(plan)
        what = f"{least[0].lower()}{least[1:]} (--min-gain {min_gain:g})" if least else "no limit"
        why = stopping.reason if stopping.n_warm_up or not stopping.n else what
        say(f"{'stop' if stopping.stop else 'go on'}: {why}")
        if stopping.stop and len(batch):
            say("the pairs above are the best ones to ask if you go on all the same")


def _of_answers(planner: Any, batch: Any, *, has_features: bool) -> str:
    """Say how many answers of a batch are expected to be right, on which their gain depends."""
    from manyhands.inference.base import BaseAggregator

    told = (
        f"The plan expects {percent(planner._expected_right(batch))} of these answers to be right. "
        "That is probably too much, because such items are hard: on four real tables, plans "
        f"expected {percent(EXPECTED_RIGHT)} on average, and {percent(TRULY_RIGHT)} were right."
    )
    if not has_features:
        return told
    told += (
        " This and the gain differ from those of a plan without features, because features also "
        "show how good the annotators are. Each answer counts for its own item alone."
    )
    if not isinstance(planner.aggregator_, BaseAggregator):
        told += " Mistakes that annotators share are not allowed for, so the gain may be smaller."
    return told


EXPECTED_RIGHT, TRULY_RIGHT = 0.83, 0.74
"""Share of right answers that plans expect, and the true one: means over four tables (labelme,
music, sentiment, product), with two annotations per instance on file. A test replays them."""


def _right_so_far(planner: Any, *measured: Checked | None) -> str:
    """Say how many annotations on items that measure were right so far; "" where too few do."""
    import numpy as np

    from manyhands.metrics.sample_levels import LEAST_GOLD
    from manyhands.report.filters import percent_range
    from manyhands.report.gold import share_of_clusters

    table, model = planner.table_, planner.aggregator_
    codes = np.full(table.n_instances, -1)
    place = {value: code for code, value in enumerate(table.classes.tolist())}
    for checked in measured:
        if checked is not None:
            found = np.array([place.get(value, -1) for value in checked.values])
            codes = np.where(found >= 0, found, codes)
    drawn = getattr(model, "sampled_rows_", None)
    if drawn is not None and len(drawn) and model.posterior_.shape[0] == len(codes):
        codes[drawn] = model.posterior_[drawn].argmax(axis=1)  # Known labels have probability 1.
    rows = codes[table.instance] >= 0
    instance = table.instance[rows]
    n = len(np.unique(instance))
    if n < LEAST_GOLD:
        return ""
    right = table.label[rows] == codes[instance]
    low, high = share_of_clusters(right, instance)
    share = percent_range({"value": float(right.mean()), "low": low, "high": high})
    return (
        f"On the {counted(n, 'item')} that people checked, {share} of the annotations so far are "
        "right, as measured."
    )


def _screened(planner: Any, export: Any) -> Any:
    """Screen the annotators of a fitted planner as the report of the same labels does."""
    from manyhands.jobs.outputs import times_of
    from manyhands.report.inputs import read_inputs
    from manyhands.report.planning import Basis, screening_of

    table, model = planner.table_, planner.aggregator_
    inputs = read_inputs(table, model, **times_of(export, table))
    return screening_of(inputs, Basis(type(model).__name__, model))


def _unjudged(planner: Any, batch: Any) -> list[Any]:
    """Return the annotator of every pair of a batch who cannot be judged yet."""
    unjudged = set(planner.table_.annotators[planner.is_unjudged_].tolist())
    return [each for each in batch.annotators.tolist() if each in unjudged]


def _told_unjudged(asked: list[Any], n: int) -> Iterator[str]:
    """Say how many of the n annotations are for annotators who cannot be judged yet."""
    from manyhands.planning.beliefs import LEAST_ANNOTATIONS

    if asked:
        who = list(dict.fromkeys(asked))
        are = "is" if len(asked) == 1 else "are"
        yield (
            f"{len(asked):,} of these {counted(n, 'annotation')} {are} for "
            f"{counted(len(who), 'annotator')} with fewer than {LEAST_ANNOTATIONS} annotations so "
            f"far, too few to judge them: {listed(who, len(who))}. They are expected to be as good "
            "as the crowd; their answers will show how good they are."
        )


MUCH_POORER = 0.75
"""Share of the gain without a limit on load below which the cost of the limit is told."""

NO_LIMIT = 1000
"""Load that limits nobody."""


def _without_limit(planner: Any, batch: Any, n: int, pairs: Any) -> dict[str, Any] | None:
    """Return what as many annotations would gain with no limit per annotator, if far more.

    Where few annotators are good and they are the active ones, a limit gives their work to others.
    """
    free = copy(planner).set_params(load=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of pairs that are too few, the plan itself has said it.
        best = free.suggest(n, pairs)
    gain, limited = float(best.expected_gain.sum()), float(batch.expected_gain.sum())
    if limited >= MUCH_POORER * gain or gain - limited < 1:
        return None
    return {"n": len(best), "gain": gain, "n_annotators": len(set(best.annotators.tolist()))}


def _told_no_limit(found: dict[str, Any], load: float, unit: str) -> str:
    """Say what the limit on each annotator's share of a batch costs, and how to lift it."""
    from manyhands.planning.planner import correcting

    more = correcting(found["n"], found["gain"] / found["n"], ordered=unit == "grade")
    return (
        f"No annotator gets more than {load:g} times an equal share of this list (--load "
        f"{load:g}). Without this limit (--load {NO_LIMIT}), {counted(found['n'], 'annotation')} "
        f"by {counted(found['n_annotators'], 'annotator')} would correct {more}, as the model "
        "expects."
    )


def _n_accepted(planner: Any, batch: Any, level: Any) -> int:
    """Count the items of a batch with labels that `aggregate` accepts, of the same level."""
    import numpy as np

    from manyhands.io import consensus
    from manyhands.metrics.certainty import certainty_of

    table, known, posterior = planner.table_, planner.is_known_, planner.posterior_
    place = {value: code for code, value in enumerate(table.classes.tolist())}
    codes = np.array([place.get(each, -1) for each in planner.labels_.tolist()])
    certainty = certainty_of(table, level, posterior, codes, known)
    found = consensus(
        table,
        posterior,
        planner.labels_,
        known=known,
        identified=getattr(planner.aggregator_, "identified_", None),
        probability=certainty.of_labels(posterior, codes, known),
    )
    accepted = set(table.instances[found.actions == "accept"].tolist())
    return sum(each in accepted for each in batch.instances.tolist())


def _told_accepted(again: int, n: int) -> Iterator[str]:
    """Say how many of the n items of a batch have labels that are accepted already."""
    if again:
        some = "item has a label that is" if again == 1 else "items have labels that are"
        fewer = f", and -n {n - again} leaves most of them out" if again < n else ""
        yield f"{again:,} of the {n:,} {some} accepted already{fewer}."


_OF_AUDITS = (
    "The audit measures the labels as the annotations give them, and corrects none. This command "
    "corrects those that it holds, and speaks of the others: "
)


def _corrected_by(file: Path, model: Path | None = None) -> str:
    """Write the command that uses the labels in a file: that of the folder, if there is one."""
    known = ["--known", as_word(file)]
    if model is None:
        command = ["manyhands", "aggregate", "ANNOTATIONS", *known, "--out", "labels"]
        return f"`{shlex.join(command)}`"
    from manyhands.explore.inputs import described_in, made_by
    from manyhands.report.commands import fill_command

    described = described_in(model)
    files = made_by(described)
    files["known"] = [*files.get("known", ()), *known]
    name = files.get("name", "fit" if described["methods"].get("classifier") else "aggregate")
    tables = ["ANNOTATIONS"] if name == "aggregate" else ["--annotations", "ANNOTATIONS"]
    again = ["manyhands", name, *tables, "OPTIONS", "--out", "FOLDER"]
    return f"`{fill_command(shlex.join(again), files | {'folder': as_word(model)})}`"


def _refuse_both(table: Any, known: dict[str, Any], checked: Any) -> None:
    """Refuse an audit of labels that are given as known."""
    if checked is None or "gold" not in known:
        return
    rows = zip(table.instances.tolist(), known["gold"], checked.values, strict=True)
    for instance, given, audited in rows:
        if given is not None and audited is not None:
            raise AnnotationError(
                f"--known and --audit both hold item {instance!r}: a label that is given is right "
                "for that reason. If one random sample is both, leave --audit out: labels of "
                "--known measure the others, too, where a column 'chosen' says random (review "
                "--random writes it). Else audit other items"
            )


def _refuse_all_known(planner: Any) -> None:
    if planner.is_known_.all():
        raise AnnotationError(
            "nothing is left to ask, because every label is known; add items, or leave labels out "
            "of --known"
        )


def _told(planner: Any, found: Any = None, **measured: Any) -> Any:
    """Tell how good the labels of a fitted planner are; what measures is `Checked`, or None.

    ``found`` has the figures of the folder that it plans with, if it does.
    """
    import numpy as np

    from manyhands.report.headline import tell_labels

    table = planner.table_
    codes = {value: code for code, value in enumerate(table.classes.tolist())}

    def coded(values: Any) -> Any:
        return np.array([codes.get(each, -1) for each in values])

    given = {name: each and coded(each.values) for name, each in measured.items()}
    drawn = [each.random for each in measured.values() if each and each.random is not None]
    given["random"] = np.any(drawn, axis=0) if drawn else None
    if found is not None:
        if given["audit"] is None:
            return found.told
        given |= {"fitted": found.aggregator, "identified": found.aggregator.identified_}
        return tell_labels(table, None, found.codes, found.posterior, **given)
    labels, posterior = coded(planner.labels_.tolist()), planner.posterior_
    return tell_labels(table, planner.aggregator_, labels, posterior, **given)


def _are_decided(planner: Any) -> bool:
    """Return whether known labels, or annotations of a fitted planner, decide most labels."""
    from manyhands.report.headline import are_decided

    identified = getattr(planner.aggregator_, "identified_", None)
    annotated = planner.table_.annotations_per_instance() > 0
    if identified is None or planner.aggregator_.is_known_.any():
        return True
    return are_decided(identified, annotated)


def _prices(path: Path, options: dict[str, Any]) -> dict[Any, float]:
    from manyhands.io.columns import as_numbers

    workers, prices = read_columns(path, "worker", "price", options=options)
    try:
        return dict(zip(workers, as_numbers(list(map(str, prices))).tolist(), strict=True))
    except ValueError as error:
        raise AnnotationError(f"--cost {path}: {error}; a price is a positive number") from error


def _check_tasks(to: str, out: Path | None) -> None:
    """Refuse tools whose tasks do not say whom to ask, and files of another kind.

    Raises
    ------
    AnnotationError
        In these cases.
    """
    from manyhands.io.exports.formats import WRITERS

    if to == TABLE:
        return
    able = [name for name, writer in WRITERS.items() if writer.assigned is not None]
    if to not in able:
        raise AnnotationError(
            f"--to {to}: its tasks have no place for whom to ask; write --to {' or '.join(able)}, "
            "or a table, which is what is written without --to"
        )
    suffix = WRITERS[to].suffix
    if out is None or out.suffix.lower() != suffix:
        raise AnnotationError(f"--to {to} writes tasks; name a {suffix} file with --out")


def _write_tasks(path: Path, to: str, columns: dict[str, list[Any]], export: Any) -> None:
    """Write tasks for a tool, each with whom to ask."""
    from manyhands.io import write_atomically
    from manyhands.io.exports.formats import WRITERS
    from manyhands.io.exports.written import ItemFields

    items, assigned = ItemFields(export, to), WRITERS[to].assigned
    assert assigned is not None  # See _check_tasks.
    tasks = [
        assigned(row["task"], row["worker"], row["expected_gain"], items)
        for row in records_of(columns)
    ]
    with telling(path):
        write_atomically(path, json_format.dumps(tasks, ensure_ascii=False, indent=1) + "\n")


OF_DAWID_SKENE = "label: what Dawid and Skene's method infers from the annotations alone"
WITH_CLASSIFIER = (
    ". The classifier only helps to say which of these labels are wrong, so what it doubts may be "
    "more probably wrong than right"
)
OF_OTHER_LABELS = "Labels of a folder that fit or aggregate wrote are listed with --model DIR"
"""Whose labels a review lists."""


@reported
@grouped
def review(
    *,
    tables: TablePaths,
    by: ByOption = By.label,
    n: QueueSize = None,
    random: RandomSize = 0,
    inputs: Joining,
    known: Known = None,
    gold: GoldOfFolder = None,
    model: ReviewedOf = None,
    out: OutFile = None,
    seed: Seed = 0,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """List the labels or annotations most likely to be wrong, or a random sample of labels.

    Example: manyhands review annotations.csv --features X.npy -n 50 --out review.csv
    Example: manyhands review annotations.csv --random 100 --out sample.csv
    Example: manyhands review project-1.json --texts text
    Example: manyhands review annotations.csv --model model --out review.csv
    Example: manyhands review answers.csv --multilabel ';' --out review.csv
    """
    from manyhands import DawidSkene, review_queue
    from manyhands.decision.labels import best_of
    from manyhands.explore.inputs import figures_in
    from manyhands.io import consensus
    from manyhands.io.annotations import read_shown
    from manyhands.io.consensus_labels import REVIEW_RULE
    from manyhands.io.shown import with_shown
    from manyhands.metrics.certainty import certainty_of
    from manyhands.metrics.inferred_labels import level_of_labels
    from manyhands.report.review import (
        certainty_of_basis,
        label_queue_of,
        queue_of,
        told_of_checking,
    )

    refuse_overwriting([out], [*tables, *inputs.files, *(known or ()), gold])
    check_out(out)
    if reading.takes_sets:
        refused = {
            "--by annotation": (by is By.annotation, "a set is reviewed as a whole"),
            "--features, --texts or --images": (bool(inputs), OF_SETS_ALONE),
            "--model": (model is not None, OF_SETS_ALONE),
        }
        shared: Any = {"seed": seed, "keep_formulas": keep_formulas, "json": json}
        review_sets(tables, n, random, known, out, reading, refused, **shared)
        return
    if model is not None and inputs:
        raise AnnotationError(
            "--model has labels that are inferred already, and --features, --texts or --images "
            "are of labels that are inferred anew; give one of them"
        )
    if gold is not None and model is None:
        raise AnnotationError(
            "--gold goes with --model; labels that you know are given with --known"
        )
    read, options = _read("review", tables, reading, inputs, seed)
    size = n if n is not None else 0 if random else 100
    draw: dict[str, Any] = {"by": by.value, "n": size, "random": random, "random_state": seed}
    if model is not None:
        given = read_known_option(known, options, read.table)
        own = read_gold_option(gold, options, table=read.table)
        table, found = figures_in(model, read.table, given, own)
        if found.basis is None:
            raise AnnotationError(f"{model} holds labels of one class, so none can be wrong")
        read, source = read._replace(table=table), found.basis.name
        level = found.told.level
        certainty = certainty_of_basis(found.inputs, found.basis, level)
        basis = found.inputs, found.basis, certainty
        queue = (
            label_queue_of(*basis, found.found, **draw)
            if by is By.label
            else queue_of(*basis, **draw)
        )
        n_review = found.found.count_actions()
        whose = f"label: as in {model / 'labels.csv'} ({source})"
    else:
        fitted = DawidSkene().fit(read.table, **read_gold_of_fit(known, read.table, options))
        posterior, codes = fitted.posterior_, best_of(fitted.posterior_, read.table)
        level = level_of_labels(read.table, fitted, codes, posterior, identified=fitted.identified_)
        certainty = certainty_of(read.table, level, posterior, codes, fitted.is_known_)
        queue = review_queue(fitted, read.table, read.proba, certainty=certainty, **draw)
        n_review = consensus(read.table, fitted).count_actions()
        source, whose = "DawidSkene", OF_DAWID_SKENE
        if inputs:
            whose += WITH_CLASSIFIER
    shown = read.shown or read_shown(one_or_all(tables), read.export, **options)
    columns = with_shown(queue.to_sheet(), shown)
    write_columns(out, columns, keep_formulas)
    if json:
        weight = queue.classifier_weight
        told = {"by": by.value, "labels_of": source, "classifier_weight": weight}
        told |= {"n_to_review": n_review["review"], "about": told_of_checking(queue, level)}
        print_json({**told, "queue": records_of(columns)})
        return
    aside = ("was", "reviewed") if random and size else ("was", "reviewed", "chosen")
    brief = {name: values for name, values in columns.items() if name not in aside}
    print_columns(f"{counted(len(queue), by.value)} to check", brief)
    most = "the most doubtful" if queue.grades_off is None else "the highest grades_off"
    order = (
        f"{most} come first; "
        if not random
        else f"the first {min(random, len(queue)):,} are drawn at random, and the most doubtful of "
        "the others follow; "
        if size
        else "drawn at random, in no order; "
    )
    if by is By.label:
        say(f"{whose}. {OF_OTHER_LABELS}" if model is None else whose)
    how_far = "" if queue.grades_off is None else "grades_off: how far from the truth, expected; "
    say(
        f"{order}probability_wrong: how probably the label is wrong; {how_far}suggestion: what else"
        if certainty.is_known
        else f"{order}how probably a label is wrong is not told, because nothing shows how many of "
        "them are right; suggestion: what else"
    )
    if by is By.label and (n_other := queue.n_less_probable):
        middle = queue.is_middle is not None and bool(queue.is_middle.all())
        say(told_of_rule(n_other, middle=middle))
    for line in told_of_checking(queue, level):
        say(line)
    if out is not None and by is By.label:
        say(
            f"next: in {out}, correct the column 'label', and write your name into 'reviewed' of "
            "every row that you looked at. Then this command uses your labels: "
            f"{_corrected_by(out, model)}"
        )
    if by is By.label and n_review["review"]:
        is_all = n_review["review"] == read.table.n_instances
        say(
            ALL_TO_REVIEW
            if is_all
            else f"{n_review['review']:,} of the {read.table.n_instances:,} labels need review"
        )
        say(REVIEW_RULE)
    if random:
        say(
            f"{counted(min(random, len(queue)), 'label')} drawn at random: review all of them, and "
            "their share of right labels is an estimate for all that are not reviewed"
        )
    else:
        draw_sample = DRAW_SAMPLE
        if model is not None:
            draw_sample += f" --model {shlex.quote(as_word(model))}"
        say(f"{SHARED_LOOK_CERTAIN} `{draw_sample}` draws them")


@reported
@grouped
def annotators(
    *,
    tables: TablePaths,
    teach: Teach = None,
    known: Known = None,
    gold: Truth = None,
    model: JudgedBy = None,
    out: OutFile = None,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Show which annotators need a closer look and why, or which classes one of them confuses.

    Example: manyhands annotators annotations.csv --out annotators.csv
    Example: manyhands annotators annotations.csv --teach alice
    Example: manyhands annotators annotations.csv --model model
    """
    import numpy as np

    from manyhands import DawidSkene
    from manyhands.annotations.groups import in_families
    from manyhands.explore.inputs import figures_in
    from manyhands.inference.shared_mistakes import annotators_are_judged
    from manyhands.io.workbooks import is_workbook
    from manyhands.jobs import profile_annotators
    from manyhands.jobs.outputs import times_of
    from manyhands.planning.screening import LEVEL
    from manyhands.report.limits import FEW
    from manyhands.report.summary import summarize_annotators

    refuse_overwriting([out], [*tables, *(known or ()), gold])
    check_out(out)
    books = [path for path in tables if path.is_file() and is_workbook(path)]
    if reading.sheet is not None and not books:
        raise AnnotationError(
            f"--sheet {reading.sheet!r} names a sheet of a workbook, and none is given; what to "
            f"show an annotator is --teach {shlex.quote(reading.sheet)}"
        )
    read, options = _read("annotators", tables, reading)
    table, export = read.table, read.export
    if model is not None and teach is not None:
        raise AnnotationError(
            "--teach lists confusions by Dawid and Skene's method, and --model has other labels; "
            "leave --model out"
        )
    if model is None:
        fitted = DawidSkene().fit(table, **read_gold_of_fit(known, table, options))
        if teach is not None:
            _sheet(fitted, table, teach, json)
            return
        truth = read_checked(gold, table, options, "--gold")
        judged = annotators_are_judged(table, fitted.is_known_)
        lists = profile_annotators(table, fitted, export, gold=truth and truth.values, joined=False)
    else:
        given = read_known_option(known, options, table)
        own = read_gold_option(gold, options, table=table)
        table, found = figures_in(model, table, given, own)
        truth = read_checked(gold, table, options, "--gold")
        times: dict[str, Any] = dict(times_of(export, found.inputs.table))
        inputs = replace(found.inputs, **times)
        if truth is not None:
            codes = {value: code for code, value in enumerate(table.classes.tolist())}
            measured_by = np.array([codes.get(value, -1) for value in truth.values])
            inputs = replace(inputs, gold=measured_by)
        judged, lists = inputs.judged, summarize_annotators(inputs, joined=False)
    columns = lists | {name: ["; ".join(each) for each in lists[name]] for name in LISTS}
    write_columns(out, columns, keep_formulas)
    if json:
        print_json({"level": LEVEL, "annotators": records_of(lists)})
        return
    own = ("accuracy", "95 % interval") if judged else ()
    is_measured = truth is not None or any(lists["n_gold"])  # Known labels may measure, too.
    measured = ("n_gold", "accuracy_on_gold") if is_measured else ()
    graded = judged and "severity" in columns
    grades = ("within_one_grade", "severity") if graded else ()
    names = ("annotator", "n_annotations", *own, *grades, *measured, "reason to look")
    columns["95 % interval"] = [
        None if low is None or high is None else percent_interval(low, high)
        for low, high in zip(columns["low_95"], columns["high_95"], strict=True)
    ]
    columns["reason to look"] = ["; ".join(map(reason, graver(each))) for each in lists["flags"]]
    print_columns("Annotators", {name: columns[name] for name in names})
    say(
        "accuracy: the share of right annotations that the model expects, with a 95 % interval; "
        f"blank with fewer than {FEW} annotations, which are too few"
        if judged
        else "accuracy_on_gold: measured on gold labels. The annotations alone do not show how "
        "good anybody is, so no accuracy is expected"
        if is_measured
        else "It is not known how often each annotator is right: the annotations do not show how "
        f"good anybody is. {SAMPLE_TELLS}"
    )
    if model is None and judged:
        say(
            "The labels by which annotators are judged are those that Dawid and Skene's method "
            "infers from the annotations alone; --model DIR takes those of a folder, as its report "
            "does"
        )
    if graded:
        say(SEVERITY)
        say_severities(records_of(columns), classes=table.classes)
    say(f"{A_FLAG}; --out and --json have the evidence")
    if any(TELL_NOTHING.intersection(flags) for flags in lists["flags"]):
        say(NOT_ASKED)
    if in_families(table.groups, table.n_annotators).any():
        say(
            "Families are declared. Annotators outside them, such as people, help to decide the "
            "labels that they are judged by: their own votes count in their accuracy. Whether a "
            "model can stand in for a person is told by `manyhands judges ANNOTATIONS`"
        )


def _sheet(model: Any, table: Any, annotator: str, json: bool) -> None:
    from manyhands.inference.shared_mistakes import annotators_are_judged
    from manyhands.planning import teaching_sheet
    from manyhands.planning.review import SURE_EXAMPLE
    from manyhands.report.confusions import REVERSED

    ids = {str(each): each for each in table.annotators.tolist()}
    if annotator not in ids:
        raise AnnotationError(
            f"--teach {annotator!r} is no annotator. Give a name as it is in the annotations, such "
            f"as --teach {shlex.quote(next(iter(ids)))}; `manyhands annotators ANNOTATIONS` lists "
            "all"
        )
    sheet = teaching_sheet(model, table, ids[annotator])
    columns = {
        name: [getattr(pair, name) for pair in sheet.pairs]
        for name in ("true", "given", "rate", "reverse_rate", "mistaken", "examples", "contrast")
    }
    if json:
        print_json({"annotator": sheet.annotator, "needs_expert": sheet.needs_expert,
                    "pairs": records_of(columns)})  # fmt: skip
        return
    for name in ("mistaken", "examples", "contrast"):
        columns[name] = [", ".join(map(str, each)) for each in columns[name]]
    print_columns(f"Confusions of {annotator}", columns)
    say(
        "rate: share of this annotator's answers that are 'given', of those to items of the class "
        "'true', as in the confusion matrix of the report (smoothed, so nearer to the crowd's than "
        "a count is); reverse_rate: share that are 'true', of those to items of the class 'given'; "
        "mistaken: items where this has "
        "probably happened; examples: clear items of the class 'true'; contrast: clear items of "
        "the class 'given'"
    )
    if not all(columns["examples"] + columns["contrast"]):
        say(
            "Where examples or contrast is empty, no item of the class is clear enough to show: at "
            "least two other annotators must have labelled it, all with this class, and without "
            f"this annotator the class must be more than {percent(SURE_EXAMPLE)} certain."
        )
    if not model.is_known_[table.annotations_per_instance() > 0].mean() > 0.5:
        say(REVERSED)
    say("an expert must look at the items before they are shown")
    if not annotators_are_judged(table, model.is_known_):
        say(
            "Nothing shows how good the annotators are, so this one may be right where the labels "
            f"are wrong. {SAMPLE_TELLS}"
        )


def _told_stop(found: Any, n: int, rule: str) -> str:
    """Say at how many annotations per item the rule of `next` stops, and what all would bring.

    ``n`` of the rounds of the forecast gain as much as is advised.
    """
    shares = found.curves["plan"].accuracy.mean(axis=0)
    bought = [round(size) for size in (found.sizes - found.sizes[0]) * found.n_instances]
    first, here, last = (percent(shares[k]) for k in (0, n, -1))
    everything = f"the {bought[-1]:,} further annotations of this forecast"
    if n == len(bought) - 1:
        rest = f"{everything} would bring {first} of right labels to {last}"
        return f"{rule}. Every step of the table gains more: {rest}."
    if not n:
        return (
            f"{rule}. The first step of the table already gains less: {everything} would bring "
            f"{first} of right labels to {last}. A smaller --step shows whether the best of its "
            "annotations are worth buying."
        )
    return (
        f"{rule}. By this rule, stop at {found.sizes[n]:.2f} annotations per item: "
        f"{bought[n]:,} further ones would bring {first} of right labels to {here}, and all "
        f"{bought[-1]:,} of this forecast would bring {last}."
    )


_BEGUN = {
    "model": "that the annotations let the model expect",
    "sample": "that the random sample shows",
    "gold": "that gold measures",
}
"""Where a forecast begins, by the source of the level."""

_MEASURED = (
    f" Labels that you check would measure the level: draw some (`{DRAW_SAMPLE}`), fill them in, "
    "and give the file to this command as --audit or --known."
)
"""What would measure the level, where nothing does."""


@reported
@grouped
def budget(
    *,
    tables: TablePaths,
    gold: PilotGold = None,
    known: Known = None,
    audit: Audit = None,
    budget: Budget = None,
    load: Load = 2.0,
    criterion: ByCriterion = PairCriterion.information,
    step: Step = 0.5,
    runs: Runs = 3,
    folder: Folder = None,
    out: OutFile = None,
    seed: Seed = 0,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Forecast how many labels would be corrected by more annotations; with --gold, measure it.

    Example: manyhands budget pilot.csv --budget 6
    Example: manyhands budget pilot.csv --gold gold.csv --folder steps
    """
    from sklearn.base import clone

    from manyhands.decision.labels import is_scale_of_grades
    from manyhands.inference.shared_mistakes import annotators_are_judged
    from manyhands.planning import AnnotationPlanner, forecast, replay
    from manyhands.planning.replay import LESS, MORE
    from manyhands.report.planning import (
        RANGE_OF_GAIN,
        advised,
        candidates_of,
        enough,
        limit,
        n_worth,
        priced,
        told_of,
    )

    refuse_overwriting([out], [*tables, *(known or ()), gold, audit])
    check_out(out)
    if gold is not None and known is not None:
        raise AnnotationError(
            "--known is for a forecast, and --gold replays what was recorded, where no label is "
            "known; give one of them"
        )
    read, options = _read("budget", tables, reading)
    table = read.table
    planner = AnnotationPlanner(criterion=criterion.value, load=load)
    truth = read_checked(gold, table, options, "--gold")
    known_labels = read_gold_of_fit(known, table, options)
    checked = read_checked(audit, table, options, "--audit")
    _refuse_both(table, known_labels, checked)
    now = clone(planner).set_params(random_state=seed).fit(table, **known_labels)
    _refuse_all_known(now)
    told = _told(now, gold=truth, audit=checked)
    if truth is None and told.level is None:
        raise AnnotationError(
            f"a forecast from this pilot would be made up. {told.headline} With known labels as "
            "--gold, what was recorded is replayed"
        )
    asked = candidates_of(now, _screened(now, read.export))
    if truth is None and asked.newcomer is not None:
        raise AnnotationError(
            f"{asked.told} A forecast is of the annotators here. This command lists the items for "
            "a new annotator: `manyhands next ANNOTATIONS`"
        )
    more: Any = {"batch": step, "n_runs": runs, "folder": folder, "random_state": seed}
    if truth is None:
        more |= {"level": told.level.value, "pairs": asked.pairs}
        found = forecast(table, planner, budget, **known_labels, **more)
    else:
        found = replay(table, truth.values, planner, budget, **more)
    columns = found.to_columns()
    if truth is None:
        gains = [share - told.level.value for share in columns["accuracy"]]
        bounds = {"low_95": (told.level.low, LESS), "high_95": (told.level.high, MORE)}
        columns |= {
            name: [min(end + by * gain, 1.0) for gain in gains]
            for name, (end, by) in bounds.items()
        }
    write_columns(out, columns, keep_formulas)
    advice, is_new = advised(now, asked), asked.newcomer is not None
    judged = annotators_are_judged(table, now.aggregator_.is_known_) and _are_decided(now)
    source = type(now.aggregator_).__name__
    known_level = told_of(told.to_dict()["level"])
    answer = enough(priced(advice, source, newcomer=is_new, judged=judged, **known_level))
    if json:
        more = {**told.to_dict(), "enough": answer}
        print_json(
            {"from": "model" if truth is None else "gold", "curve": records_of(columns), **more}
        )
        return
    curves = {name: each.accuracy.mean(axis=0) for name, each in found.curves.items()}
    cells = {name: [percent(share) for share in curve] for name, curve in curves.items()}
    if truth is None:
        ends = zip(columns["policy"], columns["low_95"], columns["high_95"], strict=True)
        own = [percent_interval(low, high) for name, low, high in ends if name == "plan"]
        cells = {"plan": cells.pop("plan"), "95 % interval of plan": own, **cells}
    sizes = [f"{size:.2f}" for size in found.sizes.tolist()]
    further = [f"{round((size - found.sizes[0]) * found.n_instances):,}" for size in found.sizes]
    is_priced = truth is None and judged and not advice.n_warm_up
    worth = n_worth(found.curves["plan"].gain.mean(axis=0)[1:].tolist())
    if is_priced and worth < len(sizes) - 1:
        sizes[worth] += " (stop here)"
    rows = [list(row) for row in zip(sizes, further, *cells.values(), strict=True)]
    print_table("Accuracy", ["annotations per item", "further annotations", *cells], rows)
    if is_priced:
        say(_told_stop(found, worth, limit(priced(advice, source))))
    if truth is None and is_scale_of_grades(table):
        say(
            "On grades, a batch is planned for the grades by which it brings labels nearer the "
            "truth, and the curve counts these as right labels: accuracy may grow by less."
        )
    if truth is None:
        say(
            f"The curve begins at the level {_BEGUN[told.level.source]}. Its rise is what the "
            f"model expects if the same annotators answer further items. {RANGE_OF_GAIN}"
            f"{_MEASURED if told.level.source == 'model' else ''}"
        )
        wanted = found.sizes[0] + 3 if budget is None else budget
        if found.sizes[-1] < wanted - 1e-9:
            say(
                f"the forecast ends at {found.sizes[-1]:.2f}, where these annotators have "
                "annotated everything; only new annotators can give more"
            )
    if truth is None and asked.told:
        say(asked.told)
    say(f"As it is: {told.headline}")
    if told.level is not None and told.level.source == "sample" and audit is not None:
        say(f"{_OF_AUDITS}{_corrected_by(audit)}")
    say(answer)
