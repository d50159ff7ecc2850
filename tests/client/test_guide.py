"""The examples of docs/guides/client.md do what the page says, in the order of the page."""

from __future__ import annotations

import asyncio
import doctest
import re
from pathlib import Path
from typing import Any

import pytest

from rowtide.client import Client
from rowtide.testing.instance import InstanceAccess

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/client.md"
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Enough(Exception):
    """Ends a loop over changes that has no end of its own."""


def run_page(names: dict[str, Any]) -> None:
    """Run every example of the page; fail with the first whose result is another."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for number, (kind, text) in enumerate(BLOCK.findall(PAGE.read_text(encoding="utf-8"))):
        if kind == "python":
            exec(compile(text, f"{PAGE.name}, example {number}", "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(text, names, f"example {number}", None, 0)
        report: list[str] = []
        failed = runner.run(example, out=report.append, clear_globs=False).failed
        names.update(example.globs)
        assert not failed, "".join(report)


def test_the_page_does_what_it_says(access: dict[str, Any]) -> None:
    names: dict[str, Any] = {**access}
    run_page(names)
    client = names["client"]
    assert isinstance(client, Client)
    mails: list[str] = []

    def send(text: str) -> None:
        mails.append(text)
        if len(mails) == 3:
            raise Enough

    with pytest.raises(Enough):
        names["send_mails"](client, send)
    assert mails == ["ada: order 1", "ada: order 2", "bob: order 3"]
    assert asyncio.run(names["first_orders"](access, 3)) == [1, 1, 1]
    assert names["record"](client, {"customer": "ada", "number": 7, "paid": True}) == "recorded"
    orders = names["Orders"](client)
    assert (orders.is_paid("ada", 7), orders.is_paid("ada", 8)) == (True, False)
    client.close()


def test_an_instance_of_the_plugin_connects(rowtide_instance: InstanceAccess) -> None:
    with rowtide_instance.connect(timeout_s=5.0) as client:
        client.create_table("t", {"k": int})
        assert client.list_tables() == ["t"]


def test_the_reader_that_is_told_to_stop_stops(
    access: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {**access}
    run_page(names)
    handlers: list[Any] = []
    monkeypatch.setattr("signal.signal", lambda _, handler: handlers.append(handler))
    rows: list[Any] = []

    def send(row: Any) -> None:
        rows.append(row)
        if len(rows) == 2:
            handlers[0]()

    names["send_mails_until_told"](names["client"], send)
    assert len(rows) == 2
    names["client"].close()
