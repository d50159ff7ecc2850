"""A worker's place in the group that divides the slots.

``Membership`` keeps a Faust app running: when the broker is away or a service of Faust's
crashes, it builds a new one, with growing pauses, and the slots stay with us meanwhile.
Safety never rests on this: writes rest on the append rule, reads on leases.

Invariants: ``on_assigned`` and ``on_revoked`` are called in the event loop, each slot
alternately; a slot that stays through a rebalance is not mentioned; after ``stop`` returns
nothing is called (the caller has closed its slots before, and leaving hands them over).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mode import Service

from rowtide.stream.faust_app import SlotApp, changelog_topic
from rowtide.stream.faust_table import PartitionStore, StoreFor
from rowtide.stream.faust_transport import GroupSettings

__all__ = ["Membership", "MembershipConfig", "PartitionStore"]

log = logging.getLogger(__name__)

STOP_S = 3.0
"""After this long a stopping app is left to its daemon thread: the broker does not answer."""

PAUSE_S_MIN = 0.25
PAUSE_S_MAX = 5.0
"""Between two lives of the app: doubled after each failure, reset by a successful start."""


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """How a worker joins the group.

    ``instance`` names the worker across restarts: after kill -9 it gets its slots back at
    once instead of at the session time-out. Two live workers of one name take turns at
    throwing each other out.
    """

    bootstrap: str
    group: str
    instance: str
    address: str
    """host:port at which other workers reach this one."""
    slots: int
    """Partitions of ``rows``; fixed when the changelog topic was created."""
    session_timeout_ms: int = 6000
    """How long a killed worker keeps its slots. Brokers refuse less than
    ``group.min.session.timeout.ms`` (6000 unless set); much more delays every take-over."""
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    ssl_context: ssl.SSLContext | None = None

    def group_settings(self) -> GroupSettings:
        """The part that the Kafka client needs."""
        return GroupSettings(
            bootstrap=self.bootstrap,
            group=self.group,
            instance=self.instance,
            session_timeout_ms=self.session_timeout_ms,
            security_protocol=self.security_protocol,
            sasl_mechanism=self.sasl_mechanism,
            sasl_username=self.sasl_username,
            sasl_password=self.sasl_password,
            ssl_context=self.ssl_context,
        )


class Membership:
    """Which slots the group has given to this worker."""

    def __init__(
        self,
        config: MembershipConfig,
        *,
        store_for: StoreFor,
        on_assigned: Callable[[frozenset[int]], None],
        on_revoked: Callable[[frozenset[int]], None],
    ) -> None:
        self.changelog_topic = changelog_topic(config.group)
        self._config = config
        self._store_for = store_for
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._slots: frozenset[int] = frozenset()
        self._keeper: _Keeper | None = None

    @property
    def slots(self) -> frozenset[int]:
        """Slots that are ours as far as we were told."""
        return self._slots

    def owners(self) -> Mapping[int, str]:
        """Address of each slot's worker, as of the last rebalance we took part in."""
        keeper = self._keeper
        return {} if keeper is None or keeper.app is None else keeper.app.owners()

    async def start(self) -> None:
        """Join; return once the group has told us our slots. Waits as long as Kafka is away."""
        assert self._keeper is None, "a membership is started once"
        self._keeper = _Keeper(self._new_app)
        await self._keeper.start()
        if (await self._keeper.wait(self._keeper.running)).stopped:
            raise self._keeper.crash_reason or RuntimeError("stopped before the group was joined")

    async def stop(self) -> None:
        """Leave the group; the other workers get the slots at once."""
        keeper = self._keeper
        if keeper is not None:
            await keeper.stop()

    def _new_app(self) -> SlotApp:
        return SlotApp(
            self._config.group_settings(),
            slots=self._config.slots,
            address=self._config.address,
            store_for=self._store_for,
            on_slots=self._take,
        )

    def _take(self, slots: frozenset[int]) -> None:
        gone, new = self._slots - slots, slots - self._slots
        # First the state: a callback that fails must not be called for these again.
        self._slots = slots
        if gone:
            self._on_revoked(gone)
        if new:
            self._on_assigned(new)


class _Keeper(Service):  # type: ignore[misc]
    """Runs one app after the other until stopped."""

    mundane_level = "debug"

    def __init__(self, new_app: Callable[[], SlotApp]) -> None:
        super().__init__()
        self.app: SlotApp | None = None
        self.running = asyncio.Event()
        self._new_app = new_app
        self._finished = asyncio.Event()

    @Service.task  # type: ignore[untyped-decorator]
    async def _keep(self) -> None:
        pause_s = PAUSE_S_MIN
        try:
            while not self.should_stop:
                app = self.app = self._new_app()
                failure = await self._live(app)
                if failure is not None:
                    pause_s = PAUSE_S_MIN if app.started_once else min(2 * pause_s, PAUSE_S_MAX)
                    log.warning("group membership failed, next try in %s s: %r", pause_s, failure)
                    await self.sleep(pause_s)
        finally:
            self._finished.set()

    async def _live(self, app: SlotApp) -> BaseException | None:
        try:
            result = await self.wait_first(app.run(self.running.set))
            return None if result.stopped else result.results[0]
        except Exception as error:  # noqa: BLE001 - whatever Faust raises, the worker goes on
            return error
        finally:
            await self._end(app)

    async def _end(self, app: SlotApp) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await app.stop()
        except TimeoutError:
            log.warning("the group's broker did not answer within %s s of stopping", STOP_S)

    async def on_stop(self) -> None:
        # mode cancels tasks after this; an app that is cancelled while it stops would not leave.
        await self._finished.wait()
