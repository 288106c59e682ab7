"""Tables of grades: where the order comes from, and that it stays."""

import logging
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands import (
    AnnotationStore,
    AnnotationTable,
    CrowdLayerClassifier,
    DawidSkene,
    MajorityVote,
    load,
    save,
)
from manyhands.annotations.scales import SKEWED
from manyhands.exceptions import AnnotationError
from manyhands.inference.inputs import recode_classes
from manyhands.io import read_annotations, read_export, write_annotations
from manyhands.sampling import CrowdSMOTE
from manyhands.scale.ingest import ingest

GRADES = ["zilch", "bit", "lots", "all of it"]


def frame(grades=GRADES, n=24):
    rows = np.random.default_rng(0).integers(0, len(grades), n)
    tasks = [f"t{i // 3}" for i in range(n)]
    workers = ["a", "b", "c"] * (n // 3)
    return pd.DataFrame({"task": tasks, "worker": workers, "label": np.array(grades)[rows]})


def table(grades=GRADES, **options):
    return AnnotationTable.from_frame(frame(grades), classes=grades, ordered=True, **options)


def test_it_is_set_by_an_ordered_categorical_of_pandas():
    data = frame(GRADES[:3])
    data["label"] = pd.Categorical(data["label"], GRADES, ordered=True)
    found = AnnotationTable.from_frame(data)
    assert found.ordered
    assert found.scale == "ordinal"
    assert found.classes.tolist() == GRADES  # Also the one that nobody gave.
    assert not AnnotationTable.from_frame(data, ordered=False).ordered
    data["label"] = data["label"].cat.as_unordered()
    assert not AnnotationTable.from_frame(data).ordered
    in_alphabet = sorted(GRADES)  # An order that is declared is one.
    data["label"] = pd.Categorical(data["label"].astype(str), in_alphabet, ordered=True)
    found = AnnotationTable.from_frame(data)
    assert (found.ordered, found.classes.tolist()) == (True, in_alphabet)


def test_it_is_set_by_an_ordered_dictionary_of_pyarrow():
    pa = pytest.importorskip("pyarrow")
    data = frame(["b", "a", "d"])
    codes = pd.Categorical(data["label"], ["d", "b", "a"]).codes
    columns = {"task": pa.array(data["task"]), "worker": pa.array(data["worker"])}
    for ordered in (True, False):
        values = pa.DictionaryArray.from_arrays(
            pa.array(codes), pa.array(["d", "b", "a"]), ordered=ordered
        )
        found = AnnotationTable.from_frame(pa.table({**columns, "label": values}))
        assert found.ordered == ordered
    assert found.classes.tolist() == ["a", "b", "d"]


def test_it_is_set_by_wide_frames_and_arrays():
    wide = frame().pivot(index="task", columns="worker", values="label")
    graded = wide.apply(lambda column: pd.Categorical(column, GRADES, ordered=True))
    assert AnnotationTable.from_matrix(graded).ordered
    assert AnnotationTable.from_matrix(graded).classes.tolist() == GRADES
    mixed = graded.assign(a=graded["a"].cat.as_unordered())
    assert not AnnotationTable.from_matrix(mixed, classes=GRADES).ordered
    column = pd.Categorical(frame()["label"], GRADES, ordered=True)
    n = np.arange(24)
    assert AnnotationTable.from_arrays(n // 3, n % 3, column).ordered


def test_every_maker_takes_it():
    values = np.random.default_rng(0).integers(0, 4, (8, 3))
    n = np.arange(24)
    lists = {"annotators": [["a", "b"]] * 6, "annotations": [[1, 2], [2, 3], [3, 1]] * 2}
    for made in (
        table(),
        AnnotationTable.from_matrix(values, ordered=True),
        AnnotationTable.from_arrays(n // 3, n % 3, values.ravel(), ordered=True),
        AnnotationTable.from_counts([[3, 0, 1], [1, 2, 2]], classes=[1, 2, 3], ordered=True),
        AnnotationTable.from_lists(lists, ordered=True),
        AnnotationTable.from_matrix(values).with_scale("ordinal"),
    ):
        assert made.ordered
        assert "ordered classes" in repr(made)
    with pytest.raises(AnnotationError, match=r"ordered=True is short for .*leave one of them out"):
        AnnotationTable.from_matrix(values, ordered=True, scale="interval")
    with pytest.raises(AnnotationError, match="scale='ratio' is unknown"):
        AnnotationTable.from_matrix(values).with_scale("ratio")


def test_a_known_scale_of_words_is_read_as_grades_and_said(caplog):
    with caplog.at_level(logging.INFO, "manyhands"):
        found = AnnotationTable.from_frame(frame(["low", "medium", "high"]))
    assert found.ordered
    assert found.classes.tolist() == ["low", "medium", "high"]
    assert "grades, in the order low < medium < high; scale='nominal' reads" in caplog.text
    assert not AnnotationTable.from_frame(frame(["low", "medium", "high"]), scale="nominal").ordered
    # Names that have an order, too, and what was named in an order by the caller, remain names.
    for names in (["A", "B", "C"], ["type I", "type II", "type III"], ["one", "two", "three"]):
        assert not AnnotationTable.from_frame(frame(names)).ordered
    for names in (["disagree", "agree"], [1, 2, 3, 4, 5], ["cat", "dog", "owl"]):
        assert not AnnotationTable.from_frame(frame(names)).ordered
    given = AnnotationTable.from_frame(frame(["low", "medium"]), classes=["low", "medium", "high"])
    assert not given.ordered


def test_text_without_an_order_is_refused_with_the_mend():
    for make in (AnnotationTable.from_frame, lambda d, **o: AnnotationTable.from_lists(
        {"annotators": [["a", "b"]] * 8, "annotations": d["label"].to_numpy().reshape(8, 3)[:, :2]},
        **o,
    )):  # fmt: skip
        with pytest.raises(AnnotationError, match=r"needs the order.*Name all of them in classes="):
            make(frame(), ordered=True)
    plain = AnnotationTable.from_frame(frame())
    with pytest.raises(AnnotationError, match=r"needs the order.*classes="):
        plain.with_scale("ordinal")


def test_an_order_of_two_classes_is_told_to_be_without_effect(caplog):
    with pytest.warns(UserWarning, match=r"order of two classes \('bad' < 'good'\) makes no"):
        found = AnnotationTable.from_frame(frame(["bad", "good"]), ordered=True)
    assert found.ordered
    data = frame(["bad", "good"])
    data["label"] = pd.Categorical(data["label"], ["bad", "good"], ordered=True)
    with caplog.at_level(logging.INFO, "manyhands"):
        AnnotationTable.from_frame(data)
    assert "the order of two classes" in caplog.text


@pytest.mark.filterwarnings("ignore:column .* among whole numbers")
def test_a_grade_outside_the_declared_classes_and_words_among_numbers_are_named():
    with pytest.raises(AnnotationError, match=r"holds 4 .*not among classes: 1, 2, 3"):
        AnnotationTable.from_frame(frame([1, 2, 3, 4]), classes=[1, 2, 3], ordered=True)
    with pytest.raises(
        AnnotationError, match=r"'good' has no place in the order of the others \(1 < 2 < 3"
    ):
        AnnotationTable.from_frame(frame(["1", "2", "3", "4", "good"]), ordered=True)
    mixed = frame([1, 2, 3])
    mixed["label"] = mixed["label"].astype(object)
    mixed.loc[3, "label"] = "good"
    with pytest.raises(AnnotationError, match="mixes"):
        AnnotationTable.from_frame(mixed, ordered=True)


@pytest.mark.filterwarnings("ignore:class .* has one instance")
def test_every_operation_keeps_it():
    graded = table()
    more = AnnotationTable.from_arrays([0], [5], ["bit"], classes=GRADES)
    for other in (
        graded.take([0, 1]), graded[:2], graded[[1, 0]], graded.observed,
        graded.with_source("pseudo"),
        graded.select(annotators=["a"]), graded.select(instances=["t1"]), graded.with_groups({}),
        graded.with_added(graded.with_source("pseudo"), duplicates="keep"),
        recode_classes(graded, np.array(["none", *GRADES]), argument="table"),
        table().with_added(AnnotationTable.from_frame(
            frame().replace({"t1": "t90"}).query("task == 't90'"), classes=GRADES, ordered=True)),
    ):  # fmt: skip
        assert other.ordered
        assert set(GRADES) <= set(other.classes.tolist())
    assert not more.ordered
    assert not graded.equals(graded.with_scale("nominal"))
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(8, 2)), index=graded.instances)
    resampled = CrowdSMOTE(random_state=0).fit_resample(X, graded)[1]
    assert resampled.ordered


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_frames_hold_the_order(backend):
    pytest.importorskip(backend)
    graded = table()
    data = graded.to_frame(backend)
    back = AnnotationTable.from_frame(data, ordered=True if backend == "polars" else None)
    assert back.ordered
    assert back.classes.tolist() == GRADES
    assert back.equals(graded)


def test_frames_of_grades_hold_passes():
    data = frame()
    data.loc[3, "label"] = "unsure"
    graded = AnnotationTable.from_frame(data, classes=GRADES, ordered=True, abstain="unsure")
    for backend in ("pandas", "pyarrow"):
        back = AnnotationTable.from_frame(graded.to_frame(backend), passes="pass")
        assert back.ordered
        assert len(back.abstentions) == 1


def test_stores_hold_the_order_and_others_are_as_before(tmp_path):
    store = AnnotationStore.create(tmp_path / "store", table())
    assert (store.ordered, store.scale, store.class_order) == (True, "ordinal", "given")
    assert store.table(0).ordered
    assert store[[0, 1]].ordered
    path = tmp_path / "levels.csv"
    frame().to_csv(path, index=False)
    made = ingest(path, tmp_path / "own", classes=GRADES, scale="ordinal")
    assert made.ordered
    assert made.classes.tolist() == GRADES
    frame(["low", "medium", "high"]).to_csv(path, index=False)
    assert ingest(path, tmp_path / "known").class_order == "known"
    assert not ingest(path, tmp_path / "names", scale="nominal").ordered
    assert "scale" not in (tmp_path / "names" / "manifest.json").read_text()


def test_files_are_read_and_written(tmp_path, caplog):
    path = tmp_path / "levels.csv"
    with caplog.at_level(logging.INFO, "manyhands"):
        write_annotations(path, table())
    assert f"scale='ordinal', classes={GRADES}" in caplog.text
    assert read_annotations(path, classes=GRADES, ordered=True).equals(table())
    assert read_export(path, classes=GRADES, ordered=True).annotations.ordered
    assert not read_annotations(path).ordered


def test_a_saved_aggregator_keeps_it(tmp_path):
    for model in (MajorityVote(), DawidSkene()):
        save(model.fit(table()), tmp_path / type(model).__name__)
        assert load(tmp_path / type(model).__name__).table_.ordered


def skewed(words=("none", "mild", "moderate", "severe"), top=48):
    labels = [words[0]] * top + [word for word in words[1:] for _ in range(4)]
    return pd.DataFrame(
        {"task": np.arange(len(labels)) // 3, "worker": np.arange(len(labels)) % 3, "label": labels}
    )


def test_words_of_a_known_scale_stay_names_where_one_has_nearly_all_labels(caplog, tmp_path):
    caplog.set_level(logging.INFO)
    found = AnnotationTable.from_frame(skewed())
    assert found.scale == "nominal"
    assert found.classes.tolist() == ["none", "mild", "moderate", "severe"]
    assert "80 % of the labels are 'none', so the labels are read as names" in caplog.text
    assert "scale='ordinal' reads them as grades" in caplog.text
    assert AnnotationTable.from_frame(skewed(top=20)).ordered
    counts = pd.DataFrame({"none": [20, 20], "mild": [1, 0], "moderate": [0, 1], "severe": [1, 1]})
    assert AnnotationTable.from_counts(counts).scale == "nominal"
    skewed().to_csv(tmp_path / "a.csv", index=False)
    assert read_annotations(tmp_path / "a.csv").scale == "nominal"
    skewed(top=300).to_csv(tmp_path / "b.csv", index=False)  # More than are shown of each label.
    ingest(tmp_path / "b.csv", tmp_path / "store")
    assert AnnotationStore.open(tmp_path / "store").scale == "nominal"


def test_an_order_that_is_declared_where_one_grade_has_nearly_all_labels_is_warned_of():
    with pytest.warns(UserWarning, match="80 % of the labels are 'none'.*scale='nominal'"):
        found = AnnotationTable.from_frame(skewed(), ordered=True)
    assert found.ordered
    with pytest.warns(UserWarning, match="Use the labels of that reading; keep the order only to"):
        AnnotationTable.from_frame(skewed(), ordered=True)
    counts = [[20, 1, 0], [20, 0, 1]]
    with pytest.warns(UserWarning, match="95 % of the labels are 1"):
        assert AnnotationTable.from_counts(counts, classes=[1, 2, 3], scale="ordinal").ordered


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorials/ratings.md"])
def test_pages_that_advise_an_order_say_when_to_leave_it_out(page):
    """The advice is that of the warning: the share, and what to take instead."""
    assert SKEWED == 2 / 3
    text = " ".join((Path(__file__).parents[2] / page).read_text(encoding="utf-8").split())
    assert "If one grade has more than two thirds of " in text
    assert re.search(r"leave `--ordered` out[^.]* \(`--scale nominal`\)", text)


@pytest.mark.filterwarnings("ignore:.*the labels are read as grades")
def test_where_one_grade_has_most_labels_names_give_more_right_labels():
    """What the warning says, on crowds that it warns of; DawidSkene reads both."""
    gained = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.choice(4, size=500, p=[0.97, 0.01, 0.01, 0.01])
        skill = rng.uniform(0.6, 0.9, 20)
        worker = np.argsort(rng.random((500, 20)), axis=1)[:, :5]
        given = np.where(
            rng.random((500, 5)) < skill[worker], y[:, None], rng.integers(0, 4, (500, 5))
        )
        assert (given == 0).mean() > SKEWED
        arrays = (np.repeat(np.arange(500), 5), worker.ravel(), given.ravel())
        found = [
            AnnotationTable.from_arrays(*arrays, classes=[0, 1, 2, 3], scale=scale)
            for scale in ("nominal", "ordinal")
        ]
        names, grades = ((DawidSkene().fit(table).labels_ == y).mean() for table in found)
        gained.append(names - grades)
    assert min(gained) >= 0
    assert np.mean(gained) > 0.01


def test_tables_of_different_scales_are_not_joined():
    grades = table()
    names = AnnotationTable.from_frame(frame(n=3).assign(task="new"), classes=GRADES)
    for one, other in ((grades, names), (names, grades)):
        with pytest.raises(AnnotationError, match=r"scale='nominal'.*with_scale"):
            one.with_added(other)
    assert grades.with_added(names.with_scale("ordinal")).ordered


def test_tables_of_numbers_are_joined_over_the_numbers_of_both():
    one = AnnotationTable.from_matrix(np.array([[1, 2], [4, 2]]), scale="interval")
    other = AnnotationTable.from_matrix(
        np.array([[3.5, 1]]), scale="interval", instances=["new"], annotators=["a", "b"]
    )
    mine = AnnotationTable.from_matrix(
        np.array([[1, 2], [4, 2]]), scale="interval", instances=["x", "y"], annotators=["a", "b"]
    )
    both = mine.with_added(other)
    assert both.scale == "interval"
    assert both.numbers.tolist() == [1, 2, 3.5, 4]
    assert both.values.tolist() == [1, 2, 4, 2, 3.5, 1]
    assert one.over_the_same_numbers(one)[0] is one


def test_what_is_added_to_a_fit_takes_its_scale_or_is_refused():
    first = AnnotationTable.from_frame(frame(), classes=GRADES)
    more = frame(n=3).assign(task="new")
    names = AnnotationTable.from_frame(more, classes=GRADES)
    grades = names.with_scale("ordinal")
    fit = DawidSkene().fit(first.with_scale("ordinal")).partial_fit(names)
    again = DawidSkene().fit(first.with_scale("ordinal")).partial_fit(grades)
    assert fit.table_.ordered
    np.testing.assert_array_equal(fit.posterior_, again.posterior_)
    with pytest.raises(AnnotationError, match=r"table: the labels are grades.*made on names"):
        DawidSkene().fit(first).partial_fit(grades)
    reversed_ = AnnotationTable.from_frame(more, classes=GRADES[::-1], ordered=True)
    with pytest.raises(AnnotationError, match="in the order all of it < lots < bit < zilch"):
        DawidSkene().fit(first.with_scale("ordinal")).partial_fit(reversed_)


def test_what_is_added_to_a_classifier_takes_the_scale_of_its_fit():
    first = table(GRADES)
    names = AnnotationTable.from_frame(frame(n=3).assign(task="new"), classes=GRADES)
    rng = np.random.default_rng(0)
    X, new = (
        pd.DataFrame(rng.normal(size=(part.n_instances, 1)), part.instances, ["x"])
        for part in (first, names)
    )
    model = CrowdLayerClassifier(max_epochs=1).partial_fit(X, first).partial_fit(new, names)
    assert model.seen_.table.ordered
    with pytest.raises(AnnotationError, match="y: the labels are grades"):
        CrowdLayerClassifier(max_epochs=1).partial_fit(new, names).partial_fit(X, first)


@pytest.mark.parametrize("stars", [[0.5, 1.0, 1.5, 2.0], [1.0, 2.0]])
def test_an_ordered_categorical_may_hold_fractions(stars):
    categories = [0.5, 1.0, 1.5, 2.0]
    data = frame(stars)
    data["label"] = pd.Categorical(data["label"], categories, ordered=True)
    found = AnnotationTable.from_frame(data)
    assert found.ordered
    assert found.classes.tolist() == ["0.5", "1", "1.5", "2"]
    assert found.values.tolist() == frame(stars)["label"].tolist()
    assert found.equals(AnnotationTable.from_frame(data, ordered=True))
    assert found.equals(AnnotationTable.from_frame(found.to_frame()))
    data["label"] = data["label"].cat.as_unordered()
    assert AnnotationTable.from_frame(data, scale="interval").scale == "interval"
    if 0.5 in stars:
        with pytest.raises(AnnotationError, match="scale='ordinal'"):
            AnnotationTable.from_frame(data)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("classes", [GRADES, [1, 2, 3, 4]])
def test_frames_of_grades_keep_the_scale_or_say_how_it_is_read(backend, classes, caplog):
    caplog.set_level(logging.INFO)
    given = table(classes)
    data = given.to_frame(backend)
    said = "a frame of polars cannot say that its labels are grades" in caplog.text
    assert said == (backend == "polars")
    more = {}
    if said:
        assert "scale='ordinal'" in caplog.text
        more["scale"] = "ordinal"
        if classes[0] == 1:
            assert "classes=[1, 2, 3, 4]" in caplog.text
            more["classes"] = classes
    assert AnnotationTable.from_frame(data, **more).with_groups(None).equals(given)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(("stars", "kind"), [([1, 2, 4], "i"), ([0.5, 1, 2.5], "f")])
def test_frames_of_numbers_hold_numbers(backend, stars, kind, caplog):
    caplog.set_level(logging.INFO)
    given = AnnotationTable.from_frame(frame(stars), scale="interval")
    data = given.to_frame(backend)
    assert np.asarray(data["label"]).dtype.kind == kind
    assert "to read it again, use from_frame(..., scale='interval')" in caplog.text
    again = AnnotationTable.from_frame(data, scale="interval")
    np.testing.assert_array_equal(again.values, given.values)
    passed = AnnotationTable.from_frame(
        frame(stars).assign(label=lambda d: d["label"].where(d["task"] != "t1").fillna(-9)),
        scale="interval", abstain=-9.0,
    )  # fmt: skip
    again = AnnotationTable.from_frame(passed.to_frame(backend), scale="interval", passes="pass")
    np.testing.assert_array_equal(again.values, passed.values)
    np.testing.assert_array_equal(again.abstentions, passed.abstentions)


def test_parquet_files_hold_the_grades_and_others_say_how_they_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    for classes, is_held in ((GRADES, True), (["none", *GRADES], True), ([1, 2, 3, 4], False)):
        given = AnnotationTable.from_frame(frame(classes[-4:]), classes=classes, ordered=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            write_annotations(path, given)
        how = f"read_annotations({str(path)!r}, scale='ordinal', classes={classes})"
        told = [str(warning.message) for warning in caught]
        assert told == ([] if is_held else told[:1])
        assert is_held or told[0].endswith(f"read it again by {how}")
        more = {} if is_held else {"scale": "ordinal", "classes": classes}
        assert read_annotations(path, **more).equals(given)


def test_files_of_numbers_say_how_they_are_read(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    given = AnnotationTable.from_frame(frame([0.5, 1, 2.5]), scale="interval")
    write_annotations(tmp_path / "a.csv", given)
    assert "its labels are numbers; read it again by read_annotations(" in caplog.text
    assert "scale='interval')" in caplog.text


def test_a_store_of_parquet_files_keeps_the_order_that_they_declare(tmp_path):
    given = AnnotationTable.from_frame(frame(), classes=["none", *GRADES], ordered=True)
    write_annotations(tmp_path / "a.parquet", given)
    store = ingest(tmp_path / "a.parquet", tmp_path / "store")
    assert store.scale == "ordinal"
    assert store.classes.tolist() == ["none", *GRADES]
    assert store[:].equals(given)
    stated = ingest(tmp_path / "a.parquet", tmp_path / "names", scale="nominal")
    assert stated.scale == "nominal"
