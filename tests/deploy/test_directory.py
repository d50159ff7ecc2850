"""One owner at a time, and ports that stay unless another process takes them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.deploy.kafka.directory import HOST, BrokerDirectory
from rowtide.deploy.kafka.errors import BrokerFailed, DirectoryInUse, PortTaken


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[BrokerDirectory]:
    owned = BrokerDirectory(tmp_path)
    owned.acquire()
    yield owned
    owned.release()


def listening(port: int) -> socket.socket:
    other = socket.socket()
    other.bind((HOST, port))
    other.listen()
    return other


def test_a_second_owner_is_told_pid_and_directory(
    directory: BrokerDirectory, tmp_path: Path
) -> None:
    with pytest.raises(DirectoryInUse, match=rf"{tmp_path} is in use .*pid {os.getpid()}\)"):
        BrokerDirectory(tmp_path).acquire()


def test_a_released_directory_may_be_owned_again(
    directory: BrokerDirectory, tmp_path: Path
) -> None:
    directory.release()
    other = BrokerDirectory(tmp_path)
    other.acquire()
    other.release()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerFailed, match=f"cannot use {tmp_path}/file/kafka"):
        BrokerDirectory(tmp_path / "file" / "kafka").acquire()


def test_addresses_and_cluster_id_outlive_a_restart(
    directory: BrokerDirectory, tmp_path: Path
) -> None:
    chosen, cluster_id = directory.choose_addresses(None), directory.cluster_id()
    again = BrokerDirectory(tmp_path)
    assert (again.choose_addresses(None), again.cluster_id()) == (chosen, cluster_id)


def test_a_port_that_another_program_took_is_replaced(directory: BrokerDirectory) -> None:
    before = directory.choose_addresses(None)
    with listening(before.port):
        after = directory.choose_addresses(None)
    assert after.port != before.port
    assert after.controller_port == before.controller_port
    assert directory.choose_addresses(None) == after


def test_a_port_that_the_user_named_is_not_replaced(directory: BrokerDirectory) -> None:
    with listening(0) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} is in use"):
            directory.choose_addresses(port)
    assert directory.choose_addresses(port).port == port
