"""What ``rowtide up`` leaves in its data directory for other commands of the same user.

credentials.json   the key pair and instance, made at the first start; only the owner may read it
endpoint.json      where the running server listens; there only while it takes requests, or after
                   a kill -9, when nobody answers at it
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
    """One of these files is not as it was written."""


class SavedCredentials(NamedTuple):
    """A key pair, and the instance it was made with."""

    access_key_id: str
    access_key_secret: str
    instance: str


def read_credentials(data_dir: Path) -> SavedCredentials | None:
    """Return the stored pair, or None where there is none. Raises ``DamagedFile``."""
    stored = _read(data_dir / CREDENTIALS, SavedCredentials._fields)
    return (
        None if stored is None else SavedCredentials(*(stored[n] for n in SavedCredentials._fields))
    )


def load_or_create(data_dir: Path, instance: str) -> tuple[SavedCredentials, bool]:
    """Return the pair and whether it was made just now. The caller owns the directory."""
    stored = read_credentials(data_dir)
    if stored is not None:
        return stored, False
    # Letters and digits alone: a secret that begins with a hyphen would pass for a flag.
    secret = "".join(secrets.choice(ALPHABET) for _ in range(40))
    made = SavedCredentials("rt" + secrets.token_hex(9), secret, instance)
    write_private(data_dir / CREDENTIALS, made._asdict())
    return made, True


def read_endpoint(data_dir: Path) -> str | None:
    """Return where the server of ``data_dir`` listens, or None where none does.

    Raises ``DamagedFile``.
    """
    stored = _read(data_dir / ENDPOINT, ("endpoint",))
    return None if stored is None else str(stored["endpoint"])


def write_endpoint(data_dir: Path, endpoint: str) -> None:
    """Say where the server listens."""
    write_private(data_dir / ENDPOINT, {"endpoint": endpoint, "pid": os.getpid()})


def remove_endpoint(data_dir: Path) -> None:
    """Say that no server listens any more."""
    (data_dir / ENDPOINT).unlink(missing_ok=True)


def write_private(path: Path, document: dict[str, Any]) -> None:
    """Write JSON that appears whole or not at all, and that only its owner may read."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)  # Its mode would stay what it was.
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        json.dump(document, out, indent=2)
        out.write("\n")
        out.flush()
        os.fsync(file)
    draft.replace(path)


def _read(path: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """Return what a file holds under ``names``, or None where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DamagedFile(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise DamagedFile(f"{path} is damaged: it holds no object")
    if missing := [name for name in names if not isinstance(found.get(name), str)]:
        raise DamagedFile(f"{path} is damaged: it has no {missing[0]}")
    return found
