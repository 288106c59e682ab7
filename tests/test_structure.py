"""How the sources stand: small files, no cycles of imports, flat hierarchies; stubs. And the tests:

No test leaves this machine, and only the mark ``data`` shows a test the real sets.
"""

import ast
import inspect
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import pytest
from pytest_socket import SocketConnectBlockedError

import manyhands

SOURCE = Path(manyhands.__file__).parent
ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
    if path.name != "__main__.py"
}


def imports_of(path: Path) -> Iterator[ast.ImportFrom | ast.Import]:
    """Yield the imports of a file, also within functions; those for type checkers left out."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield node
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)


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


def classes() -> Iterator[type]:
    for name in MODULES:
        for _, cls in inspect.getmembers(import_module(name), inspect.isclass):
            if cls.__module__ == name:
                yield cls


def depth(cls: type) -> int:
    """Count the classes of ours on the longest way up, the class itself included."""
    ours = [base for base in cls.__bases__ if base.__module__.startswith("manyhands.")]
    return 1 + max(map(depth, ours), default=0)


def test_no_class_inherits_more_than_three_deep():
    deep = {cls.__qualname__: depth(cls) for cls in classes() if depth(cls) > 3}
    assert not deep


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_no_longer_than_400_lines(name):
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: files are not listed")
def test_the_repository_has_fewer_than_600_files():
    command = ["git", "-c", "safe.directory=*", "ls-files"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 0 < len(listed.stdout.splitlines()) < 600


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
    assert len(names) <= 60
    methods = {*manyhands.classifiers.__all__, *manyhands.inference.__all__}
    modules = {name for name in names if inspect.ismodule(getattr(manyhands, name))}
    assert modules >= {"agreement", "datasets", "estimator_checks", "io", "metrics", "sampling"}
    assert names - methods - modules == {
        "AnnotationTable",
        "all_classifiers",
        "compare_aggregators",
        "cross_predict",
        "decide",
        "load",
        "load_demo",
        "make_crowd",
        "render_report",
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
