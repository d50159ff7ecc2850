"""How settings are read."""

from __future__ import annotations

import pytest

from rowtide.connectors.fields import Fields, SettingsRefused

URLS = """
http://host
https://host:443/path?query
http://user:password@host:8123/
http://[::1]:9200
"""

NO_URLS = """
host:9200
ftp://host
http://
http:///path
http://host:port
http://host:99999
http://host:0
http://[::1
http://two hosts
"""


@pytest.mark.parametrize("url", URLS.split())
def test_a_url_is_taken_as_it_is(url: str) -> None:
    assert Fields({"url": url}, "sink").url("url") == url


@pytest.mark.parametrize("url", [*NO_URLS.strip().splitlines(), "http://host\n", " http://host"])
def test_what_is_no_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        Fields({"url": url}, "sink").url("url")
    assert str(caught.value) == "sink.url must be http(s)://HOST[:PORT][/PATH]."
