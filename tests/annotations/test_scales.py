"""Labels that are names, grades or numbers, and the question where that is open."""

import numpy as np
import pandas as pd
import pytest

from manyhands import AnnotationTable, DawidSkene, MajorityVote, RatingMean, compare_aggregators
from manyhands.agreement import krippendorff_alpha, summary
from manyhands.annotations import scales
from manyhands.annotations.scales import look_like_grades
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations


def ratings(n=200, top=25, sd=2.0, seed=0, workers=3):
    """Ratings of n items by three annotators, near one another."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(3, top - 2, n)
    values = np.clip(np.round(true[:, None] + rng.normal(0, sd, (n, workers))), 1, top)
    return values.astype(int)


def codes(n=300, n_classes=40, right=0.7, seed=0, workers=3):
    """Codes of classes, whose mistakes may be any other class."""
    rng = np.random.default_rng(seed)
    true = rng.integers(n_classes, size=n)
    other = rng.integers(n_classes, size=(n, workers))
    return np.where(rng.random((n, workers)) < right, true[:, None], other)


def frame_of(values):
    n, r = values.shape
    rows, columns = np.divmod(np.arange(n * r), r)
    return pd.DataFrame({"task": rows, "worker": columns, "label": values.ravel()})


def written(path, values):
    frame_of(np.asarray(values)).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (ratings(), "25 different whole numbers, 1 to 25, which look like ratings"),
        (ratings(top=100, sd=8), "look like ratings"),
        (ratings(40, sd=3) * 4, "look like ratings"),  # Every fourth number of a slider.
        (np.random.default_rng(0).integers(0, 30, (60, 2)), "look like ratings"),  # Chance.
        (ratings() / 2, r"with fractions such as 0\.5, which look like scores"),
    ],
)
def test_files_of_many_grades_are_read_as_numbers(tmp_path, values, says):
    path = written(tmp_path / "votes.csv", values)
    with pytest.warns(UserWarning, match=rf"{says}, and are read as numbers\. scale='ordinal'"):
        table = read_annotations(path)
    assert table.scale == "interval"
    assert np.array_equal(np.sort(table.values), np.sort(values.ravel()))
    assert read_annotations(path, scale="nominal").scale == "nominal"
    with pytest.raises(AnnotationError, match=r"the labels are numbers.*RatingMean"):
        MajorityVote().fit(table)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (ratings(workers=1), "look like ratings"),  # Or codes: nobody shares an instance.
        (np.arange(0, 1300, 100).repeat(2).reshape(-1, 2) + 5, "look like ratings"),
        (codes(30, 15, right=0.95), "look like ratings"),  # Too few differences to tell.
        (np.array([[20, 35], [80, 75], [30, 22]]), "6 different whole numbers, 20 to 80"),
        (np.array([[0.25, 0.5], [0.5, 0.75], [1, 1]]), r"such as 0\.25"),
        (np.array([["0,5", "0,25"], ["1,0", "0,5"]]), r"such as 0\.25"),
        (np.array([["3.5", "4"], ["4.5", "n/a"], *[["4", "5"]] * 8]), r"such as 3\.5"),
        (np.array([[f"the picture {i}", f"it shows {i}"] for i in range(40)]), "free text|ids"),
        (np.array([[f"name {i}", f"name {i}", f"name {i + 1}"] for i in range(60)]), "free text"),
    ],
)
def test_files_of_ratings_scores_and_texts_are_asked_about(tmp_path, values, says):
    path = written(tmp_path / "votes.csv", values)
    with pytest.raises(AnnotationError, match=says) as error:
        read_annotations(path)
    assert "scale='nominal'" in str(error.value)
    as_names = read_annotations(path, scale="nominal", skip="n/a")
    assert as_names.scale == "nominal"
    assert as_names.n_annotations + len(as_names.skips) == np.asarray(values).size
    MajorityVote().fit(as_names)


@pytest.mark.parametrize(
    "values",
    [
        codes(n_classes=10),
        codes(n_classes=13),
        codes(),
        codes(500, 200, workers=4),
        codes(right=0.95),
        np.random.default_rng(0).integers(1, 11, (40, 3)),
        np.array([[0, 1], [15, 17]]),
        codes(n_classes=5) * 10,
        np.array([f"class {k}" for k in range(90)])[codes(300, 90)],
        np.array([f"{k}.0" for k in range(5)])[codes(n_classes=5)],
        np.array(["5%", "50%", "100%"])[codes(n_classes=3)],
    ],
)
def test_files_of_ordinary_classes_are_not(tmp_path, values):
    table = read_annotations(written(tmp_path / "votes.csv", values))
    assert table.n_annotations == values.size
    assert table.scale == "nominal"


def test_codes_told_from_ratings_are_noted(tmp_path, caplog):
    caplog.set_level("INFO", "manyhands")
    read_annotations(written(tmp_path / "votes.csv", codes()))
    assert "40 different numbers, 0 to 39, are read as names of classes" in caplog.text


def test_a_few_numbers_that_are_nearly_agreed_on_are_noted_and_codes_are_not(tmp_path, caplog):
    caplog.set_level("INFO", "manyhands")
    assert read_annotations(written(tmp_path / "codes.csv", codes(n_classes=5))).scale == "nominal"
    assert "as with grades" not in caplog.text
    rng = np.random.default_rng(0)
    stars = rng.integers(1, 6, (200, 1)) + rng.integers(-1, 2, (200, 3))
    table = read_annotations(written(tmp_path / "stars.csv", stars.clip(1, 5)))
    assert table.scale == "nominal"
    assert "5 different numbers, 1 to 5, are read as names of classes" in caplog.text
    assert "scale='ordinal' reads them as grades" in caplog.text


def test_frames_are_warned_about(recwarn):
    AnnotationTable.from_frame(frame_of(codes()))
    AnnotationTable.from_frame(frame_of(np.array([["0.5", "1.5"], ["1.5", "2.5"]])))  # Names.
    AnnotationTable.from_arrays(*np.indices((200, 3)).reshape(2, -1), ratings().ravel())
    AnnotationTable.from_matrix(ratings())
    assert not recwarn.list
    numbers = "look like ratings, and are read as numbers"
    with pytest.warns(UserWarning, match=numbers):
        assert AnnotationTable.from_frame(frame_of(ratings())).scale == "interval"
    with pytest.warns(UserWarning, match=numbers):
        AnnotationTable.from_matrix(pd.DataFrame(ratings(), columns=list("abc")))
    with pytest.warns(UserWarning, match="look like ratings; they are read as names"):
        assert AnnotationTable.from_frame(frame_of(ratings(workers=1))).scale == "nominal"
    lists = {"annotators": [list("abc")] * 200, "annotations": ratings().tolist()}
    with pytest.warns(UserWarning, match="column 'annotations' holds .* look like ratings"):
        assert AnnotationTable.from_lists(lists).scale == "interval"
    with pytest.warns(UserWarning, match="which look like scores"):
        AnnotationTable.from_frame(frame_of((ratings() / 4).astype(str)))
    with pytest.warns(UserWarning, match="with fractions, and they are read as numbers"):
        assert AnnotationTable.from_frame(frame_of(ratings() / 7)).scale == "interval"
    with pytest.raises(AnnotationError, match=r"holds \d\.\d+; .*scale='interval'"):
        AnnotationTable.from_frame(frame_of(ratings()[:3] / 7))
    for scale in ("nominal", "ordinal", "interval"):
        assert AnnotationTable.from_frame(frame_of(ratings()), scale=scale).scale == scale


def test_fractions_are_labels_once_their_scale_is_said():
    values = ratings() / 4
    table = AnnotationTable.from_frame(frame_of(values), scale="interval")
    numbers = table.classes.astype(float)
    assert (np.diff(numbers) > 0).all()
    assert np.array_equal(numbers[table.label].reshape(values.shape), values)
    right = krippendorff_alpha(AnnotationTable.from_matrix(ratings()), level="interval")
    assert krippendorff_alpha(table, level="interval") == pytest.approx(right, abs=1e-12)
    assert summary(table).keys() == summary(table, scale="interval").keys()
    dense = AnnotationTable.from_matrix(values, scale="ordinal")
    assert dense.classes.tolist() == table.classes.tolist()


@pytest.mark.parametrize("scale", ["interval", "ordinal", None])
def test_infinite_scores_are_refused(scale):
    values = ratings(9) / 7
    values[2, 1] = np.inf
    with pytest.raises(AnnotationError, match=r"column 'label' holds inf \(1 row\), .*finite"):
        AnnotationTable.from_frame(frame_of(values), scale=scale)
    texts = values.astype(str)
    with pytest.raises(
        AnnotationError, match=r"needs finite numbers, but one label is 'inf'; correct"
    ):
        AnnotationTable.from_frame(frame_of(texts), scale="interval")
    values[2, 1] = np.nan
    with pytest.warns(UserWarning, match="1 of 27 rows have no label"):
        assert AnnotationTable.from_frame(frame_of(values), scale="interval").n_annotations == 26


@pytest.mark.parametrize("large", [1e308, -1.7e308, 1.1e150])
def test_scores_with_squares_beyond_all_floats_are_refused(large):
    """A mean of them would be no number; the largest that are read give one."""
    values = ratings(9) / 7
    values[2, 1] = large
    with pytest.raises(AnnotationError, match=r"numbers up to 1e\+150, .* another unit"):
        AnnotationTable.from_frame(frame_of(values), scale="interval")
    values[2, 1] = 1e150
    table = AnnotationTable.from_frame(frame_of(values), scale="interval")
    assert np.isfinite(RatingMean().fit(table).values_).all()


@pytest.mark.parametrize("written", ["-inf", "NaN", "Infinity"])
def test_scores_that_programs_write_as_none_are_refused_in_files(tmp_path, written):
    path = tmp_path / "scores.csv"
    path.write_text(f"task,worker,label\nt1,w1,2.5\nt1,w2,{written}\nt2,w1,4\nt2,w2,3.5\n")
    with pytest.raises(AnnotationError, match=f"finite numbers, but one label is '{written}'"):
        read_annotations(path, scale="interval")


def test_words_among_numbers_of_a_column_are_shown():
    values = ratings(5).astype(object)
    values[1, 1] = "four"
    with pytest.raises(AnnotationError, match="mixes strings and other values, such as 'four' and"):
        AnnotationTable.from_frame(frame_of(values), ordered=True)


@pytest.mark.parametrize("slip", [0, 6])
def test_a_grade_outside_the_classes_of_a_file_shifts_no_other(tmp_path, slip):
    """Labels are codes of named classes only where the names are not numbers themselves."""
    path, names = tmp_path / "grades.csv", [str(grade) for grade in range(1, 6)]
    rows = [f"t{i},w{j},{1 + (i + j) % 4}\n" for i in range(8) for j in range(3)]
    path.write_text("task,worker,label\n" + "".join(rows) + f"t9,w0,{slip}\n")
    with pytest.raises(AnnotationError, match=rf"holds '{slip}' \(1 row\), not among classes"):
        read_annotations(path, classes=names, ordered=True)
    path.write_text("task,worker,label\n" + "".join(rows))
    table = read_annotations(path, classes=names, ordered=True)
    assert table.classes.tolist() == names
    assert table.classes[table.label[0]] == "1"


def test_scores_may_be_negative():
    table = AnnotationTable.from_frame(frame_of(ratings() - 13), scale="interval")
    assert table.values.min() == -12
    assert table.numbers.tolist() == sorted(table.numbers.tolist())


def test_one_number_is_one_label():
    values = np.array([["0.50", "0,5"], ["1.0", "1"], [".25", "0.25"]], dtype=object)
    table = AnnotationTable.from_matrix(values, scale="interval")
    assert table.classes.tolist() == ["0.25", "0.5", "1"]
    assert krippendorff_alpha(table, level="interval") == 1


def test_methods_that_choose_among_classes_refuse_numbers():
    table = AnnotationTable.from_frame(frame_of(ratings()), scale="interval")
    for fit in (DawidSkene().fit, MajorityVote().fit, compare_aggregators):
        with pytest.raises(AnnotationError, match=r"the labels are numbers \(scale='interval'\)"):
            fit(table)


def test_scales_that_the_labels_do_not_have_are_refused():
    with pytest.raises(AnnotationError, match="scale='ratio' is unknown"):
        AnnotationTable.from_frame(frame_of(codes()), scale="ratio")
    words = np.array(["cat", "dog", "mouse"])[codes(n_classes=3)]
    with pytest.raises(AnnotationError, match="scale='ordinal' needs the order"):
        AnnotationTable.from_frame(frame_of(words), scale="ordinal")
    grades = np.array(["low", "medium", "high"])[codes(n_classes=3)]
    with pytest.raises(AnnotationError, match="needs labels that are numbers, but one is 'low'"):
        AnnotationTable.from_frame(frame_of(grades), scale="interval")
    assert AnnotationTable.from_frame(frame_of(grades), scale="ordinal").scale == "ordinal"
    given = AnnotationTable.from_frame(
        frame_of(words), scale="ordinal", classes=["mouse", "cat", "dog"]
    )
    assert given.classes.tolist() == ["mouse", "cat", "dog"]


@pytest.mark.data
def test_no_real_table_of_names_is_asked_about(data_home):
    paths = [*data_home.glob("*/annotations.csv"), *data_home.glob("*/*/annotations.csv")]
    assert len(paths) > 10
    for path in paths:
        assert read_annotations(path, duplicates="keep").n_classes >= 2


@pytest.mark.parametrize("shift", [-2, 2])
def test_grades_of_a_strict_annotator_are_recognised(caplog, shift):
    rng = np.random.default_rng(0)
    truth = rng.integers(5, size=200)
    A = np.clip(truth[:, None] + rng.integers(-1, 2, size=(200, 3)), 0, 4)
    A[:, 0] = np.clip(truth + shift, 0, 4)
    instance, annotator = (codes.ravel() for codes in np.indices(A.shape))
    given = A.ravel().astype(float)
    assert not scales._differ_by_little(given, instance), "the strict one hides it"
    assert scales._differ_by_little(given, instance, annotator)
    with caplog.at_level("INFO"):
        AnnotationTable.from_frame(frame_of(A))
    assert "differ by little, as on grades" in caplog.text
    names = rng.permutation(5)[A]
    assert not scales._differ_by_little(names.ravel().astype(float), instance, annotator)


def test_a_large_table_is_judged_by_a_part_of_its_instances(monkeypatch):
    rng = np.random.default_rng(0)
    truth = rng.integers(5, size=4000)
    near = np.clip(truth[:, None] + rng.integers(-1, 2, size=(4000, 3)), 0, 4).ravel()
    far = np.where(rng.random((4000, 3)) < 0.5, truth[:, None], rng.integers(5, size=(4000, 3)))
    instance, classes = np.repeat(np.arange(4000), 3), np.arange(5)
    whole = [look_like_grades(classes, codes, instance) for codes in (near, far.ravel())]
    monkeypatch.setattr(scales, "MOST_COMPARED", 1000)
    assert [look_like_grades(classes, codes, instance) for codes in (near, far.ravel())] == whole
    assert whole == [True, False]
