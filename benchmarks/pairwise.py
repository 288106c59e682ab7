"""Rankings from comparisons of two: log loss held out, order, intervals, next pairs, cost.

Real sets stand in ``comparisons`` of the data home. Simulations draw from the model, with
annotators who err. Peers are run as they come: group ``bench`` installs them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from benchmarks.bars import Row, dots
from evidence.study import Part, folders_of, grid, of_parts, packages, processor, spent, table
from evidence.tables import where
from manyhands import BradleyTerry, ComparisonTable
from manyhands.datasets.base import data_home
from manyhands.ranking.bradley_terry import LEVEL

PLAIN = {"reliability": False, "position": False, "own_ties": False}
OWN = {"reliability": False}
METHODS: dict[str, dict[str, Any]] = {"plain": PLAIN, "own": OWN, "default": {}}
"""Davidson's model; own ties and positions; reliabilities by evidence, too."""

SUMM = ("summ_coherence", "summ_relevance", "summ_consistency", "summ_fluency")
SYSTEMS = 16
SETS = (
    ("ukp", 0.8, (0,)),
    ("ukp", 0.1, (0, 1)),
    *((name, 0.1, (0, 1, 2)) for name in SUMM),
    ("mtbench_models", 0.8, (0, 1, 2, 3, 4)),
    ("mtbench_people", 0.8, (0, 1, 2, 3, 4)),
)
CROWDS = ("clean", "mild", "bad", "reversed")
DRAWS = 12
Record = dict[str, Any]


def read(name: str) -> ComparisonTable:
    """Return a set of comparisons; of SummEval's criteria, a quarter of all pairs."""
    path = data_home() / "comparisons" / name / "comparisons.csv.gz"
    if path.exists():
        return ComparisonTable.from_frame(pd.read_csv(path))
    whole = ComparisonTable.from_scores(
        scores(name), item="system", score="label", question="cluster"
    )
    return whole.take(np.random.default_rng(0).random(len(whole)) < 0.25)


def scores(name: str, family: str = "llm") -> pd.DataFrame:
    """Return SummEval's scores of a criterion, with the system that wrote each summary.

    Items of an article stand in the order of the systems.
    """
    frame = judged("summeval")
    frame = frame[(frame.question == name.removeprefix("summ_")) & (frame.family == family)]
    return frame.assign(
        system=frame.task.astype(int) // 4 % SYSTEMS, label=frame.label.astype(float)
    )


def judged(name: str) -> pd.DataFrame:
    """Return labels of people and language models."""
    path = data_home() / "judges" / name / "annotations.csv"
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def with_questions(name: str) -> ComparisonTable:
    """Return a set of comparisons with the questions that they answer.

    Those of MT-bench's pairs stand in the file of the judges' labels, whose rows come in the same
    order, annotator by annotator.
    """
    if name in SUMM:
        return ComparisonTable.from_scores(
            scores(name), item="system", score="label", question="cluster"
        )
    path = data_home() / "comparisons" / name / "comparisons.csv.gz"
    frame, labels = pd.read_csv(path), judged("mtbench")
    labels = labels[(labels.family == "llm") == (name == "mtbench_models")]
    sides = {"left": "model_a", "right": "model_b", "tie": "tie"}
    if frame.winner.map(sides).tolist() != labels.label.tolist():
        raise ValueError(f"{name}: the labels of judges/mtbench stand in another order")
    return ComparisonTable.from_frame(
        frame.assign(question=labels.cluster.to_numpy()), question="question"
    )


def fit(table: ComparisonTable, **options: Any) -> BradleyTerry:
    """Fit without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BradleyTerry(**options).fit(table)


# -- real sets -----------------------------------------------------------------------------------


def held_out(set: str, share: float, seed: int) -> Record:
    """Train on a share of the answers, and measure the log loss of 20 % others."""
    whole = read(set)
    u = np.random.default_rng(seed).random(len(whole))
    train, test = whole.take(u < share), whole.take(u >= 0.8)
    losses = {}
    found: Record = {"n_train": len(train), "n_test": len(test)}
    for method, options in METHODS.items():
        with spent() as used:
            model = fit(train, **options)
        found[f"{method}_seconds"] = round(used["cpu"], 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            proba = model.predict_proba(
                test.items[test.left], test.items[test.right], test.annotators[test.annotator]
            )
        losses[method] = -np.log(proba[np.arange(len(test)), test.outcome])
        if method == "default":
            found["variance"] = model.reliability_variance_
    known = np.isfinite(losses["plain"])
    for method, loss in losses.items():
        less = loss[known] - losses["plain"][known]
        found[method] = float(loss[known].mean())
        found[f"{method}_gain"] = float(less.mean())
        found[f"{method}_error"] = float(less.std() / np.sqrt(known.sum()))
    return found


ALONE = {
    "position": {"reliability": False, "own_ties": False},
    "ties": {"reliability": False, "position": False},
}
"""One of the tendencies of annotators alone."""


def alternatives(set: str, share: float, seed: int) -> Record:
    """Log loss against plain Davidson of one tendency alone, and of each pair's own shares."""
    whole = read(set)
    u = np.random.default_rng(seed).random(len(whole))
    train, test = whole.take(u < share), whole.take(u >= 0.8)
    sides = (test.items[test.left], test.items[test.right], test.annotators[test.annotator])

    def loss(proba: Any) -> Any:
        return -np.log(proba[np.arange(len(test)), test.outcome])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = loss(fit(train, **PLAIN).predict_proba(*sides))
        losses = {name: loss(fit(train, **o).predict_proba(*sides)) for name, o in ALONE.items()}
    losses["pairs"] = loss(shares_of_pairs(train, test))
    known = np.isfinite(plain)
    return {name: float((each - plain)[known].mean()) for name, each in losses.items()} | {
        f"{name}_error": float((each - plain)[known].std() / np.sqrt(known.sum()))
        for name, each in losses.items()
    }


def shares_of_pairs(train: ComparisonTable, test: ComparisonTable) -> Any:
    """Shares of left, tie and right among the answers to each pair, and one answer of all."""

    def seen(table: ComparisonTable) -> tuple[Any, Any]:
        swapped = table.left > table.right
        low = np.where(swapped, table.right, table.left).astype(np.int64)
        return low * table.n_items + np.where(swapped, table.left, table.right), swapped

    pair, swapped = seen(train)
    outcome = np.where(swapped, 2 - train.outcome, train.outcome)
    tied = float((outcome == 1).mean())
    prior = np.array([(1 - tied) / 2, tied, (1 - tied) / 2])
    pairs, code = np.unique(pair, return_inverse=True)
    counts = np.zeros((len(pairs) + 1, 3))
    np.add.at(counts, (code, outcome), 1.0)
    shares = (counts + prior) / (counts.sum(axis=1, keepdims=True) + 1)
    wanted, swapped = seen(test)
    place = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    proba = shares[np.where(pairs[place] == wanted, place, len(pairs))]
    return np.where(swapped[:, None], proba[:, ::-1], proba)


def of_alternatives(records: list[Record]) -> Record:
    rows = []
    for name, share, _ in SETS:
        own = [each for each in records if (each["set"], each["share"]) == (name, share)]
        if not own:
            continue
        row = [name, f"{share:.0%}"]
        for key in ("position", "ties", "pairs"):
            gain, error = (np.mean([r[k] for r in own]) for k in (key, f"{key}_error"))
            row.append(f"{gain:+.4f} [{gain - 1.96 * error:+.4f}, {gain + 1.96 * error:+.4f}]")
        rows.append(row)
    header = ["set", "trained on", "positions alone", "ties alone", "shares of each pair"]
    return {"alternatives": table(header, rows)}


def real_order(set: str, seed: int) -> Record:
    """Agreement of the order with people's, or of the orders by two halves of the annotators."""
    found: Record = {}
    if set in SUMM:
        theirs = scores(set, family="").groupby("system").label.mean()
        whole = with_questions(set)  # Items are numbers of systems.
        for method in ("plain", "default"):
            strengths = fit(whole, **METHODS[method]).strengths_
            found[method] = float(kendalltau(theirs.to_numpy(), strengths)[0])
        return found
    whole = read(set)
    first = np.random.default_rng(seed).random(whole.n_annotators) < 0.5
    halves = [whole.take(first[whole.annotator] == half) for half in (True, False)]
    fits = {m: [fit(half, **METHODS[m]) for half in halves] for m in ("plain", "default")}
    one, other = (model.component_ for model in fits["plain"])
    both = np.flatnonzero((halves[0].counts() > 0) & (halves[1].counts() > 0))
    for method, (mine, theirs) in fits.items():
        agree = n = 0.0
        for i, k in enumerate(both):
            rest = both[i + 1 :]
            rest = rest[(one[rest] == one[k]) & (other[rest] == other[k])]
            a = np.sign(mine.strengths_[k] - mine.strengths_[rest])
            agree += float((a * np.sign(theirs.strengths_[k] - theirs.strengths_[rest])).sum())
            n += len(rest)
        found[method] = agree / n
    return found


def of_real_order(records: list[Record]) -> Record:
    rows = []
    for name in ("ukp", *SUMM):
        own = [r for r in records if r["set"] == name]
        against = "people's mean scores" if name in SUMM else "the other half of the annotators"
        rows.append([
            name, against, *(f"{np.mean([r[m] for r in own]):.3f}" for m in ("plain", "default"))
        ])  # fmt: skip
    return {"real_order": table(["set", "compared with", "plain", "default"], rows)}


def real_questions(set: str) -> Record:
    """Standard errors of strengths, beside those of strengths when questions are drawn anew.

    All annotators count alike: the scale of six reliabilities is uncertain, too, and questions do
    not tell it.
    """
    whole = with_questions(set)
    model = fit(whole, **OWN)
    bare = ComparisonTable(
        whole.left, whole.right, whole.annotator, whole.outcome, whole.items, whole.annotators,
        has_sides=whole.has_sides,
    )  # fmt: skip
    usual = fit(bare, **OWN)
    options = OWN | {"strength_variance": model.strength_variance_}
    rng = np.random.default_rng(0)
    rows_of = [np.flatnonzero(whole.question == q) for q in range(len(whole.questions))]
    drawn = []
    for _ in range(BOOTSTRAPS):
        rows = np.concatenate([rows_of[q] for q in rng.integers(0, len(rows_of), len(rows_of))])
        strengths = fit(bare.take(rows), **options).strengths_
        drawn.append(strengths - strengths.mean())
    return {
        "usual": float(usual.strength_se_.mean()), "default": float(model.strength_se_.mean()),
        "bootstrap": float(np.std(drawn, axis=0, ddof=1).mean()), "clustered": model.clustered_,
        "n": len(whole), "questions": len(rows_of),
    }  # fmt: skip


BOOTSTRAPS = 60
ASKED = ("summ_coherence", "summ_relevance", "summ_consistency", "mtbench_people", "mtbench_models")


def of_real_questions(records: list[Record]) -> Record:
    rows = [
        [r["set"], f"{r['n']:,}", str(r["questions"]), f"{r['usual']:.3f}", f"{r['default']:.3f}",
         "yes" if r["clustered"] else "too few", f"{r['bootstrap']:.3f}"]
        for name in ASKED for r in records if r["set"] == name
    ]  # fmt: skip
    header = ["set", "comparisons", "questions", "standard error, usual", "with questions",
              "clustered", "questions drawn anew"]  # fmt: skip
    return {"real_questions": table(header, rows), "bootstraps": BOOTSTRAPS}


def of_sets(records: list[Record]) -> Record:
    rows = []
    for name, share, _ in SETS:
        own = [each for each in records if (each["set"], each["share"]) == (name, share)]
        if not own:
            continue
        row = [name, f"{share:.0%}", f"{np.mean([r['n_train'] for r in own]):,.0f}"]
        row.append(f"{np.mean([r['plain'] for r in own]):.4f}")
        for method in ("own", "default"):
            gain = np.mean([r[f"{method}_gain"] for r in own])
            error = np.mean([r[f"{method}_error"] for r in own])
            row.append(f"{gain:+.4f} [{gain - 1.96 * error:+.4f}, {gain + 1.96 * error:+.4f}]")
        row.append(", ".join(f"{v:g}" for v in sorted({r["variance"] for r in own})))
        rows.append(row)
    header = ["set", "trained on", "answers", "plain", "own ties, positions", "default"]
    return {"held_out": table([*header, "variance of reliabilities"], rows)}


def drawing(records: list[Record]) -> str:
    """Draw by how much profiles change the log loss of held-out answers."""
    rows = []
    for name, share, _ in SETS:
        own = where(records, part="held-out", set=name, share=share)
        gain, error = (float(np.mean([r[f"default_{k}"] for r in own])) for k in ("gain", "error"))
        interval = (gain - 1.96 * error, gain + 1.96 * error)
        rows.append(Row(f"{name}, {share:.0%} of the answers", {"change": gain}, interval))
    title = "Change of the log loss of held-out answers (left of 0: profiles help)"
    return dots(title, rows, target=0)


# -- simulated crowds ----------------------------------------------------------------------------


class Drawn(NamedTuple):
    """True strengths, and comparisons."""

    theta: Any
    table: ComparisonTable


def draw(
    seed: int, n: int, r: int, m: int, crowd: str = "clean", effect: float = 0.0, asked: int = 0
) -> Drawn:
    """Draw comparisons; ``effect`` is the spread of what each pair, or each question, adds."""
    rng = np.random.default_rng([seed, n, r, m])
    theta = rng.normal(size=n)
    a, b = np.ones(r), rng.normal(0, 0.3, r)
    if crowd != "clean":
        a += rng.normal(0, 0.3, r)
    u = rng.random(r)
    if crowd == "bad":
        a[u < 0.25] = 0.0
        a[(u >= 0.25) & (u < 0.35)] *= -1
        one_sided = (u >= 0.35) & (u < 0.5)
        a[one_sided], b[one_sided] = 0.0, 4 * np.sign(rng.normal(size=one_sided.sum()))
    elif crowd == "reversed":
        a[u < 0.3] *= -1
    tie = -0.5 + rng.normal(0, 0.5, r)
    left = rng.integers(0, n, m)
    right = (left + rng.integers(1, n, m)) % n
    who = rng.integers(0, r, m)
    more = np.zeros(m)
    question = None
    if asked:
        question = rng.integers(0, asked, m)
        taste = rng.normal(0, effect, (asked, n))
        more = taste[question, left] - taste[question, right]
    elif effect:
        own = np.triu(rng.normal(0, effect, (n, n)), 1)
        more = (own - own.T)[left, right]
    eta = a[who] * (theta[left] - theta[right] + more) + b[who]
    return Drawn(theta, answered(rng, eta, tie[who], left, right, who, n, r, question))


def answered(
    rng: Any, eta: Any, tie: Any, left: Any, right: Any, who: Any, n: int, r: int, question: Any
) -> ComparisonTable:
    """Draw answers."""
    logits = np.column_stack([eta / 2, tie, -eta / 2])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    outcome = (rng.random(len(eta))[:, None] > p.cumsum(axis=1)).sum(axis=1)
    questions = None if question is None else np.arange(question.max() + 1)
    return ComparisonTable(
        left, right, who, outcome, np.arange(n), np.arange(r), question, questions
    )


def order(crowd: str, each: float, seed: int) -> Record:
    """Agreement with the true order of 30 items, 40 annotators."""
    theta, comparisons = draw(seed, 30, 40, int(40 * each), crowd)
    found = {}
    for method in ("plain", "default"):
        model = fit(comparisons, **METHODS[method])
        found[method] = float(kendalltau(theta, model.strengths_)[0])
    return found | {"variance": model.reliability_variance_}


def of_order(records: list[Record]) -> Record:
    rows = []
    for each in (7.5, 15.0, 30.0):
        row = [f"{each:g}"]
        for crowd in CROWDS:
            own = [r for r in records if (r["crowd"], r["each"]) == (crowd, each)]
            gain = np.array([r["default"] - r["plain"] for r in own])
            half = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain))
            row.append(f"{np.mean([r['plain'] for r in own]):.3f}, {gain.mean():+.3f} ± {half:.3f}")
        rows.append(row)
    return {"order": table(["answers each", *CROWDS], rows), "draws": DRAWS}


def others(crowd: str, seed: int) -> Record:
    """Agreement with the true order of what other libraries say, as they come: 15 answers each."""
    from crowdkit.aggregation import BradleyTerry as CrowdKitBradleyTerry
    from crowdkit.aggregation import NoisyBradleyTerry

    theta, comparisons = draw(seed, 30, 40, 600, crowd)
    df = comparisons.to_frame()
    df = df[df.winner != "tie"]
    df["label"] = np.where(df.winner == "left", df.left, df.right)
    df = df[["worker", "left", "right", "label"]]
    kits = {"crowd-kit BradleyTerry": CrowdKitBradleyTerry(n_iter=100),
            "crowd-kit NoisyBradleyTerry": NoisyBradleyTerry()}  # fmt: skip
    found = {name: kit.fit_predict(df).reindex(range(30)).to_numpy() for name, kit in kits.items()}
    halves = np.ones((3, len(comparisons))) * [[1.0], [0.5], [0.0]]
    won = halves[comparisons.outcome, np.arange(len(comparisons))]
    wins = np.bincount(comparisons.left, won, 30) + np.bincount(comparisons.right, 1 - won, 30)
    found["share of wins, ties as half"] = wins / comparisons.counts()
    for method in ("plain", "default"):
        found[method] = fit(comparisons, **METHODS[method]).strengths_
    return {name: float(kendalltau(theta, values)[0]) for name, values in found.items()}


def of_others(records: list[Record]) -> Record:
    names = [name for name in records[0] if name in WAYS_TO_ORDER]
    rows = []
    for name in names:
        cells = []
        for crowd in CROWDS:
            own = np.array([r[name] for r in records if r["crowd"] == crowd])
            cells.append(f"{own.mean():.3f} ± {1.96 * own.std(ddof=1) / np.sqrt(len(own)):.3f}")
        rows.append([WAYS_TO_ORDER[name], *cells])
    return {"others": table(["", *CROWDS], rows)}


WAYS_TO_ORDER = {
    "crowd-kit BradleyTerry": "crowd-kit BradleyTerry, ties left out",
    "crowd-kit NoisyBradleyTerry": "crowd-kit NoisyBradleyTerry, ties left out",
    "share of wins, ties as half": "share of wins, ties as half",
    "plain": "plain Davidson",
    "default": "default",
}


def coverage(crowd: str, m: int, effect: float, seed: int) -> Record:
    """Share of strengths and ranks in their intervals, and probabilities of being better."""
    theta, comparisons = draw(seed, 20, 30, m, crowd, effect)
    model = fit(comparisons)
    centred = theta - theta.mean()
    low, high = model.interval(LEVEL).T
    rank = (-theta).argsort().argsort() + 1
    better = model.better()
    i, j = np.nonzero(better > 0.5)
    sure = better[i, j] > 0.9
    return {
        "strengths": float(((low <= centred) & (centred <= high)).mean()),
        "ranks": float(((model.rank_low_ <= rank) & (rank <= model.rank_high_)).mean()),
        "said": float(better[i, j][sure].sum()),
        "true": float((theta[i] > theta[j])[sure].sum()),
        "sure": int(sure.sum()),
        "dispersion": model.dispersion_,
    }


COVERED = (("clean", 0.0), ("bad", 0.0), ("clean", 0.5))


def of_coverage(records: list[Record]) -> Record:
    rows = []
    for crowd, effect in COVERED:
        for m in (200, 800, 3200):
            own = [r for r in records if (r["crowd"], r["m"], r["effect"]) == (crowd, m, effect)]
            if not own:
                continue
            n = sum(r["sure"] for r in own)
            rows.append([
                crowd if not effect else f"{crowd}, pairs with effects of sd {effect:g}", f"{m:,}",
                f"{np.mean([r['strengths'] for r in own]):.3f}",
                f"{np.mean([r['ranks'] for r in own]):.3f}",
                f"{sum(r['said'] for r in own) / n:.3f}", f"{sum(r['true'] for r in own) / n:.3f}",
            ])  # fmt: skip
    header = ["crowd", "answers", "strengths", "ranks", "better, said", "better, true"]
    return {"coverage": table(header, rows), "coverage_draws": max(len(own), 1)}


def questions(effect: float, seed: int) -> Record:
    """Standard errors with and without questions, and how far strengths are off."""
    theta, comparisons = draw(seed, 8, 6, 3000, "clean", effect, asked=100)
    model = fit(comparisons)
    bare = ComparisonTable(
        comparisons.left, comparisons.right, comparisons.annotator, comparisons.outcome,
        comparisons.items, comparisons.annotators,
    )  # fmt: skip
    usual = fit(bare)
    # Tastes of questions flatten the curve; what is estimated is the strength on average.
    true = theta - theta.mean()
    off = model.strengths_ - true * (model.strengths_ @ true) / (true @ true)
    return {
        "off": float(np.sqrt(np.mean(off**2))),
        "clustered": float(model.strength_se_.mean()),
        "usual": float(usual.strength_se_.mean()),
    }


def of_questions(records: list[Record]) -> Record:
    rows = []
    for effect in (0.0, 0.5, 1.0):
        own = [r for r in records if r["effect"] == effect]
        off = np.sqrt(np.mean([r["off"] ** 2 for r in own]))
        rows.append([
            f"{effect:g}", f"{off:.3f}", f"{np.mean([r['usual'] for r in own]):.3f}",
            f"{np.mean([r['clustered'] for r in own]):.3f}",
        ])  # fmt: skip
    header = ["spread of tastes", "error of strengths", "standard error, usual", "by question"]
    return {"questions": table(header, rows)}


WAYS = ("random", "closest", "next_pairs(20)", "next_pairs(20, each=1)", "next_pairs(20, each=20)")


def next_pairs(way: str, seed: int) -> Record:
    """Buy answers 20 at a time after 80 at random, and look at the order after 160 and 320."""
    n, r, batch = 20, 20, 20
    rng = np.random.default_rng([seed, 5])
    theta, bought = draw(seed, n, r, 80)
    found: Record = {}
    while len(bought) < 320:
        model = fit(bought, **PLAIN)
        if way == "random":
            left = rng.integers(0, n, batch)
            right = (left + rng.integers(1, n, batch)) % n
        elif way != "closest":
            each = int(way.split("=")[1][:-1]) if "=" in way else None
            left, right = np.array(list(model.next_pairs(batch, each=each))).T
        else:
            i, j = np.triu_indices(n, 1)
            gap = np.abs(model.strengths_[i] - model.strengths_[j]) + 1e-6 * rng.random(len(i))
            nearest = np.argsort(gap)[:batch]
            left, right = i[nearest], j[nearest]
        more = answered(
            rng, theta[left] - theta[right], np.full(batch, -0.5), left, right,
            rng.integers(0, r, batch), n, r, None,
        )  # fmt: skip
        bought = bought.with_added(more)
        if len(bought) in (160, 320):
            strengths = fit(bought, **PLAIN).strengths_
            found[f"kendall_{len(bought)}"] = float(kendalltau(theta, strengths)[0])
            top = len({*np.argsort(-theta)[:3]} & {*np.argsort(-strengths)[:3]}) / 3
            found[f"top_{len(bought)}"] = top
    return found


def of_next(records: list[Record]) -> Record:
    rows = []
    for way in WAYS:
        own = [r for r in records if r["way"] == way]
        cells = []
        for key in ("kendall_160", "kendall_320", "top_320"):
            values = np.array([r[key] for r in own])
            cells.append(f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}")
        rows.append([f"`{way}`" if "(" in way else way, *cells])
    header = ["way to choose", "order after 160", "order after 320", "share of the top 3"]
    return {"next": table(header, rows), "next_draws": len(own)}


# -- cost and peers ------------------------------------------------------------------------------


def cost(n: int, method: str) -> Record:
    """CPU seconds of a million comparisons by 5,000 annotators."""
    _, comparisons = draw(0, n, 5_000, 1_000_000, "mild")
    with spent() as used:
        model = fit(comparisons, **METHODS[method])
    return {
        "cpu": round(used["cpu"], 1), "mb": round(used["peak"]), "iterations": model.n_iter_,
        "variance": model.reliability_variance_, "processor": processor(),
    }  # fmt: skip


def of_cost(records: list[Record]) -> Record:
    rows = [
        [f"{r['n']:,}", r["method"], f"{r['cpu']:.1f}", f"{r['mb']:,}", f"{r['variance']:g}"]
        for r in records
    ]
    header = ["items", "method", "CPU seconds", "MB at the peak", "variance of reliabilities"]
    return {"cost": table(header, rows), "processor": records[-1]["processor"]}


def peers() -> Record:
    """Largest difference of strengths from those of other libraries: 8 items, 400 answers."""
    import choix
    import evalica
    from crowdkit.aggregation import BradleyTerry as CrowdKitBradleyTerry

    rng = np.random.default_rng(1)
    n, m = 8, 400
    theta = rng.normal(size=n)
    left = rng.integers(0, n, m)
    right = (left + rng.integers(1, n, m)) % n
    won = rng.random(m) < 1 / (1 + np.exp(-(theta[left] - theta[right])))
    outcome, who = np.where(won, 0, 2), np.zeros(m, dtype=int)
    ids, judge = np.arange(n), np.array(["w"])
    exact = {**PLAIN, "tol": 1e-14, "max_iter": 500}
    comparisons = ComparisonTable(left, right, who, outcome, ids, judge)
    ours = fit(comparisons, **exact, strength_variance=np.inf).strengths_
    pairs = [
        (int(a), int(b)) if w else (int(b), int(a))
        for a, b, w in zip(left, right, won, strict=True)
    ]
    found: Record = {}

    def keep(name: str, theirs: Any, mine: Any) -> None:
        theirs = np.asarray(theirs, dtype=float)
        found[name] = float(np.abs(theirs - theirs.mean() - mine).max())

    keep("choix.ilsr_pairwise", choix.ilsr_pairwise(n, pairs, max_iter=1000, tol=1e-13), ours)
    for alpha in (0.1, 1.0):
        mine = fit(comparisons, **exact, strength_variance=1 / (2 * alpha)).strengths_
        theirs = choix.opt_pairwise(n, pairs, alpha=alpha, tol=1e-12)
        keep(f"choix.opt_pairwise, alpha={alpha:g}", theirs, mine)
    tied = np.where(rng.random(m) < 0.2, 1, outcome)
    names = {0: evalica.Winner.X, 1: evalica.Winner.Draw, 2: evalica.Winner.Y}
    theirs = evalica.bradley_terry(
        left.astype(str).tolist(), right.astype(str).tolist(), [names[k] for k in tied.tolist()],
        tie_weight=0.5, tolerance=1e-15, limit=100_000,
    ).scores  # fmt: skip
    half = np.r_[np.flatnonzero(tied != 1), np.flatnonzero(tied == 1), np.flatnonzero(tied == 1)]
    n_tied = int((tied == 1).sum())
    halved = ComparisonTable(
        left[half], right[half], who[half],
        np.r_[tied[tied != 1], np.zeros(n_tied, dtype=int), np.full(n_tied, 2)], ids, judge,
        weights=np.r_[np.ones(m - n_tied), np.full(2 * n_tied, 0.5)],
    )  # fmt: skip
    mine = fit(halved, **exact, strength_variance=np.inf).strengths_
    scores = np.log(theirs)
    scores.index = scores.index.astype(int)
    keep("evalica.bradley_terry, ties as half wins", scores.sort_index().to_numpy(), mine)
    df = pd.DataFrame({
        "worker": "w", "left": left, "right": right, "label": np.where(won, left, right),
    })  # fmt: skip
    kit = CrowdKitBradleyTerry(n_iter=10_000, tol=1e-12).fit_predict(df)
    keep("crowd-kit BradleyTerry, n_iter=10000", np.log(kit.reindex(range(n)).to_numpy()), ours)
    return {"differences": found, "versions": packages("choix", "evalica", "crowd-kit")}


def of_peers(records: list[Record]) -> Record:
    last = records[-1]
    rows = [[name, f"{value:.1e}"] for name, value in last["differences"].items()]
    versions = ", ".join(
        f"{name} {version}" for name, version in last["versions"].items() if name != "Python"
    )
    return {
        "peers": table(["library", "largest difference of strengths"], rows),
        "versions": versions,
    }


# -- the study -----------------------------------------------------------------------------------


def cells_of_sets() -> Iterator[Record]:
    for name, share, seeds in SETS:
        for seed in seeds:
            yield {"set": name, "share": share, "seed": seed}


def cells_of_order() -> Iterator[Record]:
    yield from ({"set": name, "seed": 0} for name in SUMM)
    yield from ({"set": "ukp", "seed": seed} for seed in range(2))


def data_of(cell: Any) -> list[str]:
    """Folders that a cell reads; those of SummEval and MT-bench have questions and scores."""
    name = str(cell.get("set", ""))
    more = ["judges/summeval"] if name in SUMM and name != SUMM[0] else []
    if cell["part"] == "real-order" and name in SUMM:
        more = ["judges/summeval"]
    if cell["part"] == "real-questions":
        more = ["judges/mtbench" if name.startswith("mtbench") else "judges/summeval"]
    return [*folders_of(cell), *more]


def cells_of_coverage() -> Iterable[Record]:
    for crowd, effect in COVERED:
        for m in (200, 800, 3200) if not effect else (3200,):
            for seed in range(20):
                yield {"crowd": crowd, "m": m, "effect": effect, "seed": seed}


STUDY = of_parts(
    __file__,
    {
        "peers": Part(peers, of_peers),
        "held-out": Part(held_out, of_sets, cells_of_sets),
        "alternatives": Part(alternatives, of_alternatives, cells_of_sets),
        "real-order": Part(real_order, of_real_order, cells_of_order),
        "real-questions": Part(real_questions, of_real_questions, lambda: grid(set=ASKED)),
        "others": Part(others, of_others, lambda: grid(crowd=CROWDS, seed=range(DRAWS))),
        "order": Part(
            order,
            of_order,
            lambda: grid(crowd=CROWDS, each=(7.5, 15.0, 30.0), seed=range(DRAWS)),
        ),
        "coverage": Part(coverage, of_coverage, cells_of_coverage),
        "questions": Part(
            questions, of_questions, lambda: grid(effect=(0.0, 0.5, 1.0), seed=range(20))
        ),
        "next": Part(next_pairs, of_next, lambda: grid(way=WAYS, seed=range(100))),
        "cost": Part(
            cost, of_cost, lambda: grid(n=(1_000, 20_000), method=("plain", "own", "default"))
        ),
    },
    data=data_of,
    drawings=lambda records: {"pairwise-held_out.svg": drawing(records)},
)

if __name__ == "__main__":
    STUDY.main()
