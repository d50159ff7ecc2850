"""``rowtide connector recopy``: some tables of a source are copied again, the others flow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put, Special
from rowtide.connectors.sources.progress import TableProgress
from rowtide.core.values.errors import Rejected
from rowtide.deploy.up import Ready
from tests.connectors import folder_source
from tests.connectors.folder_source import Checkpoint, FolderSource
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.connectors.runtime.conftest import Run
from tests.support.waiting import until

SOURCE = FolderSource(Path())


def make_checkpoint(*names: str, prefix: str = "folder.") -> bytes:
    """Return the checkpoint of a source that has copied these tables."""
    tables = {prefix + name: TableProgress(copied=True) for name in names}
    return Checkpoint(run=1, tables=tables).encode()


@pytest.mark.parametrize(
    ("tables", "copied"),
    [
        ([], ["folder.a", "folder.b", "folder.c"]),
        (["a"], ["folder.a"]),
        (["folder.a"], ["folder.a"]),
        (["folder.c", "a", "c"], ["folder.a", "folder.c"]),
    ],
)
def test_tables_are_named_as_at_the_source_or_as_in_rowtide(
    tables: list[str], copied: list[str]
) -> None:
    kept = Checkpoint.parse(SOURCE.begin_again(make_checkpoint("a", "b", "c"), tables))
    assert [name for name, table in kept.tables.items() if not table.copied] == copied
    assert [name for name, table in kept.tables.items() if table.sweep] == copied


@pytest.mark.parametrize(
    ("checkpoint", "table", "why"),
    [
        (make_checkpoint("b", "a"), "x", "follows no table x; it follows folder.a, folder.b."),
        (make_checkpoint("b", "a"), "A", "follows no table A; it follows folder.a, folder.b."),
        (make_checkpoint("b", "a"), "folder.", "follows no table folder.;"),
        (make_checkpoint("b", "a"), "", "follows no table ;"),
        (make_checkpoint(), "x", "follows no table yet: it copies x once it does."),
        (b"", "x", "follows no table yet: it copies x once it does."),
    ],
)
def test_a_table_that_is_not_followed_is_refused(checkpoint: bytes, table: str, why: str) -> None:
    with pytest.raises(Rejected) as refused:
        SOURCE.begin_again(checkpoint, ["b", table] if b"folder.b" in checkpoint else [table])
    assert why in refused.value.message


def test_a_name_that_two_tables_have_in_rowtide_is_refused() -> None:
    with pytest.raises(Rejected, match=r"Several tables become t: give one of one\.t, two\.t"):
        Checkpoint.begin_again(
            make_checkpoint("one.t", "two.t", prefix=""),
            ["t"],
            target=lambda name: name.split(".")[1],
        )


@pytest.mark.system
def test_one_table_is_copied_again_and_the_others_flow(
    server: Ready,
    rows: ProtocolClient,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    for name in ("rc_a", "rc_b"):
        (folder / f"{name}.jsonl").write_text('{"id": "1", "n": 1}\n---\n')
    document = {"source": {"kind": folder_source.KIND, "path": str(folder)}, "lease_ms": 1000}
    declare(server, yaml_of("again", document))
    assert "follows no table yet" in connector("recopy", "again", "rc_a", code=1)
    processes.start("again")

    def read_written(table: str) -> dict[object, object]:
        if table not in rows.list_table():
            return {}
        low, high = [("id", Special.INF_MIN)], [("id", Special.INF_MAX)]
        pages = rows.get_range(table, low, high)
        return {row.key[0][1]: row.columns[0].value for page in pages for row in page}

    until(
        lambda: [read_written("rc_a"), read_written("rc_b")] == [{"1": 1}] * 2,
        message=processes.said,
    )
    output = connector("recopy", "again", "rc_a", "rc_c", code=1)
    assert "follows no table rc_c; it follows folder.rc_a, folder.rc_b" in output
    for table in ("rc_a", "rc_b"):
        rows.put_row(table, [("id", "1")], [Put("n", 0)])
    assert connector("recopy", "again", "rc_a") == "again copies rc_a again.\n"
    until(lambda: read_written("rc_a") == {"1": 1}, message=processes.said)
    with (folder / "rc_b.jsonl").open("a") as out:
        out.write(json.dumps({"id": "2", "n": 2}) + "\n")
    until(lambda: read_written("rc_b") == {"1": 0, "2": 2}, message=processes.said)
    processes.stop_all()
    connector("delete", "again", "--yes")
    for table in ("rc_a", "rc_b"):
        rows.delete_table(table)
