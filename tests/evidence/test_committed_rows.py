"""Every row and paper of the repository can be run as it is written: checked without training."""

from pathlib import Path

from manyhands.evidence.pages.page import write_results
from manyhands.evidence.records.packed import open_packed, packed_papers
from manyhands.evidence.records.store import read_records

ROOT = Path(__file__).parents[2]


def test_rows_and_papers_fit_together(experiments):
    # Loading checks every row against the real signatures, and refuses the first that fails.
    rows, _ = experiments
    places = [(row.table, row.column, row.label, row.key) for row in rows]
    assert len(set(places)) == len(places)


def test_committed_pages_are_what_the_records_give(experiments, tmp_path):
    rows, papers = experiments
    records = read_records(ROOT / "results")
    pages = ROOT / "docs" / "results"
    for key, paper in papers.items():
        written = write_results(paper, rows, records, tmp_path)
        for path in written:
            # Else: manyhands results <paper> --out docs/results
            assert path.read_bytes() == (pages / path.name).read_bytes(), path.name
        drawings = {path.name for path in pages.glob(f"{key}-*.svg")}
        assert drawings == {path.name for path in written if path.suffix == ".svg"}


def test_committed_records_are_packed_and_sound():
    papers = packed_papers(ROOT / "results")
    assert papers
    for paper in papers:
        packed = open_packed(ROOT / "results", paper)
        assert packed.records()
        assert packed.problems() == []
