"""Class shares where a class is rare: moments of the votes, and the corrected prior."""

from dataclasses import replace

import numpy as np
import pytest

from manyhands import IBCC, AnnotationStore, AnnotationTable, DawidSkene, GoldCorrected
from manyhands.datasets import load_aggregation, load_product
from manyhands.inference import class_shares, confusion_em, dependence
from manyhands.inference.class_shares import AgreementCounts, OneCoin, RareClassCorrection
from manyhands.inference.confusion_em import ConfusionEM, Fits
from manyhands.inference.confusion_prior import ConfusionPrior
from manyhands.inference.confusions import count_votes
from manyhands.inference.dependence import DEFAULT_EM
from manyhands.inference.votes import make_votes, starting_shares


def crowd(n, votes, *, shares=(0.95, 0.05), right=0.7, rare_right=None, n_annotators=50, seed=0):
    """Annotators who are right with one probability (or another for the last class), and truth."""
    rng = np.random.default_rng(seed)
    n_classes = len(shares)
    truth = rng.choice(n_classes, n, p=shares)
    instance = np.repeat(np.arange(n), votes)
    annotator = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :votes].ravel()
    is_rare = truth[instance] == n_classes - 1
    p = np.where(is_rare, right if rare_right is None else rare_right, right)
    wrong = (truth[instance] + rng.integers(1, n_classes, len(instance))) % n_classes
    label = np.where(rng.random(len(instance)) < p, truth[instance], wrong)
    return AnnotationTable.from_arrays(instance, annotator, label), truth


@pytest.fixture(scope="module")
def rare():
    """A crowd of 1,000 instances, a twentieth of which are of the rare class."""
    return crowd(1000, 5, n_annotators=20)


def one_coin(table, gold=None):
    votes = make_votes(table, gold=gold)
    return OneCoin(AgreementCounts.of(votes, count_votes(votes)))


def uncorrected(table, **parameters):
    """The fit as it is where nothing is corrected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_shares, "SKEWED", 0.0)
        return DawidSkene(**parameters).fit(table)


def is_as_before(table, **parameters):
    found, before = DawidSkene(**parameters).fit(table), uncorrected(table, **parameters)
    return found.rare_class_correction_ == 0 and np.array_equal(found.posterior_, before.posterior_)


@pytest.mark.parametrize(("n", "votes"), [(33_333, 3), (5_000, 5)])
def test_ibcc_gives_a_rare_class_its_share_too(n, votes):
    """From the vote shares alone it creeps there, and stops on the way (a share of .30)."""
    table, truth = crowd(n, votes)
    model = IBCC().fit(table)
    assert abs(model.posterior_[:, 1].mean() - truth.mean()) < 0.04
    assert (model.labels_ == truth).mean() > 0.94
    before = np.mean(model.posterior_.max(axis=1)) - np.mean(model.labels_ == truth)
    assert abs(before) < 0.04


@pytest.mark.parametrize("in_blocks", [False, True])
def test_ibcc_starts_twice_from_stores_too(rare, in_blocks, tmp_path, monkeypatch):
    table, _ = rare
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=1000)
    expected = IBCC(dependence=0, tol=1e-3).fit(table)
    assert expected._skewed_crowd(make_votes(table), *_whole_start(table)) is not None
    if in_blocks:
        monkeypatch.setattr("manyhands.scale.annotator_blocks.LARGEST", 0)
    found = IBCC(dependence=0, tol=1e-3).fit(store)
    np.testing.assert_allclose(found.posterior_, expected.posterior_, atol=1e-9)


def _whole_start(table):
    votes = make_votes(table)
    return votes.shards(), starting_shares(votes)


def test_the_guard_ends_when_its_evidence_suffices(rare, monkeypatch):
    iterations = {}
    plain = ConfusionEM.run

    def counted(self, *arguments, **options):
        run = plain(self, *arguments, **options)
        iterations[options.get("stage")] = len(run.history)
        return run

    monkeypatch.setattr(ConfusionEM, "run", counted)
    assert DawidSkene(n_subtypes=1, dependence=0).fit(rare[0]).rare_class_correction_
    assert iterations["subtypes-1-guard"] < iterations["subtypes-1-corrected"]


# -- moments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.6, 0.25, 0.1, 0.05)])
@pytest.mark.parametrize("gold_share", [0.0, 0.3])
def test_moments_recover_accuracy_and_shares(shares, gold_share):
    n = 20_000
    table, truth = crowd(n, 4, shares=shares, right=0.75)
    gold = np.where(np.arange(n) < gold_share * n, truth, -1) if gold_share else None
    found = one_coin(table, gold)
    assert abs(found.accuracy - 0.75) < 0.01
    np.testing.assert_allclose(found.class_shares, shares, atol=0.015)
    assert found.own == pytest.approx(1 / 4)


def counted(table, gold=None):
    """Votes against vote shares, gold counting as certain: shares of all, shape (C, C)."""
    confusion = count_votes(make_votes(table, gold=gold)).confusion.sum(axis=0)
    return confusion / confusion.sum()


@pytest.mark.parametrize("gold_share", [0.0, 0.3])
def test_a_one_coin_crowd_gives_the_expected_votes(gold_share):
    n = 20_000
    table, truth = crowd(n, 4, shares=(0.7, 0.2, 0.1))
    gold = np.where(np.arange(n) < gold_share * n, truth, -1) if gold_share else None
    np.testing.assert_allclose(one_coin(table, gold).expected, counted(table, gold), atol=0.005)


def test_in_two_classes_the_expected_votes_are_the_observed_ones():
    table, _ = crowd(500, 3, shares=(0.7, 0.3), rare_right=0.55)  # Of no one-coin crowd.
    found = one_coin(table)
    assert found.class_shares.min() > 0
    np.testing.assert_allclose(found.expected, counted(table), atol=1e-12)
    rows = counted(table)
    np.testing.assert_allclose(found.rates, np.diag(rows) / rows.sum(axis=1), atol=1e-12)


def test_a_class_without_votes_changes_nothing():
    table, _ = crowd(500, 3, shares=(0.8, 0.15, 0.05))
    wider = AnnotationTable.from_arrays(
        table.instance, table.annotator, table.label, classes=[0, 1, 2, 3]
    )
    less, more = one_coin(table), one_coin(wider)
    assert more.accuracy == pytest.approx(less.accuracy)
    np.testing.assert_allclose(more.class_shares, [*less.class_shares, 0.0])
    np.testing.assert_allclose(more.expected[:3, :3], less.expected)
    assert np.isnan(more.rates[3])
    assert RareClassCorrection(more, 1.0).shift(0.7)[3] == 0


def test_weights_are_repetitions_of_the_vote_in_shares_and_not_of_annotators():
    table, _ = crowd(300, 3)
    once = one_coin(table)
    twice = one_coin(replace(table, weights=np.full(table.n_annotations, 2.0, np.float32)))
    assert twice.own == pytest.approx(once.own)
    assert twice.accuracy == pytest.approx(once.accuracy)
    np.testing.assert_allclose(twice.class_shares, once.class_shares)


def test_abstentions_are_no_votes():
    table, _ = crowd(300, 3)
    label = table.label.astype(int).tolist()
    more = AnnotationTable.from_arrays(
        [*table.instance, 0, 1, 300],
        [*table.annotator, 50, 50, 50],
        [*label, -9, -9, -9],
        classes=[0, 1],
        abstain=-9,
    )
    votes = make_votes(more, abstentions=True)
    found = OneCoin(AgreementCounts.of(votes, count_votes(votes)))
    assert found.own == pytest.approx(one_coin(table).own)
    np.testing.assert_allclose(found.expected, one_coin(table).expected)


# -- when it is asked -----------------------------------------------------------------------------


def test_two_votes_or_balanced_classes_or_fewer_votes_than_mistakes_ask_nothing():
    assert one_coin(crowd(3000, 3)[0]).is_skewed
    assert not one_coin(crowd(3000, 2)[0]).is_skewed
    assert not one_coin(crowd(3000, 3, shares=(0.5, 0.5))[0]).is_skewed
    rest = one_coin(crowd(3000, 5, shares=(0.995, 0.005), rare_right=0.2, seed=1)[0])
    assert rest.vote_shares.min() <= rest.mistake
    assert not rest.is_skewed


def test_where_everything_is_known_or_nobody_votes_nothing_is_asked():
    table, truth = crowd(50, 3)
    assert not one_coin(table, truth).is_skewed
    assert not OneCoin(AgreementCounts(np.zeros((2, 2)), 0.0)).is_skewed


@pytest.mark.parametrize(
    ("table", "parameters"),
    [
        (crowd(2000, 3, shares=(0.5, 0.5))[0], {}),
        (crowd(2000, 2)[0], {}),
        (crowd(2000, 5, shares=(0.8, 0.2), right=0.85, rare_right=0.55)[0], {}),
        (crowd(2000, 5)[0], {"em": "hard"}),
        (crowd(2000, 5)[0], {"class_prior": "uniform"}),
        (crowd(2000, 5)[0], {"confusion_prior": "pooled"}),
        (crowd(2000, 5)[0], {"confusion_prior": None}),
        (crowd(2000, 5)[0], {"prior_strength": 0}),
    ],
)
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_elsewhere_the_fit_is_as_it_was(table, parameters):
    assert is_as_before(table, **parameters)


@pytest.mark.data
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.SharedMistakesWarning")
@pytest.mark.parametrize("name", ["adult_content", "relevance", "duck", "web"])
def test_real_tables_whose_mistakes_are_uneven_are_as_they_were(name):
    assert is_as_before(load_aggregation(name, duplicates="keep").annotations)


@pytest.mark.data
def test_product_has_a_rare_class():
    data = load_product()
    found, before = DawidSkene().fit(data.annotations), uncorrected(data.annotations)
    assert found.rare_class_correction_ == class_shares.WEIGHT
    share = np.mean(data.y_train == found.classes_[1])
    errors = [abs(model.posterior_[:, 1].mean() - share) for model in (found, before)]
    assert errors[0] < 0.005 < 0.01 < errors[1]
    assert np.mean(found.labels_ == data.y_train) > np.mean(before.labels_ == data.y_train)


# -- what it gives --------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "votes"), [(33_333, 3), (5_000, 5)])
def test_a_rare_class_ends_near_its_share(n, votes):
    table, truth = crowd(n, votes)
    model = DawidSkene().fit(table)
    assert model.rare_class_correction_ == class_shares.WEIGHT
    assert abs(model.class_prior_[1] - 0.05) < 0.07
    assert np.mean(model.labels_ == truth) > 0.945
    claimed = model.posterior_.max(axis=1).mean()
    assert abs(claimed - np.mean(model.labels_ == truth)) < 0.08
    before = uncorrected(table)
    assert before.class_prior_[1] > 0.2
    assert np.mean(before.labels_ == truth) < 0.9


def test_it_is_chosen_where_the_rare_class_is_harder_too():
    table, truth = crowd(5000, 5, right=0.85, rare_right=0.55)
    model = DawidSkene().fit(table)
    assert model.rare_class_correction_ == class_shares.WEIGHT
    assert abs(model.class_prior_[1] - truth.mean()) < 0.03


def test_the_strength_is_that_of_the_uncorrected_centre(rare):
    table, _ = rare
    assert DawidSkene().fit(table).prior_strength_ == uncorrected(table).prior_strength_
    counts = count_votes(make_votes(table)).confusion
    prior = ConfusionPrior("hierarchical", "auto", 0.7)
    plain, strength = prior.pseudo_counts(counts, 2)
    corrected, same = prior.pseudo_counts(counts, 2, RareClassCorrection(one_coin(table), 0.5))
    assert same == strength
    assert not np.allclose(plain, corrected)


def test_the_whole_correction_takes_out_the_adjustment_for_the_class():
    table, _ = crowd(2000, 5, n_annotators=10)
    counts = count_votes(make_votes(table)).confusion
    prior = ConfusionPrior("hierarchical", 1.0, 0.7)
    centre, _ = prior.pseudo_counts(counts, 2, RareClassCorrection(one_coin(table), 1.0))
    # All but the smoothing of the crowd's rates by 1.3 annotations.
    np.testing.assert_allclose(centre[:, 0, 0], centre[:, 1, 1], atol=1e-3)


def test_subtypes_keep_their_deviations():
    table, _ = crowd(2000, 5, n_annotators=10)
    rng = np.random.default_rng(0)
    counts = count_votes(make_votes(table)).confusion
    share = rng.uniform(0.2, 0.8, (2, 2, 2))  # [class, subtype, response]
    share[:, 1] = 1 - share[:, 0]
    split = (counts[:, :, None, :] * share).reshape(10, 4, 2)
    prior = ConfusionPrior("hierarchical", 1.0, 0.7)
    correction = RareClassCorrection(one_coin(table), 0.5)
    before, after = (prior.pseudo_counts(split, 2, c)[0] for c in (None, correction))
    right = [0, 0, 1, 1]
    odds = [np.log(p[:, range(4), right] / (1 - p[:, range(4), right])) for p in (before, after)]
    moved = odds[1] - odds[0]
    np.testing.assert_allclose(moved[:, 0], moved[:, 1])
    np.testing.assert_allclose(moved[:, 2], moved[:, 3])
    assert (moved[:, 2] > 0.2).all()


def test_class_names_permute_the_result():
    table, _ = crowd(3000, 5, shares=(0.75, 0.2, 0.05))
    order = np.array([2, 0, 1])
    names = table.label.astype(int)
    swapped = AnnotationTable.from_arrays(table.instance, table.annotator, order[names])
    one, two = DawidSkene().fit(table), DawidSkene().fit(swapped)
    assert one.rare_class_correction_ == two.rare_class_correction_ == class_shares.WEIGHT
    np.testing.assert_allclose(two.class_prior_[order], one.class_prior_, atol=1e-9)
    # The dependence is measured on tables that are simulated, class by class.
    exact = [DawidSkene(dependence=0).fit(t).posterior_ for t in (table, swapped)]
    np.testing.assert_allclose(exact[1][:, order], exact[0], atol=1e-9)


def test_the_start_does_not_decide_and_partial_fits_end_where_a_fit_does():
    table, truth = crowd(3000, 5)
    whole = DawidSkene().fit(table)
    parts = DawidSkene().fit(table[np.arange(1500)]).partial_fit(table[np.arange(1500, 3000)])
    warm = DawidSkene().fit(table, start=np.eye(2)[truth] * 0.9 + 0.05)
    for other in (parts, warm):
        assert other.rare_class_correction_ == class_shares.WEIGHT
        np.testing.assert_allclose(other.posterior_, whole.posterior_, atol=1e-9)


def test_gold_history_weights_and_abstentions_are_no_obstacle():
    table, truth = crowd(3000, 5)
    plain = DawidSkene().fit(table)

    def is_near(model):
        assert model.rare_class_correction_ == class_shares.WEIGHT
        return abs(model.class_prior_[1] - 0.05) < 0.06

    assert is_near(plain)
    gold = {i: int(truth[i]) for i in range(0, 3000, 20)}
    known = DawidSkene().fit(table, gold=gold)
    assert is_near(known)
    assert (known.labels_[::20] == truth[::20]).all()
    past = {r: [[1.4, 0.6], [0.6, 1.4]] for r in range(50)}
    assert is_near(DawidSkene().fit(table, history=past))
    doubled = np.random.default_rng(0).choice([1.0, 2.0], table.n_annotations)
    for weight in (np.full(table.n_annotations, 0.9), 0.8 + 0.2 * doubled, doubled):
        weighted = replace(table, weights=weight.astype(np.float32))
        found, before = DawidSkene().fit(weighted), uncorrected(weighted)
        assert found.rare_class_correction_ == class_shares.WEIGHT
        assert abs(found.class_prior_[1] - 0.05) < 0.7 * abs(before.class_prior_[1] - 0.05)
        assert np.mean(found.labels_ == truth) > np.mean(before.labels_ == truth)
    labels = table.label.astype(int)
    labels[np.random.default_rng(1).random(len(labels)) < 0.1] = -9
    doubtful = AnnotationTable.from_arrays(
        table.instance, table.annotator, labels, classes=[0, 1], abstain=-9
    )
    assert is_near(DawidSkene().fit(doubtful))


def test_subtypes_are_fitted_with_the_choice():
    table, truth = crowd(3000, 5)
    model = DawidSkene(n_subtypes=2).fit(table)
    assert model.rare_class_correction_ == class_shares.WEIGHT
    assert abs(model.class_prior_[1] - 0.05) < 0.03
    assert np.mean(model.labels_ == truth) > 0.945
    both = DawidSkene(dependence=0).fit(table)
    alone = DawidSkene(dependence=0, n_subtypes=1).fit(table)
    assert set(both.evidence_) == {1, 2}
    assert both.evidence_[1] == alone.evidence_[1]


def test_gold_corrected_begins_with_the_choice():
    table, truth = crowd(3000, 5)
    gold = {i: int(truth[i]) for i in range(0, 3000, 20)}
    model = GoldCorrected().fit(table, gold=gold, groups={})
    assert np.mean(model.labels_ == truth) > 0.94


def test_other_methods_measure_dependence_with_the_choice(rare, monkeypatch):
    made = []

    class Seen(Fits):
        def run(self, n_subtypes=1):
            made.append(super().run(n_subtypes))
            return made[-1]

    monkeypatch.setattr(dependence, "Fits", Seen)
    IBCC().fit(rare[0])
    assert [run.correction.weight for run in made] == [class_shares.WEIGHT]


def test_simulated_tables_are_fitted_with_the_chosen_centre(rare, monkeypatch):
    table, _ = rare
    given = []
    plain = ConfusionPrior.pseudo_counts

    def seen(self, counts, n_classes, correction=None, **options):
        given.append(correction)
        return plain(self, counts, n_classes, correction, **options)

    votes = make_votes(table)
    run = Fits(DEFAULT_EM, votes, votes.shards(), starting_shares(votes)).run()
    monkeypatch.setattr(ConfusionPrior, "pseudo_counts", seen)
    dependence.measure(votes, run, DEFAULT_EM)
    assert given
    assert {correction.weight for correction in given} == {class_shares.WEIGHT}
    shares = [correction.crowd.class_shares[1] for correction in given]
    assert len(set(shares)) == len(shares)  # Each table has its own.
    assert max(shares) < 0.25


def test_votes_are_counted_once_for_all_fits(rare, monkeypatch):
    calls = []
    plain = confusion_em.starting_counts

    def counting(*arguments):
        calls.append(1)
        return plain(*arguments)

    monkeypatch.setattr(confusion_em, "starting_counts", counting)
    model = DawidSkene(dependence=0, n_subtypes=1).fit(rare[0])
    assert model.rare_class_correction_ == class_shares.WEIGHT
    assert len(calls) == 1


# -- elsewhere than in memory ---------------------------------------------------------------------


@pytest.mark.parametrize("n_subtypes", ["auto", 2])
@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_store_gives_what_the_table_gives(rare, n_subtypes, in_blocks, tmp_path, monkeypatch):
    table, truth = rare
    gold = {i: int(truth[i]) for i in range(0, len(truth), 25)}
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=1000)
    assert store.n_shards > 3
    parameters = {"n_subtypes": n_subtypes, "dependence": 0}
    for known in (None, gold):
        expected = DawidSkene(**parameters).fit(table, gold=known)
        assert expected.rare_class_correction_ == class_shares.WEIGHT
        with monkeypatch.context() as patch:
            if in_blocks:
                patch.setattr("manyhands.scale.annotator_blocks.LARGEST", 0)
            found = DawidSkene(**parameters).fit(store, gold=known)
        np.testing.assert_allclose(found.posterior_, expected.posterior_, atol=1e-9)
        assert found.rare_class_correction_ == class_shares.WEIGHT


@pytest.mark.parametrize("stage", ["subtypes-1", "subtypes-1-guard", "subtypes-1-corrected"])
def test_a_fit_resumes_in_each_of_its_fits(rare, stage, tmp_path, monkeypatch):
    table, _ = rare
    if stage.endswith("guard"):  # Which would end at once here, as its evidence suffices.
        monkeypatch.setattr(confusion_em, "EVIDENCE_MARGIN", 1e6)
    place = tmp_path / "checkpoint"
    plain = confusion_em.ConfusionEM.run
    expected = DawidSkene(n_subtypes=2).fit(table)

    class Killed(Exception):
        pass

    def dies(self, votes, *arguments, **options):
        if options.get("stage") == stage:
            saved = votes.checkpoint.save

            def save(*given, **state):
                saved(*given, **state)
                raise Killed

            monkeypatch.setattr(votes.checkpoint, "save", save)
        return plain(self, votes, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ConfusionEM, "run", dies)
        with pytest.raises(Killed):
            DawidSkene(n_subtypes=2).fit(table, checkpoint=place)
    assert (place / f"{stage}.npz").exists()
    found = DawidSkene(n_subtypes=2).fit(table, checkpoint=place)
    np.testing.assert_array_equal(found.posterior_, expected.posterior_)
    assert not place.exists()
