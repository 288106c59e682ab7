"""A crowd, a summary with every section, and a parser of pages, for the tests of reports."""

import base64
import hashlib
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest

from manyhands import AnnotationTable, DawidSkene
from manyhands.report import Contents, planning, render_report, summarize

EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>alert(2)</script>",
    "</title><svg onload=alert(3)>",
    "' onmouseover='alert(4)' x='",
    r"$\frac{1}{2}$ {{ 7 * 7 }} {% raw %}",
    "safe\u202egnp.exe",
    "zero\u200bwidth",
    "two\nlines\r\t\x00",
    "שלום עולם",
    "&lt;b&gt;&amp;",
    "half\ud800surrogate",
    "x" * 5000,
    "   ",
]


@pytest.fixture(autouse=True)
def no_forecast(monkeypatch):
    """Make no forecast, which takes most of the time: `full` has one, and a test of its own."""
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)


def hundred_times_ten_thousand():
    """Summary and texts of 100 annotators and 10,000 instances, with gold and times."""
    rng = np.random.default_rng(0)
    n, c = 10_000, 10
    gold = rng.integers(c, size=n)
    instance = np.repeat(np.arange(n), 3)
    annotator = np.argsort(rng.random((n, 100)), axis=1)[:, :3].ravel()
    right = rng.random(3 * n) < rng.uniform(0.4, 0.95, size=100)[annotator]
    label = np.where(right, gold[instance], rng.integers(c, size=3 * n))
    table = AnnotationTable.from_arrays(
        [f"instance-{k:05d}" for k in instance], [f"annotator-{k:03d}" for k in annotator], label
    )
    summary = summarize(
        table, seconds=rng.gamma(2, 5, size=3 * n), ended=1.7e9 + np.arange(3.0 * n), gold=gold
    )
    texts = {str(each): "many words " * 50 for each in table.instances.tolist()}
    return summary, Contents(texts)


class FakeClassifier:
    """What the report looks for on a classifier, and nothing else."""

    def __init__(self, table, rng, **found):
        self.classes_ = table.classes
        self.proba = rng.dirichlet(np.ones(table.n_classes), size=table.n_instances)
        for key, value in found.items():
            setattr(self, key, value)

    def get_params(self, deep=True):
        return {"max_epochs": 3, "backbone": lambda: None, "lr": 1e-3}

    def predict_proba(self, X):
        return self.proba


def numbered(table):
    """X whose rows hold their numbers, by which a fake tells which it is asked for."""
    return np.arange(len(table))[:, None]


def crowd(n=120, r=9, classes=("ant", "bee", "cat"), seed=0, density=0.6):
    rng = np.random.default_rng(seed)
    gold = rng.integers(len(classes), size=n)
    wrong = rng.integers(len(classes), size=(n, r))
    given = np.where(rng.random((n, r)) < np.linspace(0.4, 0.95, r), gold[:, None], wrong)
    given[rng.random((n, r)) > density] = -1
    values = np.append(np.array(classes, dtype=object), None)[given]
    names = [f"ann-{k}" for k in range(r)]
    table = AnnotationTable.from_matrix(values, classes=list(classes), annotators=names)
    return table, np.array(classes)[gold], rng


def history(n=12):
    stages = ["warm-up"] * (n // 3) + ["crowd"] * (n - n // 3)
    return [
        {
            "stage": stages[k],
            "epoch": k,
            "nll": 1.0 / (k + 1),
            "validation_nll": 1.2 / (k + 1) if k % 2 else None,
            "confusion_gap": float("nan") if k == 3 else -0.01 * k,
            "seconds": 0.5,
        }
        for k in range(n)
    ]


def compared():
    """The result of `select` over three methods."""
    from manyhands.selection import CandidateScore, CandidateTable, Selection

    figures = {"score": 0.8, "estimate": 0.85, "low": 0.7, "high": 0.95, "seconds": 1.0}
    rows = (
        CandidateScore("<b>one</b>", **figures, z=0.0),
        CandidateScore("two", **figures, z=0.5),
        CandidateScore("three", error="cannot be trained"),
    )
    tied = ["<b>one</b>", "two"]
    return Selection(
        tied[0], None, np.empty(0), CandidateTable(rows), tied, ["Doubt it"], "balanced"
    )


@pytest.fixture(scope="session")
def full():
    """A summary with every section."""
    table, gold, rng = crowd()
    c, r = table.n_classes, table.n_annotators
    grid = rng.dirichlet(np.ones(c), size=(len(table), r))
    classifier = FakeClassifier(
        table,
        rng,
        predict_annotation_proba=lambda X: grid[X[:, 0]],
        history_=history(),
        common_confusion_=np.full((c, c), 1 / c),
        common_proportion_=np.linspace(0, 1, r),
    )
    with pytest.MonkeyPatch.context() as patch:  # A short forecast.
        patch.setattr(planning, "WORLDS", 1)
        patch.setattr(planning, "ROUNDS", 2)
        return summarize(
            table.with_groups({"ann-0": "models", "ann-1": "models"}),
            aggregator=DawidSkene().fit(table),
            classifier=classifier,
            X=numbered(table),
            gold=gold,
            selection=compared(),
            seconds=rng.gamma(2.0, 3.0, size=table.n_annotations),
            ended=1.7e9 + 60.0 * np.arange(table.n_annotations),
            title="Every section",
        )


@pytest.fixture(scope="session")
def full_html(full):
    """The page of ``full``."""
    return render_report(full)


@pytest.fixture(scope="session")
def full_page(full_html):
    """The parsed page of ``full``, to be read only."""
    return Page(full_html)


class Page(HTMLParser):
    """Checks nesting, and collects what could act or call out."""

    VOID = {"meta", "br", "img", "link", "input", "hr"}

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.ids, self.text = [], [], [], [], []
        self.raw = {"style": [], "script": []}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]].append(data)

    def policy(self):
        """Directives of the content security policy."""
        (content,) = (
            value
            for tag, key, value in self.attributes
            if (tag, key) == ("meta", "content") and "default-src" in value
        )
        return dict(part.strip().split(" ", 1) for part in content.split(";"))

    def check_harmless(self):
        assert not {"img", "link", "iframe", "object", "base"} & set(self.tags)
        assert self.tags.count("style") == self.tags.count("script") == 1
        assert [key for tag, key, _ in self.attributes if tag in ("style", "script")] == []
        policy = self.policy()
        assert policy["default-src"] == policy["base-uri"] == "'none'"
        assert policy["img-src"] == "data:"
        # Only the file of the package may run, and no attribute may style.
        own = resources.files("manyhands.report") / "templates" / "report.js"
        assert own.read_text(encoding="utf-8") in self.text
        for kind in ("style", "script"):
            (content,) = self.raw[kind]
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
        for tag, key, value in self.attributes:
            assert not key.startswith("on"), (tag, key)
            assert key != "style", (tag, value)
            assert key not in ("src", "srcset", "xlink:href", "action", "formaction")
            if key == "href":
                assert value.startswith("#")
                assert value[1:] in self.ids
        assert len(self.ids) == len(set(self.ids))
