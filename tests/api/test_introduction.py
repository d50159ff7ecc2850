"""The page that a browser shows for a server's endpoint."""

from __future__ import annotations

import urllib.error
import urllib.request
from importlib.metadata import version

import pytest

from rowtide.deploy.up import Ready

pytestmark = pytest.mark.system


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_browser_is_told_what_this_is(server: Ready, method: str) -> None:
    asked = urllib.request.Request(server.endpoint, headers={"Accept": "text/html"}, method=method)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        text = answer.read().decode()
    assert answer.status == 200
    if method == "HEAD":
        assert text == ""
        return
    assert f"rowtide {version('rowtide')}" in text
    assert server.endpoint not in text
    assert "http" not in text


def test_a_program_is_told_of_the_protocol_as_before(server: Ready) -> None:
    with pytest.raises(urllib.error.HTTPError) as failure:
        urllib.request.urlopen(server.endpoint, timeout=10)
    with failure.value:
        assert failure.value.code == 405
