"""``rowtide export`` and ``rowtide import``: from a local directory into a Kafka cluster.

Both continue after an interruption, also after kill -9. Progress goes to stderr, the summary to
stdout.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from rowtide.cli.exits import CommandRefused, Failure, NotNow
from rowtide.cli.output import emit_table
from rowtide.cli.serving import LOG_FOLDER
from rowtide.cli.settings import DURABILITIES, Settings, SettingsError, load_settings
from rowtide.cli.start_failures import explain_failure, first_of
from rowtide.core.release import VERSION
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.stream.cluster.worker_directory import DirectoryLock
from rowtide.stream.log.changelog import Fenced
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.moving.exporting import export
from rowtide.stream.moving.folder import ExportFolder, FolderBusy, NotAnExport, OtherSource
from rowtide.stream.moving.importing import Import, NotEmpty
from rowtide.stream.moving.local_source import NoSuchTopics
from rowtide.stream.moving.lost_entries import EntriesLost, require_entries
from rowtide.stream.moving.manifest import Manifest
from rowtide.stream.moving.target_log import Differs

__all__ = ["export_logs", "import_logs"]

LINE_EVERY_S = 1.0
SECRETS = "It has every row and the secrets of access keys: protect it like those."


class ProgressLines:
    """Prints the progress of a partition on stderr, at most one line per second.

    The rate is that of all partitions since the previous line.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._printed_s = clock_s()
        self._name = ""
        self._records = 0
        self._since = 0

    def __call__(self, name: str, records: int, size: int) -> None:
        """Add progress: the records and bytes of a partition that are done."""
        self._since += records - (self._records if name == self._name else 0)
        self._name, self._records = name, records
        now_s = self._clock_s()
        passed_s = now_s - self._printed_s
        if passed_s < LINE_EVERY_S:
            return
        rate = self._since / passed_s
        self._printed_s, self._since = now_s, 0
        click.echo(
            f"{name}: {records:,} records, {size / 1e6:,.1f} MB, {rate:,.0f} records/s", err=True
        )


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--data-dir", "--data", type=click.Path(path_type=Path), help="Directory to export.")
@click.option("--topic-prefix", help="Topic prefix of the directory, if it was set.")
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file of settings.")
def export_logs(folder: Path, config: Path | None, **flags: Any) -> None:
    """Export the logs, rows and catalog of a local directory to the new folder DIR.

    The directory is that of a stopped `rowtide dev`. It is not changed. After an interruption
    run the command again: it continues. `rowtide import` imports DIR into a Kafka cluster.
    """
    settings = _settings(config, flags)
    began_s = time.monotonic()
    with _failures(partial(_export_failure, settings=settings, folder=folder)):
        manifest = _export(settings, folder)
    seconds = time.monotonic() - began_s
    _summarize(manifest)
    click.echo(f"Exported to {folder} in {seconds:.1f} s. {SECRETS}")


def _export(settings: Settings, folder: Path) -> Manifest:
    data_dir = settings.data_dir
    if not (data_dir / LOG_FOLDER).is_dir():
        raise CommandRefused(
            f"{data_dir} has no local log", "Name the directory of `rowtide dev` with --data-dir."
        )
    lock = DirectoryLock(data_dir)
    store = LogStore(data_dir / LOG_FOLDER)
    try:
        store.open()
        require_entries(store, settings.topic_prefix, data_dir / "rows")
        return export(
            store,
            ExportFolder(folder),
            directory=lock.identity(),
            prefix=settings.topic_prefix,
            written_by=f"rowtide {VERSION}",
            progress=ProgressLines(),
        )
    finally:
        store.close()
        lock.release()


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--kafka", required=True, help="The cluster, HOST:PORT[,HOST:PORT].")
@click.option("--topic-prefix", help="First part of every topic's name.  [default: rowtide]")
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    help="Durability of the future workers: fsync for one broker, replicated for three.",
)
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file of settings.")
def import_logs(folder: Path, config: Path | None, **flags: Any) -> None:
    """Import the folder DIR of `rowtide export` into a Kafka cluster.

    The cluster must not have topics of the prefix. At the end every record is compared; no
    worker serves the topics before. After an interruption run the command again: it continues.
    """
    settings = _settings(config, {**flags, "log": "kafka"})
    began_s = time.monotonic()
    with _failures(partial(_import_failure, settings=settings)):
        export_folder = ExportFolder(folder)
        manifest = export_folder.manifest()
        with export_folder.lock():
            written = asyncio.run(_import(settings, export_folder))
    seconds = time.monotonic() - began_s
    _summarize(manifest)
    what = f"Imported into {settings.kafka}" if written else f"{settings.kafka} was complete"
    click.echo(f"{what}: every record and setting was compared, {seconds:.1f} s.")
    click.echo(f"Now start workers: {_worker_command(settings)}")


def _worker_command(settings: Settings) -> str:
    """Return the command that starts a worker on the imported logs."""
    usual = Settings()
    words = ["rowtide worker --kafka", settings.kafka]
    if settings.topic_prefix != usual.topic_prefix:
        words += ["--topic-prefix", settings.topic_prefix]
    if settings.durability != usual.durability:
        words += ["--durability", settings.durability]
    return " ".join([*words, "--data-dir NEW-DIRECTORY"])


async def _import(settings: Settings, folder: ExportFolder) -> bool:
    # Imported here, because the libraries are slow to import.
    from rowtide.cli.kafka_start import ClusterUnreachable, kafka_config
    from rowtide.stream.log.kafka.cluster import KafkaCluster

    cluster = KafkaCluster(kafka_config(settings, settings.kafka))
    try:
        await cluster.start()
    except Unavailable as error:
        await cluster.stop()
        raise ClusterUnreachable(str(error)) from error
    moving = Import(cluster, settings.topic_prefix, folder, ProgressLines())
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(cluster.run(), name="brokers")
            try:
                return await moving.run()
            finally:
                watching.cancel()
    finally:
        await cluster.stop()


def _settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    try:
        return load_settings(config, os.environ, flags)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def _failures(failure_of: Callable[[Exception], Failure]) -> Iterator[None]:
    """Raise the failure that ``failure_of`` returns for an error."""
    try:
        yield
    except click.ClickException:
        raise
    except Exception as error:
        cause = first_of(error)
        assert isinstance(cause, Exception), cause
        raise failure_of(cause) from error


def _export_failure(cause: Exception, settings: Settings, folder: Path) -> Failure:
    if isinstance(cause, OtherSource | NotAnExport):
        return CommandRefused(str(cause), "Choose another folder, or remove this one.")
    if isinstance(cause, NoSuchTopics):
        return CommandRefused(str(cause), "Name their prefix with --topic-prefix.")
    if isinstance(cause, EntriesLost):
        return CommandRefused(
            str(cause),
            f"Start the server; `rowtide shard repair {cause.shard_id}` shows what is lost.",
        )
    if isinstance(cause, OSError):
        return CommandRefused(f"{cause.filename or folder}: {cause.strerror or cause}")
    return explain_failure(cause, Settings(data_dir=settings.data_dir, log="local"))


def _import_failure(cause: Exception, settings: Settings) -> Failure:
    if isinstance(cause, NotAnExport):
        return CommandRefused(str(cause), "Give the folder of a finished `rowtide export`.")
    if isinstance(cause, FolderBusy):
        return CommandRefused(str(cause), "Wait until it ends, or stop it.")
    if isinstance(cause, NotEmpty):
        return CommandRefused(
            str(cause),
            "Choose another --topic-prefix, or delete these topics if you no longer need them.",
        )
    if isinstance(cause, Differs):
        return CommandRefused(
            str(cause),
            "Another program writes there. Delete the topics of this import, then import again.",
        )
    # If one of them was raised, the module is imported already.
    from rowtide.stream.log.kafka.errors import NotDurable

    passes = isinstance(cause, Unavailable | OutcomeUnknown | Fenced)
    if passes and not isinstance(cause, NotDurable):
        return NotNow(
            f"Kafka failed: {cause}",
            "Check the brokers, and run the same command again: it continues.",
        )
    return explain_failure(cause, settings)


def _summarize(manifest: Manifest) -> None:
    kinds: dict[str, list[int]] = {}
    for part in manifest.parts:
        totals = kinds.setdefault(part.topic.partition(".")[0], [0, 0, 0])
        for at, more in enumerate((1, part.records, part.bytes)):
            totals[at] += more
    emit_table(("topics", "partitions", "records", "bytes"), [(k, *t) for k, t in kinds.items()])
