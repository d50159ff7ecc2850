"""Replicates flights from MariaDB to rowtide, and on to three other systems.

These are a search index, an analytics file and another MariaDB. The origin changes while every
process is killed in turn; then all systems are compared.

    ROWS=january|all  how much to load (january: 27,004 flights)
    CHANGES=50000     number of rows to change at the origin
    SEED=1            seed of the choice of changes
    DATA_DIR=PATH     directory of all files (.data/replication; created again)
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import pymysql

from demo.replication import origin
from demo.replication.declarations import SINKS, SOURCE, connector_name
from demo.replication.screen import Bar, verdict_line
from demo.replication.systems import Systems
from demo.replication.watch import Seen, Watch
from demo.source import TABLES, Source
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declarations import Declarations
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.verify.comparison import Verdict
from rowtide.connectors.verify.pairs import verify_sink, verify_source
from rowtide.core.values.errors import StoreError

JANUARY = 1
SNAPSHOT_S_MAX = 240.0
CATCH_UP_S_MAX = 120.0
BETWEEN_KILLS_S = 2.0
PATIENCE_S = 30.0
"""How long to retry while rowtide reports an unavailable shard: a busy machine loses leases."""
ORIGIN_RETRY_S = 0.2
"""Pause before a retry of a transaction that failed because the origin was killed."""


def main() -> None:
    """Read the environment and run the demo; exit with 1 if anything differs."""
    rows = os.environ.get("ROWS") or "january"
    if rows not in ("january", "all"):
        sys.exit(f"ROWS must be january or all, not {rows!r}")
    changes, seed = int(os.environ.get("CHANGES") or 50_000), int(os.environ.get("SEED") or 1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(os.environ.get("DATA_DIR") or ".data/replication").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    source = Source(JANUARY if rows == "january" else None)
    try:
        with Systems(folder) as systems:
            equal = run(systems, source, changes=changes, seed=seed)
    except KeyboardInterrupt:
        click.echo("\nStopped.")
        sys.exit(130)
    click.echo(f"\n  {time.monotonic() - began:.1f} s in all. Logs and files: {folder}")
    sys.exit(0 if equal else 1)


def run(systems: Systems, source: Source, *, changes: int, seed: int) -> bool:
    """Start, copy, change, kill and compare; return True if everything is equal."""
    click.echo()
    _time_start("MariaDB, the origin", systems.start_origin)
    with Bar("loaded", origin.total_rows(source)) as bar:
        for _, count in origin.load(systems.origin, source):
            bar.add(count)
    _time_start("another MariaDB and OpenSearch", systems.start_targets)
    _time_start("rowtide and its broker", systems.start_rowtide)
    _time_start("16 connectors in 4 processes", systems.start_connectors)
    watch = Watch(systems.ready)
    try:
        _wait_for_rows(watch)
        _change(systems, source, watch, changes=changes, seed=seed)
    finally:
        watch.stop()
    click.echo()
    return asyncio.run(_compare(systems))


def _time_start(what: str, start: Callable[[], object]) -> None:
    began = time.monotonic()
    start()
    click.echo(f"  {time.monotonic() - began:5.1f} s  {what}")


def _wait_for_rows(watch: Watch) -> None:
    began = time.monotonic()
    with Bar("copied", len(SINKS)) as bar:

        def show() -> None:
            behind = watch.seen.behind
            bar.set(sum(count is not None for count in behind.values()), _behind_text(watch.seen))

        if not watch.until(lambda seen: seen.is_caught_up, s_max=SNAPSHOT_S_MAX, show=show):
            raise click.ClickException("The rows were not copied in time; see the logs.")
        bar.set(len(SINKS), f"all systems have all rows after {time.monotonic() - began:.1f} s")


def _change(systems: Systems, source: Source, watch: Watch, *, changes: int, seed: int) -> None:
    """Change the origin while every process is killed once."""
    killed: list[str] = []
    over = threading.Event()
    killing = threading.Thread(target=_kill_all, args=(systems, killed, over), name="killing")
    made = origin.Changes(systems.origin, source, seed=seed)
    with Bar("changed", changes) as bar:
        killing.start()
        done, kills = 0, len(list(systems.kills()))
        try:
            while done < changes or killing.is_alive():
                # Changes continue while there is a process left to kill.
                if done >= changes * (len(killed) + 1) / (kills + 1) and killing.is_alive():
                    time.sleep(0.01)
                    continue
                try:
                    done += made.transaction()
                except pymysql.MySQLError:
                    time.sleep(ORIGIN_RETRY_S)
                last = f"killed {killed[-1]}" if killed else ""
                bar.set(done, f"{_behind_text(watch.seen)}  {last}")
        finally:
            over.set()
            killing.join()
        made.close()

        def show() -> None:
            bar.set(done, _behind_text(watch.seen))

        def all_there(seen: Seen) -> bool:
            return seen.is_caught_up and seen.counted >= made.transactions

        if not watch.until(all_there, s_max=CATCH_UP_S_MAX, show=show):
            raise click.ClickException("The changes did not come in time; see the logs.")
        bar.set(done, f"in {made.transactions:,} transactions, complete in all systems")
    click.echo(f"  killed with kill -9 during the changes: {', '.join(killed)}")


def _kill_all(systems: Systems, killed: list[str], over: threading.Event) -> None:
    for name, kill in systems.kills():
        if over.wait(BETWEEN_KILLS_S):
            return
        kill()
        killed.append(name)


def _behind_text(seen: Seen) -> str:
    parts = [
        f"{sink} {'copies rows' if count is None else f'{count:,} behind'}"
        for sink, count in seen.behind.items()
    ]
    return ", ".join(parts)


async def _compare(systems: Systems) -> bool:
    """Compare the origin with the tables, and these with every sink."""
    equal = True
    async with Endpoint(**systems.ready._asdict(), patience_s=PATIENCE_S) as endpoint:
        place = ProcessContext(endpoint, os.environ, str(systems.folder / "connectors"))
        known = {
            name: found.declaration for name, found in (await Declarations(endpoint).all()).items()
        }
        for table in TABLES:
            found: list[tuple[str, Verdict | StoreError]] = []
            for name in (SOURCE, *(connector_name(sink, table.name) for sink in SINKS)):
                declaration = known[name]
                assert declaration is not None, "its declaration was applied"
                try:
                    if declaration.source:
                        found.append((name, await verify_source(declaration, table.name, place)))
                    else:
                        found.append((name, await verify_sink(declaration, place, wait_s=60.0)))
                except StoreError as error:
                    found.append((name, error))
            equal &= verdict_line(table.name, found)
    return equal


if __name__ == "__main__":
    main()
