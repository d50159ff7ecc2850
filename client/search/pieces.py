"""How texts are cut into the pieces that ``Match`` and ``Phrase`` look for.

A piece is a word: letters, digits and their marks, in any script. It is in lower case and in
Unicode's compatibility form (NFKC): wide Latin letters become plain ones. Chinese and Japanese
texts have no spaces between words, and Korean words have endings. So a run of their characters is
cut at each one: into a piece of this character and the next. The last one is a piece of its own.

    Hello 表格存储  ->  hello 表格 格存 存储 储

So each character begins exactly one piece. Two characters are found as one piece, three as two
pieces in a row, and a single one as the beginning of a piece.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Piece", "cut_phrase", "cut_query", "cut_text"]

WORD_CHARACTERS_MAX = 200
"""A longer word is stored as its beginning and a digest: it is found as a whole."""

# Marks that belong to a letter before them. ``\\w`` lacks them. The ranges also have the letters of
# their scripts, and a few signs that are seldom between words.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0900-\u0963\u0966-\u0dff\u0e31-\u0e3a\u0e40-\u0e4e\u0eb1-\u0ecd\u0f71-\u0f84\u102b-\u103e"
    "\u17b4-\u17d3\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a"
)
_WORD = re.compile(rf"[\w{_MARKS}]+")
_CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u30ff"
    "\u3100-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
_IS_CJK = re.compile(f"[{_CJK}]")
_PARTS = re.compile(f"[{_CJK}]+|[^{_CJK}]+")


class Piece(NamedTuple):
    """A piece to look for; ``is_begin``: any piece that begins with it."""

    text: str
    is_begin: bool = False


def cut_text(text: str) -> list[str]:
    """Return the pieces of a stored text in order."""
    found: list[str] = []
    for word, is_cjk in _runs(text):
        if is_cjk:
            found += _cut_run(word)
        else:
            found.append(word)
    return found


def cut_query(text: str) -> list[list[Piece]]:
    """Return the pieces to look for of each word of a query, and of each run of such characters."""
    return [_look_for(word) if is_cjk else [Piece(word)] for word, is_cjk in _runs(text)]


def cut_phrase(text: str) -> list[Piece]:
    """Return the pieces of a phrase. Only the last one may be a beginning.

    Where another word follows a run of such characters, the run ends in the text, too.
    """
    runs = list(_runs(text))
    found: list[Piece] = []
    for number, (word, is_cjk) in enumerate(runs):
        if not is_cjk:
            found.append(Piece(word))
        elif number < len(runs) - 1:
            found += map(Piece, _cut_run(word))
        else:
            found += _look_for(word)
    return found


def _cut_run(run: str) -> list[str]:
    """Return the pieces of a stored run: each character with the next one."""
    return [run[at : at + 2] for at in range(len(run))]


def _look_for(run: str) -> list[Piece]:
    """Return the pieces of a run that may go on in the text."""
    if len(run) == 1:
        return [Piece(run, is_begin=True)]
    return [Piece(piece) for piece in _cut_run(run)[:-1]]


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the words of a text, and True with those that are cut further."""
    if text.isascii():
        plain = text.lower()
    else:
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    for word in _WORD.findall(plain.replace("_", " ")):
        if word.isascii() or not _IS_CJK.search(word):
            yield _shorten(word), False
        else:
            for part in _PARTS.findall(word):
                is_cjk = _IS_CJK.match(part) is not None
                yield part if is_cjk else _shorten(part), is_cjk


def _shorten(word: str) -> str:
    if len(word) <= WORD_CHARACTERS_MAX:
        return word
    return word[:WORD_CHARACTERS_MAX] + hashlib.sha256(word.encode()).hexdigest()
