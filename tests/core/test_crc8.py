"""The checksum of the wire, against its definition bit by bit."""

from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.values.crc8 import SHIFT8, STEP, crc8


def by_definition(text: bytes) -> int:
    """Divide by x^8 + x^2 + x + 1, one bit at a time."""
    crc = 0
    for byte in text:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1) ^ (0x107 if crc & 0x80 else 0)
    return crc


def test_the_usual_check_text_gives_f4() -> None:
    assert crc8(b"123456789") == 0xF4


@given(st.binary(max_size=300))
def test_the_sum_is_the_remainder(text: bytes) -> None:
    assert crc8(text) == by_definition(text)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_sum_is_continued_from_its_state(first: bytes, second: bytes) -> None:
    assert crc8(second, crc8(first)) == crc8(first + second)


@given(st.binary(max_size=40), st.integers(0, 255))
def test_one_step_adds_one_byte(text: bytes, byte: int) -> None:
    assert STEP[crc8(text) ^ byte] == crc8(text + bytes((byte,)))


@given(st.binary(max_size=40), st.binary(min_size=8, max_size=8))
def test_a_shift_makes_room_for_eight_bytes(text: bytes, eight: bytes) -> None:
    assert SHIFT8[crc8(text)] ^ crc8(eight) == crc8(text + eight)
