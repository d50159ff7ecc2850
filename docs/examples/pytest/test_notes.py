"""Tests of an application that keeps notes in Table Store."""

import tablestore as ts


def add_note(client, user, text):
    """Stand for the application: store a note."""
    client.put_row("notes", ts.Row([("user", user)], [("text", text)]))


def read_note(client, user):
    """Stand for the application: return a note, or None."""
    _, row, _ = client.get_row("notes", [("user", user)], max_version=1)
    return row and row.attribute_columns[0][1]


def make_table(client, time_to_live_s=-1):
    client.create_table(
        ts.TableMeta("notes", [("user", "STRING")]),
        ts.TableOptions(time_to_live_s, max_version=1),
        ts.ReservedThroughput(ts.CapacityUnit(0, 0)),
    )


def test_a_note_is_read_back(rowtide_instance):
    client = rowtide_instance.client()
    make_table(client)
    add_note(client, "ada", "hello")
    assert read_note(client, "ada") == "hello"


def test_every_test_begins_without_tables(rowtide_instance):
    assert list(rowtide_instance.client().list_table()) == []


def test_a_note_is_gone_after_a_day(rowtide_instance, rowtide_clock):
    client = rowtide_instance.client()
    make_table(client, time_to_live_s=86_400)
    add_note(client, "ada", "hello")
    rowtide_clock.advance(86_000)
    assert read_note(client, "ada") == "hello"
    rowtide_clock.advance(402)
    assert read_note(client, "ada") is None
