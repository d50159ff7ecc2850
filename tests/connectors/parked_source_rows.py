"""What becomes of a source's rows that rowtide refuses: one story for every kind of source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rowtide.cli.client import ProtocolClient, ServerError
from tests.connectors.processes import ConnectorProcesses
from tests.connectors.runtime.conftest import Run
from tests.support.waiting import until

__all__ = ["LARGE", "Told", "tell"]

LARGE = "repeat('x', 3000000)"
"""A value in SQL that rowtide refuses."""


@dataclass(frozen=True)
class Told:
    """The source ``name`` of a table ``table`` (id, v, n), and everything around it."""

    name: str
    table: str
    execute: Callable[[str], None]
    client: ProtocolClient
    processes: ConnectorProcesses
    connector: Run

    def change(self, statement: str) -> None:
        """Run a statement about the table, {} in it."""
        self.execute(statement.format(f"shop.{self.table}"))

    def row(self, number: int) -> dict[str, Any] | None:
        """Return a row of rowtide; None where there is none."""
        try:
            found = self.client.get_row(self.table, [("id", number)])
        except ServerError:
            return None
        return None if found is None else {c.name: c.value for c in found.columns}

    def until_row(self, number: int, wanted: dict[str, Any] | None) -> None:
        until(
            lambda: self.row(number) == wanted,
            message=lambda: (self.row(number), self.processes.said()),
        )

    def passed(self, number: int) -> None:
        """Have the source pass everything that was done so far: a row that comes after it."""
        self.change(f"INSERT INTO {{}} VALUES ({number}, 'later', NULL)")
        self.until_row(number, {"v": "later"})

    def parked(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.connector(
            "parked", "list", self.name, "--output", "json"
        )
        return found

    def waiting(self) -> list[int]:
        return [entry["waiting"] for entry in self.parked()]

    def want(self, what: str) -> None:
        """Retry or skip the one row that is parked, and wait until that was done."""
        [entry] = self.parked()
        self.connector("parked", what, self.name, entry["id"])
        until(
            lambda: all(entry["wanted"] is None for entry in self.parked()),
            message=self.processes.said,
        )


def tell(told: Told) -> None:
    """Refuse a row; hold its key back through a crash; retry it, skip another."""
    told.change("INSERT INTO {} VALUES (1, 'one', 1), (2, 'two', 2)")
    told.processes.start(told.name)
    told.until_row(2, {"v": "two", "n": 2})
    told.change(f"UPDATE {{}} SET v = {LARGE} WHERE id = 2")
    told.passed(10)
    [entry] = told.parked()
    assert f"table {told.table}" in entry["reason"]
    assert told.waiting() == [0]
    # What comes later of the key waits, also after a crash.
    told.change("UPDATE {} SET n = 3 WHERE id = 2")
    told.passed(11)
    assert told.waiting() == [1]
    told.processes.kill()
    told.processes.start(told.name)
    told.passed(12)
    assert told.row(2) == {"v": "two", "n": 2}
    # The row is read from the source again, where it is still too large.
    told.want("retry")
    assert told.waiting() == [0]
    told.change("UPDATE {} SET v = 'small' WHERE id = 2")
    told.passed(13)
    told.want("retry")
    assert told.parked() == []
    assert told.row(2) == {"v": "small", "n": 3}
    told.change("UPDATE {} SET n = 4 WHERE id = 2")
    told.until_row(2, {"v": "small", "n": 4})
    _skip(told)
    _is_gone_by_now(told)


def _skip(told: Told) -> None:
    told.change(f"INSERT INTO {{}} VALUES (3, {LARGE}, 1)")
    told.passed(14)
    told.want("skip")
    assert (told.parked(), told.row(3)) == ([], None)
    told.change("UPDATE {} SET v = 'three' WHERE id = 3")
    told.passed(15)
    # What waits behind a row that is skipped is not lost with it.
    told.change(f"UPDATE {{}} SET v = {LARGE} WHERE id = 1")
    told.change("UPDATE {} SET v = 'uno', n = 7 WHERE id = 1")
    told.passed(16)
    assert told.waiting() == [1]
    told.want("skip")
    assert (told.parked(), told.row(1)) == ([], {"v": "uno", "n": 7})


def _is_gone_by_now(told: Told) -> None:
    told.change(f"UPDATE {{}} SET v = {LARGE} WHERE id = 1")
    told.change("DELETE FROM {} WHERE id = 1")
    told.passed(17)
    assert told.row(1) == {"v": "uno", "n": 7}
    told.want("retry")
    assert (told.parked(), told.row(1)) == ([], None)
