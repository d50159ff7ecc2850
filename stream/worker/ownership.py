"""Which slots a worker serves: its leases, its group membership and its catalog.

This module knows no operation. ``links`` returns the parts that a slot asks about indexes
and reshapes. They exist once the worker is assembled, before any slot is created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.reshape import ReshapeOperations
from rowtide.stream.cluster.backing import Member, SlotMembership
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.cluster.peers import Peers
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.cluster.roster import Roster
from rowtide.stream.cluster.takeover import Takeover
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.tails import Tails
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.measures.consumption_file import ConsumptionFile
from rowtide.stream.measures.counts import Counts
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.slot.standby.standby_links import StandbyLinks
from rowtide.stream.slot.surroundings import SlotLinks, Surroundings
from rowtide.stream.worker.catalog_view import CatalogView
from rowtide.stream.worker.worker_config import WorkerConfig

__all__ = ["Clocks", "Environment", "OwnershipParts", "SlotParts", "Stores", "WorkerSite"]


@dataclass(frozen=True, slots=True)
class WorkerSite:
    """The identity of a worker among the others, and the topics that it uses.

    ``owner`` names its claims. ``name`` stays the same over restarts. Other workers call
    it at ``address`` (HOST:PORT). ``dead_owners`` are former owners of slots that have
    stopped for good.
    """

    owner: bytes
    name: str
    address: str
    topics: TopicNames
    slots: int
    lease: LeaseSettings
    started_s: float
    """When the process started, a Unix time."""
    dead_owners: frozenset[bytes] = frozenset()
    log: str = ""
    """Where the logs are, for operators."""
    durability: str = ""
    """When an append is acknowledged, for operators."""


class Clocks(NamedTuple):
    """``lease_s`` never goes back and runs during suspend; ``copies_s`` is the clock of tails."""

    lease_s: Callable[[], float]
    copies_s: Callable[[], float]


class Stores(NamedTuple):
    """Where a worker keeps rows: the constructors of slots and copies on its disk.

    Without ``new_standby`` the worker keeps no copies. ``remove_left`` is that of
    ``Roster``.
    """

    new_slot: Callable[[int, Surroundings, SlotLinks], Slot]
    new_standby: Callable[..., Standby] | None = None
    remove_left: Callable[[int], float] | None = None
    consumption: ConsumptionFile | None = None


class Environment(NamedTuple):
    """The surroundings of a worker. Only these differ between the product and the simulation.

    ``new_hop`` takes a function that returns the workers' shared secret, and returns the
    client that calls other workers.
    """

    cluster: TopicCluster
    tails: Tails
    clocks: Clocks
    stores: Stores
    new_membership: Callable[[Member], SlotMembership]
    counts: Counts
    new_hop: Callable[[Callable[[], bytes | None]], HopClient] = HopClient


class SlotParts(NamedTuple):
    """The parts of a worker that its slots call."""

    indexes: IndexOperations
    reshapes: ReshapeOperations


class OwnershipParts:
    """The slots of one worker, and the parts that own them."""

    def __init__(
        self,
        config: WorkerConfig,
        site: WorkerSite,
        around: Environment,
        tasks: asyncio.TaskGroup,
        links: Callable[[], SlotParts],
    ) -> None:
        self.counts = around.counts
        self.lost = asyncio.Event()
        """Set when the worker's group membership ends without a request to stop."""
        self._config = config
        self._site = site
        self._around = around
        cluster, topics = around.cluster, site.topics
        self.catalog = CatalogOwner(
            cluster.log(topics.catalog),
            cluster.log(topics.catalog),
            owner=site.owner,
            clock_us=config.clock,
            changed=self._apply_catalog,
            clock_s=around.clocks.lease_s,
        )
        self.view = CatalogView(self.catalog)
        self.leases = _lease_keeper(site, around)
        maker = _SlotMaker(config, site, around, self, links)
        new_standby = None if around.stores.new_standby is None else maker.new_standby
        self.roster = Roster(maker.new_slot, tasks, new_standby, around.stores.remove_left)
        self.hop = around.new_hop(self.view.hop_secret)
        self.peers = Peers(self.hop, self.owners, self.catalog.catalog, address=site.address)
        self.handover = Handover(
            self.leases, self.roster, self.hop, self.peers, self._new_membership
        )
        self._owners = _OwnersSeen({}, {}, {})
        self.placement = Placement(self.catalog, self.roster.slots, self.hop, self.peers)
        self.takeover = Takeover(
            self.leases,
            self.roster,
            slots=site.slots,
            address=site.address,
            standbys=lambda slot: self.handover.membership.standbys(slot),
            ready=lambda: self.catalog.ready.is_set() and not self.handover.left,
        )

    def owners(self) -> Mapping[int, str]:
        """Return the address of each slot's worker: by its lease, else by the group's division."""
        leased, grouped = self.leases.others.addresses, self.handover.membership.owners()
        seen = self._owners
        if leased is not seen.leased or grouped is not seen.grouped:
            known = {slot: address for slot, address in leased.items() if address}
            seen = self._owners = _OwnersSeen(leased, grouped, {**grouped, **known})
        return seen.owners

    def is_serving(self, number: int) -> bool:
        """True if a slot is open here and its lease holds."""
        slot = self.roster.slots.get(number)
        return slot is not None and slot.opened.is_set() and slot.is_readable()

    def _new_membership(self) -> SlotMembership:
        return self._around.new_membership(
            Member(
                instance=self._site.name,
                address=self._site.address,
                slots=self._site.slots,
                standbys=self._config.standbys,
                on_standby=self.roster.stand_by,
                on_assigned=self.roster.assign,
                on_revoked=self.roster.revoke,
                on_lost=self.lost.set,
            )
        )

    def _apply_catalog(self) -> None:
        """Pass the catalog's present tables to every open shard."""
        for slot in self.roster.slots.values():
            slot.retable()
            slot.reclaimer.hold(paused=self.view.catalog.reclaimer_paused)
        for standby in self.roster.standbys.values():
            standby.settle()
        self.placement.wake.set()


class _SlotMaker:
    """Creates the slots of ``owned`` and its copies of others, each for one life."""

    def __init__(
        self,
        config: WorkerConfig,
        site: WorkerSite,
        around: Environment,
        owned: OwnershipParts,
        links: Callable[[], SlotParts],
    ) -> None:
        self._around = around
        self._owned = owned
        self._links = links
        self._surroundings = Surroundings(
            around.cluster,
            site.topics,
            config.limits,
            config.slot,
            config.clock,
            config.clock.steady_s,
            around.counts,
        )

    def new_slot(self, number: int) -> Slot:
        """Return a slot that this worker is to serve."""
        owned, view, (indexes, reshapes) = self._owned, self._owned.view, self._links()
        links = SlotLinks(
            owned.leases,
            owned.catalog.open if number == CATALOG_SLOT else lambda _claim: view.prove(),
            view.tables_of,
            view.is_known,
            indexes,
            reshapes,
            owned.handover,
        )
        slot = self._around.stores.new_slot(number, self._surroundings, links)
        slot.reclaimer.hold(paused=view.catalog.reclaimer_paused)
        slot.use_standby_notes(owned.roster.left.get(number, {}))
        return slot

    def new_standby(self, number: int) -> Standby:
        """Return a copy of a slot."""
        view, reshapes = self._owned.view, self._links().reshapes
        new_standby = self._around.stores.new_standby
        assert new_standby is not None, "a copy of a slot on a worker that keeps none"
        return new_standby(
            number,
            self._surroundings,
            StandbyLinks(
                tails=self._around.tails,
                catalog_read=view.read,
                catalog_proven=view.prove,
                tables=lambda slot: [*reshapes.list_ended(slot), *view.tables_of(slot)],
                coming=reshapes.arriving,
                table_known=view.is_known,
                clock_s=self._around.clocks.copies_s,
            ),
        )


def _lease_keeper(site: WorkerSite, around: Environment) -> LeaseKeeper:
    return LeaseKeeper(
        around.cluster,
        site.topics.lease,
        owner=site.owner,
        address=site.address,
        dead=site.dead_owners,
        settings=site.lease,
        counts=around.counts,
        clock_s=around.clocks.lease_s,
    )


class _OwnersSeen(NamedTuple):
    """The addresses of slots' workers, and the two sources that they were joined from."""

    leased: Mapping[int, str]
    grouped: Mapping[int, str]
    owners: Mapping[int, str]
