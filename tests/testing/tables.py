"""A table with what stands in the way of a move of the clock, and of its own end."""

from __future__ import annotations

__all__ = ["create_with_index"]


def create_with_index(client: object) -> None:
    """Make a table with an index and a transaction that nobody ends."""
    import tablestore as ts

    assert isinstance(client, ts.OTSClient)
    columns = [("colour", "STRING")]
    client.create_table(
        ts.TableMeta("t", [("id", "STRING"), ("part", "STRING")], columns),
        ts.TableOptions(-1, 1),
        ts.ReservedThroughput(ts.CapacityUnit(0, 0)),
        [ts.SecondaryIndexMeta("by_colour", ["colour"], [])],
    )
    client.put_row("t", ts.Row([("id", "a"), ("part", "b")], [("colour", "red")]))
    client.start_local_transaction("t", [("id", "a")])
