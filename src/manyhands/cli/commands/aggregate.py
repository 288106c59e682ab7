"""The command `aggregate`: one method, or all of them side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.options import (
    Abstain,
    Classes,
    Format,
    Gold,
    Groups,
    Json,
    KeepFormulas,
    Known,
    Label,
    Question,
    Reading,
    Repeated,
    Settings,
    Skip,
    TablePaths,
    Task,
    Worker,
    one_or_all,
    open_store,
    read_gold_option,
    table_options,
)
from manyhands.cli.output import (
    count_with_share,
    print_json,
    print_labels,
    print_table,
    say,
    with_options,
)
from manyhands.cli.params import (
    Duplicates,
    Rule,
    Tool,
    parse_settings,
    refuse_overwriting,
    some_path,
)
from manyhands.exceptions import AnnotationError

Method = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="dawid-skene (default), majority-vote, ...; an unknown name lists all."),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        help="Score all methods instead: against --gold, or on held-out annotations.",
    ),
]
History = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Table annotator,true,given,count of the annotators' earlier work, which the method "
        "uses.",
    ),
]
Out = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE|DIR",
        help="File for the labels: .csv, .tsv, .parquet, .json or .jsonl; or a folder (a name "
        "without a suffix) for labels.csv, annotators.csv, summary.json and report.html.",
    ),
]
Target = Annotated[
    Tool, typer.Option("--to", help="Write the labels so that this tool can import them, too.")
]
Checkpoint = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="DIR",
        help="Folder for the parameters of every iteration; the same command, run again after it "
        "was killed, resumes there.",
    ),
]
Dask = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="ADDRESS",
        help="Scheduler of dask.distributed, such as tcp://10.0.0.1:8786, whose workers count a "
        "store.",
    ),
]
ONE_METHOD = (
    "--compare runs every method as it comes; leave --method, --out, --known, --history, --rule, "
    "--threshold and --set out, or leave --compare out to run one method"
)
RuleOption = Annotated[Rule, typer.Option(help="How labels are decided from probabilities.")]
Threshold = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(min=0.0, max=1.0, help="Leave the label open if its probability is lower."),
]


@reported
def aggregate(
    tables: TablePaths,
    method: Method = None,
    compare: Compare = False,
    out: Out = None,
    to: Target = Tool.table,
    gold: Gold = None,
    known: Known = None,
    history: History = None,
    rule: RuleOption = Rule.argmax,
    threshold: Threshold = None,
    settings: Settings = None,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.auto,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    groups: Groups = None,
    format: Format = "auto",
    question: Question = None,
    reading: Reading = None,
    checkpoint: Checkpoint = None,
    dask: Dask = None,
    keep_formulas: KeepFormulas = False,
    json: Json = False,
) -> None:
    """Infer the true label of each instance from the annotations alone.

    A store that ingest made is read in place of a table, one shard at a time.

    Example: manyhands aggregate annotations.csv --method dawid-skene --out labels.csv
    Example: manyhands aggregate annotations.csv --compare --gold gold.csv
    Example: manyhands aggregate project-1.json --out labels --to label-studio
    Example: manyhands aggregate store --out labels.parquet --checkpoint saved
    Example: manyhands aggregate store --out labels.parquet --dask tcp://10.0.0.1:8786
    """
    from manyhands.inference.clusters import dask_client
    from manyhands.inference.history import TakesHistory
    from manyhands.io import read_history
    from manyhands.io.annotations import read_items, read_with_account
    from manyhands.io.exports.reading import report_losses
    from manyhands.jobs import OUTPUTS, aggregate_store, aggregate_table, compare_methods
    from manyhands.jobs.aggregation import check_output, tool_file
    from manyhands.registry import find_aggregator

    within = [] if out is None else [out / name for name in (*OUTPUTS, tool_file(to.value))]
    refuse_overwriting([out, *within], [*tables, gold, known, history, classes])
    options = table_options(
        task, worker, label, duplicates, classes, abstain, skip, format, question, reading, groups
    )
    kind = find_aggregator(method or "dawid-skene")
    own = parse_settings(settings or [], kind)
    gold_file = read_gold_option(gold, options, annotations=tables)
    known_file = read_gold_option(known, options, "--known")
    chosen = method or out or known or history or own or threshold is not None
    if compare and (chosen or rule != Rule.argmax):
        raise AnnotationError(ONE_METHOD)
    if to is not Tool.table and out is None:
        raise AnnotationError(f"--to {to.value} writes a file; name it, or a folder, with --out")
    if history is not None and not issubclass(kind, TakesHistory):
        raise AnnotationError(
            f"--history: {kind.__name__} takes no history; choose --method dawid-skene, ibcc or "
            "one-coin-dawid-skene"
        )
    store = open_store(tables)
    if store is not None:
        if compare or to is not Tool.table or groups:
            raise AnnotationError("of a store, leave --compare, --to and --groups out")
        with dask_client(dask) as engine:
            result = aggregate_store(
                store,
                kind(**own),
                gold_file,
                out,
                known=known_file,
                rule=rule.value,
                threshold=threshold,
                history=None if history is None else read_history(history, store),
                checkpoint=checkpoint,
                engine=engine,
            )
        print_json(result) if json else _print_result(result, out)
        return
    if dask is not None:
        raise AnnotationError(
            f"--dask {dask} counts the shards of a store; make one with manyhands ingest, or leave "
            "--dask out"
        )
    if out is not None:
        check_output(out, to.value)
    path = one_or_all(tables)
    table, export = read_with_account(path, **options)
    if export is not None:
        report_losses(export, path)
    elif to is not Tool.table:
        export = read_items(path, table, **options)
    if compare:
        _print_comparison(compare_methods(table, gold_file), json)
        return
    result = aggregate_table(
        table,
        kind(**own),
        gold_file,
        out,
        known=known_file,
        history=None if history is None else read_history(history, table),
        rule=rule.value,
        threshold=threshold,
        checkpoint=checkpoint,
        to=to.value,
        export=export,
        title=f"Labels of {tables[0].name}",
        keep_formulas=keep_formulas,
    )
    if json:
        print_json(result)
    else:
        _print_result(result, out)


def _print_result(result: dict[str, Any], out: Path | None) -> None:
    """Print the first labels, and their scores if there is gold."""
    title = f"{result['method']}: {result['n_instances']:,} instances"
    print_labels(title, result, out, "labels.csv")
    if result["n_undecided"]:
        say(f"left open: {count_with_share(result['n_undecided'], result['n_instances'])}")
    for name, value in (result["gold"] or {}).items():
        say(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value:,}")
    actions = (f"{name} {count:,}" for name, count in result["actions"].items())
    say(f"recommended: {', '.join(actions)}")
    if out:
        say(f"written: {', '.join(result['files'])}")


def _print_comparison(result: dict[str, Any], json: bool) -> None:
    """Print the methods, best first, without empty columns."""
    if json:
        print_json(result)
        return
    columns = {  # Short, so that a terminal of 80 characters shows whole names.
        "accuracy": "accuracy",
        "accuracy_ties_shared": "shared",
        "macro_f1": "macro F1",
        "minority_recall": "min. recall",
        "ece": "ECE",
        "held_out_log_likelihood": "held-out LL",
        "seconds": "CPU s",
    }
    scores = [score for score in result["methods"] if score["error"] is None]
    shown = [key for key in columns if any(score[key] is not None for score in scores)]
    print_table(
        f"{len(scores)} methods on {result['n_instances']:,} instances",
        ["method", *(columns[key] for key in shown)],
        [
            [score["method"], *("" if score[k] is None else f"{score[k]:.3f}" for k in shown)]
            for score in scores
        ],
    )
    if "accuracy_ties_shared" in shown:
        say("shared: accuracy if classes that tie share the instance; else the first is named")
    if "minority_recall" in shown:
        say("min. recall: of the rarer half of the classes; ECE: expected calibration error")
    say("held-out LL: mean log probability of annotations held out; it ranks close methods poorly")
    for score in result["methods"]:
        if score["error"] is not None:
            say(with_options(f"! {score['method']}: {score['error']}"))
