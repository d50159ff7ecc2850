"""Messages of devices: a gateway chooses the ids, a device acknowledges, messages live 7 days.

The gateway numbers the commands of a device 1, 2, 3 ... and keeps the last number in a meta row,
which does not expire. A device acknowledges with a cursor. It reads everything above the cursor, so
a command that it did not acknowledge comes again, and it knows the command by its number.

The server's clock is advanced, so that a week takes no time. Run it by ``make demo-devices``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import click

from demo.timeline.stage import LocalServer, Proofs, run_example
from rowtide.client import (
    SYNC_TTL_S,
    AsyncClient,
    Cursors,
    TimelineEntry,
    TimelineMetas,
    TimelineMetaSchema,
    Timelines,
    TimelineSchema,
)

DAY_S = 86_400
COMMANDS = "commands"
FOLLOW_S_MAX = 60.0


class Gateway:
    """Sends commands to devices. One gateway writes to a device, so its ids rise."""

    def __init__(self, client: AsyncClient) -> None:
        schema = TimelineSchema("commands", ("device",), manual_sequence=True, ttl_s=SYNC_TTL_S)
        self.timelines = Timelines(client, schema)
        self.metas = TimelineMetas(client, TimelineMetaSchema("devices", ("device",)))
        self.acknowledged = Cursors(client, "acknowledged")

    async def last_id(self, device: str) -> int:
        """Return the number of the last command, 0 before the first."""
        meta = await self.metas.get([device])
        return 0 if meta is None else int(str(meta.fields["last_id"]))

    async def send(self, device: str, command: str) -> int:
        """Send a command: the number first, so that it is never used for another one."""
        id = await self.last_id(device) + 1
        await self.metas.put([device], {"last_id": id})
        await self.put(device, command, id)
        return id

    async def put(self, device: str, command: str, id: int) -> None:
        """Store a command under its number. A repeat, after a lost answer, replaces it."""
        await self.timelines.of(device).store({"command": command}, id=id)

    async def waiting(self, device: str) -> list[int]:
        """Return the numbers of the commands that a device has not acknowledged."""
        done = await self.acknowledged.get(device, COMMANDS)
        return [entry.id async for entry in self.timelines.of(device).forward(done + 1)]


@dataclass(slots=True)
class Device:
    """A device. ``done`` and ``last`` are in its own memory, which survives a crash."""

    name: str
    gateway: Gateway
    last: int = 0
    done: list[str] = field(default_factory=list)
    repeats: int = 0

    async def work(self, until: int, *, crash_at: int = 0) -> None:
        """Follow the commands up to an id; a crash comes before that one is acknowledged."""
        begin = await self.gateway.acknowledged.get(self.name, COMMANDS)
        async with asyncio.timeout(FOLLOW_S_MAX):
            async for entry in self.gateway.timelines.of(self.name).follow(after=begin):
                self.carry_out(entry)
                if entry.id == crash_at:
                    return
                await self.gateway.acknowledged.read(self.name, COMMANDS, entry.id)
                if entry.id == until:
                    return

    def carry_out(self, entry: TimelineEntry) -> None:
        """Carry out a command, unless it was before the crash."""
        if entry.id <= self.last:
            self.repeats += 1
            return
        self.done.append(str(entry.fields["command"]))
        self.last = entry.id


async def prove(server: LocalServer, proofs: Proofs) -> None:
    """Send commands, and prove what holds of them."""
    async with AsyncClient(**server.access) as client:
        gateway = Gateway(client)
        for table in (gateway.timelines, gateway.metas, gateway.acknowledged):
            await table.create()
        click.echo("\nA lamp that works, and a lift that was away for eight days\n")
        await prove_acknowledgement(gateway, Device("lamp", gateway), proofs)
        await prove_expiry(gateway, server, proofs)


async def prove_acknowledgement(gateway: Gateway, lamp: Device, proofs: Proofs) -> None:
    """Crash a device between a command and its acknowledgement; repeat a lost answer."""
    commands = [f"brightness {number}" for number in range(1, 11)]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(lamp.work(10, crash_at=5))
        for command in commands:
            id = await gateway.send("lamp", command)
            await gateway.put("lamp", command, id)  # As if its answer had been lost.
    stored = [entry.id async for entry in gateway.timelines.of("lamp").forward()]
    words = "10 commands, each stored twice, are 10 messages with the gateway's ids"
    proofs.check("ids", words, stored == list(range(1, 11)))
    waiting = await gateway.waiting("lamp")
    await lamp.work(10)
    is_once = lamp.done == commands and lamp.repeats == 1 and waiting == list(range(5, 11))
    proofs.check("crash", "command 5 came again after a crash; all were carried out once", is_once)
    late = await gateway.acknowledged.read("lamp", COMMANDS, 3)
    is_done = late == 10 and not await gateway.waiting("lamp")
    proofs.check("acks", "a late acknowledgement of command 3 changed nothing", is_done)


async def prove_expiry(gateway: Gateway, server: LocalServer, proofs: Proofs) -> None:
    """Advance the clock: messages live 7 days, and a device knows what it missed."""
    lift = Device("lift", gateway)
    for number in range(1, 11):
        await gateway.send("lift", f"floor {number}")
    await lift.work(4)
    counts = []
    for days in (6, 2):
        server.advance_clock(days * DAY_S)
        counts.append(len(await gateway.waiting("lift")))
    words = f"{counts[0]} commands waited after 6 days, {counts[1]} after 8"
    proofs.check("expiry", words, counts == [6, 0])
    missed = await gateway.last_id("lift") - await gateway.acknowledged.get("lift", COMMANDS)
    proofs.check("gap", f"the lift knows that it missed {missed} commands", missed == 6)
    id = await gateway.send("lift", "floor 0")
    await gateway.acknowledged.read("lift", COMMANDS, id - 1)
    await lift.work(id)
    is_next = id == 11 and lift.done[4:] == ["floor 0"]
    proofs.check("return", f"it goes on with command {id}", is_next)


if __name__ == "__main__":
    run_example(prove, "--test-clock", ephemeral=True)
