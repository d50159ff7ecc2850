"""One line in the log for each change that was tried: who, from where, what, and the outcome.

A line has no value of a row and no secret. The path names instance, table or key; a handler adds
what else identifies the change.
"""

from __future__ import annotations

import logging

from aiohttp import web

from rowtide.console.web.addresses import address_of
from rowtide.console.web.sessions import find_session

__all__ = ["audit", "log_change", "log_event"]

logger = logging.getLogger("rowtide.console.audit")

_FACTS = "rowtide.audit"
FACT_CHARACTERS_MAX = 200


def audit(request: web.Request, **facts: object) -> None:
    """Add facts to the audit line of this change: names and keys, never values or secrets."""
    request.setdefault(_FACTS, {}).update(facts)


def log_change(request: web.Request, status: int) -> None:
    """Write the audit line of a change that was answered with ``status``."""
    session = find_session(request)
    key = session.access_key_id if session is not None else "-"
    facts = {"method": request.method, "path": request.path, "status": status}
    log_event(request, "change", key=key, **facts, **request.get(_FACTS, {}))


def log_event(request: web.Request, event: str, /, **facts: object) -> None:
    """Write one line about what a person did, with the address that they came from."""
    shown = {name: _text(value) for name, value in facts.items()}
    shown["address"] = address_of(request)
    line = " ".join(f"{name}={value}" for name, value in shown.items())
    logger.info("%s %s", event, line, extra={"fields": {"event": event, **shown}})


def _text(value: object) -> str:
    """Return a value on one line: a name with a line break must not begin a line of its own."""
    text = str(value)
    if not text.isprintable() or " " in text or len(text) > FACT_CHARACTERS_MAX:
        return ascii(text[:FACT_CHARACTERS_MAX])
    return text
