"""What the documents name exists: functions, files, headings, and a reason for every dependency."""

import ast
import fnmatch
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_tidy import PARTS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("core", "stream", "connectors", "cli", "deploy", "testing", "demo", "tests")
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", *(f"{folder}/**/*.md" for folder in FOLDERS))
    for path in set(ROOT.glob(pattern))
)
# `stream/shard.py:Shard.submit` in backquotes or in a diagram; the folder may be left out.
PLACE = re.compile(r"(?<![\w/.])((?:\w+/)*\w+\.py):([A-Za-z_][\w.]*\w)")
# `tests/stream/test_hop.py` or `tests/model/test_model.py::test_it`, without a name behind a colon.
FILE = re.compile(
    r"`((?:tests|core|stream|connectors|cli|deploy|testing|demo)/[\w/.-]+)(?:::(\w+))?`"
)
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)", re.MULTILINE)


def defined(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the names a module defines: functions, classes, and their members, dotted."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            yield from defined(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_function_a_document_names_exists(document: str) -> None:
    missing = []
    for file, name in PLACE.findall((ROOT / document).read_text(encoding="utf-8")):
        paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob(Path(file).name)]
        trees = [ast.parse(p.read_text(encoding="utf-8")) for p in paths if p.match(file)]
        if not any(name in defined(tree) for tree in trees):
            missing.append(f"{file}:{name}")
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_and_every_test_a_document_names_exists(document: str) -> None:
    missing = []
    for file, name in FILE.findall((ROOT / document).read_text(encoding="utf-8")):
        path = ROOT / file
        if not path.exists() or (name and f"def {name}(" not in path.read_text(encoding="utf-8")):
            missing.append(f"{file}::{name}")
    assert missing == []


def links(document: str) -> Iterator[tuple[Path, str]]:
    """Yield (file or folder, heading or nothing) of every link to a place in this repository."""
    path = ROOT / document
    for target, heading in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            yield (path.parent / target if target else path).resolve(), heading


def headings(path: Path) -> set[str]:
    """Return the names by which links reach the headings of a document, as GitHub makes them."""
    found = HEADING.findall(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_leads_somewhere(document: str) -> None:
    assert [
        f"{path.name}#{heading}"
        for path, heading in links(document)
        if not path.exists() or (heading and heading not in headings(path))
    ] == []


def test_every_document_is_reached_from_the_readme() -> None:
    reached, new = set[Path](), {ROOT / "README.md"}
    while new:
        reached |= new
        found = {path for document in new for path, _ in links(str(document.relative_to(ROOT)))}
        pages = {
            page for path in found for page in (path.glob("*.md") if path.is_dir() else [path])
        }
        new = {page for page in pages if page.suffix == ".md"} - reached
    assert {ROOT / document for document in DOCUMENTS} - reached == set()


def map_of(folder: str) -> str:
    text = (ROOT / folder / "DESIGN.md").read_text(encoding="utf-8")
    return text.partition("## Map")[2].partition("\n## ")[0]


def check_map(folder: Path, names: list[str]) -> None:
    """Check that these names, or patterns, are those of the folder's modules, none left out."""
    modules = {path.stem for path in folder.glob("*.py")}
    drawn = {name: set(fnmatch.filter(modules, name)) for name in names}
    assert modules - set[str]().union(*drawn.values()) == set()
    assert [name for name, found in drawn.items() if not found] == []


@pytest.mark.parametrize("part", PARTS)
def test_the_map_of_a_part_has_each_of_its_modules(part: str) -> None:
    rows = re.findall(r"^\| `([\w/]+)` \| (.*) \|$", map_of(part), re.MULTILINE)
    assert tuple(folder for folder, _ in rows if "/" not in folder) == PARTS[part]
    written = {path.parent for path in (ROOT / part).rglob("*.py") if path.parent.name != "wire"}
    assert {ROOT / part / folder for folder, _ in rows} == written - {ROOT / part}
    for folder, text in rows:
        if folder != "native":
            check_map(ROOT / part / folder, re.findall(r"`([\w*]+)`", text))


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"].values()]
    flat = [line for item in wanted for line in ([item] if isinstance(item, str) else item)]
    names = {re.split(r"[<>=!~;\[ ]", line)[0] for line in flat}
    reasons = (ROOT / "docs/internals/dependencies.md").read_text(encoding="utf-8")
    assert {name for name in names if f"| `{name}` |" not in reasons} == set()
