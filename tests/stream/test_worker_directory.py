"""A worker's directory shows which owners have certainly ended: no worker waits for their
leases.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from rowtide.stream.cluster import worker_directory
from rowtide.stream.cluster.worker_directory import DirectoryBusy, OtherCluster, WorkerDirectory

STARTS = 100


def start_and_kill(path: Path) -> WorkerDirectory:
    """Start a worker on a directory, and kill it."""
    found = WorkerDirectory(path)
    found.release()
    return found


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    first = WorkerDirectory(tmp_path / "d")
    with pytest.raises(DirectoryBusy, match=f"in use by process {os.getpid()}"):
        WorkerDirectory(tmp_path / "d")
    first.release()
    start_and_kill(tmp_path / "d")


def test_who_starts_again_knows_its_former_owners_and_its_name(tmp_path: Path) -> None:
    owners: list[bytes] = []
    for _ in range(STARTS):
        found = start_and_kill(tmp_path / "d")
        assert found.owner not in owners
        assert not owners or owners[-1] in found.dead, "the last one's lease may still run"
        owners.append(found.owner)
    assert start_and_kill(tmp_path / "d").instance == found.instance


def test_a_copy_of_a_directory_knows_nobody_as_dead(tmp_path: Path) -> None:
    """The worker it was copied from may live, and read under its lease."""
    first = start_and_kill(tmp_path / "d")
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    copy = start_and_kill(tmp_path / "copy")
    assert (copy.dead, copy.instance == first.instance) == (frozenset(), False)
    assert copy.former == {first.owner}, "of a log that was copied with it, nobody else is one"


def test_a_cloned_disk_on_another_host_knows_nobody_as_dead(tmp_path: Path) -> None:
    """Device and inode are those of the original there, and images may share a machine's id."""
    first = start_and_kill(tmp_path / "d")
    with patch("socket.gethostname", lambda: "other"):
        clone = start_and_kill(tmp_path / "d")
    assert (clone.dead, clone.instance == first.instance) == (frozenset(), False)


@pytest.mark.parametrize("before", ["a boot", None])
@pytest.mark.parametrize("now", ["another boot", None])
def test_who_starts_under_another_kernel_knows_nobody_as_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, now: str | None
) -> None:
    """A volume may be mounted there, as the same file, while the former process lives: its lock
    is the other kernel's. The name stays: it proves nothing."""
    names: list[str] = []
    owners: list[bytes] = []
    for boot in (before, now):
        at = tmp_path / "boot_id"
        at.unlink(missing_ok=True)
        if boot is not None:
            at.write_text(f"{boot}\n")
        monkeypatch.setattr(worker_directory, "BOOT_ID", at)
        found = start_and_kill(tmp_path / "d")
        names.append(found.instance)
        assert found.dead == frozenset()
        assert found.former == frozenset(owners)
        owners.append(found.owner)
    assert names[0] == names[1]


def test_a_directory_of_a_version_that_noted_no_boot_knows_nobody_as_dead(tmp_path: Path) -> None:
    start_and_kill(tmp_path / "d")
    path = tmp_path / "d" / "identity.json"
    noted = json.loads(path.read_text())
    del noted["boot"]
    path.write_text(json.dumps(noted))
    assert start_and_kill(tmp_path / "d").dead == frozenset()


@pytest.mark.parametrize("content", ["", "[]", '{"file": 1}', "no json"])
def test_an_identity_that_cannot_be_read_is_made_anew(tmp_path: Path, content: str) -> None:
    start_and_kill(tmp_path / "d")
    (tmp_path / "d" / "identity.json").write_text(content)
    assert start_and_kill(tmp_path / "d").dead == frozenset()


@pytest.mark.parametrize("copied", [False, True])
def test_rows_of_one_cluster_are_not_opened_for_another(tmp_path: Path, *, copied: bool) -> None:
    """Ids of shards begin anew there, and a catalog that Kafka has lost is another one."""
    found = WorkerDirectory(tmp_path / "d")
    found.belong(None)  # No worker has made a secret yet.
    found.belong(b"ours")
    found.release()
    path = tmp_path / "d"
    if copied:
        path = tmp_path / "copy"
        shutil.copytree(tmp_path / "d", path)
    again = WorkerDirectory(path)
    for other in (b"theirs", None):
        with pytest.raises(OtherCluster, match="not of the cluster that Kafka holds"):
            again.belong(other)
    again.belong(b"ours")
