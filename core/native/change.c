/* An update with increments and deletes of columns, as one of puts and deletes alone: what an
 * increment gives depends on the stored cell of its column; core/rows/increment.py. */
#include "kernels.h"

enum { NUMBER_BYTES = 9 };

/* True if a cell of the write is not a put. */
int rowtide_has_changes(const Write *write) {
    Reader cells = write->wire;
    WireCell cell;
    while (cells.at < cells.end && rowtide_skim_cell(&cells, &cell))
        if (cell.op != PUT)
            return 1;
    return 0;
}

/* Find the newest stored cell of a column; `stored` moves up to it. Return 1, 0 where there is none,
 * -1 where a stored cell is unusual. */
static int find_newest(Reader *stored, const WireCell *column, WireCell *found) {
    Reader next = *stored;
    while (next.at < next.end) {
        if (!rowtide_skim_cell(&next, found) || found->op != PUT || !found->has_version)
            return -1;
        int order = rowtide_compare_names(found->name, found->name_bytes, column->name,
                                          column->name_bytes);
        if (order >= 0)
            return order == 0;
        *stored = next;
    }
    return 0;
}

/* Add an increment to the number that its column has, 0 where none is visible. Return 0 where
 * Python refuses it, or where the present number has a later version than the write. */
static int add_up(const WireCell *increment, const WireCell *present, const Write *write,
                  int64_t version_min, int64_t *sum) {
    int64_t base = 0, by = (int64_t)load64(increment->value + 1);
    if (present != NULL && (present->version < 0 || present->version > write->version))
        return 0;
    if (present != NULL && present->version >= version_min) {
        if (present->value_bytes != NUMBER_BYTES || present->value[0] != V_INTEGER)
            return 0;
        base = (int64_t)load64(present->value + 1);
    }
    if (base > 0 ? by > INT64_MAX - base : by < INT64_MIN - base)
        return 0;
    *sum = base + by;
    return 1;
}

/* Write one cell of the write to `out`, an increment as the put of its result. Return the end, NULL
 * where it is unusual. */
static uint8_t *resolve_cell(uint8_t *out, WireCell *cell, Reader *stored, const Write *write,
                             int64_t version_min) {
    uint8_t number[NUMBER_BYTES] = {V_INTEGER};
    WireCell present;
    int64_t sum;
    if (cell->op == INCREMENT) {
        int found = find_newest(stored, cell, &present);
        if (found < 0 || cell->value_bytes != NUMBER_BYTES
            || !add_up(cell, found ? &present : NULL, write, version_min, &sum))
            return NULL;
        store64(number + 1, (uint64_t)sum);
        cell->op = PUT;
        cell->value = number;
        cell->crc = rowtide_crc8(number, NUMBER_BYTES,
                                 rowtide_crc8(cell->name, cell->name_bytes, 0));
    }
    return rowtide_write_cell(out, cell);
}

/* Write the cells to `out`, which has room for them as they are. Return the end, NULL where one is
 * unusual, or where nothing is put and there is no row. */
static uint8_t *resolve(uint8_t *out, const Write *write, Reader stored, int present,
                        int64_t version_min) {
    Reader cells = write->wire;
    WireCell cell;
    int puts = 0;
    while (cells.at < cells.end) {
        if (!rowtide_skim_cell(&cells, &cell) || cell.has_version)
            return NULL;
        puts |= cell.op != DELETE_ALL;
        out = resolve_cell(out, &cell, &stored, write, version_min);
        if (out == NULL)
            return NULL;
    }
    return puts || present ? out : NULL;
}

/* Return (chunk, body) of an update over a row's first chunk, as `rowtide_store`. Versions below
 * `version_min` have expired. */
PyObject *rowtide_store_changes(const Write *write, PyObject *first, int64_t version_min,
                                int64_t versions_max, size_t chunk_bytes_max) {
    Reader stored;
    size_t wire_bytes = left(&write->wire);
    if (wire_bytes > chunk_bytes_max || !rowtide_open_stored(first, &write->piece, &stored))
        RETURN_UNUSUAL;
    uint8_t small[2048], *scratch = wire_bytes <= sizeof small ? small : PyMem_Malloc(wire_bytes);
    if (scratch == NULL)
        return PyErr_NoMemory();
    uint8_t *end = resolve(scratch, write, stored, first != Py_None, version_min);
    Write resolved = *write;
    resolved.wire = (Reader){scratch, end};
    PyObject *made = end == NULL ? Py_NewRef(Py_None)
        : rowtide_store(&resolved, 0, first, versions_max, chunk_bytes_max);
    if (scratch != small)
        PyMem_Free(scratch);
    return made;
}
