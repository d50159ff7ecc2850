"""Who asks, over what, and what a cluster's failures mean; against an HTTP server of our own."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.sinks.opensearch.bulk import Bulk, Item
from rowtide.connectors.sinks.opensearch.cluster import (
    ClusterRefused,
    ClusterSettings,
    OpenSearchCluster,
    TooLarge,
)
from rowtide.connectors.sinks.opensearch.sink import OpenSearchSink
from rowtide.core.values.errors import Unavailable

HERE = Path(__file__).parent
CERTIFICATE = HERE / "loopback_certificate.pem"  # For 127.0.0.1, signed by itself.
KEY = HERE / "loopback_key.pem"


@asynccontextmanager
async def answering(
    status: int, body: str = "{}", *, tls: bool = False, needs: str = "", bytes_max: int = 0
) -> AsyncIterator[str]:
    """Serve one answer to everything; ``needs`` an Authorization, ``bytes_max`` bounds requests."""

    async def answer(request: web.Request) -> web.Response:
        content = await request.read()
        if needs and request.headers.get("Authorization") != needs:
            return web.Response(status=401, text='{"error": {"type": "who", "reason": "are you"}}')
        if bytes_max and len(content) > bytes_max:
            return web.Response(status=413)
        return web.Response(status=status, text=body, content_type="application/json")

    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE, KEY)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connect_cluster(settings: ClusterSettings) -> AsyncIterator[OpenSearchCluster]:
    cluster = OpenSearchCluster(settings, connections=2)
    try:
        yield cluster
    finally:
        await cluster.close()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (ClusterSettings("", user="ann", password="it's"), "Basic YW5uOml0J3M="),
        (ClusterSettings("", api_key="abc="), "ApiKey abc="),
    ],
)
async def test_who_asks_is_told_with_every_request(given: ClusterSettings, sent: str) -> None:
    async with answering(200, needs=sent) as url:
        async with connect_cluster(replace(given, url=url)) as cluster:
            assert await cluster.call("GET", "/") == {}
        async with connect_cluster(ClusterSettings(url)) as cluster:
            with pytest.raises(ClusterRefused, match="who: are you"):
                await cluster.call("GET", "/")


async def test_a_certificate_is_judged_by_the_file_that_is_named_or_not_at_all() -> None:
    async with answering(200, tls=True) as url:
        async with connect_cluster(ClusterSettings(url, ca_file=str(CERTIFICATE))) as cluster:
            assert await cluster.call("GET", "/") == {}
        async with connect_cluster(ClusterSettings(url, verify=False)) as cluster:
            assert await cluster.call("GET", "/") == {}
        async with connect_cluster(ClusterSettings(url)) as cluster:
            with pytest.raises(Unavailable, match="certificate"):
                await cluster.call("GET", "/")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_busy_and_away_are_unavailable(status: int) -> None:
    async with answering(status) as url, connect_cluster(ClusterSettings(url)) as cluster:
        with pytest.raises(Unavailable, match=f"is busy \\({status}\\)"):
            await cluster.call("GET", "/")


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        ('[{"type": "query", "reason": "too large: 1001"}]', "failed: all shards: too large: 1001"),
        ('[{"type": "failed", "reason": "all shards"}]', "failed: all shards"),
        ("[]", "failed: all shards"),
    ],
)
async def test_a_refusal_names_what_is_behind_it(causes: str, expected: str) -> None:
    body = f'{{"error": {{"type": "failed", "reason": "all shards", "root_cause": {causes}}}}}'
    async with answering(400, body) as url, connect_cluster(ClusterSettings(url)) as cluster:
        with pytest.raises(ClusterRefused, match=f"^{expected}$"):
            await cluster.call("GET", "/")


async def test_nobody_there_is_unavailable() -> None:
    async with answering(200) as url:
        pass
    async with connect_cluster(ClusterSettings(url)) as cluster:
        with pytest.raises(Unavailable, match="No answer from"):
            await cluster.call("GET", "/")


async def test_a_request_that_is_too_large_is_halved_down_to_the_document_at_fault() -> None:
    items = [Item(str(i), 1, "x" * size) for i, size in enumerate([200, 5000, 100, 900])]
    async with (
        answering(200, '{"errors": false}', bytes_max=1000) as url,
        connect_cluster(ClusterSettings(url)) as cluster,
    ):
        refused = await Bulk(cluster, "alias", request_bytes=10**6).put(items)
        assert [one.place for one in refused] == [1]
        with pytest.raises(TooLarge):
            await cluster.send("POST", "/", b"x" * 2000, kind="text/plain")


async def test_writes_that_are_blocked_are_tried_again_later() -> None:
    error = '{"type": "cluster_block_exception", "reason": "the disk is full"}'
    body = f'{{"errors": true, "items": [{{"index": {{"status": 403, "error": {error}}}}}]}}'
    async with answering(200, body) as url, connect_cluster(ClusterSettings(url)) as cluster:
        with pytest.raises(Unavailable, match="too busy for 1 documents"):
            await Bulk(cluster, "alias", request_bytes=1000).put([Item("a", 1, "{}")])


def sink_of(**given: object) -> object:
    settings = {"kind": "opensearch", "url": "https://search:9200", **given}
    fields = Fields(settings, "sink", environment={"SECRET": "s3"})
    return make_sink(fields, ConnectorContext("search", ""))


def test_settings_are_read_strictly() -> None:
    assert isinstance(sink_of(password="${SECRET}", replicas=0, verify=False), OpenSearchSink)
    with pytest.raises(SettingsRefused, match="url must be http"):
        sink_of(url="search:9200")
    with pytest.raises(SettingsRefused, match="index must be lower-case"):
        sink_of(index="Flights")
    with pytest.raises(SettingsRefused, match="language must be one of"):
        sink_of(language="klingon")
    with pytest.raises(SettingsRefused, match="has no setting sharts"):
        sink_of(sharts=1)
