"""The code of the tutorial on rankings, on its data set."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "rankings.md"


@pytest.mark.data
def test_the_blocks_of_the_tutorial_run(data_home, tmp_path):
    blocks = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", PAGE.read_text(), flags=re.S)
    code = []
    for block in blocks:
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        for line in lines:
            command = re.fullmatch(r"!manyhands (.*) 2>&1", line)
            if command:
                words = ["-m", "manyhands", *shlex.split(command[1])]
                line = f"subprocess.run([sys.executable, *{words!r}], check=True)"
            code.append(line)
    path = tmp_path / "tutorial.py"
    path.write_text("import subprocess, sys\n" + "\n".join(code) + "\n")
    environment = {**os.environ, "MANYHANDS_DATA": str(data_home), "MPLBACKEND": "Agg"}
    run = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "is first of 6 items" in run.stdout
    assert "The probability that gpt-4 is the stronger one" in run.stdout
