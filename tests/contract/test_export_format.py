"""The files of an export: their bytes are those of the page, and damage never passes."""

from __future__ import annotations

import hashlib
import json
import re
from io import BytesIO
from pathlib import Path

import pytest

from rowtide.stream.log.local.layout import entry_value
from rowtide.stream.moving.folder import ExportFolder, NotAnExport, OtherSource, PartFile
from rowtide.stream.moving.frames import Damaged, Head, frame, read_frames, read_head
from rowtide.stream.moving.manifest import Manifest, ManifestPart

PAGE = Path(__file__).resolve().parents[2] / "docs/internals/formats/export.md"
SOURCE = b"\x11" * 32
HEAD = Head(SOURCE, "shard.s7", 0)
RECORDS = [(5, entry_value(b"k", b"v1")), (6, entry_value(b"", b"")), (7, entry_value(b"k", b"3"))]
EXAMPLES = {
    "head, source of 32 `11`, `shard.s7`, partition 0": HEAD.encode(),
    "frame, offset 5, key `k`, value `v1`": frame(*RECORDS[0]),
}
WHOLE = HEAD.encode() + b"".join(frame(*record) for record in RECORDS)


def test_the_page_has_the_bytes_that_are_written() -> None:
    page = PAGE.read_text(encoding="utf-8").split("## Examples")[1]
    found = re.findall(r"^\| (.+) \| `([0-9a-f]+)` \|$", page, re.MULTILINE)
    assert dict(found) == {what: content.hex() for what, content in EXAMPLES.items()}


def read(content: bytes) -> tuple[Head, list[tuple[int, bytes]]]:
    file = BytesIO(content)
    return read_head(file), [(found.offset, found.record) for found in read_frames(file)]


def test_a_file_is_read_as_it_was_written() -> None:
    assert read(WHOLE) == (HEAD, RECORDS)


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_a_flipped_byte_is_found_wherever_it_is(at: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] ^= 1
    with pytest.raises(Damaged):
        read(bytes(damaged))


def write_part(path: Path) -> ManifestPart:
    """Write the records as an export does, over what is there."""
    with PartFile(ExportFolder(path), HEAD) as file:
        done = 5 if file.next_offset is None else file.next_offset
        for offset, record in RECORDS[done - 5 :]:
            file.add(offset, record)
        sha256 = file.finish()
        return ManifestPart(HEAD.topic, HEAD.partition, 5, 8, file.records, file.bytes, sha256)


def make_export(path: Path) -> ExportFolder:
    """Return a folder that has a whole export, of one slot."""
    folder = ExportFolder(path)
    assert folder.prepare(SOURCE) is None
    parts = [write_part(path)]
    for topic in ("catalog", "lease", "changelog"):
        with PartFile(folder, Head(SOURCE, topic, 0)) as file:
            parts.append(ManifestPart(topic, 0, 0, 0, 0, file.bytes, file.finish()))
    folder.write_manifest(Manifest(SOURCE.hex(), "rowtide 1", tuple(parts)))
    return folder


@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_file_that_was_cut_off_is_completed_to_the_same_bytes(tmp_path: Path, size: int) -> None:
    path = tmp_path / "shard.s7-0.records"
    path.write_bytes(WHOLE[:size])
    part = write_part(tmp_path)
    assert path.read_bytes() == WHOLE
    assert (part.records, part.bytes) == (3, len(WHOLE))
    ExportFolder(tmp_path).require_whole(part)


def test_a_damaged_record_and_what_follows_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "shard.s7-0.records"
    damaged = bytearray(WHOLE)
    damaged[len(HEAD.encode()) + 20] ^= 1
    path.write_bytes(damaged)
    write_part(tmp_path)
    assert path.read_bytes() == WHOLE


def test_only_its_owner_may_read_an_export(tmp_path: Path) -> None:
    folder = make_export(tmp_path / "export")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {0o600}


def test_a_whole_export_is_found_again(tmp_path: Path) -> None:
    folder = make_export(tmp_path)
    assert folder.prepare(SOURCE) == folder.manifest()
    assert folder.manifest().slots == 1
    for part in folder.manifest().parts:
        folder.require_whole(part)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (len(WHOLE) - 1, "is cut off, or damaged, at byte"),
        (len(WHOLE) - len(frame(*RECORDS[2])), "does not match its checksum in the manifest"),
        (0, "does not begin as a file of an export"),
    ],
)
def test_a_torn_file_is_refused(tmp_path: Path, size: int, words: str) -> None:
    folder = make_export(tmp_path)
    (tmp_path / "shard.s7-0.records").write_bytes(WHOLE[:size])
    with pytest.raises(NotAnExport, match=words):
        folder.require_whole(folder.manifest().parts[0])


def test_a_flipped_byte_of_a_file_is_refused_with_its_place(tmp_path: Path) -> None:
    folder = make_export(tmp_path)
    flip(tmp_path / "shard.s7-0.records", len(WHOLE) - 1)
    place = len(WHOLE) - len(frame(*RECORDS[2]))
    with pytest.raises(NotAnExport, match=f"the record at byte {place} does not match"):
        folder.require_whole(folder.manifest().parts[0])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    folder = make_export(tmp_path)
    (tmp_path / "shard.s7-0.records").unlink()
    with pytest.raises(NotAnExport, match="is missing"):
        folder.require_whole(folder.manifest().parts[0])


def test_a_flipped_byte_of_the_manifest_is_refused_wherever_it_is(tmp_path: Path) -> None:
    folder = make_export(tmp_path)
    path = tmp_path / "manifest.json"
    for at in range(len(path.read_bytes()) - 1):  # The last is the end of its line.
        flip(path, at)
        with pytest.raises(NotAnExport):
            folder.manifest()
        flip(path, at)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "it has format 2, this version reads 1"),
        ({"parts": []}, "its partitions are not those of one rowtide"),
        ({"parts": [{"topic": "../../x"}]}, "it is no manifest"),
        ({"source": 1, "parts": None}, "it is no manifest"),
    ],
)
def test_another_manifest_is_refused(tmp_path: Path, change: object, words: str) -> None:
    assert isinstance(change, dict)
    content = {"format": 1, "source": "", "written_by": "", "parts": [], **change}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["checksum"] = hashlib.sha256(canonical.encode()).hexdigest()
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(NotAnExport, match=words):
        ExportFolder(tmp_path).manifest()


@pytest.mark.parametrize("topic", ["../secret", "shard.s1/../x", "shard.", "import", ""])
def test_a_manifest_names_no_other_files(tmp_path: Path, topic: str) -> None:
    folder = make_export(tmp_path)
    manifest = folder.manifest()
    strange = ManifestPart(topic, 0, 0, 0, 0, 0, "")
    folder.write_manifest(Manifest(SOURCE.hex(), "", (*manifest.parts, strange)))
    with pytest.raises(NotAnExport, match="it names a topic"):
        folder.manifest()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"format": 1}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(NotAnExport, match="cannot be used"):
        ExportFolder(tmp_path).manifest()


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("dear")
    with pytest.raises(NotAnExport, match=r"is not empty: it has letter\.txt"):
        ExportFolder(foreign).prepare(SOURCE)
    make_export(tmp_path / "whole")
    with pytest.raises(OtherSource, match="has an export of another directory or state"):
        ExportFolder(tmp_path / "whole").prepare(b"\x22" * 32)
    (tmp_path / "whole" / "manifest.json").unlink()
    with pytest.raises(OtherSource, match="has the beginning of an export of another"):
        ExportFolder(tmp_path / "whole").prepare(b"\x22" * 32)
    with pytest.raises(NotAnExport, match=r"has no manifest\.json"):
        ExportFolder(tmp_path / "whole").manifest()
