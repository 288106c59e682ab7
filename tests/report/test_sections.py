"""A section of one's own, and what all sections keep to."""

import json
from importlib import resources

import numpy as np
import pytest

from manyhands import (
    AnnotationTable,
    DawidSkene,
    MajorityVote,
    make_crowd,
    render_report,
    summarize,
)
from manyhands.codes import ActionCode, Flag, WarningCode
from manyhands.planning.screening import ADVICE
from manyhands.report import SECTIONS, Action, Section, summary_tables
from manyhands.report.confusions import rounded
from manyhands.report.counts import answer_classes, told_of_rarest
from manyhands.report.label_sets import SET_SECTIONS
from manyhands.report.ratings import RATING_SECTIONS
from manyhands.report.section import Findings
from tests.report.conftest import Page


def tired_section(found):
    """The last instance, for a section that the report does not have."""
    table = found.inputs.table
    return {"last": table.instances[-1].item(), "n": table.n_annotations} if len(table) else None


def tired_actions(found):
    own = found.once(tired_section)
    yield Action("rest", "tired", "Take a <rest>", f"After {own['n']}.", 1e15, ["sit", "lie"])


@pytest.fixture
def tired(tmp_path):
    template = tmp_path / "any name.html"
    template.write_text("<p>{{ m.instance(s.tired.last) }}, {{ word }} {{ 1|count('time') }}</p>")
    return Section(
        "tired",
        "Who is tired?",
        template,
        tired_section,
        actions=tired_actions,
        instances=lambda own: [(0, [own["last"]])],
        tables=lambda own: [("of_the_tired", [{"n": own["n"]}])],
        words={"word": "slept"},
    )


def test_a_section_of_ones_own_is_in_json_and_on_the_page(tired):
    A = np.array([[0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 0, 1]])
    sections = (*SECTIONS[:3], tired, *SECTIONS[3:])
    summary = json.loads(json.dumps(summarize(A, sections=sections)))
    assert summary["tired"] == {"last": 3, "n": 12}
    assert summary["items"]["rows"][0]["id"] == 3
    first = summary["actions"][0]
    assert (first["code"], first["section"], first["rows"]) == ("rest", "tired", ["sit", "lie"])
    html = render_report(summary, sections=sections)
    page = Page(html)
    page.check_harmless()
    assert [key for key in page.ids if key in ("agreement", "tired", "gold", "annotators")] == [
        *("agreement", "tired", "annotators")
    ]
    assert '<a href="#item-1">' in html
    assert "slept 1\xa0time" in html
    assert "Take a &lt;rest&gt;" in html
    assert "<li>sit</li>" in html
    plain = summarize(A)
    assert plain == summarize(A, sections=SECTIONS)
    assert "tired" not in plain
    assert "tired" not in Page(render_report(summary)).ids


def test_a_section_without_content_is_not_on_the_page(tired):
    empty = AnnotationTable.from_arrays([], [], [], classes=["a"])
    nothing = Section("tired", tired.heading, tired.template, tired_section)
    sections = (*SECTIONS, nothing)
    summary = summarize(empty, sections=sections)
    assert summary["tired"] is None
    assert "tired" not in Page(render_report(summary, sections=sections)).ids


def test_what_is_found_is_found_once():
    asked = []

    def find(found):
        asked.append(found)
        return len(asked)

    found = Findings(inputs=None)
    assert [found.once(find), found.once(find)] == [1, 1]
    assert asked == [found]


def test_every_section_has_its_own_key_and_template():
    folder = resources.files("manyhands.report") / "templates"
    assert len({each.key for each in SECTIONS}) == len(SECTIONS)
    templates = {each.template for each in (*SECTIONS, *RATING_SECTIONS, *SET_SECTIONS)}
    templates |= {"report.html", "_macros.html"}
    assert templates <= {f.name for f in folder.iterdir() if f.name.endswith(".html")}


def test_tables_of_sections_have_names_of_their_own(full):
    names = [
        name for each in SECTIONS if full.get(each.key) for name, _ in each.tables(full[each.key])
    ]
    assert len(names) == len(set(names)) > 4
    assert set(names) <= set(summary_tables(full))


def test_codes_are_text(full):
    assert {each["code"] for each in full["warnings"]} <= {*WarningCode}
    assert {each["code"] for each in full["actions"]} <= {*ActionCode}
    assert [*ADVICE] == [*Flag]
    assert repr((Flag.DRIFT, "drift")) == "('drift', 'drift')"
    assert json.dumps([Flag.DRIFT]) == '["drift"]'


@pytest.mark.filterwarnings("ignore")
def test_counts_of_confusions_sum_to_the_number_of_wrong_annotations():
    assert rounded(np.array([2288.6, 841.7])).tolist() == [2288, 842]  # 3130.3 in all.
    assert rounded(np.array([2.4, 1.4])).tolist() == [3, 1]  # 3.8 in all.
    assert rounded(np.full(10, 0.3)).tolist() == [0] * 10  # Hardly anything in each.
    for seed in range(5):
        table = make_crowd([0, 1, 1, 1] * 30, annotations_per_instance=3, random_state=seed)
        found = summarize(table, aggregator=DawidSkene().fit(table))["confusions"]
        assert sum(pair["n"] for pair in found["pairs"]) == found["n_wrong"] > 0
        matrix = np.array(found["matrix"])
        assert matrix.sum() - matrix.trace() == found["n_wrong"]


def spaced(text):
    """Write a text with ordinary spaces."""
    return " ".join(text.split())


def test_a_rare_class_is_named_with_its_recall_or_that_it_is_not_measured():
    y = np.array([0] * 54 + [1] * 6)
    A = np.repeat(y[:, None], 3, axis=1)
    A[54] = 0  # One item of the rare class gets the other label.
    table = AnnotationTable.from_matrix(A)
    voted = MajorityVote().fit(table)
    plain, measured = (summarize(table, aggregator=voted, gold=g) for g in (None, y))
    told = spaced(told_of_rarest(plain["classes"]["rarest"]))
    assert told.startswith("The rarest class is “1”, with 8.3 % of the labels. Only gold labels")
    told = spaced(told_of_rarest(measured["classes"]["rarest"]))
    assert told.endswith("Of 6 items whose gold label is “1”, 5 have this label (83.3 % recall).")
    assert told in spaced("".join(Page(render_report(measured)).text))
    assert spaced(answer_classes(plain)[1]) == (
        "The most frequent class is “0”: 91.7 % of the annotations, 91.7 % of the labels."
    )
    assert summarize(table[50:])["classes"]["rarest"] is None  # 5 of each class.
