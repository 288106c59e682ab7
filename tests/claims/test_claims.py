"""Claims are tested like code: each step that a person takes, on simulated and on real tables.

The steps are those of ``benchmarks/claims.py``, which writes docs/results/claims.md. The bounds
come from its figures: a claim may be off by about what it was off by there.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from manyhands import DawidSkene, make_crowd
from manyhands.inference import IBCC

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

SIMULATED = {
    "three classes": {"noise": "uniform", "noise_strength": 0.35},
    "shared mistakes": {"common_noise": "asymmetric", "common_proportion": 0.3},
    "pairs confused": {"noise": "symmetric", "noise_strength": (0.1, 0.6)},
    "spammers": {"noise": "uniform", "noise_strength": 0.3, "spammers": 0.2},
}


@pytest.fixture(scope="module")
def claims():
    """The benchmark, with its neighbours on the path while it is used."""
    path = BENCHMARKS / "claims.py"
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    sys.path.insert(0, str(BENCHMARKS))
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module", params=SIMULATED)
def simulated(request, claims):
    y = np.random.default_rng(0).integers(4, size=600)
    table = make_crowd(y, annotations_per_instance=4.0, random_state=0, **SIMULATED[request.param])
    return claims.Labelled(request.param, table, y)


def test_what_is_said_of_labels_holds_in_simulations(claims, simulated):
    found = claims.infer(simulated, DawidSkene)
    assert found["low"] <= found["true"] <= found["high"]


def test_what_is_said_of_any_methods_labels_is_what_holds(claims, simulated):
    """IBCC and the vote are too sure, or say something else: the claim is not theirs."""
    for method in (IBCC, claims.MajorityVote):
        found = claims.infer(simulated, method)
        assert found["low"] <= found["true"] <= found["high"]


@pytest.mark.parametrize("order", ["queue", "random"])
@pytest.mark.parametrize("n", [25, 100])
def test_reviewing_labels_does_not_make_the_rest_look_better_than_it_is(
    claims, simulated, n, order
):
    found = claims.review(simulated, n, order=order)
    assert found["claimed"] - found["true"] < 0.06


def test_several_rounds_of_review_do_not_either(claims, simulated):
    found = claims.review(simulated, 25, order="queue", rounds=4)
    assert found["claimed"] - found["true"] < 0.06


def test_good_annotators_are_not_said_to_guess(claims, simulated):
    found = claims.screen(simulated)
    assert found["flagged_good"] == 0
    assert found["flagged"] == found["flagged_truly"]


# -- real tables ----------------------------------------------------------------------------------

REAL = ("duck", "dog", "rte", "temp", "sp_amt", "ms", "face_sentiment", "zencrowd_us")


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_what_is_said_of_labels_holds_on_real_tables(claims, data_home, name):
    found = claims.infer(claims.real(name), DawidSkene)
    assert found["low"] <= found["true"] <= found["high"]


@pytest.mark.data
@pytest.mark.parametrize(("n", "most"), [(25, 0.075), (50, 0.075)])
def test_after_a_review_the_claims_of_real_tables_are_right_on_average(claims, data_home, n, most):
    found = [claims.review(claims.real(name), n, order="queue") for name in REAL if name != "duck"]
    apart = claims.gaps(found) / 100
    assert abs(apart.mean()) < 0.04
    assert np.mean(np.abs(apart)) < most


@pytest.mark.data
def test_annotators_said_to_guess_do_on_real_tables(claims, data_home):
    found = [claims.screen(claims.real(name)) for name in REAL]
    flagged = sum(each["flagged"] for each in found)
    assert flagged > 5
    assert sum(each["flagged_truly"] for each in found) >= 0.85 * flagged


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["labelme", "music", "product"])
def test_what_is_said_of_a_trained_stack_holds(claims, data_home, name):
    from manyhands.evidence import load_data

    found = claims.train(load_data({"name": name}))
    assert found["low"] <= found["true"] <= found["high"]
    assert found["new_low"] <= found["new_true"] <= found["new_high"]
