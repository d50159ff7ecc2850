"""Events that are held, and cut back to a mark, in memory and in a file alike."""

from __future__ import annotations

import pytest

from rowtide.connectors.sources.mysql import held as source_held
from rowtide.connectors.sources.mysql.held import HeldEvents


@pytest.mark.parametrize("in_memory", [1000, 12, 1])
def test_what_was_added_since_a_mark_is_cut(
    monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(source_held, "HELD_BYTES", in_memory)
    held = HeldEvents(None)
    held.add(1, b"one")
    mark = held.size
    held.add(2, b"")
    held.add(3, b"three")
    assert list(held.since(mark)) == [(2, b""), (3, b"three")]
    held.cut(mark)
    assert held.size == mark
    assert list(held) == [(1, b"one")]
    held.add(4, b"four")
    assert list(held.since(mark)) == [(4, b"four")]
    assert list(held) == [(1, b"one"), (4, b"four")]
    held.cut(0)
    assert list(held) == []
    held.add(5, b"five")
    held.clear()
    assert (list(held), held.size) == ([], 0)
