"""The commands `fit` and `demo`: train a classifier on a user's crowd, or several on ours."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Optional

import typer

from manyhands.cli.commands.select import choose, say_data, say_written
from manyhands.cli.errors import reported
from manyhands.cli.inputs import Files, TrainingInputs
from manyhands.cli.label_set_models import fit_sets
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import (
    Annotations,
    Excel,
    Gold,
    Json,
    KeepFormulas,
    Known,
    OutFolder,
    Seed,
    Settings,
)
from manyhands.cli.output import (
    headings_of_splits,
    print_json,
    print_table,
    say,
    say_actions,
    show_spread,
    visible,
)
from manyhands.cli.processes import (
    DeviceOptions,
    launch,
)
from manyhands.cli.reading import FamilyReading, files_of
from manyhands.cli.settings import merge_settings, parse_settings
from manyhands.cli.values import refuse_overwriting, some_path
from manyhands.exceptions import AnnotationError
from manyhands.files import as_word
from manyhands.wording import GOLD_ONLY_MEASURES, percent

RESERVED = {
    "random_state": "give the seed with --seed",
    "checkpoint": "the checkpoint is in the folder of --out",
}
"""Parameters that --set refuses, and what to do instead."""

DEFAULT_METHOD = "crowd-stacking"
WHY_DEFAULT = (
    "no --method given, so crowd-stacking is used: it needs no tuning, and was best or nearly best "
    "on our data sets"
)

GOES_ON = "the same command goes on where it stopped"
STARTS_AFRESH = "given again, the same command starts afresh, as this method keeps no checkpoint"

Method = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="NAME",
        help=(
            "Method, such as crowd-stacking (the default) or conal. Any wrong name prints "
            "the list. 'auto' compares a few methods, as the command 'select' does."
        ),
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Train with the settings of a paper: conal_labelme, conal_music, dasc_labelme, "
        "dasc_music or dasc_cifar10h. Values given with --set take precedence.",
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of training runs. The first run uses --seed as its seed, the second "
        "--seed + 1, and so on. The model of the first run is kept.",
    ),
]
Holdout = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        metavar="FRACTION",
        help="Train twice for each seed: once with this fraction of the items held out, to choose "
        "the number of epochs, and once on all items. The second model is kept.",
    ),
]
Folds = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        metavar="N",
        min=0,
        help="Estimate how often the classifier is right on new items, by cross-validation with "
        "this many folds. This estimate needs no gold labels. 0 skips it. Default: 3 if training "
        "takes up to a minute, else 0.",
    ),
]
Restart = Annotated[
    bool,
    typer.Option(
        "--restart",
        help="Delete what an interrupted run left in --out, and start over.",
    ),
]
Continue = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--continue",
        parser=some_path,
        metavar="MODEL",
        help="Continue training the model in this folder. Give all features and annotations, old "
        "and new.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a classifier is trained and judged."""

    rare_panel: ClassVar[str] = "How the classifier is trained and judged"
    rare: ClassVar[tuple[str, ...]] = (
        *("continue_", "protocol", "settings", "seed", "seeds", "holdout", "folds", "restart"),
    )
    """Options that do not belong to a first use."""

    method: Method = None
    continue_: Continue = None
    protocol: Protocol = "default"
    settings: Settings = None
    gold: Gold = None
    known: Known = None
    seed: Seed = 0
    seeds: Seeds = 1
    holdout: Holdout = None
    folds: Folds = None
    restart: Restart = False

    @property
    def from_the_start(self) -> dict[str, Any]:
        """Options that are about training one method from the start, by name."""
        return {
            "--protocol": self.protocol != "default",
            "--seeds": self.seeds > 1,
            "--set": self.settings,
            "--known": self.known,
            "--holdout": self.holdout,
            "--folds": self.folds is not None,
            "--restart": self.restart,
        }

    def estimator(self, on: DeviceOptions, *, quiet: bool) -> Any:
        """Make the classifier that the options describe."""
        from manyhands.fitting import with_protocol
        from manyhands.registry import find_classifier

        kind = find_classifier(self.method or DEFAULT_METHOD)
        given = self.settings or []
        own = parse_settings(given, kind, reserved=RESERVED, protocol=self.protocol)
        if isinstance(own.get("validation"), list | dict | str):
            raise AnnotationError("--set validation=... is a fraction, such as 0.1")
        estimator = with_protocol(kind(verbose=0 if quiet else 1), self.protocol)
        estimator.set_params(**merge_settings(own, estimator.get_params(deep=False)))
        on.give_to(estimator)
        return estimator


@reported
@grouped
def fit(
    *,
    annotations: Annotations,
    out: OutFolder,
    inputs: TrainingInputs,
    how: Training,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    on: DeviceOptions,
    json: Json = False,
) -> None:
    """Train a classifier on annotations, and on the items' features, texts or images.

    Features and annotations are matched by id if the file of features has ids (task). Otherwise,
    row i of the features belongs to item i of the annotations. If the --gold file has a column
    'split', only the annotations of items in the split 'train' are used, and the classifier is
    evaluated on every split. If the training of a network is interrupted, run the same command
    again to resume it, or add --restart to start over.

    Example: manyhands fit --features X.npy --annotations A.csv --out model
    Example: manyhands fit --texts text --annotations project.json --out model
    Example: ... --method conal --set max_epochs=25 --set backbone.hidden=[256,128]
    Example: ... --method crowd-layer --protocol dasc_labelme --set max_epochs=50
    Example: ... --method dasc --set estimator=conal --set n_rounds=3
    Example: ... --known labels/corrections.jsonl
    Example: ... --method auto
    Example: ... --method conal --devices 2
    Example: manyhands fit --features X.csv --annotations A.csv --multilabel ';' --out model
    Example: manyhands fit --continue model --features X2.npy --annotations A2.csv --out model
    """
    from manyhands.jobs import OUTPUTS

    read = [*inputs.files, *annotations, how.gold, *(how.known or ()), *reading.files]
    refuse_overwriting([out / name for name in OUTPUTS], read)
    if reading.takes_sets:
        fit_sets(
            *(inputs, annotations, out, how, reading, on),
            keep_formulas=keep_formulas,
            json=json,
        )
        return
    named = files_of("fit", annotations, reading, inputs, how, on, leave=("continue_", "restart"))
    files = Files(inputs, annotations, how.gold, out, reading.arguments(), keep_formulas, named)
    beside = {**how.from_the_start, **on.given}
    if how.continue_ is not None:
        why = "--continue keeps the model's method and parameters"
        _refuse_beside({"--method": how.method, **beside}, why)
        _go_on(how.continue_, files, json=json)
    elif how.method == "auto":
        _refuse_beside(beside, "--method auto chooses among several methods")
        choose(None, files, json=json, random_state=how.seed)
    else:
        _train(how, files, on, json=json)


def _go_on(folder: Path, files: Files, *, json: bool) -> None:
    """Go on with the model of a folder."""
    from manyhands.jobs import continue_job, load_classifier
    from manyhands.jobs.outputs import files_with_more

    rows, table, gold, _ = files.read()
    export = files.export()
    result = continue_job(
        load_classifier(folder),
        rows.frame,
        table,
        files.out,
        gold=gold,
        keep_formulas=files.keep_formulas,
        export=export,
        shown=files.shown(rows, table, export),
        files=files_with_more(folder, files.named, whole=True),
    )
    _say_job(result, files.out, json=json)


def _train(how: Training, files: Files, on: DeviceOptions, *, json: bool) -> None:
    """Train one method from the start."""
    from manyhands.jobs import run_job

    is_quiet = json or not on.is_first
    estimator = how.estimator(on, quiet=is_quiet)
    if on.to_launch:
        raise typer.Exit(launch(on.to_launch))
    rows, table, gold, known = files.read(how.known)
    encoder = files.inputs.encoder(how.seed)
    export = files.export()
    if not is_quiet:
        if how.method is None:
            say(WHY_DEFAULT)
        if encoder is not None:
            say(files.inputs.why(encoder))
    try:
        result = run_job(
            estimator,
            rows.frame,
            table,
            files.out,
            gold=gold,
            known=known,
            seeds=range(how.seed, how.seed + how.seeds),
            holdout=how.holdout,
            keep_formulas=files.keep_formulas,
            encoder=encoder,
            export=export,
            shown=files.shown(rows, table, export),
            restart=how.restart,
            folds=how.folds,
            files=files.named,
        )
    except KeyboardInterrupt:
        resumes = "checkpoint" in estimator.get_params(deep=False)
        raise KeyboardInterrupt(GOES_ON if resumes else STARTS_AFRESH) from None
    if on.is_first:
        _say_job(result, files.out, json=json)


def _say_job(result: dict[str, Any], out: Path, *, json: bool) -> None:
    """Write the report of a job, print its result, and where its files are."""
    from manyhands.jobs import report_folder

    report = report_folder(out)
    if json:
        print_json(result)
        return
    _print_job(result)
    say_actions(result, "fit")
    say_written(out, report)


def _refuse_beside(given: dict[str, Any], why: str) -> None:
    """Refuse options that are about training a method from the start."""
    for option, value in given.items():
        if value not in (None, False, []):
            raise AnnotationError(
                f"{option} goes with one method, trained from the start, and {why}; leave "
                f"{option} out"
            )


def _print_job(result: dict[str, Any]) -> None:
    """Print the training data, and the scores if there is gold."""
    seeds = result["seeds"]
    say_data(result["method"], result)
    runs = result["table"].values()
    headings = headings_of_splits([scores for run in runs for scores in run["splits"].values()])
    rows = [
        [
            f"{protocol}, {visible(split)} ({scores['n']['mean']:,.0f})",
            *(show_spread(name, scores[name]) for name in headings),
        ]
        for protocol, run in result["table"].items()
        for split, scores in run["splits"].items()
    ]
    if rows:
        title = f"{len(seeds)} seeds, mean ± standard deviation"
        if len(seeds) == 1:
            title = f"seed {seeds[0]}"
        if seeds == [None]:
            title = "continued"
        print_table(title, ["protocol, split (items)", *headings.values()], rows)
        # Gold of a test part cannot become labels to train on.
        if any(split not in ("test", "other rows") for run in runs for split in run["splits"]):
            say(GOLD_ONLY_MEASURES)
    for line in result.get("headline", ()):
        say(line)


@reported
def demo(
    out: OutFolder = Path("manyhands-demo"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train and compare methods on pictures of handwritten digits, and write a report.

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
            [
                r["method"],
                *(percent(r[name]) for name in ("train_label_accuracy", "test_accuracy")),
                f"{r['seconds']:.1f}",
            ]
            for r in result["rows"]
        ],
    )
    say(f"report: {result['report']}")
    say(f"model ({DEFAULT_METHOD}), labels.csv, annotations.csv: {out}")
    annotations = shlex.quote(as_word(out / "annotations.csv"))
    say(f"next: manyhands explore {shlex.quote(as_word(out))} --annotations {annotations}")
