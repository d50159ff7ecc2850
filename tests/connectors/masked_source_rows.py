"""Columns that rowtide does not get, or gets masked: one story for every kind of source."""

from __future__ import annotations

import hashlib
import hmac
import json

from click.testing import CliRunner

from rowtide.cli.main import main
from tests.connectors.parked_source_rows import LARGE, Told
from tests.support.waiting import until

__all__ = ["SECRET", "columns_of", "tell_masked"]

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


def tell_masked(told: Told) -> None:
    """Copy rows, change them, park one and retry it; ``verify`` finds both ends equal."""
    told.change(f"INSERT INTO {{}} VALUES (1, 'one', 1, {_person(1)}), (2, 'two', 2, {_person(2)})")
    told.change("INSERT INTO {} VALUES (3, 'three', 3, NULL, NULL, NULL)")
    told.processes.start(told.name)
    masked = {number: {"email": _mask_email(number), "card": "***"} for number in (1, 2, 9)}
    told.until_row(1, {"v": "one", "n": 1, **masked[1]})
    told.until_row(2, {"v": "two", "n": 2, **masked[2]})
    told.until_row(3, {"v": "three", "n": 3})
    told.change(f"UPDATE {{}} SET email = {_email(9)}, password = 'hunter2x' WHERE id = 1")
    told.until_row(1, {"v": "one", "n": 1, **masked[9]})
    # Nothing of it is for rowtide.
    told.change("UPDATE {} SET password = 'hunter2y' WHERE id = 2")
    told.change("UPDATE {} SET card = NULL WHERE id = 2")
    told.until_row(2, {"v": "two", "n": 2, "email": _mask_email(2)})
    told.change(f"UPDATE {{}} SET v = {LARGE}, email = {_email(3)} WHERE id = 2")
    until(lambda: len(told.parked()) == 1, message=told.processes.said)
    [entry] = told.parked()
    shown = told.connector("parked", "show", told.name, entry["id"])
    told.want("retry")
    assert len(told.parked()) == 1
    told.change("UPDATE {} SET v = 'small' WHERE id = 2")
    told.want("retry")
    told.until_row(2, {"v": "small", "n": 2, "email": _mask_email(3)})
    logged = told.connector("logs", told.name) + told.processes.said()
    status = told.connector("status", told.name, "-o", "json")
    for text in PLAIN:
        assert text not in shown + logged + json.dumps(status)
    _compare(told)


def _compare(told: Told) -> None:
    found = CliRunner().invoke(main, ["verify", told.name, told.table])
    assert found.exit_code == 0, found.output
    assert "equal" in found.output
    told.processes.stop_all()
    told.change(f"UPDATE {{}} SET email = {_email(4)} WHERE id = 1")
    found = CliRunner().invoke(main, ["verify", told.name, told.table])
    assert found.exit_code == 1
    assert "different  1: email" in found.output


def _email(number: int) -> str:
    return f"'{number}@example.org'"


def _person(number: int) -> str:
    return f"{_email(number)}, '4111-1111-{number}', 'hunter2'"


def _mask_email(number: int) -> str:
    text = f"{number}@example.org".encode()
    return hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()
