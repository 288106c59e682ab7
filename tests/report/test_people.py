"""What reports say of people, on real tables: confusions that many share, and shares by gold."""

import numpy as np
import pytest

from manyhands import DawidSkene
from manyhands.datasets import load_labelme, load_music, load_sentiment
from manyhands.inference.inputs import gold_codes
from manyhands.report import summarize
from manyhands.report.confusions import answer_common
from manyhands.report.gold import share_of_clusters

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
        found[gold is None] = common
        told = answer_common(summary)[1]
        assert "of the" in told or "All" in told
        assert " a “" not in told
    assert found[True] == found[False]
    # The truth, as far as gold shows it: who met the class, and who made the confusion.
    gold = codes[table.instance]
    for pair in found[True][:3]:
        true, given = (np.flatnonzero(table.classes == pair[x])[0] for x in ("true", "given"))
        met = np.unique(table.annotator[gold == true])
        did = np.unique(table.annotator[(gold == true) & (table.label == given)])
        assert abs(pair["of"] - len(met)) <= 0.1 * len(met) + 1
        assert abs(pair["n"] - len(did)) <= 0.25 * len(did) + 2


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
