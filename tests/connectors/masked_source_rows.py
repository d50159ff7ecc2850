"""Columns that rowtide does not get, or gets masked: one story for every kind of source."""

from __future__ import annotations

import hashlib
import hmac
import json

from click.testing import CliRunner

from rowtide.cli.main import main
from tests.connectors.parked_source_rows import LARGE, ParkedStory
from tests.support.waiting import until

__all__ = ["SECRET", "check_masked_rows", "columns_of"]

SECRET = "a-secret-that-nobody-guesses"
PLAIN = ("@example.org", "4111-1111", "hunter2")
"""What must be nowhere."""


def columns_of(table: str) -> dict[str, object]:
    """Return the settings of the table (id, v, n, email, card, password)."""
    return {
        "without": {table: ["password"]},
        "mask": {table: {"email": "hash", "card": "redact"}},
        "secret": "${ROWTIDE_TEST_MASK}",
    }


def check_masked_rows(story: ParkedStory) -> None:
    """Copy rows, change them, park one and retry it; ``verify`` finds both ends equal."""
    story.change(
        f"INSERT INTO {{}} VALUES (1, 'one', 1, {_person(1)}), (2, 'two', 2, {_person(2)})"
    )
    story.change("INSERT INTO {} VALUES (3, 'three', 3, NULL, NULL, NULL)")
    story.processes.start(story.name)
    masked = {number: {"email": _mask_email(number), "card": "***"} for number in (1, 2, 9)}
    story.wait_until_row(1, {"v": "one", "n": 1, **masked[1]})
    story.wait_until_row(2, {"v": "two", "n": 2, **masked[2]})
    story.wait_until_row(3, {"v": "three", "n": 3})
    story.change(f"UPDATE {{}} SET email = {_email(9)}, password = 'hunter2x' WHERE id = 1")
    story.wait_until_row(1, {"v": "one", "n": 1, **masked[9]})
    # Nothing of it is for rowtide.
    story.change("UPDATE {} SET password = 'hunter2y' WHERE id = 2")
    story.change("UPDATE {} SET card = NULL WHERE id = 2")
    story.wait_until_row(2, {"v": "two", "n": 2, "email": _mask_email(2)})
    story.change(f"UPDATE {{}} SET v = {LARGE}, email = {_email(3)} WHERE id = 2")
    until(lambda: len(story.list_parked()) == 1, message=story.processes.said)
    [entry] = story.list_parked()
    shown = story.connector("parked", "show", story.name, entry["id"])
    story.want("retry")
    assert len(story.list_parked()) == 1
    story.change("UPDATE {} SET v = 'small' WHERE id = 2")
    story.want("retry")
    story.wait_until_row(2, {"v": "small", "n": 2, "email": _mask_email(3)})
    logged = story.connector("logs", story.name) + story.processes.said()
    status = story.connector("status", story.name, "-o", "json")
    for text in PLAIN:
        assert text not in shown + logged + json.dumps(status)
    _compare(story)


def _compare(story: ParkedStory) -> None:
    found = CliRunner().invoke(main, ["verify", story.name, story.table])
    assert found.exit_code == 0, found.output
    assert "equal" in found.output
    story.processes.stop_all()
    story.change(f"UPDATE {{}} SET email = {_email(4)} WHERE id = 1")
    found = CliRunner().invoke(main, ["verify", story.name, story.table])
    assert found.exit_code == 1
    assert "different  1: email" in found.output


def _email(number: int) -> str:
    return f"'{number}@example.org'"


def _person(number: int) -> str:
    return f"{_email(number)}, '4111-1111-{number}', 'hunter2'"


def _mask_email(number: int) -> str:
    text = f"{number}@example.org".encode()
    return hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()
