"""Values as the wire writes them without a length prefix."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected

# value, its bytes, the bytes it counts for limits and capacity
VALUES = [
    (10, "00 0a00000000000000", 8),
    (-1, "00 ffffffffffffffff", 8),
    (-(2**63), "00 0000000000000080", 8),
    (3.5, "01 0000000000000c40", 8),
    (True, "02 01", 1),
    (False, "02 00", 1),
    ("", "03 00000000", 0),
    ("你", "03 03000000 e4bda0", 3),
    (b"\xca\xfe", "07 02000000 cafe", 2),
]
MALFORMED = [
    ("", "Invalid value: unknown type -1."),
    ("05", "Invalid value: unknown type 5."),
    ("00 01", "VT_INTEGER value of 2 bytes: must have 9."),
    ("01 000000000000000000", "VT_DOUBLE value of 10 bytes: must have 9."),
    ("02 02", "VT_BOOLEAN value 2: must be 0 or 1."),
    ("03 0000", "VT_STRING value of 3 bytes: wrong length."),
    ("03 02000000 61", "VT_STRING value of 6 bytes: wrong length."),
    ("03 01000000 ff", "VT_STRING value is not UTF-8: invalid start byte."),
    ("03 03000000 eda080", "VT_STRING value is not UTF-8: invalid continuation byte."),
    ("07 ffffffff", "VT_BLOB value of 5 bytes: wrong length."),
    ("09 00", "VT_INF_MIN value of 2 bytes: must have 1."),
]
scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(),
    st.binary(),
)


@pytest.mark.parametrize(("value", "expected", "size"), VALUES)
def test_a_value_has_these_bytes(value: variant.Scalar, expected: str, size: int) -> None:
    encoded = variant.encode(value)
    assert encoded == bytes.fromhex(expected)
    assert variant.payload_size(encoded) == size


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (variant.encode(math.nan), "NaN can't be set to double value."),
        (bytes.fromhex("01 010000000000f0ff"), "NaN can't be set to double value."),
        (variant.encode(math.inf), "Infinity can't be set to double value."),
        (variant.encode(-math.inf), "Infinity can't be set to double value."),
        (variant.encode(1.7976931348623157e308), None),
        (bytes.fromhex("00 000000000000f07f"), None),  # An integer of the bits of Infinity.
        (variant.encode("nan"), None),
    ],
)
def test_a_double_is_finite(encoded: bytes, text: str | None) -> None:
    message = None
    try:
        variant.check_finite(encoded)
    except Rejected as refused:
        message = refused.message
    assert message == text


@given(scalars)
def test_a_value_comes_back_with_its_type(value: variant.Scalar) -> None:
    encoded = variant.encode(value)
    variant.check(encoded)
    decoded = variant.decode(encoded)
    assert decoded == value
    assert type(decoded) is type(value)


def test_a_double_keeps_its_bits() -> None:
    assert math.isnan(float(variant.decode(variant.encode(math.nan))))
    assert variant.encode(-0.0) != variant.encode(0.0)


@pytest.mark.parametrize(("malformed", "message"), MALFORMED)
def test_anything_but_one_whole_value_is_refused(malformed: str, message: str) -> None:
    with pytest.raises(Rejected) as refusal:
        variant.check(bytes.fromhex(malformed))
    assert refusal.value.message == message


@given(st.binary(max_size=20))
def test_what_is_checked_is_either_refused_or_one_value(anything: bytes) -> None:
    try:
        variant.check(anything)
    except Rejected:
        return
    if anything[0] <= variant.BLOB and anything[0] != variant.NULL:
        assert variant.encode(variant.decode(anything)) == anything
    else:
        assert len(anything) == 1


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "\ud800"])
def test_what_has_no_bytes_is_refused(value: variant.Scalar) -> None:
    with pytest.raises(Rejected):
        variant.encode(value)


@pytest.mark.parametrize(
    "marker", [variant.V_INF_MIN, variant.V_INF_MAX, variant.V_AUTO_INCREMENT, b"\x06"]
)
def test_a_marker_is_well_formed_but_has_no_value(marker: bytes) -> None:
    variant.check(marker)
    assert variant.payload_size(marker) == 0
    with pytest.raises(Rejected):
        variant.decode(marker)


def test_messages_name_types_as_the_service_does() -> None:
    named = [variant.type_name(bytes((kind,))) for kind in (0, 1, 2, 3, 6, 7, 9, 10, 11, 42)]
    assert named == [
        "VT_INTEGER",
        "VT_DOUBLE",
        "VT_BOOLEAN",
        "VT_STRING",
        "VT_NULL",
        "VT_BLOB",
        "VT_INF_MIN",
        "VT_INF_MAX",
        "VT_AUTO_INCREMENT",
        "VT_UNKNOWN_42",
    ]
