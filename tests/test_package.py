"""What holds for the package as a whole: names, pages, texts that run; how the sources stand."""

import ast
import inspect
import os
import re
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from pytest_socket import SocketConnectBlockedError

import evidence
import manyhands
from manyhands import all_classifiers, load_demo, registry
from manyhands.classifiers import (
    CoNALClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DASCClassifier,
    GraphCompleter,
    NeuCrowdEmbedding,
    RaykarClassifier,
    SelfTrainingCrowdClassifier,
)
from manyhands.classifiers.stacking import members
from manyhands.exceptions import AnnotationError
from manyhands.fitting import MethodProtocol, pilots
from manyhands.fitting.method_protocol import protocol_class
from manyhands.inference import OneCoinDawidSkene
from manyhands.linear import TunedLogisticRegression, regression
from manyhands.registry import all_aggregators
from manyhands.report import planning as forecasts
from manyhands.sampling import CrowdSMOTE, DistributionAwareSelector, TupletSampler, safe_instances

ROOT = Path(__file__).parent.parent
METHODS = all_classifiers() + all_aggregators() + registry.all_rankers()
METHODS += registry.all_set_aggregators()
DOCS = [page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/methods/*.md")])


@pytest.mark.parametrize(("name", "cls"), METHODS)
def test_every_method_is_exported_documented_and_listed(name, cls):
    assert getattr(manyhands, name) is cls
    # A method is one file, or one package, and one page of that name: manyhands.<room>.<method>.
    page = ROOT / "docs" / "methods" / f"{cls.__module__.split('.')[2]}.md"
    assert page.is_file(), f"{name} has no page docs/methods/{page.name}"
    assert f"`{name}`" in page.read_text(), f"docs/methods/{page.name} lacks `{name}`"
    index = (page.parent / "index.md").read_text()
    assert f"]({page.name})" in index, f"add a row with {page.name} to docs/methods/index.md"
    kind = protocol_class(cls)
    for field in () if kind is None else kind.defaults().keys() - MethodProtocol.defaults():
        assert f"`{field}`" in page.read_text(), f"{page.name} lacks the protocol's {field}"


def documented_parameters(cls):
    """Names that stand as headings in the section "Parameters" of a docstring."""
    text = inspect.cleandoc(cls.__doc__.replace("\\\n", ""))  # Raw docstrings keep the backslash.
    pattern = r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n---+$|\Z)"
    section = re.search(pattern, text, re.DOTALL | re.MULTILINE)
    lines = [] if section is None else section[1].splitlines()
    heads = [line.partition(" :")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip(" *") for head in heads for name in head.split(",")}


@pytest.mark.parametrize(("name", "cls"), METHODS)
def test_every_parameter_is_documented_validated_and_only_stored(name, cls):
    parameters = list(inspect.signature(cls).parameters)
    missing = sorted(set(parameters) - documented_parameters(cls))
    assert not missing, f'{name}: the section "Parameters" of its docstring lacks {missing}'
    assert set(parameters) == set(cls._parameter_constraints)  # scikit-learn's name for them
    made = cls()
    for parameter, default in inspect.signature(cls).parameters.items():
        assert getattr(made, parameter) is default.default


INSTANCES = {"self_training.md": 300, "model_choice.md": 200, "jobs.md": 200}
"""Pages that would warn on less than so many training instances of the demo."""

EPOCHS = {"self_training.md": 10}
"""Pages that would warn after fewer epochs."""


def coarse(X):
    """Digits of 4 x 4 pixels in place of 8 x 8: every method is trained faster."""
    return X.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)


def shortened(block, epochs):
    """A block whose fits are short, unless it asserts what they have learnt."""
    if "assert" in block:
        return block
    return re.sub(r"\bmax_epochs=\d+", f"max_epochs={epochs}", block)


@pytest.fixture(scope="module")
def demo():
    whole = load_demo()
    return replace(whole, X_train=coarse(whole.X_train), X_test=coarse(whole.X_test))


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
@pytest.mark.filterwarnings("ignore:the best candidate never predicts")  # After two epochs.
def test_python_in_the_docs_runs(page, demo, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # README saves a model.
    monkeypatch.setattr(pilots, "PILOT_STEPS", 4)
    monkeypatch.setattr(pilots, "LEAST_EPOCHS", 4)
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 20)
    monkeypatch.setattr(members, "MANY_FEATURES", 0)  # Two members of a stack are enough.
    monkeypatch.setattr(regression, "STRENGTHS", regression.STRENGTHS[3:6])
    monkeypatch.setattr(forecasts, "WORLDS", 1)
    monkeypatch.setattr(forecasts, "ROUNDS", 2)
    for cls, name in (
        (CrowdStackingClassifier, "n_folds"),
        (CrowdStackingClassifier, "n_rounds"),
        (DASCClassifier, "guard_folds"),
        (SelfTrainingCrowdClassifier, "guard_folds"),
        (RaykarClassifier, "max_epochs"),
    ):
        monkeypatch.setitem(cls.__init__.__kwdefaults__, name, 2)
    for cls in (CoNALClassifier, CrowdLayerClassifier):  # No further starts for lost classes.
        fewer = replace(cls()._traits, starts=cls()._traits.starts[:1])
        monkeypatch.setattr(cls, "_traits", fewer)
    part = slice(INSTANCES.get(page.name, 120))
    X, y, table = demo.X_train[part], demo.y_train[part], demo.annotations[part]
    new = {"X_test": demo.X_test[:100], "y_test": demo.y_test[:100]}
    fewer = replace(demo, X_train=X, y_train=y, annotations=table, **new)
    monkeypatch.setattr(manyhands, "load_demo", lambda: fewer)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        block = shortened(block, EPOCHS.get(page.name, 2))
        exec(compile(block, str(page), "exec"), {})


def test_links_in_the_docs_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]:
        for target in re.findall(r"(?:\]\(|^\[.+\]: )(?!http)([^)#\s]+)", page.read_text(), re.M):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_drawing_of_the_rooms_is_the_contract_of_the_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [re.findall(r"\w+", each) for each in contracts["contracts"][0]["layers"]]
    floor = {room: level for level, rooms in enumerate(layers) for room in rooms}
    drawing = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    # Columns: what a floor is for; its rooms; what is in them.
    drawn = [
        [floor[room] for room in re.findall(r"\w+", line[27:].strip().split("  ")[0])]
        for line in drawing.splitlines()[1:]
        if line.strip()
    ]
    order = [each for floors in drawn for each in floors]
    assert order == sorted(order)
    assert {room for room in floor if not room.startswith("_")} == {
        room
        for line in drawing.splitlines()[1:]
        for room in re.findall(r"\w+", line[27:].strip().split("  ")[0])
    }


DOCUMENTED = (
    "fitting",
    "classifiers",
    "jobs",
    "nn",
    "sampling",
    "displays.py",
    "models.py",
    "wording.py",
)
"""Rooms and modules whose public functions say which errors they raise."""


def raising(body, prefix=""):
    """Yield the name and docstring of each public function or method whose own lines raise."""
    for node in body:
        public = not getattr(node, "name", "_").startswith("_")
        if public and isinstance(node, ast.ClassDef):
            yield from raising(node.body, f"{prefix}{node.name}.")
        elif public and isinstance(node, ast.FunctionDef):
            inner = [*node.body]
            while inner:
                each = inner.pop()
                if isinstance(each, ast.Raise) and each.exc is not None:
                    yield prefix + node.name, ast.get_docstring(node) or ""
                    break
                if not isinstance(each, ast.FunctionDef | ast.ClassDef | ast.Lambda):
                    inner += ast.iter_child_nodes(each)


@pytest.mark.parametrize("room", DOCUMENTED)
def test_functions_that_raise_say_when(room):
    place = ROOT / "src" / "manyhands" / room
    silent = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))
        for name, text in raising(ast.parse(path.read_text(encoding="utf-8")).body)
        if "Raises\n------" not in text and not re.search(r"\b[Rr]aises?\b", text)
    ]
    assert not silent, silent


def test_the_readme_holds_the_two_commands_ci_runs():
    readme = (ROOT / "README.md").read_text()
    for name, last in (("demo", ".venv/bin/manyhands demo"), ("tests", ".venv-dev/bin/pytest")):
        found = re.search(rf"<!-- ci: {name} -->\n```sh\n(.*)\n```", readme)
        assert found, f"no command marked {name}"
        assert found[1].endswith(f"&& {last}")


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        manyhands.nonsense  # noqa: B018
    assert "DawidSkene" in dir(manyhands)
    assert {"AnnotationTable", "CoNALClassifier", "load_demo"} <= set(manyhands.__all__)
    assert not {"import_module", "TYPE_CHECKING"} & set(manyhands.__all__)
    assert manyhands.__version__


WITHOUT_TORCH = """
import sys

asked = []

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            asked.append(name)
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
"""
IMPORTS = """
from manyhands.registry import find_aggregator

find_aggregator("majority-vote")
assert "manyhands.inference.glad" not in sys.modules, "finding one method imports no other"

import manyhands as m
import manyhands.metrics
from manyhands.report import summarize

m.DawidSkene().fit(m.make_crowd([0, 1] * 10, random_state=0))
m.agreement.krippendorff_alpha
summarize([[0, 1], [1, 1]])
m.encoders.TextEncoder().fit_transform(["a text", "another"])
for name in ("torch", "jinja2", "matplotlib", "PIL", "transformers", "timm", "skimage"):
    assert name not in sys.modules, name
assert not asked, "nor do they look for torch"
"""
NEEDS_NO_TORCH = """
import manyhands
from manyhands import registry
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
X, table = demo.X_train[:200, ::4], demo.annotations[:200]
stacks = [CrowdStackingClassifier(crowd_strength=s, n_rounds=2) for s in (1, 5)]
found = select(stacks, X, table, cv=2)
with tempfile.TemporaryDirectory() as folder:
    found.estimator_.save(folder)
    loaded = manyhands.load(folder)
assert (loaded.predict(X) == found.estimator_.predict(X)).all()
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
COMMANDS_WITHOUT_TORCH = """
import os
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from manyhands.cli.app import app
from manyhands.report import planning

CrowdStackingClassifier.__init__.__kwdefaults__["n_rounds"] = 2
planning.WORLDS, planning.ROUNDS = 1, 2  # A short forecast.
rng = np.random.default_rng(0)
truth = np.arange(120) % 3
crowd = manyhands.make_crowd(truth, random_state=0)
os.chdir(tempfile.mkdtemp())
np.save("X.npy", rng.normal(size=(120, 5)) + 3.0 * np.eye(3, 5)[truth])
crowd.to_frame().rename(columns={"instance": "task", "annotator": "worker"}).to_csv("A.csv")
files = "--features X.npy --annotations A.csv --out"
for command in (
    f"fit {files} model --seeds 2 --set n_rounds=2",
    "predict model X.npy --out predicted.csv",
    "report model",
    "doctor",
    f"select {files} chosen --methods crowd-stacking --cv 2",
):
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0, (command, result.output)
assert Path("model/report.html").stat().st_size
assert len(Path("predicted.csv").read_text().splitlines()) == 121
assert CliRunner().invoke(app, f"fit {files} other --method conal".split()).exit_code == 6
"""

NUMBERS = ("numpy", "scipy", "pandas", "sklearn", "narwhals", "pyarrow")
PICTURES = ("torch", "matplotlib", "PIL", "jinja2", "openpyxl", "yaml")
MODELS = tuple(
    f"sklearn.{part}"
    for part in ("cluster", "decomposition", "linear_model", "metrics", "model_selection", "svm")
)
USED = {
    "--help": (("manyhands", "--help"), (*NUMBERS, *PICTURES)),
    "describe": (("manyhands", "describe", "answers.csv"), (*PICTURES[:-1], *MODELS)),
    "DawidSkene": ((), ("pandas", *PICTURES, *MODELS)),
}
"""What is run (a command, or else a fit), and what need not be installed for it. Scikit-learn
imports pandas wherever it is installed, so a fit is run as if it was not."""
WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

*sys.argv, names = sys.argv[1:]
absent = names.split()
sys.meta_path.insert(0, Without())
if sys.argv[0] == "manyhands":
    from manyhands.cli import main

    main()
else:
    from manyhands import DawidSkene

    assert DawidSkene().fit_predict([[0, 0, 1], [1, 1, 0], [0, 0, 0]]).tolist() == [0, 1, 0]
"""


@pytest.mark.parametrize("what", USED)
def test_nothing_is_imported_that_is_not_used(what, tmp_path):
    arguments, absent = USED[what]
    (tmp_path / "answers.csv").write_text("task,worker,label\na,x,0\na,y,0\nb,x,1\nb,y,1\n")
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, *(arguments or ("-",)), " ".join(absent)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert ran.returncode == 0, ran.stderr


def test_imports_are_lean_and_only_networks_need_torch_and_name_the_missing_extra():
    """One process, as most of its time is imports: what a step may not import comes later."""
    needing = [
        "manyhands.CoNALClassifier",
        "manyhands.all_classifiers()",
        "from manyhands.classifiers import CrowdLayerClassifier",
        "registry.find_classifier('conal')",
        "CrowdStackingClassifier([('net', 'mlp')]).fit(X, table)",
    ]
    steps = [WITHOUT_TORCH, IMPORTS, NEEDS_NO_TORCH, NEEDS_TORCH, COMMANDS_WITHOUT_TORCH]
    subprocess.run([sys.executable, "-c", "".join(steps), *needing], check=True)


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
    methods = registry.all_aggregators() + registry.all_averagers()
    methods += registry.all_set_aggregators()
    assert sorted(name for name, _ in methods) == sorted(manyhands.inference.__all__)
    encoders = dict(registry.all_encoders())
    assert set(manyhands.encoders.__all__) - set(encoders) == {"EmbeddingCache"}
    assert [name for name, _ in registry.all_samplers()] == ["CrowdSMOTE"]
    assert len(registry.all_selectors()) == 4
    for other in (TupletSampler, safe_instances):
        with pytest.raises(AnnotationError):
            registry.get(other.__name__, "sampler", "selector")


# -- how the sources stand: no cycles of imports; stubs ------------------------------------------


MODULES = {
    ".".join(path.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for source in (Path(package.__file__).parent for package in (manyhands, evidence))
    for path in sorted(source.rglob("*.py"))
    if path.name != "__main__.py"
}


def imports_of(path: Path) -> Iterator[ast.ImportFrom | ast.Import]:
    """Yield the imports of a file, also within functions; those for type checkers left out."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield node
        elif not (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"):
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                waiting += getattr(node, field, ())  # No expression holds an import.


def files_behind(node: ast.ImportFrom | ast.Import) -> Iterator[str]:
    """Yield the modules of ours that an import leads to: behind a package's names, their homes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in MODULES)
        return
    module = node.module or ""
    for alias in node.names if module in MODULES else []:
        if f"{module}.{alias.name}" in MODULES:
            yield f"{module}.{alias.name}"
            continue
        yield module
        if MODULES[module].name == "__init__.py" and alias.name != "*":
            home = getattr(getattr(import_module(module), alias.name), "__module__", "")
            yield from (home,) if home in MODULES else ()


def test_no_files_import_each_other():
    graph = {
        name: {other for node in imports_of(path) for other in files_behind(node)} - {name}
        for name, path in MODULES.items()
    }
    assert graph["manyhands.jobs.demo"] >= {"manyhands.classifiers.conal"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle of imports: {' -> '.join(error.args[1])}")


STUBS = [name for name, path in MODULES.items() if path.with_suffix(".pyi").exists()]


def stubbed_names(name: str) -> set[str]:
    """Read the names that type checkers see in a package."""
    found = set()
    for node in ast.parse(MODULES[name].with_suffix(".pyi").read_text(encoding="utf-8")).body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            if alias.name == "*":
                found |= stubbed_names(f"{name}.{node.module}")
            else:
                # Type checkers take "as" for the sign of an export.
                assert alias.name == alias.asname
                found.add(alias.name)
                source = f"{name}.{node.module}" if node.module else name
                assert find_spec(source)
    return found


@pytest.mark.parametrize("name", STUBS)
def test_stubs_and_names_agree(name):
    package = import_module(name)
    assert stubbed_names(name) - {"__version__"} == set(package.__all__) == set(dir(package))
    for exported in package.__all__:
        thing = getattr(package, exported)
        assert getattr(thing, "__name__", exported).rpartition(".")[2] == exported
    with pytest.raises(AttributeError, match="nonsense"):
        package.nonsense  # noqa: B018


def test_the_top_level_holds_what_a_user_types_and_no_more():
    names = set(manyhands.__all__)
    ranking = import_module("manyhands.ranking").__all__
    methods = {*manyhands.classifiers.__all__, *manyhands.inference.__all__, *ranking}
    modules = {name for name in names if inspect.ismodule(getattr(manyhands, name))}
    assert modules == {
        "agreement",
        "classifiers",
        "datasets",
        "encoders",
        "inference",
        "io",
        "metrics",
        "planning",
    }
    assert names - methods - modules == {
        "AnnotationPlanner",
        "AnnotationStore",
        "AnnotationTable",
        "ComparisonTable",
        "LabelSetTable",
        "all_aggregators",
        "all_classifiers",
        "compare_aggregators",
        "cross_predict",
        "decide",
        "decide_sets",
        "load",
        "load_demo",
        "make_crowd",
        "next_annotations",
        "render_report",
        "review_queue",
        "save",
        "select",
        "summarize",
    }


# -- what every test starts from ------------------------------------------------------------------

OUTSIDE = "192.0.2.1"  # TEST-NET-1: documentation only, assigned to nobody (RFC 5737).


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_socket_to_the_outside_is_refused(family):
    address = OUTSIDE if family == socket.AF_INET else "2001:db8::1"
    with (
        socket.socket(family) as outside,
        pytest.raises(SocketConnectBlockedError, match=address),
    ):
        outside.connect((address, 80))


def test_a_socket_to_this_machine_is_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_downloads_go_to_a_proxy_that_nobody_runs(scheme):
    with pytest.raises(URLError, match="refused"):
        urllib.request.urlopen(f"{scheme}://{OUTSIDE}/")


def test_child_processes_cannot_download_either():
    code = f"import urllib.request; urllib.request.urlopen('https://{OUTSIDE}/')"
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert child.returncode == 1
    assert "Connection refused" in child.stderr


def test_the_data_home_is_hidden_from_tests_without_the_mark():
    assert "MANYHANDS_DATA" not in os.environ


@pytest.mark.data
def test_the_data_home_is_shown_to_tests_with_the_mark(data_home):
    assert str(data_home) == os.environ["MANYHANDS_DATA"]
    assert data_home.is_dir()


def test_a_former_name_of_a_warning_names_the_present_one():
    from manyhands import exceptions

    with pytest.warns(FutureWarning, match=r"LostClassWarning is now called ClassCollapseWarning"):
        former = exceptions.LostClassWarning
    assert former is exceptions.ClassCollapseWarning
    with pytest.raises(AttributeError, match="has no attribute 'Unknown'"):
        exceptions.Unknown  # noqa: B018


def test_pages_name_the_classifiers_with_labels_and_say_whose_they_are():
    """A script joined the labels, in the order of X, with the ids of the table: 20 % were wrong."""
    own = {name: cls for name, cls in all_classifiers() if hasattr(cls, "labels_")}
    page = (ROOT / "docs/methods/index.md").read_text("utf-8")
    found = re.search(r"\nSix classifiers infer the labels(.*?)\n\n", page, re.S)
    assert len(own) == 6
    assert set(re.findall(r"`(\w+Classifier)`", found[1])) == own.keys()
    for cls in own.values():
        told = inspect.getdoc(cls).partition("    labels_ :")[2] or inspect.getdoc(cls)
        assert "in the order of X (see `partial_fit`); ``instances_`` holds the ids" in told
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = [
        line for line in readme.splitlines() if line.startswith("model.") and "labels_" in line
    ]
    assert shown
    assert all("instances_" in line for line in shown)


def test_references_in_docstrings_can_be_looked_up():
    """`help` of a classifier sent its reader to a name that manyhands does not export."""
    lost = []
    for name in manyhands.__all__:
        text = inspect.getdoc(getattr(manyhands, name)) or ""
        for reference in re.findall(r"\b[Ss]ee `([\w.]+)`", text):
            module, _, last = reference.rpartition(".")
            place = getattr(manyhands, name) if not module else manyhands
            if module.startswith("manyhands"):
                place = import_module(module)
            if not (hasattr(place, last) or hasattr(manyhands, reference)):
                lost.append(f"{name}: {reference}")
    assert not lost
