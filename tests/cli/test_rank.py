"""The command `rank`, its files and its page."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

import manyhands
from manyhands.comparisons import ComparisonTable
from manyhands.io import read_comparisons
from manyhands.ranking import BradleyTerry
from manyhands.ranking.findings import annotator_columns, not_told_apart, pair_columns, tiers
from manyhands.report.ranking import render_ranking, summarize_ranking
from tests.cli.conftest import done, run
from tests.ranking.conftest import crowd

pytestmark = pytest.mark.filterwarnings("always::UserWarning")

JUDGES = ("gpt-4o", "claude-3", "gemini-1.5", "llama-3-70b", "mistral-large", "qwen2-72b")


def failed(code, *arguments):
    """Run what must fail, with a last line that says why."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("error: ")
    return result


def arena(n_questions=60, seed=0):
    """Verdicts of six language models on the answers of five systems, as objects."""
    rng = np.random.default_rng(seed)
    theta = np.array([1.2, 0.6, 0.0, -0.6, -1.2])
    bias = dict(zip(JUDGES, (0.0, 0.2, 2.0, -0.2, 0.0, 0.1), strict=True))
    rows = []
    for q in range(n_questions):
        for judge in JUDGES:
            i, j = rng.choice(5, 2, replace=False)
            reliability = -1.0 if judge == "qwen2-72b" else 1.5
            eta = reliability * (theta[i] - theta[j]) + bias[judge]
            p = np.exp([eta / 2, -0.8, -eta / 2])
            won = rng.choice(["model_a", "tie (bothbad)", "model_b"], p=p / p.sum())
            rows.append(
                {"question_id": f"q{q}", "model_a": f"m{i}", "model_b": f"m{j}", "judge": judge}
                | {"winner": str(won), "tstamp": float(q)}
            )
    return rows


@pytest.fixture
def verdicts(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in arena(120)))
    return path


def test_six_judges_in_json_lines(verdicts, tmp_path):
    out = tmp_path / "ranking"
    result = done("rank", verdicts, "--out", out, "--next", 5, "--json")
    found = json.loads(result.stdout)
    assert found["ranking"]["item"] == ["m0", "m1", "m2", "m3", "m4"]
    assert {path.name for path in out.iterdir() if not path.name.startswith("weights")} == {
        "ranking.csv", "annotators.csv", "better.csv", "next.csv", "report.html", "summary.json",
        "model.json",
    }  # fmt: skip
    ranking = pd.read_csv(out / "ranking.csv")
    assert ranking["rank"].tolist() == [1, 2, 3, 4, 5]
    annotators = pd.read_csv(out / "annotators.csv").set_index("annotator")
    assert (annotators["kind"] == "model").all()
    assert annotators.index[annotators["reliability_high"] < 0].tolist() == ["qwen2-72b"]
    assert annotators["left_between_equals"].idxmax() == "gemini-1.5"
    assert annotators.loc["gemini-1.5", "left_low"] > 0.5
    assert pd.read_csv(out / "next.csv")["times"].tolist() == [1] * 5
    assert len(pd.read_csv(out / "better.csv")) == 5
    assert "prefers the weaker item" in (out / "report.html").read_text()
    model = manyhands.load(out)
    assert model.clustered_
    assert model.predict_proba("m0", "m4").shape == (1, 3)
    assert any("6 language models" in line for line in found["facts"])
    again = done("rank", verdicts, "--out", out, "--json")  # Without --next: none is left over.
    assert not (out / "next.csv").exists()
    assert json.loads(again.stdout)["ranking"] == found["ranking"]


def test_groups_are_shown(tmp_path):
    lines = ["x,y,x,w", "y,x,x,w", "x,y,y,v", "p,q,q,w", "q,p,q,v", "p,q,p,v"] * 3
    result = done("rank", write(tmp_path, *lines), "--out", tmp_path / "r.csv")
    header = next(line for line in result.stdout.splitlines() if "strength" in line)
    assert "group" in header
    ranking = pd.read_csv(tmp_path / "r.csv")
    assert sorted(ranking["component"]) == [1, 1, 2, 2]


def test_what_people_read(verdicts, tmp_path):
    result = done("rank", verdicts, "--next", 3, "--out", tmp_path / "ranking.xlsx")
    assert "720 comparisons of 5 items by 6 annotators" in result.stdout
    assert "“m0” is the strongest of 5 items" in result.stdout
    assert "Compare next" in result.stdout
    assert "'qwen2-72b' prefers the weaker item" in result.stderr
    assert "read column 'model_a' as left" in result.stderr
    assert "question=" not in result.stdout + result.stderr


def test_without_a_report_none_is_left_over(verdicts, tmp_path):
    out = tmp_path / "ranking"
    assert "next: open " in done("rank", verdicts, "--out", out).stdout
    result = done("rank", verdicts, "--out", out, "--no-report")
    assert result.stdout.endswith(f"written: {out}\n")
    assert (out / "ranking.csv").exists()
    assert not (out / "report.html").exists()


def test_a_column_of_times_is_said_not_to_be_used(verdicts):
    message = done("rank", verdicts).stderr
    assert "column 'tstamp' holds times and is not used: strengths are taken as constant" in message


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_column_of_0_and_1_for_each_outcome(tmp_path, suffix):
    rows = pd.DataFrame(arena(20)).drop(columns="tstamp")
    won = rows.winner.str.replace("tie (bothbad)", "tie", regex=False)
    one_each = rows.drop(columns="winner").assign(
        winner_model_a=(won == "model_a").astype(int),
        winner_model_b=won == "model_b",
        winner_tie=(won == "tie").astype(float),
    )
    path = tmp_path / f"x{suffix}"
    if suffix == ".parquet":
        one_each.to_parquet(path)
    elif suffix == ".jsonl":
        one_each.to_json(path, orient="records", lines=True)
    else:
        one_each.to_csv(path, index=False)
    assert read_comparisons(path).to_frame().equals(ComparisonTable.from_frame(rows).to_frame())


@pytest.mark.parametrize("cells", ["1,1,0", "0,0,0", "2,0,0", "1,yes,0"])
def test_not_one_outcome_of_three_is_refused(tmp_path, cells):
    header = "model_a,model_b,judge,winner_model_a,winner_model_b,winner_tie"
    path = write(tmp_path, "x,y,w,1,0,0", f"x,y,w,{cells}", header=header)
    message = failed(3, "rank", path).stderr
    assert "row 3 has winner_model_a" in message
    assert "give 1 in one of the three" in message


def test_one_file_per_judge(tmp_path):
    rows = pd.DataFrame(arena(80))
    paths = []
    for judge, part in rows.groupby("judge"):
        paths.append(tmp_path / f"{judge.split('.')[0]}.csv")
        part.drop(columns="judge").to_csv(paths[-1], index=False)
    found = json.loads(done("rank", *paths, "--json").stdout)
    assert found["data"]["n_annotators"] == 6
    assert "gpt-4o" in found["annotators"]["annotator"]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".xlsx", ".parquet", ".json"])
def test_every_format_gives_the_same_table(tmp_path, suffix):
    rows = pd.DataFrame(arena(20)).drop(columns="tstamp")
    path = tmp_path / f"x{suffix}"
    if suffix == ".xlsx":
        rows.to_excel(path, index=False)
    elif suffix == ".parquet":
        rows.to_parquet(path)
    elif suffix == ".json":
        rows.to_json(path, orient="records")
    elif suffix == ".csv.gz":
        path.write_bytes(gzip.compress(rows.to_csv(index=False, sep=";").encode()))
    else:
        rows.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    expected = ComparisonTable.from_frame(rows).to_frame()
    assert read_comparisons(path).to_frame().equals(expected)


def write(tmp_path, *lines, header="left,right,winner,worker"):
    path = tmp_path / "bad.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("x,y,x,w", "x,x,x,w"), "row 3: item 'x' is compared with itself"),
        (("x,y,x,w", "", "x,y,z,w"), "the winner in row 4 is 'z'"),
        (("x,y,x,w", "x,,x,w"), "column 'right' (right) is empty in row 3"),
        (("x,y,x,",), "column 'worker' (worker) is empty in row 2"),
        ((), "there are no comparisons below the header"),
    ],
)
def test_bad_rows_are_named_as_a_spreadsheet_counts_them(tmp_path, lines, message):
    assert message in failed(3, "rank", write(tmp_path, *lines)).stderr


def test_bad_calls(tmp_path, verdicts):
    path = write(tmp_path, "x,y,x,w", header="one,two,winner,worker")
    message = failed(3, "rank", path).stderr
    assert "there is no column 'left' (--left); the columns are 'one', 'two'" in message
    sides = ("--left", "one", "--right", "two")
    assert "no column 'who' (--winner)" in failed(3, "rank", path, *sides, "--winner", "who").stderr
    assert failed(3, "rank", tmp_path / "nothing.csv")
    assert "not a format of tables" in failed(3, "rank", verdicts, "--out", "x.docx").stderr
    assert "add --next 50" in failed(3, "rank", verdicts, "--each", 2).stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BradleyTerry, "fit", lambda *_: pytest.fail("it is refused before the fit"))
        message = failed(3, "rank", verdicts, "--models", "nobody").stderr
    assert "'nobody', which made no comparisons" in message
    path = write(tmp_path, "x,y,x,w", "x,y,z,w")
    assert "name it in --abstain z" in failed(3, "rank", path).stderr
    assert "write over" in failed(3, "rank", verdicts, "--out", verdicts).stderr
    (tmp_path / "x.jsonl").write_text("[1]\n")
    assert "holds no list of objects" in failed(3, "rank", tmp_path / "x.jsonl").stderr
    (tmp_path / "x.jsonl").write_text('{"left": "x"}\n[1]\n')
    assert "each line must be an object" in failed(3, "rank", tmp_path / "x.jsonl").stderr


def test_without_a_column_of_annotators(tmp_path):
    lines = ["x,y,x", "y,x,x", "y,z,y", "z,y,z", "x,z,tie", "z,x,z"] * 5
    path = write(tmp_path, *lines, header="left,right,winner")
    result = done("rank", path)
    assert "no column of annotators is found" in result.stderr
    assert "give --worker none if there is none" in result.stderr
    found = json.loads(done("rank", path, "--worker", "none", "--json").stdout)
    assert found["annotators"] == {}
    assert "no column of annotators" not in done("rank", path, "--worker", "none").stderr


def test_weights_and_values_that_mean_nothing(tmp_path):
    lines = ["x,y,x,w,2", "y,x,x,w,1", "x,y,y,v,3", "x,y,skip,v,1", "y,x,y,v,1"] * 4
    path = write(tmp_path, *lines, header="left,right,winner,worker,n")
    table = read_comparisons(path, weight="n", abstain="skip")
    assert table.n_comparisons == 16
    assert table.weight.sum() == 28
    assert done("rank", path, "--weight", "n", "--abstain", "skip")
    path = write(tmp_path, "x,y,x,w,many", header="left,right,winner,worker,n")
    assert "holds 'many' in row 2" in failed(3, "rank", path, "--weight", "n").stderr


def test_groups_and_ties_have_their_page():
    one, other = crowd(1, n=4, m=300).table, crowd(2, n=4, m=300).table
    renamed = ComparisonTable.from_frame(
        other.to_frame().assign(left=lambda d: "z" + d.left, right=lambda d: "z" + d.right)
    )
    with pytest.warns(UserWarning, match="never compared"):
        model = BradleyTerry().fit(one.with_added(renamed))
    summary = summarize_ranking(model, title="<b>Two</b>")
    assert summary["ranking"]["component"] == [1] * 4 + [2] * 4  # As the page counts.
    page = render_ranking(summary)
    shares = [v for name, each in summary["better"].items() if name != "item" for v in each]
    assert page.count('class="d apart ') == sum(v is not None and v >= 0.975 for v in shares) > 0
    assert "2 groups of items were never compared" in page
    assert "<b>Two</b>" not in page
    assert "://" not in page


# -- claims ---------------------------------------------------------------------------------------


def test_equal_items_are_rarely_told_apart():
    told = []
    for seed in range(30):
        made = crowd(seed, n=6, r=8, m=400, theta=np.zeros(6))
        model = BradleyTerry(reliability=False).fit(made.table)
        told.append(5 - len(not_told_apart(model, 0)))
    # 150 pairs that depend in fives; 5 % are expected.
    assert np.mean(told) / 5 < 0.12


def test_items_that_are_told_apart_are_in_the_true_order():
    right, n = 0, 0
    for seed in range(15):
        made = crowd(seed, n=8, r=10, m=600)
        model = BradleyTerry().fit(made.table)
        better = model.better()
        i, j = np.nonzero(better >= 0.975)
        right += (made.theta[i] > made.theta[j]).sum()
        n += len(i)
    assert n > 100
    assert right / n > 0.97


def test_tiers_begin_with_an_item_that_is_stronger_than_the_next_tier():
    model = BradleyTerry().fit(crowd(3, n=10, m=900).table)
    tier, better = tiers(model), model.better()
    for k in range(1, tier.max()):
        first = min(np.flatnonzero(tier == k), key=lambda i: model.ranks_[i])
        assert (better[first, tier == k + 1] >= 0.975).any()
        others = [i for i in np.flatnonzero(tier == k) if i != first]
        assert (better[first, others] < 0.975).all()


def test_annotators_at_random_are_named_and_others_are_not():
    """Six judges, of whom one chooses at random; 400 answers each show it as a rule."""
    found, others = [], []
    for seed in range(12):
        reliability = np.random.default_rng(seed).uniform(0.6, 1.4, 6)
        reliability[0] = 0.0
        model = BradleyTerry().fit(crowd(seed, n=7, r=6, m=2400, reliability=reliability).table)
        columns = annotator_columns(model)
        named = {
            name for name, look in zip(columns["annotator"], columns["look"], strict=True)
            if "near random" in (look or "") or "weaker" in (look or "")
        }  # fmt: skip
        found.append("a0" in named)
        others.append(len(named - {"a0"}))
    assert np.mean(found) >= 0.7
    assert np.mean(others) <= 0.1
    facts = " ".join(summarize_ranking(model)["facts"])
    assert ("“a0” chooses nearly at random" in facts) == ("a0" in named)


def looks_of_ties(made):
    found = summarize_ranking(BradleyTerry().fit(made))["annotators"]
    looks = dict(zip(found["annotator"], found["look"], strict=True))
    return {who: look.split(", ")[-1] for who, look in looks.items() if look and "ties" in look}


def test_ordinary_judges_are_hardly_ever_named_for_their_ties():
    named, n = 0, 0
    for seed in range(8):
        for r, own in ((6, 0.0), (6, 0.5), (15, 0.5)):
            named += len(looks_of_ties(crowd(seed, n=8, r=r, m=150 * r, ties=-1.0, own=own).table))
            n += r
    assert named / n <= 0.02


@pytest.mark.parametrize(("shift", "look"), [(3.0, "many ties"), (-3.0, "few ties")])
def test_a_judge_with_odd_ties_is_named(shift, look):
    found = []
    for seed in range(6):
        made = crowd(seed, n=8, r=6, m=1200, ties=0.5 if shift < 0 else -2.0, odd_ties=shift)
        looks = looks_of_ties(made.table)
        found.append(looks.pop("a0", None) == look)
        assert not looks
    assert np.mean(found) >= 0.8


def test_the_worst_pair_is_found():
    table = crowd(5, n=6, m=1200).table
    low, high = np.minimum(table.left, table.right), np.maximum(table.left, table.right)
    outcome = table.outcome.copy()
    planted = (low == 0) & (high == 1)
    weaker = 0 if BradleyTerry().fit(table).strengths_[0] < 0 else 1
    outcome[planted] = np.where(table.left[planted] == weaker, 0, 2)
    odd = ComparisonTable(
        table.left, table.right, table.annotator, outcome, table.items, table.annotators
    )
    with pytest.warns(UserWarning, match="vary"):
        model = BradleyTerry().fit(odd)
    pairs = pair_columns(model)
    assert {pairs["item"][0], pairs["other"][0]} == {"i0", "i1"}
    assert pairs["won"][0] == pairs["n_comparisons"][0] == planted.sum()
    assert pairs["z"][0] > 3


def test_kinds_of_annotators_are_named_or_recognised():
    model = BradleyTerry().fit(crowd(3).table)
    assert set(annotator_columns(model)["kind"]) == {"person"}
    kinds = annotator_columns(model, ["a1"])
    assert dict(zip(kinds["annotator"], kinds["kind"], strict=True))["a1"] == "model"
