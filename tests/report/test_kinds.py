"""Reports of every kind are one house: the same head and order, and no name does anything."""

import re
from itertools import pairwise

import numpy as np
import pytest

from manyhands import (
    AnnotationTable,
    BradleyTerry,
    ComparisonTable,
    DawidSkene,
    LabelSetTable,
    MultiLabelDawidSkene,
    RatingMean,
    decide_sets,
)
from manyhands.io.consensus_sets import set_consensus
from manyhands.metrics.set_levels import levels_of_sets
from manyhands.report import (
    ItemContents,
    render_report,
    summarize,
    summarize_ratings,
    summarize_sets,
)
from manyhands.report.label_sets import SetFindings, told_of_decision
from manyhands.report.ranking import render_ranking, summarize_ranking
from tests.report.conftest import EVIL, Page

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

PROBES = [*EVIL, "__proto__", "</script><img src=x onerror=alert(5)>", "constructor", "--known"]
"""What must be shown as the text that it is."""

HARMLESS = [f"name {k}" for k in range(len(PROBES))]


def drawn(n=60, c=4, seed=0):
    """Classes that annotators gave to n instances, half of them nothing."""
    r = len(PROBES)
    rng = np.random.default_rng(seed)
    truth = rng.integers(c, size=n)
    given = np.where(rng.random((n, r)) < 0.7, truth[:, None], rng.integers(c, size=(n, r)))
    return np.where(rng.random((n, r)) < 0.5, given, -1)


def ids(names, n=60):
    """Different ids, which begin with the names."""
    return [f"{names[k % len(names)]} {k}" for k in range(n)]


def classes(names, **options):
    A = drawn(c=len(names[-4:]))
    values = np.append(np.array(names[-4:], dtype=object), None)[A]
    table = AnnotationTable.from_matrix(
        values, classes=names[-4:], annotators=names, instances=ids(names), **options
    )
    return render_report(
        summarize(table, aggregator=DawidSkene().fit(table), gold=None, title=names[0]),
        texts(names),
    )


def grades(names):
    return classes(names, ordered=True)


def people_and_models(names):
    A = drawn(c=2)
    table = AnnotationTable.from_matrix(
        np.append(np.array(names[:2], dtype=object), None)[A],
        classes=names[:2],
        annotators=names,
        instances=ids(names),
    )
    table = table.with_groups(dict.fromkeys(names[:6], names[1]))
    model = DawidSkene().fit(table)
    return render_report(summarize(table, aggregator=model, title=names[1]), texts(names))


def numbers(names):
    A, rng = drawn(c=9), np.random.default_rng(1)
    i, r = np.nonzero(A >= 0)
    table = AnnotationTable.from_arrays(
        np.array(ids(names), dtype=object)[i],
        np.array(names, dtype=object)[r],
        (A[i, r] + rng.normal(0, 0.3, len(i)) + r / 4).round(2),
        scale="interval",
    )
    return render_report(summarize_ratings(RatingMean().fit(table), title=names[2]), texts(names))


def sets(names):
    A = drawn(c=16)
    i, r = np.nonzero(A >= 0)
    ticks = (A[i, r][:, None] >> np.arange(4)) % 2 == 1
    table = LabelSetTable.from_arrays(
        np.array(ids(names), dtype=object)[i],
        np.array(names, dtype=object)[r],
        ticks,
        options=names[-4:],
    )
    model = MultiLabelDawidSkene().fit(table)
    decided = decide_sets(model.posterior_, "probable")
    levels = levels_of_sets(model, decided.ticks, None)
    found = set_consensus(table, model, decided.ticks, levels.probability)
    how = told_of_decision("probable", None, decided)
    files = {"files": [names[4]], "reading": ["--multilabel", names[4]]}
    inputs = SetFindings(model, found, levels, decided, how, **files)
    return render_report(summarize_sets(inputs, title=names[3]), texts(names))


def ranking(names):
    rng = np.random.default_rng(2)
    pairs = np.array([rng.choice(6, 2, replace=False) for _ in range(300)])
    items = np.array(names[-6:], dtype=object)
    won = np.where(rng.random(300) < 0.7, pairs.min(axis=1), pairs.max(axis=1))
    table = ComparisonTable.from_arrays(
        items[pairs[:, 0]],
        items[pairs[:, 1]],
        items[won],
        worker=np.array(names, dtype=object)[rng.integers(len(names), size=300)],
    )
    return render_ranking(summarize_ranking(BradleyTerry().fit(table), title=names[0]))


def texts(names):
    """Texts of some items; others have none."""
    own = ids(names)
    return ItemContents({each: names[k % len(names)] for k, each in enumerate(own) if k % 3})


KINDS = [classes, grades, people_and_models, numbers, sets, ranking]


@pytest.mark.parametrize("make", KINDS)
def test_names_are_text_in_every_kind_of_report(make):
    html = make(PROBES)
    page = Page(html)
    page.check_harmless()
    html.encode()
    for character in "\u202e\u200b\x00":
        assert character not in html
    told = "".join(page.text)
    assert "__proto__" in told
    assert "<img src=x onerror=alert(5)>" in told
    # Whatever it names, the page has the elements that it has with other names.
    plain = Page(make(HARMLESS))
    assert set(page.tags) == set(plain.tags)


@pytest.mark.parametrize("make", KINDS)
def test_every_kind_has_the_same_head_and_order(make):
    html = make(HARMLESS)
    page = Page(html)
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.tags.count("table") == page.tags.count("caption")
    scopes = [value for tag, key, value in page.attributes if (tag, key) == ("th", "scope")]
    assert len(scopes) == page.tags.count("th")
    classes_of = [value for tag, key, value in page.attributes if key == "class"]
    assert classes_of.count("question") == page.tags.count("summary") - len(
        re.findall(r"<details(?! class=\"question\")", html)
    )
    assert any(value.startswith("verdict") for value in classes_of)
    steps = [value for tag, key, value in page.attributes if (key, value) == ("class", "step")]
    assert len(steps) <= 4
    # Each question has its answer beside it.
    assert classes_of.count("answer") == classes_of.count("question")
    answers = re.findall(r'<span class="answer">(.*?)</span>', html)
    assert all(each.strip() for each in answers)
