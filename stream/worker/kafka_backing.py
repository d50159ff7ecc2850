"""A worker on Kafka: its topics, and the Faust group that divides the slots."""

from __future__ import annotations

from collections.abc import Callable

from rowtide.stream.cluster.backing import Member
from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.kafka.tails import LogTails
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from rowtide.stream.worker.faust_membership import Membership, MembershipConfig

__all__ = ["KafkaBacking"]


class KafkaBacking:
    """One Kafka cluster under one topic prefix, see ``Backing``."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self.cluster = KafkaCluster(config)
        self.topic_prefix = config.topic_prefix
        self.place = f"Kafka {config.bootstrap}"
        self.durability: str = config.durability

    def lease(self, wanted: LeaseSettings) -> LeaseSettings:
        """Return ``wanted``: other workers take over when a lease ends."""
        return wanted

    def dead_owners(self, directory: WorkerDirectory) -> frozenset[bytes]:
        """Return the former owners of this directory whose processes have certainly ended."""
        return directory.dead

    def tails(self, clock_s: Callable[[], float]) -> LogTails:
        """Return the follower of logs at the brokers."""
        return LogTails(self.cluster.brokers, clock_s=clock_s)

    def membership(self, member: Member) -> Membership:
        """Return a membership in the Faust group."""
        config = self._config
        return Membership(
            MembershipConfig(
                bootstrap=config.bootstrap,
                group=config.topic_prefix,
                instance=member.instance,
                address=member.address,
                slots=member.slots,
                standbys=member.standbys,
                security=config.security,
            ),
            on_standby=member.on_standby,
            on_assigned=member.on_assigned,
            on_revoked=member.on_revoked,
            on_lost=member.on_lost,
        )
