"""``rowtide timeline search``, ``meta search`` and ``index``: an index on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.row_arguments import schema_of
from rowtide.cli.search_syntax import parse_search, parse_sort
from rowtide.cli.settings import variable
from rowtide.cli.table import table_argument
from rowtide.cli.timeline_call import (
    entry_document,
    fields_json,
    fields_text,
    identifier_types,
    run_async,
    timeline_schema,
)
from rowtide.cli.value_syntax import json_text, to_json
from rowtide.client.async_client import AsyncClient
from rowtide.client.search.query import LIMIT_MAX, OFFSET_MAX, SearchPage
from rowtide.client.search.search_index import SearchIndex
from rowtide.client.search.stream_index import IndexStatus
from rowtide.client.timeline.meta import TimelineMeta, TimelineMetas
from rowtide.client.timeline.schema import TimelineMetaSchema
from rowtide.client.timeline.timeline import TimelineHit, Timelines
from rowtide.core.values.variant import Scalar
from rowtide.deploy.kafka.config import default_cache_dir

__all__ = ["index", "search_messages", "search_metas"]

Command = TypeVar("Command", bound=Callable[..., Any])

_cache_dir = click.option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    envvar=variable("cache_dir"),
    help="Directory of indexes; unless set, the user's cache directory.",
)


def _page_options(command: Command) -> Command:
    """Add the options of a search."""
    for option in (
        _cache_dir,
        click.option(
            "--wait",
            "wait_s",
            type=click.FloatRange(min=0, min_open=True),
            default=600.0,
            show_default=True,
            help="Seconds to wait until the index has every write.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(0, LIMIT_MAX),
            default=10,
            show_default=True,
            help="Number of hits to show.",
        ),
        click.option(
            "--offset", type=click.IntRange(0, OFFSET_MAX), default=0, help="Skip so many hits."
        ),
        click.option(
            "--sort",
            "sorts",
            multiple=True,
            metavar="[-]NAME",
            help="Order by this field, with - the largest first; repeat for more.",
        ),
    ):
        command = option(command)
    return command


@click.command("search", cls=ClientCommand)
@table_argument
@click.argument("query")
@_page_options
def search_messages(
    client: ProtocolClient,
    table: str,
    query: str,
    sorts: Sequence[str],
    offset: int,
    limit: int,
    wait_s: float,
    cache_dir: Path | None,
    output: Output,
) -> None:
    """Find messages of all timelines in TABLE. QUERY is words, or a JSON object.

    Every message that was answered before is found. The first search reads the table into an index
    in the user's cache directory; later ones read only what changed.

    \b
    rowtide timeline search im_store "hello world" --sort -sequence_id
    rowtide timeline search im_store '{"phrase": {"text": "good day"}, "equals": {"sender": "ada"}}'

    \b
    {"match": {"text": "hello bob"}}   one of the words; "match_every": all of them
    {"phrase": {"text": "good day"}}   words one after another
    {"equals": {"size": 3}}            {"in": {"size": [3, 4]}}   {"prefix": {"name": "gr"}}
    {"range": {"size": {"gte": 3, "lt": 10}}}                     {"exists": "size"}
    {"and": [...]}  {"or": [...]}  {"not": {...}}  {"all": true}
    """
    wanted, order = parse_search(query), [parse_sort(text) for text in sorts]
    schema, _ = timeline_schema(client, table)

    async def ask(connected: AsyncClient) -> SearchPage[TimelineHit]:
        timelines = Timelines(connected, schema, search_folder=_folder(cache_dir))
        return await timelines.search(wanted, sort=order, offset=offset, limit=limit, wait_s=wait_s)

    found = run_async(client, ask)
    if output == "json":
        hits = [{**_timeline(hit.identifier), **entry_document(hit.entry)} for hit in found.hits]
        click.echo(json_text({"total": found.total, "hits": hits}))
    else:
        rows = [
            (_name(hit.identifier), hit.entry.id, fields_text(hit.entry.fields))
            for hit in found.hits
        ]
        emit_table(("timeline", "id", "fields"), rows)
        click.echo(f"{found.total:,} found.")


@click.command("search", cls=ClientCommand)
@table_argument
@click.argument("query")
@_page_options
def search_metas(
    client: ProtocolClient,
    table: str,
    query: str,
    sorts: Sequence[str],
    offset: int,
    limit: int,
    wait_s: float,
    cache_dir: Path | None,
    output: Output,
) -> None:
    """Find meta rows of timelines in TABLE. `rowtide timeline search --help` has the queries.

    \b
    rowtide timeline meta search im_meta '{"range": {"size": {"gte": 3}}}' --sort -size
    """
    wanted, order = parse_search(query), [parse_sort(text) for text in sorts]
    schema = TimelineMetaSchema(table, identifier_types(schema_of(client, table)))

    async def ask(connected: AsyncClient) -> SearchPage[TimelineMeta]:
        metas = TimelineMetas(connected, schema, search_folder=_folder(cache_dir))
        return await metas.search(wanted, sort=order, offset=offset, limit=limit, wait_s=wait_s)

    found = run_async(client, ask)
    if output == "json":
        hits = [
            {**_timeline(one.identifier), "fields": fields_json(one.fields)} for one in found.hits
        ]
        click.echo(json_text({"total": found.total, "hits": hits}))
    else:
        rows = [(_name(one.identifier), fields_text(one.fields)) for one in found.hits]
        emit_table(("timeline", "fields"), rows)
        click.echo(f"{found.total:,} found.")


@click.command("index", cls=ClientCommand)
@table_argument
@click.option("--rebuild", is_flag=True, help="Remove the index first, and read the table again.")
@click.option("--follow", is_flag=True, help="Keep the index up to date, until Ctrl-C.")
@_cache_dir
def index(
    client: ProtocolClient,
    table: str,
    cache_dir: Path | None,
    output: Output,
    *,
    rebuild: bool,
    follow: bool,
) -> None:
    """Bring the search index of TABLE up to date, and show it: rows, and records behind.

    With --follow it stays up to date: other processes of this machine then search at once.

    \b
    rowtide timeline index im_store
    rowtide timeline index im_store --rebuild --output json
    """

    async def ask(connected: AsyncClient) -> None:
        found = SearchIndex(connected, table, _folder(cache_dir))
        if rebuild:
            await found.rebuild()
        await found.wait_for_present()
        _print_status(await found.status(), output)
        if follow:
            sys.stdout.flush()
            await found.wait_until_failed()

    try:
        run_async(client, ask)
    except KeyboardInterrupt:
        return  # The usual end of the command.


def _print_status(status: IndexStatus, output: Output) -> None:
    if output == "json":
        shards = [
            {"shard": one.shard_id, "records_behind": one.records, "has_all_rows": one.has_all_rows}
            for one in status.shards
        ]
        emit_json({"folder": str(status.folder), "rows": status.rows, "shards": shards})
    else:
        behind = sum(one.records for one in status.shards)
        emit_table(
            ("rows", "shards", "records behind"), [(status.rows, len(status.shards), behind)]
        )


def _folder(cache_dir: Path | None) -> Path:
    return (cache_dir or default_cache_dir(os.environ, sys.platform)) / "timelines"


def _timeline(identifier: Sequence[Scalar]) -> dict[str, object]:
    return {"timeline": [to_json(value) for value in identifier]}


def _name(identifier: Sequence[Scalar]) -> str:
    return " ".join(str(value) for value in identifier)
