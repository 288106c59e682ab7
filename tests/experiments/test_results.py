"""Pages from records: what they say, what they must never say, and that they are reproducible."""

import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from manyhands.experiments.claims import judge, paired_interval
from manyhands.experiments.papers import (
    Claim,
    FigurePlan,
    Panel,
    Paper,
    TablePlan,
    load_experiments,
    load_paper,
)
from manyhands.experiments.records import (
    GOLD,
    HELD_OUT,
    LAST,
    ORACLE,
    Record,
    cell_key,
    read_records,
    write_record,
)
from manyhands.experiments.results import (
    latest_records,
    make_page,
    to_html,
    to_markdown,
    write_results,
)
from manyhands.experiments.rows import Row, RowError

CITATION = "A. Author. A paper. 2021."
N_TEST = 400


def make_row(name, published=None, table="p/t1", column="Set", seeds=(0, 1, 2), **changes):
    row = Row(
        id=f"m/{name}",
        file=f"experiments/m/{name}.yaml",
        label=name,
        citation=CITATION,
        table=table,
        column=column,
        data={"name": "labelme"},
        estimator={"class": "CoNALClassifier", "params": {"lr": 0.1}},
        seeds=tuple(seeds),
        holdout=0.1,
        device="cpu",
        extra=(),
        published=published,
        deviations=(),
    )
    return replace(row, **changes)


def published(value, selection="gold validation", metric="accuracy"):
    found = {"metric": metric, "value": value, "sd": 0.005, "n": 5}
    return found if selection is None else {**found, "selection": selection}


def make_record(row, seed, accuracy=None, *, extra=None, absent=(), **changes):
    """Make a record; its figures rise from protocol to protocol by a thousandth."""
    figures = {}
    for k, protocol in enumerate((LAST, HELD_OUT, GOLD, ORACLE)):
        if accuracy is None or protocol in absent:
            figures[protocol] = {"absent": "no such part"}
        else:
            value = accuracy + 0.001 * k
            figures[protocol] = {"epoch": 2, "accuracy": value, "macro_f1": 0.5, "n_test": N_TEST}
    specification = row.specification()
    record = Record(
        row=row.id,
        seed=seed,
        key=cell_key(specification, seed, "data", "code"),
        specification=specification,
        data_checksum="data",
        code="code",
        versions={"numpy": "2.0", "python": "3.11"},
        commit="0123456789",
        started=f"2026-01-0{1 + seed}T10:00:00+00:00",
        seconds=1.5,
        peak_memory_mb=200.0,
        status="done",
        metrics=figures,
        extra=extra or {},
    )
    return replace(record, **changes)


def make_records(row, values, **options):
    return [make_record(row, seed, value, **options) for seed, value in enumerate(values)]


def make_paper(**parts):
    tables = (TablePlan("t1", "Table 1", "accuracy", ("Set",), ("first", "second")),)
    return Paper("p", "A paper", CITATION, **{"tables": tables, **parts})


def line_of(text, name):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


# -- tables -----------------------------------------------------------------------------------


def test_a_line_has_ours_by_protocol_theirs_and_a_verdict():
    row = make_row("first", published(0.9))
    page = to_markdown(make_page(make_paper(), [row], make_records(row, [0.80, 0.82, 0.84])))
    name, last, held_out, gold, oracle, seconds, theirs, error, verdict = line_of(page, "first")
    assert (name, last, held_out, gold) == (
        "first",
        "82.00 ± 2.00 (3)",
        "82.10 ± 2.00 (3)",
        "82.20 ± 2.00 (3)",
    )
    assert oracle == "82.30 ± 2.00 (3) oracle"
    assert seconds == "1.5"
    assert theirs == f"90.00 ± 0.50 (5), {GOLD}"
    # sqrt(.9 * .1 / 400) = .015
    assert error == "1.50"
    assert verdict == f"below ({GOLD})"
    # A label that the paper has and no row has yet.
    assert line_of(page, "second")[-1] == "no row yet"


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.925, "within"), (0.935, "above"), (0.875, "within"), (0.86, "below")],
)
def test_within_is_two_standard_errors_of_the_test_set(value, verdict):
    row = make_row("first", published(0.9, "last epoch"))
    page = to_markdown(make_page(make_paper(), [row], make_records(row, [value])))
    assert line_of(page, "first")[-1] == f"{verdict} (last epoch)"


def test_a_figure_that_the_paper_chose_otherwise_is_not_compared():
    row = make_row("first", published(0.9))
    records = make_records(row, [0.9, 0.9], absent=[GOLD])
    page = to_markdown(make_page(make_paper(), [row], records))
    assert line_of(page, "first")[3] == "–"
    assert line_of(page, "first")[-1] == f"no figure {GOLD}"
    assert f"{GOLD}: no such part (first)" in page


def test_what_was_chosen_on_test_is_always_marked(tmp_path):
    """The oracle's figure, 98.76, stands nowhere without its mark; nor does a paper's oracle."""
    row = make_row("first", published(0.9543, "best on test"))
    points = [
        make_row(f"x{k}", table="p/f1", data={"name": "labelme", "k": k}, label="line")
        for k in (1, 2)
    ]
    figure = FigurePlan("f1", "Figure", "lines", "accuracy", ORACLE, "data.k", "k", (), (), ())
    records = [r for each in (row, *points) for r in make_records(each, [0.9846, 0.9846])]
    paper = make_paper(figures=(figure,))
    md, html, svg = write_results(paper, [row, *points], records, tmp_path)
    shown = re.findall(r"[^|\n]*98\.76[^|\n]*|[^|\n]*95\.43[^|\n]*", md.read_text())
    assert len(shown) == 4
    assert all("oracle" in cell for cell in shown)
    cells = re.findall(r"<t[dh][^>]*>([^<]*(?:98\.76|95\.43)[^<]*)<", html.read_text())
    assert len(cells) == 4
    assert all("oracle" in cell for cell in cells)
    assert "best on test (oracle)" in svg.read_text()


def test_records_that_count():
    row = make_row("first")
    other = make_row("first", holdout=None)
    done = make_record(row, 0, 0.5)
    records = [
        done,
        # Run later where there was no GPU: hides nothing.
        make_record(row, 0, status="skipped", started="2026-03-01"),
        # Run with another specification: another experiment.
        make_record(other, 1, 0.6),
        make_record(row, 2, 0.7),
        # Killed in a later call: what is finished is finished.
        make_record(row, 2, status="failed", started="2026-03-01"),
        # Its data were not there for a while.
        make_record(row, 0, status="failed", data_checksum="", started="2026-03-02"),
    ]
    found = latest_records([row], records)["m/first"]
    assert {seed: record.status for seed, record in found.items()} == {0: "done", 2: "done"}
    assert found[0] is done
    # The code that ran last fails.
    records.append(make_record(row, 2, status="failed", code="newer", started="2026-03-03"))
    found = latest_records([row], records)["m/first"]
    assert {seed: record.status for seed, record in found.items()} == {2: "failed"}


@pytest.mark.parametrize("what", ["code", "data_checksum"])
def test_a_mean_is_of_runs_of_the_same_thing(what):
    row = make_row("first")
    earlier = make_records(row, [0.5, 0.6, 0.7])
    later = [make_record(row, 0, 0.1, started="2026-03-01", **{what: "other"})]
    assert list(latest_records([row], earlier + later)["m/first"].values()) == later
    # The earlier ones are found again to be those of the present data and code.
    again = [replace(record, confirmed="2026-04-01") for record in earlier]
    assert list(latest_records([row], again + later)["m/first"].values()) == again


def test_data_made_anew_with_every_seed_differ_from_seed_to_seed():
    row = make_row("first", data={"factory": "m:f", "random_state": "seed"})
    records = [make_record(row, k, 0.5 + 0.1 * k, data_checksum=f"data {k}") for k in range(3)]
    assert line_of(to_markdown(make_page(make_paper(), [row], records)), "first")[1].endswith("(3)")


def test_gaps_are_told_with_their_reason():
    rows = [make_row("first", seeds=[0, 1]), make_row("second", seeds=[0], device="gpu")]
    failed = make_record(rows[0], 1, status="failed", reason="ValueError: a | b")
    page = to_markdown(make_page(make_paper(), rows, [make_record(rows[0], 0, 0.5), failed]))
    assert "| failed | ValueError: a \\| b | 1 | m/first |" in page
    assert "| not run | no record yet (needs a GPU) | 0 | m/second |" in page
    assert line_of(page, "second")[-1] == "not run"


def test_a_rows_own_measure_has_a_table():
    rows = [make_row("first", extra=("m:f",)), make_row("second")]
    records = [make_record(rows[0], k, 0.5, extra={"my_error": 0.1 + 0.1 * k}) for k in range(2)]
    paper = make_paper(tables=(TablePlan("t1", "Errors", "my_error"),))
    assert line_of(to_markdown(make_page(paper, rows, records)), "first")[1] == "0.15 ± 0.07071 (2)"
    further = to_markdown(make_page(make_paper(), rows, records))
    assert "| first | my error | 0.15 ± 0.07071 (2) |" in further


# -- the same records, the same bytes ---------------------------------------------------------


def test_the_same_records_give_the_same_bytes(tmp_path):
    rows = [make_row("first", published(0.9)), make_row("second")]
    drawn = [make_row(f"x{k}", table="p/f1", data={"name": "s", "k": k}) for k in (1, 2, 3)]
    figure = FigurePlan("f1", "Figure", "lines", "accuracy", LAST, "data.k", "k", (), (), ())
    rows += drawn
    paper = make_paper(figures=(figure,))
    for row in rows:
        for record in make_records(row, [0.8, 0.85]):
            write_record(tmp_path / "results", record)
    pages = []
    for k in range(2):
        records = read_records(tmp_path / "results")
        random.Random(k).shuffle(records)
        random.Random(k).shuffle(rows)
        written = write_results(paper, rows, records, tmp_path / f"out{k}")
        pages.append({path.name: path.read_bytes() for path in written})
    assert pages[0] == pages[1]
    assert set(pages[0]) == {"p.md", "p.html", "p-f1.svg"}
    # Dates are the records'.
    dates = set(re.findall(rb"20\d\d-\d\d-\d\d", b"".join(pages[0].values())))
    assert dates == {b"2026-01-01", b"2026-01-02"}


def test_names_of_other_people_do_no_harm(tmp_path):
    row = make_row("<script>alert(1)</script>", published(0.9), label="<script>x|y</script>\n# z")
    points = make_row("p1", table="p/f1", data={"k": 1}, label="<b>&</b>")
    figure = FigurePlan("f1", "<i>", "lines", "accuracy", LAST, "data.k", "<k>", (), (), ())
    records = [*make_records(row, [0.5]), *make_records(points, [0.5])]
    md, html, svg = write_results(make_paper(figures=(figure,)), [row, points], records, tmp_path)
    for text in (md.read_text(), html.read_text(), svg.read_text()):
        assert "<script" not in text
        assert "<b>" not in text
    assert "\n# z" not in md.read_text()
    import xml.etree.ElementTree as ET

    ET.fromstring(svg.read_text())


# -- figures ----------------------------------------------------------------------------------


def test_lines_have_a_point_and_a_bar_for_every_row():
    rows = [
        make_row(f"{column}{k}", table="p/f1", label="ours", data={"k": k}, column=column)
        for k in (0.2, 0.4)
        for column in ("left", "right")
    ]
    records = [r for row in rows for r in make_records(row, [0.5, 0.7])]
    figure = FigurePlan("f1", "F", "lines", "accuracy", LAST, "data.k", "k", (), (), ())
    page = make_page(make_paper(figures=(figure,)), rows, records)
    (drawing,) = [b for s in page.sections for b in s.blocks if hasattr(b, "svg")]
    assert drawing.svg.count("<circle") == drawing.svg.count('class="bar') == 4
    assert "ours, 0.2: 60 ± 14.14" in drawing.svg
    assert line_of(to_markdown(page).split("### right")[1].split("##")[0], "ours") == [
        "ours",
        "60.00 ± 14.14 (2)",
        "60.00 ± 14.14 (2)",
    ]


def test_matrices_are_of_the_first_seed():
    # With every seed there may be another crowd: a mean of their matrices is nobody's.
    row = make_row("first", extra=("m:f",))
    matrices = ([[1.0, 0.0], [0.2, 0.8]], [[0.5, 0.5], [0.2, 0.8]])
    records = [make_record(row, k, 0.5, extra={"common": m}) for k, m in enumerate(matrices)]
    records.reverse()
    panels = (Panel("m/first", "common", "learnt"), Panel("m/first", "missing", "true"))
    figure = FigurePlan("f5", "F", "matrices", "accuracy", LAST, "", "", (), (), panels)
    page = make_page(make_paper(figures=(figure,)), [row], records)
    (drawing,) = [b for s in page.sections for b in s.blocks if hasattr(b, "svg")]
    assert re.findall(r'class="cell"[^>]*>([^<]*)<', drawing.svg) == [
        "1.00",
        "0.00",
        "0.20",
        "0.80",
    ]
    assert "true (missing of m/first)" in to_html(page)
    assert "seed 0." in drawing.caption


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
    assert found.verdict == "cannot be tested"
    assert (
        "+2.00 points (95 % interval -0.48 to +4.48; 3 seeds, paired t-test p = 0.074)" in found.why
    )
    assert compare(better, than, by=-0.01).verdict == "holds"
    assert compare(than, better, by=0.005).verdict == "does not hold"
    # The p-value is of the claim: ttest_1samp([.02, .03, .04], 0).
    assert "paired t-test against -1.00 p = 0.035" in compare(better, than, by=-0.01).why
    # The paper's gain of 5 points is excluded, one of 4 is not: that is said, and decides nothing.
    large = compare(better, than, theirs=(0.9, 0.85))
    assert large.verdict == "cannot be tested"
    assert "the paper reports +5.00, which the interval excludes" in large.why
    assert "excludes" not in compare(better, than, theirs=(0.9, 0.86)).why
    unsaid = compare(better, than, theirs=(0.9, 0.85), chosen=None)
    assert "the paper reports +5.00, which the interval excludes" in unsaid.why
    oracle = compare(better, than, theirs=(0.9, 0.85), chosen="best on test")
    assert "the paper reports +5.00 (oracle)" in oracle.why
    assert "excludes" not in oracle.why
    one = compare([0.8], [0.7])
    assert one.verdict == "cannot be tested"
    assert "2 are needed" in one.why
    assert "no finished run" in compare([0.8, 0.9], []).why


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


@pytest.mark.parametrize(
    ("kind", "value", "verdict"),
    [
        ("at_most", 0.2, "holds"),
        ("at_most", 0.1, "cannot be tested"),
        ("at_most", 0.01, "does not hold"),
        ("at_least", 0.01, "holds"),
        ("at_least", 0.2, "does not hold"),
        ("near", 0.1, "holds"),
        ("near", 0.14, "cannot be tested"),
        ("near", 0.2, "does not hold"),
    ],
)
def test_verdicts_of_bounds(kind, value, verdict):
    # Mean .1, interval .1 -/+ 4.303 * .01 / sqrt(3).
    row = make_row("a")
    runs = {"m/a": [make_record(row, k, extra={"e": 0.09 + 0.01 * k}) for k in range(3)]}
    test = {"kind": kind, "row": "m/a", "metric": "e", "value": value, "selection": LAST}
    test = {**test, "exact": False, "within": 0.05}
    assert judge(test, {"m/a": row}, runs).verdict == verdict
    one = {"m/a": [make_record(row, 0, extra={"e": 0.1})]}
    assert judge(test, {"m/a": row}, one).verdict == "cannot be tested"
    # Where nothing is random, one run is enough, and seeds that differ are a contradiction.
    expected = {"at_most": value >= 0.1, "at_least": value <= 0.1, "near": abs(value - 0.1) <= 0.05}
    exact = judge({**test, "exact": True}, {"m/a": row}, one).verdict
    assert exact == ("holds" if expected[kind] else "does not hold")
    assert "seeds differ" in judge({**test, "exact": True}, {"m/a": row}, runs).why


def test_runs_without_spread_decide_nothing():
    same = compare([0.9, 0.9], [0.8, 0.8])
    assert same.verdict == "cannot be tested"
    assert "+10.00 points with each of 2 seeds: no spread to judge by" in same.why


def test_claims_stand_on_the_page():
    claim = Claim("c", "It helps.", {"kind": "untestable", "why": "their data are not public"})
    page = to_markdown(make_page(make_paper(claims=(claim,)), [], []))
    assert "| It helps. | cannot be tested | their data are not public |" in page


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
        ("id: f1", "id: t1", 7, "taken"),
        ("better: m/a", "better: m/c", 17, "no row 'm/c'"),
        ("[m/b]", "[m/z]", 18, "no row 'm/z'"),
        ("kind: paired", "kind: pair", 16, "one of paired"),
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
    (tmp_path / "papers").mkdir()
    (tmp_path / "m").mkdir()
    write_paper(tmp_path / "papers", PAPER.split("claims:")[0])
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
