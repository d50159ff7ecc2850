"""What the documents name exists: functions, files, and a reason for every dependency."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "*/DESIGN.md", "core/**/*.md", "stream/**/*.md")
    for path in set(ROOT.glob(pattern))
)
# `stream/shard.py:Shard.submit` in backquotes or in a diagram.
PLACE = re.compile(r"\b((?:\w+/)+\w+\.py):([A-Za-z_][\w.]*\w)")
# `tests/stream/test_hop.py` or `tests/model/test_model.py::test_it`, without a name behind a colon.
FILE = re.compile(r"`((?:tests|core|stream|connectors|cli|deploy|demo)/[\w/.-]+)(?:::(\w+))?`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def defined(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the names a module defines: functions, classes, and their members, dotted."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            yield from defined(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("document", sorted(set(DOCUMENTS)))
def test_every_function_a_document_names_exists(document: str) -> None:
    missing = []
    for file, name in PLACE.findall((ROOT / document).read_text(encoding="utf-8")):
        path = ROOT / file
        if not path.exists() or name not in defined(ast.parse(path.read_text(encoding="utf-8"))):
            missing.append(f"{file}:{name}")
    assert missing == []


@pytest.mark.parametrize("document", sorted(set(DOCUMENTS)))
def test_every_file_and_every_test_a_document_names_exists(document: str) -> None:
    missing = []
    for file, name in FILE.findall((ROOT / document).read_text(encoding="utf-8")):
        path = ROOT / file
        if not path.exists() or (name and f"def {name}(" not in path.read_text(encoding="utf-8")):
            missing.append(f"{file}::{name}")
    assert missing == []


@pytest.mark.parametrize("document", sorted(set(DOCUMENTS)))
def test_every_relative_link_leads_somewhere(document: str) -> None:
    path = ROOT / document
    assert [
        target
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if "://" not in target and not target.startswith("mailto:")
        if not (path.parent / target).exists()
    ] == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"].values()]
    flat = [line for item in wanted for line in ([item] if isinstance(item, str) else item)]
    names = {re.split(r"[<>=!~;\[ ]", line)[0] for line in flat}
    reasons = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    assert {name for name in names if f"| `{name}` |" not in reasons} == set()
