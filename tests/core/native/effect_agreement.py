"""What changes did to rows, by a kernel against Python: the same values before and after.

As in ``agreement.py``, a function fails where the two ways differ, and returns whether the kernel
did answer.
"""

from __future__ import annotations

from collections.abc import Callable

from rowtide.core.records import record
from rowtide.core.records.change import (
    DELETE,
    PUT_ROW,
    UPDATE,
    ChangeTable,
    Kind,
    LoggedChange,
    read_effects,
)
from rowtide.dashboards.runtime.row_values import ValueReader
from tests.core.native.inputs import COLUMNS, NAMES, OFFSET, STAMP, Inputs
from tests.core.native.ways import python

__all__ = ["EFFECT_AGREEMENTS"]

TABLE = ChangeTable("t", NAMES)
KIND_OF: dict[type, Kind] = {
    record.PutBody: PUT_ROW,
    record.UpdateBody: UPDATE,
    record.DeleteBody: DELETE,
}
KEY_PLACES = {name.decode(): place for place, name in enumerate(NAMES)}
WANTED = (*COLUMNS, *KEY_PLACES)
BODY_AT = len(record.encode_record(record.Envelope(OFFSET, 3, bytes(8), STAMP, record.SINGLE), b""))
"""Where the body of each record begins: all have one envelope."""


def row_values(inputs: Inputs) -> bool:
    """Compare rows before and after, of columns of the key and others."""
    chance = inputs.chance
    made = inputs.record_with_originals() if chance.randrange(8) else inputs.log_record()
    value = inputs.maybe_damage(made)
    branch = value[BODY_AT] if len(value) > BODY_AT else 0
    kind = KIND_OF[record.CHANGES.get(branch, record.PutBody)]
    names = chance.sample(WANTED, chance.randrange(len(WANTED) + 1))

    def change() -> LoggedChange:
        return LoggedChange(kind, TABLE, "s", OFFSET, STAMP, value=value, at=BODY_AT)

    columns = tuple([(name.encode(), KEY_PLACES.get(name, -1)) for name in names])
    [found] = read_effects([change()], columns)
    if found is None:
        return False
    assert found == python(lambda: ValueReader(names).read_change(change()))
    return True


EFFECT_AGREEMENTS: dict[str, Callable[[Inputs], bool]] = {"row_values": row_values}
