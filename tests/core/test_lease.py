"""Leases: who may serve a slot, and from when on nobody does."""

from __future__ import annotations

import io
import json
from importlib.resources import files

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.lease import (
    CLAIM,
    DRIFT,
    RELEASE,
    RENEW,
    CorruptLease,
    Lease,
    LeaseView,
    decode_lease,
    encode_lease,
)

LEASE_S = 4.0
WAIT_S = LEASE_S * (1 + DRIFT)
ANN, BOB, CAT = b"ann-----", b"bob-----", b"cat-----"


def read(view: LeaseView, kind: str, claim: int, owner: bytes, at_s: float) -> None:
    """Fold the next record, valid where it stands."""
    offset = view.end
    lease = Lease(offset, kind, offset if kind == CLAIM else claim, owner, f"{owner.decode()}:1")
    view.read(offset, encode_lease(lease), at_s)


def test_a_record_comes_back() -> None:
    lease = Lease(7, RENEW, 3, ANN, "host:1", 1200)
    assert decode_lease(encode_lease(lease)) == lease


LEASES = st.builds(
    Lease,
    at=st.integers(0, 2**63 - 1),
    kind=st.sampled_from([CLAIM, RENEW, RELEASE]),
    claim=st.integers(0, 2**63 - 1),
    owner=st.binary(min_size=8, max_size=8),
    address=st.text(max_size=200),
    lease_ms=st.integers(0, 2**63 - 1),
)


@given(LEASES)
def test_a_record_is_what_fastavro_writes_for_the_schema(lease: Lease) -> None:
    ours = encode_lease(lease)
    assert ours == write_record("lease-v2", lease)
    assert decode_lease(ours) == lease


@given(LEASES)
def test_a_record_of_the_first_schema_is_read_and_says_no_length(lease: Lease) -> None:
    theirs = write_record("lease-v1", lease)
    assert decode_lease(theirs) == lease._replace(lease_ms=0)
    for size in range(len(theirs)):
        with pytest.raises(CorruptLease):
            decode_lease(theirs[:size])


def write_record(name: str, lease: Lease) -> bytes:
    """Return a record as fastavro has it, in Avro's single-object encoding."""
    schema = json.loads(files("rowtide.core.records").joinpath(f"schemas/{name}.avsc").read_text())
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, schema, lease._asdict())
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    fingerprint = fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")
    return b"\xc3\x01" + bytes.fromhex(fingerprint) + theirs.getvalue()


WHOLE = encode_lease(Lease(7, RENEW, 3, ANN, "host:1", 1200))


@pytest.mark.parametrize(
    "value",
    [
        b"\xc3\x01" + bytes(8),
        *(WHOLE[:size] for size in range(len(WHOLE))),
        WHOLE + b"\0",
        WHOLE[:11] + b"\x06" + WHOLE[12:],
    ],
)
def test_anything_else_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptLease):
        decode_lease(value)


def test_a_claim_waits_for_the_last_renewal_of_every_earlier_one() -> None:
    view = LeaseView()
    read(view, CLAIM, 0, ANN, 10.0)
    read(view, RENEW, 0, ANN, 12.0)
    read(view, CLAIM, 2, BOB, 13.0)
    assert view.safe_at(2, LEASE_S) == 12.0 + WAIT_S
    assert view.safe_at(2, LEASE_S, dead={ANN}) == 0.0


def test_a_longer_lease_than_ones_own_is_waited_for() -> None:
    view = LeaseView()
    for ann_s in (LEASE_S - 1, LEASE_S + 1):
        view.read(0, encode_lease(Lease(0, CLAIM, 0, ANN, "ann:1", int(ann_s * 1000))), 10.0)
        waited_s = max(ann_s, LEASE_S) * (1 + DRIFT)
        assert view.safe_at(1, LEASE_S) == 10.0 + waited_s
        assert view.free_since(LEASE_S) == 10.0 + waited_s
    read(view, CLAIM, 1, BOB, 11.0)
    view.forget_ended(10.0 + WAIT_S, LEASE_S)
    assert view.safe_at(1, LEASE_S) == 10.0 + (LEASE_S + 1) * (1 + DRIFT), "not forgotten before"


def test_a_released_claim_is_not_waited_for_but_an_older_live_one_is() -> None:
    view = LeaseView()
    read(view, CLAIM, 0, ANN, 10.0)
    read(view, CLAIM, 1, BOB, 11.0)
    read(view, RELEASE, 1, BOB, 11.5)
    read(view, CLAIM, 3, CAT, 12.0)
    assert view.safe_at(3, LEASE_S) == 10.0 + WAIT_S


def test_a_record_at_another_offset_than_it_names_is_void() -> None:
    view = LeaseView()
    read(view, CLAIM, 0, ANN, 10.0)
    view.read(1, encode_lease(Lease(7, RENEW, 0, ANN, "ann:1")), 20.0)
    assert view.safe_at(9, LEASE_S) == 10.0 + WAIT_S
    assert view.end == 2


def test_nobody_serves_a_slot_once_every_lease_seen_has_ended() -> None:
    view = LeaseView()
    assert view.free_since(LEASE_S) is None
    read(view, CLAIM, 0, ANN, 10.0)
    read(view, RENEW, 0, ANN, 12.0)
    assert view.free_since(LEASE_S) == 12.0 + WAIT_S


steps = st.lists(
    st.tuples(
        st.sampled_from([CLAIM, RENEW, RELEASE]),
        st.sampled_from([ANN, BOB, CAT]),
        st.floats(0, 6),
        st.booleans(),
    ),
    max_size=30,
)


@given(steps, st.sets(st.sampled_from([ANN, BOB])))
def test_forgetting_what_has_ended_lets_nobody_serve_earlier(
    drawn: list[tuple[str, bytes, float, bool]], dead: set[bytes]
) -> None:
    whole, forgetful = LeaseView(), LeaseView()
    claims: dict[bytes, int] = {}
    now_s = 0.0
    for kind, owner, passed_s, forgets in drawn:
        now_s += passed_s
        if kind == CLAIM:
            claims[owner] = whole.end
        if owner not in claims:
            continue
        for view in (whole, forgetful):
            read(view, kind, claims[owner], owner, now_s)
        if forgets:
            forgetful.forget_ended(now_s, LEASE_S)
            forgetful = forgetful.copy()
        claim = whole.end
        truly = max(now_s, whole.safe_at(claim, LEASE_S, dead=dead))
        assert max(now_s, forgetful.safe_at(claim, LEASE_S, dead=dead)) >= truly
