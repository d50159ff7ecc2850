"""The value rule's expressions: what they cut out, what is refused, and what a match may cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.rows.filter_regex import STEPS_MAX, compile_regex
from rowtide.core.values.errors import Rejected

# regex, text, what is cut out
EXTRACTED = [
    ("1[a-z]+5", b"1aaa51bbb5", b"1aaa5"),
    ("1([a-z]+)5", b"1aaa51bbb5", b"aaa"),
    ("lastupdatetime:([0-9]+)}", b"{cluster_name:name 1,lastupdatetime:12345}", b"12345"),
    ("t1:([a-z]+),", b"t0:x,t1:yz,", b"yz"),
    ("(a)(b)", b"ab", b"a"),
    ("(?:a|b)=([0-9]{2})", b"b=1234", b"12"),
    ("a?b", b"b", b"b"),
    ("^[0-9]+$", b"123", b"123"),
    ("^[0-9]+$", b"12x", None),
    ("x{0,2}y", b"xxxy", b"xxy"),
    ("{x}", b"{x}", b"{x}"),
    ("a.b", b"a\nb", b"a\nb"),
    (r"\d+\.\d+", b"v1.25", b"1.25"),
    (r"\[([^\]]*)\]", b"a[b]", b"b"),
    ("你", "我你".encode(), "你".encode()),
    ("z", b"", None),
]
REFUSED = [
    ("", "The length of the regex must be in range: [1, 256], but is 0."),
    ("a" * 257, "The length of the regex must be in range: [1, 256], but is 257."),
    ("(a+)+", "a repeated group may hold neither a repeat nor a |"),
    ("(a|a)*", "a repeated group may hold neither a repeat nor a |"),
    ("(?:a?){30}", "a repeated group may hold neither a repeat nor a |"),
    ("((a+)b)*", "a repeated group may hold neither a repeat nor a |"),
    ("a**", "a repeat of a repeat at byte 2"),
    ("a++", "a repeat of a repeat at byte 2"),
    ("(?=a)b", "of the groups that begin with (? only (?: is supported"),
    ("(?i)a", "of the groups that begin with (? only (?: is supported"),
    (r"(a)\1", "unsupported escape at byte 3"),
    (r"\p{L}", "unsupported escape at byte 0"),
    ("\\", "unsupported escape at byte 0"),
    ("[[:digit:]]", "unsupported character class at byte 0"),
    ("[a&&b]", "unsupported character class at byte 0"),
    ("[z-a]", "bad character range z-a at position 1"),
    ("[", "unsupported character class at byte 0"),
    ("(", "missing ), unterminated subpattern at position 0"),
    (")", "unbalanced parenthesis"),
    ("*", "nothing to repeat"),
    ("^*", "nothing to repeat"),
    ("a{0}", "nothing to repeat"),
    ("a{2,1}", "min repeat greater than max repeat at position 2"),
    ("a{99999999999}", "the repetition number is too large"),
]
# Each costs factor * length ** degree steps: regex, factor, degree.
COSTS = [
    ("abc", 3, 1),
    ("a=([0-9]+);", 4, 1),  # No run of digits crosses the next a.
    ("[0-9]+;", 2, 2),  # Each digit begins a run of its own.
    ("^[0-9]+$", 3, 1),  # There is one place to begin.
    ("x(.*)", 2, 2),  # A dot crosses the next x.
    ("x(.*)y", 3, 2),
    (".*x.*y", 4, 3),
    ("(ab)*c", 3, 2),
    ("ab?c", 3, 1),  # One count of b can be followed by c.
    ("ab?.", 6, 1),
    ("[0-9]{4}-[0-9]{2}", 24, 1),
    ("foo|bar", 12, 1),
    ("(a{50}){50}b", 5000, 1),
]


@pytest.mark.parametrize(("regex", "text", "extracted"), EXTRACTED)
def test_the_first_group_of_the_first_match_is_cut_out(
    regex: str, text: bytes, extracted: bytes | None
) -> None:
    assert compile_regex(regex).extract(text) == extracted


@pytest.mark.parametrize(("regex", "why"), REFUSED)
def test_what_may_run_away_or_is_malformed_is_refused(regex: str, why: str) -> None:
    with pytest.raises(Rejected) as refused:
        compile_regex(regex)
    assert refused.value.message in (why, f"Invalid regex '{regex}': {why}.")


@pytest.mark.parametrize(("regex", "factor", "degree"), COSTS)
def test_the_longest_text_follows_from_the_cost(regex: str, factor: int, degree: int) -> None:
    longest = compile_regex(regex).text_bytes_max
    assert factor * longest**degree <= STEPS_MAX < factor * (longest + 1) ** degree


def test_a_longer_text_is_refused_by_name() -> None:
    extractor = compile_regex("[0-9]+;")
    extractor.extract(b"1" * 4096)
    with pytest.raises(Rejected) as refused:
        extractor.extract(b"1" * 4097)
    assert refused.value.message == (
        "The value of 4097 bytes is too long for the regex '[0-9]+;', limit bytes: 4096."
    )


@given(
    st.lists(st.sampled_from([*"ab(|)*+?.^$[]{},1\\-", "(?:", "[a", "]+"]), max_size=12),
    st.sampled_from([b"a", b"ab", b"b", b"1,"]),
)
def test_any_expression_is_refused_or_bounded(pieces: list[str], unit: bytes) -> None:
    try:
        extractor = compile_regex("".join(pieces))
    except Rejected:
        return
    length = min(extractor.text_bytes_max, 2000)
    extractor.extract((unit * length)[:length])
