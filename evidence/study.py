"""One harness for benchmarks: cells that are measured once and kept, and a page made of them.

A benchmark is a module that says three things::

    STUDY = Study(
        __file__,
        cells=lambda: ({"set": name, "seed": seed} for name in SETS for seed in range(3)),
        measure=measure,  # measure(set=..., seed=...) -> {"accuracy": ...}
        page=page,  # page(records) -> {"accuracy": table(...)}
    )

    if __name__ == "__main__":
        STUDY.main()

A benchmark of several questions names them: `of_parts` takes cells, what measures one and the
values of the page for each, `of_tables` functions that make the lines of a table. `grid` yields
all combinations of values.

`cells` yields what is measured: dicts of values that JSON knows, and that name the measurement.
`measure` takes the values of a cell and returns its figures. `page` turns the records into the
values that the page's text needs; the text stands beside the module, as Markdown (``NAME.md``) in
which ``{accuracy}`` or ``{error:.1f}`` stand for values.

``python -m benchmarks.NAME`` measures the cells that ``results/benchmarks/NAME.jsonl`` does not
hold, adds each to it when it is done, and writes ``docs/results/NAME.md``. A killed run goes on
where it stopped. A record is filed under the values of its cell and the checksum of the data it was
measured on, and states the version, the commit and the date; a cell whose values or data have
changed is measured anew. A long page has further ones: ``NAME-PART.md`` beside the module is the
text of ``docs/results/NAME/PART.md``. A section of a page (from one heading of level 2 to the next)
for which the records have no figures stays as it stands in the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import resource
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from importlib import metadata
from itertools import islice, product, takewhile
from multiprocessing import get_context
from pathlib import Path
from string import Formatter
from tempfile import gettempdir
from time import monotonic, perf_counter, process_time
from typing import Any

import numpy as np

import manyhands
from evidence.tables import (  # noqa: F401
    crossed,
    days,
    groups,
    left_out_table,
    listed,
    listing,
    mean,
    mean_of,
    spread,
    standard_error,
    table,
    where,
    with_error,
)
from manyhands.datasets.base import data_home
from manyhands.io import write_atomically

ROOT = Path(__file__).parents[1]
Cell = Mapping[str, Any]
Record = dict[str, Any]
Values = Mapping[str, Any]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Study:
    """A benchmark: its cells, what measures one, and the values of its page.

    Parameters
    ----------
    file : str
        The benchmark's module, whose name is that of its records and its page.
    cells : callable, or dict of callables
        Yields the cells. Several, by name, are parts that ``--only`` can choose. With `seeds`,
        each is given the seeds.
    measure : callable
        From a cell's values to its figures.
    page : callable
        From all records, in the order of the file, to the values of the page's text. A value may
        be a text, a number, or lines. Values that the records do not allow may be missing.
    seeds : range, optional
        Seeds of the cells; ``--seeds N`` takes the first N from its start.
    alone : float, optional
        Every cell is measured in a process of its own with one thread, which may take so many
        seconds. What fails there is recorded as "failed".
    drawings : callable, optional
        From the records to pictures beside the page: name of the file -> SVG.
    page_drawings : callable, optional
        From the page's text to pictures beside it, drawn from its tables: they show what the page
        says, also in sections that outlive their records.
    repeats : bool
        Whether a page counts all records of a cell, as of measurements that vary. Then a cell that
        is measured again gets one more record.
    data : callable, optional
        From a cell to the folders of the data home that it reads; default: those that its "set" or
        "table" names, in the home or in one of `ROOMS`.
    """

    file: str
    cells: Callable[..., Iterable[Cell]] | Mapping[str, Callable[..., Iterable[Cell]]]
    measure: Callable[..., Record]
    page: Callable[[list[Record]], Values]
    seeds: range | None = None
    alone: float | None = None
    drawings: Callable[[list[Record]], Mapping[str, str]] = lambda records: {}
    page_drawings: Callable[[str], Mapping[str, str]] = lambda page: {}
    repeats: bool = False
    data: Callable[[Cell], Iterable[str]] = lambda cell: folders_of(cell)

    @property
    def name(self) -> str:
        """Name of the module."""
        return Path(self.file).stem

    @property
    def records(self) -> Path:
        """Return the folder of the records."""
        return ROOT / "results" / "benchmarks" / f"{self.name}.jsonl"

    # -- measuring ---------------------------------------------------------------------------------

    def planned(self, only: Sequence[str] = (), seeds: int | None = None) -> list[Cell]:
        """List the cells, those of parts or with values named by ``only``, each once."""
        parts = self.cells if isinstance(self.cells, Mapping) else {"": self.cells}
        words = [word for word in only if word not in parts]
        named = set(only) & set(parts)
        chosen = [make for name, make in parts.items() if not named or name in named]
        given: tuple[Any, ...] = ()
        if self.seeds is not None:
            start = self.seeds.start
            given = (self.seeds if seeds is None else range(start, start + seeds),)
        every = {key_of(cell): cell for make in chosen for cell in make(*given)}
        return [c for c in every.values() if not words or any(w in label(c) for w in words)]

    def missing(self, cells: Iterable[Cell], records: Iterable[Record]) -> Iterator[Cell]:
        """Yield the cells that no record holds with the present data."""
        held: dict[tuple[str, ...], dict[str, Record]] = {}
        for cell in cells:
            fields = tuple(cell)
            if fields not in held:
                held[fields] = {key_of({k: r.get(k) for k in fields}): r for r in records}
            found = held[fields].get(key_of(cell))
            if found is None or found.get("data", "") not in ("", self.checksum(cell)):
                yield cell

    def checksum(self, cell: Cell) -> str:
        """Return a checksum of the data that a cell reads, "" if it reads none."""
        return " ".join(filter(None, map(checksum, self.data(cell))))

    def record(self, cell: Cell) -> Record:
        """Measure a cell, and say when, on what and by which code."""
        started = process_time()
        found = self.figures(cell) if self.alone is None else self._apart(cell, self.alone)
        about = {"seconds": round(process_time() - started, 2), "date": date.today().isoformat()}
        about |= {"version": manyhands.__version__, "commit": commit()}
        if data := self.checksum(cell):
            about["data"] = data
        return {**cell, **about, **found}

    def figures(self, cell: Cell) -> Record:
        """Measure a cell; warnings are for those who fit a model, not for those who compare."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.measure(**cell)

    def run(
        self,
        path: Path,
        cells: Iterable[Cell],
        jobs: int = 1,
        minutes: float = float("inf"),
        again: bool = False,
    ) -> list[Record]:
        """Measure the cells that a file does not hold, and add each to it when it is done.

        Parameters
        ----------
        path : Path
            One line of JSON per record.
        cells : iterable of dict
        jobs : int
            Processes. Records are written in the order of the cells, however many there are.
        minutes : float
            No cell is started later.
        again : bool
            Measure the cells that the file holds, too.

        Returns
        -------
        list of dict
            The records that were added.
        """
        todo = list(cells if again else self.missing(cells, read(path)))
        path.parent.mkdir(parents=True, exist_ok=True)
        added = []
        measured = self._measured(todo, jobs, monotonic() + 60 * minutes)
        for cell, found in zip(todo, measured, strict=False):
            self.keep(path, cell, found)
            added.append(found)
            shown = {k: v for k, v in found.items() if isinstance(v, float)}
            say(f"{self.name} {len(added)}/{len(todo)} {label(cell)} {shown}")
        return added

    def keep(self, path: Path, cell: Cell, record: Record) -> None:
        """Write a record in the place of the earlier one of its cell, or else at the file's end."""
        records, own = read(path), key_of(cell)
        place = [k for k, r in enumerate(records) if key_of({n: r.get(n) for n in cell}) == own]
        if self.repeats or not place:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            return
        records[place[-1]] = record
        kept = (r for k, r in enumerate(records) if k not in place[:-1])
        write_atomically(path, "".join(json.dumps(r) + "\n" for r in kept))

    def _measured(self, cells: list[Cell], jobs: int, end: float) -> Iterator[Record]:
        todo = takewhile(lambda _: monotonic() < end, iter(cells))
        if jobs == 1:
            yield from map(self.record, todo)
            return
        # Forked processes know the study; it need not be sent to them.
        with ProcessPoolExecutor(jobs, get_context("fork"), _know, (self,)) as pool:
            waiting = deque(pool.submit(_record, cell) for cell in islice(todo, 2 * jobs))
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(_record, cell) for cell in islice(todo, 1))

    def _apart(self, cell: Cell, limit: float) -> Record:
        module = f"{Path(self.file).parent.name}.{self.name}"
        return apart(["-m", module, "--cell", json.dumps(cell)], limit)

    # -- the page ----------------------------------------------------------------------------------

    @property
    def parts(self) -> list[str]:
        """Names of the further pages: those of ``NAME-PART.md`` beside the module."""
        found = Path(self.file).parent.glob(f"{self.name}-*.md")
        return sorted(path.stem.removeprefix(f"{self.name}-") for path in found)

    def place(self, part: str) -> str:
        """Return the path of a page in the folder of the results."""
        return f"{self.name}/{part}.md" if part else f"{self.name}.md"

    def text(
        self, records: list[Record], before: str = "", fresh: bool = False, part: str = ""
    ) -> str:
        """Return the page, or a further one.

        Parameters
        ----------
        records : list of dict
        before : str
            The page as it stands: sections without figures are taken from it, and so are the
            dates, unless something was measured anew.
        fresh : bool
            Whether something was.
        part : str
            Name of a further page.
        """
        values, old = self.page(records), sections(before)
        made = []
        template = Path(self.file).with_name(
            f"{self.name}-{part}.md" if part else f"{self.name}.md"
        )
        for heading, section in sections(template.read_text(encoding="utf-8")).items():
            known = old.get(heading, "")
            dated = re.search(r"\d{4}-\d\d-\d\d", known)
            about = {
                "date": dated[0] if dated and not fresh else date.today().isoformat(),
                "version": manyhands.__version__,
            }
            found = filled(section, {**about, **values})
            made.append(known if found is None else found)
        return "".join(made)

    def pictures(self, records: list[Record], page: str) -> Mapping[str, str]:
        """Return all pictures of a page: name of the file -> SVG."""
        return {**self.drawings(records), **self.page_drawings(page)}

    # -- the command -------------------------------------------------------------------------------

    def main(self, given: Sequence[str] | None = None) -> None:
        """Run the command line: measure what is missing, and write the page."""
        about = (sys.modules["__main__"].__doc__ or self.name).partition("\n")[0]
        command = f"python -m benchmarks.{self.name}"
        parser = argparse.ArgumentParser(prog=command, description=about)
        parts = f"parts ({', '.join(self.cells)}), or " if isinstance(self.cells, Mapping) else ""
        add = parser.add_argument
        add("--only", nargs="+", default=[], help=f"{parts}words that the values of cells contain")
        add("--seeds", type=int, help="number of seeds" if self.seeds else argparse.SUPPRESS)
        add("--jobs", type=int, default=1, help="processes")
        add("--minutes", type=float, default=float("inf"), help="start no cell later; 0: the page")
        add("--again", action="store_true", help="measure anew what the records hold")
        add("--records", type=Path, help=f"default: {self.records.relative_to(ROOT)}")
        add("--out", type=Path, help=f"default: docs/results/{self.name}.md, of its own records")
        add("--cell", type=json.loads, help=argparse.SUPPRESS)
        options = parser.parse_args(given)
        if options.cell is not None:
            say(json.dumps(self.figures(options.cell)))
            return
        path = options.records or self.records
        cells = self.planned(options.only, options.seeds)
        added = self.run(path, cells, options.jobs, options.minutes, options.again)
        out = options.out or ROOT / "docs" / "results" / f"{self.name}.md"
        if options.out is None and path != self.records:
            return
        records = read(path)
        for part in ["", *self.parts]:
            place = out if not part else out.parent / self.place(part)
            before = place.read_text(encoding="utf-8") if place.exists() else ""
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, self.text(records, before, bool(added), part))
        for name, svg in self.pictures(records, out.read_text(encoding="utf-8")).items():
            write_atomically(out.with_name(name), svg)


# -- studies of several parts ---------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One of several questions of a benchmark.

    Parameters
    ----------
    measure, page, cells : callable
        As of a `Study`; the names of the part are not in its cells, but in its records. Without
        cells, the part is measured as a whole.
    """

    measure: Callable[..., Record]
    page: Callable[[list[Record]], Values] = lambda records: {}
    cells: Callable[..., Iterable[Cell]] = lambda: [{}]


def of_parts(
    file: str,
    parts: Mapping[str, Part],
    page: Callable[[list[Record]], Values] | None = None,
    **options: Any,
) -> Study:
    """Return a study of several parts; the value ``NAME_date`` is that of a part's last record.

    Parameters
    ----------
    file : str
    parts : dict {name: Part}
        The page has the values of the parts that have records.
    page : callable, optional
        From all records to the values of the page, in place of those of the parts.
    **options
        Of `Study`.
    """

    def cells(name: str, *seeds: Any) -> Iterator[Cell]:
        yield from ({"part": name, **cell} for cell in parts[name].cells(*seeds))

    def of_each(records: list[Record]) -> Values:
        found: dict[str, Any] = {}
        for name, part in parts.items():
            if own := where(records, part=name):
                found[f"{name.replace('-', '_')}_date"] = own[-1].get("date")
                found |= part.page(own)
        return found

    return Study(
        file,
        {name: partial(cells, name) for name in parts},
        lambda part, **cell: parts[part].measure(**cell),
        page or of_each,
        **options,
    )


def of_tables(
    file: str, makers: Mapping[str, Callable[[], Iterable[str]]], **options: Any
) -> Study:
    """Return a study whose parts are each measured as a whole: the lines that a function makes."""

    def lines(make: Callable[[], Iterable[str]]) -> Record:
        return {"lines": "\n".join(make()).strip().split("\n")}

    def shown(name: str, records: list[Record]) -> Values:
        return {name.replace("-", "_"): records[-1]["lines"]}

    parts = {n: Part(partial(lines, make), partial(shown, n)) for n, make in makers.items()}
    return of_parts(file, parts, **options)


def grid(**values: Iterable[Any]) -> Iterator[Record]:
    """Yield all combinations of values, the last one changing fastest."""
    for each in product(*values.values()):
        yield dict(zip(values, each, strict=True))


# -- records --------------------------------------------------------------------------------------


def read(path: Path) -> list[Record]:
    """Return the records of a file, one line of JSON each; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def key_of(cell: Cell) -> str:
    """Return what a record is filed under: the values of its cell, whatever their order."""
    return json.dumps(cell, sort_keys=True)


def label(cell: Cell) -> str:
    """Name a cell by its values."""
    return "/".join(map(str, cell.values()))


ROOMS = ("", "aggregation/", "comparisons/", "judges/", "ordinal/")
"""Folders of the data home that hold folders of tables."""


def folders_of(cell: Cell) -> list[str]:
    """Name the folders that a cell may read: "CIFAR-10H, 2 per image" is of cifar10h."""
    name = str(cell.get("set", cell.get("table", ""))).lower().replace("-", "")
    first = name.split(",")[0].split(" ")[0]
    return [f"{room}{first}" for room in ROOMS] if first else []


@cache
def checksum(folder: str) -> str:
    """Return a checksum of a folder of the data home; "" if there is none of this name."""
    place = data_home() / folder.lower()
    if not folder or not place.is_dir():
        return ""
    digest = hashlib.sha256()
    for file in sorted(place.rglob("*")):
        if file.is_file():
            digest.update(str(file.relative_to(place)).encode() + file.read_bytes())
    return digest.hexdigest()[:12]


@cache
def commit() -> str:
    """Return the commit of the code that measures; "+" stands for changes of the package."""
    git = ["git", "-C", str(ROOT)]
    try:
        name = subprocess.check_output([*git, "rev-parse", "--short=8", "HEAD"], text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"], check=False)
    return name + "+" * bool(changed.returncode)


# -- processes ------------------------------------------------------------------------------------

_KNOWN: list[Study] = []


def _know(study: Study) -> None:
    _KNOWN[:] = [study]


def _record(cell: Cell) -> Record:
    return _KNOWN[0].record(cell)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def apart(command: Sequence[str], limit: float | None = None, **options: Any) -> Record:
    """Run Python in a process of its own with one thread; return the JSON that it prints last.

    If it fails or takes more than ``limit`` seconds, "failed" says why.
    """
    env = {**os.environ, **dict.fromkeys(THREADS, "1"), **options.pop("env", {})}
    try:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, env=env, timeout=limit,
            check=False, cwd=ROOT, **options,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"did not finish in {limit:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]}
    found: Record = json.loads(done.stdout.splitlines()[-1])
    return found


def workspace(name: str) -> Path:
    """Return a folder for a benchmark's large files, below MANYHANDS_WORK or the system's own."""
    folder = Path(os.environ.get("MANYHANDS_WORK", gettempdir())) / f"manyhands-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def peak_mb() -> float:
    """Return the peak resident memory of this process so far, in MB of 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


@contextmanager
def spent() -> Iterator[Record]:
    """Measure a block: CPU and wall seconds, and MB at the peak of the process before and after."""
    found: Record = {"base": peak_mb()}
    cpu, wall = process_time(), perf_counter()
    yield found
    found |= {"cpu": process_time() - cpu, "wall": perf_counter() - wall, "peak": peak_mb()}


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def packages(*names: str) -> dict[str, str]:
    """Return the versions of Python and of packages, where they are installed."""
    found = {"Python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# -- Markdown -------------------------------------------------------------------------------------


def sections(text: str) -> dict[str, str]:
    """Cut a page at its headings of level 2; what stands before them has the heading ""."""
    cut = re.split(r"^(?=## )", text, flags=re.M)
    return {part.partition("\n")[0] if part.startswith("## ") else "": part for part in cut}


def filled(section: str, values: Values) -> str | None:
    """Put values into a section, lines one below the other; None if it lacks one of them.

    A paragraph that is nothing but an empty value is left out.
    """
    names = {re.split(r"[.[]", name)[0] for _, name, *_ in Formatter().parse(section) if name}
    if not names <= {name for name, value in values.items() if value is not None}:
        return None
    known = {name: _one(values[name]) for name in names}
    for name in (name for name, value in known.items() if value == ""):
        section = re.sub(rf"^{{{name}}}\n+", "", section, flags=re.M)
    return section.format(**known)


def _one(value: Any) -> Any:
    if isinstance(value, (str, int, float, np.number, Mapping)):
        return value
    each = list(value)
    return "\n".join(each).strip("\n") if all(isinstance(e, str) for e in each) else each
