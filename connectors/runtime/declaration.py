"""What a connector is declared to be: a part of a YAML file, stored as a document.

    connectors:
      orders-search:
        table: orders
        sink: {kind: tantivy}
        begin: rows
      shop:
        source: {kind: mysql, host: db, password: "${SHOP_PASSWORD}"}

Settings are read strictly. The kind of a sink or source checks its own settings
(``judge``). Texts that name variables are stored as written. The process that runs the
connector resolves them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import cast

import yaml

from rowtide.client.changes.start import Begin
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink, make_source
from rowtide.connectors.runtime.source_columns import (
    SECRET_BYTES_MIN,
    TableColumns,
    columns_by_target,
    parse_columns,
)
from rowtide.connectors.runtime.transforms import Transforms
from rowtide.connectors.sources.source import Source
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import check_table_name

__all__ = [
    "Declaration",
    "begin_of",
    "judge",
    "parse_document",
    "parse_file",
    "resolve_columns",
    "variables",
]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_BEGINS = ("rows", "oldest", "latest")

BATCH_ROWS_MAX = 10_000
PARKED_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Declaration:
    """One connector. Either ``source`` is empty, or ``sink`` and ``table`` are.

    ``batch_rows`` bounds the rows applied at once; None leaves it to the sink.
    ``parked_max`` is how many rows may be parked before the connector fails. ``lease_ms``
    is how long the work of a crashed process pauses. ``columns`` has the settings of a
    source's columns, see ``resolve_columns``. Those of a sink are among its
    ``transforms``. Tables that a source creates keep ``max_versions``, and their stream
    for ``stream_hours``.
    """

    name: str
    table: str
    sink: Mapping[str, object]
    source: Mapping[str, object]
    columns: Mapping[str, object]
    begin: str
    transforms: Transforms
    batch_rows: int | None
    parked_max: int
    lease_ms: int
    max_versions: int
    stream_hours: int
    document: Mapping[str, object]

    @property
    def kind(self) -> str:
        """The kind of the sink or source."""
        return str((self.sink or self.source)["kind"])

    @property
    def described(self) -> str:
        """What the connector does, in a few words."""
        return f"{self.table} to {self.kind}" if self.sink else f"{self.kind} to tables"

    @property
    def text(self) -> str:
        """The document as it is stored. Equal texts mean equal connectors."""
        return json.dumps(self.document, sort_keys=True, ensure_ascii=False)


def parse_file(text: str, where: str) -> list[Declaration]:
    """Return what a YAML file declares, in file order. Raises ``SettingsRefused``."""
    loader = _Loader(text)
    loader.name = where  # Errors name the place.
    try:
        content = loader.get_single_data()
    except yaml.YAMLError as error:
        raise SettingsRefused(f"{where}: {error}") from error
    fields = Fields(content, where)
    connectors = fields.mapping("connectors")
    fields.refuse_unknown()
    if not connectors:
        raise SettingsRefused(f"{where} declares nothing under 'connectors'.")
    return [parse_document(name, document) for name, document in connectors.items()]


class _Loader(yaml.SafeLoader):
    """YAML that rejects a name given twice. Plain YAML silently keeps the last value."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[object, object]:
    found: dict[object, object] = {}
    for key_node, value_node in node.value:
        name = loader.construct_object(key_node, deep=True)
        if not isinstance(name, Hashable):
            raise SettingsRefused(f"{name!r} is no name{key_node.start_mark}")
        if name in found:
            raise SettingsRefused(f"'{name}' is given twice{key_node.start_mark}")
        found[name] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def parse_document(name: object, document: object) -> Declaration:
    """Return the declaration of one name. Raises ``SettingsRefused``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SettingsRefused(
            f"A connector is named by 1 to 63 lower-case letters, digits, '-' and '_', "
            f"not {name!r}."
        )
    plain = _plain(document)
    fields = Fields(plain, f"connectors.{name}")
    source = fields.mapping("source")
    table, begin, transforms = "", "rows", Transforms()
    sink: Mapping[str, object] = {}
    columns: Mapping[str, object] = {}
    batch_rows: int | None = None
    max_versions, stream_hours = 1, 168
    if source:
        _kind_of(source, f"{fields.where}.source")
        max_versions = fields.integer("max_versions", 1, least=1, most=2**31 - 1)
        stream_hours = fields.integer("stream_hours", 168, least=1, most=168)
        columns = fields.mapping("columns")
        unknown = {name: name.ljust(SECRET_BYTES_MIN) for name in variables(columns)}
        parse_columns(Fields(columns, f"{fields.where}.columns", environment=unknown))
    else:
        table = _table_of(fields)
        sink = fields.mapping("sink")
        _kind_of(sink, f"{fields.where}.sink")
        begin = fields.text("begin", "rows")
        begin_of(begin, f"{fields.where}.begin")
        transforms = Transforms.parse(fields)
        if fields.has("batch_rows"):
            batch_rows = fields.integer("batch_rows", least=1, most=BATCH_ROWS_MAX)
    parked_max = fields.integer("parked_max", 1000, least=0, most=PARKED_MAX)
    lease_ms = fields.integer("lease_ms", 5000, least=500, most=60_000)
    fields.refuse_unknown()
    return Declaration(
        name,
        table,
        sink,
        source,
        columns,
        begin,
        transforms,
        batch_rows,
        parked_max,
        lease_ms,
        max_versions,
        stream_hours,
        cast(Mapping[str, object], plain),
    )


def _kind_of(settings: Mapping[str, object], where: str) -> None:
    if not isinstance(settings.get("kind"), str):
        raise SettingsRefused(f"{where}.kind is missing; it must be a text.")


def _table_of(fields: Fields) -> str:
    name = fields.text("table")
    try:
        check_table_name(name, Limits())
    except Rejected as error:
        raise SettingsRefused(
            f"{fields.where}.table must name a table, 1 to 255 letters, digits and '_', no digit "
            f"first, but is {name!r}."
        ) from error
    return name


def _plain(value: object) -> object:
    """Return a YAML value as JSON has it: times become texts."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return value.isoformat() if isinstance(value, date) else value


def begin_of(text: str, where: str) -> Begin:
    """Return where a connector begins. Raises ``SettingsRefused``."""
    if text in _BEGINS:
        return cast(Begin, text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsRefused(
            f"{where} must be rows, oldest, latest or a time such as 2026-01-31T12:00:00Z, "
            f"but is {text!r}."
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000_000)


def judge(declaration: Declaration, environment: Mapping[str, str]) -> list[str]:
    """Check a connector's settings by its kind. Return warnings of what can't be checked
    here.

    This connects to nothing. Raises ``SettingsRefused``.
    """
    part = "sink" if declaration.sink else "source"
    settings = declaration.sink or declaration.source
    named = variables([settings, declaration.columns])
    missing = sorted(set(named) - set(environment))
    if missing:
        names = ", ".join(f"${{{name}}}" for name in missing)
        return [f"{declaration.name}: its {part} is not checked: {names} is not set here"]
    fields = Fields(settings, f"connectors.{declaration.name}.{part}", environment=environment)
    surroundings = ConnectorContext(declaration.name, "")
    if declaration.sink:
        make_sink(fields, surroundings)
    else:
        resolve_columns(declaration, make_source(fields, surroundings), environment)
    declaration.transforms.load()
    return []


def resolve_columns(
    declaration: Declaration, source: Source, environment: Mapping[str, str]
) -> Mapping[str, TableColumns]:
    """Return the column rules of a source, by the table's name in rowtide.

    Raises ``SettingsRefused``.
    """
    where = f"connectors.{declaration.name}.columns"
    rules = parse_columns(Fields(declaration.columns, where, environment=environment))
    return columns_by_target(rules, source, declaration.kind)


def variables(value: object) -> Iterator[str]:
    """Yield the environment variables that settings name."""
    if isinstance(value, str):
        yield from _VARIABLE.findall(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from variables(item)
    elif isinstance(value, list):
        for item in value:
            yield from variables(item)
