"""Several clients that write at once and remember the outcomes.

Each writer has rows of its own, so it knows their history: per row the attempts in order, each
applied, refused, or unknown (no answer, or OTSTimeout). All writers also count in shared rows.
Every put and update carries a mark that no other attempt has. Writers retry nothing; while the
server is away they knock.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from rowtide.cli.client import NoAnswer, NotConnected, ProtocolClient, ServerError, Write
from rowtide.client.wire_row import Change, Delete, Increment, Key, Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.system.server import Server
from tests.system.writing import Writing

__all__ = ["SHARED", "TABLE", "Attempt", "Load", "Outcome", "create_table"]

TABLE = "faults"
VERSIONS = 3
SHARED = ("counter-0", "counter-1")
ROWS, WIDE_ROWS = 20, 2
WIDE_CELL = "x" * 3000
KNOCK_S = 0.05
REFUSALS = frozenset({"OTSPartitionUnavailable", "OTSServerBusy", "OTSServerUnavailable"})


class Outcome(Enum):
    """What a writer knows of an attempt."""

    APPLIED = "applied"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Attempt:
    """One write of one row, and its outcome for the writer; ``mark`` is None for a delete."""

    kind: str
    key: str
    mark: str | None
    outcome: Outcome


@dataclass(slots=True)
class Written:
    """What the writers did: attempts in each writer's order, and what contradicted a read."""

    attempts: list[Attempt] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    applied: int = 0


def create_table(client: ProtocolClient, *, stream: bool = True) -> None:
    """Create the table that the load writes."""
    client.create_table(
        TABLE,
        [KeyColumn("name", STRING), KeyColumn("number", INTEGER)],
        options=pb.TableOptions(max_versions=VERSIONS, time_to_live=-1),
        stream=pb.StreamSpecification(enable_stream=True, expiration_time=24) if stream else None,
    )


def key_of(name: str) -> Key:
    """Return the key of a row that is known by its name."""
    return (("name", name), ("number", len(name)))


class Load(Writing["Writer"]):
    """Writers against ``server``, on threads; ``seed`` decides what they write.

    Writers have numbers from ``first`` on: those of another load need others.
    """

    def __init__(self, server: Server, *, seed: int, writers: int = 4, first: int = 0) -> None:
        stop = threading.Event()
        numbers = range(first, first + writers)
        super().__init__(stop, [Writer(server, stop, number, seed) for number in numbers])

    @property
    def applied(self) -> int:
        """Number of rows whose write was acknowledged so far."""
        return sum(writer.written.applied for writer in self.writers)

    @property
    def failed(self) -> int:
        """Number of rows whose write was not acknowledged so far."""
        return sum(len(writer.written.attempts) for writer in self.writers) - self.applied

    @property
    def written(self) -> list[Written]:
        """What each writer did; complete once the load has stopped."""
        return [writer.written for writer in self.writers]


class Writer(threading.Thread):
    """One client on a thread of its own."""

    def __init__(self, server: Server, stop: threading.Event, number: int, seed: int) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.written = Written()
        self._server = server
        self._halt = stop
        self._number = number
        self._random = random.Random(seed * 1000 + number)
        self._names = [f"w{number}-{row}" for row in range(ROWS)]
        self._wide = [f"wide{number}-{row}" for row in range(WIDE_ROWS)]
        self._client: ProtocolClient | None = None
        self._next_mark = 0
        self._columns: dict[str, dict[str, str] | None] = {}
        """What a row's columns must be, None where it is absent; no entry where that's unsure."""

    def run(self) -> None:
        """Write until the load stops."""
        steps = [self._write_one] * 8 + [self._write_batch] * 2 + [self._count, self._read]
        while not self._halt.is_set():
            self._random.choice(steps)()
        if self._client is not None:
            self._client.close()

    # Steps.

    def _write_one(self) -> None:
        write, mark = self._random_write(self._random.choice(self._names + self._wide))
        outcomes = self._send([write])
        self._note(write, mark, outcomes[0])

    def _write_batch(self) -> None:
        names = self._random.sample(self._names, 5)
        writes = [self._random_write(name) for name in names]
        outcomes = self._send([write for write, _ in writes], batch=True)
        for (write, mark), one in zip(writes, outcomes, strict=True):
            self._note(write, mark, one)

    def _count(self) -> None:
        name, mark = self._random.choice(SHARED), self._mark()
        write = Write("UPDATE", key_of(name), [Put("mark", mark), Increment("n", 1)])
        self._remember(Attempt("UPDATE", name, mark, self._send([write])[0]))

    def _read(self) -> None:
        """A read after an acknowledged write sees it."""
        if not self._columns:
            return
        name = self._random.choice(list(self._columns))
        try:
            row = self._connect().get_row(TABLE, key_of(name))
        except (NoAnswer, ServerError, FileNotFoundError) as error:
            self._handle_failure(error)
            return
        found = None if row is None else {put.name: str(put.value) for put in row.columns}
        if found != self._columns[name]:
            self.written.faults.append(_difference(name, found, self._columns[name]))

    # Writing.

    def _random_write(self, name: str) -> tuple[Write, str | None]:
        kind = self._random.choices(["PUT", "UPDATE", "DELETE"], [4, 5, 1])[0]
        if kind == "DELETE":
            return Write("DELETE", key_of(name)), None
        mark = self._mark()
        changes: list[Change] = [Put("mark", mark)]
        wide = name in self._wide
        columns = [f"c{number:02}" for number in range(40 if wide else 6)]
        chosen = self._random.sample(columns, 25 if wide and kind == "PUT" else 3)
        value = f"{mark} {WIDE_CELL if wide else ''}"
        for column in sorted(chosen):
            gone = kind == "UPDATE" and self._random.random() < 0.3
            changes.append(Delete(column) if gone else Put(column, value))
        return Write("PUT" if kind == "PUT" else "UPDATE", key_of(name), changes), mark

    def _mark(self) -> str:
        self._next_mark += 1
        return f"{self._number}.{self._next_mark}"

    def _send(self, writes: Sequence[Write], *, batch: bool = False) -> list[Outcome]:
        try:
            client = self._connect()
            if batch:
                return [_classify_error(error) for error in client.batch_write_row({TABLE: writes})]
            [write] = writes
            puts = [change for change in write.changes if isinstance(change, Put)]
            if write.kind == "PUT":
                client.put_row(TABLE, write.key, puts)
            elif write.kind == "UPDATE":
                client.update_row(TABLE, write.key, write.changes)
            else:
                client.delete_row(TABLE, write.key)
        except (NoAnswer, ServerError, FileNotFoundError) as error:
            return [self._handle_failure(error)] * len(writes)
        return [Outcome.APPLIED]

    def _connect(self) -> ProtocolClient:
        if self._client is None:
            self._client = self._server.client()
        return self._client

    def _handle_failure(self, error: Exception) -> Outcome:
        """Knock again a little later; a server that came back may have another address."""
        if isinstance(error, NoAnswer) and self._client is not None:
            self._client.close()
            self._client = None
        self._halt.wait(KNOCK_S)
        if isinstance(error, FileNotFoundError | NotConnected):
            return Outcome.REFUSED
        return _classify_error(error) if isinstance(error, ServerError) else Outcome.UNKNOWN

    # Remembering.

    def _note(self, write: Write, mark: str | None, outcome: Outcome) -> None:
        name = str(write.key[0][1])
        self._remember(Attempt(write.kind, name, mark, outcome))
        if outcome is Outcome.UNKNOWN:
            self._columns.pop(name, None)
        elif outcome is Outcome.APPLIED and write.kind == "DELETE":
            self._columns[name] = None
        elif outcome is Outcome.APPLIED and (write.kind == "PUT" or name in self._columns):
            columns = {} if write.kind == "PUT" else (self._columns[name] or {})
            for change in write.changes:
                columns.pop(change.name, None)
                if isinstance(change, Put):
                    columns[change.name] = str(change.value)
            self._columns[name] = columns

    def _remember(self, attempt: Attempt) -> None:
        self.written.attempts.append(attempt)
        self.written.applied += attempt.outcome is Outcome.APPLIED


def _difference(name: str, found: dict[str, str] | None, wrote: dict[str, str] | None) -> str:
    """Return what differs between a read and the writes before it, values by their marks."""
    if found is None or wrote is None:
        return f"{name}: read {_absent(found)}, wrote {_absent(wrote)}"
    columns = sorted(set(found) | set(wrote))
    return f"{name}: column, read, wrote: " + ", ".join(
        f"{column} {found.get(column, '-')[:8].strip()} {wrote.get(column, '-')[:8].strip()}"
        for column in columns
        if found.get(column) != wrote.get(column)
    )


def _absent(columns: dict[str, str] | None) -> str:
    return "no row" if columns is None else f"{len(columns)} columns"


def _classify_error(error: ServerError | None) -> Outcome:
    if error is None:
        return Outcome.APPLIED
    if error.code == "OTSTimeout":
        return Outcome.UNKNOWN
    if error.code in REFUSALS:
        return Outcome.REFUSED
    raise AssertionError(f"a writer got {error} (HTTP {error.status})")
