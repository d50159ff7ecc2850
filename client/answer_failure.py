"""The failure of an HTTP answer that is not a success."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from rowtide.client.failures import failure_of
from rowtide.client.http_exchange import HttpAnswer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import OutcomeUnknown, StoreError

__all__ = ["failure_of_answer"]


def failure_of_answer(answer: HttpAnswer) -> StoreError:
    """Return the failure of an answer. It may be a proxy's, which does not speak the protocol."""
    try:
        error = pb.Error.FromString(answer.content)
    except DecodeError:
        error = pb.Error(code="")
    if error.code:
        return failure_of(error.code, error.message, answer.request_id)
    text = answer.content[:200].decode(errors="replace")
    failure = OutcomeUnknown(f"HTTP{answer.status}: {text}")
    failure.code = f"HTTP{answer.status}"
    return failure
