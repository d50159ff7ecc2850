/* A plain write: a row, some of its columns, or the row's removal. It is read once, and becomes the
 * chunk that is stored and the body of the log's record; core/shard/plain_write.py. */
#include "kernels.h"

#include <stdlib.h>

/* What a body is; core/records/record.py. */
enum { B_PUT = 2, B_UPDATE = 4, B_DELETE = 6 };

enum { COLUMNS_MAX = 1024, NAME_BYTES_MAX = 255, CHUNK_HEADER_BYTES = 32 };

/* A cell as slices of what was sent: `begin` up to `end` is all of it. */
typedef struct {
    const uint8_t *begin;
    const uint8_t *end;
    const uint8_t *name;
    size_t name_bytes;
} Column;

int rowtide_compare_names(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes) {
    size_t shorter = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = memcmp(a, b, shorter); /* Names have a byte at least. */
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_columns(const void *left_column, const void *right_column) {
    const Column *a = left_column, *b = right_column;
    return rowtide_compare_names(a->name, a->name_bytes, b->name, b->name_bytes);
}

/* True if a cell is one that may be put as it is: a fitting name, a finite number, no great value,
 * no version of its own. With `changes` it may also be an increment or the delete of its column. */
static int is_plain(const WireCell *cell, size_t value_bytes_max, int changes) {
    if (cell->has_version || !cell->name_bytes || cell->name_bytes > NAME_BYTES_MAX
        || cell->name[0] == '#')
        return 0;
    if (cell->op != PUT)
        return changes && (cell->op == DELETE_ALL || cell->op == INCREMENT);
    if (cell->value_bytes - value_head_bytes(cell->value[0]) > value_bytes_max)
        return 0;
    if (cell->value[0] != V_DOUBLE)
        return 1;
    uint64_t bits = load64(cell->value + 1);
    return (bits >> 52 & 0x7ff) != 0x7ff;
}

/* Read the cells behind their tag into `columns`. Return how many there are, 0 where the row is not
 * plain. */
static size_t read_columns(Reader *reader, Column *columns, size_t value_bytes_max, int changes,
                           uint8_t *state, size_t *data_bytes) {
    size_t count = 0;
    while (at_cell(reader)) {
        WireCell cell;
        const uint8_t *begin = reader->at;
        if (count == COLUMNS_MAX || !rowtide_read_cell(reader, &cell, 0)
            || !is_plain(&cell, value_bytes_max, changes))
            return 0;
        *state = crc8_step(*state ^ cell.crc);
        *data_bytes += cell.name_bytes;
        if (cell.value_bytes)
            *data_bytes += cell.value_bytes - value_head_bytes(cell.value[0]);
        columns[count++] = (Column){begin, reader->at, cell.name, cell.name_bytes};
    }
    return count;
}

/* True if the columns' names increase. */
static int increase(const Column *columns, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (compare_columns(columns + i - 1, columns + i) >= 0)
            return 0;
    return 1;
}

/* True if no column is named as one of the key, whose bytes from its tag on are `piece`. */
static int differ_from_key(Reader piece, const Column *columns, size_t count) {
    piece.at++;
    while (piece.at < piece.end) {
        WireCell part;
        if (!rowtide_skim_column(&piece, &part))
            return 0;
        for (size_t i = 0; i < count; i++)
            if (part.name_bytes == columns[i].name_bytes
                && memcmp(part.name, columns[i].name, part.name_bytes) == 0)
                return 0;
    }
    return 1;
}

/* Return the columns' bytes, in the order of their names; they are `size` bytes together. */
static PyObject *joined(Column *columns, size_t count, size_t size) {
    if (increase(columns, count))
        return PyBytes_FromStringAndSize((const char *)columns[0].begin, (Py_ssize_t)size);
    qsort(columns, count, sizeof(Column), compare_columns);
    if (!increase(columns, count))
        RETURN_UNUSUAL; /* A column came twice. */
    PyObject *wire = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (wire == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AsString(wire);
    for (size_t i = 0; i < count; i++)
        out = copy(out, columns[i].begin, (size_t)(columns[i].end - columns[i].begin));
    return wire;
}

/* Read what follows a plain write's key, to the end of its row. Return the cells' bytes, in the order
 * of their names, Py_None where the row is not plain, or NULL with an exception. `changes`: cells may
 * also be increments and deletes of columns. */
PyObject *rowtide_read_plain_cells(Reader *reader, Reader key, uint8_t key_state,
                                   size_t value_bytes_max, int changes, size_t *count,
                                   size_t *data_bytes) {
    Column columns[COLUMNS_MAX];
    uint8_t state = key_state;
    *data_bytes = 0;
    if (!left(reader) || *reader->at++ != T_CELLS)
        RETURN_UNUSUAL;
    const uint8_t *begin = reader->at;
    *count = read_columns(reader, columns, value_bytes_max, changes, &state, data_bytes);
    size_t size = (size_t)(reader->at - begin);
    if (!*count || !rowtide_ends_row(reader, crc8_step(state))
        || !differ_from_key(key, columns, *count))
        RETURN_UNUSUAL;
    return joined(columns, *count, size);
}

PyObject *rowtide_read_plain(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader reader;
    const uint8_t *piece;
    uint8_t key_state;
    size_t count, data_bytes;
    if (given != 3)
        return rowtide_wrong_arguments("read_plain", 3);
    Py_ssize_t bytes_max = PyLong_AsSsize_t(args[1]), value_max = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[0], &reader) || bytes_max < 0 || left(&reader) > (size_t)bytes_max
        || value_max < 0)
        RETURN_UNUSUAL;
    PyObject *key = rowtide_read_key(&reader, &piece, &key_state);
    if (key == NULL || key == Py_None)
        return key;
    Reader whole_key = {piece, reader.at};
    PyObject *wire = rowtide_read_plain_cells(&reader, whole_key, key_state, (size_t)value_max,
                                              0, &count, &data_bytes);
    if (wire == NULL || wire == Py_None) {
        Py_DECREF(key);
        return wire;
    }
    return Py_BuildValue("(Ny#iNnn)", key, (const char *)piece,
                         (Py_ssize_t)(whole_key.end - piece), (int)key_state, wire,
                         (Py_ssize_t)count, (Py_ssize_t)data_bytes);
}

/* Write a key's column as it stands in the order of keys; core/values/key.py. `out` has room for twice the
 * value and 3 bytes. Return NULL for a type that no stored key has. */
static uint8_t *write_ordered(uint8_t *out, const WireCell *column) {
    const uint8_t *value = column->value;
    if (value[0] == V_INTEGER && column->value_bytes == 9) {
        *out++ = 3;
        *out++ = value[8] ^ 0x80;
        for (int i = 7; i > 0; i--)
            *out++ = value[i];
        return out;
    }
    if ((value[0] != V_STRING && value[0] != V_BLOB) || column->value_bytes < 5)
        return NULL;
    *out++ = value[0] == V_STRING ? 4 : 5;
    for (const uint8_t *at = value + 5; at < value + column->value_bytes; at++) {
        *out++ = *at;
        if (!*at)
            *out++ = 0xff;
    }
    *out++ = 0;
    *out++ = 1;
    return out;
}

/* Make the key of a row's first chunk, and its encoded key, from the key's bytes. Return 1, 0 where
 * they are unusual, or -1 with an exception; then nothing was made. */
int rowtide_keys_of(unsigned long table, Reader piece, PyObject **chunk_key, PyObject **encoded) {
    if (table > UINT32_MAX || left(&piece) < 2 || left(&piece) > UINT16_MAX
        || *piece.at++ != T_KEY)
        return 0;
    uint8_t small[1024], *scratch = small;
    if (5 + 2 * left(&piece) > sizeof small)
        scratch = PyMem_Malloc(5 + 2 * left(&piece));
    if (scratch == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t *out = scratch;
    *out++ = 'r';
    for (int shift = 24; shift >= 0; shift -= 8)
        *out++ = (uint8_t)(table >> shift);
    while (out != NULL && piece.at < piece.end) {
        WireCell column;
        out = rowtide_skim_column(&piece, &column) ? write_ordered(out, &column) : NULL;
    }
    int told = out != NULL;
    if (told) {
        *chunk_key = PyBytes_FromStringAndSize((const char *)scratch, out - scratch);
        *encoded = PyBytes_FromStringAndSize((const char *)scratch + 5, out - scratch - 5);
        if (*chunk_key == NULL || *encoded == NULL) {
            Py_CLEAR(*chunk_key);
            Py_CLEAR(*encoded);
            told = -1;
        }
    }
    if (scratch != small)
        PyMem_Free(scratch);
    return told;
}

PyObject *rowtide_row_keys(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader piece;
    PyObject *chunk_key, *encoded;
    if (given != 2)
        return rowtide_wrong_arguments("row_keys", 2);
    unsigned long table = PyLong_AsUnsignedLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[1], &piece))
        RETURN_UNUSUAL;
    int told = rowtide_keys_of(table, piece, &chunk_key, &encoded);
    if (told < 0)
        return NULL;
    return told ? Py_BuildValue("(NN)", chunk_key, encoded) : Py_NewRef(Py_None);
}

/* Write a key's column as the log has it; core/records/avro.py. It takes no more bytes than the
 * column itself. Return NULL for a type that no stored key has. */
static uint8_t *write_logged_column(uint8_t *out, const WireCell *column) {
    const uint8_t *value = column->value;
    if (value[0] == V_INTEGER && column->value_bytes == 9) {
        *out++ = 0;
        return out + rowtide_write_long(out, (int64_t)load64(value + 1));
    }
    if ((value[0] != V_STRING && value[0] != V_BLOB) || column->value_bytes < 5)
        return NULL;
    *out++ = value[0] == V_STRING ? 2 : 4;
    out += rowtide_write_long(out, (int64_t)column->value_bytes - 5);
    return copy(out, value + 5, column->value_bytes - 5);
}

/* What is made: a chunk from `begin` on, of which the header is written last, and a body. */
typedef struct {
    uint8_t *begin;
    uint8_t *chunk;
    uint8_t *body;
    uint8_t state;
    int64_t version_min;
    uint32_t versions_max;
    uint32_t run;
    size_t data_bytes;
} Made;

/* Write the body's beginning: what it is, and the key. Return 0 where a column is unusual. */
static int write_logged_key(const Write *write, uint8_t branch, Made *made) {
    Reader columns = write->piece;
    WireCell column;
    int64_t count = 0;
    for (columns.at++; columns.at < columns.end; count++)
        if (!rowtide_skim_column(&columns, &column))
            return 0;
    *made->body++ = branch;
    made->body += rowtide_write_long(made->body, count);
    columns = write->piece;
    for (columns.at++; columns.at < columns.end;) {
        rowtide_skim_column(&columns, &column);
        made->body = write_logged_column(made->body, &column);
        if (made->body == NULL)
            return 0;
    }
    if (count)
        *made->body++ = 0;
    return 1;
}

/* Give a cell that is put the write's version. */
static void stamp_cell(WireCell *cell, const Write *write, const uint8_t *version) {
    if (cell->op != PUT)
        return;
    cell->has_version = 1;
    cell->version = write->version;
    cell->crc = rowtide_crc8(version, 8, cell->crc);
}

/* Read the next cell of the write, with its version; 0 at their end. */
static int next_change(Reader *cells, const Write *write, const uint8_t *version, WireCell *cell) {
    /* All of them were read before: this can't fail. */
    if (cells->at >= cells->end || !rowtide_skim_cell(cells, cell))
        return 0;
    stamp_cell(cell, write, version);
    return 1;
}

/* Write the cells to the body. Return 0 where one is no plain put, nor the delete of a column. */
static int write_logged_cells(const Write *write, int whole, const uint8_t *version, Made *made) {
    Reader cells = write->wire;
    WireCell cell;
    size_t count = 0;
    made->body += rowtide_write_long(made->body, (int64_t)write->count);
    for (; cells.at < cells.end; count++) {
        if (count == write->count || !rowtide_skim_cell(&cells, &cell) || cell.has_version
            || (cell.op != PUT && (whole || cell.op != DELETE_ALL)))
            return 0;
        stamp_cell(&cell, write, version);
        made->body = rowtide_write_logged(made->body, &cell);
        if (made->body == NULL)
            return 0;
    }
    *made->body++ = 0;
    *made->body++ = 0; /* No cells of before. */
    *made->body++ = 0; /* No indexes. */
    return count == write->count;
}

/* Write one more cell to the chunk. `again`: it is of the same column as the one before. */
static void keep(Made *made, const WireCell *cell, int again) {
    made->run = again ? made->run + 1 : 1;
    if (made->run > made->versions_max)
        made->versions_max = made->run;
    if (cell->version < made->version_min)
        made->version_min = cell->version;
    made->data_bytes += cell->name_bytes + cell->value_bytes - value_head_bytes(cell->value[0]);
    made->state = crc8_step(made->state ^ cell->crc);
    made->chunk = rowtide_write_cell(made->chunk, cell);
}

/* Open the cells of a stored chunk that is all of the row of this key. Return 0 where it is not. */
static int open_chunk(Reader *stored, const Reader *piece) {
    size_t key_bytes = left(piece);
    const uint8_t *head = stored->at;
    if (left(stored) < CHUNK_HEADER_BYTES + key_bytes + 2 || head[0] != 1 || head[1]
        || head[2] || head[3] || (head[4] | head[5] << 8) != (int)key_bytes
        || head[30] || head[31])
        return 0;
    stored->at += CHUNK_HEADER_BYTES;
    if (memcmp(stored->at, piece->at, key_bytes) != 0)
        return 0;
    stored->at += key_bytes;
    stored->end -= 2;
    if (stored->end[0] != T_ROW_CHECKSUM)
        return 0;
    return stored->at == stored->end || *stored->at++ == T_CELLS;
}

/* Read the next stored cell: 1, 0 at their end, -1 where it is unusual. */
static int next_stored(Reader *cells, WireCell *cell) {
    if (cells->at >= cells->end)
        return 0;
    if (!rowtide_skim_cell(cells, cell) || cell->op != PUT || !cell->has_version)
        return -1;
    return 1;
}

static int same_column(const WireCell *a, const WireCell *b) {
    return a->name_bytes == b->name_bytes && memcmp(a->name, b->name, a->name_bytes) == 0;
}

/* Write one column of which there are stored cells, newest first, and a change: the newest
 * versions, of equal ones the change; nothing of a column that is deleted. Return what `next_stored`
 * did last. */
static int merge_column(Reader *stored, WireCell *old, const WireCell *change, Made *made,
                        int64_t versions_max) {
    int64_t kept = 0;
    int more, placed = 0;
    if (change->op != PUT)
        versions_max = 0;
    WireCell column = *old;
    do {
        if (!placed && change->version >= old->version) {
            placed = 1;
            if (kept < versions_max)
                keep(made, change, kept++ > 0);
        }
        if (old->version != change->version && kept < versions_max)
            keep(made, old, kept++ > 0);
        more = next_stored(stored, old);
    } while (more > 0 && same_column(&column, old));
    if (!placed && kept < versions_max)
        keep(made, change, kept++ > 0);
    return more;
}

/* Write the stored cells and the changes, merged, to the chunk. Return 0 where one is unusual. */
static int merge(const Write *write, Reader stored, const uint8_t *version, Made *made,
                 int64_t versions_max) {
    Reader changes = write->wire;
    WireCell old, change, last;
    int olds = next_stored(&stored, &old), again = 0;
    int news = next_change(&changes, write, version, &change);
    while (olds > 0 || news) {
        int order = olds <= 0 ? 1 : !news ? -1
            : rowtide_compare_names(old.name, old.name_bytes, change.name, change.name_bytes);
        if (olds < 0)
            return 0;
        if (order < 0) {
            keep(made, &old, again);
            last = old;
            olds = next_stored(&stored, &old);
            again = olds > 0 && same_column(&last, &old);
            continue;
        }
        if (order <= 0)
            olds = merge_column(&stored, &old, &change, made, versions_max);
        else if (change.op == PUT)
            keep(made, &change, 0);
        again = 0;
        news = next_change(&changes, write, version, &change);
    }
    return olds == 0;
}

/* What a chunk's header says beside its cells. */
typedef struct {
    uint8_t flags;
    size_t end_bytes;
    size_t key_bytes;
    size_t begin_bytes;
    int64_t stamp;
} Head;

static void write_header(uint8_t *out, Head head, const Made *made) {
    *out++ = 1; /* The format. */
    *out++ = head.flags;
    out = store16(out, (unsigned)head.end_bytes);
    out = store16(out, (unsigned)head.key_bytes);
    out = store64(out, (uint64_t)head.stamp);
    out = store64(out, (uint64_t)made->version_min);
    out = store32(out, made->versions_max);
    out = store32(out, (uint32_t)made->data_bytes);
    store16(out, (unsigned)head.begin_bytes);
}

/* Return (chunk, body) of a write over a stored chunk's cells, which may be none. */
static PyObject *stored_write(const Write *write, uint8_t branch, Reader stored,
                              int64_t versions_max, size_t chunk_bytes_max, Made made) {
    uint8_t version[8], *body = made.body;
    store64(version, (uint64_t)write->version);
    if (!write_logged_key(write, branch, &made)
        || !write_logged_cells(write, branch == B_PUT, version, &made))
        RETURN_UNUSUAL;
    made.chunk = copy(made.begin + CHUNK_HEADER_BYTES, write->piece.at, left(&write->piece));
    *made.chunk++ = T_CELLS;
    if (!merge(write, stored, version, &made, versions_max))
        RETURN_UNUSUAL;
    if (!made.versions_max)
        made.chunk--; /* A row of which nothing is left but its key has no tag of cells. */
    *made.chunk++ = T_ROW_CHECKSUM;
    *made.chunk++ = crc8_step(made.state);
    if ((size_t)(made.chunk - made.begin) > chunk_bytes_max)
        RETURN_UNUSUAL;
    write_header(made.begin, (Head){.key_bytes = left(&write->piece), .stamp = write->stamp},
                 &made);
    return Py_BuildValue("(y#y#)", (const char *)made.begin,
                         (Py_ssize_t)(made.chunk - made.begin), (const char *)body,
                         (Py_ssize_t)(made.body - body));
}

/* True if the write's lengths are such that none below overflows: a cell takes 11 bytes at least, so
 * more than fit into its bytes there can't be. */
static int is_bounded(const Write *write, size_t chunk_bytes_max) {
    size_t piece_bytes = left(&write->piece), wire_bytes = left(&write->wire);
    return piece_bytes >= 2 && piece_bytes <= UINT16_MAX && write->piece.at[0] == T_KEY
        && wire_bytes <= chunk_bytes_max && write->count > 0 && write->count <= wire_bytes / 11;
}

/* Return (chunk, body) of a write of a `whole` row, or of an update, over a row's first chunk, which
 * may be Py_None; Py_None where anything is unusual, or NULL with an exception. */
PyObject *rowtide_store(const Write *write, int whole, PyObject *first, int64_t versions_max,
                        size_t chunk_bytes_max) {
    Reader stored = {write->wire.end, write->wire.end};
    if (!is_bounded(write, chunk_bytes_max) || versions_max < 1)
        RETURN_UNUSUAL;
    if (first != Py_None
        && (!reader_of(first, &stored) || left(&stored) > chunk_bytes_max
            || !open_chunk(&stored, &write->piece)))
        RETURN_UNUSUAL;
    size_t key_bytes = left(&write->piece), wire_bytes = left(&write->wire);
    /* The chunk: what is stored, and the cells with a version each. The body: what the log has of a
     * cell is no longer than its bytes and 15 more, of a key's column no longer than that is. */
    size_t chunk_room = CHUNK_HEADER_BYTES + key_bytes + 1 + left(&stored) + wire_bytes
        + 9 * write->count + 2;
    size_t room = chunk_room + 1 + 10 + key_bytes + 1 + 10 + wire_bytes + 15 * write->count + 3;
    uint8_t small[4096], *scratch = room <= sizeof small ? small : PyMem_Malloc(room);
    if (scratch == NULL)
        return PyErr_NoMemory();
    Made made = {.begin = scratch, .body = scratch + chunk_room, .state = write->key_state,
                 .version_min = INT64_MAX};
    PyObject *found = stored_write(write, whole ? B_PUT : B_UPDATE, stored, versions_max, chunk_bytes_max,
                                   made);
    if (scratch != small)
        PyMem_Free(scratch);
    return found;
}

/* Return (chunk, body) of a row's removal; Py_None where the key is unusual, or NULL with an
 * exception. */
PyObject *rowtide_store_removal(const Write *write) {
    size_t key_bytes = left(&write->piece);
    if (key_bytes < 2 || key_bytes > UINT16_MAX || write->piece.at[0] != T_KEY)
        RETURN_UNUSUAL;
    size_t chunk_room = CHUNK_HEADER_BYTES + key_bytes + 2, room = chunk_room + key_bytes + 14;
    uint8_t small[4096], *scratch = room <= sizeof small ? small : PyMem_Malloc(room);
    if (scratch == NULL)
        return PyErr_NoMemory();
    Made made = {.begin = scratch, .body = scratch + chunk_room, .version_min = INT64_MAX};
    uint8_t *body = made.body;
    PyObject *found = NULL;
    if (write_logged_key(write, B_DELETE, &made)) {
        *made.body++ = 0; /* No cells of before. */
        *made.body++ = 0; /* No indexes. */
        made.chunk = copy(made.begin + CHUNK_HEADER_BYTES, write->piece.at, key_bytes);
        *made.chunk++ = T_ROW_CHECKSUM;
        *made.chunk++ = crc8_step(write->key_state);
        write_header(made.begin,
                     (Head){.flags = 1, .key_bytes = key_bytes, .stamp = write->stamp}, &made);
        found = Py_BuildValue("(y#y#)", (const char *)made.begin,
                              (Py_ssize_t)(made.chunk - made.begin), (const char *)body,
                              (Py_ssize_t)(made.body - body));
    } else {
        found = Py_NewRef(Py_None);
    }
    if (scratch != small)
        PyMem_Free(scratch);
    return found;
}

/* Open the cells of a row's first chunk, of which there are none where it is Py_None. Return 0 where
 * it is unusual. */
int rowtide_open_stored(PyObject *first, const Reader *piece, Reader *stored) {
    stored->at = stored->end = piece->end;
    return first == Py_None || (reader_of(first, stored) && open_chunk(stored, piece));
}

PyObject *rowtide_stored_write(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 10)
        return rowtide_wrong_arguments("stored_write", 10);
    int whole = PyObject_IsTrue(args[0]);
    long key_state = PyLong_AsLong(args[2]);
    Py_ssize_t count = PyLong_AsSsize_t(args[4]), bytes_max = PyLong_AsSsize_t(args[9]);
    Write write = {.version = PyLong_AsLongLong(args[5]), .stamp = PyLong_AsLongLong(args[6])};
    int64_t versions_max = PyLong_AsLongLong(args[8]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[1], &write.piece) || !reader_of(args[3], &write.wire) || key_state < 0
        || key_state > 255 || count < 0 || bytes_max < 0)
        RETURN_UNUSUAL;
    write.key_state = (uint8_t)key_state;
    write.count = (size_t)count;
    return rowtide_store(&write, whole, args[7], versions_max, (size_t)bytes_max);
}

/* True if a cell may be in a chunk: a value that rows keep, with a version. */
static int is_kept(const WireCell *cell) {
    if (cell->op != PUT || !cell->has_version)
        return 0;
    uint8_t kind = cell->value[0];
    return (kind <= V_STRING || kind == V_BLOB) && cell->value_bytes >= value_head_bytes(kind);
}

/* Write a chunk of these cells. Behind a key come the tag of the cells and the row's checksum. */
static PyObject *write_chunk(const WireCell *cells, Py_ssize_t count, Head head, const Reader *end,
                             const Reader *piece, uint8_t state) {
    size_t size = CHUNK_HEADER_BYTES + head.end_bytes + head.key_bytes;
    if (head.key_bytes)
        size += (count ? 1 : 0) + 2;
    for (Py_ssize_t i = 0; i < count; i++)
        size += rowtide_cell_bytes(cells + i);
    PyObject *chunk = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (chunk == NULL)
        return NULL;
    Made made = {.begin = (uint8_t *)PyBytes_AsString(chunk), .state = state,
                 .version_min = INT64_MAX};
    made.chunk = copy(made.begin + CHUNK_HEADER_BYTES, end->at, head.end_bytes);
    made.chunk = copy(made.chunk, piece->at, head.key_bytes);
    if (head.key_bytes && count)
        *made.chunk++ = T_CELLS;
    for (Py_ssize_t i = 0; i < count; i++)
        keep(&made, cells + i, i && same_column(cells + i - 1, cells + i));
    if (head.key_bytes) {
        *made.chunk++ = T_ROW_CHECKSUM;
        *made.chunk++ = crc8_step(made.state);
    }
    write_header(made.begin, head, &made);
    return chunk;
}

PyObject *rowtide_stored_chunk(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Reader end, piece;
    Py_ssize_t count;
    if (given != 7)
        return rowtide_wrong_arguments("stored_chunk", 7);
    Head head = {.flags = 0, .stamp = PyLong_AsLongLong(args[1])};
    int deleted = PyObject_IsTrue(args[2]);
    long state = PyLong_AsLong(args[5]);
    Py_ssize_t begin_bytes = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred())
        return NULL;
    if (!reader_of(args[3], &end) || !reader_of(args[4], &piece) || left(&end) > UINT16_MAX
        || left(&piece) > UINT16_MAX || begin_bytes < 0 || begin_bytes > UINT16_MAX || state < 0
        || state > 255)
        RETURN_UNUSUAL;
    WireCell *cells = rowtide_cells_of(args[0], &count);
    if (cells == NULL && count < 0)
        RETURN_UNUSUAL;
    if (cells == NULL)
        return NULL;
    head.flags = (uint8_t)deleted;
    head.end_bytes = left(&end);
    head.key_bytes = left(&piece);
    head.begin_bytes = (size_t)begin_bytes;
    int sound = 1;
    for (Py_ssize_t i = 0; i < count; i++)
        sound = sound && is_kept(cells + i);
    PyObject *chunk = sound ? write_chunk(cells, count, head, &end, &piece, (uint8_t)state)
                            : Py_NewRef(Py_None);
    PyMem_Free(cells);
    return chunk;
}
