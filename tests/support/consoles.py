"""A server with its console as processes, and a visitor who does what a browser does without
JavaScript: it keeps cookies, and names the origin of its forms."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from rowtide.cli.client import ProtocolClient
from rowtide.deploy.up import Ready
from tests.support.servers import serving
from tests.support.waiting import until

__all__ = ["ConsoleAnswer", "RunningConsole", "Visitor", "serving_console"]


ANSWER_S_MAX = 60.0
"""A console may start for its first visitor."""

_numbers = count()
"""Of visitors: the console counts attempts by address."""


class RunningConsole(NamedTuple):
    """A console beside a server. ``folder`` has the server's data and its output."""

    port: int
    ready: Ready
    folder: Path

    @property
    def url(self) -> str:
        """Address of the console."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the console that runs now."""
        found = json.loads((self.folder / "data" / "console.json").read_text())
        return int(found["pid"])

    @property
    def output(self) -> str:
        """What server and console have printed and logged."""
        return (self.folder / "output").read_text(errors="replace")

    def visitor(self) -> Visitor:
        """Return a visitor who is not logged in. Each has an address of its own."""
        return Visitor(self.port)

    def create_key(self, *, admin: bool = True, read_only: bool = False) -> dict[str, str]:
        """Return a new key, as the fields of the log-in. Each key may try only so often."""
        with ProtocolClient(**self.ready._asdict(), timeout_s=30.0) as client:
            made = client.call_json("RowtideCreateKey", {"admin": admin, "read_only": read_only})
        return {
            "access_key_id": made["access_key_id"],
            "access_key_secret": made["access_key_secret"],
            "instance": self.ready.instance,
        }

    def log_in(self, *, admin: bool = True, read_only: bool = False) -> Visitor:
        """Return a visitor who has logged in with a new key."""
        visitor = self.visitor()
        fields = self.create_key(admin=admin, read_only=read_only)
        assert visitor.post("/login", fields).status == 303
        visitor.key = fields
        return visitor


@contextmanager
def serving_console(
    folder: Path, *options: str, log: Literal["chosen", "kafka"] = "chosen"
) -> Iterator[RunningConsole]:
    """Run a server with a console until the end."""
    with serving(folder, "--console", "true", *options, log=log) as ready:
        place = folder / "data" / "console.json"
        until(place.exists, lambda: (folder / "output").read_text(errors="replace"))
        yield RunningConsole(int(json.loads(place.read_text())["port"]), ready, folder)


class ConsoleAnswer(NamedTuple):
    """An answer of the console."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def document(self) -> Any:
        """The JSON of the answer."""
        return json.loads(self.text)

    @property
    def location(self) -> str:
        """Where a redirect leads."""
        return str(self.headers["Location"])


class Visitor:
    """A browser without JavaScript at one console."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.cookies: dict[str, str] = {}
        self.key: dict[str, str] = {}
        number = next(_numbers)
        self._address = f"127.0.{1 + number // 250}.{1 + number % 250}"

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> ConsoleAnswer:
        """Load a page."""
        return self.send("GET", path, None, headers or {})

    def post(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> ConsoleAnswer:
        """Send a form of one of the console's pages; again where a session changes too fast."""
        while True:
            answer = self.post_once(path, fields, headers)
            if (answer.status, answer.headers["Retry-After"]) != (429, "1"):
                return answer

    def post_once(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> ConsoleAnswer:
        """Send a form, and take any answer."""
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        origin = {"Origin": f"http://{self.host}"}
        body = urlencode(fields).encode()
        return self.send("POST", path, body, {**form, **origin, **(headers or {})})

    def change(self, path: str, fields: Mapping[str, str] | None = None) -> ConsoleAnswer:
        """Send a form with the session's CSRF token."""
        return self.post(path, {"csrf": self.csrf(), **(fields or {})})

    def csrf(self) -> str:
        """Return the token that the session's forms have."""
        page = self.get("/").text
        found = re.search(r'name="csrf" value="([^"]*)"', page)
        assert found, page
        return unescape(found[1])

    def send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> ConsoleAnswer:
        """Send a request as it is; a header that is empty is left out."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        known = {"Host": self.host, "Accept": "text/html", "Cookie": cookie, **headers}
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=ANSWER_S_MAX, source_address=(self._address, 0)
        )
        try:
            given = {name: value for name, value in known.items() if value}
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for line in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return ConsoleAnswer(answer.status, answer.headers, text)
