"""The server that the other tests stand on is the real one, and survives being killed."""

from __future__ import annotations

import pytest

from demo.servers.opensearch import VERSION, OpenSearch

pytestmark = pytest.mark.system


def test_a_document_acknowledged_is_there_after_kill_9(server: OpenSearch) -> None:
    url = server.url
    server.call("PUT", "/killed/_doc/1", {"kept": True})
    server.kill()
    server.start()
    assert server.url == url
    assert server.call("GET", "/")["version"]["number"] == VERSION
    server.call("GET", "/_cluster/health/killed?wait_for_status=yellow")
    assert server.call("GET", "/killed/_doc/1")["_source"] == {"kept": True}
    server.call("DELETE", "/killed")
