"""How many seconds a source is behind, by what it wrote and by where its server's log ended."""

from __future__ import annotations

from rowtide.connectors.sources.lag import LagMeter


def test_nobody_knows_before_anything_is_written_or_passed() -> None:
    assert LagMeter().seconds((10,), (50,), 1000) is None


def test_who_is_at_the_end_is_not_behind_however_old_the_last_change_is() -> None:
    meter = LagMeter()
    meter.note_written(1000)
    assert meter.seconds((50,), (50,), 9_000_000) == 0.0


def test_what_was_written_last_tells_while_the_end_is_far() -> None:
    meter = LagMeter()
    meter.note_written(7000)
    assert meter.seconds((10,), (50,), 9000) == 2.0


def test_an_end_that_is_passed_tells_although_the_log_grows_without_a_change_of_ours() -> None:
    meter = LagMeter()
    meter.note_written(1000)
    assert meter.seconds((49,), (50,), 10_000) == 9.0
    assert meter.seconds((59,), (60,), 11_000) == 1.0
    assert meter.seconds((59,), (90,), 12_000) == 2.0, "the end is not passed that was meant"
    assert meter.seconds((90,), (95,), 13_000) == 2.0


def test_after_a_long_silence_a_new_change_is_as_old_as_the_last_question() -> None:
    meter = LagMeter()
    meter.note_written(1000)
    assert meter.seconds((50,), (50,), 500_000) == 0.0
    assert meter.seconds((50,), (60,), 501_000) == 1.0


def test_a_change_that_says_it_is_of_the_future_is_not_believed() -> None:
    meter = LagMeter()
    meter.note_written(99_000_000)
    assert meter.seconds((10,), (50,), 1000) is None
