"""Which versions a reader sees and a writer may give: the worked examples, and the edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.schema import TableOptions
from rowtide.core.values.version import Window, check_version, expiry_floor_ms, visible_cells
from tests.core.chunk_dictionary import cells, put, shown

ALL = Window(max_versions=INT64_MAX)
DAY = 86400

# Times and versions in seconds. ``reads`` is start..end and how many versions, or all.
SCENARIOS = """
case                                    max    ttl   now  reads      cells                sees
the newest of each column                 1      -     9  all        a:3 a:2 b:1          a:3 b:1
max versions keeps the newest             2      -     9  all        a:4 a:3 a:2          a:4 a:3
a reader may want fewer                   3      -     9  0.. 1      a:4 a:3 a:2          a:4
a reader may not see more                 1      -     9  0.. 3      a:4 a:3 a:2          a:4
never expires without a time to live      1      -  9999  all        a:1                  a:1
a cell lives for its time to live         1      5    10  all        a:5                  a:5
and not a second longer                   1      5    11  all        a:5                  -
a version ahead of the clock is visible   1      5    10  all        a:99                 a:99
an expired version takes no place         2      5    10  all        a:9 a:4              a:9
surplus hides before the window chooses   2      -     9  0..4 9     a:5 a:4 a:3          -
a window starts with its start            9      -     9  3.. 9      a:4 a:3 a:2          a:4 a:3
and ends before its end                   9      -     9  ..4 9      a:4 a:3 a:2          a:3 a:2
the newest within the window              9      -     9  ..4 1      a:4 a:3 a:2          a:3
one exact version                         9      -     9  3..4 9     a:4 a:3 a:2 b:3      a:3 b:3
an expired version is in no window        9      5    10  0..9 9     a:8 a:4              a:8
no cells                                  1      5    10  all        -                    -
"""


def scenarios() -> list[object]:
    """Return the lines of the table; its columns stand two blanks apart."""
    lines = [line.replace("  ", "\t") for line in SCENARIOS.strip().splitlines()[1:]]
    split = [[part.strip() for part in line.split("\t") if part.strip()] for line in lines]
    return [pytest.param(*columns, id=case) for case, *columns in split]


def window(text: str) -> Window:
    """Return the window of a text such as ``3..4 9``, in seconds."""
    if text == "all":
        return ALL
    span, count = text.split()
    start, end = span.split("..")
    return Window(int(start or 0) * 1000, int(end) * 1000 if end else INT64_MAX, int(count))


def seconds(text: str) -> list[Cell]:
    """Return put cells whose versions are given in seconds."""
    return [] if text == "-" else [
        plainbuffer.stamp_cell(cell._replace(version_ms=None), (cell.version_ms or 0) * 1000)
        for cell in cells(text)
    ]  # fmt: skip


@pytest.mark.parametrize(("most", "ttl", "now", "reads", "given", "sees"), scenarios())
def test_a_reader_sees(most: str, ttl: str, now: str, reads: str, given: str, sees: str) -> None:
    options = TableOptions(-1 if ttl == "-" else int(ttl), int(most))
    seen = visible_cells(seconds(given), options, window(reads), int(now) * 1000)
    assert shown(seen) == shown(seconds(sees))


def versions(seen: list[Cell]) -> list[int]:
    """Return the versions of cells."""
    return [cell.version_ms or 0 for cell in seen]


def test_time_to_live_lowered_and_raised_again() -> None:
    # The example's clock, 2016-09-10 15:43:19, is eight hours ahead of UTC.
    now_ms = 1473493399000
    a, b, c, d = 1473332944000, 1473339339000, 1473408233000, 1473452389000
    stored = [put("x", version) for version in (d, c, b, a)]
    two_days, one_day = TableOptions(2 * DAY, 10), TableOptions(DAY, 10)
    assert versions(visible_cells(stored, two_days, ALL, now_ms)) == [d, c, b, a]
    assert versions(visible_cells(stored, one_day, ALL, now_ms)) == [d, c]
    reclaimed = stored[:-1]
    assert versions(visible_cells(reclaimed, two_days, ALL, now_ms)) == [d, c, b]


def test_a_parcels_status_is_read_whole() -> None:
    stored = [1473446531000, 1473445407000, 1473444420000, 1473441087000]
    cells_of_status = [put("Status", version) for version in stored]
    window = Window(0, 1473450000000, INT64_MAX)
    seen = visible_cells(cells_of_status, TableOptions(-1, 100), window, 1473450000000)
    assert versions(seen) == stored


def test_of_1000_versions_max_versions_shows_100_and_a_time_to_live_none() -> None:
    stored = [put("x", version) for version in range(1000, 0, -1)]
    now_ms = 1473450000000
    seen = visible_cells(stored, TableOptions(-1, 100), ALL, now_ms)
    assert versions(seen) == list(range(1000, 900, -1))
    assert visible_cells(stored, TableOptions(DAY, 100), ALL, now_ms) == []


def test_max_versions_lowered_and_raised_again() -> None:
    stored = [put("x", version) for version in (3, 2, 1)]
    assert versions(visible_cells(stored, TableOptions(-1, 1), ALL, 0)) == [3]
    assert versions(visible_cells(stored, TableOptions(-1, 3), ALL, 0)) == [3, 2, 1]


WRITES = """
case                                           deviation   ttl  now            version        taken
a version a whole deviation behind                 86400    -1  1469030400000  1468944000000  yes
a second further behind                            86400    -1  1469030400000  1468943999000  no
a second within the deviation ahead                86400    -1  1469030400000  1469116799000  yes
a whole deviation ahead                            86400    -1  1469030400000  1469116800000  no
parts of a second do not count                     86400    -1  1469030400999  1468944000000  yes
nor those of the version                           86400    -1  1469030400000  1469116799999  yes
a deviation as old as the epoch                 1788856773  -1  1788856773999  1              yes
until it is older                               1788856773  -1  1788856774000  1              no
an expired version                              99999999 86400  1469030401000  1468944000000  no
one that expires now                            99999999 86400  1469030400000  1468944000000  yes
the deviation may be the narrower                   100  86400  1469030400000  1469030299999  no
zero                                            1788856773  -1  1469030400000  0              yes
a negative version                              1788856773  -1  1469030400000  -1             no
the last version there is               9999999999999999    -1  0         9223372036854774    yes
one more                                9999999999999999    -1  0         9223372036854775    no
"""


@pytest.mark.parametrize(
    ("deviation", "ttl", "now_ms", "version", "taken"),
    [
        pytest.param(*map(int, line.split()[-5:-1]), line.endswith("yes"), id=line[:40].strip())
        for line in WRITES.strip().splitlines()[1:]
    ],
)
def test_a_writer_may_give(
    deviation: int, ttl: int, now_ms: int, version: int, taken: bool
) -> None:
    options = TableOptions(ttl, 1, deviation)
    if taken:
        check_version(version, options, now_ms)
        return
    with pytest.raises(Rejected) as refused:
        check_version(version, options, now_ms)
    assert refused.value.code == "OTSParameterInvalid"


@pytest.mark.parametrize(
    ("version", "ttl", "text"),
    [
        (-1, -1, "Timestamp must be in range [0, INT64_MAX/1000)."),
        (5, -1, "Timestamp 5 is out of range [100000, 300000) by the table's max version offset."),
        (105000, 50, "Timestamp 105000 is out of range [150000, 300000) by the table's time"
                     " to live."),
    ],
)  # fmt: skip
def test_a_refusal_names_the_bounds(version: int, ttl: int, text: str) -> None:
    with pytest.raises(Rejected) as refused:
        check_version(version, TableOptions(ttl, 1, 100), 200_999)
    assert refused.value.message == text


some_cells = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=30, unique=True
).map(lambda places: [put(n, v * 500) for n, v in sorted(places, key=lambda p: (p[0], -p[1]))])


@given(
    some_cells,
    st.builds(TableOptions, st.sampled_from([-1, 0, 3, 9]), st.integers(1, 4)),
    st.builds(Window, st.integers(0, 9000), st.integers(0, 16000), st.integers(1, 4)),
    st.integers(0, 20000),
)
def test_what_is_visible_is_visible_by_definition(
    stored: list[Cell], options: TableOptions, reads: Window, now_ms: int
) -> None:
    expected: list[Cell] = []
    for name in sorted({cell.name for cell in stored}):
        newest = [cell for cell in stored if cell.name == name][: options.max_versions]
        alive = [
            cell
            for cell in newest
            if options.time_to_live_s < 0
            or now_ms // 1000 - (cell.version_ms or 0) // 1000 <= options.time_to_live_s
        ]
        wanted = [c for c in alive if reads.start_ms <= (c.version_ms or 0) < reads.end_ms]
        expected += wanted[: reads.max_versions]
    assert visible_cells(stored, options, reads, now_ms) == expected
    floor = expiry_floor_ms(options, now_ms)
    assert all((cell.version_ms or 0) >= floor for cell in expected)


def test_a_value_plays_no_part() -> None:
    stored = [put("a", 1, "x"), plainbuffer.put_cell(b"b", variant.encode(1), 1)]
    assert visible_cells(stored, TableOptions(), ALL, 0) == stored
