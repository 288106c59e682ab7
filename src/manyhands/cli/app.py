"""The commands."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from manyhands._version import __version__
from manyhands.cli.errors import EXIT_CODES, reported
from manyhands.cli.evidence import register
from manyhands.cli.facts import class_rows, counted, data_rows
from manyhands.cli.output import print_json, print_table, say, show_spread, visible
from manyhands.cli.params import (
    Duplicates,
    Rule,
    Scale,
    over,
    parse_settings,
    read_classes,
    refuse_overwriting,
    some_path,
)
from manyhands.exceptions import AnnotationError

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
Repeated = Annotated[
    Duplicates, typer.Option(help="What to do with repeated (task, worker) pairs.")
]
Abstain = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="VALUE", help="Label that means 'looked and could not tell'; repeatable."),
]
Skip = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="VALUE", help="Label that means 'passed on'; repeatable."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the networks.")]
Classes = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this at run time
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Text file with one class name a line, in code order.",
    ),
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="NAME=VALUE", help="Parameter of the method; repeatable."),
]
OutFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--out", parser=some_path, metavar="FILE", help="CSV file to write."),
]
OutFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        parser=some_path,
        metavar="DIR",
        help="Folder for model, labels.csv, summary.json.",
    ),
]
Gold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Table task,label[,split] with gold labels, for evaluation only.",
    ),
]
TablePath = Annotated[
    Path,
    typer.Argument(
        parser=some_path,
        metavar="TABLE",
        help="CSV, TSV, Parquet (one row an annotation) or .npy (instances x annotators).",
    ),
]
ModelFolder = Annotated[
    Path, typer.Argument(parser=some_path, metavar="DIR", help="Folder that fit wrote.")
]
RESERVED = {
    "random_state": "give the seed with --seed",
    "checkpoint": "the checkpoint stands in the folder of --out",
}
"""Parameters that are not for --set, and what is instead."""

FEATURES = ".npy, .npz (arrays X, task), CSV, TSV or Parquet."


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


def _options(
    task: str,
    worker: str,
    label: str,
    duplicates: Duplicates,
    classes: Path | None,
    abstain: list[str] | None,
    skip: list[str] | None,
) -> dict[str, Any]:
    return {
        "task": task,
        "worker": worker,
        "label": label,
        "duplicates": duplicates.value,
        "classes": read_classes(classes),
        "abstain": abstain,
        "skip": skip,
    }


def _read_gold(path: Path | None, classes: list[str] | None, option: str = "--gold") -> Any:
    """Read a file of known labels; no option names its columns."""
    from manyhands.io import read_gold

    if path is None:
        return None
    try:
        return read_gold(path, classes=classes)
    except AnnotationError as error:
        raise AnnotationError(
            f"{option} {error} (its columns are 'task', 'label' and, if rows have splits, 'split')"
        ) from error


def _print_labels(title: str, result: dict[str, Any], out: Path | None, example: str) -> None:
    """Print the first labels, and where the others are."""
    rows = [[r["task"], r["label"], r["probability"]] for r in result["labels"][:10]]
    print_table(title, ["task", "label", "probability"], rows)
    more = result["n_instances"] - len(rows)
    if more > 0:
        say(f"... and {more:,} more" + ("" if out else f" (--out {example} writes all)"))


def _print_comparison(result: dict[str, Any], json: bool) -> None:
    """Print the methods, best first; columns without a figure are left out."""
    if json:
        print_json(result)
        return
    columns = {  # Short, so that a terminal of 80 characters shows whole names.
        "accuracy": "accuracy",
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
    if "minority_recall" in shown:
        say("min. recall: of the rarer half of the classes; ECE: expected calibration error")
    say("held-out LL: mean log probability of annotations held out; it ranks close methods poorly")
    for score in result["methods"]:
        if score["error"] is not None:
            say(f"! {score['method']}: {score['error']}")


@app.command()
@reported
def demo(
    out: OutFolder = Path("manyhands-demo"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train on an embedded crowd, compare four methods with the gold-trained ceiling, and report.

    Example: manyhands demo --out /tmp/demo
    """
    from manyhands.jobs import report_folder, run_demo

    result = run_demo(out, seed=seed, verbose=0 if json else 1)
    result["report"] = str(report_folder(out))
    if json:
        print_json(result)
        return
    data = result["data"]
    print_table(
        f"{data['instances']:,} digits, {data['annotations']:,} annotations by "
        f"{data['annotators']} simulated annotators; {data['test_instances']} test digits",
        ["method", "labels inferred right", "test accuracy", "seconds"],
        [
            [r["method"], r["train_label_accuracy"], r["test_accuracy"], f"{r['seconds']:.1f}"]
            for r in result["rows"]
        ],
    )
    say(f"report: {result['report']}")
    say(f"model (CoNAL), labels.csv: {out}  (next: manyhands predict {out} X.npy)")


@app.command()
@reported
def describe(
    table: TablePath,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.error,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    json: Json = False,
) -> None:
    """Say what a table holds: counts, sparsity, imbalance, agreement, and what to look at.

    Example: manyhands describe annotations.csv --worker annotator
    """
    from manyhands.io import read_annotations
    from manyhands.report import summarize

    options = _options(task, worker, label, duplicates, classes, abstain, skip)
    summary = summarize(read_annotations(table, **options))
    if json:
        print_json({name: summary[name] for name in ("data", "classes", "warnings")})
        return
    print_table(str(table), ["", ""], data_rows(summary["data"]))
    found = summary["classes"]
    title = "Classes" if found["shown"] == found["total"] else "Most frequent classes"
    columns = ["class", "annotations", "share", "instances by majority vote"]
    print_table(title, columns, class_rows(found))
    for warning in summary["warnings"]:
        say(f"! {warning['text']}")


@app.command()
@reported
def agreement(
    table: TablePath,
    scale: Annotated[
        Scale, typer.Option(help="What the classes are; ordered as in --classes, or sorted.")
    ] = Scale.nominal,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples.")] = 1000,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.error,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    json: Json = False,
) -> None:
    """Measure how far annotators agree, with 95 % intervals over instances.

    Example: manyhands agreement annotations.csv --scale ordinal
    """
    from manyhands.agreement import summary
    from manyhands.io import read_annotations

    options = _options(task, worker, label, duplicates, classes, abstain, skip)
    read = read_annotations(table, **options)
    if scale is Scale.interval and read.classes.dtype.kind not in "iu":
        raise AnnotationError(
            f"--scale interval needs classes that are numbers, and these are such as "
            f"{read.classes[0].item()!r}; use --scale ordinal"
        )
    found = summary(read, scale=scale.value, n_resamples=resamples)
    rows = {
        name: {
            bound: None if math.isnan(value := getattr(interval, bound)) else value
            for bound in ("value", "low", "high")
        }
        for name, interval in found.items()
    }
    if json:
        print_json(rows)
        return
    print_table(
        f"Agreement, {scale.value} classes",
        ["measure", "value", "from", "to"],
        [[name.replace("_", " "), *row.values()] for name, row in rows.items()],
    )
    if any(row["value"] is None for row in rows.values()):
        say(
            "empty: undefined (no instance has two annotations, or there is nothing to disagree on)"
        )


@app.command()
@reported
def aggregate(
    table: TablePath,
    method: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="dawid-skene (default), majority-vote, ...; an unknown name lists all."),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Score all methods instead: against --gold, or on annotations held out.",
        ),
    ] = False,
    out: OutFile = None,
    gold: Gold = None,
    known: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help="Table task,label of labels that are known (gold questions), to be used.",
        ),
    ] = None,
    rule: Annotated[
        Rule, typer.Option(help="How a label comes from the probabilities.")
    ] = Rule.argmax,
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(min=0.0, max=1.0, help="Leave the label open where its probability is lower."),
    ] = None,
    settings: Settings = None,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.error,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    json: Json = False,
) -> None:
    """Infer the true label of every instance from the annotations alone.

    Example: manyhands aggregate annotations.csv --method dawid-skene --out labels.csv
    Example: manyhands aggregate annotations.csv --compare --gold gold.csv
    """
    from manyhands.io import read_annotations
    from manyhands.jobs import aggregate_table, compare_methods
    from manyhands.registry import find_aggregator

    refuse_overwriting([out], [table, gold, known, classes])
    options = _options(task, worker, label, duplicates, classes, abstain, skip)
    kind = find_aggregator(method or "dawid-skene")
    own = parse_settings(settings or [], kind)
    gold_file = _read_gold(gold, options["classes"])
    known_file = _read_gold(known, options["classes"], "--known")
    if compare:
        if method or out or known or own or threshold is not None or rule is not Rule.argmax:
            raise AnnotationError(
                "--compare runs every method as it comes; leave --method, --out, --known, --rule, "
                "--threshold and --set out, or leave --compare out to run one method"
            )
        _print_comparison(compare_methods(read_annotations(table, **options), gold_file), json)
        return
    result = aggregate_table(
        read_annotations(table, **options),
        kind(**own),
        gold_file,
        out,
        known=known_file,
        rule=rule.value,
        threshold=threshold,
    )
    if json:
        print_json(result)
        return
    title = f"{result['method']}: {result['n_instances']:,} instances"
    _print_labels(title, result, out, "labels.csv")
    if result["n_undecided"]:
        say(f"left open: {counted(result['n_undecided'], result['n_instances'])}")
    for name, value in (result["gold"] or {}).items():
        say(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value:,}")
    if out:
        say(f"written: {out}")


@app.command()
@reported
def fit(
    features: Annotated[Path, typer.Option(parser=some_path, metavar="FILE", help=FEATURES)],
    annotations: Annotated[
        Path,
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help="CSV, TSV, Parquet (one row an annotation) or .npy (instances x annotators).",
        ),
    ],
    out: OutFolder,
    method: Annotated[
        str, typer.Option(help="conal, crowdlayer, aggregated, ...; an unknown name lists all.")
    ] = "conal",
    protocol: Annotated[
        str,
        typer.Option(
            help="Published way to train: conal_labelme, conal_music, dasc_labelme, dasc_music, "
            "dasc_cifar10h; --set goes before it."
        ),
    ] = "default",
    settings: Settings = None,
    gold: Gold = None,
    seed: Seed = 0,
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Number of runs, from --seed on; the first's model is kept."),
    ] = 1,
    holdout: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="FRACTION",
            help="Run every seed once more with so many annotations held out to choose the "
            "epoch; the model kept is still the other.",
        ),
    ] = None,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.error,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    json: Json = False,
) -> None:
    """Train a classifier on features and annotations.

    Row i of the features and task i of the annotations belong together; with ids in the features'
    file (task), tasks are matched by them. Where --gold has a split column, annotations of rows
    outside 'train' are left out, and every split is evaluated. An interrupted run goes on when
    the same command is given again.

    Example: manyhands fit --features X.npy --annotations A.csv --method conal --out model
    Example: ... --set max_epochs=25 --set backbone.hidden=[256,128]
    Example: ... --protocol dasc_labelme --set max_epochs=50
    Example: ... --method dasc --set estimator=conal --set n_rounds=3
    """
    from manyhands.fitting import with_protocol
    from manyhands.io import read_aligned
    from manyhands.jobs import OUTPUTS, match_gold, run_job
    from manyhands.registry import find_classifier

    refuse_overwriting([out / name for name in OUTPUTS], [features, annotations, gold, classes])
    options = _options(task, worker, label, duplicates, classes, abstain, skip)
    kind = find_classifier(method)
    own = parse_settings(settings or [], kind, reserved=RESERVED, protocol=protocol)
    if isinstance(own.get("validation"), list | dict | str):
        raise AnnotationError("--set validation=... is a fraction of the annotations, such as 0.1")
    estimator = with_protocol(kind(verbose=0 if json else 1), protocol)
    estimator.set_params(**over(own, estimator.get_params(deep=False)))
    rows, table = read_aligned(features, annotations, **options)
    gold_file = _read_gold(gold, options["classes"])
    gold_rows = None if gold_file is None else match_gold(gold_file, table)
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
    _print_job(result)
    say(f"model, labels.csv, summary.json: {out}  (next: manyhands report {out})")


def _print_job(result: dict[str, Any]) -> None:
    """Print what was trained on, and how good it is where there is gold."""
    data, seeds = result["data"], result["seeds"]
    say(
        f"{result['method']}: {data['annotations']:,} annotations of {data['instances']:,} "
        f"instances by {data['annotators']:,} annotators"
    )
    if result["left_out"]:
        say(f"left out: {result['left_out']:,} annotations of rows outside the train split")
    rows = [
        [
            f"{protocol}, {visible(split)} ({metrics['n']['mean']:,.0f})",
            show_spread(metrics["accuracy"]),
            show_spread(metrics["macro_f1"]),
        ]
        for protocol, run in result["table"].items()
        for split, metrics in run["splits"].items()
    ]
    if rows:
        title = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds, mean ± sd"
        print_table(title, ["protocol, split (instances)", "accuracy", "macro-F1"], rows)


@app.command()
@reported
def predict(
    folder: ModelFolder,
    features: Annotated[Path, typer.Argument(parser=some_path, metavar="X", help=FEATURES)],
    out: OutFile = None,
    json: Json = False,
) -> None:
    """Predict the true class of new instances.

    Example: manyhands predict model X_new.npy --out predictions.csv
    """
    from manyhands.jobs import OUTPUTS, predict_file

    refuse_overwriting([out], [features, *(folder / name for name in OUTPUTS)])
    result = predict_file(folder, features, out)
    if json:
        print_json(result)
        return
    title = f"{result['n_instances']:,} instances"
    _print_labels(title, result, out, "predictions.csv")
    if out:
        say(f"written: {out}")


@app.command()
@reported
def report(
    folder: ModelFolder,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path, metavar="FILE", help="HTML file to write; default: DIR/report.html."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page: data, labels, annotators, confusions, training.

    Example: manyhands report model --out report.html
    """
    from manyhands.jobs import OUTPUTS, report_folder

    refuse_overwriting([out], [folder / name for name in OUTPUTS if name != "report.html"])
    path = report_folder(folder, out)
    if json:
        print_json({"report": str(path)})
    else:
        say(f"report: {path}")


register(app)
