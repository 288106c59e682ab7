"""Wide tables, which are asked about."""

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations
from tests.io.exports.conftest import cells, write


def test_wide_tables_are_asked_about_and_keep_their_ids(tmp_path):
    path = write(tmp_path / "w.csv", "id,ann,bob\nx,0,1\ny,,1\n")
    with pytest.raises(AnnotationError, match="pass format='wide'"):
        read_annotations(path)
    table = read_annotations(path, format="wide")
    assert cells(table) == {("x", "ann"): 0, ("x", "bob"): 1, ("y", "bob"): 1}
