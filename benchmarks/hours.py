"""Tell how long `manyhands reproduce all` takes, from a timed run of the first seeds of every row.

    manyhands reproduce all --seeds 1 --jobs 2 --results timed
    python benchmarks/hours.py timed

The first command must run without a break, on a machine that does nothing else. A run costs what
the timed runs of its row took, on average; jobs slow each other and start programs, so the sum is
scaled by the time that the command took over what its runs took. Rows on a GPU are left out.
"""

from __future__ import annotations

import argparse
import datetime
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean

from manyhands.evidence.experiments.loading import load_rows
from manyhands.evidence.records.records import digest
from manyhands.evidence.records.store import read_records

ROOT = Path(__file__).parents[1]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("timed", type=Path, help="folder of the timed run's records")
    folder = arguments.parse_args().timed
    begun, ended, seconds = timed(folder)
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for row in load_rows(ROOT / "experiments"):
        if row.device == "cpu":
            wanted[row.key] |= {*row.seeds}
    if missing := wanted.keys() - seconds.keys():
        raise SystemExit(f"{folder}: no finished run of {len(missing)} rows; finish the timed run")
    runs, took = sum(map(len, seconds.values())), (ended - begun).total_seconds() / 3600
    scale = took / (sum(map(sum, seconds.values())) / 3600)
    cost = {key: scale * fmean(seconds[key]) / 3600 for key in wanted}
    own = sum(cost[key] * len(seeds) for key, seeds in wanted.items())
    kept = recorded(ROOT / "results")
    every = sum(cost[key] * max(kept[key], len(seeds)) for key, seeds in wanted.items())
    print(f"{runs} timed runs took {took:.2f} hours ({begun:%Y-%m-%d}), {scale:.2f} of their sum")
    print(f"the {sum(map(len, wanted.values()))} runs that rows name: {own:.1f} hours")
    print(f"with the seeds of `--hanging 10` that are recorded: {every:.1f} hours")


def timed(folder: Path) -> tuple[datetime.datetime, datetime.datetime, dict[str, list[float]]]:
    """Return the beginning, the end and, by the row's key, the seconds of all finished runs."""
    spans, seconds = [], defaultdict(dict)
    for record in read_records(folder):
        if record.status == "done":
            start = datetime.datetime.fromisoformat(record.started)
            spans.append((start, start + datetime.timedelta(seconds=record.seconds)))
            # Rows that share a run have a record each.
            seconds[digest(record.specification)][record.seed] = record.seconds
    if not spans:
        raise SystemExit(f"{folder} has no finished runs")
    own = {key: list(by_seed.values()) for key, by_seed in seconds.items()}
    return min(s for s, _ in spans), max(e for _, e in spans), own


def recorded(folder: Path) -> Counter[str]:
    """Count the seeds of every row that have a finished run, by the row's key."""
    runs = {(digest(r.specification), r.seed) for r in read_records(folder) if r.status == "done"}
    return Counter(key for key, _ in runs)


if __name__ == "__main__":
    main()
