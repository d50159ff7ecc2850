"""The full-text index of one table in tantivy: what is searched, and how texts become
words.

A document has a row's key as hexadecimal digits and its stamp. One field has all its
texts, for searches without a column. Another has its typed columns under their names. The
row itself is not here: a hit names its key.

One process may write (the caller holds the lock). Any process may search the last commit
meanwhile.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tantivy

from rowtide.connectors.sinks.tantivy.held_rows import TantivyRow, TextDocument
from rowtide.connectors.sinks.tantivy.query import (
    COLUMNS,
    KEY,
    STAMP,
    TEXT,
    QueryRefused,
    build_query,
)
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar

__all__ = ["LANGUAGES", "Hit", "SearchResult", "TextIndex"]

LANGUAGES = (
    *("none", "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek"),
    *("hungarian", "italian", "norwegian", "portuguese", "romanian", "russian", "spanish"),
    *("swedish", "tamil", "turkish"),
)
"""Languages for stemming, in rows and in queries. ``none`` keeps words as they are."""

WORD_CHARACTERS_MAX = 256
"""Longer words are not indexed. They are seldom words."""

WRITER_BYTES = 64 * 1024 * 1024
_WORDS = "words"
_WHOLE = "whole"


class Hit(NamedTuple):
    """A matching row, as of ``stamp``."""

    key_bytes: bytes
    stamp: int
    score: float


class SearchResult(NamedTuple):
    """The best hits of a query, and the number of all that match."""

    hits: list[Hit]
    total: int


class TextIndex:
    """The index in ``folder``. With ``writes`` it is created if it is missing.

    Raises ValueError if it can't be opened.
    """

    def __init__(self, folder: Path, language: str, *, writes: bool) -> None:
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
            self._index = tantivy.Index(_schema(), path=str(folder))
        else:
            self._index = tantivy.Index.open(str(folder))
        # A search reloads first. Otherwise a thread would, up to half a second after a
        # commit. It would create a file in a folder that is closed or being removed by
        # then.
        self._index.config_reader("Manual")
        self._index.register_tokenizer(_WORDS, _analyzer(language))
        # Ranges compare whole values of a column.
        whole = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw()).build()
        self._index.register_fast_field_tokenizer(_WORDS, whole)
        self._writer: Any = None

    @staticmethod
    def remove(folder: Path) -> None:
        """Delete an index."""
        shutil.rmtree(folder, ignore_errors=True)

    def put(self, row: TantivyRow) -> None:
        """Index a row in place of the former one of its key."""
        if self._writer is None:
            self._writer = self._index.writer(WRITER_BYTES, 1)
        key = row.key_bytes.hex()
        self._writer.delete_documents_by_term(KEY, key)
        if row.document is not None:
            self._writer.add_document(_document(key, row.stamp, row.document))

    def commit(self) -> None:
        """Make indexed rows durable and visible to searches."""
        if self._writer is not None:
            self._writer.commit()
            self._index.reload()

    def close(self) -> None:
        """End the writer's threads and release its lock."""
        if self._writer is not None:
            self._writer.wait_merging_threads()
            self._writer = None

    def search(self, query: str, *, limit: int) -> SearchResult:
        """Return the best hits. Raises ``QueryRefused``."""
        self._index.reload()
        asked = build_query(query, self._index)
        searcher = self._index.searcher()
        try:
            found = searcher.search(asked, limit)
        except ValueError as error:
            raise QueryRefused(f"The query can't be answered: {error}.") from error
        return SearchResult(self._hits(searcher, found), found.count)

    def within(self, covered: Range) -> dict[bytes, list[int]]:
        """Return the stamps of all documents of a range of keys."""
        self._index.reload()
        searcher = self._index.searcher()
        low, high = covered[0].hex(), covered[1].hex()
        # No key is empty, so an empty begin equals "00", the lowest possible.
        bounds = f"[{low or '00'} TO {high}}}" if high else f">={low or '00'}"
        query = self._index.parse_query(f"{KEY}:{bounds}", [KEY])
        hits = searcher.search(query, max(searcher.num_docs, 1))
        found: dict[bytes, list[int]] = {}
        for hit in self._hits(searcher, hits):
            found.setdefault(hit.key_bytes, []).append(hit.stamp)
        return found

    def _hits(self, searcher: Any, found: Any) -> list[Hit]:
        places = [place for _, place in found.hits]
        stamps = searcher.fast_field_values(STAMP, places)
        return [
            Hit(bytes.fromhex(searcher.doc(place)[KEY][0]), stamp, score)
            for (score, place), stamp in zip(found.hits, stamps, strict=True)
        ]


def _schema() -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(KEY, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field(STAMP, fast=True)
    builder.add_text_field(TEXT, tokenizer_name=_WORDS)
    # A point in a column's name separates steps of a path, in documents and in queries.
    builder.add_json_field(COLUMNS, tokenizer_name=_WORDS, fast=True, expand_dots_enabled=True)
    return builder.build()


def _analyzer(language: str) -> Any:
    words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    words = words.filter(tantivy.Filter.remove_long(WORD_CHARACTERS_MAX))
    words = words.filter(tantivy.Filter.lowercase())
    if language != "none":
        words = words.filter(tantivy.Filter.stemmer(language.capitalize()))
    return words.build()


def _document(key: str, stamp: int, row: TextDocument) -> Any:
    columns = {**row.key, **row.columns}
    document = tantivy.Document()
    document.add_text(KEY, key)
    document.add_integer(STAMP, stamp)
    document.add_text(TEXT, "\n".join(v for v in columns.values() if isinstance(v, str)))
    document.add_json(COLUMNS, _searchable(columns))
    return document


def _searchable(columns: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the columns that can be searched by name: JSON values with printable names."""
    return {
        name: value
        for name, value in columns.items()
        if not isinstance(value, bytes)
        and not (isinstance(value, float) and not math.isfinite(value))
        and name.isprintable()
    }
