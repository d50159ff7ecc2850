"""The request that changes single settings of topics and keeps their others.

aiokafka lacks it: its own AlterConfigs resets every setting that is not named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

__all__ = ["TOPIC_RESOURCE", "AlterTopics"]

TOPIC_RESOURCE = 2
SET = 0


class _Answer(Response):  # type: ignore[misc]
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
            ),
        ),
    )


class _Request(RequestStruct):  # type: ignore[misc]
    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                (
                    "config_entries",
                    Array(
                        ("config_name", String("utf-8")),
                        ("config_operation", Int8),
                        ("config_value", String("utf-8")),
                    ),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


class AlterTopics(Request[_Request]):  # type: ignore[misc]
    """Sets one setting of many topics to a value. Kafka has it from 2.3 on (KIP-339)."""

    API_KEY = 44

    def __init__(self, topics: Iterable[str], name: str, value: str) -> None:
        self._resources = [(TOPIC_RESOURCE, topic, [(name, SET, value)]) for topic in topics]

    def build(self, request_struct_class: Any) -> Any:
        """Return the request as it is sent."""
        return request_struct_class(self._resources, False)
