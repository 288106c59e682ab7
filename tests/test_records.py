"""Records: what a saved aggregator may hold."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from manyhands.records import record, record_named, record_of

FOLDERS = Path(__file__).parent / "fitting" / "earlier_folders" / "2026-11-28"


def test_a_record_is_found_by_its_name_and_by_its_values():
    @record("tests: a pair")
    @dataclass
    class Pair:
        left: int

    assert record_named("tests: a pair").kind is Pair
    assert record_of(Pair(1)).name == "tests: a pair"
    assert record_of(Pair(1)).fields == ("left",)
    assert record_of(1) is None
    with pytest.raises(TypeError, match="has the record 'tests: a pair' already"):

        @record("tests: a pair")
        @dataclass
        class Another:
            right: int

    assert record_named("tests: nobody") is None


def test_what_is_no_dataclass_is_no_record():
    with pytest.raises(TypeError, match="Plain is no dataclass"):

        @record("tests: plain")
        class Plain:
            pass


@pytest.mark.parametrize("name", ["dawid_skene", "ebcc"])
def test_a_new_process_knows_the_records_of_what_it_loads(name):
    code = f"from manyhands import load; print(load({str(FOLDERS / name)!r}).posterior_.shape)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("(")
