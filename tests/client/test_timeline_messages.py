"""What is checked before a message is sent, and how lists and version 1 are stored."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rowtide.client import (
    FirstVersionMessage,
    Rejected,
    RowDict,
    Timeline,
    TimelineMetaSchema,
    TimelineSchema,
)
from rowtide.client.timeline.message import decode_fields, encode_fields, encode_texts
from rowtide.core.values.limits import Limits

LIMITS = Limits()
MIB = 1024 * 1024

BAD_FIELDS: list[tuple[Any, str, str]] = [
    ({"": 1}, "OTSParameterInvalid", "column name: ''"),
    ({"#a": 1}, "OTSParameterInvalid", "'#a'"),
    ({"n" * 256: 1}, "OTSParameterInvalid", "column name: 'nnn"),
    ({"\ud800": 1}, "OTSParameterInvalid", "not UTF-8"),
    ({7: 1}, "OTSParameterInvalid", "not int: 7"),
    ({"sequence_id": 1}, "OTSParameterInvalid", "'sequence_id' has the name of a key"),
    ({"timeline_id": "a"}, "OTSParameterInvalid", "'timeline_id' has the name of a key"),
    ({"n": None}, "OTSParameterInvalid", "'n' takes"),
    ({"n": {"a": 1}}, "OTSParameterInvalid", "'n' takes"),
    ({"n": 2**63}, "OTSParameterInvalid", "'n': 9223372036854775808 does not fit"),
    ({"n": ["a", 1]}, "OTSParameterInvalid", "'n' is a list"),
    ({"n": "\udc00"}, "OTSParameterInvalid", "'n' is not UTF-8"),
    ({"n": ["\udc00"]}, "OTSParameterInvalid", "'n' is not UTF-8"),
    ({"n": "x" * (2 * MIB + 1)}, "OTSParameterInvalid", "'n' exceeds the MaxLength:2097152"),
    ({"n": bytes(2 * MIB + 1)}, "OTSParameterInvalid", "'n' exceeds the MaxLength:2097152"),
    ({f"n{i}": i for i in range(1025)}, "OTSOutOfColumnCountLimit", "1025 fields"),
]


@pytest.mark.parametrize(("fields", "code", "words"), BAD_FIELDS)
def test_a_bad_field_is_named(fields: Any, code: str, words: str) -> None:
    with pytest.raises(Rejected, match=re.escape(words)) as failure:
        encode_fields(fields, key=("timeline_id", "sequence_id"), limits=LIMITS)
    assert failure.value.code == code


BAD_IDENTIFIERS: list[tuple[tuple[Any, ...], str]] = [
    (("", 1, b"x"), "'a' is empty"),
    (("x", "1", b"x"), "'b' takes an integer, not str"),
    (("x", True, b"x"), "'b' takes an integer, not bool"),
    (("x", 2**63, b"x"), "'b': 9223372036854775808 does not fit"),
    (("x", 1, "x"), "'c' takes bytes, not str"),
    (("x" * 1025, 1, b"x"), "'a' has 1025 bytes; the limit is 1024"),
    (("\ud800", 1, b"x"), "'a' is not UTF-8"),
    (("x", 1), "3 columns (a, b, c), but 2"),
]


@pytest.mark.parametrize(("values", "words"), BAD_IDENTIFIERS)
def test_a_bad_identifier_is_named(values: tuple[Any, ...], words: str) -> None:
    schema = TimelineSchema("t", {"a": str, "b": int, "c": bytes})
    with pytest.raises(Rejected, match=re.escape(words)):
        schema.key.row(values, LIMITS)


BAD_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"table": "7"}, "table name"),
    ({"identifier": ()}, "1 to 3 columns, not 0"),
    ({"identifier": ("a", "b", "c", "d")}, "1 to 3 columns, not 4"),
    ({"identifier": "timeline_id"}, "('timeline_id',)"),
    ({"identifier": {"a": float}}, "'a' can be int, str or bytes"),
    ({"identifier": ("a", "a")}, "twice"),
    ({"identifier": ("#",)}, "column name"),
    ({"sequence": "timeline_id"}, "'timeline_id' is an identifier"),
    ({"sequence": ""}, "column name"),
    ({"ttl_s": 86_399}, "ttl_s is 86399"),
    ({"ttl_s": 0}, "ttl_s is 0"),
]


@pytest.mark.parametrize(("given", "words"), BAD_SCHEMAS)
def test_a_bad_schema_is_rejected(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected, match=re.escape(words)):
        TimelineSchema(**{"table": "t", **given})


def test_a_meta_table_has_the_same_identifiers() -> None:
    assert TimelineMetaSchema("m", {"a": int}).key == TimelineSchema("t", {"a": int}).key
    with pytest.raises(Rejected, match="table name"):
        TimelineMetaSchema("no table")


def test_a_list_is_written_as_gson_writes_it() -> None:
    texts = ["a", "", '"\\', "\t\b\n\r\f\x01", "<b>&='", "\u2028\u2029", "你😀", "/"]
    assert encode_texts(texts) == (
        r'["a","","\"\\","\t\b\n\r\f\u0001","\u003cb\u003e\u0026\u003d\u0027","\u2028\u2029",'
        '"你😀","/"]'
    )
    assert encode_texts([]) == "[]"


@pytest.mark.parametrize("text", ["", "no JSON", '["a",1]', "{}", "1", '["a"', "[" * 100_000])
def test_text_that_is_no_list_is_not_lost(text: str) -> None:
    assert decode_fields({"k": 1, "tags": text}, key=("k",), lists=("tags",)) == {"tags": text}


def test_only_fields_of_the_schema_are_read_as_lists() -> None:
    row: RowDict = {"k": 1, "tags": '["a"]', "text": '["a"]', "n": 5}
    assert decode_fields(row, key=("k",), lists=("tags", "n")) == {
        "tags": ["a"],
        "text": '["a"]',
        "n": 5,
    }


@pytest.mark.parametrize(
    ("size", "pieces"),
    [(0, []), (1, [1]), (MIB, [MIB]), (MIB + 1, [MIB, 1]), (2 * MIB, [MIB, MIB])],
)
def test_content_of_version_1_is_cut_into_pieces(size: int, pieces: list[int]) -> None:
    message = FirstVersionMessage("m", "x" * size, {"sender": "ada"})
    fields = message.fields()
    found = [
        len(value)
        for name, value in sorted(fields.items())
        if name.startswith("__content") and isinstance(value, bytes)
    ]
    assert (found, fields["__column_count"]) == (pieces, len(pieces))
    assert FirstVersionMessage.read(fields) == message


def test_content_of_version_1_has_the_checksum_of_java() -> None:
    # java.util.zip.CRC32 of "123456789" in ASCII: the check value of CRC-32.
    assert FirstVersionMessage("m", "123456789").fields() == {
        "__message_id": "m",
        "__content10000": b"123456789",
        "__column_count": 1,
        "__crc32": 0xCBF43926,
    }


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"__column_count": None}, "no message of version 1"),
        ({"__crc32": "1"}, "no message of version 1"),
        ({"__column_count": 3}, "Piece '__content10002' of 3"),
        ({"__column_count": -1}, "'__column_count' is -1"),
        ({"__column_count": 2**40}, "'__column_count' is 1099511627776"),
        ({"__content10001": "text"}, "Piece '__content10001'"),
        ({"__content10001": b"y"}, "damaged"),
    ],
)
def test_damaged_content_of_version_1_is_reported(changed: dict[str, Any], words: str) -> None:
    fields = FirstVersionMessage("m", "x" * (MIB + 1)).fields()
    with pytest.raises(Rejected, match=re.escape(words)):
        FirstVersionMessage.read({**fields, **changed})


@pytest.mark.parametrize(
    ("content", "attributes", "words"),
    [
        ("x" * (2 * MIB + 1), {}, "2097153 bytes"),
        ("\ud800", {}, "not UTF-8"),
        ("x", {"__a": "b"}, "'__a' has a reserved name"),
        ("x", {"a": 1}, "'a' takes a text"),
    ],
)
def test_a_bad_message_of_version_1_is_rejected(
    content: str, attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Rejected, match=re.escape(words)):
        FirstVersionMessage("m", content, attributes).fields()


@pytest.mark.parametrize("id", ["1", 1.0, True, None])
def test_an_id_is_an_integer(id: Any) -> None:
    timeline = object.__new__(Timeline)
    timeline.schema, timeline.identifier = TimelineSchema("t"), {"timeline_id": "a"}
    with pytest.raises(Rejected, match="'sequence_id' takes an integer"):
        timeline._row_key(id)
