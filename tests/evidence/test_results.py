"""Pages from records: what they say, what they must never say, and that they are reproducible."""

import random
import re
from dataclasses import replace

import pytest

from evidence.experiments.papers import (
    FigurePlan,
    Level,
    Panel,
    TablePlan,
)
from evidence.pages.document import Figure, to_html, to_markdown
from evidence.pages.page import make_page, write_results
from evidence.pages.verdicts import judge
from evidence.pages.words import deviations
from evidence.records import (
    GOLD,
    LAST,
    ORACLE,
)
from evidence.reruns import Rerun
from evidence.store import latest_records, read_records, write_record
from tests.evidence.conftest import (
    line_of,
    make_paper,
    make_record,
    make_records,
    make_row,
    note,
    published,
)

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
    assert "- no row in this column: second" in page.splitlines()


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
    assert f"{GOLD}: no such part (all rows)" in page


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
    *pages, html, svg = write_results(paper, [row, *points], records, tmp_path)
    text = "\n".join(page.read_text() for page in pages)
    shown = re.findall(r"[^|\n]*98\.[78][^|\n]*|[^|\n]*95\.4[^|\n]*", text)
    assert len(shown) == 5
    assert all("oracle" in cell for cell in shown)
    cells = re.findall(r"<t[dh][^>]*>([^<]*(?:98\.76|95\.43)[^<]*)<", html.read_text())
    assert len(cells) == 4
    assert all("oracle" in cell for cell in cells)
    assert "best on test (oracle)" in svg.read_text()


def several_measures():
    """Return a paper whose table shows three measures, its rows and their records."""
    plan = TablePlan("t1", "Table 1", ("balanced_accuracy", "balanced_f1", "macro_f1"), ("Set",))
    printed = [
        {"metric": "balanced_accuracy", "value": 0.9},
        {"metric": "balanced_f1", "value": 0.8},
    ]
    rows = [make_row("first", printed), make_row("second")]
    extra = {"balanced_accuracy": 0.75, "balanced_f1": 0.5, "other": 3.0}
    records = [record for row in rows for record in make_records(row, [0.7, 0.7], extra=extra)]
    elsewhere = make_row("third", {**printed[0], "value": 0.7}, label="first", column="Other")
    return make_paper(tables=(plan,)), [*rows, elsewhere], records


def test_a_table_of_several_measures_is_shown_once_for_each():
    paper, rows, records = several_measures()
    page = to_markdown(make_page(paper, rows, records))
    headings = ["### balanced accuracy", "### balanced f1", "### macro-F1", "### Further measures"]
    places = [page.index(heading) for heading in headings]
    assert places == sorted(places)
    assert page.count("## Table 1") == 1
    parts = zip(places, [*places[1:], page.index("## Not run")], strict=True)
    first, second, third, further = (page[start:end] for start, end in parts)
    # Columns side by side, in the plan's order, then those that rows bring.
    assert line_of(first, "") == ["", "Set", "Other"]
    figures = ["75.00 ± 0.00 (2); paper 90.00", "not run; paper 70.00"]
    assert line_of(first, "first")[1:] == figures
    assert line_of(second, "first")[1:] == ["50.00 ± 0.00 (2); paper 80.00", "not run"]
    # What has no printed figure, or no row; a measure of a protocol.
    assert line_of(first, "second") == ["second", "75.00 ± 0.00 (2)", "–"]
    assert line_of(third, "first")[1] == "50.00 ± 0.00 (2)"
    assert "shares in per cent" in page
    assert line_of(further, "first") == ["first", "Set", "other", "3 ± 0 (2)"]
    assert "balanced" not in further
    html = to_html(make_page(paper, rows, records))
    assert all(f"<h3>{heading[4:]}</h3>" in html for heading in headings)
    assert html.count("<h2>Table 1</h2>") == 1


def test_no_table_lists_the_measures_of_another():
    paper, rows, records = several_measures()
    other = TablePlan("t2", "Table 2", ("other", "accuracy"))
    page = to_markdown(make_page(make_paper(tables=(*paper.tables, other)), rows, records))
    assert "Further measures" not in page


def test_a_claim_is_compared_with_the_printed_figures_of_its_measure():
    rows = [
        make_row(
            name,
            [{"metric": "macro_f1", "value": value / 2}, {"metric": "accuracy", "value": value}],
        )
        for name, value in (("a", 0.9), ("b", 0.7))
    ]
    runs = {
        row.id: make_records(row, values)
        for row, values in zip(rows, ([0.91, 0.89, 0.9], [0.7, 0.71, 0.72]), strict=True)
    }
    test = {"kind": "paired", "better": "m/a", "than": "m/b", "by": 0.0}
    for metric, theirs in (("accuracy", "+20.00"), ("macro_f1", "+10.00")):
        found = judge(
            {**test, "metric": metric, "selection": LAST}, {row.id: row for row in rows}, runs
        )
        assert f"the paper reports {theirs}" in found.why


def test_the_best_of_several_rows_is_the_one_to_beat():
    rows = {f"m/{name}": make_row(name) for name in "abc"}
    values = {"a": [0.90, 0.89, 0.91], "b": [0.70, 0.71, 0.72], "c": [0.85, 0.86, 0.84]}
    runs = {f"m/{name}": make_records(rows[f"m/{name}"], found) for name, found in values.items()}
    test = {"kind": "best", "better": "m/a", "than": ["m/b", "m/c"], "by": 0.0}
    test |= {"metric": "accuracy", "selection": LAST}
    found = judge(test, rows, runs)
    assert found.verdict == "holds"
    assert found.why.startswith("best of 2: c; accuracy, last epoch: +5.00 points")
    assert judge({**test, "by": 0.1}, rows, runs).verdict == "does not hold"
    lower = judge({**test, "better": "m/b", "than": ["m/a", "m/c"]}, rows, runs)
    assert (lower.verdict, lower.why[:12]) == ("does not hold", "best of 2: a")
    missing = judge({**test, "than": ["m/b", "m/d"]}, rows, runs)
    assert missing.verdict == "not run"
    assert "m/d" in missing.why


def test_the_papers_best_row_is_the_one_that_it_beats():
    # Ours is c, by .05; the paper's is b, by .02, and c by .1.
    figures = {"a": 0.92, "b": 0.90, "c": 0.82, "d": None}
    rows = {
        f"m/{name}": make_row(name, value and published(value, "last epoch"))
        for name, value in figures.items()
    }
    values = {"a": [0.90, 0.89, 0.91], "b": [0.70, 0.71, 0.72], "c": [0.85, 0.86, 0.84]}
    values["d"] = [0.5, 0.5, 0.5]
    runs = {f"m/{name}": make_records(rows[f"m/{name}"], found) for name, found in values.items()}
    test = {"kind": "best", "better": "m/a", "than": ["m/b", "m/c", "m/d"], "by": 0.0}
    test |= {"metric": "accuracy", "selection": LAST}
    why = judge(test, rows, runs).why
    assert why.startswith("best of 3: c; accuracy, last epoch: +5.00 points")
    assert why.endswith("; the paper reports +2.00 against its best, b (+10.00 against c)")
    # That the paper's figure is excluded is said of the difference from its own best.
    runs["m/c"] = make_records(rows["m/c"], [0.899, 0.889, 0.911])
    printed = {**test, "than": ["m/b", "m/c"]}
    undecided = judge(printed, rows, runs)
    assert undecided.verdict == "undecided, but excludes the paper's figure"
    said = "+2.00 against its best, b, which the interval excludes (+10.00 against c)"
    assert said in undecided.why
    # Where both have the same best, there is one difference; of an unprinted row there is none.
    same = judge({**test, "than": ["m/c", "m/d"]}, rows, runs).why
    assert "the paper reports +10.00" in same
    assert "its best" not in same
    assert "the paper" not in judge({**printed, "better": "m/d"}, rows, runs).why
    # Where our best is not printed: the paper's own best remains.
    runs["m/d"] = make_records(rows["m/d"], [0.95, 0.96, 0.94])
    why = judge(test, rows, runs).why
    assert why.startswith("best of 3: d;")
    assert "the paper reports +2.00 against its best, b" in why
    assert "against d" not in why


def test_the_best_of_several_rows_is_compared_by_the_seeds_that_it_was_chosen_by():
    """Two seeds are common to all; by the others, c is better by far."""
    rows = {f"m/{name}": make_row(name) for name in "abc"}
    accuracies = {"a": [0.80, 0.83, 0.80, 0.83], "b": [0.70, 0.70], "c": [0.79, 0.80, 0.95, 0.95]}
    runs = {f"m/{name}": make_records(rows[f"m/{name}"], accuracies[name]) for name in "abc"}
    test = {"kind": "best", "better": "m/a", "than": ["m/b", "m/c"], "by": 0.0}
    found = judge({**test, "metric": "accuracy", "selection": LAST}, rows, runs)
    assert found.why.startswith("best of 2: c; accuracy, last epoch: +2.00 points")


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
    # Run again, by other code.
    records.append(make_record(row, 2, 0.8, commit="newer", started="2026-03-03"))
    assert latest_records([row], records)["m/first"] == {0: done, 2: records[-1]}
    # Fails on other data.
    more = {"data_checksum": "other", "started": "2026-03-04"}
    records.append(make_record(row, 2, status="failed", **more))
    assert latest_records([row], records)["m/first"] == {2: records[-1]}


def test_rows_that_differ_only_in_name_share_runs_made_under_one_of_their_names():
    first = make_row("first", seeds=(0, 1))
    second = replace(first, id="m/second", label="second")
    assert first.key == second.key
    records = make_records(first, [0.5, 0.6, 0.7])
    found = latest_records([first, second], records)
    assert list(found["m/second"].values()) == list(found["m/first"].values()) == records
    other = make_row("other", seeds=(0, 1), data={"name": "music"})
    assert latest_records([other], records) == {"m/other": {}}


def test_a_mean_is_of_runs_on_the_same_data():
    row = make_row("first")
    earlier = make_records(row, [0.5, 0.6, 0.7])
    later = [make_record(row, 0, 0.1, started="2026-03-01", data_checksum="other")]
    assert list(latest_records([row], earlier + later)["m/first"].values()) == later


def test_data_made_anew_with_every_seed_differ_from_seed_to_seed():
    row = make_row("first", data={"factory": "m:f", "random_state": "seed"})
    records = [make_record(row, k, 0.5 + 0.1 * k, data_checksum=f"data {k}") for k in range(3)]
    assert line_of(to_markdown(make_page(make_paper(), [row], records)), "first")[1].endswith("(3)")


def test_the_page_says_how_its_runs_are_made_again_and_how_long_they_take():
    row = make_row("first", seeds=(0, 1))
    records = [make_record(row, s, 0.8, seconds=t) for s, t in enumerate((3600.0, 7200.0))]
    page = to_markdown(make_page(make_paper(), [row], records))
    assert "by: python -m evidence reproduce p && python -m evidence results p." in page
    assert "The 2 different runs on the CPU took 3.00 hours, each on one core." in page
    assert "the fastest run of its row, they would take 2.00. All" in page
    # More runs than the row names seeds.
    records.append(make_record(row, 2, 0.8, seconds=3600.0))
    page = to_markdown(make_page(make_paper(), [row], records))
    runs = [f"python -m evidence reproduce p{more} && " for more in ("", " --hanging 10")]
    assert "".join(runs) + "python -m evidence res" in page
    told = (
        "would take 3.00; the runs with the seeds that the rows name would take 2.00 of these. All"
    )
    assert told in page


def test_hours_on_a_gpu_are_told_apart():
    rows = [make_row("first", seeds=(0,)), make_row("second", seeds=(0,), device="gpu")]
    records = [make_record(row, 0, 0.8, seconds=1800.0) for row in rows]
    page = to_markdown(make_page(make_paper(), rows, records))
    assert "The 1 different runs on the CPU took 0.50 hours" in page
    assert (
        "would take 0.50. Runs on a GPU, possibly shared with other work: 1, 0.50 hours. All"
        in page
    )


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
    parts = {"t1.md", "f1.md", "records.md"}
    assert set(pages[0]) == {"p.md", "p.html", "p-f1.svg"} | parts
    # Dates are the records'.
    dates = set(re.findall(rb"20\d\d-\d\d-\d\d", b"".join(pages[0].values())))
    assert dates == {b"2026-01-01", b"2026-01-02"}


def test_names_of_other_people_do_no_harm(tmp_path):
    row = make_row("<script>alert(1)</script>", published(0.9), label="<script>x|y</script>\n# z")
    points = make_row("p1", table="p/f1", data={"k": 1}, label="<b>&</b>")
    figure = FigurePlan("f1", "<i>", "lines", "accuracy", LAST, "data.k", "<k>", (), (), ())
    records = [*make_records(row, [0.5]), *make_records(points, [0.5])]
    paper = make_paper(figures=(figure,))
    *pages, html, svg = write_results(paper, [row, points], records, tmp_path)
    for path in (*pages, html, svg):
        text = path.read_text()
        assert "<script" not in text
        assert "<b>" not in text
        assert path.suffix != ".md" or "\n# z" not in text
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


# -- figures of what training noted ------------------------------------------------------------


def draw_history(own, records, **changes):
    """Return the drawing (None without one) and the page's text of a figure of histories."""
    figure = FigurePlan(
        "f8", "Fig. 8", "history", "imbalance", LAST, "round", "the round", *[()] * 3
    )
    figure = replace(figure, **{"table": "t1", **changes})
    page = make_page(make_paper(figures=(figure,)), own, records)
    (section,) = [s for s in page.sections if s.title == "Fig. 8"]
    drawn = [block.svg for block in section.blocks if isinstance(block, Figure)]
    text = to_markdown(replace(page, sections=[section]))
    assert len(drawn) <= 1
    return drawn[0] if drawn else None, text


def test_a_curve_is_the_mean_of_the_seeds_that_have_a_value():
    row = make_row("first")
    records = [
        note(row, 0, round=[0, 1, 2], imbalance=[2.0, 4.0, 9.0]),
        note(row, 1, round=[0, 1], imbalance=[2.0, 8.0]),
        # A round without a value, and one without a place.
        note(row, 2, round=[0, 1, None], imbalance=[5.0, None, 100.0]),
    ]
    svg, text = draw_history([row], records)
    assert re.findall(r"<title>(first[^<]*)<", svg) == [
        "first, 0: 3 ± 1.732 (3)",
        "first, 1: 6 ± 2.828 (2)",
        "first, 2: 9 (1)",
    ]
    assert line_of(text, "first")[1:] == ["3 ± 1.732 (3)", "6 ± 2.828 (2)", "9 (1)"]
    assert "|  | 0 | 1 | 2 |" in text
    assert "imbalance, by the round: mean ± sd (seeds) of the runs of: Table 1." in text
    # x from 58 (0) to 366 (2), y from 216 (0) to 34 (10).
    (points,) = re.findall(r'<polyline[^>]* points="([^"]*)"', svg)
    assert points == "58,161.4 212,106.8 366,52.2"
    (band,) = re.findall(r'<polygon[^>]* points="([^"]*)"', svg)
    upper = [216 - 18.2 * y for y in (3 + 3**0.5, 6 + 8**0.5, 9)]
    assert [float(pair.split(",")[1]) for pair in band.split()[:3]] == pytest.approx(
        upper, abs=0.05
    )
    assert 'class="bar' not in svg
    # The label of the table that has no run.
    assert "imbalance by round of second (Set)" in text


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ("test_accuracy", "25.00 ± 7.07 (2)"),
        ("macro_f1", "25.00 ± 7.07 (2)"),
        ("majority_precision", "25.00 ± 7.07 (2)"),
        ("minority_recall", "25.00 ± 7.07 (2)"),
        ("loss", "0.25 ± 0.07071 (2)"),
        ("inaccuracy", "0.25 ± 0.07071 (2)"),
    ],
)
def test_shares_of_a_history_are_in_per_cent(column, shown):
    row = make_row("first")
    records = [note(row, k, **{"round": [0, 1], column: [v, v]}) for k, v in enumerate((0.2, 0.3))]
    svg, text = draw_history([row], records, metric=column)
    assert line_of(text, "first")[1:] == [shown, shown]
    assert (" in %<" in svg) == (": 25 ±" in svg) == ("25.00" in shown)


def test_a_logarithmic_axis_has_its_decades_at_equal_distances():
    row = make_row("first", extra=("m:f",))
    noted = {"round": [0, 1, 2, 3], "imbalance": [1.0, 10.0, 1000.0, 0.0]}
    records = [make_record(row, 0, 0.5, history=noted, extra={"gold": 100.0, "none": 0.0})]
    level = (Level("gold", "gold labels"), Level("missing", "other"), Level("none", "no place"))
    svg, text = draw_history([row], records, log=True, levels=level)
    # 1 to 1000 over 216 to 34 pixels: 60.67 a decade; 0 has no place.
    (points,) = re.findall(r'<polyline[^>]* points="([^"]*)"', svg)
    assert [pair.split(",")[1] for pair in points.split()] == ["216", "155.3", "34"]
    assert re.findall(r'text-anchor="end"[^>]*>([^<]*)<', svg) == ["1", "10", "100", "1000"]
    (height,) = re.findall(r'class="level"[^>]* y1="([^"]*)"[^>]*><title>gold labels: 100<', svg)
    assert height == "94.7"
    assert line_of(text, "first")[1:] == ["1 (1)", "10 (1)", "1000 (1)", "0 (1)"]
    assert svg.count('class="level"') == 2  # with its key in the legend
    assert "gold labels: 100 (1); no place: 0 (1)." in text
    assert "- missing (Set)" in text
    # Nothing but what has no place: no drawing, a table still.
    none = [note(row, 0, round=[0], imbalance=[0.0])]
    svg, text = draw_history([row], none, log=True)
    assert svg is None
    assert line_of(text, "first")[1:] == ["0 (1)"]


def test_a_band_ends_with_a_logarithmic_axis():
    row = make_row("first")
    # 3 ± 2.83 and 6 ± 5.66: the axis begins at 2, beneath the smallest mean.
    records = [note(row, k, round=[0, 1], imbalance=[v, 2 * v]) for k, v in enumerate((1.0, 5.0))]
    svg, _ = draw_history([row], records, log=True)
    assert re.findall(r'text-anchor="end"[^>]*>([^<]*)<', svg) == ["2", "5", "10", "20"]
    (band,) = re.findall(r'<polygon[^>]* points="([^"]*)"', svg)
    assert [pair.split(",")[1] for pair in band.split()[2:]] == ["216", "216"]


def test_panels_and_lines_are_those_of_the_table_or_the_figures_choice():
    rows = [
        make_row(f"{column}_{label}", label=label, column=column)
        for column in ("Set", "Other")
        for label in ("first", "second")
    ]
    # Another table's, and one of the same label.
    rows += [make_row("elsewhere", table="p/t2"), make_row("again", label="first", column="Other")]
    records = [note(row, 0, round=[0, 1], imbalance=[1.0, 2.0]) for row in rows]
    svg, text = draw_history(rows, records)
    assert re.findall(r'class="title"[^>]*>([^<]*)<', svg) == ["Set", "Other"]
    assert svg.count("<polyline") == 5
    assert line_of(text, "first (m/again)")[1:] == ["1 (1)", "2 (1)"]
    assert "elsewhere" not in text
    svg, text = draw_history(rows, records, columns=("Other",), rows=("second",))
    assert re.findall(r'class="title"[^>]*>([^<]*)<', svg) == ["Other"]
    assert svg.count("<polyline") == 1
    assert "No finished run" not in text


def test_epochs_are_counted_over_stages():
    row = make_row("first")
    records = [note(row, 0, stage=[0, 0, 1, 1], epoch=[1, 2, 1, 2], loss=[4.0, 3.0, 2.0, 1.0])]
    _, text = draw_history([row], records, metric="loss", x="epoch")
    assert "|  | 1 | 2 | 3 | 4 |" in text
    assert line_of(text, "first")[1:] == ["4 (1)", "3 (1)", "2 (1)", "1 (1)"]
    # Not where the runs have no epochs.
    svg, text = draw_history([row], records, metric="loss", x="round")
    assert svg is None
    assert "- loss by round of first (Set)" in text


def test_a_stage_is_drawn_alone_and_counted_by_itself():
    row = make_row("first")
    columns = {"stage": ["start", "start", "late", "late"], "epoch": [1, 2, 1, 2]}
    records = [note(row, 0, **columns, loss=[4.0, 3.0, 2.0, 1.0])]
    _, text = draw_history([row], records, metric="loss", x="epoch", stage="late")
    assert "|  | 1 | 2 |" in text
    assert line_of(text, "first")[1:] == ["2 (1)", "1 (1)"]
    assert "Table 1, stage late." in text
    svg, text = draw_history([row], records, metric="loss", x="epoch", stage="early")
    assert svg is None
    assert "- loss by epoch in stage early of first (Set)" in text


def test_a_profile_is_a_mean_of_vectors():
    row, other = make_row("first"), make_row("second")
    vectors = ([0.5, 1.0], [0.7, 0.8])
    records = [
        make_record(row, k, 0.5, extra={"taken": [0.1, 1.0], "top_accuracy": values})
        for k, values in enumerate(vectors)
    ]
    # Of other lengths, and no vector: no curve.
    records.append(make_record(row, 2, 0.5, extra={"taken": [0.1], "top_accuracy": [0.1, 0.2]}))
    records.append(make_record(other, 0, 0.5, extra={"taken": [0.1, 1.0], "top_accuracy": 0.5}))
    changes = {"kind": "profile", "metric": "top_accuracy", "x": "taken", "x_label": "share"}
    svg, text = draw_history([row, other], records, **changes)
    assert "top accuracy in %" in svg
    assert "first, 0.1: 60 ± 14.14 (2)" in svg
    assert "|  | 0.1 | 1 |" in text
    assert line_of(text, "first")[1:] == ["60.00 ± 14.14 (2)", "90.00 ± 14.14 (2)"]
    assert "- top_accuracy by taken of second (Set)" in text


def test_a_row_without_an_x_stands_at_the_figures():
    rows = [
        make_row("none", table="p/f1", label="ours"),
        make_row("some", table="p/f1", label="ours", data={"name": "labelme", "k": 0.5}),
    ]
    records = [r for row in rows for r in make_records(row, [0.5])]
    figure = FigurePlan("f1", "F", "lines", "accuracy", LAST, "data.k", "k", (), (), ())
    page = make_page(make_paper(figures=(replace(figure, x_absent=0.0),)), rows, records)
    text = to_markdown(page).split("### Set")[-1]
    assert "|  | 0 | 0.5 |" in text
    assert figure.place(rows[0]) is None


@pytest.mark.parametrize(
    ("n", "shown"), [(15, list(range(1, 16))), (16, [1, 3, 5, 7, 9, 11, 13, 15, 16]), (100, None)]
)
def test_a_table_of_many_places_has_some_with_the_first_and_last(n, shown):
    row = make_row("first")
    epochs = list(range(1, n + 1))
    svg, text = draw_history(
        [row],
        [note(row, 0, epoch=epochs, loss=[float(k) for k in epochs])],
        x="epoch",
        metric="loss",
    )
    shown = shown or [*range(1, 98, 8), 100]
    assert line_of(text, "first")[1:] == [f"{k} (1)" for k in shown]
    assert len(shown) <= 15
    assert ("the drawing has all" in text) == (n > 15)
    # Dots that would hide the line are left out.
    assert svg.count("<circle") == (n if n <= 30 else 0)
    (points,) = re.findall(r'<polyline[^>]* points="([^"]*)"', svg)
    assert len(points.split()) == n


def test_figures_of_a_sheet_share_a_drawing(tmp_path):
    """It stands ahead of their numbers, wherever the file describes them."""
    row = make_row("first")
    records = [
        note(row, k, round=[0, 1], imbalance=[1.0 + k, 3.0], loss=[9.0, 4.0]) for k in (0, 1)
    ]
    alone = FigurePlan(
        "f1", "Alone", "history", "loss", LAST, "round", "round", *[()] * 3, table="t1"
    )
    one = replace(alone, id="f2a", title="One", metric="imbalance", log=True, sheet="f2")
    other = replace(alone, id="f2b", title="Other", sheet="f2")
    empty = replace(alone, id="f3", title="Empty", metric="nothing", sheet="f3")
    paper = make_paper(figures=(one, alone, other, empty), sheets={"f2": "Both", "f3": "None"})
    page = make_page(paper, [row], records)
    sections = {s.title: s for s in page.sections if s.title in ("Both", "One", "Alone", "Other")}
    assert list(sections) == ["Both", "One", "Other", "Alone"]
    drawn = {
        title: [block for block in section.blocks if isinstance(block, Figure)]
        for title, section in sections.items()
    }
    assert {title: len(found) for title, found in drawn.items()} == {
        "Both": 1, "One": 0, "Other": 0, "Alone": 1,
    }  # fmt: skip
    (sheet,) = drawn["Both"]
    assert re.findall(r'class="title"[^>]*>([^<]*)<', sheet.svg) == ["One", "Set", "Other", "Set"]
    assert sheet.caption == (
        "Both. Lines: mean over seeds; bands: ± one standard deviation. "
        "A logarithmic axis cuts bands and leaves out 0 and less."
    )
    # Two narrow drawings stand side by side; each keeps its own description.
    assert sheet.drawing.height < 2 * drawn["Alone"][0].drawing.height
    assert "One: imbalance by round" in sheet.svg
    assert "Other: loss by round" in sheet.svg
    # Without a finished run there is no sheet, and the figure says what is missing.
    (none,) = [s for s in page.sections if s.title in ("None", "Empty")]
    assert none.title == "Empty"
    written = write_results(paper, [row], records, tmp_path)
    parts = {"p/t1.md", "p/f1.md", "p/f2.md", "p/f3.md", "p/records.md"}
    names = {str(path.relative_to(tmp_path)) for path in written}
    assert names == {"p.md", "p.html", "p-f1.svg", "p-f2.svg"} | parts
    assert "](../p-f2.svg)" in (tmp_path / "p" / "f2.md").read_text()
    assert (tmp_path / "p-f2.svg").read_text() == sheet.svg
    assert sheet.svg.strip() in (tmp_path / "p.html").read_text()


def test_a_figure_of_histories_is_reproducible(tmp_path):
    rows = [make_row("first"), make_row("second")]
    for row in rows:
        for k in range(3):
            write_record(tmp_path / "results", note(row, k, round=[0, 1], imbalance=[1.0 + k, 3.0]))
    plan = FigurePlan(
        "f8", "F", "history", "imbalance", LAST, "round", "round", *[()] * 3, table="t1"
    )
    pages = []
    for k in range(2):
        records = read_records(tmp_path / "results")
        random.Random(k).shuffle(records)
        random.Random(k).shuffle(rows)
        written = write_results(make_paper(figures=(plan,)), rows, records, tmp_path / f"out{k}")
        pages.append({path.name: path.read_bytes() for path in written})
    assert pages[0] == pages[1]
    assert pages[0]["p-f8.svg"].strip() in pages[0]["p.html"]


def test_a_table_warns_where_rows_of_a_column_have_other_numbers_of_seeds():
    first, second, other = make_row("first"), make_row("second"), make_row("other", column="Else")
    warning = "compare them by differences paired by seed"
    for accuracies, warned in (([0.8, 0.9], False), ([0.8, 0.9, 0.7], True)):
        records = [*make_records(first, [0.8, 0.9]), *make_records(second, accuracies)]
        records += make_records(other, [0.8])
        page = to_markdown(make_page(make_paper(), [first, second, other], records))
        assert (warning in page) == warned


def test_a_figure_warns_where_its_lines_have_other_numbers_of_seeds():
    first = make_row("first", table="p/f1", data={"name": "s", "k": 1})
    second = make_row("second", table="p/f1", data={"name": "s", "k": 1})
    figure = FigurePlan("f1", "F", "lines", "accuracy", LAST, "data.k", "k", (), (), ())
    for accuracies, warned in (([0.8, 0.9], False), ([0.8, 0.9, 0.7], True)):
        records = [*make_records(first, [0.8, 0.9]), *make_records(second, accuracies)]
        page = to_markdown(make_page(make_paper(figures=(figure,)), [first, second], records))
        assert ("compare them by differences paired by seed" in page) == warned


class TestWhichRowsDeviate:
    @staticmethod
    def told(grid):
        """Lines of a table of rows by columns; each cell names its deviations by letters."""
        rows = [
            make_row(label, column=column, deviations=tuple(letters))
            for label, cells in grid.items()
            for column, letters in cells.items()
        ]
        blocks = deviations(rows)
        return {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in blocks[0].items}

    def test_whole_columns_and_whole_rows_are_named_once(self):
        found = self.told(
            {
                "A": {"X": "abc", "Y": "acf", "Z": "a"},
                "B": {"X": "abe", "Y": "ae", "Z": "aed"},
                "C": {"X": "ab", "Y": "acf", "Z": "ad"},
            }
        )
        assert found == {
            "a": "(all rows)",
            "b": "(column X)",
            "c": "(on X: A; on Y: all but B)",
            "d": "(on Z: all but A)",
            "e": "(row B)",
            "f": "(on Y: all but B)",
        }

    def test_several_whole_columns_and_rows_are_counted(self):
        grid = {"A": {"X": "ab", "Y": "ab", "Z": "b"}, "B": {"X": "ab", "Y": "ab", "Z": "b"}}
        grid["C"] = {"X": "a", "Y": "a", "Z": ""}
        assert self.told(grid) == {"a": "(columns X, Y)", "b": "(rows A, B)"}

    def test_columns_with_the_same_rows_share_their_names(self):
        found = self.told(
            {
                "A": {"X": "a", "Y": "a", "Z": "ab"},
                "B": {"X": "", "Y": "", "Z": "b"},
                "C": {"X": "", "Y": "", "Z": "b"},
                "D": {"X": "b", "Y": "b", "Z": "b"},
            }
        )
        assert found == {"a": "(row A)", "b": "(column Z; row D)"}

    def test_a_row_that_deviates_at_some_points_only_is_not_whole(self):
        points = (("A", "X", "a"), ("A", "X", ""), ("B", "X", "a"), ("B", "Y", ""))
        rows = [make_row(label, column=c, deviations=tuple(own)) for label, c, own in points]
        (block,) = deviations(rows)
        assert block.items == ["a (on X: A, B)"]

    def test_an_only_column_has_no_name_and_commas_are_told_apart(self):
        found = self.told({"A": {"X": "ab"}, "B, C": {"X": "ab"}, "D": {"X": "a"}, "E": {"X": ""}})
        assert found == {"a": "(all but E)", "b": "(A, “B, C”)"}


def test_a_commit_with_changes_that_were_not_committed_keeps_its_plus():
    row = make_row("first")
    for commit, told in (("0123456789", False), ("0123456789+", True)):
        records = [replace(each, commit=commit) for each in make_records(row, [0.8, 0.9])]
        page = to_markdown(make_page(make_paper(), [row], records))
        assert ("| 01234567+ |" in page) == told
        assert ("not committed yet" in page) == told


def test_the_page_says_what_the_last_rerun_found():
    rows = [make_row(name, seeds=(0,)) for name in ("first", "second", "third")]
    records = [make_record(row, 0, 0.8) for row in rows]
    page = to_markdown(make_page(make_paper(), rows, records))
    assert "No rerun has compared these records with later code yet." in page
    reruns = {
        "m/first": Rerun(rows[0].key, 0, "0123456789", "2026-12-01", None),
        "m/second": Rerun(rows[1].key, 0, "0123456789", "2026-12-02", "extra /auc: 1 now"),
        # The row was another one then.
        "m/third": Rerun(rows[0].key, 0, "0123456789", "2026-12-01", None),
    }
    page = to_markdown(make_page(make_paper(), rows, records, reruns))
    assert "one seed of 2 of the 3 rows again" in page
    assert "| 01234567 | 2026-12-01 to 2026-12-02 | 2 | 1 |" in page
    assert "| m/second | 0 | 01234567 | extra /auc: 1 now |" in page
