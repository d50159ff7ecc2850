"""What rowtide gets of a source's columns, and what its settings may not say."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.rows import SourceRow, TableShape
from rowtide.connectors.runtime.declaration import judge, parse_document, parse_file
from rowtide.connectors.runtime.declarations import DeclaredConnector
from rowtide.connectors.runtime.masking import ROWS_UNTIL_WARNING, Masking, MaskingTarget
from rowtide.connectors.runtime.planning import plan_changes
from rowtide.connectors.runtime.source_columns import hash_value, parse_columns
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import INTEGER, KeyColumn
from tests.connectors.memory_target import MemoryTarget

SECRET = "0123456789abcdef"
SOURCE = {"kind": "mysql", "host": "h", "user": "u", "tables": ["shop.*"], "names": {"shop.b": "x"}}


def rules(text: str) -> Masking:
    """Return what masks the table ``t``."""
    parsed = parse_columns(Fields(yaml.safe_load(text), "columns"))
    return Masking({name.removeprefix("shop."): rule for name, rule in parsed.items()})


def row(columns: Mapping[str, Any] | None, *, whole: bool = True, table: str = "t") -> SourceRow:
    return SourceRow(table, (("id", 1),), columns, whole, 5, b"p")


def digest(text: bytes) -> str:
    return hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()


HASH = "{mask: {shop.t: {a: hash}}, secret: 0123456789abcdef}"


@pytest.mark.parametrize(
    ("settings", "columns", "found"),
    [
        ("{without: {shop.t: [a]}}", {"a": 1, "b": 2}, {"b": 2}),
        ("{without: {shop.t: [a]}}", {"A": 1, "aa": 2}, {"aa": 2}),
        ("{without: {shop.t: [A, c]}}", {"a": 1, "b": 2}, {"b": 2}),
        ("{without: {shop.t: [a.b]}}", {"a.b": 1, "a": 2}, {"a": 2}),
        ("{without: {shop.t: [a]}}", {"a": 1}, {}),
        ("{only: {shop.t: [a]}}", {"a": 1, "A": 2, "b": 3}, {"a": 1}),
        ("{only: {shop.t: [a]}, mask: {shop.t: {a: redact}}}", {"a": 1, "b": 2}, {"a": "***"}),
        ("{mask: {shop.t: {a: redact}}}", {"a": "", "b": 2}, {"a": "***", "b": 2}),
        ("{mask: {shop.t: {a: redact}}}", {"a": None, "b": 2}, {"a": None, "b": 2}),
        (HASH, {"a": "x", "b": "x"}, {"a": digest(b"x"), "b": "x"}),
        (HASH, {"a": None}, {"a": None}),
        (HASH, {"a": "ü"}, {"a": digest("ü".encode())}),
        (HASH, {"a": b"\xff"}, {"a": digest(b"\xff")}),
        (HASH, {"a": 7}, {"a": hash_value("7", SECRET.encode())}),
        (HASH, {"a": -(2**63)}, {"a": digest(b"-9223372036854775808")}),
        (HASH, {"a": True}, {"a": digest(b"true")}),
        (HASH, {"a": 1.5}, {"a": digest(b"1.5")}),
        (HASH, {"a": "\ud800"}, {"a": digest(b"\xed\xa0\x80")}),
    ],
)
def test_columns_are_left_out_or_masked(
    settings: str, columns: dict[str, Any], found: dict[str, Any]
) -> None:
    masking = rules(settings)
    made = masking.row(row(columns))
    assert made == row(found)
    assert made is not None
    # A row that was prepared comes again when it is written.
    assert masking.row(made) is made
    assert masking.rows([made]) == [row(found)]
    assert masking.row(row(columns, table="other")) == row(columns, table="other")


def test_an_update_of_nothing_that_rowtide_has_is_left_out() -> None:
    masking = rules("{without: {shop.t: [a]}}")
    rows = [row({"a": 1}, whole=False), row({"a": None, "b": 2}, whole=False), row(None), row({})]
    assert masking.rows(rows) == [row({"b": 2}, whole=False), row(None), row({})]
    others = [row({"a": 1}, table="other")]
    assert masking.rows(others) is others


REFUSED = """
[]
{with: {shop.t: [a]}}
{without: [shop.t.a]}
{without: {shop.t: a}}
{without: {shop.t: []}}
{without: {shop.t: [1]}}
{only: {shop.t: [a]}, without: {shop.t: [b]}}
{only: {shop.t: [a]}, mask: {shop.t: {b: redact}}}
{without: {shop.t: [a]}, mask: {shop.t: {A: redact}}}
{mask: {shop.t: {}}}
{mask: {shop.t: [a]}}
{mask: {shop.t: {a: sha1}}}
{mask: {shop.t: {a: hash}}}
{mask: {shop.t: {a: hash}}, secret: short}
{mask: {shop.t: {a: hash}}, secret: 1}
"""


@pytest.mark.parametrize("text", [line for line in REFUSED.splitlines() if line])
def test_what_a_file_may_not_say_of_columns(text: str) -> None:
    with pytest.raises(SettingsRefused):
        parse_file(f"connectors: {{a: {{source: {{kind: mysql}}, columns: {text}}}}}", "file")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"without": {"shop.a": ["x"], "shop.b": ["y"]}}, None),
        ({"without": {"a": ["x"]}}, "'a', but the source follows no such table"),
        ({"without": {"crm.a": ["x"]}}, "'crm.a', but the source follows no such table"),
        ({"mask": {"shop.a": {"x": "hash"}}, "secret": "${LONG}"}, None),
        ({"mask": {"shop.a": {"x": "hash"}}, "secret": "${SHORT}"}, "16 bytes or more"),
    ],
)
def test_tables_and_secrets_are_judged_where_they_are_known(
    columns: dict[str, Any], why: str | None
) -> None:
    declared = parse_document("a", {"source": SOURCE, "columns": columns})
    environment = {"LONG": SECRET, "SHORT": "x"}
    if why is None:
        assert judge(declared, environment) == []
    else:
        with pytest.raises(SettingsRefused, match=why):
            judge(declared, environment)
    if "secret" in columns:
        assert "is not set here" in judge(declared, {})[0]


def test_a_source_that_does_not_know_its_tables_masks_nothing() -> None:
    source = {"kind": "tests.connectors.lines_source", "path": "p", "table": "t"}
    declared = parse_document("a", {"source": source, "columns": {"without": {"t": ["x"]}}})
    with pytest.raises(SettingsRefused, match="can't leave out or mask columns"):
        judge(declared, {})


@pytest.mark.parametrize(
    "settings",
    ["{without: {shop.t: [a, id]}}", "{mask: {shop.t: {ID: redact}}}", HASH.replace("a:", "id:")],
)
def test_columns_of_a_key_stay(settings: str) -> None:
    shape = TableShape("t", (KeyColumn("id", INTEGER),))
    with pytest.raises(Rejected, match="id, of the key of table 't'") as refused:
        rules(settings).check(shape)
    assert refused.value.code == "OTSParameterInvalid"
    rules(settings).check(shape._replace(name="other"))
    rules("{only: {shop.t: [a]}}").check(shape)


def test_a_name_that_no_row_has_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    masking = rules("{without: {shop.t: [a]}, mask: {shop.t: {emial: redact}}}")
    for _ in range(3 * ROWS_UNTIL_WARNING):
        masking.row(row({"a": 1, "email": "x"}))
    assert [record.message for record in caplog.records] == [
        "table t: none of the first 1000 rows has a value in emial, which is left out or "
        "masked; check the names"
    ]


async def test_a_table_that_is_not_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A pattern matches any name, so a misspelt one is not refused."""
    caplog.set_level(logging.WARNING)
    target = MaskingTarget(MemoryTarget(), rules("{without: {shop.t: [a], shop.tt: [b]}}"))
    await target.ensure_table(TableShape("t", (KeyColumn("id", INTEGER),)))
    for _ in range(2):
        await target.keep(b"x")
    assert [record.message for record in caplog.records] == [
        "the settings name columns of tt, but the source follows no such table now; check the names"
    ]


def test_a_plan_says_that_rows_are_there_as_they_were_and_shows_no_secret() -> None:
    old = parse_document("a", {"source": SOURCE})
    columns = {"mask": {"shop.a": {"x": "hash"}}, "secret": SECRET}
    new = parse_document("a", {"source": SOURCE, "columns": columns})
    kept = {"a": DeclaredConnector("a", old, old.text, paused=False, asked=0)}
    plan = plan_changes([new], kept, prune=False)
    assert plan.to_send_again == ["a"]
    assert SECRET not in repr(plan.changed[0][1])
