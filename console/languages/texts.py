"""The texts of the pages, in every language that the console speaks.

A text is named ``PART.KEY``: ``live.pause`` is the text ``pause`` of ``en/live.json``. Placeholders
are names in braces, and a value takes their place as it is. Nothing here knows HTML: templates
escape what they show.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from types import MappingProxyType

__all__ = ["LANGUAGES", "PLACEHOLDER", "choose_language", "list_parts", "texts_of", "translate"]

LANGUAGES = ("en", "zh")
"""The first one is for those who accept none of them."""

PLACEHOLDER = re.compile(r"\{(\w+)\}")

FOLDER = Path(__file__).parent


def translate(language: str, name: str, /, **values: object) -> str:
    """Return the text ``PART.KEY`` with its placeholders filled.

    Raises ``KeyError`` for a text that does not exist and for a placeholder without a value.
    """
    part, _, key = name.partition(".")
    text = texts_of(language, part)[key]
    return PLACEHOLDER.sub(lambda found: str(values[found[1]]), text)


@cache
def texts_of(language: str, part: str) -> MappingProxyType[str, str]:
    """Return all texts of a part, as they are written. Raises ``KeyError`` for an unknown part."""
    if language not in LANGUAGES or part not in list_parts():
        raise KeyError(f"there is no text {language}/{part}.json")
    text = (FOLDER / language / f"{part}.json").read_text(encoding="utf-8")
    return MappingProxyType(json.loads(text))


@cache
def list_parts() -> tuple[str, ...]:
    """Return the names of all parts, which are the same in every language."""
    return tuple(sorted(path.stem for path in (FOLDER / LANGUAGES[0]).glob("*.json")))


def choose_language(accepted: str) -> str:
    """Return the language that a browser likes best, from its Accept-Language header."""
    wishes: list[tuple[float, str]] = []
    for part in accepted.split(","):
        tag, _, weight = part.partition(";")
        language = tag.strip().partition("-")[0].lower()
        if language in LANGUAGES:
            wishes.append((_weight(weight), language))
    best = max(wishes, key=lambda wish: wish[0], default=(0.0, LANGUAGES[0]))
    return best[1] if best[0] > 0 else LANGUAGES[0]


def _weight(text: str) -> float:
    """Return the weight of ``q=0.8``; 1 if there is none, 0 if it is no number."""
    if not text.strip():
        return 1.0
    found = re.fullmatch(r"\s*q\s*=\s*(\d(?:\.\d*)?)\s*", text)
    return float(found[1]) if found else 0.0
