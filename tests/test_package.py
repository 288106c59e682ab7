"""What holds for the package as a whole: names, pages, texts that run."""

import inspect
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import manyhands
from manyhands import all_classifiers, load_demo, registry
from manyhands.classifiers import (
    CrowdLayerClassifier,
    DASCClassifier,
    GraphCompleter,
    NeuCrowdEmbedding,
)
from manyhands.exceptions import AnnotationError
from manyhands.fitting import length
from manyhands.inference import OneCoinDawidSkene
from manyhands.linear import TunedLogisticRegression
from manyhands.registry import all_aggregators
from manyhands.sampling import CrowdSMOTE, DistributionAwareSelector, TupletSampler, safe_instances

ROOT = Path(__file__).parent.parent
METHODS = all_classifiers() + all_aggregators()
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/methods/*.md")])


@pytest.mark.parametrize(("name", "cls"), METHODS)
def test_every_method_is_exported_documented_and_listed(name, cls):
    assert getattr(manyhands, name) is cls
    # A method is one file, or one package, and one page of that name: manyhands.<room>.<method>.
    page = ROOT / "docs" / "methods" / f"{cls.__module__.split('.')[2]}.md"
    assert page.is_file(), f"{name} has no page {page.name}"
    assert f"`{name}`" in page.read_text()
    assert f"methods/{page.name}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(("name", "cls"), METHODS)
def test_every_parameter_is_documented_validated_and_only_stored(name, cls):
    parameters = list(inspect.signature(cls).parameters)
    documented = inspect.getdoc(cls)
    for parameter in parameters:
        assert re.search(rf"\b{parameter}\b", documented), f"{name}: {parameter} is undocumented"
    assert set(parameters) == set(cls._parameter_constraints)
    made = cls()
    for parameter, default in inspect.signature(cls).parameters.items():
        assert getattr(made, parameter) is default.default


INSTANCES = {"self_training.md": 700}
"""Pages that would warn on less than so many training instances of the demo."""


@pytest.fixture(scope="module")
def demo():
    return load_demo()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
def test_python_in_the_docs_runs(page, demo, monkeypatch):
    monkeypatch.setattr(length, "PILOT_STEPS", 4)
    monkeypatch.setattr(length, "LEAST_EPOCHS", 4)
    part = slice(INSTANCES.get(page.name, 200))
    X, y, table = demo.X_train[part], demo.y_train[part], demo.annotations[part]
    fewer = replace(demo, X_train=X, y_train=y, annotations=table)
    monkeypatch.setattr(manyhands, "load_demo", lambda: fewer)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), {})


def test_links_in_the_docs_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_holds_the_two_commands_ci_runs():
    readme = (ROOT / "README.md").read_text()
    for name, last in (("demo", ".venv/bin/manyhands demo"), ("tests", ".venv-dev/bin/pytest")):
        found = re.search(rf"<!-- ci: {name} -->\n```sh\n(.*)\n```", readme)
        assert found, f"no command marked {name}"
        assert found[1].endswith(f"&& {last}")


IMPORTS = """
import sys
from manyhands.registry import find_aggregator

find_aggregator("majority-vote")
assert "manyhands.inference.glad" not in sys.modules, "finding one method imports no other"

import manyhands as m
import manyhands.metrics
from manyhands.report import summarize

m.DawidSkene().fit(m.make_crowd([0, 1] * 10, random_state=0))
m.agreement.krippendorff_alpha
summarize([[0, 1], [1, 1]])
for name in ("torch", "jinja2", "matplotlib"):
    assert name not in sys.modules, name
"""


def test_finding_aggregating_and_summarizing_import_no_more_than_they_need():
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        manyhands.nonsense  # noqa: B018
    assert "DawidSkene" in dir(manyhands)
    assert {"AnnotationTable", "CoNALClassifier", "load_demo"} <= set(manyhands.__all__)
    assert not {"import_module", "TYPE_CHECKING"} & set(manyhands.__all__)
    assert manyhands.__version__


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
import manyhands
from manyhands import registry
"""
NEEDS_TORCH = """
assert "CoNALClassifier" in dir(manyhands)
for code in sys.argv[1:]:
    try:
        exec(code)
    except manyhands.exceptions.MissingExtraError as error:
        assert "pip install 'manyhands[torch]'" in str(error), error
    else:
        raise AssertionError(f"{code} needs no torch")
"""
NEEDS_NO_TORCH = """
from manyhands.linear import TunedLogisticRegression
from manyhands.sampling import ClassBalance, ConfidenceSelector, CrowdSMOTE, TupletSampler

assert registry.find_aggregator("dawid-skene") is manyhands.DawidSkene
assert registry.find_selector("confidence") is ConfidenceSelector
X = [[float(i), 1.0] for i in range(20)]
crowd = manyhands.make_crowd([0, 1] * 10, random_state=0)
TunedLogisticRegression().fit(X, manyhands.MajorityVote().fit_predict(crowd)).predict(X)

import tempfile
from manyhands import CrowdStackingClassifier, select

demo = manyhands.load_demo()
X, table = demo.X_train[:200], demo.annotations[:200]
stacks = [CrowdStackingClassifier(crowd_strength=s, n_rounds=2) for s in (1, 5)]
found = select(stacks, X, table, cv=2)
with tempfile.TemporaryDirectory() as folder:
    found.estimator_.save(folder)
    loaded = manyhands.load(folder)
assert (loaded.predict(X) == found.estimator_.predict(X)).all()
"""


def test_only_networks_need_torch_and_name_the_missing_extra():
    needing = [
        "manyhands.CoNALClassifier",
        "manyhands.estimator_checks",
        "manyhands.all_classifiers()",
        "from manyhands.classifiers import CrowdLayerClassifier",
        "from manyhands.fitting import with_protocol",
        "registry.find_classifier('conal')",
    ]
    code = WITHOUT_TORCH + NEEDS_NO_TORCH + NEEDS_TORCH
    subprocess.run([sys.executable, "-c", code, *needing], check=True)


def test_bad_parameters_name_the_parameter():
    X, A = np.eye(4), np.array([[0, 1], [1, 0], [0, 0], [1, 1]])
    for name, cls in all_classifiers():
        number = "max_epochs" if "max_epochs" in cls().get_params() else "n_rounds"
        with pytest.raises(ValueError, match=f"'{number}' parameter of {name}"):
            cls(**{number: 0}).fit(X, A)
    for name, cls in all_aggregators():
        with pytest.raises(ValueError, match=f"'ties' parameter of {name}"):
            cls(ties="loudest").fit(A)


# -- the registry ----------------------------------------------------------------------------------


def test_everything_methods_export_can_be_named():
    for package in ("classifiers", "inference", "linear", "sampling"):
        exported = getattr(manyhands, package)
        for name in exported.__all__:
            assert registry.names()[name] == f"manyhands.{package}"
            assert registry.get(name) is getattr(exported, name)


def test_exactly_the_name_is_asked_of_yaml_and_saved_models():
    assert registry.get("CrowdLayerClassifier", "classifier") is CrowdLayerClassifier
    assert registry.get("DASCClassifier", "classifier", "wrapper") is DASCClassifier
    for name, *kinds in (
        ["crowd-layer"],
        ["GraphCompleter", "classifier"],
        ["DASCClassifier", "classifier"],
        ["TunedLogisticRegression", "classifier"],
        ["load_demo"],
    ):
        with pytest.raises(AnnotationError, match=f"manyhands has no .*{name!r}"):
            registry.get(name, *kinds)


@pytest.mark.parametrize(
    ("name", "kinds", "cls"),
    [
        ("crowd-layer", ("classifier", "wrapper"), CrowdLayerClassifier),
        ("dasc", ("classifier", "wrapper"), DASCClassifier),
        ("graph_completer", ("completer", "classifier"), GraphCompleter),
        ("One-Coin-Dawid-Skene", ("aggregator",), OneCoinDawidSkene),
        ("crowd-smote", ("sampler",), CrowdSMOTE),
        ("distribution-aware", ("selector",), DistributionAwareSelector),
    ],
)
def test_people_spell_as_they_like(name, kinds, cls):
    assert registry.find(name, *kinds) is cls
    assert registry.find(cls.__name__, *kinds) is cls
    assert registry.find(registry.short_name(cls), *kinds) is cls


@pytest.mark.parametrize("name", ["tuned-logistic-regression", "graph-completer", "dawid-skene"])
def test_only_what_fits_is_found(name):
    with pytest.raises(AnnotationError, match=f"method='{name}' is unknown"):
        registry.find_classifier(name)


def test_what_is_unknown_is_answered_by_what_is_close_and_by_the_list():
    with pytest.raises(AnnotationError) as caught:
        registry.find_selector("confidense")
    assert str(caught.value) == (
        "selector='confidense' is unknown (did you mean confidence?); "
        "use one of confidence, distribution-aware, random, sampling"
    )


def test_kinds_are_read_off_the_classes():
    classifiers = dict(registry.all_classifiers())
    assert list(classifiers) == sorted(classifiers)
    wrappers = dict(registry.all_wrappers())
    assert set(wrappers) == {
        "AveragedCrowdClassifier",
        "DASCClassifier",
        "SelfTrainingCrowdClassifier",
    }
    others = {cls.__name__ for cls in (GraphCompleter, NeuCrowdEmbedding, TunedLogisticRegression)}
    assert not others & {*classifiers, *wrappers}
    assert set(classifiers) | set(wrappers) == {
        name for name in manyhands.classifiers.__all__ if name.endswith("Classifier")
    }
    assert [name for name, _ in registry.all_aggregators()] == manyhands.inference.__all__
    for other in (TupletSampler, safe_instances):
        with pytest.raises(AnnotationError):
            registry.get(other.__name__, "sampler", "selector")
