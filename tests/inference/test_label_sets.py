"""Truth inference about sets of labels."""

import inspect
import warnings
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from scipy.stats import beta
from sklearn.base import clone

from manyhands import (
    DawidSkene,
    LabelSetTable,
    MultiLabelDawidSkene,
    MultiLabelMajorityVote,
    load,
    save,
)
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.inference.set_aggregator import REFUSED, OfSingleLabels, gold_cells
from manyhands.inference.shared_behaviour import (
    SharedPrior,
    count_by_others,
    shared_rates,
    shared_strength,
)
from manyhands.registry import all_set_aggregators, find_set_aggregator

# A few dozen instances do not always show that annotators agree.
pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")

METHODS = [cls for _, cls in all_set_aggregators()]
methods = pytest.mark.parametrize("cls", METHODS)
OPTIONS = ["anger", "fear", "joy", "sadness", "surprise"]


def crowd(seed=0, n=200, k=3, n_annotators=20, options=OPTIONS, habits=1.5):
    """Answers of annotators of whom a third tick too little and a third too much; and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, len(options))) < rng.uniform(0.15, 0.4, len(options))
    habit = np.resize([-habits, 0.0, habits], n_annotators)
    instance = np.repeat(np.arange(n), k)
    annotator = rng.random((n, n_annotators)).argsort(axis=1)[:, :k].ravel()
    rate = expit(np.where(truth[instance], 1.0, -2.2) + habit[annotator, None])
    ticks = rng.random(rate.shape) < rate
    table = LabelSetTable.from_arrays(
        [f"i{i}" for i in instance], [f"a{r:02d}" for r in annotator], ticks, options=options
    )
    order = [int(name[1:]) for name in table.instances.tolist()]
    return table, truth[order], expit(1.0 + habit), expit(-2.2 + habit)


def quick(cls):
    """Make a method whose fits do not measure the correlation of mistakes, which takes longest."""
    return cls(dependence=0.2) if "dependence" in cls().get_params() else cls()


def f1(labels, truth):
    return 2 * (labels & truth).sum() / (labels.sum() + truth.sum())


def calibration_error(posterior, truth, n_bins=10):
    place = np.minimum((posterior * n_bins).astype(int), n_bins - 1).ravel()
    gap = np.bincount(place, posterior.ravel(), n_bins) - np.bincount(place, truth.ravel(), n_bins)
    return np.abs(gap).sum() / truth.size


# -- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 4])
def test_without_sharing_each_option_is_a_dawid_skene(k):
    table, *_ = crowd(n=120, k=k)
    found = MultiLabelDawidSkene(share=False).fit(table)
    assert not found.shared_
    for code, name in enumerate(table.options.tolist()):
        alone = DawidSkene().fit(table.option(name))
        np.testing.assert_allclose(found.posterior_[:, code], alone.posterior_[:, 1], atol=1e-12)
        np.testing.assert_allclose(found.sensitivity_[:, code], alone.confusion_[:, 1, 1])
        np.testing.assert_allclose(found.false_tick_rate_[:, code], alone.confusion_[:, 0, 1])
        np.testing.assert_allclose(found.prevalence_[code], alone.class_prior_[1])
        assert found.dependence_[code] == alone.dependence_


def test_one_option_is_a_dawid_skene():
    table, *_ = crowd(options=["joy"])
    found = MultiLabelDawidSkene(share=False).fit(table)
    alone = DawidSkene().fit(table.option("joy"))
    np.testing.assert_allclose(found.posterior_[:, 0], alone.posterior_[:, 1], atol=1e-12)


@pytest.mark.parametrize("share", [True, False])
def test_the_order_of_the_options_changes_nothing(share):
    table, *_ = crowd(n=100)
    found = MultiLabelDawidSkene(share, dependence=0.2).fit(table)
    turned = MultiLabelDawidSkene(share, dependence=0.2).fit(table.select(options=OPTIONS[::-1]))
    np.testing.assert_allclose(turned.posterior_[:, ::-1], found.posterior_, atol=1e-9)
    np.testing.assert_allclose(turned.sensitivity_[:, ::-1], found.sensitivity_, atol=1e-9)


def test_sharing_finds_the_habits_of_annotators():
    table, _, sensitivity, false_ticks = crowd(n=400, k=2, n_annotators=40)
    shared, own = (
        MultiLabelDawidSkene(share, dependence=0.2).fit(table) for share in (True, False)
    )
    for name, truth in (("sensitivity_", sensitivity), ("false_tick_rate_", false_ticks)):
        r = [
            np.corrcoef(getattr(model, name).ravel(), truth.repeat(len(OPTIONS)))[0, 1]
            for model in (shared, own)
        ]
        assert r[0] > 0.7
        assert r[0] > r[1] + 0.1
    error = np.abs(shared.annotator_sensitivity_ - sensitivity).mean()
    assert error < 0.15
    # Those who tick too little are told from those who tick too much.
    assert shared.annotator_sensitivity_[0::3].max() < shared.annotator_sensitivity_[2::3].min()


def test_labels_gain_by_sharing_with_two_annotators():
    gains = []
    for seed in range(3):
        table, truth, *_ = crowd(seed, n=300, k=2, n_annotators=30)
        shared, own = (
            MultiLabelDawidSkene(share, dependence=0.2).fit(table) for share in (True, False)
        )
        gains.append(f1(shared.labels_, truth) - f1(own.labels_, truth))
    assert np.mean(gains) > 0.02


@pytest.mark.parametrize(
    ("k", "dependence", "most"), [(2, "auto", 0.04), (3, "auto", 0.085), (2, 0, 0.04), (3, 0, 0.04)]
)
def test_probabilities_are_calibrated(k, dependence, most):
    # Mistakes are independent here, so with three annotators probabilities that allow for
    # correlated ones, of which so few answers show little, are too cautious. The study's bound, of
    # its own draws, is 0.08; the mean of these three is 0.081.
    errors = []
    for seed in range(3):
        table, truth, *_ = crowd(seed, n=400, k=k, options=[f"o{i}" for i in range(8)])
        model = MultiLabelDawidSkene(dependence=dependence).fit(table)
        errors.append(calibration_error(model.posterior_, truth))
    assert np.mean(errors) < most


def test_why_behaviour_is_shared_is_told():
    few = MultiLabelDawidSkene(dependence=0.2).fit(crowd(k=3)[0])
    assert few.shared_
    assert few.why_ == "instances have 3.0 annotators on average"
    assert few.evidence_["shared"] > few.evidence_["own"]
    many = MultiLabelDawidSkene(dependence=0.2).fit(crowd(k=6)[0])
    assert many.shared_, "habits hold for all options"
    assert many.evidence_["shared"] > many.evidence_["own"]
    assert "similar habits explain the answers better" in many.why_
    table = crowd(k=3)[0]
    assert MultiLabelDawidSkene(True, dependence=0.2).fit(table).why_ == "share=True"
    for share in (True, "auto"):
        whole = MultiLabelDawidSkene(share, dependence=0.2, n_subtypes=3).fit(table)
        assert whole.why_.endswith("; n_subtypes=3 is not used")


def test_one_nat_is_told_as_one():
    model = MultiLabelDawidSkene()
    model.why_, model.evidence_ = "", {"shared": 1.0, "own": 0.0}
    assert model._shares(6.0)
    assert model.why_.endswith("(log evidence 1 nat higher)")


def specialists(k, seed=0, n=200, n_options=6, n_annotators=20):
    """Annotators who know two options each, and hardly anything of the others."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, n_options)) < 0.3
    knows = rng.random((n_annotators, n_options)).argsort(axis=1) < 2
    right = np.where(knows, 3.0, 0.3)
    annotator = rng.random((n, n_annotators)).argsort(axis=1)[:, :k].ravel()
    instance = np.repeat(np.arange(n), k)
    rate = expit(np.where(truth[instance], 1, -1) * right[annotator])
    return LabelSetTable.from_arrays(instance, annotator, rng.random(rate.shape) < rate)


def test_what_specialists_know_of_single_options_is_not_shared():
    found = MultiLabelDawidSkene(dependence=0.2).fit(specialists(k=6))
    assert not found.shared_
    assert "separate habits explain the answers better" in found.why_
    few = MultiLabelDawidSkene(dependence=0.2).fit(specialists(k=3))
    assert few.shared_
    assert "3.0 annotators on average, although separate habits" in few.why_


def test_one_annotator_per_instance_gives_the_answers():
    table, *_ = crowd(k=1)
    with pytest.warns(NotIdentifiableWarning, match="annotators cannot be compared") as told:
        found = MultiLabelDawidSkene().fit(table)
    assert len([w for w in told if w.category is NotIdentifiableWarning]) == 1, "not once an option"
    order = np.argsort(table.instance, kind="stable")
    np.testing.assert_array_equal(found.labels_, table.ticks.toarray()[order])
    assert not found.shared_


def test_answers_are_counted_against_the_votes_of_others():
    table = LabelSetTable.from_arrays(
        [0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 1, 0], [[1], [1], [0], [0], [1], [1]]
    ).option("0")
    counts = count_by_others(table)
    # Annotator 0 ticks 0, where half of the others do, and not 1, where the other one does.
    np.testing.assert_allclose(counts[0], [[0, 0.5], [1, 0.5]])
    np.testing.assert_allclose(counts[1], [[0, 1.5], [0, 0.5]])
    np.testing.assert_allclose(counts[2], [[0, 0], [1, 0]])
    known = count_by_others(table, np.array([-1, -1, 0]))
    np.testing.assert_allclose(known[0], [[0, 1.5], [1, 0.5]])


def test_rates_of_the_shared_prior_by_hand():
    rng = np.random.default_rng(0)
    counts, others = rng.integers(1, 9, (2, 3, 2, 2, 2)).astype(float)
    counts[1, 1] = others[1, 1] = 0
    rates = shared_rates(counts, others)
    assert rates.shape == (3, 2, 2)

    def drawn(counts, m, z):
        seen, ticked = counts[:, :, z].sum(axis=2), counts[:, :, z, 1]
        own = (ticked[:, m].sum() + 0.1 + z) / (seen[:, m].sum() + 1.2)
        whole = (ticked.sum() + 0.1 + z) / (seen.sum() + 1.2)
        return expit(0.5 * logit(whole) + 0.5 * logit(own))

    for r in range(3):
        for z in (0, 1):
            seen = others[r, :, z].sum(axis=1)
            expected = sum(seen[m] * drawn(others, m, z) for m in (0, 1)) / seen.sum()
            own = (others[r, :, z, 1].sum() + 5 * expected) / (seen.sum() + 5)
            habit = logit(own) - logit(expected)
            for m in (0, 1):
                rate = expit(logit(drawn(counts, m, z)) + habit)
                np.testing.assert_allclose(rates[r, m, z], rate)


def test_the_shared_strength_is_that_of_the_greatest_evidence():
    rng = np.random.default_rng(0)
    rates = np.full((30, 8, 2), [0.1, 0.7])
    for alike, expected in ((True, 50.0), (False, 1.0)):
        own = rates if alike else rng.beta(0.5, 0.5, rates.shape)
        ticked = rng.binomial(40, own)
        counts = np.stack([40 - ticked, ticked], axis=3).astype(float)
        assert shared_strength(counts, rates) == expected
    prior = SharedPrior.of(rates[:, 0], 10.0)
    pseudo, strength = prior.pseudo_counts(np.ones((30, 2, 2)), 2)
    np.testing.assert_allclose(pseudo, np.tile([[9.0, 1.0], [3.0, 7.0]], (30, 1, 1)))
    assert strength == 10.0


def test_abstentions_are_modelled():
    table, *_ = crowd(n=60)
    frame = table.to_frame()
    frame.loc[frame.index % 7 == 0, "labels"] = "unsure"
    unsure = LabelSetTable.from_frame(frame, none="empty", abstain="unsure", options=OPTIONS)
    for share in (True, False):
        found = MultiLabelDawidSkene(share).fit(unsure)
        ignoring = MultiLabelDawidSkene(share, abstentions="ignore").fit(unsure)
        assert np.isfinite(found.posterior_).all()
        assert not np.allclose(found.posterior_, ignoring.posterior_)
    alone = DawidSkene().fit(unsure.option("joy"))
    np.testing.assert_allclose(found.posterior_[:, 2], alone.posterior_[:, 1], atol=1e-12)


def test_intervals_hold_the_estimates_and_shrink_with_answers():
    few, many = (MultiLabelDawidSkene(dependence=0.2).fit(crowd(n=n)[0]) for n in (60, 400))
    width = []
    for found in (few, many):
        intervals = found.intervals()
        for name in ("annotator_sensitivity", "annotator_false_tick_rate"):
            low, high = np.moveaxis(getattr(intervals, name), -1, 0)
            value = getattr(found, f"{name}_")
            assert ((low < value) & (value < high)).all()
        low, high = np.moveaxis(intervals.sensitivity, -1, 0)
        assert low.shape == found.sensitivity_.shape
        assert ((low <= found.sensitivity_) & (found.sensitivity_ <= high)).mean() > 0.99
        width.append((high - low).mean())
    assert width[1] < width[0]
    with pytest.raises(AnnotationError, match="level=1"):
        few.intervals(1)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("varies", ["between annotators", "by option"])
def test_intervals_hold_the_true_rates(k, varies):
    overall, each = [], []
    for seed in range(3):
        rng = np.random.default_rng([seed, k])
        n, m, r = 400, 8, 30
        truth = rng.random((n, m)) < rng.uniform(0.1, 0.4, m)
        skill = rng.normal(size=(r, m if varies == "by option" else 1))
        sensitivity = expit(np.broadcast_to(1.0 + skill, (r, m)))
        instance = np.repeat(np.arange(n), k)
        annotator = rng.random((n, r)).argsort(axis=1)[:, :k].ravel()
        rate = np.where(truth[instance], sensitivity[annotator], expit(-2.2 - skill)[annotator])
        table = LabelSetTable.from_arrays(
            instance, annotator, rng.random(rate.shape) < rate, n_annotators=r
        )
        seen = np.zeros((r, m))
        np.add.at(seen, annotator, truth[instance].astype(float))
        found = MultiLabelDawidSkene().fit(table).intervals()
        for bounds, true, held in (
            (found.annotator_sensitivity, (seen * sensitivity).sum(1) / seen.sum(1), overall),
            (found.sensitivity, sensitivity, each),
        ):
            held.append(((bounds[..., 0] <= true) & (true <= bounds[..., 1])).mean())
    assert np.mean(overall) > 0.75
    assert np.mean(each) > 0.85


def test_where_all_is_known_answers_count_in_full():
    table, truth, *_ = crowd(n=150)
    known = MultiLabelDawidSkene(dependence=0.2).fit(table, gold=truth.astype(float))
    seen = np.zeros((table.n_annotators, 2))
    np.add.at(seen, (table.annotator, 1), truth[table.instance].sum(axis=1))
    np.add.at(seen, (table.annotator, 0), (~truth[table.instance]).sum(axis=1))
    low, high = np.moveaxis(known.intervals().annotator_sensitivity, -1, 0)
    rate = known.annotator_sensitivity_
    # The Beta of as many answers as the annotator gave where an option applies, and five more.
    n = seen[:, 1] + 5
    np.testing.assert_allclose(low, beta.ppf(0.025, rate * n, (1 - rate) * n), atol=1e-9)
    in_doubt = MultiLabelDawidSkene(dependence=0.2).fit(table).intervals().annotator_sensitivity
    assert ((high - low) < np.diff(in_doubt)[:, 0]).all()


# -- what surrounds it ----------------------------------------------------------------------------


def test_they_are_found_by_name_and_are_no_aggregators_of_classes():
    assert set(METHODS) == {MultiLabelDawidSkene, MultiLabelMajorityVote}
    assert find_set_aggregator("multi-label-dawid-skene") is MultiLabelDawidSkene
    with pytest.raises(AnnotationError, match="did you mean"):
        find_set_aggregator("multi-label-dawid-skeen")


@methods
def test_labels_are_better_than_annotators(cls):
    table, truth, *_ = crowd(k=7)
    found = quick(cls).fit(table)
    assert found.posterior_.shape == found.labels_.shape == truth.shape
    assert found.labels_.dtype == found.identified_.dtype == bool
    assert ((found.posterior_ >= 0) & (found.posterior_ <= 1)).all()
    own = [f1(table.ticks.toarray()[i::7], truth[table.instance[i::7]]) for i in range(7)]
    assert f1(found.labels_, truth) > np.mean(own) + 0.1
    assert found.prevalence_.shape == (5,)


@methods
def test_parameters_are_cloned_and_validated(cls):
    model = cls()
    assert clone(model).get_params() == model.get_params()
    assert set(model.get_params()) == set(cls._parameter_constraints)
    table, *_ = crowd(n=30)
    for name in model.get_params():
        with pytest.raises(ValueError, match=name):
            cls(**{name: "nonsense"}).fit(table)


@methods
def test_gold_is_known_cell_by_cell(cls):
    table, truth, *_ = crowd(n=80)
    joy, fear = OPTIONS.index("joy"), OPTIONS.index("fear")
    first, second = table.instances[:2].tolist()
    gold = {first: ["joy", "fear"], second: {"joy": 1, "anger": 0}}
    found = quick(cls).fit(table, gold=gold)
    np.testing.assert_array_equal(found.posterior_[0], np.isin(OPTIONS, ["joy", "fear"]))
    assert found.posterior_[1, [joy, OPTIONS.index("anger")]].tolist() == [1.0, 0.0]
    assert found.is_known_.sum() == 7
    assert found.is_known_[1].tolist() == [True, False, True, False, False]
    without = quick(cls).fit(table)
    if cls is MultiLabelMajorityVote:
        np.testing.assert_array_equal(found.posterior_[2:], without.posterior_[2:])
    cells = np.full(truth.shape, np.nan)
    cells[0], cells[1, joy], cells[1, 0] = np.isin(OPTIONS, ["joy", "fear"]), 1, 0
    again = quick(cls).fit(table, gold=cells)
    np.testing.assert_array_equal(again.posterior_, found.posterior_)
    frame = pd.DataFrame(cells, index=table.instances, columns=OPTIONS)
    shuffled = frame.iloc[::-1, ::-1]
    np.testing.assert_array_equal(quick(cls).fit(table, gold=shuffled).posterior_, found.posterior_)
    assert fear == 1


def test_gold_of_one_option_is_that_of_dawid_skene():
    table, truth, *_ = crowd(n=120, k=3)
    cells = np.full(truth.shape, np.nan)
    cells[:60, 2] = truth[:60, 2]
    found = MultiLabelDawidSkene(share=False, dependence=0.2).fit(table, gold=cells)
    words = np.array(["no", "yes"])[truth[:60, 2].astype(int)]
    known = dict(zip(table.instances[:60].tolist(), words.tolist(), strict=True))
    alone = DawidSkene(dependence=0.2).fit(table.option("joy"), gold=known)
    np.testing.assert_allclose(found.posterior_[:, 2], alone.posterior_[:, 1], atol=1e-12)


def test_gold_that_cannot_be_is_refused():
    table, *_ = crowd(n=20)
    first = table.instances[0].item()
    for gold, said in (
        ({first: ["happy"]}, "'happy'.*not among the table's options"),
        ({"elsewhere": ["joy"]}, "'elsewhere'.*not among the table's instances"),
        ({first: "joy"}, r"give the options that apply as a list, such as \['anger'\]"),
        ({first: {"joy": 2}}, "gold holds 2; a label is 1"),
        (np.zeros((3, 2)), r"gold has shape \(3, 2\)"),
        (pd.DataFrame({"happy": [1]}, index=[first]), "'happy'"),
    ):
        with pytest.raises(AnnotationError, match=said):
            MultiLabelDawidSkene().fit(table, gold=gold)
    assert (gold_cells({}, table) == -1).all()


@methods
def test_weights_and_families_count(cls):
    table, *_ = crowd(n=60, k=4)
    weighted = LabelSetTable.from_frame(
        table.to_frame().assign(weight=np.resize([1.0, 3.0], 240)),
        weight="weight",
        none="empty",
        options=OPTIONS,
    )
    plain = quick(cls).fit(table)
    assert not np.allclose(quick(cls).fit(weighted).posterior_, plain.posterior_)
    families = dict.fromkeys(table.annotators[:6].tolist(), "llm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        declared = quick(cls).fit(table, groups=families)
    assert not np.allclose(declared.posterior_, plain.posterior_)
    assert declared.table_.groups.tolist()[:6] == ["llm"] * 6
    with pytest.raises(AnnotationError, match="groups"):
        quick(cls).fit(table, groups={"nobody": "llm"})


@methods
def test_answers_are_added(cls):
    table, *_ = crowd(n=80)
    first = table.take(table.instance < 50)
    second = table.take(table.instance >= 50).select(instances=table.instances[50:])
    whole = quick(cls).fit(table)
    found = quick(cls).fit(first[:50], gold={table.instances[0].item(): ["joy"]})
    found.partial_fit(second)
    again = quick(cls).fit(table, gold={table.instances[0].item(): ["joy"]})
    order = [found.instances_.tolist().index(name) for name in table.instances.tolist()]
    np.testing.assert_allclose(found.posterior_[order], again.posterior_, atol=1e-9)
    assert found.is_known_.sum() == 5
    with pytest.warns(UserWarning, match="nothing"):
        found.partial_fit(second, duplicates="last")
    with pytest.raises(AnnotationError):
        found.partial_fit(second)
    strange = LabelSetTable.from_arrays(["new"], ["a01"], [[1]], options=["happy"])
    with pytest.raises(AnnotationError, match="'happy', which is not among"):
        found.partial_fit(strange)
    np.testing.assert_array_equal(quick(cls).partial_fit(table).posterior_, whole.posterior_)


@methods
def test_a_fit_that_fails_changes_nothing(cls):
    table, *_ = crowd(n=40)
    found = quick(cls).fit(table)
    before = found.posterior_.copy()
    with pytest.raises(AnnotationError):
        found.fit(table, gold={"elsewhere": []})
    np.testing.assert_array_equal(found.posterior_, before)


@methods
def test_new_instances_are_labelled(cls):
    table, truth, *_ = crowd(n=240, k=5)
    known, new = table[:160], table[160:]
    found = quick(cls).fit(known)
    posterior = found.predict_proba(new)
    assert f1(found.predict(new), truth[160:]) > 0.6
    np.testing.assert_array_equal(found.predict(new), posterior > 0.5)
    np.testing.assert_allclose(quick(cls).fit_predict_proba(known), found.posterior_)
    np.testing.assert_array_equal(quick(cls).fit_predict(known), found.labels_)
    fewer = LabelSetTable.from_arrays(["x"], ["a01"], [[1]], options=["joy"])
    assert found.predict_proba(fewer).shape == (1, 5)
    empty = LabelSetTable(
        new.answers.take(np.zeros(new.n_annotations, dtype=bool)),
        *(new.options, new.set_start, new.set_options),
    )
    np.testing.assert_allclose(found.predict_proba(empty), np.tile(found.prevalence_, (80, 1)))


def test_an_unknown_annotator_is_refused():
    found = MultiLabelDawidSkene().fit(crowd(n=40)[0])
    with pytest.raises(AnnotationError, match="'stranger'"):
        found.predict_proba(LabelSetTable.from_arrays(["x"], ["stranger"], [[1]], options=["joy"]))


@methods
def test_a_folder_holds_all(cls, tmp_path):
    table, *_ = crowd(n=60)
    found = quick(cls).fit(table, gold={table.instances[0].item(): ["joy"]})
    save(found, tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is cls
    np.testing.assert_array_equal(again.posterior_, found.posterior_)
    assert again.table_.equals(found.table_)
    np.testing.assert_array_equal(again.predict_proba(table[:9]), found.predict_proba(table[:9]))
    extra = LabelSetTable.from_arrays(["x"] * 2, ["a01", "a02"], [[1], [1]], options=["joy"])
    np.testing.assert_allclose(
        again.partial_fit(extra).posterior_, found.partial_fit(extra).posterior_, atol=1e-12
    )


@methods
@pytest.mark.parametrize("name", ["start", "random_gold", "history", "checkpoint", "engine"])
def test_what_sets_do_not_have_is_refused_by_name(cls, name):
    with pytest.raises(AnnotationError, match=f"{name}= is not for sets of labels: "):
        quick(cls).fit(crowd(n=20)[0], **{name: "anything"})
    with pytest.raises(TypeError, match=r"no option 'nonsense' in fit; .* weights .* belong to"):
        quick(cls).fit(crowd(n=20)[0], nonsense=1)


@methods
def test_only_tables_of_sets_are_taken(cls):
    table, *_ = crowd(n=20)
    for given, said in (
        (table.option("joy"), "use DawidSkene if each answer is one label"),
        (table.to_frame(), r"LabelSetTable.from_frame\(table\)"),
        ("answers.csv", r"read_label_sets\('answers.csv'\)"),
    ):
        with pytest.raises(AnnotationError, match=said):
            quick(cls).fit(given)
    with pytest.raises(AnnotationError, match="LabelSetTable"):
        DawidSkene().fit(table)
    with pytest.raises(AnnotationError, match="empty"):
        quick(cls).fit(table.take(np.zeros(table.n_annotations, dtype=bool)))


def test_options_of_which_little_is_known_are_told():
    table, *_ = crowd(n=150)
    declared = table.with_options([*OPTIONS, "disgust"])
    with pytest.warns(UserWarning, match="nobody ticked option 'disgust'"):
        found = MultiLabelDawidSkene(dependence=0.2).fit(declared)
    assert not found.labels_[:, 5].any()
    ticks = table.ticks.toarray()
    ticks[:, 0], ticks[:, 1] = True, False
    ticks[:7, 1] = True
    with pytest.warns(UserWarning, match="tick") as told:
        found = MultiLabelDawidSkene(dependence=0.2).fit(
            LabelSetTable.from_arrays(table.instance, table.annotator, ticks, options=OPTIONS)
        )
    texts = " ".join(str(each.message) for each in told)
    assert "everybody ticked option 'anger'" in texts
    assert "fewer than 20 answers tick option 'fear'" in texts
    assert found.labels_[:, 0].all()


def test_majority_is_more_than_half():
    ticks = [[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
    table = LabelSetTable.from_arrays([0, 0, 0, 0], range(4), ticks, n_instances=2)
    with pytest.warns(NotIdentifiableWarning, match="1 of 2 instances have no answer"):
        found = MultiLabelMajorityVote().fit(table)
    assert found.posterior_[0].tolist() == [0.75, 0.5, 0.25]
    assert found.labels_[0].tolist() == [True, False, False]
    assert found.posterior_[1].tolist() == found.prevalence_.tolist()
    assert not found.identified_[1].any()


@pytest.mark.parametrize("share", ["auto", False])
def test_instances_about_which_everybody_abstained_get_the_prevalence(share):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(200):
        truth = rng.random(3) < [0.1, 0.3, 0.5]
        for who in rng.choice(8, 3, replace=False):
            ticked = rng.random(3) < np.where(truth, 0.85, 0.05)
            rows.append((f"t{i}", who, ";".join(np.array(["awe", "fear", "joy"])[ticked])))
    answered = pd.DataFrame(rows, columns=["task", "worker", "labels"])
    alone = [(f"u{j}", who, "unsure") for j in range(30) for who in range(3)]
    both = pd.concat([answered, pd.DataFrame(alone, columns=answered.columns)])
    how = {"none": "empty", "abstain": "unsure"}
    plain = MultiLabelDawidSkene(share=share).fit(LabelSetTable.from_frame(answered, **how))
    table = LabelSetTable.from_frame(both, **how)
    with pytest.warns(UserWarning, match="nobody answered 30 instances of 230"):
        model = MultiLabelDawidSkene(share=share).fit(table)
    bare = table.annotations_per_instance() == 0
    assert bare.sum() == 30
    np.testing.assert_allclose(model.posterior_[bare], np.tile(model.prevalence_, (30, 1)))
    np.testing.assert_allclose(model.posterior_[~bare], plain.posterior_, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(table[bare])[0], model.prevalence_)
    assert len(model.table_.abstentions) == 90
    # Gold tells what abstentions say, so that they count.
    gold = np.full(model.posterior_.shape, np.nan)
    gold[bare, 0] = 1
    assert (MultiLabelDawidSkene(share=share).fit(table, gold=gold).posterior_[bare, 0] == 1).all()


def test_an_editor_sees_what_fit_takes_and_what_it_refuses():
    table = crowd(n=60)[0]
    for method in ("fit", "fit_predict", "fit_predict_proba"):
        parameters = inspect.signature(getattr(MultiLabelDawidSkene, method)).parameters
        assert {"gold", "groups"} <= set(parameters)
    names = set(get_type_hints(OfSingleLabels))
    assert names == set(REFUSED)
    for name in names:
        assert quick(MultiLabelDawidSkene).fit_predict(table, **{name: None}).any()
        with pytest.raises(AnnotationError, match=f"{name}= is not for sets of labels"):
            MultiLabelDawidSkene().fit_predict(table, **{name: 1})
