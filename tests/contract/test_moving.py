"""A local log that is exported, then imported: into Kafka, and into another local log.

The target is a cluster by the seam alone, so both keep the same. Real processes that are killed are
in ``tests/system/test_moving_up.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from rowtide.core.cluster.lease import decode_lease
from rowtide.core.records import record
from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.changelog import Change, ChangelogEntry
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig, topic_settings
from rowtide.stream.log.kafka.errors import NotDurable
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.local.layout import entry_key
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.log.log import Entry
from rowtide.stream.log.topics import TopicNames, TopicSpec
from rowtide.stream.moving import exporting, target_changelog, target_log
from rowtide.stream.moving.exporting import export
from rowtide.stream.moving.folder import ExportFolder, NotAnExport, OtherSource
from rowtide.stream.moving.importing import Import, NotEmpty
from rowtide.stream.moving.local_source import NoSuchTopics
from rowtide.stream.moving.manifest import Manifest
from rowtide.stream.moving.target_log import Differs, filler
from tests.changed_topics import change_topic

SLOTS = 2
NAMES = TopicNames.of("rowtide")
SHARDS = {"s1": (10, 30), "s2": (0, 12), "s3": (9, 9), "s4": (0, 0)}
"""Start and end of each shard's log: trimmed, whole, trimmed to its end, never written."""
CHANGELOG: list[list[Change]] = [
    [(b"b", b"1", []), (b"c", b"3", [("stamp", b"7"), ("stamp", b"")]), (b"a", b"2", [])],
    [(b"d", b"4", [])],
]
MIB = 1 << 20


class Interrupted(Exception):
    """The process ends here."""


def silent(*_: object) -> None:
    """Take progress."""


def interrupt_after(after: int) -> Callable[[str, int, int], None]:
    """Return a function that ends the process at the ``after``-th report of progress."""
    left = iter(range(after))

    def report(*_: object) -> None:
        if next(left, None) is None:
            raise Interrupted

    return report


@pytest.fixture(autouse=True)
def _many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few records take many steps, so that there are many places to be interrupted."""
    monkeypatch.setattr(exporting, "REPORT_EVERY", 3)
    monkeypatch.setattr(target_log, "BATCH_RECORDS", 3)
    monkeypatch.setattr(target_log, "FILLED_AT_ONCE", 4)
    monkeypatch.setattr(target_changelog, "FLUSH_ENTRIES", 2)


# What is moved.


def value(shard: str, offset: int) -> bytes:
    return f"{shard} {offset}".encode()


async def fill(cluster: LocalCluster) -> None:
    """Write logs, some of them trimmed, leases, and changelogs of which a part is obsolete."""
    await cluster.create_topics(NAMES.system(SLOTS))
    await cluster.create_topics([TopicSpec(NAMES.shard(shard)) for shard in SHARDS])
    logs = {NAMES.shard(shard): bounds for shard, bounds in SHARDS.items()}
    for topic, (start, end) in {**logs, NAMES.catalog: (2, 5)}.items():
        log = cluster.log(topic)
        for offset in range(end):
            await log.append([(b"k%d" % offset, value(topic, offset))], deadline_s=20)
        await log.trim(start)
    await cluster.log(NAMES.lease).append([(b"", b"lease")] * 7, deadline_s=20)
    await cluster.log(NAMES.lease).trim(4)
    writer = cluster.changelog_writer(NAMES.changelog, 0, "0")
    await writer.fence()
    await writer.flush([(b"a", b"old", []), (b"b", b"1", []), (b"gone", b"x", [])])
    await writer.flush([(b"c", b"3", CHANGELOG[0][1][2]), (b"a", b"2", []), (b"gone", None, [])])
    other = cluster.changelog_writer(NAMES.changelog, 1, "1")
    await other.fence()
    await other.flush([(b"d", b"4", [])])


@pytest.fixture
async def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    async with LocalCluster(LogStore(path), prefix="rowtide") as cluster:
        await fill(cluster)
    return path


@contextmanager
def open_store(path: Path) -> Iterator[LogStore]:
    store = LogStore(path)
    store.open()
    try:
        yield store
    finally:
        store.close()


def export_folder(
    source: Path,
    folder: ExportFolder,
    progress: Callable[[str, int, int], None] = silent,
    *,
    directory: str = "here",
    prefix: str = "rowtide",
) -> Manifest:
    with open_store(source) as store:
        return export(
            store,
            folder,
            directory=[directory],
            prefix=prefix,
            written_by="a test",
            progress=progress,
        )


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> ExportFolder:
    """A whole export."""
    found = ExportFolder(tmp_path / "export")
    export_folder(source, found)
    return found


def files(folder: ExportFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


# Export.


def test_an_export_has_what_compaction_leaves_and_no_leases(folder: ExportFolder) -> None:
    parts = {(part.topic, part.partition): part for part in folder.manifest().parts}
    assert {
        place: (part.start, part.end, part.records)
        for place, part in parts.items()
        if place[0] != "changelog"
    } == {
        ("catalog", 0): (2, 5, 3),
        ("lease", 0): (7, 7, 0),
        ("lease", 1): (0, 0, 0),
        **{(f"shard.{name}", 0): (a, b, b - a) for name, (a, b) in SHARDS.items()},
    }
    assert [parts["changelog", at].records for at in range(SLOTS)] == [3, 1]


async def test_an_interrupted_export_goes_on_to_the_same_bytes(
    source: Path, folder: ExportFolder, tmp_path: Path
) -> None:
    again = ExportFolder(tmp_path / "again")
    for steps in range(100):
        try:
            export_folder(source, again, interrupt_after(after=steps))
        except Interrupted:
            assert "manifest.json" not in files(again)
            continue
        break
    else:
        raise AssertionError("it never ended")
    assert files(again) == files(folder)


def test_a_whole_export_is_made_once(source: Path, folder: ExportFolder) -> None:
    before = files(folder)
    assert export_folder(source, folder, interrupt_after(after=0)) == folder.manifest()
    assert files(folder) == before


async def test_nothing_is_taken_over_of_another_state_or_directory(
    source: Path, tmp_path: Path
) -> None:
    begun = ExportFolder(tmp_path / "begun")
    with pytest.raises(Interrupted):
        export_folder(source, begun, interrupt_after(after=4))
    with pytest.raises(OtherSource):
        export_folder(source, begun, directory="a copy")
    async with LocalCluster(LogStore(source), prefix="rowtide") as cluster:
        await cluster.log(NAMES.shard("s1")).append([(b"k", b"more")], deadline_s=20)
    with pytest.raises(OtherSource):
        export_folder(source, begun)


def test_another_prefix_names_what_there_is(source: Path, tmp_path: Path) -> None:
    with pytest.raises(NoSuchTopics, match=r"no topic other\.catalog; it has rowtide\.catalog"):
        export_folder(source, ExportFolder(tmp_path / "export"), prefix="other")


def test_a_log_with_a_gap_is_not_exported(source: Path, tmp_path: Path) -> None:
    with open_store(source) as store:
        batch = store.new_batch()
        batch.delete(entry_key(store.topics()[NAMES.shard("s2")].first, 5))
        store.write(batch)
    with pytest.raises(Unavailable, match=r"shard\.s2\[0\] has 11 records from 0 to 12"):
        export_folder(source, ExportFolder(tmp_path / "export"))


# Import.


@pytest.fixture(params=["local", pytest.param("kafka", marks=pytest.mark.kafka)])
async def target(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[TopicCluster, str]]:
    """An empty cluster, and the prefix of topics there."""
    prefix = f"moved{uuid4().hex[:8]}"
    async with make_cluster(request, tmp_path, prefix) as cluster:
        yield cluster, prefix


@asynccontextmanager
async def make_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, prefix: str
) -> AsyncIterator[TopicCluster]:
    if request.param == "local":
        async with LocalCluster(LogStore(tmp_path / "target"), prefix=prefix) as local:
            yield local
        return
    config = KafkaConfig(request.getfixturevalue("broker"), topic_prefix=prefix)
    async with KafkaCluster(config) as cluster:
        yield cluster
        changelog = TopicNames.of(prefix).changelog
        await cluster.delete_topics([*await cluster.topics(), changelog])


Target = tuple[TopicCluster, str]


def moving(
    target: Target, folder: ExportFolder, progress: Callable[[str, int, int], None] = silent
) -> Import:
    return Import(*target, folder, progress)


async def entries(cluster: TopicCluster, topic: str) -> list[Entry]:
    log = cluster.log(topic)
    start, end = await log.bounds()
    return await log.read(start, bytes_max=MIB) if end > start else []


async def changelog(cluster: TopicCluster, topic: str, partition: int) -> list[ChangelogEntry]:
    reader = cluster.changelog_reader(topic, partition)
    return [entry async for page in reader.read(await reader.start()) for entry in page]


async def check(target: Target) -> None:
    """Compare a cluster with what ``fill`` has written."""
    cluster, prefix = target
    names = TopicNames.of(prefix)
    topics = {names.catalog: 1, names.lease: SLOTS, **{names.shard(name): 1 for name in SHARDS}}
    assert await cluster.topics() == topics
    for shard, (start, end) in SHARDS.items():
        topic = names.shard(shard)
        assert await cluster.log(topic).bounds() == (start, end)
        assert await entries(cluster, topic) == [
            Entry(at, b"k%d" % at, value(NAMES.shard(shard), at)) for at in range(start, end)
        ]
    assert [entry.value for entry in await entries(cluster, names.catalog)] == [
        value(NAMES.catalog, at) for at in range(2, 5)
    ]
    assert await cluster.log(names.lease, 0).bounds() == (7, 7)
    assert await cluster.log(names.lease, 1).bounds() == (0, 0)
    for slot, wanted in enumerate(CHANGELOG):
        found = await changelog(cluster, names.changelog, slot)
        assert [tuple(entry[1:]) for entry in found] == wanted


async def test_everything_stands_where_it_stood(target: Target, folder: ExportFolder) -> None:
    assert await moving(target, folder).run()
    await check(target)
    # A log takes the next record at the next offset: no marker of a transaction is in between.
    log = target[0].log(TopicNames.of(target[1]).shard("s1"))
    assert await log.append([(b"", b"next")], deadline_s=20) == SHARDS["s1"][1]


async def test_an_interrupted_import_goes_on(target: Target, folder: ExportFolder) -> None:
    for steps in range(1, 200):
        try:
            # One step further each time: what was brought is compared first.
            await moving(target, folder, interrupt_after(after=steps)).run()
        except Interrupted:
            assert TopicNames.of(target[1]).importing in await target[0].topics()
            continue
        break
    else:
        raise AssertionError("it never ended")
    await check(target)


async def test_a_finished_import_is_compared_again(target: Target, folder: ExportFolder) -> None:
    assert await moving(target, folder).run()
    assert not await moving(target, folder).run()
    await check(target)


async def append(target: Target, topic: str, *, partition: int = 0) -> None:
    await target[0].log(topic, partition).append([(b"", b"foreign")], deadline_s=20)


async def test_a_cluster_that_went_on_is_left_alone(target: Target, folder: ExportFolder) -> None:
    await moving(target, folder).run()
    await append(target, TopicNames.of(target[1]).lease, partition=1)
    with pytest.raises(NotEmpty, match="has topics of moved"):
        await moving(target, folder).run()


@pytest.mark.parametrize("name", ["catalog", "shard.s9", "changelog"])
async def test_a_cluster_with_topics_is_left_alone(
    target: Target, folder: ExportFolder, name: str
) -> None:
    cluster, prefix = target
    names = TopicNames.of(prefix)
    topic = names.changelog if name == "changelog" else f"{prefix}.{name}"
    await cluster.create_topics([TopicSpec(topic, SLOTS)])
    before = await cluster.topics()
    with pytest.raises(NotEmpty, match="has topics of moved"):
        await moving(target, folder).run()
    assert await cluster.topics() == before


async def test_an_import_of_another_export_is_left_alone(
    target: Target, folder: ExportFolder, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        await moving(target, folder, interrupt_after(after=3)).run()
    other = ExportFolder(tmp_path / "other")
    export_folder(source, other, directory="a copy")
    with pytest.raises(NotEmpty, match="are of another import"):
        await moving(target, other).run()
    await moving(target, folder).run()
    await check(target)


@pytest.mark.parametrize(
    ("after", "topic", "words"),
    [
        (1, "shard.s1", "has a record at offset 0 already"),
        (1, "shard.s2", "differs from the export at offset 0"),
        (1, "shard.s4", "has offsets 0 to 1, the export 0 to 0"),
        (1, "lease", "has a record at offset 0 already"),
    ],
)
async def test_what_others_wrote_ends_an_import(
    target: Target, folder: ExportFolder, after: int, topic: str, words: str
) -> None:
    with pytest.raises(Interrupted):
        await moving(target, folder, interrupt_after(after=after)).run()
    await append(target, f"{target[1]}.{topic}")
    with pytest.raises(Differs, match=words):
        await moving(target, folder).run()


async def test_what_others_write_meanwhile_is_found_at_the_end(
    target: Target, folder: ExportFolder
) -> None:
    names = TopicNames.of(target[1])
    steps = [0]

    def count_step(name: str, *_: object) -> None:
        steps[0] += not name.startswith("verify")

    await moving(target, folder, count_step).run()
    await target[0].delete_topics([*await target[0].topics(), names.changelog])
    with pytest.raises(Interrupted):  # Once all is written, before it is compared.
        await moving(target, folder, interrupt_after(after=steps[0])).run()
    writer = target[0].changelog_writer(names.changelog, 1, "somebody")
    await writer.fence()
    await writer.flush([(b"e", b"5", [])])
    with pytest.raises(Differs, match="differs from the export at offset"):
        await moving(target, folder).run()


async def test_a_damaged_export_is_refused_before_anything_is_made(
    target: Target, folder: ExportFolder
) -> None:
    path = folder.path / "shard.s1-0.records"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NotAnExport, match="is cut off"):
        await moving(target, folder).run()
    assert await target[0].topics() == {}


# Kafka's own.


@pytest.mark.kafka
@pytest.mark.parametrize("target", ["kafka"], indirect=True)
async def test_topics_are_as_a_server_makes_them(target: Target, folder: ExportFolder) -> None:
    cluster, prefix = target
    assert isinstance(cluster, KafkaCluster)
    await moving(target, folder).run()
    names = TopicNames.of(prefix)
    for spec in [*names.system(SLOTS), *(TopicSpec(names.shard(name)) for name in SHARDS)]:
        found = await cluster.settings(spec.name)
        assert topic_settings(cluster.config, spec).items() <= found.items()


@pytest.mark.kafka
@pytest.mark.parametrize("target", ["kafka"], indirect=True)
async def test_a_topic_that_could_lose_a_write_ends_an_import(
    target: Target, folder: ExportFolder
) -> None:
    cluster, prefix = target
    assert isinstance(cluster, KafkaCluster)
    with pytest.raises(Interrupted):
        await moving(target, folder, interrupt_after(after=3)).run()
    await change_topic(cluster, f"{prefix}.shard.s2", "retention.ms", "1000")
    with pytest.raises(NotDurable, match=r"retention\.ms is 1000"):
        await moving(target, folder).run()


def test_readers_pass_over_fillers() -> None:
    """A broker that crashes may forget how far a log was trimmed."""
    _, stored = filler(lease=False)
    envelope, body = record.decode_record(stored)
    assert (envelope.at, envelope.group, body) == (-1, record.SINGLE, record.NoOp())
    assert decode_lease(filler(lease=True)[1]).at == -1
