"""The diffs in CONTRIBUTING.md fit the code: each is applied here as far as it can be.

A diff has a section per file. Its context lines must be in the file, side by side. What it adds
must run: the row of a new operation is evaluated, and the new sink passes the contract.
"""

import ast
import builtins
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from rowtide.connectors import registry
from rowtide.connectors.fields import Fields
from rowtide.core.protocol import operations
from rowtide.stream.api import table

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^ # (\S+\.py)(?:, in (\w+))?$")


class Change(NamedTuple):
    """What a diff does to one file. ``place`` is the name in the file that it changes, if any."""

    file: str
    place: str
    context: Sequence[str]
    added: str


def changes() -> list[Change]:
    """Return the changes of all diffs, in order."""
    found: list[Change] = []
    for diff in FENCE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        sections = re.split(r"^(?= # )", diff, flags=re.MULTILINE)
        for section in filter(None, sections):
            head, *lines = section.rstrip("\n").split("\n")
            match = FILE.match(head)
            assert match is not None, f"{head!r} names a file"
            context = [line[1:] for line in lines if line.startswith(" ") and line.strip()]
            added = "\n".join(line[1:] for line in lines if line.startswith("+"))
            assert all(line[:1] in ("", " ", "+") for line in lines), "the diff only adds"
            found.append(Change(match[1], match[2] or "", context, added + "\n"))
    return found


CHANGES = {change.file: change for change in changes()}


@pytest.mark.parametrize("change", [pytest.param(c, id=c.file) for c in CHANGES.values()])
def test_a_diff_fits_the_file_that_it_changes(change: Change) -> None:
    path = ROOT / change.file
    if not (change.context or change.place):
        assert not path.exists(), "a new file"
        return
    text = path.read_text(encoding="utf-8")
    assert "\n".join(change.context) in text, "the context is there, side by side"
    assert change.place in text
    assert change.added not in text, "the file does not have it yet"


def test_a_new_operation_is_a_row_and_a_handler() -> None:
    row = CHANGES["core/protocol/operations.py"].added.strip().rstrip(",")
    operation = eval(row, vars(operations))
    handler = ast.parse("class Added:\n" + CHANGES["stream/api/table.py"].added)
    assert f"@answers({operation.name!r})".replace("'", '"') in CHANGES["stream/api/table.py"].added
    names = {node.id for node in ast.walk(handler) if isinstance(node, ast.Name)}
    own = {
        node.id
        for node in ast.walk(handler)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    known = own | set(vars(table)) | set(vars(builtins)) | {"self", "identity"}
    assert names <= known


@pytest.fixture
def sqlite(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the new sink, registered as the diff does it."""
    row = CHANGES["connectors/registry.py"].added.strip()
    [(kind, name)] = ast.literal_eval("{" + row + "}").items()
    file = CHANGES["connectors/sinks/sqlite/sink.py"]
    assert name == "rowtide." + file.file.removesuffix(".py").replace("/", ".")
    module = ModuleType(name)
    exec(compile(file.added, file.file, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(registry, "SINKS", {**registry.SINKS, kind: name})
    return module


def test_a_new_sink_is_made_by_its_kind(sqlite: ModuleType, tmp_path: Path) -> None:
    context = registry.ConnectorContext("copy", str(tmp_path))
    sink = registry.make_sink(Fields({"kind": "sqlite"}, "connectors.copy.sink"), context)
    assert type(sink) is sqlite.SqliteSink


def test_a_new_sink_passes_the_contract(sqlite: ModuleType) -> None:
    names: dict[str, Callable[[], None]] = {}
    added = CHANGES["tests/connectors/sqlite/test_sqlite_sink.py"].added
    exec(compile(added, "test_sqlite_sink.py", "exec"), names)
    [contract] = [test for name, test in names.items() if name.startswith("test_")]
    contract()
    assert sqlite.SqliteRows, "the contract ran on the module of the diff"
