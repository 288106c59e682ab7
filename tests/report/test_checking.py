"""What checking labels is said to bring, against what it brings in simulated crowds."""

import re
from dataclasses import replace

import numpy as np
import pytest

from manyhands import DawidSkene, make_crowd
from manyhands.metrics import Level
from manyhands.metrics.certainty import certainty_of
from manyhands.metrics.inferred_labels import level_of_labels
from manyhands.planning import review_queue
from manyhands.report import render_report, summarize
from manyhands.report.review import points_after, told_of_checking
from manyhands.wording import percent_interval
from tests.planning.test_people import with_habits

N_ITEMS, N_CHECKED = 600, 60


def crowd(seed):
    """Labels of three random annotators per item, about a fifth of which are wrong."""
    y = np.random.default_rng(seed).integers(3, size=N_ITEMS)
    options = {"annotations_per_instance": 3, "n_annotators": 20, "random_state": seed}
    return y, make_crowd(y, **options)


def level_with(model, table, y, checked):
    codes = model.posterior_.argmax(axis=1)
    audit = np.full(len(y), -1)
    audit[checked] = y[checked]
    given = {"audit": audit, "random": audit >= 0, "identified": model.identified_}
    return level_of_labels(table, model, codes, model.posterior_, **given)


def test_as_many_doubtful_labels_are_wrong_as_is_told_and_samples_measure_as_far():
    """Means over ten crowds. The widths told are a tenth too large, as the model helps a sample."""
    told, true, off = [], [], []
    for seed in range(10):
        y, table = crowd(seed)
        model, rng = DawidSkene().fit(table), np.random.default_rng(seed)
        codes = model.posterior_.argmax(axis=1)
        before = level_with(model, table, y, rng.permutation(N_ITEMS)[:0])
        certainty = certainty_of(table, before, model.posterior_, codes, model.is_known_)
        queue = review_queue(model, table, n=N_CHECKED, certainty=certainty)
        told.append(queue.scores.sum())
        true.append((queue.labels != y[queue.instances]).sum())
        order = rng.permutation(N_ITEMS)
        for first, second in ((0, N_CHECKED), (40, 40 + N_CHECKED)):
            now = level_with(model, table, y, order[:first])
            then = level_with(model, table, y, order[:second])
            off.append((then.high - then.low) / points_after(now, N_CHECKED))
    assert np.mean(told) == pytest.approx(np.mean(true), rel=0.2)
    assert np.mean(off[::2]) == pytest.approx(1, abs=0.2)
    assert np.mean(off[1::2]) == pytest.approx(1, abs=0.1)
    assert np.abs(np.array(off) - 1).max() < 0.3


def test_the_sentences_by_hand():
    y, table = crowd(0)
    sample = Level(0.8, 0.7, 0.9, "sample", 60)
    certainty = certainty_of(table, sample, DawidSkene().fit(table).posterior_, y)
    options = {"n": 20, "certainty": certainty, "random_state": 0}
    one = review_queue(DawidSkene().fit(table), table, **options)
    (text,) = told_of_checking(one, sample)
    n = round(one.scores.sum())
    assert text.startswith(f"About {n} of these 20 labels are expected to be wrong, so checking")
    assert f"one label for every {20 / one.scores.sum():.0f}. " in text
    (text,) = told_of_checking(replace(one, scores=np.full(20, 0.67)), sample)
    assert text.startswith("About 13 of these 20 labels are expected to be wrong, so most checks ")
    both = review_queue(DawidSkene().fit(table), table, random=180, **options)
    first, second = told_of_checking(both, sample)
    assert first.startswith(f"About {n} of the 20 most doubtful labels are expected to be wrong")
    # Four times as many labels halve the interval.
    now = percent_interval(0.7, 0.9)
    with_more = f"now measured as {now}. With these 180 checked, too, the interval would span about"
    assert f"{with_more} 10 percentage points." in second
    by_model = told_of_checking(both, sample._replace(source="model", n=600))[1]
    assert f"now estimated as {now}. " in by_model
    assert "would measure it: the interval would span about 12 percentage points" in by_model
    assert told_of_checking(both, None)[1].endswith("about 15 percentage points or less.")


def test_what_measures_nothing_is_not_promised():
    level = Level(0.8, 0.7, 0.9, "model", 600)
    assert points_after(level, 9) is None
    assert points_after(level._replace(source="gold", n=100), 60) is None
    assert points_after(level, 0) is None


def test_commands_in_advice_are_filled_in_and_run_as_they_are():
    """The options of a command within a sentence are no text to keep together."""
    table = with_habits(3, 3)
    page = render_report(summarize(table, aggregator=DawidSkene().fit(table)))
    (command,) = set(re.findall(r"<code>(manyhands annotators [^<]*--teach 0)</code> lists", page))
    assert "span" not in command
