"""Measure how hard the code is to read: files of four traces, lines, hooks, parameters.

``python -m benchmarks.house`` prints the table of docs/architecture.md. A trace runs once before it
is counted, so that modules are loaded, and counts calls of Python functions of manyhands: the files
that they stand in, and how often one call follows another in another file. ``--files`` lists the
files of each trace, ``--pairs N`` the N pairs of files between which most switches are.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import logging
import sys
import tempfile
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import manyhands
from evidence.tables import table
from manyhands.fitting.classifier import BaseCrowdClassifier

ROOT = Path(manyhands.__file__).parent
N_INSTANCES = 300

# -- traces ---------------------------------------------------------------------------------------


def is_loss(file: str) -> bool:
    """Whether a function in this file is a loss; the trace of a training ends with the first."""
    return file.startswith("objectives/")


def traces(folder: Path) -> dict[str, tuple[Callable[[], Any], Callable[[str], bool] | None]]:
    """Return what is called in each trace, and where it ends, by name."""
    demo = manyhands.load_demo()
    rows = np.arange(N_INSTANCES)
    X, crowd = np.asarray(demo.X_train)[rows], demo.annotations[rows]
    file = folder / "x.csv"
    crowd.to_frame()[["task", "worker", "label"]].to_csv(file, index=False)

    def aggregate() -> None:
        from manyhands.cli import main

        given = ["manyhands", "aggregate", str(file), "--out", str(folder / "y.csv")]
        with mock.patch.object(sys, "argv", given), contextlib.suppress(SystemExit):
            main()

    def train() -> None:
        manyhands.CoNALClassifier(max_epochs=2, random_state=0, device="cpu").fit(X, crowd)

    return {
        "`MajorityVote().fit`": (lambda: manyhands.MajorityVote().fit(crowd), None),
        "`DawidSkene().fit`": (lambda: manyhands.DawidSkene().fit(crowd), None),
        "`CoNALClassifier().fit`, to the first loss": (train, is_loss),
        "`manyhands aggregate x.csv --out y.csv`": (aggregate, None),
    }


def files_called(call: Callable[[], Any], ends: Callable[[str], bool] | None) -> list[str]:
    """Return the file of each call of a function of manyhands, in order."""
    found: list[str] = []
    prefix, over = f"{ROOT}/", False

    def hear(frame: Any, event: str, _: Any) -> None:
        nonlocal over
        file = frame.f_code.co_filename
        if event == "call" and not over and file.startswith(prefix):
            found.append(file.removeprefix(prefix))
            over = ends is not None and ends(found[-1])

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def trace_lines(n_pairs: int, *, lists_files: bool) -> Iterator[tuple[str, str]]:
    """Yield a line of the table for each trace, and print what else is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (call, ends) in traces(Path(folder)).items():
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                call()
                found = files_called(call, ends)
            pairs = Counter(tuple(sorted(pair)) for pair in pairwise(found) if pair[0] != pair[1])
            yield name, f"{len(set(found))} files, {pairs.total():,} switches"
            if lists_files:
                print(name, *sorted(set(found)), sep="\n  ")
            for pair, n in pairs.most_common(n_pairs):
                print(f"{n:5d}", *pair)


# -- code -----------------------------------------------------------------------------------------


def sources() -> Iterator[Path]:
    """Yield the modules of the installed package."""
    return iter(sorted(ROOT.rglob("*.py")))


def lines_of_code(path: Path) -> int:
    """Count lines that hold more than comments, docstrings and white space."""
    docs = {
        line
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    with path.open("rb") as file:
        held = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type not in {*empty, tokenize.ENCODING, tokenize.ENDMARKER}
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(held - docs)


def share_of_any() -> str:
    """Count the parameters of functions in ``fitting`` that are typed ``Any``."""
    given = [
        argument.annotation
        for path in sorted((ROOT / "fitting").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.arg not in ("self", "cls")
    ]
    n = sum(each is not None and ast.unparse(each) == "Any" for each in given)
    return f"{n} of {len(given)} ({n / len(given):.0%})"


def hooks() -> list[str]:
    """Name what any network overrides of the base class, but the parts of scikit-learn."""
    known = {
        name
        for name, value in vars(BaseCrowdClassifier).items()
        if name.startswith("_") and not name.startswith("__") and not name.startswith("_sklearn")
        if callable(value) or isinstance(value, property)
    }
    networks = [
        cls for _, cls in manyhands.all_classifiers() if issubclass(cls, BaseCrowdClassifier)
    ]
    bases = {base for cls in networks for base in cls.__mro__} - set(BaseCrowdClassifier.__mro__)
    return sorted(known & {name for base in bases for name in vars(base)})


def shared_names() -> list[str]:
    """Name the public classes that two modules or more define."""
    counts = Counter(
        node.name
        for path in sources()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, n in counts.items() if n > 1)


def imported_by_one() -> int:
    """Count modules that exactly one other module of the package imports."""
    importers: dict[str, set[str]] = {}
    for path in sources():
        own = ".".join(("manyhands", *path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                importers.setdefault(node.module, set()).add(own)
                for each in node.names:  # Modules among them count as what they are.
                    importers.setdefault(f"{node.module}.{each.name}", set()).add(own)
    modules = {
        ".".join(("manyhands", *path.relative_to(ROOT).with_suffix("").parts))
        for path in sources()
        if path.stem != "__init__"
    }
    return sum(len(importers.get(name, ())) == 1 for name in modules)


def code_lines() -> Iterator[tuple[str, str]]:
    """Yield the lines of the table about the code as it is written."""
    paths = list(sources())
    n_lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    yield (
        "src: files; lines (code)",
        (f"{len(paths)}; {n_lines:,} ({sum(map(lines_of_code, paths)):,})"),
    )
    found = hooks()
    yield "hooks that a network overrides", f"{len(found)}: {', '.join(f'`{h}`' for h in found)}"
    yield "parameters typed `Any` in `fitting`", share_of_any()
    counts = {name: len(inspect.signature(c).parameters) for name, c in manyhands.all_classifiers()}
    most = max(counts, key=counts.__getitem__)
    yield (
        "parameters of a classifier",
        (
            f"{min(counts.values())} to {counts[most]} (`{most}`), median "
            f"{np.median(list(counts.values())):.0f}"
        ),
    )
    same = shared_names()
    yield "public classes of the same name", f"{len(same)}{': ' if same else ''}{', '.join(same)}"
    yield "modules imported by exactly one other", f"{imported_by_one()}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What a reader of the code has to pass.")
    parser.add_argument("--files", action="store_true", help="list the files of each trace")
    parser.add_argument("--pairs", type=int, default=0, help="list so many pairs of files")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("manyhands").setLevel(logging.ERROR)
    rows = [*trace_lines(asked.pairs, lists_files=asked.files), *code_lines()]
    print(*table(["measured", "here"], [list(row) for row in rows]), sep="\n")


if __name__ == "__main__":
    main()
