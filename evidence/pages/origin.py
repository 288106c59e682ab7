"""The provenance of a page: what did not run, and the records that it is made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evidence.pages.document import Block, Items, Paragraph, Section, Table
from evidence.pages.words import DASH, NOT_RUN
from evidence.records import Record
from evidence.reruns import Rerun

if TYPE_CHECKING:
    from evidence.experiments.papers import Paper
    from evidence.experiments.rows import Row


def gap_section(
    rows: Sequence[Row],
    latest: Mapping[str, Mapping[int, Record]],
    unavailable: Mapping[str, str],
) -> Section:
    """List the runs without figures and why; rows with the same status and reason share a line.

    ``unavailable`` names what of the paper the page lacks, or shows elsewhere, and why.
    """
    fates: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for (status, reason), seeds in _gaps(row, latest[row.id]).items():
            fate = (status, reason, ", ".join(map(str, seeds)))
            fates.setdefault(fate, []).append(row.id)
    missing = [f"{name}: {why}" for name, why in unavailable.items()]
    blocks: list[Block] = []
    if missing:
        blocks.append(Items("Of the paper, left out or shown elsewhere:", missing))
    if fates:
        lines = [[*fate, ", ".join(names)] for fate, names in sorted(fates.items())]
        blocks.append(Table(["what", "why", "seeds", "rows"], lines))
    else:
        done = (
            "Every run of the rows on this page is done."
            if missing
            else "Nothing: every run is done."
        )
        blocks.append(Paragraph(done))
    return Section("Not run, skipped and failed", blocks, "records")


def _gaps(row: Row, latest: Mapping[int, Record]) -> dict[tuple[str, str], list[int]]:
    gaps: dict[tuple[str, str], list[int]] = {}
    for seed in sorted({*row.seeds, *latest}):
        record = latest.get(seed)
        if record is None:
            why = "no record yet" + (" (needs a GPU)" if row.device == "gpu" else "")
            gaps.setdefault((NOT_RUN, why), []).append(seed)
        elif record.status != "done":
            gaps.setdefault((record.status, record.reason or DASH), []).append(seed)
    return gaps


def origin_section(
    paper: Paper,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Record]],
    reruns: Mapping[str, Rerun],
) -> Section:
    """Name the records that the page is made from, their data and versions, and the last rerun."""
    all_runs = [run for row in rows for run in runs.get(row.id, [])]
    commands = [f"reproduce {paper.key}", f"results {paper.key}"]
    if any(len(runs.get(row.id, ())) > len(row.seeds) for row in rows):
        commands.insert(1, f"reproduce {paper.key} --hanging 10")
    command = " && ".join(f"python -m evidence {each}" for each in commands)
    blocks: list[Block] = [
        Paragraph(
            f"Made from {len(all_runs)} records by: {command}. {hours(rows, runs)} All runs of a "
            "row are on the same data, unless a crowd is simulated anew with every seed."
        )
    ]
    lines = [_origin_line(row.id, runs[row.id]) for row in rows if runs.get(row.id)]
    if any((run.commit or "").endswith("+") for run in all_runs):
        blocks.append(
            Paragraph(
                "A commit with a + is the last one before changes that were not committed yet."
            )
        )
    if lines:
        header = ["row", "seeds", "seconds per run", "peak MB", "data", "commit", "run on"]
        blocks.append(Table(header, lines))
        versions = {f"{name} {v}" for run in all_runs for name, v in run.versions.items()}
        blocks.append(Items("Versions:", sorted(versions)))
    blocks += _rerun_blocks([row for row in rows if runs.get(row.id)], reruns)
    return Section("Where this comes from", blocks, "records")


def hours(rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]) -> str:
    """Say how long the runs took, as recorded and undisturbed; those on a GPU apart."""
    fastest = {
        (run.paper, run.key): min(other.seconds for other in of_row)
        for of_row in runs.values()
        for run in of_row
    }
    # Rows that differ only in name share their runs.
    seconds: dict[str, dict[tuple[str, str], float]] = {"cpu": {}, "gpu": {}}
    named: set[tuple[str, str]] = set()
    for row in rows:
        found = runs.get(row.id, [])
        seconds[row.device] |= {(run.paper, run.key): run.seconds for run in found}
        named |= {(run.paper, run.key) for run in found if run.seed in row.seeds}
    on_cpu, on_gpu = seconds["cpu"], seconds["gpu"]
    took, undisturbed = sum(on_cpu.values()) / 3600, sum(fastest[k] for k in on_cpu) / 3600
    told = (
        f"The {len(on_cpu)} different runs on the CPU took {took:.2f} hours, each on one core. "
        "Some shared the machine with other work: if each took as long as the fastest run of its "
        f"row, they would take {undisturbed:.2f}"
    )
    if not named.issuperset(on_cpu):
        own = sum(fastest[k] for k in on_cpu if k in named) / 3600
        told += f"; the runs with the seeds that the rows name would take {own:.2f} of these"
    told += "."
    if on_gpu:
        took = sum(on_gpu.values()) / 3600
        told += f" Runs on a GPU, possibly shared with other work: {len(on_gpu)}, {took:.2f} hours."
    return told


def _rerun_blocks(rows: Sequence[Row], reruns: Mapping[str, Rerun]) -> list[Block]:
    """Say which later code has run rows again, and what differed."""
    found = {
        row.id: reruns[row.id]
        for row in rows
        if row.id in reruns and reruns[row.id].content == row.key
    }
    if not found:
        return [Paragraph("No rerun has compared these records with later code yet.")]
    of_commit: dict[str, list[Rerun]] = {}
    for rerun in sorted(found.values(), key=lambda rerun: rerun.date):
        of_commit.setdefault(_shortened(rerun.commit or DASH), []).append(rerun)
    lines = []
    for commit, own in of_commit.items():
        equal = sum(rerun.difference is None for rerun in own)
        lines.append([commit, _days(rerun.date for rerun in own), str(len(own)), str(equal)])
    blocks: list[Block] = [
        Paragraph(
            f"Later code has run one seed of {len(found)} of the {len(rows)} rows again. Each was "
            "compared with its record to the last digit; the last rerun of a row counts."
        ),
        Table(["commit of the rerun", "rerun on", "rows", "with equal figures"], lines),
    ]
    differing = [
        [row, str(rerun.seed), _shortened(rerun.commit or DASH), rerun.difference]
        for row, rerun in found.items()
        if rerun.difference is not None
    ]
    if differing:
        blocks.append(Table(["row", "seed", "commit", "what differs"], differing))
    return blocks


def _days(dates: Iterable[str]) -> str:
    days = sorted(dates)
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _shortened(commit: str) -> str:
    """Shorten a commit, and keep the "+" that stands for changes that were not committed yet."""
    return commit.removesuffix("+")[:8] + "+" * commit.endswith("+")


def _origin_line(name: str, runs: Sequence[Record]) -> list[str]:
    def several(values: Iterable[str | None], length: int) -> str:
        return ", ".join(sorted({value[:length] for value in values if value})) or DASH

    memory = [run.peak_memory_mb for run in runs if run.peak_memory_mb is not None]
    return [
        name,
        ", ".join(str(run.seed) for run in runs),
        f"{np.mean([run.seconds for run in runs]):.1f}",
        f"{max(memory):.0f}" if memory else DASH,
        several((run.data_checksum for run in runs), 8),
        ", ".join(sorted({_shortened(run.commit) for run in runs if run.commit})) or DASH,
        _days(run.started[:10] for run in runs),
    ]
