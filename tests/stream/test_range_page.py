"""A long page of GetRange is made in slices, and shows its rows as of one moment."""

import asyncio
from collections.abc import Iterator

import pytest

from rowtide.core import native
from rowtide.core.protocol.plainbuffer import HEADER, decode_row
from rowtide.core.rows import fold
from rowtide.core.rows.chunk import table_prefix
from rowtide.core.rows.read import Selection, StoredRow
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import TableOptions
from rowtide.core.values.variant import decode
from rowtide.core.values.version import Window
from rowtide.stream.api import range_page
from rowtide.stream.api.range_page import PageMaker, PageSource, Scan
from rowtide.stream.api.range_scan import Forward, RangePage
from tests.core.chunk_dictionary import TABLE_ID, ChunkDictionary, address, put
from tests.core.native.ways import KERNELS, needs_kernels

ROWS = 40
OPTIONS = TableOptions()
COLUMNS = Selection(Window(), columns=frozenset(map(str.encode, "abcdef")))
NO_COLUMN = Selection(Window(), columns=frozenset({b"z"}))
WHOLE = Selection(Window())
DEFAULT = Limits()
ONE_COLUMN = Selection(Window(), columns=frozenset({b"c"}))


@pytest.fixture(autouse=True, params=[False, pytest.param(True, marks=needs_kernels)])
def _short_slices(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Take slices of four rows, by Python and by kernels."""
    monkeypatch.setattr(range_page, "SLICE", 4)
    monkeypatch.setattr(native, "kernels", KERNELS if request.param else native.kernels)
    if not request.param:
        request.getfixturevalue("pure")


def store_of(*, wide: int | None = None) -> ChunkDictionary:
    """Return rows named by their number; the ``wide`` one has several chunks."""
    store = ChunkDictionary()
    for number in range(ROWS):
        size = 20_000 if number == wide else 10
        cells = [put(name, 1, name * size) for name in "abcdef"]
        store.write(fold.put_row(store, address(f"{number:03}"), cells, 1, 1))
    return store


def sources_of(store: ChunkDictionary, start: bytes = b"") -> Iterator[PageSource]:
    """Yield the rows as those of two shards."""
    low, high = table_prefix(TABLE_ID), table_prefix(TABLE_ID + 1)
    middle = address(f"{ROWS // 2:03}").row_key
    for begin, end in ((low, middle), (middle, high)):
        chunks = Forward(store, max(begin, start), max(end, start))
        yield PageSource(chunks.rows_from(chunks.low), store, OPTIONS, chunks)


async def read(
    store: ChunkDictionary,
    wanted: Selection = WHOLE,
    start: bytes = b"",
    *,
    limit: int | None = None,
    limits: Limits = DEFAULT,
) -> RangePage:
    maker = PageMaker(Scan(wanted, limit, b"", start), limits, 1000)
    sources = sources_of(store, start)
    page = maker.begin(sources)
    return page if page is not None else await maker.finish(*maker.hold(sources))


def numbers(page: RangePage) -> list[int]:
    return [number_of(wire) for wire in page.rows]


def number_of(wire: bytes) -> int:
    return int(decode(decode_row(HEADER + wire).key[0][1]))


async def pages(
    store: ChunkDictionary,
    wanted: Selection = WHOLE,
    *,
    limit: int | None = None,
    limits: Limits = DEFAULT,
) -> list[RangePage]:
    """Return every page of the whole range."""
    made = [await read(store, wanted, limit=limit, limits=limits)]
    while made[-1].next_key:
        start = address(f"{next_number(made[-1]):03}").row_key
        made.append(await read(store, wanted, start, limit=limit, limits=limits))
    return made


def next_number(page: RangePage) -> int:
    return number_of(page.next_key)


@pytest.mark.parametrize("limit", [None, 1, 4, 17])
@pytest.mark.parametrize(
    "limits",
    [DEFAULT, Limits(range_rows_max=9), Limits(range_bytes_max=900)],
    ids=["all", "rows", "bytes"],
)
@pytest.mark.parametrize("wanted", [WHOLE, ONE_COLUMN], ids=["whole", "one column"])
async def test_pages_in_slices_are_those_made_in_one_go(
    limit: int | None, limits: Limits, wanted: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of()
    sliced = await pages(store, wanted, limit=limit, limits=limits)
    monkeypatch.setattr(range_page, "SLICE", 10_000)
    assert await pages(store, wanted, limit=limit, limits=limits) == sliced
    assert [number for page in sliced for number in numbers(page)] == list(range(ROWS))


@pytest.mark.parametrize("wide", [0, 3, 4, 5, 20, ROWS - 1])
async def test_a_long_page_ends_before_a_row_of_several_chunks(wide: int) -> None:
    made = await pages(store_of(wide=wide), COLUMNS)
    assert [number for page in made for number in numbers(page)] == list(range(ROWS))
    if wide > range_page.SLICE:
        assert next_number(made[0]) == wide


async def test_rows_that_change_meanwhile_are_told_as_they_were() -> None:
    store = store_of()
    maker = PageMaker(Scan(COLUMNS, None, b"", b""), Limits(), 1000)
    sources = sources_of(store)
    assert maker.begin(sources) is None
    held, stop = maker.hold(sources)
    store.chunks.clear()
    assert numbers(await maker.finish(held, stop)) == list(range(ROWS))


async def test_others_get_their_turn_between_slices() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count())
        await read(store_of(), COLUMNS)
        counting.cancel()
    assert turns >= ROWS // range_page.SLICE - 1


async def test_what_is_held_is_bounded_where_a_filter_leaves_little() -> None:
    store = store_of()
    maker = PageMaker(Scan(NO_COLUMN, None, b"", b""), Limits(range_bytes_max=100), 1000)
    sources = sources_of(store)
    assert maker.begin(sources) is None
    held, stop = maker.hold(sources)
    assert isinstance(stop, StoredRow)
    assert len(held) < 5
