"""A random history of rows, shards and processes for any sink: at its end the sink is the table.

    def test_any_history_ends_in_the_table(server, tmp_path):
        check_history(server, tmp_path, {"kind": "duckdb"})

The sink is run by processes of ``rowtide connector run``, which are stopped and killed while rows
are written, shards split, merge and move, and the connector is made to begin again. A sink that
can be compared (``Comparable``) is read back through its own ``read_rows``, once no process has it
open; for others ``read`` returns its living rows by their encoded keys. A failure names its seed:
ROWTIDE_HISTORY_SEED repeats the steps, not the moments at which they meet.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

from rowtide.cli.client import ProtocolClient, ServerError, Write
from rowtide.client.wire_row import Delete, Key, Put, Special
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.sink import Comparable
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses, declare, lag_of, rewind, yaml_of
from tests.support.waiting import until
from tests.workers.conftest import UNAVAILABLE, Retrying

__all__ = ["Columns", "History", "check_history"]

Columns = Mapping[str, Scalar]
Read = Callable[[], Mapping[bytes, Columns]]

KEY = (KeyColumn("name", STRING), KeyColumn("number", INTEGER))
NAMES = [f"{letter}{number}" for letter in "abcdef" for number in range(3)]
STEPS = int(os.environ.get("ROWTIDE_HISTORY_STEPS", "25"))
SETTLED_S_MAX = 120.0
SLOTS = 4
LEASE_MS = 1500
_numbers = count(1)


@dataclass(slots=True)
class History:
    """What one history is made of.

    ``settings`` are the sink's as a file gives them, ``more`` those of its connector. ``mixed``
    puts values of several types into one column. ``columns`` says what the sink should have of a
    row's columns, where ``convert_columns`` of the sink itself does not; ``processes_max`` how many
    processes run at once: 1 for a sink whose target only one can have open.
    """

    settings: Mapping[str, object]
    more: Mapping[str, object] = field(default_factory=dict)
    read: Read | None = None
    columns: Callable[[Columns], Columns] | None = None
    mixed: bool = False
    processes_max: int = 2
    steps: int = STEPS
    seed: int = field(
        default_factory=lambda: int(
            os.environ.get("ROWTIDE_HISTORY_SEED", str(random.SystemRandom().randrange(10**6)))
        )
    )


def check_history(
    server: Ready, folder: Path, settings: Mapping[str, object], **wanted: Any
) -> None:
    """Play a history; raise ``AssertionError`` where the sink is not the table at its end."""
    history = History(settings, **wanted)
    table = f"history_{os.getpid()}_{next(_numbers)}"
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
    with ExitStack() as closing:
        client = closing.enter_context(Retrying(**server._asdict()))
        client.create_table(table, KEY, stream=stream)
        closing.callback(client.delete_table, table)
        processes = ConnectorProcesses(server, folder, closing)
        play = _Play(history, server, client, table, processes)
        try:
            play.run()
        except AssertionError as error:
            seed = f"ROWTIDE_HISTORY_SEED={history.seed} ROWTIDE_HISTORY_STEPS={history.steps}"
            raise AssertionError(f"{seed}: {error}\n{processes.said()}") from error


class _Play:
    """One history that is played on ``table``."""

    def __init__(
        self,
        history: History,
        server: Ready,
        client: ProtocolClient,
        table: str,
        processes: ConnectorProcesses,
    ) -> None:
        self._history = history
        self._server = server
        self._client = client
        self._table = table
        self._name = table.replace("_", "-")
        self._processes = processes
        self._chance = random.Random(history.seed)
        self._sink: Any = None

    def run(self) -> None:
        """Play it, let the sink come to its end, and compare."""
        history = self._history
        self._write(30)
        document = {"table": self._table, "sink": dict(history.settings), "lease_ms": LEASE_MS}
        declare(self._server, yaml_of(self._name, {**document, **history.more}))
        self._processes.start(self._name)
        for _ in range(history.steps):
            self._step()
        if not self._processes.running:
            self._processes.start(self._name)
        self._settle()
        self._processes.stop_all()
        # In this order: what is expected may depend on the columns that the target has by now.
        held, expected = self._read_rows(), self._expect_rows()
        assert held == expected, _difference(expected, held)

    def _step(self) -> None:
        what, running = self._chance.random(), len(self._processes.running)
        if what < 0.15 and running < self._history.processes_max:
            self._processes.start(self._name)
        elif what < 0.2 and running:
            self._processes.stop(self._chance.randrange(running))
        elif what < 0.3 and running:
            self._processes.kill(self._chance.randrange(running))
        elif what < 0.35:
            self._settle_a_little()
        elif what < 0.4:
            self._rewind()
        elif what < 0.75:
            self._write(self._chance.choice([1, 10, 60]))
        else:
            self._chance.choice([self._split, self._split, self._merge, self._move])()

    def _settle_a_little(self) -> None:
        """Let what runs come to the end of what is written, so that changes are seen alone."""
        if self._processes.running:
            self._settle()

    def _settle(self) -> None:
        def lag() -> object:
            return lag_of(self._server, self._name, self._table)

        until(
            lambda: lag_of(self._server, self._name, self._table).none,
            s_max=SETTLED_S_MAX,
            message=lag,
        )

    def _rewind(self) -> None:
        """Deliver everything again, or some of it. A target that has it drops it."""
        rewind(self._server, self._name, self._chance.choice(["rows", "rows", "oldest"]))

    # Rows.

    def _write(self, rows: int) -> None:
        writes: dict[tuple[str, int], Write] = {}
        for _ in range(rows):
            write = self._one_write()
            writes[cast(tuple[str, int], tuple(v for _, v in write.key))] = write
        left = list(writes.values())
        while left:
            errors = self._client.batch_write_row({self._table: left})
            refused = {error.code for error in errors if error is not None}
            assert refused <= UNAVAILABLE, refused  # A shard is on its way: as SDKs do, once more.
            left = [write for write, error in zip(left, errors, strict=True) if error is not None]

    def _one_write(self) -> Write:
        chance = self._chance
        row: Key = [("name", chance.choice(NAMES)), ("number", chance.randrange(3))]
        kind = chance.choice(["PUT", "UPDATE", "UPDATE", "DELETE"])
        if kind == "DELETE":
            return Write("DELETE", row)
        names = chance.sample("abcde", chance.randint(1 if kind == "UPDATE" else 0, 4))
        changes: list[Any] = [Put(name, self._value(name)) for name in names]
        if kind == "PUT":
            return Write("PUT", row, changes)
        gone = [Delete(name) for name in "abcde" if name not in names and chance.random() < 0.2]
        return Write("UPDATE", row, changes + gone)

    def _value(self, name: str) -> Scalar:
        chance = self._chance
        kind = chance.choice("abcde") if self._history.mixed else name
        values: dict[str, Scalar] = {
            "a": chance.choice([0, -1, 2**63 - 1, -(2**63), chance.randrange(1000)]),
            "b": chance.choice([0.0, -1.5, 1e300, chance.random()]),
            "c": chance.choice(["", "it's", 'a "b"', "äß 你好", "line\nbreak", "x" * 300]),
            "d": chance.random() < 0.5,
            "e": chance.randbytes(chance.choice([0, 1, 40])),
        }
        return values[kind]

    # Shards.

    def _reshape(self, operation: str, fields: dict[str, Any]) -> None:
        try:
            self._client.call_json(operation, {"table": self._table, **fields})
        except ServerError as error:
            if error.code not in ("OTSParameterInvalid", "OTSObjectNotExist"):
                raise  # A shard that can't be split or merged at this point stays as it is.

    def _living(self) -> list[str]:
        reply = self._client.call_json("RowtideListShards", {"table": self._table})
        return [s["shard"] for s in reply["shards"] if s["state"] == "open"]

    def _split(self) -> None:
        shard, at = self._chance.choice(self._living()), self._chance.choice(NAMES)
        self._reshape("RowtideSplitShard", {"shard": shard, "at": at})

    def _move(self) -> None:
        shard, slot = self._chance.choice(self._living()), self._chance.randrange(SLOTS)
        self._reshape("RowtideMoveShard", {"shard": shard, "slot": slot})

    def _merge(self) -> None:
        living = self._living()
        if len(living) > 1:
            at = self._chance.randrange(len(living) - 1)
            self._reshape("RowtideMergeShards", {"shards": living[at : at + 2]})

    # The end.

    def _table_rows(self) -> dict[bytes, Columns]:
        low: list[tuple[str, Any]] = [(column.name, Special.INF_MIN) for column in KEY]
        high: list[tuple[str, Any]] = [(column.name, Special.INF_MAX) for column in KEY]
        found: dict[bytes, Columns] = {}
        for page in self._client.get_range(self._table, low, high):
            for row in page:
                values = [variant.encode(value) for _, value in row.key]
                found[key_order.encode(values)] = {put.name: put.value for put in row.columns}
        return found

    def _expect_rows(self) -> dict[bytes, Columns]:
        columns = self._history.columns
        if columns is None:
            columns = (
                cast(Comparable, self._sink).convert_columns if not self._history.read else dict
            )
        return {key: dict(columns(row)) for key, row in self._table_rows().items()}

    def _read_rows(self) -> dict[bytes, Columns]:
        if self._history.read is not None:
            return {key: dict(row) for key, row in self._history.read().items()}
        return asyncio.run(self._read_sink_rows())

    def _make_sink(self) -> Any:
        where = f"connectors.{self._name}.sink"
        folder = str(self._processes.folder / "connectors" / self._name)
        fields = Fields(self._history.settings, where, environment=os.environ)
        return make_sink(fields, ConnectorContext(self._name, folder))

    async def _read_sink_rows(self) -> dict[bytes, Columns]:
        sink = self._sink = self._make_sink()
        await sink.open(TableShape(self._table, KEY))
        try:
            rows = await sink.read_rows(b"", b"", limit=100_000)
        finally:
            await sink.close()
        return {row.key_bytes: dict(row.columns) for row in rows}


def _difference(expected: Mapping[bytes, Columns], held: Mapping[bytes, Columns]) -> str:
    keys: Sequence[bytes] = sorted(expected.keys() | held.keys())
    lines = [
        f"{key!r}: table {expected.get(key)}, sink {held.get(key)}"
        for key in keys
        if expected.get(key) != held.get(key)
    ]
    return "\n".join(lines[:20])
