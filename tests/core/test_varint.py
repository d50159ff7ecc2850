"""Numbers byte for byte as the protobuf runtime writes them."""

from __future__ import annotations

import pytest

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.varint import varint


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 14) - 1, 1 << 14, (1 << 31) - 1])
def test_a_number_is_written_as_the_runtime_writes_it(value: int) -> None:
    assert b"\x08" + varint(value) == pb.CapacityUnit(read=value).SerializeToString()
