"""From batches to rows to write: the newest row of each key, and the floors of snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rowtide.connectors.floors import Floor, Floors
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow

__all__ = ["floors_of", "merge_batches", "refusals_of", "restamp_rows"]


def floors_of(batches: Iterable[SinkBatch]) -> list[Floor]:
    """Return the floors of the batches' ranges."""
    return [Floor(*batch.covers, batch.stamp) for batch in batches if batch.covers is not None]


def restamp_rows(batches: Iterable[SinkBatch]) -> list[SinkRow]:
    """Return every row. A row of a snapshot's page has at least the page's stamp."""
    return [
        replace(row, stamp=batch.stamp)
        if batch.covers is not None and row.stamp < batch.stamp
        else row
        for batch in batches
        for row in batch.rows
    ]


def merge_batches(batches: Iterable[SinkBatch], floors: Floors) -> list[SinkRow]:
    """Return the newest row of each key, without rows that are old by the floors."""
    newest: dict[bytes, SinkRow] = {}
    for row in restamp_rows(batches):
        held = newest.get(row.key_bytes)
        if (held is None or held.stamp <= row.stamp) and row.stamp >= floors.at(row.key_bytes):
            newest[row.key_bytes] = row
    return list(newest.values())


def refusals_of(batch: SinkBatch, refused: Sequence[Refused]) -> list[Refused]:
    """Return which of a batch's own rows were refused, as the batch has them."""
    reasons = {(row.key_bytes, row.stamp): reason for row, reason in refused}
    least = batch.stamp if batch.covers is not None else 0  # See ``restamp_rows``.
    found = [(row, reasons.get((row.key_bytes, max(row.stamp, least)))) for row in batch.rows]
    return [Refused(row, reason) for row, reason in found if reason is not None]
