"""Run a sample of recorded runs again by the code that the records name, on this machine.

The last digits of a figure depend on the processor. To tell whether a change of code changed a
figure, the same runs by the recorded code and by the present code are compared on one machine:

    python benchmarks/earlier_code.py --out reference --jobs 2
    manyhands reproduce all --adopt --reference reference

Every commit that a record names is checked out into a temporary folder; its own code runs a row
made from the record's specification. Code too old for a specification that was made explicit since
cannot do that: with ``--commit NAME``, that commit stands for all of them; ``--adopt`` takes its
runs of records that its code has adopted. A call that is killed is taken up by the next.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from manyhands.evidence.experiments.loading import load_experiments
from manyhands.evidence.records.adoptions import read_adoptions
from manyhands.evidence.records.records import Record, digest_of_figures, sound_record
from manyhands.evidence.records.store import find_runs, read_records, write_record
from manyhands.evidence.running.adoption import groups_of
from manyhands.evidence.running.code import code_hash

ROOT = Path(__file__).parents[1]

RUN = """
import json, sys, warnings
from dataclasses import asdict
from pathlib import Path
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
try:
    from manyhands.evidence import load_row, run_cell
except ImportError:
    from manyhands.experiments.cells import run_cell
    from manyhands.experiments.rows import load_row
print(json.dumps(asdict(run_cell(load_row(Path(sys.argv[1])), int(sys.argv[2])))))
"""
"""What the earlier code is asked to do; its package was `manyhands.experiments` once."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("papers", nargs="*", help="default: all")
    arguments.add_argument("--out", type=Path, required=True, help="folder of the runs")
    arguments.add_argument("--results", type=Path, default=ROOT / "results")
    arguments.add_argument("--experiments", type=Path, default=ROOT / "experiments")
    arguments.add_argument("--per-group", type=int, default=2)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument(
        "--unnamed",
        help="commit that stands for those with changes that were never committed; "
        "--adopt takes its runs where its code is the recorded one",
    )
    arguments.add_argument("--commit", type=resolved, help="run all of them at this commit")
    options = arguments.parse_args()
    by_commit: dict[str, list[Record]] = {}
    for record in sample(options):
        runs = runs_of(options.out, record, {record.commit, options.commit})
        if not any(run.status == "done" for run in runs):
            by_commit.setdefault(options.commit or record.commit or "", []).append(record)
    for commit, records in sorted(by_commit.items()):
        if not is_commit(commit) and options.unnamed:
            commit = options.unnamed
        if not is_commit(commit):
            # A "+" stands for changes that were never committed.
            print(f"{len(records)} runs skipped: {commit!r} is no commit of this repository")
            continue
        with checked_out(commit) as folder, ThreadPoolExecutor(options.jobs) as pool:
            for told in pool.map(lambda record: run(record, folder, options.out), records):
                print(told, flush=True)


def sample(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the runs that ``manyhands reproduce --adopt`` draws."""
    rows, _ = load_experiments(options.experiments)
    now = {row.id: code_hash(row) for row in rows}
    adoptions = read_adoptions(options.results)
    for group in groups_of(rows, read_records(options.results), adoptions):
        asked = not options.papers or group.paper in options.papers
        if asked and any(adoptions.code_of(r) != now[r.row] for r in group.records):
            yield from group.sample(options.per_group)


def runs_of(folder: Path, record: Record, commits: Container[str | None]) -> Iterable[Record]:
    runs = find_runs(folder, record.row, record.seed)
    return [run for run in runs if run.commit in commits]


def resolved(name: str) -> str:
    # Records name the commit that last changed the package.
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%H", name, "--", "src"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def is_commit(name: str) -> bool:
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{name}^{{commit}}"]
    return bool(name) and subprocess.run(command, capture_output=True).returncode == 0


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Clone the repository at a commit, for as long as the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        # The package asks git which commit it is of.
        for command in (
            ["clone", "--quiet", "--shared", "--no-checkout", str(ROOT), folder],
            ["-C", folder, "sparse-checkout", "set", "src"],
            ["-C", folder, "checkout", "--quiet", commit],
        ):
            subprocess.run(["git", *command], check=True)
        yield Path(folder)


def run(record: Record, folder: Path, out: Path) -> str:
    """Run a record's cell by the code in a folder, and write the record of it."""
    name = f"{record.row} seed {record.seed}"
    with tempfile.TemporaryDirectory() as rows:
        file = Path(rows, f"{record.row}.yaml")
        file.parent.mkdir(parents=True)
        # JSON is YAML. Of a row, only this decides a result.
        fields = {"label": "any", "citation": "any", "seeds": [record.seed]}
        file.write_text(json.dumps({**fields, **record.specification}), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", RUN, str(file), str(record.seed)]
        found = subprocess.run(command, env=environment, cwd=rows, capture_output=True, text=True)
    if found.returncode:
        return f"{name}: failed: {found.stderr.strip().splitlines()[-1]}"
    content = json.loads(found.stdout.strip().splitlines()[-1])
    made = Record(**content)
    if made.specification != record.specification:
        return f"{name}: failed: the commit reads the row's specification in another way"
    if sound_record({**content, "figures": digest_of_figures(made)}) is None:
        return f"{name}: failed: the commit files its records under other keys"
    if made.status == "done":
        write_record(out, made)
    return f"{name}: {made.status} ({made.seconds:.1f} s) {made.reason or ''}".rstrip()


if __name__ == "__main__":
    main()
