"""Words of the worker are English in every page; a Chinese page marks them as such."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest

from rowtide.client import Client
from tests.support.consoles import RunningConsole, Visitor

pytestmark = pytest.mark.system

VOID = {"input", "link", "meta", "br", "img", "hr"}


class EnglishTexts(HTMLParser):
    """Collects the texts of a page that are within an element marked as English."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self._languages: list[str] = [""]
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the language of an element: its own, or that around it."""
        if tag not in VOID:
            self._languages.append(dict(attrs).get("lang") or self._languages[-1])

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        if tag not in VOID:
            self._languages.pop()

    def handle_data(self, data: str) -> None:
        """Keep an English text."""
        if self._languages[-1] == "en" and data.strip():
            self.found.append(data.strip())


@pytest.fixture(scope="module", autouse=True)
def table(console: RunningConsole) -> Iterator[None]:
    """A table with a row."""
    with Client(**console.ready._asdict()) as client:
        client.create_table("orders", {"id": str})
        yield


@pytest.fixture
def chinese(admin: Visitor) -> Visitor:
    """A visitor who reads Chinese."""
    admin.cookies["rowtide_language"] = "zh"
    return admin


def english(visitor: Visitor, path: str, status: int) -> list[str]:
    answer = visitor.get(path)
    assert answer.status == status, answer.text
    assert '<html lang="zh"' in answer.text
    return [text for text in EnglishTexts(answer.text).found if text != "English"]


def test_a_failure_of_the_worker_is_marked(chinese: Visitor) -> None:
    [words] = english(chinese, "/i/demo/t/absent", 404)
    assert words == "Requested table does not exist."


def test_a_failure_of_the_console_is_chinese(chinese: Visitor) -> None:
    assert english(chinese, "/absent", 404) == []
    assert "没有这个页面" in chinese.get("/absent").text


def test_a_reason_within_a_chinese_sentence_is_marked(chinese: Visitor) -> None:
    path = f"/i/demo/t/orders/rows?filter={quote('a = <b>')}"
    [words] = english(chinese, path, 400)
    assert "<b>" in words
    page = chinese.get(path).text
    assert "<b>" not in page
    assert '<span lang="en">' in page


def test_the_data_of_a_failure_are_the_same_in_both_languages(chinese: Visitor) -> None:
    answer: dict[str, Any] = chinese.get("/i/demo/t/absent.json").document
    assert answer["error"] == {
        "status": 404,
        "code": "OTSObjectNotExist",
        "message": "Requested table does not exist.",
    }


def test_an_english_page_needs_no_mark(admin: Visitor) -> None:
    page = admin.get(f"/i/demo/t/orders/rows?filter={quote('a = <b>')}")
    assert page.status == 400
    assert '<span lang="en">' not in page.text
