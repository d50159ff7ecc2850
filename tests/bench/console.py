"""Speed of the console's pages: ``python -m tests.bench.console`` (see ``--help``).

A server and its console are processes of their own; this process is the visitor. Bytes are those of
the answers' bodies, compressed where the console compresses them.
"""

from __future__ import annotations

import gzip
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from rowtide.client import Client, PutRow
from rowtide.console.web.static_files import FOLDER
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.report import Result, as_markdown, percentile
from tests.support.consoles import RunningConsole, Visitor, serving_console

VISITS = 60
IDLE_S = 5.0
BATCH_ROWS = 200
MIB = 1024 * 1024
IMPORT = re.compile(r"""^(?:import|export)\b[^"';]*["'](\.[^"']+)["']""", re.MULTILINE)


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=1_000_000, help="Rows of the table that is browsed.")
def main(rows: int) -> None:
    """Measure the console's pages and print a Markdown table."""
    click.echo(format_circumstances(circumstances("console")))
    with (
        tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where,
        serving_console(Path(where), "--table-operations-per-s", "0") as console,
    ):
        click.echo(as_markdown(measure(console, rows)))


def measure(console: RunningConsole, rows: int) -> list[Result]:
    """Return the results of all measurements."""
    results = [Result("console ready after the worker", _ready_s(console), "s")]
    time.sleep(IDLE_S)
    results.append(Result("console memory, idle", _memory_mib(console.pid), "MiB"))
    visitor = console.log_in()
    results.append(Result("first page, empty cache", first_page_bytes(visitor) / 1000, "KB"))
    fill(console, rows)
    place = "/i/demo/t/rows/rows"
    last = visitor.get(f"{place}.json?reverse=yes").document
    for name, path in (
        ("health", "/"),
        ("tables", "/i/demo/tables"),
        ("first rows", place),
        ("one row", f"/i/demo/t/rows/row?key1={rows // 2}"),
        ("last rows", f"{place}?reverse=yes"),
        ("next rows at the end", str(last["next"]).replace(".json", "", 1)),
    ):
        taken_s = sorted(visit_s(visitor, path))
        results += [
            Result(f"page of {name}, p{p}", percentile(taken_s, p) * 1000, "ms") for p in (50, 99)
        ]
    results.append(Result("console memory after these", _memory_mib(console.pid), "MiB"))
    return results


def visit_s(visitor: Visitor, path: str) -> Iterator[float]:
    """Yield how long each of many visits of a page took, its first one left out."""
    for number in range(VISITS + 1):
        began = time.perf_counter()
        answer = visitor.get(path)
        taken_s = time.perf_counter() - began
        assert answer.status == 200, (path, answer.text)
        if number:
            yield taken_s


def first_page_bytes(visitor: Visitor) -> int:
    """Return the bytes of the first page with its style and all modules that these import."""
    page = visitor.get("/").text
    waiting = re.findall(r'(?:href|src)="/static/\w+/([^"]+)"', page)
    found: dict[str, int] = {}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        content = (FOLDER / name).read_bytes()
        found[name] = len(gzip.compress(content, 9))
        if name.endswith(".js"):
            beside = (FOLDER / name).parent
            waiting += [
                (beside / one).resolve().relative_to(FOLDER.resolve()).as_posix()
                for one in IMPORT.findall(content.decode())
            ]
    return len(page.encode()) + sum(found.values())


def fill(console: RunningConsole, rows: int) -> None:
    """Create the table that is browsed: an integer key, and 60 bytes in three columns."""
    with Client(**console.ready._asdict()) as client:
        client.create_table("rows", {"id": int})
        for begin in range(0, rows, BATCH_ROWS):
            numbers = range(begin, min(begin + BATCH_ROWS, rows))
            client.write(
                [
                    PutRow("rows", {"id": n, "name": f"row {n}", "total": n / 2, "text": "x" * 40})
                    for n in numbers
                ]
            )


def _ready_s(console: RunningConsole) -> float:
    """Return how long after the worker's ready file that of the console was written."""
    worker = console.folder / "data.ready.json"
    beside = console.folder / "data" / "console.json"
    return beside.stat().st_mtime - worker.stat().st_mtime


def _memory_mib(pid: int) -> float:
    """Return the resident memory of a process (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found, status
    return int(found[1]) * 1024 / MIB


if __name__ == "__main__":
    main()
