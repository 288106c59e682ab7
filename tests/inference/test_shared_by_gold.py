"""Gold settles whether a set of annotators shares mistakes, or agrees because it is right."""

import numpy as np
import pytest

from manyhands import AnnotationTable, summarize
from manyhands.inference.shared_by_gold import beside_others

OURS, THEIRS = range(3), range(3, 9)


def world(kind, seed, n=600, k=3):
    """Annotations by three and by six annotators, and the truth."""
    rng = np.random.default_rng(seed)
    y, trap = rng.integers(0, k, n), rng.random(n)

    def some(right, shared=0.0):
        """Right with this probability; wrong alike on this share of the items."""
        own = np.where(rng.random(n) < right, y, (y + rng.integers(1, k, n)) % k)
        return np.where(trap < shared, (y + 1) % k, own)

    ours, theirs = {
        "ours are better": ((0.85,), (0.5,)),
        "ours are worse": ((0.5,), (0.85,)),
        "ours share": ((0.95, 0.4), (0.8,)),
        "ours share and are better": ((0.98, 0.15), (0.6,)),
        "the others share": ((0.85,), (0.8, 0.3)),
        "few of the others share": ((0.85,), (0.6, 0.2)),
    }[kind]
    given = np.stack([some(*ours) for _ in OURS] + [some(*theirs) for _ in THEIRS], axis=1)
    given[:, 3:][rng.random((n, 6)) > (0.25 if kind.startswith("few") else 0.6)] = -1
    return AnnotationTable.from_matrix(given), y


def gold_of(y, size, seed):
    codes = np.full(len(y), -1)
    drawn = np.random.default_rng(seed).choice(len(y), size, replace=False)
    codes[drawn] = y[drawn]
    return codes


@pytest.mark.parametrize(
    ("kind", "members", "size", "better", "shares"),
    [
        ("ours are better", OURS, 320, True, False),
        ("ours are worse", OURS, 80, False, False),
        ("ours share", OURS, 80, False, True),
        ("ours share and are better", OURS, 80, False, True),
        ("the others share", OURS, 320, True, False),
        ("the others share", THEIRS, 80, False, True),
    ],
)
def test_gold_labels_tell_who_shares_mistakes(kind, members, size, better, shares):
    """That nobody of the set does takes more of them than that they do."""
    told = []
    for seed in range(20):
        table, y = world(kind, seed)
        found = beside_others(table, [*members], gold_of(y, size, seed))
        told.append((found.are_better, found.share_mistakes))
        assert ("mistakes." in str(found)) == any(told[-1])
    right = np.mean([each == (better, shares) for each in told])
    wrong = np.mean([(each[0] and not better) or (each[1] and not shares) for each in told])
    assert right >= 0.9
    assert wrong == 0


def test_a_comparison_counted_by_hand():
    """Items 0 to 29 are alike: two of the set are wrong alike, and one of two others is right."""
    rows = [[1, 1, 0, 2]] * 30 + [[0, -1, -1, -1]] * 5
    table = AnnotationTable.from_matrix(np.array(rows))
    found = beside_others(table, [0, 1], np.zeros(35, dtype=int))
    assert (found.n_items, found.own, found.others) == (30, 0.0, 0.5)
    assert (found.low, found.high) == (-0.5, -0.5)
    assert found.repeats == (60, 60, 30)
    assert found.repeats_of_others == (120, 0, 30)
    assert not found.share_mistakes  # They are always wrong, which explains every repeat.
    assert beside_others(table, [0, 1], np.where(np.arange(35) < 29, 0, -1)) is None
    assert beside_others(table, [0, 1], None) is None


def test_hard_items_that_only_the_set_annotated_do_not_count():
    """On 60 shared items they are right 58 times; alone, on 100 hard ones, always wrong alike."""
    shared = [[0, 0, 0]] * 54 + [[1, 0, 1]] * 2 + [[0, 1, 1]] * 2 + [[0, 0, 1]] * 2
    table = AnnotationTable.from_matrix(np.array(shared + [[1, 1, -1]] * 100))
    found = beside_others(table, [0, 1], np.zeros(160, dtype=int))
    assert found.n_items == 60
    assert found.own == pytest.approx(58 / 60)
    assert found.repeats == (4, 0, 4)
    assert found.repeats_of_others == (4, 4, 4)
    assert not found.share_mistakes


def test_mistakes_of_a_single_one_of_the_set_are_no_cases_of_either_side():
    rows = [[0, 0, 0]] * 30 + [[1, 0, 1]] * 12 + [[1, -1, 0]] * 20
    found = beside_others(AnnotationTable.from_matrix(np.array(rows)), [0, 1], np.zeros(62, int))
    assert found.repeats == (12, 0, 12)
    assert found.repeats_of_others == (12, 12, 12)


@pytest.mark.parametrize(
    ("n_wrong", "repeated", "settled"),
    [(0, 0, False), (9, 0, False), (10, 0, True), (12, 0, True), (12, 2, False)],
)
def test_few_mistakes_or_many_repeats_do_not_show_that_none_are_shared(n_wrong, repeated, settled):
    """The others are wrong on 46 of 100 items; 4 of 14 repeats are not surely less than 6 of 14."""
    rows = np.zeros((100, 3), dtype=int)
    rows[:6, 2] = rows[60:, 2] = rows[:n_wrong, 0] = rows[12 - repeated : 12, 1] = 1
    found = beside_others(AnnotationTable.from_matrix(rows), [0, 1], np.zeros(100, dtype=int))
    assert found.are_right_more
    assert found.are_better == settled
    assert ("not because they share mistakes" in str(found)) == settled
    assert ("Whether they also share mistakes, these labels do not show." in str(found)) != settled


def summary_of(table, y, seed, size=80):
    own = gold_of(y, size, seed)
    gold = {i: int(own[i]) for i in np.flatnonzero(own >= 0).tolist()}
    found = summarize(table, gold=gold)
    return {each["code"]: each["text"] for each in found["warnings"]}, found["actions"]


def test_a_report_says_what_gold_settles():
    """Where it does not, the doubt stays."""
    table, y = world("ours share", 0)
    told, _ = summary_of(table, y, 0)
    assert "So it is they who share mistakes." in told["shared-mistakes"]
    assert "annotations cannot tell which" not in told["shared-mistakes"]
    assert "--groups" in told["shared-mistakes"]
    few, _ = summary_of(table, y, 0, size=20)
    assert "annotations cannot tell which" in few["shared-mistakes"]
    table, y = world("the others share", 9)  # By whom the labels of three good ones are outvoted.
    assert "annotations cannot tell which" in summary_of(table, y, 9)[0]["shared-mistakes"]
    table, y = world("few of the others share", 0)
    open_, _ = summary_of(table, y, 0, size=45)
    assert "annotations cannot tell which. On the 38 items with gold" in open_["shared-mistakes"]
    assert "these labels do not show" in open_["shared-mistakes"]
    assert "agree-by-skill" not in open_
    told, actions = summary_of(table, y, 0)
    assert told["agree-by-skill"].startswith("Annotators 0, 1, 2 agree with one another more")
    assert "not because they share mistakes" in told["agree-by-skill"]
    assert "shared-mistakes" not in told
    assert not any("Do not judge" in each["title"] for each in actions)
