"""``rowtide search``: finds rows by words and by columns, in an index that this command updates."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand
from rowtide.cli.endpoint_call import run_call
from rowtide.cli.exits import CommandRefused, NotNow
from rowtide.cli.output import Output, emit_table
from rowtide.cli.settings import variable
from rowtide.cli.stream import stream_id_of
from rowtide.cli.table import table_argument
from rowtide.cli.value_syntax import json_text, plain_text, to_json
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.sinks.tantivy.folder import FoundRow, FoundRows, SearchFolder
from rowtide.connectors.sinks.tantivy.own_index import OwnIndex
from rowtide.connectors.sinks.tantivy.query import QueryRefused
from rowtide.connectors.sinks.tantivy.text_index import LANGUAGES
from rowtide.core.values.errors import Unavailable
from rowtide.deploy.kafka.config import default_cache_dir

__all__ = ["search"]

PROGRESS_ROWS = 10_000
LOCK_S_MAX = 600.0


@click.command("search", cls=ClientCommand)
@table_argument
@click.argument("query")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Number of rows to show.",
)
@click.option(
    "--column", "names", multiple=True, metavar="NAME", help="Show this column; repeat for more."
)
@click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    default="none",
    show_default=True,
    help="Language for word endings. A change of it rebuilds the index.",
)
@click.option(
    "--index",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Search the index of a connector on this machine without an update.",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    envvar=variable("cache_dir"),
    help="Directory of the command's indexes; unless set, the user's cache directory.",
)
def search(
    client: ProtocolClient,
    table: str,
    query: str,
    limit: int,
    names: Sequence[str],
    language: str,
    folder: Path | None,
    cache_dir: Path | None,
    output: Output,
) -> None:
    """Show the rows of TABLE that match QUERY, best first.

    The table needs a stream. The first search reads the table into an index in the user's cache
    directory. Later ones read only changes. A search finds every write that was answered
    before.

    \b
    running shoes                  either word, in any text of a row
    carrier:UA AND dep_delay:>60   columns, by value and by range; OR, NOT, ( )
    title:"run shoes"~2            words near each other
    day:[2013-01-05 TO 2013-02-01} a range, with its beginning, without its end
    tail:* -tail:N14228            rows that have a column, but not of this value
    """
    if folder is None:
        folder = _up_to_date(client, table, language, cache_dir)
    found = _search_folder(folder, table, query, limit)
    if output == "json":
        for row in found.rows:
            columns = {**row.key, **row.columns}
            shown = {n: to_json(v) for n, v in columns.items() if not names or n in names}
            click.echo(json_text(shown))
    else:
        _print(found, names)


def _up_to_date(client: ProtocolClient, table: str, language: str, cache_dir: Path | None) -> Path:
    """Return the folder of this user's index, updated to the table's present rows."""
    stream_id = stream_id_of(client, table)
    cache = cache_dir or default_cache_dir(os.environ, sys.platform)
    folder = cache / "search" / client.access[0] / stream_id
    progress = _Progress(table)

    async def update(endpoint: Endpoint) -> None:
        index = OwnIndex(endpoint, table, folder, language, progress.at)
        await index.update(wait_s=LOCK_S_MAX)
        for refused in index.refused:
            click.echo(f"Not searched: {dict(refused.row.key)}: {refused.reason}", err=True)

    try:
        run_call(client, update)
    except TimeoutError as error:
        raise NotNow(f"Another search is using the index in {folder}", "Try again.") from error
    finally:
        progress.end()
    return folder


class _Progress:
    """Shows progress on a terminal if reading takes longer than a moment."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._shown = 0

    def at(self, rows: int) -> None:
        """Show the number of rows read so far."""
        if rows - self._shown >= PROGRESS_ROWS and sys.stderr.isatty():
            self._shown = rows
            click.echo(f"\rReading {self._table}: {rows:,} rows", err=True, nl=False)

    def end(self) -> None:
        """End the progress line."""
        if self._shown:
            click.echo(err=True)


def _search_folder(folder: Path, table: str, query: str, limit: int) -> FoundRows:
    try:
        index = SearchFolder(folder)
    except Unavailable as error:
        raise NotNow(error.message.rstrip(".")) from error
    try:
        if index.table != table:
            raise CommandRefused(f"{folder} is the index of table {index.table}, not of {table}")
        return index.search(query, limit=limit)
    except QueryRefused as error:
        raise click.UsageError(str(error)) from error
    finally:
        index.close()


def _print(found: FoundRows, wanted: Sequence[str]) -> None:
    names = list(dict.fromkeys(name for row in found.rows for name in row.key))
    names += list(dict.fromkeys(name for row in found.rows for name in row.columns))
    shown = [name for name in names if not wanted or name in wanted]
    if found.rows and shown:
        emit_table(shown, [_line(row, shown) for row in found.rows])
    if found.total > len(found.rows):
        click.echo(f"{len(found.rows):,} of {found.total:,} rows; --limit shows more.", err=True)


def _line(row: FoundRow, names: Sequence[str]) -> list[str]:
    columns = {**row.key, **row.columns}
    return [plain_text(columns[name]) if name in columns else "" for name in names]
