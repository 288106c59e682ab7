"""What is uploaded to the package index: what the archives hold, and what is said of them."""

import re
import tarfile
import zipfile
from collections import Counter
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from manyhands import __version__

ROOT = Path(__file__).parents[1]

KINDS = {".py", ".pyi", ".typed", ".html", ".css", ".js"}
"""What the package consists of: no data, no pictures, no notebooks."""

ABOUT = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}

SDIST = {"src", "PKG-INFO", "README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "CITATION.cff"}
SDIST |= {"constraints.txt", "pyproject.toml", ".gitignore"}

FILES = sorted(
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src" / "manyhands").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The wheel and the sdist, as hatchling builds them."""
    build = pytest.importorskip("hatchling.build", reason="hatchling builds: group dev brings it")
    pytest.importorskip("hatch_fancy_pypi_readme", reason="it makes the text for the index")
    place = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        names = build.build_wheel(str(place)), build.build_sdist(str(place))
    return [place / name for name in names]


@pytest.fixture(scope="module")
def metadata(archives):
    with zipfile.ZipFile(archives[0]) as wheel:
        text = wheel.read(f"manyhands-{__version__}.dist-info/METADATA").decode()
    return Parser().parsestr(text)


def test_the_wheel_holds_the_package_alone(archives):
    with zipfile.ZipFile(archives[0]) as wheel:
        names = wheel.namelist()
    about = f"manyhands-{__version__}.dist-info/"
    assert {name.removeprefix(about) for name in names if name.startswith(about)} == ABOUT
    assert sorted(name for name in names if not name.startswith(about)) == FILES
    kinds = Counter(PurePosixPath(name).suffix for name in FILES)
    kinds["typed"] = kinds.pop("", 0)
    assert set(kinds) <= KINDS | {"typed"}
    assert archives[0].stat().st_size < 3 * 2**20


def test_the_sdist_holds_what_builds_the_wheel_and_no_more(archives):
    with tarfile.open(archives[1]) as sdist:
        names = [name.partition("/")[2] for name in sdist.getnames()]
    assert {name.partition("/")[0] for name in names} == SDIST
    assert sorted(name.removeprefix("src/") for name in names if name.startswith("src/")) == FILES


def test_the_text_on_the_index_has_no_link_that_leads_nowhere(metadata):
    """The project has no address of its own, so what links into the repository is text there."""
    text = metadata.get_payload()
    assert text.startswith("# manyhands")
    links = r"\]\((?!https?:)[^)]*\)|\]\[|^\[[^\]]*\]:|!\[|<!--"
    assert re.findall(links, text, re.MULTILINE) == []
    assert "pip install -q 'manyhands[all]'" in text
    assert "pip install manyhands" in text
    assert not re.search(r"constraints|checkout|Which method|Read on|\.\[all\]|Develop", text)
    shown = re.sub(r"\s+", " ", text)
    for title in ("I have annotations", "I train models", "Install"):
        assert f"## {title}" in shown


def test_metadata_say_what_the_changelog_and_the_citation_say(metadata):
    assert metadata["Name"] == "manyhands"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Requires-Python"] == ">=3.11"
    for url in metadata.get_all("Project-URL"):  # What nobody can open is not named.
        assert re.search(r", https://pypi\.org/project/manyhands/(#history)?$", url)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {metadata['Version']}\n" in citation
    assert f"\nlicense: {metadata['License-Expression']}\n" in f"{citation}\n"
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert changes[0] == metadata["Version"]
