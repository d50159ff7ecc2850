"""Which hosts and origins a request may name.

A page of another site can make a browser send requests here. Two checks stop that:

- **Host**, of every request. A site whose DNS name is re-bound to this machine's address still
  sends its own name. So a name must be known; an address cannot be re-bound.
- **Origin**, of every change. A browser sends the origin of the page that asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["OriginRules"]

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::\d{1,5})?")
ANY_ADDRESS = ("0.0.0.0", "::", "")


class OriginRules:
    """``names`` are host names under which people reach the console, besides ``localhost``.

    ``public_url`` is its address behind a proxy, which may end TLS; empty without one.
    """

    def __init__(self, names: Collection[str], public_url: str) -> None:
        public = urlsplit(public_url)
        self._public_origin = f"{public.scheme}://{public.netloc}".lower() if public_url else ""
        known = {*names, "localhost", *([public.hostname] if public.hostname else [])}
        self._names = {name.lower() for name in known if name not in ANY_ADDRESS}

    def allows_host(self, host: str) -> bool:
        """True if a Host header names this console. The port is not compared: it may be mapped."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found["six"] or found["name"]).lower()
        return name in self._names or _is_address(name)

    def allows_origin(self, origin: str, host: str) -> bool:
        """True if a change that says ``origin`` comes from a page of this console.

        ``host`` is the request's Host header. A proxy may end TLS, so both schemes are allowed.
        """
        origin = origin.lower()
        own = {f"http://{host.lower()}", f"https://{host.lower()}", self._public_origin} - {""}
        return origin in own

    def is_secure(self, origin: str) -> bool:
        """True if the browser reached us through TLS, as the origin of its request says."""
        return origin.lower().startswith("https://")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
