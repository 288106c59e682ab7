"""Every row and paper of the repository can be run as it is written: checked without training."""

from pathlib import Path

import pytest

from manyhands.evidence import load_row
from manyhands.evidence.experiments.papers import load_experiments
from manyhands.evidence.experiments.rows import row_files
from manyhands.evidence.pages.markdown import to_markdown
from manyhands.evidence.pages.page import make_page
from manyhands.evidence.records.store import read_records

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments"
ROWS = row_files(FOLDER)
PAGES = sorted(
    ROOT / "docs" / "results" / f"{paper.stem}.md"
    for paper in (FOLDER / "papers").glob("*.yaml")
    if (ROOT / "docs" / "results" / f"{paper.stem}.md").exists()
)


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_committed_row_is_valid(path):
    assert load_row(path).seeds


def test_rows_and_papers_fit_together():
    rows, _ = load_experiments(FOLDER)
    places = [(row.table, row.column, row.label, row.key) for row in rows]
    assert len(set(places)) == len(places)


def test_committed_pages_are_what_the_records_give():
    assert PAGES
    rows, papers = load_experiments(FOLDER)
    records = read_records(ROOT / "results")
    for page in PAGES:
        made = to_markdown(make_page(papers[page.stem], rows, records))
        # Else: manyhands results <paper> --out docs/results
        assert page.read_text(encoding="utf-8") == made, page.name
