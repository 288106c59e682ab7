"""Tables of Snow et al."""

from manyhands.io import read_export
from tests.io.exports.conftest import cells, write


def test_snow_holds_gold(tmp_path):
    path = write(tmp_path / "s.csv", "!amt_worker_ids\torig_id\tresponse\tgold\nA\t5\t1\t0\n")
    export = read_export(path)
    assert (export.format, cells(export.annotations)) == ("snow", {("5", "A"): 1})
    assert export.gold.labels.tolist() == [0]
