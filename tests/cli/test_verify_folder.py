"""``rowtide verify`` finds the files of a connector by itself."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rowtide.cli.connector_folder import RUN_HERE, folder_of
from rowtide.cli.main import main

NOT_YET = 3
CONNECTORS = "connectors: {birds-search: {table: birds, sink: {kind: tantivy}}}"


def test_files_beside_the_server_go_before_those_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data_dir, beside, here = Path("data"), tmp_path / "data/connectors", tmp_path / RUN_HERE
    assert folder_of("orders", data_dir) == beside, "where it will have them"
    (here / "orders").mkdir(parents=True)
    assert folder_of("orders", data_dir) == here
    (beside / "orders").mkdir(parents=True)
    assert folder_of("orders", data_dir) == beside


@pytest.mark.system
def test_an_index_that_the_server_fills_is_compared(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: str) -> Result:
        return CliRunner().invoke(main, shlex.split(command), prog_name="rowtide")

    monkeypatch.setenv("ROWTIDE_DATA_DIR", str(data_dir))
    declared = tmp_path / "connectors.yaml"
    declared.write_text(CONNECTORS, encoding="utf-8")
    assert run("table create birds --key id:string --stream 24").exit_code == 0
    assert run("row put birds id=wren song=loud").exit_code == 0
    assert run(f"connector apply {declared}").exit_code == 0
    while (result := run("verify birds birds-search")).exit_code == NOT_YET:
        assert f"{data_dir}/connectors/birds-search has no search index yet" in result.output
        time.sleep(0.1)
    assert result.output == "birds -> birds-search (tantivy): 1 rows, 1 held, 1 range: equal\n"
    assert run("connector delete birds-search --yes").exit_code == 0
