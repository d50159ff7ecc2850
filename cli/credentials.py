"""The key pair that ``rowtide up`` makes at its first start, kept in the data directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rowtide.stream.admin_operations import new_key_id, new_secret
from rowtide.stream.worker import Credentials

__all__ = ["load_or_create", "read"]

FILE = "credentials.json"


def read(data_dir: Path) -> Credentials | None:
    """Return the stored pair, or None where there is none."""
    try:
        return Credentials(**json.loads((data_dir / FILE).read_text()))
    except FileNotFoundError:
        return None


def load_or_create(data_dir: Path, instance: str) -> Credentials:
    """Return the stored pair, made first where there is none; only the owner may read the file."""
    stored = read(data_dir)
    if stored is not None:
        return stored
    made = Credentials(new_key_id(), new_secret(), instance)
    data_dir.mkdir(parents=True, exist_ok=True)
    file = os.open(data_dir / FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w") as out:
        json.dump(made._asdict(), out, indent=2)
        out.write("\n")
    return made
