"""The code of the tutorial on sets of labels: on its data set, and on an invented stand-in."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "sets.md"

RELATIONS = ["TREATS", "CAUSES", "PREVENTS", "OTHER"]


def stand_in(home, n=150, k=6, n_workers=20, seed=0):
    """A crowd whose first workers tick little, in the files of the data set."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, 4)) < 0.35
    rows = []
    for task in range(n):
        for worker in rng.permutation(n_workers)[:k].tolist():
            seen = 0.4 if worker < 5 else 0.9
            ticks = rng.random(4) < np.where(truth[task], seen, 0.04)
            names = [name for name, is_ticked in zip(RELATIONS, ticks, strict=True) if is_ticked]
            rows.append((task, f"w{worker}", ";".join(names or ["OTHER"])))
    gold = [
        (task, name, int(truth[task, m]))
        for task in range(n)
        for m, name in enumerate(RELATIONS[:2])
    ]
    place = home / "multilabel" / "relex"
    place.mkdir(parents=True)
    frame = pd.DataFrame(rows, columns=["task", "worker", "labels"])
    frame.to_csv(place / "annotations.csv.gz", index=False)
    pd.DataFrame(gold, columns=["task", "option", "gold"]).to_csv(
        place / "gold.csv.gz", index=False
    )


def run_blocks(home, place):
    """Run the blocks of the page, and return what they print."""
    blocks = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", PAGE.read_text(), flags=re.S)
    code = ["import subprocess"]
    for block in blocks:
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        text = "\n".join(lines).strip()
        if text.startswith("%%bash"):
            command = text.removeprefix("%%bash\n")
            code.append(f"subprocess.run(['bash', '-ec', {command!r}], check=True)")
        else:
            code.append(text)
    path = place / "tutorial.py"
    path.write_text("\n".join(code) + "\n")
    binary = place / "bin"
    binary.mkdir()
    (binary / "manyhands").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m manyhands "$@"\n')
    (binary / "manyhands").chmod(0o755)
    environment = {**os.environ, "MANYHANDS_DATA": str(home)}
    environment["PATH"] = f"{binary}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def f1_of(shown):
    """The micro-F1 that is printed, in order."""
    return [float(value) for value in re.findall(r"micro-F1: ([\d.]+) %", shown)]


@pytest.mark.slow
def test_the_blocks_of_the_tutorial_run(tmp_path):
    home = tmp_path / "home"
    stand_in(home)
    shown = run_blocks(home, tmp_path)
    assert "measured on" in shown
    assert len(f1_of(shown)) == 4
    assert '"choices"' in shown


@pytest.mark.data
def test_what_the_tutorial_says_holds(data_home, tmp_path):
    model, majority, rule, _ = f1_of(run_blocks(data_home, tmp_path))
    assert majority < model < rule
