"""The folder of an export: written once, file by file, and read any number of times.

It has every row, and the secrets of access keys, so only its owner may read it. A file is
on the disk before the next one begins, the manifest last. A new run continues after a
crash: it keeps whole records and cuts off the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from rowtide.stream.log.local.file_lock import lock_file, sync_folder
from rowtide.stream.moving.frames import Damaged, Frame, Head, frame, read_frames, read_head
from rowtide.stream.moving.manifest import Manifest, ManifestPart

__all__ = ["MANIFEST", "ExportFolder", "FolderBusy", "NotAnExport", "OtherSource", "PartFile"]

MANIFEST = "manifest.json"
SUFFIX = ".records"
BUFFER_BYTES = 1 << 20
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


class NotAnExport(Exception):
    """A folder is not an export, not a whole one, or a damaged one."""


class FolderBusy(Exception):
    """Another process on this machine imports a folder."""


class OtherSource(Exception):
    """A folder has an export, or the beginning of one, of another directory or another state."""


class ExportFolder:
    """One folder. It reads and writes only when a method is called."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Writing.

    def prepare(self, source: bytes) -> Manifest | None:
        """Create the folder, or continue an export of ``source``; return a whole export's
        manifest.

        Raises ``OtherSource`` and ``NotAnExport``, ``OSError``.
        """
        self.path.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        names = sorted(entry.name for entry in self.path.iterdir())
        strange = [name for name in names if not _is_ours(name)]
        if strange:
            raise NotAnExport(f"{self.path} is not empty: it has {strange[0]}")
        if MANIFEST in names:
            manifest = self.manifest()
            if manifest.source != source.hex():
                raise OtherSource(f"{self.path} has an export of another directory or state")
            return manifest
        for name in names:
            if _is_of_other(self.path / name, source):
                raise OtherSource(
                    f"{self.path} has the beginning of an export of another directory or state"
                )
        self.path.chmod(PRIVATE_FOLDER)
        return None

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, which makes the export whole."""
        draft = self.path / (MANIFEST + ".new")
        draft.unlink(missing_ok=True)
        with _private(draft) as file:
            file.write(manifest.encode())
            _sync(file)
        draft.replace(self.path / MANIFEST)
        sync_folder(self.path)
        sync_folder(self.path.resolve().parent)

    # Reading.

    def manifest(self) -> Manifest:
        """Return the manifest. Raises ``NotAnExport``."""
        path = self.path / MANIFEST
        try:
            return Manifest.decode(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotAnExport(f"{self.path} has no {MANIFEST}: it is not a whole export") from error
        except Damaged as error:
            raise NotAnExport(f"{path} cannot be used: {error}") from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock a whole export against another import. Raises ``FolderBusy``."""
        with (self.path / MANIFEST).open("rb") as file:
            try:
                lock_file(file.fileno())
            except OSError as error:
                raise FolderBusy(f"another import of {self.path} is under way") from error
            yield

    def require_whole(self, part: ManifestPart) -> None:
        """Raise ``NotAnExport`` unless a file exists and has the bytes that were written."""
        path = self.path / part.file
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError as error:
            raise NotAnExport(f"{path} is missing") from error
        if found != part.sha256:
            deque(self.frames(part), maxlen=0)  # The first damaged record is a better error.
            raise NotAnExport(f"{path} does not match its checksum in the manifest")

    def frames(self, part: ManifestPart) -> Iterator[Frame]:
        """Yield the records of a partition. Raises ``NotAnExport``."""
        path = self.path / part.file
        try:
            with path.open("rb", buffering=BUFFER_BYTES) as file:
                head = read_head(file)
                if (head.topic, head.partition) != (part.topic, part.partition):
                    raise Damaged(f"it is of {head.topic}[{head.partition}]")
                yield from read_frames(file)
        except Damaged as error:
            raise NotAnExport(f"{path} is damaged: {error}") from error


class PartFile:
    """The file of one partition while it is written. ``next_offset`` is None in a new one."""

    def __init__(self, folder: ExportFolder, head: Head) -> None:
        self._path = folder.path / ManifestPart(head.topic, head.partition, 0, 0, 0, 0, "").file
        self._head = head
        self._digest = hashlib.sha256()
        self.next_offset: int | None = None
        self.records = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        self._file = self._reopen() or self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, offset: int, record: bytes) -> None:
        """Append a record."""
        self._write(frame(offset, record))
        self.next_offset = offset + 1
        self.records += 1

    def finish(self) -> str:
        """Flush the file to the disk; return its SHA-256."""
        _sync(self._file)
        sync_folder(self._path.parent)
        return self._digest.hexdigest()

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)
        self.bytes += len(content)

    def _begin(self) -> IO[bytes]:
        self._path.unlink(missing_ok=True)
        self._file = _private(self._path)
        self._write(self._head.encode())
        return self._file

    def _reopen(self) -> IO[bytes] | None:
        """Return the file of a crashed export, cut off after its last whole record; None
        if unusable.
        """
        try:
            file = self._path.open("r+b", buffering=BUFFER_BYTES)
        except FileNotFoundError:
            return None
        try:
            if read_head(file) != self._head:
                raise Damaged("it is of something else")
        except Damaged:
            file.close()
            return None
        self._digest.update(self._head.encode())
        self.bytes = len(self._head.encode())
        with suppress(Damaged):
            for offset, record, end in read_frames(file):
                self._digest.update(frame(offset, record))
                self.next_offset, self.bytes = offset + 1, end
                self.records += 1
        file.seek(self.bytes)
        file.truncate()
        return file


def _is_ours(name: str) -> bool:
    return name in (MANIFEST, MANIFEST + ".new") or name.endswith(SUFFIX)


def _is_of_other(path: Path, source: bytes) -> bool:
    """True if a file's head names another source. A torn head names none."""
    if not path.name.endswith(SUFFIX):
        return False
    with suppress(Damaged), path.open("rb") as file:
        return read_head(file).source != source
    return False


def _private(path: Path) -> IO[bytes]:
    """Return a new file that only its owner may read."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    return os.fdopen(number, "w+b", buffering=BUFFER_BYTES)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
