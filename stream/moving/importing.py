"""Writes an export into the topics of a cluster, then compares every record.

A marker topic names the export while the import runs. Until it is deleted, no worker
serves these topics (``stream/worker/worker.py``), and only the same export continues. The
import never changes topics that already existed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.changelog import ChangelogEntry
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.local.layout import change_of, entry_of
from rowtide.stream.log.log import Entry
from rowtide.stream.log.topics import TopicNames, TopicSpec
from rowtide.stream.moving.exporting import Progress
from rowtide.stream.moving.folder import ExportFolder
from rowtide.stream.moving.manifest import CHANGELOG, LEASE, ManifestPart, full_name, specs
from rowtide.stream.moving.target_changelog import TargetChangelog
from rowtide.stream.moving.target_log import APPEND_S, Differs, TargetLog, filler

__all__ = ["Import", "NotEmpty"]

CREATED_AT_ONCE = 100
READ_BYTES = 1 << 16
DELETED_S, LOOK_S = 60.0, 0.05
"""Time limit and interval of the checks that the marker is deleted."""
BROKERS_ASKED = 3
"""Number of brokers that must report the marker as deleted, in turn."""


class NotEmpty(Exception):
    """The cluster has topics with the prefix that are not the beginning of this import."""


class Import:
    """One import into a started cluster."""

    def __init__(
        self, cluster: TopicCluster, prefix: str, folder: ExportFolder, progress: Progress
    ) -> None:
        self._cluster = cluster
        self._names = TopicNames.of(prefix)
        self._folder = folder
        self._manifest = folder.manifest()
        self._progress = progress

    async def run(self) -> bool:
        """Import and verify; return False if the cluster already had the whole export.

        Raises ``NotAnExport``, ``NotEmpty``, ``Differs``, ``Fenced`` and ``StoreError``.
        """
        for part in self._manifest.parts:
            self._folder.require_whole(part)
        if not await self._begin():
            return False
        wanted = specs(self._manifest, self._names)
        for at in range(0, len(wanted), CREATED_AT_ONCE):
            await self._cluster.create_topics(wanted[at : at + CREATED_AT_ONCE])
        for part in self._manifest.parts:
            await self._bring(part)
        await self._verify()
        await self._end()
        return True

    # The owner of the topics.

    async def _begin(self) -> bool:
        """Mark the cluster as ours; return False if it has the whole export, and no mark."""
        mark = self._names.importing
        found = set(await self._cluster.topics())
        if await self._cluster.exists(self._names.changelog):
            found.add(self._names.changelog)
        if found and mark not in found:
            await self._require_imported(found)
            return False
        if not found:
            await self._cluster.create_topics([TopicSpec(mark)])
        log = self._cluster.log(mark)
        _, end = await log.bounds()
        if not end and found <= {mark}:
            await log.append([(b"", self._manifest.digest.encode())], deadline_s=APPEND_S)
        # Of two imports that begin at once, the first has the cluster.
        if not (entries := await log.read(0, bytes_max=READ_BYTES)) or (
            entries[0].value != self._manifest.digest.encode()
        ):
            raise NotEmpty(f"the topics {self._names.prefix}.* are of another import")
        if strange := found - {mark} - self._list_topic_names():
            raise self._not_empty(strange)
        return True

    async def _require_imported(self, found: set[str]) -> None:
        """Raise ``NotEmpty`` unless the topics are those of a finished import of this export."""
        if found != self._list_topic_names():
            raise self._not_empty(found)
        try:
            await self._verify()
        except Differs as error:
            raise self._not_empty(found) from error

    def _list_topic_names(self) -> set[str]:
        return {spec.name for spec in specs(self._manifest, self._names)}

    def _not_empty(self, found: set[str]) -> NotEmpty:
        return NotEmpty(
            f"the cluster has topics of {self._names.prefix} already, such as {min(found)}"
        )

    async def _end(self) -> None:
        """Let workers serve: delete the mark, and wait until the brokers know of it."""
        mark = self._names.importing
        await self._cluster.delete_topics([mark])
        absent = 0
        try:
            async with asyncio.timeout(DELETED_S):
                while absent < BROKERS_ASKED:
                    absent = 0 if await self._cluster.exists(mark) else absent + 1
                    if not absent:
                        await asyncio.sleep(LOOK_S)
        except TimeoutError as error:
            raise Unavailable(f"topic {mark} is not deleted after {DELETED_S:.0f} s") from error

    # Writing and reading back.

    async def _bring(self, part: ManifestPart) -> None:
        report = partial(self._progress, part.name)
        if part.topic == CHANGELOG:
            await self._changelog(part).bring(self._changes(part), report)
        else:
            filled = partial(self._progress, f"fill {part.name}")
            await self._log(part).bring(self._entries(part), report, filled=filled)

    async def _verify(self) -> None:
        """Compare topics, settings, bounds and every record. Raises ``Differs``."""
        wanted = specs(self._manifest, self._names)
        found = await self._cluster.topics()
        for spec in wanted:
            if spec.name in found and found[spec.name] != spec.partitions:
                raise Differs(
                    f"{spec.name} has {found[spec.name]} partitions, the export {spec.partitions}"
                )
        system = self._names.system(self._manifest.slots)
        logs = [spec.name for spec in wanted if spec not in system]
        await self._cluster.require_durable(system, logs)
        for part in self._manifest.parts:
            report = partial(self._progress, f"verify {part.name}")
            if part.topic == CHANGELOG:
                await self._changelog(part).verify(self._changes(part), report)
            else:
                await self._log(part).verify(self._entries(part), report)

    def _log(self, part: ManifestPart) -> TargetLog:
        log = self._cluster.log(full_name(part.topic, self._names), part.partition)
        return TargetLog(log, part.start, part.end, filler(lease=part.topic == LEASE))

    def _changelog(self, part: ManifestPart) -> TargetChangelog:
        topic, at = self._names.changelog, part.partition
        writer = self._cluster.changelog_writer(topic, at, self._names.transactional_id(at))
        reader = partial(self._cluster.changelog_reader, topic, at)
        return TargetChangelog(f"{topic}[{at}]", writer, reader)

    def _entries(self, part: ManifestPart) -> Iterator[Entry]:
        return (entry_of(offset, stored) for offset, stored, _ in self._folder.frames(part))

    def _changes(self, part: ManifestPart) -> Iterator[ChangelogEntry]:
        return (change_of(offset, stored) for offset, stored, _ in self._folder.frames(part))
