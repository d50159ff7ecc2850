"""The documents of connectors: each example is valid, and a page describes every setting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import SINKS, SOURCES, ConnectorContext, make_sink, make_source
from rowtide.connectors.runtime.declaration import Declaration, parse_file

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "docs/guides/connectors"
KINDS = sorted(f"{FOLDER}/{path.name}" for path in (ROOT / FOLDER).glob("[a-z]*.md"))
"""The pages that describe one kind of source or sink, or several alike."""
PAGES = ["README.md", f"{FOLDER}/README.md", *KINDS]
EXAMPLE = re.compile(r"```yaml\n(connectors:.*?)```", re.DOTALL)
VARIABLE = re.compile(r"\$\{(\w+)\}")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def examples() -> Iterator[tuple[str, Declaration]]:
    """Yield every connector that a page declares, with the page."""
    for page in PAGES:
        for example in EXAMPLE.findall(text_of(page)):
            yield from ((page, declared) for declared in parse_file(example, page))


def make_declared(page: str, declared: Declaration) -> Fields:
    """Make what is declared; return its settings, which know what they were asked for."""
    environment = dict.fromkeys(VARIABLE.findall(text_of(page)), "x")
    fields = Fields(declared.sink or declared.source, declared.name, environment=environment)
    make = make_sink if declared.sink else make_source
    assert make(fields, ConnectorContext(declared.name, "/nowhere"))
    return fields


@pytest.mark.parametrize(
    ("page", "declared"),
    [pytest.param(*found, id=f"{found[0]} {found[1].name}") for found in examples()],
)
def test_an_example_is_taken_and_the_page_of_its_kind_tells_every_setting(
    page: str, declared: Declaration
) -> None:
    asked = make_declared(page, declared)._asked
    if page in KINDS:
        assert asked - {"kind"} <= set(re.findall(r"`(\w+)`", text_of(page)))


def test_every_kind_has_an_example_on_its_page() -> None:
    found = [declared for page, declared in examples() if page in KINDS]
    assert {declared.kind for declared in found if declared.sink} == set(SINKS)
    assert {declared.kind for declared in found if declared.source} == set(SOURCES)
