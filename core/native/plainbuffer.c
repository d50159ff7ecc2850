/* PlainBuffer: keys and cells as they are sent and as they are kept; core/protocol/plainbuffer.py. */
#include "kernels.h"

enum { KEY_COLUMNS_MAX = 32, HEADER_BYTES = 4 };

static const uint8_t HEADER[HEADER_BYTES] = {0x75, 0, 0, 0};

/* Append (name, value) to a list. Return 0 with an exception where that fails. */
static int append_column(PyObject *columns, const WireCell *column) {
    PyObject *pair = PyTuple_New(2);
    PyObject *name = PyBytes_FromStringAndSize((const char *)column->name,
                                               (Py_ssize_t)column->name_bytes);
    PyObject *value = PyBytes_FromStringAndSize((const char *)column->value,
                                                (Py_ssize_t)column->value_bytes);
    if (pair == NULL || name == NULL || value == NULL) {
        Py_XDECREF(pair);
        Py_XDECREF(name);
        Py_XDECREF(value);
        return 0;
    }
    PyTuple_SetItem(pair, 0, name);
    PyTuple_SetItem(pair, 1, value);
    int failed = PyList_Append(columns, pair) < 0;
    Py_DECREF(pair);
    return !failed;
}

/* Read a key's columns behind its tag, and append them to a list if there is one. Return 1, 0 where
 * they are not as they should be, or -1 with an exception. */
static int key_columns(Reader *reader, uint8_t *state, PyObject *columns) {
    *state = 0;
    for (int count = 0; at_cell(reader); count++) {
        WireCell column;
        if (count == KEY_COLUMNS_MAX || !rowtide_read_cell(reader, &column, 1))
            return 0;
        *state = crc8_step(*state ^ column.crc);
        if (columns != NULL && !append_column(columns, &column))
            return -1;
    }
    return 1;
}

/* Read a buffer's header and its row's key, as above; *piece is where the key's tag is. */
int rowtide_open_row(Reader *reader, const uint8_t **piece, uint8_t *state, PyObject *columns) {
    if (left(reader) < HEADER_BYTES + 1 || memcmp(reader->at, HEADER, HEADER_BYTES) != 0)
        return 0;
    reader->at += HEADER_BYTES;
    *piece = reader->at;
    if (*reader->at++ != T_KEY || !at_cell(reader))
        return 0;
    return key_columns(reader, state, columns);
}

/* The same, with a new list of the columns. Return it, Py_None where the row is unusual (a
 * reference, too), or NULL with an exception. */
PyObject *rowtide_read_key(Reader *reader, const uint8_t **piece, uint8_t *state) {
    PyObject *columns = PyList_New(0);
    if (columns == NULL)
        return NULL;
    int told = rowtide_open_row(reader, piece, state, columns);
    if (told > 0)
        return columns;
    Py_DECREF(columns);
    return told < 0 ? NULL : Py_NewRef(Py_None);
}

/* True if the row ends here with this checksum, and nothing but zeros follows. */
int rowtide_ends_row(Reader *reader, uint8_t state) {
    if (left(reader) < 2 || reader->at[0] != T_ROW_CHECKSUM || reader->at[1] != state)
        return 0;
    for (reader->at += 2; reader->at < reader->end; reader->at++)
        if (*reader->at)
            return 0;
    return 1;
}

PyObject *rowtide_key_row(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Reader reader;
    const uint8_t *piece;
    uint8_t state;
    if (count != 1)
        return rowtide_wrong_arguments("key_row", 1);
    if (!reader_of(args[0], &reader))
        RETURN_UNUSUAL;
    PyObject *columns = rowtide_read_key(&reader, &piece, &state);
    if (columns == NULL || columns == Py_None)
        return columns;
    const uint8_t *end = reader.at;
    if (!rowtide_ends_row(&reader, crc8_step(state))) {
        Py_DECREF(columns);
        RETURN_UNUSUAL;
    }
    return Py_BuildValue("(Ny#i)", columns, (const char *)piece, (Py_ssize_t)(end - piece),
                         (int)state);
}

/* Place a reader within a buffer, from the offset `at` to `end`. Return 0 where it is not a buffer
 * or has no such places; *begin is the buffer's begin. */
static int reader_within(PyObject *buffer, Py_ssize_t at, Py_ssize_t end, Reader *reader,
                         const uint8_t **begin) {
    if (!reader_of(buffer, reader) || at < 0 || end < at || (size_t)end > left(reader))
        return 0;
    *begin = reader->at;
    reader->at = *begin + at;
    reader->end = *begin + end;
    return 1;
}

PyObject *rowtide_read_key_columns(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Reader reader;
    const uint8_t *begin;
    uint8_t state;
    if (count != 3)
        return rowtide_wrong_arguments("read_key_columns", 3);
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_within(args[0], at, end, &reader, &begin) || at == 0 || !at_cell(&reader))
        RETURN_UNUSUAL;
    PyObject *columns = PyList_New(0);
    if (columns == NULL)
        return NULL;
    int told = key_columns(&reader, &state, columns);
    if (told <= 0) {
        Py_DECREF(columns);
        if (told < 0)
            return NULL;
        RETURN_UNUSUAL;
    }
    const uint8_t *piece = begin + at - 1;
    return Py_BuildValue("(Ny#in)", columns, (const char *)piece, (Py_ssize_t)(reader.at - piece),
                         (int)state, (Py_ssize_t)(reader.at - begin));
}

PyObject *rowtide_read_cells(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Reader reader;
    if (count != 6)
        return rowtide_wrong_arguments("read_cells", 6);
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    long given = PyLong_AsLong(args[3]);
    Py_ssize_t most = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred())
        return NULL;
    const uint8_t *begin;
    if (!rowtide_is_cell_type(args[5]) || given < 0 || given > 255
        || !reader_within(args[0], at, end, &reader, &begin))
        RETURN_UNUSUAL;
    uint8_t state = (uint8_t)given;
    PyObject *cells = PyList_New(0), *version = NULL;
    int64_t version_ms = 0;
    Py_ssize_t made = 0;
    int sound = cells != NULL;
    while (sound && at_cell(&reader)) {
        WireCell cell;
        if (made++ >= most || !rowtide_read_cell(&reader, &cell, 0)) {
            Py_XDECREF(version);
            Py_DECREF(cells);
            RETURN_UNUSUAL;
        }
        state = crc8_step(state ^ cell.crc);
        sound = append_cell(cells, (PyTypeObject *)args[5], &cell, &version, &version_ms);
    }
    Py_XDECREF(version);
    if (!sound) {
        Py_XDECREF(cells);
        return NULL;
    }
    return Py_BuildValue("(Nni)", cells, (Py_ssize_t)(reader.at - begin), (int)state);
}

PyObject *rowtide_parse_cells(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Reader reader;
    if (count != 2)
        return rowtide_wrong_arguments("parse_cells", 2);
    if (!reader_of(args[0], &reader) || !rowtide_is_cell_type(args[1]))
        RETURN_UNUSUAL;
    PyObject *cells = PyList_New(0), *version = NULL;
    int64_t version_ms = 0;
    int sound = cells != NULL;
    while (sound && reader.at < reader.end) {
        WireCell cell;
        if (!rowtide_skim_cell(&reader, &cell)) {
            Py_XDECREF(version);
            Py_DECREF(cells);
            RETURN_UNUSUAL;
        }
        sound = append_cell(cells, (PyTypeObject *)args[1], &cell, &version, &version_ms);
    }
    Py_XDECREF(version);
    if (!sound)
        Py_CLEAR(cells);
    return cells;
}

/* Write a cell as it is sent and kept; `rowtide_cell_bytes` says how long it is. */
uint8_t *rowtide_write_cell(uint8_t *out, const WireCell *cell) {
    *out++ = T_CELL;
    *out++ = T_NAME;
    out = copy(store32(out, (uint32_t)cell->name_bytes), cell->name, cell->name_bytes);
    if (cell->value_bytes) {
        *out++ = T_VALUE;
        out = copy(store32(out, (uint32_t)cell->value_bytes), cell->value, cell->value_bytes);
    }
    if (cell->op != PUT) {
        *out++ = T_OP;
        *out++ = cell->op;
    }
    if (cell->has_version) {
        *out++ = T_VERSION;
        out = store64(out, (uint64_t)cell->version);
    }
    *out++ = T_CELL_CHECKSUM;
    *out++ = cell->crc;
    return out;
}

size_t rowtide_cell_bytes(const WireCell *cell) {
    return 6 + cell->name_bytes + (cell->value_bytes ? 5 + cell->value_bytes : 0)
        + (cell->op != PUT ? 2 : 0) + (cell->has_version ? 9 : 0) + 2;
}

/* Look at a cell's five parts, whose objects keep the bytes. Return 0 unless they are of the types
 * that all of this project's cells have, and of a form that has a value or a reason for none. */
static int parts_of(PyObject *given, WireCell *cell) {
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 5)
        return 0;
    Reader name, value;
    PyObject *op = PyTuple_GetItem(given, 1), *version = PyTuple_GetItem(given, 3);
    PyObject *crc = PyTuple_GetItem(given, 4);
    if (!reader_of(PyTuple_GetItem(given, 0), &name)
        || !reader_of(PyTuple_GetItem(given, 2), &value) || !PyLong_CheckExact(op)
        || !PyLong_CheckExact(crc))
        return 0;
    int beyond_op, beyond_crc, beyond = 0;
    long long op_number = PyLong_AsLongLongAndOverflow(op, &beyond_op);
    long long crc_number = PyLong_AsLongLongAndOverflow(crc, &beyond_crc);
    if (beyond_op || beyond_crc || op_number < 0 || op_number > 255 || crc_number < 0
        || crc_number > 255)
        return 0;
    cell->has_version = version != Py_None;
    cell->version = 0;
    if (cell->has_version) {
        if (!PyLong_CheckExact(version))
            return 0;
        cell->version = PyLong_AsLongLongAndOverflow(version, &beyond);
    }
    cell->name = name.at;
    cell->name_bytes = left(&name);
    cell->value = value.at;
    cell->value_bytes = left(&value);
    cell->op = (uint8_t)op_number;
    cell->crc = (uint8_t)crc_number;
    /* Lengths are 32 bits; a put without a value is nothing that this project makes. */
    return !beyond && cell->name_bytes < UINT32_MAX && cell->value_bytes < UINT32_MAX
        && (cell->op != PUT || cell->value_bytes);
}

/* Take the cells of a list or a tuple apart. Return them, NULL with *count -1 where one is unusual,
 * and NULL with an exception where there is no memory. To be freed with PyMem_Free. */
WireCell *rowtide_cells_of(PyObject *given, Py_ssize_t *count) {
    int listed = PyList_CheckExact(given);
    *count = -1;
    if (!listed && !PyTuple_CheckExact(given))
        return NULL;
    Py_ssize_t size = listed ? PyList_Size(given) : PyTuple_Size(given);
    WireCell *cells = PyMem_Malloc((size_t)(size ? size : 1) * sizeof(WireCell));
    if (cells == NULL) {
        *count = 0;
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < size; i++)
        if (!parts_of(listed ? PyList_GetItem(given, i) : PyTuple_GetItem(given, i), cells + i)) {
            PyMem_Free(cells);
            return NULL;
        }
    *count = size;
    return cells;
}

PyObject *rowtide_cells_piece(PyObject *module, PyObject *given) {
    (void)module;
    Py_ssize_t count;
    WireCell *cells = rowtide_cells_of(given, &count);
    if (cells == NULL && count < 0)
        RETURN_UNUSUAL;
    if (cells == NULL)
        return NULL;
    size_t size = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        size += rowtide_cell_bytes(cells + i);
    PyObject *piece = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (piece != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AsString(piece);
        for (Py_ssize_t i = 0; i < count; i++)
            out = rowtide_write_cell(out, cells + i);
    }
    PyMem_Free(cells);
    return piece;
}
