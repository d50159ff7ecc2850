"""What a search finds, without a server: an index in a file against rows in a dictionary."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowtide.client import (
    And,
    Equals,
    Everything,
    Exists,
    In,
    Match,
    Not,
    Or,
    Phrase,
    Prefix,
    Range,
    Rejected,
    SearchPage,
    SearchQuery,
    Sort,
    Unavailable,
)
from rowtide.client.changes.leases import ReaderLease
from rowtide.client.row_values import RowDict
from rowtide.client.search import search_reader, statements
from rowtide.client.search.query import SearchRequest
from rowtide.client.search.search_file import IndexReset, SearchFile, SearchRow
from rowtide.client.search.search_reader import SearchReader
from rowtide.client.search.writer_lock import WriterLock
from rowtide.core.values.variant import Scalar
from tests.client.search_model import Row, expected

KILLED = -9
LEASE = ReaderLease("shard", position="rt1:shard:1:1")


class Index:
    """An index in a folder, and the same rows in a dictionary."""

    def __init__(self, folder: Path) -> None:
        self.rows: dict[bytes, Row] = {}
        self._stamp = 0
        self._file = SearchFile(folder)
        self._reader = SearchReader(folder)

    def close(self) -> None:
        self._reader.close()
        self._file.close()

    def put(self, rows: Mapping[bytes, Row | None]) -> None:
        batch = []
        for key, columns in rows.items():
            self._stamp += 1
            batch.append(SearchRow(key, self._stamp, 0, None if columns is None else {**columns}))
            if columns is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = columns
        self._file.commit([(batch, None, 0)], LEASE)

    def search(self, request: SearchRequest) -> SearchPage[RowDict]:
        found = self._reader.answer(request, expired_ms=None, is_ready=lambda _: True)
        assert found is not None
        return found

    def check(self, request: SearchRequest) -> None:
        found = self.search(request)
        assert repr((found.total, found.hits)) == repr(expected(self.rows, request)), request


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path)
    yield made
    made.close()


ROWS: Sequence[tuple[str, Row]] = [
    ("a", {"name": "表格存储", "size": 3, "tags": '["red","dark blue"]'}),
    ("b", {"name": "Hello, World! hello_again", "size": 3.0, "open": True}),
    ("c", {"name": "世界abc 日本語 한국어는", "size": 7, "raw": b"\x00\xff"}),
    ("d", {"name": "HELLO 存储", "size": -(2**63), "tags": "[not json]"}),
    ("e", {"size": float("nan"), "open": False, "tags": "red"}),
    ("f", {"name": "格", "size": float("inf"), "raw": b"\xff\xff"}),
]

SCENARIOS: Sequence[tuple[SearchQuery, str]] = [
    # Chinese, Japanese and Korean texts: pieces of one and two characters.
    (Match("name", "表格"), "a"),
    (Phrase("name", "存储"), "ad"),
    (Match("name", "格式"), ""),
    (Phrase("name", "格式"), ""),
    (Match("name", "格"), "af"),
    (Match("name", "格存储"), "ad"),
    (Match("name", "格存储", every_word=True), "a"),
    (Phrase("name", "格存储"), "a"),
    (Phrase("name", "界abc 日本"), "c"),
    (Phrase("name", "界 日本"), ""),
    (Match("name", "本語"), "c"),
    (Match("name", "국어"), "c"),
    (Match("name", "국는"), ""),
    # Words.
    (Match("name", "hello"), "bd"),
    (Match("name", "WORLD 存储"), "abd"),
    (Match("name", "world again", every_word=True), "b"),
    (Match("name", "hel"), ""),
    (Phrase("name", "hello world"), "b"),
    (Phrase("name", "world hello again"), "b"),
    (Phrase("name", "hello again world"), ""),
    (Match(None, "red"), "ae"),
    (Phrase("tags", "red dark"), ""),
    (Phrase("tags", "dark blue"), "a"),
    (Match("size", "3"), ""),
    # Values.
    (Equals("size", 3), "ab"),
    (Equals("size", 3.0), "ab"),
    (Equals("size", -(2**63)), "d"),
    (Equals("open", True), "b"),
    (Equals("open", 1), ""),
    (Equals("tags", "red"), "ae"),
    (Equals("tags", "Red"), ""),
    (Equals("tags", '["red","dark blue"]'), "a"),
    (Equals("raw", b"\x00\xff"), "c"),
    (Equals("absent", 1), ""),
    (In("size", [7, "7", 3.0]), "abc"),
    (In("tags", ["blue", "dark blue", "red"]), "ae"),
    (Range("size", 3, 7), "ab"),
    (Range("size", 3, 7, include_from=False, include_to=True), "c"),
    (Range("size", 3.5), "cf"),
    (Range("size", to=0), "d"),
    (Range("tags", "d", "e"), "a"),
    (Range("raw", b"\x01"), "f"),
    (Range("size", 9, 1), ""),
    (Prefix("name", "HELLO"), "d"),
    (Prefix("tags", "dark"), "a"),
    (Prefix("tags", "["), "ad"),
    (Prefix("raw", b"\xff"), "f"),
    (Exists("size"), "abcdef"),
    (Exists("raw"), "cf"),
    # Combinations.
    (Equals("size", 3) & Match("name", "hello"), "b"),
    (Equals("size", 3) | Equals("open", False), "abe"),
    (~Exists("name"), "e"),
    (~Match("name", "格式"), "abcdef"),
    (Exists("size") & ~(Match("name", "hello") | Exists("raw")), "ae"),
    (And([Everything(), Not(Everything())]), ""),
    (Or([Not(Exists("name")), Phrase("name", "存储")]), "ade"),
]


@pytest.mark.parametrize(("query", "keys"), SCENARIOS, ids=[str(q) for q, _ in SCENARIOS])
def test_a_query_finds(index: Index, query: SearchQuery, keys: str) -> None:
    index.put({key.encode(): {"key": key, **row} for key, row in ROWS})
    found = index.search(SearchRequest(query))
    assert "".join(str(row["key"]) for row in found.hits) == keys
    assert found.total == len(keys)
    index.check(SearchRequest(query))  # The model agrees with this table.


def test_a_sort_has_rows_without_the_field_last(index: Index) -> None:
    index.put({key.encode(): {"key": key, **row} for key, row in ROWS})

    def order(*sort: Sort) -> str:
        return "".join(
            str(row["key"]) for row in index.search(SearchRequest(Everything(), sort)).hits
        )

    assert order() == "abcdef"
    assert order(Sort("size")) == "dabcfe"
    assert order(Sort("size", descending=True)) == "efcabd"
    assert order(Sort("open"), Sort("size", descending=True)) == "ebfcad"
    assert order(Sort("absent"), Sort("key", descending=True)) == "fedcba"


def test_pages_have_no_seam_and_one_total(index: Index) -> None:
    index.put({b"%03d" % n: {"n": n % 7, "key": n} for n in range(50)})
    query, sort = Range("n", 2), [Sort("n", descending=True)]
    pages = [index.search(SearchRequest(query, sort, offset, 8)) for offset in range(0, 48, 8)]
    assert {page.total for page in pages} == {35}
    whole = index.search(SearchRequest(query, sort, 0, 50))
    assert [row for page in pages for row in page.hits] == whole.hits
    assert index.search(SearchRequest(query, limit=0)) == SearchPage(35, [])


TEXTS = st.lists(
    st.sampled_from(
        [
            *(
                "hello",
                "World",
                "表格存储",
                "表格",
                "存",
                "格式",
                "世",
                "界",
                "abc",
                "語日",
                "カナ",
            ),
            *(
                "한국",
                "_",
                " ",
                " ",
                ", ",
                "7",
                "é",
                "ß",
                '"',
                "'",
                "*",
                "\uff21\uff22",
                "\uff76\uff85",
            ),
        ]
    ),
    max_size=6,
).map("".join)
LISTS = st.lists(TEXTS, max_size=3).map(json.dumps)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]),
    st.sampled_from([0.5, 2.0, -0.0, float("inf"), float("-inf"), float(2**53)]),
)
BYTES = st.binary(max_size=2)
VALUES: st.SearchStrategy[Scalar] = st.one_of(
    TEXTS, LISTS, NUMBERS, st.just(float("nan")), st.booleans(), BYTES
)
FIELDS = st.sampled_from(["a", "b", "c"])
KEYS = st.integers(0, 15).map(lambda n: b"%02d" % n)
WRITES = st.dictionaries(
    KEYS, st.one_of(st.none(), st.dictionaries(FIELDS, VALUES, max_size=3)), max_size=12
)
WANTED = VALUES.filter(lambda value: value == value)


def build_queries(
    make: Callable[..., SearchQuery], *parts: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Return queries of a kind, without those that are rejected."""

    def build(values: tuple[object, ...]) -> SearchQuery | None:
        with contextlib.suppress(Rejected):
            return make(*values)
        return None

    return st.tuples(*parts).map(build).filter(lambda made: made is not None)


ANY_FIELD = st.one_of(st.none(), FIELDS)
LEAVES: st.SearchStrategy[SearchQuery] = st.one_of(
    build_queries(Match, ANY_FIELD, TEXTS, st.booleans()),
    build_queries(Phrase, ANY_FIELD, TEXTS),
    build_queries(Equals, FIELDS, WANTED),
    build_queries(In, FIELDS, st.lists(WANTED, min_size=1, max_size=3)),
    build_queries(
        Range, FIELDS, NUMBERS, st.one_of(st.none(), NUMBERS), st.booleans(), st.booleans()
    ),
    build_queries(Range, FIELDS, st.none(), TEXTS, st.booleans(), st.booleans()),
    build_queries(Range, FIELDS, BYTES, BYTES, st.booleans(), st.booleans()),
    build_queries(Prefix, FIELDS, st.one_of(TEXTS, BYTES)),
    build_queries(Exists, FIELDS),
    st.just(Everything()),
)
QUERIES: st.SearchStrategy[SearchQuery] = st.recursive(
    LEAVES,
    lambda some: st.one_of(
        st.lists(some, min_size=1, max_size=3).map(And),
        st.lists(some, min_size=1, max_size=3).map(Or),
        some.map(Not),
    ),
    max_leaves=6,
)
REQUESTS = st.builds(
    SearchRequest,
    QUERIES,
    st.lists(st.builds(Sort, FIELDS, st.booleans()), max_size=2),
    st.integers(0, 6),
    st.integers(0, 20),
)


@given(
    writes=st.lists(WRITES, min_size=1, max_size=4),
    requests=st.lists(REQUESTS, min_size=1, max_size=6),
    rare=st.sampled_from([0, 2, 1000]),
)
@settings(max_examples=500)
def test_any_query_finds_what_a_look_at_each_row_finds(
    writes: Sequence[Mapping[bytes, Row | None]], requests: Sequence[SearchRequest], rare: int
) -> None:
    # With few rows, these limits decide which of the ways to answer is taken.
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(search_reader, "COUNT_MAX", rare),
        mock.patch.object(search_reader, "FEW", rare),
        mock.patch.object(statements, "FEW", rare),
    ):
        index = Index(Path(folder))
        try:
            for write in writes:
                index.put(write)
            for request in requests:
                index.check(request)
        finally:
            index.close()


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "text", [LONG, "word " * 20_000, "表格存储" * 25_000], ids=["letters", "words", "characters"]
)
def test_a_value_of_100_kilobytes_is_found(index: Index, text: str) -> None:
    index.put({b"1": {"text": f"{text} end"}, b"2": {"text": f"{text} END2"}})
    for query in (
        Equals("text", f"{text} end"),
        Match("text", "end"),
        Range("text", f"{text} e"),
        Prefix("text", f"{text} e"),
        Match("text", LONG) & Match("text", "end"),
    ):
        index.check(SearchRequest(query))
    assert index.search(SearchRequest(Equals("text", f"{text} end"))).total == 1
    index.put({b"1": {"text": "short"}})
    assert index.search(SearchRequest(Match("text", "end"))).total == 0


BAD: Sequence[tuple[Callable[[], object], str]] = [
    (lambda: Match("text", "?!"), "Match on 'text': '?!' has no letter and no digit"),
    (lambda: Match("text", "a " * 600), "Match on 'text' takes up to 512 words, not 600"),
    (lambda: Phrase(None, ""), "Phrase on any field: '' has no letter"),
    (lambda: Match("text", 5), "Match on 'text' takes a text, not int"),  # type: ignore[arg-type]
    (lambda: Equals("", 5), "Equals needs the name of a field, not ''"),
    (lambda: Equals("n", None), "Equals on 'n' takes int, float, bool, str or bytes"),  # type: ignore[arg-type]
    (lambda: Equals("n", 2**63), "Equals on 'n': 9223372036854775808 does not fit 64 bits"),
    (lambda: Equals("n", float("nan")), "Equals on 'n': NaN is equal to nothing"),
    (lambda: Equals("n", "\ud800"), "Equals on 'n' is not UTF-8"),
    (lambda: In("n", []), "In on 'n' takes 1 to 1024 values, not 0"),
    (lambda: In("n", "ab"), "In on 'n' takes a list of values, not one"),
    (lambda: In("n", [1] * 1025), "In on 'n' takes 1 to 1024 values, not 1025"),
    (lambda: Range("n"), "Range on 'n' has no bound"),
    (lambda: Range("n", 1, "a"), "Range on 'n' has bounds of different types: int and str"),
    (lambda: Range("n", True), "Range on 'n': a boolean has no order"),
    (lambda: Prefix("n", ""), "Prefix on 'n' is empty"),
    (lambda: Prefix("n", 5), "Prefix on 'n' takes a text or bytes, not int"),  # type: ignore[arg-type]
    (lambda: And([]), "And takes a list of tests with one at least"),
    (lambda: Or([1]), "Or takes tests such as Match(...), not 1"),  # type: ignore[list-item]
    (lambda: SearchRequest("words"), "A query is a test such as Match(...), not 'words'"),  # type: ignore[arg-type]
    (lambda: SearchRequest(Everything(), limit=-1), "The limit of a search is an integer of 0 to"),
    (lambda: SearchRequest(Everything(), limit=1001), "The limit of a search is an integer of 0"),
    (lambda: SearchRequest(Everything(), offset=-1), "The offset of a search is an integer of 0"),
    (lambda: SearchRequest(Everything(), [Sort("a")] * 5), "A search sorts by up to 4 fields"),
    (lambda: SearchRequest(And([Everything()] * 300)), "A query has up to 256 tests, not 301"),
    (lambda: SearchRequest(nest(20)), "A query is nested up to 16 levels, not 21"),
]


def nest(levels: int) -> SearchQuery:
    found: SearchQuery = Everything()
    for _ in range(levels):
        found = Not(found)
    return found


@pytest.mark.parametrize(("make", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_query_is_rejected(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        make()
    assert caught.value.message.startswith(reason)
    assert caught.value.code == "OTSParameterInvalid"


def test_the_largest_queries_are_answered(index: Index) -> None:
    index.put({b"%d" % n: {"n": n, "text": f"w{n} 表格存储{n}"} for n in range(20)})
    many = " ".join(f"w{n}" for n in range(512))
    nested: SearchQuery = Match("text", "w1")
    for _ in range(7):
        nested = Not(Equals("n", 3) | nested)
    for query in (
        Match("text", many),
        Match("text", many, every_word=True),
        Phrase("text", many),
        In("n", list(range(1024))),
        Or([Equals("n", n) for n in range(255)]),
        And([Range("n", -n) for n in range(255)]),
        And([Match(None, f"w{n} w1") for n in range(255)]),
        Or([~Match("text", f"w{n}") for n in range(127)]),
        nested,
        nest(15),
    ):
        index.check(SearchRequest(query))


# The file.

PROGRAM = """
import sys
from pathlib import Path
from rowtide.client.changes.leases import ReaderLease
from rowtide.client.search.search_file import SearchFile, SearchRow
file = SearchFile(Path(sys.argv[1]))
at = 0
while True:
    at += 1
    columns = {"n": at, "text": f"w{at}"}
    rows = [SearchRow(b"%09d" % (at * 10 + n), at, 0, columns) for n in range(10)]
    file.commit([(rows, None, 0)], ReaderLease("s", position=str(at)))
    print(at, flush=True)
"""


def test_after_kill_9_the_rows_are_those_up_to_the_position(tmp_path: Path) -> None:
    for commits in (1, 7, 40):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                if int(line) >= commits:
                    break
            writer.kill()
        assert writer.returncode == KILLED
        file, reader = SearchFile(tmp_path), SearchReader(tmp_path)
        at = int(file.positions()["s"].position)
        assert at >= commits
        everything = SearchRequest(Everything(), [Sort("n", descending=True)])
        found = reader.answer(everything, expired_ms=None, is_ready=lambda _: True)
        last = SearchRequest(Match("text", f"w{at}"))
        words = reader.answer(last, expired_ms=None, is_ready=lambda _: True)
        assert found is not None
        assert words is not None
        assert (found.total, found.hits[0]["n"], words.total) == (at * 10, at, 10)
        file.begin_again(empty=True)
        reader.close()
        file.close()


def test_a_page_of_a_snapshot_removes_what_it_lacks(tmp_path: Path) -> None:
    file, reader = SearchFile(tmp_path), SearchReader(tmp_path)
    rows = [SearchRow(key, 5, 0, {"text": "old"}) for key in (b"a", b"b", b"c", b"d")]
    file.commit([(rows, None, 0)], LEASE)
    late = [SearchRow(b"c", 20, 0, {"text": "late"})]
    file.commit([(late, None, 0)], LEASE)
    page = [SearchRow(b"b", 10, 0, {"text": "new"})]
    file.commit([(page, (b"b", b"d"), 10)], LEASE)
    found = reader.answer(SearchRequest(Everything()), expired_ms=None, is_ready=lambda _: True)
    assert found is not None
    assert [row["text"] for row in found.hits] == ["old", "new", "late", "old"]
    file.commit([([], (b"", b""), 30)], LEASE)
    assert reader.count_rows() == 0
    reader.close()
    file.close()


def test_an_older_row_changes_nothing(tmp_path: Path) -> None:
    file, reader = SearchFile(tmp_path), SearchReader(tmp_path)
    file.commit([([SearchRow(b"a", 5, 0, {"text": "ahead"})], None, 0)], LEASE)
    file.commit([([SearchRow(b"a", 4, 0, {"text": "old"})], None, 0)], LEASE)
    file.commit([([SearchRow(b"a", 3, 0, None)], None, 0)], LEASE)
    found = reader.answer(
        SearchRequest(Match("text", "ahead")), expired_ms=None, is_ready=lambda _: True
    )
    assert found is not None
    assert found.total == 1
    reader.close()
    file.close()


def test_expired_rows_are_not_found(tmp_path: Path) -> None:
    file, reader = SearchFile(tmp_path), SearchReader(tmp_path)
    rows = [SearchRow(b"%d" % n, 1, n, {"n": n, "text": "word"}) for n in range(10)]
    file.commit([(rows, None, 0)], LEASE)
    for limit in (0, 1000):
        with mock.patch.object(search_reader, "COUNT_MAX", limit):
            for query in (Match("text", "word"), Everything()):
                for sort in ([], [Sort("n")]):
                    request = SearchRequest(query, sort)
                    found = reader.answer(request, expired_ms=6, is_ready=lambda _: True)
                    assert found is not None
                    assert (found.total, [row["n"] for row in found.hits]) == (3, [7, 8, 9])
    reader.close()
    file.close()


def test_a_writer_notices_that_the_index_began_again(tmp_path: Path) -> None:
    writer, other = SearchFile(tmp_path), SearchFile(tmp_path)
    writer.commit([([SearchRow(b"a", 5, 0, {"text": "x"})], None, 0)], LEASE)
    other.begin_again(empty=True)
    with pytest.raises(IndexReset):
        writer.commit([([SearchRow(b"b", 6, 0, {"text": "x"})], None, 0)], LEASE)
    assert writer.positions() == {}
    writer.commit([([SearchRow(b"b", 6, 0, {"text": "x"})], None, 0)], LEASE)
    assert set(other.positions()) == {"shard"}
    writer.close()
    other.close()


def test_one_process_writes(tmp_path: Path) -> None:
    first, second = WriterLock(tmp_path), WriterLock(tmp_path)
    assert first.take()
    assert first.take()
    assert not second.take()
    first.close()
    assert second.take()
    second.close()


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "index-1.sqlite").write_bytes(os.urandom(4096))
    with pytest.raises(Unavailable, match="cannot be opened: file is not a database"):
        SearchFile(tmp_path)
