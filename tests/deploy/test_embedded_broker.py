"""The embedded broker as its users meet it: started, killed, refused, restarted."""

from __future__ import annotations

import pytest

from rowtide.deploy.kafka.probe import answers

pytestmark = pytest.mark.kafka


def test_a_started_broker_answers_the_kafka_protocol(broker: str) -> None:
    host, port = broker.split(":")
    assert answers(host, int(port))
