"""One line in the log for each change that was tried: who, from where, what, and the outcome.

A line has no value of a row and no secret. The path names instance, table or key; a handler adds
what else identifies the change.
"""

from __future__ import annotations

import logging

from aiohttp import web

from rowtide.console.web.sessions import find_session

__all__ = ["audit", "log_change"]

logger = logging.getLogger("rowtide.console.audit")

_FACTS = "rowtide.audit"
FACT_CHARACTERS_MAX = 200


def audit(request: web.Request, **facts: object) -> None:
    """Add facts to the audit line of this change: names and keys, never values or secrets."""
    request.setdefault(_FACTS, {}).update(facts)


def log_change(request: web.Request, status: int) -> None:
    """Write the audit line of a change that was answered with ``status``."""
    session = find_session(request)
    fields: dict[str, object] = {
        "key": session.access_key_id if session is not None else "-",
        "address": request.remote or "-",
        "method": request.method,
        "path": request.path,
        "status": status,
        **request.get(_FACTS, {}),
    }
    shown = {name: _text(value) for name, value in fields.items()}
    line = " ".join(f"{name}={value}" for name, value in shown.items())
    logger.info("change %s", line, extra={"fields": {"event": "change", **shown}})


def _text(value: object) -> str:
    """Return a value on one line: a name with a line break must not begin a line of its own."""
    text = str(value)
    if not text.isprintable() or " " in text or len(text) > FACT_CHARACTERS_MAX:
        return ascii(text[:FACT_CHARACTERS_MAX])
    return text
