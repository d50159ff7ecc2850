"""Which versions live: the worked examples of the data model, before and after the reclaimer."""

from dataclasses import replace

import pytest

from rowtide.core.protocol.plainbuffer import increment_cell, put_cell
from rowtide.core.rows.chunk import border
from rowtide.core.rows.mutation import DELETE, PUT
from rowtide.core.rows.read import Selection
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState, options_body
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import TableOptions
from rowtide.core.values.variant import encode
from rowtide.core.values.version import Window
from tests.core.chunk_dictionary import cells, put, shown
from tests.core.life_model import ANY_AGE_S, PREFIX, Life, canonical, row_key
from tests.core.shard_model import NOW_US, Store, table

DAY_S = 86_400
AT_15_43_19 = 1_473_493_399_000
"""2016-09-10 15:43:19 by the clocks of China, where the example is from."""


def make_life(text: str, *, max_versions: int = 9, ttl_s: int = -1, now_ms: int = 10_000) -> Life:
    """Return a table with one row."""
    life = Life(max_versions, ttl_s, now_ms)
    life.write("a", cells(text))
    return life


def read_and_rebuild(life: Life) -> str:
    """Return the row, and hold a rebuild to it."""
    assert canonical(life.replay_log()) == canonical(life.store)
    return shown(life.read())


def test_a_time_to_live_lowered_and_raised_before_and_after_the_reclaimer() -> None:
    life = Life(1, 2 * DAY_S, AT_15_43_19)
    life.write("a", cells("a:1473332944000 b:1473339339000 c:1473408233000 d:1473452389000"))
    names = {}
    names["at first"] = columns(life)
    life.options(ttl_s=DAY_S, max_versions=1)
    names["lowered"] = columns(life)
    place = row_key("a")[len(PREFIX) :] + border(b"a")
    life.remove(place, place)
    life.options(ttl_s=2 * DAY_S, max_versions=1)
    names["raised, a reclaimed"] = columns(life)
    assert names == {"at first": "abcd", "lowered": "cd", "raised, a reclaimed": "bcd"}


def columns(life: Life) -> str:
    """Return the names of the columns that are seen; hold a rebuild to the rows."""
    assert canonical(life.replay_log()) == canonical(life.store)
    return "".join(cell.name.decode() for cell in life.read() or [])


def test_the_status_of_a_parcel_is_read_whole_by_its_times() -> None:
    versions = (1473441087000, 1473444420000, 1473445407000, 1473446531000)
    life = Life(9, -1, versions[-1] + 1)
    for version in versions:
        life.write("a", [put("Status", version, str(version))])
    window = Window(0, life.now_ms, 9)
    found = life.read("a", Selection(window))
    assert [cell.version_ms for cell in found or []] == sorted(versions, reverse=True)


@pytest.mark.parametrize("reclaimed", [False, True])
def test_max_versions_of_a_thousand_numbered_versions(reclaimed: bool) -> None:
    life = Life(1000, -1, 1_469_030_400_000)
    life.write("a", [put("x", version) for version in range(1, 1001)])
    life.options(ttl_s=-1, max_versions=100)
    if reclaimed:
        assert life.reclaim() == 1
    assert [cell.version_ms for cell in life.read() or []] == list(range(1000, 900, -1))
    life.options(ttl_s=-1, max_versions=1000)
    assert len(life.read() or []) == (100 if reclaimed else 1000)
    life.options(ttl_s=DAY_S, max_versions=100)
    assert life.read() == []
    if reclaimed:
        life.reclaim()
        assert life.read() is None
        assert canonical(life.store) == canonical(life.replay_log()) == {}


def test_the_bounds_of_a_writers_version() -> None:
    life = Life(1, -1, 1_469_030_400_000)
    life.shard.state.options = life.shard.state.options.__class__(-1, 1, DAY_S)
    taken = {}
    for version in (1468944000000, 1468943999000, 1469116799000, 1469116800000):
        try:
            life.write("a", [put("x", version)])
            taken[version] = True
        except Rejected:
            taken[version] = False
    assert list(taken.values()) == [True, False, True, False]


def test_an_expired_version_is_refused() -> None:
    life = Life(1, DAY_S, 1_469_030_401_000)
    life.write("a", [put("x", 1_468_944_001_000)])
    with pytest.raises(Rejected):
        life.write("a", [put("x", 1_468_944_000_000)])


# Where the clock, the options and the reclaimer meet.

SCENES = [
    # steps, each T (time to live), M (max versions), C (clock, seconds) or R (reclaim); then seen
    ("nothing to remove", "R", "x:9000 x:8000 x:2000 y:1000"),
    ("expired is hidden", "T5", "x:9000 x:8000"),
    ("expired is hidden, not gone", "T5 T-1", "x:9000 x:8000 x:2000 y:1000"),
    ("reclaimed is gone", "T5 R T-1", "x:9000 x:8000"),
    ("surplus is hidden", "M2", "x:9000 x:8000 y:1000"),
    ("surplus is hidden, not gone", "M2 M9", "x:9000 x:8000 x:2000 y:1000"),
    ("surplus reclaimed is gone", "M2 R M9", "x:9000 x:8000 y:1000"),
    ("surplus and expired", "M1 T5 R M9 T-1", "x:9000"),
    ("raised before the reclaimer came", "T5 T-1 R", "x:9000 x:8000 x:2000 y:1000"),
    ("all expired, the row is a key", "T5 C20", "-"),
    ("all reclaimed, the row is gone", "T5 C20 R", "absent"),
    ("a clock that goes back shows again", "T5 C20 C10", "x:9000 x:8000"),
    ("but nothing reclaimed", "T5 C14 R C10", "x:9000"),
    ("again finds nothing", "T5 R R R T-1", "x:9000 x:8000"),
]


@pytest.mark.parametrize(("steps", "expected"), [s[1:] for s in SCENES], ids=[s[0] for s in SCENES])
def test_a_row_after_options_clock_and_reclaimer(steps: str, expected: str) -> None:
    life = make_life("x:9000 x:8000 x:2000 y:1000")
    ttl_s, most = -1, 9
    for step in steps.split():
        number = int(step[1:] or 0)
        if step[0] == "R":
            life.reclaim()
        elif step[0] == "C":
            life.now_ms = number * 1000
        else:
            ttl_s, most = (number, most) if step[0] == "T" else (ttl_s, number)
            life.options(ttl_s=ttl_s, max_versions=most)
    assert read_and_rebuild(life) == expected


def test_a_row_of_its_key_alone_is_kept() -> None:
    life = Life(1, 5)
    life.write("bare", [], PUT)
    life.write("emptied", [put("x", life.now_ms)])
    life.write("emptied", cells("-x"))
    life.now_ms += 60_000
    assert life.reclaim() == 0
    assert (life.read("bare"), life.read("emptied")) == ([], [])


def test_the_reclaimer_leaves_deleted_rows_deleted() -> None:
    life = make_life("x:9000", ttl_s=5)
    life.write("a", [], DELETE)
    life.now_ms = 60_000
    assert life.reclaim() == 0
    assert read_and_rebuild(life) == "absent"


def test_expired_cells_count_nowhere() -> None:
    life = Life(9, 5, 10_000)
    life.write("a", [put_cell(b"n", encode(7), None)])
    life.now_ms = 20_000
    life.write("a", [increment_cell(b"n", encode(1))])
    assert shown(life.read()) == "n:20000=1"


def test_versions_given_by_the_store_never_go_back() -> None:
    life = Life(100, -1, 5_000)
    given = []
    for now_ms in (5_000, 4_000, 4_500, 1, 6_000, 5_999, 5_000):
        life.now_ms = now_ms
        life.write("a", [put_cell(b"x", encode(now_ms), None)])
        given.append(max(cell.version_ms or 0 for cell in life.read() or []))
    assert given == sorted(given)
    assert given[0] == 5_000
    assert given[4] == 6_000


def test_versions_do_not_go_back_over_a_restart_either() -> None:
    life = Life(100, -1, 5_000)
    life.write("a", [put_cell(b"x", encode(1), None)])
    life.store = life.replay_log()
    life.shard = life.reopen()
    life.now_ms = 1_000
    life.write("a", [put_cell(b"y", encode(2), None)])
    newest = {cell.name: cell.version_ms for cell in life.read() or []}
    assert newest[b"y"] is not None
    assert newest[b"y"] >= 5_000


def test_a_column_that_is_incremented_never_goes_back() -> None:
    life = Life(9, -1, 5_000)
    assert ANY_AGE_S > 9_000
    life.write("a", [put_cell(b"n", encode(1), 9_000)])
    life.write("a", [increment_cell(b"n", encode(1))])
    assert shown(life.read()) == "n:9000=2"


def test_an_offset_that_changes_while_options_are_on_their_way_stays_changed() -> None:
    # Two UpdateTables at once: one of what goes through the log, one of what the catalog alone has.
    first = replace(table(), options=TableOptions(max_versions=5))
    both = replace(first, options=replace(first.options, deviation_s=7, allow_update=False))
    shard = Shard("s1", table(), Store(), ShardState(table().options), limits=Limits())
    shard.retable(first)
    on_its_way = shard.control(options_body(first), NOW_US)
    shard.retable(both)
    shard.confirm([on_its_way], 0)
    assert shard.state.options == both.options
