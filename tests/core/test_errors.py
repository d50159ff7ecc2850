"""Failures as they are told."""

from rowtide.core.values.errors import MESSAGE_MAX, invalid


def test_a_message_is_told_whole_up_to_a_bound() -> None:
    assert invalid("m" * MESSAGE_MAX).message == "m" * MESSAGE_MAX


def test_a_longer_message_is_cut() -> None:
    told = invalid("m" * (MESSAGE_MAX + 1))
    assert told.message == str(told) == "m" * (MESSAGE_MAX - 3) + "..."
