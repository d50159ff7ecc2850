/* Rows of a BatchWriteRow, and those of requests that write one row: taken from the message, read, and
 * decided, many by one call; stream/api/plain_rows.py, stream/api/plain_change.py and
 * core/shard/plain_batch.py. */
#include "kernels.h"

/* Tags of the messages' fields: BatchWriteRowRequest.tables; TableInBatchWriteRowRequest.rows; the
 * first three of RowInBatchWriteRowRequest, of which PutRowRequest, UpdateRowRequest and
 * DeleteRowRequest have the last two; Condition.row_existence. */
enum { F_TABLE = 0x0a, F_ROW = 0x12, F_KIND = 0x08, F_CHANGE = 0x12, F_CONDITION = 0x1a,
       F_EXISTENCE = 0x08 };

/* Kinds of change and expectations; core/rows/mutation.py. */
enum { PUT_ROW = 1, UPDATE_ROW = 2, DELETE_ROW = 3, IGNORE = 0, EXPECT_PRESENT = 1, EXPECT_ABSENT = 2 };

enum { CHUNK_HEADER_BYTES = 32, CHUNK_DELETED = 1 };

/* Read a number of at most five bytes, as lengths are. */
int rowtide_read_varint(Reader *reader, size_t *number) {
    *number = 0;
    for (int shift = 0; shift < 35 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;
        *number |= (size_t)(byte & 127) << shift;
        if (byte < 128)
            return 1;
    }
    return 0;
}

/* Read a field's length, and what it has. */
int rowtide_read_content(Reader *reader, Reader *content) {
    size_t size;
    if (!rowtide_read_varint(reader, &size) || size > left(reader))
        return 0;
    content->at = reader->at;
    content->end = reader->at += size;
    return 1;
}

/* Read the next field. `whole` is all of it; of a number there is no content. Return 0 where a
 * tag takes more than a byte, or is of another kind. */
static int read_field(Reader *reader, Reader *whole, Reader *content) {
    size_t number;
    whole->at = reader->at;
    uint8_t kind = *reader->at++ & 0x87;
    content->at = content->end = NULL;
    int sound = kind == 0 ? rowtide_read_varint(reader, &number)
                          : kind == 2 && rowtide_read_content(reader, content);
    whole->end = reader->at;
    return sound;
}

/* Append a table's rows, each a whole field, to a list: 1, 0 unusual, -1 with an exception. */
static int append_rows(Reader table, PyObject *rows) {
    Reader whole, content;
    while (table.at < table.end) {
        if (!read_field(&table, &whole, &content))
            return 0;
        if (*whole.at != F_ROW)
            continue;
        PyObject *row = PyBytes_FromStringAndSize((const char *)whole.at,
                                                  (Py_ssize_t)left(&whole));
        if (row == NULL || PyList_Append(rows, row) < 0) {
            Py_XDECREF(row);
            return -1;
        }
        Py_DECREF(row);
    }
    return 1;
}

static int append_tables(Reader message, PyObject *tables) {
    Reader whole, content;
    while (message.at < message.end) {
        if (!read_field(&message, &whole, &content))
            return 0;
        if (*whole.at != F_TABLE)
            continue;
        PyObject *rows = PyList_New(0);
        int told = rows == NULL ? -1 : append_rows(content, rows);
        if (told > 0 && PyList_Append(tables, rows) < 0)
            told = -1;
        Py_XDECREF(rows);
        if (told <= 0)
            return told;
    }
    return 1;
}

PyObject *rowtide_row_fields(PyObject *module, PyObject *given) {
    (void)module;
    Reader message;
    if (!reader_of(given, &message))
        RETURN_UNUSUAL;
    PyObject *tables = PyList_New(0);
    int told = tables == NULL ? -1 : append_tables(message, tables);
    if (told > 0)
        return tables;
    Py_XDECREF(tables);
    return told < 0 ? NULL : Py_NewRef(Py_None);
}

/* What a row of a batch says beside its change. */
typedef struct {
    Reader change;
    uint8_t kind;
    uint8_t expectation;
} Item;

/* Read a row and its condition as all writers make them where there is no condition but that the row
 * is there, or is not, and nothing is asked back. */
static int read_write(Reader fields, long kind, Item *item) {
    if (kind < PUT_ROW || kind > DELETE_ROW || !left(&fields) || *fields.at++ != F_CHANGE
        || !rowtide_read_content(&fields, &item->change))
        return 0;
    item->kind = (uint8_t)kind;
    item->expectation = IGNORE;
    if (!left(&fields))
        return 1;
    if (left(&fields) != 4 || fields.at[0] != F_CONDITION || fields.at[1] != 2
        || fields.at[2] != F_EXISTENCE || fields.at[3] > EXPECT_ABSENT)
        return 0;
    item->expectation = fields.at[3];
    return 1;
}

/* Read a row's field of a batch. */
static int read_item(Reader field, Item *item) {
    Reader row;
    if (!left(&field) || *field.at++ != F_ROW || !rowtide_read_content(&field, &row) || left(&field)
        || left(&row) < 3 || row.at[0] != F_KIND)
        return 0;
    row.at += 2;
    return read_write(row, row.at[-1], item);
}

/* What rows are held to. */
typedef struct {
    unsigned long table;
    PyObject *columns; /* Of the key: a tuple of (name, type's byte). */
    int updates;       /* Whether rows may be updated. */
    size_t key_value_bytes_max;
    size_t bytes_max;
    size_t value_bytes_max;
    size_t cells_max;
} Rules;

/* True if a key, from its tag on, is of these columns in their order: a tuple of (name, type's byte). */
int rowtide_fits_key(Reader piece, PyObject *columns, size_t value_bytes_max) {
    Py_ssize_t count = 0;
    for (piece.at++; piece.at < piece.end; count++) {
        WireCell column;
        Reader name;
        PyObject *wanted = count < PyTuple_Size(columns) ? PyTuple_GetItem(columns, count) : NULL;
        if (wanted == NULL || !PyTuple_Check(wanted) || PyTuple_Size(wanted) != 2
            || !rowtide_skim_column(&piece, &column)
            || !reader_of(PyTuple_GetItem(wanted, 0), &name)
            || left(&name) != column.name_bytes
            || memcmp(name.at, column.name, column.name_bytes) != 0)
            return 0;
        long kind = PyLong_AsLong(PyTuple_GetItem(wanted, 1));
        size_t head_bytes = value_head_bytes(column.value[0]);
        if (kind != column.value[0] || column.value_bytes < head_bytes
            || column.value_bytes - head_bytes > value_bytes_max) {
            PyErr_Clear(); /* A type that is no number fits nothing. */
            return 0;
        }
    }
    return count == PyTuple_Size(columns);
}

/* Read what follows the key of a row to be removed: a mark, which may be missing, and the end. Return
 * no cells, Py_None where there is anything else, or NULL with an exception. */
static PyObject *read_removal(Reader *reader, uint8_t state) {
    if (left(reader) && *reader->at == T_REMOVED) {
        reader->at++;
        state ^= 1;
    }
    if (!rowtide_ends_row(reader, crc8_step(state)))
        RETURN_UNUSUAL;
    return PyBytes_FromStringAndSize(NULL, 0);
}

/* Return what a row is that is to be written, Py_None where it is not plain, or NULL with an
 * exception. */
static PyObject *read_row(Item item, const Rules *rules) {
    uint8_t state;
    Reader key;
    size_t cells = 0, data_bytes = 0;
    if (left(&item.change) > rules->bytes_max || (item.kind == UPDATE_ROW && !rules->updates)
        || rowtide_open_row(&item.change, &key.at, &state, NULL) <= 0)
        RETURN_UNUSUAL;
    key.end = item.change.at;
    if (!rowtide_fits_key(key, rules->columns, rules->key_value_bytes_max))
        RETURN_UNUSUAL;
    PyObject *chunk_key, *encoded;
    PyObject *wire = item.kind == DELETE_ROW
        ? read_removal(&item.change, state)
        : rowtide_read_plain_cells(&item.change, key, state, rules->value_bytes_max,
                                   item.kind == UPDATE_ROW, &cells, &data_bytes);
    if (wire == NULL || wire == Py_None)
        return wire;
    int told = cells > rules->cells_max ? 0
        : rowtide_keys_of(rules->table, key, &chunk_key, &encoded);
    if (told <= 0) {
        Py_DECREF(wire);
        return told < 0 ? NULL : Py_NewRef(Py_None);
    }
    return Py_BuildValue("(iiNNy#iNnn)", (int)item.kind, (int)item.expectation, chunk_key, encoded,
                         (const char *)key.at, (Py_ssize_t)left(&key), (int)state, wire,
                         (Py_ssize_t)cells, (Py_ssize_t)(left(&key) + data_bytes));
}

/* Set an item of a new list to what was made; its reference is taken. Return 0 where nothing was. */
static int set_item(PyObject *list, Py_ssize_t at, PyObject *made) {
    return made != NULL && PyList_SetItem(list, at, made) == 0;
}

/* Take the rules from seven arguments; an exception is set where one is no number. */
static Rules rules_of(PyObject *const *args) {
    return (Rules){.table = PyLong_AsUnsignedLong(args[0]), .columns = args[1],
                   .updates = PyObject_IsTrue(args[2]),
                   .key_value_bytes_max = PyLong_AsSize_t(args[3]),
                   .bytes_max = PyLong_AsSize_t(args[4]),
                   .value_bytes_max = PyLong_AsSize_t(args[5]),
                   .cells_max = PyLong_AsSize_t(args[6])};
}

/* Return the row of a field of a batch, as `read_row`. */
static PyObject *read_field_row(PyObject *given, const Rules *rules) {
    Reader field;
    Item item;
    if (!reader_of(given, &field) || !read_item(field, &item))
        RETURN_UNUSUAL;
    return read_row(item, rules);
}

PyObject *rowtide_read_rows(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 8)
        return rowtide_wrong_arguments("read_rows", 8);
    Rules rules = rules_of(args + 1);
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_CheckExact(args[0]) || !PyTuple_CheckExact(rules.columns))
        RETURN_UNUSUAL;
    Py_ssize_t count = PyList_Size(args[0]);
    PyObject *rows = PyList_New(count);
    for (Py_ssize_t i = 0; rows != NULL && i < count; i++)
        if (!set_item(rows, i, read_field_row(PyList_GetItem(args[0], i), &rules)))
            Py_CLEAR(rows);
    return rows;
}

PyObject *rowtide_read_write(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader fields;
    Item item;
    if (given != 10)
        return rowtide_wrong_arguments("read_write", 10);
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    long kind = PyLong_AsLong(args[2]);
    Rules rules = rules_of(args + 3);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &fields) || !PyTuple_CheckExact(rules.columns) || at < 0
        || (size_t)at > left(&fields))
        RETURN_UNUSUAL;
    fields.at += at;
    if (!read_write(fields, kind, &item))
        RETURN_UNUSUAL;
    return read_row(item, &rules);
}

/* A row that was read: the items of what `read_row` made. */
enum { R_KIND, R_EXPECTATION, R_CHUNK_KEY, R_ENCODED, R_PIECE, R_STATE, R_WIRE, R_CELLS, R_SIZE,
       R_ITEMS };

/* Read a row back. Return 0 where it is nothing that `read_row` made. */
static int open_row(PyObject *row, Write *write, long *kind, long *expectation) {
    if (!PyTuple_Check(row) || PyTuple_Size(row) != R_ITEMS
        || !reader_of(PyTuple_GetItem(row, R_PIECE), &write->piece)
        || !reader_of(PyTuple_GetItem(row, R_WIRE), &write->wire))
        return 0;
    *kind = PyLong_AsLong(PyTuple_GetItem(row, R_KIND));
    *expectation = PyLong_AsLong(PyTuple_GetItem(row, R_EXPECTATION));
    long state = PyLong_AsLong(PyTuple_GetItem(row, R_STATE));
    Py_ssize_t cells = PyLong_AsSsize_t(PyTuple_GetItem(row, R_CELLS));
    if (PyErr_Occurred()) {
        PyErr_Clear(); /* No number, or one that is too large. */
        return 0;
    }
    write->key_state = (uint8_t)state;
    write->count = (size_t)cells;
    return state >= 0 && state <= 255 && cells >= 0;
}

/* Look at a row's first chunk, which may be Py_None. Return 0 unless all of the row is in it, or
 * there is none; *present says which. */
static int look(PyObject *first, int *present) {
    Reader chunk;
    *present = 0;
    if (first == Py_None)
        return 1;
    if (!reader_of(first, &chunk) || left(&chunk) < CHUNK_HEADER_BYTES || chunk.at[2]
        || chunk.at[3])
        return 0;
    *present = !(chunk.at[1] & CHUNK_DELETED);
    return 1;
}

/* What a batch's rows are evaluated with. Rows mostly have the same outcome, which is then one object:
 * `outcome`, of so many units; it starts as NULL. */
typedef struct {
    int64_t version_min;
    int64_t versions_max;
    size_t chunk_bytes_max;
    PyObject *evaluated_type;
    PyObject *outcome_type;
    Py_ssize_t key_overhead;
    PyObject *outcome;
    long read_units;
    Py_ssize_t write_units;
} Evaluation;

/* Fill a new tuple of a subclass with parts, whose references are taken. Return NULL with an exception
 * where there is none, or where a part is missing. */
static PyObject *new_tuple(PyObject *type, PyObject **parts, Py_ssize_t count) {
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)type, count);
    int failed = made == NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        failed |= parts[i] == NULL;
        if (made == NULL)
            Py_XDECREF(parts[i]);
        else if (parts[i] != NULL && PyTuple_SetItem(made, i, parts[i]) < 0)
            failed = 1;
    }
    if (failed)
        Py_CLEAR(made);
    return made;
}

/* Return the outcome of a row that was written: no row is returned, and these units were used;
 * core/rows/capacity.py. */
static PyObject *outcome_of(Evaluation *with, long expectation, Py_ssize_t size) {
    enum { UNIT_BYTES = 4096, PARTS = 3 };
    long reads = expectation != IGNORE;
    Py_ssize_t writes = size > UNIT_BYTES ? (size - 1) / UNIT_BYTES + 1 : 1;
    if (with->outcome == NULL || with->read_units != reads || with->write_units != writes) {
        Py_XDECREF(with->outcome);
        PyObject *parts[PARTS] = {PyBytes_FromStringAndSize(NULL, 0), PyLong_FromLong(reads),
                                  PyLong_FromLongLong(writes)};
        with->outcome = new_tuple(with->outcome_type, parts, PARTS);
        with->read_units = reads;
        with->write_units = writes;
    }
    return Py_XNewRef(with->outcome);
}

/* Return a list of one write: a chunk and its key. */
static PyObject *writes_of(PyObject *chunk_key, PyObject *chunk) {
    PyObject *writes = PyList_New(1), *pair = PyTuple_New(2);
    if (writes == NULL || pair == NULL) {
        Py_XDECREF(writes);
        Py_XDECREF(pair);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, Py_NewRef(chunk_key));
    PyTuple_SetItem(pair, 1, Py_NewRef(chunk));
    PyList_SetItem(writes, 0, pair);
    return writes;
}

/* Return an evaluated row, of which `stored` is (chunk, body); core/shard/evaluated.py. The reference
 * to `stored` is taken. Return it where it is Py_None or NULL. */
static PyObject *tell_row(PyObject *row, PyObject *stored, int64_t stamp, Evaluation *with) {
    enum { SINGLE = 3, PARTS = 7 };
    if (stored == NULL || stored == Py_None)
        return stored;
    long expectation = PyLong_AsLong(PyTuple_GetItem(row, R_EXPECTATION));
    Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GetItem(row, R_SIZE));
    PyObject *told = NULL;
    if (PyErr_Occurred() || size < 0) {
        PyErr_Clear();
        told = Py_NewRef(Py_None);
    } else {
        PyObject *parts[PARTS] = {
            outcome_of(with, expectation, size - with->key_overhead),
            PyLong_FromLongLong(stamp),
            Py_NewRef(PyTuple_GetItem(row, R_ENCODED)),
            Py_NewRef(PyTuple_GetItem(stored, 1)),
            writes_of(PyTuple_GetItem(row, R_CHUNK_KEY), PyTuple_GetItem(stored, 0)),
            Py_NewRef(Py_None),
            PyLong_FromLong(SINGLE),
        };
        told = new_tuple(with->evaluated_type, parts, PARTS);
    }
    Py_DECREF(stored);
    return told;
}

/* Return (chunk, body) of one row over its first chunk, as `rowtide_store`. */
static PyObject *write_row(PyObject *row, PyObject *first, int64_t stamp, Evaluation *with) {
    Write write = {.version = stamp / 1000, .stamp = stamp};
    long kind, expectation;
    int present;
    if (!open_row(row, &write, &kind, &expectation) || !look(first, &present)
        || kind < PUT_ROW || kind > DELETE_ROW)
        RETURN_UNUSUAL;
    /* What is expected and is not so, Python refuses. */
    if (expectation != IGNORE && (expectation == EXPECT_PRESENT) != present)
        RETURN_UNUSUAL;
    if (kind == DELETE_ROW)
        return rowtide_store_removal(&write);
    if (kind == PUT_ROW || !present)
        first = Py_None;
    if (kind == UPDATE_ROW && rowtide_has_changes(&write))
        return rowtide_store_changes(&write, first, with->version_min, with->versions_max,
                                     with->chunk_bytes_max);
    return rowtide_store(&write, kind == PUT_ROW, first, with->versions_max,
                         with->chunk_bytes_max);
}

PyObject *rowtide_stored_writes(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 9)
        return rowtide_wrong_arguments("stored_writes", 9);
    int64_t stamp = PyLong_AsLongLong(args[2]);
    Py_ssize_t chunk_bytes_max = PyLong_AsSsize_t(args[5]);
    Evaluation with = {.version_min = PyLong_AsLongLong(args[3]),
                       .versions_max = PyLong_AsLongLong(args[4]),
                       .chunk_bytes_max = (size_t)chunk_bytes_max,
                       .key_overhead = PyLong_AsSsize_t(args[6]),
                       .evaluated_type = args[7], .outcome_type = args[8]};
    if (PyErr_Occurred())
        return NULL;
    /* A stamp is microseconds since 1970, so far from its bounds that rows can be counted up. */
    if (!PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || stamp < 0
        || stamp > INT64_MAX / 2 || chunk_bytes_max < 0 || with.key_overhead < 0
        || !rowtide_is_cell_type(args[7]) || !rowtide_is_cell_type(args[8])
        || PyList_Size(args[0]) != PyList_Size(args[1]))
        RETURN_UNUSUAL;
    Py_ssize_t count = PyList_Size(args[0]);
    PyObject *made = PyList_New(count);
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        PyObject *row = PyList_GetItem(args[0], i), *first = PyList_GetItem(args[1], i);
        PyObject *stored = write_row(row, first, stamp + i, &with);
        if (!set_item(made, i, tell_row(row, stored, stamp + i, &with)))
            Py_CLEAR(made);
    }
    Py_XDECREF(with.outcome);
    return made;
}
