"""What the documents name exists, and they are written in plain English.

Names are functions, files, headings, and a reason for every dependency. Plain English is measured:
columns, words in a sentence, phrases that say nothing.
"""

import ast
import fnmatch
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.test_tidy import PARTS

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    *("client", "core", "stream", "connectors", "console", "dashboards", "cli", "deploy"),
    "testing",
    *("demo", "tests"),
)
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", *(f"{folder}/**/*.md" for folder in FOLDERS))
    for path in set(ROOT.glob(pattern))
)
# `stream/shard.py:Shard.submit` in backquotes or in a diagram; the folder may be left out.
PLACE = re.compile(r"(?<![\w/.])((?:\w+/)*\w+\.py):([A-Za-z_][\w.]*\w)")
# `tests/stream/test_hop.py` or `tests/model/test_model.py::test_it`, without a name behind a colon.
FILE = re.compile(
    r"`((?:tests|client|core|stream|connectors|console|dashboards|cli|deploy|testing|demo)/[\w/.-]+)(?:::(\w+))?`"
)
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)", re.MULTILINE)

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COLUMNS_MAX, SENTENCE_WORDS_P90_MAX, PROSE_WORDS_MIN = 100, 25, 4
"""Fewer words than the last are a label, such as a table's cell, not a sentence."""
READ_IN_ORDER = ("start", "concepts")
"""Folders whose pages the index lists in the order in which they are to be read."""
NAME_WORDS_MAX = 2
"""A name may have a list's mark before it."""
BANNED = (
    *("by itself alone", "goes away", "hears", "held to", "is asked", "is told", "are told"),
    *("lets in", "looks at", "of before", "say whether", "somebody", "stands", "whoever"),
    *("what there is", "mend", "mended"),
)


def defined(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the names a module defines: functions, classes, and their members, dotted."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            yield from defined(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@cache
def list_modules() -> Mapping[str, list[Path]]:
    """Return the modules that have a file name, by that name."""
    found = defaultdict[str, list[Path]](list)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            found[path.name].append(path)
    return found


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the names that modules of a path define; its first folders may be missing."""
    paths = [path for path in list_modules().get(Path(file).name, ()) if path.match(file)]
    trees = [ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in paths]
    return frozenset(name for tree in trees for name in defined(tree))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_function_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [
        f"{file}:{name}" for file, name in PLACE.findall(text) if name not in names_in(file)
    ] == []


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


@cache
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


def prose(document: str) -> str:
    """Return a document without its code, its comments and the targets of its links."""
    text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "Code", text))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of prose; items of lists and cells of tables are apart."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\||^#.*$", text, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?:])[*_)\"']*\s+(?=[^a-z])", block)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_has_lines_of_a_hundred_columns(document: str) -> None:
    text = FENCE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    assert [
        line
        for line in text.splitlines()
        # A row of a table, a target of a link and the only name of a line cannot be wrapped.
        if len(line) > COLUMNS_MAX and not line.startswith("|")
        if "](" not in line.split()[-1] and len(line.split()) > NAME_WORDS_MAX
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_has_short_sentences(document: str) -> None:
    counted = sorted((len(re.findall(r"\w[\w'./-]*", s)), s) for s in sentences(prose(document)))
    long = [sentence for sentence in counted if sentence[0] >= PROSE_WORDS_MIN]
    assert not long or long[int(len(long) * 0.9)][0] <= SENTENCE_WORDS_P90_MAX, long[-10:]


def test_a_word_is_explained_where_a_reader_first_meets_it() -> None:
    # A word is in italics or bold where it is explained. Headings, links and code do not count.
    glossary = ROOT / "docs/concepts/words.md"
    words = re.findall("^### (.*)", glossary.read_text(encoding="utf-8"), re.MULTILINE)
    pages = (path for path, _ in links("docs/README.md") if path.parent.name in READ_IN_ORDER)
    read = "\n".join(prose(str(page.relative_to(ROOT))) for page in pages if page != glossary)
    read = re.sub(r"^#.*$|Table Store|\[[^\]]*\]", "", read, flags=re.MULTILINE).lower()
    met = {word: re.search(rf"(\*?)\b{word.lower()}(?:s|es)?\b", read) for word in words}
    assert [word for word, place in met.items() if place and not place[1]] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_has_no_phrase_that_says_nothing(document: str) -> None:
    text = " ".join(prose(document).lower().split())
    assert [phrase for phrase in BANNED if re.search(rf"\b{phrase}\b", text)] == []
