"""Wide tables: annotators are recognised or named, and every other column is left out by name."""

import numpy as np
import pandas as pd
import pytest

from manyhands import AnnotationTable
from manyhands.annotations.wide import UnclearColumnsError, joined_id, task_columns
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export
from manyhands.scale.ingest import ingest
from tests.io.exports.conftest import cells, write

# -- what beside annotators stands in a wide table ------------------------------------------------

VOTES = "0,1,0\n1,1,1\n0,0,0\n1,0,1\n0,0,0\n".splitlines()


def table_of(header, rows):
    return f"{header}\n" + "".join(f"{row}\n" for row in rows)


def with_columns(header, *more, votes=VOTES):
    """Five rows of three annotators, with further columns around them."""
    columns = zip(*more, strict=True)
    return table_of(
        header,
        [f"{k},{v},{','.join(c)}" for k, (v, c) in enumerate(zip(votes, columns, strict=True), 1)],
    )


LEFT_OUT = {
    "gold": ("id,ann1,ann2,ann3,gold", [*"01010"], None),
    "confidence": ("id,ann1,ann2,ann3,confidence", [".9", "1", ".35", ".5", ".7"], "confidence"),
    "percent": ("id,ann1,ann2,ann3,certainty", ["90", "100", "35", "50", "70"], "confidence"),
    "text": ("id,ann1,ann2,ann3,sentence", ["a cat", "a dog", "a cow", "a pig", "an emu"], "text"),
    "prose": ("id,ann1,ann2,ann3,who", [f"this is the text {k}" for k in range(5)], "texts"),
    "majority": ("id,ann1,ann2,ann3,majority", [*"01010"], "computed"),
    "agreement": ("id,ann1,ann2,ann3,agreement", ["0.67", "1.0", "1.0", "0.67", "1.0"], "computed"),
    "mean": ("id,ann1,ann2,ann3,m", ["0.33", "1.0", "0.0", "0.67", "0.0"], "fractions"),
    "count": ("id,ann1,ann2,ann3,n_votes", [*"33333"], "count"),
    "date": ("id,ann1,ann2,ann3,when", [f"2024-05-0{k}" for k in range(1, 6)], "times"),
    "note": ("id,ann1,ann2,ann3,notes", ["", "unsure", "", "", "ask"], "text"),
    "flag": ("id,ann1,ann2,ann3,is_question", [*"01101"], "mark"),
    "round": ("id,ann1,ann2,ann3,round", [*"11000"], "property"),
    "empty": ("id,ann1,ann2,ann3,spare", ["", "", "", "", ""], "empty"),
    "other": ("id,ann1,ann2,ann3,outlet", ["fox", "cnn", "fox", "cnn", "fox"], "not those"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("kind", LEFT_OUT)
def test_columns_that_are_no_annotators_are_left_out_by_name(tmp_path, kind):
    header, column, reason = LEFT_OUT[kind]
    path = write(tmp_path / "w.csv", with_columns(header, column))
    export = read_export(path, format="wide")
    assert export.annotations.annotators.tolist() == ["ann1", "ann2", "ann3"]
    assert export.annotations.instances.tolist() == [1, 2, 3, 4, 5]
    assert export.annotations.classes.tolist() == [0, 1]
    name = header.rpartition(",")[2]
    if reason is None:
        assert export.gold.labels.tolist() == [0, 1, 0, 1, 0]
        assert any("'gold' is read as the gold labels" in note for note in export.notes)
        return
    assert len(export.gold) == 0
    (lost,) = export.left_out
    assert lost.where == (f"column {name!r}",)
    assert reason in lost.reason
    with pytest.warns(UserWarning, match=f"left out.*{reason}.*column '{name}'"):
        read_annotations(path, format="wide")


def test_names_are_needed_where_values_are_alike(tmp_path):
    # A gold column that is not called so cannot be told from an annotator.
    path = write(tmp_path / "w.csv", with_columns("id,ann1,ann2,ann3,key2", [*"01010"]))
    with pytest.raises(UnclearColumnsError, match=r"'key2' could be.*'ann1' \(0, 1\)") as caught:
        read_annotations(path, format="wide")
    assert caught.value.options == {"annotators": ["ann*"]}
    named = read_annotations(path, annotators=["ann*"])
    assert named.annotators.tolist() == ["ann1", "ann2", "ann3"]
    four = read_annotations(path, annotators="ann*, key2")
    assert four.annotators.tolist() == ["ann1", "ann2", "ann3", "key2"]


@pytest.mark.parametrize("named", ["ann,bob", ["ann", "bob"], ["ann,bob"], ["[ab][no][nb]"]])
def test_named_columns_are_the_annotators_and_others_stay_with_the_items(tmp_path, named):
    text = "review,ann,mood,bob,gold\nFine.,0,x,1,1\nBad.,0,y,0,0\nFair.,,z,1,0\n"
    export = read_export(write(tmp_path / "w.csv", text), annotators=named)
    assert cells(export.annotations) == {
        ("Bad.", "ann"): 0, ("Bad.", "bob"): 0, ("Fair.", "bob"): 1,
        ("Fine.", "ann"): 0, ("Fine.", "bob"): 1,
    }  # fmt: skip
    assert export.left_out == ()
    assert dict(zip(export.gold.tasks, export.gold.labels, strict=True)) == {
        "Fine.": 1,
        "Bad.": 0,
        "Fair.": 0,
    }
    assert export.items.columns == {"mood": ["y", "z", "x"]}


def test_what_is_named_must_be_there(tmp_path):
    path = write(tmp_path / "w.csv", "id,ann,bob\nx,0,1\ny,1,1\n")
    for options, message in (
        (
            {"annotators": "ann,carl"},
            "annotators='carl' fits no column; the columns are 'id'",
        ),
        ({"annotators": "w_*"}, "annotators='w_\\*' fits no column"),
        ({"annotators": ","}, "names no column"),
        ({"annotators": "ann", "task": "ann"}, "'ann' is named by task= and by annotators="),
        ({"annotators": "ann", "task": "key"}, "task='key' is not a column"),
        ({"annotators": "ann", "format": "long"}, "format='long'"),
        ({"worker": "a*", "label": "z*"}, "label='z\\*' fits no column"),
        ({"worker": "a*", "label": "b*"}, "no partner"),
    ):
        with pytest.raises(AnnotationError, match=message):
            read_annotations(path, **options)
    twice = write(tmp_path / "t.csv", "id,ann,ann\nx,0,1\n")
    with pytest.raises(AnnotationError, match="'ann' occurs twice"):
        read_annotations(twice, format="wide")


# -- layouts --------------------------------------------------------------------------------------

READ = {
    "workers beside metadata": (
        "round,batch,sentence,guid,worker_0,worker_1,worker_2,p_agree,held_out\n"
        "1,2,The sky.,g1,agrees,neutral,,0.9,0\n1,2,The sea.,g2,agrees,agrees,neutral,0.5,0\n"
        "2,3,The sun.,g3,,neutral,agrees,0.4,1\n",
        {("g1", "worker_0"): "agrees", ("g1", "worker_1"): "neutral", ("g2", "worker_0"): "agrees",
         ("g2", "worker_1"): "agrees", ("g2", "worker_2"): "neutral", ("g3", "worker_1"): "neutral",
         ("g3", "worker_2"): "agrees"},
    ),
    "scores beside who gave them": (
        "Id,Request,Score1,TurkId1,Score2,TurkId2,Normalized Score\n"
        "7,Please?,13,AX,25,BY,0.3\n8,Now!,2,BY,13,CZ,-0.2\n9,Well,,,25,AX,0.1\n",
        {("7", "AX"): 13, ("7", "BY"): 25, ("8", "BY"): 2, ("8", "CZ"): 13, ("9", "AX"): 25},
    ),
    "workers and labels in turn": (
        "item,worker_1,label_1,worker_2,label_2,confidence_1,confidence_2\n"
        "a,w1,yes,w2,no,3,4\nb,w2,yes,w3,yes,1,2\n",
        {("a", "w1"): "yes", ("a", "w2"): "no", ("b", "w2"): "yes", ("b", "w3"): "yes"},
    ),
    "labels before workers of the same name": (
        "doc,worker1_label,worker1,worker2_label,worker2,gold\n"
        "d1,0,a,1,b,0\nd2,1,b,1,c,1\nd3,0,c,0,a,0\n",
        {("d1", "a"): 0, ("d1", "b"): 1, ("d2", "b"): 1, ("d2", "c"): 1, ("d3", "c"): 0,
         ("d3", "a"): 0},
    ),
    "names without a number": (
        "tweet_id,alice,bob,carol,url\n901,pos,neg,pos,http://a\n902,neg,neg,pos,http://b\n"
        "903,pos,pos,,http://c\n",
        {("901", "alice"): "pos", ("901", "bob"): "neg", ("901", "carol"): "pos",
         ("902", "alice"): "neg", ("902", "bob"): "neg", ("902", "carol"): "pos",
         ("903", "alice"): "pos", ("903", "bob"): "pos"},
    ),
    "labels of named people": (
        "doc,label_ann,conf_ann,label_bob,conf_bob\nd1,1,70,0,90\nd2,1,80,1,75\nd3,0,60,0,70\n",
        {("d1", "label_ann"): 1, ("d1", "label_bob"): 0, ("d2", "label_ann"): 1,
         ("d2", "label_bob"): 1, ("d3", "label_ann"): 0, ("d3", "label_bob"): 0},
    ),
    "experts, and one expert": (
        "id,expert_1,expert_2,expert\n1,a,b,a\n2,b,b,b\n3,a,a,b\n",
        {("1", "expert_1"): "a", ("1", "expert_2"): "b", ("2", "expert_1"): "b",
         ("2", "expert_2"): "b", ("3", "expert_1"): "a", ("3", "expert_2"): "a"},
    ),
    "no ids": (
        "rater A,rater B\n1,2\n2,2\n3,\n",
        {("0", "rater A"): 1, ("0", "rater B"): 2, ("1", "rater A"): 2, ("1", "rater B"): 2,
         ("2", "rater A"): 3},
    ),
    "trailing empty columns of a spreadsheet": (
        "id,a1,a2,,\n1,x,y,,\n2,y,y,,\n3,x,x,,\n",
        {("1", "a1"): "x", ("1", "a2"): "y", ("2", "a1"): "y", ("2", "a2"): "y",
         ("3", "a1"): "x", ("3", "a2"): "x"},
    ),
}  # fmt: skip
"""Layouts and what they say."""

REFUSED = {
    "two questions": (
        "id,mood_1,mood_2,topic_1,topic_2\n1,0,1,1,1\n2,1,1,0,1\n3,0,0,1,0\n",
        "several groups of columns",
    ),
    "a survey": ("id,Q1,Q2,Q3\n1,2,3,1\n2,2,2,1\n3,1,3,3\n", "questions rather than annotators"),
    "one annotator": ("id,score,length\n1,2,30\n2,2,40\n3,1,50\n", "no two columns share"),
    "an undecided column": (
        "id,alice,bob,label\n1,a,b,a\n2,b,b,b\n3,a,a,a\n",
        "'label' could be annotators like 'alice', 'bob'",
    ),
    "different scales": (
        "id,a1,a2,c1,c2\n1,0,1,5,4\n2,1,1,4,5\n3,0,0,3,5\n4,1,0,5,3\n",
        "several groups of columns",
    ),
    "free text of every worker": (
        "id,worker_1,worker_2\n" + "".join(f"{k},word{k},term{k}\n" for k in range(12)),
        "no two columns share",
    ),
    "texts that are given twice": (
        "id,worker_1,worker_2\n" + "".join(f"{k},w{k % 29},t{k % 29}\n" for k in range(30)),
        "too many for labels",
    ),
    "two labels of every worker": (
        "id,worker_1,label_1,class_1,worker_2,label_2,class_2\n1,w,a,b,v,b,a\n2,v,a,a,w,b,b\n",
        "names the annotators of each row, and several groups",
    ),
}
"""Layouts that cannot be told, and what is said."""


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("layout", READ)
def test_layouts_that_are_read(tmp_path, layout):
    text, expected = READ[layout]
    path = write(tmp_path / "w.csv", text)
    export = read_export(path, format="wide")
    assert cells(export.annotations) == expected
    again = read_export(path, **export.reading)
    assert again.annotations.equals(export.annotations)
    if len(text.split("\n")[0].split(",")) > 2:
        with pytest.raises(UnclearColumnsError, match="one column per annotator"):
            read_annotations(path)


@pytest.mark.parametrize("layout", REFUSED)
def test_layouts_that_are_asked_about(tmp_path, layout):
    text, message = REFUSED[layout]
    path = write(tmp_path / "w.csv", text)
    with pytest.raises(UnclearColumnsError, match=message) as caught:
        read_annotations(path, format="wide")
    for name in text.split("\n")[0].split(","):
        assert f"'{name}' (" in str(caught.value)
    if "text" not in layout:
        assert read_annotations(path, format="wide", **caught.value.options).n_annotations


def test_a_majority_without_the_name_is_told_by_many_contested_rows(tmp_path):
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 2, (60, 3))
    decided = (votes.sum(1) > 1).astype(int)
    frame = pd.DataFrame(votes, columns=["alice", "bob", "carol"]).assign(result=decided)
    frame.insert(0, "id", np.arange(60) + 100)
    path = tmp_path / "w.csv"
    frame.to_csv(path, index=False)
    export = read_export(path, format="wide")
    assert export.annotations.annotators.tolist() == ["alice", "bob", "carol"]
    assert "majority of the annotators in every row" in export.left_out[0].reason
    frame.head(15).to_csv(path, index=False)
    with pytest.raises(UnclearColumnsError, match="'result' may be an annotator, or the majority"):
        read_annotations(path, format="wide")


def test_minus_one_is_no_annotation_unless_it_is_a_class(tmp_path):
    path = write(tmp_path / "w.csv", "id,a1,a2\n1,-1,0\n2,1,1\n3,0,-1\n")
    export = read_export(path, format="wide")
    assert export.annotations.n_annotations == 4
    assert any("2 cells hold -1" in note for note in export.notes)
    signed = read_annotations(path, format="wide", classes=[-1, 0, 1])
    assert signed.n_annotations == 6


def test_records_of_json_are_wide_tables_too(tmp_path):
    rows = [{"id": k, "text": f"text {k}", "rater_1": k % 2, "rater_2": 1} for k in range(4)]
    path = write(tmp_path / "w.jsonl", rows)
    with pytest.raises(UnclearColumnsError, match="one column per annotator"):
        read_annotations(path)
    export = read_export(path, annotators="rater_*")
    assert export.annotations.shape == (4, 2)
    assert export.items.columns["text"] == [f"text {k}" for k in range(4)]


# -- tasks of several columns ---------------------------------------------------------------------

LONG = "system,doc,seg,rater,score\nA,d|1,1,r1,3\nA,d|1,1,r2,4\nB,d|1,1,r1,5\nA,d2,2,r2,3\n"


def test_a_task_is_made_of_several_columns(tmp_path):
    keys = ["system", "doc", "seg"]
    path = write(tmp_path / "l.csv", LONG)
    expected = ["A|d2|2", r"A|d\|1|1", r"B|d\|1|1"]
    for task in (keys, "system,doc,seg"):
        table = read_annotations(path, task=task, label="score")
        assert table.instances.tolist() == expected
        frame = AnnotationTable.from_frame(
            pd.read_csv(path), task=task, worker="rater", label="score"
        )
        assert frame.instances.tolist() == expected
        assert frame.to_matrix().tolist() == table.to_matrix().tolist()
    for name, task in (("store", "system,doc,seg"), ("again", keys)):
        store = ingest(path, tmp_path / name, task=task, label="score")
        assert store.instances.tolist() == expected
        assert store.n_annotations == table.n_annotations
    export = read_export(path, task=keys, worker="rater", label="score", fields=["doc"])
    assert export.annotations.instances.tolist() == expected
    wide = "system,doc,seg,rater1,rater2\nA,d|1,1,3,4\nB,d|1,1,5,\nA,d2,2,,3\n"
    read = read_export(write(tmp_path / "w.csv", wide), format="wide", task=keys)
    assert sorted(read.annotations.instances.tolist()) == sorted(expected)
    assert read.items.columns["doc"] == ["d2", "d|1", "d|1"]
    assert read.reading["task"] == "system,doc,seg"
    with pytest.raises(AnnotationError, match="'document' is not a column"):
        read_annotations(path, task=["system", "document"], worker="rater", label="score")
    gap = write(tmp_path / "g.csv", LONG + "A,,3,r1,3\n")
    with pytest.raises(AnnotationError, match=r"'system,doc,seg' \(task\) is empty"):
        read_annotations(gap, task=keys, worker="rater", label="score")


def test_parts_of_an_id_cannot_be_confused():
    assert joined_id(["a|b", "c"]) != joined_id(["a", "b|c"])
    assert joined_id(["a\\", "b"]) != joined_id(["a", "\\b"])
    assert joined_id([7.0]) == "7"
    assert task_columns(("a", "b"), []) == ["a", "b"]


def test_fields_of_an_export_make_up_a_task(tmp_path):
    from tests.io.exports.conftest import made, studio

    tasks = [studio(made(1, "good"), number=k, doc=f"d{k}", seg=1) for k in (1, 2)]
    path = write(tmp_path / "a.json", tasks)
    table = read_annotations(path, task=["data.doc", "seg"])
    assert table.instances.tolist() == ["d1|1", "d2|1"]
    assert read_annotations(path, task="data.doc,seg").equals(table)


# -- tables that are not recognised ---------------------------------------------------------------


def test_columns_that_are_named_make_records_a_long_table(tmp_path):
    rows = [
        {"prompt": f"p{k}", "judge": f"j{j}", "verdict": (k + j) % 2}
        for k in range(3)
        for j in (1, 2)
    ]
    path = write(tmp_path / "judges.json", rows)
    with pytest.raises(UnclearColumnsError) as caught:
        read_annotations(path)
    assert caught.value.options == {"task": "prompt", "worker": "judge", "label": "verdict"}
    table = read_annotations(path, **caught.value.options)
    assert table.shape == (3, 2)
    assert table.equals(read_annotations(path, format="long", **caught.value.options))


# -- frames ---------------------------------------------------------------------------------------


def frames_of(rows):
    import polars as pl
    import pyarrow as pa

    frame = pd.DataFrame(rows)
    return frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)


def test_columns_of_frames_are_named_or_left_out_by_the_same_rules():
    rows = {"id": [7, 8, 9], "ann1": [0, 1, 1], "ann2": [0, 0, 1], "gold": [0, 1, 0]}
    rows |= {"text": ["a cat sat down here", "no", "yes"], "conf": [0.5, 0.25, 1.0]}
    for frame in frames_of(rows):
        with pytest.warns(UserWarning, match=r"'text'.*'conf'.*'gold': it holds gold.*annotators="):
            table = AnnotationTable.from_matrix(frame)
        assert table.annotators.tolist() == ["ann1", "ann2"]
        assert table.instances.tolist() == [7, 8, 9]
        for named in ("ann*", ["ann1", "ann2"], "ann1,ann2"):
            assert AnnotationTable.from_matrix(frame, annotators=named).equals(table)
        assert AnnotationTable.from_matrix(frame, annotators=["gold"]).n_annotators == 1
        with pytest.raises(AnnotationError, match="annotators='bob' fits no column"):
            AnnotationTable.from_matrix(frame, annotators=["ann1", "bob"])
    with pytest.raises(UnclearColumnsError, match="'key2' could be"):
        AnnotationTable.from_matrix(pd.DataFrame(rows | {"key2": [0, 1, 0]}))
    plain = pd.DataFrame({"ann1": [0, 1], "ann2": [1, 1]})
    renamed = AnnotationTable.from_matrix(plain, annotators=["x", "y"])
    assert renamed.annotators.tolist() == ["x", "y"]


def test_a_platform_s_names_of_people_are_no_words(tmp_path):
    """Letters of such ids spell 'n', a count, or 'gt', gold labels; both are annotators."""
    people = ["A1N274L13ZKKI5", "A12YUYYSIZ8GT2", "A175ZTL2OZO9YU"]
    rows = [
        f"song{i}.mp3,{','.join('pop' if (i + k) % 3 else 'rock' for k in range(3))}"
        for i in range(12)
    ]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(["song_id", *people]), *rows]) + "\n")
    table = read_annotations(path, format="wide")
    assert sorted(table.annotators.tolist()) == sorted(people)
