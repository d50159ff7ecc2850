"""Units by the second and the hour: what is reserved, what is on demand, what is refused."""

from __future__ import annotations

import pytest

from rowtide.core.cluster.metering import NO_TABLE, HourOf, Metering, PartitionUnits, Taken, Use
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import STRING, KeyColumn, Table, TableOptions

HOUR = 1_469_030_400
KEY = (KeyColumn("pk", STRING),)


def table(read: int = 0, write: int = 0, number: int = 1) -> Table:
    """Return a table with a reservation."""
    name = f"t{number}"
    return Table("inst", name, number, KEY, TableOptions(), None, read, write, 1, 1, ())


def get_use(taken: Taken, hour_s: int = HOUR, name: str = "t1") -> Use:
    """Return what was taken of one table and hour."""
    return taken.uses[HourOf(hour_s, "inst", name)]


def test_the_worked_example() -> None:
    metering, of = Metering(HOUR), table(read=100, write=100)
    for second, units in enumerate((120, 95, 110)):
        for _ in range(units):
            metering.count(of, 1, 0, HOUR + second + 0.5)
    taken = metering.take(HOUR + 3, [of])
    use = get_use(taken)
    assert use.read == 325
    assert use.read_on_demand == 30
    assert use.read_reserved_s / taken.seconds[HOUR] == 100
    assert (use.write, use.write_on_demand) == (0, 0)


def test_reads_and_writes_are_two_reservations() -> None:
    metering, of = Metering(HOUR), table(read=5, write=1)
    metering.count(of, 4, 3, HOUR)
    use = get_use(metering.take(HOUR + 1, [of]))
    assert (use.read_on_demand, use.write_on_demand) == (0, 2)


def test_a_reservation_that_changes_within_the_hour_is_averaged() -> None:
    metering = Metering(HOUR)
    taken = metering.take(HOUR + 900, [table(read=100)])
    taken.add(metering.take(HOUR + 3600, [table(read=20)]))
    assert taken.seconds == {HOUR: 3600}
    assert get_use(taken).read_reserved_s / 3600 == 40


def test_time_over_the_end_of_an_hour_is_of_both() -> None:
    metering = Metering(HOUR + 3590)
    metering.count(table(), 7, 0, HOUR + 3599.9)
    metering.count(table(), 9, 0, HOUR + 3600.0)
    taken = metering.take(HOUR + 3605, [table(write=10)])
    assert taken.seconds == {HOUR: 10, HOUR + 3600: 5}
    assert (get_use(taken).read, get_use(taken, HOUR + 3600).read) == (7, 9)
    assert get_use(taken).write_reserved_s == 100
    assert get_use(taken, HOUR + 3600).write_reserved_s == 50


def test_what_was_taken_is_not_taken_again_unless_put_back() -> None:
    metering = Metering(HOUR)
    metering.count(table(), 1, 2, HOUR)
    taken = metering.take(HOUR + 1, [])
    assert metering.take(HOUR + 1, []).uses == {}
    metering.put_back(taken)
    metering.count(table(), 1, 0, HOUR + 1)
    assert get_use(metering.take(HOUR + 2, [])) == Use(2, 2, 2, 2)


def test_a_clock_that_goes_back_begins_another_second() -> None:
    metering, of = Metering(HOUR + 10), table(read=10)
    metering.count(of, 10, 0, HOUR + 10)
    metering.count(of, 10, 0, HOUR + 5)
    assert get_use(metering.take(HOUR + 6, [of])).read_on_demand == 0


def test_a_gap_of_hours_is_not_counted() -> None:
    metering = Metering(HOUR)
    taken = metering.take(HOUR + 7200, [table(read=10)])
    assert taken.seconds == {}
    assert taken.uses == {}


def test_missing_tables_are_one_per_instance() -> None:
    metering = Metering(HOUR)
    metering.count_missing("inst", 1, 0, HOUR)
    metering.count_missing("inst", 0, 1, HOUR)
    metering.count_missing("other", 1, 0, HOUR)
    taken = metering.take(HOUR + 1, [])
    assert get_use(taken, name=NO_TABLE) == Use(1, 1, 1, 1)
    assert len(taken.uses) == 2


def test_a_partition_key_is_refused_for_the_rest_of_its_second() -> None:
    limit, of = PartitionUnits(10), table()
    limit.require(of, b"a", HOUR)
    limit.add(of, b"a", 12)
    with pytest.raises(Unavailable) as refused:
        limit.require(of, b"a", HOUR + 0.9)
    assert refused.value.code == "OTSCapacityUnitExhausted"
    limit.require(of, b"b", HOUR + 0.9)
    limit.require(table(number=2), b"a", HOUR + 0.9)
    limit.require(of, b"a", HOUR + 1)
