"""The page of error codes has every code, its status, and what a client may assume."""

import re
from pathlib import Path

from rowtide.client.failures import failure_of
from rowtide.core.values.errors import STATUS, OutcomeUnknown, Rejected, StoreError, Unavailable

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/errors.md"
SECTIONS: dict[str, type[StoreError]] = {
    "Rejected": Rejected,
    "Unavailable": Unavailable,
    "Unknown": OutcomeUnknown,
}


def section(name: str) -> str:
    """Return the text of a section of the page, up to the next one."""
    return PAGE.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def entries(text: str) -> list[tuple[str, int]]:
    """Return (code, HTTP status) of each entry that has a cause and a remedy."""
    found = re.findall(r"^### `(\w+)`: (\d+)\n\n- Cause: .+?\n- Remedy: .+?", text, re.M | re.S)
    return [(code, int(status)) for code, status in found]


def test_each_code_is_on_the_page_once_with_its_status() -> None:
    page = [entry for name in SECTIONS for entry in entries(section(name))]
    assert sorted(page) == sorted(STATUS.items())


def test_each_code_is_in_the_section_of_what_a_client_assumes() -> None:
    assert [
        code
        for name, kind in SECTIONS.items()
        for code, _ in entries(section(name))
        if not isinstance(failure_of(code, ""), kind)
    ] == []
