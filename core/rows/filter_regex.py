"""The regular expressions of a filter's value rule, with a bound on the cost of one match.

A rule extracts a value from a column's text: the first group of the first match, or the whole match
if the expression has no group. Expressions are single-byte: ``.`` is one byte, and a letter
outside ASCII is its UTF-8 bytes.

Python's ``re`` backtracks, so a short expression can run practically forever. Three rules keep the
worst case of one match below ``STEPS_MAX`` steps (about 0.3 s):

- an expression has at most ``REGEX_BYTES_MAX`` bytes;
- a repeated group contains neither a repeat nor a ``|``; look-around, back-references, inline
  flags and possessive repeats are rejected. The rest cannot take exponential time;
- the rest is polynomial. Its degree is derived from the expression (``_Cost``), and from that the
  longest text to match. A longer text is rejected with an error, never skipped silently.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rowtide.core.values.errors import Rejected, invalid

__all__ = ["REGEX_BYTES_MAX", "STEPS_MAX", "Extractor", "compile_regex"]

REGEX_BYTES_MAX = 256
STEPS_MAX = 1 << 25
UNBOUNDED = -1

_QUANTIFIER = re.compile(r"([*+?]|\{(\d*)(,(\d*))?\})(\??)")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|[dDwWsSbBtnrfv]|[^a-zA-Z0-9])", re.S)
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\\[])*\]", re.S)
_DOUBLED = re.compile(r"--|&&|\|\||~~")
_ZERO_WIDTH = ("^", "$", "\\b", "\\B")
_OPEN = re.compile(r"^(?:\((?:\?:)?)+")
_EVERY_BYTE = bytes(range(256))


class Extractor:
    """A compiled expression. ``text_bytes_max`` is the longest text that it accepts."""

    __slots__ = ("_search", "regex", "text_bytes_max")

    def __init__(self, regex: str, pattern: re.Pattern[bytes], text_bytes_max: int) -> None:
        self.regex = regex
        self.text_bytes_max = text_bytes_max
        self._search = pattern.search

    def extract(self, text: bytes) -> bytes | None:
        """Return what the expression extracts from ``text``; None if it does not match."""
        if len(text) > self.text_bytes_max:
            raise invalid(
                f"The value of {len(text)} bytes is too long for the regex '{self.regex}', "
                f"limit bytes: {self.text_bytes_max}."
            )
        match = self._search(text)
        if match is None:
            return None
        return match[1] if match.re.groups else match[0]


def compile_regex(regex: str) -> Extractor:
    """Return the compiled expression. Raises OTSParameterInvalid if it is rejected."""
    encoded = regex.encode()
    if not 0 < len(encoded) <= REGEX_BYTES_MAX:
        raise invalid(
            f"The length of the regex must be in range: [1, {REGEX_BYTES_MAX}], but is "
            f"{len(encoded)}."
        )
    # One character per byte, as the expression is matched.
    cost = _Scan(regex, encoded.decode("latin-1")).cost()
    try:
        pattern = re.compile(encoded, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise _invalid_regex(regex, str(error)) from error
    return Extractor(regex, pattern, cost.text_bytes_max())


def _invalid_regex(regex: str, why: str) -> Rejected:
    return invalid(f"Invalid regex '{regex}': {why}.")


@dataclass(slots=True)
class _Repeat:
    """One quantifier. ``atom`` is what it repeats, empty for a group."""

    atom: str
    low: int
    high: int
    end: int


@dataclass(slots=True)
class _Cost:
    """Steps of one match: ``factor * length ** degree``."""

    factor: int
    degree: int

    def text_bytes_max(self) -> int:
        return int((STEPS_MAX / self.factor) ** (1 / self.degree))


@dataclass(slots=True)
class _Group:
    """The content of an open group so far."""

    branches: int = 1
    repeats: bool = False


@dataclass(slots=True)
class _Scan:
    """One pass over an expression, atom by atom."""

    regex: str
    text: str
    repeats: list[_Repeat] = field(default_factory=list)
    branches: int = 1
    atoms: int = 0

    def cost(self) -> _Cost:
        """Return the cost of a match.

        Every position of the text may begin a match, and every repeat may try every count. A repeat
        whose count is determined by what follows is tried once. All starting positions count as one
        pass if no repeat can run across one.
        """
        self._scan()
        factor = max(1, self.atoms) * self.branches
        undecided = 0
        for repeat in self.repeats:
            if repeat.high != UNBOUNDED:
                factor *= repeat.high if self._is_decided(repeat) else repeat.high + 1
            elif not self._is_decided(repeat):
                undecided += 1
        degree = 1
        if any(repeat.high == UNBOUNDED for repeat in self.repeats):
            degree = max(1, undecided) + (not self._is_guarded())
        return _Cost(factor, degree)

    def _scan(self) -> None:
        groups = [_Group()]
        at = 0
        while at < len(self.text):
            mark = self.text[at]
            if mark == "(":
                at = self._open_group(at)
                groups.append(_Group())
                continue
            if mark == "|":
                groups[-1].branches += 1
                self.branches += 1
                at += 1
                continue
            closed = None
            if mark == ")":
                if len(groups) == 1:
                    raise self._rejection("unbalanced parenthesis")
                closed = groups.pop()
                groups[-1].repeats |= closed.repeats or closed.branches > 1
                atom, at = "", at + 1
            else:
                atom = self._atom(at)
                at += len(atom)
            at = self._scan_quantifier(at, atom, closed, groups[-1])

    def _open_group(self, at: int) -> int:
        if self.text.startswith("(?:", at):
            return at + 3
        if self.text.startswith("(?", at):
            raise self._rejection("of the groups that begin with (? only (?: is supported")
        return at + 1

    def _atom(self, at: int) -> str:
        """Return the class, escape or character at ``at``."""
        self.atoms += 1
        mark = self.text[at]
        if mark == "\\":
            found = _ESCAPE.match(self.text, at)
            if found is None:
                raise self._rejection(f"unsupported escape at byte {at}")
            return found[0]
        if mark == "[":
            found = _CLASS.match(self.text, at)
            if found is None or _DOUBLED.search(found[0]):
                raise self._rejection(f"unsupported character class at byte {at}")
            return found[0]
        if mark in "*+?":
            raise self._rejection("nothing to repeat")
        return mark

    def _scan_quantifier(self, at: int, atom: str, closed: _Group | None, around: _Group) -> int:
        """Add the quantifier at ``at``, if there is one; return the position after it."""
        found = _QUANTIFIER.match(self.text, at)
        if found is None or found[0] == "{}":
            return at
        low, high = _bounds(found)
        if _QUANTIFIER.match(self.text, found.end()) or self.text.startswith("+", found.end()):
            raise self._rejection(f"a repeat of a repeat at byte {found.end()}")
        if closed is not None and (closed.repeats or closed.branches > 1) and high != 1:
            raise self._rejection("a repeated group may hold neither a repeat nor a |")
        if atom in _ZERO_WIDTH or high == 0:
            raise self._rejection("nothing to repeat")
        around.repeats |= low != high
        self.repeats.append(_Repeat(atom, low, high, found.end()))
        return found.end()

    def _is_decided(self, repeat: _Repeat) -> bool:
        """True if at most one count of ``repeat`` can be followed by what comes next."""
        if repeat.low == repeat.high:
            return True
        if not repeat.atom:
            return False
        rest = self.text[repeat.end :].lstrip(")")
        if not rest or rest == "$":
            # At the end of the expression the first count that matches is used.
            return True
        follows = _first_bytes(rest)
        return follows is not None and follows.isdisjoint(_bytes_of(repeat.atom))

    def _is_guarded(self) -> bool:
        """True if no repeat can run across a byte at which a match may begin."""
        if self.branches > 1 or not all(repeat.atom for repeat in self.repeats):
            return False
        if self.text[0] == "^":
            return True
        begins = _first_bytes(_OPEN.sub("", self.text))
        return begins is not None and all(
            begins.isdisjoint(_bytes_of(repeat.atom))
            for repeat in self.repeats
            if repeat.high == UNBOUNDED
        )

    def _rejection(self, why: str) -> Rejected:
        return _invalid_regex(self.regex, why)


def _bounds(quantifier: re.Match[str]) -> tuple[int, int]:
    """Return the lowest and the highest count; UNBOUNDED without a limit."""
    mark = quantifier[1]
    if mark in "*+?":
        return {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}[mark]
    low = int(quantifier[2] or 0)
    if quantifier[3] is None:
        return low, low
    return low, int(quantifier[4]) if quantifier[4] else UNBOUNDED


def _first_bytes(text: str) -> frozenset[bytes] | None:
    """Return the possible first bytes of ``text``, or None if any byte is possible."""
    if text[0] in "(^$|*+?":
        return None
    found = (_ESCAPE if text[0] == "\\" else _CLASS).match(text)
    atom = found[0] if found else text[0]
    quantifier = _QUANTIFIER.match(text, len(atom))
    if atom in _ZERO_WIDTH or (quantifier is not None and _bounds(quantifier)[0] == 0):
        return None
    return _bytes_of(atom)


def _bytes_of(atom: str) -> frozenset[bytes]:
    """Return the bytes that a class, an escape or a character matches; all if it is malformed."""
    try:
        return frozenset(re.findall(atom.encode("latin-1"), _EVERY_BYTE, re.DOTALL))
    except re.error:
        return frozenset(_EVERY_BYTE[at : at + 1] for at in range(256))
