"""Names of columns in Avro: every name has one, and no two have the same."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.sinks.kafka.avro_form import avro_name, column_name

NAMES = st.one_of(
    st.text(min_size=1, max_size=12),
    st.text("_u0a9é😀-", min_size=1, max_size=12),
)


def test_a_name_that_avro_takes_stays_as_it_is() -> None:
    assert avro_name("first_name2") == "first_name2"
    assert avro_name("a-b") == "a_u002db"
    assert avro_name("2x") == "_u0032x"
    assert avro_name("_u002d") == "_u005fu002d"


@given(name=NAMES)
def test_a_name_comes_back(name: str) -> None:
    written = avro_name(name)
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", written)
    assert column_name(written) == name
