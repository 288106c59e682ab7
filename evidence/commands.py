"""The commands of ``python -m evidence``: rows, their records, and pages of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from manyhands.cli.errors import EXIT_CODES, INTERRUPTED, UNEXPECTED, Remembering, reported
from manyhands.cli.output import note, print_json, say, visible
from manyhands.cli.values import some_path
from manyhands.exceptions import AnnotationError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from evidence.experiments.papers import Paper
    from evidence.experiments.rows import Row
    from evidence.running.plan import Cell, Outcome, ProgressListener

SETTLED = ("done", "done before", "same figures")
"""Statuses that the summary only counts; see `Outcome`."""

SHOWN = 5
"""Number of rows that the summary names per status and reason."""

PROBLEMS = ("failed", "other figures")
"""Statuses that make the command fail."""


class PageFormat(StrEnum):
    """File format of a page."""

    md = "md"
    html = "html"


Experiments = Annotated[
    Path,
    typer.Option(
        parser=some_path,
        metavar="DIR",
        help="Folder of the experiments: PAPER.yaml, and METHOD/ROW.yaml for single rows.",
    ),
]
Results = Annotated[
    Path, typer.Option(parser=some_path, metavar="DIR", help="Folder of the records.")
]
What = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads this at run time
    typer.Argument(
        help="Ids or files of rows, tables (chu2021/table1), papers, methods, or all.",
        show_default="all",
    ),
]
Jobs = Annotated[
    Optional[int],  # noqa: UP045 - typer reads this at run time
    typer.Option(min=1, help="Number of processes, of one thread each; default: one per core."),
]
Seeds = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(min=1, help="Number of seeds per row; default: the seeds that the row names."),
]
Hanging = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        min=2,
        metavar="SEEDS",
        help="Run the rows whose verdict would change if a mean moved by one standard error, with "
        "this many seeds; rows that take more than a minute are left out.",
    ),
]
Budget = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="MINUTES", help="Start no run after this many minutes."),
]
Anew = Annotated[
    bool,
    typer.Option(
        "--anew",
        help="Run also what is finished; the new records replace the earlier ones.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


app = typer.Typer(
    cls=Remembering,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run published rows, compare the present code with their records, and write their pages.",
    epilog=f"{EXIT_CODES} A run of reproduce or rerun that failed is an unexpected error.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
@reported
def reproduce(
    what: What = None,
    jobs: Jobs = None,
    seeds: Seeds = None,
    hanging: Hanging = None,
    anew: Anew = False,
    budget: Budget = None,
    experiments: Experiments = Path("experiments"),
    results: Results = Path("results"),
    json: Json = False,
) -> None:
    """Run published rows over their seeds, and keep a record of every run.

    You can kill it at any time: the same command continues, and no finished run is lost or
    repeated. A run that fails is recorded with its traceback; the other runs continue, and the
    exit code is 1.

    Example: python -m evidence reproduce chu2021 --budget 60
    Example: python -m evidence reproduce conal/chu2021_labelme --seeds 5 --jobs 2
    Example: python -m evidence reproduce all --hanging 10
    """
    from evidence.running.reproduce import reproduce as run_rows

    if hanging is not None and seeds is not None:
        raise AnnotationError(
            "--hanging chooses the rows and their seeds; leave --seeds out, or --hanging"
        )
    rows = _find_rows(what or ["all"], experiments)
    if hanging is not None:
        rows, seeds = _find_hanging(rows, hanging, experiments, results), hanging
    display = _display(json)
    run: dict[str, Any] = {"jobs": jobs, "budget_minutes": budget, "progress": display}
    with _exit_on_interrupt(), display:
        outcomes = run_rows(rows, results, seeds=seeds, anew=anew, **run)
    _end(outcomes, results, json)


@app.command()
@reported
def rerun(
    what: What = None,
    jobs: Jobs = None,
    budget: Budget = None,
    experiments: Experiments = Path("experiments"),
    results: Results = Path("results"),
    json: Json = False,
) -> None:
    """Run one seed of every row again, and compare the present code with the records.

    What differs is written to reruns.json in the folder of the records, and shown on the pages; the
    exit code is then 1. The records stay as they are: "reproduce ROW --anew" replaces them. You can
    kill it at any time: at the same commit, the same command continues.

    Example: python -m evidence rerun all
    Example: python -m evidence rerun chu2021 --budget 10
    """
    from evidence.running.rerun import rerun as run_again

    rows = _find_rows(what or ["all"], experiments)
    display = _display(json)
    with _exit_on_interrupt(), display:
        outcomes = run_again(rows, results, jobs=jobs, budget_minutes=budget, progress=display)
    _end(outcomes, results, json)


def _display(json: bool) -> _Lines:
    return _Lines() if json or not Console(stderr=True).is_terminal else _Live()


def _end(outcomes: list[Outcome], results: Path, json: bool) -> None:
    """Print how the runs ended; exit with an error if one failed or differs, or none could run."""
    if json:
        print_json([asdict(each) for each in outcomes])
    else:
        _print_outcomes(outcomes, results)
    skipped = outcomes and all(outcome.status == "skipped" for outcome in outcomes)
    if skipped or any(outcome.status in PROBLEMS for outcome in outcomes):
        raise typer.Exit(UNEXPECTED)


@app.command()
@reported
def results(
    paper: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Key of a paper, such as chu2021; default: all papers."),
    ] = None,
    results: Results = Path("results"),
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path,
            metavar="DIR",
            help="Folder of the pages; default: the folder of the records.",
        ),
    ] = None,
    format: Annotated[
        Optional[PageFormat],  # noqa: UP045
        typer.Option(help="Write this format only; default: both."),
    ] = None,
    experiments: Experiments = Path("experiments"),
    json: Json = False,
) -> None:
    """Write the pages of papers, with tables, figures and verdicts, from records alone.

    Example: python -m evidence results chu2021 --out pages
    """
    from evidence.experiments.loading import load_experiments
    from evidence.pages.page import FORMATS, write_results
    from evidence.reruns import read_reruns
    from evidence.store import read_records

    rows, papers = load_experiments(experiments)
    chosen = list(papers.values()) if paper is None else [_find_paper(paper, papers)]
    records, reruns = read_records(results), read_reruns(results)
    formats = FORMATS if format is None else (format.value,)
    written = [
        path
        for each in chosen
        for path in write_results(each, rows, records, out or results, formats, reruns)
    ]
    if json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        say(f"written: {path}")


@app.command()
@reported
def refresh(
    check: Annotated[bool, typer.Option("--check", help="Only say which figures differ.")] = False,
) -> None:
    """Write the figures that the README and the pages of docs quote as the records have them.

    Example: python -m evidence refresh
    """
    from evidence.pages.docs import pages, refreshed, stale

    if check:
        for line in (found := stale()):
            say(visible(line))
        if found:
            raise typer.Exit(UNEXPECTED)
        return
    for page in pages():
        text = refreshed(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            say(f"written: {page}")


def _find_rows(what: list[str], experiments: Path) -> list[Row]:
    """Return the rows that the names select; a file may be outside the experiments' folder."""
    from evidence.experiments.loading import load_experiments, load_row
    from evidence.running.plan import select_rows

    found: list[Row] = []
    known: list[Row] | None = None
    for name in what:
        if Path(name).is_file():
            found.append(load_row(name))
            continue
        known = load_experiments(experiments)[0] if known is None else known
        found += select_rows(known, name)
    return list({row.id: row for row in found}.values())


def _find_hanging(rows: list[Row], seeds: int, experiments: Path, results: Path) -> list[Row]:
    """Keep the rows that should run with more seeds."""
    from evidence.experiments.loading import load_experiments
    from evidence.pages.page import hanging_rows
    from evidence.store import read_records

    known, papers = load_experiments(experiments)
    records, found = read_records(results), set[str]()
    for paper in papers.values():
        found |= {row.id for row in hanging_rows(paper, known, records, seeds=seeds)}
    return [row for row in rows if row.id in found]


def _find_paper(key: str, papers: dict[str, Paper]) -> Paper:
    if key not in papers:
        raise AnnotationError(
            f"PAPER={key!r} has neither rows nor a file; papers here: {', '.join(papers) or 'none'}"
        )
    return papers[key]


def _print_outcomes(outcomes: list[Outcome], results: Path) -> None:
    counts = Counter(outcome.status for outcome in outcomes)
    fates: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.status not in SETTLED:
            fates.setdefault((outcome.status, _first_line(outcome.reason)), []).append(outcome)
    if fates:
        say("Not done:")
    for (status, reason), alike in fates.items():
        say(visible(f"- {status}: {reason}") + f" ({len(alike)} runs)")
        names = dict.fromkeys(outcome.row for outcome in alike)
        shown = [
            f"{name} seeds {', '.join(str(o.seed) for o in alike if o.row == name)}"
            for name in list(names)[:SHOWN]
        ]
        more = [f"and {len(names) - SHOWN} more rows"] if len(names) > SHOWN else []
        for line in shown + more:
            say(visible(f"    {line}"))
    say(", ".join(f"{n} {status}" for status, n in counts.items()) or "no run")
    say(f"records: {results}  (next: python -m evidence results --results {results})")


def _first_line(reason: str | None) -> str:
    return (reason or "").strip().partition("\n")[0]


@contextmanager
def _exit_on_interrupt() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        note("interrupted; finished runs are kept, and the same command continues")
        raise typer.Exit(INTERRUPTED) from None


class _Lines:
    """Write one line per finished run to standard error, for logs."""

    def __init__(self) -> None:
        self.total = self.ended = 0

    def __enter__(self) -> ProgressListener:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, n_cells: int) -> None:
        self.total = n_cells

    def start(self, cell: Cell) -> None:
        pass

    def pause(self, cell: Cell) -> None:
        pass

    def end(self, outcome: Outcome) -> None:
        self.ended += 1
        if outcome.status != "done before":
            note(f"[{self.ended}/{self.total}] {_line(outcome)}")


class _Live(_Lines):
    """Show a progress bar for all runs, and a line for each that is running."""

    def __init__(self) -> None:
        super().__init__()
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self.running: dict[tuple[str, int], TaskID] = {}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> ProgressListener:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def begin(self, n_cells: int) -> None:
        super().begin(n_cells)
        self.all = self.bars.add_task("runs", total=n_cells)

    def start(self, cell: Cell) -> None:
        name = escape(visible(f"  {cell}"))
        self.running[cell.row.id, cell.seed] = self.bars.add_task(name, total=1)

    def pause(self, cell: Cell) -> None:
        self._remove(cell.row.id, cell.seed)

    def end(self, outcome: Outcome) -> None:
        self.counts[outcome.status] += 1
        self._remove(outcome.row, outcome.seed)
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        self.bars.update(self.all, advance=1, description=f"runs: {counts}")
        if outcome.status in PROBLEMS:
            self.bars.console.print(_line(outcome), markup=False, highlight=False)

    def _remove(self, row: str, seed: int) -> None:
        self.bars.remove_task(self.running.pop((row, seed)))


def _line(outcome: Outcome) -> str:
    reason = f": {_first_line(outcome.reason)}" if outcome.reason else ""
    seconds = f"{outcome.seconds:.1f} s"
    return visible(f"{outcome.row} seed {outcome.seed}: {outcome.status} ({seconds}){reason}")
