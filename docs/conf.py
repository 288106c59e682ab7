"""How the site is built: ``sphinx-build -W docs docs/_build/html``, without a network.

Pages are Markdown that reads well in the repository, too. Pages with ``{code-cell}`` are run; those
that need the real data sets only where ``MANYHANDS_DATA`` names them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

from myst_nb.core import render
from nbformat import NotebookNode
from sphinx.util import logging

import manyhands

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # evidence
# The manyhands command of the tutorials is the one beside this Python.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# Pages run in parallel already: competing threads take eight times the processor time.
for library in ("OMP", "MKL", "OPENBLAS"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

from evidence.pages.docs import stale  # noqa: E402, RUF100
from evidence.pages.what_holds import every_claim  # noqa: E402, RUF100

project = "manyhands"
author = "The manyhands developers"
copyright = author
version = release = manyhands.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["_build", "_templates", "_static"]
templates_path = ["_templates"]

# -- Markdown and what is run ----------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 1800
nb_merge_streams = True

TUTORIALS = ("texts", "texts_plan", "images", "tabular", "ratings", "sets", "judges", "rankings")
NEED_DATA = [f"tutorials/{name}" for name in TUTORIALS]
HAVE_DATA = bool(os.environ.get("MANYHANDS_DATA"))
if not HAVE_DATA:
    nb_execution_excludepatterns = [f"{page}.md" for page in NEED_DATA]

NOT_RUN = """
:::{note}
This page was built without the real data sets, so its code is shown and not run. With
`MANYHANDS_DATA` set, the page shows what every block prints.
:::
"""

# -- API -------------------------------------------------------------------------------------------

autosummary_generate = True
# Sphinx does not see the names of packages that load them when they are asked for.
STUBS = Path(manyhands.__file__).parent.glob("*/__init__.pyi")
LAZY = sorted(f"manyhands.{stub.parent.name}" for stub in STUBS)
autosummary_context = {"lazy": {room: import_module(room).__all__ for room in LAZY}}
autosummary_ignore_module_all = False
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False

# -- HTML ------------------------------------------------------------------------------------------

suppress_warnings = ["ref.footnote"]  # citations taken out of summaries

html_theme = "pydata_sphinx_theme"
html_title = "manyhands"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("tables.js", {"defer": "defer"})]
html_sidebars = {page: [] for page in ("index", "which_method", "gallery")}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "show_nav_level": 1,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


OTHER_PAGES = "<!-- every other page: .*-->"
"""Where a page's tables of contents go, which its own tables fill."""

ELSEWHERE = {"index", "which_method", "jobs", "what_holds", "gallery", "api"}
ELSEWHERE |= {"evidence", "paper_data", "benchmarks"}
"""Pages of this folder that stand in other tables of contents."""


def leave_out(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what classes inherit from scikit-learn and torch, and what routes metadata."""
    if what != "class":
        return None
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or "manyhands"
    routes = name.startswith("set_") and name.endswith("_request")
    return True if routes or not home.startswith("manyhands") else None


def mend(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Add the references that a docstring cites from its module, and escape stars in shapes.

    Summaries, which are also listed elsewhere, lose their citations.
    """
    # A list of parameters that goes on at the start of a line hides how far the rest is indented.
    first, _, rest = "\n".join(lines).partition("\n")
    lines[:] = [first, *dedent(re.sub(r" *\\\n *", " ", rest)).split("\n")]
    for k, line in enumerate(lines):
        line = re.sub(r"\((\w+)_,\)", r"(\1\\_,)", line)
        lines[k] = re.sub(r"(?<=, )\*(?=[a-z])", r"\\*", line)
    text = "\n".join(lines)
    cited = set(re.findall(r"\[(\d+)\]_", text)) - set(re.findall(r"^ *\.\. \[(\d+)\]", text, re.M))
    module = sys.modules.get(getattr(obj, "__module__", None) or "")
    found = re.findall(
        r"^\.\. \[(\d+)\] (.*(?:\n   .*)*)", getattr(module, "__doc__", None) or "", re.M
    )
    added = [f".. [{key}] {source}" for key, source in found if key in cited]
    if added and not any(line.strip() == "References" for line in lines):
        lines += ["", "References", "----------", *"\n".join(added).split("\n")]
    for k, line in enumerate(lines):
        if not line.strip():
            break
        lines[k] = re.sub(r" ?\[\d+\]_(, )?", "", line)


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Unlink files outside the site, and say where a page lacks its data.

    CONTRIBUTING, which is outside, too, has a page here.
    """
    root = "../" * page.count("/")
    up = re.escape(f"../{root}")
    source[0] = re.sub(rf"\({up}CONTRIBUTING\.md", f"({root}contributing.md", source[0])
    source[0] = re.sub(rf"\[([^\]]*)\]\({up}[^).][^)]*\)", r"\1", source[0])
    # A mean stays with its deviation: lines of narrow cells would break between them.
    source[0] = re.sub(r"(?<=\d) ± (?=\.?\d)", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}", source[0])
    if re.search(OTHER_PAGES, source[0]):
        source[0] = re.sub(OTHER_PAGES, lambda _: sidebar(page, source[0]), source[0])
    if page.startswith("results/") and (DOCS / page).is_dir():
        source[0] += parts_of(page, source[0])
    if page in NEED_DATA and not HAVE_DATA:
        head, _, rest = source[0].partition("\n# ")
        title, _, body = rest.partition("\n")
        source[0] = f"{head}\n# {title}\n{NOT_RUN}{body}"


def join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join what a block prints as it came; MyST-NB would break lines between the parts it gets."""
    joined: list[NotebookNode] = []
    streams: dict[str, NotebookNode] = {}
    for output in map(NotebookNode, outputs):
        name = output.get("name") if output["output_type"] == "stream" else None
        if name in streams:
            streams[name]["text"] += output["text"]
            continue
        joined.append(output)
        if name is not None:
            streams[name] = output
    return joined


def spread(app: Any, env: Any, docnames: list[str]) -> None:
    """Spread the pages that are run, so that not one of several processes gets them all."""
    blocks = "{code-cell}"
    run = [page for page in docnames if blocks in Path(env.doc2path(page)).read_text("utf-8")]
    rest = [page for page in docnames if page not in run]
    for k, page in enumerate(run):
        rest.insert(k * len(docnames) // len(run), page)
    docnames[:] = rest


def sidebar(page: str, text: str) -> str:
    """Return a page's tables of contents: a caption for each heading whose tables link pages.

    A page of the same folder that no table links is listed under "More".
    """
    source = DOCS / f"{page}.md"
    elsewhere = ELSEWHERE if source.parent == DOCS else {source.stem}
    left = sorted({path.stem for path in source.parent.glob("*.md")} - elsewhere)
    groups: dict[str, list[str]] = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        caption, *lines = section.splitlines()
        rows = "\n".join(line for line in lines if line.startswith("| "))
        linked = dict.fromkeys(re.findall(r"\]\((\w+)\.md", rows))
        groups[caption] = [name for name in linked if name in left]
        left = [name for name in left if name not in linked]
    groups["More"] = left
    found = [
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```"
        for caption, names in groups.items()
        if names
    ]
    return "\n\n".join(found)


def parts_of(page: str, text: str) -> str:
    """Return the table of contents of a page whose parts lie in a folder that has its name."""
    folder = DOCS / page
    names = dict.fromkeys(re.findall(rf"\]\(({folder.name}/\w+)\.md", text))
    names = [name for name in names if (folder.parent / f"{name}.md").exists()]
    return "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


def search_claims(app: Any, page: str, template: str, context: Any, tree: Any) -> None:
    """Give the page of claims its search."""
    if page == "what_holds":
        app.add_js_file("claims.js")
        app.add_js_file("claims_search.js", loading_method="defer")


def write_claims(app: Any, exception: Exception | None) -> None:
    """Write all claims for the search, as a script: pages opened as files cannot fetch JSON."""
    if exception is None and app.builder.format == "html":
        claims = json.dumps(every_claim(), ensure_ascii=False)
        place = Path(app.outdir, "_static", "claims.js")
        place.write_text(f"window.CLAIMS = {claims};\n", encoding="utf-8")


def warn_of_stale_figures(app: Any) -> None:
    """Warn of every quoted figure that is not its record's."""
    for found in stale():
        logging.getLogger("conf").warning("%s; run python -m evidence refresh", found)


def setup(app: Any) -> None:
    """Connect the functions above with Sphinx and MyST-NB."""
    render.coalesce_streams = join_streams
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", mend, priority=400)  # before numpydoc
    app.connect("source-read", prepare)
    app.connect("env-before-read-docs", spread)
    app.connect("builder-inited", warn_of_stale_figures)
    app.connect("html-page-context", search_claims)
    app.connect("build-finished", write_claims)
