"""One cell of a wide row against one of a narrow row: ``python -m tests.bench.wide [COLUMNS]``.

Both rows are in one table of a server of its own; a client with one connection reads and changes
one cell at a time, the two rows in turn, so that what else the machine does slows both. Each
time is a median in milliseconds, client included; CPU is that of worker and broker.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Increment, Key, Put, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.deploy.up import Up
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.processes import cpu_s, memory

ROUNDS = 400
PER_WRITE = 1024
NARROW, WIDE = (("pk", "narrow"),), (("pk", "wide"),)
Call = Callable[[Key, str], None]


def main() -> None:
    """Print a Markdown table."""
    columns = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory() as folder:
        output = (Path(folder) / "output").open("wb")
        up = Up(Path(folder) / "data", options=["--port", "0"], output=output)
        with output, up, ProtocolClient(**up.start()._asdict()) as client:
            _measure(client, columns)


def _measure(client: ProtocolClient, columns: int) -> None:
    click.echo(format_circumstances(circumstances("wide")))
    client.create_table("t", (KeyColumn("pk", STRING),))
    server = client.call_json("RowtideStatus", {})["pid"]
    client.put_row("t", NARROW, [Put(_name(number), number) for number in range(10)])
    since_s = time.perf_counter()
    for base in range(0, columns, PER_WRITE):
        some = range(base, min(base + PER_WRITE, columns))
        client.update_row("t", WIDE, [Put(_name(number), number) for number in some])
    built_s = time.perf_counter() - since_s
    click.echo(f"built in {built_s:.1f} s, {columns / built_s:,.0f} columns/s\n")
    click.echo("| one cell | narrow ms | wide ms | ratio | narrow CPU us | wide CPU us | ratio |")
    click.echo("|---|---:|---:|---:|---:|---:|---:|")
    for name, call in _calls(client).items():
        click.echo(_line(name, call, columns, server))
    before = memory(server).worker_mib
    started = time.perf_counter()
    read = _read_whole(client)
    took_s = time.perf_counter() - started
    assert read == columns
    after = memory(server).worker_mib
    click.echo(f"\nwhole row read in {took_s:.1f} s; worker {before:.0f} MiB, then {after:.0f}")


def _name(number: int) -> str:
    return f"c{number:07d}"


def _calls(client: ProtocolClient) -> dict[str, Call]:
    def read(row: Key, name: str) -> None:
        client.get_row("t", row, columns=[name])

    def change(row: Key, name: str) -> None:
        client.update_row("t", row, [Put(name, "changed")])

    def increment(row: Key, name: str) -> None:
        client.update_row("t", row, [Increment(name, 1)])

    return {
        "read": read,
        "incremented": increment,
        "changed": change,
    }


def _line(name: str, call: Call, columns: int, server: int) -> str:
    figures = []
    taken: dict[Key, list[float]] = {NARROW: [], WIDE: []}
    for number in range(ROUNDS):
        for row, count in ((NARROW, 10), (WIDE, columns)):
            column = _name(number * 7919 % count)
            since_s = time.perf_counter()
            call(row, column)
            taken[row].append(time.perf_counter() - since_s)
    figures += [statistics.median(taken[row]) * 1e3 for row in (NARROW, WIDE)]
    for row, count in ((NARROW, 10), (WIDE, columns)):
        before_s = cpu_s(server)
        for number in range(ROUNDS):
            call(row, _name(number * 7919 % count))
        figures.append((cpu_s(server) - before_s) / ROUNDS * 1e6)
    narrow, wide, narrow_us, wide_us = figures
    return (
        f"| {name} | {narrow:.2f} | {wide:.2f} | {wide / narrow:.2f} "
        f"| {narrow_us:.0f} | {wide_us:.0f} | {wide_us / narrow_us:.2f} |"
    )


def _read_whole(client: ProtocolClient) -> int:
    request = pb.GetRowRequest(table_name="t", primary_key=encode_row(WIDE), max_versions=1)
    cells = 0
    while True:
        answer = client.call("GetRow", request, pb.GetRowResponse)
        cells += answer.row.count(b"\x03\x04\x08\x00\x00\x00c")
        if not answer.next_token:
            return cells
        request.token = answer.next_token


if __name__ == "__main__":
    main()
