"""Where connectors run: what a process can reach, and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import TableShape
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import KeyColumn

if TYPE_CHECKING:
    from rowtide.stream.log.kafka.cluster import KafkaCluster

__all__ = ["ProcessContext", "table_shape"]


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """One process. ``environment`` resolves ``${NAME}``; ``folder`` has a folder per
    connector.

    ``cluster`` is Kafka, if this process can reach it. ``process`` names the process to
    people.
    """

    endpoint: Endpoint
    environment: Mapping[str, str]
    folder: str
    cluster: KafkaCluster | None = None
    process: str = ""

    def surroundings(self, name: str) -> ConnectorContext:
        """Return the context of one connector."""
        return ConnectorContext(name, f"{self.folder}/{name}", self.endpoint)


async def table_shape(endpoint: Endpoint, table: str) -> TableShape:
    """Return a table's name and key. Raises OTSObjectNotExist."""
    asked = pb.DescribeTableRequest(table_name=table)
    try:
        response = await endpoint.call("DescribeTable", asked, pb.DescribeTableResponse)
    except Rejected as error:
        if error.code != "OTSObjectNotExist":
            raise
        raise Rejected(error.code, f"There is no table '{table}'.") from error
    key = [KeyColumn(column.name, column.type) for column in response.table_meta.primary_key]
    return TableShape(table, tuple(key))
