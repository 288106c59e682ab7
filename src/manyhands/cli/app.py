"""The commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from manyhands._version import __version__
from manyhands.cli.errors import EXIT_CODES, reported
from manyhands.cli.output import print_json, print_table, say, show_spread
from manyhands.cli.params import parse_settings

app = typer.Typer(
    name="manyhands",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Task = Annotated[str, typer.Option(help="Column with the instance's id.")]
Worker = Annotated[str, typer.Option(help="Column with the annotator's id.")]
Label = Annotated[str, typer.Option(help="Column with the annotation.")]
Duplicates = Annotated[
    str, typer.Option(help="Repeated (task, worker) pairs: error, last or keep.")
]
Classes = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this at run time
    typer.Option(help="Text file with one class name a line, in code order."),
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="NAME=VALUE", help="Parameter of the method; repeatable."),
]
OutFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--out", help="CSV file to write."),
]
Gold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="CSV file task,label[,split] with gold labels, for evaluation only."),
]
TablePath = Annotated[
    Path, typer.Argument(metavar="TABLE", help="CSV, TSV, Parquet (long) or .npy (matrix).")
]
ModelFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that fit wrote.")]


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Learn from crowds: classifiers, true labels and annotator profiles from many fallible hands.

    First steps: [bold]manyhands demo[/], then [bold]manyhands describe my_annotations.csv[/].
    """
    if version:
        say(__version__)
        raise typer.Exit


def _options(task: str, worker: str, label: str, duplicates: str, classes: Path | None) -> Any:
    names = None if classes is None else classes.read_text(encoding="utf-8").splitlines()
    return {
        "task": task,
        "worker": worker,
        "label": label,
        "duplicates": duplicates,
        "classes": names,
    }


@app.command()
@reported
def demo(
    out: Annotated[Path, typer.Option(help="Folder for model, labels and report.")] = Path(
        "manyhands-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the networks.")] = 0,
    json: Json = False,
) -> None:
    """Train on an embedded crowd, compare four methods with the gold-trained ceiling, and report.

    Example: manyhands demo --out /tmp/demo
    """
    from manyhands.experiments import run_demo
    from manyhands.report import write_report

    result = run_demo(out, seed=seed, verbose=0 if json else 1)
    result["report"] = str(write_report(out / "summary.json", out / "report.html"))
    if json:
        print_json(result)
        return
    data = result["data"]
    print_table(
        f"{data['instances']} digits, {data['annotations']} annotations by "
        f"{data['annotators']} simulated annotators; {data['test_instances']} test digits",
        ["method", "labels inferred right", "test accuracy", "seconds"],
        [
            [r["method"], r["train_label_accuracy"], r["test_accuracy"], f"{r['seconds']:.1f}"]
            for r in result["rows"]
        ],
    )
    say(f"report: {result['report']}")
    say(f"model, labels.csv: {out}  (manyhands predict {out} X.npy)")


@app.command()
@reported
def describe(
    table: TablePath,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Duplicates = "error",
    classes: Classes = None,
    json: Json = False,
) -> None:
    """Say what a table holds: counts, sparsity, imbalance, agreement, and what to look at.

    Example: manyhands describe annotations.csv --worker annotator
    """
    from manyhands.io import read_annotations
    from manyhands.report import summarize

    options = _options(task, worker, label, duplicates, classes)
    summary = summarize(read_annotations(table, **options))
    if json:
        print_json({name: summary[name] for name in ("data", "classes", "warnings")})
        return
    rows = [[k, v] for k, v in summary["data"].items() if isinstance(v, int | float)]
    print_table(str(table), ["", ""], rows)
    for warning in summary["warnings"] or []:
        say(f"! {warning}")


@app.command()
@reported
def aggregate(
    table: TablePath,
    method: Annotated[str, typer.Option(help="majority-vote, dawid-skene, ...")] = "dawid-skene",
    out: OutFile = None,
    gold: Gold = None,
    settings: Settings = None,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Duplicates = "error",
    classes: Classes = None,
    json: Json = False,
) -> None:
    """Infer the true label of every instance from the annotations alone.

    Example: manyhands aggregate annotations.csv --method dawid-skene --out labels.csv
    """
    from manyhands.experiments import aggregate_table
    from manyhands.inference import find_aggregator
    from manyhands.io import read_annotations, read_gold

    options = _options(task, worker, label, duplicates, classes)
    kind = find_aggregator(method)
    aggregator = kind(**parse_settings(settings or [], kind))
    gold_file = None if gold is None else read_gold(gold, classes=options["classes"])
    result = aggregate_table(read_annotations(table, **options), aggregator, gold_file, out)
    if json:
        print_json(result)
        return
    title = f"{result['method']}: {result['n_instances']} instances"
    rows = [[r["task"], r["label"], r["probability"]] for r in result["labels"][:10]]
    more = result["n_instances"] - len(rows)
    print_table(title, ["task", "label", "probability"], rows)
    if more > 0:
        say(f"... and {more} more" + ("" if out else " (--out labels.csv writes all)"))
    for name, value in (result["gold"] or {}).items():
        say(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}")
    if out:
        say(f"written: {out}")


@app.command()
@reported
def fit(
    features: Annotated[Path, typer.Option(help=".npy, .npz (X, task), CSV or Parquet.")],
    annotations: Annotated[Path, typer.Option(help="CSV, TSV, Parquet (long) or .npy (matrix).")],
    out: Annotated[Path, typer.Option(help="Folder for model, labels and summary.")],
    method: Annotated[str, typer.Option(help="conal, crowdlayer, aggregated, ...")] = "conal",
    settings: Settings = None,
    gold: Gold = None,
    seed: Annotated[int, typer.Option(help="First seed.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds; the first's model is kept.")
    ] = 1,
    holdout: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Also choose the epoch on this fraction of the annotations, held out."),
    ] = None,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Duplicates = "error",
    classes: Classes = None,
    json: Json = False,
) -> None:
    """Train a classifier on features and annotations.

    Where --gold has a split column, annotations of rows outside 'train' are left out, and every
    split is evaluated. An interrupted run goes on when the same command is given again.

    Example: manyhands fit --features X.npy --annotations A.csv --method conal --out model
    Example: ... --set max_epochs=25 --set backbone.hidden=[256,128]
    """
    from manyhands.classifiers import find_classifier
    from manyhands.experiments import match_gold, run_job
    from manyhands.io import read_aligned, read_gold

    options = _options(task, worker, label, duplicates, classes)
    kind = find_classifier(method)
    estimator = kind(**{"verbose": 0 if json else 1, **parse_settings(settings or [], kind)})
    rows, table = read_aligned(features, annotations, **options)
    gold_rows = None
    if gold is not None:
        gold_rows = match_gold(read_gold(gold, classes=options["classes"]), table)
    result = run_job(
        estimator,
        rows.X,
        table,
        out,
        gold=gold_rows,
        seeds=range(seed, seed + seeds),
        holdout=holdout,
    )
    if json:
        print_json(result)
        return
    if result["left_out"]:
        say(f"{result['left_out']} annotations of rows outside the train split were left out")
    if gold_rows is not None:
        print_table(
            f"{result['method']}, {seeds} seed(s), mean ± sd",
            ["protocol, split (instances)", "accuracy", "macro-F1"],
            [
                [
                    f"{protocol}, {split} ({metrics['n']['mean']:.0f})",
                    show_spread(metrics["accuracy"]),
                    show_spread(metrics["macro_f1"]),
                ]
                for protocol, run in result["table"].items()
                for split, metrics in run["splits"].items()
            ],
        )
    say(f"model, labels.csv, summary.json: {out}  (next: manyhands report {out})")


@app.command()
@reported
def predict(
    folder: ModelFolder,
    features: Annotated[Path, typer.Argument(metavar="X", help=".npy, .npz, CSV or Parquet.")],
    out: OutFile = None,
    json: Json = False,
) -> None:
    """Predict the true class of new instances.

    Example: manyhands predict model X_new.npy --out predictions.csv
    """
    from manyhands.experiments import predict_file

    result = predict_file(folder, features, out)
    if json:
        print_json(result)
        return
    rows = [[r["task"], r["label"], r["probability"]] for r in result["labels"][:10]]
    print_table(f"{result['n_instances']} instances", ["task", "label", "probability"], rows)
    more = result["n_instances"] - len(rows)
    if more > 0:
        say(f"... and {more} more" + ("" if out else " (--out predictions.csv writes all)"))
    if out:
        say(f"written: {out}")


@app.command()
@reported
def report(
    folder: ModelFolder,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="HTML file to write; default: DIR/report.html."),
    ] = None,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page: data, labels, annotators, confusions, training.

    Example: manyhands report model --out report.html
    """
    from manyhands.exceptions import ModelFolderError
    from manyhands.report import write_report

    summary = folder / "summary.json"
    if not summary.is_file():
        raise ModelFolderError(
            f"{str(folder)!r} has no summary.json; give the folder that 'manyhands fit --out' wrote"
        )
    path = write_report(summary, out or folder / "report.html")
    if json:
        print_json({"report": str(path)})
    else:
        say(f"report: {path}")
