"""The opening page of a paper: its conclusion, its picture, and where its parts are."""

import re

import pytest

from evidence.experiments.papers import Claim
from evidence.pages.claims import question_of
from evidence.pages.page import write_results
from evidence.pages.what_holds import PAPERS, claims, every_claim
from tests.evidence.conftest import make_paper, make_records, make_row


def paired(name, better, than, origin="paper"):
    test = {"kind": "paired", "better": better, "than": than, "metric": "accuracy", "by": 0.0}
    return Claim(name, f"{name}.", origin, {**test, "selection": "last epoch"})


def written(tmp_path, **parts):
    rows = [make_row("first"), make_row("second")]
    values = {"first": [0.8, 0.82, 0.81], "second": [0.6, 0.63, 0.61]}
    records = [r for row in rows for r in make_records(row, values[row.label])]
    found = [paired("better-a", rows[0].id, rows[1].id), paired("worse-a", rows[1].id, rows[0].id)]
    found.append(paired("better-b", rows[0].id, rows[1].id, "variant"))
    questions = {"first beats second": "better", "second beats first": "worse"}
    paper = make_paper(claims=tuple(found), **{"questions": questions, **parts})
    write_results(paper, rows, records, tmp_path, ("md",))
    return (tmp_path / "p.md").read_text()


def test_it_begins_with_what_was_found(tmp_path):
    text = written(tmp_path, about="*first* is ours.")
    lead = text.split("\n\n")[2]
    assert lead.startswith("Of the 2 claims that the paper makes on its own data, ")
    assert "1 hold in our runs, 1 do not, and 0 are undecided." in lead
    assert "Every test confirms that first beats second." in lead
    assert "Tests contradict the claim that second beats first." in lead
    assert text.index("(p-claims.svg)") < text.index("*first* is ours.") < text.index("## Table 1")
    assert text.index("## Claims") < text.index("## Where this comes from")
    svg = (tmp_path / "p-claims.svg").read_text()
    # The paper's own claims alone: one holds, one does not.
    assert re.findall(r'class="count"[^>]*>(\d+)<', svg) == ["1", "1"]
    # The page of claims has the variant, too.
    counted = (tmp_path / "p" / "claims.md").read_text()
    assert "| first beats second: variants | 1 |" in counted


def test_the_main_table_stands_in_brief_and_its_page_has_the_rest(tmp_path):
    text = written(tmp_path)
    assert "| first | 81.0 ± 1.0 |" in text
    assert "(3)" not in text  # The number of seeds is on the page of the table.
    assert "(3)" in (tmp_path / "p" / "t1.md").read_text()
    for link in re.findall(r"\]\((p/\w+\.md)\)", text):
        assert (tmp_path / link).is_file()


def test_parts_of_an_earlier_page_are_removed(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "gone.md").write_text("old")
    written(tmp_path)
    assert not (tmp_path / "p" / "gone.md").exists()


def test_every_claim_belongs_to_a_question():
    paper = make_paper(questions={"it helps": "helps"})
    assert question_of(paper, "helps-music") == "it helps"
    with pytest.raises(KeyError, match="no question of p fits the claim 'hurts'"):
        question_of(paper, "hurts")


def test_the_search_has_every_claim_of_every_paper():
    found = every_claim()
    assert len(found) == sum(len(claims(paper)) for paper in PAPERS) > 800
    assert all(len(line) == 6 and all(line) for line in found)
    assert {line[3] for line in found} >= {"holds", "does not hold", "undecided"}
