"""Failures as clients get them."""

from rowtide.core.values.errors import MESSAGE_MAX, invalid


def test_a_message_is_shown_whole_up_to_a_bound() -> None:
    assert invalid("m" * MESSAGE_MAX).message == "m" * MESSAGE_MAX


def test_a_longer_message_is_cut() -> None:
    failure = invalid("m" * (MESSAGE_MAX + 1))
    assert failure.message == str(failure) == "m" * (MESSAGE_MAX - 3) + "..."
