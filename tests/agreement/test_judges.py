"""Judges beside people: the formulas, what the intervals cover, and who is left out."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from manyhands import AnnotationTable
from manyhands.agreement import compare_judges
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning


def skilled(truth, skill, n_classes, rng):
    """Answers of someone who knows a share of the truth and guesses the rest."""
    guess = rng.integers(0, n_classes, len(truth))
    return np.where(rng.random(len(truth)) < skill, truth, guess)


def crowd(skills, n, n_classes, rng):
    truth = rng.integers(0, n_classes, n)
    columns = [skilled(truth, skill, n_classes, rng) for skill in skills]
    return AnnotationTable.from_matrix(np.stack(columns, axis=1), classes=range(n_classes))


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compare_judges(*args, **options)


def by_hand(A, question, x=None):
    """Agreement beyond chance of the last column, and of the others, pair by pair."""

    def w(one, other):
        return float(one == other) if x is None else 1 - (x[one] - x[other]) ** 2 / np.ptp(x) ** 2

    n, r = A.shape
    rows = [i for i in range(n) if np.sum(question == question[i]) > 1]
    observed, people, chance, own_chance = [], [], [], []
    for i in rows:
        humans = [h for h in range(r - 1) if A[i, h] >= 0]
        observed.append(np.mean([w(A[i, -1], A[i, h]) for h in humans]))
        pairs = itertools.combinations(humans, 2)
        people.append(np.mean([w(A[i, one], A[i, other]) for one, other in pairs]))
        others = [j for j in rows if j != i and question[j] == question[i]]
        given = {j: [h for h in range(r - 1) if A[j, h] >= 0] for j in others}
        chance += [np.mean([w(A[i, -1], A[j, h]) for h in given[j]]) / len(others) for j in others]
        own_chance += [
            np.mean([w(A[i, g], A[j, h]) for g in humans for h in given[j]]) / len(others)
            for j in others
        ]
    a, b = np.mean(observed), np.mean(people)
    c, d = sum(chance) / len(rows), sum(own_chance) / len(rows)
    return (a - c) / (1 - c), (b - d) / (1 - d)


@pytest.fixture
def small():
    """Three people, of whom the third labels half of the items, a judge, and three questions."""
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 3, 24)
    A = np.stack([skilled(truth, s, 3, rng) for s in (0.8, 0.7, 0.6, 0.7)], axis=1)
    A[rng.random(24) < 0.5, 2] = -1
    return A, np.repeat(["a", "b", "c"], 8)


@pytest.mark.parametrize("values", [None, [0.0, 1.0, 4.0]])
def test_agreement_beyond_chance_by_hand(small, values):
    A, question = small
    x = None if values is None else np.array(values)
    found = quiet(AnnotationTable.from_matrix(A), [0, 1, 2], question=question, values=values)
    (judge,) = found.judges
    mine, people = by_hand(A, question, x)
    assert (judge.kappa, judge.people_kappa) == pytest.approx((mine, people))
    assert judge.r == pytest.approx(mine / people)
    assert found.kappa == judge.people_kappa


def test_the_interval_is_fiellers_from_the_jackknife_over_clusters(small):
    A, question = small
    cluster = np.tile(np.arange(8), 3) // 2
    (judge,) = quiet(
        AnnotationTable.from_matrix(A), [0, 1, 2], question=question, cluster=cluster
    ).judges
    parts = np.array([by_hand(A[cluster != c], question[cluster != c]) for c in range(4)])
    (mm, mp), (_, pp) = 3 * np.cov(parts.T, bias=True)
    mine, people = by_hand(A, question)
    t = student.ppf(0.975, 3)
    if people**2 <= t**2 * pp:
        assert (judge.low, judge.high) == (-np.inf, np.inf)
        return
    for end in (judge.low, judge.high):
        assert (mine - end * people) ** 2 == pytest.approx(
            t**2 * (mm - 2 * end * mp + end**2 * pp), rel=1e-6
        )


def test_a_judge_that_reads_nothing_has_no_agreement_beyond_chance():
    rng = np.random.default_rng(0)
    question = np.repeat(np.arange(4), 50)
    truth = np.where(rng.random(200) < 0.8, question, rng.integers(0, 4, 200))
    people = np.stack([skilled(truth, 0.8, 4, rng) for _ in range(3)], axis=1)
    table = AnnotationTable.from_matrix(np.column_stack([people, question]))
    (judge,) = compare_judges(table, [0, 1, 2], question=question).judges
    assert abs(judge.r) < 1e-6
    assert judge.verdict == "cannot stand in"
    assert quiet(table, [0, 1, 2]).judges[0].r > 0.5  # Which is why the question is asked for.


def test_within_a_question_a_judge_is_compared_as_if_it_were_the_only_one():
    rng = np.random.default_rng(4)
    A = np.concatenate(
        [
            crowd([0.8, 0.8, 0.8, skill], n, 3, rng).to_matrix()
            for skill, n in ((0.9, 80), (0.1, 60))
        ]
    )
    few = crowd([0.8, 0.8, 0.8, 0.8], 49, 3, rng).to_matrix()
    question = np.repeat(["z", "a", "few"], (80, 60, 49))
    cluster = np.r_[np.arange(140) // 2, np.arange(49)]
    table = AnnotationTable.from_matrix(np.concatenate([A, few]), ordered=True)
    (judge,) = compare_judges(table, [0, 1, 2], question=question, cluster=cluster).judges
    assert [(each.question, each.n_items) for each in judge.questions] == [("z", 80), ("a", 60)]
    for each in judge.questions:
        at = question == each.question
        own = AnnotationTable.from_matrix(A[at[:140]], ordered=True)
        (alone,) = quiet(own, [0, 1, 2], cluster=cluster[at]).judges
        assert each.verdict == alone.verdict
        for name in ("r", "low", "high", "bias", "bias_low", "bias_high"):
            assert getattr(each, name) == pytest.approx(getattr(alone, name))


@pytest.mark.parametrize("question", [None, np.zeros(100)])
def test_one_question_is_not_told_twice(question):
    table = crowd([0.8, 0.8, 0.8, 0.8], 100, 3, np.random.default_rng(0))
    assert compare_judges(table, [0, 1, 2], question=question).judges[0].questions == ()


def test_repeated_items_of_a_cluster_add_nothing():
    rng = np.random.default_rng(1)
    table = crowd([0.8, 0.8, 0.8, 0.8], 150, 3, rng)
    once = compare_judges(table, [0, 1, 2]).judges[0]
    doubled = AnnotationTable.from_matrix(np.repeat(table.to_matrix(), 2, axis=0))
    clusters = np.repeat(np.arange(150), 2)
    twice = compare_judges(doubled, [0, 1, 2], cluster=clusters).judges[0]
    assert (twice.r, twice.low, twice.high) == pytest.approx(
        (once.r, once.low, once.high), abs=0.01
    )
    alone = compare_judges(doubled, [0, 1, 2]).judges[0]
    assert alone.high - alone.low < 0.8 * (once.high - once.low)


def test_the_order_of_classes_changes_nothing():
    table = crowd([0.8, 0.7, 0.6, 0.8, 0.5], 120, 4, np.random.default_rng(2))
    A = table.to_matrix()
    other = AnnotationTable.from_matrix(3 - A)
    found, mirrored = (compare_judges(each, [0, 1, 2]).judges for each in (table, other))
    for one, two in zip(found, mirrored, strict=True):
        assert (one.name, one.verdict) == (two.name, two.verdict)
        assert (one.r, one.low, one.high) == pytest.approx((two.r, two.low, two.high))


def test_people_at_random_are_no_yardstick():
    table = crowd([0.0, 0.0, 0.0, 0.8], 200, 2, np.random.default_rng(0))
    with pytest.warns(NotIdentifiableWarning, match="cannot be compared"):
        found = compare_judges(table, [0, 1, 2])
    (judge,) = found.judges
    assert (judge.low, judge.high, judge.verdict) == (-np.inf, np.inf, "open")
    assert any("cannot be compared" in note for note in found.notes)


def test_a_spammer_among_people_is_left_out_and_named():
    table = crowd([0.8, 0.8, 0.0, 0.8], 400, 2, np.random.default_rng(0))
    with pytest.warns(UserWarning, match="Left out this person: 2 "):
        found = compare_judges(table, [0, 1, 2])
    assert [person.name for person in found.left_out] == [2]
    assert found.people.tolist() == [0, 1]
    assert quiet(table.select(annotators=[0, 1, 3]), [0, 1]).judges[0].r == found.judges[0].r


def test_judges_are_those_in_a_family_and_people_the_others():
    rng = np.random.default_rng(4)
    table = crowd([0.8, 0.8, 0.8, 0.9, 0.2], 200, 2, rng)
    declared = table.with_groups({3: "llm", 4: "llm"})
    named = table.with_groups({0: "person", 1: "person", 2: "Person", 3: "llm", 4: "llm"})
    expected = compare_judges(table, [0, 1, 2])
    assert compare_judges(declared).judges == expected.judges
    assert compare_judges(named).judges == expected.judges
    mask = np.array([True, True, True, False, False])
    assert compare_judges(table, mask).judges == expected.judges


def test_a_judge_of_part_of_the_items_is_compared_on_these():
    table = crowd([0.8, 0.8, 0.8, 0.8, 0.8], 200, 3, np.random.default_rng(5))
    A = table.to_matrix()
    A[100:, 4] = -1
    found = {j.name: j for j in compare_judges(AnnotationTable.from_matrix(A), [0, 1, 2]).judges}
    part = compare_judges(AnnotationTable.from_matrix(A[:100]), [0, 1, 2])
    alone = {judge.name: judge for judge in part.judges}
    assert found[4].n_items == 100
    assert (found[4].r, found[4].kappa) == pytest.approx((alone[4].r, alone[4].kappa))
    assert found[4].high - found[4].low == pytest.approx(alone[4].high - alone[4].low, rel=0.05)


@pytest.mark.parametrize("values", [None, [0.0, 1.0, 4.0]])
def test_the_bias_of_a_judge_is_its_mean_minus_that_of_people_by_cluster(small, values):
    A, _ = small
    cluster = np.tile(np.arange(8), 3) // 2
    table = AnnotationTable.from_matrix(A, ordered=True)
    (judge,) = quiet(table, [0, 1, 2], cluster=cluster, values=values).judges
    x = np.arange(3.0) if values is None else np.array(values)
    people = np.array([x[row[:3][row[:3] >= 0]].mean() for row in A])
    higher = x[A[:, 3]] - people
    parts = np.array([higher[cluster != c].mean() for c in range(4)])
    half = student.ppf(0.975, 3) * np.sqrt(3 * parts.var())
    expected = higher.mean(), higher.mean() - half, higher.mean() + half
    assert (judge.bias, judge.bias_low, judge.bias_high) == pytest.approx(expected)


def test_labels_that_are_names_have_no_bias(small):
    (judge,) = quiet(AnnotationTable.from_matrix(small[0]), [0, 1, 2]).judges
    assert np.isnan([judge.bias, judge.bias_low, judge.bias_high]).all()


def test_a_tie_that_a_judge_hardly_gives_is_told_by_value():
    rng = np.random.default_rng(6)
    truth = rng.choice(3, 400, p=[0.4, 0.3, 0.3])
    people = [skilled(truth, 0.8, 3, rng) for _ in range(3)]
    judge = skilled(np.where(truth == 2, rng.integers(0, 2, 400), truth), 1.0, 3, rng)
    table = AnnotationTable.from_matrix(np.stack([*people, judge], axis=1))
    maker = np.where(rng.random(400) < 0.5, "x", "y")
    (found,) = compare_judges(table, [0, 1, 2], by=maker).judges
    overall = {use.label: use for use in found.classes if use.by is None}
    assert overall[2].judge == 0
    assert overall[2].high < 0
    assert overall[2].people == pytest.approx(0.3, abs=0.06)
    assert overall[2].is_certain
    assert {use.by for use in found.classes} == {None, "x", "y"}
    assert sum(use.n_items for use in found.classes if use.by is not None and use.label == 2) == 400


def test_the_best_is_never_ruled_out_by_a_worse_one():
    table = crowd([0.8, 0.8, 0.8, 0.9, 0.85, 0.1], 300, 3, np.random.default_rng(7))
    found = {judge.name: judge for judge in compare_judges(table, [0, 1, 2]).judges}
    assert found[3].may_be_best
    assert not found[5].may_be_best


def test_open_verdicts_say_how_many_items_would_decide():
    rng = np.random.default_rng(1)
    found = compare_judges(crowd([0.8, 0.8, 0.8, 0.7], 100, 2, rng), [0, 1, 2]).judges[0]
    assert found.verdict == "open"
    half = (found.high - found.low) / 2
    assert found.more_items == pytest.approx((half / abs(found.r - 0.8)) ** 2)


def test_the_frame_has_a_row_per_judge():
    found = compare_judges(
        crowd([0.8, 0.8, 0.8, 0.9, 0.2], 200, 2, np.random.default_rng(0)), [0, 1, 2]
    )
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.name.tolist() == [3, 4]
    assert "can stand in" in str(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"people": None}, "it is unknown who is a person"),
        ({"people": []}, "no people to compare with"),
        ({"people": [0]}, "0 is the only person"),
        ({"people": [0, 1, 2, 3]}, "no judge to compare"),
        ({"people": ["anna"]}, "people"),
        ({"question": np.arange(40)}, "question has a different value for every item"),
        ({"question": [1, 2]}, r"question has shape \(2,\)"),
        ({"cluster": [None] * 40}, "cluster is missing for 40 instances"),
        ({"values": [1, 2]}, "one finite number per class"),
        ({"values": [1, 1, 1]}, "no labels would disagree"),
        ({"margin": 0}, "margin=0 must lie between"),
        ({"level": 1}, "level=1 must lie between"),
    ],
)
def test_bad_arguments_are_named(change, says):
    table = crowd([0.8, 0.8, 0.8, 0.8], 40, 3, np.random.default_rng(0))
    with pytest.raises(AnnotationError, match=says):
        compare_judges(table, **({"people": [0, 1, 2]} | change))


def test_a_grade_outside_the_scale_is_named():
    rng = np.random.default_rng(0)
    A = crowd([0.8, 0.8, 0.8, 0.8], 100, 4, rng).to_matrix()
    assert not any("far from" in n for n in found_notes(A))
    A[3, 1] = 99
    (note,) = [n for n in found_notes(A) if "far from" in n]
    assert note.startswith("The grade 99 (1 label) is far from all others")


def found_notes(A):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The reader warns of it, too.
        table = AnnotationTable.from_matrix(A, ordered=True)
    return quiet(table, [0, 1, 2]).notes


def test_one_person_per_item_is_refused():
    table = AnnotationTable.from_matrix([[0, -1, 1], [-1, 1, 1], [1, -1, 0]])
    with pytest.raises(AnnotationError, match="no item has labels of two people"):
        compare_judges(table, [0, 1])


def test_people_who_are_all_one_family_are_no_people():
    table = AnnotationTable.from_matrix([[0, 0, 1], [1, 1, 1], [1, 0, 0]])
    with pytest.raises(AnnotationError, match="every annotator is in a family"):
        compare_judges(table.with_groups(dict.fromkeys(range(3), "crowd")))


# -- what the claims are worth, by simulation -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("n", [100, 200])
def test_intervals_cover_and_verdicts_hold(n_classes, n):
    hits, false_can, runs = {0.8: 0, 1.0: 0}, 0, 200
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        table = crowd([0.8, 0.8, 0.8, 0.8, 0.64], n, n_classes, rng)
        for judge in quiet(table, [0, 1, 2]).judges:
            r = 1.0 if judge.name == 3 else 0.8
            hits[r] += judge.low <= r <= judge.high
            false_can += r == 0.8 and judge.verdict == "can stand in"
    assert min(hits.values()) / runs >= 0.92
    assert false_can / runs <= 0.08


@pytest.mark.slow
def test_spammers_are_left_out_and_equal_people_are_not():
    left_out = equal = false_can = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = quiet(crowd([0.8, 0.8, 0.0, 0.64], 400, 2, rng), [0, 1, 2])
        left_out += [person.name for person in found.left_out] == [2]
        false_can += found.judges[0].verdict == "can stand in"
        equal += bool(quiet(crowd([0.8, 0.8, 0.8, 0.64], 400, 2, rng), [0, 1, 2]).left_out)
    assert left_out / 200 >= 0.93
    assert false_can / 200 <= 0.09
    assert equal == 0


@pytest.mark.slow
def test_the_set_that_may_hold_the_best_holds_it_and_classes_are_used_as_told():
    kept = covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = quiet(crowd([0.8] * 3 + [0.9, 0.85, 0.8, 0.6], 100, 3, rng), [0, 1, 2])
        kept += next(judge.may_be_best for judge in found.judges if judge.name == 3)
        uses = found.judges[0].classes  # All give each class as often as people.
        covered += all(use.low <= 0 <= use.high for use in uses)
    assert kept / 200 >= 0.95
    assert covered / 200 >= 0.92


# -- real people and language models --------------------------------------------------------------

EXPECTED = {
    "framing": {
        "gpt-4o": (0.99, 0.90, 1.10, "can stand in"),
        "gpt-4o-mini": (0.74, 0.66, 0.82, "open"),
        "gemini_flash": (0.59, 0.51, 0.67, "cannot stand in"),
    },
    "lgbteen": {"gpt-4o": (0.63, 0.51, 0.79, "cannot stand in")},
    "mtbench": {"gpt-4o": (0.70, 0.51, 0.95, "open")},
    "10k_prompts": {"gpt-4o": (1.61, 1.37, 1.95, "can stand in")},
    "cebab_stars": {"gpt-4o": (1.04, 1.03, 1.06, "can stand in")},
    "summeval": {"mistral-v03": (0.12, 0.08, 0.16, "cannot stand in")},
}
"""As a study of the same sets found, with its own code."""


@pytest.mark.data
@pytest.mark.parametrize("name", EXPECTED)
def test_people_and_language_models(data_home, name):
    frame = pd.read_csv(
        data_home / "judges" / name / "annotations.csv",
        dtype={"task": str, "question": str, "cluster": str},
        keep_default_na=False,
    )
    ordered = name in ("10k_prompts", "cebab_stars", "summeval")
    table = AnnotationTable.from_frame(frame, group="family", ordered=ordered)
    items = frame.drop_duplicates("task").set_index("task").loc[table.instances]
    asked = items.question.to_numpy() if items.question.iloc[0] else None
    found = quiet(table, question=asked, cluster=items.cluster.to_numpy())
    judges = {judge.name: judge for judge in found.judges}
    for who, (r, low, high, verdict) in EXPECTED[name].items():
        judge = judges[who]
        assert (judge.r, judge.low, judge.high) == pytest.approx((r, low, high), abs=0.016)
        assert judge.verdict == verdict
    gone = [person.name for person in found.left_out]
    assert gone == (["person2"] if name == "cebab_stars" else [])


def test_a_judge_without_labels_is_named():
    A = np.random.default_rng(0).integers(0, 2, (20, 3))
    table = AnnotationTable.from_matrix(np.column_stack([A, np.full(20, -1)]))
    with pytest.raises(AnnotationError, match="3 is a judge without labels"):
        compare_judges(table, people=[0, 1, 2])


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_judge_of_one_shared_item_is_neither_first_nor_best():
    table = crowd((0.8, 0.8, 0.9, 0.9), 100, 2, np.random.default_rng(0))
    is_last = table.annotator == 3
    people = table.annotator < 2
    kept = np.where(is_last, table.instance < 1, ~people | (table.instance < 60))
    found = quiet(table.take(np.flatnonzero(kept)), people=[0, 1])
    assert [(judge.name, judge.n_items) for judge in found.judges] == [(2, 60), (3, 1)]
    assert found.judges[0].may_be_best
    assert not found.judges[1].may_be_best
    assert found.judges[1].verdict == "open"
    assert np.isnan(found.judges[1].more_items)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_picture_keeps_a_judge_that_shares_no_item():
    pytest.importorskip("matplotlib")
    from manyhands.displays import JudgesDisplay

    table = crowd((0.8, 0.8, 0.9, 0.9), 60, 2, np.random.default_rng(0))
    kept = np.where(table.annotator < 2, table.instance < 40, table.instance >= 0)
    kept &= (table.annotator != 3) | (table.instance >= 40)
    shown = JudgesDisplay(quiet(table.take(np.flatnonzero(kept)), people=[0, 1])).plot()
    assert [tick.get_text() for tick in shown.ax_.get_yticklabels()] == ["2", "3"]
    assert "open: not known" in [text.get_text() for text in shown.ax_.texts]
