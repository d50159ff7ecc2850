"""Shell completion: the scripts, and what is offered."""

import pytest
from click.shell_completion import BashComplete, ShellComplete
from click.testing import CliRunner

from rowtide.cli.main import main


def list_completions(arguments: list[str], incomplete: str) -> list[str]:
    shell: ShellComplete = BashComplete(main, {}, "rowtide", "_ROWTIDE_COMPLETE")
    return [item.value for item in shell.get_completions(arguments, incomplete)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_calls_rowtide_back(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_ROWTIDE_COMPLETE={shell}_complete" in result.output


def test_another_shell_is_a_wrong_command_line() -> None:
    assert CliRunner().invoke(main, ["completion", "cmd"]).exit_code == 2


def test_commands_are_offered_by_their_beginning() -> None:
    assert list_completions([], "st") == ["status", "stream"]
    assert list_completions(["stream"], "t") == ["tail"]


def test_options_and_choices_are_offered() -> None:
    assert "--prefix" in list_completions(["row", "scan", "t"], "--p")
    assert list_completions(["row", "scan", "t", "--output"], "") == ["table", "json"]


def test_without_a_server_no_table_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("ROWTIDE_DATA_DIR", str(tmp_path))
    assert list_completions(["table", "describe"], "") == []
