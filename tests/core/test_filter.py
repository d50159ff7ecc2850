"""Filters and column conditions: what they let pass, and what they refuse to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as wire
from rowtide.core.rows.filter import compile_condition, compile_filter
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits

LIMITS = Limits()
KEY = plainbuffer.key_piece([(b"pk", variant.encode(5)), (b"at", variant.encode("here"))])[0]
COMPARATORS = {"=": 1, "!=": 2, ">": 3, ">=": 4, "<": 5, "<=": 6, "exist": 7, "not_exist": 8}


def leaf(
    column: str,
    comparator: str,
    value: variant.Scalar = 0,
    *,
    missing: bool = False,
    newest: bool = True,
    regex: str | None = None,
    cast: int | None = wire.VT_STRING,
) -> wire.Filter:
    """Return a comparison; ``missing`` is what it says of a row without the column."""
    inner = wire.SingleColumnValueFilter(
        comparator=COMPARATORS[comparator],  # type: ignore[arg-type]
        column_name=column,
        column_value=variant.encode(value),
        filter_if_missing=not missing,
        latest_version_only=newest,
    )
    if regex is not None:
        inner.value_trans_rule.regex = regex
        if cast is not None:
            inner.value_trans_rule.cast_type = cast  # type: ignore[assignment]
    return wire.Filter(type=wire.FT_SINGLE_COLUMN_VALUE, filter=inner.SerializeToString())


def combine_filters(operator: int, *parts: wire.Filter) -> wire.Filter:
    """Return a composite filter."""
    inner = wire.CompositeColumnValueFilter(combinator=operator, sub_filters=parts)  # type: ignore[arg-type]
    return wire.Filter(type=wire.FT_COMPOSITE_COLUMN_VALUE, filter=inner.SerializeToString())


def both(*parts: wire.Filter) -> wire.Filter:
    """AND."""
    return combine_filters(wire.LO_AND, *parts)


def either(*parts: wire.Filter) -> wire.Filter:
    """OR."""
    return combine_filters(wire.LO_OR, *parts)


def negate_filter(*parts: wire.Filter) -> wire.Filter:
    """NOT."""
    return combine_filters(wire.LO_NOT, *parts)


def page(offset: int, limit: int) -> wire.Filter:
    """Return a column pagination."""
    inner = wire.ColumnPaginationFilter(offset=offset, limit=limit)
    return wire.Filter(type=wire.FT_COLUMN_PAGINATION, filter=inner.SerializeToString())


def row(*columns: tuple[str, int, variant.Scalar]) -> list[Cell]:
    """Return cells in stored order: (name, version, value)."""
    cells = [plainbuffer.put_cell(n.encode(), variant.encode(v), at) for n, at, v in columns]
    return sorted(cells, key=lambda cell: (cell.name, -(cell.version_ms or 0)))


def passes(message: wire.Filter, cells: list[Cell]) -> bool:
    """True if a row with ``KEY`` passes; a filter and a condition must agree."""
    filter_bytes = message.SerializeToString()
    chosen = compile_filter(filter_bytes, LIMITS).choose(KEY, cells)
    holds = compile_condition(filter_bytes, LIMITS).holds(KEY, cells)
    assert holds == (chosen is not None)
    assert chosen is None or chosen == cells
    return holds


def refusal(message: wire.Filter | bytes) -> str:
    """Return the text with which both a filter and a condition are refused."""
    given_bytes = message if isinstance(message, bytes) else message.SerializeToString()
    texts = set()
    for compiled in (compile_filter, compile_condition):
        with pytest.raises(Rejected) as refused:
            compiled(given_bytes, LIMITS)
        assert refused.value.code == "OTSParameterInvalid"
        texts.add(refused.value.message)
    assert len(texts) == 1
    return texts.pop()


# cell, value, the comparators that hold between them
TYPES = [
    (10, 10, "= >= <="),
    (-1, 10, "!= < <="),
    (2**62, 10, "!= > >="),
    (1.5, 2.5, "!= < <="),
    (0.0, -0.0, "= >= <="),
    ("ABC", "ABB", "!= > >="),
    ("ab", "abc", "!= < <="),
    ("\U0001f600", "\uffff", "!= > >="),  # By UTF-8 bytes, not by UTF-16.
    ("", "", "= >= <="),
    (b"\x80", b"\x7f\xff", "!= > >="),
    (False, True, "!= < <="),
    (True, True, "= >= <="),
    # Two types are not equal, and none is before the other.
    (10, 10.0, "!="),
    (1, True, "!="),
    ("a", b"a", "!="),
    ("10", 10, "!="),
]


@pytest.mark.parametrize(("cell", "value", "holding"), TYPES)
def test_values_of_one_type_compare_by_their_order(
    cell: variant.Scalar, value: variant.Scalar, holding: str
) -> None:
    held = [
        c for c in COMPARATORS if "e" not in c and passes(leaf("c", c, value), row(("c", 1, cell)))
    ]
    assert sorted(held) == sorted(holding.split())


T = leaf("c", "=", 1)
F = leaf("c", "=", 2)
ABSENT = leaf("zz", "=", 1)
ABSENT_PASSES = leaf("zz", "=", 1, missing=True)
VERSIONS = row(("c", 9, 1), ("c", 8, 2), ("c", 7, 3))
TEXT = row(("c", 9, "t1:15,t2:x,"), ("c", 8, "t1:abc,"))
NEXT_COLUMN = row(("b", 1, 0), ("c", 1, 1))
SCENARIOS = [
    ("AND needs all", both(T, T, F), VERSIONS, False),
    ("AND of what holds", both(T, T), VERSIONS, True),
    ("OR needs one", either(F, F, T), VERSIONS, True),
    ("OR of nothing that holds", either(F, F), VERSIONS, False),
    ("NOT turns", negate_filter(F), VERSIONS, True),
    ("NOT of what holds", negate_filter(T), VERSIONS, False),
    ("they nest", both(negate_filter(F), either(F, both(T, T))), VERSIONS, True),
    ("a missing column fails", ABSENT, VERSIONS, False),
    ("or passes where it may", ABSENT_PASSES, VERSIONS, True),
    ("NOT of a missing column passes", negate_filter(ABSENT), VERSIONS, True),
    ("a row without cells", ABSENT_PASSES, [], True),
    ("the newest version decides", leaf("c", "=", 2), VERSIONS, False),
    ("any version may decide", leaf("c", "=", 2, newest=False), VERSIONS, True),
    ("none of the versions", leaf("c", ">", 3, newest=False), VERSIONS, False),
    ("any version differs", leaf("c", "!=", 1, newest=False), VERSIONS, True),
    ("pass-if-missing says nothing of a column", leaf("c", "=", 5, missing=True), VERSIONS, False),
    ("versions end with their column", leaf("b", "=", 1, newest=False), NEXT_COLUMN, False),
    ("a key column", leaf("pk", "<", 6), VERSIONS, True),
    ("a key column that fails", leaf("pk", "<", 5), VERSIONS, False),
    ("a second key column", leaf("at", "=", "here"), [], True),
    ("a key column exists", leaf("pk", "exist"), [], True),
    ("a name within a key's value is no column", leaf("here", "exist"), [], False),
    ("EXIST", leaf("c", "exist"), VERSIONS, True),
    ("EXIST of nothing", leaf("zz", "exist", missing=True), VERSIONS, False),
    ("NOT_EXIST", leaf("zz", "not_exist"), VERSIONS, True),
    ("NOT_EXIST of a column", leaf("c", "not_exist", missing=True), VERSIONS, False),
    ("EXIST with a rule needs a match", leaf("c", "exist", regex="t1:x"), TEXT, False),
    ("NOT_EXIST with a rule", leaf("c", "not_exist", regex="t1:x"), TEXT, True),
    ("EXIST where the rule matches", leaf("c", "exist", regex="t2"), TEXT, True),
    ("the first group is the value", leaf("c", "=", "15", regex="t1:([0-9]+),"), TEXT, True),
    ("without a group the whole match", leaf("c", "=", "t1:15", regex="t1:[0-9]+"), TEXT, True),
    ("cast to INTEGER", leaf("c", ">", 9, regex="t1:([0-9]+),", cast=wire.VT_INTEGER), TEXT, True),
    ("cast to DOUBLE", leaf("c", "<", 15.5, regex="t1:([0-9]+),", cast=wire.VT_DOUBLE), TEXT, True),
    ("no cast is STRING", leaf("c", "=", "15", regex="t1:([0-9]+)", cast=None), TEXT, True),
    ("a cast to another type differs", leaf("c", "!=", 15, regex="t1:([0-9]+),"), TEXT, True),
    ("no match is missing", leaf("c", "!=", "x", regex="t9:(.)"), TEXT, False),
    ("no match passes where it may", leaf("c", "=", "x", regex="t9:(.)", missing=True), TEXT, True),
    ("no number is missing", leaf("c", "!=", 1, regex="2:(.)", cast=wire.VT_INTEGER), TEXT, False),
    ("a group that took no part is missing", leaf("c", "!=", "", regex="t(9)?1"), TEXT, False),
    ("any version may match", leaf("c", "=", "abc", regex="t1:([a-z]+)", newest=False), TEXT, True),
    ("a rule sees only STRING", leaf("c", "!=", "x", regex="."), VERSIONS, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "cells", "expected"), [s[1:] for s in SCENARIOS], ids=[s[0] for s in SCENARIOS]
)
def test_a_row_passes(message: wire.Filter, cells: list[Cell], expected: bool) -> None:
    assert passes(message, cells) is expected


# text, cast, the value it becomes; None where it is none
CASTS = [
    ("-7", wire.VT_INTEGER, -7),
    ("+7", wire.VT_INTEGER, 7),
    ("9223372036854775807", wire.VT_INTEGER, 2**63 - 1),
    ("9223372036854775808", wire.VT_INTEGER, None),
    ("1_0", wire.VT_INTEGER, None),
    (" 1", wire.VT_INTEGER, None),
    ("1.0", wire.VT_INTEGER, None),
    ("1e3", wire.VT_DOUBLE, 1000.0),
    ("-.5", wire.VT_DOUBLE, -0.5),
    ("1.", wire.VT_DOUBLE, 1.0),
    ("nan", wire.VT_DOUBLE, None),
    ("inf", wire.VT_DOUBLE, None),
]


@pytest.mark.parametrize(("text", "cast", "value"), CASTS)
def test_a_cast_takes_whole_numbers_only(
    text: str, cast: int, value: variant.Scalar | None
) -> None:
    cells = row(("c", 1, text))
    assert passes(leaf("c", "exist", regex=".*", cast=cast), cells) is (value is not None)
    if value is not None:
        assert passes(leaf("c", "=", value, regex=".*", cast=cast), cells)


ABSENT_ROW = [
    ("a comparison", T, False),
    ("one that passes if missing", leaf("c", "=", 1, missing=True), True),
    ("every comparison must", either(ABSENT_PASSES, ABSENT), False),
    ("not only the one that decides", negate_filter(ABSENT), False),
    ("NOT of one that passes", negate_filter(ABSENT_PASSES), False),
    ("NOT_EXIST", leaf("c", "not_exist"), True),
    ("EXIST", leaf("c", "exist"), False),
    ("the key of an absent row is missing too", leaf("pk", "=", 5), False),
]


@pytest.mark.parametrize(
    ("message", "expected"), [s[1:] for s in ABSENT_ROW], ids=[s[0] for s in ABSENT_ROW]
)
def test_an_absent_row_meets_a_condition(message: wire.Filter, expected: bool) -> None:
    condition = compile_condition(message.SerializeToString(), LIMITS)
    assert condition.holds(KEY, None) is expected


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, 1, "a1"),
        (1, 1, "b3 b2"),
        (1, 9, "b3 b2 c1"),
        (2, 1, "c1"),
        (3, 5, ""),
        (0, 2**31 - 1, "a1 b3 b2 c1"),
    ],
)
def test_a_page_skips_columns_and_keeps_their_versions(
    offset: int, limit: int, expected: str
) -> None:
    cells = row(("a", 1, 0), ("b", 3, 0), ("b", 2, 0), ("c", 1, 0))
    chosen = compile_filter(page(offset, limit).SerializeToString(), LIMITS).choose(KEY, cells)
    assert chosen is not None
    assert " ".join(f"{cell.name.decode()}{cell.version_ms}" for cell in chosen) == expected


GOLDEN = [
    ("080112150804120263311a09000a0000000000000020012801", leaf("c1", ">=", 10)),
    (
        "0802123408021219080112150804120263311a09000a000000000000002001280112150801121108"
        "011201731a0603010000007620002801",
        both(leaf("c1", ">=", 10), leaf("s", "=", "v", missing=True)),
    ),
    ("0803120408021005", page(2, 5)),
]


@pytest.mark.parametrize(("golden", "message"), GOLDEN)
def test_the_sdks_send_these_bytes(golden: str, message: wire.Filter) -> None:
    assert message.SerializeToString().hex() == golden
    compile_filter(bytes.fromhex(golden), LIMITS)


def chain(depth: int, operator: int = wire.LO_NOT) -> wire.Filter:
    """Return ``depth`` nodes, each within the other."""
    message = T
    for _ in range(depth - 1):
        message = combine_filters(operator, message)
    return message


TOO_MANY = "The count of filter exceeds the max: 32."
NOT_TEXT = "Invalid NOT operator: the number of sub-filters must be 1."
AND_TEXT = "Invalid AND/OR operator: the number of sub-filters must be more than 1."
NESTED_PAGE = "Invalid filter: column pagination must be a read's only filter."
NO_COMPOSITE = "Invalid filter: its bytes are no CompositeColumnValueFilter."
NO_TYPE = "Invalid filter: its type is missing or unknown."
NO_COMPARATOR = "Invalid filter: its comparator is missing or unknown."
NO_OPERATOR = "Invalid filter: its logical operator is missing or unknown."
LONG = (
    "The length of attribute column: 'c' exceeds the MaxLength:2097152 with CurrentLength:2097153."
)
CAST = "Invalid cast_type: VT_BLOB, must be VT_INTEGER, VT_DOUBLE or VT_STRING."
REGEX = "Invalid regex '(a': missing ), unterminated subpattern at position 0."
VALUE = "1a09000a00000000000000"


def damage(old: str, new: str) -> bytes:
    """Return the bytes of ``c1 >= 10`` with a piece replaced."""
    inner = bytes.fromhex("0804120263311a09000a0000000000000020012801".replace(old, new, 1))
    return wire.Filter(type=wire.FT_SINGLE_COLUMN_VALUE, filter=inner).SerializeToString()


BAD = wire.Filter(type=wire.FT_COMPOSITE_COLUMN_VALUE, filter=b"\xff")
REFUSED = [
    ("33 in a chain", chain(33), TOO_MANY),
    ("1000 in a chain", chain(1000), TOO_MANY),
    ("1000 in a chain of ANDs, which each lack one", chain(1000, wire.LO_AND), TOO_MANY),
    ("33 side by side", both(*[T] * 32), TOO_MANY),
    ("100,000 side by side", both(*[T] * 100_000), TOO_MANY),
    ("33 of which one is damaged", both(BAD, *[T] * 31), TOO_MANY),
    ("NOT of none", negate_filter(), NOT_TEXT),
    ("NOT of two", negate_filter(T, T), NOT_TEXT),
    ("AND of one", both(T), AND_TEXT),
    ("OR of none", either(), AND_TEXT),
    ("a page in a composite", both(T, page(0, 1)), NESTED_PAGE),
    ("a damaged composite", both(T, BAD), NO_COMPOSITE),
    ("damaged bytes", b"\xff", "Invalid filter: its bytes are no Filter."),
    ("nothing", b"", NO_TYPE),
    ("an unknown type", b"\x08\x09\x12\x00", NO_TYPE),
    ("no comparison", b"\x08\x01\x12\x00", NO_COMPARATOR),
    ("an unknown comparator", damage("0804", "0809"), NO_COMPARATOR),
    ("an unknown operator", bytes.fromhex("080212020804"), NO_OPERATOR),
    ("a column name", leaf("#abc", "=", 1), "Invalid column name: '#abc'."),
    ("an empty column name", leaf("", "=", 1), "Invalid column name: ''."),
    ("a long column name", leaf("a" * 256, "=", 1), f"Invalid column name: '{'a' * 256}'."),
    (
        "a column name that is not UTF-8",
        damage("6331", "ff31"),
        "Invalid column name: '\ufffd1'.",
    ),
    ("a long value", leaf("c", "=", b"x" * 2097153), LONG),
    (
        "a value that is none",
        damage(VALUE, "1a0109"),
        "Invalid filter: a value of type VT_INF_MIN.",
    ),
    (
        "a damaged value",
        damage(VALUE, "1a0100"),
        "VT_INTEGER value of 1 bytes: must have 9.",
    ),
    ("a cast", leaf("c", "=", 1, regex="a", cast=wire.VT_BLOB), CAST),
    ("a regex", leaf("c", "=", 1, regex="(a"), REGEX),
]


@pytest.mark.parametrize(("message", "text"), [s[1:] for s in REFUSED], ids=[s[0] for s in REFUSED])
def test_what_is_no_filter_is_refused(message: wire.Filter | bytes, text: str) -> None:
    assert refusal(message) == text


def test_32_nodes_are_taken_in_any_shape() -> None:
    assert passes(chain(32), VERSIONS) is False
    assert passes(both(*[T] * 31), VERSIONS) is True


def test_the_number_of_nodes_is_a_setting() -> None:
    compile_filter(chain(33).SerializeToString(), Limits(filter_nodes_max=33))


def test_a_condition_is_no_page() -> None:
    with pytest.raises(Rejected, match="column pagination must be a read's only filter"):
        compile_condition(page(0, 1).SerializeToString(), LIMITS)


@pytest.mark.parametrize(
    ("page_bytes", "text"),
    [
        (page(-1, 1), "The offset of column pagination must not be less than 0."),
        (page(0, 0), "The limit of column pagination must be greater than 0."),
        (page(0, -1), "The limit of column pagination must be greater than 0."),
        (
            wire.Filter(type=wire.FT_COLUMN_PAGINATION, filter=b""),
            "Invalid filter: column pagination needs an offset and a limit.",
        ),
    ],
)
def test_a_page_has_an_offset_and_a_limit(page_bytes: wire.Filter, text: str) -> None:
    with pytest.raises(Rejected) as refused:
        compile_filter(page_bytes.SerializeToString(), LIMITS)
    assert refused.value.message == text


SEEDS = [bytes.fromhex(golden) for golden, _ in GOLDEN] + [
    negate_filter(leaf("c", "exist", regex="(a+)b", cast=wire.VT_INTEGER)).SerializeToString()
]


@given(st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2)) or b"\0"
    for compiled in (compile_filter, compile_condition):
        try:
            test = compiled(bytes(damaged), LIMITS)
        except Rejected:
            continue
        if compiled is compile_filter:
            test.choose(KEY, TEXT)  # type: ignore[union-attr]
        else:
            test.holds(KEY, TEXT)  # type: ignore[union-attr]


# A filter as Python reads it: leaves over two columns and a key column, against ``passes``.
numbers = st.integers(-1, 1)
columns = st.sampled_from(["a", "b", "pk"])
leaves = st.builds(
    lambda column, comparator, value, missing: (column, comparator, value, missing),
    columns,
    st.sampled_from(["=", "!=", "<", ">="]),
    numbers,
    st.booleans(),
)
Tree = tuple[object, ...]
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=6,
)


def as_message(tree: Tree) -> wire.Filter:
    """Return a tree as the message a client would send."""
    if tree[0] == "not":
        return negate_filter(as_message(tree[1]))  # type: ignore[arg-type]
    if tree[0] in ("and", "or"):
        parts = [as_message(part) for part in tree[1:]]  # type: ignore[arg-type]
        return both(*parts) if tree[0] == "and" else either(*parts)
    column, comparator, value, missing = tree
    return leaf(column, comparator, value, missing=missing)  # type: ignore[arg-type]


def by_definition(tree: Tree, values: dict[str, int]) -> bool:
    """Evaluate a tree on a row of newest values."""
    if tree[0] == "not":
        return not by_definition(tree[1], values)  # type: ignore[arg-type]
    if tree[0] in ("and", "or"):
        parts = [by_definition(part, values) for part in tree[1:]]  # type: ignore[arg-type]
        return all(parts) if tree[0] == "and" else any(parts)
    column, comparator, value, missing = tree
    cell = values.get(column)  # type: ignore[call-overload]
    if cell is None:
        return bool(missing)
    order = (cell > value) - (cell < value)
    return order in {"=": (0,), "!=": (-1, 1), "<": (-1,), ">=": (0, 1)}[comparator]  # type: ignore[index]


@given(trees, st.dictionaries(st.sampled_from(["a", "b"]), numbers))
def test_a_filter_says_what_its_tree_says(tree: Tree, values: dict[str, int]) -> None:
    cells = row(*[(name, 1, value) for name, value in values.items()])
    assert passes(as_message(tree), cells) is by_definition(tree, {**values, "pk": 5})
