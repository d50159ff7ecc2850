"""What becomes of a source's rows that rowtide refuses: one story for every kind of source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rowtide.cli.client import ProtocolClient, ServerError
from tests.connectors.processes import ConnectorProcesses
from tests.connectors.runtime.conftest import Run
from tests.support.waiting import until

__all__ = ["LARGE", "ParkedStory", "check_parked_rows"]

LARGE = "repeat('x', 3000000)"
"""A value in SQL that rowtide refuses."""


@dataclass(frozen=True)
class ParkedStory:
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

    def wait_until_row(self, number: int, wanted: dict[str, Any] | None) -> None:
        until(
            lambda: self.row(number) == wanted,
            message=lambda: (self.row(number), self.processes.said()),
        )

    def pass_source(self, number: int) -> None:
        """Have the source pass everything that was done so far: a row that comes after it."""
        self.change(f"INSERT INTO {{}} VALUES ({number}, 'later', NULL)")
        self.wait_until_row(number, {"v": "later"})

    def list_parked(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.connector(
            "parked", "list", self.name, "--output", "json"
        )
        return found

    def waiting(self) -> list[int]:
        return [entry["waiting"] for entry in self.list_parked()]

    def want(self, what: str) -> None:
        """Retry or skip the one row that is parked, and wait until that was done."""
        [entry] = self.list_parked()
        self.connector("parked", what, self.name, entry["id"])
        until(
            lambda: all(entry["wanted"] is None for entry in self.list_parked()),
            message=self.processes.said,
        )


def check_parked_rows(story: ParkedStory) -> None:
    """Refuse a row; hold its key back through a crash; retry it, skip another."""
    story.change("INSERT INTO {} VALUES (1, 'one', 1), (2, 'two', 2)")
    story.processes.start(story.name)
    story.wait_until_row(2, {"v": "two", "n": 2})
    story.change(f"UPDATE {{}} SET v = {LARGE} WHERE id = 2")
    story.pass_source(10)
    [entry] = story.list_parked()
    assert f"table {story.table}" in entry["reason"]
    assert story.waiting() == [0]
    # What comes later of the key waits, also after a crash.
    story.change("UPDATE {} SET n = 3 WHERE id = 2")
    story.pass_source(11)
    assert story.waiting() == [1]
    story.processes.kill()
    story.processes.start(story.name)
    story.pass_source(12)
    assert story.row(2) == {"v": "two", "n": 2}
    # The row is read from the source again, where it is still too large.
    story.want("retry")
    assert story.waiting() == [0]
    story.change("UPDATE {} SET v = 'small' WHERE id = 2")
    story.pass_source(13)
    story.want("retry")
    assert story.list_parked() == []
    assert story.row(2) == {"v": "small", "n": 3}
    story.change("UPDATE {} SET n = 4 WHERE id = 2")
    story.wait_until_row(2, {"v": "small", "n": 4})
    _skip(story)
    _is_gone_by_now(story)


def _skip(story: ParkedStory) -> None:
    story.change(f"INSERT INTO {{}} VALUES (3, {LARGE}, 1)")
    story.pass_source(14)
    story.want("skip")
    assert (story.list_parked(), story.row(3)) == ([], None)
    story.change("UPDATE {} SET v = 'three' WHERE id = 3")
    story.pass_source(15)
    # What waits behind a row that is skipped is not lost with it.
    story.change(f"UPDATE {{}} SET v = {LARGE} WHERE id = 1")
    story.change("UPDATE {} SET v = 'uno', n = 7 WHERE id = 1")
    story.pass_source(16)
    assert story.waiting() == [1]
    story.want("skip")
    assert (story.list_parked(), story.row(1)) == ([], {"v": "uno", "n": 7})


def _is_gone_by_now(story: ParkedStory) -> None:
    story.change(f"UPDATE {{}} SET v = {LARGE} WHERE id = 1")
    story.change("DELETE FROM {} WHERE id = 1")
    story.pass_source(17)
    assert story.row(1) == {"v": "uno", "n": 7}
    story.want("retry")
    assert (story.list_parked(), story.row(1)) == ([], None)
