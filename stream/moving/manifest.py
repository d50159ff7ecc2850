"""The manifest of an export: its partitions, how far each goes, and the content of its file.

It is JSON, written last: a folder without it is an unfinished export. Its checksum names
the export, so an import that continues later recognises its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from rowtide.stream.log.topics import TopicNames, TopicSpec
from rowtide.stream.moving.frames import FORMAT, Damaged

__all__ = [
    "CATALOG",
    "CHANGELOG",
    "LEASE",
    "SHARD",
    "Manifest",
    "ManifestPart",
    "full_name",
    "specs",
]

CATALOG, CHANGELOG, LEASE, SHARD = "catalog", "changelog", "lease", "shard."
"""Topics as an export names them: without the prefix, which may differ in the target."""

_TOPIC = re.compile(r"catalog|changelog|lease|shard\.s\d+")


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """One partition. For a changelog, ``start`` and ``end`` are those of the local log."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    bytes: int
    """Size of the file."""
    sha256: str
    """SHA-256 of the file."""

    @property
    def name(self) -> str:
        """Return the name for people."""
        return f"{self.topic}[{self.partition}]"

    @property
    def file(self) -> str:
        """Return the name of the file."""
        return f"{self.topic}-{self.partition}.records"


@dataclass(frozen=True, slots=True)
class Manifest:
    """All partitions. ``source`` names the directory and its state, ``written_by`` the version."""

    source: str
    written_by: str
    parts: tuple[ManifestPart, ...]

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return sum(part.topic == LEASE for part in self.parts)

    @property
    def digest(self) -> str:
        """Return the checksum, which identifies the export."""
        return _digest(self._content())

    def encode(self) -> bytes:
        """Return the file's bytes."""
        content = self._content()
        return (json.dumps({**content, "checksum": _digest(content)}, indent=1) + "\n").encode()

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "source": self.source,
            "written_by": self.written_by,
            "parts": [asdict(part) for part in self.parts],
        }

    @classmethod
    def decode(cls, stored: bytes) -> Manifest:
        """Return the manifest of a file's bytes. Raises ``Damaged``."""
        try:
            content = json.loads(stored)
            if content["format"] != FORMAT:
                raise Damaged(f"it has format {content['format']!r}, this version reads {FORMAT}")
            if content.pop("checksum") != _digest(content):
                raise Damaged("it does not match its checksum")
            parts = tuple(ManifestPart(**part) for part in content["parts"])
            manifest = cls(content["source"], content["written_by"], parts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"it is no manifest of an export: {error!r}") from error
        _require_whole(manifest)
        return manifest


def _require_whole(manifest: Manifest) -> None:
    """Raise ``Damaged`` unless there are a catalog, and a lease and a changelog per slot."""
    places = [(part.topic, part.partition) for part in manifest.parts]
    strange = [topic for topic, _ in places if not _TOPIC.fullmatch(topic)]
    if strange:
        raise Damaged(f"it names a topic {strange[0]!r}")
    slots = range(manifest.slots)
    wanted = {(CATALOG, 0), *((topic, slot) for topic in (LEASE, CHANGELOG) for slot in slots)}
    wanted |= {place for place in places if place[0].startswith(SHARD) and place[1] == 0}
    if not slots or sorted(places) != sorted(wanted):
        raise Damaged("its partitions are not those of one rowtide")


def _digest(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def full_name(topic: str, names: TopicNames) -> str:
    """Return the full name of a topic of an export."""
    if topic.startswith(SHARD):
        return names.shard(topic.removeprefix(SHARD))
    return {CATALOG: names.catalog, CHANGELOG: names.changelog, LEASE: names.lease}[topic]


def specs(manifest: Manifest, names: TopicNames) -> list[TopicSpec]:
    """Return the topics of an export as a server creates them."""
    shards = [part.topic for part in manifest.parts if part.topic.startswith(SHARD)]
    return [
        *names.system(manifest.slots),
        *(TopicSpec(full_name(topic, names)) for topic in shards),
    ]
