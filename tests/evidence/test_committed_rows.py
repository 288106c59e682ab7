"""Every row and paper of the repository can be run as it is written: checked without training."""

from pathlib import Path

from manyhands.evidence.pages.markdown import to_markdown
from manyhands.evidence.pages.page import make_page
from manyhands.evidence.records.store import read_records

ROOT = Path(__file__).parents[2]


def test_rows_and_papers_fit_together(experiments):
    # Loading checks every row against the real signatures, and refuses the first that fails.
    rows, _ = experiments
    places = [(row.table, row.column, row.label, row.key) for row in rows]
    assert len(set(places)) == len(places)


def test_committed_pages_are_what_the_records_give(experiments):
    rows, papers = experiments
    records = read_records(ROOT / "results")
    pages = {key: ROOT / "docs" / "results" / f"{key}.md" for key in papers}
    assert all(page.exists() for page in pages.values())
    for key, page in pages.items():
        made = to_markdown(make_page(papers[key], rows, records))
        # Else: manyhands results <paper> --out docs/results
        assert page.read_text(encoding="utf-8") == made, page.name
