"""What reports say of people, on real tables: confusions that many share, and shares by gold."""

import numpy as np
import pytest

from manyhands import DawidSkene
from manyhands.datasets import load_labelme, load_music, load_sentiment
from manyhands.inference.inputs import gold_codes
from manyhands.metrics import annotator_reliability
from manyhands.report import annotator_columns, summarize
from manyhands.report.confusions import answer_common
from manyhands.report.gold import share_of_clusters
from manyhands.report.limits import FEW

pytestmark = pytest.mark.data

TABLES = {"labelme": load_labelme, "music": load_music, "sentiment": load_sentiment}


def read(name, home):
    """A table, the codes of its gold labels, and 60 of them, drawn at random."""
    data = TABLES[name](home)
    table = data.annotations
    codes = gold_codes(data.y_train, table)
    drawn = np.random.default_rng(0).choice(len(codes), 60, replace=False)
    few = np.full(len(codes), None, dtype=object)
    few[drawn] = table.classes[codes[drawn]]
    return table, codes, few


@pytest.mark.parametrize("name", ["labelme", "music"])
def test_a_confusion_has_one_count_with_and_without_a_few_gold_labels(name, data_home):
    table, codes, few = read(name, data_home)
    model = DawidSkene().fit(table)
    found = {}
    for gold in (None, few):
        summary = summarize(table, aggregator=model, gold=gold)
        common = summary["common_confusions"]["pairs"]
        people = {(p["true"], p["given"]): p["annotators"] for p in summary["confusions"]["pairs"]}
        for pair in common:
            assert people[pair["true"], pair["given"]] == pair["n"] <= pair["of"]
        found[gold is None], both = common, summary["common_confusions"]["both"]
        told = answer_common(summary)[1]
        assert "of the" in told or "All" in told
        assert " a “" not in told
    assert found[True] == found[False]
    # The truth by gold: who met the class, and who mixed the two classes up in either direction.
    gold, given = codes[table.instance], table.label
    for pair in found[True][:3]:
        met = np.unique(table.annotator[gold == np.flatnonzero(table.classes == pair["true"])[0]])
        assert abs(pair["of"] - len(met)) <= 0.1 * len(met) + 1
    first, second = (np.flatnonzero(table.classes == each)[0] for each in both["classes"])
    met = np.unique(table.annotator[(gold == first) | (gold == second)])
    mixed = (gold == first) & (given == second) | (gold == second) & (given == first)
    did = np.unique(table.annotator[mixed])
    assert abs(both["of"] - len(met)) <= 0.1 * len(met) + 1
    assert abs(both["n"] - len(did)) <= 0.33 * len(did) + 1


@pytest.mark.parametrize("name", TABLES)
def test_the_pooled_share_of_sixty_gold_labels_holds_the_share_of_all(name, data_home):
    table, codes, _ = read(name, data_home)
    right = table.label == codes[table.instance]
    rng, held = np.random.default_rng(1), []
    for _ in range(200):
        drawn = np.zeros(table.n_instances, dtype=bool)
        drawn[rng.choice(table.n_instances, 60, replace=False)] = True
        rows = drawn[table.instance]
        low, high = share_of_clusters(right[rows], table.instance[rows])
        held.append(low <= right.mean() <= high)
    assert 0.9 <= np.mean(held) <= 0.99


def test_intervals_hold_however_few_annotations_there_are_and_few_have_no_more(data_home):
    """Half of the busy annotators keep two to nine answers; the others measure them."""
    held, few = [], 0
    for name in TABLES:
        table, codes, _ = read(name, data_home)
        rng, right = np.random.default_rng(0), table.label == codes[table.instance]
        busy = np.flatnonzero(table.annotations_per_annotator() >= 30)
        kept = np.ones(table.n_annotations, dtype=bool)
        thinned = rng.permutation(busy)[: len(busy) // 2]
        for r in thinned:
            own = rng.permutation(np.flatnonzero(table.annotator == r))
            kept[own[rng.integers(2, 10) :]] = False
        thin = table.take(np.flatnonzero(kept))
        model = DawidSkene().fit(thin)
        low, high = annotator_reliability(thin, model.posterior_)[2:]
        for r in thinned:
            later = right[~kept & (table.annotator == r)].mean()
            held.append(low[r] <= later <= high[r])
        columns = annotator_columns(summarize(thin, aggregator=model)["annotators"]["rows"])
        for n, accuracy, end in zip(
            columns["n_annotations"], columns["accuracy"], columns["low_95"], strict=True
        ):
            few += 0 < n < FEW
            assert (accuracy is None) == (n < FEW)
            assert n == 0 or end is not None
    assert len(held) > 60
    assert np.mean(held) >= 0.95
    assert few > 20
