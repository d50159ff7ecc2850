"""Files that ``rowtide up`` writes to its data directory for other commands of the same user.

credentials.json   the key pair and instance, created at the first start; readable by its owner
endpoint.json      the running server's address; removed at the end, but left by a kill -9
"""

from __future__ import annotations

import json
import os
import secrets
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "CREDENTIALS",
    "DamagedFile",
    "SavedCredentials",
    "load_or_create",
    "read_credentials",
    "read_endpoint",
    "remove_endpoint",
    "write_endpoint",
    "write_private",
]

CREDENTIALS = "credentials.json"
ALPHABET = string.ascii_letters + string.digits
ENDPOINT = "endpoint.json"


class DamagedFile(ValueError):
    """One of these files is damaged."""


class SavedCredentials(NamedTuple):
    """A key pair, and the instance for which it was created."""

    access_key_id: str
    access_key_secret: str
    instance: str


def read_credentials(data_dir: Path) -> SavedCredentials | None:
    """Return the stored pair, or None if there is none. Raises ``DamagedFile``."""
    stored = _read(data_dir / CREDENTIALS, SavedCredentials._fields)
    return (
        None if stored is None else SavedCredentials(*(stored[n] for n in SavedCredentials._fields))
    )


def load_or_create(data_dir: Path, instance: str) -> tuple[SavedCredentials, bool]:
    """Return the pair, and True if it is new. The caller owns the directory."""
    stored = read_credentials(data_dir)
    if stored is not None:
        return stored, False
    # Only letters and digits: a secret that begins with a hyphen would look like a flag.
    secret = "".join(secrets.choice(ALPHABET) for _ in range(40))
    made = SavedCredentials("rt" + secrets.token_hex(9), secret, instance)
    write_private(data_dir / CREDENTIALS, made._asdict())
    return made, True


def read_endpoint(data_dir: Path) -> str | None:
    """Return the address of the server on ``data_dir``, or None without a server.

    Raises ``DamagedFile``.
    """
    stored = _read(data_dir / ENDPOINT, ("endpoint",))
    return None if stored is None else str(stored["endpoint"])


def write_endpoint(data_dir: Path, endpoint: str) -> None:
    """Write the server's address."""
    write_private(data_dir / ENDPOINT, {"endpoint": endpoint, "pid": os.getpid()})


def remove_endpoint(data_dir: Path) -> None:
    """Remove the server's address, because it has stopped."""
    (data_dir / ENDPOINT).unlink(missing_ok=True)


def write_private(path: Path, document: dict[str, Any]) -> None:
    """Write JSON atomically; only the owner may read it."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)  # An existing file would keep its mode.
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        json.dump(document, out, indent=2)
        out.write("\n")
        out.flush()
        os.fsync(file)
    draft.replace(path)


def _read(path: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """Return a file's content with ``names``, or None if there is no file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DamagedFile(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise DamagedFile(f"{path} is damaged: it is no JSON object")
    if missing := [name for name in names if not isinstance(found.get(name), str)]:
        raise DamagedFile(f"{path} is damaged: it has no {missing[0]}")
    return found
