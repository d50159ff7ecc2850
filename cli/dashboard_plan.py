"""``rowtide dashboard plan``: what each panel of a file reads, keeps and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rowtide.cli.output import Output, emit_fields, emit_json
from rowtide.dashboards.declaring.declaration import Panel, parse_dashboards
from rowtide.dashboards.declaring.marked_values import DeclarationRejected

__all__ = ["plan"]


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output for people or for programs.",
)
def plan(file: Path, output: Output) -> None:
    """Show what each panel of FILE reads, keeps and answers, without a server.

    A rejected panel is shown with line, column and reason, and the exit code is 2.
    """
    rejected: list[DeclarationRejected] = []
    try:
        found = parse_dashboards(file.read_text(encoding="utf-8"), str(file), rejected)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not text: {error}") from error
    except (OSError, DeclarationRejected) as error:
        raise click.UsageError(str(error)) from error
    shown = {one.name: [_document(panel) for panel in one.panels.values()] for one in found}
    if output == "json":
        errors = [{"line": e.line, "column": e.column, "reason": e.reason} for e in rejected]
        emit_json({"dashboards": shown, "rejected": errors})
    else:
        for dashboard, panels in shown.items():
            for panel in panels:
                click.echo(f"{dashboard}.{panel['panel']}")
                emit_fields((f"  {name}", _text(panel[name])) for name in _SHOWN)
        for reason in rejected:
            click.echo(f"rejected: {reason}")
    if rejected:
        raise SystemExit(click.UsageError.exit_code)


_SHOWN = ("from", "reads", "groups", "aggregates", "answers", "state rows")


def _document(panel: Panel) -> dict[str, Any]:
    query = panel.plan
    groups = 1 if not query.keys else panel.bounds.groups_max
    return {
        "panel": panel.name,
        "from": "changes of the table" if query.source == "changes" else "rows of the table",
        "reads": [f"{column.name} {column.word}" for column in query.columns],
        "groups": [key.text for key in query.keys],
        "aggregates": [
            f"{result.text} (approximate, 1 %)" if result.is_approximate else result.text
            for result in query.results
        ],
        "answers": [
            f"{'~' if output.is_approximate else ''}{output.name} {output.kind.value}"
            for output in query.outputs
        ],
        "state rows": f"at most {groups + 1:,} for each shard of the table",
    }


def _text(value: object) -> str:
    return (", ".join(value) or "-") if isinstance(value, list) else str(value)
