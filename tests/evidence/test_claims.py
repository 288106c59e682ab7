"""Claims: how they are judged, and papers that state them."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from evidence.experiments.loading import load_experiments, load_paper
from evidence.experiments.nodes import RowError
from evidence.experiments.papers import (
    Claim,
    Level,
)
from evidence.pages.document import to_markdown
from evidence.pages.page import hanging_rows, make_page
from evidence.pages.verdicts import by_seed, judge, paired_interval
from evidence.records import (
    GOLD,
    HELD_OUT,
    LAST,
    ORACLE,
    noted,
)
from tests.evidence.conftest import (
    line_of,
    make_paper,
    make_record,
    make_records,
    make_row,
    note,
    published,
)

# -- claims -----------------------------------------------------------------------------------


def test_the_interval_is_that_of_the_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 7))
    theirs = stats.ttest_rel(a, b)
    bounds = theirs.confidence_interval(0.95)
    found = paired_interval(a, b)
    assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high))
    assert found.p == pytest.approx(theirs.pvalue)
    same = paired_interval([1.0, 1.0], [0.5, 0.5])
    # Without spread there is nothing to judge by, whatever the rounding.
    assert all(map(math.isnan, (same.low, same.high, same.p)))
    assert math.isnan(paired_interval([0.9, 0.8], [0.8, 0.7]).p)


def compare(better, than, by=0.0, theirs=(None, None), chosen="last epoch"):
    rows = {
        f"m/{name}": make_row(name, published(value, chosen) if value else None)
        for name, value in zip("ab", theirs, strict=True)
    }
    runs = {
        "m/a": make_records(rows["m/a"], better),
        "m/b": make_records(rows["m/b"], than),
    }
    test = {"kind": "paired", "better": "m/a", "than": "m/b", "metric": "accuracy"}
    return judge({**test, "selection": LAST, "by": by}, rows, runs)


def test_verdicts_of_differences():
    # Differences .01, .02, .03: mean .02, interval .02 -/+ 4.303 * .01 / sqrt(3) = -.0048, .0448.
    better, than = [0.81, 0.82, 0.83], [0.80, 0.80, 0.80]
    found = compare(better, than)
    assert found.verdict == "undecided"
    assert (
        "+2.00 points (95 % interval -0.48 to +4.48; 3 seeds, paired t-test p = 0.074)" in found.why
    )
    assert compare(better, than, by=-0.01).verdict == "holds"
    assert compare(than, better, by=0.005).verdict == "does not hold"
    # The p-value is of the claim: ttest_1samp([.02, .03, .04], 0).
    assert "paired t-test against -1.00 p = 0.035" in compare(better, than, by=-0.01).why
    # The paper's gain of 5 points is excluded, one of 4 is not: the verdict says so.
    large = compare(better, than, theirs=(0.9, 0.85))
    assert large.verdict == "undecided, but excludes the paper's figure"
    assert compare(better, than, theirs=(0.9, 0.86)).verdict == "undecided"
    assert "the paper reports +5.00, which the interval excludes" in large.why
    assert "excludes" not in compare(better, than, theirs=(0.9, 0.86)).why
    unsaid = compare(better, than, theirs=(0.9, 0.85), chosen=None)
    assert "the paper reports +5.00, which the interval excludes" in unsaid.why
    oracle = compare(better, than, theirs=(0.9, 0.85), chosen="best on test")
    assert "the paper reports +5.00 (oracle)" in oracle.why
    assert "excludes" not in oracle.why
    # The paper's own figures may speak against what it says.
    contrary = compare(better, than, theirs=(0.85, 0.87))
    assert "reports -2.00, which is not what is claimed, which the interval ex" in contrary.why
    assert "not what is claimed" not in compare(better, than, theirs=(0.85, 0.87), by=-0.03).why
    level = compare(better, than, theirs=(0.85, 0.85), chosen="best on test")
    assert "the paper reports +0.00 (oracle), which is not what is claimed" in level.why
    one = compare([0.8], [0.7])
    assert one.verdict == "undecided"
    assert "2 are needed" in one.why
    none = compare([0.8, 0.9], [])
    assert none.verdict == "not run"
    assert "no finished run" in none.why


@pytest.mark.parametrize(
    ("by", "verdict", "hangs"),
    [
        # Differences .01, .02, .03: interval -.0048 to .0448; their standard error is .0058.
        (-0.012, "holds", False),
        (-0.01, "holds", True),
        (0.0, "undecided", True),
        (0.002, "undecided", False),
        (0.038, "undecided", False),
        (0.04, "undecided", True),
        (0.05, "does not hold", True),
        (0.052, "does not hold", False),
    ],
)
def test_a_verdict_hangs_on_one_standard_error(by, verdict, hangs):
    better, than = [0.81, 0.82, 0.83], [0.80, 0.80, 0.80]
    found = compare(better, than, by)
    assert (found.verdict, found.hangs) == (verdict, hangs)
    # One standard error up or down gives another word exactly where it hangs.
    error = 0.01 / math.sqrt(3)
    moved = {compare(np.add(better, k * error), than, by).verdict for k in (-1, 1)}
    assert (moved != {verdict}) == hangs


def test_more_seeds_are_for_rows_whose_verdict_hangs():
    names = ("near", "far", "slow", "base", "printed", "known")
    printed = published(0.8, "last epoch")
    rows = {name: make_row(name) for name in names}
    # Two binomial standard errors at .8 of 400 are .04: the means are .839 and .82.
    rows["printed"], rows["known"] = (replace(rows[n], published=printed) for n in names[4:])
    values = {
        "near": [0.81, 0.82, 0.83],
        "far": [0.91, 0.92, 0.93],
        "slow": [0.81, 0.82, 0.83],
        "base": [0.80, 0.80, 0.80],
        "printed": [0.829, 0.839, 0.849],
        "known": [0.81, 0.82, 0.83],
    }
    records = [
        record
        for name, row in rows.items()
        for record in make_records(row, values[name], seconds=90.0 if name == "slow" else 1.0)
    ]
    test = {"kind": "paired", "than": ["m/base"], "metric": "accuracy", "selection": LAST, "by": 0}
    claims = tuple(
        Claim(n, n, "paper", {**test, "better": [f"m/{n}"]}) for n in ("near", "far", "slow")
    )
    paper = make_paper(claims=claims)

    def hanging(**options):
        return [row.label for row in hanging_rows(paper, rows.values(), records, **options)]

    assert hanging() == ["base", "near", "printed"]
    assert hanging(most_seconds=100) == ["base", "near", "printed", "slow"]
    assert hanging(seeds=3) == []
    records = [record for record in records if record.row != "m/near"]
    assert hanging() == ["printed"]


def test_rows_are_compared_by_the_seeds_they_share():
    rows = {"m/a": make_row("a"), "m/b": make_row("b")}
    runs = {
        "m/a": [make_record(rows["m/a"], s, v) for s, v in ((0, 0.9), (1, 0.802), (2, 0.7))],
        "m/b": [make_record(rows["m/b"], s, v) for s, v in ((2, 0.6), (1, 0.7), (5, 0.0))],
    }
    test = {"kind": "paired", "better": ["m/a"], "than": ["m/b"], "metric": "accuracy"}
    found = judge({**test, "selection": LAST, "by": 0.0}, rows, runs)
    assert found.verdict == "holds"
    assert "+10.10 points" in found.why
    assert "2 of 3 seeds" in found.why


def test_further_measures_that_are_shares_are_compared_in_points():
    rows = {name: make_row(name.removeprefix("m/")) for name in ("m/a", "m/b")}
    runs = {
        name: [
            make_record(row, k, extra={"balanced_accuracy": base + 0.01 * k, "e": base})
            for k in range(3)
        ]
        for (name, row), base in zip(rows.items(), (0.8, 0.7), strict=True)
    }
    bound = {"kind": "at_least", "row": "m/a", "value": 0.5, "selection": LAST, "exact": False}
    share = judge({**bound, "metric": "balanced_accuracy"}, rows, runs).why
    assert share.startswith("balanced accuracy: 81.00 % (")
    assert share.endswith("at least 50.00 %")
    assert "e: 0.8 with" in judge({**bound, "metric": "e"}, rows, runs).why


@pytest.mark.parametrize(
    ("kind", "value", "verdict"),
    [
        ("at_most", 0.2, "holds"),
        ("at_most", 0.1, "undecided"),
        ("at_most", 0.01, "does not hold"),
        ("at_least", 0.01, "holds"),
        ("at_least", 0.2, "does not hold"),
        ("near", 0.1, "holds"),
        ("at_most", 0.12, "undecided"),
        ("near", 0.14, "undecided"),
        ("near", 0.13, "undecided"),
        ("near", 0.2, "does not hold"),
    ],
)
def test_verdicts_of_bounds(kind, value, verdict):
    # Mean .1, interval .1 -/+ 4.303 * .01 / sqrt(3).
    row = make_row("a")
    runs = {"m/a": [make_record(row, k, extra={"e": 0.09 + 0.01 * k}) for k in range(3)]}
    test = {"kind": kind, "row": "m/a", "metric": "e", "value": value, "selection": LAST}
    test = {**test, "exact": False, "within": 0.05}
    found = judge(test, {"m/a": row}, runs)
    assert found.verdict == verdict
    # The interval ends at .0752 and .1248, within a standard error (.0058) of .08 and .12.
    assert found.hangs == (value in (0.12, 0.13))
    one = {"m/a": [make_record(row, 0, extra={"e": 0.1})]}
    assert judge(test, {"m/a": row}, one).verdict == "undecided"
    # Where nothing is random, one run is enough, and seeds that differ are a contradiction.
    expected = {"at_most": value >= 0.1, "at_least": value <= 0.1, "near": abs(value - 0.1) <= 0.05}
    exact = judge({**test, "exact": True}, {"m/a": row}, one).verdict
    assert exact == ("holds" if expected[kind] else "does not hold")
    assert "seeds differ" in judge({**test, "exact": True}, {"m/a": row}, runs).why


def test_runs_without_spread_decide_nothing():
    same = compare([0.9, 0.9], [0.8, 0.8])
    assert same.verdict == "undecided"
    assert "+10.00 points with each of 2 seeds: no spread to judge by" in same.why


def test_a_column_that_no_run_noted_is_no_error():
    record = make_record(make_row("ours"), 0, 0.5, history={"round": [0, 1]})
    assert noted(record, "nosuch", "round") == {}
    assert noted(record, "round", "nosuch") == {}


def judge_noted(histories, **test):
    """Test a claim on what a row's seeds noted."""
    row = make_row("a", seeds=range(len(histories)))
    runs = {"m/a": [note(row, k, **columns) for k, columns in enumerate(histories)]}
    return judge({"selection": LAST, "by": 0.0, **test}, {"m/a": row}, runs)


GROWN = [
    {"round": [0, 1, 2], "imbalance": [2.0, 4.0, 12.0], "recall": [None, 0.5, 0.1]},
    {"round": [0, 1], "imbalance": [3.0, 14.0], "recall": [None, 0.6]},
    {"round": [0, 1, 2], "imbalance": [1.0, 5.0, 13.0], "recall": [None, 0.7, None]},
]


def test_a_row_is_compared_with_itself_at_another_point():
    test = {"kind": "paired", "better": "m/a", "than": "m/a", "metric": "imbalance"}
    # Last - first: 10, 11, 12, of every seed's own last; 11 -/+ 4.303 / sqrt(3).
    found = judge_noted(GROWN, **test, at="last", than_at="first")
    assert found.verdict == "holds"
    assert found.why == (
        "imbalance, last noted versus first noted: +11 (95 % interval +8.516 to +13.48; 3 seeds, "
        "paired t-test p = 0.0027)"
    )
    assert judge_noted(GROWN, **test, at="first", than_at="last").verdict == "does not hold"
    # Round 2 - round 0: 10 and 12, of the seeds that have both.
    found = judge_noted(GROWN, **test, at={"round": 2}, than_at={"round": 0})
    assert "imbalance, round 2 versus round 0: +11 (" in found.why
    assert "2 of 3 seeds" in found.why
    found = judge_noted(GROWN, **test, at={"round": 2}, than_at={"round": 7})
    assert found.why == "no finished run with imbalance, round 7 of m/a"


def test_bounds_on_a_column_of_the_history():
    # The last that is noted: .1, .6, .7; the first: .5, .6, .7.
    bound = {"kind": "at_least", "row": "m/a", "metric": "recall", "value": 0.2}
    found = judge_noted(GROWN, **bound, at="first", exact=False)
    assert found.verdict == "holds"
    assert found.why.startswith(
        "recall, first noted: 60.00 % (95 % interval 35.16 to 84.84; 3 seeds)"
    )
    assert found.why.endswith("at least 20.00 %")
    assert "last noted: 46.67 % (" in judge_noted(GROWN, **bound, at="last", exact=False).why
    near = {**bound, "kind": "near", "metric": "imbalance", "value": 2.0, "within": 4.0}
    assert judge_noted(GROWN, **near, at={"round": 0}, exact=False).verdict == "holds"
    # A column is no measure of a protocol, nor one of extra.
    assert "no finished run" in judge_noted(GROWN, **near, exact=False).why


def test_places_within_a_stage_are_compared():
    histories = [
        {"stage": ["start", "late", "late"], "epoch": [1, 1, 2], "recall": [0.1, 0.5, 0.6 + d]}
        for d in (0.0, 0.1, 0.2)
    ]
    test = {"kind": "paired", "better": "m/a", "than": "m/a", "metric": "recall"}
    # Of the late stage .1, .2, .3; without it .5, .6, .7.
    found = judge_noted(histories, **test, at="last", than_at="first", stage="late")
    assert found.why.startswith(
        "recall, last noted of stage late versus first noted of stage late: +20.00 points ("
    )
    assert "+60.00" in judge_noted(histories, **test, at="last", than_at="first").why
    # Epochs count in their stage.
    places = {"at": {"epoch": 2}, "than_at": {"epoch": 1}}
    assert "+20.00" in judge_noted(histories, **test, **places, stage="late").why
    found = judge_noted(histories, **test, **places, stage="nosuch")
    assert found.why == (
        "no finished run with recall, epoch 2 of stage nosuch of m/a; no finished run with "
        "recall, epoch 1 of stage nosuch of m/a"
    )


def test_selections_of_one_row_are_compared():
    row = make_row("a", published(0.9))
    records = [
        replace(record, metrics={**record.metrics, LAST: {"accuracy": 0.7 + 0.01 * record.seed}})
        for record in make_records(row, [0.8, 0.8, 0.8])
    ]
    test = {"kind": "paired", "better": "m/a", "than": "m/a", "metric": "accuracy", "by": 0.0}
    test = {**test, "selection": HELD_OUT, "than_selection": LAST}
    # .801 - .70, .71, .72; nothing of the paper, which printed one figure.
    found = judge(test, {"m/a": row}, {"m/a": records})
    assert found.verdict == "holds"
    assert f"accuracy, {HELD_OUT} versus {LAST}: +9.10 points (" in found.why
    assert "the paper" not in found.why
    absent = make_records(row, [0.8, 0.8], absent=[HELD_OUT])
    found = judge(test, {"m/a": row}, {"m/a": absent})
    assert found.why == f"no finished run with accuracy, {HELD_OUT} of m/a"


def test_measures_of_one_row_are_compared():
    row = make_row("a", published(0.9))
    records = [
        make_record(row, k, extra={"first_accuracy": 0.8 + 0.01 * k, "before_accuracy": 0.7})
        for k in range(3)
    ]
    test = {"kind": "paired", "better": "m/a", "than": "m/a", "metric": "first_accuracy"}
    test |= {"than_metric": "before_accuracy", "selection": LAST, "by": 0.0}
    found = judge(test, {"m/a": row}, {"m/a": records})
    assert found.verdict == "holds"
    assert found.why.startswith("first accuracy versus before accuracy, last epoch: +11.00 points")
    assert "the paper" not in found.why
    bare = [make_record(row, k, extra={"first_accuracy": 0.8}) for k in range(3)]
    found = judge(test, {"m/a": row}, {"m/a": bare})
    assert found.why == "no finished run with before accuracy of m/a"


def test_what_follows_from_a_record_is_measured():
    row = make_row("a")
    true = [[0.4, 0.6, 0.0], [0.0, 0.4, 0.6], [0.6, 0.0, 0.4]]
    learnt = [[0.7, 0.2, 0.1], [0.0, 0.7, 0.3], [0.4, 0.1, 0.5]]
    records = [
        make_record(row, k, extra={"common_true": true, "common_learnt": learnt}) for k in range(2)
    ]
    # The least of .2 - .1, .3 - 0 and .4 - .1.
    margins = by_seed(records, "common_pattern_margin")
    assert list(margins.values()) == pytest.approx([0.1, 0.1])
    off = np.corrcoef([0.6, 0.0, 0.0, 0.6, 0.6, 0.0], [0.2, 0.1, 0.0, 0.3, 0.4, 0.1])[0, 1]
    correlations = by_seed(records, "common_pattern_correlation")
    assert list(correlations.values()) == pytest.approx([off, off])
    # The wrong mistake of one class is enough: .1 - .2.
    learnt[0] = [0.7, 0.1, 0.2]
    assert by_seed(records[:1], "common_pattern_margin")[0] == pytest.approx(-0.1)
    assert by_seed([make_record(row, 0)], "common_pattern_margin") == {}
    recalls = {"recall_of_cat": 0.3, "recall_of_dog": 0.0, "start_accuracy": -1.0}
    assert by_seed([make_record(row, 0, extra=recalls)], "lowest_recall") == {0: 0.0}
    assert by_seed([make_record(row, 0)], "lowest_recall") == {}


def test_a_column_of_the_history_is_measured_at_the_chosen_epoch():
    row = make_row("a")
    history = {"epoch": [1, 2, 3], "valid_accuracy": [0.4, 0.7, 0.6]}
    record = make_record(row, 0, 0.5, history=history)
    assert record.metrics[GOLD]["epoch"] == 2
    assert by_seed([record], "valid_accuracy", GOLD) == {0: 0.7}
    assert by_seed([record], "loss", GOLD) == {}
    without = make_record(row, 1, 0.5, history=history, absent=(GOLD,))
    assert by_seed([without], "valid_accuracy", GOLD) == {}


def test_claims_stand_on_the_page():
    test = {"kind": "untestable", "why": "their data are not public"}
    claims = (
        Claim("c", "It helps.", "paper", test),
        Claim("d", "It helps elsewhere.", "variant", test),
        Claim("e", "It helps there.", "variant", test),
    )
    page = to_markdown(make_page(make_paper(claims=claims), [], []))
    assert "| It helps. | the paper's | not run | their data are not public |" in page
    # Each kind is counted apart, and one that the page lacks is not counted.
    counted = page[page.index("| claims | holds |") :].split("\n\n")[0].splitlines()
    assert counted[2:] == [
        "| the paper's | 0 | 0 | 0 | 0 | 1 |",
        "| a variant | 0 | 0 | 0 | 0 | 2 |",
    ]


# -- papers as data ---------------------------------------------------------------------------

PAPER = """\
title: A paper
citation: A. Author. 2021.
tables:
- id: t1
  title: Table 1
figures:
- id: f1
  kind: lines
  title: Figure 1
  x: data.k
  x_label: k
claims:
- id: c1
  text: It helps.
  test:
    kind: paired
    better: m/a
    than: [m/b]
  origin: paper
"""


def write_paper(folder, text):
    path = folder / "p.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_paper_is_read(tmp_path):
    paper = load_paper(write_paper(tmp_path, PAPER), ["m/a", "m/b"])
    assert paper.key == "p"
    assert paper.claims[0].rows == ["m/a", "m/b"]
    assert paper.claims[0].test["selection"] == LAST
    assert paper.figures[0].place(make_row("a", data={"k": 3})) == 3


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("citation: A. Author. 2021.", "", 1, "citation"),
        ("title: Table 1", "titel: Table 1", 5, "did you mean title"),
        ("kind: lines", "kind: line", 8, "lines or matrices"),
        ("x: data.k", "x: 3", 10, "write a text"),
        ("title: Table 1", "title: Table 1\n  metric: [accuracy, accuracy]", 6, "twice"),
        ("title: Table 1", "title: Table 1\n  metric: [accuracy, 3]", 6, "write texts"),
        ("title: Table 1", "title: Table 1\n  metric: []", 6, "metric is empty"),
        ("title: Table 1", "title: Table 1\n  metric: [acuracy]", 6, "did you mean accuracy"),
        ("paired\n    better: m/a", "best\n    better: [m/a]", 17, "better names several rows"),
        (
            "paired\n    better: m/a\n    than: [m/b]",
            "best\n    better: m/a\n    than: [m/b, m/a]",
            18,
            "than contains the row of better",
        ),
        ("x: data.k", "x: data.k\n  x_absent: none", 11, "x_absent holds 'none'"),
        ("x: data.k", "x: data.k\n  stage: late", 11, "no 'stage'"),
        ("id: f1", "id: t1", 7, "taken"),
        ("better: m/a", "better: m/c", 17, "no row 'm/c'"),
        ("[m/b]", "[m/z]", 18, "no row 'm/z'"),
        ("kind: paired", "kind: pair", 16, "one of paired"),
        ("  origin: paper\n", "", 13, "lacks 'origin'"),
        ("origin: paper", "origin: theirs", 19, "'theirs'; write whose the claim is: paper, varia"),
        ("origin: paper", "origin: [ours]", 19, "write a text"),
        ("[m/b]", "[m/b]\n    than_metric: acuracy", 19, "did you mean accuracy"),
        ("kind: paired", "kind: paired\n    by: much", 17, "a number"),
        # A claim that only holds for what was chosen on test does not hold.
        ("kind: paired", f"kind: paired\n    selection: {ORACLE}", 17, "selection"),
    ],
)
def test_what_is_wrong_in_a_paper_is_told_with_its_line(tmp_path, old, new, line, says):
    assert old in PAPER
    path = write_paper(tmp_path, PAPER.replace(old, new))
    with pytest.raises(RowError, match=re.escape(says)) as error:
        load_paper(path, ["m/a", "m/b"])
    assert str(error.value).startswith(f"{path}:{line}: ")


HISTORY = """\
title: A paper
citation: A. Author. 2021.
tables:
- {id: t1, title: Table 1, columns: [Set], rows: [a, b]}
figures:
- id: f8
  kind: history
  title: Figure 8
  table: t1
  metric: imbalance
  x: round
  x_label: round
  log: true
  columns: [Set, Found]
  rows: [b, c]
  levels:
  - {extra: gold, label: gold labels}
claims:
- id: c1
  text: It grows.
  test:
    kind: paired
    better: m/a
    than: m/a
    metric: test_accuracy
    at: last
    than_at: {round: 0}
  origin: variant
- id: c2
  text: It is good.
  test:
    kind: paired
    better: m/a
    than: m/a
    selection: chosen on held-out annotations
    than_selection: last epoch
  origin: ours
"""


def load_history(folder, text):
    """Load a paper beside one row, c in the column Found."""
    (folder / "m").mkdir()
    row = ROW.replace("p/f1", "p/t1").replace("label: a", "label: c").replace("Set", "Found")
    (folder / "m" / "a.yaml").write_text(row, encoding="utf-8")
    path = write_paper(folder, text)
    return path, lambda: load_experiments(folder)[1]["p"]


def test_a_figure_of_histories_is_read(tmp_path):
    _, load = load_history(tmp_path, HISTORY)
    (figure,) = load().figures
    assert (figure.table, figure.log, figure.rows) == ("t1", True, ("b", "c"))
    assert figure.levels == (Level("gold", "gold labels"),)
    first, second = load().claims
    assert (first.test["at"], first.test["than_at"]) == ("last", {"round": 0})
    assert second.test["than_selection"] == LAST


def test_a_profile_is_read(tmp_path):
    cut = HISTORY.index("  log: true"), HISTORY.index("  columns: [Set, Found]")
    text = HISTORY[: cut[0]] + HISTORY[cut[1] :]
    text = text.replace("  levels:\n  - {extra: gold, label: gold labels}\n", "")
    path, load = load_history(tmp_path, text.replace("kind: history", "kind: profile"))
    (figure,) = load().figures
    assert (figure.kind, figure.metric, figure.x) == ("profile", "imbalance", "round")
    assert (figure.stage, figure.levels) == (None, ())
    path.write_text(path.read_text().replace("rows: [b, c]", "rows: [b, d]"), encoding="utf-8")
    with pytest.raises(RowError, match="t1 has no row 'd'"):
        load()


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("table: t1", "table: tt1", 9, "no table 'tt1' (did you mean t1?); it has t1"),
        ("  table: t1\n", "", 6, "lacks 'table'"),
        ("metric: imbalance", "metric: [a]", 10, "write a text"),
        ("  metric: imbalance\n", "", 6, "lacks 'metric'"),
        ("log: true", "log: yes please", 13, "true or false"),
        ("log: true", f"selection: {LAST}", 13, "every epoch"),
        ("log: true", "panels: []", 13, "no 'panels'"),
        ("kind: history", "kind: lines", 9, "no 'table'"),
        ("[Set, Found]", "[Set, Fund]", 14, "t1 has no column 'Fund' (did you mean Found?)"),
        ("[b, c]", "[b, d]", 15, "t1 has no row 'd'; it has a, b, c"),
        ("label: gold labels", "labels: gold labels", 17, "did you mean label"),
        ("- {extra: gold, label: gold labels}", "  extra: gold", 16, "write a list"),
        ("at: last", "at: best", 26, "write first, last, or another column"),
        ("at: last", "at: 3", 26, "at is 3"),
        ("{round: 0}", "{round: first}", 27, "{round: 3}"),
        ("{round: 0}", "{round: 0, epoch: 1}", 27, "{round: 3}"),
        ("    at: last\n", "    metrc: last\n", 26, "did you mean metric"),
        ("    at: last\n", "", 26, "than_at without at"),
        ("    metric: test_accuracy\n", "", 25, "at without metric"),
        ("at: last", f"at: last\n    selection: {LAST}", 27, "every epoch"),
        ("{round: 0}", "last", 24, "are the same"),
        ("at: last", "at: last\n    stage: 3", 27, "stage is 3; write a text"),
        ("than_selection: last", "stage: late\n    than_selection: last", 36, "stage without at"),
        ("log: true", "stage: [a]", 13, "stage is ['a']; write a text"),
        ("log: true", "x_absent: 0", 13, "no 'x_absent'"),
        ("kind: history", "kind: profile", 13, "no 'log'"),
        ("than_selection: last epoch", f"than_selection: {ORACLE}", 36, "than_selection is"),
        ("than_selection: last epoch", f"than_selection: {HELD_OUT}", 34, "are the same"),
        ("than_selection: last", "metric: error\n    than_selection: last", 37, "leave"),
    ],
)
def test_what_is_wrong_in_a_figure_of_histories_is_told(tmp_path, old, new, line, says):
    assert old in HISTORY
    path, load = load_history(tmp_path, HISTORY.replace(old, new, 1))
    with pytest.raises(RowError, match=re.escape(says)) as error:
        load()
    assert str(error.value).startswith(f"{path}:{line}: ")


def test_a_row_stands_in_a_table_not_in_a_figure_of_histories(tmp_path):
    _, load = load_history(tmp_path, HISTORY)
    row = tmp_path / "m" / "a.yaml"
    row.write_text(ROW.replace("p/f1", "p/f8"), encoding="utf-8")
    with pytest.raises(RowError, match=re.escape("write table: p/t1")) as error:
        # The figure's own check of labels comes after.
        load()
    assert str(error.value).startswith(f"{row}:3: ")


ROW = """\
label: a
citation: A. Author. 2021.
table: p/f1
column: Set
data: {name: labelme}
estimator: {class: CoNALClassifier}
seeds: [0]
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("p/f1", "p/f2", 3, "no table or figure 'f2'; it has t1, f1"),
        ("p/f1", "p/f1", 5, "needs a number there"),
    ],
)
def test_rows_and_papers_fit_together(tmp_path, old, new, line, says):
    (tmp_path / "m").mkdir()
    write_paper(tmp_path, PAPER.split("claims:")[0])
    row = tmp_path / "m" / "a.yaml"
    row.write_text(ROW.replace(old, new), encoding="utf-8")
    with pytest.raises(RowError, match=re.escape(says)) as error:
        load_experiments(tmp_path)
    assert str(error.value).startswith(f"{row}:{line}: ")
    row.write_text(ROW.replace("p/f1", "p/t1"), encoding="utf-8")
    rows, papers = load_experiments(tmp_path)
    assert [row.id for row in rows] == ["m/a"]
    assert list(papers) == ["p"]


def test_rows_without_a_paper_have_a_page(tmp_path):
    (tmp_path / "m").mkdir()
    text = ROW.replace("table: p/f1\ncolumn: Set\n", "")
    (tmp_path / "m" / "a.yaml").write_text(text, encoding="utf-8")
    rows, papers = load_experiments(tmp_path)
    page = to_markdown(make_page(papers["own"], rows, [make_record(rows[0], 0, 0.75)]))
    assert "### labelme" in page
    assert line_of(page, "a")[1] == "75.00 (1)"
