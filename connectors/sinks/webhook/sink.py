"""Rows posted to a URL. A response of 2xx means that they are delivered.

One batch's messages are sent one after the other, so a key's rows arrive in order.
Batches of several shards are sent at once. The receiver drops a row whose stamp is below
the one it has for the key. An error's text never has the secret, the headers or the URL's
query.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit

import aiohttp

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.sinks.webhook.message import (
    Message,
    message_id,
    messages,
    secret_bytes,
    signatures,
)
from rowtide.core.values.errors import Rejected, Unavailable

__all__ = ["WebhookSettings", "WebhookSink", "make_sink"]

BUSY = frozenset({408, 425, 429})
NOT_THE_ROWS = frozenset({401, 402, 403, 404, 405, 406, 407, 410, 411, 415, 421, 426, 431, 451})
"""Statuses about the endpoint or its permissions. No row is the cause."""
TOO_LARGE = 413
SAME_AGAIN = frozenset({307, 308})
"""Redirections that keep the method and the body."""
REDIRECTIONS_MAX = 3
BACKOFF_S = 0.2
BACKOFF_S_MAX = 10.0
RETRY_AFTER_S_MAX = 3600.0
ANSWER_BYTES_MAX = 500


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where rows are posted. After ``attempts`` the connector must wait."""

    url: str = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    rows_max: int = 500
    bytes_max: int = 1 << 20
    timeout_s: float = 30.0
    attempts: int = 4


class WebhookSink:
    """One endpoint."""

    every_change = True
    """A receiver gets each row of a key, not only the last of a batch."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._not_before_s = 0.0
        self._url = settings.url
        parts = urlsplit(settings.url)
        self._origin = (parts.scheme, parts.hostname, parts.port)
        self._shown = f"{parts.scheme}://{parts.hostname}{parts.path}"

    async def open(self, table: TableShape) -> None:
        """Prepare the session. Nothing is sent yet."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._settings.timeout_s)
            # No proxy of the environment and no cookies: they are settings of other
            # programs.
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=jar, trust_env=False)

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Post a batch. Return the rows that the receiver refuses even alone."""
        settings = self._settings
        refused: list[Refused] = []
        for message in messages(batch, rows_max=settings.rows_max, bytes_max=settings.bytes_max):
            await self._deliver(message, refused)
        return refused

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _deliver(self, message: Message, refused: list[Refused]) -> None:
        """Post a message. If it is refused, post its halves in order."""
        message = _without(message, refused)
        if not message.rows and message.covers is None:
            return
        body = message.body
        if len(body) > self._settings.bytes_max:
            why = f"{len(body)} bytes, the limit is {self._settings.bytes_max}"
        else:
            why = await self._post_with_retries(body)
        if not why:
            return
        if len(message.rows) > 1:
            for half in message.halves():
                await self._deliver(half, refused)
        elif message.rows:
            refused.append(Refused(message.rows[0], why))
        else:
            raise Rejected("OTSParameterInvalid", f"{self._shown} refuses an empty page: {why}")

    async def _post_with_retries(self, body: bytes) -> str:
        """Post until there is a response. Return why it refuses the rows, or an empty text."""
        pause_s = BACKOFF_S
        for attempt in range(1, self._settings.attempts + 1):
            await self._wait()
            try:
                return await self._once(message_id(body), body)
            except Unavailable:
                if attempt == self._settings.attempts:
                    raise
            # Jitter keeps senders that failed together from retrying together.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, BACKOFF_S_MAX)
        raise AssertionError("the last attempt returns or raises")

    async def _wait(self) -> None:
        """Wait as long as the receiver requested. Raises Unavailable if that is too long."""
        left_s = self._not_before_s - time.monotonic()
        if left_s > BACKOFF_S_MAX:
            raise Unavailable(f"{self._shown} requested {left_s:.0f} s without requests")
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def _once(self, name: str, body: bytes) -> str:
        assert self._session is not None, "opened before"
        time_s = int(time.time())
        headers = {
            **self._settings.headers,
            "Content-Type": "application/json",
            "User-Agent": "rowtide",
            "webhook-id": name,
            "webhook-timestamp": str(time_s),
        }
        if self._settings.secrets:
            proof = signatures(self._settings.secrets, name, time_s, body)
            headers["webhook-signature"] = proof
        url = self._url
        for _ in range(REDIRECTIONS_MAX + 1):
            try:
                async with self._session.post(
                    url, data=body, headers=headers, allow_redirects=False
                ) as response:
                    text = await _text(response)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # The error's text may contain the whole URL.
                raise Unavailable(f"{self._shown}: {type(error).__name__}") from None
            if response.status not in SAME_AGAIN:
                return self._answer(response.status, response.headers, text)
            url = self._elsewhere(url, response.headers.get("Location", ""))
        raise Rejected("OTSParameterInvalid", f"{self._shown} redirects too often")

    def _answer(self, status: int, headers: Mapping[str, str], text: bytes) -> str:
        """Return why rows are refused, an empty text if they are accepted. Raises other
        failures.
        """
        if 200 <= status < 300:
            return ""
        summary = f"{self._shown} answered {status} {text.decode(errors='replace')}".rstrip()
        if status in BUSY or status >= 500:
            self._note_pause(headers.get("Retry-After", ""))
            raise Unavailable(summary)
        if status in NOT_THE_ROWS or status < 400:
            raise Rejected("OTSParameterInvalid", summary)
        return summary

    def _note_pause(self, retry_after: str) -> None:
        """Store the pause of a Retry-After header: seconds or a date."""
        try:
            pause_s = float(retry_after)
        except ValueError:
            try:
                pause_s = parsedate_to_datetime(retry_after).timestamp() - time.time()
            except (TypeError, ValueError):
                return
        until_s = time.monotonic() + min(max(pause_s, 0.0), RETRY_AFTER_S_MAX)
        self._not_before_s = max(self._not_before_s, until_s)

    def _elsewhere(self, url: str, location: str) -> str:
        """Return the target of a redirection. It must have the same origin."""
        target = urljoin(url, location)
        parts = urlsplit(target)
        if not location or (parts.scheme, parts.hostname, parts.port) != self._origin:
            shown = f"{parts.scheme}://{parts.hostname}"
            raise Rejected("OTSParameterInvalid", f"{self._shown} redirects to {shown}")
        return target


async def _text(response: aiohttp.ClientResponse) -> bytes:
    """Return the start of a response's body. With 2xx it is not needed and may be cut off."""
    try:
        return await response.content.read(ANSWER_BYTES_MAX)
    except (aiohttp.ClientError, TimeoutError, OSError):
        if 200 <= response.status < 300:
            return b""
        raise


def _without(message: Message, refused: list[Refused]) -> Message:
    """Refuse rows that follow a refused row of their key, to keep their order."""
    if not refused:
        return message
    keys = {refusal.row.key_bytes: refusal.reason for refusal in refused}
    kept = [
        (row, body)
        for row, body in zip(message.rows, message.bodies, strict=True)
        if row.key_bytes not in keys
    ]
    if len(kept) == len(message.rows):
        return message
    refused += [
        Refused(row, f"behind a refused row of its key: {keys[row.key_bytes]}")
        for row in message.rows
        if row.key_bytes in keys
    ]
    return message._replace(rows=[row for row, _ in kept], bodies=[body for _, body in kept])


def make_sink(fields: Fields, surroundings: ConnectorContext) -> WebhookSink:
    """Return the sink that settings describe."""
    url = fields.url("url")
    given = fields.text("secret", "").split()
    try:
        secrets = tuple(secret_bytes(text) for text in given)
    except ValueError as error:
        raise SettingsRefused(f"{fields.where}.secret must be base64 after whsec_.") from error
    headers = fields.inner("headers")
    named = {name: headers.text(name) for name in headers.names()}
    for name, text in named.items():
        if not name.isprintable() or not text.isprintable():
            raise SettingsRefused(f"{headers.where}: {name!r} has more than one line.")
    return WebhookSink(
        WebhookSettings(
            url,
            secrets,
            named,
            rows_max=fields.integer("rows", 500, least=1, most=10_000),
            bytes_max=fields.integer("bytes", 1 << 20, least=4096, most=64 << 20),
            timeout_s=float(fields.integer("timeout_s", 30, least=1, most=600)),
            attempts=fields.integer("attempts", 4, least=1, most=20),
        )
    )
