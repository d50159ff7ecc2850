"""Writes the records of a stopped local log to an export folder; continues after a crash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.moving.folder import ExportFolder, PartFile
from rowtide.stream.moving.frames import Head
from rowtide.stream.moving.local_source import LocalSource, SourcePartition
from rowtide.stream.moving.manifest import CHANGELOG, LEASE, Manifest, ManifestPart

__all__ = ["Progress", "export"]

REPORT_EVERY = 1000

Progress = Callable[[str, int, int], None]
"""Called with a partition's name, and the numbers of records and bytes that are done."""


def export(
    store: LogStore,
    folder: ExportFolder,
    *,
    directory: Sequence[str],
    prefix: str,
    written_by: str,
    progress: Progress,
) -> Manifest:
    """Export the topics under ``prefix`` of an open store; return the folder's manifest.

    ``directory`` distinguishes the data directory from a copy of it. Raises
    ``OtherSource``, ``NotAnExport``, ``NoSuchTopics``, ``Unavailable`` and ``OSError``.
    """
    source = LocalSource(store, prefix)
    partitions = source.partitions()
    # Each write to the log changes this number: an older state is another source.
    state = [*directory, prefix, str(store.sequence)]
    digest = hashlib.sha256("\0".join(state).encode()).digest()
    if (whole := folder.prepare(digest)) is not None:
        for part in whole.parts:
            folder.require_whole(part)
        return whole
    parts = [_write_part(source, folder, partition, digest, progress) for partition in partitions]
    manifest = Manifest(digest.hex(), written_by, tuple(parts))
    folder.write_manifest(manifest)
    return manifest


def _write_part(
    source: LocalSource,
    folder: ExportFolder,
    partition: SourcePartition,
    digest: bytes,
    progress: Progress,
) -> ManifestPart:
    """Write the file of a partition, or the missing rest of it."""
    topic, at, start, end = partition.topic, partition.partition, partition.start, partition.end
    name = f"{topic}[{at}]"
    with PartFile(folder, Head(digest, topic, at)) as file:
        next_offset = start if file.next_offset is None else file.next_offset
        for offset, record in source.records(partition, next_offset):
            file.add(offset, record)
            if file.records % REPORT_EVERY == 0:
                progress(name, file.records, file.bytes)
        if topic not in (CHANGELOG, LEASE) and file.records != end - start:
            raise Unavailable(
                f"{name} has {file.records} records from {start} to {end}: some are missing"
            )
        sha256 = file.finish()
        progress(name, file.records, file.bytes)
        return ManifestPart(topic, at, start, end, file.records, file.bytes, sha256)
