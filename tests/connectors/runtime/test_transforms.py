"""What a connector makes of rows before its sink gets them, and the language of filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.rows import SinkRow, TableShape
from rowtide.connectors.runtime.row_filter import parse_test
from rowtide.connectors.runtime.row_text import read_row, row_text
from rowtide.connectors.runtime.transforms import Transforms
from rowtide.core.records.change import PUT_ROW, UPDATE
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.core.values.variant import Scalar

ROW: Mapping[str, Scalar] = {
    "id": "a",
    "status": "open",
    "amount": 10,
    "rate": 1.5,
    "urgent": True,
    "odd name": "it's",
}

TESTS = """
status = 'open'                                     | yes
status = "open"                                     | refused
status != 'open'                                    | no
status <> 'done'                                    | yes
missing != 'open'                                   | no
not missing = 'open'                                | yes
amount = '10'                                       | no
amount = 10.0                                       | yes
amount > 9 and rate <= 1.5                          | yes
amount > 9 and rate < 1.5                           | no
amount = 1 or status = 'open' and urgent = true     | yes
(amount = 1 or status = 'open') and urgent = false  | no
not amount = 1 and status = 'open'                  | yes
NOT (amount = 10 OR status = 'done')                | no
amount in (1, 10)                                   | yes
not status in ('a', 'b')                            | yes
urgent in ('true')                                  | no
amount >= 1e1                                       | yes
amount = -10                                        | no
missing is null                                     | yes
status is not null                                  | yes
"odd name" = 'it''s'                                | yes
id = 'a'                                            | yes
status =                                            | refused
status = 'open' amount = 1                          | refused
and = 1                                             | refused
status like 'o'                                     | refused
(status = 'open'                                    | refused
status = 'open                                      | refused
amount in ()                                        | refused
"""


@pytest.mark.parametrize("line", [line for line in TESTS.splitlines() if line])
def test_a_filter_says_which_rows_stay(line: str) -> None:
    text, expected = (part.strip() for part in line.rsplit("|", 1))
    try:
        found = "yes" if parse_test(text, "filter").holds(ROW) else "no"
    except SettingsRefused:
        found = "refused"
    assert found == expected


def test_a_filter_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(SettingsRefused, match="nested"):
        parse_test("(" * 500 + "a = 1" + ")" * 500, "filter")


def transforms(**settings: object) -> Transforms:
    fields = Fields(settings, "connectors.c")
    found = Transforms.parse(fields)
    fields.refuse_unknown()
    return found


def row(**columns: Scalar) -> SinkRow:
    return SinkRow((("id", "k"),), b"k", 5, columns, PUT_ROW)


def make_rows(done: Transforms, given: SinkRow) -> list[SinkRow]:
    return list(done.make_rows(given, done.load()))


def test_columns_are_chosen_and_renamed_and_the_key_stays() -> None:
    done = transforms(columns={"only": ["a", "b"], "rename": {"a": "x", "id": "key"}})
    [found] = make_rows(done, row(a=1, b=2, c=3))
    assert (found.key, found.columns, found.stamp) == ((("key", "k"),), {"x": 1, "b": 2}, 5)
    shape = done.shape(TableShape("t", (KeyColumn("id", STRING),)))
    assert shape.key == (KeyColumn("key", STRING),)


def test_columns_may_be_left_out() -> None:
    [found] = make_rows(transforms(columns={"without": ["a"]}), row(a=1, b=2))
    assert found.columns == {"b": 2}


def test_a_row_that_the_filter_leaves_out_does_not_exist_for_the_sink() -> None:
    done = transforms(filter="a = 1 and id = 'k'")
    assert make_rows(done, row(a=1))[0].columns == {"a": 1}
    [gone] = make_rows(done, row(a=2))
    assert (gone.columns, gone.stamp) == (None, 5)


def test_the_filter_sees_columns_that_the_sink_does_not_get() -> None:
    done = transforms(filter="a = 1", columns={"only": ["b"]})
    assert done.wanted == ("a", "b")
    assert make_rows(done, row(a=1, b=2))[0].columns == {"b": 2}


def double_n(given: SinkRow) -> SinkRow | None:
    """Be the function of a test."""
    if given.columns is None or "n" not in given.columns:
        return None
    given.columns = {"n": int(given.columns["n"]) * 2}
    return given


def test_a_function_makes_rows_of_rows_and_none_is_a_deletion() -> None:
    done = transforms(transform=f"{__name__}:double_n")
    assert make_rows(done, row(n=2))[0].columns == {"n": 4}
    assert make_rows(done, row(m=2))[0].columns is None


def test_a_function_gets_a_row_of_its_own() -> None:
    """A row that it had changed in place was parked so, and changed once more by a retry."""
    given = row(n=2)
    make_rows(transforms(transform=f"{__name__}:double_n"), given)
    make_rows(transforms(transform=f"{__name__}:clear_columns"), given)
    assert given == row(n=2)


def clear_columns(given: SinkRow) -> SinkRow:
    """Be a function that changes what it gets."""
    assert isinstance(given.columns, dict)
    given.columns.clear()
    return given


def late(given: SinkRow) -> Iterator[SinkRow]:
    """A function that fails only while its rows are read."""
    yield given
    raise ValueError("late")


def document(given: SinkRow) -> object:
    """Be a function that returns no row."""
    return dict(given.columns or {})


@pytest.mark.parametrize(("name", "why"), [("late", "late"), ("document", "returned a dict")])
def test_what_a_function_gives_is_looked_at_while_it_is_its_fault(name: str, why: str) -> None:
    """It ended the connector where it should have parked a row."""
    done = transforms(transform=f"{__name__}:{name}")
    with pytest.raises((ValueError, TypeError), match=why):
        done.make_rows(row(n=2), done.load())


def test_a_name_that_a_row_has_already_is_no_name_for_another_column() -> None:
    """Which of the two values the target had was chance."""
    done = transforms(columns={"rename": {"a": "b", "c": "d"}})
    assert make_rows(done, row(a=1, c=2))[0].columns == {"b": 1, "d": 2}
    with pytest.raises(ValueError, match="gives two columns the name 'b'"):
        make_rows(done, row(a=1, b=2))
    swapped = transforms(columns={"rename": {"a": "b", "b": "a"}})
    assert make_rows(swapped, row(a=1, b=2))[0].columns == {"b": 1, "a": 2}


@pytest.mark.parametrize("text", ["no-colon", "no.such.module:f", f"{__name__}:nothing", ":f"])
def test_a_function_that_can_not_be_had_is_refused(text: str) -> None:
    with pytest.raises(SettingsRefused):
        transforms(transform=text).load()


@pytest.mark.parametrize(
    "columns",
    [
        {"only": ["a"], "without": ["b"]},
        {"rename": {"a": "x", "b": "x"}},
        {"rename": {"a": 1}},
        {"onlly": ["a"]},
    ],
)
def test_wrong_columns_are_refused(columns: object) -> None:
    with pytest.raises(SettingsRefused):
        transforms(columns=columns)


def test_a_row_is_read_again_as_it_was_written() -> None:
    columns: dict[str, Scalar] = {"i": 1, "d": 1.0, "b": b"\x00\xff", "t": "ä", "y": True}
    given = SinkRow((("id", b"\x01"),), b"k", 7, {**columns, "inf": float("inf")}, UPDATE, columns)
    assert read_row(row_text(given), b"k") == given
    gone = SinkRow((("id", 1),), b"k", 7, None, UPDATE, existed=True)
    assert read_row(row_text(gone), b"k") == gone
