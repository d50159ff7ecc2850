/* The original columns that a stream keeps, from a row's first chunk into the body of a change's
 * record; core/records/kept.py. */
#include "kernels.h"

/* Branches of a body: a change, and the same change with original columns. */
enum { B_PUT = 2, B_DELETE = 6, B_KEPT = 24 };

enum { CHUNK_HEADER_BYTES = 32, CHUNK_DELETED = 1, NAMES_MAX = 1024, FEW = 16 };

/* An original column: its name, and the newest visible cell where `present`. */
typedef struct {
    Reader name;
    WireCell cell;
    int present;
} Kept;

/* Open the cells of a row's first chunk, which may be Py_None. Return 0 unless all of the row is in
 * it, or there is none; *existed says which. */
static int open_row(PyObject *first, Reader *cells, int *existed) {
    *existed = 0;
    cells->at = cells->end = NULL;
    if (first == Py_None)
        return 1;
    if (!reader_of(first, cells) || left(cells) < CHUNK_HEADER_BYTES + 2)
        return 0;
    const uint8_t *head = cells->at;
    size_t key_bytes = (size_t)(head[4] | head[5] << 8);
    if (head[0] != 1 || head[1] & ~CHUNK_DELETED || head[2] || head[3] || head[30] || head[31]
        || left(cells) < CHUNK_HEADER_BYTES + key_bytes + 2)
        return 0;
    cells->at += CHUNK_HEADER_BYTES + key_bytes;
    cells->end -= 2;
    *existed = !(head[1] & CHUNK_DELETED);
    if (cells->end[0] != T_ROW_CHECKSUM)
        return 0;
    return cells->at == cells->end || (*existed && *cells->at++ == T_CELLS);
}

/* Find the newest visible cell of each column: the first one of its name, unless that has expired.
 * Names and cells are in the same order. Return 0 where a stored cell is unusual. */
static int find_newest(Reader cells, Kept *columns, Py_ssize_t count, int64_t version_min) {
    Py_ssize_t i = 0;
    while (cells.at < cells.end && i < count) {
        WireCell cell;
        if (!rowtide_skim_cell(&cells, &cell) || cell.op != PUT || !cell.has_version)
            return 0;
        int order;
        do {
            order = rowtide_compare_names(columns[i].name.at, left(&columns[i].name), cell.name,
                                          cell.name_bytes);
        } while (order < 0 && ++i < count);
        if (i < count && order == 0) {
            columns[i].cell = cell;
            columns[i++].present = cell.version >= version_min;
        }
    }
    return 1;
}

static size_t count_room(const Kept *columns, Py_ssize_t count) {
    size_t room = 1 + 11 + 11 + 1;
    for (Py_ssize_t i = 0; i < count; i++)
        room += columns[i].present ? rowtide_logged_bytes_max(&columns[i].cell)
            : 10 + left(&columns[i].name);
    return room;
}

/* Write whether the row existed, the cells before, the names of the columns without one, and no
 * cells after. Return NULL where a cell is unusual. */
static uint8_t *write_kept(uint8_t *out, const Kept *columns, Py_ssize_t count, int existed) {
    Py_ssize_t present = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        present += columns[i].present;
    *out++ = (uint8_t)existed;
    if (present)
        out += rowtide_write_long(out, present);
    for (Py_ssize_t i = 0; i < count && out != NULL; i++)
        if (columns[i].present)
            out = rowtide_write_logged(out, &columns[i].cell);
    if (out == NULL)
        return NULL;
    *out++ = 0;
    if (present < count)
        out += rowtide_write_long(out, count - present);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (columns[i].present)
            continue;
        out += rowtide_write_long(out, (int64_t)left(&columns[i].name));
        out = copy(out, columns[i].name.at, left(&columns[i].name));
    }
    *out++ = 0;
    *out++ = 0; /* No cells after. */
    return out;
}

/* Return the body with the columns, or NULL with an exception. */
static PyObject *keep(Reader body, const Kept *columns, Py_ssize_t count, int existed) {
    size_t room = left(&body) + count_room(columns, count);
    uint8_t small[4096], *scratch = room <= sizeof small ? small : PyMem_Malloc(room);
    if (scratch == NULL)
        return PyErr_NoMemory();
    uint8_t *out = scratch;
    *out++ = (uint8_t)(body.at[0] + B_KEPT);
    out = copy(out, body.at + 1, left(&body) - 3);
    out = write_kept(out, columns, count, existed);
    PyObject *made = NULL;
    if (out != NULL) {
        *out++ = 0; /* No indexes. */
        made = PyBytes_FromStringAndSize((const char *)scratch, out - scratch);
    } else {
        made = Py_NewRef(Py_None);
    }
    if (scratch != small)
        PyMem_Free(scratch);
    return made;
}

/* True if a body is that of a change without cells before and without indexes. */
static int is_plain_change(const Reader *body) {
    return left(body) >= 4 && body->at[0] >= B_PUT && body->at[0] <= B_DELETE
        && !(body->at[0] & 1) && !body->end[-1] && !body->end[-2];
}

PyObject *rowtide_keep_columns(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader body, cells;
    int existed;
    if (given != 4)
        return rowtide_wrong_arguments("keep_columns", 4);
    int64_t version_min = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &body) || !is_plain_change(&body) || !PyTuple_CheckExact(args[2])
        || PyTuple_Size(args[2]) > NAMES_MAX || !open_row(args[1], &cells, &existed))
        RETURN_UNUSUAL;
    Py_ssize_t count = PyTuple_Size(args[2]);
    Kept few[FEW], *columns = few;
    if (count > FEW)
        columns = PyMem_Malloc((size_t)count * sizeof *columns);
    if (columns == NULL)
        return PyErr_NoMemory();
    int usual = 1;
    for (Py_ssize_t i = 0; usual && i < count; i++) {
        columns[i].present = 0;
        usual = reader_of(PyTuple_GetItem(args[2], i), &columns[i].name);
    }
    PyObject *made = usual && find_newest(cells, columns, count, version_min)
        ? keep(body, columns, count, existed) : Py_NewRef(Py_None);
    if (columns != few)
        PyMem_Free(columns);
    return made;
}
