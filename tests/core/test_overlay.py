"""What is pending over a store: the newest write of each chunk until the store has it."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.rows.fold import Writes
from rowtide.core.rows.overlay import Overlay

Batch = dict[bytes, bytes | None]


class Store:
    """Chunks in a dictionary."""

    def __init__(self) -> None:
        self.chunks: dict[bytes, bytes] = {}

    def take(self, writes: Writes) -> None:
        for key, value in writes:
            if value is None:
                self.chunks.pop(key, None)
            else:
                self.chunks[key] = value

    def get(self, key: bytes) -> bytes | None:
        return self.chunks.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.chunks.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter([(k, v) for k, v in sorted(self.chunks.items()) if start <= k < end])

    def scan_backward(self, high: bytes, low: bytes) -> Iterator[tuple[bytes, bytes]]:
        found = [(k, v) for k, v in sorted(self.chunks.items()) if low <= k <= high]
        return iter(found[::-1])

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, bytes] | None:
        return next(self.scan_backward(key, low), None)


keys = st.sampled_from([b"a", b"b", b"c"])
batches = st.lists(st.dictionaries(keys, st.none() | st.just(b""), min_size=1), max_size=12)


@given(batches, st.data())
def test_it_tells_the_newest_write_however_far_the_store_is(
    drawn: list[Batch], data: st.DataObject
) -> None:
    store = Store()
    overlay = Overlay(store)
    expected: dict[bytes, bytes] = {}
    waiting: list[Writes] = []
    for number, batch in enumerate(drawn):
        # A chunk is never the same twice: it carries its stamp.
        writes = [(k, v if v is None else b"%d" % number) for k, v in batch.items()]
        overlay.add(writes)
        waiting.append(writes)
        for key, value in writes:
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        for _ in range(data.draw(st.integers(0, len(waiting)))):
            store.take(waiting[0])
            overlay.settle(waiting.pop(0))
            assert dict(overlay.scan(b"", b"z")) == expected
        assert {key: overlay.get(key) for key in (b"a", b"b", b"c")} == {
            key: expected.get(key) for key in (b"a", b"b", b"c")
        }
        assert list(overlay.scan_backward(b"z", b"")) == sorted(expected.items())[::-1]
        asked = data.draw(st.lists(keys))
        assert overlay.get_many(asked) == [expected.get(key) for key in asked]
    for writes in waiting:
        store.take(writes)
        overlay.settle(writes)
    assert overlay.pending() == {}


def test_a_removal_outlives_an_earlier_one_of_the_same_chunk() -> None:
    store = Store()
    overlay = Overlay(store)
    removed: Writes = [(b"a", None)]
    written: Writes = [(b"a", b"1")]
    for writes in (removed, written, removed):
        overlay.add(writes)
    for writes in (removed, written):
        store.take(writes)
        overlay.settle(writes)
        assert overlay.get(b"a") is None


@given(batches, st.data())
def test_it_tells_the_same_of_chunks_that_it_read_ahead(
    drawn: list[Batch], data: st.DataObject
) -> None:
    store = Store()
    store.take([(b"a", b"stored")])
    below = Overlay(store)
    below.add([(b"b", b"pending")])
    ahead, plain = Overlay(below), Overlay(below)
    ahead.read_ahead(data.draw(st.lists(keys)))
    for batch in drawn:
        for overlay in (ahead, plain):
            overlay.add(list(batch.items()))
        assert [ahead.get(key) for key in (b"a", b"b", b"c")] == [
            plain.get(key) for key in (b"a", b"b", b"c")
        ]
