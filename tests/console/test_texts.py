"""Every text of the pages is there in both languages, and no page has a text of its own."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from rowtide.console.languages.texts import (
    LANGUAGES,
    PLACEHOLDER,
    choose_language,
    list_parts,
    texts_of,
    translate,
)

CONSOLE = Path(__file__).resolve().parents[2] / "console"
TEMPLATES = sorted(path.name for path in (CONSOLE / "templates").glob("*.html"))
BARE = {"rowtide", "·", "…", "/", ",", ":", "(", ")", "%", "•••", "s", "ms"}
"""Words and units that are the same in every language."""
WORDS_IN = ("alt", "aria-label", "placeholder", "title")
NAMES_OF_LANGUAGES = {"English", "中文"}


def placeholders(texts: dict[str, str]) -> dict[str, list[str]]:
    return {key: sorted(PLACEHOLDER.findall(text)) for key, text in texts.items()}


@pytest.mark.parametrize("part", list_parts())
def test_all_languages_have_the_same_texts_with_the_same_placeholders(part: str) -> None:
    first, *others = [placeholders(dict(texts_of(language, part))) for language in LANGUAGES]
    assert first
    for other in others:
        assert other == first


def test_all_languages_have_the_same_files() -> None:
    found = [{path.name for path in (CONSOLE / "languages" / name).iterdir()} for name in LANGUAGES]
    assert all(names == found[0] for names in found)


@pytest.mark.parametrize("part", list_parts())
def test_a_file_has_each_key_once_and_no_empty_text(part: str) -> None:
    for language in LANGUAGES:
        text = (CONSOLE / "languages" / language / f"{part}.json").read_text(encoding="utf-8")
        pairs: list[tuple[str, str]] = json.loads(text, object_pairs_hook=list)
        assert len(pairs) == len(dict(pairs))
        assert [key for key, words in pairs if not words.strip()] == []


def test_chinese_texts_are_chinese() -> None:
    latin = [
        f"{part}.{key}"
        for part in list_parts()
        for key, text in texts_of("zh", part).items()
        # What has words in English, and none in Chinese, was forgotten.
        if re.search(r"[A-Za-z]{3}", texts_of("en", part)[key])
        and text == texts_of("en", part)[key]
        if not re.search(r"[\u4e00-\u9fff]", text) and " " in text.strip()
    ]
    assert latin == []


def parse_template(name: str) -> nodes.Template:
    return jinja2.Environment().parse((CONSOLE / "templates" / name).read_text(encoding="utf-8"))


def names_of_texts(tree: nodes.Node) -> set[str]:
    """Return the texts that a template names as a whole: ``t("live.pause")``."""
    return {
        call.args[0].value
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Name) and call.node.name == "t" and call.args
        if isinstance(call.args[0], nodes.Const)
    }


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_text_that_a_template_names_exists(template: str) -> None:
    names = names_of_texts(parse_template(template))
    missing = [name for name in sorted(names) if name.partition(".")[2] not in texts_of_part(name)]
    assert missing == []


def texts_of_part(name: str) -> dict[str, str]:
    part = name.partition(".")[0]
    return dict(texts_of("en", part)) if part in list_parts() else {}


class BareTexts(HTMLParser):
    """Collects the texts that a reader of a page would see."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside.append(tag)
        self.found += [value for name, value in attrs if name in WORDS_IN and value]

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"code", "pre"} & {*self.inside}:
            self.found += data.split()


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_has_no_text_of_its_own(template: str) -> None:
    text = (CONSOLE / "templates" / template).read_text(encoding="utf-8")
    parser = BareTexts()
    parser.feed(re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", "", text, flags=re.DOTALL))
    words = [word for word in parser.found if word.strip()]
    # An example within a field, such as status = 'open', is a filter and no text.
    assert [
        word
        for word in words
        if word not in BARE | NAMES_OF_LANGUAGES and not re.fullmatch(r"\w+ = '\w+'", word)
    ] == []


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_has_nothing_that_the_policy_forbids(template: str) -> None:
    text = (CONSOLE / "templates" / template).read_text(encoding="utf-8")
    assert re.findall(r"\s(?:style|on\w+)\s*=|<style|javascript:|\|\s*safe\b", text) == []
    assert re.findall(r"<script(?![^>]*\ssrc=)", text) == []


MODULES = sorted(
    path.relative_to(CONSOLE / "static")
    for path in (CONSOLE / "static").rglob("*.js")
    if "vendor" not in path.parts
)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_text_that_a_module_names_exists(module: Path) -> None:
    text = (CONSOLE / "static" / module).read_text(encoding="utf-8")
    part = module.parts[0] if len(module.parts) > 1 else "frame"
    names = re.findall(r"\bt\(\s*\"(\w+)\"", text) + re.findall(r"fill\(\w+, \"(\w+)\"", text)
    assert {name for name in names if name not in texts_of_part(f"{part}.")} == set()


def test_a_placeholder_is_filled_and_a_missing_value_is_an_error() -> None:
    assert translate("en", "frame.user", key="{theme} <b>") == "Access key {theme} <b>"
    with pytest.raises(KeyError):
        translate("en", "frame.user")
    with pytest.raises(KeyError):
        translate("en", "frame.nothing")
    with pytest.raises(KeyError):
        translate("../en", "frame.user", key="")


ACCEPTED = [
    ("", "en"),
    ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
    ("en-US,en;q=0.9,zh;q=0.8", "en"),
    ("fr, zh;q=0.3", "zh"),
    ("fr, de", "en"),
    ("zh;q=0, en;q=0.1", "en"),
    ("zh;q=0", "en"),
    ("zh;q=nonsense, en;q=0.1", "en"),
    (",;=,q", "en"),
    ("ZH-hant-TW", "zh"),
]


@pytest.mark.parametrize(("accepted", "language"), ACCEPTED)
def test_the_language_is_the_one_that_the_browser_likes_best(accepted: str, language: str) -> None:
    assert choose_language(accepted) == language
