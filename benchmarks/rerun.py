"""Compare a run of rows with the records, and tell how many hours all rows take.

    manyhands reproduce all --seeds 1 --jobs 2 --results mine
    python benchmarks/rerun.py mine

Runs of the same row with the same seed are compared by their metrics and further measures, to the
last digit. A row that was recorded more than once, by several versions of the code, may equal any
of them.

The hours need the first seed of every row, run with the machine to itself. A run that was killed
and started again is refused, as its pause would count. Rows on a GPU are left out, and so is the
time before the first run.
"""

from __future__ import annotations

import argparse
import datetime
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from manyhands.evidence.experiments.loading import load_rows
from manyhands.evidence.records.records import Record, digest, first_difference
from manyhands.evidence.records.store import read_records

ROOT = Path(__file__).parents[1]
PAUSE = datetime.timedelta(minutes=2)
"""With nothing running for so long, a command was interrupted."""

Runs = dict[tuple[str, int], list[Record]]
"""A row's key and a seed -> its finished runs, the last one last; rows that share a run are one."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("mine", type=Path, help="folder of records")
    folder = arguments.parse_args().mine
    mine, recorded = finished(folder), finished(ROOT / "results")
    if not mine:
        raise SystemExit(f"{folder} has no finished run; name the folder given to --results")
    compare(mine, recorded)
    hours(mine, recorded)


def finished(folder: Path) -> Runs:
    """Return the finished runs in a folder."""
    found: Runs = {}
    for record in sorted(read_records(folder), key=lambda record: record.started):
        if record.status == "done":
            found.setdefault((digest(record.specification), record.seed), []).append(record)
    return found


def compare(mine: Runs, recorded: Runs) -> None:
    """Print which runs have other figures than the records, and how many have the same."""
    both = mine.keys() & recorded.keys()
    unlike = [run for run in both if not any(equal(mine[run][-1], each) for each in recorded[run])]
    for run in sorted(unlike, key=lambda run: mine[run][-1].row):
        last = mine[run][-1]
        print(f"{last.row} seed {last.seed}: {first_difference(recorded[run][-1], last)}")
    print(f"{len(both) - len(unlike)} of {len(both)} runs have the figures of the records")
    if len(mine) > len(both):
        print(f"{len(mine) - len(both)} runs are not recorded")


def equal(first: Record, second: Record) -> bool:
    """Whether two runs have the same metrics and further measures."""
    return first.metrics == second.metrics and first.extra == second.extra


def hours(mine: Runs, recorded: Runs) -> None:
    """Print how long the runs took, and how long all rows would take at this pace."""
    seeds: defaultdict[str, set[int]] = defaultdict(set)
    for row in load_rows(ROOT / "experiments"):
        if row.device == "cpu":
            seeds[row.key].update(row.seeds)
    timed = {run: found[-1] for run, found in mine.items() if run[0] in seeds}
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for (row, _), record in timed.items():
        seconds[row].append(record.seconds)
    if missing := len(seeds) - len(seconds):
        print(f"no hours of all rows: {missing} of {len(seeds)} have no finished run here")
        return
    wall = uninterrupted(list(timed.values()))
    # What a second of a run costs on the clock: with two jobs, half a second.
    pace = wall / sum(record.seconds for record in timed.values())
    hours_of = {row: pace * fmean(own) / 3600 for row, own in seconds.items()}
    named = sum(hours_of[row] * len(own) for row, own in seeds.items())
    further = [row for row, seed in recorded if row in seeds and seed not in seeds[row]]
    print(f"{len(timed)} runs took {wall / 60:.0f} minutes")
    print(f"the {sum(map(len, seeds.values()))} runs that rows name: {named:.1f} hours")
    more = sum(hours_of[row] for row in further)
    print(f"the {len(further)} of further seeds, of `--hanging 10`: {more:.1f} hours more")


def uninterrupted(runs: list[Record]) -> float:
    """Return the seconds from the first start to the last end; exit if nothing ran for a while."""
    starts = [datetime.datetime.fromisoformat(run.started) for run in runs]
    spans = sorted(
        (start, start + datetime.timedelta(seconds=run.seconds))
        for start, run in zip(starts, runs, strict=True)
    )
    last = spans[0][1]
    for start, end in spans:
        if start - last > PAUSE:
            raise SystemExit(f"nothing ran from {last:%H:%M} to {start:%H:%M}: time it again")
        last = max(last, end)
    return (last - spans[0][0]).total_seconds()


if __name__ == "__main__":
    main()
