"""Rows of one form: the same columns in the same order, with values of the same types and sizes.

Rows of measurements mostly have one form. Then one unpack splits a row, one comparison proves that
it has the form, and its cells are kept as values and checksums. ``PackedCells`` gives them as cells
like a list.

Cells are kept in three ways: a list; ``PackedCells``; and the bytes of a plain write
(``core/shard/plain_write.py``). ``ask_form`` returns the facts that are known of all cells
together. Checks of rows and counts of bytes call it first. If it returns nothing, they read
the cells. Codecs and the fold test for ``PackedCells`` themselves: a call would cost them a
tenth of their time.

A form is learnt from a row that was read cell by cell, or comes from a source
(``source_form.py``). Rows without a known form are read cell by cell. Forms do not change
what is accepted or stored: tests check that both ways give the same bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from math import isfinite
from operator import itemgetter
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.crc8 import SHIFT8, crc8
from rowtide.core.values.lazy_cells import LazyCells

__all__ = [
    "CELLS_MAX",
    "FORMS",
    "HEADS_KNOWN",
    "PAYLOAD_BYTES_MAX",
    "SIZES",
    "FormLearner",
    "Forms",
    "KnownCells",
    "PackedCells",
    "RowForm",
    "are_finite",
    "ask_form",
    "is_text",
    "picker",
    "seed",
    "wire_head",
]

CELLS_MAX = 128
PAYLOAD_BYTES_MAX = 512
"""Wider rows and longer values are read cell by cell: their bytes dominate the cost."""

HEADS_KNOWN = 8192
"""Cached columns with a value size: the bytes before their values, and the checksum of these."""

SIZES = {variant.INTEGER: 8, variant.DOUBLE: 8, variant.STRING: -1, variant.BLOB: -1}
"""Types that forms can have, with the size of their data; -1 if the value has its own length.

BOOLEAN is left out, because only two of its values are valid.
"""

_LENGTH = Struct("<I")
_INT64 = Struct("<q")
_END = 2
"""Bytes after a cell's value as it is sent: a tag and the checksum."""

_ENDS = bytearray(b"\x0a\x00" * CELLS_MAX)
_new = tuple.__new__

F = TypeVar("F")

_Unpack = Callable[[bytes, int], tuple[Any, ...]]


class FormLearner(Generic[F]):
    """The form of rows that are found by the same key, if a form helps for them.

    Learning costs about ten times the saving of one row. So a form is learnt after
    ``PAUSE_MIN`` rows and dropped if most rows do not have it. After each drop the pause before
    the next form grows. So rows with texts of varying length cost hardly more than without
    forms.
    """

    __slots__ = ("_pause", "form", "hits", "left")

    PAUSE_MIN = 8
    PAUSE_MAX = 4096

    def __init__(self) -> None:
        self.form: F | None = None
        self.hits = 0
        """Rows that had the form since it was last judged."""
        self._pause = self.left = self.PAUSE_MIN
        """``left`` counts down the rows without the form until the next judgement."""

    def judge(self) -> bool:
        """Keep the form or drop it. True if a new one should be learnt."""
        if self.form is None:
            return True
        if self.hits >= self.PAUSE_MIN:
            self._pause = self.left = self.PAUSE_MIN
        else:
            self.learn(None)
        self.hits = 0
        return False

    def learn(self, form: F | None) -> None:
        """Use a form from now on, or with None no form for a while."""
        self.form = form
        self.left = self.PAUSE_MIN
        if form is None:
            self.left = self._pause = min(self._pause * 4, self.PAUSE_MAX)


class Forms(Generic[F]):
    """Known forms by the key that finds them; bounded."""

    PLACES_MAX = 2048

    def __init__(self) -> None:
        self._places: dict[Any, FormLearner[F]] = {}
        self.find: Callable[[Any], FormLearner[F] | None] = self._places.get

    def place(self, found_by: Any) -> FormLearner[F]:
        """Return the place of forms for this key; create it if it is missing."""
        place = self._places.get(found_by)
        if place is None:
            if len(self._places) >= self.PLACES_MAX:
                self._places.clear()
            place = self._places[found_by] = FormLearner()
        return place

    def places(self) -> list[FormLearner[F]]:
        """Return every place."""
        return list(self._places.values())

    def forget(self) -> None:
        """Drop every form."""
        self._places.clear()


class RowForm:
    """What rows of one form have in common. Names are distinct and fit a table."""

    __slots__ = (
        "_split",
        "_versions",
        "data_bytes",
        "doubles",
        "heads",
        "integers",
        "kinds",
        "like",
        "logged",
        "names",
        "ordered",
        "pick",
        "seeds",
        "sizes",
        "stored",
        "stored_bytes",
        "texts",
        "wire_bytes",
    )

    def __init__(
        self, names: tuple[bytes, ...], kinds: tuple[int, ...], sizes: tuple[int, ...]
    ) -> None:
        self.names, self.kinds, self.sizes = names, kinds, sizes
        columns = list(zip(names, kinds, sizes, strict=True))
        self.heads = tuple(wire_head(*column) for column in columns)
        self._split: _Unpack | None = None
        self._versions: _Unpack | None = None
        self.wire_bytes = sum(map(len, self.heads)) + sum(sizes) + _END * len(names)
        self.data_bytes = sum(map(len, names)) + sum(sizes)
        self.seeds = tuple(seed(*column) for column in columns)
        """The checksum of each cell up to its data."""
        self.texts = picker([i for i, kind in enumerate(kinds) if kind == variant.STRING])
        doubles = [i for i, kind in enumerate(kinds) if kind == variant.DOUBLE]
        self.doubles = picker(doubles) if doubles else None
        """Returns the doubles among a row's payloads; None if there are none to check."""
        self.integers = [i for i, kind in enumerate(kinds) if kind == variant.INTEGER]
        self.stored: list[bytes] = [b""] * (4 * len(names))
        """The cells as they are stored, with gaps for data, version and checksum."""
        self.stored[0::4] = self.heads
        self.stored_bytes = self.wire_bytes + 9 * len(names)
        self.logged: list[bytes] | None = None
        """The cells in the log's encoding, with the same gaps; made by the log's codec."""
        self.like: tuple[RowForm, Sequence[int]] | None = None
        """A form that differs in the sizes of the texts at these places, if this was made from it.
        """
        self.ordered = self
        self.pick: Callable[[Any], Any] = _everything
        if list(names) != sorted(names):
            order = sorted(range(len(names)), key=names.__getitem__)
            self.pick = pick = itemgetter(*order)
            self.ordered = RowForm(pick(names), pick(kinds), pick(sizes))

    def resize(self, places: Sequence[int], sizes: Sequence[int]) -> RowForm:
        """Return the form of rows that differ in the sizes of their texts at ``places``.

        Both have the columns in the order of their names. This costs a fourth of a new form.
        """
        form = RowForm.__new__(RowForm)
        form.names, form.kinds, form.integers = self.names, self.kinds, self.integers
        form.texts, form.doubles = self.texts, self.doubles
        form.pick, form.ordered = self.pick, form
        form._split = form._versions = form.logged = None
        form.like = self, places
        all_sizes, heads, seeds = list(self.sizes), list(self.heads), list(self.seeds)
        form.stored = self.stored.copy()
        for place, size in zip(places, sizes, strict=True):
            column = self.names[place], self.kinds[place], size
            all_sizes[place] = size
            heads[place] = form.stored[4 * place] = wire_head(*column)
            seeds[place] = seed(*column)
        form.sizes, form.heads, form.seeds = tuple(all_sizes), tuple(heads), tuple(seeds)
        added = sum(form.sizes) - sum(self.sizes)
        form.wire_bytes, form.data_bytes = self.wire_bytes + added, self.data_bytes + added
        form.stored_bytes = self.stored_bytes + added
        return form

    @property
    def split(self) -> _Unpack:
        """Split a row's cells into head, data and end (0A and checksum) of each."""
        if self._split is None:
            # Made at first use: rows with texts of varying length have many forms, and most are
            # never used to read.
            columns = zip(self.heads, self.sizes, strict=True)
            layout = "".join([f"{len(head)}s{size}s2s" for head, size in columns])
            self._split = Struct("<" + layout).unpack_from
        return self._split

    @property
    def versions(self) -> _Unpack:
        """Return each cell's head and version from a row's stored cells."""
        if self._versions is None:
            columns = zip(self.heads, self.sizes, strict=True)
            layout = "".join([f"{len(head)}s{size}xxq2x" for head, size in columns])
            self._versions = Struct("<" + layout).unpack_from
        return self._versions

    @classmethod
    def of(cls, cells: Sequence[Cell], wire_bytes: int | None = None) -> RowForm | None:
        """Return the form of cells as they were sent, or None if they have none.

        With ``wire_bytes``, return it only if the cells take that many bytes.
        """
        if not 0 < len(cells) <= CELLS_MAX:
            return None
        names = tuple(cell[0] for cell in cells)
        if len(set(names)) < len(names) or not all(map(_is_column_name, names)):
            return None
        if any(cell[1] != PUT or cell[3] is not None or cell[2][0] not in SIZES for cell in cells):
            return None
        sizes = tuple(variant.payload_size(cell[2]) for cell in cells)
        if max(sizes) > PAYLOAD_BYTES_MAX:
            return None
        form = cls(names, tuple(cell[2][0] for cell in cells), sizes)
        return form if wire_bytes in (None, form.wire_bytes) else None

    def newest(self, buffer: bytes, at: int) -> int | None:
        """Return the newest version in the stored cells at ``at``; None for another form."""
        parts = self.versions(buffer, at)
        return max(parts[1::2]) if parts[0::2] == self.heads else None

    def read(self, buffer: bytes, at: int) -> PackedCells | None:
        """Return the cells at ``at``, fully checked, or None if they have another form.

        Cells with a double that is NaN or infinite are read one by one, which rejects a write.
        """
        parts = self.split(buffer, at)
        if parts[0::3] != self.heads:
            return None
        payloads = parts[1::3]
        checksums = bytes(map(crc8, payloads, self.seeds))
        ends = _ENDS[: _END * len(payloads)]
        ends[1::2] = checksums
        if ends != b"".join(parts[2::3]) or not is_text(self.texts(payloads)):
            return None
        if self.doubles is not None and not are_finite(self.doubles(payloads)):
            return None
        return PackedCells(self, payloads, checksums)


class CellsKnowledge(Protocol):
    """What is known of cells without a look at each of them. None and False: it is not known."""

    @property
    def packed(self) -> PackedCells | None:
        """The cells as packed ones, if that is their form."""
        ...

    @property
    def is_checked(self) -> bool:
        """Whether they are puts of distinct columns, which fit a table, and ordered by name once
        they have a version. A client gave none of them a version."""
        ...

    @property
    def names(self) -> Collection[bytes] | None:
        """Every name that may be that of a column of the row's key."""
        ...

    @property
    def data_bytes(self) -> int | None:
        """The bytes of names and values."""
        ...


class _UnknownCells:
    """What is known of a list of cells."""

    packed = None
    is_checked = False
    names = None
    data_bytes = None


class KnownCells(LazyCells):
    """Checked cells in another form than a list; they answer all of ``CellsKnowledge``."""

    __slots__ = ()

    is_checked = True

    def __init_subclass__(cls) -> None:
        _KINDS.add(cls)

    @property
    def packed(self) -> PackedCells | None:
        """These cells, if they are packed."""
        return None

    @property
    @abstractmethod
    def names(self) -> Collection[bytes]:
        """Every name that may be that of a column of the row's key."""

    @property
    @abstractmethod
    def data_bytes(self) -> int:
        """The bytes of names and values."""


_KINDS: set[type] = set()
_UNKNOWN = _UnknownCells()


def ask_form(cells: Iterable[Cell]) -> CellsKnowledge:
    """Return what is known of cells in their form."""
    # Called several times for each row: to compare the class takes a third of ``isinstance``.
    return cells if type(cells) in _KINDS else _UNKNOWN  # type: ignore[return-value]


class PackedCells(KnownCells):
    """Puts of one form, kept as data and checksums; otherwise like a list of cells.

    Texts are UTF-8, doubles are finite. ``version_ms`` is the version of every cell. ``payloads``
    and ``checksums`` have the order and number of the form's columns. Never changed.
    """

    __slots__ = ("checksums", "form", "payloads", "version_ms")

    def __init__(
        self,
        form: RowForm,
        payloads: tuple[bytes, ...],
        checksums: bytes,
        version_ms: int | None = None,
    ) -> None:
        self.form = form
        self.payloads = payloads
        self.checksums = checksums
        self.version_ms = version_ms
        self._cells = None

    @property
    def packed(self) -> PackedCells:
        return self

    @property
    def names(self) -> Collection[bytes]:
        return self.form.names

    @property
    def data_bytes(self) -> int:
        return self.form.data_bytes

    def stamp(self, version_ms: int) -> PackedCells:
        """Return the cells in the order of their names, each with a version."""
        assert self.version_ms is None, "a version is assigned once"
        form = self.form
        checksums = self.checksums.translate(_stamping(version_ms))
        if form.ordered is form:
            return PackedCells(form, self.payloads, checksums, version_ms)
        pick = form.pick
        return PackedCells(form.ordered, pick(self.payloads), bytes(pick(checksums)), version_ms)

    def fill_template(
        self, template: list[bytes], payloads: Sequence[bytes], tail: bytes
    ) -> list[bytes]:
        """Return a copy of a form's template with its gaps filled."""
        parts = template.copy()
        end = 4 * len(payloads)
        parts[1:end:4] = payloads
        parts[2:end:4] = [tail] * len(payloads)
        parts[3:end:4] = singles(self.checksums)
        return parts

    def wire(self) -> bytes:
        """Return the cells as they are sent, without a version."""
        assert self.version_ms is None, "cells with a version are stored, not sent"
        return b"".join(self.fill_template(self.form.stored, self.payloads, b"\x0a"))

    def _make_cells(self) -> list[Cell]:
        form, version = self.form, self.version_ms
        return [
            _new(Cell, (name, PUT, _value_head(kind, len(payload)) + payload, version, check))
            for name, kind, payload, check in zip(
                form.names, form.kinds, self.payloads, self.checksums, strict=True
            )
        ]

    def __len__(self) -> int:
        return len(self.payloads)


FORMS: Forms[RowForm] = Forms()
"""The forms of rows as sent, by the bytes from their cells' tag to the buffer's end."""


@lru_cache(HEADS_KNOWN)
def wire_head(name: bytes, kind: int, size: int) -> bytes:
    """Return the bytes before a value's data: tags, name, sizes and type."""
    value_head = _value_head(kind, size)
    value_size = _LENGTH.pack(len(value_head) + size)
    return b"\x03\x04" + _LENGTH.pack(len(name)) + name + b"\x05" + value_size + value_head


@lru_cache(HEADS_KNOWN)
def seed(name: bytes, kind: int, size: int) -> int:
    """Return the checksum of a cell up to its data."""
    return crc8(_value_head(kind, size), crc8(name))


def is_text(texts: Sequence[bytes]) -> bool:
    """True if each value is UTF-8."""
    if b"".join(texts).isascii():
        return True
    try:
        for text in texts:
            text.decode()
    except UnicodeDecodeError:
        return False
    return True


def are_finite(doubles: Sequence[bytes]) -> bool:
    """True if no double is NaN or infinite."""
    joined = b"".join(doubles)
    highest = joined[7::8]
    if 0x7F not in highest and 0xFF not in highest:
        return True  # The top seven bits of the exponent are all set in NaN and Infinity.
    return all(map(isfinite, Struct(f"<{len(doubles)}d").unpack(joined)))


def picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function that returns the items at ``places`` of a sequence, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: tuple([items[place] for place in places])


def singles(text: bytes) -> tuple[bytes, ...]:
    """Return each byte of ``text`` separately."""
    return _singles(len(text))(text)


@lru_cache(256)
def _singles(count: int) -> Callable[[bytes], tuple[bytes, ...]]:
    return Struct(f"{count}c").unpack


@lru_cache(256)
def _stamping(version_ms: int) -> bytes:
    """Return the table for one version. Cached: rows of one millisecond share it."""
    return _shifts(crc8(_INT64.pack(version_ms)))


@lru_cache(256)
def _shifts(crc_version: int) -> bytes:
    """Return the table of how a version's eight bytes change a cell's checksum."""
    return bytes(shifted ^ crc_version for shifted in SHIFT8)


def _value_head(kind: int, size: int) -> bytes:
    """Return a value's type, with its own length if it has one."""
    return bytes((kind,)) + (_LENGTH.pack(size) if SIZES[kind] < 0 else b"")


def _is_column_name(name: bytes) -> bool:
    """True if a column may have this name. Called once per form."""
    return 0 < len(name) <= 255 and name[:1] != b"#"


def _everything(parts: Any) -> Any:
    return parts
