"""Commands on a fitted model: `predict` and `report`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import one_or_all, read_gold_option
from manyhands.cli.label_set_models import predict_sets
from manyhands.cli.label_sets import report_sets
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import (
    FEATURES,
    TEXT_FILE,
    Excel,
    Images,
    Json,
    KeepFormulas,
    ModelFolder,
    OutFile,
    Texts,
)
from manyhands.cli.output import print_cutoffs, print_json, print_labels, print_table, say
from manyhands.cli.reading import Reading, as_arguments, command_of
from manyhands.cli.values import Multilabel, refuse_overwriting, some_path
from manyhands.exceptions import AnnotationError


class CacheAction(StrEnum):
    """What `cache` does."""

    info = "info"
    clear = "clear"


NewGold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--gold",
        parser=some_path,
        metavar="FILE",
        help="True classes of the new items: a table with the columns task,label. They measure "
        "how many predictions are right. Items that the model was trained on do not count.",
    ),
]


@reported
@grouped
def predict(
    *,
    folder: ModelFolder,
    x: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(parser=some_path, metavar="X", help="File of features, as for --features."),
    ] = None,
    features: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help=f"{FEATURES} The columns must be those that 'manyhands fit' was given. Items "
            "without ids are numbered from 0, in the order of the rows.",
        ),
    ] = None,
    texts: Texts = None,
    images: Images = None,
    annotations: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help="Table or export that has the column or field given with --texts or --images. May "
            "be repeated; several files are read as one.",
        ),
    ] = None,
    gold: NewGold = None,
    reading: Reading,
    out: OutFile = None,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Predict the class of new items; with --gold, measure how many predictions are right.

    A model that was trained on sets of labels predicts a set for each item; --gold then has the
    columns task and labels.

    Example: manyhands predict model --features new.csv --out predictions.csv
    Example: manyhands predict model --texts new.csv --out predictions.csv
    Example: manyhands predict model --texts text --annotations project.json --out predictions.csv
    """
    from manyhands.fitting.saving import holds_label_sets
    from manyhands.jobs import OUTPUTS, predict_file

    if x is not None and features is not None:
        raise AnnotationError(
            f"the file of features is given twice, as {x} and as --features {features}; leave one "
            "of them out"
        )
    features = features or x
    read = [features, None if texts is None else Path(texts), gold, *(annotations or [])]
    refuse_overwriting([out], [*read, *reading.files, *(folder / name for name in OUTPUTS)])
    if holds_label_sets(folder):
        predict_sets(
            *(folder, features, out),
            reading=reading,
            gold=gold,
            json=json,
            texts=texts,
            images=images,
            annotations=one_or_all(annotations) if annotations else None,
            keep_formulas=keep_formulas,
        )
        return
    options = reading.arguments()
    result = predict_file(
        folder,
        features,
        out,
        texts=texts,
        images=images,
        annotations=one_or_all(annotations) if annotations else None,
        options=options,
        gold=read_gold_option(gold, options),
        keep_formulas=keep_formulas,
    )
    if json:
        print_json(result)
        return
    title = f"{result['n_instances']:,} instances"
    print_labels(title, result, out, "predictions.csv")
    for line in result["about"]:
        say(line)
    print_cutoffs(result["cutoffs"])
    if "headline" in result:
        say(result["headline"])
    if out:
        say(f"written: {out}")


@reported
@grouped
def report(
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            parser=some_path,
            metavar="DIR|FILE",
            help="Folder that 'manyhands fit' or 'manyhands aggregate' wrote; or, with "
            "--multilabel ';', a file of answers.",
        ),
    ],
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help="HTML file to write. Default: DIR/report.html, or NAME-report.html for a file "
            "of answers.",
        ),
    ] = None,
    tables: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="DIR",
            help="Also write every table of the report as CSV, into this folder.",
        ),
    ] = None,
    texts: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="FILE",
            help="Show the texts of the items that the report names, from an export or a file "
            f"({TEXT_FILE}). Default: the texts in labels.csv. 'none': show no texts.",
        ),
    ] = None,
    images: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="DIR",
            help="Show small images of the items that the report names, from a folder of files "
            "that are named after the items' ids.",
        ),
    ] = None,
    reading: Reading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Write an HTML report: what to do next, the annotators, confusions and labels.

    Example: manyhands report model --out report.html
    Example: manyhands report labels --texts project-1.json
    Example: manyhands report labels --tables tables
    Example: manyhands report answers.csv --multilabel ';' --out report.html
    """
    from manyhands.jobs import OUTPUTS, report_folder
    from manyhands.jobs.outputs import LABELS

    if reading.takes_sets and not folder.is_dir():
        if tables is not None:
            better = command_of("aggregate", [folder], reading, "--out", "labels")
            raise AnnotationError(
                f"--tables writes the tables of a folder; make one by {better}, and report that"
            )
        written = report_sets([folder], reading, out, texts, images)
        if json:
            print_json(dict(zip(("report", "summary"), map(str, written), strict=True)))
        else:
            say(f"report: {written[0]}")
            say(f"summary: {written[1]}")
        return
    if given := as_arguments(replace(reading, multilabel=Multilabel.error.value), {}):
        raise AnnotationError(
            f"{given[0]} says how answers are read, and {folder} was read when it was written; "
            f"leave {given[0]} out"
        )

    refuse_overwriting([out], [folder / name for name in OUTPUTS if name != "report.html"])
    refuse_overwriting([out], [texts])
    refuse_overwriting([None if tables is None else tables / LABELS], [])
    if texts is not None and str(texts) != "none" and not texts.suffix and not texts.exists():
        raise AnnotationError(
            f"{texts} does not exist; a report takes the file that holds the texts, such as "
            "--texts project-1.json, not the name of a field"
        )
    path = report_folder(
        folder, out, tables=tables, texts=texts, images=images, keep_formulas=keep_formulas
    )
    if json:
        print_json({"report": str(path)} | ({} if tables is None else {"tables": str(tables)}))
        return
    say(f"report: {path}")
    if tables is not None:
        say(f"tables: {tables}")


@reported
def cache(
    action: Annotated[
        CacheAction,
        typer.Argument(help="'info': list the encoders that use the folder. 'clear': empty it."),
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            parser=some_path,
            metavar="DIR",
            help="Folder in which encoders keep their embeddings (in Python: EmbeddingCache).",
        ),
    ],
    json: Json = False,
) -> None:
    """List the encoders that keep embeddings in a folder, or empty the folder.

    Example: manyhands cache info embeddings
    """
    from manyhands.encoders import EmbeddingCache

    if not folder.is_dir():
        raise AnnotationError(f"{folder} is not a folder (looked in {Path.cwd()})")
    kept = EmbeddingCache(folder)
    if action is CacheAction.clear:
        freed = kept.clear()
        if json:
            print_json({"freed": freed})
        else:
            say(f"freed: {freed:,} bytes")
        return
    rows = kept.info()
    if json:
        print_json({"encoders": rows})
        return
    numbers = ("rows", "columns", "bytes")
    print_table(
        f"{sum(row['bytes'] for row in rows):,} bytes",
        ["encoder", "fingerprint", *numbers],
        [
            [row["encoder"], row["fingerprint"][:8], *(f"{row[name]:,}" for name in numbers)]
            for row in rows
        ],
    )
