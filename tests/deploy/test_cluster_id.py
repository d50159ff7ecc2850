"""A cluster id must pass Kafka's command line."""

import uuid
from pathlib import Path

import pytest

from rowtide.deploy.kafka.directory import BrokerDirectory


def test_a_cluster_id_begins_with_no_hyphen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 62 in base64 is the hyphen; Kafka's format command takes it for an option.
    drawn = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x04" + bytes(15)])
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=next(drawn)))
    directory = BrokerDirectory(tmp_path)
    directory.acquire()
    first = directory.cluster_id()
    assert first[0] == "B"
    assert directory.cluster_id() == first, "kept"
    directory.release()
