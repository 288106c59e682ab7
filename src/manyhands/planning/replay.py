"""Replaying a plan on a pilot's annotations, and forecasting what it may buy next."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from manyhands._version import __version__
from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.encoding import encode
from manyhands.annotations.frames import Backend
from manyhands.annotations.target import check_annotations
from manyhands.decision.labels import generator
from manyhands.exceptions import AnnotationError, silenced
from manyhands.files import write_atomically
from manyhands.inference.inputs import gold_codes
from manyhands.metrics import accuracy_of_labels
from manyhands.planning.beliefs import of_pairs, right_labels
from manyhands.planning.choosing import ScoringRule, Suggestion, fill
from manyhands.planning.planner import AnnotationPlanner
from manyhands.planning.pool import (
    AnswerSource,
    Pool,
    Recorded,
    Worlds,
    generator_of,
    nothing_left,
    read_pool,
)
from manyhands.typing import BoolArray, FloatArray, IntArray

_PROGRESS = logging.getLogger("manyhands.progress")

BOUGHT_AT_ONCE = 0.25
"""Default number of annotations per instance that are bought at a time."""

MEASURES = ("accuracy", "expected", "gain")


LESS, MORE = 0.5, 2.0
"""Range of the gain on a single table, as a multiple of the forecast: from half to twice."""


class Curves(NamedTuple):
    """Curves of one policy, each of shape (n_runs, n_sizes).

    Attributes
    ----------
    accuracy : array
        Share of right labels.
    expected : array
        Mean probability of the labels under the model that is fitted anew at each size. It does not
        estimate ``accuracy``: it may fall, as more annotations show that mistakes are shared.
    gain : array
        Expected right labels per annotation of the batch that led to this size; NaN at the start.
    """

    accuracy: FloatArray
    expected: FloatArray
    gain: FloatArray


@dataclass(frozen=True, eq=False)
class Replay:
    """Curves of accuracy against the number of annotations bought.

    Attributes
    ----------
    sizes : array of shape (n_sizes,)
        Annotations per instance. If the pairs of a policy run out earlier, its curve stays level.
    curves : dict {policy: Curves}
    n_instances : int
    """

    sizes: FloatArray
    curves: Mapping[str, Curves]
    n_instances: int

    def area(self, policy: str, low: float = 0.0, high: float = np.inf) -> FloatArray:
        """Return each run's mean accuracy between two sizes (area under the curve), (n_runs,)."""
        chosen = (self.sizes >= low - 1e-9) & (self.sizes <= high + 1e-9)
        accuracy, sizes = self.curves[policy].accuracy[:, chosen], self.sizes[chosen]
        if len(sizes) == 1:
            return accuracy[:, 0]
        return np.trapezoid(accuracy, sizes, axis=1) / (sizes[-1] - sizes[0])

    def reaches(self, policy: str, accuracy: float) -> float:
        """Return the size from which the mean curve stays at an accuracy; infinity if never."""
        below = np.flatnonzero(self.curves[policy].accuracy.mean(axis=0) < accuracy - 1e-9)
        first = below[-1] + 1 if len(below) else 0
        return float(self.sizes[first]) if first < len(self.sizes) else float("inf")

    def to_columns(self) -> dict[str, list[Any]]:
        """Return columns: policy, annotations per instance, means over runs, sd of accuracy.

        `Curves.expected`, which the model expects of its own labels, is left out, because it is not
        the share of right labels.
        """
        rows = [
            {
                "policy": name,
                "annotations_per_instance": float(size),
                "annotations": round(float(size) * self.n_instances),
                **{m: _mean(getattr(found, m)[:, k]) for m in ("accuracy", "gain")},
                "sd": float(found.accuracy[:, k].std(ddof=1)) if len(found.accuracy) > 1 else None,
            }
            for name, found in self.curves.items()
            for k, size in enumerate(self.sizes)
        ]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame of `to_columns`; backend "pandas", "polars" or "pyarrow"."""
        import narwhals as nw

        return nw.from_dict(self.to_columns(), backend=backend).to_native()


def replay(
    table: Any,
    gold: Any,
    planner: AnnotationPlanner | Mapping[str, AnnotationPlanner | None] | None = None,
    budget: float | None = None,
    *,
    start: float = 1,
    batch: float | Any = BOUGHT_AT_ONCE,
    n_runs: int = 5,
    proba: Any = None,
    folder: str | Path | None = None,
    random_state: int = 0,
) -> Replay:
    """Buy a pilot's recorded annotations as a plan would have done, and score the labels.

    Every run starts from different random annotations, which are the same for all policies. Only
    recorded pairs can be asked, so policies converge as the pilot is used up.

    Parameters
    ----------
    table : AnnotationTable, or an (n_instances, n_annotators) matrix with -1/NaN missing
        The pilot. The more annotations per instance it has, the more the replay shows.
    gold : dict {instance id: class}, or array-like of shape (n_instances,)
        Known classes, for scoring only.
    planner : AnnotationPlanner, or dict {name: AnnotationPlanner or None}, optional
        The policy, which is compared with "uniform" (fewest annotations first, any annotator) and
        "random"; or all policies by name, where None buys at random. Default:
        ``AnnotationPlanner()``.
    budget : float, optional
        Annotations per instance up to which to buy; default: all.
    start : float, default=1
        Random annotations per instance at the start; .4 means one for about 40 % of instances.
    batch : float or increasing sequence, default=0.25
        Annotations per instance that are bought at a time; or all sizes at which a batch ends.
    n_runs : int, default=5
    proba : array of shape (n_instances, n_classes), or callable, optional
        A classifier's probabilities out of fold. A callable is given the table bought so far.
    folder : str or Path, optional
        Folder to which each batch is written when it is scored. A later call with the same
        arguments continues from there, and gives the same curves.
    random_state : int, default=0

    Returns
    -------
    Replay

    Raises
    ------
    AnnotationError
        If no gold is known, the table repeats pairs, or sizes do not increase.
    """
    table = check_annotations(as_table(table, argument="table"), argument="table")
    truth = gold_codes(gold, table)
    if not (truth >= 0).any():
        raise AnnotationError("gold holds no class, so nothing can be scored; give known labels")
    source = Recorded.of(table, truth, start)
    most = table.n_annotations / table.n_instances
    sizes = _sizes(start, most if budget is None else min(float(budget), most), batch)
    fits = {"proba": proba}
    return _play(_policies(planner), source, sizes, n_runs, fits, folder, random_state)


def forecast(
    table: Any,
    planner: AnnotationPlanner | Mapping[str, AnnotationPlanner | None] | None = None,
    budget: float | None = None,
    *,
    batch: float | Any = BOUGHT_AT_ONCE,
    n_runs: int = 5,
    gold: Any = None,
    random_gold: Any = None,
    level: float | None = None,
    pairs: BoolArray | None = None,
    folder: str | Path | None = None,
    random_state: int = 0,
) -> Replay:
    """Forecast the accuracy that further annotations give, from a pilot without more gold.

    Each run draws a truth from the posterior of the pilot and lets its annotators answer: by their
    confusion matrices, or by repeating an earlier answer, with the measured dependence (Polya's
    urn). ``accuracy`` is ``level`` plus the expected gains of the batches, by which
    `AnnotationPlanner.stopping` decides. Gains are reduced if fewer labels are wrong than the model
    expects, so that no forecast claims that all labels are right. A level that was not measured
    ignores mistakes that most annotators share, so audit it (`AnnotationPlanner.stopping`).

    Parameters
    ----------
    table : AnnotationTable or matrix
        The pilot. Annotations of instances without any are bought, too.
    planner, batch, n_runs, folder, random_state : as in `replay`
    budget : float, optional
        Annotations per instance up to which to buy, the pilot's included; default: 3 more. Buying
        ends earlier if every annotator has annotated everything that may be asked.
    gold, random_gold : as in `AnnotationPlanner.fit`
    level : float, optional
        Share of the pilot's labels that are right. Default: `manyhands.metrics.accuracy_of_labels`,
        or the model's mean probability if that is None.
    pairs : bool array of shape (n_instances, n_annotators), optional
        Pairs that may be asked, by every policy; None: all.

    Returns
    -------
    Replay

    Raises
    ------
    AnnotationError
        If the annotators of the table can annotate nothing more, or ``budget`` is not above what
        the table holds.
    """
    table = check_annotations(as_table(table, argument="table"), argument="table")
    policies = _policies(planner)
    fits = {"gold": gold, "random_gold": random_gold}
    fitted = clone(next(iter(policies.values()))).fit(table, **fits)
    start = table.n_annotations / table.n_instances
    pool = read_pool(pairs, table)
    n_open = pool.n_open[fitted._unknown(pool)].sum()
    if not n_open:
        raise nothing_left(pairs, table.n_instances, table.n_annotators)
    most = start + n_open / table.n_instances
    sizes = _sizes(start, min(most, start + 3 if budget is None else float(budget)), batch)
    found = _play(
        policies, Worlds(table, fitted._beliefs, pairs), sizes, n_runs, fits, folder, random_state
    )
    if level is None:
        told = accuracy_of_labels(table, fitted.labels_, fitted.posterior_, known=fitted.is_known_)
        level = None if told is None else told.value
    promised = {name: _promised(each, sizes, level) for name, each in found.curves.items()}
    return replace(found, curves=promised)


def _promised(found: Curves, sizes: FloatArray, level: float | None) -> Curves:
    """Replace the share of right labels in simulated truths by the level plus expected gains.

    Simulated truths differ from each other by more than a batch adds. The expected gains are those
    by which `AnnotationPlanner.stopping` decides, so that both agree. If fewer labels are wrong
    than the model expects, a batch corrects the same share of them, and never all.
    """
    added = np.nan_to_num(found.gain[:, 1:]) * np.diff(sizes)
    wrong = 1.0 - (found.expected if level is None else np.full_like(found.expected, level))
    for k, gain in enumerate(added.T):
        expected = np.maximum(1.0 - found.expected[:, k], gain.clip(1e-12))
        wrong[:, k + 1] = wrong[:, k] - gain * np.minimum(wrong[:, k] / expected, 1.0)
    return found._replace(accuracy=np.clip(1.0 - wrong, 0.0, 1.0))


# -- the runs --------------------------------------------------------------------------------------


def _policies(planner: Any) -> dict[str, AnnotationPlanner]:
    """Return policies by name; those to compare with infer labels by the same aggregator."""
    if isinstance(planner, Mapping):
        given = [each for each in planner.values() if each is not None]
        aggregator = given[0].aggregator if given else None
        return {
            name: _Random(aggregator) if each is None else each for name, each in planner.items()
        }
    planner = AnnotationPlanner() if planner is None else planner
    uniform = AnnotationPlanner(planner.aggregator, criterion="fewest", annotators="any")
    return {"plan": planner, "uniform": uniform, "random": _Random(planner.aggregator)}


def _sizes(start: float, most: float, batch: Any) -> FloatArray:
    """Return the annotations per instance at which labels are scored, the start included."""
    if np.ndim(batch) == 0:
        if not batch > 0:
            raise AnnotationError(f"batch={batch!r} must be positive")
        steps = np.arange(start, most + 1e-9, batch)
        # A small rest joins the batch before, because it would look like the same size twice.
        least = batch / 100 if len(steps) > 1 else 1e-9
        has_rest = not len(steps) or most - steps[-1] > least
        sizes = np.append(steps if has_rest else steps[:-1], most)
    else:
        sizes = np.unique([start, *(size for size in np.asarray(batch, float) if size <= most)])
    if len(sizes) < 2 or sizes[0] < start - 1e-9 or (np.diff(sizes) <= 0).any():
        raise AnnotationError(
            f"budget allows nothing beyond the start: {start:g} annotations per instance at the "
            f"start, and {most:g} at most; give a larger budget, or a smaller start"
        )
    return np.asarray(sizes, dtype=np.float64)


def _play(
    policies: Mapping[str, AnnotationPlanner],
    source: AnswerSource,
    sizes: FloatArray,
    n_runs: int,
    fits: Mapping[str, Any],
    folder: str | Path | None,
    seed: int,
) -> Replay:
    curves = {}
    for name, planner in policies.items():
        runs = []
        for run in range(n_runs):
            path = None
            if folder is not None:
                key = _digest(source.table, *source.facts, sizes, planner, *fits.values(), seed)
                path = Path(folder) / f"{name.replace(' ', '-')}-{run}-{key}.jsonl"
            steps = list(_run(planner, source, sizes, fits, path, (seed, run)))
            used_up = steps[-1] | {"gain": float("nan")}
            steps += [used_up] * (len(sizes) - len(steps))
            runs.append([[step[measure] for measure in MEASURES] for step in steps])
            _PROGRESS.info(
                "%s, run %d of %d: bought up to %.2f annotations per instance",
                name, run + 1, n_runs, sizes[-1],
            )  # fmt: skip
        values = np.array(runs, dtype=np.float64)
        curves[name] = Curves(*(values[:, :, k] for k in range(len(MEASURES))))
    return Replay(sizes, curves, source.table.n_instances)


def _run(
    planner: AnnotationPlanner,
    source: AnswerSource,
    sizes: FloatArray,
    fits: Mapping[str, Any],
    path: Path | None,
    seeds: tuple[int, int],
) -> Iterator[dict[str, Any]]:
    """Yield a step per size, until nothing may be asked; those of an earlier call are read."""
    bought, truth = source.begin(generator_of(*seeds))
    steps = [] if path is None else _read(path)
    for step in steps:
        bought = np.concatenate([bought, np.array(step["bought"], dtype=np.int64)], axis=1)
    yield from steps
    n, fitted = source.table.n_instances, None
    for k in range(len(steps), len(sizes)):
        before = bought.shape[1]
        gains: list[FloatArray] = []
        target = max(round(sizes[k] * n), before + 1) if k else before
        while bought.shape[1] < target:
            # A batch asks about each instance once, so a large step needs several batches.
            part = (len(gains),) if gains else ()
            if fitted is None or part:
                fitted = _fit(planner, source.table, bought, fits, (*seeds, k - 1, *part))
            pool = source.pool(bought)
            if not (pool.open_instances & fitted._unknown(pool)).any():
                break
            batch = fitted._batch(pool, target - bought.shape[1])
            i, r = _codes(batch, source.table)
            labels = source.answer(i, r, truth, bought, generator_of(*seeds, k, *part))
            bought = np.concatenate([bought, np.stack([i, r, labels])], axis=1)
            gains.append(batch.expected_gain)
        if k and not gains:
            return
        new = bought[:, before:]
        gain = float(np.concatenate(gains).mean()) if gains else float("nan")
        fitted = _fit(planner, source.table, bought, fits, (*seeds, k))
        step = _scored(fitted, truth) | {"gain": gain, "bought": new.tolist()}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(step) + "\n")
        yield step


class _Random(AnnotationPlanner):
    """Policy that buys at random, as a baseline."""

    def _batch(self, pool: Pool, n: int, *, one: bool = False) -> Suggestion:
        flat = np.full_like(self._beliefs.posterior, 1.0 / self._beliefs.posterior.shape[1])
        nothing_known = replace(self._beliefs, posterior=flat)
        rule = ScoringRule("entropy", False, np.ones(len(pool.annotators)))
        room = np.where(pool.open_annotators, n, 0)
        rng = generator(self.random_state)
        parts = fill(pool, nothing_known, rule, n, pool.open_instances, room, None, rng)
        i, r, score = (np.concatenate(column) for column in zip(*parts, strict=True))
        believed = self._beliefs
        gain = of_pairs(right_labels, believed.posterior, believed.confusion, believed.power, i, r)
        return Suggestion(pool.instances[i], pool.annotators[r], score, gain)


def _fit(
    planner: AnnotationPlanner,
    table: AnnotationTable,
    bought: IntArray,
    fits: Mapping[str, Any],
    seeds: tuple[int, ...],
) -> AnnotationPlanner:
    """Fit a planner to what was bought."""
    now = replace(
        table, instance=bought[0], annotator=bought[1], label=bought[2],
        weights=None, sources=None, passes=None,
    )  # fmt: skip
    seed = int(generator_of(*seeds).randint(2**31))
    with silenced("manyhands"):  # These annotations are simulated, or a part of the recorded ones.
        given = {name: each(now) if callable(each) else each for name, each in fits.items()}
        fresh = clone(planner).set_params(random_state=seed)
        # How many labels a random sample shows to be right decides nothing in a simulated round.
        fresh._judges_sample = False
        return fresh.fit(now, **given)


def _scored(fitted: AnnotationPlanner, truth: IntArray) -> dict[str, Any]:
    known = np.flatnonzero(truth >= 0)
    right = fitted.labels_[known] == fitted.table_.classes[truth[known]]
    expected = fitted.posterior_.max(axis=1).mean()
    return {"accuracy": float(right.mean()), "expected": float(expected)}


def _codes(batch: Suggestion, table: AnnotationTable) -> tuple[IntArray, IntArray]:
    """Return the codes of a batch's instances and annotators."""
    return (
        encode(batch.instances, table.instances, argument="batch", vocabulary_name="ids")[0],
        encode(batch.annotators, table.annotators, argument="batch", vocabulary_name="ids")[0],
    )


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _read(path: Path) -> list[dict[str, Any]]:
    """Read the steps of an earlier call, and remove a line that was not finished."""
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").split("\n")
    lines, rest = whole[:-1], whole[-1]
    if rest:
        write_atomically(path, "".join(line + "\n" for line in lines))
    return [json.loads(line) for line in lines]


def _digest(*parts: Any) -> str:
    """Return a digest of everything that decides a run."""
    known = hashlib.sha256(__version__.encode())
    for part in parts:
        if isinstance(part, AnnotationTable):
            columns = ("instance", "annotator", "label", "instances", "annotators", "classes")
            values: Any = [np.asarray(getattr(part, name)).tolist() for name in columns]
        elif hasattr(part, "get_params"):
            values = [type(part).__name__, {k: repr(v) for k, v in part.get_params().items()}]
        elif callable(part):
            values = getattr(part, "__qualname__", type(part).__qualname__)
        else:
            values = part.tolist() if isinstance(part, np.ndarray) else part
        known.update(json.dumps(values, sort_keys=True, default=repr).encode())
    return known.hexdigest()[:16]
