"""Families of annotators: their weights, and where tables keep them."""

import contextlib
import functools
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands import (
    AnnotationStore,
    AnnotationTable,
    DawidSkene,
    GoldCorrected,
    MajorityVote,
    OneCoinDawidSkene,
)
from manyhands.annotations.groups import undeclared_models
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning, SharedMistakesWarning
from manyhands.inference import gold_corrected
from manyhands.inference.families import family_weights
from manyhands.inference.shared_mistakes import shared_mistakes
from manyhands.inference.votes import make_votes
from manyhands.io import consensus, read_annotations
from manyhands.registry import all_aggregators
from manyhands.report.headline import tell_labels

# Random tables need not have two annotations of any instance.
UNCORRECTED = pytest.mark.filterwarnings(
    "ignore:0 annotated instances:manyhands.exceptions.NotIdentifiableWarning"
)
methods = pytest.mark.parametrize("cls", [cls for _, cls in all_aggregators()])


def few_starts(cls):
    """Make a method that starts twice, where it would ten times."""
    return cls(n_restarts=2) if "n_restarts" in cls().get_params() else cls()


def noisy(rng, y, accuracy):
    return np.where(rng.random(len(y)) < accuracy, y, 1 - y)


def independent(seed, n=400, r=7):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return np.stack([noisy(rng, y, p) for p in rng.uniform(0.6, 0.9, r)], axis=1), y


def with_machines(seed, n=400, humans=4, machines=4, accuracy=0.65):
    """Independent humans (.8), and machines of which four in five answers are a common one."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    common = noisy(rng, y, accuracy)
    alike = [
        np.where(rng.random(n) < 0.8, common, noisy(rng, y, accuracy)) for _ in range(machines)
    ]
    people = [noisy(rng, y, 0.8) for _ in range(humans)]
    return np.stack([*people, *alike], axis=1), y


def machine_family(humans=4, machines=4):
    return {humans + k: "machine" for k in range(machines)}


# -- weights --------------------------------------------------------------------------------------


def test_weights_computed_by_hand():
    A = np.array([[0, 1, 1, 0], [0, -1, 1, 1], [-1, -1, 1, 0]])
    table = AnnotationTable.from_matrix(A).with_groups({0: "a", 1: "a", 2: "a"}, rho=0.5)
    by_hand = [0.5, 0.5, 0.5, 1, 1 / 1.5, 1 / 1.5, 1, 1, 1]
    np.testing.assert_allclose(family_weights(table), by_hand)
    np.testing.assert_allclose(make_votes(table).weight, by_hand)
    np.testing.assert_allclose(family_weights(table, 1.0), [1 / 3] * 3 + [1, 0.5, 0.5, 1, 1, 1])
    np.testing.assert_allclose(family_weights(table, 0.0), 1)


def test_weights_multiply_the_users_and_count_members_with_one():
    table = AnnotationTable.from_arrays(
        [0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [0, 1, 0, 1, 1], weight=[2, 0, 1, 3, 1]
    ).with_groups(["f", "f", "f"], rho=1)
    np.testing.assert_allclose(family_weights(table), [0.5, 1, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(make_votes(table).weight, [1, 0.5, 1.5, 0.5])


def test_repeated_annotations_are_one_member():
    table = AnnotationTable.from_arrays([0, 0, 0], [0, 0, 1], [0, 0, 1], duplicates="keep")
    np.testing.assert_allclose(family_weights(table.with_groups(["f", "f"]), 1), 0.5)
    np.testing.assert_allclose(family_weights(table.with_groups(["f", "g"]), 1), 1)


def test_abstentions_count_members_who_abstained():
    A = np.array([["a", "b", "?", "?"]])
    table = AnnotationTable.from_matrix(A, ["a", "b"], abstain="?").with_groups(["f"] * 4, rho=1)
    np.testing.assert_allclose(family_weights(table), 0.5)
    np.testing.assert_allclose(make_votes(table, abstentions=True).weight, 0.5)


def test_rounding_errors_are_no_shared_mistakes():
    y = np.arange(60) % 3
    constant = np.broadcast_to(np.arange(5) % 3, (60, 5))
    for A in (np.repeat(y[:, None], 5, axis=1), constant):
        table = AnnotationTable.from_matrix(A)
        assert shared_mistakes(table, [0, 1, 2])[0].z == 0.0
        for _, cls in all_aggregators():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", NotIdentifiableWarning)  # Of the constant ones.
                cls().fit(table)


@UNCORRECTED
@methods
def test_no_correlation_is_no_family(cls):
    A, _ = with_machines(0, n=60)
    plain = AnnotationTable.from_matrix(A).with_groups({})
    grouped = plain.with_groups(machine_family(), rho=0)
    one, other = few_starts(cls).fit(plain), few_starts(cls).fit(grouped)
    np.testing.assert_array_equal(one.posterior_, other.posterior_)


def test_a_unanimous_family_has_one_vote():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    people = [noisy(rng, y, 0.8) for _ in range(3)]
    copied = noisy(rng, y, 0.7)
    one = AnnotationTable.from_matrix(np.stack([*people, copied], axis=1)).with_groups({})
    five = AnnotationTable.from_matrix(np.stack([*people, *[copied] * 5], axis=1))
    five = five.with_groups(dict.fromkeys(range(3, 8), "f"), rho=1)
    for model in (MajorityVote(), OneCoinDawidSkene(prior_strength=0, dependence=0.2)):
        expected = model.fit(one).posterior_.copy()
        np.testing.assert_allclose(model.fit(five).posterior_, expected, atol=1e-6)


@UNCORRECTED
@methods
def test_declared_machines_do_not_take_over(cls):
    A, y = with_machines(1, n=200)
    model = few_starts(cls).fit(A, groups=machine_family())
    assert (model.labels_ == y).mean() > 0.8
    assert model.table_.groups.tolist() == [""] * 4 + ["machine"] * 4
    np.testing.assert_allclose(model.predict_proba(A).sum(axis=1), 1)


def test_families_of_the_fit_apply_to_new_instances():
    A, _ = with_machines(2)
    model = DawidSkene(n_subtypes=1).fit(A[:300], groups=machine_family())
    new = AnnotationTable.from_matrix(A[300:])
    expected = model.predict_proba(new)
    np.testing.assert_allclose(model.predict_proba(new.with_groups(machine_family())), expected)
    shuffled = new.select(annotators=new.annotators[::-1])
    np.testing.assert_allclose(model.predict_proba(shuffled), expected)
    loose = DawidSkene(n_subtypes=1).fit(A[:300], groups={}).predict_proba(new)
    assert abs(loose - expected).max() > 0.1


def test_families_of_the_fit_hold_when_annotations_are_added():
    A, _ = with_machines(2)
    family = machine_family()
    model = DawidSkene().fit(AnnotationTable.from_matrix(A[:300]), groups=family)
    model.partial_fit(AnnotationTable.from_matrix(A[300:350], instances=range(300, 350)))
    assert model.table_.groups.tolist() == [""] * 4 + ["machine"] * 4
    nine = np.column_stack([A, A[:, 7]])[350:]
    later = AnnotationTable.from_matrix(nine, instances=range(350, 400))
    with pytest.raises(AnnotationError, match=r"annotator 5 in the family 'g', the fit in 'machi"):
        model.partial_fit(later.with_groups({5: "g"}))
    assert model.table_.n_instances == 350
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(later.with_groups({8: "machine", 4: "machine"}, rho=0.5))
    assert model.table_.groups.tolist() == [""] * 4 + ["machine"] * 5
    assert model.table_.group_rho == 0.8


@pytest.mark.parametrize(("declared", "told"), [({}, True), ({4: "f"}, True), (None, False)])
def test_families_that_come_later_are_taken_over_and_told(declared, told, recwarn):
    A, _ = with_machines(2)
    later = AnnotationTable.from_matrix(A[300:], instances=range(300, 400))
    model = OneCoinDawidSkene().fit(A[:300], groups=declared)
    recwarn.clear()
    model.partial_fit(later.with_groups({4: "f", 5: "f", 6: "f"}))
    assert model.table_.groups.tolist() == [""] * 4 + ["f"] * 3 + [""]
    found = [str(one.message) for one in recwarn.list if "stood alone" in str(one.message)]
    assert len(found) == told
    if told:
        assert "in the family 'f' of the added table (and " in found[0]
    whole = OneCoinDawidSkene().fit(A, groups={4: "f", 5: "f", 6: "f"})
    np.testing.assert_allclose(model.posterior_, whole.posterior_, atol=1e-2)


# -- tables ---------------------------------------------------------------------------------------


def test_tables_keep_families(tmp_path):
    frame = pd.DataFrame(
        {
            "task": ["a", "a", "b", "b", "c", "c"],
            "worker": ["x", "y", "x", "z", "y", "z"],
            "label": [0, 1, 0, 1, 1, 1],
            "group": ["f", None, "f", "f", None, "f"],
        }
    )
    table = AnnotationTable.from_frame(frame, group="group")
    assert table.groups.tolist() == ["f", "", "f"]
    assert "3 annotators (1 family), 2 classes" in repr(table)
    assert table.take([0, 1]).groups.tolist() == ["f", "", "f"]
    assert table[[1, 0]].groups.tolist() == ["f", "", "f"]
    assert table.select(annotators=["z", "y"]).groups.tolist() == ["f", ""]
    assert AnnotationTable.from_frame(table.to_frame(), group="group").equals(table)
    for name, write in (("t.csv", "to_csv"), ("t.parquet", "to_parquet")):
        getattr(table.to_frame(), write)(tmp_path / name, index=False)
        assert read_annotations(tmp_path / name, group="group").equals(table)
    arrays = AnnotationTable.from_arrays([0, 0, 1], [0, 1, 1], [0, 1, 0], group=[3, None, None])
    assert arrays.groups.tolist() == ["3", ""]
    assert not table.equals(table.with_groups(None))
    assert table.with_groups(None).groups is None


def test_merged_tables_merge_families():
    mine = AnnotationTable.from_frame(
        pd.DataFrame({"task": [0, 1], "worker": ["x", "y"], "label": [0, 1]})
    ).with_groups({"x": "f"})
    theirs = AnnotationTable.from_frame(
        pd.DataFrame({"task": [2, 2, 2], "worker": ["w", "x", "y"], "label": [0, 1, 1]})
    )
    assert mine.with_added(theirs).groups.tolist() == ["f", "", ""]
    both = mine.with_added(theirs.with_groups({"w": "f", "x": "f"}, rho=0.5))
    assert dict(zip(both.annotators.tolist(), both.groups.tolist(), strict=True)) == {
        "w": "f",
        "x": "f",
        "y": "",
    }
    assert both.group_rho == 0.8
    with pytest.raises(AnnotationError, match="'x' in the family 'g', this one in 'f'"):
        mine.with_added(theirs.with_groups({"x": "g"}))


@pytest.mark.parametrize(
    ("groups", "rho", "message"),
    [
        ({7: "f"}, 0.8, "groups holds 7"),
        (["f"], 0.8, r"one family per annotator, shape \(2,\)"),
        ("f", 0.8, "groups='f' must be a dict"),
        ({0: "f"}, 1.5, "rho=1.5 must be from 0"),
    ],
)
def test_wrong_families_are_named(groups, rho, message):
    table = AnnotationTable.from_matrix(np.array([[0, 1], [1, 1]]))
    with pytest.raises(AnnotationError, match=message):
        table.with_groups(groups, rho)


def test_an_annotator_has_one_family():
    frame = pd.DataFrame({"task": [0, 1], "worker": ["x", "x"], "label": [0, 1], "g": ["e", "f"]})
    with pytest.raises(AnnotationError, match="'x' two families, 'e' and 'f'"):
        AnnotationTable.from_frame(frame, group="g")


# -- shared mistakes ------------------------------------------------------------------------------


def test_independent_annotators_have_no_excess():
    z = np.array(
        [
            shared_mistakes(AnnotationTable.from_matrix(independent(seed)[0]), [0, 1, 2])[0].z
            for seed in range(60)
        ]
    )
    assert abs(z.mean()) < 1
    assert 0.7 < z.std() < 1.5
    assert z.max() < 4


def test_excess_computed_by_hand():
    A = with_machines(0, n=60)[0]
    e = np.stack([c == A for c in (0, 1)], axis=2) * 1.0
    e -= e.mean(axis=0)
    inner = np.einsum("irc,isc->irs", e, e)
    a, b = np.arange(4, 8), np.arange(4)

    def mean(rows, columns):
        return np.mean([inner[:, r, s] for r in rows for s in columns if r != s])

    found = shared_mistakes(AnnotationTable.from_matrix(A), a)[0]
    np.testing.assert_allclose(found.excess, mean(a, a) * mean(b, b) - mean(a, b) ** 2)


def test_shared_mistakes_are_found_and_told():
    table = AnnotationTable.from_matrix(with_machines(0)[0])
    found = shared_mistakes(table)[0]
    assert found.members == (4, 5, 6, 7)
    assert found.searched
    assert found.z > 6
    assert "Annotators 4, 5, 6, 7 agree with one another more" in str(found)
    declared = shared_mistakes(table.with_groups({4: "a", 5: "a", 0: "b", 1: "b"}))
    assert [one.members for one in declared] == [(4, 5), (0, 1)]
    assert not declared[0].searched
    innocent = shared_mistakes(AnnotationTable.from_matrix(independent(0)[0]), [0, 1])[0]
    assert "shows no shared mistakes: 0, 1" in str(innocent)
    with pytest.raises(AnnotationError, match="at least two annotators, and leave out some"):
        shared_mistakes(table, [3])


def test_undeclared_machines_are_warned_of_and_people_not(recwarn):
    A, _ = with_machines(0)
    with pytest.warns(SharedMistakesWarning, match=r"4, 5, 6, 7.*\(z = .*Say who belongs"):
        DawidSkene().fit(A)
    recwarn.clear()
    DawidSkene().fit(A, groups=machine_family())
    DawidSkene().fit(A, groups={})
    MajorityVote().fit(A)
    for seed in range(5):
        DawidSkene(n_subtypes=1).fit(independent(seed)[0])
    assert not recwarn.list


def test_declared_people_do_not_silence_the_alarm_about_machines():
    """Three people of thirty are declared, three machines are not: the machines are warned of."""
    A, _ = with_machines(0, humans=30, machines=3)
    keep = np.random.default_rng(0).random((400, 30)) < 0.2
    A[:, :30] = np.where(keep, A[:, :30], -1)
    with pytest.warns(SharedMistakesWarning) as told:
        DawidSkene().fit(A, groups=dict.fromkeys(range(6), "people"))
    first, second = (str(one.message) for one in told)
    assert first.startswith("This family shows no shared mistakes: 0, 1, 2, 3, 4, 5 (z = ")
    assert "its weights cost accuracy" in first
    assert second.startswith("Annotators 30, 31, 32 agree with one another more")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DawidSkene().fit(A, groups=machine_family(30, 3))


def test_families_that_share_no_mistakes_are_told_once():
    A, _ = independent(0, r=8)
    families = {r: "ab"[r // 3] for r in range(6)}
    with pytest.warns(SharedMistakesWarning, match=r"0, 1, 2 \(z = .*The same holds for 1") as told:
        DawidSkene().fit(A, groups=families)
    assert len(told) == 1


def test_only_two_groups_are_told_with_the_share_on_which_they_differ(recwarn):
    A, y = with_machines(0)
    both = {r: "people" if r < 4 else "machines" for r in range(8)}
    votes = [(A[:, rows] == 1).mean(axis=1) > 0.5 for rows in (slice(4), slice(4, 8))]
    share = (votes[0] != votes[1]).mean()
    with pytest.warns(NotIdentifiableWarning) as told:
        DawidSkene().fit(A, groups=both)
    assert len(told) == 1
    assert f"only two groups of annotators, machines and people. On {100 * share:.0f} % of" in str(
        told[0].message
    )
    recwarn.clear()
    DawidSkene().fit(A, groups=both, gold=some_gold(y, 50))
    DawidSkene().fit(A, groups={**both, 0: None})
    DawidSkene().fit(A, groups={**both, 0: "third", 1: "third"})
    assert not recwarn.list


def test_accuracies_with_families_and_no_gold_are_said_to_be_estimates(caplog):
    A, y = with_machines(0)
    with caplog.at_level("INFO", logger="manyhands"):
        DawidSkene().fit(A, groups=machine_family(), gold=some_gold(y, 30))
        DawidSkene().fit(A, groups={})
        assert not caplog.records
        DawidSkene().fit(A, groups=machine_family())
    family, accuracies = (record.getMessage() for record in caplog.records)
    assert family.startswith("Annotators 4, 5, 6, 7 agree with one another more")
    # Gold labels that only measure may stand beside the fit, so it speaks of its own labels alone.
    assert accuracies.startswith("families are declared and the fit has no known labels: ")
    assert accuracies.endswith("mistakes that all groups share would make them too high")


def test_gold_says_when_it_cannot_choose_families(recwarn):
    A, y = with_machines(0, humans=13, machines=3)
    gold = some_gold(y, 30)
    told = r"among these 16 annotators: this needs at most 15 annotators, each .* at least 30 %"
    with pytest.warns(NotIdentifiableWarning, match=told):
        GoldCorrected().fit(A, gold=gold)
    recwarn.clear()
    GoldCorrected().fit(A, gold=gold, groups={})
    GoldCorrected().fit(A[:, 1:], gold=gold)
    GoldCorrected().fit(A, gold=some_gold(y, 60), groups=machine_family(13, 3))
    assert not recwarn.list


def messages_of(model, A, **options):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(A, **options)
    return [str(one.message) for one in told]


@pytest.mark.parametrize("cls", [DawidSkene, GoldCorrected])
@pytest.mark.parametrize(("families", "least", "g"), [
    (families, least, g)
    for families, least in ((None, 10), (dict.fromkeys(range(3), "f"), 50))
    for g in (0, least // 2, least + 10)
])  # fmt: skip
def test_messages_ask_for_the_gold_that_helps(cls, families, least, g):
    """What is asked for is what `GoldCorrected` needs in all, and what is given is counted."""
    A, y = (independent if families else with_machines)(0)
    told = messages_of(cls(), A, groups=families, gold=some_gold(y, g) if g else {})
    if cls is GoldCorrected:
        if g >= least:
            assert not told
            return
        needs = "; where families are declared, 50" if families else ", and 10"
        assert told.pop(0).startswith(f"{g} annotated instances have gold labels{needs} are needed")
    (asked,) = told
    if g >= least:
        assert asked.endswith(
            f"or fit GoldCorrected with the {g} gold labels if they were drawn at random."
        )
    elif g:
        assert asked.endswith(
            f"fit GoldCorrected with more gold labels: {least} or more instances drawn at "
            f"random in all ({g} so far)."
        )
    else:
        assert asked.endswith(
            f"fit GoldCorrected with gold labels of {least} or more instances drawn at random."
        )


@pytest.mark.parametrize("cls", [DawidSkene, GoldCorrected])
def test_gold_is_not_asked_for_where_it_cannot_choose_families(cls):
    A, y = with_machines(0, humans=13, machines=3)
    told = messages_of(cls(), A, gold=some_gold(y, 30))
    assert told[-1].startswith("Annotators 13, 14, 15 agree")
    assert told[-1].endswith(
        "Say who belongs together (groups=, on the command line --groups; groups={} or "
        "--groups none if nobody does)."
    )


def test_a_store_is_not_told_to_declare_families(tmp_path):
    table = AnnotationTable.from_matrix(with_machines(0)[0])
    with pytest.warns(SharedMistakesWarning, match=r"A store carries no families: fit a table"):
        DawidSkene().fit(AnnotationStore.create(tmp_path / "store", table))


def test_two_families_of_everybody_without_shared_mistakes_are_told_of_once():
    A, y = independent(0, r=8)
    both = {r: "ab"[r // 4] for r in range(8)}
    (told,) = messages_of(DawidSkene(), A, groups=both)
    assert told.startswith(
        "There are only two groups of annotators, a and b, and they show no shared mistakes (z = "
    )
    assert "--groups none), and the annotations decide. If they have one, the" in told
    assert "of the instances that both annotated where they differ; to tell which is" in told
    (told,) = messages_of(DawidSkene(), A, groups=both, gold=some_gold(y, 20))
    assert told.startswith("There are only two groups of annotators, a and b, and they show no")
    assert told.endswith("50 or more instances drawn at random in all (20 so far).")
    (told,) = messages_of(DawidSkene(), A, groups=both, gold=some_gold(y, 50))
    assert told.startswith("This family shows no shared mistakes: 0, 1, 2, 3 (z = ")
    apart = A.copy()
    apart[:200, :4] = apart[200:, 4:] = -1
    (told,) = messages_of(DawidSkene(), apart, groups=both)
    assert "a and b, and no instance has annotations of both" in told


def test_one_family_of_everybody_says_that_nothing_is_known_of_it():
    A, y = with_machines(0)
    everybody = dict.fromkeys(range(8), "x")
    with pytest.warns(NotIdentifiableWarning, match="All annotators belong to one family, x. Nob"):
        DawidSkene().fit(A, groups=everybody)
    assert len(messages_of(DawidSkene(), A, groups=everybody)) == 1
    (told,) = messages_of(DawidSkene(), A, groups=everybody, gold=some_gold(y, 20))
    assert told.startswith("On 95 % of the instances only the family x annotated. Their labels are")
    assert told.endswith("as gold to GoldCorrected, with no family declared.")


@pytest.mark.parametrize("names", [{0: "a"}, {r: f"m{r}" for r in range(8)}])
def test_a_family_of_one_declares_nothing(names):
    """Nobody is there to share mistakes with: the search goes on, and ten gold labels do."""
    A, y = with_machines(3)
    assert messages_of(DawidSkene(), A, groups=names) == messages_of(DawidSkene(), A)
    model = GoldCorrected().fit(A, gold=some_gold(y, 30), groups=names)
    assert model.corrected_
    np.testing.assert_allclose(model.posterior_, corrected_machines().posterior_, atol=1e-12)


def test_a_family_declared_in_part_is_told_of_once():
    rng = np.random.default_rng(0)
    truth, copied = rng.integers(0, 2, (2, 400))
    people = [np.where(rng.random(400) < 0.8, truth, 1 - truth) for _ in range(3)]
    machines = [np.where(rng.random(400) < 0.6, copied, truth) for _ in range(4)]
    A = np.stack([*people, *machines], axis=1)
    (told,) = messages_of(DawidSkene(), A, groups={4: "m", 5: "m"})
    assert told.startswith("Annotators 3, 4, 5, 6 agree with one another more than with the others")
    assert " The declared family 4, 5 is only a part of these. Say who belongs together" in told


def test_the_page_quotes_the_messages():
    page = (Path(__file__).parents[2] / "docs" / "families.md").read_text(encoding="utf-8")
    quoted = re.findall(r"(?:^> .+\n)+", page, re.MULTILINE)
    quoted = [
        re.sub(r"z = [\d.-]+", "z", " ".join(each.replace("> ", "").split())) for each in quoted
    ]
    quoted = [
        each for each in quoted if not each.startswith("On 94 %")
    ]  # test_isolated_families.py
    A, _ = with_machines(0)
    (undeclared,) = messages_of(DawidSkene(), A[:, [0, 1, 2, 3, 4, 5, 6]])
    A, _ = independent(0)
    (declared,) = messages_of(DawidSkene(), A, groups=dict.fromkeys(range(3), "f"))
    found = [undeclared.replace("4, 5, 6", "a, b, c"), declared.replace("0, 1, 2", "a, b, c")]
    assert quoted == [re.sub(r"z = [\d.-]+", "z", each) for each in found]


def test_machines_are_found_where_few_instances_have_two_annotators():
    A, _ = with_machines(0, n=1600, humans=6, machines=3)
    part = np.arange(1600) % 3
    isolated = np.arange(1600) >= 150
    for machine in range(3):
        A[isolated & (part != machine), 6 + machine] = -1
    A[isolated, :6] = -1
    few, shared = messages_of(DawidSkene(), A)
    assert few.startswith("only 150 of 1,600 annotated instances have annotations by two")
    assert shared.startswith("Annotators 6, 7, 8 agree with one another more than with the others")
    (few,) = messages_of(DawidSkene(), A, groups={})
    A[:150, :8] = -1
    (none,) = messages_of(DawidSkene(), A, gold={0: 1})
    assert none.startswith("only 0 of 1,600")


def test_labels_that_are_only_believed_are_no_gold():
    y = np.random.default_rng(0).integers(0, 2, 8)
    A = np.where(np.arange(4) == np.arange(8)[:, None] % 4, y[:, None], -1)
    told = messages_of(GoldCorrected(), A)
    assert told[1].startswith("0 annotated instances have gold labels, and 10 are needed")
    told = messages_of(GoldCorrected(), np.concatenate([A] * 5))
    assert not any("gold cannot detect" in each for each in told)


def test_one_human_an_instance_beside_machines_cannot_be_measured():
    A, _ = with_machines(0, n=300, humans=30, machines=3)
    keep = np.random.default_rng(0).integers(0, 30, 300)
    A[:, :30] = np.where(np.arange(30) == keep[:, None], A[:, :30], -1)
    with pytest.warns(NotIdentifiableWarning, match="30, 31, 32 share mistakes cannot be measured"):
        DawidSkene().fit(A)


def test_what_is_too_few_to_measure_shared_mistakes_is_named():
    """Only two of the others share instances, and only two of the set do, in turn."""
    A, _ = with_machines(0, n=300, humans=3, machines=3)
    alone = np.arange(300)[:, None] % 3 == np.arange(3)
    few_others, few_members = A.copy(), A.copy()
    few_others[:, :3] = np.where(alone, A[:, :3], -1)
    few_members[:, 3:] = np.where(alone, A[:, 3:], -1)
    for given, missing in ((few_others, "by the others"), (few_members, "by them")):
        (found,) = shared_mistakes(AnnotationTable.from_matrix(given), [[3, 4, 5]])
        assert not found.measurable
        said = f"It takes 30 instances with two annotations {missing} (there are 0)."
        assert str(found).endswith(said)


@pytest.mark.parametrize("n_models", [3, 6])
def test_nobody_says_that_families_are_declared_where_they_are_read_from_names(n_models, caplog):
    A, _ = with_machines(0, n=200, humans=3, machines=n_models)
    names = ["ann", "ben", "cay", *(f"gpt-{k}" for k in range(n_models))]
    table = AnnotationTable.from_matrix(A, annotators=names)
    with warnings.catch_warnings(), caplog.at_level("INFO", "manyhands"):
        warnings.simplefilter("ignore")
        model = DawidSkene().fit(table)
        tell_labels(table, model, model.posterior_.argmax(axis=1), model.posterior_)
    assert "families are declared" not in caplog.text


# -- gold -----------------------------------------------------------------------------------------


def some_gold(y, g, seed=0):
    known = np.random.default_rng(seed).choice(len(y), g, replace=False)
    return np.where(np.isin(np.arange(len(y)), known), y, -1)


@functools.cache
def corrected_machines():
    """Machines whose family thirty gold labels tell; tests only read it."""
    A, y = with_machines(3)
    return GoldCorrected().fit(A, gold=some_gold(y, 30))


def test_gold_finds_the_family():
    A, y = with_machines(3)
    gold = some_gold(y, 30)
    rest = gold < 0
    model = corrected_machines()
    with pytest.warns(SharedMistakesWarning):
        plain = DawidSkene().fit(A, gold=gold)
    right = (model.labels_ == y)[rest].mean()
    assert right > 0.84 > (plain.labels_ == y)[rest].mean() + 0.1
    assert model.corrected_
    np.testing.assert_allclose(sum(model.base_weights_.values()), 1)
    assert any("4+5+6+7" in name for name in model.base_weights_)
    assert (model.posterior_[~rest, y[~rest]] == 1).all()
    new = with_machines(4)
    assert (model.predict(new[0]) == new[1]).mean() > 0.84


@pytest.mark.parametrize(("groups", "g", "corrected"), [
    (None, 9, False), (None, 10, True), ("machine", 49, False), ("machine", 50, True),
])  # fmt: skip
def test_gold_corrects_from_enough_on(groups, g, corrected):
    A, y = with_machines(3)
    families = machine_family() if groups else {}
    enough = contextlib.nullcontext()
    told = pytest.warns(NotIdentifiableWarning, match=f"{g} annotated instances .* {g + 1} are")
    with enough if corrected else told:
        model = GoldCorrected().fit(A, gold=some_gold(y, g), groups=families)
    assert model.corrected_ == corrected
    if not corrected:
        plain = DawidSkene().fit(A, gold=some_gold(y, g), groups=families)
        np.testing.assert_allclose(model.posterior_, plain.posterior_)


def test_regression_and_evidence_against_finite_differences():
    rng = np.random.default_rng(0)
    x, gold = rng.normal(size=(15, 3, 4)), rng.integers(0, 3, 15)
    mean, sd = np.array([1.0, 0, 0.5, 0]), np.array([0.3, 0.5, 1, 2])

    def log_density(z):
        scores = x @ (mean + sd * z)
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return log_p[np.arange(15), gold].sum() - z @ z / 2

    from scipy.sparse import csr_matrix

    features = csr_matrix(x.reshape(-1, 4))
    found, evidence = gold_corrected.maximum_a_posteriori(features, gold, mean, sd)
    z, h, unit = (found - mean) / sd, 1e-4, np.eye(4) * 1e-4
    gradient = [(log_density(z + u) - log_density(z - u)) / (2 * h) for u in unit]
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    curvature = [
        [
            log_density(z + u + v) - log_density(z + u - v) - log_density(z - u + v)
            + log_density(z - u - v)
            for v in unit
        ]
        for u in unit
    ]  # fmt: skip
    _, determinant = np.linalg.slogdet(-np.array(curvature) / (4 * h**2))
    np.testing.assert_allclose(evidence, log_density(z) - determinant / 2, atol=1e-4)


@pytest.mark.data
def test_judgebench():
    from manyhands.datasets import load_judgebench

    crowd = load_judgebench()
    table = crowd.annotations
    assert (table.n_annotations, len(table.abstentions)) == (2406, 44)
    kinds = {a: "judge" if "o1" in a else "reward" for a in table.annotators.tolist()}
    assert (MajorityVote().fit(table, groups=kinds).labels_ == crowd.y_train).mean() > 0.7
    with pytest.warns(NotIdentifiableWarning, match="only two groups"):
        found = DawidSkene().fit(table, groups=kinds)
    assert (found.labels_ == crowd.y_train).mean() > 0.77
    with pytest.warns(SharedMistakesWarning):
        assert (DawidSkene().fit(table).labels_ == crowd.y_train).mean() < 0.68


def _judges(names, seed=0, people=1):
    """Annotators who share mistakes, behind people who do not, on 400 instances."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, 400)
    shared = np.where(rng.random(400) < 0.6, truth, rng.integers(0, 3, 400))
    models = [
        np.where(rng.random(400) < 0.9, shared, rng.integers(0, 3, 400)) for _ in names[people:]
    ]
    persons = [
        np.where(rng.random(400) < 0.8, truth, rng.integers(0, 3, 400)) for _ in range(people)
    ]
    A = np.stack([*persons, *models], axis=1)
    cells = [(i, names[r], int(A[i, r])) for i in range(400) for r in range(len(names))]
    frame = pd.DataFrame(cells, columns=["task", "worker", "label"])
    return AnnotationTable.from_frame(frame), truth


MODEL_NAMES = ["ann", "gpt-4o", "gpt-4o-mini", "gemini_pro", "Claude 3", "llama-31", "mistral-v03"]


def test_labels_that_language_models_alone_gave_are_not_accepted():
    table, _ = _judges(MODEL_NAMES)
    with pytest.warns(SharedMistakesWarning, match="named like language models") as told:
        model = DawidSkene().fit(table)
    (said,) = {str(warning.message) for warning in told}
    listed = "Claude 3,gemini_pro,gpt-4o,gpt-4o-mini,llama-31,mistral-v03"
    assert f"--groups 'llm={listed}'" in said
    assert f"groups=dict.fromkeys({listed.split(',')!r}, 'llm')" in said
    # Nor where one person agrees with them: nothing tells which of the two is right.
    assert not (consensus(table, model).actions == "accept").any()
    assert (consensus(table, model, alike=np.zeros(7, dtype=bool)).actions == "accept").any()
    told = tell_labels(table, model, model.posterior_.argmax(axis=1), model.posterior_)
    assert told.level is None  # With one person beside them, nothing shows how good they are.
    assert "Claude 3, gemini_pro, gpt-4o and 3 more may share mistakes" in told.headline
    assert "count as one" not in told.headline  # The labels count six until they are declared.
    assert "labels count them as 6\u00a0independent annotators" in told.headline
    assert f"(--groups 'llm={listed}')" in told.headline
    assert "manyhands review ANNOTATIONS --random 100" in told.headline
    # Declared, or said to be independent, they are not warned of.
    for groups in (dict.fromkeys(MODEL_NAMES[1:], "llm"), {}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DawidSkene().fit(table.with_groups(groups))
        assert not any("named like" in str(warning.message) for warning in caught)


def test_a_label_that_models_and_two_people_gave_may_be_accepted():
    table, truth = _judges(["ann", "bea", *MODEL_NAMES[1:]], people=2)
    with pytest.warns(SharedMistakesWarning, match="named like language models"):
        model = DawidSkene().fit(table)
    accepted = consensus(table, model).actions == "accept"
    free = consensus(table, model, alike=np.zeros(8, dtype=bool)).actions == "accept"
    of_people = table.select(annotators=["ann", "bea"])
    labels = model.posterior_.argmax(axis=1)
    given = (of_people.to_matrix() == labels[:, None]).any(axis=1)
    assert accepted.any()  # Fewer than of these, as the level allows for shared mistakes.
    assert not (accepted & ~(free & given)).any()
    right = table.classes[labels] == truth
    assert right[accepted].mean() > right[free].mean() + 0.05


@pytest.mark.parametrize("names", [["gpt-4o", "ann"], ["Philip", "Claudette"], ["o1", "o2"]])
def test_people_are_not_taken_for_language_models(names):
    assert not undeclared_models(None, np.array(names)).any()
