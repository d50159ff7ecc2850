"""The server of the other tests is a real one, and survives a kill."""

from __future__ import annotations

import pytest

from demo.servers.search_server import SearchServer

pytestmark = pytest.mark.system


def test_a_document_acknowledged_is_there_after_kill_9(search_server: SearchServer) -> None:
    url = search_server.url
    search_server.call("PUT", "/killed/_doc/1", {"kept": True})
    search_server.kill()
    search_server.start()
    assert search_server.url == url
    assert search_server.call("GET", "/")["version"]["number"] == search_server.distribution.version
    search_server.call("GET", "/_cluster/health/killed?wait_for_status=yellow")
    assert search_server.call("GET", "/killed/_doc/1")["_source"] == {"kept": True}
    search_server.call("DELETE", "/killed")
