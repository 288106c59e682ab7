"""`manyhands next`, `review`, `annotators` and `budget`."""

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from manyhands import AnnotationPlanner, CrowdStackingClassifier
from manyhands.classifiers.stacking import members
from manyhands.cli.commands.planning import _told_stop
from manyhands.encoders import ImageEncoder
from manyhands.planning import Suggestion
from manyhands.planning.pool import Worlds
from manyhands.planning.replay import Curves, Replay
from manyhands.wording import percent
from tests.cli.conftest import done, done_json, read_rows, run, write_csv
from tests.planning.test_planning import annotated, crowd


@pytest.fixture
def pilot(tmp_path, monkeypatch):
    """Stand in a folder with a crowd's annotations, gold and features."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(members, "MANY_FEATURES", 0)  # Two members of a stack are enough.
    for name in ("n_rounds", "n_folds"):
        monkeypatch.setitem(CrowdStackingClassifier.__init__.__kwdefaults__, name, 2)
    y, table = crowd(60, 3, n_annotators=6)
    rows = zip(table.instance, table.annotator, table.label, strict=True)
    write_csv(
        tmp_path / "A.csv", [("task", "worker", "label"), *((i, f"w{r}", c) for i, r, c in rows)]
    )
    write_csv(tmp_path / "gold.csv", [("task", "label"), *enumerate(y)])
    write_csv(
        tmp_path / "pairs.csv", [("task", "worker"), *((i, "w1") for i in range(60)), (0, "new")]
    )
    write_csv(tmp_path / "prices.csv", [("worker", "price"), ("w0", 1000), ("w1", 2)])
    write_csv(tmp_path / "few.csv", [("task", "label"), *enumerate(y[:5])])
    np.save("X.npy", 6 * np.eye(3)[y] + np.random.default_rng(0).normal(size=(60, 3)))
    return table


def test_the_next_batch_as_a_table_and_as_json(pilot):
    result = done_json("next", "A.csv", "-n", 8, "--cost", "prices.csv", "--out", "batch.csv")
    assert len(result["pairs"]) == 8
    assert {row["worker"] for row in result["pairs"]} <= {f"w{r}" for r in range(1, 6)}
    assert not result["stopping"]["stop"]
    assert read_rows(Path("batch.csv"))[0] == ["task", "worker", "score", "expected_gain"]
    assert len(read_rows(Path("batch.csv"))) == 9
    listed = done_json("next", "A.csv", "-n", 3, "--pairs", "pairs.csv")
    assert {row["worker"] for row in listed["pairs"]} <= {"w1", "new"}
    shown = done("next", "A.csv", "-n", 12, "--audit", "gold.csv", "--min-gain", 0.9).stdout
    assert "and 2 more" in shown
    assert "stop: " in shown
    assert "estimated from 60\u00a0randomly drawn labels that people checked" in shown
    assert "if you go on all the same" in shown
    one = done("next", "A.csv", "-n", 1, "--warm-up", 0, "--explore").stdout
    assert one.startswith("Next annotation\n")
    limit = "when fewer than one label is corrected for every 50 annotations"
    assert f"go on: we suggest stopping {limit}" in one
    known = done_json("next", "A.csv", "-n", 20, "--known", "few.csv")
    assert min(row["task"] for row in known["pairs"]) >= 5


@pytest.mark.parametrize("gold", [(), ("--gold", "gold.csv")])
def test_next_says_how_many_of_its_items_have_accepted_labels(pilot, gold):
    """It says so of the labels that `aggregate` accepts, and asks about them last."""
    y, rng = np.arange(120) % 3, np.random.default_rng(0)
    rows = [
        (f"t{i}", f"w{r}", y[i] if rng.random() < 0.85 else rng.integers(3))
        for i in range(120)
        for r in rng.choice(8, 1 + i % 4, replace=False)
    ]
    write_csv(Path("A.csv"), [("task", "worker", "label"), *rows])
    write_csv(
        Path("gold.csv"), [("task", "label"), *((f"t{i}", y[i]) for i in range(120) if i // 4 % 2)]
    )
    done("aggregate", "A.csv", *gold, "--out", "labels.csv")
    header, *rows = read_rows(Path("labels.csv"))
    task, action = header.index("task"), header.index("action")
    accepted = {row[task] for row in rows if row[action] == "accept"}
    shown = done("next", "A.csv", *gold, "-n", 110, "--load", 100, "--out", "batch.csv").stdout
    asked = [row[0] for row in read_rows(Path("batch.csv"))[1:]]
    n = len(accepted & {*asked})
    assert 10 < n < 100
    assert f"{n} of the 110 items have labels that are accepted already" in shown
    assert f"-n {110 - n} leaves most of them out" in shown
    assert done_json("next", "A.csv", *gold, "-n", 110, "--load", 100)["n_accepted"] == n
    fewer = done("next", "A.csv", *gold, "-n", 110 - n, "--load", 100, "--out", "batch.csv")
    asked = [row[0] for row in read_rows(Path("batch.csv"))[1:]]
    assert len(accepted & {*asked}) <= 0.1 * len(asked)
    (told,) = re.findall(r"worth buying: `manyhands (.*)`", fewer.stdout)
    assert "forecast" not in done(*shlex.split(told), "--runs", 1, "--step", 3).stderr


def test_next_says_how_many_answers_show_how_good_somebody_is(pilot):
    rows = read_rows(Path("A.csv"))
    mine = [k for k, row in enumerate(rows) if row[1] == "w1"]
    write_csv(Path("few.csv"), [row for k, row in enumerate(rows) if k not in mine[4:]])
    write_csv(Path("w1.csv"), [("task", "worker"), *((i, "w1") for i in range(60))])
    shown = " ".join(done("next", "few.csv", "-n", 5, "--pairs", "w1.csv").stdout.split())
    told = "5 of these 5 annotations are for 1 annotator with fewer than 5 annotations so far"
    assert f"{told}, too few to judge them: “w1”. They are expected to be as good as" in shown
    shown = done("next", "A.csv", "-n", 5, "--pairs", "w1.csv").stdout
    assert "too few to judge" not in shown


def of_guessers(path, *, done):
    """Three good annotators, and two whose answers do not depend on the item.

    ``done``: the good ones have annotated everything.
    """
    y, rng = np.arange(90) % 3, np.random.default_rng(0)
    rows = [
        (f"t{i}", f"good{r}", "abc"[y[i] if rng.random() < 0.9 else rng.integers(3)])
        for i in range(90)
        for r in range(3)
        if done or (i + r) % 30 > 2
    ]
    rows += [(f"t{i}", "same", "a") for i in range(40)]
    rows += [(f"t{i}", "guesses", "abc"[i // 3 % 3]) for i in range(72)]
    write_csv(path, [("task", "worker", "label"), *rows])


def test_no_plan_asks_people_who_do_no_better_than_guessing(pilot, monkeypatch):
    """The report, the `next` of its folder, plain `next` and the forecast agree on it."""
    of_guessers(Path("A.csv"), done=False)
    done("aggregate", "A.csv", "--out", "folder")
    summary = json.loads(Path("folder/summary.json").read_text())
    flags = {
        row["annotator"]: row["flags"] for row in done_json("annotators", "A.csv")["annotators"]
    }
    assert "one label" in flags["same"]
    assert "no better than guessing" in flags["guesses"]
    sentence = "Annotators who do no better than guessing are not asked."
    batch = [(row["id"], row["annotator"]) for row in summary["plan"]["next"]["rows"]]
    assert batch
    assert not {"same", "guesses"} & {who for _, who in batch}
    page = Path("folder/report.html").read_text()
    assert page.count(sentence) == 1  # Where the plan stands; the steps say it of all flags.
    for words in ((), ("--model", "folder")):
        found = done_json("next", "A.csv", *words, "-n", 9)
        assert [(row["task"], row["worker"]) for row in found["pairs"]] == batch
        assert found["whom"] == sentence
        shown = done("next", "A.csv", *words, "-n", 15).stdout
        assert sentence in shown
        assert "same" not in shown
        assert "guesses" not in shown
    assert sentence in done("budget", "A.csv", "--budget", 4.2, "--runs", 1).stdout
    asked = set()
    answer = Worlds.answer

    def noted(self, i, r, *rest):
        asked.update(self.table.annotators[r].tolist())
        return answer(self, i, r, *rest)

    monkeypatch.setattr(Worlds, "answer", noted)
    done("budget", "A.csv", "--runs", 1)
    assert asked == {"good0", "good1", "good2"}
    # Whoever is named is asked.
    write_csv(Path("own.csv"), [("task", "worker"), *((f"t{i}", "same") for i in range(90))])
    named = done_json("next", "A.csv", "--pairs", "own.csv", "-n", 3)
    assert {row["worker"] for row in named["pairs"]} == {"same"}
    assert named["whom"] == ""


def test_a_newcomer_is_asked_if_only_guessers_have_work_left(pilot):
    of_guessers(Path("A.csv"), done=True)
    told = "Everybody here has annotated everything or does no better than guessing, so a new "
    found = done_json("next", "A.csv", "-n", 3)
    assert found["newcomer"]
    assert {row["worker"] for row in found["pairs"]} == {None}
    assert found["whom"].startswith(told)
    done("aggregate", "A.csv", "--out", "folder")
    summary = json.loads(Path("folder/summary.json").read_text())
    assert summary["plan"]["newcomer"]
    assert told in Path("folder/report.html").read_text()
    result = run("budget", "A.csv")
    assert result.exit_code == 3
    assert told in result.output


@pytest.mark.parametrize("to", [(), ("--to", "label-studio")])
def test_a_batch_that_replaces_an_earlier_file_says_so(pilot, to):
    name = "batch.json" if to else "batch.csv"
    first = done("next", "A.csv", "-n", 4, "--out", name, *to)
    assert f"written: {name}\n" in first.stderr
    os.utime(name, (86400 * 365, 86400 * 365))
    again = done("next", "A.csv", "-n", 4, "--out", name, *to)
    assert re.search(
        rf"written: {name} \(it replaces the file of that name from 197\d-", again.stderr
    )


def test_programs_get_the_facts_that_people_are_told_beside_a_batch(pilot):
    batch = ("next", "A.csv", "-n", 30, "--out", "batch.csv")
    shown, told = " ".join(done(*batch).stdout.split()), done_json(*batch)
    assert told["how_many"] == "manyhands budget A.csv"
    assert f"`{told['how_many']}`" in shown
    assert f"expects {percent(told['expected_right'])} of these answers to be right" in shown
    assert (told["n_unjudged"], told["unjudged"]) == (0, [])
    assert told["out"] == "batch.csv"
    os.utime("batch.csv", (86400 * 365, 86400 * 365))
    assert done_json(*batch)["replaced"].startswith("197")
    assert done_json(*batch[:-1], "other.csv")["replaced"] is None
    assert (done_json(*batch[:-2])["out"], done_json(*batch[:-2])["replaced"]) == (None, None)
    rows = read_rows(Path("A.csv"))
    mine = [k for k, row in enumerate(rows) if row[1] == "w1"]
    write_csv(Path("few.csv"), [row for k, row in enumerate(rows) if k not in mine[4:]])
    write_csv(Path("w1.csv"), [("task", "worker"), *((i, "w1") for i in range(60))])
    told = done_json("next", "few.csv", "-n", 5, "--pairs", "w1.csv")
    assert (told["n_unjudged"], told["unjudged"]) == (5, ["w1"])


def test_pairs_that_leave_nothing_are_refused_on_the_command_line(pilot):
    write_csv(Path("shut.csv"), [("task", "worker"), *((i, f"w{r}") for i, r in annotated(pilot))])
    found = run("next", "A.csv", "--pairs", "shut.csv")
    assert found.exit_code == 3
    assert "leaves nothing to ask: it allows 175 of 60 x 6 pairs" in found.stderr


def test_the_next_batch_as_tasks_with_assignees(pilot):
    done("next", "A.csv", "-n", 4, "--out", "batch.json", "--to", "label-studio")
    tasks = json.loads(Path("batch.json").read_text())
    assert len(tasks) == 4
    assert tasks[0]["data"]["task"] == tasks[0]["id"]
    (worker,) = tasks[0]["meta"]["assignees"]
    assert (tasks[0]["id"], int(worker[1:])) not in annotated(pilot)
    result = run("next", "A.csv", "--to", "label-studio")
    assert result.exit_code == 3
    assert "name a .json file" in result.stderr
    result = run("next", "A.csv", "--out", "batch.jsonl", "--to", "prodigy")
    assert result.exit_code == 3
    assert "--to prodigy: its tasks have no place for whom to ask" in result.stderr
    result = run("next", "A.csv", "--out", "batch.jsonl", "--to", "paper")
    assert result.exit_code == 2
    assert "use table, label-studio" in " ".join(result.stderr.split())


def test_features_join(pilot):
    batch = done_json("next", "A.csv", "-n", 4, "--features", "X.npy")
    assert len(batch["pairs"]) == 4
    told = done("next", "A.csv", "-n", 4, "--features", "X.npy").stdout
    assert "because features also show how good the annotators are" in told
    assert "Mistakes that annotators share" not in told  # These are.
    assert "It forecasts the labels that Dawid and Skene's method infers" in told
    queue = done_json("review", "A.csv", "-n", 5, "--features", "X.npy")
    assert len(queue["queue"]) == 5
    assert queue["classifier_weight"] > 0
    shown = " ".join(done("review", "A.csv", "-n", 5, "--features", "X.npy").stdout.split())
    assert queue["about"]
    assert all(line in shown for line in queue["about"])
    assert f"{queue['n_to_review']:,} of the" in shown


def test_texts_and_images_join(pilot, monkeypatch):
    monkeypatch.setitem(ImageEncoder.__init__.__kwdefaults__, "n_centroids", 20)
    classes = np.load("X.npy").argmax(axis=1)
    texts = [(i, f"about {'abc'[k] * 3}") for i, k in enumerate(classes)]
    write_csv(Path("texts.csv"), [("task", "text"), *texts])
    queue = done_json("review", "A.csv", "-n", 5, "--texts", "texts.csv")
    assert queue["classifier_weight"] > 0
    assert len(done_json("next", "A.csv", "-n", 4, "--texts", "texts.csv")["pairs"]) == 4
    Path("photos").mkdir()
    for i, k in enumerate(classes):
        pixels = np.zeros((12, 12), dtype=np.uint8)
        pixels[4 * k : 4 * k + 4] = 200 + i % 50
        Image.fromarray(pixels).save(f"photos/{i}.png")
    queue = done_json("review", "A.csv", "-n", 5, "--images", "photos")
    assert queue["classifier_weight"] > 0
    result = run("next", "A.csv", "--features", "X.npy", "--texts", "texts.csv")
    assert (result.exit_code, "2 of --features, --texts and --images" in result.stderr) == (3, True)


def test_review_annotators_and_sheets(pilot):
    queue = done_json("review", "A.csv", "--by", "annotation", "-n", 5, "--out", "review.csv")
    assert list(queue["queue"][0]) == [
        *("task", "worker", "label", "was", "suggestion"),
        *("probability_wrong", "chosen", "reviewed"),
    ]
    assert len(read_rows(Path("review.csv"))) == 6
    found = done_json("annotators", "A.csv", "--out", "annotators.csv")["annotators"]
    assert {row["annotator"] for row in found} == {f"w{r}" for r in range(6)}
    assert len(read_rows(Path("annotators.csv"))) == 7
    sheet = done_json("annotators", "A.csv", "--teach", "w2")
    assert sheet["annotator"] == "w2"
    assert sheet["needs_expert"]
    shown = done("annotators", "A.csv", "--teach", "w2").stdout
    assert "contrast: clear items of the class 'given'" in " ".join(shown.split())
    assert "['" not in shown
    unknown = run("annotators", "A.csv", "--teach", "nobody.csv").stderr
    assert "'nobody.csv' is no annotator. Give a name as it is in the annotations" in unknown
    assert "such as --teach w0;" in unknown
    told = done("review", "A.csv").stdout
    assert "to check" in told
    assert "label: what Dawid and Skene's method infers from the annotations alone. " in told
    assert "are listed with --model DIR" in told
    joined = done("review", "A.csv", "--features", "X.npy").stdout
    assert "The classifier only helps to say which of these labels are wrong" in joined
    assert "Look at examples before" in done("annotators", "A.csv").stdout


def test_next_says_what_its_order_is_and_how_far_the_gain_may_be_off(pilot):
    order = "The list is in the order of what an answer tells about the labels (score)."
    for n in (40, 1):
        shown = done("next", "A.csv", "-n", n).stdout
        assert order in shown
        assert "On real data sets, the gain was between half and twice what was" in shown
    fewest = done("next", "A.csv", "-n", 1, "--criterion", "fewest").stdout
    assert "The list is in the order of how few annotations an item has" in fewest


def test_next_says_what_a_limit_on_the_load_costs_where_it_costs_much(tmp_path, monkeypatch):
    """And the option that it names makes that plan; between equals, a limit costs little."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    for name, skills in (("few", [0.95, 0.95, *[0.55] * 14]), ("even", [0.8] * 16)):
        rows = [("task", "worker", "label")]
        for i in range(len(y)):
            for r in rng.choice(16, 4, replace=False):
                wrong = (y[i] + rng.integers(1, 3)) % 3
                rows.append((i, f"w{r}", y[i] if rng.random() < skills[r] else wrong))
        write_csv(tmp_path / f"{name}.csv", rows)
    told = done_json("next", "few.csv", "-n", 100)["no_limit"]
    free = done_json("next", "few.csv", "-n", 100, "--load", 1000)
    gains, asked = zip(
        *((row["expected_gain"], row["worker"]) for row in free["pairs"]), strict=True
    )
    assert told["n"] == 100
    assert told["n_annotators"] == len(set(asked)) < 5
    assert told["gain"] == pytest.approx(sum(gains), abs=0.05)
    assert free["no_limit"] is None
    shown = done("next", "few.csv", "-n", 100).stdout
    line = next(line for line in shown.splitlines() if "--load 1000" in line).replace("\xa0", " ")
    assert "No annotator gets more than 2 times an equal share of this list (--load 2)." in line
    whom = f"100 annotations by {told['n_annotators']} annotators would correct about"
    assert f"{whom} {told['gain']:.0f} labels" in line
    assert done_json("next", "even.csv", "-n", 100)["no_limit"] is None
    assert "--load 1000" not in done("next", "even.csv", "-n", 100).stdout


def test_a_queue_shows_the_texts_that_stand_beside_the_annotations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(f"t{i}", w, "ab"[(i + w) % 2], f"text {i}") for i in range(6) for w in range(3)]
    write_csv(Path("A.csv"), [("task", "worker", "label", "text"), *rows])
    for by in ("annotation", "label"):
        queue = done_json("review", "A.csv", "--by", by, "--out", "queue.csv")["queue"]
        assert {row["text"] for row in queue} == {f"text {i}" for i in range(6)}
        assert all(row["text"][5:] == row["task"][1:] for row in queue)
    done("aggregate", "A.csv", "--out", "labels")
    assert read_rows(Path("queue.csv"))[0][:3] == ["task", "text", "label"]
    refused = run("report", "labels", "--texts", "text")
    assert refused.exit_code == 3
    assert "not the name of a field" in refused.stderr


def test_a_budget_is_forecast_or_replayed(pilot, monkeypatch):
    short = ("--step", 1, "--runs", 1)
    curve = done_json("budget", "A.csv", "--budget", 4, *short, "--out", "curve.csv")
    assert curve["from"] == "model"
    assert len(read_rows(Path("curve.csv"))) == len(curve["curve"]) + 1
    told = done("budget", "A.csv", "--budget", 4, *short).stdout.replace("\u202f", " ")
    assert "when fewer than one label is corrected for every 50 annotations. " in told
    assert "Every step of the table gains more: the " in told
    assert "(stop here)" not in told
    start = pilot.n_annotations / pilot.n_instances
    n_further = [round((row["annotations_per_instance"] - start) * 60) for row in curve["curve"]]
    assert max(n_further) > 0
    for n in n_further:  # Beside the annotations per item.
        assert re.search(rf"│ [\d.]+ +│ +{n} │", told)
    whole = done_json("budget", "A.csv", "--budget", 5.5, *short)["curve"]
    gains = [row["gain"] for row in whole if row["policy"] == "plan"][1:]
    monkeypatch.setattr("manyhands.report.planning.MIN_GAIN", np.mean(gains[-2:]))
    stops = done("budget", "A.csv", "--budget", 5.5, *short).stdout
    (stop,) = re.findall(r"stop at ([\d.]+) annotations per item: [\d,]+ further ones", stops)
    assert re.findall(r"│ ([\d.]+) \(stop here\) *│", stops) == [stop]
    first, [headline] = (
        re.findall(r"(\d+ to \d+ %) │", told)[0],
        re.findall(r"\((\d+ to .*? %)\)", told),
    )
    assert first == headline
    replayed = done("budget", "A.csv", "--gold", "gold.csv", *short, "--folder", "steps")
    assert "uniform" in replayed.stdout
    assert len(list(Path("steps").iterdir())) == 3


def test_the_share_of_right_answers_is_that_of_the_posterior_and_the_annotators(pilot):
    """Also of a new annotator, who is like the crowd, and of a new item, like the prior."""
    planner = AnnotationPlanner(random_state=0).fit(pilot)
    believed, i, r = planner._beliefs, [3, 0], [1, 0]
    pairs = [
        (pilot.instances[a].item(), pilot.annotators[b].item()) for a, b in zip(i, r, strict=True)
    ]
    pairs += [(pilot.instances[5].item(), "new"), ("new", pilot.annotators[2].item())]
    batch = Suggestion(
        *(np.array(x, dtype=object) for x in zip(*pairs, strict=True)), np.zeros(4), np.zeros(4)
    )
    own = [
        sum(believed.posterior[a, k] * believed.confusion[b, k, k] for k in range(3))
        for a, b in zip(i, r, strict=True)
    ]
    own += [sum(believed.posterior[5, k] * believed.pooled[k, k] for k in range(3))]
    own += [sum(believed.prior[k] * believed.confusion[2, k, k] for k in range(3))]
    assert planner._expected_right(batch) == pytest.approx(np.mean(own))


@pytest.mark.parametrize("option", ["--gold", "--audit", "--known"])
def test_next_shows_how_many_annotations_were_right_beside_what_it_expects(pilot, option):
    y = np.arange(60) % 3
    checked = range(0, 60, 3) if option != "--gold" else range(1, 60, 4)
    rows = [(i, y[i], "random") for i in checked]
    write_csv(Path("checked.csv"), [("task", "label", "chosen"), *rows])
    said = " ".join(done("next", "A.csv", "-n", 8, option, "checked.csv").stdout.split())
    assert "That is probably too much, because such items are hard" in said
    own = np.isin(pilot.instances[pilot.instance], list(checked))
    right = (pilot.label == y[pilot.instances[pilot.instance]])[own].mean()
    (told,) = re.findall(r"On the (\d+) items that people checked, ([\d.]+)", said)
    assert told == (str(len(rows)), f"{100 * right:.0f}")
    alone = done("next", "A.csv", "-n", 8).stdout
    assert "that people checked, " not in " ".join(alone.split())


def test_a_budget_says_where_to_stop():
    sizes, shares = np.array([1.0, 1.5, 2.0, 2.5]), np.array([[0.7, 0.75, 0.77, 0.775]])
    found = Replay(sizes, {"plan": Curves(shares, shares, shares)}, 200)
    assert _told_stop(found, 2, "The rule").replace("\u202f", " ") == (
        "The rule. By this rule, stop at 2.00 annotations per item: 200 further ones would bring "
        "70 % of right labels to 77 %, and all 300 of this forecast would bring 77.5 %."
    )
    assert _told_stop(found, 0, "The rule").replace("\u202f", " ") == (
        "The rule. The first step of the table already gains less: the 300 further annotations of "
        "this forecast would bring 70 % of right labels to 77.5 %. A smaller --step shows whether "
        "the best of its annotations are worth buying."
    )
    assert _told_stop(found, 3, "The rule").replace("\u202f", " ") == (
        "The rule. Every step of the table gains more: the 300 further annotations of this "
        "forecast would bring 70 % of right labels to 77.5 %."
    )


def test_a_forecast_knows_what_was_reviewed_and_one_sample_is_given_once(pilot):
    short = ("--step", 1, "--runs", 1)
    known = done_json("budget", "A.csv", *short, "--known", "few.csv")
    assert known["level"]["n"] == 55
    batch = done_json("next", "A.csv", "--known", "few.csv")
    assert (known["headline"], known["enough"]) == (batch["headline"], batch["enough"])
    assert len(batch["pairs"]) == 6
    assert f"the next {len(batch['pairs'])} annotations" in batch["enough"].replace("\u00a0", " ")
    for command in ("next", "budget"):
        refused = run(command, "A.csv", "--known", "few.csv", "--audit", "few.csv")
        assert refused.exit_code == 3
        assert "leave --audit out" in refused.stderr
    assert run("budget", "A.csv", "--known", "few.csv", "--gold", "gold.csv").exit_code == 3
